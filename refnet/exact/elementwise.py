"""The operations on recorded arrays that act entry by entry, each with its derivative.

Derivatives use the numbers of the computation itself, and so its kind: balls enclose them, and
perturbed floats perturb them too.
Checked by: tests/exact/test_recorder.py.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial

import numpy as np

from refnet.batch import Array, Scalar
from refnet.exact.recorder import (
    Operand,
    Operation,
    Recorded,
    derived,
    record,
    refuse_infinite,
    same,
    stop,
)
from refnet.maths import numeric
from refnet.maths.kinds import kind

_METHOD = {"arctan": "atan", "arctan2": "atan2", "gammaln": "lgamma"}
"""NumPy's name of a function -> the name of the method of Python number types, if it differs."""
POWERS = 64


def _elementary(name: str, operands: int = 1) -> Callable[..., Array]:
    def element(value: Scalar, *others: Scalar) -> Scalar:
        method = getattr(type(value), _METHOD.get(name, name), None)
        if method is None:
            raise TypeError(
                f"np.{name} of {type(value).__name__} {value!r:.40} is not a number "
                "of that type; use balls, kind='ball'"
            )
        return method(value, *others)

    on_objects = np.frompyfunc(element, operands, 1)

    def apply(*arrays: Array) -> Array:
        if object in [x.dtype for x in arrays]:
            return np.asarray(on_objects(*arrays), object)
        if not hasattr(np, name):
            from scipy import special

            return np.asanyarray(getattr(special, name)(*arrays))
        return np.asanyarray(getattr(np, name)(*arrays))

    return apply


def _pi(like: Array) -> Operand:
    return type(like.flat[0]).pi() if like.dtype == object else np.pi


NAMES = {
    **vars(numeric),
    "sinh": _elementary("sinh"),
    "cosh": _elementary("cosh"),
    "digamma": _elementary("digamma"),
    "pi": _pi,
    "array": np.asanyarray,
}
"""What the formulas of derivatives may call, on numbers of any kind."""


VALUES: dict[str, Callable[..., Array]] = {
    **{name: getattr(np, name) for name in ("negative", "add", "subtract", "multiply", "divide")},
    "expit": numeric.sigmoid,
}
"""The functions that are not what ``_elementary`` makes of their names."""
COTANGENTS = {
    "negative": ("g * -1",),
    "exp": ("g * y",),
    "expm1": ("g * (y + 1)",),
    "log": ("g * (1 / a)",),
    "log1p": ("g * (1 / (1 + a))",),
    "sqrt": ("g * (1 / (2 * y))",),
    "tanh": ("g * (1 - y * y)",),
    "sin": ("g * cos(a)",),
    "cos": ("g * -sin(a)",),
    "sinh": ("g * cosh(a)",),
    "cosh": ("g * sinh(a)",),
    "arctan": ("g * (1 / (1 + a * a))",),
    "expit": ("g * (y * (1 - y))",),
    "erf": ("g * (exp(array(-(a * a))) * (2 / pi(a) ** 0.5))",),
    "gammaln": ("g * digamma(a)",),
    "add": ("g", "g"),
    "subtract": ("g", "-g"),
    "multiply": ("g * b", "g * a"),
    "divide": ("g / b", "-(g * y / b)"),
    "arctan2": ("g * b / (a * a + b * b)", "-(g * a / (a * a + b * b))"),
}
"""The cotangents of a, or of a and b, from the cotangent g of each y = f(a) or f(a, b)."""


def _formula(name: str) -> Operation:
    texts = COTANGENTS[name]
    value = VALUES.get(name) or _elementary(name, len(texts))
    names = ", ".join("ab"[: len(texts)])
    pulls = [eval(f"lambda y, {names}, g: {text}", NAMES) for text in texts]

    def operation(*operands: Operand) -> Operand:
        operands = (*both(*operands),)
        nodes = [operand.node for operand in operands]
        raws = [node.raw for node in nodes]
        y = value(*raws)
        refuse_infinite(f"np.{name}", y)
        pullbacks = [partial(pull, y, *raws) for pull in pulls]
        return derived(operands[0], y, f"np.{name}", *zip(nodes, pullbacks))

    return operation


