"""The part of NumPy that recorded arrays know: products, movements of entries, and tables.

Their results share memory as NumPy's do, and are numbers where NumPy's are: an assignment to an
array shows in the other arrays that share its memory, and in no number.

Checked by: tests/exact/test_recorder.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from functools import lru_cache, partial
from inspect import signature
from typing import Literal

import numpy as np
from numpy.typing import DTypeLike

from refnet.batch import Array
from refnet.exact import complexes
from refnet.exact.complexes import has_complex
from refnet.exact.elementwise import COMPARISONS, UFUNCS, both, compared, where
from refnet.exact.matrix import LINALG
from refnet.exact.products import dot, einsum, inner, matmul, tensordot
from refnet.exact.recorder import (
    CALLS,
    METHODS,
    Arguments,
    Operand,
    Operation,
    Options,
    Recorded,
    Unrecorded,
    derived,
    laid_out,
    outermost,
    rearranged,
    record,
    same,
    written,
)
from refnet.exact.reductions import (
    axis_of,
    clip,
    cumsum,
    largest_of,
    mean,
    place_of_largest,
    place_of_smallest,
    product_of,
    smallest_of,
    std,
    sum_of,
    var,
)

# ---- places


def _by(move: Operation) -> Operation:
    """A function of NumPy's that only moves or repeats entries."""

    def operation(x: Recorded, *args: Operand, **options: Operand) -> Operand:
        args, options = deepcopy((args, options))  # f may change its own
        if {"A", "K"} & {value for value in (*args, *options.values()) if type(value) is str}:
            raise TypeError(
                f"np.{move.__name__} with order 'A' or 'K' is not recorded; known: 'C', 'F'"
            )
        return rearranged(x, f"np.{move.__name__}", move, *args, **options)

    return operation


_reshaped, _diagonal = _by(np.ndarray.reshape), _by(np.diagonal)


def _broadcast_to(x: Recorded, shape: Operand) -> Operand:
    return rearranged(x, "np.broadcast_to", np.broadcast_to, deepcopy(shape), pullback=same)


def _concatenate(parts: Sequence[Operand], axis: int | None = 0) -> Operand:
    arrays = both(*parts)
    if axis is None:
        arrays, axis = [_reshaped(part, -1) for part in arrays], 0
    axis = axis_of(arrays[0], axis)
    ends = np.cumsum([part.shape[axis] for part in arrays[:-1]])
    return derived(
        arrays[0],
        np.concatenate([part.raw for part in arrays], axis),
        "np.concatenate",
        *((part.node, partial(_piece, ends=ends, axis=axis, n=n)) for n, part in enumerate(arrays)),
    )


def _stack(parts: Sequence[Operand], axis: int = 0) -> Operand:
    return _concatenate([np.expand_dims(part, axis) for part in both(*parts)], axis)


def _vstack(parts: Sequence[Operand]) -> Operand:
    return _concatenate([np.atleast_2d(part) for part in both(*parts)])


def _hstack(parts: Sequence[Operand]) -> Operand:
    rows = [np.atleast_1d(part) for part in both(*parts)]
    return _concatenate(rows, min(max(np.ndim(parts[0]) - 1, 0), 1))


def _outer(a: Operand, b: Operand) -> Operand:
    return np.multiply(np.reshape(a, (-1, 1)), np.reshape(b, (1, -1)))


def _piece(v: Array, ends: Operand, axis: int, n: int) -> Array:
    return np.split(v, ends, axis)[n]


def _split(x: Recorded, parts: Operand, axis: int = 0) -> list[Operand]:
    number = len(np.split(np.arange(x.shape[axis_of(x, axis)]), parts))
    return [_by(_piece)(x, parts, axis, n) for n in range(number)]


def _triangle(part: Operation) -> Operation:
    def operation(x: Recorded, k: int = 0) -> Operand:
        return where(part(np.ones((x.shape * 2)[-2:]), k), x, 0)  # of a single row a square

    return operation


