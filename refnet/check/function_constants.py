"""Constants that are fitted: what a cotangent is multiplied by, another number in a call, a factor
or a term of what it gives.

Checked by: tests/check/test_function_calls.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from itertools import chain
from typing import Any

import numpy as np

from refnet.batch import Params
from refnet.check.call_edits import changed, constant, taking
from refnet.check.call_sites import Place, Seen, is_a_number
from refnet.check.function_edits import sizes
from refnet.check.function_runs import PULLED, REPLAYED, Candidate, Edit, parent
from refnet.check.pull_edits import FACTORS, scaled
from refnet.exact.recorder import Recorded

FEW = 3
"""The most wrong entries that a constant may explain by chance."""
FITS = 1e-4
"""How near a fitted constant has to be."""
USUAL = (1.0, -1.0, 2.0, 0.5)
"""Constants that are tried where none can be fitted."""
STEPS = 8
"""Runs in which a constant of the value is fitted."""
Fits = Iterator[tuple[str, Callable[[float], Edit], float, float]]
"""What may be another constant: its text, the edit, the right number, and one near it."""


class Constants:
    """The constants of a function's calls (``refnet.check.function_calls``)."""

    def __init__(self, calls: Any) -> None:
        self.calls, self.tape = calls, calls.tape
        self.given, self.true, self.wrong = calls.given, calls.true, sorted(calls.wrong)

    def of_cotangents(self) -> Iterator[Candidate]:
        """Cotangents times the constant that fits, those first that sizes explain."""
        entries = sum(self.given[name].size for name in self.wrong)
        unusual = []
        for place, k, what in self.calls.operands():
            self.calls.left -= PULLED
            if self.calls.left < 0:
                return
            turns = self.calls.seen[place].turns
            without = self.tape.pulled({port: [] for turn in turns for port in turn.nodes(k)})
            part, off = (
                np.concatenate([(a[name] - b[name]).ravel() for name in self.wrong])
                for a, b in ((self.true, without), (self.given, self.true))
            )
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
            if entries > FEW:
                name = f"the gradient of {what} is multiplied by {factor:.6g}"
                unusual.append(Candidate(name, pulls={place: scaled(k, factor)}, sized=None))
        yield from unusual

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

    def of_values(self) -> Iterator[tuple[Candidate, Params]]:
        """Results times the constant that fits, and other constants."""
        if "value" not in self.given or self.calls.certified.cotangent is not None:
            return
        gap = float(self.given["value"] - self.true["value"])
        for kind in self._constants, self._factors:
            for place, seen in self.calls.arrays.items():
                for name, edit, start, near in kind(seen, gap):
                    c = self._root(place, edit, gap, start, near)
                    from_data = self._shown(c, start) if c is not None else ()
                    usual = ((f"{number:g}", number) for number in USUAL)
                    for text, number in chain(from_data, usual):
                        label = f"{seen.where} {name.replace('{}', text, 1)}"
                        fit = Candidate(label, {place: edit(number)}, sized=None)
                        if reading := self.calls.edited(fit):
                            yield fit, reading

    @staticmethod
    def _constants(seen: Seen, _: float) -> Fits:
        """What may be another constant: its text, the edit, the right number, and one near it."""
        for k, x in enumerate(seen.call.args):
            if is_a_number(x) and seen.call.kind == "ufunc":
                name = f"has {{}} for `{seen.operands[k]}`"
                yield name, partial(_number_for, k), float(x), 1.01 * float(x) or 0.01

    def _factors(self, seen: Seen, gap: float) -> Fits:
        """The same of factors and terms of a result, or of an operand that no call gives."""
        for k in (None, *range(len(seen.call.args))):
            ports = [port for turn in seen.turns for port in turn.nodes(k)]
            if k is not None and any(parent(port) in self.tape.ports for port in ports):
                continue
            cotangents = self.tape.cotangents
            pairs = [(cotangents[port], port.raw) for port in ports if port in cotangents]
            what = "is" if k is None else f"has `{seen.operands[k]}`"
            for name, edit, start, slope in (
                ("multiplied by {}", _times, 1.0, sum(float((g * raw).sum()) for g, raw in pairs)),
                ("computed with {} added", _plus, 0.0, sum(float(g.sum()) for g, _ in pairs)),
            ):
                if slope and len({*map(type, (seen.call.right, seen.call.args[k or 0]))}) == 1:
                    yield f"{what} {name}", partial(edit, k), start, start + gap / slope

    def _root(
        self, place: Place, edit: Callable[[float], Edit], gap: float, start: float, near: float
    ) -> float | None:
        """The constant with which an edit gives the value that was given, by secants."""
        before, off, c = start, -gap, near
        for _ in range(STEPS):
            self.calls.left -= REPLAYED
            try:
                value = self.calls.value(Candidate("", {place: edit(c)}))
            except Exception:  # as in ``edited``
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


def _number_for(k: int, number: float) -> Edit:
    return taking(k, constant(number))


def _times(k: int | None, factor: float) -> Edit:
    return changed(k, partial(np.multiply, factor))


def _plus(k: int | None, term: float) -> Edit:
    return changed(k, partial(np.add, term))
