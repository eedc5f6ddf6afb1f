"""Recurrent nets of one layer and feedforward nets, with the places of ``refnet.check.naive``."""

from typing import Any

import numpy as np

from refnet.batch import Array, Params
from refnet.check.naive.base import Pass
from refnet.check.programs.cells import CELLS
from refnet.nets.base import pull_to_parts
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.layer import GAINED
from refnet.nets.recurrent import RecurrentNet

__all__ = ["PEEPHOLES", "Feedforward", "Recurrent"]

PEEPHOLES = {"Wpi": 0, "Wpf": 1, "Wpo": 3}
"""The gates that peepholes belong to."""


def _sigmoid(a: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-a)))


def _sigmoid_pull(a: Array, v: Array, dv: Array) -> Array:
    return np.asarray(dv * v * (1 - v))


class _Net(Pass):
    """What both have: matrices that are made, a gain, and an activation with parameters."""

    def begin(self) -> tuple[Params, dict[str, Any]]:
        """Set the parameters and functions; the matrices and their tapes."""
        matrices, tapes = self.net.matrices(self.at("made_of", self.params))
        self.p = self.at("p", self.gained(matrices))
        self.sigmoid = self.at("sigmoid", _sigmoid)
        self.sigmoid_pull = self.at("sigmoid_pull", _sigmoid_pull)
        self.act = self.at("act", self._act)
        self.act_pull = self.at("act_pull", self._act_pull)
        self.bound = self.at("clip", getattr(self.net, "clip_step", None))
        self.slopes: Params = {}
        return matrices, tapes

    def gained(self, p: Params) -> Params:
        """Parameters, or gradients, times the gain."""
        gain = getattr(self.net, "gain", 1)
        return {name: v * gain if gain != 1 and name in GAINED else v for name, v in p.items()}

    @property
    def suffix(self) -> str:
        """That of the activation's parameters in this layer."""
        return str(self.t) if isinstance(self.net, FeedforwardNet) else ""

    def _of_the_activation(self) -> Params:
        return {name: self.p[name + self.suffix] for name, *_ in self.net.activation.start}

    def _act(self, a: Array) -> Array:
        return self.net.activation.forward(a, self._of_the_activation())

    def _act_pull(self, a: Array, h: Array, dh: Array) -> Array:
        da, slopes = self.net.activation.backward(a, h, dh, self._of_the_activation())
        for name, value in slopes.items():
            full = name + self.suffix
            self.slopes[full] = self.slopes.get(full, 0) + value
        return da


class Feedforward(_Net):
    """``t`` is the layer."""

    def run(self) -> Params:
        """With the states h1, h2, ..."""
        assert isinstance(self.net, FeedforwardNet)
        _, tapes = self.begin()
        last = self.net.depth + 1
        self.h, self.a = [self.x], [self.x]
        for self.t in range(1, last):
            self.a.append(self.at("a", self._linear()))
            self.h.append(self.at("h", self.act(self.a[-1])))
        self.t = last
        self.a.append(self._linear())
        da = e = self.score(self.at("rows", self.a[-1]))
        grads: Params = {}
        for self.t in range(last, 0, -1):
            if self.t < last:
                da = self.at("da", self.act_pull(self.a[self.t], self.h[self.t], e))
            self.da = da
            grads[f"W{self.t}"] = self.product(da.T, self.at("past", self.h[self.t - 1]))
            grads[f"b{self.t}"] = da.sum(axis=0)
            e = self.at("e", self.product(da, self.at("W", self.p[f"W{self.t}"])))
        grads = self.at("grads", {**grads, "x": e, **self.slopes})
        results = {"loss": self.loss, "outputs": self.outputs}
        results |= {f"h{n}": h for n, h in enumerate(self.h) if n}
        return self.reported(results, pull_to_parts(self.net, self.params, tapes, grads, None))

    def _linear(self) -> Array:
        return self.linear(self.h[-1], self.p[f"W{self.t}"], self.p[f"b{self.t}"])


class Recurrent(_Net):
    """What stands around a cell's program (``refnet.check.programs``); ``t`` is the step."""

    def __init__(self, net: RecurrentNet, *rest: Any) -> None:
        super().__init__(net, *rest)
        self.begun = self.begin()
        h0 = self.at("h0", net.initial_state(self.params, self.x))
        self.h, self.c = ([h0[0]], [h0[1]]) if net.cell == "lstm" else ([h0], [])
        self.slopes = {name: np.zeros_like(v) for name, v in self._of_the_activation().items()}
        self.text = self.at("cell", CELLS[net.cell])

    @property
    def key(self) -> object:
        """The program, its sizes and its parameters."""
        return self.x.shape, self.text, self.bound, self.product, tuple(self.p)

    def finished(self, grads: Params) -> Params:
        """The gradients of what is given, from those of what the cell uses."""
        net, (matrices, tapes) = self.net, self.begun
        assert isinstance(net, RecurrentNet)
        grads = self.gained(self.at("grads", grads | self.slopes))
        if "h0" in self.params and self.params["h0"].ndim < grads["h0"].ndim:
            grads["h0"] = grads["h0"].sum(axis=-2)
        if net.embedding:
            dW = grads.pop("Wxh")
            grads |= {"Wxh.W": dW @ matrices["Wxh.E"].T, "Wxh.E": matrices["Wxh.W"].T @ dW}
        if net.transition is not None:
            blocks = np.split(grads.pop("Whh"), len(net.slots))
            grads |= dict(zip(net.slots, blocks))
        return pull_to_parts(net, self.params, tapes, grads, None)

    def ends(self) -> Params:
        """Of one cell."""
        return {"h0": np.stack([self.h[-1], self.c[-1]]) if self.c else self.h[-1]}

    def read_out(self, read: Array) -> Array:
        """The gradient, by the read-out, in the states (T + 1, B, H) that it reads."""
        T, B, _ = self.x.shape
        every = getattr(self.net, "readout", "") == "every"
        steps = self.at("steps", self.lengths)
        rows = read[1:].reshape(T * B, -1) if every else read[steps, np.arange(B)]
        self.rows = self.at("rows", rows)
        v = self.linear(self.rows, self.p["Why"], self.p["by"])
        self.dv = dv = self.score(v.reshape(T, B, -1) if every else v).reshape(len(v), -1)
        direct, self.drows = np.zeros_like(read), self.product(dv, self.p["Why"])
        if every:
            direct[1:] = self.drows.reshape(T, B, -1)
        else:
            direct[steps, np.arange(B)] = self.drows
        return np.asanyarray(self.at("direct", direct))
