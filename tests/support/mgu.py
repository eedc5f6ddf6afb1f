"""A cell that the package does not have, for the tests: the minimal gated unit, whose one gate both
forgets and resets::

    f = s(a_f);  n = act(Wxn x[t] + bn + Whn (f h[t]));  h[t+1] = (1 - f) h[t] + f n

Source: Zhou, Wu, Zhang & Zhou (2016), eq. 6.
"""

import numpy as np

from refnet.cells.common import clip_into
from refnet.cells.gru_before import SIGMOID, Tape
from refnet.maths.numeric import matmul

GATES = ("f", "n")
STATES = 1


def init(hidden):
    return {"bh": np.zeros(2 * hidden)}


def forward(p, x, h0, act, gate=SIGMOID):
    (T, B, D), H = x.shape, p["Whh"].shape[1]
    a = (matmul(x.reshape(T * B, D), p["Wxh"].T) + p["bh"]).reshape(T, B, 2, H)
    v, h = np.empty_like(a), np.empty_like(a, shape=(T + 1, B, H))
    h[0] = h0
    for t in range(T):
        a[t, :, 0] += matmul(h[t], p["Whh"][:H].T)
        f = v[t, :, 0] = gate.forward(a[t, :, 0], p)
        a[t, :, 1] += matmul(f * h[t], p["Whh"][H:].T)
        n = v[t, :, 1] = act.forward(a[t, :, 1], p)
        h[t + 1] = (1 - f) * h[t] + f * n
    return Tape(x, h, a, v)


def backward(p, tape, dh, act, inputs=True, gate=SIGMOID, clip=None):
    """``da_n = act'(a_n) (f e);  ds = da_n Whn;  da_f = s'(a_f) ((n - h) e + h ds)``, and one step
    earlier ``e = dh + (1 - f) e + f ds + da_f Whf``."""
    x, h, a, v = tape
    T, B, _, H = a.shape
    da, e, clipped = np.empty_like(a), np.zeros_like(a, shape=(B, H)), 0
    summed = {name: np.zeros_like(p[name]) for name, *_ in act.start}
    for t in reversed(range(T)):
        if t >= T - len(dh):
            e = e + dh[t - T + len(dh)]
        f, n = v[t, :, 0], v[t, :, 1]
        da[t, :, 1], slopes = act.backward(a[t, :, 1], n, e * f, p)
        clipped += clip_into(da[t, :, 1], clip)
        ds = matmul(da[t, :, 1], p["Whh"][H:])
        da[t, :, 0], _ = gate.backward(a[t, :, 0], f, e * (n - h[t]) + ds * h[t], p)
        clipped += clip_into(da[t, :, 0], clip)
        summed = {name: np.asanyarray(summed[name] + slopes[name]) for name in summed}
        e = e * (1 - f) + ds * f + matmul(da[t, :, 0], p["Whh"][:H])
    rows, past = da.reshape(T * B, 2 * H), h[:-1].reshape(T * B, H)
    reset = (v[:, :, 0] * h[:-1]).reshape(T * B, H)
    grads = {
        "Whh": np.concatenate([matmul(rows[:, :H].T, past), matmul(rows[:, H:].T, reset)]),
        "Wxh": matmul(rows.T, x.reshape(T * B, x.shape[2])),
        "bh": rows.sum(axis=0),
        "h0": e,
        **summed,
    }
    if clip is not None:
        grads["clipped"] = np.asarray(clipped)
    if inputs:
        grads["x"] = matmul(rows, p["Wxh"]).reshape(x.shape)
    return grads
