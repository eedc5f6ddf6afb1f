"""A layer: a recurrent cell over time, forward and, directly beneath, backward.

With gradient checkpointing a layer keeps the state at the start of every segment of
10 sqrt(T) steps and the tape of the last segment alone; its backward pass goes over the segments
from the last to the first, runs each one but the last forward again and pulls back through it.
Memory then grows with the square root of T, at the cost of almost one more forward pass. Without
checkpointing the whole sequence is one segment.

Source: Chen, Xu, Zhang & Guestrin (2016), for segments of equal length.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import isqrt
from typing import Any, NamedTuple

import numpy as np

from refnet.batch import Array, Params
from refnet.cells.common import CellTape, Cotangents, last_state
from refnet.maths.activations import Activation
from refnet.maths.numeric import Number, alike, times
from refnet.nets.padding import emptied

STRETCH = 10
"""Segments are up to this many times sqrt(T) long: what a cell spends on every call, such as
starting threads, is then little beside the call itself, for about five times the least memory."""

GAINED = ("Whh", "Wxh", "bh", "bhh", "bhn", "Wpi", "Wpf", "Wpo")
"""The parameters that make the pre-activation, of all cells."""

Read = Callable[[int, CellTape], None]
"""Called forward in time with the first step of every segment and its tape."""
Pull = Callable[[int, CellTape], Array]
"""Called likewise backward in time: gives the direct gradient at the segment's last states, in a
new array (K, B, H), K >= 1."""


class Checkpoints(NamedTuple):
    """What stands for the cell's tape: x (T, B, D), the state at the start of every segment,
    (B, H) or, for the LSTM, [h, c] (2, B, H), and the last segment's tape, which the first
    backward pass frees and a second one makes again."""

    x: Array
    starts: list[Array]
    last: list[CellTape]

    @property
    def h(self) -> Array:
        """Not kept: the error says how to get the states."""
        raise AttributeError(
            "a net with checkpoint='sqrt' keeps no states on its tape; run "
            "forward of dataclasses.replace(net, checkpoint='none')"
        )


def segments(T: int) -> list[tuple[int, int]]:
    """``(first, end)`` of the segments ``first <= t < end``: as few as possible, of equal length,
    without one of more than STRETCH ceil(sqrt(T)) steps; a single empty one if T = 0.

    >>> segments(1000)
    [(0, 250), (250, 500), (500, 750), (750, 1000)]

    Checked by: tests/nets/test_checkpointing.py::test_segments.
    """
    parts = max(1, -(-T // (STRETCH * (isqrt(max(T - 1, 0)) + 1))))
    edges = [T * n // parts for n in range(parts + 1)]
    return list(zip(edges, edges[1:]))


@dataclass(frozen=True)
class Layer:
    """A cell and the settings that it runs with.

    ``passes``: its module in refnet.cells or refnet.compiled. ``gain``
    multiplies the pre-activation (Vorontsov et al., 3.1.3). ``clip``, if given, bounds the entries
    of its gradient inside the recursion. ``checkpoints``: gradient checkpointing. ``gate``: the
    activation of the gates, for a cell that has any. ``keeps``: whether the tape is for a backward
    pass (where it is not, a cell of refnet.compiled writes less). ``noise``, if given, are
    the arrays of ``refnet.nets.noise`` that the cell takes: ``drop``, ``shares``, ``added``.
    """

    passes: Any
    activation: Activation
    gain: Number = 1
    clip: Number | None = None
    checkpoints: bool = False
    gate: Activation | None = None
    keeps: bool = True
    noise: Params | None = None

    def _options(self, p: Params) -> dict[str, Any]:
        options: dict[str, Any] = {} if self.gate is None else {"gate": self.gate}
        noise = self.noise or {}
        return options | {name: alike(value, p["Whh"]) for name, value in noise.items()}

    def run(
        self, p: Params, x: Array, state: Array, last: bool = False, lengths: Array | None = None
    ) -> CellTape:
        """The cell's tape; ``p`` is what ``scaled`` gives. ``last``: of its states, only the last
        one is wanted. ``lengths``: how many steps of each sequence a cell of refnet.compiled
        computes, if not all."""
        options = self._options(p)
        options |= {} if self.keeps else {"keeps": "last" if last else "states"}
        options |= {} if lengths is None else {"lengths": lengths}
        tape: CellTape = self.passes.forward(p, x, state, self.activation, **options)
        return tape

    def pull(
        self, p: Params, tape: CellTape, dh: Cotangents, inputs: bool = True, **options: Any
    ) -> Params:
        """What the cell's backward pass gives for that tape."""
        options |= self._options(p)
        grads: Params = self.passes.backward(p, tape, dh, self.activation, inputs, **options)
        return grads

    def scaled(self, p: Params) -> Params:
        """The parameters that the cell sees: with the second bias bhh added to the first rows of
        bh, and those of the pre-activation times the gain."""
        if "bhh" in p:
            p = {**p}
            second = p.pop("bhh")
            p["bh"] = np.concatenate([p["bh"][: len(second)] + second, p["bh"][len(second) :]])
        if self.gain == 1:
            return p
        return {**p, **{name: times(self.gain, p[name]) for name in GAINED if name in p}}

    def forward(
        self,
        p: Params,
        x: Array,
        h0: Array,
        read: Read,
        last: bool = False,
        lengths: Array | None = None,
    ) -> CellTape | Checkpoints:
        """The cell's tape, or Checkpoints; ``read`` is called with every segment. ``last``: it
        reads the last state alone. ``lengths``: as for ``run``.

        Shapes: x (T, B, D); h0 (B, H) or, for the LSTM's [h0, c0], (2, B, H). Any dtype that the
        cell takes; the net checks the shapes.
        Checked by: tests/nets/test_checkpointing.py::test_equals_the_net_without_checkpoints.
        """
        p = self.scaled(p)
        state, starts, tapes = h0, [], list[CellTape]()
        for first, end in self._segments(len(x)):
            starts.append(state)
            tapes.clear()  # before the next one is made
            tapes.append(self.run(p, x[first:end], state, last, _after(first, lengths)))
            read(first, tapes[0])
            if end < len(x):
                state = last_state(tapes[0])
        return Checkpoints(x, starts, tapes) if self.checkpoints else tapes[0]

    def backward(
        self,
        p: Params,
        tape: CellTape | Checkpoints,
        pull: Pull,
        inputs: bool = True,
        ended: Array | None = None,
        lengths: Array | None = None,
        carry: Array | None = None,
    ) -> Params:
        """The gradients of the cell's parameters, of h0 and, if ``inputs``, of x.

        ``pull`` gives the direct gradient at a segment's last states. ``carry`` is the complete
        gradient at the state where the later segment starts, which is this segment's last state:
        it is added to the direct gradient there (an LSTM's cell state has none). ``ended``: if
        given, the tapes are ``emptied`` of what follows that many steps of each sequence.
        ``lengths``: as for ``forward``. ``carry`` at the start: the gradient at the state after
        the last step, shaped as h0.

        Checked by: tests/nets/test_checkpointing.py::test_equals_the_net_without_checkpoints,
        tests/nets/test_checkpointing.py::test_a_planted_bug_is_rejected.
        """
        seen = self.scaled(p)
        if not isinstance(tape, Checkpoints):
            tape = Checkpoints(tape.x, [tape.h[0]], [tape])
        x, starts, last = tape
        held = list(last)
        last.clear()
        options: dict[str, Any] = {} if self.clip is None else {"clip": self.clip}
        total: Params = {}
        dx: list[Array] = []
        for (first, end), start in reversed(list(zip(self._segments(len(x)), starts))):
            later = _after(first, lengths)
            options |= {} if later is None else {"lengths": later}
            part = held.pop() if held else self.run(seen, x[first:end], start, lengths=later)
            if ended is not None:
                part = emptied(part, ended - first)
            cotangents: Cotangents = (dh := pull(first, part))
            if carry is not None:
                dh[-1:] += carry if carry.ndim == 2 else carry[0][:, : dh.shape[2]]
                cotangents = dh if carry.ndim == 2 else (dh, carry[1])
            grads = self.pull(seen, part, cotangents, inputs, **options)
            carry = grads["h0"]
            if inputs:
                dx.append(grads["x"])
            if total:
                grads |= {
                    name: np.asanyarray(total[name] + value)
                    for name, value in grads.items()
                    if name in total and name not in ("h0", "x")
                }
            total = grads
            del part, dh, cotangents  # before the next ones are made
        if len(dx) > 1:
            total["x"] = np.concatenate(dx[::-1])
        if "bhh" in p:
            total["bhh"] = total["bh"][: len(p["bhh"])].copy()
        if self.gain != 1:
            total |= {name: times(self.gain, total[name]) for name in GAINED if name in p}
        return total

    def _segments(self, T: int) -> list[tuple[int, int]]:
        return segments(T) if self.checkpoints else [(0, T)]


def _after(first: int, lengths: Array | None) -> Array | None:
    """How many steps of each sequence follow the first ones."""
    return lengths - first if first and lengths is not None else lengths
