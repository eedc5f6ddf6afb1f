"""Every net once more, in plain loops over time, with a place for a mistake at every step.

A *change* maps names of places to functions ``f(value, s)``: ``value`` is what is right there, the
result is used instead, and ``s`` holds all that was computed before (``s.t`` is the step or
layer). Changes are applied one after the other, so that two mistakes at once are two changes.
Without a change the results agree with the reference, whose cells this file does not use.

Places, with the values that they see: ``p`` (the parameters that the cell uses), ``x``, ``y``,
``mask``, ``h0``; ``sigmoid``, ``act``, and in the LSTM ``g`` and ``k`` (functions of a or c, for
the gates, the candidate and the output), with ``sigmoid'``, ``act'``, ``g'`` and ``k'`` (functions
of a, of the value and of the cotangent); ``a``, ``peep`` (the cell that the output gate sees),
``h``, ``steps`` (of a read-out at the last step), ``rows`` (what is read out), ``each`` (weighted
losses and gradients, before the division; ``s.raw`` has them before the weights), ``divisor``;
``direct`` (the read-out's gradient, by state), ``e`` and ``q`` (complete gradients of h and c),
``clip`` (its bound), ``da``, ``rec`` (da as Whh sees it), ``W`` (the matrix of the backward
recursion), ``carry`` (e and q, one step earlier), ``past`` and ``seen`` (h and x in the weight
gradients), ``parts`` (one step's share of them), ``grads`` (before the gain), ``report`` (all).

Checked by: tests/check/test_naive.py.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from refnet.batch import Array, Batch, Params, last_steps
from refnet.maths.losses import counted_predictions
from refnet.nets.base import pull_to_parts
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.gradients import Net
from refnet.nets.layer import GAINED
from refnet.nets.recurrent import RecurrentNet

__all__ = ["Change", "FORWARD", "Pass", "covers", "run"]

Change = Mapping[str, Callable[[Any, "Pass"], Any]]
Product = Callable[[Array, Array], Array]
FORWARD = frozenset(
    (
        "product",
        "p",
        "x",
        "y",
        "mask",
        "h0",
        "sigmoid",
        "act",
        "g",
        "k",
        "a",
        "peep",
        "h",
        "steps",
        "rows",
        "each",
        "divisor",
    )
)
"""The places whose change may show in the outputs or the loss."""
PEEPHOLES = {"Wpi": 0, "Wpf": 1, "Wpo": 3}


def run(
    net: Net,
    params: Params,
    batch: Batch,
    *changes: Change,
    product: Product = np.matmul,
    fused: bool = False,
    backward: bool = True,
) -> Params:
    """Loss, outputs, states and gradients by the names of ``Certified.named``, in the dtype of x.

    ``product``: what multiplies matrices; ``fused``: inputs, state and bias in one product;
    ``backward``: whether the gradients are wanted.
    """
    one = Pass(net, params, batch, changes, product, fused)
    try:
        return one.run(backward)
    except _Enough:
        return {"loss": one.loss, "outputs": one.outputs}


def covers(net: Net, params: Params) -> bool:
    """Whether ``run`` knows this net: one layer, of four cells, with sigmoid gates and a loss."""
    return net.loss != "none" and (
        isinstance(net, FeedforwardNet)
        or (
            type(net) is RecurrentNet
            and net.cell in ("rnn", "lstm", "gru", "gru_before")
            and net.gate.name == "sigmoid"
            and net.clip_forward is None
            and not net.projection
            and "bhh" not in params
        )
    )


class _Enough(Exception):
    """The forward pass is over, and nothing else was wanted."""


def _sigmoid(a: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-a)))


def _sigmoid_pull(a: Array, v: Array, dv: Array) -> Array:
    return np.asarray(dv * v * (1 - v))


class Pass:
    """One forward and backward pass; its attributes are what a change may look at."""

    p: Params
    y: Array
    mask: Array | None
    x: Array
    h: list[Array]
    c: list[Array]
    a: list[Array]
    v: list[Array]
    u: list[Array]
    k: list[Array]
    e: Array
    q: Array
    full: Array
    da: Array
    aside: Array
    outputs: Array
    own: Params
    t: int

    def __init__(
        self,
        net: Net,
        params: Params,
        batch: Batch,
        changes: tuple[Change, ...],
        product: Product,
        fused: bool,
    ) -> None:
        self.net, self.params, self.batch, self.changes = net, params, batch, changes
        self.product: Product = self.at("product", product)
        self.own, self.t, self.fused = {}, 0, fused

    def at(self, place: str, value: Any) -> Any:
        """``value`` as the changes of this place make it."""
        for change in self.changes:
            if place in change:
                value = change[place](value, self)
        return value

    def run(self, backward: bool) -> Params:
        """See ``refnet.check.naive.run``."""
        self.backward = backward
        net, recurrent = self.net, isinstance(self.net, RecurrentNet)
        made, tapes = net.matrices(self.params)
        self.p = self.at("p", self._gained(made))
        self.x, self.y = self.at("x", self.batch.x), self.at("y", self.batch.y)
        self.mask = self.at("mask", self.batch.mask)
        self.sigmoid = self.at("sigmoid", _sigmoid)
        self.sigmoid_pull = self.at("sigmoid'", _sigmoid_pull)
        act = net.activation
        self.act = self.at("act", lambda a: act.forward(a, self._own()))
        self.act_pull = self.at("act'", self._act_pull)
        self.g, self.g_pull = self.at("g", self.act), self.at("g'", self.act_pull)
        self.k_of, self.k_pull = self.at("k", self.act), self.at("k'", self.act_pull)
        self.bound = self.at("clip", getattr(net, "clip_step", None))
        grads = self._recurrent() if recurrent else self._feedforward()
        grads = self.at("grads", {**grads, **self.own})
        if isinstance(net, RecurrentNet):
            grads = self._gained(grads)
            if "h0" in self.params and self.params["h0"].ndim < grads["h0"].ndim:
                grads["h0"] = grads["h0"].sum(axis=-2)
            if net.embedding:
                dW = grads.pop("Wxh")
                grads |= {"Wxh.W": dW @ made["Wxh.E"].T, "Wxh.E": made["Wxh.W"].T @ dW}
            if net.transition is not None:
                blocks = np.split(grads.pop("Whh"), len(net.slots))
                grads |= dict(zip(net.slots, blocks))
        grads = pull_to_parts(net, self.params, tapes, grads, None)
        states = (
            {"h": np.stack(self.h), **({"c": np.stack(self.c)} if self.c else {})}
            if recurrent
            else {f"h{n}": h for n, h in enumerate(self.h) if n}
        )
        found: Params = self.at(
            "report",
            {
                "loss": self.loss,
                "outputs": self.outputs,
                **states,
                **{f"d{name}": value for name, value in grads.items()},
            },
        )
        return found

    def _gained(self, p: Params) -> Params:
        gain = getattr(self.net, "gain", 1)
        return (
            p
            if gain == 1
            else {name: value * gain if name in GAINED else value for name, value in p.items()}
        )

    def _own(self) -> Params:
        """The activation's own parameters (of this layer)."""
        layer = str(self.t) if isinstance(self.net, FeedforwardNet) else ""
        return {name: self.p[f"{name}{layer}"] for name, *_ in self.net.activation.start}

    def _act_pull(self, a: Array, h: Array, dh: Array) -> Array:
        layer = str(self.t) if isinstance(self.net, FeedforwardNet) else ""
        da, own = self.net.activation.backward(a, h, dh, self._own())
        for name, value in own.items():
            self.own[name + layer] = self.own.get(name + layer, 0) + value
        return da

    def linear(self, pairs: list[tuple[Array, Array]], bias: Array) -> Array:
        """The sum of ``rows @ W.T`` over the pairs, and the bias."""
        if self.fused:
            rows = np.concatenate([np.ones_like(pairs[0][0][:, :1]), *(r for r, _ in pairs)], 1)
            return self.product(rows, np.concatenate([bias[:, None], *(W for _, W in pairs)], 1).T)
        total = self.product(pairs[0][0], pairs[0][1].T)
        for rows, W in pairs[1:]:
            total = total + self.product(rows, W.T)
        return total + bias

    def _score(self, v: Array) -> Array:
        """Set the loss; its gradient in the outputs v (..., C)."""
        net, lead, C = self.net, v.shape[:-1], v.shape[-1]
        self.outputs = v
        flat, y = v.reshape(-1, C), self.y.reshape(-1, *self.y.shape[len(lead) :])
        counted, divisor = counted_predictions(self.mask, lead, net.reduction)
        if net.loss == "cross_entropy":
            top = flat - flat.max(axis=1, keepdims=True)
            e = np.exp(top)
            total = e.sum(axis=1, keepdims=True)
            one = np.eye(C, dtype=v.dtype)[y]
            each, dv = np.log(total[:, 0]) - (top * one).sum(axis=1), e / total - one
        else:
            each, dv = ((flat - y) ** 2).sum(axis=1) / C, 2 * (flat - y) / C
        weights: Array = (
            np.ones(len(flat), v.dtype) if counted is None else counted.reshape(-1).astype(v.dtype)
        )
        self.raw = each, dv, weights
        each, dv = self.at("each", (each * weights, dv * weights[:, None]))
        divisor = self.at("divisor", divisor)
        self.loss = np.asarray(each.sum() / divisor, v.dtype)
        if not self.backward:
            raise _Enough
        return np.asarray((dv / divisor).reshape(v.shape), v.dtype)

    def _feedforward(self) -> Params:
        net, p = self.net, self.p
        assert isinstance(net, FeedforwardNet)
        last = net.depth + 1
        self.h, self.a, self.c = [self.x], [self.x], []
        for self.t in range(1, last):
            self.a.append(
                self.at("a", self.linear([(self.h[-1], p[f"W{self.t}"])], p[f"b{self.t}"]))
            )
            self.h.append(self.at("h", self.act(self.a[-1])))
        self.t = last
        self.a.append(self.linear([(self.h[-1], p[f"W{last}"])], p[f"b{last}"]))
        da = e = self._score(self.at("rows", self.a[-1]))
        grads: Params = {}
        for self.t in range(last, 0, -1):
            if self.t < last:
                da = self.at("da", self.act_pull(self.a[self.t], self.h[self.t], e))
            grads[f"W{self.t}"] = self.product(da.T, self.at("past", self.h[self.t - 1]))
            grads[f"b{self.t}"] = da.sum(axis=0)
            e = self.at("e", self.product(da, self.at("W", p[f"W{self.t}"])))
        return {**grads, "x": e}

    def _recurrent(self) -> Params:
        net, p = self.net, self.p
        assert isinstance(net, RecurrentNet)
        T, B, _ = self.x.shape
        h0 = self.at("h0", net.initial_state(self.params, self.x))
        self.h, self.c = ([h0[0]], [h0[1]]) if net.cell == "lstm" else ([h0], [])
        self.a, self.v, self.u, self.k = [], [], [], []
        self.gates = len(net.gates)
        forward, backward = _CELLS[net.cell]
        for self.t in range(T):
            self.h.append(self.at("h", forward(self)))
        h = np.stack(self.h)
        every = net.readout == "every"
        steps = np.full(B, T) if self.mask is None else last_steps(self.mask)
        steps = self.at("steps", steps)
        self.rows = self.at("rows", h[1:].reshape(T * B, -1) if every else h[steps, np.arange(B)])
        v = self.linear([(self.rows, p["Why"])], p["by"])
        dv = self._score(v.reshape(T, B, -1) if every else v).reshape(len(v), -1)
        self.dv = dv
        direct, self.drows = np.zeros_like(h), self.product(dv, p["Why"])
        if every:
            direct[1:] = self.drows.reshape(T, B, -1)
        else:
            direct[steps, np.arange(B)] = self.drows
        direct = self.at("direct", direct)
        weights = [name for name in ("Whh", "Wxh", "bh", "bhn", *PEEPHOLES) if name in p]
        grads: Params = {name: np.zeros_like(p[name]) for name in weights}
        self.own = {name: np.zeros_like(value) for name, value in self._own().items()}
        dx, self.e, self.q = np.zeros_like(self.x), direct[T], np.zeros_like(direct[T])
        for self.t in reversed(range(T)):
            self.e = self.at("e", self.e)
            parts, self.da, rec, carry = backward(self)
            dx[self.t] = self.product(self.da.reshape(B, -1), p["Wxh"])
            rows, flat = rec.reshape(B, -1), self.da.reshape(B, -1)
            parts = {
                **parts,
                "Wxh": self.product(flat.T, self.at("seen", self.x[self.t])),
                "bh": flat.sum(axis=0),
            }
            if "Whh" not in parts:
                parts["Whh"] = self.product(rows.T, self.at("past", self.h[self.t]))
                carry = carry + self.product(rows, self.at("W", p["Whh"]))
            for name, part in self.at("parts", parts).items():
                grads[name] = grads[name] + part
            carry, self.q = self.at("carry", (carry, self.q))
            self.e = carry + direct[self.t]
        start = np.stack([self.e, self.q]) if net.cell == "lstm" else self.e
        return {
            **grads,
            "Why": self.product(dv.T, self.rows),
            "by": dv.sum(axis=0),
            "h0": start,
            "x": dx,
        }

    def clipped(self, da: Array) -> Array:
        """``da`` within the bound of the recursion's clipping, if it has one."""
        return da if self.bound is None else np.clip(da, -self.bound, self.bound)


