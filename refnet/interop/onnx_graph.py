"""ONNX models (extra ``onnx``), read and evaluated on numbers of any kind: an operator is what its
definition says. An RNN, LSTM or GRU is refnet's own cell; what is not known is refused by name.

Source: ONNX operators, opset 22. Checked by: tests/interop/test_travel.py.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from refnet.batch import Array, Params
from refnet.cells import CELLS
from refnet.exact.enclose import states
from refnet.interop.onnx_nodes import Proto, in_time, layer_of, onnx_package, views
from refnet.interop.onnx_operators import OPERATORS, array_of, kind_of
from refnet.nets.stacked import StackedNet
from refnet.runs.read import contents, reading

LIMIT = 2**31 - 1
"""Bytes of a model; no protocol buffer is larger."""
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


def as_given(array: Array, name: str) -> Array:
    """The numbers to compute with are those of the graph."""
    return array


def constants(proto: Proto) -> Params:
    """The weights of a graph by name, those that its nodes make of others, too."""
    values = {entry.name: array_of(entry) for entry in proto.graph.initializer}
    for node in proto.graph.node:
        inputs = [name for name in node.input if name]
        if node.op_type not in RECURRENT and all(name in values for name in inputs):
            values |= _outputs(node, values, as_given)
    return values


def evaluate(
    proto: Proto, feeds: Params, wanted: Iterable[str] = (), lifted: Lift = as_given
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
    arrays = {entry.name: array_of(entry) for entry in weights}
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
        results = [array_of(value) if "value" in options else np.asarray(value)]
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
    results = [*views(layer, states(net, tape), lengths).values()]
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


# ---- inputs


def fitting(proto: Proto, T: int, B: int, rng: np.random.Generator) -> Params:
    """Inputs that a model takes, from N(0, 1), with T steps and B sequences where it leaves them
    open, exchanged only if it takes no others; integers of two axes are symbols, and integers (B,)
    the numbers of steps.

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
    reason, exchanged = "", Params()
    ways = sorted(product((T, B), repeat=len(free)), key=_alike)
    for sizes in ways:
        known = dict(zip(free, sizes))
        drawn: Params = {}
        for entry in inputs:
            shape = [known[d] if isinstance(d, str) else int(d) for d in dims[entry.name]]
            kind = kind_of(entry.type.tensor_type.elem_type)
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
        if _steps(proto, drawn) in (T, None):
            return drawn
        exchanged = exchanged or drawn
    if exchanged:
        return exchanged
    raise ValueError(f"the model takes no inputs of {T} steps and {B} sequences: {reason}")


def _steps(proto: Proto, inputs: Params) -> int | None:
    """The steps of the first recurrent layer, None without one."""
    for node in proto.graph.node:
        if node.op_type in RECURRENT:
            x = evaluate(proto, inputs, node.input[:1])[node.input[0]]
            return int(x.shape[any(e.name == "layout" and e.i for e in node.attribute)])
    return None


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
