"""Edits inside the cells of a stack: in all of them, in one layer, or in one direction.

Each cell is a net of one layer whose outputs are its states, with the gradient that arrives there.

Checked by: tests/check/test_outside.py.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from itertools import islice
from operator import methodcaller
from types import MappingProxyType
from typing import Any

import numpy as np

from refnet.batch import Array, Batch, Params
from refnet.check.mistakes.backward import of_the_recursion, of_the_sums
from refnet.check.mistakes.base import run_all
from refnet.check.naive.nets import Recurrent
from refnet.check.programs.candidates import backward_edits, forward_edits
from refnet.check.programs.edit import Candidate, Edit
from refnet.check.programs.explain import Programs
from refnet.check.programs.functions import has
from refnet.check.programs.grammar import Grammar
from refnet.check.programs.layers import Change, Layers, same
from refnet.check.programs.passes import covers
from refnet.check.programs.program import Program
from refnet.check.programs.runs import Runs
from refnet.nets.base import named
from refnet.nets.stacked import StackedNet

__all__ = ["Stacks", "known_cells"]

TOGETHER = 128
SIMPLE = methodcaller("programs")
"""What a search in one cell has without anything fitted."""
Readings = Iterator[tuple[str, Params]]


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
            suffix: self._program(suffix, tape.x, self._start(tape), *self.arriving[suffix])
            for suffix, tape in self.layers.tapes.items()
        }
        first = next(iter(self.programs.values()))
        self.grammar = Grammar(first, self.net.gates)

    @staticmethod
    def _start(tape: Any) -> Array:
        """The state with which a cell starts."""
        return np.stack([tape.h[0], tape.c[0]]) if hasattr(tape, "c") else tape.h[0]

    def _program(
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
        program = self._program(suffix, x, start, *ends)
        ((_, results),) = Runs(program, [candidate]).gradients()
        return _known(results)

    def readings(self) -> Readings:
        """The results of the edits that fit."""
        if self.search.wrong & {"outputs", "loss"}:
            yield from self._tried(self._forward)
            return
        for kind in (self._rows, SIMPLE):
            known = [*self.backward(kind)]
            if known:
                yield from known
                return
        yield from self._tried(self._handed_down)

    def _tried(self, fit: Callable[[Sequence[str]], Iterable[Candidate]]) -> Readings:
        """The results of the candidates that fit in the first cells where some do."""
        seen: list[Params] = []
        for said, cells in self.places():
            if seen:
                return
            for candidate in fit(cells):
                reading = self.reading(candidate, cells, self.search.agrees)
                if reading is not None and not any(same(reading, other) for other in seen):
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

    def backward(
        self,
        kind: Callable[[Any], Readings],
        known: Mapping[str, Params] = MappingProxyType({}),
        names: Sequence[str] = (),
    ) -> Readings:
        """The results of a kind of edits that a search in one cell has: from the top down, each
        cell hands on what explains its gradients. The results of the ``known`` cells are those of
        edits with these ``names``, and those below have to have the same."""
        inside = {suffix: partial(_known, results) for suffix, results in known.items()}
        reading = self.layers.run(Change("", inside=inside)) or {}
        for said, cells in self.places():
            if {*cells} == {*known} and self.search.explains(reading):
                for name in names[: None if kind == self._rows else 1]:
                    yield f"{name}{said}", reading
                return
        for suffix in [s for s in reversed(self.layers.cells) if s not in known]:
            alone, alike = self._alone(suffix), list[tuple[Params, list[str]]]()
            alone.of_programs.only = names if kind is SIMPLE else ()
            for name, results in kind(alone) if alone.wrong else ():
                if not known or name in names:
                    others = [texts for other, texts in alike if same(results, other)]
                    if others:
                        others[0].append(name)
                    else:
                        alike.append((results, [name]))
            for results, texts in alike:
                yield from self.backward(kind, {**known, suffix: results}, texts)
            if alone.wrong:
                return

    def _rows(self, alone: Any) -> Readings:
        """The mistakes of ``refnet.check.mistakes`` over the steps: several may give the same at
        these sizes."""
        s, layers = alone.of_programs.program.s, self.layers
        net = replace(s.net, readout="last" if layers.last else "every")
        every = [*of_the_recursion(net, layers.batch), *of_the_sums(net, layers.batch)]
        outcomes = run_all(s.net, s.params, s.batch, [(row, ()) for row in every])
        for row, reading in zip(every, outcomes):
            if reading and alone.explains(reading):
                yield row.label, reading

    def _alone(self, suffix: str) -> Any:
        """The search in one cell, with the gradient that arrived there in the latest run."""
        search, tape = self.search, self.layers.tapes[suffix]
        program = self._program(suffix, tape.x, self._start(tape), *self.layers.arriving[suffix])
        ((_, true),) = Runs(program, [Candidate("", ())]).gradients()
        names = {n: f"d{named(n[1:], suffix)}" for n in true if n[0] == "d" and n != "dh0"}
        names = {n: name for n, name in names.items() if name in search.given}
        given, sigma = (
            {n: of[name] for n, name in names.items()} for of in (search.given, search.sigma)
        )
        s, case = program.s, copy(search.all)
        case.true, case.net = {n: true[n] for n in names}, s.net
        case.params, case.batch = s.params, s.batch
        wrong = {n for n, name in names.items() if search.ratio(name, true[n]) > 1}
        alone = type(search)(case, given, wrong, sigma, search.u)
        alone.of_programs = _Alone(alone)
        return alone

    def _handed_down(self, cells: Sequence[str]) -> Iterator[Candidate]:
        """The edits of dx, in cells of which the highest is above all that is wrong."""
        top = [s for s in self.layers.cells if s in cells][-1]
        if not any(name.partition(".")[0].endswith(top) for name in self.search.wrong):
            for candidate in backward_edits(self.grammar, True, True):
                lines = (line for edit in candidate.edits for line in edit.lines)
                if {line.target.name for line in lines} == {"d x"}:
                    yield candidate

    def _forward(self, cells: Sequence[str]) -> Iterator[Candidate]:
        """Those with which the outputs are what was given, whatever the backward pass does."""
        grammar, alike = self.grammar, dict[tuple[Edit, ...], list[Candidate]]()
        for candidate in forward_edits(grammar):
            lines = tuple(edit for edit in candidate.edits if edit.place[0] == "line")
            alike.setdefault(lines, []).append(candidate)
        for candidate, results in self.outcomes((Candidate("", lines) for lines in alike), cells):
            if self.search.agrees(results):
                yield from alike[candidate.edits]

    def outcomes(
        self, candidates: Iterable[Candidate], cells: Sequence[str]
    ) -> Iterator[tuple[Candidate, Params]]:
        """The outputs with each candidate in these cells."""
        rest = iter(candidates)
        while some := list(islice(rest, TOGETHER)):
            for candidate, outputs in zip(some, self._outputs(some, cells)):
                yield candidate, {"outputs": outputs}

    def _outputs(self, candidates: Sequence[Candidate], cells: Sequence[str]) -> Array:
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


def _known(results: Params, *arguments: Any) -> Params:
    return {name: value for name, value in results.items() if name not in ("dWhy", "dby")}


class _Alone(Programs):
    """The edits of the backward pass of one cell. Those that differ in what they hand down count
    as different."""

    def __init__(self, search: Any) -> None:
        super().__init__(search)
        self.forward, self.backward = False, True
        self.only: Sequence[str] = ()
        """The names of the candidates, if not all are."""

    def candidates(self) -> Iterator[Candidate]:
        """The edits of the backward pass."""
        return (c for c in super().candidates() if not self.only or c.name in self.only)

    def distinct(self, readings: Iterable[tuple[str, Params]]) -> Readings:
        """All that fit."""
        return ((name, reading) for name, reading in readings if self.search.explains(reading))
