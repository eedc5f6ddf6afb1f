"""Descent to an orthogonal matrix: the defect of a random start, and where the descent leads.

``f(X) = ||X X' - I||_F^2`` of a random X (m, n) has a mean and a variance that follow from the
moments of its entries; gradient descent maps each singular value by itself.
Source: Manchev & Spratling, II-A, eqs. 19-28 (errata 13-17).
Checked by: tests/test_analysis_theory.py.
"""

from typing import Any, NamedTuple

import numpy as np

from refnet.arguments import Rule, count, kind, real, takes
from refnet.batch import Array
from refnet.maths.numeric import Number

__all__ = ["Basin", "DefectMoments", "basin", "defect_moments", "gaussian_moments",
           "singular_value_map", "uniform_moments"]


class DefectMoments(NamedTuple):
    """The mean and the variance of the defect, in the number type of the moments."""

    mean: Any
    variance: Any


Moments = tuple[Any, Any, Any, Any]


def gaussian_moments(sd: float) -> Moments:
    """``E x^2, x^4, x^6, x^8`` of N(0, sd^2): ``(k - 1)!! sd^k``.

    >>> gaussian_moments(1)
    (1, 3, 15, 105)
    """
    return sd ** 2, 3 * sd ** 4, 15 * sd ** 6, 105 * sd ** 8


def uniform_moments(limit: Any) -> Moments:
    """``E x^2, x^4, x^6, x^8`` of U(-b, b): ``b^k / (k + 1)`` (erratum 15: the fourth is b^4 / 5).

    >>> from fractions import Fraction
    >>> uniform_moments(Fraction(1))[1]
    Fraction(1, 5)
    """
    return limit ** 2 / 3, limit ** 4 / 5, limit ** 6 / 7, limit ** 8 / 9


def _four(what: str, value: Any) -> None:
    need = "the four moments E x^2, E x^4, E x^6, E x^8, such as gaussian_moments(1)"
    kind(what, value, tuple, need)
    if len(value) != 4:
        raise ValueError(f"{what} has {len(value)} numbers; need {need}")


@takes(m=count(), n=count(),
       moments=Rule(_four, (None, 1.5, (), (1, 3, 15), "abcd")))
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
    Checked by: tests/test_analysis_theory.py::test_moments_by_enumeration.

    >>> mean, variance = defect_moments(100, 100, gaussian_moments(.1))
    >>> round(mean, 6), round(variance, 2)
    (101.0, 12.24)
    """
    m2, m4, m6, m8 = moments
    var_y, var_z, cov = m4 - m2 ** 2, m8 - m4 ** 2, m6 - m2 * m4
    c = 2 * (m + n - 2) * m2 - 2
    mean = m * n * (m4 + (m + n - 2) * m2 ** 2 - 2 * m2) + m
    variance = (m * n * (var_z + c ** 2 * var_y + 2 * c * cov)
                + 2 * m * n * (m + n - 2) * var_y ** 2
                + 4 * m * (m - 1) * n * (n - 1) * m2 ** 4)
    return DefectMoments(mean, variance)


def singular_value_map(s: Array, rate: Number) -> Array:
    """``s (1 + 4 rate (1 - s^2))``: the singular values after a step of descent on the defect.

    The step ``W - 4 rate (W W' - I) W`` keeps the singular vectors, so this is all it does.
    Any shape, any number type. Source: erratum 17.
    Checked by: tests/test_orthogonality.py::test_descent_follows_singular_values.

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
    Source: erratum 17. Checked by: tests/test_analysis_theory.py::test_basin.

    >>> basin(.125)
    Basin(limit=2.23606797749979, contraction=0.0)
    """
    if not 0 < rate < 0.25:
        raise ValueError(f"basin: the rate is {rate}; need one between 0 and 1/4: from 1/4 on "
                         "the orthogonal matrices repel the descent")
    return Basin((1 + 1 / (2 * rate)) ** 0.5, abs(1 - 8 * rate))
