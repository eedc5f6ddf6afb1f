"""ONNX's operators around recurrent layers, on numbers of any kind, as their definition says.

Source: ONNX operators, opset 22. Checked by: tests/interop/test_travel.py,
tests/check/test_onnx_models.py.
"""

from collections.abc import Callable, Iterable
from functools import partial, reduce
from math import prod
from operator import add, eq, index, mul, neg, sub
from typing import Any

import numpy as np

from refnet.batch import Array
from refnet.exact.products import matmul_raw
from refnet.interop.onnx_nodes import ACTIVATIONS, Proto, onnx_package
from refnet.maths.activations import activation
from refnet.maths.losses import largest
from refnet.maths.numeric import exp, log, matmul, nonpositive, sqrt, times

ENTRIES = 2**26
"""The most entries of a tensor that a model may make."""
Value = Any
"""An array of numbers or of integers; None for an input that is left out."""


def kind_of(elem_type: int) -> np.dtype[Any]:
    """NumPy's type for one of ONNX's."""
    onnx = onnx_package()
    if elem_type not in onnx.TensorProto.DataType.values():
        raise ValueError(f"a tensor has the type {elem_type}, which ONNX does not have")
    kind: np.dtype[Any] = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(elem_type))
    return kind


def array_of(tensor: Proto) -> Array:
    """The numbers of a tensor: floats, integers or booleans; raises ValueError for others, and for
    floats that are not finite."""
    kind_of(tensor.data_type)
    value = np.asarray(onnx_package().numpy_helper.to_array(tensor))
    if value.dtype.kind == "f" and not np.isfinite(value).all():
        raise ValueError(f"{tensor.name} has entries that are not finite")
    if value.dtype.kind not in "fiub":
        raise ValueError(f"{tensor.name} is of type {value.dtype}; need floats or integers")
    return value


def _is_number(value: Value) -> bool:
    return np.asarray(value).dtype.kind not in "biu"


def _axes(axes: Value, ndim: int) -> tuple[int, ...]:
    return tuple(int(axis) % ndim for axis in np.atleast_1d(axes))


def _bounded(shape: Iterable[Value]) -> tuple[int, ...]:
    sizes = tuple(int(n) for n in shape)
    if prod(sizes) > ENTRIES or min(sizes, default=0) < 0:
        raise ValueError(f"a tensor of shape {sizes}; need at most {ENTRIES:,} entries")
    return sizes


def _reshape(a: Value, shape: Value, allowzero: int = 0) -> Value:
    return a.reshape([int(n) or (0 if allowzero else a.shape[k]) for k, n in enumerate(shape)])


def _slice(a: Value, starts: Value, ends: Value, axes: Value = None, steps: Value = None) -> Value:
    where = [slice(None)] * a.ndim
    axes = range(len(starts)) if axes is None else _axes(axes, a.ndim)
    steps = [1] * len(starts) if steps is None else steps
    for axis, start, end, step in zip(axes, starts, ends, steps):
        below = step < 0 and end < -a.shape[axis]
        where[axis] = slice(int(start), None if below else int(end), int(step))
    return a[tuple(where)]


