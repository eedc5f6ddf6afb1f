"""What the processor can do at most: floating-point operations and bytes a second.

The peak is a loop of fused multiply-adds on whole vector registers that do not wait for one
another and touch no memory; the bandwidth, a scaled copy of an array far larger than the caches
(STREAM's "scale": one number read, one written). Both are compiled, and run on one core or on
several.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from benchmarks.turns import seconds
from refnet.compiled._jit import jit, run
from refnet.compiled.layout import APART, aligned
from refnet.compiled.vector import BYTES, cut, fma_call, number, whole_registers

INDEPENDENT = 12
"""Multiply-adds under way at once: two units with a latency of five cycles need ten, and their
sums and two factors fit into 16 registers."""
COPIED = 2**27
"""Bytes of the array that is copied, several times as many as a third-level cache has."""


@intrinsic  # type: ignore[untyped-decorator]
def _multiply_adds(context: Any, turns: Any, factor: Any) -> Any:
    """``sums = factor sums + factor``, ``turns`` times; then the total of their first numbers."""

    def generate(ctx: Any, builder: Any, sig: Any, args: Any) -> Any:
        element = ctx.get_data_type(factor)
        lanes = BYTES * 8 // factor.bitwidth
        vector, lane = ir.VectorType(element, lanes), ir.IntType(32)
        undefined = ir.Constant(vector, ir.Undefined)
        spread = builder.shuffle_vector(
            builder.insert_element(undefined, args[1], lane(0)),
            undefined,
            ir.Constant(ir.VectorType(lane, lanes), [0] * lanes),
        )
        places = []
        for n in range(INDEPENDENT):
            place = cgutils.alloca_once(builder, vector)  # becomes a register
            builder.store(ir.Constant(vector, [float(n)] * lanes), place)
            places.append(place)
        with cgutils.for_range(builder, args[0]):
            for place in places:
                builder.store(fma_call(builder, builder.load(place), spread, spread), place)
        total = element(0.0)
        for place in places:
            total = builder.fadd(total, builder.extract_element(builder.load(place), lane(0)))
        return total

    return factor(types.intp, factor), generate


@jit
def _compute(first: int, last: int, out: Any, turns: int) -> None:
    for n in range(first, last):
        out[n] = _multiply_adds(turns, number(0.5, out[n]))


@jit
def _scale(first: int, last: int, factor: Any, to: Any, source: Any, count: int) -> None:
    whole_registers()
    for n in range(first, last):
        a, b = cut(to, n * count, count), cut(source, n * count, count)
        for i in range(count):
            a[i] = factor[0] * b[i]


def peak(
    dtype: npt.DTypeLike, threads: int, operations: float = 1e9
) -> tuple[Callable[[], None], float]:
    """A function to time, and the number of floating-point operations that it makes: in each
    thread at least ``operations``; a multiply-add counts as two."""
    dtype = np.dtype(dtype)
    each = 2 * INDEPENDENT * BYTES // dtype.itemsize
    turns = int(-(-operations // each))
    out = aligned((threads, APART // dtype.itemsize), dtype)
    return (lambda: run(_compute, threads, out, turns)), float(threads * turns * each)


def bandwidth(threads: int) -> tuple[Callable[[], None], float]:
    """A function to time, and the number of bytes that it moves. As in STREAM, a cache line that
    the processor reads only because it is about to be written does not count."""
    count = COPIED // 8 // threads
    to, source = (aligned((threads * count,), np.dtype(float)) for _ in range(2))
    to[:] = source[:] = 1
    factor = np.full((threads, 1), 3.0)
    return (lambda: run(_scale, threads, factor, to, source, count)), 16.0 * threads * count


def rate(work: tuple[Callable[[], None], float], rounds: int = 9) -> float:
    """Operations or bytes a second in the best of the rounds."""
    go, amount = work
    return amount / min(seconds(go) for _ in range(rounds + 1))
