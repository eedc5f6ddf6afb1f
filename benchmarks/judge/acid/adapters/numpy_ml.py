"""numpy-ml's RNNCell and LSTMCell, step by step (its layers RNN and LSTM cannot be made: see
faults/numpy_ml_layers.py); the read-out and the loss here."""

import collections
import collections.abc

import numpy as np

from benchmarks.judge.acid.head import with_head

collections.Hashable = collections.abc.Hashable  # which it imports from where it was
from numpy_ml.neural_nets.layers import LSTMCell, RNNCell  # noqa: E402

GATES = ("u", "f", "c", "o")
"""Its LSTM's gates in refnet's order."""


def gradients(p, x, y):
    """The loss, the outputs, the states and every gradient, by name."""
    H = p["Whh"].shape[1]
    lstm = len(p["Whh"]) == 4 * H
    cell = (LSTMCell if lstm else RNNCell)(H)
    cell.n_in = x.shape[2]
    cell._init_params()
    if lstm:
        for n, gate in enumerate(GATES):
            at = slice(n * H, (n + 1) * H)
            cell.parameters[f"W{gate}"] = np.hstack([p["Whh"][at], p["Wxh"][at]]).T
            cell.parameters[f"b{gate}"] = p["bh"][None, at]
    else:
        cell.parameters = {
            "Waa": p["Whh"].T,
            "Wax": p["Wxh"].T,
            "ba": np.zeros((H, 1), x.dtype),
            "bx": p["bh"][:, None],
        }
    states = [cell.forward(step) for step in x]
    h = np.stack([state[0] if lstm else state for state in states])
    results, dh = with_head(p, h, y)
    dx = np.stack([cell.backward(step) for step in dh[::-1]])[::-1]
    d = cell.gradients
    if lstm:
        W = np.concatenate([d[f"W{gate}"].T for gate in GATES])
        dWhh, dWxh = W[:, :H], W[:, H:]
        dbh = np.concatenate([d[f"b{gate}"][0] for gate in GATES])
    else:
        dWhh, dWxh, dbh = d["Waa"].T, d["Wax"].T, d["bx"][:, 0]
    h = np.concatenate([np.zeros_like(h[:1]), h])
    return {**results, "h": h, "dx": dx, "dWhh": dWhh, "dWxh": dWxh, "dbh": dbh}
