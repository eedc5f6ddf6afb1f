"""ONNX's operators RNN, LSTM and GRU with all their inputs and attributes, judged forward (extra
``onnx``): directions, layouts, lengths, initial states, peepholes, clipping, activations.

Source: ONNX operators RNN-22, LSTM-22, GRU-22. Checked by: tests/check/test_onnx_layers.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from refnet.batch import Array, Batch, Params, last_steps
from refnet.check.adapters.onnx_nets import ACTIVATIONS, OPERATORS, _onnx, session_run
from refnet.check.cases import random_batch, random_mask, random_params, with_drawn
from refnet.maths.activations import Activation
from refnet.maths.numeric import constant, nonpositive, tanh, times
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet, kept, turned

__all__ = ["LayerCase", "cases", "layer_model", "layer_results", "views"]

ORDER = {
    "rnn": (0,),
    "lstm": (0, 3, 1, 2),
    "cifg": (0, 2, 0, 1),
    "gru": (1, 0, 2),
    "gru_before": (1, 0, 2),
}
"""The gates as ONNX stacks them. With input_forget it reads no forget gate: that of i stands
there."""


def _affine(alpha: float, beta: float) -> Activation:
    return Activation(
        "Affine",
        lambda a, p, _: times(alpha, a) + constant(beta, a),
        lambda a, h, dh, p, _: (times(alpha, dh), {}),
    )


def _scaled_tanh(alpha: float, beta: float) -> Activation:
    def pull(a: Array, h: Array, dh: Array, p: Params, _: float) -> tuple[Array, Params]:
        t = tanh(times(beta, a))
        return times(alpha * beta, dh * (1 - t * t)), {}

    return Activation("ScaledTanh", lambda a, p, _: times(alpha, tanh(times(beta, a))), pull)


def _hard_sigmoid(alpha: float, beta: float) -> Activation:
    def value(a: Array, p: Params, _: float) -> Array:
        u = times(alpha, a) + constant(beta, a)
        return np.where(nonpositive(u), 0, np.where(nonpositive(1 - u), 1, u))

    def pull(a: Array, h: Array, dh: Array, p: Params, _: float) -> tuple[Array, Params]:
        u = times(alpha, a) + constant(beta, a)
        return np.where(nonpositive(u) | nonpositive(1 - u), 0, times(alpha, dh)), {}

    return Activation("HardSigmoid", value, pull)


CONSTANTS: dict[str, tuple[float, ...]] = {
    "Affine": (0.75, 0.125),
    "ScaledTanh": (0.875, 0.75),
    "HardSigmoid": (0.25, 0.5),
    "leaky_relu": (0.125,),
    "elu": (0.75,),
}
"""alpha, and beta if there is one; none is the operator's default, and all are exact in float32."""
NAMES = {**ACTIVATIONS, "identity": "Affine", "leaky_relu": "LeakyRelu", "elu": "Elu"}


def _activation(name: str) -> Activation | str:
    made = {"Affine": _affine, "ScaledTanh": _scaled_tanh, "HardSigmoid": _hard_sigmoid}
    if name in made:
        return made[name](*CONSTANTS[name])
    if name in CONSTANTS:
        from refnet.maths.activations import activation

        return activation(name, CONSTANTS[name][0])
    return name


@dataclass(frozen=True)
class LayerCase:
    """One node: what it is, what it computes, and how. ``direction`` as ONNX says it; x is given
    to the net in its own time."""

    what: str
    net: StackedNet
    params: Params
    batch: Batch
    direction: str = "forward"
    layout: int = 0


def _stacked(value: Array, net: StackedNet) -> Array:
    """The gates' blocks in ONNX's order."""
    blocks = np.split(value, len(net.gates))
    return np.concatenate([blocks[n] for n in ORDER[net.cell]])


