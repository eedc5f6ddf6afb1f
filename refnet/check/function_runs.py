"""A run of a function whose backward pass is made anew, with other cotangents.

The operands and the result of every call pass through ports, nodes that change nothing. An edit of
the gradient sends the cotangent that arrives at a port elsewhere, or changes it. What it changes in
the results needs no other run: backward passes are linear but at the edited ports, so that changes
of cotangents are pulled back from these, through what lies before them alone.

Checked by: tests/check/test_function_calls.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from itertools import chain
from operator import attrgetter
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np

from refnet.batch import Array, Params
from refnet.check.call_sites import Call, Place, Seen, Turn, expression, sides, user_frame
from refnet.check.function_edits import floats
from refnet.exact.complexes import Complex
from refnet.exact.functions import CertifiedFunction
from refnet.exact.recorder import CALLS, WATCH, Node, Operand, Recorded, derived, same
from refnet.exact.reverse import gradients, tape
from refnet.exact.running import Arguments, Run, forward, mapped

Receivers = list[tuple[Node, Callable[[Array], Array]]]
"""Nodes, and what each gets of a cotangent."""
Redirected = dict[Node, Receivers]
"""Where the cotangents of ports go instead; an edit of the gradient makes it of each turn."""
Edit = Callable[[Call], Operand]
"""What a call gives instead."""
Pull = Callable[[Turn], Redirected]
"""Where the cotangents at a turn go instead."""
Act = Callable[[Place, FrameType, str, tuple[Any, ...]], Operand]
"""What a call gives, from its place, its frame, and its kind and the arguments of CALLS."""


LARGEST = ("max", "amax", "maximum.reduce")
PULLED, REPLAYED = 0.3, 0.05
"""What another backward or forward pass costs, of a whole run."""
STEP = 1e-5
"""How far arguments move for ``Tape.tangents``."""


class Candidate(NamedTuple):
    """Edits of the gradient at some places, or what runs the function with another edit.
    ``sized``: whether it is another one at other sizes, or how; None if it has a constant that was
    fitted, which counts only if nothing else explains what was given."""

    name: str
    pulls: dict[Place, Pull] = {}
    sized: bool | str | None = False
    rerun: Callable[[Arguments], Params | None] | None = None


def watched(certified: CertifiedFunction, arguments: Arguments, act: Act) -> Run:
    """A run in float64 in which the calls in the user's code give what ``act`` says."""

    def watch(kind: str, call: tuple[Any, ...]) -> Operand:
        token = WATCH.set(None)
        try:
            frame = user_frame()
            if frame is None:
                return CALLS[kind](*call)
            return act((frame.f_code, frame.f_lasti), frame, kind, call)
        finally:
            WATCH.reset(token)

    token = WATCH.set(watch)
    try:
        with np.errstate(all="ignore"):
            return forward(certified.function, arguments, floats)
    finally:
        WATCH.reset(token)


def call_of(
    frame: FrameType, kind: str, call: tuple[Any, ...], right: Operand = None, turn: int = 0
) -> Call:
    """A watched call; its variables as they are now."""
    *head, args, options = call
    variables = {
        name: _as_it_is(value)
        for name, value in frame.f_locals.items()
        if isinstance(value, Recorded)
    }
    return Call(kind, tuple(head), tuple(args), dict(options), right, variables, turn)


def parent(port: Node) -> Node:
    """The node that a port stands before."""
    return port.pullbacks[0][0]


def each(x: Operand, change: Callable[[Recorded], Operand]) -> Operand:
    """An operand or result with another for each recorded array in it."""
    if isinstance(x, Complex):
        return Complex(change(x.real), change(x.imag))
    if isinstance(x, (list, tuple)):
        parts = [each(part, change) for part in x]
        return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
    return change(x) if isinstance(x, Recorded) else x


def replaced(call: Call, change: Callable[[Recorded], Operand]) -> Call:
    """A call with other arrays."""
    variables = {name: change(x) for name, x in call.variables.items()}
    args, right = each(call.args, change), each(call.right, change)
    return call._replace(args=args, right=right, variables=variables)