Step = tuple[Params, Array, Array, Any]


def _rnn(s: Pass) -> Array:
    a = s.linear([(s.x[s.t], s.p["Wxh"]), (s.h[s.t], s.p["Whh"])], s.p["bh"])
    s.a.append(s.at("a", a))
    return np.asarray(s.act(s.a[-1]))


def _rnn_back(s: Pass) -> Step:
    da = s.at("da", s.clipped(s.act_pull(s.a[s.t], s.h[s.t + 1], s.e)))
    return {}, da, s.at("rec", da), 0


def _lstm(s: Pass) -> Array:
    p, c = s.p, s.c[s.t]
    a = s.linear([(s.x[s.t], p["Wxh"]), (s.h[s.t], p["Whh"])], p["bh"])
    a = s.at("a", a.reshape(len(a), 4, -1))
    for name, n in list(PEEPHOLES.items())[:2]:
        if name in p:
            a[:, n] += p[name] * c
    v = np.stack([s.sigmoid(a[:, 0]), s.sigmoid(a[:, 1]), s.g(a[:, 2]), 0 * c], axis=1)
    new = v[:, 1] * c + v[:, 0] * v[:, 2]
    s.c.append(new)
    if "Wpo" in p:
        a[:, 3] += p["Wpo"] * s.at("peep", new)
    v[:, 3] = s.sigmoid(a[:, 3])
    k = s.k_of(new)
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
    q = s.q + s.k_pull(s.c[t + 1], k, o * e)
    if "Wpo" in p:
        q = q + p["Wpo"] * da[:, 3]
    s.full = q = s.at("q", q)
    da[:, 0] = s.sigmoid_pull(a[:, 0], i, g * q)
    da[:, 1] = s.sigmoid_pull(a[:, 1], f, c * q)
    da[:, 2] = s.g_pull(a[:, 2], g, i * q)
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


_CELLS: dict[str, tuple[Callable[[Pass], Array], Callable[[Pass], Step]]] = {
    "rnn": (_rnn, _rnn_back),
    "lstm": (_lstm, _lstm_back),
    "gru": (_gru, _gru_back),
    "gru_before": (_gru, _gru_back),
}
