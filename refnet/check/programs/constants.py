"""Lines of a program with a function that has a constant: clipped, floored, scaled to a norm. The
constant is fitted.

Checked by: tests/check/test_programs.py.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import numpy as np

from refnet.batch import Array, Params
from refnet.check.judgement import LIMITS
from refnet.check.programs.cells import PASSED, WITH_A_CONSTANT, Factor, Line, function
from refnet.check.programs.explain import FORWARD, Programs
from refnet.check.programs.runs import Candidate, Edit, Runs
from refnet.check.programs.weights import Weights, enough

__all__ = ["Constants", "Waves"]

GRID = np.geomspace(1e-3, 10, 17)
SMALL = 2.0**-20
"""How far from no change the slope of the results is taken, for the small constants."""
PROMISING = 8
DEGREES = 22
STEP = 1e-6
LINES = ("clipped at K", "at most K", "at least K", "plus K", "times K")
Edits = tuple[Edit, ...]
Family = tuple[str, partial[Edits]]
"""A name, in which K is the constant, and the edits with a constant and, of the forward pass, a
backward pass that follows or not."""


class _Measure(Weights):
    """The wrong results that a fit goes by: of the forward pass alone if it is wrong."""

    def __init__(self, programs: Programs, names: Iterable[str] | None = None) -> None:
        super().__init__(programs, names)
        states = [name for name in self.names if name in FORWARD]
        self.early = bool(programs.forward and states)
        self.names = states if self.early else self.names
        self.base = self.white(self.program.results)
        self.whole = self.gap

    def off(self, candidates: Iterable[Candidate]) -> Iterator[tuple[str, Array]]:
        """How far each candidate carries these results, by its name."""
        run = self.programs.outcomes if self.early else self.programs.run
        for candidate, results in run(candidates):
            yield candidate.name, self.white(results) - self.base

    def of(self, edits: tuple[Edit, ...]) -> Array:
        """How far edits carry them."""
        ((_, off),) = self.off([Candidate("", edits)])
        return off


class Constants:
    """The fits of one constant to a search's wrong results."""

    def __init__(self, programs: Programs) -> None:
        self.programs, self.program = programs, programs.program
        self.measure = _Measure(programs)

    def families(self) -> Iterator[Family]:
        """Every line with every function."""
        program, grammar = self.program, self.programs.grammar
        of = dict(enumerate(program.lines[:-1]))
        sigmoids = [n for n, line in of.items() if line.function == "sigmoid"]
        gates = [n for n, line in of.items() if line.target.name.startswith("a.")]
        if self.programs.forward:
            for n, line in of.items():
                yield from self._lines([n], grammar.word(line.target))
            yield from self._lines(sigmoids, "every gate's sigmoid")
        elif not self.programs.in_sums:
            for n, line in of.items():
                yield from self._gradients([n], grammar.gradient_of(line))
                yield from self._tapes(line.target.name)
                if line.function:
                    yield from self._slopes([n], f"the slope of {grammar.word(line.target)}")
            yield from self._gradients(gates, "the gradient of every pre-activation")
            yield from self._slopes(sigmoids, "the slope of every gate's sigmoid")

    def _lines(self, numbers: list[int], what: str) -> Iterator[Family]:
        for how in LINES if numbers else ():
            yield f"{what} is {how}", partial(self._line, numbers, how, "{0} then {1}")
            if self.program.lines[numbers[0]].function:
                name = f"the argument of {what} is {how}"
                yield name, partial(self._line, numbers, how, "{1} then {0}")

    def _line(self, numbers: list[int], how: str, text: str, k: float, follows: bool) -> Edits:
        out = []
        for n in numbers:
            line = self.program.lines[n]
            new = line._replace(function=_joined(text, line.function, f"{how}|{k!r}"))
            out.append(Edit(("line", n, 0), (new,)))
            if follows and line.function:
                out.append(Edit(("pulls", n, 0), self.program.pulls_of(new, False)))
        return tuple(out)

    def _tapes(self, name: str) -> Iterator[Family]:
        what = f"what the backward pass reads of {self.programs.grammar.word(Factor(name))}"
        for how in LINES if name not in PASSED else ():
            yield f"{what} is {how}", partial(self._tape, name, how)

    def _tape(self, name: str, how: str, k: float, follows: bool) -> Edits:
        edits = self.programs.grammar.tape(name)
        return tuple(
            e._replace(lines=(e.lines[0]._replace(function=f"{how}|{k!r}"),)) for e in edits
        )

    def _gradients(self, numbers: list[int], what: str) -> Iterator[Family]:
        for how in WITH_A_CONSTANT:
            if "clipped" in how or "scaled" in how or "smaller" in how:
                yield f"{what} is {how}", partial(self._gradient, numbers, how)

    def _gradient(self, numbers: list[int], how: str, k: float, follows: bool) -> Edits:
        wholes = ((n, self.program.pulls[n][0]) for n in numbers)
        return tuple(
            Edit(("pull", n, 0), (whole._replace(function=f"{how}|{k!r}"),)) for n, whole in wholes
        )

    def _slopes(self, numbers: list[int], what: str) -> Iterator[Family]:
        for how in ("at least K", "at most K", "plus K"):
            yield f"{what} is {how}", partial(self._slope, numbers, how)

    def _slope(self, numbers: list[int], how: str, k: float, follows: bool) -> Edits:
        out = []
        for n in numbers:
            line, pull = self.program.lines[n], self.program.pulls[n][1]
            (term,), (v,) = pull.terms, line.terms[0].factors
            slope = Factor(v.name, v.step, f"{line.function}'{how}|{k!r}")
            new = pull._replace(terms=(term._replace(factors=(term.factors[0], slope)),))
            out.append(Edit(("pull", n, 1), (new,)))
        return tuple(out)

    def readings(self) -> Iterator[tuple[str, Params]]:
        """Constants that explain the results, in words."""
        measure = self.measure
        if not measure.names:
            return
        families = {name: edits for name, edits in self.families() if edits.args[0]}
        grid = [
            Candidate(f"{name}|{k!r}", edits(k, False))
            for name, edits in families.items()
            for k in _constants(name)
        ]
        best: dict[str, tuple[float, float]] = {}
        for text, off in measure.off(grid):
            name, _, constant = text.rpartition("|")
            k, left = float(constant), float(np.linalg.norm(measure.whole - off))
            if SMALL in (abs(k), abs(k - 1)) and (size := float(off @ off)) > 0:
                by = float(off @ measure.whole) / size
                left, k = float(np.linalg.norm(measure.whole - by * off)), k + (by - 1) * SMALL
            if np.isfinite(left):
                best[name] = min(best.get(name, (np.inf, 0.0)), (left, k))
        whole = float(np.linalg.norm(measure.whole))
        chosen = sorted((left, name, k) for name, (left, k) in best.items() if left < 0.9 * whole)
        fits: list[tuple[str, str, Params]] = []
        for left, name, k in chosen[:PROMISING]:
            solution = self._improved(families[name], k, left)
            for follows in (False, True) if solution is not None else ():
                how = "" if follows or not self.programs.forward else ", in the forward pass alone"
                edits = Candidate("", families[name](solution, follows))
                ((_, results),) = self.programs.run([edits])
                said = f"{name.replace('K', f'{solution:.6g}', 1)}{how}"
                fits.append((name, said, results))
        for name, said, results in fits:  # a constant that is met once may be another function's
            same = self.programs.same(results)
            others = [other for known, other, r in fits if known != name and same(r)]
            yield f"perhaps {said}, or {others[0]}" if others else said, results

    def _improved(
        self, edits: Callable[[float, bool], Edits], k: float, left: float
    ) -> float | None:
        """The constant by Gauss and Newton, if it leaves little enough."""

        def at(k: float) -> Array:
            return self.measure.whole - self.measure.of(edits(k, False))

        off = at(k)
        for _ in range(20):
            slope = (off - at(k * (1 + STEP))) / (k * STEP)
            size = float(slope @ slope)
            if not 0 < size < np.inf:
                return None
            step = float(slope @ off) / size
            for half in range(5):
                nearer = k + step / 2**half
                now = at(nearer)
                if np.linalg.norm(now) < left:
                    break
            else:
                break
            done = np.linalg.norm(now) > 0.99 * left
            k, off, left = nearer, now, float(np.linalg.norm(now))
            if left < len(off) ** 0.5 or done:
                break
        if left >= enough(self.measure.whole):
            return None
        neat = float(f"{k:.4g}")
        return neat if abs(neat / k - 1) < 1e-6 else k


