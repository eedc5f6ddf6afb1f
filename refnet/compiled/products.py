"""Products of many rows with a narrow matrix, such as those of a read-out at every step.

BLAS copies all rows before it multiplies them, and with few columns the copy takes longer than the
product.

Checked by: tests/compiled/test_products.py.
"""

from functools import lru_cache

import numpy as np

from refnet.batch import Array
from refnet.compiled._jit import jit, run
from refnet.compiled.annotations import Arg
from refnet.compiled.layout import APART, borrow, boundary, give_back, normal, pack
from refnet.compiled.plan import CHUNK
from refnet.compiled.tiles import Rows, Strided, product
from refnet.compiled.vector import FLUSH, clear, copy_rows, cut, float_control, lanes
from refnet.maths import numeric
from refnet.maths.threads import get_threads

__all__ = ["matmul"]

LEAST = 2**22
"""Multiplications from which it is used: the kernels would make the first gradient of a small net
wait for their compilation."""

NARROW = 64
"""Columns or rows of the narrow matrix at most; beyond it BLAS gains on this."""

LONG = 1024
"""Rows in a block, which one thread takes."""


def matmul(a: Array, b: Array) -> Array:
    """``a @ b`` of two matrices, (N, K) and (K, M), as ``refnet.maths.numeric.matmul``; of floats
    where N or K is far larger than the other sizes, by blocks of rows in threads. The sizes alone
    fix the order of every sum.

    >>> matmul(np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]])).tolist()
    [[11.0]]
    """
    (N, K), M = a.shape, b.shape[1]
    if (
        N * K * M >= LEAST
        and len(b) == K
        and a.dtype == b.dtype
        and a.dtype.char in "fd"
        and a.dtype.isnative
    ):
        if N >= 2 * LONG and min(K, M) <= NARROW:
            return _long(normal(a, a.dtype), normal(b, a.dtype))
        if K >= 2 * LONG and N <= NARROW:
            return _deep(normal(a.T, a.dtype), normal(b, a.dtype))
    return numeric.matmul(a, b)


@lru_cache(maxsize=32)
def block_starts(rows: int) -> Array:
    """The first row of each block, and the number of rows: (blocks + 1,).

    >>> block_starts(2100).tolist()
    [0, 1050, 2100]
    """
    blocks = max(rows // LONG, 1)
    return np.array([rows * n // blocks for n in range(blocks + 1)])


def _run(kernel: Arg, starts: Array, numbers: int, a: Array, b: Array, out: Array) -> None:
    threads = min(get_threads(), len(starts) - 1)
    work = borrow((threads, numbers + APART // a.itemsize), a.dtype)
    run(kernel, len(starts) - 1, work, starts, lanes(a.dtype), a, b, out)
    give_back(work)


def _long(a: Array, b: Array) -> Array:
    """(N, K) and (K, M), N large."""
    lane, (K, M) = lanes(a.dtype), b.shape
    width = -(-M // lane) * lane
    out = np.empty((len(a), M), a.dtype)
    _run(_long_kernel, block_starts(len(a)), (K + CHUNK) * width, a, b, out)
    return out


def _deep(a: Array, b: Array) -> Array:
    """``a' b`` of (K, N) and (K, M), K large."""
    lane, (K, N), M = lanes(a.dtype), a.shape, b.shape[1]
    width = -(-M // lane) * lane
    starts = block_starts(K)
    parts = np.empty((len(starts) - 1, N, width), a.dtype)
    _run(_deep_kernel, starts, CHUNK * width, a, b, parts)
    total: Array = np.add.reduce(parts)
    return total[:, :M].copy()


@jit
def _long_kernel(
    begin: int, end: int, work: Arg, starts: Arg, lane: int, a: Arg, b: Arg, out: Arg
) -> None:
    mode = float_control(-1, FLUSH)
    (K, M), first, last = b.shape, starts[begin], starts[end]
    units = (M + lane - 1) // lane
    width = units * lane
    work = cut(work, boundary(work), (K + CHUNK) * width)
    w, c = cut(work, 0, K * width), cut(work, K * width, CHUNK * width)
    clear(w, 0, K * width)
    pack(w, 0, K, cut(b, 0, K * M), K, M, lane, False)
    for start in range(first, last, CHUNK):
        rows = min(CHUNK, last - start)
        chunk, packed = Strided(cut(a, start * K, rows * K), K, 1), Rows(w, 0)
        to = cut(out, start * M, rows * M) if width == M else c
        product(Rows(to, width), chunk, packed, K, rows, units, lane, False)
        if width != M:
            copy_rows(out, start * M, M, c, 0, width, rows, M)
    float_control(0, mode)


@jit
def _deep_kernel(
    begin: int, end: int, work: Arg, starts: Arg, lane: int, a: Arg, b: Arg, parts: Arg
) -> None:
    mode = float_control(-1, FLUSH)
    N, M = a.shape[1], b.shape[1]
    units = (M + lane - 1) // lane
    width = units * lane
    work = cut(work, boundary(work), CHUNK * width)
    clear(work, 0, CHUNK * width)
    for block in range(begin, end):
        total = Rows(cut(parts, block * N * width, N * width), width)
        for start in range(starts[block], starts[block + 1], CHUNK):
            rows = min(CHUNK, starts[block + 1] - start)
            chunk = Strided(cut(a, start * N, rows * N), 1, N)
            other = cut(b, start * M, rows * M) if width == M else work
            if width != M:
                copy_rows(work, 0, width, b, start * M, M, rows, M)
            more = start > starts[block]
            product(total, chunk, Rows(other, width), rows, N, units, lane, more)
    float_control(0, mode)