def _weights(case: LayerCase) -> Params:
    """X's companions by the names of ONNX's inputs: those that are given."""
    net, H, B = case.net, case.net.hidden, case.batch.x.shape[1]
    found: dict[str, list[Array]] = {
        name: [] for name in ("W", "R", "B", "initial_h", "initial_c", "P")
    }
    for suffix in net.every_cell:
        own = net.of(case.params, suffix)
        second = own.get(
            "bhh", np.zeros_like(own["bh"][: 2 * H] if net.cell == "gru" else own["bh"])
        )
        if net.cell == "gru":
            second = np.concatenate([second, own["bhn"]])
        found["W"].append(_stacked(own["Wxh"], net))
        found["R"].append(_stacked(own["Whh"], net))
        found["B"].append(np.concatenate([_stacked(own["bh"], net), _stacked(second, net)]))
        if "h0" in own:
            h0 = (
                np.broadcast_to(own["h0"], (own["h0"].shape[0], B, H))
                if own["h0"].ndim == 3
                else own["h0"]
            )
            found["initial_h"].append(h0[0] if h0.ndim == 3 else h0)
            if h0.ndim == 3:
                found["initial_c"].append(h0[1])
        if "Wpo" in own:
            found["P"].append(np.concatenate([own["Wpi"], own["Wpo"], own.get("Wpf", own["Wpi"])]))
    weights = {name: np.stack(values) for name, values in found.items() if values}
    if case.layout:
        weights |= {
            name: weights[name].swapaxes(0, 1)
            for name in ("initial_h", "initial_c")
            if name in weights
        }
    if case.batch.mask is not None:
        weights["sequence_lens"] = last_steps(case.batch.mask).astype(np.int32)
    return weights


def layer_model(case: LayerCase) -> Any:
    """The ONNX model of one node; all but X is constant."""
    onnx, net = _onnx(), case.net
    weights = _weights(case)
    lstm = OPERATORS.get(net.cell, "LSTM") == "LSTM"
    order = ["W", "R", "B", "sequence_lens", "initial_h", *(["initial_c", "P"] if lstm else [])]
    inputs = ["X", *(name if name in weights else "" for name in order)]
    plain: RecurrentNet = net  # mypy takes the fields of a subclass for what may be assigned
    act, gate = (NAMES.get(name, name) for name in (plain.activation.name, plain.gate.name))
    kinds = {1: [act], 2: [gate, act], 3: [gate, act, act]}[
        1 if net.cell == "rnn" else 3 if lstm else 2
    ]
    kinds = kinds * len(net.every_cell)
    back = {shown: name for name, shown in NAMES.items()} | {"Affine": "Affine"}
    constants = [CONSTANTS.get(back.get(kind, kind), ()) for kind in kinds]
    options: dict[str, Any] = {
        "hidden_size": net.hidden,
        "direction": case.direction,
        "activations": kinds,
        **({"layout": 1} if case.layout else {}),
        **({"clip": float(net.clip_forward)} if net.clip_forward is not None else {}),
        **({"input_forget": 1} if net.cell == "cifg" else {}),
        **({"linear_before_reset": int(net.cell == "gru")} if net.cell.startswith("gru") else {}),
        **({"activation_alpha": [each[0] for each in constants if each]} if any(constants) else {}),
        **(
            {"activation_beta": [each[1] for each in constants if len(each) > 1]}
            if any(len(each) > 1 for each in constants)
            else {}
        ),
    }
    outputs = ["Y", "Y_h", *(["Y_c"] if lstm else [])]
    kind = onnx.helper.np_dtype_to_tensor_dtype(case.batch.x.dtype)
    node = onnx.helper.make_node(OPERATORS.get(net.cell, "LSTM"), inputs, outputs, **options)
    graph = onnx.helper.make_graph(
        [node],
        "layer",
        [onnx.helper.make_tensor_value_info("X", kind, [None, None, net.inputs])],
        [
            onnx.helper.make_tensor_value_info(name, kind, [None] * (4 if name == "Y" else 3))
            for name in outputs
        ],
        [
            onnx.numpy_helper.from_array(np.ascontiguousarray(value), name)
            for name, value in weights.items()
        ],
    )
    made = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 22)], ir_version=10
    )
    onnx.checker.check_model(made)
    return made


def _own_time(case: LayerCase, values: Array, suffix: str) -> Array:
    x = case.batch
    steps = np.full(x.x.shape[1], len(x.x)) if x.mask is None else last_steps(x.mask)
    return turned(values, steps, "_reverse" if case.direction == "reverse" else suffix)


