"""Lines of a program with a function that has a constant: clipped, floored, scaled to a norm. The
constant is fitted.

Checked by: tests/check/test_programs.py.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from refnet.batch import Array, Params
from refnet.check.judgement import LIMITS
from refnet.check.programs.cells import WITH_A_CONSTANT, Factor, Line, function
from refnet.check.programs.explain import Programs
from refnet.check.programs.runs import Candidate, Edit, Runs
from refnet.check.programs.weights import Weights, enough

__all__ = ["Constants", "Waves"]

GRID = np.geomspace(1e-3, 10, 17)
SMALL = 2.0**-20
"""How far from no change the slope of the results is taken, for the small constants."""
PROMISING = 8
DEGREES = 22
STEP = 1e-6
Family = tuple[str, Callable[[float], tuple[Edit, ...]]]
"""A name, in which K is the constant, and the edits with a constant."""


class Constants:
    """The fits of one constant to a search's wrong results."""

    def __init__(self, programs: Programs) -> None:
        self.programs, self.program = programs, programs.program
        self.weights = Weights(programs)
        self.base = self.weights.white(self.program.results)

    def families(self) -> Iterator[Family]:
        """Every line with every function."""
        program, word = self.program, self.programs.grammar.word
        sigmoids = [n for n, line in enumerate(program.lines) if line.function == "sigmoid"]
        gates = [n for n, line in enumerate(program.lines) if line.target.name.startswith("a.")]
        if self.programs.forward:
            for n, line in enumerate(program.lines[:-1]):
                yield from self._lines([n], word(line.target))
            if len(sigmoids) > 1:
                yield from self._lines(sigmoids, "every gate's sigmoid")
        elif not self.programs.in_sums:
            for n, line in enumerate(program.lines[:-1]):
                yield from self._gradients([n], self.programs.grammar.gradient_of(line))
                if line.function:
                    yield from self._slopes([n], f"the slope of {word(line.target)}")
            if len(gates) > 1:
                yield from self._gradients(gates, "the gradient of every pre-activation")
            if len(sigmoids) > 1:
                yield from self._slopes(sigmoids, "the slope of every gate's sigmoid")

    def _lines(self, numbers: list[int], what: str) -> Iterator[Family]:
        lines = [self.program.lines[n] for n in numbers]
        for how in ("clipped at K", "at most K", "at least K", "plus K", "times K"):
            texts = {f"{what} is {how}": "{0} then {1}"}
            if lines[0].function:
                texts[f"the argument of {what} is {how}"] = "{1} then {0}"
            for name, text in texts.items():
                for follows in (False, True)[: 1 + bool(lines[0].function)]:

                    def edits(
                        k: float, text: str = text, how: str = how, follows: bool = follows
                    ) -> tuple[Edit, ...]:
                        out = []
                        for n, line in zip(numbers, lines):
                            new = line._replace(
                                function=_joined(text, line.function, f"{how}|{k!r}")
                            )
                            out.append(Edit(("line", n, 0), (new,)))
                            if follows:
                                out.append(Edit(("pulls", n, 0), self.program.pulls_of(new, False)))
                        return tuple(out)

                    yield name + ", in the forward pass alone" * (not follows), edits

    def _gradients(self, numbers: list[int], what: str) -> Iterator[Family]:
        for how in WITH_A_CONSTANT:
            if not ("clipped" in how or "norm" in how or "smaller" in how):
                continue

            def edits(k: float, how: str = how) -> tuple[Edit, ...]:
                return tuple(
                    Edit(
                        ("pull", n, 0),
                        (self.program.pulls[n][0]._replace(function=f"{how}|{k!r}"),),
                    )
                    for n in numbers
                )

            yield f"{what} is {how}", edits

    def _slopes(self, numbers: list[int], what: str) -> Iterator[Family]:
        for how in ("at least K", "at most K", "plus K"):

            def edits(k: float, how: str = how) -> tuple[Edit, ...]:
                return tuple(
                    Edit(("pull", n, 1), (self._slope(n, f"{how}|{k!r}"),)) for n in numbers
                )

            yield f"{what} is {how}", edits

    def _slope(self, n: int, how: str) -> Line:
        line, pull = self.program.lines[n], self.program.pulls[n][1]
        (term,), (v,) = pull.terms, line.terms[0].factors
        slope = Factor(v.name, v.step, f"{line.function}'{how}")
        return pull._replace(terms=(term._replace(factors=(term.factors[0], slope)),))

    def readings(self) -> Iterator[tuple[str, Params]]:
        """Constants that explain the results, in words."""
        search, weights = self.programs.search, self.weights
        if not weights.names:
            return
        gap = weights.white({n: search.given[n] - search.true[n] for n in weights.names})
        families = dict(self.families())
        grid = [
            Candidate(f"{name}|{k!r}", edits(k))
            for name, edits in families.items()
            for sign in ((1, -1) if "plus" in name else (1,))
            for k in (GRID * sign).tolist()
        ]
        grid += [Candidate(f"{name}|{k!r}", edits(k)) for name, edits, k in _small(families)]
        best: dict[str, tuple[float, float]] = {}
        for candidate, results in self.programs.run(grid):
            name, _, constant = candidate.name.rpartition("|")
            off = weights.white(results) - self.base
            k, left = float(constant), float(np.linalg.norm(gap - off))
            if SMALL in (abs(k), abs(k - 1)) and (size := float(off @ off)) > 0:
                by = float(off @ gap) / size
                left, k = float(np.linalg.norm(gap - by * off)), k + (by - 1) * SMALL
            if np.isfinite(left):
                best[name] = min(best.get(name, (np.inf, 0.0)), (left, k))
        whole = float(np.linalg.norm(gap))
        chosen = sorted((left, name, k) for name, (left, k) in best.items() if left < 0.9 * whole)
        for left, name, k in chosen[:PROMISING]:
            yield from self._improved(name, families[name], k, left, gap)

    def _improved(
        self,
        name: str,
        edits: Callable[[float], tuple[Edit, ...]],
        k: float,
        left: float,
        gap: Array,
    ) -> Iterator[tuple[str, Params]]:
        def at(k: float) -> tuple[Params, Array]:
            ((_, results),) = self.programs.run([Candidate("", edits(k))])
            return results, gap - (self.weights.white(results) - self.base)

        _, off = at(k)
        for _ in range(20):
            slope = (off - at(k * (1 + STEP))[1]) / (k * STEP)
            size = float(slope @ slope)
            if not 0 < size < np.inf:
                return
            step = float(slope @ off) / size
            for half in range(5):
                nearer = k + step / 2**half
                _, now = at(nearer)
                if np.linalg.norm(now) < left:
                    break
            else:
                break
            done = np.linalg.norm(now) > 0.99 * left
            k, off, left = nearer, now, float(np.linalg.norm(now))
            if left < len(gap) ** 0.5 or done:
                break
        if left < enough(gap):
            neat = float(f"{k:.4g}")
            k = neat if abs(neat / k - 1) < 1e-6 else k
            yield name.replace("K", f"{k:.6g}", 1), at(k)[0]


