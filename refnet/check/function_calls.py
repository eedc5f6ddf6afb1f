"""Mistakes inside a function: what its value and gradients become if one call of NumPy in it is
another.

A run of the function on recorded floats is a sequence of calls, each at a place in the user's
source, which Python knows to the column (PEP 657). An edit changes what the calls at one place
give: the cotangent of an operand or of the result, or what is computed: an operand alone, another
operation, axis, constant, variable, index or type, in the value, in the gradient or in both. Names
show the user's text, so that the table has no cases of its own, whatever the function is.

Checked by: tests/check/test_function_calls.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from itertools import chain
from operator import itemgetter
from types import FrameType
from typing import Any

import numpy as np

from refnet.batch import Array, Params
from refnet.check.call_edits import (
    Edits,
    changed,
    coarser,
    everywhere,
    forward_alone,
    numbers_read,
    of_the_operation,
    other_reductions,
    values_of,
    with_a_function,
)
from refnet.check.call_sites import Place, Seen, is_live, sides
from refnet.check.function_constants import FEW, Constants
from refnet.check.function_edits import floats
from refnet.check.function_runs import PULLED, REPLAYED, Candidate, Edit, Tape, call_of, watched
from refnet.check.judgement import LIMITS
from refnet.check.source_edits import Sources
from refnet.check.pull_edits import (
    COARSER,
    Pulls,
    adjoint_untransposed,
    forms,
    instead,
    pulls_of,
    reshaped_pulls,
    rounded,
    scaled,
)
from refnet.exact.functions import CertifiedFunction
from refnet.exact.recorder import CALLS, Node, Operand
from refnet.exact.running import mapped, run_on

__all__ = ["Calls"]

WORK = 150_000
"""Calls that may be spent on one function: some ten seconds."""
CLOSE = 1e-3
"""How near a change along a random direction has to be, of the size of what is wrong."""
NEAR = 0.05
"""How near a value has to be, where what f compares stays as it was."""
ALIKE = 0.2
"""How near errors of the same type are in size."""


class Calls:
    """The edits of the calls of a certified function, and what they give."""

    def __init__(self, search: Any) -> None:
        self.search, self.given, self.wrong = search, search.given, search.wrong
        certified: CertifiedFunction = search.all.certified
        self.certified = certified
        self.tape = Tape(certified, certified.arguments)
        self.true = self.tape.true
        for name in {*self.true} - self.wrong - {"value"}:
            self.tape.direction[name][...] = 0
        seen = self.tape.seen
        self.seen = {place: calls for place, calls in seen.items() if sides(calls.call.right)}
        self.arrays = {
            place: calls
            for place, calls in self.seen.items()
            if not isinstance(calls.call.right, tuple)
        }
        self.left: float = WORK // max(sum(len(calls.turns) for calls in seen.values()), 1)
        self.recurs: dict[frozenset[Node], bool] = {}

    @cached_property
    def elsewhere(self) -> Tape:
        """The function at other arguments."""
        rng = np.random.default_rng(1)
        arguments = {
            name: mapped(value, name, lambda _, a: a * (1 + 0.1 * rng.standard_normal(a.shape)))
            for name, value in self.certified.arguments.items()
        }
        return Tape(self.certified, arguments)

    def edited(self, candidate: Candidate, tape: Tape | None = None) -> Params | None:
        """What an edit gives; None if it cannot be made, if its value is not that which was given
        (of a ``tape`` that is passed, any will do), or if too much was tried already."""
        self.left -= REPLAYED
        if self.left < 0:
            return None
        any_value, tape = tape is not None, tape or self.tape
        if candidate.rerun:
            return candidate.rerun(tape.arguments)
        try:
            if candidate.pulls:
                return self._pulled(candidate, tape)
            if not (any_value or self._may_be(self.value(candidate))):
                return None
            self.left -= 1
            run = watched(self.certified, tape.arguments, partial(_act, candidate.edits))
            value = {"value": np.asarray(run.value, float)}
            if not (any_value or self.search.agrees(value)):
                return None
            return value | run.gradients(self.certified.cotangent, floats)
        except Exception:  # the edit does not fit, or f does not go on with what it gives
            return None

    def value(self, candidate: Candidate) -> Array:
        """The value that an edit gives."""
        with np.errstate(all="ignore"):
            return self.tape.value(candidate.edits)

    def _may_be(self, value: Array) -> bool:
        """Whether a value that NumPy gives may be that which was given."""
        given, true = (results.get("value", value) for results in (self.given, self.true))
        return bool(np.linalg.norm(value - given) <= NEAR * np.linalg.norm(given - true))

    def readings(self) -> Iterator[tuple[str, Params]]:
        """The edits that explain what was given or, if there are none, those that explain what is
        wrong where the rest is right."""
        partial: list[tuple[Candidate, Params]] = []
        whole = [*self._distinct(self._whole(partial))]
        for candidate, reading in whole or self._distinct(partial):
            yield candidate.name, reading

    def _whole(self, partial: list[tuple[Candidate, Params]]) -> Iterator[tuple[Candidate, Params]]:
        """The edits that explain all; those that explain it in part are added to a list."""
        wrong = sorted(self.wrong)
        for candidate, reading in self.candidates():
            if self.search.explains(reading):
                yield candidate, reading
            elif "value" in self.given and "value" not in wrong and {*wrong} <= {*reading}:
                part = {**self.true, **{name: reading[name] for name in wrong}}
                if self.search.explains(part):
                    name = f"{candidate.name}, in {', '.join(wrong)} alone"
                    partial.append((candidate._replace(name=name), part))

    def _distinct(
        self, candidates: Iterable[tuple[Candidate, Params]]
    ) -> Iterator[tuple[Candidate, Params]]:
        """Two edits at most; of those that are one at other arguments and sizes, too, the first."""
        known: list[tuple[bool | str | None, Params]] = []
        for candidate, reading in candidates:
            sized = candidate.sized
            if sized is None and known:
                continue
            there = self.edited(candidate, self.elsewhere) or reading
            there = {name: there[name] for name in self.wrong if name in there}
            if not any(_alike(there, other) and size in (sized, None) for size, other in known):
                known.append((sized, there))
                yield candidate, reading
            if len(known) > 1:
                return

    def _pulled(self, candidate: Candidate, tape: Tape) -> Params | None:
        """What an edit of the gradient gives; None if it changes the gradients by something else
        than what was given along a random direction, which needs no backward pass."""
        turns = [
            (turn.outs[-1].born, redirected)
            for place, pull in candidate.pulls.items()
            for turn in tape.seen[place].turns
            if (redirected := pull(turn))
        ]
        parts = [part for _, part in sorted(turns, key=itemgetter(0))]
        redirected = {port: nodes for part in parts for port, nodes in part.items()}
        if tape is self.tape and self.gap:
            key, (gap, size) = frozenset(redirected), self.gap
            if key not in self.recurs:
                self.recurs[key] = tape.recurs(parts)
            if not (self.recurs[key] or abs(tape.along(redirected) - gap) <= CLOSE * size):
                return None
        self.left -= PULLED
        return tape.pulled(redirected)

    @cached_property
    def gap(self) -> tuple[float, float] | None:
        """What the gradients that were given are off by, along the tape's direction and in size;
        None if some are not given."""
        if not {*self.true} - {"value"} <= {*self.given}:
            return None
        off = {name: self.given[name] - self.true[name] for name in self.wrong - {"value"}}
        size = float(np.linalg.norm([np.linalg.norm(array) for array in off.values()]))
        return float(sum((off[name] * self.tape.direction[name]).sum() for name in off)), size

    def pulls(self, kind: Callable[[Seen, int | None], Pulls]) -> Iterator[Candidate]:
        """Edits of cotangents alone."""
        for place, k, what in self.operands():
            for text, pull in kind(self.seen[place], k):
                sized = "its mean" in text or "its sum" in text
                yield Candidate(text.format(what), pulls={place: pull}, sized=sized)

    def stops(self) -> Iterator[Candidate]:
        """No gradient through all calls of a function."""
        places: dict[str, list[Place]] = {}
        for place, seen in self.arrays.items():
            places.setdefault(seen.call.name, []).append(place)
        for name, every in places.items():
            if len(every) > 1:
                pulls = dict.fromkeys(every, scaled(None, 0))
                label = f"no gradient goes through any {name} ({self.lines(every)})"
                yield Candidate(label, pulls=pulls)

    def lines(self, places: Iterable[Place]) -> str:
        """The lines of these places."""
        return f"lines {', '.join(map(str, sorted({self.seen[place].number for place in places})))}"

    def operands(self) -> Iterator[tuple[Place, int | None, str]]:
        """The operands, and results None, that all of what is wrong goes through, as text."""
        for place, seen in self.seen.items():
            operands: list[int | None] = [
                k for k, x in enumerate(seen.call.args) if hasattr(x, "shape") and is_live(x)
            ]
            if isinstance(seen.call.right, tuple):
                operands = [-1 - n for n in range(len(seen.call.right))]
            elif len(operands) != 1:
                operands.append(None)
            for k in operands:
                ports = [port for turn in seen.turns for port in turn.nodes(k)]
                if self.wrong <= set().union(*(self.tape.reach.get(port, ()) for port in ports)):
                    what = f"result [{-1 - k}] of " if k is not None and k < 0 else ""
                    if k is not None and k >= 0:
                        what = f"`{seen.operands[k]}` in "
                    yield place, k, what + seen.where

    def candidates(self) -> Iterator[tuple[Candidate, Params]]:
        """Every edit that may explain what is ``wrong``, and the results that it gives."""
        if "value" in self.wrong or "value" not in self.given:
            yield from self.of_values()
        if "value" not in self.wrong:
            yield from self.of_gradients()

    def of_gradients(self) -> Iterator[tuple[Candidate, Params]]:
        """Edits of the gradient, with the right value."""
        reshaped = self.pulls(reshaped_pulls)
        first = chain(self.pulls(pulls_of), self.stops())
        for candidates in (first, Constants(self).of_cotangents(), reshaped, self.others()):
            for candidate in candidates:
                if reading := self.edited(candidate):
                    yield candidate, reading
        yield from Sources(self).of_gradients()

    def others(self) -> Iterator[Candidate]:
        """The gradient of another call."""
        for place, seen in self.arrays.items():
            if seen.call.name == "linalg.solve":
                name = f"the gradients of {seen.where} lack a transpose"
                yield Candidate(name, pulls={place: instead(adjoint_untransposed)})
            for text, edit in chain(values_of(seen), of_the_operation(seen)):
                name = f"the gradient takes `{text}` for {seen.where}"
                yield Candidate(name, pulls={place: instead(edit)})
            for text, edit in numbers_read(seen, self.tape.last.get(place[0], {})):
                name = f"the gradient of {seen.where} takes {text}"
                yield Candidate(name, pulls={place: instead(edit)})

    def of_values(self) -> Iterator[tuple[Candidate, Params]]:
        """Edits of the value, with the gradient that follows from it, the right call's, or the
        right one."""
        for candidate in self.values(other_reductions):
            yield from self._computed(candidate._replace(sized=True))
        others = map(self.values, (of_the_operation, with_a_function))
        for candidate in chain(self.values(values_of), self.everywhere(), *others):
            yield from self._computed(candidate)
        yield from self.narrowed()
        yield from Sources(self).of_values()
        if self.wrong != {"value"}:
            yield from Constants(self).of_values()
        for candidate in self.reshaped():
            yield from self._computed(candidate)

    def _computed(self, candidate: Candidate) -> Iterator[tuple[Candidate, Params]]:
        """What an edit of the value gives, with any of the gradients; its name has {} where the
        verb stands."""
        both = candidate._replace(name=candidate.name.replace("{}", "is computed as", 1))
        reading = self.edited(both)
        if reading is None:
            return
        if self.wrong != {"value"}:
            yield both, reading
            behind = {place: forward_alone(edit) for place, edit in both.edits.items()}
            label = f"{both.name}, with the right call's gradient"
            right = both._replace(name=label, edits=behind)
            if reading := self.edited(right):
                yield right, reading
        elif self.search.explains(reading):
            yield both, reading
        else:
            label = candidate.name.replace("{}", "in the value alone is computed as", 1)
            yield candidate._replace(name=label), {**self.true, "value": reading["value"]}

    def values(self, kind: Callable[[Seen], Edits]) -> Iterator[Candidate]:
        """Edits of values."""
        for place, seen in self.arrays.items():
            for text, edit in kind(seen):
                yield Candidate(f"{seen.where} {{}} `{text}`", {place: edit})

    def everywhere(self) -> Iterator[Candidate]:
        """Edits at all places where an operand or axis stands."""
        for text, edits in everywhere(self.arrays):
            yield Candidate(f"{text} everywhere ({self.lines(edits)})", edits)

    def reshaped(self) -> Iterator[Candidate]:
        """Edits of the entries of values."""
        for place, seen in self.arrays.items():
            for how, form in forms(seen.call.right.shape):
                if not how.startswith(("has its mean", "has its sum")):
                    name = f"{seen.where} {{}} an array that {how}"
                    yield Candidate(name, {place: changed(None, form)})

    def narrowed(self) -> Iterator[tuple[Candidate, Params]]:
        """Calls in a coarser type: they give the value that was given, and gradients that are off
        by no more than its rounding; or the few that make each result off by as much as it is."""
        search = self.search
        for kind, u in COARSER.items():
            if not all(search.coarser.within(6 * u, name) for name in self.given):
                continue
            arguments = {
                name: mapped(value, name, lambda _, a, kind=kind: rounded(kind)(a))
                for name, value in self.certified.arguments.items()
            }
            certified = self.certified
            reading = run_on(certified.function, arguments, certified.cotangent, floats)
            yield Candidate(f"the arguments are rounded to {kind}, and the rest is not"), reading
            alike = []
            for place, seen in self.arrays.items():
                name = f"{seen.where} is computed in {kind}"
                candidate = Candidate(name, {place: coarser(kind)})
                reading = self.edited(candidate, self.tape)
                if reading and search.agrees({"value": reading["value"]}):
                    yield candidate, {**reading, **self.given, "value": reading["value"]}
                    return
                if reading and all(self._as_far_off(name, reading) for name in self.given):
                    alike.append(seen.where)
            if 0 < len(alike) <= FEW and search.rerolled and search.rerolled(u):
                name = f"perhaps {', or '.join(alike)} is computed in {kind}"
                yield Candidate(name), self.given

    def _as_far_off(self, name: str, reading: Params) -> bool:
        """Whether a reading is off by about as much as what was given."""
        none = LIMITS[0] * self.true[name].size ** 0.5
        theirs, ours = (
            max(self.search.in_sigmas(name, results[name] - self.true[name]), none)
            for results in (self.given, reading)
        )
        return bool(ALIKE < theirs / ours < 1 / ALIKE)


def _act(
    edits: dict[Place, Edit], place: Place, frame: FrameType, kind: str, call: tuple[Any, ...]
) -> Operand:
    """What a call gives, edited where there is an edit."""
    right = CALLS[kind](*call)
    if place not in edits or not sides(right):
        return right
    return edits[place](call_of(frame, kind, call, right))


def _alike(a: Params, b: Params) -> bool:
    size, off = (
        np.linalg.norm([np.linalg.norm(a[name] - c * b[name]) for name in a if name != "value"])
        for c in (0, 1)
    )
    return bool(off <= 1e-9 * size)
