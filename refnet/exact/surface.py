"""The part of NumPy that recorded arrays know: sums, products, movements of entries, and tables.

Checked by: tests/test_recorder.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from inspect import signature
from math import prod
from typing import Any

import numpy as np

from refnet.batch import Array
from refnet.exact.elementwise import COMPARISONS, UFUNCS, both, compared, largest, where
from refnet.exact.recorder import CALLS, METHODS, fitted, made, moved, record, written
from refnet.maths import numeric

__all__ = ["FULL", "FUNCTIONS", "REDUCTIONS", "function", "ufunc"]


# ---- sums and extremes

def _axes(x: Any, axis: Any) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(x.ndim))
    return tuple(int(n) % x.ndim for n in (axis if isinstance(axis, tuple) else (axis,)))


def _last(x: Any, axis: Any) -> tuple[Any, tuple[int, ...]]:
    """x with these axes as one at the end; and the shape of x with each of them as 1."""
    axes = _axes(x, axis)
    rest = tuple(n for n in range(x.ndim) if n not in axes)
    shape = tuple(x.shape[n] for n in rest) + (prod(x.shape[n] for n in axes),)
    kept = tuple(1 if n in axes else size for n, size in enumerate(x.shape))
    return moved(x, "an axis", lambda v: v.transpose(rest + axes).reshape(shape)), kept


def _sum(x: Any, axis: Any = None, dtype: Any = None, out: None = None,
         keepdims: bool = False) -> Any:
    node, axes = x.node, _axes(x, axis)
    kept = tuple(1 if n in axes else size for n, size in enumerate(x.shape))
    short = tuple(size for n, size in enumerate(x.shape) if n not in axes)
    empty = not all(x.shape[n] for n in axes)
    raw = np.broadcast_to(x.lift(np.zeros(()), ""), short) if empty else node.raw.sum(
        axis=axes) if axes else node.raw
    y = made(x, raw, "np.sum", (node, lambda g: np.broadcast_to(np.reshape(g, kept),
                                                                node.raw.shape)))
    return moved(y, "np.sum", lambda v: np.reshape(v, kept)) if keepdims else y


def _mean(x: Any, axis: Any = None, dtype: Any = None, out: None = None,
          keepdims: bool = False) -> Any:
    return _sum(x, axis, keepdims=keepdims) / prod(x.shape[n] for n in _axes(x, axis))


def _var(x: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: float = 0,
         keepdims: bool = False) -> Any:
    d = x - _mean(x, axis, keepdims=True)
    return _sum(d * d, axis, keepdims=keepdims) / (prod(x.shape[n] for n in _axes(x, axis)) - ddof)


def _std(x: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: float = 0,
         keepdims: bool = False) -> Any:
    return np.sqrt(_var(x, axis, ddof=ddof, keepdims=keepdims))


def _product_of(x: Any, axis: Any = None, dtype: Any = None, out: None = None,
                keepdims: bool = False) -> Any:
    flat, kept = _last(x, axis)
    y = record(x, np.ones(flat.shape[:-1]))
    for k in range(flat.shape[-1]):
        y = y * flat[..., k]
    return moved(y, "np.prod", lambda v: np.reshape(v, kept)) if keepdims else y


def _cumsum(x: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Any:
    x, axis = (np.ravel(x), 0) if axis is None else (x, axis)
    if not x.shape[axis]:
        return x.copy()
    sums: list[Any] = []
    for row in np.moveaxis(x, axis, 0):
        sums.append(sums[-1] + row if sums else row)
    return np.stack(sums, axis)


def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    if ord not in (None, {1: 2, 2: "fro"}.get(len(_axes(x, axis)))):
        raise TypeError(f"np.linalg.norm with ord = {ord} is not recorded; known: the root of the "
                        "sum of squares")
    return np.sqrt(_sum(x * x, axis, keepdims=keepdims))


def _clip(x: Any, a_min: Any = None, a_max: Any = None, out: None = None, *, min: Any = None,
          max: Any = None) -> Any:
    low, high = a_min if min is None else min, a_max if max is None else max
    x = x if low is None else UFUNCS["maximum"](x, low)
    return x if high is None else UFUNCS["minimum"](x, high)


def _largest_of(x: Any, axis: Any = None, out: None = None, keepdims: bool = False) -> Any:
    flat, kept = _last(x, axis)
    if not flat.shape[-1]:
        raise ValueError(f"no entry is the largest of none: an array of shape {x.shape}")
    node = flat.node
    top, share = largest(node.raw)
    y = made(x, top, "max", (node, lambda g: np.expand_dims(g, -1) * share))
    return moved(y, "max", lambda v: np.reshape(v, kept)) if keepdims else y


def _smallest_of(x: Any, axis: Any = None, out: None = None, keepdims: bool = False) -> Any:
    return -_largest_of(-x, axis, keepdims=keepdims)


def _place_of_largest(x: Any, axis: int | None = None, out: None = None, *,
                      keepdims: bool = False) -> Array:
    flat, kept = _last(x, axis)
    share = largest(flat.raw)[1]
    if share.dtype == object and any(not value.is_exact() for value in share.ravel().tolist()):
        raise ArithmeticError("argmax: two entries tie, or their balls overlap")
    places = np.asarray(share.astype(float).argmax(axis=-1))
    return places.reshape(kept) if keepdims else places


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
    shape = *lead, a.shape[-2], b.shape[-1]
    return np.stack(parts).reshape(shape) if parts else np.empty(shape, object)


def _matmul(a: Any, b: Any) -> Any:
    a, b = both(a, b)
    if a.ndim == 1:
        return _matmul(a[None], b)[..., 0, :] if b.ndim > 1 else _sum(a * b)
    if b.ndim == 1:
        return _matmul(a, b[:, None])[..., 0]
    u, v = a.node, b.node
    return made(a, _matmul_raw(u.raw, v.raw), "np.matmul",
                (u, lambda g: fitted(_matmul_raw(g, _turned(v.raw)), u.raw.shape)),
                (v, lambda g: fitted(_matmul_raw(_turned(u.raw), g), v.raw.shape)))


def _tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    left, right = ([*range(np.ndim(a) - axes, np.ndim(a))], [*range(axes)]) if isinstance(
        axes, int) else ([*np.atleast_1d(one)] for one in axes)
    first = [chr(97 + n) for n in range(np.ndim(a))]
    second = [chr(97 + np.ndim(a) + n) for n in range(np.ndim(b))]
    for i, j in zip(left, right):
        second[j] = first[i]
    gone = {first[i] for i in left}
    out = "".join(c for c in first + second if c not in gone)
    return _einsum(f"{''.join(first)},{''.join(second)}->{out}", a, b)


def _dot(a: Any, b: Any, out: None = None) -> Any:
    if not (np.ndim(a) and np.ndim(b)):
        return a * b
    return _tensordot(a, b, ((-1,), (-1 if np.ndim(b) == 1 else -2,)))


def _einsum(rule: str, *operands: Any, optimize: Any = False) -> Any:
    if not isinstance(rule, str):
        raise TypeError("np.einsum with lists of axes is not recorded; write them as a rule, such "
                        "as 'ij,jk->ik'")
    left, arrow, out = rule.replace(" ", "").partition("->")
    terms = left.split(",")
    if not arrow:
        out = "".join(sorted(c for c in set(left) - {","} if left.count(c) == 1))
    shapes = [np.shape(one) for one in operands]
    sizes = {pair for term, shape in zip(terms, shapes) for pair in zip(term, shape)}
    if ("." in rule or any(len(set(term)) < len(term) for term in (*terms, out))
            or [*map(len, terms)] != [*map(len, shapes)]
            or len(sizes) > len(dict(sizes)) or not set(out) <= set(dict(sizes))):
        raise TypeError(f"np.einsum {rule!r} of the shapes {shapes} is not recorded; known: rules "
                        "without ..., with each letter once a term and of one size")
    (x, *others), letters, rest = both(*operands), terms[0], terms[1:]
    for n, (y, term) in enumerate(zip(others, rest)):
        later = set(out).union(*rest[n + 1:])
        (x, letters), (y, term) = (_summed(x, letters, set(term) | later),
                                   _summed(y, term, set(letters) | later))
        x, letters = _pair(x, letters, y, term, later)
    x, letters = _summed(x, letters, set(out))
    return moved(x, "np.einsum", lambda v: v.transpose([letters.index(c) for c in out]))


def _summed(x: Any, letters: str, keep: set[str]) -> tuple[Any, str]:
    axes = tuple(n for n, c in enumerate(letters) if c not in keep)
    return (_sum(x, axes) if axes else x), "".join(c for c in letters if c in keep)


def _pair(x: Any, left: str, y: Any, right: str, later: set[str]
          ) -> tuple[Any, str]:
    """The product of two terms, summed over the letters that both have and none needs later."""
    batch = [c for c in left if c in right and c in later]
    inner = [c for c in left if c in right and c not in later]
    own, other = [c for c in left if c not in right], [c for c in right if c not in left]
    sizes = {**dict(zip(left, x.shape)), **dict(zip(right, y.shape))}

    def brought(z: Any, letters: str, *groups: list[str]) -> Any:
        order = [letters.index(c) for c in batch + groups[0] + groups[1]]
        shape = [sizes[c] for c in batch] + [prod(sizes[c] for c in group) for group in groups]
        return moved(z, "np.einsum", lambda v: v.transpose(order).reshape(shape))

    product = _matmul(brought(x, left, own, inner), brought(y, right, inner, other))
    letters = batch + own + other
    shape = [sizes[c] for c in letters]
    return moved(product, "np.einsum", lambda v: v.reshape(shape)), "".join(letters)


# ---- places

def _by(move: Callable[..., Any]) -> Callable[..., Any]:
    """A function of NumPy's that only moves or repeats entries."""
    return lambda x, *args, **options: moved(x, f"np.{move.__name__}",
                                             lambda v: move(v, *args, **options))


