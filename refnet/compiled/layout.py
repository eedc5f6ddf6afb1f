"""How the kernels see their arrays: normalised once, padded to whole vectors, cut into blocks
of rows; and the product of such blocks.

A kernel multiplies rows ``[h | x | 1]`` by the stacked ``[Whh'; Wxh'; bh]``, so that input,
bias and recursion are one product, and likewise gets all three gradients from one. Each gate
starts at a multiple of the padded ``width``.
"""

from typing import Any, NamedTuple

import numpy as np

from refnet.batch import Array, Params
from refnet.compiled._jit import JIT, jit
from refnet.compiled.vector import BYTES, ROWS, VECTORS, lanes, tile

__all__ = ["Layout", "aligned", "layout", "normal", "pack", "product", "unpack"]

SMALL = 2 ** 18
"""Bytes of a recurrent matrix that stays near the core while few rows at a time pass by."""


def normal(value: Array, dtype: Any) -> Array:
    """``value`` in C order, native, aligned and writable: one type, one compiled kernel."""
    return np.require(value, dtype, ["C", "A", "W"])


def aligned(shape: tuple[int, ...], dtype: Any) -> Array:
    """Zeros that start at a multiple of the vector size (loads across cache lines are slow)."""
    if dtype.kind != "f":
        return np.zeros(shape, dtype)
    n = int(np.prod(shape))
    raw = np.zeros(n + BYTES // dtype.itemsize, dtype)
    skip = -raw.ctypes.data % BYTES // dtype.itemsize
    return raw[skip:skip + n].reshape(shape)


class Layout(NamedTuple):
    """dtype; sizes T, B, D, H; ``lane`` numbers a vector; ``width`` is H padded to whole
    vectors; ``starts`` (blocks + 1,) are the first rows of the blocks of the batch."""

    dtype: Any
    T: int
    B: int
    D: int
    H: int
    lane: int
    width: int
    starts: Array

    @property
    def blocks(self) -> int:
        """How many blocks of rows there are."""
        return len(self.starts) - 1

    @property
    def rows(self) -> int:
        """The most rows a block has."""
        return int(np.diff(self.starts).max(initial=0))


def layout(where: str, p: Params, x: Array, *others: Array) -> Layout:
    """The layout for these arrays. The blocks depend on the sizes and nothing else, least of
    all the number of threads: sums over the batch are made block by block.

    Raises TypeError for a dtype that has no kernel.
    """
    found = np.result_type(*p.values(), x, *others)
    dtype = found.newbyteorder("=")
    if dtype.char not in ("f", "d") and (JIT or dtype != object):
        raise TypeError(f"{where}: the arrays make {found}; the compiled core has float32 and "
                        'float64. For any other number type take backend="reference"')
    T, B, D = x.shape
    H = p["Whh"].shape[1]
    lane = lanes(dtype)
    width = -(-H // lane) * lane
    # about 8 rows a block: enough to use each loaded vector of W often, few enough for many
    # threads; two halves where W comes from far
    pairs = max(1, round(B / 16)) if p["Whh"].size * dtype.itemsize <= SMALL else 1
    blocks = min(B, 2 * pairs)
    starts = np.arange(blocks + 1) * B // max(blocks, 1)
    return Layout(dtype, T, B, D, H, lane, width, starts)


def pack(parts: list[Array], gates: int, lane: int, dtype: Any) -> Array:
    """Stack ``parts`` (k, gates * H) to (depth, gates * H), pad each gate to whole vectors and
    lay out panel after panel as ``product`` walks them, flat."""
    depth, columns = sum(len(part) for part in parts), parts[0].shape[1]
    H = columns // gates
    width = -(-H // lane) * lane
    rows = aligned((depth, gates, width), dtype)
    at = 0
    for part in parts:
        rows[at:at + len(part), :, :H] = part.reshape(len(part), gates, H)
        at += len(part)
    flat = rows.reshape(depth, gates * width)
    vectors = gates * width // lane
    panels = -(-vectors // VECTORS)
    if panels < 2:
        return flat.reshape(-1)
    out = aligned((flat.size,), dtype)
    edges = [vectors * n // panels * lane for n in range(panels + 1)]
    for first, last in zip(edges, edges[1:]):
        out[first * depth:last * depth] = flat[:, first:last].reshape(-1)
    return out


def unpack(total: Array, gates: int, H: int) -> Array:
    """(depth, gates * width) without the padding and transposed: (gates * H, depth)."""
    kept = total.reshape(len(total), gates, -1)[:, :, :H]
    return np.ascontiguousarray(kept.reshape(len(total), gates * H).T)


@jit
def product(c: Any, cs: int, a: Any, ar: int, ak: int, w: Any, ws: int, depth: int, rows: int,
            vectors: int, lane: int, add: bool) -> None:
    """``c[r cs + j] (+)= sum_k a[r ar + k ak] w[k, j]``, r < rows, j < vectors * lane.

    ``w`` is packed, or, if ws is not 0, has its rows ws apart. Every entry is one chain over
    k, so that its bits do not depend on how the rows are tiled.
    """
    panels = (vectors + VECTORS - 1) // VECTORS
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
