"""The gated recurrent unit that resets the state before the product, as in the paper.

The gates are stacked r, z, n (reset, update, new)::

    r = s(a_r);  z = s(a_z);  n = act(Wxn x[t] + bn + Whn (r h[t]))
    h[t+1] = (1 - z) n + z h[t];                       a = Wxh x[t] + Whh h[t] + bh

z keeps the old state, as in Cho et al. (2014) and PyTorch (Chung et al. 2014 have 1 - z).
"""

from typing import NamedTuple

import numpy as np

from refnet.batch import Array, Params
from refnet.cells.common import clip_into, dropped
from refnet.maths.activations import ACTIVATIONS, Activation
from refnet.maths.numeric import Number, matmul

__all__ = ["CANDIDATE", "GATES", "OPTIONAL", "STATES", "Tape", "backward", "forward", "init"]

GATES = ("r", "z", "n")
CANDIDATE = "n"
STATES = 1
OPTIONAL: tuple[str, ...] = ()
SIGMOID = ACTIVATIONS["sigmoid"]


def init(hidden: int) -> Params:
    """Start values of the parameters other than Wxh and Whh: all zero.

    >>> {name: value.shape for name, value in init(2).items()}
    {'bh': (6,)}
    """
    return {"bh": np.zeros(3 * hidden)}


class Tape(NamedTuple):
    """What the backward pass needs.

    x (T, B, D); states h (T + 1, B, H); pre-activations a and the gates' values v, both
    (T, B, 3, H).
    """

    x: Array
    h: Array
    a: Array
    v: Array


def forward(
    p: Params,
    x: Array,
    h0: Array,
    act: Activation,
    gate: Activation = SIGMOID,
    drop: Array | None = None,
) -> Tape:
    """Run the cell over time.

    Shapes: p holds Whh (3H, H), Wxh (3H, D), bh (3H,) and the activation's own parameters;
    x (T, B, D); h0 (B, H). ``gate`` is s, the gates' activation; ``drop``
    as for ``rnn.forward``. Any dtype. The net checks the shapes.

    >>> from refnet.maths.activations import ACTIVATIONS
    >>> p = {"Whh": np.zeros((6, 2)), "Wxh": np.ones((6, 1)), **init(2)}
    >>> forward(p, np.ones((3, 1, 1)), np.zeros((1, 2)), ACTIVATIONS["tanh"]).h.shape
    (4, 1, 2)

    Checked by: tests/cells/test_cells.py::test_push_equals_pull.
    """
    T, B, D = x.shape
    H = p["Whh"].shape[1]
    a = matmul(x.reshape(T * B, D), p["Wxh"].T).reshape(T, B, 3 * H) + p["bh"]
    dtype = np.result_type(a, p["Whh"], h0)
    a = a.reshape(T, B, 3, H).astype(dtype)
    v = np.empty_like(a)
    h = np.empty_like(a, shape=(T + 1, B, H))
    h[0] = h0
    gates, new = p["Whh"][: 2 * H], p["Whh"][2 * H :]
    for t in range(T):
        seen = dropped(h[t], drop)
        a[t, :, :2] += matmul(seen, gates.T).reshape(B, 2, H)
        for n in (0, 1):
            v[t, :, n] = gate.forward(a[t, :, n], p)
        r, z = v[t, :, 0], v[t, :, 1]
        a[t, :, 2] += matmul(r * seen, new.T)
        v[t, :, 2] = act.forward(a[t, :, 2], p)
        h[t + 1] = (1 - z) * v[t, :, 2] + z * h[t]
    return Tape(x, h, a, v)


def backward(
    p: Params,
    tape: Tape,
    dh: Array,
    act: Activation,
    inputs: bool = True,
    gate: Activation = SIGMOID,
    clip: Number | None = None,
    drop: Array | None = None,
) -> Params:
    """Pull state gradients back through time.

    With e the complete gradient at h[t+1], for t from the last to the first::

        da_n = act'(a_n) ((1 - z) e);  w = da_n Whn
        da_z = s'(a_z) ((h[t] - n) e); da_r = s'(a_r) (h[t] w)
        e = dh + z e + r w + da_r Whr + da_z Whz                     (one step earlier)

    Shapes and result as for ``gru.backward``, without bhn.

    >>> from refnet.maths.activations import ACTIVATIONS
    >>> tanh, p = ACTIVATIONS["tanh"], {"Whh": np.zeros((6, 2)), "Wxh": np.ones((6, 1)), **init(2)}
    >>> tape = forward(p, np.ones((3, 1, 1)), np.zeros((1, 2)), tanh)
    >>> backward(p, tape, np.ones((1, 1, 2)), tanh)["x"].shape
    (3, 1, 1)

    Checked by: tests/cells/test_cells.py::test_push_equals_pull.
    """
    x, h, a, v = tape
    T, B, _, H = a.shape
    first = T - len(dh)
    da = np.empty_like(a)
    gates, new = p["Whh"][: 2 * H], p["Whh"][2 * H :]
    e = np.zeros_like(a, shape=(B, H))
    clipped = 0
    dact: Params = {name: np.zeros_like(p[name]) for name, *_ in act.start}
    for t in reversed(range(T)):
        if t >= first:
            e = e + dh[t - first]
        r, z, n = v[t, :, 0], v[t, :, 1], v[t, :, 2]
        da[t, :, 2], slopes = act.backward(a[t, :, 2], n, e * (1 - z), p)
        clipped += clip_into(da[t, :, 2], clip)
        w = dropped(matmul(da[t, :, 2], new), drop)
        da[t, :, 1], _ = gate.backward(a[t, :, 1], z, e * (h[t] - n), p)
        da[t, :, 0], _ = gate.backward(a[t, :, 0], r, w * h[t], p)
        clipped += clip_into(da[t, :, :2], clip)
        dact = {name: np.asanyarray(dact[name] + slopes[name]) for name in dact}
        e = e * z + w * r + dropped(matmul(da[t, :, :2].reshape(B, 2 * H), gates), drop)
    rows = da.reshape(T * B, 3 * H)
    h = dropped(h, drop)
    past = h[:-1].reshape(T * B, H)
    reset = (v[:, :, 0] * h[:-1]).reshape(T * B, H)
    grads = {
        "Whh": np.concatenate(
            [matmul(rows[:, : 2 * H].T, past), matmul(rows[:, 2 * H :].T, reset)]
        ),
        "Wxh": matmul(rows.T, x.reshape(T * B, x.shape[2])),
        "bh": rows.sum(axis=0),
        "h0": e,
        **dact,
    }
    if clip is not None:
        grads["clipped"] = np.asarray(clipped)
    if inputs:
        grads["x"] = matmul(rows, p["Wxh"]).reshape(x.shape)
    return grads