def _broadcast_to(x: Any, shape: Any) -> Any:
    node = x.node
    return made(x, np.broadcast_to(node.raw, shape), "np.broadcast_to",
                (node, lambda g: fitted(g, node.raw.shape)))


def _reshaped(x: Any, *shape: Any, **options: Any) -> Any:
    return moved(x, "reshape", lambda v: v.reshape(*shape, **options))


def _transposed(x: Any, *axes: Any) -> Any:
    return moved(x, "transpose", lambda v: v.transpose(*axes))


def _concatenate(parts: Any, axis: int | None = 0) -> Any:
    arrays = both(*parts)
    if axis is None:
        arrays, axis = [_reshaped(part, -1) for part in arrays], 0
    ends, axis = np.cumsum([0, *(part.shape[axis] for part in arrays)]), axis % arrays[0].ndim

    def taken(n: int) -> Callable[[Array], Array]:
        index = (slice(None),) * axis + (slice(ends[n], ends[n + 1]),)
        return lambda g: np.asanyarray(g[index])

    return made(arrays[0], np.concatenate([part.raw for part in arrays], axis), "np.concatenate",
                *((part.node, taken(n)) for n, part in enumerate(arrays)))


def _stack(parts: Any, axis: int = 0) -> Any:
    return _concatenate([np.expand_dims(part, axis)
                         for part in both(*parts)], axis)


