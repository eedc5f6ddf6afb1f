"""The ONNX model of a layer, for runtimes."""

import numpy as np

from refnet.batch import Array, Params
from refnet.interop import onnx_nodes
from refnet.nets.recurrent import RecurrentNet


def model_of(p: Params, x: Array) -> bytes:
    """The model of one node with these weights: X (T, B, D) to Y (T, 1, B, H). The activations are
    the operator's default ones and are not named, because some runtimes refuse names."""
    (rows, H), C = p["Whh"].shape, len(p["by"])
    cell = {1: "rnn", 3: "gru" if "bhn" in p else "gru_before", 4: "lstm"}[rows // H]
    net = RecurrentNet(x.shape[2], H, C, cell=cell)
    model = onnx_nodes.model(net, p, x.dtype.type)
    (node,) = model.graph.node
    for attribute in [entry for entry in node.attribute if entry.name == "activations"]:
        node.attribute.remove(attribute)
    content: bytes = model.SerializeToString()
    return content


def with_start(Y: Array) -> Params:
    """The states by their name, from Y."""
    h = np.asarray(Y)[:, 0]
    return {"h": np.concatenate([np.zeros_like(h[:1]), h])}
