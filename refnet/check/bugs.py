"""A naive recurrent net with a place for a bug at every step, and a catalogue of bugs.

It is what checkers are judged by: tanh, read-out at the last step, mean cross-entropy, plain
loops over time in the dtype of its inputs. Its correct form agrees with the reference.
Checked by: tests/test_errorrates.py.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from refnet.batch import Array, Batch, Params

__all__ = ["BUGS", "Bug", "CORRECT", "run"]


def _same(value: Array) -> Array:
    return value


def _tail(grads: Params, p: Params, batch: Batch) -> Params:
    return grads


def _slope(a: Array, h: Array, before: Array) -> Array:
    return np.asarray(1 - h * h)


@dataclass(frozen=True)
class Bug:
    """One misstep: what each field replaces is what ``run`` does by default.

    ``forward``: whether loss and states are wrong too, consistently or not.
    """

    name: str
    forward: bool = False
    x: Callable[[Array], Array] = _same
    W: Callable[[Array], Array] = _same
    bias: Callable[[Array], Array] = _same
    value: Callable[[Array], Array] = np.tanh
    keep: Callable[[Array, int, int], Array] = lambda h, t, T: h
    slope: Callable[[Array, Array, Array], Array] = _slope
    back: Callable[[Array], Array] = _same
    carry: Callable[[Array, int], Array] = lambda dh, t: dh
    state: Callable[[Array, int], Array] = lambda h, t: h[t]
    input: Callable[[Array, int], Array] = lambda x, t: x[t]
    counted: Callable[[int, int], bool] = lambda t, T: True
    sum: Callable[[Array], Array] = _same
    labels: Callable[[Array, int], Array] = lambda y, C: y
    softmax: Callable[[Array], Array] = lambda e: e / e.sum(axis=1, keepdims=True)
    last: Callable[[Array], Array] = lambda h: h[-1]
    finish: Callable[[Params, Params, Batch], Params] = _tail


CORRECT = Bug("none")


def run(bug: Bug, p: Params, batch: Batch) -> Params:
    """Loss and gradients, by refnet's names, in the dtype of x; h0 is zero or p's (B, H)."""
    x, y = bug.x(batch.x), batch.y
    T, B, _ = x.shape
    kind = x.dtype.type
    W, b, a = bug.W(p["Whh"]), bug.bias(p["bh"]), []
    h = [p["h0"] if "h0" in p else np.zeros((B, len(b)), x.dtype)]
    for t in range(T):
        a.append(x[t] @ p["Wxh"].T + h[t] @ W.T + b)
        h.append(bug.keep(bug.value(a[t]), t, T))
    states = np.stack(h)
    v = h[T] @ p["Why"].T + p["by"]
    e = np.exp(v - v.max(axis=1, keepdims=True))
    hot = np.eye(v.shape[1], dtype=x.dtype)[bug.labels(y, v.shape[1])]
    dv = (bug.softmax(e) - hot) / kind(B)
    loss = (np.log(e.sum(axis=1)) + v.max(axis=1) - v[np.arange(B), y]).mean(dtype=x.dtype)
    g: Params = {name: np.zeros_like(p[name]) for name in ("Whh", "Wxh", "bh")}
    dh, dx = dv @ p["Why"], np.zeros_like(x)
    for t in reversed(range(T)):
        da = bug.slope(a[t], h[t + 1], h[t]) * dh
        dx[t] = da @ p["Wxh"]
        dh = bug.carry(da @ bug.back(W), t)
        if bug.counted(t, T):
            g["Whh"] = bug.sum(g["Whh"] + da.T @ bug.state(states, t))
            g["Wxh"] = bug.sum(g["Wxh"] + da.T @ bug.input(x, t))
            g["bh"] = bug.sum(g["bh"] + da.sum(axis=0))
    g |= {"Why": dv.T @ bug.last(states), "by": dv.sum(axis=0), "x": dx, "h0": dh}
    g = bug.finish(g, p, batch)
    return {"loss": np.asarray(loss), **{f"d{name}": value for name, value in g.items()}}


def _edit(name: str, change: Callable[[Array], Any]) -> Callable[[Params, Params, Batch], Params]:
    return lambda g, p, batch: {**g, name: np.asarray(change(g[name]), g[name].dtype)}


def _all(change: Callable[[Array], Any]) -> Callable[[Params, Params, Batch], Params]:
    return lambda g, p, batch: {name: np.asarray(change(value), value.dtype)
                                for name, value in g.items()}


def _one_entry(factor: float) -> Callable[[Array], Array]:
    def change(W: Array) -> Array:
        index = np.unravel_index(abs(W).argmax(), W.shape)
        out = W.copy()
        out[index] *= factor
        return out

    return change


def _half(value: Array) -> Array:
    return np.asarray(value.astype(np.float16).astype(value.dtype))


def _pade(a: Array) -> Array:
    return np.asarray(np.clip(a * (27 + a * a) / (27 + 9 * a * a), -1, 1))


BUGS = (
    Bug("W transposed, forward and backward", forward=True, W=np.transpose),
    Bug("W transposed in the backward recursion", back=np.transpose),
    Bug("dWhh reported transposed", finish=_edit("Whh", np.transpose)),
    Bug("gradient not carried between steps", carry=lambda dh, t: 0 * dh),
    Bug("gradient truncated after 3 steps", carry=lambda dh, t: dh if t > 0 and t % 4 else 0 * dh),
    Bug("gradient damped by 1% a step", carry=lambda dh, t: dh * dh.dtype.type(0.99)),
    Bug("h[t+1] for h[t] in dWhh", state=lambda h, t: h[t + 1]),
    Bug("h[t-1] for h[t] in dWhh", state=lambda h, t: h[max(t - 1, 0)]),
    Bug("x[t-1] for x[t] in dWxh", input=lambda x, t: x[max(t - 1, 0)]),
    Bug("tanh' of the pre-activation", slope=lambda a, h, before: 1 - a * a),
    Bug("tanh' of the state as if it were the pre-activation",
        slope=lambda a, h, before: 1 - np.tanh(h) ** 2),
    Bug("tanh' of the state before", slope=lambda a, h, before: 1 - before * before),
    Bug("tanh' without the square", slope=lambda a, h, before: 1 - h),
    Bug("tanh' left out", slope=lambda a, h, before: np.ones_like(h)),
    Bug("tanh' off by 1e-3", slope=lambda a, h, before: (1 - h * h) * h.dtype.type(1.001)),
    Bug("tanh' off by 1e-6", slope=lambda a, h, before: (1 - h * h) * h.dtype.type(1 + 1e-6)),
    Bug("tanh' has an epsilon of 1e-5", slope=lambda a, h, before: 1 - h * h + h.dtype.type(1e-5)),
    Bug("tanh by a rational approximation", forward=True, value=_pade),
    Bug("sum for mean", finish=lambda g, p, batch: {
        name: value * value.dtype.type(len(batch.y)) for name, value in g.items()}),
    Bug("mean over the steps too", finish=lambda g, p, batch: {
        name: value / value.dtype.type(len(batch.x)) for name, value in g.items()}),
    Bug("first step dropped from the weights", counted=lambda t, T: t > 0),
    Bug("last step dropped from the weights", counted=lambda t, T: t < T - 1),
    Bug("time reversed", forward=True, x=lambda x: x[::-1]),
    Bug("bias left out", forward=True, bias=lambda b: 0 * b),
    Bug("bias gradient missing", finish=_edit("bh", lambda g: 0 * g)),
    Bug("bias gradient doubled", finish=_edit("bh", lambda g: 2 * g)),
    Bug("dh0 missing", finish=_edit("h0", lambda g: 0 * g)),
    Bug("dh0 carried one step too far",
        finish=lambda g, p, batch: {**g, "h0": g["h0"] @ p["Whh"]}),
    Bug("dx of the next step", finish=_edit("x", lambda g: np.roll(g, 1, axis=0))),
    Bug("one step in float16", forward=True,
        keep=lambda h, t, T: _half(h) if t == T // 2 else h),
    Bug("sums in float16", sum=_half),
    Bug("first example left out of dWhh", state=lambda h, t: np.concatenate(
        [0 * h[t][:1], h[t][1:]])),
    Bug("last example counted twice in dby",
        finish=lambda g, p, batch: {**g, "by": g["by"] * g["by"].dtype.type(1 + 1 / len(batch.y))}),
    Bug("gradient clipped at half its largest entry",
        finish=_edit("Whh", lambda g: np.clip(g, -abs(g).max() / 2, abs(g).max() / 2))),
    Bug("labels off by one", labels=lambda y, C: (y + 1) % C),
    Bug("softmax with an epsilon of 1e-3 in the sum",
        softmax=lambda e: e / (e.sum(axis=1, keepdims=True) + e.dtype.type(1e-3))),
    Bug("softmax not normalised", softmax=lambda e: e),
    Bug("state before the last in dWhy", last=lambda h: h[-2]),
    Bug("one entry off by 0.1%", finish=_edit("Whh", _one_entry(1.001))),
    Bug("one entry with the wrong sign", finish=_edit("Whh", _one_entry(-1))),
    Bug("two rows swapped", finish=_edit("Whh", lambda g: np.roll(g, 1, axis=0))),
    Bug("everything 0.09% too large", finish=_all(lambda g: g * g.dtype.type(1.0009))),
    Bug("dWhh all zero", finish=_edit("Whh", lambda g: 0 * g)),
    Bug("weight decay of 1e-4 left in", finish=lambda g, p, batch: {
        **g, "Whh": g["Whh"] + p["Whh"] * g["Whh"].dtype.type(1e-4)}),
)
"""44 bugs; h[t+1] for h[t] in dWhh and the like only show where states differ, so T >= 2."""
