"""ONNX models (extra ``onnx``), read and evaluated on numbers of any kind: an operator is what its
definition says. An RNN, LSTM or GRU is refnet's own cell; what is not known is refused by name.

Source: ONNX operators, opset 22. Checked by: tests/interop/test_travel.py.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from refnet.batch import Array, Params
from refnet.cells import CELLS
from refnet.interop.onnx_nodes import ACTIVATIONS, Proto, in_time, layer_of, onnx_package, views
from refnet.maths.activations import activation
from refnet.maths.losses import largest
from refnet.maths.numeric import exp, log, matmul, times
from refnet.nets.stacked import StackedNet
from refnet.runs.read import contents, reading

LIMIT = 2**31 - 1
"""Bytes of a model; no protocol buffer is larger."""
ENTRIES = 2**26
"""The most entries of a tensor that a model may make."""
RECURRENT = ("RNN", "LSTM", "GRU")
Value = Any
"""An array of numbers or of integers; None for an input that is left out."""
Lift = Callable[[Array, str], Array]


def load(path: Path) -> Proto:
    """The model in a file, checked for being a valid one, with the weights that it keeps in files
    beside it. No other file is read.

    Raises FileError for anything else.
    """
    onnx = onnx_package()
    from google.protobuf.message import DecodeError

    with reading(path, "export the model again, as one file"):
        try:
            proto = onnx.load_from_string(contents(path, LIMIT))
            for entry in proto.graph.initializer:
                if entry.data_location == onnx.TensorProto.EXTERNAL:
                    _fetch(entry, path.parent)
            onnx.checker.check_model(proto)
        except (DecodeError, onnx.checker.ValidationError, TypeError) as error:
            raise ValueError(f"is not a valid ONNX model: {' '.join(str(error).split())}") from None
        if not (proto.graph.input and proto.graph.output):
            raise ValueError("has no inputs or no outputs")
        known = {*OPERATORS, *RECURRENT, "Constant"}
        for node in proto.graph.node:
            if node.op_type not in known or node.domain not in ("", "ai.onnx"):
                name = ".".join(filter(None, (node.domain, node.op_type)))
                raise ValueError(f"has the operator {name}; need {', '.join(sorted(known))}")
        values = constants(proto)
        for node in proto.graph.node:
            if node.op_type in RECURRENT and all(name in values for name in node.input[1:3]):
                layer_of(node, weights_of(node, values))
        return proto


def weights_of(node: Proto, values: Params) -> Params:
    """W, R, B and P of a recurrent node, those that it has."""
    names = dict(zip("WRB", node.input[1:4])) | dict(zip("P", node.input[7:8]))
    return {key: values[name] for key, name in names.items() if name}


def _fetch(tensor: Proto, folder: Path) -> None:
    """Put the data of a tensor into it, from the file of a model's folder that has them."""
    where = {entry.key: entry.value for entry in tensor.external_data}
    name = where.get("location", "")
    if name in ("", "..") or Path(name).name != name:
        raise ValueError(f"keeps {tensor.name} in the file {name!r}; need one beside the model")
    data = contents(folder / name, LIMIT)
    first = int(where.get("offset", 0))
    tensor.raw_data = data[first : first + int(where.get("length", len(data)))]
    del tensor.external_data[:]
    tensor.data_location = onnx_package().TensorProto.DEFAULT


def _kind(elem_type: int) -> np.dtype[Any]:
    """NumPy's type for one of ONNX's."""
    onnx = onnx_package()
    if elem_type not in onnx.TensorProto.DataType.values():
        raise ValueError(f"a tensor has the type {elem_type}, which ONNX does not have")
    kind: np.dtype[Any] = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(elem_type))
    return kind


def _array(tensor: Proto) -> Array:
    _kind(tensor.data_type)
    value = np.asarray(onnx_package().numpy_helper.to_array(tensor))
    if value.dtype.kind == "f" and not np.isfinite(value).all():
        raise ValueError(f"{tensor.name} has entries that are not finite")
    if value.dtype.kind not in "fiub":
        raise ValueError(f"{tensor.name} is of type {value.dtype}; need floats or integers")
    return value


def constants(proto: Proto) -> Params:
    """The weights of a graph by name, including those that its nodes compute from others."""
    values = {entry.name: _array(entry) for entry in proto.graph.initializer}
    for node in proto.graph.node:
        inputs = [name for name in node.input if name]
        if node.op_type not in RECURRENT and all(name in values for name in inputs):
            values |= _outputs(node, values, lambda array, _: array)
    return values


