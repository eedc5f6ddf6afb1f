"""Mistakes inside a function: what its value and gradients become if one call of NumPy in it is
another.

A run of the function on recorded floats is a sequence of calls, each at a place in the user's
source, which Python knows to the column (PEP 657). An edit changes what the calls at one place
give. It stops, scales or turns the cotangent of an operand, or it computes something else: an
operand alone, another operation, axis, constant or variable. Names show the user's text, so that
the table has no cases of its own, whatever the function is.

Checked by: tests/check/test_function_calls.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain, count
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from refnet.batch import Params
from refnet.check.call_edits import (
    Edit,
    adjoint_untransposed,
    alone,
    of_operand,
    of_options,
    of_the_operation,
    pulled_alone,
    scaled,
    untransposed,
    without_slope,
)
from refnet.check.call_sites import Call, Place, Seen, expression, is_live, user_frame
from refnet.check.function_edits import floats, sizes
from refnet.exact.functions import CertifiedFunction
from refnet.exact.recorder import CALLS, WATCH, Operand, Recorded
from refnet.exact.running import mapped, run_on

__all__ = ["Calls"]

WORK = 150_000
"""Calls that may be spent on one function: some ten seconds."""
FACTORS = {"has the wrong sign": -1.0, "is doubled": 2.0, "is halved": 0.5}
"""What a cotangent is often multiplied by."""
FEW = 3
"""The most wrong entries that a constant may explain by chance."""
FITS = 1e-4
"""How near a fitted constant has to be."""
LINEAR = ("matmul", "dot", "linalg.solve")
"""Calls that are linear in an operand, and no product entry by entry."""


class Candidate(NamedTuple):
    """An edit of the calls at a place, in all or some of its turns."""

    name: str
    place: Place
    edit: Edit
    turns: frozenset[int] | None = None


@dataclass
class Calls:
    """The edits of the calls of a certified function, and what they give."""

    certified: CertifiedFunction
    seen: dict[Place, Seen] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.true = self.run(self._look)
        calls = sum(seen.turns for seen in self.seen.values())
        self.left = WORK // max(calls, 1)

    def run(
        self, act: Callable[[Place, FrameType, Call, Recorded], Operand], anew: int | None = None
    ) -> Params:
        """Value and gradients with the calls' results that ``act`` gives; ``anew``: a seed of
        other arguments."""

        def watch(kind: str, call: tuple[Any, ...]) -> Operand:
            token = WATCH.set(None)
            try:
                right, frame = CALLS[kind](*call), user_frame()
                if frame is None or not isinstance(right, Recorded):
                    return right
                *head, args, options = call
                what = Call(kind, tuple(head), tuple(args), dict(options), frame.f_locals)
                return act((frame.f_code, frame.f_lasti), frame, what, right)
            finally:
                WATCH.reset(token)

        certified, token = self.certified, WATCH.set(watch)
        arguments = certified.arguments
        if anew is not None:
            rng = np.random.default_rng(anew)
            arguments = {
                name: mapped(value, name, lambda _, a: a * (1 + 0.1 * rng.standard_normal(a.shape)))
                for name, value in arguments.items()
            }
        try:
            with np.errstate(all="ignore"):
                results = run_on(certified.function, arguments, certified.cotangent, floats)
        finally:
            WATCH.reset(token)
        return {name: np.asarray(value, float) for name, value in results.items()}

    def _look(self, place: Place, frame: FrameType, call: Call, right: Recorded) -> Operand:
        if place not in self.seen:
            self.seen[place] = Seen(call, right, frame.f_lineno, expression(frame))
        seen = self.seen[place]
        variables = {n: value for n, value in call.variables.items() if isinstance(value, Recorded)}
        seen.call, seen.right = call._replace(variables=variables), right
        seen.turns += 1
        return right

    def edited(self, candidate: Candidate, anew: int | None = None) -> Params | None:
        """What an edit gives; None if it cannot be made, or too much was tried already."""
        self.left -= 1
        if self.left < 0:
            return None
        turn = count()

        def act(place: Place, frame: FrameType, call: Call, right: Recorded) -> Operand:
            if place != candidate.place:
                return right
            now = next(turn)
            edits = candidate.turns is None or now in candidate.turns
            return candidate.edit(call, right) if edits else right

        try:
            return self.run(act, anew)
        except Exception:  # the edit does not fit, or f does not go on with what it gives
            return None

    def pulls(self) -> Iterator[Candidate]:
        """Edits of cotangents alone."""
        for place, seen in self.seen.items():
            call, where = seen.call, f"in `{seen.text}` ({seen.line})"
            for k, x in enumerate(call.args):
                if not is_live(x):
                    continue
                what = f"`{seen.operands[k]}`"
                yield Candidate(f"no gradient goes through {what} {where}", place, scaled(k, 0))
                for name, n in (("first", 0), ("last", seen.turns - 1)) if seen.turns > 1 else ():
                    turn = f"the {name} turn of {what} {where}"
                    rest = frozenset(range(seen.turns)) - {n}
                    yield Candidate(
                        f"the gradient goes through {turn} alone", place, scaled(k, 0), rest
                    )
                    here = frozenset({n})
                    yield Candidate(f"no gradient goes through {turn}", place, scaled(k, 0), here)
                for times, factor in FACTORS.items() if seen.turns > 1 else ():
                    name = f"the gradient of {what} {where} {times}"
                    yield Candidate(name, place, scaled(k, factor))
                if call.name in LINEAR:
                    name = f"the gradient of {what} {where} lacks a transpose"
                    yield Candidate(name, place, untransposed(k))
                    if call.name == "linalg.solve" and k == 1:
                        name = f"the gradients of `{seen.text}` ({seen.line}) lack a transpose"
                        yield Candidate(name, place, adjoint_untransposed)
                elif x.shape == seen.right.shape and call.name not in ("add", "subtract"):
                    lacks = "its slope" if len(call.args) == 1 else "the other factor"
                    name = f"the gradient of {what} {where} lacks {lacks}"
                    yield Candidate(name, place, without_slope(k))

    def multiples(self, given: Params, wrong: set[str]) -> Iterator[Candidate]:
        """Cotangents times the constant that fits, those first that sizes explain."""
        entries = sum(given[name].size for name in wrong)
        unusual = []
        for place, seen in self.seen.items():
            for k in (k for k, x in enumerate(seen.call.args) if is_live(x)):
                without = self.edited(Candidate("", place, scaled(k, 0)))
                if without is None:
                    continue
                part, off = (
                    np.concatenate([(a[name] - b[name]).ravel() for name in sorted(wrong)])
                    for a, b in ((self.true, without), (given, self.true))
                )
                size = float(part @ part)
                factor = 1 + float(part @ off) / size if size > 0 else 1.0
                if np.linalg.norm(off - (factor - 1) * part) > FITS * np.linalg.norm(off):
                    continue
                what = f"the gradient of `{seen.operands[k]}` in `{seen.text}` ({seen.line})"
                times, number = self._number(factor)
                if times:
                    yield Candidate(f"{what} {times}", place, scaled(k, number))
                elif entries > FEW:
                    name = f"{what} is multiplied by {factor:.6g}"
                    unusual.append(Candidate(name, place, scaled(k, factor)))
        yield from unusual

    def _number(self, factor: float) -> tuple[str, float]:
        """A factor in words, and the number that they mean; or ""."""
        for text, value in FACTORS.items():
            if abs(factor / value - 1) < FITS:
                return text, value
        known = dict(sizes(self.certified))
        known |= {f"the root of {name}": size**0.5 for name, size in known.items()}
        for verb, sign in (("multiplied", 1), ("divided", -1)):
            same = {t: value for t, value in known.items() if abs(factor / value**sign - 1) < FITS}
            if same:
                number = next(iter(same.values()))
                return f"is {verb} by {number:.6g} = {' = '.join([*same][:2])}", number**sign
        return "", factor

    def values(self) -> Iterator[tuple[str, Seen, Candidate]]:
        """Edits of values, as text and what they are edits of."""
        for place, seen in self.seen.items():
            call = seen.call
            others = [
                edit
                for k, x in enumerate(call.args)
                for edit in (*of_operand(seen, k, x), *alone(seen, k))
            ]
            for text, edit in (*others, *of_the_operation(seen), *of_options(seen)):
                yield text, seen, Candidate("", place, edit)

    def candidates(self, given: Params, wrong: set[str]) -> Iterator[tuple[Candidate, Params]]:
        """Every edit that may explain what is ``wrong``, and the results that it gives."""
        value, gradients = "value" in wrong, wrong - {"value"}
        same_value = {"value": self.true["value"]}
        if not value:
            for candidate in chain(self.pulls(), self.multiples(given, wrong)):
                if reading := self.edited(candidate):
                    yield candidate, {**reading, **same_value}
        for text, seen, candidate in self.values():
            where = f"`{seen.text}` ({seen.line})"
            if value or "value" not in given:
                whole = candidate._replace(name=f"{where} is computed as `{text}`")
                if reading := self.edited(whole):
                    yield whole, reading
                    if not gradients:
                        name = f"the value alone has `{text}` for {where}"
                        yield whole._replace(name=name), {**self.true, "value": reading["value"]}
            if not value:
                name = f"the gradient takes `{text}` for {where}"
                pulled = candidate._replace(name=name, edit=pulled_alone(candidate.edit))
                if reading := self.edited(pulled):
                    yield pulled, {**reading, **same_value}

    def readings(
        self, given: Params, wrong: set[str], agrees: Callable[[Params], bool]
    ) -> Iterator[tuple[str, Params]]:
        """The edits whose results ``agrees`` accepts; of edits that are one at other arguments,
        too, the first."""
        known: list[Params] = []
        for candidate, reading in self.candidates(given, wrong):
            if not agrees(reading):
                continue
            elsewhere = self.edited(candidate, anew=1) or reading
            if not any(_alike(elsewhere, other) for other in known):
                known.append(elsewhere)
                yield candidate.name, reading
            if len(known) > 1:
                return


def _alike(a: Params, b: Params) -> bool:
    return all(
        np.linalg.norm(a[name] - b[name]) <= 1e-9 * np.linalg.norm(a[name])
        for name in a
        if name != "value"
    )
