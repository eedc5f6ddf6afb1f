"""ONNX (extra ``onnx``): RNN, LSTM and GRU models judged forward, and their weight layout.

ONNX stacks the LSTM's gates i, o, f, c and the GRU's z, r, h; W is (1, G H, D), R is
(1, G H, H), and B (1, 2 G H) holds the input's biases, then the state's.
Source: ONNX operators RNN-22, LSTM-22, GRU-22.
Checked by: tests/test_adapters.py.
"""

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from refnet.batch import Array, Params
from refnet.check.adapters import exact_sum, reorder
from refnet.nets.recurrent import RecurrentNet
from refnet.runs.read import size_of

__all__ = ["RUNTIMES", "from_onnx", "load", "model", "read", "results", "to_onnx"]

ORDER = {"rnn": (0,), "lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "gru_before": (1, 0, 2)}
OPERATORS = {"rnn": "RNN", "lstm": "LSTM", "gru": "GRU", "gru_before": "GRU"}
ACTIVATIONS = {"tanh": "Tanh", "relu": "Relu", "sigmoid": "Sigmoid", "softsign": "Softsign",
               "identity": "Affine"}
RUNTIMES = ("onnxruntime", "onnx reference")


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
        second[2 * H:] = params["bhn"]
    return {"W": reorder(params["Wxh"], order)[None], "R": reorder(params["Whh"], order)[None],
            "B": np.concatenate([reorder(params["bh"], order), second])[None]}


def from_onnx(net: RecurrentNet, weights: Params) -> Params:
    """Whh, Wxh, bh (and bhn) from W, R and B; the two biases are added without rounding.

    Raises ValueError if one has another shape.
    """
    H, G = net.hidden, len(net.gates)
    for name, shape in (("W", (1, G * H, net.inputs)), ("R", (1, G * H, H)),
                        ("B", (1, 2 * G * H))):
        if weights[name].shape != shape:
            raise ValueError(f"from_onnx: {name} has shape {weights[name].shape}; need {shape}, "
                             f"because the net has H = {H}, D = {net.inputs} and the cell "
                             f"{net.cell}")
    back = _back(ORDER[net.cell])
    first, second = (reorder(part, back) for part in np.split(weights["B"][0], 2))
    params = {"Wxh": reorder(weights["W"][0], back), "Whh": reorder(weights["R"][0], back)}
    if net.cell == "gru":
        params["bhn"] = second[2 * H:]
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
        raise ValueError(f"model: ONNX's operator has no activation {net.activation.name}; it has "
                         f"{', '.join(ACTIVATIONS)}")
    act = ACTIVATIONS[net.activation.name]
    gates = {"rnn": [act], "lstm": ["Sigmoid", act, act]}.get(net.cell, ["Sigmoid", act])
    options: dict[str, Any] = {"hidden_size": net.hidden, "activations": gates}
    if act == "Affine":
        options |= {"activation_alpha": [1.0], "activation_beta": [0.0]}
    if net.cell in ("gru", "gru_before"):
        options["linear_before_reset"] = int(net.cell == "gru")
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    node = onnx.helper.make_node(OPERATORS[net.cell], ["X", "W", "R", "B"], ["Y"], **options)
    weights = [onnx.numpy_helper.from_array(np.ascontiguousarray(value.astype(dtype)), name)
               for name, value in to_onnx(net, params).items()]
    graph = onnx.helper.make_graph(
        [node], net.cell, [onnx.helper.make_tensor_value_info("X", kind, ["T", "B", net.inputs])],
        [onnx.helper.make_tensor_value_info("Y", kind, ["T", 1, "B", net.hidden])], weights)
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 22)],
                                  ir_version=10)
    onnx.checker.check_model(made)
    return made


def read(path: Path) -> Any:
    """The model in a file, checked for being a valid one."""
    onnx = _onnx()
    size_of(path, 2 ** 31)
    made = onnx.load(str(path))
    onnx.checker.check_model(made)
    return made


