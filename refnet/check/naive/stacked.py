"""A stack of layers, put together cell by cell.

Checked by: tests/check/test_stacked_mistakes.py.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from refnet.batch import Array, Params
from refnet.cells.common import last_state
from refnet.check.naive.base import Pass
from refnet.nets.stacked import StackedNet, masked, named, turned

__all__ = ["Stack"]


class Stack(Pass):
    """Its cells are the reference's own; ``t`` is the layer."""

    def states_and_gradients(self) -> tuple[Params, Params]:
        """No states: a stack's are those of its cells."""
        assert isinstance(self.net, StackedNet)
        self.stack = net = replace(self.net, backend="reference", checkpoint="none")
        params: Params = self.at("p", self.params)
        self.p, tapes = net.matrices(params)
        self.into, self.out = self.at("into", turned), self.at("out", turned)
        self.pad = partial(self.at("padding", masked), steps=self.lengths)
        self.order: slice = self.at("order", slice(None))
        self.tapes: dict[str, Any] = {}
        self.read: Params = {}
        x, ends = self._forward()
        last = net.readout == "last"
        rows = ends if last else x
        none = net.readout == "none"
        d = self.score(rows if none else rows @ self.p["Why"].T + self.p["by"])
        grads: Params = {}
        if not none:
            flat = d.reshape(-1, net.outputs)
            grads = {"Why": flat.T @ rows.reshape(len(flat), -1), "by": flat.sum(axis=0)}
            d = d @ self.p["Why"]
        pulled = self._backward(d, last)
        grads = net.gathered(params, self.p, tapes, {**grads, **pulled})
        return {}, self.at("grads", grads)

    def ends(self) -> Params:
        """Of every cell."""
        return {f"h0{suffix}": last_state(tape) for suffix, tape in self.tapes.items()}

    def _forward(self) -> tuple[Array, Array]:
        """The last layer's output (T, B, N) and what is read of it at last (B, N)."""
        x, examples = self.x, np.arange(self.x.shape[1])
        for layer in self.stack.cells:
            states, ends = [], []
            for self.suffix, cell in layer.items():
                p = self.stack.of(self.p, self.suffix)
                tape = self.tapes[self.suffix] = cell.layer.run(
                    cell.layer.scaled(p),
                    self.into(x, self.lengths, self.suffix),
                    cell.initial_state(p, x),
                )
                self.read[self.suffix] = self.at("steps", self.lengths)
                ends.append(tape.h[self.read[self.suffix], examples])
                states.append(self.out(tape.h[1:], self.lengths, self.suffix))
            x = self.pad(np.concatenate(states[self.order], axis=2))
        return x, np.concatenate(ends[self.order], axis=1)

    def _backward(self, d: Array, last: bool) -> Params:
        """The gradients of what the cells see, from that of the last layer's output, or of its
        states that are read at last."""
        net, lengths, examples = self.stack, self.lengths, np.arange(self.x.shape[1])
        pull_out, pull_into = self.at("pull_out", self.out), self.at("pull_into", self.into)
        grads: Params = {}
        for self.t in reversed(range(net.layers)):
            below: list[Array] = []
            for n, (suffix, cell) in enumerate(list(net.cells[self.t].items())[self.order]):
                part = d[..., n * cell.width : (n + 1) * cell.width]
                dh = np.zeros_like(self.tapes[suffix].h)
                if last:
                    dh[self.read[suffix], examples] = part
                else:
                    dh[1:] = pull_out(self.pad(part), lengths, suffix)
                pulled = cell.layer.backward(
                    net.of(self.p, suffix),
                    self.tapes[suffix],
                    lambda first, tape: dh[1:].copy(),
                    carry=self.final.get(f"h0{suffix}"),
                )
                pulled.pop("clipped", None)
                if last:
                    pulled["h0"][(0,) * (pulled["h0"].ndim - 2)][:, : cell.width] += dh[0]
                below.append(pull_into(pulled.pop("x"), lengths, suffix))
                grads |= {named(name, suffix): value for name, value in pulled.items()}
            last = False
            d = np.sum(self.at("below", below), axis=0)
        return {**grads, "x": d}
