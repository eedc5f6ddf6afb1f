"""The mistakes on the edges between the cells of a recurrent net that explain results.

``edges`` says what may stand on an edge, ``layers`` runs the net so, and here are tried those that
the location leaves: where the outputs are wrong, edges of the forward pass, and else of the
backward pass. Constants on edges (``fits``) and parameters of one cell in another come last.

Checked by: tests/check/test_outside.py.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, permutations
from typing import Any

import numpy as np

from refnet.batch import Array, Params
from refnet.check.entries import Axis
from refnet.check.programs.edges import Edges, Option
from refnet.check.programs.fits import edges_with_a_constant, gradients_with_a_constant
from refnet.check.programs.layers import Change, Layers, near, same
from refnet.check.programs.least_squares import constants
from refnet.check.programs.notation import formula
from refnet.check.where import indices
from refnet.nets.base import named

__all__ = ["EdgeMistakes"]

GRADIENTS = {
    "the gradient of {0} is that of {1}": ("v", "v"),
    "the gradient of {0} has that of {1} added": ("u + v", "v"),
    "the gradient of {0} has that of {1} added, which is zero": ("u + v", "0 v"),
    "the gradients of {0} and of {1} change places": ("v", "u"),
    "the gradients of {0} and of {1} are both their sum": ("u + v", "u + v"),
    "the gradients of {0} and of {1} are both their mean": ("(u + v) / 2", "(u + v) / 2"),
}
"""What may be given for the gradients u and v of two cells."""


class EdgeMistakes:
    """A search's results, and what may be wrong on the edges of a recurrent net."""

    def __init__(self, search: Any) -> None:
        case = search.all
        self.search, self.net = search, case.net
        self.layers = Layers(case.net, case.params, case.batch)
        self.edges = Edges(self.layers)
        self.sound = near(self.layers.run(Change("")) or {}, search.true)
        wrong, given = search.wrong, set(search.given)
        self.states = {name for name in given if name[0] in "hc"}
        self.forward = bool(wrong & {"outputs", *self.states}) or "outputs" not in given
        self.head = wrong & {"dWhy", "dby"}

    def readings(self) -> Iterator[tuple[str, Params]]:
        """The results of the mistakes that fit, by their names; if none does, of those that concern
        only the wrong examples."""
        if not self.sound:
            return
        explained = False
        for name, reading in chain(
            self._tried(self._changes(self.edges.options())), self._shared()
        ):
            explained |= self.search.explains(reading)
            yield name, reading
        some = None if explained else self._some()
        if some is not None:
            of = f", of {self._said(some)}"
            yield from (
                (name + of, reading)
                for name, reading in self._tried(self._changes(self._for(some)))
            )

    def _shared(self) -> Iterator[tuple[str, Params]]:
        """Cells with another one's parameters, or gradients."""
        layers, params, true = self.layers, self.layers.params, self.search.true
        for a, b in permutations(layers.cells, 2):
            alike = {
                named(n, a): named(n, b)
                for n in layers.net.of(params, a)
                if n != "h0" and _shape(params, named(n, b)) == _shape(params, named(n, a))
            }
            for some in (alike, *({n: other} for n, other in alike.items())):
                here, there = " and ".join(some), " and ".join(some.values())
                for text, parts in GRADIENTS.items():
                    if text.startswith("the gradients") and here > there:
                        continue  # they are named in the other order
                    grads = dict(true)
                    for n, other in some.items():
                        u, v = grads[f"d{n}"], grads[f"d{other}"]
                        grads[f"d{n}"], grads[f"d{other}"] = (
                            np.asarray(formula(part, "u, v")(u, v)) for part in parts
                        )
                    yield text.format(here, there), grads
                yield from self._with(some)

    def _with(self, some: dict[str, str]) -> Iterator[tuple[str, Params]]:
        """Other parameters in the place of some, in both passes, with the gradients there or where
        they come from, or in one pass alone."""
        verb, its = ("are", "their gradients") if len(some) > 1 else ("is", "its gradient")
        name = f"{' and '.join(some.values())} {verb} used for {' and '.join(some)}"
        usual = self.layers
        params = {**usual.params, **{n: usual.params[other] for n, other in some.items()}}
        layers = Layers(usual.net, params, usual.batch) if self.forward else usual
        other, alone = layers.p, "forward" if self.forward else "backward"
        reading = layers.run(Change(""), self.search.agrees) if self.forward else None
        if reading is not None:
            yield name, reading
            zero = {f"d{n}": 0 * reading[f"d{n}"] for n in some}
            added = {f"d{o}": reading[f"d{o}"] + reading[f"d{n}"] for n, o in some.items()}
            yield f"{name}, with {its}", {**reading, **zero, **added}
            both = {f"d{n}": added[f"d{o}"] for n, o in some.items()}
            yield f"{name}, and both have {its}", {**reading, **both, **added}
        elif self.forward:
            return
        layers.pulling = usual.p if self.forward else usual.net.matrices(params)[0]
        reading = layers.run(Change(""), self.search.agrees)
        layers.pulling = other
        if reading is not None:
            yield f"{name}, in the {alone} pass alone", reading

    def _some(self) -> Array | None:
        """The examples that are wrong, if not all are."""
        search = self.search
        for name in ("outputs", "h", "dx"):
            if name in search.wrong:
                off = abs(search.given[name] - search.true[name]) > 12 * search.sigma[name]
                axis = off.ndim - 2
                some = off.any(axis=tuple(n for n in range(off.ndim) if n != axis))
                return None if some.all() else np.asarray(some)
        return None

    def _said(self, some: Array) -> str:
        where, certified = np.flatnonzero(some), self.search.all.certified
        said = indices(Axis("example"), where, len(some), certified, "dx")
        some_of = f"examples {', '.join(map(str, where))}"
        return some_of if "of class" in said else said  # which has no part on an edge

    def _for(self, some: Array) -> Iterator[Option]:
        for option in self.edges.options():
            if not option.edge.startswith("start"):
                moves = {
                    edge: move.only(self.layers.edges[edge], some[None])
                    for edge, move in option.moves.items()
                }
                yield option._replace(move=moves.pop(option.edge), more=moves)

    def _tried(self, groups: Iterable[Iterable[Change]]) -> Iterator[tuple[str, Params]]:
        """Of every group, the changes that fit and differ."""
        for changes in groups:
            fit: list[Params] = []
            for change in changes:
                reading = self.layers.run(change, self.search.agrees)
                if reading is not None and not any(same(reading, other) for other in fit):
                    fit.append(reading)
                    yield change.name, reading

    def constants(self) -> Iterator[tuple[str, Params]]:
        """The results of mistakes with a constant that is fitted to the outputs, or to the
        gradients."""
        search, wrong = self.search, self.search.wrong
        known = "outputs" in wrong if self.forward else not wrong & {"loss", *self.head}
        if not (self.sound and known):
            return
        names = ["outputs"] if self.forward else sorted(wrong)
        given = search.white(search.given, names)
        families = edges_with_a_constant if self.forward else gradients_with_a_constant
        for at, guesses in families(self.edges):

            def error(k: Array, at: Callable[[float], Option] = at) -> Array:
                here = at(float(k[0])).moves
                if self.forward:
                    results = {"outputs": self.layers.forward(Change("", here))[0]}
                else:
                    results = self.layers.run(Change("", {}, here)) or {}
                return np.asarray(given - search.white(results, names))

            for k in constants(error, guesses) if not self.forward or self._may_be(at(1.0)) else ():
                changes = self._forward(at(k)) if self.forward else self._backward(at(k))
                yield from self._tried([changes])

    def _changes(self, options: Iterable[Option]) -> Iterator[Iterable[Change]]:
        """Those that the location leaves, in groups that differ in where they are made alone."""
        for option in options:
            if self.forward:
                yield self._forward(option)
            elif option.move.linear and option.edge != "outputs":
                yield self._backward(option)
        wrong, some = self.search.wrong, self._some()
        examples = some is not None and not some[0]
        if self.forward:
            handed = self.edges.starts(examples)
            yield from ([change] for change in (*handed, *self.edges.skips()))
        elif not wrong & {"loss", *self.head}:
            top, every = self._highest(wrong), self.edges.backward(examples)
            yield from ([change] for number, change in every if top == number)

    def _may_be(self, option: Option) -> bool:
        """Whether the states are right before it, and wrong after it."""
        wrong = bool(self.states & self.search.wrong)
        if option.edge == "outputs" and "outputs" not in self.search.given:
            return False  # the loss may take a view of them
        return not option.seen and not (self.states and option.outer == wrong)

    def _forward(self, option: Option) -> Iterator[Change]:
        """With a backward pass that follows, and without."""
        if not self._may_be(option):
            return
        here, name = option.moves, f"{option.what} {option.move.name}"
        alone = Change(f"{name}, in the forward pass alone", here)
        if self.search.agrees({"outputs": self.layers.forward(alone)[0]}):
            yield Change(name, here, here, here)
            yield Change(f"{name}, though its gradient goes back as usual", here, {}, here)
            yield Change(f"{name}, though not in the weight gradients", here, here)
            yield alone

    def _backward(self, option: Option) -> Iterator[Change]:
        wrong = self.search.wrong
        if "loss" in wrong or option.more and self._highest(wrong) < option.layer:
            return
        here, name = option.moves, f"{option.what} {option.move.name}"
        if self.head:
            if option.outer and wrong == {"dWhy"} and not option.move.scales:
                yield Change(f"{name}, in the gradient of Why alone", sums=here)
            elif option.outer and self.net.readout != "none":
                yield Change(f"{name}, in the backward pass alone", {}, here, here)
            return
        if option.edge.startswith("start"):
            below = {f"dh0{edge[5:]}" for edge in here}
        else:
            below = wrong if self._highest(wrong) <= option.layer else set()
        if wrong <= below and not option.seen:
            yield Change(f"the gradient of {option.what} {option.move.transposed}", {}, here)
        cells = [s for s in self.layers.cells if here.keys() & {"x", f"in{s}"}]
        sums = not option.move.scales
        if sums and wrong <= {f"dWxh{s}{part}" for s in cells for part in ("", ".W", ".E")}:
            yield Change(f"{name}, in the gradient of Wxh alone", sums=here)

    @staticmethod
    def _highest(names: Iterable[str]) -> int:
        """The highest layer to which some of these gradients belong: -1 for dx."""
        layers = [-1]
        for name in names:
            digits = name.partition("_l")[2].partition("_")[0].partition(".")[0]
            layers.append(-1 if name == "dx" else int(digits) if digits.isdigit() else 0)
        return max(layers)


def _shape(params: Params, name: str) -> tuple[int, ...] | None:
    return params[name].shape if name in params else None
