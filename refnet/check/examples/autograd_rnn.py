"""A tanh recurrent net of one layer, read at its last step, in autograd, for the judge:

    refnet check function mine.py:gradients

It gets p, a dict of NumPy arrays with Whh (H, H), Wxh (H, D), bh (H,), Why (C, H) and by (C,); x
(T, B, D); y (B,), classes; no mask; and returns what it computed by name. If yours computes
another net, options such as --cell and --layers say which.
"""

import autograd.numpy as np
from autograd import grad


def forward(p, x):
    """The outputs."""
    h = np.zeros((x.shape[1], len(p["bh"])), x.dtype)
    for step in x:
        h = np.tanh(np.dot(step, p["Wxh"].T) + np.dot(h, p["Whh"].T) + p["bh"])
    return np.dot(h, p["Why"].T) + p["by"]


def loss_of(p, x, y):
    """The mean cross-entropy."""
    outputs = forward(p, x)
    shifted = outputs - outputs.max(axis=1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return -np.mean(logs[np.arange(len(y)), y])


def gradients(p, x, y):
    """The loss, the outputs and every gradient, by name."""
    dp, dx = grad(loss_of, 0)(p, x, y), grad(loss_of, 1)(p, x, y)
    return {
        "loss": loss_of(p, x, y),
        "outputs": forward(p, x),
        "dx": dx,
        **{f"d{name}": value for name, value in dp.items()},
    }
