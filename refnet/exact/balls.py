"""Balls and rationals of python-flint as number types of the nets.

A ball (arb) is a midpoint and a radius that provably contain the true value; every
operation rounds outwards. Importing this module registers the matrix products, so it is
imported by whoever lifts to these types. Source: Johansson (2017), "Arb".
Checked by: tests/test_certify.py::test_ball_product_contains_rational_product.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from refnet.batch import Array
from refnet.exact.convert import flint
from refnet.numeric import MATMUL

__all__ = ["decided", "ends", "midpoints", "on_product", "precision", "radii"]

_listeners: list[Callable[[], None]] = []


@contextmanager
def precision(bits: int) -> Iterator[None]:
    """Work with ``bits`` of midpoint inside; the former precision comes back after."""
    ctx = flint().ctx
    before, ctx.prec = ctx.prec, bits
    try:
        yield
    finally:
        ctx.prec = before


@contextmanager
def on_product(listener: Callable[[], None]) -> Iterator[None]:
    """Call ``listener`` at every matrix product inside: the clock of a long computation."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def _product(matrix: Any) -> Callable[[Array, Array], Array]:
    def product(a: Array, b: Array) -> Array:
        for listener in _listeners:
            listener()
        made = matrix(*a.shape, a.ravel().tolist()) * matrix(*b.shape, b.ravel().tolist())
        out = np.empty(a.shape[0] * b.shape[1], object)
        out[:] = made.entries()
        return out.reshape(a.shape[0], b.shape[1])

    return product


MATMUL[flint().arb] = _product(flint().arb_mat)
MATMUL[flint().fmpq] = _product(flint().fmpq_mat)


def _each(function: Callable[[Any], Any]) -> Callable[[Array], Array]:
    def over(array: Array) -> Array:
        out = np.empty(array.shape)
        for index in np.ndindex(array.shape):
            out[index] = function(array[index])
        return out

    return over


def _ball(value: Any) -> Any:
    return value if isinstance(value, flint().arb) else flint().arb(value)


lower = _each(lambda value: float(_ball(value).lower()))
upper = _each(lambda value: float(_ball(value).upper()))
midpoints = _each(lambda value: float(_ball(value).mid()))
# nextafter: the conversion to float64 rounds to nearest, a radius must not shrink
_radius = _each(lambda value: float(_ball(value).rad()))


def radii(balls: Array) -> Array:
    """An upper bound, float64, on the radius of every ball; 0 for an exact one."""
    found = _radius(balls)
    exact = np.array([_ball(value).is_exact() for value in balls.flat], dtype=bool)
    return np.where(exact.reshape(balls.shape), 0, np.nextafter(found, np.inf))


def ends(balls: Array) -> tuple[Array, Array]:
    """Both ends of every ball, each rounded to the nearest float64."""
    return lower(balls), upper(balls)


def decided(balls: Array) -> tuple[Array, Array]:
    """The correctly rounded float64 of every ball, and bool: is it known?

    Rounding is monotonic, so it is known where both ends round to the same float64. Where
    it is not, the value is that of the midpoint.
    """
    low, high = ends(balls)
    return np.where(low == high, low + 0.0, midpoints(balls)), low == high
