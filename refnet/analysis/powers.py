"""Powers of a matrix and products of many: what repeated multiplication does to a norm.

Source: Merity's post on orthogonal initialisation; Orhan's on non-normal ones.
Checked by: tests/analysis/test_analysis_theory.py.
"""

from typing import NamedTuple

import numpy as np

from refnet.analysis.spectra import square
from refnet.batch import Array
from refnet.common.arguments import GENERATOR, SQUARE, count, takes


@takes(W=SQUARE, steps=count(0))
def power_norms(W: Array, steps: int) -> Array:
    """``||W^n||_2`` for n = 0 .. steps, (steps + 1,), float64; infinite beyond its range.

    The power is kept scaled to norm 1 and the logarithm of its norm apart, so that no entry
    overflows or underflows on the way to a norm that float64 holds.
    Raises ValueError if W is not square or not finite, or steps is negative.
    Source: Merity. Checked by: tests/analysis/test_analysis_theory.py::test_power_norms.

    >>> power_norms(np.array([[0.0, 2.0], [0.0, 0.0]]), 3).tolist()
    [1.0, 2.0, 0.0, 0.0]
    """
    W = square("power_norms", W)
    scale = int(np.frexp(abs(W).max(initial=0))[1])
    W = np.ldexp(W, -scale)  # entries below 1, so that no product of them overflows
    norms, power, log = np.ones(steps + 1), np.eye(len(W)), 0.0
    for n in range(1, steps + 1):
        power = W @ power
        norm = float(np.linalg.norm(power, 2)) if W.size else 0.0
        if norm == 0:
            norms[n:] = 0
            break
        power, log = power / norm, log + np.log2(norm) + scale
        with np.errstate(over="ignore"):
            norms[n] = np.exp2(log) if log != int(log) else np.ldexp(1.0, int(log))
    return norms


@takes(N=count(), runs=count(), n=count(), rng=GENERATOR)
def power_radii(N: int, runs: int, n: int, rng: np.random.Generator) -> tuple[float, float]:
    """How much the spectral radius of ``W_1^n`` exceeds that of ``W_1 ... W_n``, as the mean over
    ``runs`` of ``(log rho(W_1^n) - log rho(W_1 ... W_n)) / n``, and its standard error.

    The W_i are N x N with entries N(0, 1/N).
    Source: Orhan (erratum 35). Checked by:
    tests/analysis/test_analysis_theory.py::test_power_radii.

    >>> small, large = (power_radii(N, 100, 10, np.random.default_rng(0)) for N in (2, 32))
    >>> small[0] > large[0]
    True
    """
    gaps = np.empty(runs)
    for run in range(runs):
        draws = rng.normal(0, N**-0.5, (n, N, N))
        product = np.linalg.multi_dot(draws) if n > 1 else draws[0]
        gaps[run] = (
            np.log(abs(np.linalg.eigvals(draws[0])).max())
            - np.log(abs(np.linalg.eigvals(product)).max()) / n
        )
    return float(gaps.mean()), float(gaps.std() / runs**0.5)


class Fibonacci(NamedTuple):
    """F_n three ways: ``exact`` integers by squaring; ``squared``, the same products in float64;
    ``eigen``, ``Q L^n Q^-1`` in float64."""

    exact: int
    squared: float
    eigen: float


def _power(F: Array, n: int) -> Array:
    """F^n by squaring, in F's own number type."""
    result, square_ = F * 0 + np.eye(2, dtype=int), F
    while n:
        if n % 2:
            result = result @ square_
        square_, n = square_ @ square_, n // 2
    return np.asarray(result)


@takes(n=count(0, 10**7))
def fibonacci(n: int) -> Fibonacci:
    """The n-th Fibonacci number as an entry of ``[[1, 1], [1, 0]]^n``, three ways.

    Squaring takes O(log n) products; the eigenvalues are the golden ratio and 1 minus it. Float64
    holds all integers up to 2^53, so squaring is exact up to F_78; the eigendecomposition rounds
    each factor and, rounded to an integer, is wrong from about F_71 on.
    Raises ValueError for a negative n, and for one above 10^7.
    Source: Merity. Checked by: tests/analysis/test_analysis_theory.py::test_fibonacci.

    >>> fibonacci(10)[:2]
    (55, 55.0)
    """
    F = np.array([[1, 1], [1, 0]])
    values, Q = np.linalg.eigh(F.astype(float))
    with np.errstate(over="ignore", invalid="ignore"):
        eigen = float((Q * values**n @ Q.T)[0, 1])
        squared = float(_power(F.astype(float), n)[0, 1])
    return Fibonacci(int(_power(F.astype(object), n)[0, 1]), squared, eigen)
