"""Dual numbers ``x + d e`` with ``e * e = 0``: the forward pass run on them is its tangent.

The parts are numbers of any field (Fraction, fmpq, float, balls, Dual again), so with
rationals the tangent is exact and ``<w, J v> == <J' w, v>`` is tested with ``==``.
Checked by: tests/cells/test_exact_transpose.py::test_dual_derivatives.
"""

from __future__ import annotations

from fractions import Fraction
from operator import attrgetter

import numpy as np

from refnet.batch import Array, Scalar
from refnet.maths.kinds import PARTS, kind
from refnet.maths.numeric import MATMUL, matmul


class Dual:
    """``x + d e``. Comparisons look at ``x`` alone: a branch is decided by the value."""

    __slots__ = ("d", "x")

    def __init__(self, x: Scalar, d: Scalar = 0) -> None:
        self.x = x
        self.d = d

    def __repr__(self) -> str:
        return f"Dual({self.x!r}, {self.d!r})"

    def __float__(self) -> float:
        return float(self.x.real if isinstance(self.x, (complex, np.complexfloating)) else self.x)

    def __neg__(self) -> Dual:
        return Dual(-self.x, -self.d)

    def __add__(self, other: Scalar) -> Dual:
        o = _dual(other)
        return Dual(self.x + o.x, self.d + o.d)

    __radd__ = __add__

    def __sub__(self, other: Scalar) -> Dual:
        o = _dual(other)
        return Dual(self.x - o.x, self.d - o.d)

    def __rsub__(self, other: Scalar) -> Dual:
        o = _dual(other)
        return Dual(o.x - self.x, o.d - self.d)

    def __mul__(self, other: Scalar) -> Dual:
        o = _dual(other)
        return Dual(self.x * o.x, self.d * o.x + self.x * o.d)

    __rmul__ = __mul__

    def __truediv__(self, other: Scalar) -> Dual:
        o = _dual(other)
        quotient = _quotient(self.x, o.x)
        return Dual(quotient, _quotient(self.d - quotient * o.d, o.x))

    def __rtruediv__(self, other: Scalar) -> Dual:
        return _dual(other) / self

    def __lt__(self, other: Scalar) -> bool:
        return bool(self.x < _dual(other).x)

    def __le__(self, other: Scalar) -> bool:
        return bool(self.x <= _dual(other).x)

    def __gt__(self, other: Scalar) -> bool:
        return bool(self.x > _dual(other).x)

    def __ge__(self, other: Scalar) -> bool:
        return bool(self.x >= _dual(other).x)

    def __eq__(self, other: object) -> bool:
        return bool(self.x == _dual(other).x)

    def __ne__(self, other: object) -> bool:  # of balls, not the opposite of ==
        return bool(self.x != _dual(other).x)

    __hash__ = None  # type: ignore[assignment]

    def exp(self) -> Dual:
        """exp' = exp."""
        y = _elementary(self.x, "exp")
        return Dual(y, y * self.d)

    def expm1(self) -> Dual:
        """expm1' = exp."""
        return Dual(_elementary(self.x, "expm1"), _elementary(self.x, "exp") * self.d)

    def log(self) -> Dual:
        """log' = 1 / x."""
        return Dual(_elementary(self.x, "log"), 1 / self.x * self.d)

    def sqrt(self) -> Dual:
        """sqrt' = 1 / (2 sqrt)."""
        y = _elementary(self.x, "sqrt")
        return Dual(y, 1 / (2 * y) * self.d)

    def tanh(self) -> Dual:
        """tanh' = 1 - tanh^2."""
        y = _elementary(self.x, "tanh")
        return Dual(y, (1 - y * y) * self.d)

    def cos(self) -> Dual:
        """cos' = -sin."""
        return Dual(_elementary(self.x, "cos"), -_elementary(self.x, "sin") * self.d)

    def sin(self) -> Dual:
        """sin' = cos."""
        return Dual(_elementary(self.x, "sin"), _elementary(self.x, "cos") * self.d)


def _dual(value: Scalar) -> Dual:
    if isinstance(value, np.ndarray):  # () arrays are numbers; larger ones must come first
        value = value.item()
    return value if isinstance(value, Dual) else Dual(value)


def _quotient(a: Scalar, b: Scalar) -> Scalar:
    return Fraction(a, b) if isinstance(a, int) and isinstance(b, int) else a / b


def _elementary(value: Scalar, name: str) -> Scalar:
    if hasattr(value, name):
        return getattr(value, name)()
    if isinstance(value, (float, complex, np.inexact)):
        return getattr(np, name)(value)
    raise TypeError(f"{name} of {type(value).__name__} {value!r} is not a number of that type")


def dual_array(x: Array, d: Array) -> Array:
    """Object array of ``Dual(x, d)``; x and d of one shape and one kind.

    >>> x = dual_array(np.array([3], object), np.array([1], object))
    >>> (x * x)[0]  # the square of 3, and its derivative
    Dual(9, 6)
    """
    if x.shape != d.shape:
        raise ValueError(f"dual_array: x has shape {x.shape} but its tangent {d.shape}")
    kind(x, d)
    out = np.empty(x.shape, object)
    for index in np.ndindex(x.shape):
        out[index] = Dual(x[index], d[index])
    return out


def parts(array: Array) -> tuple[Array, Array]:
    """The values and the tangents of an object array of Dual (plain numbers: tangent 0).

    >>> x, d = parts(dual_array(np.array([3], object), np.array([1], object)))
    >>> x.tolist(), d.tolist()
    ([3], [1])
    """
    x = np.empty(array.shape, object)
    d = np.empty(array.shape, object)
    for index in np.ndindex(array.shape):
        number = _dual(array[index])
        x[index], d[index] = number.x, number.d
    return x, d


def _product(a: Array, b: Array) -> Array:
    """``a @ b`` by parts, so that the product of the parts' kind is used."""
    (ax, ad), (bx, bd) = parts(a), parts(b)
    return dual_array(matmul(ax, bx), matmul(ad, bx) + matmul(ax, bd))


MATMUL[Dual] = _product
PARTS[Dual] = attrgetter("x", "d")
