"""A recurrent net as cells that are joined by edges: what each cell sees, starts from and gives.

Every edge is a linear ``Move``, used forward, in the weight gradients and, transposed, backward; a
mistake is another one in some of the three. Inside the cells is the reference.

Checked by: tests/check/test_outside.py.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from refnet.batch import Array, Batch, Params, last_steps
from refnet.cells.common import last_state
from refnet.check.programs.moves import SAME, Move, gathered
from refnet.nets.base import named
from refnet.nets.gradients import scored
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet, masked, turned

__all__ = ["Change", "Handed", "Layers", "near", "same"]

Moves = Mapping[str, Move]
Inside = Callable[[Array, Array, Array | None, Array | None], Params]


class Handed(NamedTuple):
    """What a cell begins with, (states, B, H): a move of what is left of another cell or, of
    itself, of the example before. ``follows``: whether the gradient goes back there."""

    cell: str
    move: Move
    follows: bool = False


class Change(NamedTuple):
    """A mistake. ``there``, ``back`` and ``sums``: the moves that are others in the forward pass,
    in the backward pass and in the weight gradients, by edge; ``skips``: how often a layer's usual
    input counts beside that of the layer below, and whether the gradient ``follows``, where the
    read-out is one more layer; ``starts``: the last states with which a cell starts; ``ends``: the
    gradients of initial states with which its backward pass does; ``tapes``: the cell whose tape
    the backward pass of another one reads; ``inside``: edited cells, as functions of x, the initial
    state and the gradients of the states and of the last one, which give all results by the names
    of a net of one layer."""

    name: str
    there: Moves = {}
    back: Moves = {}
    sums: Moves = {}
    skips: Mapping[int, float] = {}
    follows: bool = True
    starts: Mapping[str, Handed] = {}
    ends: Mapping[str, Handed] = {}
    tapes: Mapping[str, str] = {}
    inside: Mapping[str, Inside] = {}


class Layers:
    """A net's edges, and its passes with a change."""

    def __init__(self, net: RecurrentNet, params: Params, batch: Batch) -> None:
        self.net = net = replace(net, backend="reference", checkpoint="none")
        self.params, self.batch = params, batch
        self.p, self.residuals = net.matrices(params)
        self.pulling = self.p
        """The parameters of the backward pass."""
        self.layers = net.cells
        self.cells = net.every_cell
        self.T, self.B = batch.x.shape[:2]
        self.lengths = np.full(self.B, self.T) if batch.mask is None else last_steps(batch.mask)
        self.last = net.readout == "last"
        self.ending = gathered("", self.lengths[None], rows=self.T + 1)
        self.edges = dict(self._edges())
        self.arriving: dict[str, tuple[Array, Array | None]] = {}
        """The gradient of every cell's states, and of its last one, in the latest run."""
        self.tapes: dict[str, Any] = {}
        self.tapes = self.forward(Change(""))[1]

    def _edges(self) -> Any:
        """The right ones, by name."""
        t = np.indices((self.T, self.B))[0]
        steps = gathered("", t + 1, rows=self.T + 1)
        yield "x", SAME
        for number, layer in enumerate(self.layers):
            for suffix in layer:
                turn = self.turn(suffix)
                yield f"in{suffix}", turn
                yield f"start{suffix}", SAME
                yield f"out{suffix}", turn.after(steps)
                if self.last and number == len(self.layers) - 1:
                    yield f"read{suffix}", self.ending
            yield f"pad{number}", Move("", self._masked, self._masked)
        yield "rows", SAME
        yield "outputs", SAME

    def turn(self, suffix: str, whole: bool = False) -> Move:
        """The move that brings sequences into the order in which a cell sees them."""
        lengths = np.full_like(self.lengths, self.T) if whole else self.lengths

        def turn(v: Array) -> Array:
            return turned(v, lengths, suffix)

        return Move("", turn, turn, True)

    def _masked(self, v: Array) -> Array:
        return masked(v, self.lengths) if isinstance(self.net, StackedNet) else v

    def forward(self, change: Change) -> tuple[Array, dict[str, Any]]:
        """The outputs, and the cells' tapes."""
        edges, tapes = self.edges | dict(change.there), dict[str, Any]()
        new = bool(change.starts or change.skips) or not self.tapes
        for number, layer in enumerate(self.layers):
            new |= any(self.into(name) == number for name in change.there)
            new |= any(suffix in layer for suffix in change.inside)
            if not new:
                tapes |= {suffix: self.tapes[suffix] for suffix in layer}
                continue
            x = self._into(number, tapes, edges, change)
            for suffix, cell in layer.items():
                p, seen = self.net.of(self.p, suffix), edges[f"in{suffix}"].there(x)
                usual = start = cell.initial_state(p, seen)
                for _ in range(self._rounds(change.starts, suffix)):
                    if suffix in change.starts:
                        start = self._begun(change.starts[suffix], usual, tapes)
                    start = edges[f"start{suffix}"].there(_pair(start)).reshape(start.shape)
                    if suffix in change.inside:
                        states = change.inside[suffix](seen, start, None, None)
                        known = {name: states[name] for name in "hc" if name in states}
                        tapes[suffix] = SimpleNamespace(x=seen, start=start, **known)
                    else:
                        tapes[suffix] = cell.layer.run(cell.layer.scaled(p), seen, start)
        rows = self._rows_of(tapes, edges, change)
        outputs = rows if self.net.readout == "none" else rows @ self.p["Why"].T + self.p["by"]
        outputs = edges["outputs"].there(outputs)
        return (outputs[0] if self.last else outputs), tapes

    def _rounds(self, handed: Mapping[str, Handed], suffix: str) -> int:
        """How many runs bring every example to what is left of the one before."""
        return self.B if suffix in handed and handed[suffix].cell == suffix else 1

    def _begun(self, handed: Handed, usual: Array, tapes: dict[str, Any]) -> Array:
        """The initial state, of which a part is handed over."""
        if handed.cell not in tapes:
            return usual
        left, there = _pair(last_state(tapes[handed.cell])), handed.move.there
        begun: Array = _pair(usual) * (1 - there(0 * left + 1)) + there(left)
        return begun.reshape(usual.shape)

    def into(self, edge: str) -> int:
        """The lowest layer that a move on this edge changes in the forward pass; the number of
        layers for the read-out."""
        if edge == "x":
            return 0
        if edge in ("rows", "outputs") or edge.startswith("read"):
            return len(self.layers)
        digits = edge.partition("_l")[2].partition("_")[0] or edge.removeprefix("pad")
        return int(digits if digits.isdigit() else 0) + edge.startswith(("out", "pad"))

    def run(self, change: Change, right: Any = None) -> Params | None:
        """Loss, outputs and gradients; None if the outputs are not ``right``."""
        outputs, tapes = self.forward(change)
        if right is not None and not right({"outputs": outputs}):
            return None
        loss, dv = scored(self.net, outputs, self.batch)
        final = self.batch.final or {}
        loss = loss + sum((last_state(tapes[name[2:]]) * d).sum() for name, d in final.items())
        if right is not None and not right({"loss": loss}):
            return None
        back, sums = self.edges | dict(change.back), self.edges | dict(change.sums)
        d = back["outputs"].back(dv[None] if self.last else dv)
        flat = d.reshape(-1, d.shape[-1])
        grads: Params = {}
        if self.net.readout != "none":
            rows = self._rows_of(tapes, sums, change)
            grads = {"Why": flat.T @ rows.reshape(len(flat), -1), "by": flat.sum(axis=0)}
            d = d @ self.pulling["Why"]
        pulled = self._backward(back["rows"].back(d), tapes, back, sums, change)
        grads = self.net.gathered(self.params, self.p, self.residuals, {**grads, **pulled})
        states = {
            f"{name}{suffix}": getattr(tape, name)
            for suffix, tape in tapes.items()
            for name in ("h", "c")
            if getattr(tape, name, None) is not None
        }
        return {
            "loss": np.asarray(loss), "outputs": outputs, **states,
            **{f"d{name}": value for name, value in grads.items()},
        }  # fmt: skip

    def _rows_of(self, tapes: dict[str, Any], edges: Moves, change: Change) -> Array:
        """What is read out."""
        if not self.last:
            return edges["rows"].there(self._into(len(self.layers), tapes, edges, change))
        L = len(self.layers)
        ends = self._ends(L - 1, tapes, edges)
        if L in change.skips:
            ends = change.skips[L] * ends + self._ends(L - 2, tapes, edges)
        return edges["rows"].there(ends)

    def _ends(self, number: int, tapes: dict[str, Any], edges: Moves) -> Array:
        """The last states of a layer."""
        of = (edges.get(f"read{s}", self.ending).there(tapes[s].h) for s in self.layers[number])
        return np.concatenate([*of], axis=2)

    def _ending_in(self, number: int, d: Array) -> Array:
        """The gradient of a layer's outputs from that of its last states."""
        parts = np.split(d, len(self.layers[number]), axis=2)
        of = zip(self.layers[number], map(self.ending.back, parts))
        return np.concatenate([self.turn(suffix).there(dh[1:]) for suffix, dh in of], axis=2)

    def _backward(
        self, d: Array, tapes: dict[str, Any], back: Moves, sums: Moves, change: Change
    ) -> Params:
        grads: Params = {}
        carried, ends = dict(self.batch.final or {}), dict[str, Array]()
        last = self.last
        for number in reversed(range(len(self.layers))):
            usual = change.skips.get(number + 1, 1) if change.follows else 1
            passed = d if change.follows and number + 1 in change.skips else None
            d = d * usual
            if not last:
                d = back[f"pad{number}"].back(d)
            below: list[Array] = []
            order = [*reversed([*enumerate(self.layers[number].items())])]
            (_, (first, _)), (_, (second, _)) = order[0], order[-1]
            if first in change.ends and change.ends[first].cell == second:
                order.reverse()
            for n, (suffix, cell) in order:
                part = d[..., n * cell.width : (n + 1) * cell.width]
                dh = back[("read" if last else "out") + suffix].back(part)
                carry = carried.get(f"h0{suffix}")
                for _ in range(self._rounds(change.ends, suffix)):
                    if suffix in change.ends and (left := change.ends[suffix]).cell in ends:
                        end = ends[left.cell]
                        more = left.move.there(_pair(end)).reshape(end.shape)
                        carry = carried.get(f"h0{suffix}", 0) + more
                    pulled = self._pulled(suffix, number, (dh, carry), tapes, sums, change)
                    h0 = pulled["h0"].copy()
                    h0[(0,) * (h0.ndim - 2)][:, : cell.width] += dh[0]
                    ends[suffix] = h0
                self.arriving[suffix] = dh, carry
                h0 = _pair(back[f"start{suffix}"].back(_pair(h0)))
                if suffix in change.starts:
                    other, move, follows = change.starts[suffix]
                    if follows:
                        more = move.back(h0).reshape(pulled["h0"].shape)
                        carried[f"h0{other}"] = carried.get(f"h0{other}", 0) + more
                    h0 = h0 * (1 - move.there(0 * h0 + 1))
                pulled["h0"] = h0.reshape(pulled["h0"].shape)
                below.append(back[f"in{suffix}"].back(pulled.pop("x")))
                grads |= {named(name, suffix): value for name, value in pulled.items()}
            d = np.asarray(sum(below[::-1]))
            if passed is not None:
                d = d + (self._ending_in(number - 1, passed) if last else passed)
            last = False
        return {**grads, "x": back["x"].back(d)}

    def _pulled(
        self,
        suffix: str,
        number: int,
        arriving: tuple[Array, Array | None],
        tapes: dict[str, Any],
        sums: Moves,
        change: Change,
    ) -> Params:
        """The gradients of one cell."""
        source = change.tapes.get(suffix, suffix)
        tape, cell, (dh, carry) = tapes[source], self.cells[suffix], arriving
        if suffix in change.inside:
            results = change.inside[suffix](tape.x, tape.start, dh, carry)
            return {n[1:]: value for n, value in results.items() if n[0] == "d"}
        x = self._into(number, tapes, sums, change)
        pulled = cell.layer.backward(
            self.net.of(self.pulling, suffix), tape._replace(x=sums[f"in{source}"].there(x)),
            lambda first, tape: dh[1:].copy(), carry=carry,
        )  # fmt: skip
        pulled.pop("clipped", None)
        return pulled

    def _into(self, number: int, tapes: dict[str, Any], edges: Moves, change: Change) -> Array:
        """What a layer sees or, above the last one, the read-out."""
        if number == 0:
            return edges["x"].there(self.batch.x)
        x = self._below(tapes, number, edges)
        if number in change.skips:
            x = change.skips[number] * x + self._into(number - 1, tapes, edges, change)
        return x

    def _below(self, tapes: dict[str, Any], number: int, edges: Moves) -> Array:
        """The output of the layer below."""
        states = [edges[f"out{s}"].there(tapes[s].h) for s in self.layers[number - 1]]
        return edges[f"pad{number - 1}"].there(np.concatenate(states, axis=2))


def _pair(state: Array) -> Array:
    """A cell's state as (states, B, H)."""
    return state.reshape(-1, *state.shape[-2:])


def same(a: Params, b: Params) -> bool:
    """Whether two readings are the same but for rounding."""
    return all(np.linalg.norm(a[n] - b[n]) <= 1e-10 * np.linalg.norm(b[n]) for n in a if n in b)


def near(reading: Params, true: Params) -> bool:
    """Whether the reference's own results agree with what is certified."""
    off = {n: np.linalg.norm(value - true[n]) for n, value in reading.items() if n in true}
    return all(size <= 1e-6 * np.linalg.norm(true[n]) for n, size in off.items())
