"""Edits inside the cells of a stack: in all of them, in one layer, or in one direction.

Each cell is a net of one layer whose outputs are its states, with the gradient that arrives there.

Checked by: tests/check/test_outside.py.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from refnet.batch import Array, Batch, Params
from refnet.check.naive.nets import Recurrent
from refnet.check.programs.candidates import backward_edits, forward_edits
from refnet.check.programs.edit import Candidate, Edit
from refnet.check.programs.functions import has
from refnet.check.programs.grammar import Grammar
from refnet.check.programs.layers import Change, Layers, same
from refnet.check.programs.passes import covers
from refnet.check.programs.program import Program
from refnet.check.programs.runs import Runs
from refnet.nets.base import named
from refnet.nets.stacked import StackedNet

__all__ = ["Stacks", "batches", "known_cells"]

TOGETHER = 128


def batches(candidates: Iterable[Candidate]) -> Iterator[list[Candidate]]:
    """As many as run together."""
    rest = iter(candidates)
    while some := list(islice(rest, TOGETHER)):
        yield some


def _of_dx(candidate: Candidate) -> bool:
    return {line.target.name for edit in candidate.edits for line in edit.lines} == {"d x"}


def known_cells(net: StackedNet, params: Params) -> bool:
    """Whether programs can run the cells of a stack."""
    cell, suffix = next(iter(net.every_cell.items()))[::-1]
    return covers(cell, net.of(params, suffix)) and has(cell.layer.activation) and not net.embedding


class Stacks:
    """The search among the edits of a stack's cells."""

    def __init__(self, search: Any) -> None:
        case = search.all
        self.search = search
        self.layers = Layers(case.net, case.params, case.batch)
        self.net = self.layers.net
        self.layers.run(Change(""))
        self.arriving = dict(self.layers.arriving)
        self.programs = {
            suffix: self.program(suffix, tape.x, self.start(tape), *self.arriving[suffix])
            for suffix, tape in self.layers.tapes.items()
        }
        first = next(iter(self.programs.values()))
        self.grammar = Grammar(first, self.net.gates)

    @staticmethod
    def start(tape: Any) -> Array:
        """The state with which a cell starts."""
        return np.stack([tape.h[0], tape.c[0]]) if hasattr(tape, "c") else tape.h[0]

    def program(
        self, suffix: str, x: Array, start: Array, dh: Array | None, carry: Array | None
    ) -> Program:
        """A cell as a net of one layer, with the gradients of its states and of the last one."""
        H = self.net.hidden
        net = replace(
            self.layers.cells[suffix], outputs=H, readout="every", loss="none", reduction="sum",
            transition=None, learn_h0=False, smoothing=0,
        )  # fmt: skip
        params = {**self.net.of(self.layers.p, suffix), "h0": start}
        params |= {"Why": np.eye(H), "by": np.zeros(H)}
        y = np.zeros((*x.shape[:2], H)) if dh is None else dh[1:]
        batch = Batch(x, y, final=None if carry is None else {"h0": carry})
        return Program(Recurrent(net, params, batch, ()))

    def _inside(
        self, suffix: str, candidate: Candidate, x: Array, start: Array, *ends: Array | None
    ) -> Params:
        """The results of one edited cell."""
        program = self.program(suffix, x, start, *ends)
        ((_, results),) = Runs(program, [candidate]).gradients()
        return {name: value for name, value in results.items() if name not in ("dWhy", "dby")}

    def readings(self) -> Iterator[tuple[str, Params]]:
        """The results of the edits that fit."""
        forward = self.search.wrong & {"outputs", "loss"}
        seen: list[Params] = []
        for said, cells in self.places():
            if seen:
                return
            fit = self._forward(cells) if forward else self._backward(cells)
            for candidate in fit:
                reading = self.reading(candidate, cells, self.search.agrees)
                if reading is None:
                    continue
                if not any(same(reading, other) for other in seen):
                    seen.append(reading)
                    yield f"{candidate.name}{said}", reading

    def reading(
        self, candidate: Candidate, cells: Iterable[str], right: Any = None
    ) -> Params | None:
        """The results of a candidate in these cells; None if the outputs are not ``right``."""
        inside = {suffix: partial(self._inside, suffix, candidate) for suffix in cells}
        return self.layers.run(Change(candidate.name, inside=inside), right)

    def places(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Which cells an edit may be in: all, or those of a layer or a direction."""
        layers = self.layers.layers
        every = tuple(self.layers.cells)
        yield f", in every {'direction' if len(layers) == 1 else 'layer'}", every
        for number, layer in enumerate(layers if len(layers) > 1 else ()):
            yield f", in layer {number}", tuple(layer)
        for n, name in enumerate(("first", "second") if len(layers[0]) > 1 else ()):
            cells = tuple(list(layer)[n] for layer in layers)
            yield f", in the {name} direction", cells
            for number, cell in enumerate(cells if len(layers) > 1 else ()):
                yield f", in the {name} direction of layer {number}", (cell,)

    def _backward(self, cells: Sequence[str]) -> Iterable[Candidate]:
        """Those that fit in the highest of the cells, of which no cell above is wrong."""
        search, order = self.search, list(self.layers.cells)
        wrong = {s for s in order if any(self._of(n, s) for n in search.wrong)}
        layers = self.layers.layers
        number = max((n for n, layer in enumerate(layers) if wrong & {*layer}), default=0)
        here = [suffix for suffix in layers[number] if suffix in cells]
        above = {suffix for layer in layers[number + 1 :] for suffix in layer}
        every: Iterable[Candidate] = backward_edits(self.grammar, True, True)
        if above & {*cells}:  # what they hand down may be wrong
            yield from filter(_of_dx, every)
            return
        if {*here} != wrong & {*layers[number]}:
            return
        for suffix in here:
            every = [c for c, results in self._run(suffix, every) if self._fits(suffix, results)]
        yield from every

    @staticmethod
    def _of(name: str, suffix: str) -> bool:
        """Whether a gradient belongs to a cell."""
        return name.partition(".")[0].endswith(suffix)

    def _run(
        self, suffix: str, candidates: Iterable[Candidate]
    ) -> Iterator[tuple[Candidate, Params]]:
        for some in batches(candidates):
            try:
                yield from Runs(self.programs[suffix], some).gradients()
            except (KeyError, ValueError):  # an edit that this cell cannot have
                for candidate in some if len(some) > 1 else ():
                    yield from self._run(suffix, [candidate])

    def _fits(self, suffix: str, results: Params) -> bool:
        """Whether an edited cell's gradients of its parameters may be what was given."""
        inner = {n for n in results if n[0] == "d"} - {"dx", "dh0", "dWhy", "dby"}
        return bool(self.search.agrees({f"d{named(n[1:], suffix)}": results[n] for n in inner}))

    def _forward(self, cells: Sequence[str]) -> Iterator[Candidate]:
        """Those with which the outputs are what was given, whatever the backward pass does."""
        grammar, alike = self.grammar, dict[tuple[Edit, ...], list[Candidate]]()
        for candidate in forward_edits(grammar):
            lines = tuple(edit for edit in candidate.edits if edit.place[0] == "line")
            alike.setdefault(lines, []).append(candidate)
        for some in batches(Candidate("", lines) for lines in alike):
            for candidate, outputs in zip(some, self.outputs(some, cells)):
                if self.search.agrees({"outputs": outputs}):
                    yield from alike[candidate.edits]

    def outputs(self, candidates: Sequence[Candidate], cells: Sequence[str]) -> Array:
        """The outputs of all candidates, which are blocks of the last axis but one."""
        layers, K = self.layers, len(candidates)
        edges = layers.edges
        x = np.repeat(layers.batch.x[:, :, None], K, axis=2)  # (T, B, K, D)
        ends: list[Array] = []
        for number, layer in enumerate(layers.layers):
            ends, states = [], []
            for suffix in layer:
                seen = edges[f"in{suffix}"].there(x)
                edited = candidates if suffix in cells else [Candidate("", ())] * K
                runs = Runs(self.programs[suffix], edited)
                first = np.zeros_like(seen[:1])
                runs.v["x"] = np.moveaxis(np.concatenate([first, seen]), 2, 1)
                runs.forward, runs.K = True, K
                for name in runs.v.keys() - {"x"}:
                    start = runs.v[name][0]
                    runs.v[name] = np.zeros((len(x) + 1, K, *start.shape[1:]))
                    runs.v[name][0] = start
                runs.states()
                h = np.moveaxis(runs.v["h"], 1, 2)
                states.append(edges[f"out{suffix}"].there(h))
                if f"read{suffix}" in edges:
                    ends.append(edges[f"read{suffix}"].there(h))
            x = np.concatenate(states, axis=-1)
            shape = x.shape
            x = edges[f"pad{number}"].there(x.reshape(*shape[:2], -1)).reshape(shape)
        rows = np.concatenate(ends, axis=-1) if layers.last else x
        outputs = rows if self.net.readout == "none" else rows @ layers.p["Why"].T + layers.p["by"]
        return np.moveaxis(outputs[0] if layers.last else outputs, -2, 0)
