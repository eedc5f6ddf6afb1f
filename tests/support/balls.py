"""Balls held against exact numbers."""

from fractions import Fraction

import flint


def exactly(arf):
    man, exp = (int(part) for part in arf.man_exp())
    return Fraction(man) * Fraction(2) ** exp


def contains(ball, number):
    ball = flint.arb(ball)
    return abs(exactly(ball.mid()) - number) <= exactly(ball.rad())


def same_values(certified, other):
    """Whether two certificates round to the same floats."""
    ours, theirs = certified.named(), other.named()
    return list(ours) == list(theirs) and all(
        (ours[name].value == theirs[name].value).all() for name in ours
    )
