"""Two edits at once.

Of two wrong sums, each has an edit of its own. Otherwise the first edit is one that explains the
forward pass, or the most steps of dx, and the second one is looked for in the program with the
first (``explain.Programs``, anew).

Checked by: tests/check/test_programs.py.
"""

from collections.abc import Iterator
from copy import copy
from itertools import chain

import numpy as np

from refnet.batch import Array, Params
from refnet.check.programs.edit import Candidate
from refnet.check.programs.explain import Programs
from refnet.check.programs.layers import same
from refnet.check.programs.program import Program
from refnet.check.programs.weights import Weights

__all__ = ["Pairs"]

FIRST = 6
"""The first edits that a second one is looked for."""


class Pairs:
    """The search for two edits that explain the results together."""

    def __init__(self, programs: Programs) -> None:
        self.programs = programs

    def readings(self) -> Iterator[tuple[str, Params]]:
        """The results of the pairs that fit."""
        programs = self.programs
        if programs.backward and programs.in_sums:
            yield from self._of_the_sums()
            return
        firsts = self._forward() if programs.forward else self._backward()
        for first in firsts:
            second = copy(programs)
            second.program = _edited(programs.program, first)
            second.forward, second.backward = False, True
            second.in_sums = second.in_the_loop = True
            others = (c for c in second.candidates() if not _meet(first, c))
            for name, reading in second.tried(others):
                yield f"{first.name}; {name}", reading

    def _of_the_sums(self) -> Iterator[tuple[str, Params]]:
        """One edit of each wrong gradient, of several: what one edit gives is known by now."""
        search, names, whole = self.programs.search, [], dict(self.programs.program.results)
        if len(search.wrong) < 2:
            return
        left = {*search.wrong}
        every = chain(self.programs.candidates(), Weights(self.programs).left_out())
        for candidate, reading in self.programs.run(every):
            off = {name for name in left if search.ratio(name, reading[name]) <= 1}
            if off:
                left -= off
                names.append(candidate.name)
                whole |= {name: reading[name] for name in off}
        if not left:
            yield "; ".join(names), whole

    def _forward(self) -> Iterator[Candidate]:
        """The edits that explain the forward pass."""
        programs = self.programs
        every = (c for c in programs.candidates() if _plain(c))
        survivors = programs.run(every, None, programs.right, programs.stays)
        seen: list[Params] = []
        for candidate, reading in survivors:
            given = programs.given(reading)
            if len(seen) < FIRST and not any(same(given, other) for other in seen):
                seen.append(reading)
                yield candidate

    def _backward(self) -> list[Candidate]:
        """The edits that mend most steps of dx, from the last one at which it is wrong down."""
        programs, search = self.programs, self.programs.search
        if "dx" not in search.wrong or search.given["dx"].shape != search.true["dx"].shape:
            return []
        every = {c.name: c for c in programs.candidates() if _plain(c)}
        count = dict.fromkeys(every, 0)

        def fits(step: int, dx: Array, names: list[str]) -> Array:
            good = programs.fits(step, dx)
            for k in np.flatnonzero(good):
                count[names[k]] += 1
            return good

        runs = programs.run(every.values(), fits)
        for _ in runs:
            pass
        usual = {"": 0}

        def right(step: int, dx: Array, names: list[str]) -> Array:
            usual[""] += int(programs.fits(step, dx)[0])
            return programs.fits(step, dx)

        for _ in programs.run([Candidate("", ())], right):
            pass
        best = sorted(every, key=lambda name: -count[name])
        return [every[name] for name in best[:FIRST] if count[name] > usual[""]]


def _plain(candidate: Candidate) -> bool:
    kinds = ("line", "pull", "pulls")
    return all(e.place[0] in kinds and e.weight is None and not e.more for e in candidate.edits)


def _meet(first: Candidate, second: Candidate) -> bool:
    """Whether two candidates edit the same pull, perhaps by all pulls of its line."""
    edited = {edit.place if edit.place[0] == "pull" else edit.place[:2] for edit in first.edits}
    return any(
        edit.place in edited or edit.place[0] == "pull" and ("pulls", edit.place[1]) in edited
        for edit in second.edits
    )


def _edited(program: Program, candidate: Candidate) -> Program:
    """The program with these edits."""
    new = copy(program)
    new.lines, new.pulls = [*program.lines], [*program.pulls]
    for (kind, n, m), lines, _, _ in candidate.edits:
        if kind == "line":
            new.lines[n] = lines[0]
        elif kind == "pulls":
            new.pulls[n] = lines
        else:
            new.pulls[n] = (*new.pulls[n][:m], lines[0], *new.pulls[n][m + 1 :])
    return new
