"""The part of NumPy that recorded arrays know, with the derivative of every operation.

Derivatives are computed on the numbers themselves, so in the kind of the computation: balls
enclose them, and perturbed floats are perturbed in them too.
Checked by: tests/test_recorder.py.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from refnet.batch import Array
from refnet.exact.recorder import (Recorded, fitted, made, moved, record, refuse_infinite)
from refnet.maths import numeric
from refnet.maths.kinds import kind

__all__ = ["METHODS", "function", "ufunc"]

_METHOD = {"arctan": "atan", "arcsinh": "asinh", "arctanh": "atanh"}
"""What numbers of Python's call the functions that NumPy has another name for."""
POWERS = 64


def _elementary(name: str) -> Callable[[Array], Array]:
    def element(value: Any) -> Any:
        method = getattr(value, _METHOD.get(name, name), None)
        if method is None:
            raise TypeError(f"np.{name} of {type(value).__name__} {value!r:.40} is not a number "
                            "of that type; use balls, kind='ball'")
        return method()

    on_objects = np.frompyfunc(element, 1, 1)

    def apply(x: Array) -> Array:
        if x.dtype == object:
            return np.asarray(on_objects(x), object)
        if name == "erf":
            from scipy.special import erf
            return np.asanyarray(erf(x))
        return np.asanyarray(getattr(np, name)(x))

    return apply


cosh, sinh = _elementary("cosh"), _elementary("sinh")


def _pi(like: Array) -> Any:
    return type(like.flat[0]).pi() if like.dtype == object else np.pi


def _unary(name: str, slope: Callable[[Array, Array], Any],
           value: Callable[[Array], Array] | None = None) -> Callable[..., Recorded]:
    value = value or _elementary(name)

    def operation(x: Recorded) -> Recorded:
        node = x.node
        y = value(node.raw)
        refuse_infinite(f"np.{name}", y)
        return made(x, y, f"np.{name}", (node, lambda g: g * slope(node.raw, y)))

    return operation


def _binary(operator: np.ufunc, left: Callable[..., Any], right: Callable[..., Any]
            ) -> Callable[..., Recorded]:
    name = f"np.{operator.__name__}"

    def operation(a: Any, b: Any) -> Recorded:
        a, b = _both(a, b)
        u, v = a.node, b.node
        y = operator(u.raw, v.raw)
        refuse_infinite(name, y)
        return made(a, y, name,
                    (u, lambda g: fitted(np.asanyarray(left(g, u.raw, v.raw, y)), u.raw.shape)),
                    (v, lambda g: fitted(np.asanyarray(right(g, u.raw, v.raw, y)), v.raw.shape)))

    return operation


def _both(*values: Any) -> list[Recorded]:
    like = next(one for value in values
                for one in (value if isinstance(value, (list, tuple)) else (value,))
                if isinstance(one, Recorded))
    return [record(like, value) for value in values]


def _power(a: Any, b: Any) -> Recorded:
    exponent = None if isinstance(b, Recorded) or np.ndim(b) else float(b)
    if exponent is None or not (2 * exponent).is_integer() or abs(exponent) > POWERS:
        a, b = _both(a, b)
        return np.exp(b * np.log(a))  # type: ignore[return-value]
    whole, half = divmod(abs(exponent), 1)
    out = np.sqrt(a) if half else a * 0 + 1 if not whole else None
    square, left = a, int(whole)
    while left:
        if left & 1:
            out = square if out is None else out * square
        left >>= 1
        square = square * square if left else square
    return 1 / out if exponent < 0 else out  # type: ignore[no-any-return]


# ---- decisions

def _decided(name: str) -> Callable[[Any, Any], bool]:
    def less(p: Any, q: Any) -> bool:
        if p < q:
            return True
        if p >= q:
            return False
        raise ArithmeticError(f"whether {p} < {q} is not decided; raise the precision")

    def equal(p: Any, q: Any) -> bool:
        if p == q:
            return True
        if p != q:
            return False
        raise ArithmeticError(f"whether {p} == {q} is not decided; raise the precision, or use "
                              "stop() where a tie does not matter")

    return {"less": less, "greater": lambda p, q: less(q, p), "equal": equal,
            "less_equal": lambda p, q: not less(q, p), "not_equal": lambda p, q: not equal(p, q),
            "greater_equal": lambda p, q: not less(p, q)}[name]


COMPARISONS = ("equal", "greater", "greater_equal", "less", "less_equal", "not_equal")