def _full_like(
    x: Recorded, fill: Operand, dtype: DTypeLike | None = None, shape: Operand = None
) -> Operand:
    """Recorded, so that it can be assigned to; plain if of integers or bools."""
    shape = x.shape if shape is None else shape
    if np.dtype(dtype).kind != "f":
        return np.full(shape, fill, dtype)
    _refuse_narrow("a recorded array like another", dtype)
    node, raw = record(x, fill).node, np.empty_like(x.raw, shape=shape)
    raw[...] = node.raw
    return derived(x, raw, "np.full_like", (node, same))


def _like(fill: int) -> Operation:
    def operation(x: Recorded, dtype: DTypeLike | None = None, shape: Operand = None) -> Operand:
        return _full_like(x, fill, dtype, shape)

    return operation


def _diag(x: Recorded, k: int = 0) -> Operand:
    if x.ndim == 2:
        return _diagonal(x, k)
    n = x.shape[0] + abs(k)
    out, rows = _full_like(x, 0, shape=(n, n)), np.arange(x.shape[0])
    out[rows + max(-k, 0), rows + max(k, 0)] = x
    return out


def _pad(
    x: Recorded, pad_width: Operand, mode: str = "constant", constant_values: float = 0
) -> Operand:
    if mode != "constant" or np.ndim(constant_values):
        raise TypeError("np.pad is recorded for mode 'constant' with one number")
    widths = np.broadcast_to(pad_width, (x.ndim, 2))
    out = _full_like(x, constant_values, shape=tuple(x.shape + widths.sum(axis=1)))
    out[tuple(slice(low, low + size) for low, size in zip(widths[:, 0], x.shape))] = x
    return out


def _block(arrays: Operand) -> Operand:
    """Lists of the innermost depth are joined along the last axis, as in NumPy."""
    depth, inner = 0, arrays
    while isinstance(inner, (list, tuple)):
        depth, inner = depth + 1, inner[0]

    def joined(value: Operand, axis: int) -> Operand:
        if not isinstance(value, (list, tuple)):
            return np.atleast_2d(value) if depth > 1 else np.atleast_1d(value)
        return np.concatenate([joined(part, axis + 1) for part in value], axis)

    return joined(arrays, -depth) if depth else _copied(arrays)


def _kron(a: Operand, b: Operand) -> Operand:
    rows, columns = (np.shape(a)[n] * np.shape(b)[n] for n in (0, 1))
    return np.reshape(einsum("ij,kl->ikjl", a, b), (rows, columns))


def _columns(tup: Sequence[Operand]) -> Operand:
    parts = [part[:, None] if part.ndim == 1 else part for part in both(*tup)]
    return _concatenate(parts, 1)


def _append(arr: Operand, values: Operand, axis: int | None = None) -> Operand:
    return _concatenate([arr, values], axis)


def _diff(x: Operand, n: int = 1, axis: int = -1) -> Operand:
    axis = axis_of(x, axis)
    for _ in range(n):
        size = x.shape[axis]
        x = np.take(x, range(1, size), axis) - np.take(x, range(size - 1), axis)
    return x


def _as_type(x: Recorded, dtype: DTypeLike, copy: bool = True) -> Operand:
    if np.dtype(dtype).kind != "f":
        raise TypeError(f"astype({np.dtype(dtype)}) of a recorded array is not recorded")
    _refuse_narrow("astype of a recorded array", dtype)
    if not copy and np.dtype(dtype) == x.dtype:
        return x
    return _copied(x)


def _refuse_narrow(name: str, dtype: DTypeLike | None) -> None:
    if np.dtype(dtype).itemsize < 8:
        raise TypeError(
            f"{name} in {np.dtype(dtype)} is not recorded: what is certified is a "
            "function of real numbers, which that type would round; leave it out, and "
            "pass arrays of that type instead"
        )


def _copied(x: Recorded, order: Literal["C", "F", "A", "K"] = "K") -> Operand:
    return rearranged(x, "a copy", np.ndarray.copy, order)


