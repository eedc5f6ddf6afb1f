"""The work of a training step on every number of every parameter, in one pass over them."""

from collections.abc import Iterable
from functools import lru_cache
from itertools import accumulate, chain

import numpy as np

from refnet.batch import Array
from refnet.compiled._jit import inlined, jit, run
from refnet.compiled.annotations import Arg
from refnet.compiled.layout import admit_counts, normals
from refnet.compiled.rows import addresses_of, held
from refnet.compiled.vector import cut
from refnet.maths.threads import get_threads

__all__ = ["descended", "rmsprop", "sum_of_squares"]

SUMS = 256
"""The number of sums that are made side by side: enough for whole vectors, few enough for the
nearest cache."""

BLOCK = 2**14
"""Numbers that one thread takes at least."""


def sum_of_squares(arrays: Iterable[Array]) -> float:
    """``sum a^2`` over all numbers of all arrays of floats, computed in float64.

    Number i of each array goes to sum i mod 256, and NumPy adds up the 256 sums: the sizes alone
    fix the order. Squares that overflow give inf.

    Raises TypeError for complex numbers.

    >>> sum_of_squares([np.array([3.0, 4.0], np.float32), np.array([[12.0]])])
    169.0

    Checked by: tests/training/test_optimizers.py::test_sum_of_squares.
    """
    found = list(arrays)
    if {array.dtype for array in found} != {np.dtype(np.float32)}:
        found = [array.astype(np.float64, casting="same_kind", copy=False) for array in found]
    like = np.empty(0, found[0].dtype if found else np.float64)
    flat = normals(found, like.dtype)
    sums = np.zeros(SUMS)
    _add_squares(np.array([array.size for array in flat], np.int64), addresses_of(flat), sums, like)
    return float(sums.sum())


@jit
def _add_squares(sizes: Arg, places: Arg, sums: Arg, like: Arg) -> None:
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
    the difference are rounded. ValueError for a direction of another size than its
    value.

    >>> descended([np.array([1.0, 2.0])], [0.5], [np.array([2.0, -2.0])])[0].tolist()
    [0.0, 3.0]

    Checked by: tests/training/test_optimizers.py::test_large_steps.
    """
    return _made(_descend, rates, (values, directions), 1)


def rmsprop(
    values: list[Array],
    rates: list[float],
    gradients: list[Array],
    squares: list[Array],
    decay: float,
    rest: float,
    eps: float,
    inside: bool,
) -> tuple[list[Array], list[Array]]:
    """``r <- decay r + rest g^2`` and ``value - rate g / sqrt(r + eps)``, or with eps outside the
    root, of each of them: the new values, the new squares. All as for ``descended``, and every
    operation is rounded.

    >>> W, g, r = [np.array([2.0])], [np.array([2.0])], [np.array([4.0])]
    >>> moved, squares = rmsprop(W, [0.5], g, r, decay=0.75, rest=0.25, eps=0.5, inside=False)
    >>> moved[0].tolist(), squares[0].tolist()  # 2 - .5 * 2 / (sqrt(4) + .5)
    ([1.6], [4.0])

    Checked by: tests/training/test_optimizers.py::test_large_steps.
    """
    made = _made(
        _rmsprop,
        rates,
        (values, gradients, squares),
        2,
        np.array([decay, rest, eps], values[0].dtype),
        inside,
    )
    return made[: len(values)], made[len(values) :]


def _made(
    kernel: Arg, rates: list[float], given: tuple[list[Array], ...], count: int, *options: Arg
) -> list[Array]:
    """What the kernel makes of these lists of an array for each rate: ``count`` new ones for each,
    after those given."""
    dtype = given[0][0].dtype
    counts = [value.size for value in given[0]]
    for others in given[1:]:
        admit_counts("a step", others, counts)
    if len(rates) != len(counts):
        raise ValueError(
            f"a step: there are {len(rates)} rates; need one for each of {len(counts)} arrays"
        )
    new = [np.empty(value.shape, dtype) for _ in range(count) for value in given[0]]
    starts = _starts(tuple(counts))
    blocks = -(-int(starts[-1]) // BLOCK)
    threads = max(min(get_threads(), blocks // 8), 1)
    arrays = normals(chain(*given), dtype) + new
    run(
        kernel,
        blocks,
        np.empty((threads, 0), dtype),
        starts,
        np.array(rates, dtype),
        addresses_of(arrays),
        *options,
    )
    return new


@lru_cache(maxsize=64)
def _starts(counts: tuple[int, ...]) -> Array:
    """Where each array begins, if they stood in a row, and the end: (arrays + 1,)."""
    return np.array([0, *accumulate(counts)])


@inlined
def _part(places: Arg, k: int, n: int, begin: int, end: int, starts: Arg, like: Arg) -> Arg:
    """The numbers of the blocks from ``begin`` to ``end`` that the n-th arrays have, if all stood
    in a row; of the k-th kind."""
    last = max(min(end * BLOCK, starts[n + 1]) - starts[n], 0)
    first = min(max(begin * BLOCK - starts[n], 0), last)
    # so that loops count from 0: one whose indices could be below it is not vectorised
    return cut(held(places, k * len(like) + n, last, like), first, last - first)


@jit
def _descend(begin: int, end: int, work: Arg, starts: Arg, rates: Arg, places: Arg) -> None:
    for n in range(len(rates)):
        rate = rates[n]
        value = _part(places, 0, n, begin, end, starts, rates)
        direction = _part(places, 1, n, begin, end, starts, rates)
        moved = _part(places, 2, n, begin, end, starts, rates)
        for i in range(len(value)):
            moved[i] = value[i] - rate * direction[i]


@jit
def _rmsprop(
    begin: int,
    end: int,
    work: Arg,
    starts: Arg,
    rates: Arg,
    places: Arg,
    options: Arg,
    inside: bool,
) -> None:
    decay, rest, eps = options[0], options[1], options[2]
    for n in range(len(rates)):
        rate = rates[n]
        value = _part(places, 0, n, begin, end, starts, rates)
        g = _part(places, 1, n, begin, end, starts, rates)
        old = _part(places, 2, n, begin, end, starts, rates)
        moved = _part(places, 3, n, begin, end, starts, rates)
        new = _part(places, 4, n, begin, end, starts, rates)
        for i in range(len(value)):
            r = decay * old[i] + rest * (g[i] * g[i])
            root = np.sqrt(r + eps) if inside else np.sqrt(r) + eps
            new[i] = r
            moved[i] = value[i] - rate * (g[i] / root)