def load(made: Any) -> tuple[RecurrentNet, Params]:
    """The cell and its weights from a model whose graph holds one RNN, LSTM or GRU.

    The read-out is not part of it: Why is zero, with one output. Raises ValueError for what
    the certified cells do not have: both directions, clipping, peepholes, sequence lengths.
    """
    onnx = _onnx()
    node = _node(made)
    options = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    optional = [name for name in node.input[4:] if name]
    if options.get("direction", b"forward") != b"forward" or "clip" in options or optional or \
            options.get("layout", 0) or options.get("input_forget", 0):
        raise ValueError("load: only a forward, unclipped, time-major node without sequence "
                         "lengths, initial states or peepholes can be judged")
    weights = {entry.name: onnx.numpy_helper.to_array(entry) for entry in made.graph.initializer}
    missing = [name for name in node.input[1:3] if name not in weights]
    if missing:
        raise ValueError(f"load: {missing[0]} is no initializer of the graph; the weights must be "
                         "constants")
    W, R = weights[node.input[1]], weights[node.input[2]]
    cell = {"RNN": "rnn", "LSTM": "lstm", "GRU": "gru" if options.get("linear_before_reset", 0)
            else "gru_before"}[node.op_type]
    G, H = len(ORDER[cell]), R.shape[2]
    bias = len(node.input) > 3 and node.input[3]
    B = weights[node.input[3]] if bias else np.zeros((1, 2 * G * H), W.dtype)
    known = {name.encode(): own for own, name in ACTIVATIONS.items()}
    acts = options.get("activations", [])
    act = known.get(acts[-1] if acts else b"Tanh")
    if act is None or act == "identity":
        raise ValueError(f"load: activation {acts[-1].decode()} cannot be judged")
    from refnet.maths.activations import activation
    net = RecurrentNet(W.shape[2], H, 1, cell=cell, activation=activation(act))
    params = from_onnx(net, {"W": W, "R": R, "B": B})
    return net, {**params, "Why": np.zeros((1, H), W.dtype), "by": np.zeros(1, W.dtype)}


def _node(made: Any) -> Any:
    nodes = [node for node in made.graph.node if node.op_type in ("RNN", "LSTM", "GRU")]
    if len(nodes) != 1:
        raise ValueError(f"the model has {len(nodes)} RNN, LSTM or GRU nodes; need one")
    if nodes[0].input[0] not in {entry.name for entry in made.graph.input}:
        raise ValueError(f"the {nodes[0].op_type} node does not read the model's input itself; cut "
                         "the layers before it off")
    return nodes[0]


def _with_states(made: Any) -> Any:
    """A copy whose last output is the node's Y, all states."""
    onnx = _onnx()
    copy = type(made)()
    copy.CopyFrom(made)
    node = _node(copy)
    if not node.output[0]:
        node.output[0] = "every_state"
    kind = copy.graph.input[0].type.tensor_type.elem_type
    kept = [entry for entry in copy.graph.output if entry.name != node.output[0]]
    del copy.graph.output[:]
    copy.graph.output.extend([*kept, onnx.helper.make_tensor_value_info(
        node.output[0], kind, None)])
    return copy


def results(made: Any, x: Array, runtime: str) -> Params:
    """The states h (T + 1, B, H) that a runtime computes, by refnet's names."""
    onnx = _onnx()
    made = _with_states(made)
    if runtime == "onnxruntime":
        try:
            import onnxruntime
        except ImportError:
            raise ImportError("this needs onnxruntime: pip install 'refnet[onnx]'") from None
        quiet = onnxruntime.SessionOptions()
        quiet.log_severity_level = 4  # a refusal is raised, not printed
        session = onnxruntime.InferenceSession(made.SerializeToString(), quiet,
                                               providers=["CPUExecutionProvider"])
    elif runtime == "onnx reference":
        session = onnx.reference.ReferenceEvaluator(made)
    else:
        raise ValueError(f"runtime {runtime!r} is unknown; choose one of {', '.join(RUNTIMES)}")
    name = made.graph.output[-1].name
    h = np.asarray(session.run([name], {_node(made).input[0]: x})[0])[:, 0]
    return {"h": np.concatenate([np.zeros_like(h[:1]), h])}
