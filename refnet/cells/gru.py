"""The gated recurrent unit that resets after the product, as PyTorch's does.

The gates are stacked r, z, n (reset, update, new) as in PyTorch::

    r = s(a_r);  z = s(a_z);  n = act(Wxn x[t] + bn + r u);  u = Whn h[t] + bhn
    h[t+1] = (1 - z) n + z h[t];                             a = Wxh x[t] + Whh h[t] + bh

``gru_before`` resets the state before the product, as the paper does.
Source: Cho et al. (2014); reset after: cuDNN, PyTorch.
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
    {'bh': (6,), 'bhn': (2,)}
    """
    return {"bh": np.zeros(3 * hidden), "bhn": np.zeros(hidden)}


class Tape(NamedTuple):
    """What the backward pass needs.

    x (T, B, D); states h (T + 1, B, H); pre-activations a and the gates' values v, both
    (T, B, 3, H); u (T, B, H), what the reset gate multiplies.
    """

    x: Array
    h: Array
    a: Array
    v: Array
    u: Array


def forward(
    p: Params,
    x: Array,
    h0: Array,
    act: Activation,
    gate: Activation = SIGMOID,
    drop: Array | None = None,
) -> Tape:
    """Run the cell over time.

    Shapes: p holds Whh (3H, H), Wxh (3H, D), bh (3H,), bhn (H,) and the activation's own
    parameters; x (T, B, D); h0 (B, H). ``gate`` is s, the gates' activation; ``drop``
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
    a = a.reshape(T, B, 3, H).astype(dtype, copy=False)
    v = np.empty_like(a)
    u = np.empty_like(a, shape=(T, B, H))
    h = np.empty_like(a, shape=(T + 1, B, H))
    h[0] = h0
    for t in range(T):
        recurrent = matmul(dropped(h[t], drop), p["Whh"].T).reshape(B, 3, H)
        a[t, :, :2] += recurrent[:, :2]
        u[t] = recurrent[:, 2] + p["bhn"]
        for n in (0, 1):
            v[t, :, n] = gate.forward(a[t, :, n], p)
        r, z = v[t, :, 0], v[t, :, 1]
        a[t, :, 2] += r * u[t]
        v[t, :, 2] = act.forward(a[t, :, 2], p)
        h[t + 1] = (1 - z) * v[t, :, 2] + z * h[t]
    return Tape(x, h, a, v, u)


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

        da_n = act'(a_n) ((1 - z) e);  da_z = s'(a_z) ((h[t] - n) e);  da_r = s'(a_r) (u da_n)
        e = dh + z e + [da_r, da_z, r da_n] Whh                      (one step earlier)

    Shapes: dh (K, B, H) is the direct gradient at the last K states, h[T-K+1] .. h[T], not
    the accumulated one. Returns the gradients of Whh, Wxh, bh, bhn, h0 (B, H), the
    activation's own parameters and, if ``inputs``, x (T, B, D). Any dtype. At a kink the
    derivative is the left-hand one. ``clip``: bound of each entry of da[t], as in
    ``rnn.backward``.

    >>> from refnet.maths.activations import ACTIVATIONS
    >>> tanh, p = ACTIVATIONS["tanh"], {"Whh": np.zeros((6, 2)), "Wxh": np.ones((6, 1)), **init(2)}
    >>> tape = forward(p, np.ones((3, 1, 1)), np.zeros((1, 2)), tanh)
    >>> backward(p, tape, np.ones((1, 1, 2)), tanh)["bhn"].shape
    (2,)

    Checked by: tests/cells/test_cells.py::test_push_equals_pull.
    """
    x, h, a, v, u = tape
    T, B, _, H = a.shape
    first = T - len(dh)
    da = np.empty_like(a)
    recurrent = np.empty_like(a)
    e = np.zeros_like(a, shape=(B, H))
    clipped = 0
    dact: Params = {name: np.zeros_like(p[name]) for name, *_ in act.start}
    for t in reversed(range(T)):
        if t >= first:
            e = e + dh[t - first]
        r, z, n = v[t, :, 0], v[t, :, 1], v[t, :, 2]
        da[t, :, 2], slopes = act.backward(a[t, :, 2], n, e * (1 - z), p)
        clipped += clip_into(da[t, :, 2], clip)
        da[t, :, 1], _ = gate.backward(a[t, :, 1], z, e * (h[t] - n), p)
        da[t, :, 0], _ = gate.backward(a[t, :, 0], r, da[t, :, 2] * u[t], p)
        clipped += clip_into(da[t, :, :2], clip)
        dact = {name: np.asanyarray(dact[name] + slopes[name]) for name in dact}
        recurrent[t, :, :2] = da[t, :, :2]
        recurrent[t, :, 2] = da[t, :, 2] * r
        e = e * z + dropped(matmul(recurrent[t].reshape(B, 3 * H), p["Whh"]), drop)
    rows = da.reshape(T * B, 3 * H)
    h = dropped(h, drop)
    grads = {
        "Whh": matmul(recurrent.reshape(T * B, 3 * H).T, h[:-1].reshape(T * B, H)),
        "Wxh": matmul(rows.T, x.reshape(T * B, x.shape[2])),
        "bh": rows.sum(axis=0),
        "bhn": recurrent[:, :, 2].sum(axis=(0, 1)),
        "h0": e,
        **dact,
    }
    if clip is not None:
        grads["clipped"] = np.asarray(clipped)
    if inputs:
        grads["x"] = matmul(rows, p["Wxh"]).reshape(x.shape)
    return grads