def _compared(name: str, a: Any, b: Any) -> Array:
    if object in (a.dtype, b.dtype):
        return np.asarray(np.frompyfunc(_decided(name), 2, 1)(a, b), bool)
    return np.asarray(getattr(np, name)(a, b))


def _are_balls(raw: Array) -> bool:
    return raw.dtype == object and kind(raw).__name__ == "arb"


def _largest(raw: Array) -> tuple[Array, Array]:
    """The largest entry along the last axis and each entry's share in its derivative.

    Of balls, an entry that may be the largest beside others has a share in [0, 1]: what follows
    encloses every choice. Rationals that tie have no derivative: ArithmeticError. Of floats that
    tie the first is taken.
    """
    if _are_balls(raw):
        return _largest_ball(raw)
    top, index = raw[..., 0], np.zeros(raw.shape[:-1], int)
    for k in range(1, raw.shape[-1]):
        higher = _compared("greater", np.asanyarray(raw[..., k]), np.asanyarray(top))
        top = np.where(higher, raw[..., k], top)
        index = np.where(higher, k, index)
    top, share = np.asanyarray(top), np.arange(raw.shape[-1]) == index[..., None]
    if raw.dtype == object and (_compared("equal", raw, top[..., None]).sum(axis=-1) > 1).any():
        raise ArithmeticError("two entries tie for the largest, where it has no derivative; use "
                              "balls, or stop() where a tie does not matter")
    return top, share.astype(int)


def _largest_ball(raw: Array) -> tuple[Array, Array]:
    from refnet.exact.balls import arb
    rows = raw.reshape(-1, raw.shape[-1])
    top, share = np.empty(len(rows), object), np.empty(rows.shape, object)
    for n, row in enumerate(rows.tolist()):
        best = row[0]
        for value in row[1:]:
            best = best.max(value)
        may = [not value < best for value in row]
        alone = arb(1) if sum(may) == 1 else arb(0.5, 0.5)
        top[n], share[n] = best, [alone if one else arb(0) for one in may]
    return top.reshape(raw.shape[:-1]), share.reshape(raw.shape)


def _largest_of(x: Recorded, axis: Any = None, out: None = None, keepdims: bool = False,
                **_: Any) -> Recorded:
    flat, kept = _last(x, axis)
    node = flat.node
    top, share = _largest(node.raw)
    y = made(x, top, "max", (node, lambda g: np.expand_dims(g, -1) * share))
    return moved(y, "max", lambda v: np.reshape(v, kept)) if keepdims else y


def _smallest_of(x: Recorded, axis: Any = None, out: None = None, keepdims: bool = False,
                 **_: Any) -> Recorded:
    return -_largest_of(-x, axis, keepdims=keepdims)


def _maximum(a: Any, b: Any) -> Recorded:
    a, b = _both(a, b)
    shape = np.broadcast_shapes(a.shape, b.shape)
    return _largest_of(np.stack([np.broadcast_to(one, shape)  # type: ignore[arg-type]
                                 for one in (a, b)]), 0)


def _place_of_largest(x: Recorded, axis: int | None = None, **_: Any) -> Array:
    _, share = _largest(_last(x, axis)[0].raw)
    if share.dtype == object and any(not value.is_exact() for value in share.ravel().tolist()):
        raise ArithmeticError("argmax: two entries tie, or their balls overlap")
    return np.asarray(share.astype(float).argmax(axis=-1))


def _sign(raw: Array) -> Array:
    """-1, 0 or 1; of a ball that contains 0 and more, [-1, 1]."""
    if _are_balls(raw):
        from refnet.exact.balls import arb
        signs = np.frompyfunc(lambda v: arb(1) if v > 0 else arb(-1) if v < 0 else
                              arb(0) if v.is_zero() else arb(0, 1), 1, 1)
        return np.asarray(signs(raw), object)
    positive, negative = (_compared(name, raw, np.zeros((), int)) for name in ("greater", "less"))
    return positive.astype(int) - negative


def _absolute(x: Recorded) -> Recorded:
    node, sign = x.node, _sign(x.raw)
    return made(x, abs(node.raw), "np.abs", (node, lambda g: g * sign))


def _where(condition: Any, a: Any, b: Any) -> Recorded:
    chosen = condition != 0 if isinstance(condition, Recorded) else np.asarray(condition)
    a, b = _both(a, b)
    u, v, zero = a.node, b.node, a.lift(np.zeros(()), "")
    return made(a, np.where(chosen, u.raw, v.raw), "np.where",
                (u, lambda g: fitted(np.where(chosen, g, zero), u.raw.shape)),
                (v, lambda g: fitted(np.where(chosen, zero, g), v.raw.shape)))


