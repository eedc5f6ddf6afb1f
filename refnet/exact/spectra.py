"""Eigenvalues and singular values of balls, with eigenvectors, proved by residuals.

NumPy's eigenvectors are refined by products (Ogita & Aishima, 2018) to X, which need not be
right: ``C = X^-1 A X`` in balls has the eigenvalues of A, is nearly diagonal, and Gershgorin's
discs contain them. In a disc that meets no other lies exactly one. Its eigenvector is ``X y`` with
``y[i] = 1``, and the rows of ``C y = lambda y`` bound the other entries: with g[j] the distance of
C[j, j] from the disc and R[j] the row's sum without columns i and j, the largest, m, is at most
``max |C[j, i]| / (g[j] - R[j])``, and each at most ``(|C[j, i]| + R[j] m) / g[j]``.

Source: Horn & Johnson, Matrix Analysis (2013), 6.1; Ogita & Aishima, Iterative refinement for
symmetric eigenvalue decomposition (2018).
Checked by: tests/exact/test_linear_algebra.py::test_spectra_against_high_precision,
::test_clusters_are_refused.
"""

from math import ceil, log2
from typing import NamedTuple

import numpy as np

from refnet.batch import Array
from refnet.exact import balls
from refnet.maths.linalg import solve
from refnet.maths.numeric import matmul

arb = balls.arb
_middle, _upper, _lower = map(balls.each, ("mid", "upper", "lower"))
FLOATS = 40
"""Bits that NumPy's eigenvectors have at least; each refinement doubles them."""


class Spectrum(NamedTuple):
    """``left`` (M, K), ``values`` (K,), ``right`` (N, K); of a value that is not ``apart`` (K,)
    bool, from all others and, if singular, from 0, the vectors mean nothing."""

    left: Array
    values: Array
    right: Array
    apart: Array


def _refined(A: Array, X: Array) -> Array:
    """Eigenvectors X of the midpoints A, to the working precision."""
    n = len(A)
    for _ in range(ceil(log2(max(balls.bits()[0] / FLOATS, 1))) + 1):
        R = _middle(np.eye(n, dtype=int) - matmul(X.T, X))
        S = _middle(matmul(X.T, matmul(A, X)))
        values = _middle(np.diag(S) / (1 - np.diag(R)))
        off = S - np.diag(values)
        cluster = 2 * (abs(off).sum(axis=1).max() + abs(values).max() * abs(R).sum(axis=1).max())
        gaps = values - values[:, None]
        near = abs(gaps).astype(float) <= float(cluster)
        step = np.where(near, R / 2, (S + values * R) / np.where(near, arb(1), gaps))
        X = _middle(X + matmul(X, _middle(step)))
    return X


def eigh(A: Array) -> Spectrum:
    """The spectrum of a symmetric A of balls, its values ascending, its vectors of length 1 with
    the signs that NumPy gives them."""
    n = len(A)
    A = A + arb(0)
    middle = _middle(A)
    start = np.linalg.eigh(middle.astype(float))[1]
    X = _refined(middle, np.frompyfunc(arb, 1, 1)(start))
    C = solve(X, matmul(A, X))
    order = np.argsort(np.diag(C).astype(float), kind="stable")
    X, C = X[:, order], C[order][:, order]
    off = _upper(abs(C - np.diag(np.diag(C))))
    radii = off.sum(axis=1)
    discs = [C[i, i] + arb(0, radii[i].upper()) for i in range(n)]
    vectors = np.full((n, n), arb.nan())
    apart = np.zeros(n, bool)
    for i in range(n):
        others = [j for j in range(n) if j != i]
        apart[i] = not any(discs[i].overlaps(discs[j]) for j in others)
        bounds = _bounds(C, off, radii, discs[i], i, others) if apart[i] else None
        apart[i] = bounds is not None
        if bounds is not None:
            v = matmul(X, bounds[:, None])[:, 0]
            vectors[:, i] = v / (v * v).sum().sqrt()
    return Spectrum(vectors, _joined(discs), vectors, apart)


def _bounds(
    C: Array, off: Array, radii: Array, disc: balls.Ball, i: int, others: list[int]
) -> Array | None:
    """The eigenvector y of C with y[i] = 1, None if the rows do not bound it."""
    y = np.full(len(C), arb(1))
    if not others:
        return y
    gaps = np.array([_lower(abs(C[j, j] - disc)) for j in others])
    column = off[others, i]
    rest = _upper(abs(radii[others] - column))
    if not all(g > r for g, r in zip(gaps, rest)):
        return None
    largest = arb(0)
    for bound in column / (gaps - rest):
        largest = largest.max(bound)
    y[others] = [arb(0, bound.upper()) for bound in (column + rest * largest) / gaps]
    return y


def _joined(discs: list[balls.Ball]) -> Array:
    """The values in ascending order: discs that meet have as many values as there are of them."""
    values = list(discs)
    for _ in discs:
        for i in range(1, len(values)):
            if values[i].overlaps(values[i - 1]):
                values[i] = values[i - 1] = values[i].union(values[i - 1])
    return np.array(values, object)


def svd(X: Array) -> Spectrum:
    """The thin singular value decomposition of balls, values descending, from the eigenvectors of
    the smaller of X'X and X X', with NumPy's signs."""
    wide = X.shape[0] < X.shape[1]
    tall = X.T if wide else X
    _, squares, inner, apart = (part[..., ::-1] for part in eigh(matmul(tall.T, tall)))
    values = np.array([arb(square).nonnegative_part().sqrt() for square in squares], object)
    apart = apart & np.array([value > 0 for value in values])
    left, _, right = np.linalg.svd(_middle(X).astype(float), full_matrices=False)
    numpys = left if wide else right.T
    inner = inner * np.where((numpys * _middle(inner).astype(float)).sum(axis=0) < 0, -1, 1)
    outer = np.full((len(tall), len(values)), arb.nan())
    outer[:, apart] = matmul(tall, inner[:, apart]) / values[apart]
    left, right = (inner, outer) if wide else (outer, inner)
    return Spectrum(left, values, right, apart)
