"""Arrays to exact numbers and back: floats are taken at their exact binary values.

Checked by: tests/exact/test_balls.py::test_lift_and_round_are_inverse.
"""

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from refnet.batch import Array, Params, Scalar
from refnet.common.arguments import instance, one_of, takes
from refnet.exact.library import flint

Lift = Callable[[Array, str], Array]
"""Floats or integers as numbers of a kind; the string is the array's name, "" for the constants of
a function."""


def in_float64(array: Array, name: str) -> Array:
    """A copy in float64, the plainest ``Lift``.

    >>> in_float64(np.ones(2, np.float32), "x").dtype
    dtype('float64')
    """
    return np.array(array, float)


def _ratio(value: Scalar) -> tuple[int, int]:
    if isinstance(value, (np.integer, np.bool_)):
        return int(value), 1
    if hasattr(value, "as_integer_ratio"):  # Python ints, floats of any width, Fraction
        numerator, denominator = value.as_integer_ratio()
        return int(numerator), int(denominator)
    if hasattr(value, "q"):  # fmpq
        return int(value.p), int(value.q)
    raise TypeError(f"{type(value).__name__} is neither a float nor an integer nor a rational")


def _converter(kind: str) -> Callable[[Scalar], Scalar]:
    if kind == "fraction":
        number = Fraction
    else:
        from refnet.exact.balls import arb  # registers the linear algebra of both types

        number = flint().fmpq

    def rational(value: Scalar) -> Scalar:
        return number(*_ratio(value))

    def ball(value: Scalar) -> Scalar:
        if isinstance(value, arb):
            return value
        numerator, denominator = _ratio(value)
        if denominator & (denominator - 1) == 0:
            return arb((numerator, 1 - denominator.bit_length()))  # exact at any precision
        return arb(number(numerator, denominator))

    return ball if kind == "ball" else rational


@takes(kind=one_of(("fraction", "rational", "ball")), name=instance(str, "the array's name"))
def lift(array: Array, kind: str, name: str = "lift") -> Array:
    """Object array of Fraction ("fraction"), fmpq ("rational") or arb ("ball").

    ``array``: floats of any width, integers, Fraction or fmpq, of any shape; balls stay balls.
    All are taken exactly, except that a ball holds a rational such as 1/3 to the working
    precision. Raises ValueError, with ``name`` and the entry, if one is not finite, TypeError
    if one is not a real number.

    >>> lift(np.array([0.5, 0.1]), "fraction").tolist()
    [Fraction(1, 2), Fraction(3602879701896397, 36028797018963968)]

    Checked by: tests/exact/test_balls.py::test_lift_takes_every_float_exactly.
    """
    convert = _converter(kind)
    array = np.asarray(array)
    if array.dtype.kind not in "fiuO" or array.shape == () and array[()] is None:
        raise TypeError(f"{name}: the array is of {array.dtype}; need real numbers")
    if (
        kind == "ball"
        and array.dtype.kind == "f"
        and array.itemsize <= 8
        and (np.isfinite(array).all())
    ):
        return np.asarray(np.frompyfunc(flint().arb, 1, 1)(array.astype(float)), object)
    out = np.empty(array.shape, object)
    for index in np.ndindex(array.shape):
        try:
            out[index] = convert(array[index])
        except (AttributeError, TypeError):
            raise TypeError(
                f"{name}: entry {index} is of type {type(array[index]).__name__}; need a number"
            ) from None
        except (ValueError, OverflowError):
            raise ValueError(
                f"{name}: entry {index} is {array[index]}; exact numbers are finite"
            ) from None
    return out


def in_balls(array: Array, name: str) -> Array:
    """Balls: a ``Lift``."""
    return lift(array, "ball", name or "a constant")


def lift_all(arrays: Params, kind: str) -> Params:
    """``lift`` of every array, under the same names."""
    return {name: lift(array, kind, name) for name, array in arrays.items()}


def _to_float(value: Scalar) -> float:
    try:
        numerator, denominator = _ratio(value)
        return numerator / denominator  # Python's division of integers is correctly rounded
    except OverflowError:
        return np.inf if numerator > 0 else -np.inf


def rounded(array: Array) -> Array:
    """The float64 nearest to each rational, ties to even; beyond float64's range, inf.

    Balls have two ends: ``refnet.exact.balls.decided`` rounds them.
    """
    out = np.empty(array.shape)
    for index in np.ndindex(array.shape):
        out[index] = _to_float(array[index])
    return out
