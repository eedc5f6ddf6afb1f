"""ONNX (extra ``onnx``): the weights and attributes of its operators RNN, LSTM and GRU.

ONNX stacks the LSTM's gates i, o, f, c and the GRU's z, r, h; W is (1, G H, D), R is
(1, G H, H), and B (1, 2 G H) holds the input's biases, then the state's.
Source: ONNX operators RNN-22, LSTM-22, GRU-22.
Checked by: tests/check/test_onnx.py.
"""

from collections import defaultdict
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias, TypeVar

import numpy as np

from refnet.batch import Array, Batch, Params, last_steps
from refnet.interop import as_stack, exact_sum, package, reorder, two_biases
from refnet.nets.recurrent import RecurrentNet
from refnet.runs.read import contents, reading

__all__ = ["CONSTANTS", "from_onnx", "load", "model", "node_model", "read", "to_onnx"]

Proto: TypeAlias = Any
"""A message of ONNX's: a model, a node or a tensor; the package is optional."""


ORDER = {"rnn": (0,), "lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "gru_before": (1, 0, 2)}
"""The gates as ONNX stacks them."""


INPUT_FORGET = (0, 2, 0, 1)
"""Of a cifg: with input_forget ONNX reads no forget gate, and that of i stands there."""


OPERATORS = {"rnn": "RNN", "lstm": "LSTM", "cifg": "LSTM", "gru": "GRU", "gru_before": "GRU"}


PLAIN = {"tanh": "Tanh", "relu": "Relu", "sigmoid": "Sigmoid", "softsign": "Softsign"}


ACTIVATIONS = {**PLAIN, "identity": "Affine", "leaky_relu": "LeakyRelu", "elu": "Elu"}


CONSTANTS: dict[str, tuple[float, ...]] = {
    "identity": (1.0, 0.0),
    "Affine": (0.75, 0.125),
    "ScaledTanh": (0.875, 0.75),
    "HardSigmoid": (0.25, 0.5),
}
"""alpha and beta; those of ONNX's activations are not the defaults, and exact in float32."""


INPUTS = ("W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")


Act = TypeVar("Act")


LIMIT = 2**31 - 1
"""Bytes of a model; no protocol buffer is larger."""


def onnx_package() -> ModuleType:
    package("onnx.reference")
    return package("onnx")


def _back(order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(order.index(n) for n in range(len(order)))


def to_onnx(net: RecurrentNet, params: Params, batch: Batch | None = None) -> Params:
    """W, R, B and P in ONNX's layout, and of a ``batch`` the lengths and the initial states. bh
    goes to the input's biases, the GRU's bhn to the state's."""
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
    """Whh, Wxh, bh (and bhn) from W, R and B; the two biases are added without rounding.

    Raises ValueError if one has another shape.
    """
    H, G = net.hidden, len(net.gates)
    for name, shape in (("W", (1, G * H, net.inputs)), ("R", (1, G * H, H)), ("B", (1, 2 * G * H))):
        if weights[name].shape != shape:
            raise ValueError(
                f"from_onnx: {name} has shape {weights[name].shape}; need {shape}, "
                f"because the net has H = {H}, D = {net.inputs} and the cell "
                f"{net.cell}"
            )
    back = _back(ORDER[net.cell])
    first, second = (reorder(part, back) for part in np.split(weights["B"][0], 2))
    params = {"Wxh": reorder(weights["W"][0], back), "Whh": reorder(weights["R"][0], back)}
    if net.cell == "gru":
        params["bhn"] = second[2 * H :]
        second = np.where(np.arange(G * H) < 2 * H, second, 0)
    return {**params, "bh": exact_sum(first, second)}


def model(net: RecurrentNet, params: Params, dtype: Proto = np.float32) -> Proto:
    """A one-node ONNX model: X (T, B, D) to Y (T, 1, B, H).

    Raises ValueError for a net that it would not express.
    """
    weights = {name: value.astype(dtype) for name, value in to_onnx(net, params).items()}
    return node_model(net, weights, ["Y"], {})


def node_model(
    net: RecurrentNet, weights: Params, outputs: list[str], options: dict[str, Any]
) -> Proto:
    """The ONNX model of one node, of whose inputs all but X are constant."""
    onnx = onnx_package()
    if net.transition is not None or net.gain != 1:
        raise ValueError("model: ONNX's operator has no transition or gain")
    acts = _activations(net.cell, net.activation, net.gate) * len(weights["W"])
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
    inputs = ["X", *(name if name in weights else "" for name in INPUTS)]
    while not inputs[-1]:
        inputs.pop()
    kind = onnx.helper.np_dtype_to_tensor_dtype(weights["W"].dtype)
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(OPERATORS[net.cell], inputs, outputs, **options)],
        net.cell,
        [info("X", kind, [None, None, net.inputs])],
        [info(name, kind, [None] * (4 if name == "Y" else 3)) for name in outputs],
        [
            onnx.numpy_helper.from_array(np.ascontiguousarray(value), name)
            for name, value in weights.items()
        ],
    )
    proto = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 22)], ir_version=10
    )
    onnx.checker.check_model(proto)
    return proto


