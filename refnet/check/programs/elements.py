"""Parts of the states that count otherwise by step, example and unit: dropout, zoneout.

The weights are read off the given states: each new state is compared with what the program makes of
the given ones before it. A few values that explain all of it make a candidate (``explain``).

Checked by: tests/check/test_programs.py.
"""

from collections.abc import Iterator

import numpy as np

from refnet.batch import Array, Params
from refnet.check.programs.cells import STATES, Factor, copied
from refnet.check.programs.edit import Candidate, Edit
from refnet.check.programs.explain import Programs
from refnet.check.programs.runs import Runs

__all__ = ["Elements"]

LEVELS = 3
"""The most values that the weights have."""


class Elements:
    """The search for weights of single elements of the states, such as dropout's."""

    def __init__(self, programs: Programs) -> None:
        self.programs, self.program = programs, programs.program

    def readings(self) -> Iterator[tuple[str, Params]]:
        """The results of the weights that fit."""
        given, true = self.programs.search.given, self.programs.search.true
        known = [n for n in STATES if n in given and given[n].shape == true[n].shape]
        if self.programs.forward and "h" in known:
            yield from self.programs.tried(self._candidates(known))

    def _candidates(self, known: list[str]) -> Iterator[Candidate]:
        given, program = self.programs.search.given, self.program
        runs = Runs(program, [Candidate("", ())])
        v, usual = runs.v, {name: np.zeros(given[name][1:].shape) for name in known}
        for name in known:
            v[name][0, 0] = given[name][0]
        for at in range(1, runs.T + 1):
            for line in program.lines:
                name = line.target.name
                v[name][at] = runs.evaluate(line, at)
                if name in known:
                    usual[name][at - 1] = v[name][at, 0]
                    v[name][at] = given[name][at]
        every = np.arange(1, runs.T + 1)
        for name in known:
            n = program.index[name]
            line, rest = program.lines[n], given[name][1:] - usual[name]
            parts = [(line, usual[name], self.programs.grammar.word(Factor(name)), True)]
            if not line.function and len(line.terms) > 1:
                for term in line.terms:
                    some = line.of(term)
                    text = f"{self.programs.grammar.product(term)} in {parts[0][2]}"
                    parts.append((some, runs.evaluate(some, every, 0), text, True))
            old = copied(name, Factor(name, -1))
            parts.append((old, runs.evaluate(old, every, 0) - usual[name], parts[0][2], False))
            for some, part, text, more in parts:
                w = _levels(rest, part)
                if w is not None:
                    yield from self._of(n, Edit(("line", n, 0), (some,), w, more), text)

    def _of(self, n: int, edit: Edit, text: str) -> Iterator[Candidate]:
        w = np.asarray(edit.weight)
        counts = []
        for level, size in zip(*np.unique(w[w != 0], return_counts=True)):
            by = (
                (f"counts {1 + level:.4g} times" if abs(1 + level) > 1e-9 else "is left out")
                if edit.more
                else f"keeps {level:.4g} of the step before"
            )
            counts.append(f"{by} in {size} of {w.size} elements")
        said = f"{text} {'; '.join(counts)}"
        pulls = [self.program.follow(n, edit.lines[0], edit.weight, edit.more)]
        if edit.more and self.program.lines[n].function:
            pulls.append(self.program.follow(n, self.program.lines[n]))
        yield Candidate(f"{said}, in the forward pass alone", (edit,))
        yield Candidate(said, (edit, *pulls))


def _levels(rest: Array, part: Array) -> Array | None:
    """The few weights that make the rest of the part, or None."""
    large = abs(part) > 0.05 * abs(part).max()
    w = np.where(large, rest / np.where(large, part, 1), np.nan)
    levels: list[float] = [0.0]
    for value in w[large]:
        if not np.isclose(value, levels, 1e-4, 1e-4).any():
            levels.append(float(value))
        if len(levels) > LEVELS:
            return None
    exact = [float(np.median(w[abs(w - level) < 1e-3 * (1 + abs(level))])) for level in levels[1:]]
    exact = [0.0, *(round(k, 5) if abs(k - round(k, 5)) < 1e-6 else k for k in exact)]
    nearest = abs(rest[..., None] - part[..., None] * np.array(exact)).argmin(-1)
    return np.array(exact)[nearest] if len(exact) > 1 else None