def layer_results(case: LayerCase, runtime: str) -> Params:
    """Y, Y_h and, of an LSTM, Y_c, time-major, as a runtime computes them."""
    x = _own_time(case, case.batch.x, "")
    made = layer_model(case)
    names = [entry.name for entry in made.graph.output]
    found = session_run(made, names, {"X": x.swapaxes(0, 1) if case.layout else x}, runtime)
    results: Params = dict(zip(names, found))
    if case.layout:
        results = {
            name: np.moveaxis(value, (1, 2, 0), (0, 1, 2)) if name == "Y" else value.swapaxes(0, 1)
            for name, value in results.items()
        }
    return results


def views(case: LayerCase, states: Params) -> Params:
    """Y (T, N, B, H), Y_h and Y_c (N, B, H) of N directions, from arrays by the states' names."""
    B = case.batch.x.shape[1]
    mask = case.batch.mask
    steps = np.full(B, len(case.batch.x)) if mask is None else last_steps(mask)
    suffixes = tuple(case.net.every_cell)
    found = {
        "Y": np.stack(
            [kept(_own_time(case, states[f"h{suffix}"][1:], suffix), steps) for suffix in suffixes],
            axis=1,
        )
    }
    for name, state in (("Y_h", "h"), ("Y_c", "c")):
        if f"{state}{suffixes[0]}" in states:
            found[name] = np.stack(
                [states[f"{state}{suffix}"][steps, np.arange(B)] for suffix in suffixes]
            )
    return found


KINDS: dict[str, dict[str, Any]] = {
    "RNN": {"cell": "rnn"},
    "LSTM": {"cell": "lstm"},
    "LSTM input_forget": {"cell": "cifg"},
    "GRU linear_before_reset=1": {"cell": "gru"},
    "GRU": {"cell": "gru_before"},
}
VARIANTS = ("", "layout 1", "clip", "sequence_lens", "initial states", "two biases", "peepholes")


def cases(
    dtype: Any, sizes: tuple[int, int, int] = (6, 4, 3), seed: int = 0
) -> Iterator[LayerCase]:
    """Every operator in every direction and form, then every activation. ``sizes``: T, H, B."""
    turn = 0
    make = partial(_case, dtype, sizes)
    for (name, options), direction, variant in product(
        KINDS.items(), ("forward", "reverse", "bidirectional"), VARIANTS
    ):
        if variant == "peepholes" and options["cell"] not in ("lstm", "cifg"):
            continue
        turn += 1
        yield make([seed, turn], name, direction, variant, options)
    for name in ("relu", "sigmoid", "softsign", "leaky_relu", "elu", *list(CONSTANTS)[:3]):
        for kind, cell in (("RNN", "rnn"), ("LSTM", "lstm"), ("GRU", "gru_before")):
            turn += 1
            yield make(
                [seed, turn],
                f"{kind} {NAMES.get(name, name)}",
                "forward",
                "",
                {"cell": cell, "activation": _activation(name)},
            )
    yield make(
        [seed, 0],
        "LSTM, gates HardSigmoid",
        "bidirectional",
        "",
        {"cell": "lstm", "gate": _activation("HardSigmoid")},
    )


def _case(
    dtype: Any,
    sizes: tuple[int, int, int],
    seed: list[int],
    name: str,
    direction: str,
    variant: str,
    options: dict[str, Any],
) -> LayerCase:
    T, H, B = sizes
    both = direction == "bidirectional"
    net = StackedNet(
        3,
        H,
        (1 + both) * H,
        **options,
        readout="none",
        loss="none",
        reduction="sum",
        bidirectional=both,
        clip_forward=0.5 if variant == "clip" else None,
    )
    rng = np.random.default_rng(seed)
    params, batch = random_params(net, rng, dtype), random_batch(net, rng, dtype, T, B)
    added = {"initial states": ("h0",), "two biases": ("bhh",), "peepholes": ("Wp",)}
    params = with_drawn(net, params, added.get(variant, ()), rng, B)
    if variant == "sequence_lens":
        batch = batch._replace(mask=random_mask(rng, T, B))
    what = ", ".join(filter(None, (name, direction, variant)))
    return LayerCase(what, net, params, batch, direction, int(variant == "layout 1"))