def _split(x: Any, parts: Any, axis: int = 0) -> list[Any]:
    pieces = np.split(np.arange(x.shape[axis]), parts)
    return [np.take(x, piece, axis) for piece in pieces]


def _triangle(lower: bool) -> Callable[..., Any]:
    def operation(x: Any, k: int = 0) -> Any:
        rows, columns = x.shape[-2:]
        return where(np.tri(rows, columns, k if lower else k - 1, dtype=bool) == lower, x, 0)

    return operation


def _full_like(x: Any, fill: Any, dtype: Any = None, shape: Any = None) -> Any:
    """Recorded, so that it can be assigned to; plain if of integers or bools."""
    shape = x.shape if shape is None else shape
    if np.dtype(dtype).kind != "f":
        return np.full(shape, fill, dtype)
    return _broadcast_to(record(x, fill), shape).copy()


def _diff(x: Any, n: int = 1, axis: int = -1) -> Any:
    for _ in range(n):
        size = x.shape[axis]
        x = np.take(x, range(1, size), axis) - np.take(x, range(size - 1), axis)
    return x


def _as_type(x: Any, dtype: Any, copy: bool = True) -> Any:
    if np.dtype(dtype).kind != "f":
        raise TypeError(f"astype({np.dtype(dtype)}) of a recorded array is not recorded")
    return x


FULL = {**UFUNCS, "matmul": _matmul}
REDUCTIONS: dict[str, Callable[..., Any]] = {
    "add": _sum, "maximum": _largest_of, "minimum": _smallest_of, "multiply": _product_of}

METHODS |= {
    "sum": _sum, "mean": _mean, "var": _var, "std": _std, "prod": _product_of, "cumsum": _cumsum,
    "max": _largest_of, "min": _smallest_of, "argmax": _place_of_largest,
    "argmin": lambda x, axis=None, out=None, *, keepdims=False: _place_of_largest(
        -x, axis, keepdims=keepdims),
    "reshape": _reshaped, "transpose": _transposed,
    "ravel": lambda x, order="C": _reshaped(x, -1, order=order),
    "flatten": lambda x, order="C": _reshaped(x, -1, order=order).copy(),
    "copy": _by(np.copy), "astype": _as_type,
    "dot": _dot, "clip": _clip, "swapaxes": _by(np.swapaxes), "squeeze": _by(np.squeeze),
    "repeat": _by(np.repeat), "take": _by(np.take), "diagonal": _by(np.diagonal),
    "trace": lambda x: _sum(_by(np.diagonal)(x)),
}

FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: operation for name, operation in METHODS.items() if name not in ("astype", "flatten")},
    "amax": _largest_of, "amin": _smallest_of, "where": where, "einsum": _einsum,
    "tensordot": _tensordot, "concatenate": _concatenate, "stack": _stack, "split": _split,
    "vstack": lambda parts: _concatenate([np.atleast_2d(one) for one in both(*parts)]),
    "hstack": lambda parts: _concatenate(both(*parts), min(np.ndim(parts[0]) - 1, 1)),
    "outer": lambda a, b: np.multiply(np.reshape(a, (-1, 1)), np.reshape(b, (1, -1))),
    "inner": lambda a, b: _tensordot(a, b, ((-1,), (-1,))),
    "linalg.norm": _norm, "broadcast_to": _broadcast_to, "reshape": lambda x, *args, **options:
        _reshaped(x, *args, **options), "transpose": lambda x, axes=None: _transposed(x, axes),
    "tril": _triangle(True), "triu": _triangle(False), "full_like": _full_like,
    "zeros_like": lambda x, dtype=None, shape=None: _full_like(x, 0, dtype, shape),
    "ones_like": lambda x, dtype=None, shape=None: _full_like(x, 1, dtype, shape),
    "empty_like": lambda x, dtype=None, shape=None: _full_like(x, 0, dtype, shape),
    "shape": lambda x: x.shape, "ndim": lambda x: x.ndim, "size": lambda x: x.size,
    **{move.__name__: _by(move) for move in (
        np.moveaxis, np.expand_dims, np.atleast_1d, np.atleast_2d, np.flip, np.roll, np.tile,
        np.rot90, np.take_along_axis)},
    "diff": _diff,
}


def _known(table: Iterable[str]) -> str:
    return ", ".join(sorted(table))


_signature = lru_cache(maxsize=None)(signature)


def _called(name: str, operation: Callable[..., Any], args: tuple[Any, ...],
            options: dict[str, Any]) -> Any:
    """The operation's result, written to ``out`` if there is one; TypeError for arguments that it
    does not have, as NumPy's function has more."""
    out = options.get("out")
    try:
        bound = _signature(operation).bind(
            *args, **{key: value for key, value in options.items() if key != "out"})
    except TypeError as error:
        known = [one for one in _signature(operation).parameters if one not in ("x", "out")]
        raise TypeError(f"np.{name} as called is not recorded ({error}); known: "
                        f"{', '.join(known) or 'no option'}") from None
    out = bound.arguments.pop("out", out)
    result = operation(*bound.args, **bound.kwargs)
    return result if out is None else written(name, result, out)


def ufunc(called: np.ufunc, method: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """What a ufunc gives on recorded arrays; TypeError, naming it, if it is not in the table."""
    name = called.__name__
    options = {key: value for key, value in options.items()
               if (value is not None or key == "axis") and not (key == "where" and value is True)
               and key not in ("dtype", "casting", "subok", "order")}
    if method == "reduce" and name in REDUCTIONS:
        return _called(f"{name}.reduce", REDUCTIONS[name], inputs, {"axis": 0, **options})
    if method != "__call__" or options:
        raise TypeError(f"np.{name}{'' if method == '__call__' else '.' + method} with "
                        f"{_known(options) or 'recorded arrays'} is not recorded; reductions "
                        f"known: {_known(REDUCTIONS)}")
    if name in COMPARISONS:
        return compared(name, *(one.raw for one in both(*inputs)))
    if name not in FULL:
        raise TypeError(f"np.{name} is not recorded; known: {_known({*FULL, *COMPARISONS})}")
    return FULL[name](*inputs)


def function(called: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """What another function of NumPy gives; TypeError, naming it, if it is not in the table."""
    name = f"{called.__module__}.{called.__name__}".removeprefix("numpy.")
    if name not in FUNCTIONS:
        raise TypeError(f"np.{name} is not recorded; known: {_known(FUNCTIONS)}")
    return _called(name, FUNCTIONS[name], args, options)


def method(name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """What a method gives."""
    return _called(name, METHODS[name], args, options)


CALLS |= {"ufunc": ufunc, "function": function, "method": method}