def both(*values: Operand) -> list[Operand]:
    """All values as recorded arrays on the tape of the first one that is recorded."""
    like = next(
        item
        for value in values
        for item in (value if isinstance(value, (list, tuple)) else (value,))
        if isinstance(item, Recorded)
    )
    return [record(like, value) for value in values]


def _power(a: Operand, b: Operand) -> Operand:
    if isinstance(b, Recorded):
        a, b = both(a, b)
        return np.exp(np.log(a) * b)
    if np.ndim(b):
        return _powers(a, np.asarray(b))
    exponent = float(b)
    if not (2 * exponent).is_integer() or abs(exponent) > POWERS:
        odd, even = exponent % 2 == 1, exponent % 2 == 0
        size = np.exp(exponent * np.log(abs(a) if odd or even else a))
        return np.sign(a) * size if odd else size
    whole, half = divmod(abs(exponent), 1)
    out: Operand = np.sqrt(a) if half else a * 0 + 1 if not whole else None
    square, left = a, int(whole)
    while left:
        if left & 1:
            out = square if out is None else out * square
        left >>= 1
        square = square * square if left else square
    return 1 / out if exponent < 0 else out


def _powers(a: Operand, exponents: Array) -> Operand:
    """Whole exponents one after the other, as ``a`` may be negative."""
    if (exponents % 1 != 0).any():
        return np.exp(exponents * np.log(a))
    out: Operand = 0
    for n in np.unique(exponents):
        chosen = exponents == n
        out = where(chosen, _power(where(chosen, a, 1), n), out)
    return out


# ---- decisions


COMPARISONS = {
    "less": (operator.lt, operator.ge),
    "less_equal": (operator.le, operator.gt),
    "greater": (operator.gt, operator.le),
    "greater_equal": (operator.ge, operator.lt),
    "equal": (operator.eq, operator.ne),
    "not_equal": (operator.ne, operator.eq),
}
"""NumPy's name of a comparison -> when it is true, when it is false."""


def compared(name: str, a: Operand, b: Operand) -> Array:
    """The comparison of that name, entry by entry, as bool; balls have to decide it."""
    if object not in (a.dtype, b.dtype):
        return np.asarray(getattr(np, name)(a, b))
    holds, fails = COMPARISONS[name]

    def decided(p: Scalar, q: Scalar) -> bool:
        if holds(p, q):
            return True
        if fails(p, q):
            return False
        raise ArithmeticError(
            f"whether np.{name} of {p} and {q} is true is not decided; raise the precision, or "
            "use stop() where a tie does not matter"
        )

    return np.asarray(np.frompyfunc(decided, 2, 1)(a, b), bool)


def _are_balls(raw: Array) -> bool:
    return raw.dtype == object and kind(raw).__name__ == "arb"


def largest(raw: Array) -> tuple[Array, Array]:
    """The largest entry along the last axis and each entry's share in its derivative.

    Of balls, an entry that may be the largest beside others has a share in [0, 1]: what follows
    encloses every choice. Rationals that tie have no derivative: ArithmeticError. Of floats that
    tie the first is taken.
    """
    if _are_balls(raw):
        return _largest_ball(raw)
    top, index = raw[..., 0], np.zeros(raw.shape[:-1], int)
    for k in range(1, raw.shape[-1]):
        higher = compared("greater", np.asanyarray(raw[..., k]), np.asanyarray(top))
        top = np.where(higher, raw[..., k], top)
        index = np.where(higher, k, index)
    top, share = np.asanyarray(top), np.arange(raw.shape[-1]) == index[..., None]
    if raw.dtype == object and (compared("equal", raw, top[..., None]).sum(axis=-1) > 1).any():
        raise ArithmeticError(
            "two entries tie for the largest, where it has no derivative; use "
            "balls, or stop() where a tie does not matter"
        )
    return top, share.astype(int)


