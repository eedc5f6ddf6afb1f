"""ONNX (extra ``onnx``): RNN, LSTM and GRU models judged forward, and their weight layout.

ONNX stacks the LSTM's gates i, o, f, c and the GRU's z, r, h; W is (1, G H, D), R is
(1, G H, H), and B (1, 2 G H) holds the input's biases, then the state's.
Source: ONNX operators RNN-22, LSTM-22, GRU-22.
Checked by: tests/check/test_adapters.py.
"""

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from refnet.arguments import choice
from refnet.batch import Array, Params
from refnet.check.adapters import exact_sum, reorder
from refnet.nets.recurrent import RecurrentNet
from refnet.runs.read import contents, reading

__all__ = ["RUNTIMES", "from_onnx", "load", "model", "read", "results", "session_run", "to_onnx"]

ORDER = {"rnn": (0,), "lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "gru_before": (1, 0, 2)}
OPERATORS = {"rnn": "RNN", "lstm": "LSTM", "gru": "GRU", "gru_before": "GRU"}
ACTIVATIONS = {
    "tanh": "Tanh",
    "relu": "Relu",
    "sigmoid": "Sigmoid",
    "softsign": "Softsign",
    "identity": "Affine",
}
RUNTIMES = ("onnxruntime", "onnx reference")
LIMIT = 2**31 - 1
"""Bytes of a model; no protocol buffer is larger."""


def _onnx() -> ModuleType:
    try:
        import onnx
        import onnx.helper
        import onnx.numpy_helper
        import onnx.reference
    except ImportError:
        raise ImportError("this needs onnx: pip install 'refnet[onnx]'") from None
    return onnx  # type: ignore[no-any-return]


def _back(order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(order.index(n) for n in range(len(order)))


def to_onnx(net: RecurrentNet, params: Params) -> Params:
    """W, R and B in ONNX's layout. bh goes to the input's biases, the GRU's bhn to the state's."""
    order, H = ORDER[net.cell], net.hidden
    second = np.zeros_like(params["bh"])
    if net.cell == "gru":
        second[2 * H :] = params["bhn"]
    return {
        "W": reorder(params["Wxh"], order)[None],
        "R": reorder(params["Whh"], order)[None],
        "B": np.concatenate([reorder(params["bh"], order), second])[None],
    }


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


def model(net: RecurrentNet, params: Params, dtype: Any = np.float32) -> Any:
    """A one-node ONNX model: X (T, B, D) to Y (T, 1, B, H).

    Raises ValueError for an activation or a peephole that it would not express.
    """
    onnx = _onnx()
    if net.transition is not None or net.gain != 1 or any(n.startswith("Wp") for n in params):
        raise ValueError("model: ONNX's operator has no transition, gain or refnet's peepholes")
    if net.activation.name not in ACTIVATIONS:
        raise ValueError(
            f"model: ONNX's operator has no activation {net.activation.name}; it has "
            f"{', '.join(ACTIVATIONS)}"
        )
    act = ACTIVATIONS[net.activation.name]
    options: dict[str, Any] = {
        "hidden_size": net.hidden,
        "activations": _activations(net.cell, act),
    }
    if act == "Affine":
        options |= {"activation_alpha": [1.0], "activation_beta": [0.0]}
    if net.cell in ("gru", "gru_before"):
        options["linear_before_reset"] = int(net.cell == "gru")
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    node = onnx.helper.make_node(OPERATORS[net.cell], ["X", "W", "R", "B"], ["Y"], **options)
    weights = [
        onnx.numpy_helper.from_array(np.ascontiguousarray(value.astype(dtype)), name)
        for name, value in to_onnx(net, params).items()
    ]
    graph = onnx.helper.make_graph(
        [node],
        net.cell,
        [onnx.helper.make_tensor_value_info("X", kind, ["T", "B", net.inputs])],
        [onnx.helper.make_tensor_value_info("Y", kind, ["T", 1, "B", net.hidden])],
        weights,
    )
    made = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 22)], ir_version=10
    )
    onnx.checker.check_model(made)
    return made


def read(path: Path) -> tuple[Any, RecurrentNet, Params]:
    """The model in a file, checked for being a valid one; its recurrent layer and its weights.

    No other file is read. Raises FileError for anything else than a model that ``load`` takes.
    """
    onnx = _onnx()
    from google.protobuf.message import DecodeError

    with reading(path, "export the model again, as one file with one recurrent layer"):
        try:
            made = onnx.load_from_string(contents(path, LIMIT))
            _whole(made)
            onnx.checker.check_model(made)
        except (DecodeError, onnx.checker.ValidationError, TypeError) as error:
            raise ValueError(f"is not a valid ONNX model: {' '.join(str(error).split())}") from None
        return (made, *load(made))


