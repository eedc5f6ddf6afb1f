"""The long short-term memory, with or without peepholes.

The gates are stacked i, f, g, o (input, forget, candidate, output) as in PyTorch::

    i = s(a_i);  f = s(a_f);  g = act(a_g);  c[t+1] = f c[t] + i g
    o = s(a_o);  h[t+1] = o act(c[t+1]);     a = Wxh x[t] + Whh h[t] + bh

Peepholes, if p holds any of "Wpi", "Wpf", "Wpo" (H,), add ``Wpi c[t]`` to a_i, ``Wpf c[t]``
to a_f and ``Wpo c[t+1]`` to a_o: the output gate sees the new cell. A projection, if p holds
"Whr" (P, H), makes the state ``h[t+1] = Whr (o act(c[t+1]))`` of P units; Whh is (4H, P) then.

Source: Hochreiter & Schmidhuber (1997); the forget gate: Gers, Schmidhuber & Cummins (2000);
peepholes: Gers & Schmidhuber (2000), as in the baseline of Vorontsov et al., 3.1.2; projection:
Sak, Senior & Beaufays (2014), eq. 7.
"""

from typing import NamedTuple

import numpy as np

from refnet.batch import Array, Params
from refnet.cells.common import Cotangents, clip_into, dropped, widened
from refnet.maths.activations import ACTIVATIONS, Activation
from refnet.maths.numeric import Number, matmul

__all__ = [
    "CANDIDATE",
    "GATES",
    "OPTIONAL",
    "PEEPHOLES",
    "STATES",
    "Tape",
    "backward",
    "forward",
    "init",
]

GATES = ("i", "f", "g", "o")
CANDIDATE = "g"
STATES = 2
OPTIONAL = PEEPHOLES = ("Wpi", "Wpf", "Wpo")
SIGMOID = ACTIVATIONS["sigmoid"]


def init(hidden: int, forget: float = 1, peepholes: bool = False) -> Params:
    """Start values of the parameters other than Wxh and Whh: bh is zero, except ``forget`` for the
    forget gate (with 1, as in Vorontsov et al., the cell remembers from the start); peepholes, if
    any, are zero.

    >>> init(1)["bh"].tolist()  # i, f, g, o
    [0.0, 1.0, 0.0, 0.0]
    """
    bh = np.zeros(4 * hidden)
    bh[hidden : 2 * hidden] = forget
    return {"bh": bh} | {name: np.zeros(hidden) for name in PEEPHOLES if peepholes}


class Tape(NamedTuple):
    """What the backward pass needs.

    x (T, B, D); states h and c (T + 1, B, H), h (T + 1, B, P) with a projection; pre-activations
    a (T, B, 4, H); the gates' values v (T, B, 4, H); k (T, B, H), ``k[t] = act(c[t+1])``.
    """

    x: Array
    h: Array
    c: Array
    a: Array
    v: Array
    k: Array


def forward(
    p: Params,
    x: Array,
    h0: Array,
    act: Activation,
    gate: Activation = SIGMOID,
    drop: Array | None = None,
) -> Tape:
    """Run the cell over time.

    Shapes: p holds Whh (4H, H), Wxh (4H, D), bh (4H,), perhaps peepholes (H,) and Whr (P, H), and
    the activation's own parameters; x (T, B, D); h0 (2, B, H) = [h[0], c[0]], of whose h[0] the
    first P entries count if there is a projection. ``gate`` is s, the gates' activation;
    ``drop`` as for ``rnn.forward``. Any dtype; the net checks the shapes.

    >>> from refnet.maths.activations import ACTIVATIONS
    >>> p = {"Whh": np.zeros((8, 2)), "Wxh": np.ones((8, 1)), **init(2)}
    >>> tape = forward(p, np.ones((3, 1, 1)), np.zeros((2, 1, 2)), ACTIVATIONS["tanh"])
    >>> tape.h.shape, tape.c.shape
    ((4, 1, 2), (4, 1, 2))

    Checked by: tests/cells/test_cells.py::test_push_equals_pull.
    """
    T, B, D = x.shape
    H, P = len(p["bh"]) // 4, p["Whh"].shape[1]
    a = matmul(x.reshape(T * B, D), p["Wxh"].T).reshape(T, B, 4 * H) + p["bh"]
    dtype = np.result_type(a, p["Whh"], h0)
    a = a.reshape(T, B, 4, H).astype(dtype, copy=False)
    v = np.empty_like(a)
    h, c = (np.empty_like(a, shape=(T + 1, B, width)) for width in (P, H))
    k = np.empty_like(a, shape=(T, B, H))
    h[0], c[0] = h0[0][:, :P], h0[1]
    for t in range(T):
        a[t] = a[t] + matmul(dropped(h[t], drop), p["Whh"].T).reshape(B, 4, H)
        for n, name in enumerate(PEEPHOLES[:2]):
            if name in p:
                a[t, :, n] += p[name] * c[t]
        for n in (0, 1):
            v[t, :, n] = gate.forward(a[t, :, n], p)
        v[t, :, 2] = act.forward(a[t, :, 2], p)
        c[t + 1] = v[t, :, 1] * c[t] + v[t, :, 0] * v[t, :, 2]
        if "Wpo" in p:
            a[t, :, 3] += p["Wpo"] * c[t + 1]
        v[t, :, 3] = gate.forward(a[t, :, 3], p)
        k[t] = act.forward(c[t + 1], p)
        m = v[t, :, 3] * k[t]
        h[t + 1] = matmul(m, p["Whr"].T) if "Whr" in p else m
    return Tape(x, h, c, a, v, k)


