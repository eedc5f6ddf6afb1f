"""ONNX models (extra ``onnx``) of whole nets, in and out.

Out, a net is the operators Gather (of an embedding), RNN, LSTM or GRU, and Gemm or MatMul. In, the
weights of a graph's operators give a net, and the graph, whatever stands between them, is
evaluated beside the net: what computes something else is refused.
Checked by: tests/interop/test_travel.py.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from refnet.batch import Array, Params
from refnet.interop import Resolved, bare_stack, embedded, feedforward, resolved, unprojected
from refnet.interop.onnx_graph import RECURRENT, constants, evaluate, fitting, weights_of
from refnet.interop.onnx_nodes import (
    ACTIVATIONS,
    INPUTS,
    Proto,
    layer_of,
    node,
    onnx_package,
    packed,
    saved,
    to_onnx,
)
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.gradients import Net
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet, named

Sizes = list[str | int]
Shaped = tuple[DTypeLike, Sizes]
"""A tensor's type, and its sizes, some of which have but a name."""


class _Graph:
    """Nodes and constants as they are added."""

    def __init__(self, dtype: DTypeLike) -> None:
        self.dtype = np.dtype(dtype)
        self.nodes: list[Proto] = []
        self.weights: Params = {}

    def constant(self, name: str, value: ArrayLike) -> str:
        """Its name; numbers become those of the model, integers int64."""
        array = np.asarray(value)
        self.weights[name] = array.astype(self.dtype if array.dtype.kind == "f" else np.int64)
        return name

    def add(self, kind: str, *inputs: str, **options: Any) -> str:
        """The output's name."""
        output = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(onnx_package().helper.make_node(kind, inputs, [output], **options))
        return output

    def model(self, net: Net, inputs: dict[str, Shaped], output: str, shape: Sizes) -> Proto:
        """The model, whose output is called outputs."""
        onnx = onnx_package()
        self.nodes.append(onnx.helper.make_node("Identity", [output], ["outputs"]))
        kind = onnx.helper.np_dtype_to_tensor_dtype
        return saved(
            self.nodes,
            type(net).__name__,
            [
                onnx.helper.make_tensor_value_info(name, kind(np.dtype(dtype)), dims)
                for name, (dtype, dims) in inputs.items()
            ],
            [onnx.helper.make_tensor_value_info("outputs", kind(self.dtype), shape)],
            self.weights,
        )


def to_model(net: Net, params: Params, lengths: bool = False) -> Proto:
    """The ONNX model of a net: its input x is (T, B, D), symbols (T, B) if the net embeds them,
    or (B, D) of a feedforward net, and its output, outputs, what ``net.forward`` returns, for any
    T and B. ``lengths``: there is a second input, lengths (B,), int32.

    Raises ValueError for what ONNX's operators do not have.

    >>> net = RecurrentNet(2, 3, 1, cell="gru")
    >>> model = to_model(net, net.init(np.random.default_rng(0)))
    >>> [node.op_type for node in model.graph.node][:2]
    ['GRU', 'Squeeze']

    Checked by: tests/interop/test_travel.py.
    """
    flat, params, vectors = resolved(net, params)
    graph = _Graph(next(iter(params.values())).dtype)
    if isinstance(flat, FeedforwardNet):
        h = _feedforward(graph, flat, params)
        x_only: dict[str, Shaped] = {"x": (graph.dtype, ["B", flat.widths[0]])}
        return graph.model(net, x_only, h, ["B", flat.widths[-1]])
    flat, params = unprojected(flat, params)
    inputs: dict[str, Shaped] = {"x": (graph.dtype, ["T", "B", flat.inputs])}
    x = "x"
    if vectors is not None:
        inputs["x"] = np.int64, ["T", "B"]
        x = graph.add("Gather", graph.constant("embedding", vectors), "x")
    if lengths:
        inputs["lengths"] = np.int32, ["B"]
    for n, (layer, p) in enumerate(packed(flat, params)):
        x, last = _layer(graph, layer, p, f"_l{n}", x, lengths)
    if flat.readout == "last":
        x = last
    if "Why" in params:
        W, b = graph.constant("Why", params["Why"].T), graph.constant("by", params["by"])
        if flat.readout == "last":
            x = graph.add("Gemm", x, W, b)
        else:
            x = graph.add("Add", graph.add("MatMul", x, W), b)
    C = flat.outputs
    return graph.model(net, inputs, x, ["B", C] if flat.readout == "last" else ["T", "B", C])


