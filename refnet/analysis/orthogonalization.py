"""Descent to an orthogonal matrix: the defect of a random start, where the descent leads, and how
many steps it takes.

The mean and the variance of ``f(X) = ||X X' - I||_F^2`` for a random X (m, n) follow from the
moments of its entries; gradient descent maps each singular value separately.
Source: Manchev & Spratling, II-A, eqs. 19-28 (errata 13-17).
Checked by: tests/analysis/test_analysis_theory.py.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from refnet.batch import Array, Scalar
from refnet.common.arguments import SEED, Rule, count, kind, one_of, real, takes
from refnet.maths.numeric import Number
from refnet.matrices.initializers import INITIALIZERS, initialize


class DefectMoments(NamedTuple):
    """The mean and the variance of the defect, in the number type of the moments."""

    mean: Scalar
    variance: Scalar


Moments = tuple[Scalar, Scalar, Scalar, Scalar]


def gaussian_moments(sd: float) -> Moments:
    """``E x^2, x^4, x^6, x^8`` of N(0, sd^2): ``(k - 1)!! sd^k``.

    >>> gaussian_moments(1)
    (1, 3, 15, 105)

    Checked by: tests/analysis/test_explain.py::test_derived_moments_are_simulated.
    """
    return sd**2, 3 * sd**4, 15 * sd**6, 105 * sd**8


def uniform_moments(limit: Scalar) -> Moments:
    """``E x^2, x^4, x^6, x^8`` of U(-b, b): ``b^k / (k + 1)`` (erratum 15: the fourth is b^4 / 5).

    >>> from fractions import Fraction
    >>> [str(moment) for moment in uniform_moments(Fraction(1))]
    ['1/3', '1/5', '1/7', '1/9']

    Checked by: tests/analysis/test_explain.py::test_derived_moments_are_simulated.
    """
    return limit**2 / 3, limit**4 / 5, limit**6 / 7, limit**8 / 9


def _four(what: str, value: Scalar) -> None:
    need = "the four moments E x^2, E x^4, E x^6, E x^8, such as gaussian_moments(1)"
    kind(what, value, tuple, need)
    if len(value) != 4:
        raise ValueError(f"{what} has {len(value)} numbers; need {need}")


@takes(m=count(), n=count(), moments=Rule(_four, (None, 1.5, (), (1, 3, 15), "abcd")))
def defect_moments(m: int, n: int, moments: Moments) -> DefectMoments:
    """The mean and variance of ``||X X' - I||_F^2``, X (m, n) with independent entries of mean 0.

    ``moments``: E x^2, E x^4, E x^6, E x^8 of an entry. With ``y = x^2 - E x^2``,
    ``z = x^4 - E x^4`` and ``c = 2 (m + n - 2) E x^2 - 2``, f is its mean plus three kinds of
    terms that are uncorrelated, because the entries of mean 0 in a term are different ones::

        sum_ik (z_ik + c y_ik)                        each entry by itself
        sum of 2 y y' over the pairs in one row or one column
        sum of 4 x x' x'' x''' over the corners of every rectangle

    whose variances are ``m n (Var z + c^2 Var y + 2 c Cov(y, z))``,
    ``2 m n (m + n - 2) (Var y)^2`` and ``4 m (m - 1) n (n - 1) (E x^2)^4``.

    Exact on Fractions. Raises ValueError for sizes below 1.
    Source: this derivation corrects Manchev & Spratling, eqs. 22-28 (errata 13, 14, 15).
    Checked by: tests/analysis/test_analysis_theory.py::test_moments_by_enumeration.

    >>> mean, variance = defect_moments(100, 100, gaussian_moments(.1))
    >>> round(mean, 6), round(variance, 2)
    (101.0, 12.24)
    """
    m2, m4, m6, m8 = moments
    var_y, var_z, cov = m4 - m2**2, m8 - m4**2, m6 - m2 * m4
    c = 2 * (m + n - 2) * m2 - 2
    mean = m * n * (m4 + (m + n - 2) * m2**2 - 2 * m2) + m
    variance = (
        m * n * (var_z + c**2 * var_y + 2 * c * cov)
        + 2 * m * n * (m + n - 2) * var_y**2
        + 4 * m * (m - 1) * n * (n - 1) * m2**4
    )
    return DefectMoments(mean, variance)


def singular_value_map(s: Array, rate: Number) -> Array:
    """``s (1 + 4 rate (1 - s^2))``: the singular values after a step of descent on the defect.

    The step ``W - 4 rate (W W' - I) W`` keeps the singular vectors, so this is all it does.
    Any shape, any number type. Source: erratum 17.
    Checked by: tests/matrices/test_orthogonality.py::test_descent_follows_singular_values.

    >>> singular_value_map(np.array([0.0, 0.5, 1.0]), 0.125).tolist()
    [0.0, 0.6875, 1.0]
    """
    return np.asarray(s * (1 + 4 * rate * (1 - s * s)))


class Basin(NamedTuple):
    """From which singular values descent reaches 1: those in (0, ``limit``), except the few that
    a step maps to 0 exactly; ``contraction`` is the factor by which each of the last steps shrinks
    the distance to 1; it is 0 where they square the distance."""

    limit: float
    contraction: float


@takes(rate=real("(-inf, inf)"))
def basin(rate: float) -> Basin:
    """The basin of attraction of the orthogonal matrices under descent with this rate.

    The map's slope at s = 1 is ``1 - 8 rate``, so 1 attracts for rates in (0, 1/4), and a rate of
    1/8 makes the distance to 1 shrink quadratically (Newton-Schulz). Beyond
    ``sqrt(1 + 1 / (2 rate))`` the map increases s; there it takes s to -s.
    Raises ValueError for rates outside (0, 1/4).
    Source: erratum 17. Checked by: tests/analysis/test_analysis_theory.py::test_basin.

    >>> basin(.125)
    Basin(limit=2.23606797749979, contraction=0.0)
    """
    if not 0 < rate < 0.25:
        raise ValueError(
            f"basin: the rate is {rate}; need one between 0 and 1/4: from 1/4 on "
            "the descent does not converge, or far too slowly"
        )
    return Basin((1 + 1 / (2 * rate)) ** 0.5, abs(1 - 8 * rate))


@dataclass(frozen=True)
class Experiment:
    """The outcome of ``orthogonalization_experiment``; ``steps`` (runs,) as the paper
    counts them, with the check that stops as one, and 0 for a run that did not converge."""

    distribution: str
    size: int
    rate: float
    threshold: float
    seed: int
    steps: Array

    @property
    def success_rate(self) -> float:
        """The share of the runs that converged."""
        return float((self.steps > 0).mean())

    @property
    def mean(self) -> float:
        """Mean steps of the runs that converged; nan if none did."""
        good = self.steps[self.steps > 0]
        return float(good.mean()) if good.size else float("nan")

    @property
    def sd(self) -> float:
        """Standard deviation of the steps of the runs that converged; nan if none did."""
        good = self.steps[self.steps > 0]
        return float(good.std()) if good.size else float("nan")

    @property
    def extremes(self) -> tuple[int, int]:
        """The fewest and the most steps of the runs that converged; (0, 0) if none did."""
        good = self.steps[self.steps > 0]
        return (int(good.min()), int(good.max())) if good.size else (0, 0)


BLOCK = 50
"""Runs that descend together. Each block has its own seed, so that the number of threads changes
no result."""


def _block_steps(
    distribution: str,
    size: int,
    rate: float,
    threshold: float,
    max_steps: int,
    seed: np.random.SeedSequence,
    runs: int,
) -> Array:
    """The steps of one block of runs."""
    from refnet.compiled.orthogonality import descend  # Numba is slow to import

    rng = np.random.default_rng(seed)
    W = np.stack([initialize(distribution, (size, size), rng) for _ in range(runs)]).astype(
        np.float32
    )
    return descend(W, rate, threshold, max_steps).steps


@takes(
    distribution=one_of(INITIALIZERS),
    runs=count(),
    size=count(),
    rate=real("(0, inf)"),
    threshold=real("(0, inf)"),
    seed=count(0, SEED),
    max_steps=count(),
)
def orthogonalization_experiment(
    distribution: str,
    runs: int = 10_000,
    size: int = 100,
    rate: float = 0.1,
    threshold: float = 1e-6,
    seed: int = 0,
    max_steps: int = 100,
    progress: Callable[[int, int], object] | None = None,
) -> Experiment:
    """Manchev & Spratling's experiment (II-A): OINIT of ``runs`` random square matrices.

    ``distribution``: an initialiser with its default options; "gaussian" has the
    standard deviation .1, for which the text has 22.77 mean steps, "uniform" is U(-.1, .1), with
    24.00. (80,000 runs give 22.86 and 24.04 +- .012; the mean of 10,000 scatters by .034.)
    ``max_steps``: updates after which a run has failed; so has one that diverges. The descent runs
    in float32, which takes as many steps as float64 in all but one run of some thousands. The same
    seed gives the same steps at any number of threads. ``progress(done, runs)`` is called as blocks
    end. Raises ValueError for an unknown distribution and for numbers out of range.

    >>> found = orthogonalization_experiment("gaussian", runs=20, size=20)
    >>> found.success_rate, found.steps.shape
    (1.0, (20,))

    Checked by: tests/matrices/test_orthogonality.py::test_experiment.
    """
    block = partial(_block_steps, distribution, size, rate, threshold, max_steps)
    sizes = [min(BLOCK, runs - first) for first in range(0, runs, BLOCK)]
    seeds = np.random.SeedSequence(seed).spawn(len(sizes))
    parts: list[Array] = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for part in pool.map(block, seeds, sizes):
            parts.append(part)
            if progress is not None:
                progress(sum(map(len, parts)), runs)
    return Experiment(distribution, size, rate, threshold, seed, np.concatenate(parts))
