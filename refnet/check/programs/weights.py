"""Parts of a program's sums that count otherwise: by a factor, at some steps, of some examples.

First what is left out once or counts twice is tried; then weights by step, example, unit or entry
are fitted (``least_squares``) and put into words. ``constants`` shares the measure, and
``refnet.check.search`` asks after whole edits.

Checked by: tests/check/test_programs.py.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from refnet.batch import Array, Params
from refnet.check.entries import Axis
from refnet.check.judgement import LIMITS
from refnet.check.programs.cells import PASSED, Factor, Line, Term
from refnet.check.programs.edit import Candidate, Edit, Place
from refnet.check.programs.explain import Programs
from refnet.check.programs.least_squares import improved, solved
from refnet.check.programs.program import stem
from refnet.check.programs.words import CARRIED
from refnet.check.where import indices

__all__ = ["Part", "Weights", "enough"]

MOST = 64
"""The most weights of a sum."""
ENTRIES = 300
"""The most of a product's matrices."""
STEP = 1e-6
SHAPES = {"all": (1, 1, 1), "step": (-1, 1, 1), "example": (1, -1, 1), "unit": (1, 1, -1)}
STAGES = ((18, {"all"}), (6, {"step", "example", "unit", "inner", "input"}), (3, {"entry"}))
"""What the weights differ by, and how many fits are carried on."""
Members = list[tuple[Place, Line]]


class Part(NamedTuple):
    """A part of a sum that may count otherwise: its name, its lines by their places, whether the
    backward pass follows, and how often it counts in the right program."""

    name: str
    lines: tuple[tuple[Place, Line], ...]
    follows: bool = False
    usual: int = 1


