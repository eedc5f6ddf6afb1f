"""Edits with one constant, or with a whole function, that is fitted to the results.

``Constants``: a line has a function with a constant (``functions.WITH_A_CONSTANT``): it is clipped,
floored, scaled to a norm; a grid of constants says which lines are promising. ``Waves``: the last
resort, a sum of polynomials in the place of tanh or the sigmoid.

Checked by: tests/check/test_programs.py.
"""

from collections.abc import Iterable, Iterator
from itertools import starmap

import numpy as np
from numpy.polynomial import Chebyshev

from refnet.batch import Array, Params
from refnet.check.entries import either
from refnet.check.judgement import LIMITS
from refnet.check.programs.cells import PASSED, Factor, Line
from refnet.check.programs.edit import Candidate, Edit
from refnet.check.programs.explain import FORWARD, Programs
from refnet.check.programs.functions import WITH_A_CONSTANT
from refnet.check.programs.layers import same
from refnet.check.programs.least_squares import improved
from refnet.check.programs.runs import Runs
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
Family = tuple[str, Edits]
"""A name and edits, in which K stands for the constant."""


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
        """How far each candidate moves these results, by its name."""
        run = self.programs.outcomes if self.early else self.programs.run
        for candidate, results in run(candidates):
            yield candidate.name, self.white(results) - self.base

    def of(self, edits: tuple[Edit, ...]) -> Array:
        """How far edits move these results."""
        ((_, off),) = self.off([Candidate("", edits)])
        return off


