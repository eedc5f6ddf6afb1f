"""ONNX (extra ``onnx``): RNN, LSTM and GRU judged forward, with all their inputs and attributes
(directions, layouts, lengths, initial states, peepholes, clipping).

Source: ONNX operators RNN-22, LSTM-22, GRU-22.
Checked by: tests/check/test_onnx.py.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from refnet.batch import Array, Batch, Params
from refnet.check.adapters import framework_errors
from refnet.common.arguments import choice
from refnet.interop import package
from refnet.interop.onnx_nodes import OPERATORS, Proto, node_model, onnx_package, to_onnx
from refnet.nets.stacked import StackedNet

__all__ = ["RUNTIMES", "LayerCase", "layer_model", "results", "session_run"]

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
    with framework_errors():
        values = start().run(names, feeds)
    return [np.asarray(value) for value in values]


def results(proto: Proto, x: Array, runtime: str) -> Params:
    """The states h (T + 1, B, H) that a runtime computes of ``onnx_nodes.model``, by refnet's
    names."""
    h = session_run(proto, ["Y"], {"X": x}, runtime)[0][:, 0]
    return {"h": np.concatenate([np.zeros_like(h[:1]), h])}


@dataclass(frozen=True)
class LayerCase:
    """One node: what it is, what it computes, and how. ``direction`` as ONNX says it."""

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
    def feeds(self) -> Params:
        """The model's inputs."""
        x = self.batch.x
        return {"X": x.swapaxes(0, 1) if self.layout else x}


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
