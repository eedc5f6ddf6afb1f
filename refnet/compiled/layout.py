"""The arrays as the kernels take them: in one memory order, padded to whole vectors, and with the
batch split into blocks of rows; and the matrix product of such blocks.

A kernel multiplies rows ``[h | x | 1]`` by the stacked ``[Whh'; Wxh'; bh]``, so that input,
bias and recursion are one product, and likewise gets all three gradients from one. Each gate
starts at a multiple of the padded ``width``.
"""

from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numba
import numpy as np

from refnet.batch import Array, Params
from refnet.compiled._jit import JIT, inner
from refnet.compiled.vector import BYTES, ROWS, VECTORS, copy_rows, cut, lanes, tile

__all__ = ["Layout", "add_rows", "aligned", "boundary", "layout", "normal", "pack",
           "product", "share", "shares", "spaces", "summed"]

SMALL = 2 ** 18
"""Bytes up to which a recurrent matrix stays in a core's own cache from step to step, so that small
blocks of rows cost nothing."""

APART = 2 ** 16
"""Bytes between the work arrays of two threads. With less, the hardware prefetcher of one core
fetches cache lines that another core is writing (false sharing)."""


def normal(value: Array, dtype: Any) -> Array:
    """``value`` in C order, native byte order, aligned and writable, so that Numba compiles each
    kernel for one array type only."""
    if value.dtype == dtype and value.flags.carray:
        return value
    return np.require(value, dtype, ["C", "A", "W"])


