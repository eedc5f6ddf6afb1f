"""Edits that are made at some steps, or of some examples, alone: where dx or h parts says which.

Checked by: tests/check/test_programs.py.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from refnet.batch import Array, Params
from refnet.check.entries import Axis
from refnet.check.judgement import LIMITS
from refnet.check.programs.explain import Programs
from refnet.check.programs.runs import Candidate
from refnet.check.where import indices

__all__ = ["Steps"]

MOST = 64
"""The most steps at which an edit is made."""


class Steps:
    """Edits of the backward pass at some steps or of some examples."""

    def __init__(self, programs: Programs) -> None:
        self.programs, self.search = programs, programs.search
        self.T, self.B, _ = programs.program.s.x.shape

    def readings(self) -> Iterator[tuple[str, Params]]:
        """Those that explain the results."""
        search = self.search
        if search.wrong == {"dh0"}:
            yield from self.programs.tried(self._at(self.programs.candidates(), [0]))
        of = "h" if self.programs.forward else "dx"
        if of not in search.wrong or search.given[of].shape != search.true[of].shape:
            return
        off = self._off(of, search.true[of])
        examples, rows = off.any(axis=0), np.flatnonzero(off.any(axis=1))
        if not len(rows):
            return
        if not examples.all():
            where = indices(
                Axis("example"), np.flatnonzero(examples), self.B, search.all.certified, of
            )
            weight = examples.astype(float).reshape(1, -1, 1)
            edits = (_weighted(c, weight, weight, where) for c in self.programs.candidates())
            yield from self.programs.tried(edits)
        if of == "dx" and self.T <= MOST:
            yield from self._backward(int(rows[-1]))
        elif of == "h":
            step = int(rows[0]) - 1
            yield from self.programs.tried(self._at(self.programs.candidates(), [step]))

    def _off(self, name: str, reading: Array) -> Array:
        """Of every step and example, whether a result is more than rounding off."""
        given, sigma = self.search.given[name], self.search.sigma[name]
        gap = abs(given - self.search.true[name])
        room = LIMITS[1] * sigma + np.minimum(
            1e-6 * abs(reading).max(axis=(1, 2), keepdims=True), 0.1 * gap
        )
        return np.asarray((abs(given - reading) > room).any(axis=-1))

    def _at(self, candidates: Iterator[Candidate], steps: Sequence[int]) -> Iterator[Candidate]:
        where = indices(Axis("step"), np.array(steps), self.T, self.search.all.certified, "")
        at = np.zeros((self.T, 1, 1))
        at[[step for step in steps if step < self.T]] = 1
        rows = np.zeros((self.T + 1, 1, 1))
        rows[list(steps)] = 1
        for candidate in candidates:
            yield _weighted(candidate, at, rows, where)

    def _backward(self, last: int) -> Iterator[tuple[str, Params]]:
        """From the step ``last``, where dx parts first going back, every edit that mends it; then
        the next steps at which it must be made."""
        mended: list[tuple[Candidate, int]] = []
        known = {c.name: c for c in self.programs.candidates()}
        for step in (last, last + 1, last + 2):
            if step > self.T:
                continue

            def fits(at: int, dx: Array, names: list[str]) -> Array:
                if at > last:
                    return np.ones(len(dx), bool)
                if at == last:
                    for k in np.flatnonzero(self.programs.fits(at, dx)):
                        mended.append((known[names[k].rpartition(", ")[0]], step))
                return np.zeros(len(dx), bool)

            for _ in self.programs.run(self._at(iter(known.values()), [step]), fits):
                pass
        for candidate, step in mended[:24]:
            yield from self._further(candidate, step, last)

    def _further(self, candidate: Candidate, step: int, last: int) -> Iterator[tuple[str, Params]]:
        """With the steps below at which dx parts again; step 0 may not show in it."""
        steps, shift = [step], step - last
        while len(steps) <= MOST:
            ((named, reading),) = self.programs.run(self._at(iter([candidate]), sorted(steps)))
            off = np.flatnonzero(self._off("dx", reading["dx"]).any(axis=1))
            if not len(off):
                yield named.name, reading
                if 0 not in steps:
                    both = self._at(iter([candidate]), sorted([0, *steps]))
                    yield from ((c.name, more) for c, more in self.programs.run(both))
                return
            if off[-1] + shift in steps or off[-1] >= last:
                return
            last = int(off[-1])
            steps.append(last + shift)


def _weighted(candidate: Candidate, weight: Array, rows: Array, where: str) -> Candidate:
    edits = []
    for edit in candidate.edits:
        w = weight
        if edit.place[0] == "tape" and len(rows) > 1:
            w = rows if edit.lines[0].target.name in ("h", "c") else rows[:-1]
        edits.append(edit._replace(weight=w))
    at = (
        ""
        if where.startswith("from")
        else "of "
        if "example" in where or "sequence" in where
        else "at "
    )
    return Candidate(f"{candidate.name}, {at}{where}", tuple(edits))
