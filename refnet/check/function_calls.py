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
from refnet.check.call_edits import coarser, numbers_read
from refnet.check.call_sites import Place, Seen, is_live, sides
from refnet.check.function_constants import FEW, Constants
from refnet.check.function_edits import floats
from refnet.check.function_runs import (
    PULLED,
    REPLAYED,
    Candidate,
    Edit,
    Tape,
    call_of,
    parent,
    watched,
)
from refnet.check.judgement import LIMITS
from refnet.check.pull_edits import (
    COARSER,
    Pulls,
    adjoint_untransposed,
    in_turns,
    instead,
    pulls_of,
    reshaped_pulls,
    rounded,
    scaled,
)
from refnet.check.source_edits import Sources
from refnet.exact.functions import CertifiedFunction
from refnet.exact.recorder import CALLS, Node, Operand
from refnet.exact.running import Arguments, mapped, run_on

__all__ = ["Calls"]

WORK = 150_000
"""Calls that may be spent on one function: some ten seconds."""
CLOSE = 1e-3
"""How near a change along a random direction has to be, of the size of what is wrong."""
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
        """What an edit gives, at the arguments of a ``tape`` if one is passed; None if it cannot be
        made, or if too much was tried already."""
        self.left -= REPLAYED
        if self.left < 0:
            return None
        tape = tape or self.tape
        try:
            if candidate.rerun:
                self.left -= 1
                return candidate.rerun(tape.arguments)
            return self._pulled(candidate, tape)
        except Exception:  # the edit does not fit, or f does not go on with what it gives
            return None

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

    def turns_alone(self) -> Iterator[Candidate]:
        """The gradient of an argument that loops read, of their first or last turns alone."""
        for argument, nodes in self.tape.run.nodes.items():
            uses = {
                place: k
                for place, k, _ in self.operands()
                for port in self.seen[place].turns[0].nodes(k)
                if parent(port) in nodes
            }
            loops = {place: k for place, k in uses.items() if len(self.seen[place].turns) > 1}
            for name, n in (("first", 0), ("last", -1)) if len(loops) > 1 else ():
                alone, without = {}, {}
                for place, k in loops.items():
                    turns = range(len(self.seen[place].turns))
                    alone[place] = in_turns({*turns} - {turns[n]}, scaled(k, 0))
                    without[place] = in_turns({turns[n]}, scaled(k, 0))
                what = f"the {name} turn of each of its calls ({self.lines(loops)})"
                yield Candidate(f"d{argument} is that of {what} alone", pulls=alone)
                yield Candidate(f"d{argument} lacks {what}", pulls=without)

    def lines(self, places: Iterable[Place]) -> str:
        """The lines of these places."""
        return f"lines {', '.join(map(str, sorted({self.seen[place].number for place in places})))}"

    def operands(self, whole: bool = True) -> Iterator[tuple[Place, int | None, str]]:
        """The operands, and results None, that what is wrong goes through, as text: the ``whole``
        of it, or some."""
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
                reached = set().union(*(self.tape.reach.get(port, ()) for port in ports))
                if self.wrong <= reached or self.wrong & reached and not whole:
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
        first = chain(self.pulls(pulls_of), self.stops(), self.turns_alone())
        for candidates in (first, Constants(self).of_cotangents(), reshaped, self.others()):
            for candidate in candidates:
                if reading := self.edited(candidate):
                    yield candidate, reading
        sources = Sources(self)
        yield from sources.of_gradients()
        yield from sources.of_slopes()
        for candidate in Constants(self).of_two():
            if reading := self.edited(candidate):
                yield candidate, reading

    def others(self) -> Iterator[Candidate]:
        """The gradient of another call."""
        for place, seen in self.arrays.items():
            if seen.call.name == "linalg.solve":
                name = f"the gradients of {seen.where} lack a transpose"
                yield Candidate(name, pulls={place: instead(adjoint_untransposed)})
            for text, edit in numbers_read(seen, self.tape.last.get(place[0], {})):
                name = f"the gradient of {seen.where} takes {text}"
                yield Candidate(name, pulls={place: instead(edit)})

    def of_values(self) -> Iterator[tuple[Candidate, Params]]:
        """Edits of the value, with the gradient that follows from it, the right call's, or the
        right one."""
        sources = Sources(self)
        yield from sources.of_values()
        yield from self.narrowed()
        if self.wrong != {"value"}:
            yield from Constants(self).of_values(sources)
        yield from sources.reshaped()
        yield from sources.of_the_value_alone()

    def narrowed(self) -> Iterator[tuple[Candidate, Params]]:
        """Calls in a coarser type: they give the value that was given, and gradients that are off
        by no more than its rounding; or the few that make each result off by as much as it is."""
        search = self.search
        for kind, u in COARSER.items():
            if not all(search.coarser.within(6 * u, name) for name in self.given):
                continue
            arguments = {
                name: mapped(value, name, partial(_rounded, kind))
                for name, value in self.certified.arguments.items()
            }
            certified = self.certified
            results = run_on(certified.function, arguments, certified.cotangent, floats)
            yield Candidate(f"the arguments are rounded to {kind}, and the rest is not"), results
            alike = []
            for place, seen in self.arrays.items():
                name = f"{seen.where} is computed in {kind}"
                rerun = partial(self._with_a_call, place, coarser(kind))
                candidate = Candidate(name, rerun=rerun)
                reading = self.edited(candidate)
                value = {"value": reading["value"]} if reading else {}
                if reading and "value" in self.given and search.agrees(value):
                    yield candidate, {**reading, **self.given, "value": reading["value"]}
                    return
                if reading and all(self._as_far_off(name, reading) for name in self.given):
                    alike.append(seen.where)
            if 0 < len(alike) <= FEW and search.rerolled and search.rerolled(u):
                name = f"perhaps {', or '.join(alike)} is computed in {kind}"
                yield Candidate(name), self.given

    def _with_a_call(self, place: Place, edit: Edit, arguments: Arguments) -> Params:
        """Value and gradients with an edit of the calls at one place."""
        run = watched(self.certified, arguments, partial(_act, place, edit))
        value = {"value": np.asarray(run.value, float)}
        return value | run.gradients(self.certified.cotangent, floats)

    def _as_far_off(self, name: str, reading: Params) -> bool:
        """Whether a reading is off by about as much as what was given."""
        none = LIMITS[0] * self.true[name].size ** 0.5
        theirs, ours = (
            max(self.search.in_sigmas(name, results[name] - self.true[name]), none)
            for results in (self.given, reading)
        )
        return bool(ALIKE < theirs / ours < 1 / ALIKE)


def _rounded(kind: str, name: str, array: Array) -> Array:
    return rounded(kind)(array)


def _act(
    edited: Place, edit: Edit, place: Place, frame: FrameType, kind: str, call: tuple[Any, ...]
) -> Operand:
    """What a call gives, edited at one place."""
    right = CALLS[kind](*call)
    return edit(call_of(frame, kind, call, right)) if place == edited and sides(right) else right


def _alike(a: Params, b: Params) -> bool:
    size, off = (
        np.linalg.norm([np.linalg.norm(a[name] - c * b[name]) for name in a if name != "value"])
        for c in (0, 1)
    )
    return bool(off <= 1e-9 * size)
