"""thinc's LSTM, on its NumpyOps; the read-out and the loss here."""

import numpy as np
from thinc.api import LSTM
from thinc.types import Padded

from benchmarks.judge.acid.head import with_head

ORDER = (1, 0, 3, 2)
"""Its gates f, i, o, c from refnet's i, f, g, o, and back."""


def blocks(value):
    """The gates' rows in the other order."""
    parts = np.split(value, 4)
    return np.concatenate([parts[n] for n in ORDER])


def padded(data):
    """Sequences (T, B, D) of full length."""
    T, B, _ = data.shape
    return Padded(data, np.full(T, B, "i"), np.full(B, T, "i"), np.arange(B, dtype="i"))


def gradients(p, x, y):
    """The loss, the outputs, the states and every gradient, by name."""
    (rows, H), D = p["Whh"].shape, x.shape[2]
    layer = LSTM(H, D)
    layer.initialize()
    parts = [blocks(p["Wxh"]), blocks(p["bh"]), blocks(p["Whh"]), np.zeros(rows, "f")]
    layer.set_param("LSTM", np.concatenate([part.ravel() for part in parts]))
    states, back = layer(padded(x), is_train=True)
    h = states.data.copy()
    results, dh = with_head(p, h, y)
    dx = back(padded(dh)).data
    sizes = np.cumsum([part.size for part in parts])
    dWxh, dbh, dWhh, _ = np.split(layer.get_grad("LSTM"), sizes[:-1])
    return {
        **results,
        "h": np.concatenate([np.zeros_like(h[:1]), h]),
        "dx": dx,
        "dWxh": blocks(dWxh.reshape(rows, D)),
        "dWhh": blocks(dWhh.reshape(rows, H)),
        "dbh": blocks(dbh),
    }