# ---- sums

def _axes(x: Recorded, axis: Any) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(x.ndim))
    return tuple(int(n) % x.ndim for n in (axis if isinstance(axis, tuple) else (axis,)))


def _last(x: Recorded, axis: Any) -> tuple[Recorded, tuple[int, ...]]:
    """x with these axes as one at the end; and the shape of x with each of them as 1."""
    axes = _axes(x, axis)
    rest = tuple(n for n in range(x.ndim) if n not in axes)
    shape = tuple(x.shape[n] for n in rest) + (prod(x.shape[n] for n in axes),)
    kept = tuple(1 if n in axes else size for n, size in enumerate(x.shape))
    return moved(x, "an axis", lambda v: v.transpose(rest + axes).reshape(shape)), kept


def _sum(x: Recorded, axis: Any = None, dtype: None = None, out: None = None,
         keepdims: bool = False, **_: Any) -> Recorded:
    node, axes = x.node, _axes(x, axis)
    kept = tuple(1 if n in axes else size for n, size in enumerate(x.shape))
    short = tuple(size for n, size in enumerate(x.shape) if n not in axes)
    empty = not all(x.shape[n] for n in axes)
    raw = np.broadcast_to(x.lift(np.zeros(()), ""), short) if empty else node.raw.sum(
        axis=axes) if axes else node.raw
    y = made(x, raw, "np.sum", (node, lambda g: np.broadcast_to(np.reshape(g, kept),
                                                                node.raw.shape)))
    return moved(y, "np.sum", lambda v: np.reshape(v, kept)) if keepdims else y


def _mean(x: Recorded, axis: Any = None, dtype: None = None, out: None = None,
          keepdims: bool = False, **_: Any) -> Recorded:
    return _sum(x, axis, keepdims=keepdims) / prod(x.shape[n] for n in _axes(x, axis))


def _var(x: Recorded, axis: Any = None, dtype: None = None, out: None = None, ddof: int = 0,
         keepdims: bool = False, **_: Any) -> Recorded:
    d = x - _mean(x, axis, keepdims=True)
    return _sum(d * d, axis, keepdims=keepdims) / (prod(x.shape[n] for n in _axes(x, axis)) - ddof)


def _std(x: Recorded, *args: Any, **options: Any) -> Recorded:
    return np.sqrt(_var(x, *args, **options))  # type: ignore[return-value]


def _product_of(x: Recorded, axis: Any = None, dtype: None = None, out: None = None,
                keepdims: bool = False, **_: Any) -> Recorded:
    flat, kept = _last(x, axis)
    y = flat[..., 0]
    for k in range(1, flat.shape[-1]):
        y = y * flat[..., k]
    return moved(y, "np.prod", lambda v: np.reshape(v, kept)) if keepdims else y


def _cumsum(x: Recorded, axis: int | None = None, **_: Any) -> Recorded:
    x, axis = (np.ravel(x), 0) if axis is None else (x, axis)  # type: ignore[call-overload]
    sums: list[Any] = []
    for row in np.moveaxis(x, axis, 0):  # type: ignore[call-overload]
        sums.append(sums[-1] + row if sums else row)
    return np.stack(sums, axis)  # type: ignore[return-value]


