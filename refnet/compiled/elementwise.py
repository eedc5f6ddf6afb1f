"""What a training step does with every number of every parameter, in one pass over them."""

from collections.abc import Iterable
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numba
import numpy as np

from refnet.batch import Array
from refnet.compiled._jit import jit, run
from refnet.compiled.layout import normal
from refnet.compiled.rows import addresses_of, held
from refnet.compiled.vector import cut

__all__ = ["descended", "sum_of_squares"]

SUMS = 256
"""The number of sums that are made side by side: enough for whole vectors, few enough for the
nearest cache."""

BLOCK = 2 ** 14
"""Numbers that one thread takes at least."""


def sum_of_squares(arrays: Iterable[Array]) -> float:
    """``sum a^2`` over all numbers of all arrays of floats, computed in float64.

    Number i of each array goes to sum i mod 256, and NumPy adds up the 256 sums: the sizes alone
    fix the order. Squares that overflow give inf.

    Raises TypeError for complex numbers.

    >>> sum_of_squares([np.array([3.0, 4.0], np.float32), np.array([[12.0]])])
    169.0

    Checked by: tests/test_optimizers.py::test_sum_of_squares.
    """
    found = list(arrays)
    if {array.dtype for array in found} != {np.dtype(np.float32)}:
        found = [array.astype(np.float64, casting="same_kind", copy=False) for array in found]
    like = np.empty(0, found[0].dtype if found else np.float64)
    flat = [normal(array, like.dtype) for array in found]
    sums = np.zeros(SUMS)
    _add_squares(np.array([array.size for array in flat], np.int64), addresses_of(flat), sums, like)
    return float(sums.sum())


@jit
def _add_squares(sizes: Any, places: Any, sums: Any, like: Any) -> None:
    """``sums[i mod SUMS] += a[i]^2`` of every array, of the type of ``like``."""
    for n in range(len(sizes)):
        flat = held(places, n, sizes[n], like)
        for start in range(0, len(flat), SUMS):
            left = len(flat) - start
            part = cut(flat, start, SUMS if SUMS < left else left)
            for j in range(len(part)):
                value = np.float64(part[j])
                sums[j] += value * value


def descended(values: list[Array], rates: list[float], directions: list[Array]) -> list[Array]:
    """``value - rate direction`` of each of them, all float32 or all float64; the product and
    the difference are rounded.

    >>> descended([np.array([1.0, 2.0])], [0.5], [np.array([2.0, -2.0])])[0].tolist()
    [0.0, 3.0]

    Checked by: tests/test_optimizers.py::test_large_steps.
    """
    dtype = values[0].dtype
    moved = [np.empty(value.shape, dtype) for value in values]
    arrays = [*[array if array.flags.carray else normal(array, dtype)
                for array in (*values, *directions)], *moved]
    starts = _starts(tuple([value.size for value in values]))
    blocks = -(-int(starts[-1]) // BLOCK)
    threads = max(min(numba.get_num_threads(), blocks // 8), 1)
    run(_descend, blocks, np.empty((threads, 0)), starts, np.array(rates, dtype),
        addresses_of(arrays))
    return moved


@lru_cache(maxsize=64)
def _starts(sizes: tuple[int, ...]) -> Array:
    """Where each array begins, if they stood in a row, and the end: (arrays + 1,)."""
    return np.array([0, *accumulate(sizes)])


@jit
def _descend(begin: int, end: int, work: Any, starts: Any, rates: Any, places: Any) -> None:
    """For the numbers of the blocks from ``begin`` to ``end``, if all arrays stood in a row."""
    N = len(rates)
    for n in range(N):
        first = max(begin * BLOCK, starts[n]) - starts[n]
        last = min(end * BLOCK, starts[n + 1]) - starts[n]
        if first < last:
            count, rate = last - first, rates[n]
            # counted from 0: a loop whose indices could be below it is not vectorised
            value = cut(held(places, n, last, rates), first, count)
            direction = cut(held(places, N + n, last, rates), first, count)
            moved = cut(held(places, 2 * N + n, last, rates), first, count)
            for i in range(count):
                moved[i] = value[i] - rate * direction[i]