def _constants(name: str) -> list[float]:
    """The constants that are tried, of a family that changes nothing at 0 or 1 also one near."""
    grid: list[float] = GRID.tolist()
    if " plus K" in name:
        return [*grid, *(-k for k in grid), SMALL]
    return [*grid, 1 + SMALL] if " times K" in name else grid


class Waves:
    """Another function in the place of tanh or the sigmoid, whatever it is: what is added to it is
    a sum of Chebyshev polynomials. It has to leave right what is right."""

    def __init__(self, programs: Programs) -> None:
        self.programs, self.program = programs, programs.program
        self.measure = _Measure(programs, programs.search.given)

    def readings(self) -> Iterator[str]:
        """What explains all but a small part of the errors, in words."""
        programs, program, whole = self.programs, self.program, self.measure.whole
        known = int((abs(whole) > LIMITS[1]).sum())
        if not programs.forward or known <= 3 * DEGREES:
            return
        every = Weights(programs, programs.search.given)
        for name in dict.fromkeys(line.function for line in program.lines if line.function):
            numbers = [n for n, line in enumerate(program.lines) if line.function == name]
            a = self._arguments(numbers)
            size = float(abs(a).max()) * 1.01
            for chosen in (numbers, *([n] for n in numbers if len(numbers) > 1)):
                w, left = self._fitted(chosen, size)
                for follows in (False, True) if left < 0.03 * np.linalg.norm(whole) else ():
                    candidate = self._candidate(chosen, follows, w, size)
                    ((_, results),) = programs.run([candidate])
                    off = every.gap - every.white(results) + every.white(program.results)
                    if np.linalg.norm(off) < 0.03 * np.linalg.norm(every.gap):
                        yield self._said(name, chosen, follows, w, a)
                        return

    def _fitted(self, numbers: list[int], size: float) -> tuple[Array, float]:
        """The weights of the polynomials, by Gauss and Newton, and the norm that they leave."""
        measure, unit, at = self.measure, np.eye(DEGREES), np.zeros(DEGREES)
        here, left = np.zeros_like(measure.whole), float(np.linalg.norm(measure.whole))
        start = left
        for turn in range(10):
            shifted = [self._candidate(numbers, False, at + STEP * row, size) for row in unit]
            J = np.stack([(off - here) / STEP for _, off in measure.off(shifted)], axis=1)
            nearer = at + measure.solved(J, measure.whole - here)[1]
            there = measure.of(self._candidate(numbers, False, nearer, size).edits)
            now = float(np.linalg.norm(measure.whole - there))
            if not now < left or turn > 3 and now > 0.3 * start:
                break
            at, here, left = nearer, there, now
        return at, left

    def _arguments(self, numbers: list[int]) -> Array:
        runs = Runs(self.program, [Candidate("", ())])
        of = [self.program.lines[n].terms[0].factors[0] for n in numbers]
        return np.sort(np.concatenate([runs.argument(f).ravel() for f in of]))

    def _candidate(self, numbers: list[int], follows: bool, w: Array, size: float) -> Candidate:
        edits = []
        for n in numbers:
            line = self.program.lines[n]
            if follows:
                edits.append(Edit(("pulls", n, 0), self.program.pulls_of(line, False)))
            for degree in np.flatnonzero(w):
                wave, weight = _wave(line, int(degree), size), np.full((1, 1, 1), w[degree])
                edits.append(Edit(("line", n, 0), (wave,), weight, True))
                if follows:
                    pulls = self.program.pulls_of(wave, False)
                    edits.append(Edit(("pulls", n, 0), pulls, weight, True))
        return Candidate("", tuple(edits))

    def _said(self, name: str, numbers: list[int], follows: bool, w: Array, a: Array) -> str:
        size = float(abs(a).max()) * 1.01
        usual = a[len(a) // 50 : len(a) - len(a) // 50]
        waves = (function(f"wave {d} of {size!r}").value(usual) for d in range(DEGREES))
        off = np.sum([k * wave for k, wave in zip(w, waves)], axis=0)
        worst = int(abs(off).argmax())
        words = [self.programs.grammar.word(self.program.lines[n].target) for n in numbers]
        how = "" if follows else ", in the forward pass alone"
        return (
            f"perhaps the {name} of {', '.join(words)} is another function{how}: off by up to "
            f"{abs(off[worst]):.2g}, near {usual[worst]:.2g}"
        )


def _wave(line: Line, degree: int, size: float) -> Line:
    return line._replace(function=f"wave {degree} of {size!r}")


def _joined(text: str, function: str, other: str) -> str:
    return text.format(function, other) if function else other