def _largest_ball(raw: Array) -> tuple[Array, Array]:
    from refnet.exact.balls import arb

    rows = raw.reshape(-1, raw.shape[-1])
    top, share = np.empty(len(rows), object), np.empty(rows.shape, object)
    for n, row in enumerate(rows.tolist()):
        best = row[0]
        for value in row[1:]:
            best = best.max(value)
        candidates = [not value < best for value in row]
        alone = arb(1) if sum(candidates) == 1 else arb(0.5, 0.5)
        top[n], share[n] = best, [alone if candidate else arb(0) for candidate in candidates]
    return top.reshape(raw.shape[:-1]), share.reshape(raw.shape)


def _times(slope: Array) -> Callable[[Array], Array]:
    def pull(g: Array) -> Array:
        return g * slope

    return pull


def _maximum(a: Operand, b: Operand) -> Operand:
    a, b = both(a, b)
    u, v = a.node, b.node
    shape = np.broadcast_shapes(a.shape, b.shape)
    top, share = largest(
        np.stack([np.broadcast_to(u.raw, shape), np.broadcast_to(v.raw, shape)], axis=-1)
    )
    return derived(a, top, "np.maximum", (u, _times(share[..., 0])), (v, _times(share[..., 1])))


def _minimum(a: Operand, b: Operand) -> Operand:
    a, b = both(a, b)
    return -_maximum(-a, -b)


def _logaddexp(a: Operand, b: Operand) -> Operand:
    a, b = both(a, b)
    top = stop(_maximum(a, b))
    return top + np.log(np.exp(a - top) + np.exp(b - top))


def _signs(raw: Array) -> Array:
    """-1, 0 or 1; of a ball that contains 0 and more, [-1, 1]."""
    if _are_balls(raw):
        from refnet.exact.balls import each

        return np.asarray(each("sgn")(raw), object)
    positive, negative = (compared(name, raw, np.zeros((), int)) for name in ("greater", "less"))
    return positive.astype(int) - negative


def _sign(x: Recorded) -> Operand:
    return derived(x, x.lift(_signs(x.raw), ""), "np.sign")


def _absolute(x: Operand) -> Operand:
    node, sign = x.node, _signs(x.raw)
    if _are_balls(x.raw):  # either slope of the kink
        from refnet.exact.balls import arb

        sign = np.where(compared("equal", sign, np.zeros((), int)), arb(0, 1), sign)
    return derived(x, abs(node.raw), "np.abs", (node, _times(sign)))


def where(condition: Operand, a: Operand, b: Operand) -> Operand:
    """``np.where``, recorded: each entry's gradient goes to the side that was chosen."""
    chosen = condition != 0 if isinstance(condition, Recorded) else np.array(condition)
    a, b = both(a, b)
    u, v, zero = a.node, b.node, a.lift(np.zeros(()), "")
    return derived(
        a,
        np.where(chosen, u.raw, v.raw),
        "np.where",
        (u, lambda g: np.where(chosen, g, zero)),
        (v, lambda g: np.where(chosen, zero, g)),
    )


def _log(x: Operand, base: int) -> Operand:
    return np.log(x) / np.log(record(x, base))


def _hypot(x: Operand, y: Operand) -> Operand:
    return np.sqrt(x * x + y * y)


UFUNCS: dict[str, Operation] = {
    **{name: _formula(name) for name in COTANGENTS},
    "absolute": _absolute,
    "fabs": _absolute,
    "positive": same,
    "conjugate": same,
    "hypot": _hypot,
    "square": partial(_power, b=2),
    "reciprocal": partial(operator.truediv, 1),
    "sign": _sign,
    "log2": partial(_log, base=2),
    "log10": partial(_log, base=10),
    "exp2": partial(_power, 2),
    "power": _power,
    "float_power": _power,
    "maximum": _maximum,
    "minimum": _minimum,
    "logaddexp": _logaddexp,
}
