"""The four cells, forward and backward, with the places of ``refnet.check.naive``."""

from collections.abc import Callable
from typing import Any

import numpy as np

from refnet.batch import Array, Params
from refnet.check.naive.base import Pass

__all__ = ["CELLS", "PEEPHOLES"]

PEEPHOLES = {"Wpi": 0, "Wpf": 1, "Wpo": 3}
"""The gates that peepholes belong to."""
Step = tuple[Params, Array, Array, Any]


def _rnn(s: Pass) -> Array:
    a = s.linear([(s.x[s.t], s.p["Wxh"]), (s.at("old", s.h[s.t]), s.p["Whh"])], s.p["bh"])
    s.a.append(s.at("a", a))
    return np.asarray(s.act(s.a[-1]))


def _rnn_back(s: Pass) -> Step:
    da = s.at("da", s.clipped(s.act_pull(s.a[s.t], s.h[s.t + 1], s.e)))
    return {}, da, s.at("rec", da), 0


def _lstm(s: Pass) -> Array:
    p, c = s.p, s.c[s.t]
    a = s.linear([(s.x[s.t], p["Wxh"]), (s.at("old", s.h[s.t]), p["Whh"])], p["bh"])
    a = s.at("a", a.reshape(len(a), 4, -1))
    for name, n in list(PEEPHOLES.items())[:2]:
        if name in p:
            a[:, n] += p[name] * c
    v = np.stack([s.sigmoid(a[:, 0]), s.sigmoid(a[:, 1]), s.act(a[:, 2]), 0 * c], axis=1)
    new = v[:, 1] * c + v[:, 0] * v[:, 2]
    s.c.append(new)
    if "Wpo" in p:
        a[:, 3] += p["Wpo"] * s.at("peep", new)
    v[:, 3] = s.at("o", s.sigmoid(a[:, 3]))
    k = s.act(new)
    s.a.append(a)
    s.v.append(v)
    s.k.append(k)
    return np.asarray(v[:, 3] * k)


def _lstm_back(s: Pass) -> Step:
    p, t, e = s.p, s.t, s.e
    a, (i, f, g, o), k, c = s.a[t], s.v[t].swapaxes(0, 1), s.k[t], s.c[t]
    da = np.zeros_like(a)
    da[:, 3] = s.sigmoid_pull(a[:, 3], o, k * e)
    s.da = da = s.clipped(da)
    q = s.q + s.act_pull(s.c[t + 1], k, o * e)
    if "Wpo" in p:
        q = q + p["Wpo"] * da[:, 3]
    s.full = q = s.at("q", q)
    da[:, 0] = s.sigmoid_pull(a[:, 0], i, g * q)
    da[:, 1] = s.sigmoid_pull(a[:, 1], f, c * q)
    da[:, 2] = s.act_pull(a[:, 2], g, i * q)
    s.da = da = s.at("da", s.clipped(da))
    s.q = f * q
    for name, n in list(PEEPHOLES.items())[:2]:
        if name in p:
            s.q = s.q + p[name] * da[:, n]
    cells = {"Wpi": c, "Wpf": c, "Wpo": s.c[t + 1]}
    parts = {
        name: (da[:, n] * cells[name]).sum(axis=0) for name, n in PEEPHOLES.items() if name in p
    }
    return parts, da, s.at("rec", da), 0


def _gru(s: Pass) -> Array:
    """Both GRUs; u is what the reset gate multiplies: Whn h + bhn, or h."""
    p, h, after = s.p, s.h[s.t], "bhn" in s.p
    H = h.shape[1]
    a = s.linear([(s.x[s.t], p["Wxh"])], p["bh"])
    a = a.reshape(len(a), 3, H)
    W, bhn = p["Whh"][2 * H :], p.get("bhn")
    a[:, :2] += s.product(h, p["Whh"][: 2 * H].T).reshape(-1, 2, H)
    a = s.at("a", a)
    v = np.stack([s.sigmoid(a[:, 0]), s.sigmoid(a[:, 1]), 0 * h], axis=1)
    u = s.product(h, W.T) + bhn if after else h
    a[:, 2] += v[:, 0] * u if after else s.product(v[:, 0] * h, W.T)
    v[:, 2] = s.act(a[:, 2])
    s.a.append(a)
    s.v.append(v)
    s.u.append(u)
    return np.asarray((1 - v[:, 1]) * v[:, 2] + v[:, 1] * h)


def _gru_back(s: Pass) -> Step:
    p, t, e, after = s.p, s.t, s.e, "bhn" in s.p
    a, (r, z, n), u, h = s.a[t], s.v[t].swapaxes(0, 1), s.u[t], s.h[t]
    B, H = h.shape
    da = np.zeros_like(a)
    da[:, 2] = s.act_pull(a[:, 2], n, (1 - z) * e)
    da = s.clipped(da)
    W = s.at("W", p["Whh"])
    w = da[:, 2] if after else s.product(da[:, 2], W[2 * H :])
    s.w = w
    da[:, 1] = s.sigmoid_pull(a[:, 1], z, (h - n) * e)
    da[:, 0] = s.sigmoid_pull(a[:, 0], r, u * w)
    s.da = da = s.at("da", s.clipped(da))
    rec = np.stack([da[:, 0], da[:, 1], r * da[:, 2] if after else da[:, 2]], axis=1)
    rec = s.at("rec", rec)
    if after:
        return {"bhn": rec[:, 2].sum(axis=0)}, da, rec, z * e
    past = s.at("past", h)
    pair = rec[:, :2].reshape(B, 2 * H)
    whole = np.concatenate([s.product(pair.T, past), s.product(rec[:, 2].T, r * past)])
    return {"Whh": whole}, da, rec, z * e + r * w + s.product(pair, W[: 2 * H])


CELLS: dict[str, tuple[Callable[[Pass], Array], Callable[[Pass], Step]]] = {
    "rnn": (_rnn, _rnn_back),
    "lstm": (_lstm, _lstm_back),
    "gru": (_gru, _gru_back),
    "gru_before": (_gru, _gru_back),
}
