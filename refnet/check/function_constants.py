"""Constants that are fitted: what a cotangent is multiplied by, another number in a call, a factor
or a term of what it gives.

Checked by: tests/check/test_function_calls.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from itertools import chain, combinations
from typing import Any

import numpy as np

from refnet.batch import Array, Params
from refnet.check.call_sites import Place
from refnet.check.function_edits import sizes
from refnet.check.function_runs import PULLED, Candidate
from refnet.check.pull_edits import FACTORS, both, scaled
from refnet.check.rewrites import constant_of
from refnet.check.source_edits import VERB, Readings, Rewrite, Sources
from refnet.exact.recorder import Operand, Recorded

FEW = 3
"""The most wrong entries that a constant may explain by chance."""
ALIKE = 1e-8
"""How far from parallel what goes through two operands has to be."""
FITS = 1e-4
"""How near a fitted constant has to be."""
USUAL = (1.0, -1.0, 2.0, 0.5)
"""Constants that are tried where none can be fitted."""
STEPS = 8
"""Runs in which a constant of the value is fitted."""
Fit = Callable[[Operand, float], Operand]
"""What a constant makes of a value."""

FITTED = (
    (np.multiply, f"is multiplied by {VERB}", 1.0),
    (np.add, f"is computed with {VERB} added", 0.0),
)
"""What a constant is fitted for, its text, and the constant that changes nothing."""


class Constants:
    """The constants of a function's calls (``refnet.check.function_calls``)."""

    def __init__(self, calls: Any) -> None:
        self.calls, self.tape = calls, calls.tape
        self.given, self.true, self.wrong = calls.given, calls.true, sorted(calls.wrong)

    def _off(self, reading: Params) -> Array:
        """What a reading is off by where something is wrong."""
        return np.concatenate([(reading[n] - self.true[n]).ravel() for n in self.wrong])

    def _parts(self, whole: bool) -> Iterator[tuple[Place, int | None, str, Array]]:
        """What goes through each operand."""
        for place, k, what in self.calls.operands(whole):
            self.calls.left -= PULLED
            if self.calls.left < 0:
                return
            turns = self.calls.seen[place].turns
            without = self.tape.pulled({port: [] for turn in turns for port in turn.nodes(k)})
            yield place, k, what, -self._off(without)

    def of_cotangents(self) -> Iterator[Candidate]:
        """Cotangents times the constant that fits, those first that sizes explain."""
        off, unusual = self._off(self.given), []
        for place, k, what, part in self._parts(whole=True):
            size = float(part @ part)
            factor = 1 + float(part @ off) / size if size > 0 else 1.0
            misfit = np.linalg.norm(off - (factor - 1) * part) > FITS * np.linalg.norm(off)
            if misfit or abs(factor) < FITS:
                continue
            times, number = self._number(factor)
            if times:
                name = f"the gradient of {what} {times}"
                sized = None if "`" in times else " = " in times
                yield Candidate(name, pulls={place: scaled(k, number)}, sized=sized)
            if off.size > FEW:
                name = f"the gradient of {what} is multiplied by {factor:.6g}"
                unusual.append(Candidate(name, pulls={place: scaled(k, factor)}, sized=None))
        yield from unusual

    def of_two(self) -> Iterator[Candidate]:
        """Cotangents of two operands that are missing, or multiplied by a usual number."""
        off = self._off(self.given)
        parts = [part for part in self._parts(whole=False) if 0 < np.linalg.norm(part[-1]) < np.inf]
        A = np.array([part[-1] for part in parts]).reshape(len(parts), off.size)
        gram, right = A @ A.T, A @ off
        for m, n in combinations(range(len(parts)), 2):
            (place, k, what, a), (other, l, that, b) = parts[m], parts[n]
            two = np.ix_((m, n), (m, n))
            if gram[m, n] ** 2 > (1 - ALIKE) * gram[m, m] * gram[n, n]:
                continue
            c = np.linalg.solve(gram[two], right[[m, n]])
            misfit = np.linalg.norm(off - c[0] * a - c[1] * b) > FITS * np.linalg.norm(off)
            texts = [_missing_or_times(1 + factor) for factor in c]
            if off.size > FEW and not misfit and all(texts):
                name = "; ".join(text.format(x) for text, x in zip(texts, (what, that)))
                first, second = scaled(k, 1 + c[0]), scaled(l, 1 + c[1])
                pulls = {place: first, other: second}
                if place == other:
                    pulls = {place: both(first, second)}
                yield Candidate(name, pulls=pulls)

    @cached_property
    def numbers(self) -> dict[str, float]:
        """Numbers that a factor may come from: sizes, their roots, and what the function computes,
        as text."""
        known: dict[str, float] = dict(sizes(self.calls.certified))
        known |= {f"the root of {name}": size**0.5 for name, size in known.items()} | {
            f"{name} / ({name} - 1)": size / (size - 1) for name, size in known.items()
        }
        for seen in self.calls.arrays.values():
            right = seen.call.right
            if len(seen.turns) == 1 and isinstance(right, Recorded) and not right.ndim:
                known[seen.where] = float(right.raw)
        return known

    def _number(self, factor: float) -> tuple[str, float]:
        """A factor in words, and the number that they mean; or ""."""
        for text, value in FACTORS.items():
            if abs(factor / value - 1) < FITS:
                return text, value
        for verb, sign in (("multiplied", 1), ("divided", -1)):
            names = self._names(factor**sign)
            if names:
                number = self.numbers[names[0]]
                return f"is {verb} by {number:.6g} = {' = '.join(names[:2])}", number**sign
        return "", factor

    def _names(self, factor: float) -> list[str]:
        """What a factor may come from."""
        return [
            name for name, value in self.numbers.items() if value and abs(factor / value - 1) < FITS
        ]

    def of_values(self, sources: Sources) -> Readings:
        """Constants, factors and terms that fit, in the place of those of the source."""
        if "value" not in self.given or self.calls.certified.cotangent is not None:
            return
        for rewrite, block in sources.constants():
            right = float(constant_of(block.node))
            yield from self._fitted(sources, rewrite, instead_of, right, 1.01 * right or 0.01)
        for rewrite, right in sources.single():
            if _is_real(right):
                times = rewrite._replace(
                    name=rewrite.name.replace(VERB, f"is multiplied by {VERB}")
                )
                plus = rewrite._replace(
                    name=rewrite.name.replace(VERB, f"is computed with {VERB} added")
                )
                yield from self._fitted(sources, times, np.multiply, 1.0, 1.01)
                yield from self._fitted(sources, plus, np.add, 0.0, 0.01)

    def _fitted(
        self, sources: Sources, rewrite: Rewrite, how: Fit, right: float, near: float
    ) -> Readings:
        """What the constant gives that makes the value the one that was given, and usual ones."""
        c = self._root(sources, rewrite, how, right, near)
        from_data = self._shown(c, right) if c is not None else ()
        for text, number in chain(from_data, ((f"{number:g}", number) for number in USUAL)):
            named = rewrite._replace(name=rewrite.name.replace(VERB, text))
            for candidate, reading in sources.computed(named, partial(_taking, how, number)):
                yield candidate._replace(sized=None), reading

    def _root(
        self, sources: Sources, rewrite: Rewrite, how: Fit, right: float, near: float
    ) -> float | None:
        """The constant with which another function gives the value that was given, by secants."""
        gap = float(self.given["value"] - self.true["value"])
        before, off, c = right, -gap, near
        for _ in range(STEPS):
            take = partial(_taking, how, c)
            value = sources.value(rewrite, sources.arguments, take)
            if value is None or value.ndim:
                return None
            now = float(value) - float(self.given["value"])
            if abs(now) <= FITS**2 * abs(gap) or now == off or self.calls.left < 0:
                break
            before, off, c = c, now, c - now * (c - before) / (now - off)
        return c if abs(now) <= FITS * abs(gap) else None

    def _shown(self, c: float, right: float) -> Iterator[tuple[str, float]]:
        """A fitted constant as text and number: a round one, or one that has a name."""
        names = self._names(c) if right == 1 else []
        if names:
            yield f"{c:.6g} = {' = '.join(names[:2])}", self.numbers[names[0]]
        for digits in (1, 2, 3):
            number = float(f"{c:.{digits}g}")
            if number and abs(c / number - 1) < FITS:
                yield f"{number:g}", number


def _missing_or_times(factor: float) -> str:
    """What a usual factor does to the gradient of {}, or ""."""
    if abs(factor) < FITS:
        return "no gradient goes through {}"
    known = (text for text, number in FACTORS.items() if abs(factor / number - 1) < FITS)
    return next((f"the gradient of {{}} {text}" for text in known), "")


def instead_of(right: Operand, c: float) -> Operand:
    """The constant itself."""
    return c


def _taking(how: Fit, c: float, right: Operand, other: Operand) -> Operand:
    return how(right, c)


def _is_real(value: Operand) -> bool:
    return isinstance(value, (float, np.ndarray)) and np.asarray(value).dtype.kind == "f"
