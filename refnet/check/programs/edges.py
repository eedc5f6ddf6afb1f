"""What may stand on the edges of a net: what a cell sees, starts from and gives, what is read out.

An option is an edge of ``layers.Layers`` with another ``moves.Move``, in words. ``edge_mistakes``
tries them in the forward pass, in the backward pass and in the sums over the steps.

Checked by: tests/check/test_outside.py.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import combinations, permutations
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from refnet.batch import Array
from refnet.check.programs.layers import Change, Handed, Layers
from refnet.check.programs.moves import (
    SAME,
    Move,
    bent,
    gathered,
    largest,
    moves,
    of_examples,
    scaled,
    scalings,
)
from refnet.check.programs.notation import formula, slope_of

__all__ = ["Edges", "Option", "constant_start"]


STATE = "the initial state"
KINDS = {"in": "the input", "out": "the output", "start": STATE}
"""The edges that every cell has."""


class Option(NamedTuple):
    """Another move on an edge, whose subject in a name is ``what``. ``layer``: the highest layer
    whose gradients it changes; ``outer``: whether the edge is between the cells and the outputs;
    ``seen``: whether another edge gives the same but in the weight gradients; ``more``: the same
    move on other edges."""

    what: str
    edge: str
    move: Move
    layer: int
    outer: bool = False
    seen: bool = False
    more: Mapping[str, Move] = {}

    @property
    def moves(self) -> dict[str, Move]:
        """The moves by their edges."""
        return {self.edge: self.move, **self.more}


class Edges:
    """All options of a net's edges."""

    def __init__(self, layers: Layers) -> None:
        self.layers = layers
        self.many, self.two = len(layers.layers) > 1, len(layers.layers[0]) > 1
        self.ragged = bool((layers.lengths < layers.T).any())
        """Whether some sequences end before the last step."""

    def options(self) -> Iterator[Option]:
        """Every edge with everything that may stand there, and the same in every cell."""
        groups: dict[tuple[str, str], list[Option]] = {}
        for option in self._of_an_edge():
            yield option
            name = option.edge.partition("_l")[0]
            kind = {"x": name if self.two else "in", "read": "out"}.get(name, name)
            groups.setdefault((kind, option.move.name), []).append(option)
        for (kind, _), (first, *rest) in groups.items():
            if rest and len(rest) == len(self.layers.cells) - 1:
                what = f"{KINDS[kind]} of every {'direction' if self.two else 'layer'}"
                more = {option.edge: option.move for option in rest}
                yield first._replace(what=what, outer=False, seen=False, more=more)

    def _of_an_edge(self) -> Iterator[Option]:
        """From the read-out down."""
        layers, T = self.layers, self.layers.T
        top = len(layers.layers) - 1
        for move in self._rows():
            yield Option("what is read out", "rows", move, top, True)
        twice = [move for move in moves(np.ones(1), 1) if move.scales]
        for move in (*twice, *_of_units(layers.net.outputs), *_bent()):
            yield Option("the read-out", "outputs", move, top, True)
        for number in range(top, -1, -1):
            yield from self._of_a_layer(number)
            for suffix in layers.layers[number]:
                yield from self._of_a_cell(suffix, number)
        inputs = (*_of_units(layers.batch.x.shape[2]), *_bent(), *_scaled())
        for move in (*moves(layers.lengths, T), *inputs):
            yield Option("the input x", "x", move, -1)

    def _rows(self) -> Iterator[Move]:
        layers = self.layers
        width = layers.net.width
        T = 1 if layers.last else layers.T
        lengths = np.full(layers.B, 1) if layers.last else layers.lengths
        if len(layers.cells) > 1:
            yield from moves(lengths, T)
        elif layers.last and layers.B > 1:
            yield from of_examples(1, layers.B)
        yield from _of_units(width)
        yield from _bent()

    def _of_a_cell(self, suffix: str, number: int) -> Iterator[Option]:
        layers, edges, of = self.layers, self.layers.edges, self._named(suffix)
        top, two = number == len(layers.layers) - 1, len(layers.layers[number]) > 1
        what = "the state that is read out" if len(layers.cells) == 1 else f"the output{of}"
        edge = f"read{suffix}" if top and layers.last else f"out{suffix}"
        reverse = suffix.endswith("_reverse")
        turned = "is reversed within each sequence" if self.ragged else "is reversed in time"
        every: Iterable[Move] = (*moves(layers.lengths, layers.T + 1, 1), largest())
        if edge == f"read{suffix}" and not self.ragged:
            every = (_of_the_end(move) for move in every if move.name not in _repeated())
        for move in every:
            if not (reverse and move.name == turned):  # which is said otherwise
                yield Option(what, edge, move.before(edges[edge]), number, top)
        for move in () if top else (*_bent(), *_of_units(layers.net.width // (1 + two))):
            yield Option(what, edge, move.after(edges[edge]), number)
        if reverse:
            yield from self._turned(suffix, number)
        yield from self._start(suffix, number)
        for move in moves(layers.lengths, layers.T) if number or two else ():
            if reverse and move.name == turned:
                continue
            seen = not two and not self.ragged
            here = move.before(edges[f"in{suffix}"])
            yield Option(f"the input{of}", f"in{suffix}", here, number - 1, seen=seen)

    def _of_a_layer(self, number: int) -> Iterator[Option]:
        """In two directions, both together."""
        layers, edge = self.layers, f"pad{number}"
        top = number == len(layers.layers) - 1
        if len(layers.layers[number]) > 1 and not top:
            what = f"the output of layer {number}"
            for move in (*moves(layers.lengths, layers.T), *_of_units(layers.net.width)):
                yield Option(what, edge, move.after(layers.edges[edge]), number)
        if len(layers.cells) > 1 and self.ragged:
            move = SAME._replace(name="is not zero")
            yield Option(f"the padding of layer {number}'s output", edge, move, number, top)

    def _turned(self, suffix: str, number: int) -> Iterator[Option]:
        layers, of = self.layers, self._named(suffix)
        steps = layers.edges[f"out{suffix.removesuffix('_reverse')}"]
        top = number == len(layers.layers) - 1
        ways = [(SAME, "is not turned round", "is not turned back")]
        if self.ragged:
            name = "is turned round with its padding"
            ways.append((layers.turn(suffix, True), name, name))
        for turn, name, other in ways:
            seen, given = turn._replace(name=name), turn.after(steps)._replace(name=other)
            yield Option(f"the input{of}", f"in{suffix}", seen, number - 1)
            yield Option(f"the output{of}", f"out{suffix}", given, number, top)

    def states(self, suffix: str) -> int:
        """How many states a cell has."""
        return 1 + hasattr(self.layers.tapes[suffix], "c")

    def _start(self, suffix: str, number: int) -> Iterator[Option]:
        layers, n = self.layers, self.states(suffix)
        whole = [*_of_units(layers.net.hidden), scaled("is halved", 0.5), scaled("is zero", 0)]
        whole += [scaled("counts twice", 2), scaled("has the wrong sign", -1)]
        whole += of_examples(n, layers.B) if layers.B > 1 else ()
        options: list[Move] = []
        for part in range(3 if n > 1 else 1):
            text, where = _part(part, n)
            options += [constant_start(part, n, k) for k in (1.0, -1.0)]
            options += [m._replace(name=m.name + text).only(SAME, where > 0) for m in whole]
        if n > 1:
            options.append(Move("has h and c exchanged", lambda v: v[::-1], lambda d: d[::-1]))
            options += [_both(0, "h"), _both(1, "c")]
        for move in options:
            yield Option(f"{STATE}{self._named(suffix)}", f"start{suffix}", move, number)

    def _named(self, suffix: str) -> str:
        if not suffix:
            return ""
        layer, _, reverse = suffix[2:].partition("_")
        text = f" of layer {layer}" if self.many else ""
        if len(self.layers.layers[0]) > 1:
            text += f" of the {'second' if reverse else 'first'} direction"
        return text

    def starts(self, examples: bool = True) -> Iterator[Change]:
        """Cells that start from the last states of another one or, if ``examples`` may, of the
        example before."""
        for what, where in self._parts(STATE, STATE, "the initial {}"):
            for suffix, other in self._pairs(self.layers.cells):
                text = f"{what}{self._named(suffix)} is the last one{self._named(other)}"
                for follows, more in ((True, ""), (False, ", without a gradient")):
                    handed = Handed(other, scaled("", where), follows)
                    yield Change(f"{text}{more}", starts={suffix: handed})
            for suffix, move, turned in self._of_the_examples(where) if examples else ():
                here = {suffix: Handed(suffix, move, True)}
                text = f"{what} of each example is the last one of the example before"
                yield Change(text, starts=here, ends={suffix: Handed(suffix, turned)})
                yield Change(f"{text}, without a gradient", starts=here)

    def skips(self) -> Iterator[Change]:
        """Layers that see the input of the layer below, beside its output or for it."""
        layers, L = self.layers, len(self.layers.layers)
        sizes = [layers.batch.x.shape[2], *[layers.net.width] * L]
        last = L + 1 - (layers.last and L == 1)
        some = [n for n in range(1, last) if sizes[n] == sizes[n - 1]]
        every = [n for n in some if n <= L - layers.last]
        for chosen in [every] * (len(every) > 1) + [[n] for n in some]:
            below = " and ".join(f"layer {n - 1}" for n in chosen)
            for usual, how in ((1, "is added to its output"), (0, "stands for its output")):
                name, skips = f"the input of {below} {how}", dict.fromkeys(chosen, usual)
                yield Change(name, skips=skips)
                yield Change(f"{name}, in the forward pass alone", skips=skips, follows=False)

    def backward(self, examples: bool = True) -> Iterator[tuple[int, Change]]:
        """Cells whose backward pass begins with what is left of another one's or, if ``examples``
        may, of that of the example before, or reads another cell's tape; each with the highest
        layer whose gradients are others."""
        layers = self.layers.layers
        order = [suffix for layer in layers[::-1] for suffix in layer]
        number = {suffix: n for n, layer in enumerate(layers) for suffix in layer}
        for what, where in self._parts("dh and dc", "dh", "d{}"):
            text = f"begins with what is left of {what}"
            for suffix, other in self._pairs(order):
                handed = Handed(other, scaled("", where))
                name = f"the backward pass{self._named(suffix)} {text}{self._named(other)}"
                yield number[suffix], Change(name, ends={suffix: handed})
            for suffix, move, _ in self._of_the_examples(where) if examples else ():
                name = f"the backward pass of each example {text} of the example before"
                yield 0, Change(name, ends={suffix: Handed(suffix, move)})
        for suffix, other in permutations(order, 2):
            name = f"the backward pass{self._named(suffix)} reads the states and gates"
            yield number[suffix], Change(f"{name}{self._named(other)}", tapes={suffix: other})

    def _parts(self, both: str, alone: str, of_a_state: str) -> list[tuple[str, Array]]:
        """All states of a cell, perhaps it has one alone, and each of two: what is said of them,
        and where they are."""
        n = self.states(next(iter(self.layers.cells)))
        names = [both, *map(of_a_state.format, "hc")] if n > 1 else [alone]
        return [(name, _part(part, n)[1]) for part, name in enumerate(names)]

    @staticmethod
    def _pairs(cells: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Each cell with each of those before it."""
        return ((suffix, other) for other, suffix in combinations(cells, 2))

    def _of_the_examples(self, where: Array) -> Iterator[tuple[str, Move, Move]]:
        """The only cell, the move of what is left to the next example, and that back."""
        (suffix, *others), B = self.layers.cells, self.layers.B
        if not others and B > 1:
            t, b = np.indices((len(where), B))
            move = scaled("", where * (b > 0)).after(gathered("", t, (b - 1) % B))
            yield suffix, move, move._replace(there=move.back, back=move.there)


def _part(part: int, n: int) -> tuple[str, Array]:
    """All of n states, or one: its name, and where it is."""
    return ("", " of h", " of c")[part], np.ones((n, 1)) if not part else np.eye(n)[:, [part - 1]]


def constant_start(part: int, n: int, k: float) -> Move:
    """The move with which a cell starts at k, in all of its n states or in one."""
    text, where = _part(part, n)
    at = where[..., None]
    return Move(f"is {k:.6g}{text}", lambda v: np.where(at, k + 0 * v, v), lambda d: d * (1 - at))


def _both(n: int, name: str) -> Move:
    """One state in the place of both."""
    there, back = [n, n], np.arange(2).reshape(2, 1, 1) == n
    return Move(f"has {name} for h and c", lambda v: v[there], lambda d: back * d.sum(axis=0))


@cache
def _repeated() -> set[str]:
    """The moves that always give the same last states as another one, a factor if one does, where
    all sequences are equally long."""
    T, B, seen, repeated = 7, 5, set[bytes](), set[str]()
    probe = np.random.default_rng(0).normal(size=(T + 1, B))
    every = sorted(moves(np.full(B, T), T + 1, 1), key=attrgetter("uniform"), reverse=True)
    for move in every:
        last = (np.round(move.there(probe)[T], 9) + 0.0).tobytes()
        repeated |= {move.name} if last in seen else set()
        seen.add(last)
    return repeated


def _of_the_end(move: Move) -> Move:
    """The move without what its name says of a sequence's ends."""
    name, dual = (re.sub(r" \([^)]* at the [^)]*\)", "", t) for t in (move.name, move.dual))
    return move._replace(name=name, dual=dual)


def _scaled() -> Iterator[Move]:
    """What is made of the inputs before all else, with their gradient as it is."""
    for name, scale in scalings("all its values"):
        yield Move(f"is {name}", scale, np.copy, linear=False)


UNITS = {
    "has its units reversed": "I[::-1]",
    "comes from the unit before": "I[n - 1]",
    "comes from the next unit": "I[n - len(n) + 1]",
}
HALVES = {
    "has its halves exchanged": "both - I",
    "is its first half, twice": "both first",
    "is its second half, twice": "both (1 - first)",
    "is the sum of its halves, twice": "both",
    "is the mean of its halves, twice": "both / 2",
    "is zero in its first half": "I (1 - first)",
    "is zero in its second half": "I first",
}
"""Matrices of units n, from the identity I and one that adds each unit and its like of the other
half."""


def _of_units(width: int) -> Iterator[Move]:
    """The moves of the last axis."""
    n, eye = np.arange(width), np.eye(width)
    known = eye, n, eye + np.roll(eye, width // 2, axis=0), (n < width // 2) * 1
    texts = (UNITS if width > 1 else {}) | (HALVES if width > 2 and width % 2 == 0 else {})
    for name, text in texts.items():
        yield _mixed(name, formula(text, "I, n, both, first")(*known))


def _mixed(name: str, M: Array) -> Move:
    return Move(name, lambda v: v @ M.T, lambda d: d @ M)


def _bent() -> Iterator[Move]:
    """Functions."""
    for name, text in (
        ("goes through tanh", "tanh(v)"),
        ("goes through relu", "relu(v)"),
        ("goes through the sigmoid", "sigmoid(v)"),
        ("is squared", "v^2"),
        ("is its absolute value", "abs(v)"),
        ("is 1 less itself", "1 - v"),
        ("is mapped from 0 .. 1 to -1 .. 1", "2 v - 1"),
    ):
        yield bent(name, formula(text), slope_of(formula(text)))