def evaluate(
    proto: Proto, feeds: Params, wanted: Iterable[str] = (), lifted: Lift = lambda array, _: array
) -> dict[str, Array]:
    """The ``wanted`` values of a graph, by default its outputs. ``lifted(array, name)`` turns
    floats into the numbers to compute with.

    Raises ValueError for shapes that do not fit, and for tensors that are too large.
    """
    wanted = [*wanted] or [entry.name for entry in proto.graph.output]
    needed, nodes = {*wanted}, []
    for node in reversed(proto.graph.node):
        if needed & {*node.output}:
            nodes.append(node)
            needed |= {*node.input}
    weights = [entry for entry in proto.graph.initializer if entry.name in needed]
    arrays = {entry.name: _array(entry) for entry in weights}
    values: dict[str, Value] = {
        name: lifted(value, name) if value.dtype.kind == "f" else value
        for name, value in {**arrays, **feeds}.items()
    }
    for node in reversed(nodes):
        if missing := [name for name in node.input if name and name not in values]:
            raise ValueError(f"{node.op_type}: {missing[0]} has no value")
        values |= _outputs(node, values, lifted)
    return {name: values[name] for name in wanted}


def _outputs(node: Proto, values: dict[str, Value], lifted: Lift) -> dict[str, Value]:
    """The outputs of a node; ValueError for inputs that it cannot have."""
    try:
        return _computed(node, values, lifted)
    except (AttributeError, IndexError, KeyError, TypeError, ZeroDivisionError) as error:
        raise ValueError(f"{node.op_type}: {type(error).__name__}: {error}") from error


def _computed(node: Proto, values: dict[str, Value], lifted: Lift) -> dict[str, Value]:
    get = onnx_package().helper.get_attribute_value
    inputs = [values[name] if name else None for name in node.input]
    options = {entry.name: get(entry) for entry in node.attribute}
    if node.op_type in RECURRENT:
        results = _recurrent(node, options, inputs)
    elif node.op_type == "Constant":
        value = options["value"] if "value" in options else next(iter(options.values()))
        results = [_array(value) if "value" in options else np.asarray(value)]
    else:
        results = OPERATORS[node.op_type](*inputs, **options)
        results = results if isinstance(results, list) else [results]
    floats = (value.dtype.kind == "f" for value in results)
    return {
        name: lifted(value, "") if is_float else value
        for name, value, is_float in zip(node.output, results, floats)
        if name
    }


def _recurrent(node: Proto, options: dict[str, Value], inputs: list[Value]) -> list[Value]:
    given: list[Value] = [*inputs, *[None] * (7 - len(inputs))]
    x, lengths, h0, c0 = given[0], *given[4:7]
    layer = layer_of(node, weights_of(node, dict(zip(node.input, inputs))))
    if layer.layout:
        x, h0, c0 = (None if a is None else a.swapaxes(0, 1) for a in (x, h0, c0))
    T, B = x.shape[:2]
    lengths = np.full(B, T) if lengths is None else lengths
    if (lengths > T).any() or (lengths < 0).any() or lengths.shape != (B,):
        raise ValueError(f"{node.op_type}: sequence_lens are {lengths}; need {B} from 0 to {T}")
    params = layer.params | _initial(layer.net, h0, c0)
    mask = None if (lengths == T).all() else np.arange(T)[:, None] < lengths
    net = replace(layer.net, backend="reference")
    tape = net.forward(params, in_time(layer, x, lengths), mask)[1]
    states = {
        f"{name}{suffix}": getattr(cell, name)
        for suffix, cell in tape.cell.items()
        for name in ("h", "c")
        if getattr(cell, name, None) is not None
    }
    results = [*views(layer, states, lengths).values()]
    if layer.layout:
        return [
            np.moveaxis(results[0], (0, 1, 2), (1, 2, 0)),
            *(a.swapaxes(0, 1) for a in results[1:]),
        ]
    return results


def _initial(net: StackedNet, h0: Value, c0: Value) -> Params:
    """The parameters that hold the initial states (N, B, H)."""
    if h0 is None and c0 is None:
        return {}
    if CELLS[net.cell].STATES == 2:
        zero = (c0 if h0 is None else h0) * 0
        h, c = (zero if state is None else state for state in (h0, c0))
        return {f"h0{suffix}": np.stack([h[n], c[n]]) for n, suffix in enumerate(net.every_cell)}
    return {f"h0{suffix}": h0[n] for n, suffix in enumerate(net.every_cell)}


# ---- the operators around


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
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    pairs = zip(
        *(np.broadcast_to(m, (*lead, *m.shape[-2:])).reshape(-1, *m.shape[-2:]) for m in (a, b))
    )
    return np.stack([matmul(*pair) for pair in pairs]).reshape(*lead, a.shape[-2], b.shape[-1])


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


