"""How far rounding may carry a sum or a matrix product, in whatever order a program adds.

Let p_k be the K terms of a sum, S_i their partial sums at up to CHUNKS places with w terms between,
S the sum, and Q the sum of squares. The variance is

- of a sum: ``V u^2 / 3, V = c sum_i min(w max(S_i^2, (S - S_{i-1})^2, S^2 / 3 + Q / 6),
  Q_i / u^2)``: sums from the first term on, from the last one on, and in random order; terms
  that are lost because they are small cost at most themselves. Equal terms are rounded alike: c is
  the mean number of terms equal to a term (1 if all differ). A sum of sums is one of all their
  terms: each of its terms counts n times, n being the number of the inner sum's terms, times its
  own c, and Q is that of the inner terms;
- of a matrix product: ``(V + Q) u^2 / 3``, the second for the products themselves.

Source: Higham, Accuracy and Stability of Numerical Algorithms (2002), chapter 4.
Checked by: tests/check/test_noise.py.
"""

from collections.abc import Callable

import numpy as np

from refnet.batch import Array

__all__ = ["equal_terms", "power_of_two", "variance"]

CHUNKS = 16
ALIKE = 2**6
"""Terms that differ by less than this many unit roundoffs of the largest count as equal."""


def power_of_two(size: Array) -> Array:
    """A power of two near each magnitude, 1 for zero: scaling by it is exact."""
    return np.exp2(np.floor(np.log2(np.where(size == 0, 1, size))))


def equal_terms(rows: Array, u: float) -> Array:
    """How many entries of a row are equal to one of them, on average over its nonzero ones: (M,) of
    (M, K).

    >>> equal_terms(np.array([[1.0, 1.0, 1.0, 0.0], [1.0, 2.0, 3.0, 4.0]]), 2**-24).tolist()
    [3.0, 1.0]
    """
    largest = abs(rows).max(axis=1, initial=0)[:, None]
    keys = np.sort(np.round(rows / np.where(largest == 0, 1, largest) / (ALIKE * u)), axis=1)
    place = np.arange(rows.shape[1])
    new = np.diff(keys, axis=1, prepend=np.nan) != 0
    rank = place - np.maximum.accumulate(np.where(new, place, 0), axis=1)
    counted = keys != 0
    # 1 + 3 + 5 + ... is the square of how many there are
    return np.asarray(((2 * rank + 1) * counted).sum(axis=1) / np.maximum(counted.sum(axis=1), 1))


def variance(
    left: Array,
    right: Array | None,
    u: float,
    alike: Callable[[Array], Array],
    norms: Array | None = None,
    inner: Array | float = 1,
) -> tuple[Array, Array]:
    """V, for a product with Q added, in units of u^2 / 3, and Q: of ``left @ right``, (M, K) and
    (K, N), or of the rows' sums (M,), whose terms may be sums of ``inner`` (M,) terms with the
    roots ``norms`` (M, K) of the sums of their squares. ``alike``: ``equal_terms`` for this u.

    Checked by: tests/check/test_noise.py.
    """

    def part(a: Array, b: Array | None, terms: slice) -> Array:
        return a[:, terms].sum(axis=1) if b is None else np.asarray(a[:, terms] @ b[terms])

    K = left.shape[1]
    squares = (left if norms is None else norms) ** 2, None if right is None else right * right
    every = slice(0, K)
    S, Q = part(left, right, every), part(*squares, every)
    mixed = S * S / 3 + Q / 6
    before, V = np.zeros_like(S), np.zeros_like(S)
    width = max(-(-K // CHUNKS), 1)
    for k in range(0, K, width):
        terms = slice(k, min(k + width, K))
        after = before + part(left, right, terms)
        largest = np.maximum(np.maximum(after * after, (S - before) ** 2), mixed)
        V += np.minimum(inner * (terms.stop - k) * largest, part(*squares, terms) / u**2)
        before = after
    equal = alike(left)
    if right is not None and (equal > 1).any():
        equal = np.minimum(equal[:, None], alike(right.T))
    elif right is not None:
        equal = equal[:, None]
    return np.maximum(equal, 1) * V + (Q if right is not None else 0), Q
