"""Balls held against exact numbers."""

from fractions import Fraction

import flint


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
