"""The edits that explain results, among those that their location leaves.

Checked by: tests/check/test_programs.py.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from refnet.batch import Array, Params
from refnet.check.naive.nets import Recurrent
from refnet.check.programs.grammar import Grammar
from refnet.check.programs.program import Program
from refnet.check.programs.runs import Candidate, Fits, Runs, together

__all__ = ["Programs"]

FORWARD = {"loss", "outputs", "h", "c"}


class Programs:
    """A search's results, and the edits of the net's program."""

    def __init__(self, search: Any) -> None:
        case = search.all
        self.search = search
        s = Recurrent(case.net, case.params, case.batch, ())
        self.program = Program(s)
        ((_, self.program.results),) = Runs(self.program, [Candidate("", ())]).gradients()
        self.grammar = Grammar(self.program, case.net.gates)
        states = FORWARD - {"loss"}
        self.forward = bool(search.wrong & states) or not states & set(search.given)
        self.backward = not search.wrong & FORWARD
        names = {n for n in search.wrong if n[1:] in case.params or "." in n} - {"dh0"}
        self.in_sums = "dx" not in search.wrong and search.wrong <= names
        self.in_the_loop = not (self.in_sums and "dx" in search.given)

    def candidates(self) -> Iterator[Candidate]:
        """The edits that the location leaves."""
        grammar = self.grammar
        if self.backward and self.in_sums:
            yield from grammar.backward(True)
        if self.backward and self.in_the_loop:
            yield from grammar.backward(False)
            yield from grammar.tapes()
        if self.backward:
            yield from grammar.together()
        if self.forward:
            yield from grammar.forward()

    def readings(self) -> Iterator[tuple[str, Params]]:
        """What the candidates that fit give, by their names."""
        yield from self.tried(islice(self.candidates(), 4 * self.search.all.passes()))

    def tried(self, candidates: Iterable[Candidate]) -> Iterator[tuple[str, Params]]:
        """Those of the candidates that fit."""

        def fits(step: int, dx: Array, names: list[str]) -> Array:
            return self.fits(step, dx)

        yield from self.distinct(
            (candidate.name, reading)
            for candidate, reading in self.run(candidates, fits, self._right)
        )

    def distinct(self, readings: Iterable[tuple[str, Params]]) -> Iterator[tuple[str, Params]]:
        """The readings that fit, each once, under its first name."""
        seen: list[Params] = []
        for name, reading in readings:
            if self.search.whole(reading) <= 1 and not any(map(self._same(reading), seen)):
                seen.append(reading)
                yield name, reading

    def run(
        self,
        candidates: Iterable[Candidate],
        fits: Fits | None = None,
        right: Callable[[Params], bool] | None = None,
    ) -> Iterator[tuple[Candidate, Params]]:
        """The results of candidates, of those whose forward pass is ``right`` and whose dx
        ``fits``."""
        if "dx" not in self.search.given:
            fits = None
        T, B, _ = self.program.s.x.shape
        most = together(T, B, self.program.s.p["Whh"].shape[1])
        batches: dict[bool, list[Candidate]] = {False: [], True: []}
        for candidate in candidates:
            kind = any(edit.place[0] == "line" for edit in candidate.edits)
            batches[kind].append(candidate)
            if len(batches[kind]) == most:
                yield from Runs(self.program, batches[kind]).gradients(right, fits)
                batches[kind] = []
        for rest in batches.values():
            if rest:
                yield from Runs(self.program, rest).gradients(right, fits)

    def _right(self, results: Params) -> bool:
        search = self.search
        return all(
            search.ratio(name, results[name]) <= 1
            for name in FORWARD
            if name in results and name in search.given
        )

    def fits(self, step: int, dx: Array) -> Array:
        """Which of the candidates' dx (K, B, D) may be that of a step, by ``Search.ratio``."""
        search = self.search
        theirs, sigma = search.given["dx"], search.sigma["dx"]
        if theirs.shape[1:] != dx.shape[1:]:
            return np.ones(len(dx), bool)
        size = np.linalg.norm(theirs)
        enough = 24 * (max(search.spread["dx"], search.relative["dx"] * size) + search.u * size)
        off = theirs[step] - dx
        good = np.linalg.norm(off.reshape(len(off), -1), axis=1) <= enough
        if "dx" in search.gap:
            least = sigma[sigma > 0].min(initial=np.inf)
            off = off / np.maximum(sigma[step], least if least < np.inf else 1.0)
            good &= np.linalg.norm(off.reshape(len(off), -1), axis=1) <= search.gap["dx"] / 5
        return np.asarray(good)

    def _same(self, reading: Params) -> Any:
        given = self.search.given

        def alike(other: Params) -> bool:
            return all(
                np.linalg.norm(reading[name] - other[name]) <= 1e-10 * np.linalg.norm(other[name])
                for name in given
                if name in reading and name in other
            )

        return alike
