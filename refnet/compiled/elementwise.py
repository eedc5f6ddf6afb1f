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

__all__ = ["stepped", "sum_of_squares"]

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
    values = list(arrays)
    if {array.dtype for array in values} != {np.dtype(np.float32)}:
        values = [array.astype(np.float64, casting="same_kind", copy=False) for array in values]
    like = np.empty(0, values[0].dtype if values else np.float64)
    flat = normals(values, like.dtype)
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


def stepped(
    rule: str,
    values: list[Array],
    gradients: list[Array],
    accumulators: list[Array],
    constants: list[list[float]],
) -> tuple[list[Array], list[Array]]:
    """One step of an optimizer, one of KERNELS: the new values and the new accumulators.

    All arrays are float32, or all float64. Each value has a gradient and the rule's accumulators,
    one after the other, all of its size; and a row of the constants that the kernel names. Every
    operation is rounded, as NumPy rounds it. ValueError for lists that don't fit.

    >>> W, g, r = [np.array([2.0])], [np.array([2.0])], [np.array([4.0])]
    >>> moved, squares = stepped("rmsprop", W, g, r, [[0.5, 0.75, 0.25, 0.5, False]])
    >>> moved[0].tolist(), squares[0].tolist()  # 2 - .5 * 2 / (sqrt(4) + .5)
    ([1.6], [4.0])

    Checked by: tests/training/test_optimizers.py::test_large_steps.
    """
    kernel, kinds, columns = KERNELS[rule]
    count, dtype = len(values), values[0].dtype
    sizes = [value.size for value in values]
    by_kind = chain(*[accumulators[kind::kinds] for kind in range(kinds)])
    given = [*values, *gradients, *by_kind]
    admit_counts("a step", given, sizes * (2 + kinds))
    lengths = list(map(len, constants))
    if lengths != [columns] * count:
        raise ValueError(
            f"a step: the rows of constants have {lengths} numbers; {rule} needs {columns} for "
            f"each of {count} arrays"
        )
    table = np.array([*chain(*constants)], dtype).reshape(count, columns)
    new = [np.empty(value.shape, dtype) for _ in range(1 + kinds) for value in values]
    starts = _starts(tuple(sizes))
    blocks = -(-int(starts[-1]) // BLOCK)
    threads = max(min(get_threads(), blocks // 8), 1)
    arrays = normals(given, dtype) + new
    run(kernel, blocks, np.empty((threads, 0), dtype), starts, table, addresses_of(arrays))
    by_value = zip(*[new[kind * count :][:count] for kind in range(1, 1 + kinds)])
    return new[:count], [*chain(*by_value)]


@lru_cache(maxsize=64)
def _starts(counts: tuple[int, ...]) -> Array:
    """Where each array begins, if they stood in a row, and the end: (arrays + 1,)."""
    return np.array([0, *accumulate(counts)])


@inlined
def _part(at: Arg, k: int, n: int) -> Arg:
    """The numbers of the blocks from ``begin`` to ``end`` that the n-th arrays have, if all stood
    in a row; of the k-th kind. ``at``: a kernel's arguments but the constants."""
    begin, end, like, starts, places = at
    last = max(min(end * BLOCK, starts[n + 1]) - starts[n], 0)
    first = min(max(begin * BLOCK - starts[n], 0), last)
    # so that loops count from 0: one whose indices could be below it is not vectorised
    return cut(held(places, k * (len(starts) - 1) + n, last, like), first, last - first)


@jit
def _sgd(begin: int, end: int, work: Arg, starts: Arg, constants: Arg, places: Arg) -> None:
    """With the rate."""
    at = begin, end, work, starts, places
    for n in range(len(constants)):
        rate = constants[n, 0]
        value = _part(at, 0, n)
        g = _part(at, 1, n)
        result = _part(at, 2, n)
        for i in range(len(value)):
            result[i] = value[i] - rate * g[i]


@jit
def _momentum(begin: int, end: int, work: Arg, starts: Arg, constants: Arg, places: Arg) -> None:
    """With the rate, the momentum, and whether the form is Nesterov's."""
    at = begin, end, work, starts, places
    for n in range(len(constants)):
        rate, momentum, ahead = constants[n, 0], constants[n, 1], constants[n, 2] != 0
        value = _part(at, 0, n)
        g = _part(at, 1, n)
        old = _part(at, 2, n)
        result = _part(at, 3, n)
        new = _part(at, 4, n)
        for i in range(len(value)):
            v = momentum * old[i] + g[i]
            new[i] = v
            result[i] = value[i] - rate * (g[i] + momentum * v if ahead else v)


@jit
def _rmsprop(begin: int, end: int, work: Arg, starts: Arg, constants: Arg, places: Arg) -> None:
    """With the rate, the decay, 1 - decay, eps, and whether eps is inside the root."""
    at = begin, end, work, starts, places
    for n in range(len(constants)):
        rate, decay, rest = constants[n, 0], constants[n, 1], constants[n, 2]
        eps, inside = constants[n, 3], constants[n, 4] != 0
        value = _part(at, 0, n)
        g = _part(at, 1, n)
        old = _part(at, 2, n)
        result = _part(at, 3, n)
        new = _part(at, 4, n)
        for i in range(len(value)):
            r = decay * old[i] + rest * (g[i] * g[i])
            root = np.sqrt(r + eps) if inside else np.sqrt(r) + eps
            new[i] = r
            result[i] = value[i] - rate * (g[i] / root)


@jit
def _adam(begin: int, end: int, work: Arg, starts: Arg, constants: Arg, places: Arg) -> None:
    """With the rate, beta1, 1 - beta1, 1 / (1 - beta1^n), the same three of beta2, eps, whether
    the value decays (AdamW's), and the rate times its weight decay."""
    at = begin, end, work, starts, places
    for n in range(len(constants)):
        rate, eps = constants[n, 0], constants[n, 7]
        beta1, rest1, unbias1 = constants[n, 1], constants[n, 2], constants[n, 3]
        beta2, rest2, unbias2 = constants[n, 4], constants[n, 5], constants[n, 6]
        decays, decay = constants[n, 8] != 0, constants[n, 9]
        value = _part(at, 0, n)
        g = _part(at, 1, n)
        mean = _part(at, 2, n)
        square = _part(at, 3, n)
        result = _part(at, 4, n)
        new_mean = _part(at, 5, n)
        new_square = _part(at, 6, n)
        for i in range(len(value)):
            m = beta1 * mean[i] + rest1 * g[i]
            r = beta2 * square[i] + rest2 * (g[i] * g[i])
            new_mean[i] = m
            new_square[i] = r
            w = value[i] - decay * value[i] if decays else value[i]
            result[i] = w - rate * ((unbias1 * m) / (np.sqrt(unbias2 * r) + eps))


@jit
def _adadelta(begin: int, end: int, work: Arg, starts: Arg, constants: Arg, places: Arg) -> None:
    """With the rate, the decay, 1 - decay and eps."""
    at = begin, end, work, starts, places
    for n in range(len(constants)):
        rate, decay, rest, eps = constants[n, 0], constants[n, 1], constants[n, 2], constants[n, 3]
        value = _part(at, 0, n)
        g = _part(at, 1, n)
        square = _part(at, 2, n)
        update = _part(at, 3, n)
        result = _part(at, 4, n)
        new_square = _part(at, 5, n)
        new_update = _part(at, 6, n)
        for i in range(len(value)):
            r = decay * square[i] + rest * (g[i] * g[i])
            d = g[i] * np.sqrt(update[i] + eps) / np.sqrt(r + eps)
            new_square[i] = r
            new_update[i] = decay * update[i] + rest * (d * d)
            result[i] = value[i] - rate * d


KERNELS = {
    "sgd": (_sgd, 0, 1),
    "momentum": (_momentum, 1, 3),
    "rmsprop": (_rmsprop, 1, 5),
    "adam": (_adam, 2, 10),
    "adadelta": (_adadelta, 2, 4),
}
"""Name -> its kernel, the accumulators and the constants for each value."""
