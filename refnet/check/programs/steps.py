"""Edits that are made at some steps, of some examples or of one unit alone.

The first step at which h or dx parts says where; every candidate (``candidates``) that mends it
there is then made at the further steps that part. ``refnet.check.search`` asks after whole edits.

Checked by: tests/check/test_programs.py.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from refnet.batch import Array, Params
from refnet.check.entries import Axis
from refnet.check.judgement import LIMITS
from refnet.check.programs.cells import STATES, Line, Term, gradient
from refnet.check.programs.edit import Candidate, Edit
from refnet.check.programs.explain import Programs
from refnet.check.programs.runs import Runs
from refnet.check.where import indices

__all__ = ["Steps"]

MOST = 64
"""The most steps at which an edit is made."""


class Steps:
    """The search among edits at some steps, of some examples or of one unit."""

    def __init__(self, programs: Programs) -> None:
        self.programs, self.search = programs, programs.search
        self.T, self.B, _ = programs.program.s.x.shape

    def readings(self) -> Iterator[tuple[str, Params]]:
        """The results of those that fit."""
        search = self.search
        if search.wrong == {"dh0"}:
            yield from self.programs.tried(self._of(c, [0]) for c in self.programs.candidates())
        if self.programs.backward:
            yield from self.programs.tried(self._passed())
            yield from self.programs.tried(self._sides())
        yield from self.programs.tried(self._units())
        of = "h" if self.programs.forward else "dx"
        if of not in search.wrong or search.given[of].shape != search.true[of].shape:
            return
        off = self._off(of, search.true[of])
        examples, rows = off.any(axis=0), np.flatnonzero(off.any(axis=1))
        if not len(rows):
            return
        some: Array | None = None if examples.all() else np.asarray(examples)
        if some is not None:
            edits = (self._of(c, None, some) for c in self.programs.candidates())
            yield from self.programs.tried(edits)
        if of == "dx" and self.T <= MOST:
            yield from self._backward(int(rows[-1]), some)
        elif of == "h":
            yield from self.programs.tried(self._forward(int(rows[0]), some))

    def _sides(self) -> Iterator[Candidate]:
        """Other slopes of the activation where its argument is negative alone."""
        grammar, program = self.programs.grammar, self.programs.program
        activation = program.s.net.activation.name
        for n, line in program.of_function(activation).items() if activation != "tanh" else ():
            pull, (a,) = program.pulls[n][1], line.terms[0].factors
            weight = 1.0 * (Runs(program, [Candidate("", ())]).argument(a) < 0)
            for said, new in grammar.slopes(line, pull):
                name = f"{grammar.receiver(n, pull)} {said}, where {grammar.word(a)} is negative"
                yield Candidate(name, (Edit(("pull", n, 1), (new,), weight),))

    def _units(self) -> Iterator[Candidate]:
        """The edits of the first unit alone, or the last."""
        H = self.programs.program.s.p["Whh"].shape[1]
        for candidate in self.programs.candidates():
            pulls = [line for edit in candidate.edits for line in edit.lines]
            whole = any(edit.place[0] == "pulls" for edit in candidate.edits)
            for unit in () if whole or any(p.target.name == "d x" for p in pulls) else (0, H - 1):
                weight = (np.arange(H) == unit) * np.ones((1, 1, 1))
                edits = tuple(edit._replace(weight=weight) for edit in candidate.edits)
                yield Candidate(f"{candidate.name}, of unit {unit}", edits)

    def _off(self, name: str, reading: Array) -> Array:
        """Of every step and example, whether a result is more than rounding off."""
        given, sigma = self.search.given[name], self.search.sigma[name]
        gap = abs(given - self.search.true[name])
        room = LIMITS[1] * sigma + np.minimum(
            1e-6 * abs(reading).max(axis=(1, 2), keepdims=True), 0.1 * gap
        )
        return np.asarray((abs(given - reading) > room).any(axis=-1))

    def _of(
        self, candidate: Candidate, steps: Sequence[int] | None, some: Array | None = None
    ) -> Candidate:
        """A candidate at these steps and of ``some`` examples (B,) alone, or of all."""
        rows = np.ones((self.T + 1, 1, 1))
        said, certified = candidate.name, self.search.all.certified
        if some is not None:
            where = indices(Axis("example"), np.flatnonzero(some), self.B, certified, "dx")
            said += f", of {where}"
        if steps is not None:
            rows[:] = 0
            rows[list(steps)] = 1
            where = indices(Axis("step"), np.array(steps), self.T, certified, "")
            said += f", {'' if where.startswith('from') else 'at '}{where}"
        at = rows[:-1] if steps is not None else rows[:1]
        weights = [a if some is None else a * some.reshape(1, -1, 1) for a in (at, rows)]
        edits = []
        for edit in candidate.edits:
            state = edit.place[0] == "tape" and edit.lines[0].target.name in STATES
            edits.append(edit._replace(weight=weights[state and steps is not None]))
        return Candidate(said, tuple(edits))

    def _passed(self) -> Iterator[Candidate]:
        """The backward pass without its first steps or last ones, which the states' gradients go
        through as they are."""
        program = self.programs.program
        lost = [Edit(("pulls", n, 0), ()) for n, line in enumerate(program.lines)]
        for name in STATES:
            if name in program.index:
                carried = Line(gradient(name, -1), (Term((gradient(name),)),), adds=True)
                lost[program.index[name]] = Edit(("pulls", program.index[name], 0), (carried,))
        for k in range(1, self.T):
            yield self._of(Candidate("the backward loop passes over", tuple(lost)), range(k))
            rest = range(k, self.T)
            yield self._of(Candidate("the backward loop passes over", tuple(lost)), rest)

    def _forward(self, row: int, some: Array | None) -> Iterator[Candidate]:
        """The edits that mend the first wrong row of h, at the step before it alone, and at every
        k-th one from there."""
        of = {self._of(c, [row - 1], some).name: c for c in self.programs.candidates()}
        mended: list[Candidate] = []

        def stays(at: int, v: Params, names: list[str]) -> Array:
            good = self.programs.stays(at, v)
            if at == row:
                mended.extend(of[names[k]] for k in np.flatnonzero(good))
            return good & (at < row)

        for _ in self.programs.run(
            (self._of(c, [row - 1], some) for c in of.values()), None, None, stays
        ):
            pass
        for k in range(1, self.T + 1):
            steps = range(row - 1, self.T, k)
            if k == 1 or len(steps) > 1 or k == self.T:
                yield from (self._of(candidate, steps, some) for candidate in mended)

    def _backward(self, last: int, some: Array | None) -> Iterator[tuple[str, Params]]:
        """From the step ``last``, where dx parts first going back, every edit that mends it; then
        the next steps at which it must be made."""
        mended: list[tuple[Candidate, int]] = []
        known = list(self.programs.candidates())
        for step in (last, last + 1, last + 2):
            if step > self.T:
                continue

            of = {self._of(c, [step], some).name: c for c in known}

            def fits(at: int, dx: Array, names: list[str]) -> Array:
                if at > last:
                    return np.ones(len(dx), bool)
                if at == last:
                    for k in np.flatnonzero(self.programs.fits(at, dx)):
                        mended.append((of[names[k]], step))
                return np.zeros(len(dx), bool)

            for _ in self.programs.run((self._of(c, [step], some) for c in known), fits):
                pass
        for candidate, step in mended[:48]:
            yield from self._further(candidate, step, last, some)

    def _further(
        self, candidate: Candidate, step: int, last: int, some: Array | None
    ) -> Iterator[tuple[str, Params]]:
        """With the steps below at which dx parts again; step 0 may not show in it."""
        steps, shift = [step], step - last
        while len(steps) <= MOST:
            ((named, reading),) = self.programs.run([self._of(candidate, sorted(steps), some)])
            off = np.flatnonzero(self._off("dx", reading["dx"]).any(axis=1))
            if not len(off):
                yield named.name, reading
                if 0 not in steps:
                    both = self._of(candidate, sorted([0, *steps]), some)
                    yield from ((both.name, more) for _, more in self.programs.run([both]))
                return
            if off[-1] + shift in steps or off[-1] >= last:
                return
            last = int(off[-1])
            steps.append(last + shift)
