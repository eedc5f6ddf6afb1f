"""The layout of the kernels' arrays: one memory order, padding to whole vectors, and a batch split
into blocks of rows.

A kernel multiplies rows ``[h | x | 1]`` by the stacked ``[Whh'; Wxh'; bh]``, so input, bias and
recursion are one product. Likewise, one product yields all three gradients. Each gate
starts at a multiple of the padded ``width``.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import count
from math import prod
from typing import NamedTuple

import numpy as np

from refnet.batch import Array
from refnet.compiled._jit import JIT, inner
from refnet.compiled.annotations import Arg
from refnet.compiled.rows import turn
from refnet.compiled.tiles import ROWS, panel_count
from refnet.compiled.vector import BYTES, copy_rows, cut, lanes
from refnet.maths.threads import get_threads

__all__ = [
    "Layout",
    "add_rows",
    "admit_lengths",
    "admit_counts",
    "aligned",
    "borrow",
    "boundary",
    "common",
    "cut_up",
    "deal",
    "forget",
    "give_back",
    "lend",
    "normal",
    "normals",
    "pack",
    "spaces",
]

SMALL = 2**18
"""Bytes up to which a recurrent matrix stays in a core's own cache from step to step, so that small
blocks of rows cost nothing."""

SPARE = 2**22
"""Bytes up to which an array is kept for the next kernel."""

LENT, POOLED = 2**22, 2**28
"""Bytes from which an array of a tape is lent, and those of all memory that is kept to be lent."""

APART = 2**16
"""Bytes between the work arrays of two threads. With less, the hardware prefetcher of one core
fetches cache lines that another core is writing (false sharing)."""


def normal(value: Array, dtype: Arg) -> Array:
    """``value`` in C order, native byte order, aligned and writable, so that Numba compiles each
    kernel for one array type only."""
    if value.dtype == dtype and value.flags.carray:
        return value
    return np.require(value, dtype, ["C", "A", "W"])


def normals(values: Iterable[Array], dtype: Arg) -> list[Array]:
    """``normal`` of each, without a call for those that are so."""
    return [
        value if value.dtype is dtype and value.flags.carray else normal(value, dtype)
        for value in values
    ]


def admit_counts(where: str, arrays: Iterable[Array], counts: Sequence[int]) -> None:
    """Raise ValueError unless the arrays have that many numbers: a kernel checks no index.

    >>> admit_counts("a step", [np.ones(3)], [4])
    Traceback (most recent call last):
    ValueError: a step: a kernel's arrays hold [3] numbers; need [4]: pass what belongs together

    Checked by: tests/nets/test_tapes.py::test_other_sizes_reach_no_kernel.
    """
    sizes = [array.size for array in arrays]
    if sizes != counts:
        raise ValueError(
            f"{where}: a kernel's arrays hold {sizes} numbers; need {counts}: pass "
            "what belongs together"
        )


def aligned(shape: tuple[int, ...], dtype: Arg, clear: bool = True) -> Array:
    """Zeros, or anything unless ``clear``, whose address is a multiple of the vector size (loads
    across cache lines are slow)."""
    if dtype.kind != "f":
        return np.zeros(shape, dtype)
    n = prod(shape)
    raw = (np.zeros if clear else np.empty)(n + BYTES // dtype.itemsize, dtype)
    skip = -raw.ctypes.data % BYTES // dtype.itemsize
    return raw[skip : skip + n].reshape(shape)


WAKE = 2**20
"""Multiplications that a thread takes about 50 microseconds for, and to wake it 30: a net that runs
step by step has less in a call."""


class Layout(NamedTuple):
    """dtype; sizes T, B, D, H; ``lane`` is the number of entries in a vector; ``width`` is H padded
    to whole vectors; ``starts`` (blocks + 1,) are the first rows of the ``blocks`` of the batch,
    and B; ``rows`` is the size of the largest block; ``worth`` is for how many threads there is
    work."""

    dtype: Arg
    T: int
    B: int
    D: int
    H: int
    lane: int
    width: int
    rows: int
    starts: Array
    blocks: int
    worth: int


def common(where: str, *arrays: Array) -> Arg:
    """The dtype of the kernels for these arrays.

    Raises TypeError for one that has no kernel.
    """
    dtype = arrays[0].dtype
    if dtype.char in "fd" and dtype.isnative and all([array.dtype is dtype for array in arrays]):
        return dtype
    joined = np.result_type(*arrays)
    dtype = joined.newbyteorder("=")
    if dtype.char not in ("f", "d") and (JIT or dtype != object):
        raise TypeError(
            f"{where}: the arrays make {joined}; the compiled core has float32 and "
            'float64. For any other number type take backend="reference"'
        )
    return dtype


@lru_cache(maxsize=32)
def cut_up(dtype: Arg, T: int, B: int, D: int, rows: int, H: int) -> Layout:
    """The layout for these sizes. Sums over the batch are made block by block; the blocks depend
    on the sizes alone and not on the number of threads, and so do the bits of the results."""
    lane = lanes(dtype)
    width = -(-H // lane) * lane
    # about 8 rows in a block: enough to use each loaded vector of W often, few enough to occupy
    # many threads; two halves of the batch where W does not fit into a core's own cache
    pairs = max(1, round(B / 16)) if rows * H * dtype.itemsize <= SMALL else 1
    blocks = min(B, 2 * pairs)
    starts = np.array([B * n // max(blocks, 1) for n in range(blocks + 1)])
    rows_each, worth = -(-B // max(blocks, 1)), 1 + T * B * rows * (H + D + 1) // WAKE
    return Layout(dtype, T, B, D, H, lane, width, rows_each, starts, blocks, worth)


def admit_lengths(where: str, lengths: Array, starts: Array) -> None:
    """Raise ValueError unless each row has a length, which is never more than that before it in
    its block.

    >>> admit_lengths("a step", np.array([1, 2, 3]), np.array([0, 1, 3]))
    Traceback (most recent call last):
    ValueError: a step: lengths [1, 2, 3] need to be 3, not rising within the blocks of rows from \