def _feedforward(graph: _Graph, net: FeedforwardNet, params: Params) -> str:
    h = "x"
    for n in range(1, net.depth + 2):
        W, b = graph.constant(f"W{n}", params[f"W{n}"]), graph.constant(f"b{n}", params[f"b{n}"])
        h = graph.add("Gemm", h, W, b, transB=1)
        act = net.activation
        if n > net.depth or act.name == "identity":
            continue
        if act.name == "prelu":
            h = graph.add("PRelu", h, graph.constant(f"slope{n}", params[f"slope{n}"]))
        elif act.name in ACTIVATIONS:
            constant = {"alpha": float(act.alpha)} if act.alpha else {}
            h = graph.add(ACTIVATIONS[act.name], h, **constant)
        else:
            raise ValueError(f"ONNX has no operator for the activation {act.name}")
    return h


def _layer(
    graph: _Graph, net: StackedNet, params: Params, suffix: str, x: str, lengths: bool
) -> tuple[str, str]:
    """The names of a layer's states (T, B, N H) and of its last ones (B, N H)."""
    H, N = net.hidden, len(net.every_cell)
    arrays = to_onnx(net, params)
    names = {name: graph.constant(name + suffix, value) for name, value in arrays.items()}
    if lengths:
        names["sequence_lens"] = "lengths"
    states = [params[f"h0{each}"] for each in net.every_cell if f"h0{each}" in params]
    if states:
        batch = graph.add("Shape", x, start=1, end=2)
        ends = graph.constant("N" + suffix, [N]), graph.constant("H" + suffix, [H])
        shape = graph.add("Concat", ends[0], batch, ends[1], axis=0)
        of_state = np.stack(states).reshape(N, -1, H).swapaxes(0, 1)
        for name, value in zip(("initial_h", "initial_c"), of_state):
            zero = graph.constant(name + suffix, value[:, None])
            names[name] = graph.add("Expand", zero, shape)
    outputs = [f"Y{suffix}", f"Y_h{suffix}"]
    direction = "bidirectional" if N == 2 else "forward"
    inputs = [x, *(names.get(name, "") for name in INPUTS)]
    graph.nodes.append(node(net, inputs, outputs, {"direction": direction}))
    if N == 1:
        axis = graph.constant("axis" + suffix, [1])
        first = graph.constant("first" + suffix, [0])
        return graph.add("Squeeze", outputs[0], axis), graph.add("Squeeze", outputs[1], first)
    every = graph.add("Transpose", outputs[0], perm=[0, 2, 1, 3])
    last = graph.add("Transpose", outputs[1], perm=[1, 0, 2])
    shapes = [graph.constant(f"side{n}{suffix}", [0] * n + [2 * H]) for n in (2, 1)]
    return graph.add("Reshape", every, shapes[0]), graph.add("Reshape", last, shapes[1])


# ---- in


def net_of(proto: Proto) -> tuple[Net, Params]:
    """The net that a model computes, and its parameters; a Softmax at the end is left out, so that
    the outputs are its arguments. The inputs may be batch-first, and initial states may be inputs.

    Raises ValueError for a graph that computes something else than one of refnet's nets.

    Checked by: tests/interop/test_travel.py.
    """
    values = constants(proto)
    output = proto.graph.output[0].name
    producers = {name: each for each in proto.graph.node for name in each.output}
    last = ("Softmax", "LogSoftmax", "Identity")
    while output in producers and producers[output].op_type in last:
        output = producers[output].input[0]
    inputs = fitting(proto, 5, 3, np.random.default_rng(0))
    for name in [*inputs][1:]:  # initial states
        inputs[name] = inputs[name] * (inputs[name].dtype.kind != "f")
    theirs = evaluate(proto, inputs, [output], _double)[output]
    if theirs.ndim == 4:  # Y itself
        theirs = np.concatenate([*theirs.swapaxes(0, 1)], axis=-1)
    x = inputs[proto.graph.input[0].name]
    lengths = next((v for k, v in inputs.items() if v.ndim == 1 and v.dtype.kind in "iu"), None)
    for candidate in _candidates(proto, values, inputs):
        if _same(candidate, x, lengths, theirs):
            if candidate.embedding is None or isinstance(candidate.net, FeedforwardNet):
                return candidate.net, candidate.params
            return embedded(candidate.net, candidate.params, candidate.embedding)
    raise ValueError(
        "the graph computes no net of refnet's: need layers of one kind, one after the other, in "
        "one direction or both, and a read-out of the last step or of every step"
    )