def _mean(a: Value, axes: Value = None, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Value:
    return _sum(a, axes, keepdims) / (a.size // _sum(np.ones(a.shape), axes, keepdims).size)


def _sum(a: Value, axes: Value = None, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Value:
    over = tuple(range(a.ndim)) if axes is None else _axes(axes, a.ndim)
    total = a.sum(axis=over)
    return np.expand_dims(total, over) if keepdims else total


def _cast(a: Value, to: int, **_: int) -> Value:
    kind = _kind(to)
    if kind.kind in "fiub" and (kind.kind == "f") == _is_number(a):
        return a if _is_number(a) else a.astype(kind)
    if _is_number(a):
        raise ValueError("Cast: of numbers to integers is not known")
    return a.astype(np.float64)


def _divide(a: Value, b: Value) -> Value:
    return a / b if _is_number(a) or _is_number(b) else np.asarray(a // b)


def _unary(name: str, **constant: float) -> Callable[..., Value]:
    def operator(a: Value, alpha: float | None = None) -> Value:
        act = activation(name, alpha if "alpha" in constant else None)
        return act.forward(a, {})

    return operator


OPERATORS: dict[str, Callable[..., Value]] = {
    **{
        theirs: _unary(ours, **({"alpha": 0} if theirs in ("LeakyRelu", "Elu") else {}))
        for ours, theirs in ACTIVATIONS.items()
        if theirs != "Affine"
    },
    "PRelu": lambda a, slope: np.where(activation("relu").forward(a, {}) == a, a, a * slope),
    "Add": lambda a, b: a + b,
    "Cast": _cast,
    "Concat": lambda *parts, axis: np.concatenate(parts, axis),
    "ConstantOfShape": lambda shape, value=None: np.full(
        _bounded(shape), np.float32(0) if value is None else _array(value)[0]
    ),
    "Div": _divide,
    "Dropout": lambda a, *_, **__: a,
    "Equal": lambda a, b: a == b,
    "Exp": exp,
    "Expand": lambda a, shape: np.array(
        np.broadcast_to(a, _bounded(np.broadcast_shapes(a.shape, _bounded(shape)))), subok=True
    ),
    "Flatten": lambda a, axis=1: a.reshape(prod(a.shape[:axis]), -1),
    "Gather": lambda a, indices, axis=0: a.take(indices, axis),
    "Gemm": _gemm,
    "Identity": lambda a: a,
    "Log": log,
    "LogSoftmax": lambda a, axis=-1: _softmax(a, axis, True),
    "MatMul": _matmul,
    "Mul": lambda a, b: a * b,
    "Neg": lambda a: -a,
    "ReduceMean": _mean,
    "ReduceSum": _sum,
    "Reshape": _reshape,
    "Shape": lambda a, start=0, end=None: np.array(a.shape[start:end], np.int64),
    "Size": lambda a: np.array(a.size),
    "Slice": _slice,
    "Softmax": _softmax,
    "Split": _split,
    "Squeeze": lambda a, axes=None: a.squeeze(None if axes is None else _axes(axes, a.ndim)),
    "Sub": lambda a, b: a - b,
    "Transpose": lambda a, perm=None: a.transpose(perm),
    "Unsqueeze": lambda a, axes: np.expand_dims(a, _axes(axes, a.ndim + len(np.atleast_1d(axes)))),
    "Where": np.where,
}


# ---- inputs


def fitting(proto: Proto, T: int, B: int, rng: np.random.Generator) -> Params:
    """Inputs that a model takes, from N(0, 1), with T steps and B sequences where it leaves them
    open; integers of two axes are symbols, and integers (B,) the numbers of steps.

    Raises ValueError if there are none.
    """
    weights = {entry.name for entry in proto.graph.initializer}
    inputs = [entry for entry in proto.graph.input if entry.name not in weights]
    dims = {
        entry.name: [
            size.dim_value or size.dim_param or f"{entry.name}.{n}"
            for n, size in enumerate(entry.type.tensor_type.shape.dim)
        ]
        for entry in inputs
    }
    free = [*dict.fromkeys(d for shape in dims.values() for d in shape if isinstance(d, str))]
    reason = ""
    ways = sorted(product((T, B), repeat=len(free)), key=_alike)
    for sizes in ways:
        known = dict(zip(free, sizes))
        drawn: Params = {}
        for entry in inputs:
            shape = [known[d] if isinstance(d, str) else int(d) for d in dims[entry.name]]
            kind = _kind(entry.type.tensor_type.elem_type)
            most = T if len(shape) == 1 else _symbols(proto, entry.name) - 1
            drawn[entry.name] = (
                rng.standard_normal(shape).astype(kind)
                if kind.kind == "f"
                else rng.integers(len(shape) == 1, most + 1, shape).astype(kind)
            )
        try:
            evaluate(proto, drawn)
        except ValueError as error:
            reason = reason or str(error)
            continue
        return drawn
    raise ValueError(f"the model takes no inputs of {T} steps and {B} sequences: {reason}")


def _alike(sizes: tuple[int, ...]) -> bool:
    return len({*sizes}) == 1


def _symbols(proto: Proto, name: str) -> int:
    """How many symbols an input may name: the rows of the table that it chooses from."""
    values = constants(proto)
    sizes = [
        len(values[node.input[0]])
        for node in proto.graph.node
        if node.op_type == "Gather" and node.input[1] == name and node.input[0] in values
    ]
    return min(sizes, default=2)
