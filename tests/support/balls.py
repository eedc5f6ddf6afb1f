"""Balls held against exact numbers."""

from fractions import Fraction

import flint


def exactly(arf):
    man, exp = (int(part) for part in arf.man_exp())
    return Fraction(man) * Fraction(2) ** exp


def contains(ball, number):
    ball = flint.arb(ball)
    return abs(exactly(ball.mid()) - number) <= exactly(ball.rad())
