"""ONNX (extra ``onnx``): RNN, LSTM and GRU judged forward, with all their inputs and attributes
(directions, layouts, lengths, initial states, peepholes, clipping).

Source: ONNX operators RNN-22, LSTM-22, GRU-22.
Checked by: tests/check/test_onnx.py.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from refnet.arguments import choice
from refnet.batch import Array, Batch, Params, last_steps
from refnet.check.adapters import asked
from refnet.interop import package
from refnet.interop.onnx_nodes import (
    OPERATORS,
    Proto,
    node_model,
    onnx_package,
    recurrent_node,
    to_onnx,
)
from refnet.nets.stacked import StackedNet, masked, turned

__all__ = ["RUNTIMES", "LayerCase", "layer_model", "layer_results", "results", "views"]

RUNTIMES = ("onnxruntime", "onnx reference")


def _alone(proto: Proto) -> Proto:
    """A model of the recurrent node alone, whose output is the node's Y, all states."""
    onnx = onnx_package()
    node = type(recurrent_node(proto))()
    node.CopyFrom(recurrent_node(proto))
    del node.output[:]
    node.output.append("every_state")
    graph = proto.graph
    (x,) = (entry for entry in graph.input if entry.name == node.input[0])
    alone = onnx.helper.make_graph(
        [node],
        graph.name,
        [x],
        [onnx.helper.make_tensor_value_info("every_state", x.type.tensor_type.elem_type, None)],
        [entry for entry in graph.initializer if entry.name in node.input[1:]],
    )
    return onnx.helper.make_model(
        alone, opset_imports=proto.opset_import, ir_version=proto.ir_version
    )


def session_run(proto: Proto, names: list[str], feeds: Params, runtime: str) -> list[Array]:
    """The named outputs of a model, as a runtime computes them."""
    choice("runtime", runtime, RUNTIMES)
    onnx = onnx_package()
    if runtime == "onnxruntime":
        onnxruntime = package("onnxruntime", "onnx")
        quiet = onnxruntime.SessionOptions()
        quiet.log_severity_level = 4  # a refusal is raised, not printed
        start = partial(
            onnxruntime.InferenceSession,
            proto.SerializeToString(),
            quiet,
            providers=["CPUExecutionProvider"],
        )
    else:
        start = partial(onnx.reference.ReferenceEvaluator, proto)
    with asked():
        values = start().run(names, feeds)
    return [np.asarray(value) for value in values]


def results(proto: Proto, x: Array, runtime: str) -> Params:
    """The states h (T + 1, B, H) that a runtime computes, by refnet's names."""
    proto = _alone(proto)
    h = session_run(proto, ["every_state"], {recurrent_node(proto).input[0]: x}, runtime)[0][:, 0]
    return {"h": np.concatenate([np.zeros_like(h[:1]), h])}


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

    @property
    def outputs(self) -> list[str]:
        """The names of the node's outputs."""
        return ["Y", "Y_h", *(["Y_c"] if OPERATORS[self.net.cell] == "LSTM" else [])]

    @property
    def lengths(self) -> Array:
        """The number of steps of each sequence, (B,)."""
        x, mask = self.batch.x, self.batch.mask
        return np.full(x.shape[1], len(x)) if mask is None else last_steps(mask)

    def in_time(self, values: Array, suffix: str = "") -> Array:
        """Steps in the order in which the operator has them, from the order of a cell's run."""
        return turned(values, self.lengths, "_reverse" if self.direction == "reverse" else suffix)


def layer_model(case: LayerCase) -> Proto:
    """The ONNX model of a case."""
    weights = to_onnx(case.net, case.params, case.batch)
    options: dict[str, Any] = {"direction": case.direction}
    if case.layout:
        options["layout"] = 1
        weights |= {
            name: value.swapaxes(0, 1)
            for name, value in weights.items()
            if name.startswith("initial")
        }
    return node_model(case.net, weights, case.outputs, options)


def layer_results(case: LayerCase, runtime: str) -> Params:
    """Y, Y_h and, of an LSTM, Y_c, time-major, as a runtime computes them."""
    x = case.in_time(case.batch.x)
    feeds = {"X": x.swapaxes(0, 1) if case.layout else x}
    values = dict(zip(case.outputs, session_run(layer_model(case), case.outputs, feeds, runtime)))
    if case.layout:
        return {
            name: np.moveaxis(value, (1, 2, 0), (0, 1, 2)) if name == "Y" else value.swapaxes(0, 1)
            for name, value in values.items()
        }
    return values


def views(case: LayerCase, states: Params) -> Params:
    """Y (T, N, B, H), Y_h and Y_c (N, B, H) of N directions, from arrays by the states' names."""
    suffixes, steps = tuple(case.net.every_cell), case.lengths
    every = [masked(case.in_time(states[f"h{suffix}"][1:], suffix), steps) for suffix in suffixes]
    values = {"Y": np.stack(every, axis=1)}
    for name in case.outputs[1:]:
        ends = [states[f"{name[-1]}{suffix}"][steps, np.arange(len(steps))] for suffix in suffixes]
        values[name] = np.stack(ends)
    return values
