"""The edits that explain results, among those that their location leaves.

Which results are wrong says whether the mistake is in the forward pass, in the backward recursion
or in the sums over the steps. ``Programs`` runs the ``candidates`` there, gives up each at the
first step that it cannot explain, and yields the results of the rest to ``refnet.check.search``.

Checked by: tests/check/test_programs.py.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from refnet.batch import Array, Params
from refnet.check.naive.nets import Recurrent
from refnet.check.programs.candidates import approximated, backward_edits, forward_edits
from refnet.check.programs.cells import STATES
from refnet.check.programs.edit import Candidate, Fits, Stays, together
from refnet.check.programs.grammar import Grammar
from refnet.check.programs.layers import same
from refnet.check.programs.program import Program
from refnet.check.programs.runs import Runs

__all__ = ["FORWARD", "Approximations", "Programs"]

FORWARD = {"loss", "outputs", "h", "c"}


class Programs:
    """The search among the edits of the net's program."""

    def __init__(self, search: Any) -> None:
        case = search.all
        self.search = search
        s = Recurrent(case.net, case.params, case.batch, ())
        self.program = Program(s)
        ((_, self.program.results),) = Runs(self.program, [Candidate("", ())]).gradients()
        self.grammar = Grammar(self.program, case.net.gates)
        known = (FORWARD - {"loss"}) & set(search.given) or {"loss"}
        self.forward = bool(known & search.wrong) or not known & set(search.given)
        self.backward = not search.wrong & FORWARD
        names = {n for n in search.wrong if n[1:] in case.params or "." in n} - {"dh0"}
        self.in_sums = "dx" not in search.wrong and search.wrong <= names
        self.in_the_loop = not (self.in_sums and "dx" in search.given)

    def candidates(self) -> Iterator[Candidate]:
        """The edits that the location leaves."""
        if self.backward:
            yield from backward_edits(self.grammar, self.in_sums, self.in_the_loop)
        if self.forward:
            yield from forward_edits(self.grammar)

    def readings(self) -> Iterator[tuple[str, Params]]:
        """The results of the candidates that fit, by their names."""
        yield from self.tried(islice(self.candidates(), 4 * self.search.all.passes()))

    def tried(self, candidates: Iterable[Candidate]) -> Iterator[tuple[str, Params]]:
        """The results of those of the candidates that fit."""

        def fits(step: int, dx: Array, names: list[str]) -> Array:
            return self.fits(step, dx)

        yield from self.distinct(
            (candidate.name, reading)
            for candidate, reading in self.run(candidates, fits, self.right, self.stays)
        )

    def distinct(self, readings: Iterable[tuple[str, Params]]) -> Iterator[tuple[str, Params]]:
        """The readings that fit, each once, under its first name."""
        seen: list[Params] = []
        for name, reading in readings:
            given = self.given(reading)
            if self.search.whole(reading) <= 1 and not any(same(given, other) for other in seen):
                seen.append(reading)
                yield name, reading

    def run(
        self,
        candidates: Iterable[Candidate],
        fits: Fits | None = None,
        right: Callable[[Params], bool] | None = None,
        stays: Stays | None = None,
    ) -> Iterator[tuple[Candidate, Params]]:
        """The results of candidates. Those are left out whose forward pass is not ``right``, whose
        states do not stay right at some step (``stays``), or whose dx does not fit (``fits``)."""
        if "dx" not in self.search.given:
            fits = None
        batches: dict[tuple[bool, int], list[Candidate]] = {}
        for candidate in candidates:
            forward = any(edit.place[0] == "line" for edit in candidate.edits)
            batch = batches.setdefault((forward, self.program.sweeps(candidate)), [])
            batch.append(candidate)
            if len(batch) == self.most:
                yield from Runs(self.program, batch).gradients(right, fits, stays)
                batch.clear()
        for rest in batches.values():
            if rest:
                yield from Runs(self.program, rest).gradients(right, fits, stays)

    def outcomes(self, candidates: Iterable[Candidate]) -> Iterator[tuple[Candidate, Params]]:
        """The results of candidates' forward passes."""
        every = iter(candidates)
        while batch := list(islice(every, self.most)):
            yield from Runs(self.program, batch).outcomes()

    @property
    def most(self) -> int:
        """How many candidates run at once."""
        T, B, _ = self.program.s.x.shape
        return together(T, B, self.program.s.p["Whh"].shape[1])

    def right(self, results: Params) -> bool:
        """Whether a candidate's forward pass gives what was given."""
        agrees: bool = self.search.agrees({n: results[n] for n in FORWARD if n in results})
        return agrees

    def fits(self, step: int, dx: Array) -> Array:
        """Which of the candidates' dx (K, B, D) may be that of a step, by ``Search.ratio``."""
        return self._near("dx", step, dx)

    def stays(self, at: int, v: Params, names: Sequence[str] = ()) -> Array:
        """Which of the candidates' states may be those at a row."""
        good = np.ones(v["h"].shape[1], bool)
        for name in STATES:
            good &= self._near(name, at, v[name][at])
        if getattr(self.program.s.net, "readout", "") == "every" and "h" not in self.search.given:
            p = self.program.s.p
            good &= self._near("outputs", at - 1, v["read"][at] @ p["Why"].T + p["by"])
        return good

    def _near(self, name: str, row: int, value: Array) -> Array:
        search = self.search
        if name not in search.given or name in search.infinite:
            return np.ones(len(value), bool)
        theirs, sigma = search.given[name], search.sigma[name]
        if theirs.shape[1:] != value.shape[1:]:
            return np.ones(len(value), bool)
        size = np.linalg.norm(theirs)
        enough = 24 * (max(search.spread[name], search.relative[name] * size) + search.u * size)
        off = theirs[row] - value
        good = np.linalg.norm(off.reshape(len(off), -1), axis=1) <= enough
        if name in search.gap:
            least = sigma[sigma > 0].min(initial=np.inf)
            off = off / np.maximum(sigma[row], least if least < np.inf else 1.0)
            good &= np.linalg.norm(off.reshape(len(off), -1), axis=1) <= search.gap[name] / 5
        return np.asarray(good)

    def given(self, reading: Params) -> Params:
        """The part of a reading that was given."""
        return {name: reading[name] for name in self.search.given if name in reading}


class Approximations:
    """The search among other formulas for tanh and the sigmoid."""

    def __init__(self, programs: Programs) -> None:
        self.programs = programs

    def readings(self) -> Iterator[tuple[str, Params]]:
        """What those that fit give."""
        if self.programs.forward:
            yield from self.programs.tried(approximated(self.programs.grammar))
