"""Balls and rationals of python-flint as number types of the nets.

A ball (arb) is a midpoint and a radius that provably contain the true value; every
operation rounds outwards. Importing this module registers the matrix products and the
exponential; lifting to these types (``refnet.exact.convert.lift``) imports it.
Source: Johansson (2017), "Arb".
Checked by: tests/test_certify.py::test_ball_product_contains_rational_product.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from refnet.batch import Array
from refnet.exact.library import flint
from refnet.maths.linalg import EXPM
from refnet.maths.numeric import MATMUL

__all__ = ["decided", "midpoints", "on_product", "precision", "radii"]

_listeners: list[Callable[[], None]] = []
_kept: list[dict[Any, Any]] = []


@contextmanager
def precision(bits: int) -> Iterator[None]:
    """Work with ``bits`` of midpoint inside; the former precision comes back after."""
    ctx = flint().ctx
    before, ctx.prec = ctx.prec, bits
    try:
        yield
    finally:
        ctx.prec = before
        for matrices in _kept:
            matrices.clear()


@contextmanager
def on_product(listener: Callable[[], None]) -> Iterator[None]:
    """Call ``listener`` at every matrix product inside: the clock of a long computation."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def _array(matrix: Any) -> Array:
    out = np.empty(matrix.nrows() * matrix.ncols(), object)
    out[:] = matrix.entries()
    return out.reshape(matrix.nrows(), matrix.ncols())


def _product(matrix: Any) -> Callable[[Array, Array], Array]:
    kept: dict[tuple[int, ...], tuple[list[Any], Any]] = {}

    def right(b: Array) -> Any:
        """b as a matrix; that of the last call again if it has the same entries, such as the
        weights at every time step."""
        entries = b.ravel().tolist()
        if b.shape not in kept or kept[b.shape][0] != entries:
            kept[b.shape] = entries, matrix(*b.shape, entries)
        return kept[b.shape][1]

    def product(a: Array, b: Array) -> Array:
        for listener in _listeners:
            listener()
        return _array(matrix(*a.shape, a.ravel().tolist()) * right(b))

    _kept.append(kept)
    return product


arb = flint().arb
MATMUL[arb] = _product(flint().arb_mat)
EXPM[arb] = lambda a: _array(flint().arb_mat(*a.shape, a.ravel().tolist()).exp())
MATMUL[flint().fmpq] = _product(flint().fmpq_mat)
EXPM[flint().fmpq] = None

# an exact zero in an object array is often the int 0, so every entry passes through arb()
_low = np.frompyfunc(lambda value: float(arb(value).lower()), 1, 1)
_high = np.frompyfunc(lambda value: float(arb(value).upper()), 1, 1)
_middle = np.frompyfunc(lambda value: float(arb(value).mid()), 1, 1)


def _radius(value: Any) -> float:
    ball = arb(value)
    # the conversion to float64 rounds to nearest; a bound must not shrink
    return 0.0 if ball.is_exact() else float(np.nextafter(float(ball.rad()), np.inf))


_radii = np.frompyfunc(_radius, 1, 1)


def midpoints(balls: Array) -> Array:
    """The float64 nearest to every midpoint."""
    return np.asarray(_middle(balls), float)


def radii(balls: Array) -> Array:
    """An upper bound, float64, on the radius of every ball; 0 for an exact one."""
    return np.asarray(_radii(balls), float)


def decided(balls: Array) -> tuple[Array, Array]:
    """The correctly rounded float64 of every ball, and bool: is it known?

    Rounding is monotonic, so it is known where both ends round to the same float64. Where
    it is not, the value is that of the midpoint.
    """
    low, high = np.asarray(_low(balls), float), np.asarray(_high(balls), float)
    return np.where(low == high, low + 0.0, midpoints(balls)), low == high