class Waves:
    """Another function in the place of tanh or the sigmoid, whatever it is: what is added to it is
    a sum of Chebyshev polynomials. It has to leave right what is right."""

    def __init__(self, programs: Programs) -> None:
        self.programs, self.program = programs, programs.program
        self.weights, search = Weights(programs), programs.search
        self.weights.names = sorted(
            name for name in search.given if search.given[name].shape == search.true[name].shape
        )

    def readings(self) -> Iterator[str]:
        """What explains all but a small part of the errors, in words."""
        programs, program, weights = self.programs, self.program, self.weights
        if not programs.forward or not weights.names:
            return
        search = programs.search
        base = weights.white(program.results)
        gap = weights.white({n: search.given[n] - search.true[n] for n in weights.names})
        known = int((abs(gap) > LIMITS[1]).sum())
        functions = dict.fromkeys(line.function for line in program.lines if line.function)
        for name in functions:
            numbers = [n for n, line in enumerate(program.lines) if line.function == name]
            a = self._arguments(numbers)
            size = float(abs(a).max()) * 1.01
            for chosen in (numbers, *([n] for n in numbers if len(numbers) > 1)):
                for follows in (False, True) if 3 * DEGREES < known else ():
                    w, left = self._fitted(chosen, follows, size, gap, base)
                    if left < 0.03 * np.linalg.norm(gap):
                        yield self._said(name, chosen, follows, w, a)
                        return

    def _fitted(
        self, numbers: list[int], follows: bool, size: float, gap: Array, base: Array
    ) -> tuple[Array, float]:
        """The weights of the polynomials, by Gauss and Newton, and the norm that they leave."""
        unit, at = np.eye(DEGREES), np.zeros(DEGREES)
        here, left = base, float(np.linalg.norm(gap))
        for _ in range(4):
            moved = [self._candidate(numbers, follows, at + STEP * row, size) for row in unit]
            ahead = [self.weights.white(results) for _, results in self.programs.run(moved)]
            J = np.stack([(value - here) / STEP for value in ahead], axis=1)
            nearer = at + self.weights.solved(J, gap - (here - base))[1]
            candidate = self._candidate(numbers, follows, nearer, size)
            ((_, results),) = self.programs.run([candidate])
            there = self.weights.white(results)
            now = float(np.linalg.norm(gap - (there - base)))
            if not now < left:
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


def _small(families: dict[str, Callable[[float], tuple[Edit, ...]]]) -> Iterator[Any]:
    """The families that change nothing at 0 or 1, near there."""
    for name, edits in families.items():
        if " plus K" in name or " times K" in name:
            yield name, edits, SMALL + (" times K" in name)


def _wave(line: Line, degree: int, size: float) -> Line:
    return line._replace(function=f"wave {degree} of {size!r}")


def _joined(text: str, function: str, other: str) -> str:
    return text.format(function, other) if function else other