[0, 1] on: take the order that refnet.compiled.layout.deal gives

    Checked by: tests/nets/test_padding.py::test_an_order_that_is_not_dealt_is_refused.
    """
    if _falls(lengths.tobytes(), lengths.dtype, starts.tobytes()):
        return
    raise ValueError(
        f"{where}: lengths {lengths.tolist()} need to be {starts[-1]}, not rising within the "
        f"blocks of rows from {starts[:-1].tolist()} on: take the order that "
        "refnet.compiled.layout.deal gives"
    )


@lru_cache(maxsize=32)
def _falls(lengths: bytes, dtype: Arg, starts: bytes) -> bool:
    """Whether no length rises within a block: a step asks twice, forward and back."""
    ends, edges = np.frombuffer(lengths, dtype), np.frombuffer(starts, np.intp)
    rises = ends[1:] > ends[:-1]
    if len(ends) != edges[-1]:
        return False
    rises[edges[1:-1] - 1] = False
    return not rises.any()


def deal(lengths: Array, dtype: Arg, rows: int, H: int) -> Array:
    """An order of a batch's sequences, by their lengths (B,), for cells with ``rows`` and ``H`` as
    in ``cut_up``: every block gets a like share of the long and of the short, its longest first,
    in whole tiles of rows.

    >>> deal(np.array([1, 4, 2, 3, 9, 8, 7, 6, 5, 10]), np.dtype(np.float32), 4, 4).tolist()
    [9, 4, 5, 6, 0, 7, 8, 1, 3, 2]
    """
    order = np.empty(len(lengths), np.intp)
    order[_places(dtype, len(lengths), rows, H)] = (-lengths).argsort(kind="stable")
    return order


@lru_cache(maxsize=32)
def _places(dtype: Arg, B: int, rows: int, H: int) -> Array:
    """The places in the batch of the longest sequence, the next, and so on: (B,)."""
    starts = cut_up(dtype, 0, B, 0, rows, H).starts
    block = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    turn = (np.arange(B) - starts[block]) // ROWS[0]
    half = max(len(starts) // 2, 1)
    # back and forth between halves, and then over all blocks
    place = block % half * 2 + (block // half ^ block % half & 1)
    return np.lexsort((np.where(turn % 2, -place, place), turn))


@inner
def boundary(work: Arg) -> Arg:
    """The index of the first number of a flat array whose address is a multiple of the vector
    size."""
    return -np.intp(work.ctypes.data) % BYTES // work.itemsize


_SPARE: dict[Arg, Array] = {}
"""Arrays that no kernel uses now, by shape and dtype: the C library gives the memory of a freed one
back, and to clear the pages of a new one takes a small net a tenth of its step."""


def borrow(shape: tuple[int, ...], dtype: Arg) -> Array:
    """An array with anything in it, to ``give_back``."""
    spare = _SPARE.pop((shape, dtype.char), None)
    if spare is None:
        return aligned(shape, dtype, clear=False)
    return spare


def give_back(*arrays: Array) -> None:
    """Keep small arrays for the next kernels that need some of their shapes."""
    for array in arrays:
        if array.nbytes <= SPARE and array.dtype.char in "fd":
            if len(_SPARE) >= 16:
                _SPARE.clear()
            _SPARE[array.shape, array.dtype.char] = array


_POOL: dict[int, Array] = {}
"""Memory of tapes that no array uses now, the oldest first, each under a new number."""
_NUMBERS = count()


class _Lent:
    """Memory that goes back to the pool when the last array in it is gone."""

    def __init__(self, memory: Array, shape: tuple[int, ...]) -> None:
        self.memory = memory
        self.__array_interface__ = {**memory.__array_interface__, "shape": shape}

    def __del__(self) -> None:
        _POOL[next(_NUMBERS)] = self.memory
        spare = _pooled()
        total = sum([memory.nbytes for memory in spare.values()])
        for key, memory in spare.items():
            if total > POOLED and _POOL.pop(key, None) is not None:
                total -= memory.nbytes


def _pooled() -> dict[int, Array]:
    """What is in the pool, which another thread or the garbage collector may change meanwhile."""
    return {key: memory for key in [*_POOL] if (memory := _POOL.get(key)) is not None}


def lend(shape: tuple[int, ...], dtype: Arg) -> Array:
    """An array with anything in it. If it is large, its memory serves another one as soon as
    nothing refers to it or to a view of it: to clear the pages of a new tape takes longer than to
    fill it.

    >>> lend((3, 2), np.dtype(np.float32)).shape
    (3, 2)

    Checked by: tests/compiled/test_lent_memory.py.
    """
    numbers = prod(shape)
    if numbers * dtype.itemsize < LENT or dtype.kind != "f":
        return np.empty(shape, dtype)
    sizes = {key: memory.size for key, memory in _pooled().items() if memory.dtype == dtype}
    for key in sorted(sizes, key=sizes.__getitem__):
        if numbers <= sizes[key] <= 2 * numbers and (memory := _POOL.pop(key, None)) is not None:
            return np.asarray(_Lent(memory, shape))
    return np.asarray(_Lent(aligned((numbers,), dtype, clear=False), shape))


def forget() -> None:
    """Free all memory that is kept for later; what is in use stays.

    >>> forget()
    """
    _POOL.clear()
    _SPARE.clear()


def spaces(lay: Layout, numbers: int) -> Array:
    """Borrow a work array for each thread, (threads, at least ``numbers`` after the first
    ``boundary``). There are no more threads than blocks."""
    threads = max(min(get_threads(), lay.blocks, lay.worth), 1)
    return borrow((threads, numbers + APART // lay.dtype.itemsize), lay.dtype)


@inner
def pack(
    w: Arg, at: int, depth: int, source: Arg, rows: int, columns: int, lane: int, transposed: bool
) -> None:
    """Write a matrix into ``w``, which holds zeros, in the order in which ``product`` reads it:
    panel after panel, columns padded to whole vectors. It fills the rows from ``at`` on of (depth,
    columns). The matrix is ``rows`` rows of ``columns`` in a flat array; or, with ``transposed``,
    the transposed one."""
    count, H = (columns, rows) if transposed else (rows, columns)
    vectors = (H + lane - 1) // lane
    panels = panel_count(vectors)
    for n in range(panels):
        left, last = vectors * n // panels * lane, vectors * (n + 1) // panels * lane
        to, breadth = left * depth + at * (last - left), (last if last < H else H) - left
        if transposed:
            turn(w, to, last - left, source, left * columns, columns, breadth, count)
        else:
            copy_rows(w, to, last - left, source, left, columns, count, breadth)


@inner
def add_rows(
    to: Arg, step: int, source: Arg, start: int, stride: int, rows: int, count: int
) -> None:
    """``to[r step + j] += source[start + r stride + j]`` for r < rows and j < count."""
    for r in range(rows):
        row, other = cut(to, r * step, count), cut(source, start + r * stride, count)
        for j in range(count):
            row[j] += other[j]