def read(path: Path) -> tuple[Proto, RecurrentNet, Params]:
    """The model in a file, checked for being a valid one; its recurrent layer and its weights.

    No other file is read. Raises FileError for anything else than a model that ``load`` takes.
    """
    onnx = onnx_package()
    from google.protobuf.message import DecodeError

    with reading(path, "export the model again, as one file with one recurrent layer"):
        try:
            proto = onnx.load_from_string(contents(path, LIMIT))
            _whole(proto)
            onnx.checker.check_model(proto)
        except (DecodeError, onnx.checker.ValidationError, TypeError) as error:
            raise ValueError(f"is not a valid ONNX model: {' '.join(str(error).split())}") from None
        return (proto, *load(proto))


def load(proto: Proto) -> tuple[RecurrentNet, Params]:
    """The cell and its weights from a model whose graph holds one RNN, LSTM or GRU.

    The read-out is not part of it: Why is zero, with one output. Raises ValueError for what
    the certified cells do not have: both directions, clipping, peepholes, sequence lengths.
    """
    onnx = onnx_package()
    _whole(proto)
    node = recurrent_node(proto)
    options = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    optional = [name for name in node.input[4:] if name]
    if (
        options.get("direction", b"forward") != b"forward"
        or "clip" in options
        or optional
        or options.get("layout", 0)
        or options.get("input_forget", 0)
    ):
        raise ValueError(
            "load: only a forward, unclipped, time-major node without sequence "
            "lengths, initial states or peepholes can be judged"
        )
    weights = {key: _constant(proto, name) for key, name in zip("WRB", node.input[1:4]) if name}
    W, R = weights["W"], weights["R"]
    cell = {
        "RNN": "rnn",
        "LSTM": "lstm",
        "GRU": "gru" if options.get("linear_before_reset", 0) else "gru_before",
    }[node.op_type]
    if W.ndim != 3 or R.ndim != 3 or options.get("hidden_size", R.shape[2]) != R.shape[2]:
        raise ValueError(
            f"load: W has shape {W.shape} and R {R.shape}; need (1, G H, D) and "
            f"(1, G H, H) with H = {options.get('hidden_size', 'hidden_size')}"
        )
    acts = [name.decode() for name in options.get("activations", [])]
    names = {shown: name for name, shown in PLAIN.items()}
    act = acts[-1] if acts else "Tanh"
    if act not in names or acts not in ([], _activations(cell, act, "Sigmoid")):
        raise ValueError(
            f"load: the activations {', '.join(acts)} cannot be judged; need "
            f"{', '.join(_activations(cell, 'f', 'Sigmoid'))} with f one of {', '.join(names)}"
        )
    net = RecurrentNet(W.shape[2], R.shape[2], 1, cell=cell, activation=names[act])
    zero = np.zeros((1, 2 * len(net.gates) * net.hidden), W.dtype)
    params = from_onnx(net, {"B": zero, **weights})
    return net, {**params, "Why": np.zeros((1, net.hidden), W.dtype), "by": np.zeros(1, W.dtype)}


def _whole(proto: Proto) -> None:
    onnx = onnx_package()
    for entry in proto.graph.initializer:
        if entry.data_location == onnx.TensorProto.EXTERNAL:
            raise ValueError(
                f"{entry.name} is kept in a file beside the model; save it with "
                "onnx.save(model, path, save_as_external_data=False)"
            )


def _activations(cell: str, act: Act, gate: Act) -> list[Act]:
    """What ONNX lists for a cell: the gates', the candidate's, and an LSTM's output's."""
    return {"RNN": [act], "LSTM": [gate, act, act], "GRU": [gate, act]}[OPERATORS[cell]]


def _constant(proto: Proto, name: str) -> Array:
    """An initializer of the graph, which its own file holds."""
    onnx = onnx_package()
    values = [entry for entry in proto.graph.initializer if entry.name == name]
    if not values:
        raise ValueError(
            f"load: {name} is not an initializer of the graph; the weights must be constants"
        )
    if values[0].data_type not in (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE):
        raise ValueError(f"load: {name} is not a tensor of float32 or float64")
    value = np.asarray(onnx.numpy_helper.to_array(values[0]))
    if not np.isfinite(value).all():
        raise ValueError(f"load: {name} has entries that are not finite")
    return value


def recurrent_node(proto: Proto) -> Proto:
    nodes = [
        node
        for node in proto.graph.node
        if node.op_type in ("RNN", "LSTM", "GRU") and node.domain in ("", "ai.onnx")
    ]
    if len(nodes) != 1:
        raise ValueError(f"the model has {len(nodes)} RNN, LSTM or GRU nodes; need one")
    if nodes[0].input[0] not in {entry.name for entry in proto.graph.input}:
        raise ValueError(
            f"the {nodes[0].op_type} node does not read the model's input itself; cut "
            "the layers before it off"
        )
    return nodes[0]
