"""ONNX (extra ``onnx``): RNN, LSTM and GRU judged forward, with all their inputs and attributes
(directions, layouts, lengths, initial states, peepholes, clipping).

Source: ONNX operators RNN-22, LSTM-22, GRU-22.
Checked by: tests/check/test_onnx.py.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from refnet.batch import Array, Batch, Params, last_steps
from refnet.check.adapters import asked
from refnet.common.arguments import choice
from refnet.interop import onnx_nodes, package
from refnet.interop.onnx_nodes import OPERATORS, Layer, Proto, node_model, onnx_package, to_onnx
from refnet.nets.stacked import StackedNet

__all__ = [
    "RUNTIMES",
    "LayerCase",
    "layer_model",
    "layer_results",
    "results",
    "session_run",
    "views",
]

RUNTIMES = ("onnxruntime", "onnx reference")


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
    """The states h (T + 1, B, H) that a runtime computes of ``onnx_nodes.model``, by refnet's
    names."""
    h = session_run(proto, ["Y"], {"X": x}, runtime)[0][:, 0]
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

    @property
    def layer(self) -> Layer:
        """The node."""
        return Layer(self.net, self.params, self.direction, self.layout)


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
    x = onnx_nodes.in_time(case.layer, case.batch.x, case.lengths)
    feeds = {"X": x.swapaxes(0, 1) if case.layout else x}
    values = dict(zip(case.outputs, session_run(layer_model(case), case.outputs, feeds, runtime)))
    if case.layout:
        return {
            name: np.moveaxis(value, (1, 2, 0), (0, 1, 2)) if name == "Y" else value.swapaxes(0, 1)
            for name, value in values.items()
        }
    return values


def views(case: LayerCase, states: Params) -> Params:
    """Y, Y_h and of an LSTM Y_c, time-major, from arrays by the states' names."""
    return onnx_nodes.views(case.layer, states, case.lengths)