class Constants:
    """The search for one constant in a line's function that explains the wrong results."""

    def __init__(self, programs: Programs) -> None:
        self.programs, self.program = programs, programs.program
        self.measure = _Measure(programs)

    def families(self) -> Iterator[Family]:
        """The lines and pulls that the location leaves, each with every function that has a
        constant."""
        program, grammar = self.program, self.programs.grammar
        of = dict(enumerate(program.lines[:-1]))
        sigmoids, gates = [*program.of_function("sigmoid")], [*program.pre_activations]
        if self.programs.forward:
            for n, line in of.items():
                yield from self._lines([n], grammar.word(line.target))
            yield from self._lines(sigmoids, "every gate's sigmoid")
        elif self.programs.in_the_loop:
            for n, line in of.items():
                yield from self._gradients([n], grammar.gradient_of(line))
                yield from self._tapes(line.target.name)
                if line.function:
                    yield from self._slopes([n], f"the slope of {grammar.word(line.target)}")
            yield from self._gradients(gates, "the gradient of every pre-activation")
            yield from self._slopes(sigmoids, "the slope of every gate's sigmoid")

    def _lines(self, numbers: list[int], what: str) -> Iterator[Family]:
        lines = {n: self.program.lines[n] for n in numbers}
        inside = all(line.function for line in lines.values())
        for how in LINES if numbers else ():
            for name, text in (
                (f"{what} is {how}", "{0} then {1}"),
                (f"the argument of {what} is {how}", "{1} then {0}"),
            )[: 1 + inside]:
                news = {
                    n: line._replace(
                        function=text.format(line.function, f"{how}|K") if inside else f"{how}|K"
                    )
                    for n, line in lines.items()
                }
                yield name, tuple(Edit(("line", n, 0), (new,)) for n, new in news.items())

    def _tapes(self, name: str) -> Iterator[Family]:
        what = f"what the backward pass reads of {self.programs.grammar.word(Factor(name))}"
        for how in LINES if name not in PASSED else ():
            usual = self.programs.grammar.tape(name)
            news = (edit.lines[0]._replace(function=f"{how}|K") for edit in usual)
            edits = tuple(edit._replace(lines=(new,)) for edit, new in zip(usual, news))
            yield f"{what} is {how}", edits

    def _gradients(self, numbers: list[int], what: str) -> Iterator[Family]:
        wholes = {n: self.program.pulls[n][0] for n in numbers}
        for how in WITH_A_CONSTANT if numbers else ():
            if "clipped" in how or "scaled" in how or "smaller" in how:
                news = {n: whole._replace(function=f"{how}|K") for n, whole in wholes.items()}
                edits = tuple(Edit(("pull", n, 0), (new,)) for n, new in news.items())
                yield f"{what} is {how}", edits

    def _slopes(self, numbers: list[int], what: str) -> Iterator[Family]:
        for how in ("at least K", "at most K", "plus K") if numbers else ():
            edits = []
            for n in numbers:
                line, pull = self.program.lines[n], self.program.pulls[n][1]
                (term,), (v,) = pull.terms, line.terms[0].factors
                slope = Factor(v.name, v.step, f"{line.function}'{how}|K")
                edits.append(Edit(("pull", n, 1), (pull.of(term.of(term.factors[0], slope)),)))
            yield f"{what} is {how}", tuple(edits)

    def at(self, edits: Edits, k: float, follows: bool = False) -> Edits:
        """Edits with this constant, perhaps with a backward pass that follows."""

        def text(name: str) -> str:
            return name.replace("|K", f"|{float(k)!r}")

        def line_at(line: Line) -> Line:
            line = line.over(lambda f: f._replace(form=text(f.form)))
            return line._replace(function=text(line.function))

        new = tuple(edit._replace(lines=tuple(map(line_at, edit.lines))) for edit in edits)
        numbers = {edit.place[1]: edit.lines[0] for edit in new if edit.place[0] == "line"}
        lines = self.program.lines
        follow = (self.program.follow(n, v) for n, v in numbers.items() if lines[n].function)
        return (*new, *follow) if follows else new

    def readings(self) -> Iterator[tuple[str, Params]]:
        """Constants that explain the results, in words."""
        measure = self.measure
        if not measure.names:
            return
        families = dict(self.families())
        grid = [
            Candidate(f"{name}|{k!r}", self.at(edits, k))
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
        for _, name, k in chosen[:PROMISING]:
            solution = self._improved(families[name], k)
            if solution is None:
                continue
            for follows in (False, True):
                how = "" if follows or not self.programs.forward else ", in the forward pass alone"
                edits = Candidate("", self.at(families[name], solution, follows))
                ((_, results),) = self.programs.run([edits])
                said = f"{name.replace('K', f'{solution:.6g}', 1)}{how}"
                fits.append((name, said, results))
        for name, said, results in fits:  # a constant that is met once may be another function's
            given = self.programs.given(results)
            others = [other for known, other, r in fits if known != name and same(given, r)]
            yield either([said, *others[:1]]), results

    def _improved(self, edits: Edits, k: float) -> float | None:
        """The constant by Gauss and Newton, if it leaves little enough."""

        def error(k: Array) -> Array:
            return self.measure.whole - self.measure.of(self.at(edits, float(k[0])))

        ((k,), left) = improved(error, np.array([k]), steps=20)
        if left >= enough(self.measure.whole):
            return None
        neat = float(f"{k:.4g}")
        return neat if abs(neat / k - 1) < 1e-6 else float(k)


def _constants(name: str) -> list[float]:
    """The constants that are tried, of a family that changes nothing at 0 or 1 also one near."""
    grid: list[float] = GRID.tolist()
    if " plus K" in name:
        return [*grid, *(-k for k in grid), SMALL]
    return [*grid, 1 + SMALL] if " times K" in name else grid


class Waves:
    """The search for another function in the place of tanh or the sigmoid: a sum of Chebyshev
    polynomials is added to it. It must leave right what is right."""

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
            numbers = [*program.of_function(name)]
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
        measure, unit = self.measure, np.eye(DEGREES)

        def error(w: Array) -> Array:
            return measure.whole - measure.of(self._candidate(numbers, False, w, size).edits)

        def columns(w: Array, error: Array) -> Array:
            shifted = [self._candidate(numbers, False, w + STEP * row, size) for row in unit]
            offs = (off for _, off in measure.off(shifted))
            return np.stack([(error - measure.whole + off) / STEP for off in offs], axis=1)

        return improved(error, np.zeros(DEGREES), columns, 0.9, 10)

    def _arguments(self, numbers: list[int]) -> Array:
        runs = Runs(self.program, [Candidate("", ())])
        of = [self.program.lines[n].terms[0].factors[0] for n in numbers]
        return np.sort(np.concatenate([runs.argument(f).ravel() for f in of]))

    def _candidate(self, numbers: list[int], follows: bool, w: Array, size: float) -> Candidate:
        wave = f"plus a wave {size!r} {' '.join(map(repr, w.tolist()))}"
        lines = {n: self.program.lines[n] for n in numbers}
        news = {n: line._replace(function=f"{line.function} {wave}") for n, line in lines.items()}
        edits = [Edit(("line", n, 0), (new,)) for n, new in news.items()]
        edits += starmap(self.program.follow, news.items()) if follows else ()
        return Candidate("", tuple(edits))

    def _said(self, name: str, numbers: list[int], follows: bool, w: Array, a: Array) -> str:
        size = float(abs(a).max()) * 1.01
        usual = a[len(a) // 50 : len(a) - len(a) // 50]
        off = Chebyshev(w, [-size, size])(usual)
        worst = int(abs(off).argmax())
        words = [self.programs.grammar.word(self.program.lines[n].target) for n in numbers]
        how = "" if follows else ", in the forward pass alone"
        return (
            f"perhaps the {name} of {', '.join(words)} is another function{how}: off by up to "
            f"{abs(off[worst]):.2g}, near {usual[worst]:.2g}"
        )