def _copied_in_c(x: Recorded, order: Literal["C", "F", "A", "K"] = "C") -> Operand:
    return _copied(x, order)


def _trace(x: Recorded) -> Operand:
    return sum_of(_diagonal(x), -1)


FULL = {**UFUNCS, "matmul": matmul}
REDUCTIONS: dict[str, Operation] = {
    "add": sum_of,
    "maximum": largest_of,
    "minimum": smallest_of,
    "multiply": product_of,
}

METHODS |= {
    "sum": sum_of,
    "mean": mean,
    "var": var,
    "std": std,
    "prod": product_of,
    "cumsum": cumsum,
    "max": largest_of,
    "min": smallest_of,
    "argmax": place_of_largest,
    "argmin": place_of_smallest,
    "reshape": _reshaped,
    "transpose": _by(np.ndarray.transpose),
    "ravel": _by(np.ndarray.ravel),
    "flatten": _by(np.ndarray.flatten),
    "copy": _copied_in_c,
    "astype": _as_type,
    "dot": dot,
    "clip": clip,
    "diagonal": _diagonal,
    "trace": _trace,
    **{move.__name__: _by(move) for move in (np.swapaxes, np.squeeze, np.repeat, np.take)},
}

FUNCTIONS: dict[str, Operation] = {
    **{name: operation for name, operation in METHODS.items() if name not in ("astype", "flatten")},
    "copy": _copied,
    "amax": largest_of,
    "amin": smallest_of,
    "where": where,
    "einsum": einsum,
    "tensordot": tensordot,
    "concatenate": _concatenate,
    "stack": _stack,
    "split": _split,
    "vstack": _vstack,
    "hstack": _hstack,
    "outer": _outer,
    "inner": inner,
    **LINALG,
    "broadcast_to": _broadcast_to,
    "transpose": _by(np.transpose),
    "tril": _triangle(np.tril),
    "triu": _triangle(np.triu),
    "full_like": _full_like,
    "zeros_like": _like(0),
    "ones_like": _like(1),
    "empty_like": _like(0),
    **{name: vars(Recorded)[name].fget for name in ("shape", "ndim", "size", "real", "imag")},
    **{
        move.__name__: _by(move)
        for move in (
            np.moveaxis,
            np.expand_dims,
            np.atleast_1d,
            np.atleast_2d,
            np.flip,
            np.roll,
            np.tile,
            np.rot90,
            np.take_along_axis,
        )
    },
    "diff": _diff,
    "diag": _diag,
    "pad": _pad,
    "block": _block,
    "column_stack": _columns,
    "kron": _kron,
    "append": _append,
}


def _known(table: Iterable[str]) -> str:
    return ", ".join(sorted(table))


_signature = lru_cache(maxsize=None)(signature)


def _ones(value: Operand) -> Operand:
    """Plain arrays in place of recorded ones, as they lie in memory."""
    if isinstance(value, Recorded):
        model = np.ones(value.shape)
        if value.ndim > 1:  # no matrix of them is singular
            model += np.eye(value.shape[-2], value.shape[-1])
        ones = laid_out(model, outermost(value.raw))
        return ones[()] if value.is_number else ones
    return type(value)(map(_ones, value)) if type(value) in (list, tuple) else value


def _as_numpys(result: Operand, numpys: Operation, args: Arguments, options: Options) -> Operand:
    """The result, as a number or in an order in memory as NumPy's, which is asked on ones."""
    given = [
        operand
        for value in args
        for operand in (value if isinstance(value, (list, tuple)) else (value,))
        if isinstance(operand, Recorded)
    ]
    if not isinstance(result, Recorded) or (
        result.ndim and all(operand.raw.flags.c_contiguous for operand in given)
    ):
        return result
    if any(result.root is operand.root for operand in given) and result.ndim:
        return result
    with np.errstate(all="ignore"):
        model = numpys(*_ones(args), **_ones(options))
    if not result.ndim:
        return (
            Recorded(result.node, result.lift, is_number=True)
            if isinstance(model, np.generic)
            else result
        )
    node = result.node
    node.raw = laid_out(node.raw, outermost(model))
    return Recorded(node, result.lift)