def aligned(shape: tuple[int, ...], dtype: Any) -> Array:
    """Zeros whose address is a multiple of the vector size (loads across cache lines are slow)."""
    if dtype.kind != "f":
        return np.zeros(shape, dtype)
    n = prod(shape)
    raw = np.zeros(n + BYTES // dtype.itemsize, dtype)
    skip = -raw.ctypes.data % BYTES // dtype.itemsize
    return raw[skip:skip + n].reshape(shape)


class Layout(NamedTuple):
    """dtype; sizes T, B, D, H; ``lane`` is the number of entries in a vector; ``width`` is H padded
    to whole vectors; ``starts`` (blocks + 1,) are the first rows of the blocks of the batch, and B;
    ``rows`` is the size of the largest block."""

    dtype: Any
    T: int
    B: int
    D: int
    H: int
    lane: int
    width: int
    rows: int
    starts: Array

    @property
    def blocks(self) -> int:
        """The number of blocks of rows."""
        return len(self.starts) - 1


def layout(where: str, p: Params, x: Array, *others: Array) -> Layout:
    """The layout for these arrays. Sums over the batch are made block by block; the blocks depend
    on the sizes alone and not on the number of threads, and so do the bits of the results.

    Raises TypeError for a dtype that has no kernel.
    """
    found = np.result_type(*p.values(), x, *others)
    dtype = found.newbyteorder("=")
    if dtype.char not in ("f", "d") and (JIT or dtype != object):
        raise TypeError(f"{where}: the arrays make {found}; the compiled core has float32 and "
                        'float64. For any other number type take backend="reference"')
    return _cut(dtype, *x.shape, *p["Whh"].shape)


@lru_cache(maxsize=32)
def _cut(dtype: Any, T: int, B: int, D: int, rows: int, H: int) -> Layout:
    lane = lanes(dtype)
    width = -(-H // lane) * lane
    # about 8 rows in a block: enough to use each loaded vector of W often, few enough to occupy
    # many threads; two halves of the batch where W does not fit into a core's own cache
    pairs = max(1, round(B / 16)) if rows * H * dtype.itemsize <= SMALL else 1
    blocks = min(B, 2 * pairs)
    starts = np.array([B * n // max(blocks, 1) for n in range(blocks + 1)])
    return Layout(dtype, T, B, D, H, lane, width, -(-B // max(blocks, 1)), starts)


@inner
def boundary(work: Any) -> Any:
    """The index of the first number of a flat array whose address is a multiple of the vector
    size."""
    return -np.intp(work.ctypes.data) % BYTES // work.itemsize


def spaces(lay: Layout, numbers: int) -> Array:
    """A work array for each thread, (threads, at least ``numbers`` after the first ``boundary``).
    The number of threads is Numba's setting, but not above the number of blocks."""
    threads = max(min(numba.get_num_threads(), lay.blocks), 1)
    return np.empty((threads, numbers + APART // lay.dtype.itemsize), lay.dtype)


@inner
def _panels(vectors: int) -> int:
    """The number of panels into which this many vectors of columns are split, such that the size
    of each panel is one of VECTORS."""
    if vectors < VECTORS[1]:
        return vectors
    return (vectors + VECTORS[-1] - 1) // VECTORS[-1]


@inner
def pack(w: Any, at: int, depth: int, part: Any, gates: int, lane: int, transposed: bool) -> None:
    """Write a matrix into ``w``, which holds zeros, in the order in which ``product`` reads it:
    panel after panel, columns padded to whole vectors, gate after gate. The matrix fills the rows
    from ``at`` on of the (depth, H) of each gate.

    Shapes: part (gates * rows, H); or, with ``transposed``, (gates * H, columns).
    """
    numbers, size, line = cut(part, 0, part.size), len(part) // gates, part.shape[1]
    rows, H, down, right = (line, size, 1, line) if transposed else (size, line, line, 1)
    vectors = (H + lane - 1) // lane
    panels = _panels(vectors)
    for g in range(gates):
        for n in range(panels):
            first, last = vectors * n // panels * lane, vectors * (n + 1) // panels * lane
            start, columns = (g * vectors * lane + first) * depth, min(last, H) - first
            for r in range(rows):
                row = cut(w, start + (at + r) * (last - first), columns)
                own = g * size * line + r * down + first * right
                for c in range(columns):
                    row[c] = numbers[own + c * right]


def shares(lay: Layout, gates: int = 1) -> Array:
    """An empty array for each block's part of the gradients of Whh, Wxh and bh, one after the
    other: (blocks, numbers)."""
    return np.empty((lay.blocks, gates * lay.H * (lay.H + lay.D + 1)), lay.dtype)


@inner
def share(own: Any, gates: int, gate: int, total: Any, H: int, D: int, wide: int) -> None:
    """Copy the sums of one gate's gradients, H rows [H | D | 1] that are ``wide`` apart, to their
    places in a block's part (see ``shares``)."""
    Whh, Wxh, bh = gate * H * H, (gates * H + gate * D) * H, (gates * (H + D) + gate) * H
    copy_rows(own, Whh, H, total, 0, wide, H, H)
    copy_rows(own, Wxh, D, total, H, wide, H, D)
    for j in range(H):
        own[bh + j] = total[j * wide + H + D]


def summed(lay: Layout, parts: Array, gates: int = 1) -> Params:
    """The gradients of Whh, Wxh and bh: the blocks' parts, added in order."""
    n, m = gates * lay.H, lay.H + lay.D
    total = parts.sum(axis=0)
    return {"Whh": total[:n * lay.H].reshape(n, lay.H),
            "Wxh": total[n * lay.H:n * m].reshape(n, lay.D), "bh": total[n * m:]}


@inner
def add_rows(to: Any, step: int, source: Any, start: int, stride: int, rows: int, count: int
             ) -> None:
    """``to[r step + j] += source[start + r stride + j]`` for r < rows and j < count."""
    for r in range(rows):
        row, other = cut(to, r * step, count), cut(source, start + r * stride, count)
        for j in range(count):
            row[j] += other[j]


@inner
def product(c: Any, cs: int, a: Any, ar: int, ak: int, w: Any, ws: int, depth: int, rows: int,
            vectors: int, lane: int, add: bool) -> None:
    """``c[r cs + j] (+)= sum_k a[r ar + k ak] w[k, j]``, r < rows, j < vectors * lane.

    ``w`` is packed, or, if ws is not 0, has rows that are ws apart. Every entry is summed over k in
    order, so that its bits do not depend on how the rows are split into tiles.
    """
    panels = _panels(vectors)
    for n in range(panels):
        first = vectors * n // panels
        count = vectors * (n + 1) // panels - first
        j = first * lane
        wi, stride = (j, ws) if ws else (j * depth, count * lane)
        r = 0
        for size in ROWS:
            while r + size <= rows:
                tile(c, r * cs + j, cs, a, r * ar, ar, ak, w, wi, stride, depth, size, count, add)
                r += size
