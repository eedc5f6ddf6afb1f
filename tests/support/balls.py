"""Balls held against exact numbers."""

from fractions import Fraction

import flint
import numpy as np

from refnet.check.noise import spread


def exactly(number):
    """An mpf, or the midpoint or radius of a ball, as a Fraction."""
    if hasattr(number, "_mpf_"):
        sign, man, exp, _ = number._mpf_
        return (-1) ** sign * int(man) * Fraction(2) ** int(exp)
    man, exp = map(int, number.man_exp())
    return man * Fraction(2) ** exp


def contains(ball, number):
    ball = flint.arb(ball)
    return abs(exactly(ball.mid()) - number) <= exactly(ball.rad())


def same_values(certified, other):
    """Whether two certificates round to the same floats."""
    ours, theirs = certified.named(), other.named()
    return list(ours) == list(theirs) and all(
        (ours[name].value == theirs[name].value).all() for name in ours
    )


def assert_rounding_is_small(certified):
    """In perturbed float64 the same function gives the same to a rounding or a few."""
    for name, sigma in spread(certified, np.float64, runs=4).items():
        value = certified.named()[name].value
        assert (sigma <= 1e4 * np.finfo(float).eps * max(abs(value).max(), 1)).all(), name