def _norm(x: Recorded, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Recorded:
    if ord not in (None, 2, "fro") or ord == 2 and axis is None and x.ndim != 1:
        raise TypeError(f"np.linalg.norm with ord = {ord} is not recorded; known: the root of the "
                        "sum of squares")
    return np.sqrt(_sum(x * x, axis, keepdims=keepdims))  # type: ignore[return-value]


def _clip(x: Recorded, a_min: Any = None, a_max: Any = None, **options: Any) -> Recorded:
    low, high = options.get("min", a_min), options.get("max", a_max)
    x = x if low is None else _maximum(x, low)
    return x if high is None else -_maximum(-x, -high)


# ---- products

def _turned(v: Array) -> Array:
    return np.swapaxes(v, -1, -2)


def _matmul_raw(a: Array, b: Array) -> Array:
    """Products of the last two axes, one for each place on the others."""
    if a.dtype.kind == b.dtype.kind == "f":
        return np.asarray(a @ b)
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    left, right = (np.broadcast_to(m, lead + m.shape[-2:]).reshape(-1, *m.shape[-2:])
                   for m in (a, b))
    parts = [numeric.matmul(left[n], right[n]) for n in range(len(left))]
    return np.stack(parts).reshape(*lead, a.shape[-2], b.shape[-1])


def _matmul(a: Any, b: Any) -> Recorded:
    a, b = _both(a, b)
    if a.ndim == 1:
        return _matmul(a[None], b)[..., 0, :] if b.ndim > 1 else _sum(a * b)
    if b.ndim == 1:
        return _matmul(a, b[:, None])[..., 0]
    u, v = a.node, b.node
    return made(a, _matmul_raw(u.raw, v.raw), "np.matmul",
                (u, lambda g: fitted(_matmul_raw(g, _turned(v.raw)), u.raw.shape)),
                (v, lambda g: fitted(_matmul_raw(_turned(u.raw), g), v.raw.shape)))


def _tensordot(a: Any, b: Any, axes: Any = 2) -> Recorded:
    left, right = ([*range(np.ndim(a) - axes, np.ndim(a))], [*range(axes)]) if isinstance(
        axes, int) else ([*np.atleast_1d(one)] for one in axes)
    first = [chr(97 + n) for n in range(np.ndim(a))]
    second = [chr(97 + np.ndim(a) + n) for n in range(np.ndim(b))]
    for i, j in zip(left, right):
        second[j] = first[i]
    gone = {first[i] for i in left}
    out = "".join(c for c in first + second if c not in gone)
    return _einsum(f"{''.join(first)},{''.join(second)}->{out}", a, b)


def _dot(a: Any, b: Any, out: None = None) -> Recorded:
    if not (np.ndim(a) and np.ndim(b)):
        return a * b  # type: ignore[no-any-return]
    return _tensordot(a, b, ((-1,), (-1 if np.ndim(b) == 1 else -2,)))


def _einsum(rule: str, *operands: Any, **_: Any) -> Recorded:
    left, arrow, out = rule.replace(" ", "").partition("->")
    terms = left.split(",")
    if not arrow:
        out = "".join(sorted(c for c in set(left) - {","} if left.count(c) == 1))
    if "." in rule or any(len(set(term)) < len(term) for term in terms):
        raise TypeError(f"np.einsum {rule!r} is not recorded; known: rules without ... and with "
                        "each letter once a term")
    (x, *others), (letters, *rest) = _both(*operands), terms
    for n, (y, term) in enumerate(zip(others, rest)):
        later = set(out).union(*rest[n + 1:])
        (x, letters), (y, term) = (_summed(x, letters, set(term) | later),
                                   _summed(y, term, set(letters) | later))
        x, letters = _pair(x, letters, y, term, later)
    x, letters = _summed(x, letters, set(out))
    return moved(x, "np.einsum", lambda v: v.transpose([letters.index(c) for c in out]))


def _summed(x: Recorded, letters: str, keep: set[str]) -> tuple[Recorded, str]:
    axes = tuple(n for n, c in enumerate(letters) if c not in keep)
    return (_sum(x, axes) if axes else x), "".join(c for c in letters if c in keep)


def _pair(x: Recorded, left: str, y: Recorded, right: str, later: set[str]
          ) -> tuple[Recorded, str]:
    """The product of two terms, summed over the letters that both have and none needs later."""
    batch = [c for c in left if c in right and c in later]
    inner = [c for c in left if c in right and c not in later]
    own, other = [c for c in left if c not in right], [c for c in right if c not in left]
    sizes = {**dict(zip(left, x.shape)), **dict(zip(right, y.shape))}

    def brought(z: Recorded, letters: str, *groups: list[str]) -> Recorded:
        order = [letters.index(c) for c in batch + groups[0] + groups[1]]
        shape = [sizes[c] for c in batch] + [prod(sizes[c] for c in group) for group in groups]
        return moved(z, "np.einsum", lambda v: v.transpose(order).reshape(shape))

    product = _matmul(brought(x, left, own, inner), brought(y, right, inner, other))
    letters = batch + own + other
    shape = [sizes[c] for c in letters]
    return moved(product, "np.einsum", lambda v: v.reshape(shape)), "".join(letters)


# ---- places

def _by(move: Callable[..., Any]) -> Callable[..., Recorded]:
    """A function of NumPy's that only moves or repeats entries."""
    return lambda x, *args, **options: moved(x, f"np.{move.__name__}",
                                             lambda v: move(v, *args, **options))


def _broadcast_to(x: Recorded, shape: Any, **_: Any) -> Recorded:
    node = x.node
    return made(x, np.broadcast_to(node.raw, shape), "np.broadcast_to",
                (node, lambda g: fitted(g, node.raw.shape)))


def _reshaped(x: Recorded, *shape: Any, **options: Any) -> Recorded:
    return moved(x, "reshape", lambda v: v.reshape(*shape, **options))


def _transposed(x: Recorded, *axes: Any) -> Recorded:
    return moved(x, "transpose", lambda v: v.transpose(*axes))


def _concatenate(parts: Any, axis: int | None = 0, **_: Any) -> Recorded:
    arrays = _both(*parts)
    if axis is None:
        arrays, axis = [_reshaped(part, -1) for part in arrays], 0
    ends, axis = np.cumsum([0, *(part.shape[axis] for part in arrays)]), axis % arrays[0].ndim

    def taken(n: int) -> Callable[[Array], Array]:
        index = (slice(None),) * axis + (slice(ends[n], ends[n + 1]),)
        return lambda g: np.asanyarray(g[index])

    return made(arrays[0], np.concatenate([part.raw for part in arrays], axis), "np.concatenate",
                *((part.node, taken(n)) for n, part in enumerate(arrays)))


def _stack(parts: Any, axis: int = 0, **_: Any) -> Recorded:
    return _concatenate([np.expand_dims(part, axis)  # type: ignore[call-overload]
                         for part in _both(*parts)], axis)


def _split(x: Recorded, parts: Any, axis: int = 0) -> list[Recorded]:
    pieces = np.split(np.arange(x.shape[axis]), parts)
    return [np.take(x, piece, axis) for piece in pieces]  # type: ignore[call-overload]


def _triangle(lower: bool) -> Callable[..., Recorded]:
    return lambda x, k=0: _where(np.tri(*x.shape[-2:], k if lower else k - 1, dtype=bool) == lower,
                                 x, 0)


def _filled(fill: float) -> Callable[..., Recorded]:
    return lambda x, shape=None, **_: record(x, np.full(x.shape if shape is None else shape, fill))


def _same(x: Recorded, *_: Any, **__: Any) -> Recorded:
    return x


def _as_type(x: Recorded, dtype: Any, **_: Any) -> Recorded:
    if np.dtype(dtype).kind != "f":
        raise TypeError(f"astype({np.dtype(dtype)}) of a recorded array is not recorded")
    return x


UFUNCS: dict[str, Callable[..., Any]] = {
    "negative": _unary("negative", lambda x, y: -1, lambda x: np.asanyarray(-x)),
    "exp": _unary("exp", lambda x, y: y), "expm1": _unary("expm1", lambda x, y: y + 1),
    "log": _unary("log", lambda x, y: 1 / x), "log1p": _unary("log1p", lambda x, y: 1 / (1 + x)),
    "sqrt": _unary("sqrt", lambda x, y: 1 / (2 * y)),
    "tanh": _unary("tanh", lambda x, y: 1 - y * y),
    "sin": _unary("sin", lambda x, y: numeric.cos(x)),
    "cos": _unary("cos", lambda x, y: -numeric.sin(x)),
    "sinh": _unary("sinh", lambda x, y: cosh(x)), "cosh": _unary("cosh", lambda x, y: sinh(x)),
    "arctan": _unary("arctan", lambda x, y: 1 / (1 + x * x)),
    "expit": _unary("expit", lambda x, y: y * (1 - y), numeric.sigmoid),
    "erf": _unary("erf", lambda x, y: numeric.exp(-(x * x)) * (2 / _pi(x) ** 0.5)),
    "absolute": _absolute, "fabs": _absolute, "positive": _same, "conjugate": _same,
    "square": lambda x: x * x, "reciprocal": lambda x: 1 / x,
    "sign": lambda x: made(x, x.lift(_sign(x.raw), ""), "np.sign"),
    "add": _binary(np.add, lambda g, a, b, y: g, lambda g, a, b, y: g),
    "subtract": _binary(np.subtract, lambda g, a, b, y: g, lambda g, a, b, y: -g),
    "multiply": _binary(np.multiply, lambda g, a, b, y: g * b, lambda g, a, b, y: g * a),
    "divide": _binary(np.divide, lambda g, a, b, y: g / b, lambda g, a, b, y: -(g * y / b)),
    "power": _power, "float_power": _power, "maximum": _maximum, "matmul": _matmul,
    "minimum": lambda a, b: -_maximum(-_both(a, b)[0], -_both(a, b)[1]),
}
REDUCTIONS = {"add": _sum, "maximum": _largest_of, "minimum": _smallest_of,
              "multiply": _product_of}

METHODS: dict[str, Callable[..., Any]] = {
    "sum": _sum, "mean": _mean, "var": _var, "std": _std, "prod": _product_of, "cumsum": _cumsum,
    "max": _largest_of, "min": _smallest_of, "argmax": _place_of_largest,
    "argmin": lambda x, axis=None, **_: _place_of_largest(-x, axis),
    "reshape": _reshaped, "transpose": _transposed, "ravel": lambda x, **_: _reshaped(x, -1),
    "flatten": lambda x: _reshaped(x, -1).copy(), "copy": _by(np.copy), "astype": _as_type,
    "dot": _dot, "clip": _clip, "swapaxes": _by(np.swapaxes), "squeeze": _by(np.squeeze),
    "repeat": _by(np.repeat), "take": _by(np.take), "diagonal": _by(np.diagonal),
    "trace": lambda x, **_: _sum(_by(np.diagonal)(x)),
}

FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: operation for name, operation in METHODS.items() if name not in ("astype", "flatten")},
    "amax": _largest_of, "amin": _smallest_of, "where": _where, "einsum": _einsum,
    "tensordot": _tensordot, "concatenate": _concatenate, "stack": _stack, "split": _split,
    "vstack": lambda parts: _concatenate([np.atleast_2d(one) for one in _both(*parts)]),
    "hstack": lambda parts: _concatenate(_both(*parts), min(np.ndim(parts[0]) - 1, 1)),
    "outer": lambda a, b: np.multiply(np.reshape(a, (-1, 1)), np.reshape(b, (1, -1))),
    "inner": lambda a, b: _tensordot(a, b, ((-1,), (-1,))),
    "linalg.norm": _norm, "broadcast_to": _broadcast_to, "reshape": lambda x, *args, **options:
        _reshaped(x, *args, **options), "transpose": lambda x, axes=None: _transposed(x, axes),
    "tril": _triangle(True), "triu": _triangle(False), "zeros_like": lambda x, **options:
        _filled(0)(x, options.get("shape")), "ones_like": lambda x, **options:
        _filled(1)(x, options.get("shape")), "empty_like": lambda x, **options:
        _filled(0)(x, options.get("shape")), "full_like": lambda x, fill_value, **options:
        _filled(fill_value)(x, options.get("shape")),
    "shape": lambda x: x.shape, "ndim": lambda x: x.ndim, "size": lambda x: x.size,
    **{move.__name__: _by(move) for move in (
        np.moveaxis, np.expand_dims, np.atleast_1d, np.atleast_2d, np.flip, np.roll, np.tile,
        np.rot90)},
}


