"""The few operations whose NumPy form would lose exactness on other number types.

The nets run unchanged on float32, float64, longdouble, complex (complex step) and on
object arrays of Fraction, Dual, fmpq or balls. ``+ - * /``, indexing and ``.sum()`` need
nothing for that; products, elementary functions and decisions do, and live here.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from refnet.batch import Array

__all__ = ["MATMUL", "Number", "clamp", "exp", "expm1", "log", "matmul", "nonpositive", "sigmoid",
           "sqrt", "tanh", "times"]

Number = float | Fraction
"""A constant such as a learning rate; a Fraction where it has to be exact and no float is."""

MATMUL: dict[type, Callable[[Array, Array], Array]] = {}
"""Products of object arrays by element type, for types with a faster one than NumPy's."""


def matmul(a: Array, b: Array) -> Array:
    """``a @ b`` for two matrices of any dtype; (N, K) and (K, M) give (N, M)."""
    dtype = np.result_type(a, b)
    if dtype != object:
        return np.asanyarray(a @ b)
    if 0 in a.shape or 0 in b.shape:
        return np.zeros((a.shape[0], b.shape[1]), dtype)
    for first in (a.flat[0], b.flat[0]):
        if type(first) in MATMUL:
            return MATMUL[type(first)](a, b)
    return np.asanyarray(a @ b)


def _times(value: Any, over: int, under: int) -> Any:
    if isinstance(value, int):  # the exact zero of a mask; 0 * 1 / 2 would be the float 0.0
        return Fraction(value * over, under) if value * over % under else value * over // under
    return value * over / under


_times_all = np.frompyfunc(_times, 3, 1)


def times(c: Number, a: Array) -> Array:
    """``c a`` in a's own dtype; exact on object arrays, where a float c is its binary value."""
    if a.dtype != object:
        return np.asanyarray(float(c) * a)
    return np.asarray(_times_all(a, *c.as_integer_ratio()), object)


def clamp(a: Array, limit: float) -> tuple[Array, int]:
    """Each entry brought into [-limit, limit], and how many that changed; NaN stays NaN."""
    above, below = a > limit, a < -limit
    clamped = np.where(above, limit, np.where(below, -limit, a))
    return clamped, int(np.count_nonzero(above | below))


def _elementary(name: str) -> Callable[[Array], Array]:
    def element(value: Any) -> Any:
        method = getattr(value, name, None)
        if method is None:
            raise TypeError(
                f"{name} of {type(value).__name__} {value!r} is not a number of that type; "
                "use float64, or balls (refnet.exact), or a rational activation such as "
                "softsign, relu, oplu or identity with the squared error"
            )
        return method()

    on_objects = np.frompyfunc(element, 1, 1)
    on_floats = getattr(np, name)

    def function(x: Array) -> Array:
        return np.asanyarray(on_objects(x) if x.dtype == object else on_floats(x))

    function.__name__ = name
    function.__doc__ = f"``{name}`` of every entry, any dtype that has it; else TypeError."
    return function


exp = _elementary("exp")
expm1 = _elementary("expm1")
log = _elementary("log")
sqrt = _elementary("sqrt")
tanh = _elementary("tanh")


def sigmoid(x: Array) -> Array:
    """``1 / (1 + exp(-x))`` of every entry, without overflow for floats of any size."""
    if x.dtype.kind in "OV":  # numbers of Python's, or of a type with its own arithmetic
        return np.asanyarray(1 / (1 + exp(-x)))
    negative = x.real < 0
    e = np.exp(np.where(negative, x, -x))
    return np.asarray(np.where(negative, e, 1) / (1 + e))


def _decide(value: Any) -> bool:
    if value <= 0:
        return True
    if value > 0 or value != value:
        return False
    raise ArithmeticError(
        f"the sign of {value} is not decided: the ball straddles a kink; raise the precision"
    )


_decide_all = np.frompyfunc(_decide, 1, 1)


def nonpositive(x: Array) -> Array:
    """``x <= 0`` as bool; complex numbers by their real part, so that kinks are decided by
    the value and not by the step; False for NaN, so that it propagates.

    Raises ArithmeticError, naming the entry, for a ball that contains zero and more.
    """
    if x.dtype != object:
        return np.asarray(x.real <= 0)
    try:
        return np.asarray(_decide_all(x), dtype=bool)
    except ArithmeticError:
        for index in np.ndindex(x.shape):
            try:
                _decide(x[index])
            except ArithmeticError as error:
                raise ArithmeticError(f"entry {index}: {error}") from None
        raise
