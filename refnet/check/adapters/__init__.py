"""Other frameworks: their results by refnet's names, their state dicts, refnet inside them."""

from fractions import Fraction

import numpy as np

from refnet.batch import Array

__all__ = ["exact_sum", "reorder"]


def exact_sum(a: Array, b: Array) -> Array:
    """``a + b`` without rounding: float64 if that holds it, else Fractions."""
    total = np.asarray(a, np.float64) + np.asarray(b, np.float64)
    exact = [Fraction(float(x)) + Fraction(float(y)) for x, y in zip(a.flat, b.flat)]
    if all(Fraction(float(t)) == e for t, e in zip(total.flat, exact)):
        return total
    out = np.empty(total.shape, object)
    out.reshape(-1)[:] = exact
    return out


def reorder(stacked: Array, order: tuple[int, ...]) -> Array:
    """The gates' blocks along the first axis in another order: block n is old block order[n]."""
    blocks = np.split(stacked, len(order))
    return np.concatenate([blocks[n] for n in order])