def _double(array: Array, name: str) -> Array:
    return array.astype(np.float64)


def _same(candidate: Resolved, x: Array, lengths: Array | None, theirs: Array) -> bool:
    """Whether the net gives the graph's outputs, with batch-first arrays or not."""
    x = x if candidate.embedding is None else candidate.embedding[x]
    net = replace(candidate.net, backend="reference")
    params = {name: _double(value, name) for name, value in candidate.params.items()}
    for given in (x, x.swapaxes(0, 1))[: x.ndim - 1]:
        mask = None if lengths is None else np.arange(len(given))[:, None] < lengths
        try:
            ours = net.forward(params, np.ascontiguousarray(_double(given, "x")), mask)[0]
        except ValueError:  # these are no inputs of the net's
            continue
        for outputs in (ours, ours.swapaxes(0, 1))[: ours.ndim - 1]:
            shapes = outputs.shape, outputs.shape[: outputs.ndim - (outputs.shape[-1] == 1)]
            if theirs.shape in shapes:
                if np.allclose(outputs.reshape(theirs.shape), theirs, 1e-9, 1e-12):
                    return True
    return False


def _candidates(proto: Proto, values: Params, inputs: Params) -> Iterator[Resolved]:
    """The nets that the weights of a graph may be of."""
    nodes = [each for each in proto.graph.node if each.op_type in RECURRENT]
    last = [*proto.graph.node].index(nodes[-1]) + 1 if nodes else 0
    linear = [each.values(values) for each in affine([*proto.graph.node][last:], values)]
    vectors = None
    for each in proto.graph.node:
        if each.op_type == "Gather" and each.input[0] in values:
            table = values[each.input[0]]
            if table.ndim == 2 and table.dtype.kind == "f" and each.input[1] not in values:
                vectors = table
    if not nodes:
        yield from _unrolled(proto, values, linear, vectors)
        return
    net, params = _stack(nodes, proto, values, inputs)
    if not linear:
        yield Resolved(net, params, vectors)
        dtype = next(iter(params.values())).dtype
        linear = [(np.eye(net.width, dtype=dtype), np.zeros(net.width, dtype))]
    if len(linear) == 1:
        yield from _headed(net, params, *linear[0], vectors)


def _stack(
    nodes: list[Proto], proto: Proto, values: Params, inputs: Params
) -> tuple[StackedNet, Params]:
    """The recurrent nodes as a stack without a read-out."""
    params: Params = {}
    layers = []
    for n, each in enumerate(nodes):
        for name in filter(None, [*each.input[1:4], *each.input[7:8]]):
            if name not in values:
                raise ValueError(f"{name} depends on the inputs; the weights must be constants")
        layer = layer_of(each, weights_of(each, values))
        if layer.direction == "reverse" or layer.layout:
            raise ValueError(f"{each.op_type}: refnet's layers have no lone reverse or layout 1")
        layers.append(layer)
        p = layer.params | _initial_states(layer.net, each, proto, inputs)
        params |= {name.replace("_l0", f"_l{n}"): value for name, value in p.items()}
    first = layers[0].net
    if len({_kind(layer.net) for layer in layers}) > 1:
        raise ValueError("the layers differ; a stack has layers of one kind and size")
    plain: Any = {"layers": len(layers), "backend": "auto"}
    return replace(first, **plain), params


def _kind(net: RecurrentNet) -> tuple[Any, ...]:
    """What all layers of a stack share."""
    acts = [(act.name, act.alpha) for act in (net.activation, net.gate)]
    return (net.cell, net.hidden, len(net.every_cell), net.clip_forward, *acts)