def load(made: Any) -> tuple[RecurrentNet, Params]:
    """The cell and its weights from a model whose graph holds one RNN, LSTM or GRU.

    The read-out is not part of it: Why is zero, with one output. Raises ValueError for what
    the certified cells do not have: both directions, clipping, peepholes, sequence lengths.
    """
    onnx = _onnx()
    _whole(made)
    node = _node(made)
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
    weights = {own: _constant(made, name) for own, name in zip("WRB", node.input[1:4]) if name}
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
    names = {name: own for own, name in ACTIVATIONS.items() if own != "identity"}
    act = acts[-1] if acts else "Tanh"
    if act not in names or acts not in ([], _activations(cell, act)):
        raise ValueError(
            f"load: the activations {', '.join(acts)} cannot be judged; need "
            f"{', '.join(_activations(cell, 'f'))} with f one of {', '.join(names)}"
        )
    net = RecurrentNet(W.shape[2], R.shape[2], 1, cell=cell, activation=names[act])
    zero = np.zeros((1, 2 * len(net.gates) * net.hidden), W.dtype)
    params = from_onnx(net, {"B": zero, **weights})
    return net, {**params, "Why": np.zeros((1, net.hidden), W.dtype), "by": np.zeros(1, W.dtype)}


def _whole(made: Any) -> None:
    onnx = _onnx()
    for entry in made.graph.initializer:
        if entry.data_location == onnx.TensorProto.EXTERNAL:
            raise ValueError(
                f"{entry.name} is kept in a file beside the model; save it with "
                "onnx.save(model, path, save_as_external_data=False)"
            )


def _activations(cell: str, act: str) -> list[str]:
    """What ONNX's operator lists for a cell whose candidate has this activation."""
    return {"rnn": [act], "lstm": ["Sigmoid", act, act]}.get(cell, ["Sigmoid", act])


def _constant(made: Any, name: str) -> Array:
    """An initializer of the graph, which its own file holds."""
    onnx = _onnx()
    found = [entry for entry in made.graph.initializer if entry.name == name]
    if not found:
        raise ValueError(
            f"load: {name} is not an initializer of the graph; the weights must be constants"
        )
    if found[0].data_type not in (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE):
        raise ValueError(f"load: {name} is not a tensor of float32 or float64")
    value = np.asarray(onnx.numpy_helper.to_array(found[0]))
    if not np.isfinite(value).all():
        raise ValueError(f"load: {name} has entries that are not finite")
    return value


def _node(made: Any) -> Any:
    nodes = [
        node
        for node in made.graph.node
        if node.op_type in ("RNN", "LSTM", "GRU") and node.domain in ("", "ai.onnx")
    ]
    if len(nodes) != 1:
        raise ValueError(f"the model has {len(nodes)} RNN, LSTM or GRU nodes; need one")
    if nodes[0].input[0] not in {entry.name for entry in made.graph.input}:
        raise ValueError(
            f"the {nodes[0].op_type} node does not read the model's input itself; cut "
            "the layers before it off"
        )
    return nodes[0]


def _alone(made: Any) -> Any:
    """A model of the recurrent node alone, whose output is the node's Y, all states."""
    onnx = _onnx()
    node = type(_node(made))()
    node.CopyFrom(_node(made))
    del node.output[:]
    node.output.append("every_state")
    graph = made.graph
    (x,) = (entry for entry in graph.input if entry.name == node.input[0])
    alone = onnx.helper.make_graph(
        [node],
        graph.name,
        [x],
        [onnx.helper.make_tensor_value_info("every_state", x.type.tensor_type.elem_type, None)],
        [entry for entry in graph.initializer if entry.name in node.input[1:]],
    )
    return onnx.helper.make_model(
        alone, opset_imports=made.opset_import, ir_version=made.ir_version
    )


def session_run(made: Any, names: list[str], feeds: Params, runtime: str) -> list[Array]:
    """The named outputs of a model, as a runtime computes them."""
    choice("runtime", runtime, RUNTIMES)
    onnx = _onnx()
    if runtime == "onnxruntime":
        try:
            import onnxruntime
        except ImportError:
            raise ImportError("this needs onnxruntime: pip install 'refnet[onnx]'") from None
        quiet = onnxruntime.SessionOptions()
        quiet.log_severity_level = 4  # a refusal is raised, not printed
        session = onnxruntime.InferenceSession(
            made.SerializeToString(), quiet, providers=["CPUExecutionProvider"]
        )
    else:
        session = onnx.reference.ReferenceEvaluator(made)
    return [np.asarray(value) for value in session.run(names, feeds)]


def results(made: Any, x: Array, runtime: str) -> Params:
    """The states h (T + 1, B, H) that a runtime computes, by refnet's names."""
    made = _alone(made)
    h = session_run(made, ["every_state"], {_node(made).input[0]: x}, runtime)[0][:, 0]
    return {"h": np.concatenate([np.zeros_like(h[:1]), h])}