def _split(a: Value, split: Value = None, axis: int = 0, num_outputs: int = 0) -> list[Value]:
    size = -(-a.shape[axis] // num_outputs) if split is None else 0
    ends = np.arange(size, a.shape[axis], size) if split is None else np.cumsum(split)[:-1]
    return list(np.split(a, ends, axis))


def _matmul(a: Value, b: Value) -> Value:
    if b.ndim == 2 and a.ndim > 1:
        return matmul(a.reshape(-1, a.shape[-1]), b).reshape(*a.shape[:-1], b.shape[1])
    return matmul_raw(a, b)


def _gemm(
    a: Value,
    b: Value,
    c: Value = None,
    alpha: float = 1,
    beta: float = 1,
    transA: int = 0,
    transB: int = 0,
) -> Value:
    product = matmul(a.T if transA else a, b.T if transB else b)
    product = product if alpha == 1 else times(alpha, product)
    return product if c is None else product + (c if beta == 1 else times(beta, c))


def _softmax(a: Value, axis: int = -1, logarithm: bool = False) -> Value:
    rows = np.moveaxis(a, axis, -1)
    flat = rows.reshape(-1, rows.shape[-1])
    flat = flat - largest(flat)[:, None]
    e = exp(flat)
    total = e.sum(axis=1)[:, None]
    shares = flat - log(total) if logarithm else e / total
    return np.moveaxis(shares.reshape(rows.shape), -1, axis)


def _reduction(function: Callable[[Value, tuple[int, ...]], Value]) -> Callable[..., Value]:
    """The operator that reduces by ``function(a, axes)``."""

    def operator(
        a: Value, axes: Value = None, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Value:
        over = tuple(range(a.ndim)) if axes is None else _axes(axes, a.ndim)
        result = function(a, over)
        return np.expand_dims(result, over) if keepdims else result

    return operator


def _mean_over(a: Value, over: tuple[int, ...]) -> Value:
    return a.sum(axis=over) / prod(a.shape[axis] for axis in over)


def _cast(a: Value, to: int, **_: int) -> Value:
    kind = kind_of(to)
    if kind.kind in "fiub" and (kind.kind == "f") == _is_number(a):
        return a if _is_number(a) else a.astype(kind)
    if _is_number(a):
        raise ValueError("Cast: of numbers to integers is not known")
    return a.astype(np.float64)


def _of_integers(function: Callable[..., Value]) -> Callable[..., Value]:
    def operator(*arrays: Value, **options: int) -> Value:
        if any(map(_is_number, arrays)):
            raise ValueError("is known of integers alone")
        result: Value = function(*arrays, **options)
        return result

    return operator


def _range(start: Value, limit: Value, delta: Value) -> Value:
    first, step = index(start[()]), index(delta[()])
    (size,) = _bounded([max(-((first - index(limit[()])) // step), 0)])
    return first + step * np.arange(size)


def _top(a: Value, k: Value, axis: int = -1, largest: int = 1, sorted: int = 1) -> list[Value]:
    order = np.argsort(-a if largest else a, axis, kind="stable").take(range(int(k[0])), axis)
    return [np.take_along_axis(a, order, axis), order]


def _gather(a: Value, places: Value, batch_dims: int = 0) -> Value:
    if batch_dims:
        raise ValueError("batch_dims other than 0 are not known")
    return a[tuple(np.moveaxis(places, -1, 0))]


def _scatter(
    a: Value, places: Value, updates: Value, axis: int = 0, reduction: bytes = b"none"
) -> Value:
    if reduction != b"none":
        raise ValueError("reductions are not known")
    a = a.copy()
    np.put_along_axis(a, places, updates, axis)
    return a


def _larger(a: Value, b: Value) -> Value:
    return np.where(nonpositive(a - b), b, a)


def _most_over(a: Value, over: tuple[int, ...]) -> Value:
    first = np.moveaxis(a, over, range(len(over)))
    return reduce(_larger, first.reshape(-1, *first.shape[len(over) :]))


_mean = _reduction(_mean_over)


def _normalized(
    a: Value, scale: Value, bias: Value = None, axis: int = -1, epsilon: float = 1e-5, **_: int
) -> Value:
    axes = np.arange(axis % a.ndim, a.ndim)
    a = a - _mean(a, axes)
    a = a / sqrt(_mean(a * a, axes) + epsilon) * scale
    return a if bias is None else a + bias


def _batch_normalized(
    a: Value,
    scale: Value,
    bias: Value,
    mean: Value,
    var: Value,
    epsilon: float = 1e-5,
    training_mode: int = 0,
    **_: float,
) -> Value:
    if training_mode:
        raise ValueError("training_mode is not known")
    scale, bias, mean, var = (v.reshape(-1, *[1] * (a.ndim - 2)) for v in (scale, bias, mean, var))
    return (a - mean) / sqrt(var + epsilon) * scale + bias


def _divide(a: Value, b: Value) -> Value:
    return a / b if _is_number(a) or _is_number(b) else np.asarray(a // b)


def _same(a: Value, *_: Value, **__: Value) -> Value:
    return a


def _unary(name: str, **constant: float) -> Callable[..., Value]:
    def operator(a: Value, alpha: float | None = None) -> Value:
        act = activation(name, alpha if "alpha" in constant else None)
        return act.forward(a, {})

    return operator


INTEGERS: dict[str, Callable[..., Value]] = {
    "And": np.logical_and,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Not": np.logical_not,
    "Or": np.logical_or,
    "ReduceProd": lambda a, keepdims=1: a.prod(keepdims=bool(keepdims)),
    "TopK": _top,
}
"""Of integers and truth values alone: the lengths of sequences, and what is counted."""
OPERATORS: dict[str, Callable[..., Value]] = {
    **{
        theirs: _unary(ours, **({"alpha": 0} if theirs in ("LeakyRelu", "Elu") else {}))
        for ours, theirs in ACTIVATIONS.items()
        if theirs != "Affine"
    },
    "PRelu": lambda a, slope: np.where(activation("relu").forward(a, {}) == a, a, a * slope),
    **{name: _of_integers(function) for name, function in INTEGERS.items()},
    "Add": add,
    "BatchNormalization": _batch_normalized,
    "Cast": _cast,
    "Concat": lambda *parts, axis: np.concatenate(parts, axis),
    "ConstantOfShape": lambda shape, value=None: np.full(
        _bounded(shape), np.float32(0) if value is None else array_of(value)[0]
    ),
    "Div": _divide,
    "Dropout": _same,
    "Equal": eq,
    "Exp": exp,
    "Expand": lambda a, shape: np.array(
        np.broadcast_to(a, _bounded(np.broadcast_shapes(a.shape, _bounded(shape)))), subok=True
    ),
    "Flatten": lambda a, axis=1: a.reshape(prod(a.shape[:axis]), -1),
    "Gather": partial(np.take, axis=0),
    "GatherElements": partial(np.take_along_axis, axis=0),
    "GatherND": _gather,
    "Gemm": _gemm,
    "Identity": _same,
    "LayerNormalization": _normalized,
    "Log": log,
    "LogSoftmax": partial(_softmax, logarithm=True),
    "MatMul": _matmul,
    "Mul": mul,
    "Neg": neg,
    "Range": _range,
    "ReduceMax": _reduction(_most_over),
    "ReduceMean": _mean,
    "ReduceSum": _reduction(np.sum),
    "Reshape": _reshape,
    "ScatterElements": _scatter,
    "Shape": lambda a, start=0, end=None: np.array(a.shape[start:end], np.int64),
    "Size": lambda a: np.array(a.size),
    "Slice": _slice,
    "Softmax": _softmax,
    "Split": _split,
    "Sqrt": sqrt,
    "Squeeze": lambda a, axes=None: a.squeeze(None if axes is None else _axes(axes, a.ndim)),
    "Sub": sub,
    "Transpose": lambda a, perm=None: a.transpose(perm),
    "Unsqueeze": lambda a, axes: np.expand_dims(a, _axes(axes, a.ndim + len(np.atleast_1d(axes)))),
    "Where": np.where,
}
