"""The ONNX model of a layer, for runtimes."""

import numpy as np

from refnet.batch import Array, Params
from refnet.interop import onnx_nodes
from refnet.nets.recurrent import RecurrentNet


def model_of(p: Params, x: Array) -> bytes:
    """The model of one node with these weights: X (T, B, D) to Y (T, 1, B, H)."""
    (rows, H), C = p["Whh"].shape, len(p["by"])
    cell = {1: "rnn", 3: "gru" if "bhn" in p else "gru_before", 4: "lstm"}[rows // H]
    net = RecurrentNet(x.shape[2], H, C, cell=cell)
    content: bytes = onnx_nodes.model(net, p, x.dtype.type).SerializeToString()
    return content


def with_start(Y: Array) -> Params:
    """The states by their name, from Y."""
    h = np.asarray(Y)[:, 0]
    return {"h": np.concatenate([np.zeros_like(h[:1]), h])}