def backward(
    p: Params,
    tape: Tape,
    dh: Cotangents,
    act: Activation,
    inputs: bool = True,
    gate: Activation = SIGMOID,
    clip: Number | None = None,
    drop: Array | None = None,
) -> Params:
    """Pull state gradients back through time.

    With e the gradient at h[t+1] and q the gradient at c[t+1], both complete, for t from the
    last to the first::

        da_o = s'(a_o) (k e);   q = q + act'(c[t+1]) (o e) + Wpo da_o
        da_i = s'(a_i) (g q);   da_f = s'(a_f) (c[t] q);   da_g = act'(a_g) (i q)
        e = dh + da Whh;        q = f q + Wpi da_i + Wpf da_f        (one step earlier)

    with ``Whr' e`` in place of e, but in the last line, if there is a projection.
    Shapes: dh (K, B, H) is the direct gradient at the last K states, h[T-K+1] .. h[T], not
    the accumulated one; ``(dh, dc)`` adds dc (B, H), that at the last cell c[T]. Returns the
    gradients of Whh, Wxh, bh, the peepholes, Whr, h0 (2, B, H), the activation's own parameters
    and, if ``inputs``, x (T, B, D). Any dtype. At a kink the derivative is the left-hand one.
    ``clip``: bound of each entry of da[t], as in ``rnn.backward``.

    >>> from refnet.maths.activations import ACTIVATIONS
    >>> tanh, p = ACTIVATIONS["tanh"], {"Whh": np.zeros((8, 2)), "Wxh": np.ones((8, 1)), **init(2)}
    >>> tape = forward(p, np.ones((3, 1, 1)), np.zeros((2, 1, 2)), tanh)
    >>> backward(p, tape, np.ones((1, 1, 2)), tanh)["h0"].shape
    (2, 1, 2)

    Checked by: tests/cells/test_cells.py::test_push_equals_pull.
    """
    dh, dc = dh if isinstance(dh, tuple) else (dh, None)
    x, h, c, a, v, k = tape
    T, B, _, H = a.shape
    first, da = T - len(dh), np.empty_like(a)
    e = np.zeros_like(a, shape=h.shape[1:])
    q = np.zeros_like(a, shape=(B, H)) if dc is None else dc
    dWhr, clipped = np.zeros_like(p["Whr"]) if "Whr" in p else None, 0
    dact: Params = {name: np.zeros_like(p[name]) for name, *_ in act.start}
    for t in reversed(range(T)):
        if t >= first:
            e = e + dh[t - first]
        if dWhr is not None:
            dWhr = dWhr + matmul(e.T, v[t, :, 3] * k[t])
            e = matmul(e, p["Whr"])
        da[t, :, 3], _ = gate.backward(a[t, :, 3], v[t, :, 3], e * k[t], p)
        clipped += clip_into(da[t, :, 3], clip)
        dk, through_k = act.backward(c[t + 1], k[t], e * v[t, :, 3], p)
        q = q + dk
        if "Wpo" in p:
            q = q + p["Wpo"] * da[t, :, 3]
        da[t, :, 0], _ = gate.backward(a[t, :, 0], v[t, :, 0], q * v[t, :, 2], p)
        da[t, :, 1], _ = gate.backward(a[t, :, 1], v[t, :, 1], q * c[t], p)
        da[t, :, 2], through_g = act.backward(a[t, :, 2], v[t, :, 2], q * v[t, :, 0], p)
        dact = {
            name: np.asanyarray(dact[name] + through_k[name] + through_g[name]) for name in dact
        }
        clipped += clip_into(da[t, :, :3], clip)
        q = q * v[t, :, 1]
        for n, name in enumerate(PEEPHOLES[:2]):
            if name in p:
                q = q + p[name] * da[t, :, n]
        e = dropped(matmul(da[t].reshape(B, 4 * H), p["Whh"]), drop)
    rows, h = da.reshape(T * B, 4 * H), dropped(h, drop)
    grads = {
        "Whh": matmul(rows.T, h[:-1].reshape(T * B, h.shape[2])),
        "Wxh": matmul(rows.T, x.reshape(T * B, x.shape[2])),
        "bh": rows.sum(axis=0),
        "h0": np.stack([widened(e, H), q]),
        **dact,
    }
    if dWhr is not None:
        grads["Whr"] = dWhr
    for name, n, seen in zip(PEEPHOLES, (0, 1, 3), (c[:-1], c[:-1], c[1:])):
        if name in p:
            grads[name] = (da[:, :, n] * seen).sum(axis=(0, 1))
    if clip is not None:
        grads["clipped"] = np.asarray(clipped)
    if inputs:
        grads["x"] = matmul(rows, p["Wxh"]).reshape(x.shape)
    return grads