def _called(
    name: str, operation: Operation, numpys: Operation, args: Arguments, options: Options
) -> Operand:
    """The operation's result, written to ``out`` if there is one; TypeError for arguments that it
    does not have, as NumPy's function ``numpys`` has more."""
    out = options.get("out")
    try:
        bound = _signature(operation).bind(
            *args, **{key: value for key, value in options.items() if key != "out"}
        )
    except TypeError as error:
        known = [
            option for option in _signature(operation).parameters if option not in ("x", "out")
        ]
        raise TypeError(
            f"np.{name} as called is not recorded ({error}); known: "
            f"{', '.join(known) or 'no option'}"
        ) from None
    if "out" in _signature(operation).parameters:
        _refuse_dtype(name, bound.arguments.get("dtype"))
    out = bound.arguments.pop("out", out)
    result = operation(*bound.args, **bound.kwargs)
    if out is not None:
        return written(name, result, out)
    return _as_numpys(result, numpys, args, options)


def _refuse_dtype(name: str, dtype: DTypeLike | None) -> None:
    if np.dtype(dtype) != float:  # None is float64, too
        raise TypeError(f"np.{name} in {np.dtype(dtype)} is not recorded; known: float64")


def ufunc(called: np.ufunc, method: str, inputs: Arguments, options: Options) -> Operand:
    """What a ufunc of NumPy's gives on recorded arrays; TypeError, naming it, if it is not in the
    table."""
    name = called.__name__
    if has_complex(inputs):
        return complexes.ufunc(name, inputs)
    options = {
        key: value
        for key, value in options.items()
        if (value is not None or key == "axis")
        and not (key == "where" and value is True)
        and key not in ("casting", "subok")
    }
    if method == "reduce" and name in REDUCTIONS:
        return _called(
            f"{name}.reduce", REDUCTIONS[name], called.reduce, inputs, {"axis": 0, **options}
        )
    _refuse_dtype(name, options.pop("dtype", None))
    if method != "__call__" or options:
        raise TypeError(
            f"np.{name}{'' if method == '__call__' else '.' + method} with "
            f"{_known(options) or 'recorded arrays'} is not recorded; reductions "
            f"known: {_known(REDUCTIONS)}"
        )
    if name in COMPARISONS:
        return compared(name, *(operand.raw for operand in both(*inputs)))
    if name not in FULL:
        where = "np" if hasattr(np, name) else "scipy.special"
        raise TypeError(f"{where}.{name} is not recorded; known: {_known({*FULL, *COMPARISONS})}")
    result = FULL[name](*inputs)
    if any(result is operand for operand in inputs):  # a ufunc gives a new array
        result = _copied(result)
    return _as_numpys(result, called, inputs, {})


def function(called: Operation, args: Arguments, options: Options) -> Operand:
    """What another function of NumPy gives; TypeError, naming it, if it is not in the table."""
    name = f"{called.__module__}.{called.__name__}".removeprefix("numpy.")
    if has_complex((*args, *options.values())) or name.startswith("fft."):
        return complexes.function(called, args, options)
    if name not in FUNCTIONS:
        raise Unrecorded(f"np.{name} is not recorded; known: {_known(FUNCTIONS)}")
    return _called(name, FUNCTIONS[name], called, args, options)


def method(name: str, args: Arguments, options: Options) -> Operand:
    """What a method gives."""
    return _called(
        name,
        METHODS[name],
        lambda x, *more, **others: getattr(x, name)(*more, **others),
        args,
        options,
    )


def library(
    name: str, operation: Operation, original: Operation, args: Arguments, options: Options
) -> Operand:
    """What the stand-in of a function outside NumPy gives."""
    if has_complex(args):
        return complexes.library(name, args, options)
    return _called(name, operation, original, args, options)


CALLS |= {"ufunc": ufunc, "function": function, "method": method, "library": library}