def _known(table: dict[str, Any]) -> str:
    return ", ".join(sorted(table))


def ufunc(self: Recorded, called: np.ufunc, method: str, inputs: tuple[Any, ...],
          options: dict[str, Any]) -> Any:
    """What a ufunc gives on recorded arrays; TypeError, naming it, if it is not in the table."""
    name = called.__name__
    options = {key: value for key, value in options.items()
               if value is not None and not (key == "where" and value is True)
               and key not in ("dtype", "casting", "subok", "order")}
    if method == "reduce" and name in REDUCTIONS:
        return REDUCTIONS[name](*inputs, **{"axis": 0, **options})
    if method != "__call__" or options:
        raise TypeError(f"np.{name}{'' if method == '__call__' else '.' + method} with "
                        f"{_known(options) or 'recorded arrays'} is not recorded; reductions "
                        f"known: {_known(REDUCTIONS)}")
    if name in COMPARISONS:
        return _compared(name, *(one.raw for one in _both(*inputs)))
    if name not in UFUNCS:
        raise TypeError(f"np.{name} is not recorded; known: "
                        f"{', '.join(sorted({*UFUNCS, *COMPARISONS}))}")
    return UFUNCS[name](*inputs)


def function(called: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """What another function of NumPy gives; TypeError, naming it, if it is not in the table."""
    name = f"{called.__module__}.{called.__name__}".removeprefix("numpy.")
    if name not in FUNCTIONS:
        raise TypeError(f"np.{name} is not recorded; known: {_known(FUNCTIONS)}")
    return FUNCTIONS[name](*args, **options)
