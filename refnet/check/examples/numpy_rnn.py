"""A tanh recurrent net of one layer, read at its last step, in NumPy, for the judge:

    refnet check function mine.py:gradients

It gets p, a dict with Whh (H, H), Wxh (H, D), bh (H,), Why (C, H) and by (C,); x (T, B, D); y
(B,), classes; no mask; and returns what it computed by name. If yours computes another net,
options such as --cell and --layers say which.
"""

import numpy as np


def gradients(p, x, y):
    """The loss, the outputs and every gradient, by name."""
    T, B, _ = x.shape
    h = np.zeros((T + 1, B, len(p["bh"])), x.dtype)
    for t in range(T):
        h[t + 1] = np.tanh(x[t] @ p["Wxh"].T + h[t] @ p["Whh"].T + p["bh"])
    outputs = h[T] @ p["Why"].T + p["by"]
    shifted = outputs - outputs.max(axis=1, keepdims=True)
    total = np.exp(shifted).sum(axis=1)
    rows = np.arange(B)
    loss = (np.log(total) - shifted[rows, y]).mean()

    doutputs = np.exp(shifted) / total[:, None]
    doutputs[rows, y] -= 1
    doutputs /= B
    dh = doutputs @ p["Why"]
    da = np.zeros_like(h[1:])
    for t in reversed(range(T)):
        da[t] = dh * (1 - h[t + 1] ** 2)
        dh = da[t] @ p["Whh"]
    return {
        "loss": loss,
        "outputs": outputs,
        "h": h,
        "dx": da @ p["Wxh"],
        "dWhh": np.einsum("tbi,tbj->ij", da, h[:-1]),
        "dWxh": np.einsum("tbi,tbj->ij", da, x),
        "dbh": da.sum(axis=(0, 1)),
        "dWhy": doutputs.T @ h[T],
        "dby": doutputs.sum(axis=0),
    }
