"""ONNX (extra ``onnx``): the weights and attributes of its operators RNN, LSTM and GRU.

ONNX stacks the LSTM's gates i, o, f, c and the GRU's z, r, h; with N directions W is (N, G H, D),
R is (N, G H, H), and B (N, 2 G H) holds the input's biases, then the state's.
Source: ONNX operators RNN-22, LSTM-22, GRU-22.
Checked by: tests/check/test_onnx.py, tests/interop/test_travel.py.
"""

from collections import defaultdict
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from refnet.batch import Array, Batch, Params, last_steps
from refnet.interop import as_stack, bare_stack, package, reorder, split_biases, two_biases
from refnet.maths.activations import Activation, activation
from refnet.maths.numeric import constant, nonpositive, tanh, times
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet, masked, named, turned

Proto: TypeAlias = Any
"""A message of ONNX's: a model, a node or a tensor; the package is optional."""

ORDER = {"rnn": (0,), "lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "gru_before": (1, 0, 2)}
"""The gates as ONNX stacks them."""
INPUT_FORGET = (0, 2, 0, 1)
"""Of a cifg: with input_forget ONNX reads no forget gate, and that of i stands there."""
OPERATORS = {"rnn": "RNN", "lstm": "LSTM", "cifg": "LSTM", "gru": "GRU", "gru_before": "GRU"}
ACTIVATIONS = {
    "tanh": "Tanh",
    "relu": "Relu",
    "sigmoid": "Sigmoid",
    "softsign": "Softsign",
    "identity": "Affine",
    "leaky_relu": "LeakyRelu",
    "elu": "Elu",
}
CONSTANTS: dict[str, tuple[float, ...]] = {
    "identity": (1.0, 0.0),
    "Affine": (0.75, 0.125),
    "ScaledTanh": (0.875, 0.75),
    "HardSigmoid": (0.25, 0.5),
}
"""alpha and beta; those of ONNX's activations are not the defaults, and exact in float32."""
DEFAULTS = {
    "Affine": (1.0, 0.0),
    "LeakyRelu": (0.01,),
    "Elu": (1.0,),
    "HardSigmoid": (0.2, 0.5),
    "ScaledTanh": (1.0, 1.0),
}
INPUTS = ("W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
Act = TypeVar("Act")


def onnx_package() -> ModuleType:
    """The onnx package, with its evaluator."""
    package("onnx.reference")
    return package("onnx")


def _affine(alpha: float, beta: float) -> Activation:
    def value(a: Array, p: Params, _: float) -> Array:
        return np.asanyarray(times(alpha, a) + constant(beta, a))

    def pull(a: Array, h: Array, dh: Array, p: Params, _: float) -> tuple[Array, Params]:
        return times(alpha, dh), {}

    return Activation("Affine", value, pull)


def _scaled_tanh(alpha: float, beta: float) -> Activation:
    def value(a: Array, p: Params, _: float) -> Array:
        return times(alpha, tanh(times(beta, a)))

    def pull(a: Array, h: Array, dh: Array, p: Params, _: float) -> tuple[Array, Params]:
        t = tanh(times(beta, a))
        return times(alpha * beta, dh * (1 - t * t)), {}

    return Activation("ScaledTanh", value, pull)


def _hard_sigmoid(alpha: float, beta: float) -> Activation:
    def value(a: Array, p: Params, _: float) -> Array:
        u = times(alpha, a) + constant(beta, a)
        return np.where(nonpositive(u), 0, np.where(nonpositive(1 - u), 1, u))

    def pull(a: Array, h: Array, dh: Array, p: Params, _: float) -> tuple[Array, Params]:
        u = times(alpha, a) + constant(beta, a)
        return np.where(nonpositive(u) | nonpositive(1 - u), 0, times(alpha, dh)), {}

    return Activation("HardSigmoid", value, pull)


SPECIAL: dict[str, Callable[[float, float], Activation]] = {
    "Affine": _affine,
    "ScaledTanh": _scaled_tanh,
    "HardSigmoid": _hard_sigmoid,
}


def activation_of(name: str, *constants: float) -> Activation:
    """An activation of ONNX's, with its alpha and beta, by default the operator's own.

    >>> activation_of("Affine").name, activation_of("HardSigmoid", 0.25, 0.5).name
    ('identity', 'HardSigmoid')
    """
    values = (*constants, *DEFAULTS.get(name, ())[len(constants) :])
    ours = {theirs: ours for ours, theirs in ACTIVATIONS.items()}
    if name in SPECIAL and (name, values) != ("Affine", (1.0, 0.0)):
        return SPECIAL[name](*values)
    if name not in ours:
        raise ValueError(f"the activation {name} is not known; these are {', '.join(DEFAULTS)}")
    return activation(ours[name], *values[: name in ("LeakyRelu", "Elu")])


def packed(net: StackedNet, params: Params) -> list[tuple[StackedNet, Params]]:
    """Every layer of a stack as a stack of one layer without a read-out, with its parameters."""
    layers = []
    for layer in net.cells:
        cell = next(iter(layer.values()))
        names = ("cell", "activation", "gate", "projection", "clip_forward")
        options = {name: getattr(cell, name) for name in names}
        single = bare_stack(cell.inputs, net.hidden, net.bidirectional, **options)
        p = {
            named(name, suffix): value
            for suffix, theirs in zip(single.every_cell, layer)
            for name, value in net.of(params, theirs).items()
        }
        layers.append((single, {name: value for name, value in p.items() if name in single.shapes}))
    return layers


def to_onnx(net: RecurrentNet, params: Params, batch: Batch | None = None) -> Params:
    """W, R, B and P of one layer in ONNX's layout, and of a ``batch`` the lengths and the initial
    states. bh goes to the input's biases, the GRU's bhn to the state's."""
    net, params = as_stack(net, params)
    order, weights = ORDER.get(net.cell, INPUT_FORGET), defaultdict(list)
    for suffix, cell in net.every_cell.items():
        p = net.of(params, suffix)
        weights["W"].append(reorder(p["Wxh"], order))
        weights["R"].append(reorder(p["Whh"], order))
        biases = [reorder(bias, order) for bias in two_biases(net, p)]
        weights["B"].append(np.concatenate(biases))
        if "Wpo" in p:
            weights["P"].append(np.concatenate([p["Wpi"], p["Wpo"], p.get("Wpf", p["Wpi"])]))
        if batch is not None and "h0" in p:
            h0 = cell.initial_state(p, batch.x)
            for name, state in zip(("initial_h", "initial_c"), h0 if h0.ndim == 3 else [h0]):
                weights[name].append(state)
    arrays = {name: np.stack(values) for name, values in weights.items()}
    if batch is not None and batch.mask is not None:
        arrays["sequence_lens"] = last_steps(batch.mask).astype(np.int32)
    return arrays


def from_onnx(net: RecurrentNet, weights: Params) -> Params:
    """The parameters of a net of one layer from W, R, B and P; a second bias that is not 0 is bhh.

    Raises ValueError if one has another shape.
    """
    H, N = net.hidden, len(net.every_cell)
    rows = (4 if OPERATORS[net.cell] == "LSTM" else len(net.gates)) * H
    need = {"W": (N, rows, net.inputs), "R": (N, rows, H), "B": (N, 2 * rows), "P": (N, 3 * H)}
    for name in weights:
        if weights[name].shape != need[name]:
            raise ValueError(
                f"from_onnx: {name} has shape {weights[name].shape}; need {need[name]}, "
                f"because the net has H = {H}, D = {net.inputs} and the cell {net.cell}"
            )
    order = ORDER.get(net.cell, (0, 2, 3, 1))
    back = tuple(order.index(n) for n in range(len(order)))
    if net.cell == "cifg":  # i, c and o; f is 1 - i
        back = (0, 3, 1)
    params: Params = {}
    for n, (suffix, cell) in enumerate(net.every_cell.items()):
        W, R = weights["W"][n], weights["R"][n]
        halves = np.split(weights["B"][n], 2) if "B" in weights else np.zeros((2, rows), W.dtype)
        biases = [reorder(half, back, rows // H) for half in halves]
        p = {"Wxh": reorder(W, back, rows // H), "Whh": reorder(R, back, rows // H)}
        p |= split_biases(cell, *biases)
        if "P" in weights:
            p |= dict(zip(("Wpi", "Wpo", "Wpf"), np.split(weights["P"][n], 3)))
            if net.cell == "cifg":
                p.pop("Wpf")
        params |= {named(name, suffix): value for name, value in p.items()}
    return params


def model(net: RecurrentNet, params: Params, dtype: Proto = np.float32) -> Proto:
    """A one-node ONNX model: X (T, B, D) to Y (T, 1, B, H).

    Raises ValueError for a net that it would not express.
    """
    weights = {name: value.astype(dtype) for name, value in to_onnx(net, params).items()}
    return node_model(net, weights, ["Y"], {})


def node(
    net: RecurrentNet, inputs: list[str], outputs: list[str], options: dict[str, Any]
) -> Proto:
    """The node of a net's one layer; ``inputs``: the names of X and of INPUTS, "" for none."""
    if net.transition is not None or net.gain != 1:
        raise ValueError("model: ONNX's operator has no transition or gain")
    acts = _activations(net.cell, net.activation, net.gate) * len(net.every_cell)
    constants = [(act.alpha,) if act.alpha else CONSTANTS.get(act.name, ()) for act in acts]
    names = [ACTIVATIONS.get(act.name, act.name) for act in acts]
    if unknown := {*names} - {*ACTIVATIONS.values(), *CONSTANTS}:
        raise ValueError(
            f"model: ONNX's operator has no activation {', '.join(unknown)}; it has "
            f"{', '.join(ACTIVATIONS)}"
        )
    options = {"hidden_size": net.hidden, "activations": names, **options}
    for n, name in enumerate(("activation_alpha", "activation_beta")):
        if values := [each[n] for each in constants if len(each) > n]:
            options[name] = values
    if net.clip_forward is not None:
        options["clip"] = float(net.clip_forward)
    if net.cell == "cifg":
        options["input_forget"] = 1
    if net.cell in ("gru", "gru_before"):
        options["linear_before_reset"] = int(net.cell == "gru")
    while not inputs[-1]:
        inputs = inputs[:-1]
    return onnx_package().helper.make_node(OPERATORS[net.cell], inputs, outputs, **options)


def node_model(
    net: RecurrentNet, weights: Params, outputs: list[str], options: dict[str, Any]
) -> Proto:
    """The ONNX model of one node, of whose inputs all but X are constant."""
    onnx = onnx_package()
    inputs = ["X", *(name if name in weights else "" for name in INPUTS)]
    nodes = [node(net, inputs, outputs, options)]
    kind = onnx.helper.np_dtype_to_tensor_dtype(weights["W"].dtype)
    info = onnx.helper.make_tensor_value_info
    return saved(
        nodes,
        net.cell,
        [info("X", kind, [None, None, net.inputs])],
        [info(name, kind, [None] * (4 if name == "Y" else 3)) for name in outputs],
        weights,
    )


def saved(
    nodes: list[Proto], name: str, inputs: list[Proto], outputs: list[Proto], weights: Params
) -> Proto:
    """The model of a graph, checked."""
    onnx = onnx_package()
    constants = [
        onnx.numpy_helper.from_array(np.ascontiguousarray(value), key)
        for key, value in weights.items()
    ]
    graph = onnx.helper.make_graph(nodes, name, inputs, outputs, constants)
    opset = [onnx.helper.make_opsetid("", 22)]
    proto = onnx.helper.make_model(graph, opset_imports=opset, ir_version=10)
    onnx.checker.check_model(proto)
    return proto


class Layer(NamedTuple):
    """What a node is: a net of one layer without a read-out, its parameters, and how it is run."""

    net: StackedNet
    params: Params
    direction: str = "forward"
    layout: int = 0


def layer_of(proto: Proto, weights: Params) -> Layer:
    """The layer of an RNN, LSTM or GRU node, from its attributes and its W, R, B and P. Raises
    ValueError for an activation that refnet does not know, and if one has another shape."""
    onnx = onnx_package()
    options = {a.name: onnx.helper.get_attribute_value(a) for a in proto.attribute}
    direction = options.get("direction", b"forward").decode()
    for name, value in weights.items():
        if value.dtype.kind in "iub":
            raise ValueError(f"{name} is of type {value.dtype}; need float32 or float64")
    W, R = weights["W"], weights["R"]
    H = options.get("hidden_size", R.shape[-1])
    if W.ndim != 3 or R.ndim != 3 or R.shape[2] != H:
        raise ValueError(
            f"{proto.op_type}: W has shape {W.shape} and R {R.shape}; need (N, G H, D) and "
            f"(N, G H, H) with H = {H}"
        )
    kinds = {
        "RNN": "rnn",
        "LSTM": "cifg" if options.get("input_forget") else "lstm",
        "GRU": "gru" if options.get("linear_before_reset") else "gru_before",
    }
    cell = kinds[proto.op_type]
    both = direction == "bidirectional"
    act, gate = _read_activations(cell, options, 1 + both)
    net = bare_stack(
        W.shape[2],
        H,
        both,
        cell=cell,
        activation=act,
        gate=gate,
        clip_forward=options.get("clip"),
        backend="reference" if "clip" in options else "auto",
    )
    return Layer(net, from_onnx(net, weights), direction, options.get("layout", 0))


def _read_activations(
    cell: str, options: dict[str, Any], directions: int
) -> tuple[Activation, Activation]:
    """The candidate's and the gates' activation."""
    names = [name.decode() for name in options.get("activations", [])]
    names = names or _activations(cell, "Tanh", "Sigmoid") * directions
    alphas, betas = (iter(options.get(f"activation_{name}", ())) for name in ("alpha", "beta"))
    acts = []
    for name in names:
        count = len(DEFAULTS.get(name, ()))
        given = [next(values, None) for values in (alphas, betas)[:count]]
        acts.append((name, *(value for value in given if value is not None)))
    act, gate = acts[-1], acts[0] if cell != "rnn" else ("Sigmoid",)
    if acts != _activations(cell, act, gate) * directions:
        raise ValueError(
            f"the activations {', '.join(names)} cannot be judged; need "
            f"{', '.join(_activations(cell, 'f', 'g'))} in each direction"
        )
    return activation_of(*act), activation_of(*gate)


def _activations(cell: str, act: Act, gate: Act) -> list[Act]:
    """What ONNX lists for a cell: the gates', the candidate's, and an LSTM's output's."""
    return {"RNN": [act], "LSTM": [gate, act, act], "GRU": [gate, act]}[OPERATORS[cell]]


def views(layer: Layer, states: Params, lengths: Array) -> Params:
    """Y (T, N, B, H), Y_h and Y_c (N, B, H) of N directions, from arrays by the states' names and
    the number of steps of each sequence, (B,)."""
    suffixes = tuple(layer.net.every_cell)
    every = [
        masked(in_time(layer, states[f"h{suffix}"][1:], lengths, suffix), lengths)
        for suffix in suffixes
    ]
    values = {"Y": np.stack(every, axis=1)}
    for name in ("h", "c")[: 1 + (OPERATORS[layer.net.cell] == "LSTM")]:
        ends = [states[f"{name}{suffix}"][lengths, np.arange(len(lengths))] for suffix in suffixes]
        values[f"Y_{name}"] = np.stack(ends)
    return values


def in_time(layer: Layer, values: Array, lengths: Array, suffix: str = "") -> Array:
    """Steps in the order in which the operator has them, from the order of a cell's run."""
    return turned(values, lengths, "_reverse" if layer.direction == "reverse" else suffix)
