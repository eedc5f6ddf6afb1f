"""mygrad: its layer gru, which resets before the product, and rnn and lstm of its operations."""

import mygrad as mg
import numpy as np
from mygrad.nnet.activations import sigmoid, tanh
from mygrad.nnet.layers import gru
from mygrad.nnet.losses import softmax_crossentropy


def states_of(p, x):
    """The states (T, B, H)."""
    H = p["Whh"].shape[1]
    z = mg.matmul(x, p["Wxh"].T) + p["bh"]
    h = c = mg.zeros((x.shape[1], H), dtype=x.dtype)
    states = []
    for t in range(len(x)):
        a = z[t] + mg.matmul(h, p["Whh"].T)
        if len(p["Whh"]) == H:
            h = tanh(a)
        else:
            i, f, g, o = (a[:, n * H : (n + 1) * H] for n in range(4))
            c = sigmoid(f) * c + sigmoid(i) * tanh(g)
            h = sigmoid(o) * tanh(c)
        states.append(h)
    return mg.stack(states)


def by_layer(p, x):
    """The same of a gru, by the layer."""
    H = p["Whh"].shape[1]
    r, z, n = (slice(n * H, (n + 1) * H) for n in range(3))
    parts = [part for at in (z, r, n) for part in (p["Wxh"][at].T, p["Whh"][at].T, p["bh"][at])]
    return gru(x, *parts)[1:]


def gradients(p, x, y):
    """The loss, the outputs, the states and every gradient, by name."""
    p, x = {name: mg.tensor(value) for name, value in p.items()}, mg.tensor(x)
    h = (by_layer if p["Whh"].shape[0] == 3 * p["Whh"].shape[1] else states_of)(p, x)
    outputs = mg.matmul(h if y.ndim == 2 else h[-1], p["Why"].T) + p["by"]
    loss = softmax_crossentropy(outputs.reshape(-1, outputs.shape[-1]), y.reshape(-1))
    loss.backward()
    h = np.concatenate([np.zeros_like(h.data[:1]), h.data])
    d = {f"d{name}": value.grad for name, value in {**p, "x": x}.items()}
    return {"loss": loss.data, "outputs": outputs.data, "h": h, **d}