class Weights:
    """The fits of weights to the results of these ``names``, by default to those that are wrong."""

    def __init__(self, programs: Programs, names: Iterable[str] | None = None) -> None:
        self.programs, self.program = programs, programs.program
        self.search = search = programs.search
        self.names = sorted(
            name
            for name in (search.wrong if names is None else names)
            if search.given[name].shape == search.true[name].shape
        )
        T, B, _ = self.program.s.x.shape
        self.sizes = {"step": T, "example": B, "unit": self.program.s.p["Whh"].shape[1]}

    def parts(self) -> Iterator[Part]:
        """The parts that may count otherwise, where the location leaves them."""
        if self.programs.backward:
            yield from self._of_the_pulls()
        if self.programs.forward:
            yield from self._of_the_lines()

    def _of_the_pulls(self) -> Iterator[Part]:
        program, grammar, programs = self.program, self.programs.grammar, self.programs
        families: dict[str, Members] = {}
        for n, group in enumerate(program.pulls):
            for m, pull in enumerate(group):
                name, member = pull.target.name, (("pull", n, m), pull)
                family = stem(name)
                if not (programs.in_sums if name in program.parameters else programs.in_the_loop):
                    continue
                if m and (family in program.blocks or family in ("d x", "d y")):
                    families.setdefault(family, []).append(member)
                if m:
                    text = f"{grammar.receiver(n, pull)}: {grammar.product(pull.terms[0])}"
                    yield Part(text, (member,))
                elif program.lines[n].target.name in ("h", "c", "s", "q", "y"):
                    yield Part(grammar.gradient_of(program.lines[n]), (member,))
        for family, members in families.items():
            if len(members) > 1:
                what = {"d x": "dx", "d y": CARRIED["y"]}
                yield Part(what.get(family, f"the sum of d{family}"), tuple(members))

    def _of_the_lines(self) -> Iterator[Part]:
        program = self.program
        gates: dict[str, Members] = {}
        for n, line in enumerate(program.lines):
            name, place = line.target.name, ("line", n, 0)
            what = self.programs.grammar.target(line)
            yield from _both(what, [(place, line)])
            for term in line.terms:
                alone = (place, line.of(term))
                key = term.matrix[:3] or (term.factors[0].name[:2] if term.factors else "")
                if name.startswith("a.") and key in GATES:
                    gates.setdefault(key, []).append(alone)
                if len(line.terms) > 1:
                    yield from _both(f"{what}: {self.programs.grammar.product(term)}", [alone])
            if name not in PASSED and (line.function or name[:2] == "a."):
                old = Factor("c" if name == "c" else "h", -1)
                for more in (Term(()), Term((old,))) if name[:2] == "a." else (Term((old,)),):
                    text = f"{self.programs.grammar.product(more)}, added to {what},"
                    extra = Line(line.target, (more,))
                    yield from _both(text, [(place, extra)], 0)
        for key, members in gates.items():
            if len(members) > 1:
                yield from _both(f"{GATES[key]} in every gate", members)

    def axes(self, part: Part) -> Iterator[tuple[str, int]]:
        """The axes along which the weights of a part may differ, and how many weights each has."""
        line = part.lines[0][1]
        yield "all", 1
        for axis, size in self.sizes.items():
            known = axis != "unit" or line.target.name not in ("d x", *self.program.parameters)
            if known and 1 < size <= MOST:
                yield axis, size
        term = line.terms[0]
        if all(len(each.terms) == 1 and each.terms[0].matrix for _, each in part.lines):
            M = self.program.p[term.matrix]
            size = M.shape[0 if term.back else 1]
            if 1 < size <= MOST:
                yield ("inner" if size != self.program.s.x.shape[2] or term.back else "input"), size
            every = len(part.lines) in (len(self.program.gates), 3)
            if every and len(part.lines) * M.size <= ENTRIES:
                yield "entry", len(part.lines) * M.size

    def candidate(self, part: Part, axis: str, w: Array) -> Candidate:
        """The part with these weights added to its usual ones."""
        edits = []
        for number, (place, line) in enumerate(part.lines):
            extra, weight = line, None
            if axis in SHAPES:
                weight = np.asarray(w, float).reshape(SHAPES[axis])
            else:
                extra = self._in_the_matrix(line, w, number)
            edits.append(Edit(place, (extra,), weight, True))
            if part.follows:
                usual = self.program.lines[place[1]]
                if usual.function:
                    edits.append(self.program.follow(place[1], usual))
                follow = self.program.follow(place[1], extra, weight, True)
                if axis == "unit":
                    lines = tuple(_by_unit(pull, w) for pull in follow.lines)
                    follow = follow._replace(lines=lines, weight=None)
                edits.append(follow)
        return Candidate("", tuple(edits))

    def _in_the_matrix(self, line: Line, w: Array, number: int) -> Line:
        """A line of one product whose matrix has weights, by entry or by what it sums over."""
        (term,), p = line.terms, self.program.p
        M = p[term.matrix]
        if len(w) >= M.size:
            mask = w.reshape(-1, *M.shape)[number]
        else:
            mask = np.broadcast_to(w[:, None] if term.back else w, M.shape)
        name = f"{term.matrix}|weighted {len(p)}"
        p[name], self.program.masks[name] = M * mask, mask
        return line.of(term._replace(matrix=name))

    def left_out(self) -> Iterator[Candidate]:
        """Candidates in which a part lacks one step, example or unit, or the last units, or counts
        one twice."""
        for part in self.parts():
            for axis, size in self.axes(part):
                n = np.arange(size)
                chosen = [n == i for i in n] if axis != "entry" else []
                if axis == "step" and part.lines[0][1].target.name in self.program.parameters:
                    chosen += [n % k == r for k in range(2, size // 2 + 1) for r in range(k)]
                sets = [-1.0 * some for some in chosen] if part.usual else []
                sets += [1.0 * some for some in chosen]
                if axis not in ("step", "example", "entry"):
                    sets += [-1.0 * (n >= i) for i in n[-4:-1] if i]
                for w in sets:
                    name = f"{part.name} {self._said(part, axis, w)}"
                    yield self.candidate(part, axis, w)._replace(name=name)
            if part.lines[0][1].target.name[2:] in PASSED:
                yield from self._of_two_axes(part)

    def _of_two_axes(self, part: Part) -> Iterator[Candidate]:
        """What is carried without one unit at one step, or of one example."""
        (place, line), *_ = part.lines
        for axis in ("step", "example"):
            for i in range(self.sizes[axis]):
                for j in range(self.sizes["unit"]):
                    w = np.zeros([self.sizes[a] if a in (axis, "unit") else 1 for a in self.sizes])
                    w[(i, 0, j) if axis == "step" else (0, i, j)] = -1
                    name = f"{part.name} is left out of unit {j} {_AT[axis]} {axis} {i}"
                    yield Candidate(name, (Edit(place, (line,), w, True),))

    def white(self, results: Params) -> Array:
        """The entries of the results, each divided by its sigma."""
        white: Array = self.search.white(results, self.names)
        return white

    @property
    def gap(self) -> Array:
        """By how many sigmas each entry is off."""
        given, true = self.search.given, self.search.true
        return self.white({name: given[name] - true[name] for name in self.names})

    def readings(self) -> Iterator[tuple[str, Params]]:
        """Weights that explain the results, in words."""
        if not self.names:
            return
        simple = list(self.programs.tried(self.left_out()))
        yield from simple
        if simple:
            return
        gap, base = self.gap, self.white(self.program.results)
        known = int((abs(gap) > LIMITS[1]).sum())
        jobs = [(part, axis, size) for part in self.parts() for axis, size in self.axes(part)]
        jobs = [job for job in jobs if 3 * job[2] + 4 <= known]
        whole, explained = np.linalg.norm(gap), False
        for most, stage in STAGES:
            fits: list[tuple[float, int, Array, tuple[Part, str, int]]] = []
            some = [job for job in jobs if job[1] in stage]
            columns = self._columns(base, [(*job, np.zeros(job[2])) for job in some])
            for job, J in zip(some, columns):
                fits.append((solved(J, gap)[0], len(fits), J, job))
            fits = sorted(fit for fit in fits if fit[0] < 0.9 * whole)
            for _, _, J, job in fits[:most]:
                for name, reading in self._improved(job, J, gap, base):
                    explained |= self.search.whole(reading) <= 1
                    yield name, reading
            if explained:
                return

    def _columns(self, base: Array, jobs: Sequence[tuple[Part, str, int, Array]]) -> list[Array]:
        """The slopes of the results in each job's weights."""
        candidates = []
        for number, (part, axis, size, w) in enumerate(jobs):
            for i in range(size):
                shifted = w + STEP * (np.arange(size) == i)
                candidates.append(
                    self.candidate(part, axis, shifted)._replace(name=f"{number} {i}")
                )
        out = [np.zeros((len(base), size)) for _, _, size, _ in jobs]
        for candidate, results in self.programs.run(candidates):
            number, i = map(int, candidate.name.split())
            out[number][:, i] = (self.white(results) - base) / STEP
        return out

    def _improved(
        self, job: tuple[Part, str, int], J: Array, gap: Array, base: Array
    ) -> Iterator[tuple[str, Params]]:
        """From the slopes J at no change on: the weights in words, and the results."""
        part, axis, size = job

        def results_at(w: Array) -> Params:
            ((_, results),) = self.programs.run([self.candidate(part, axis, w)])
            return results

        def error(w: Array) -> Array:
            return gap + base - self.white(results_at(w))

        def columns(w: Array, error: Array) -> Array:
            return self._columns(gap + base - error, [(*job, w)])[0] if w.any() else J

        at, left = improved(error, np.zeros(size), columns, 0.8)
        if left < enough(gap):
            near = np.round(at)
            at = np.where(abs(at - near) < 1e-4, near, at)
            said = self._said(part, axis, at)
            if said:
                yield f"{part.name} {said}", results_at(at)

    def _said(self, part: Part, axis: str, w: Array) -> str:
        """Which weights are not the usual ones, in words."""
        if axis == "all" and w.any():
            factor = part.usual + float(w[0])
            return f"counts {factor:.6g} times" if factor else "is left out"
        if not w.any() or axis != "inner" and np.ptp(w) < 1e-5 * abs(w).max():
            return ""
        noun = "unit" if axis == "inner" else axis
        odd: dict[float, list[int]] = {}
        for i in np.flatnonzero(w):
            odd.setdefault(float(f"{part.usual + w[i]:.4g}"), []).append(int(i))
        if axis == "entry":
            if len(odd) > 2:
                return f"counts {min(odd):.4g} to {max(odd):.4g} times, by the matrix's entry"
            sizes = {f"counts {k:g} times" if k else "is left out": len(v) for k, v in odd.items()}
            return "; ".join(f"{text} in {n} of {len(w)} entries" for text, n in sizes.items())
        if len(odd) > 2:
            shown = ", ".join(f"{part.usual + v:.4g}" for v in w[:8]) + ", ..." * (len(w) > 8)
            return f"counts by {noun}: {shown} times"
        texts = []
        for factor, chosen in odd.items():
            where = indices(Axis(noun), np.array(chosen), len(w), self.search.all.certified, "")
            counts = f"counts {factor:g} times" if factor else "is left out"
            at = "" if where.startswith("from") else "at " if noun == "step" else "of "
            texts.append(f"{counts} {at}{where}")
        return "; ".join(texts)


def enough(gap: Array) -> float:
    """What a fit may leave of the errors, in sigmas: rounding, or five digits."""
    return float(max(6 * len(gap) ** 0.5, 1e-5 * np.linalg.norm(gap)))


_AT = {"step": "at", "example": "of"}
GATES = {"Wxh": "Wxh x", "Whh": "Whh h", "bh": "the bias bh"}


def _both(name: str, members: Members, usual: int = 1) -> Iterator[Part]:
    """A part of the forward pass, with a backward pass that follows and without."""
    yield Part(name, tuple(members), True, usual)
    yield Part(f"{name}, in the forward pass alone,", tuple(members), False, usual)


def _by_unit(line: Line, w: Array) -> Line:
    """A line of one term whose first factor is weighted by unit."""
    (term,) = line.terms
    factors, inside = term.factors, term.inside + (term.factors[0].name[:2] == "d ")
    return line._replace(
        terms=tuple(
            term._replace(
                factors=(factors[0], Factor(f"unit {i} of {len(w)}"), *factors[1:]),
                inside=inside,
                coefficient=term.coefficient * float(w[i]),
            )
            for i in np.flatnonzero(w)
        )
    )
