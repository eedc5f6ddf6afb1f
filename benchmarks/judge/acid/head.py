"""The read-out and the loss for layers that come without: hand-written, in the layers' type."""

import numpy as np

from refnet.batch import Array, Params


def with_head(p: Params, h: Array, y: Array) -> tuple[Params, Array]:
    """Of the states h (T, B, H): the loss, the outputs and the gradients of the mean
    cross-entropy in Why and by, by name; and dh (T, B, H)."""
    rows = h if y.ndim == 2 else h[-1:]
    outputs = rows @ p["Why"].T + p["by"]
    shifted = outputs - outputs.max(axis=-1, keepdims=True)
    total = np.exp(shifted).sum(axis=-1, keepdims=True)
    labels = np.arange(outputs.shape[-1]) == y.reshape(rows.shape[:2])[..., None]
    d = np.asarray((np.exp(shifted) / total - labels) / y.size, h.dtype)
    dh = np.zeros_like(h)
    dh[-len(rows) :] = d @ p["Why"]
    return {
        "loss": (np.log(total) - shifted)[labels].mean(),
        "outputs": outputs.reshape(*y.shape, -1),
        "dWhy": np.einsum("tbc,tbh->ch", d, rows),
        "dby": d.sum(axis=(0, 1)),
    }, dh