def _initial_states(net: StackedNet, each: Proto, proto: Proto, inputs: Params) -> Params:
    """h0 of a node, where the graph says it and it is not 0."""
    names = [name for name in each.input[5:7] if name]
    states = [*evaluate(proto, inputs, names, _double).values()] if names else []
    if not any(state.any() for state in states):
        return {}
    if any((state != state[:, :1]).any() for state in states):
        raise ValueError(f"{each.op_type} starts each sequence from another state")
    first = [state[:, 0].astype(np.float32) for state in states]
    cells = enumerate(net.every_cell)
    if len(first) == 1:
        return {f"h0{suffix}": first[0][n] for n, suffix in cells}
    return {f"h0{suffix}": np.stack([state[n] for state in first]) for n, suffix in cells}


class Affine(NamedTuple):
    """A product with a constant matrix, and what adds a constant to it. ``rows``: whether the
    matrix is stored with a row an output; ``place``: of the constant among the inputs."""

    product: Proto
    rows: bool
    added: Proto | None
    place: int

    def values(self, values: Params) -> tuple[Array, Array]:
        """The matrix, a row an output, and the vector."""
        W = values[self.product.input[1]]
        W = np.ascontiguousarray(W if self.rows else W.T)
        name = "" if self.added is None else self.added.input[self.place]
        return W, values[name] if name in values else np.zeros(len(W), W.dtype)


def affine(nodes: list[Proto], values: Params) -> list[Affine]:
    """The products with constant matrices, each matrix once."""
    seen: dict[str, Affine] = {}
    for each in nodes:
        if each.op_type not in ("MatMul", "Gemm") or each.input[1] not in values:
            continue
        if values[each.input[1]].ndim != 2:
            continue
        rows = any(a.name == "transB" and a.i for a in each.attribute)
        added, place = (each, 2) if len(each.input) > 2 else (None, 0)
        for other in nodes:
            if added is None and other.op_type == "Add" and each.output[0] in other.input:
                place = 1 - [*other.input].index(each.output[0])
                added = other if other.input[place] in values else None
        seen.setdefault(each.input[1], Affine(each, rows, added, place))
    return [*seen.values()]


def _unrolled(
    proto: Proto, values: Params, linear: list[tuple[Array, Array]], vectors: Array | None
) -> Iterator[Resolved]:
    """A feedforward net, or the steps of a simple recurrent net one after the other."""
    present = {each.op_type for each in proto.graph.node}
    known = {theirs: ours for ours, theirs in ACTIVATIONS.items() if theirs in present}
    slopes = [values[each.input[1]] for each in proto.graph.node if each.op_type == "PRelu"]
    known |= {"PRelu": "prelu"} if slopes else {}
    acts: list[Any] = [*known.values()] or ["identity"]
    if len(acts) > 1 or not linear:
        return
    if all(len(a[0]) == b[0].shape[1] for a, b in zip(linear, linear[1:])):
        yield Resolved(*feedforward(linear, slopes, acts[0]))
    cells, head = linear[: len(linear) // 2 * 2], linear[len(linear) // 2 * 2 :]
    pairs = [*zip(cells[::2], cells[1::2])]
    if not pairs or any(U[0].shape != (len(W[0]), len(W[0])) for W, U in pairs):
        return
    H = len(pairs[0][0][0])
    for both in (False, True)[: 2 - len(pairs) % 2]:
        layers = len(pairs) // (1 + both)
        net = bare_stack(pairs[0][0][0].shape[1], H, both, activation=acts[0], layers=layers)
        params: Params = {}
        for suffix, ((W, b), (U, second)) in zip(net.every_cell, pairs):
            p = {"Wxh": W, "Whh": U, "bh": b, "bhh": second}
            params |= {named(name, suffix): value for name, value in p.items()}
        if any(params[name].shape not in net.shapes[name] for name in params):
            continue
        if head:
            yield from _headed(net, params, *head[0], vectors)
        else:
            yield Resolved(net, params, vectors)


def _headed(
    net: StackedNet, params: Params, W: Array, b: Array, vectors: Array | None
) -> Iterator[Resolved]:
    """The net with a read-out of the last step, and of every step."""
    for readout in ("last", "every"):
        with_head = replace(
            net, readout=readout, outputs=len(W), loss="cross_entropy", reduction="mean"
        )
        yield Resolved(with_head, {**params, "Why": W, "by": b}, vectors)
