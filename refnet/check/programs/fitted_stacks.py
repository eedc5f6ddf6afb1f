"""Edits inside the cells of a stack that need something fitted.

Where the outputs are wrong, one constant is fitted to them. Where gradients are, each cell, from
the top down, is a net of one layer whose states' gradient is known: what explains its gradients
also says what it hands to the cells below, whose own edit has to have the same name.

Checked by: tests/check/test_outside.py::test_what_is_fitted_in_a_stack_is_named.
"""

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from functools import partial
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from refnet.batch import Params
from refnet.check.mistakes.backward import of_the_recursion, of_the_sums
from refnet.check.mistakes.base import run_all
from refnet.check.programs.constants import Constants
from refnet.check.programs.edit import Candidate
from refnet.check.programs.explain import Programs
from refnet.check.programs.layers import Change
from refnet.check.programs.runs import Runs
from refnet.check.programs.stacks import Stacks, batches
from refnet.nets.base import named

__all__ = ["FittedStacks"]


Readings = Iterator[tuple[str, Params]]


class FittedStacks:
    """The search for what is fitted in the cells of a stack."""

    def __init__(self, search: Any, stacks: Stacks) -> None:
        self.search, self.stacks, self.layers = search, stacks, stacks.layers
        self.said = {frozenset(cells): said for said, cells in stacks.places()}

    def readings(self) -> Readings:
        """The results of what fits, by its name."""
        if "outputs" in self.search.wrong:
            for said, cells in self.stacks.places():
                for name, reading in Constants(_Forward(self, cells)).readings():
                    yield f"{name}{said}", reading
        yield from self.backward(attrgetter("fitted_programs"))

    def rows(self) -> Readings:
        """The results of the mistakes of ``refnet.check.mistakes`` over the steps."""
        yield from self.backward(lambda alone: partial(self._rows, alone))

    def _rows(self, alone: Any) -> Readings:
        s, layers = alone.of_programs.program.s, self.layers
        net = replace(s.net, readout="last" if layers.last else "every")
        every = [*of_the_recursion(net, layers.batch), *of_the_sums(net, layers.batch)]
        outcomes = run_all(s.net, s.params, s.batch, [(row, ()) for row in every])
        for row, reading in zip(every, outcomes):
            if reading and alone.explains(reading):
                yield row.label, reading

    def backward(
        self, kind: Any, known: Mapping[str, Params] = MappingProxyType({}), name: str = ""
    ) -> Readings:
        """The results of a kind of edits of one cell, with those of the cells that are explained,
        which have the edit of this name."""
        if self.search.wrong & {"outputs", "loss"}:
            return
        inside = {suffix: partial(_known, results) for suffix, results in known.items()}
        reading = self.layers.run(Change("", inside=inside)) or {}
        said = self.said.get(frozenset(known))
        if said is not None and self.search.explains(reading):
            yield f"{name}{said}", reading
            return
        for alone in map(self._alone, [s for s in reversed(self.layers.cells) if s not in known]):
            if alone.wrong:
                for text, results in kind(alone)():
                    if not known or text == name:
                        yield from self.backward(kind, {**known, alone.suffix: results}, text)
                return

    def _alone(self, suffix: str) -> Any:
        """The search in one cell, with the gradient that arrived there in the latest run."""
        search, tape = self.search, self.layers.tapes[suffix]
        start, arriving = self.stacks.start(tape), self.layers.arriving[suffix]
        program = self.stacks.program(suffix, tape.x, start, *arriving)
        ((_, true),) = Runs(program, [Candidate("", ())]).gradients()
        names = {n: f"d{named(n[1:], suffix)}" for n in true if n[0] == "d"}
        names = {n: name for n, name in names.items() if name in search.given and n != "dh0"}
        given, sigma = (
            {n: of[name] for n, name in names.items()} for of in (search.given, search.sigma)
        )
        s, case = program.s, copy(search.all)
        case.true, case.net = {n: true[n] for n in names}, s.net
        case.params, case.batch = s.params, s.batch
        alone = type(search)(case, given, set(), sigma, search.u)
        alone.wrong = {n for n in names if alone.ratio(n, case.true[n]) > 1}
        alone = type(search)(case, given, alone.wrong, sigma, search.u)
        alone.suffix, alone.of_programs = suffix, Programs(alone)
        alone.of_programs.forward, alone.of_programs.backward = False, True
        return alone


def _known(results: Params, *arguments: Any) -> Params:
    return {name: value for name, value in results.items() if name not in ("dWhy", "dby")}


class _Forward(Programs):
    """The outputs of a stack with edits in some cells."""

    def __init__(self, fitted: FittedStacks, cells: Iterable[str]) -> None:
        self.stacks, self.cells = fitted.stacks, [*cells]
        self.search = copy(fitted.search)
        self.search.wrong = {"outputs"}
        self.program, self.grammar = self.stacks.grammar.program, self.stacks.grammar
        self.forward, self.backward = True, False
        ((_, self.program.results),) = self.outcomes([Candidate("", ())])

    def outcomes(self, candidates: Iterable[Candidate]) -> Iterator[tuple[Candidate, Params]]:
        """The outputs alone."""
        for some in batches(candidates):
            for candidate, outputs in zip(some, self.stacks.outputs(some, self.cells)):
                yield candidate, {"outputs": outputs}

    def run(
        self, candidates: Iterable[Candidate], *filters: Any
    ) -> Iterator[tuple[Candidate, Params]]:
        """All results."""
        for candidate in candidates:
            yield candidate, self.stacks.reading(candidate, self.cells) or {}