class Tape:
    """A run with ports, what it has ``seen`` at each place, and its results, ``true``."""

    def __init__(
        self,
        certified: CertifiedFunction,
        arguments: Arguments,
        held: dict[tuple[Place, int], Recorded] | None = None,
    ) -> None:
        self.certified, self.arguments, self.seen = certified, arguments, dict[Place, Seen]()
        self.cotangents: dict[Node, Array] = {}
        self.held = held or {}
        self.last: dict[CodeType, dict[str, Recorded]] = {}
        self.ports: set[Node] = set()
        self.run = watched(certified, arguments, self._look)
        value = {"value": np.asarray(self.run.value, float)}
        self.true = value | self._record(set())
        if largest := self._unused_largest():
            self._record({port for turn in largest for port in chain(*turn.ports)})
            self.held = {(turn.place, turn.call.turn): turn.call.right for turn in largest}
        nodes = {node for y in self.run.results for node in tape(y.node)}
        self.reach = self._reach(sorted(nodes, key=attrgetter("born")))

    def _look(self, place: Place, frame: FrameType, kind: str, call: tuple[Any, ...]) -> Operand:
        if place not in self.seen:
            self.seen[place] = Seen(frame.f_lineno, expression(frame))
        turns = self.seen[place].turns
        plain = call_of(frame, kind, call, turn=len(turns))
        self.last.setdefault(place[0], {}).update(plain.variables)
        ported = plain._replace(args=each(plain.args, self._port))
        right = out = plain.result() if kind == "index" else ported.result()
        if kind == "index" or _writes(right, ported):
            ported = plain._replace(args=each(plain.args, _as_it_is))
            right = out = right if kind == "index" else plain.result()
        else:
            held = self.held.get((place, len(turns)))
            if held is not None:
                right = derived(right, held.raw, "", (right.node, np.zeros_like))
            out = each(right, self._port)
        ports = tuple(self._ports_of(x) for x in ported.args)
        outs = tuple(side.node for side in sides(out))
        turns.append(Turn(place, ported._replace(right=right), ports, self._ports_of(out), outs))
        return out

    def _ports_of(self, x: Operand) -> tuple[Node, ...]:
        return tuple(side.node for side in sides(x) if side.node in self.ports)

    def _port(self, x: Recorded) -> Recorded:
        if not x.node.live:
            return x
        node = Node(x.raw, x.node.name, live=True)
        node.pullbacks = ((x.node, same),)
        self.ports.add(node)
        return Recorded(node, x.lift, is_number=x.is_number)

    def _record(self, stopped: set[Node]) -> Params:
        """The gradients, and the cotangents at the ports if none goes through the ``stopped``."""
        self.cotangents.clear()
        for port in self.ports:
            keep = np.zeros_like if port in stopped else partial(self._keep, port)
            port.pullbacks = ((parent(port), keep),)
        gradients = self.run.gradients(self.certified.cotangent, floats)
        for port in self.ports - stopped:
            port.pullbacks = ((parent(port), same),)
        return gradients

    def _keep(self, port: Node, g: Array) -> Array:
        self.cotangents[port] = g
        return g

    def _unused_largest(self) -> list[Turn]:
        """What a softmax subtracts: no gradient need go through it, and with an edit elsewhere none
        should."""
        turns = [turn for seen in self.seen.values() for turn in seen.turns]
        largest = [turn for turn in turns if turn.call.name in LARGEST and turn.exits]
        if not largest:
            return []
        without = self.pulled({port: [] for turn in largest for port in turn.exits})
        alike = all(
            np.linalg.norm(without[name] - value) <= 1e-12 * np.linalg.norm(value)
            for name, value in self.true.items()
        )
        return largest if alike else []

    def _reach(self, nodes: list[Node]) -> dict[Node, frozenset[str]]:
        """The gradients that go through each node."""
        reach = {n: frozenset({f"d{name}"}) for name, both in self.run.nodes.items() for n in both}
        for node in nodes:
            before = (reach[node] for node, _ in node.pullbacks)
            reach.setdefault(node, frozenset().union(*before))
        return reach

    @cached_property
    def tangents(self) -> dict[Node, Array]:
        """How the numbers at ports, and of variables, move as the arguments move along the
        ``direction``."""
        more, less = (Tape(self.certified, self.moved(by), self.held) for by in (STEP, -STEP))
        tangents = {}
        for place, seen in self.seen.items():
            turns = zip(seen.turns, more.seen[place].turns, less.seen[place].turns, strict=True)
            for three in turns:
                for a, b, c in zip(*map(_nodes, three), strict=True):
                    tangents[a] = (b.raw - c.raw) / (2 * STEP)
        return tangents

    @cached_property
    def direction(self) -> Params:
        """Random numbers for the arrays that have a gradient."""
        rng = np.random.default_rng(2)
        return {name: rng.standard_normal(array.shape) for name, array in self.true.items()}

    def moved(self, by: float) -> Arguments:
        """The arguments, moved along the ``direction``."""

        def move(name: str, array: Array) -> Array:
            by_name = self.direction[f"d{name}"]
            if array.dtype.kind == "c":
                by_name = by_name[..., 0] + 1j * by_name[..., 1]
            return array + by * by_name

        return {name: mapped(value, name, move) for name, value in self.arguments.items()}

    def along(self, redirected: Redirected) -> float:
        """The change of the gradients along the ``direction`` if cotangents go elsewhere, where no
        change reaches an edited port."""
        change = 0.0
        for port, receivers in redirected.items():
            if port in self.cotangents:
                g = self.cotangents[port]
                change -= float((g * self.tangents[port]).sum())
                for node, pull in receivers:
                    change += float((pull(g) * self.tangents[node]).sum())
        return change

    def recurs(self, parts: list[Redirected]) -> bool:
        """Whether what a part changes reaches the ports of another one; the parts in the order of
        their turns."""
        earlier = set().union(*parts[:-1])
        return bool(earlier) and any(not earlier.isdisjoint(tape(port)) for port in parts[-1])

    def pulled(self, redirected: Redirected) -> Params:
        """The results if cotangents go elsewhere."""
        usual = {port: port.pullbacks for port in redirected if port in self.cotangents}
        for port in usual:
            port.pullbacks = self._changes(port, redirected[port])
        zeros = ((port, partial(np.add, np.zeros_like(port.raw))) for port in usual)
        every = [node for both in self.run.nodes.values() for node in both]
        try:
            changes = gradients(Node(0.0, "", tuple(zeros)), np.zeros(()), every, floats)
        finally:
            for port, pullbacks in usual.items():
                port.pullbacks = pullbacks
        changed = self.run.named(changes)
        return {name: value + changed.get(name, 0) for name, value in self.true.items()}

    def _changes(self, port: Node, receivers: Receivers) -> Any:
        """The pullbacks of what changes."""
        before, g = parent(port), self.cotangents[port]
        if all(node is not before for node, _ in receivers):
            receivers = [*receivers, (before, np.zeros_like)]

        def changed(pull: Callable[[Array], Array], usual: Array, d: Array) -> Array:
            return pull(g + d) - usual

        none = np.zeros(())
        return tuple(
            (node, partial(changed, pull, g if node is before else none))
            for node, pull in receivers
        )


def _nodes(turn: Turn) -> Iterator[Node]:
    """The nodes of a turn to which a cotangent may go."""
    for port in (*chain(*turn.ports), *turn.exits):
        yield from (port, parent(port))
    yield from (x.node for x in turn.call.variables.values())


def _as_it_is(x: Recorded) -> Recorded:
    """An array that later assignments do not change."""
    return Recorded(x.node, x.lift, is_number=x.is_number)


def _writes(right: Operand, call: Call) -> bool:
    """Whether a result is a view of an operand, or the operand itself."""
    roots = {id(side.root) for x in call.args for side in sides(x)}
    return "out" in call.options or any(id(side.root) in roots for side in sides(right))
