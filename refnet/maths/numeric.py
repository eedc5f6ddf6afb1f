"""The few operations whose NumPy form would lose exactness on other number types.

The nets run unchanged on float32, float64, longdouble, complex (complex step) and on
object arrays of Fraction, Dual, fmpq or balls (``refnet.maths.kinds``). ``+ - *``, indexing
and ``.sum()`` work on all of them; for matrix products, constants, elementary functions and
comparisons there are the functions here. ``/`` needs care where both sides may be Python ints,
whose quotient is a float (``divided``, ``times``).
Checked by: tests/maths/test_kinds.py.
"""

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from refnet.batch import Array, Scalar
from refnet.maths.kinds import kind
from refnet.maths.threads import LARGE, split_product

Number = float | Fraction
"""A constant such as a learning rate; a Fraction where it has to be exact and no float is."""

MATMUL: dict[type, Callable[[Array, Array], Array]] = {}
"""Products of object arrays by kind, for kinds with a faster one than NumPy's."""


def matmul(a: Array, b: Array) -> Array:
    """``a @ b`` for two matrices of any dtype; (N, K) and (K, M) give (N, M). Large ones of
    float32 or float64 are split over the threads of the compiled core, to the same bits.

    Raises ValueError if exact numbers of two types, or exact numbers and floats, meet.

    >>> matmul(np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]])).tolist()
    [[11.0]]
    """
    if a.dtype.char != "O" != b.dtype.char:
        large = a.size * b.shape[1] >= LARGE and np.result_type(a, b).char in "fd"
        return split_product(a, b) if large else np.asanyarray(a @ b)
    if 0 in a.shape or 0 in b.shape:
        return np.zeros((a.shape[0], b.shape[1]), object)
    product = MATMUL.get(kind(a, b))
    return np.asanyarray(a @ b) if product is None else product(a, b)


def _one(*arrays: Scalar) -> Scalar:
    """1 in the kind of the object arrays; a Fraction if they hold nothing but ints."""
    return next(
        (
            value * 0 + 1
            for a in arrays
            for value in np.asarray(a, object).flat
            if not isinstance(value, int)
        ),
        Fraction(1),
    )


def divided(a: Array, b: Scalar) -> Array:
    """``a / b``, b a number or an array; among exact numbers a quotient of ints is exact too.

    >>> divided(np.array([1, 4], object), 2).tolist()
    [Fraction(1, 2), 2]
    """
    if a.dtype != object:
        return np.asanyarray(a / b)

    def quotient(over: Scalar, under: Scalar) -> Scalar:
        if not (isinstance(over, int) and isinstance(under, int)):
            return over / under
        return over // under if over % under == 0 else _one(a, b) * over / under

    return np.asarray(np.frompyfunc(quotient, 2, 1)(a, b), object)


def times(c: Number, a: Array) -> Array:
    """``c a`` in a's own dtype; exact on object arrays, where a float c is its binary value.

    >>> times(0.5, np.array([Fraction(1, 3)], object)).tolist()
    [Fraction(1, 6)]
    """
    if a.dtype != object:
        return np.asanyarray(float(c) * a)
    over, under = c.as_integer_ratio()

    def scaled(value: Scalar) -> Scalar:
        if not isinstance(value, int):
            return value * over / under
        value *= over
        return value // under if value % under == 0 else _one(a) * value / under

    return np.asarray(np.frompyfunc(scaled, 1, 1)(a), object)


def constant(c: Number, a: Array) -> Scalar:
    """c to be added to a, or stored in it: a float, or exact numbers of a's kind and shape.

    >>> constant(0.5, np.array([Fraction(1, 3)], object)).tolist()
    [Fraction(1, 2)]
    """
    return float(c) if a.dtype != object else times(c, a * 0 + 1)


def alike(c: Array, a: Array) -> Array:
    """Constants c in a's kind: of its dtype, or their binary values among exact numbers.

    >>> alike(np.array([0.5, 3]), np.array([Fraction(1, 3)], object)).tolist()
    [Fraction(1, 2), Fraction(3, 1)]
    """
    if a.dtype != object:
        return c.astype(a.dtype, copy=False)
    if c.dtype == object:
        return c
    unit = _one(a)
    out = np.empty(c.size, object)
    out[:] = [
        unit * over / under for over, under in (v.as_integer_ratio() for v in c.ravel().tolist())
    ]
    return out.reshape(c.shape)


def product(a: Number, b: Number) -> Number:
    """``a b`` of two constants without rounding, which ``times`` then does once if at all.

    >>> product(Fraction(1, 3), 3)
    Fraction(1, 1)
    """
    return Fraction(a) * Fraction(b)


def _positive(x: Array) -> Array:
    return nonpositive(np.asarray(-x)) & ~nonpositive(x)


def clamp(a: Array, limit: Number) -> tuple[Array, int]:
    """Each entry brought into [-limit, limit], and how many that changed; NaN stays NaN.

    >>> values, changed = clamp(np.array([-5.0, 1.0]), 2)
    >>> values.tolist(), changed
    ([-2.0, 1.0], 1)
    """
    bound = constant(limit, a)
    if a.dtype == object:
        above, below = _positive(a - bound), _positive(-a - bound)
    else:
        above, below = a > bound, a < -bound
    clamped = np.where(above, bound, np.where(below, -bound, a))
    return clamped, int(np.count_nonzero(above | below))


def _elementary(name: str) -> Callable[[Array], Array]:
    def element(value: Scalar) -> Scalar:
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
    function.__doc__ = (
        f"``{name}`` of every entry, any dtype that has it; else TypeError.\n\n"
        f"    >>> round(float({name}(np.array(0.5))), 6)\n"
        f"    {round(float(on_floats(0.5)), 6)!r}\n"
    )
    return function


exp = _elementary("exp")
expm1 = _elementary("expm1")
log = _elementary("log")
sqrt = _elementary("sqrt")
tanh = _elementary("tanh")
cos = _elementary("cos")
sin = _elementary("sin")


def sigmoid(x: Array) -> Array:
    """``1 / (1 + exp(-x))`` of every entry, without overflow for floats of any size.

    >>> sigmoid(np.array([-1000.0, 0.0, 1000.0])).tolist()
    [0.0, 0.5, 1.0]
    """
    if x.dtype.kind in "OV":  # numbers of Python's, or of a type with its own arithmetic
        function = getattr(x, "sigmoid", None)  # where this is one function
        return np.asanyarray(function() if function else 1 / (1 + exp(-x)))
    negative = x.real < 0
    e = np.exp(np.where(negative, x, -x))
    return np.asarray(np.where(negative, e, 1) / (1 + e))


def _decide(value: Scalar) -> bool:
    if value <= 0:
        return True
    if value > 0 or value != value:
        return False
    text = str(value)
    text = text if len(text) <= 60 else f"{text[:25]}...{text[-25:]}"
    raise ArithmeticError(
        f"the sign of {text} is not decided: the ball straddles a kink; raise the precision"
    )


_decide_all = np.frompyfunc(_decide, 1, 1)


def nonpositive(x: Array) -> Array:
    """``x <= 0`` as bool; complex numbers by their real part, so that kinks are decided by
    the value and not by the step; False for NaN, so that it propagates.

    Raises ArithmeticError, naming the entry, for a ball that contains zero and more.

    >>> nonpositive(np.array([-1.0, 0.0, 2.0, np.nan])).tolist()
    [True, True, False, False]
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
