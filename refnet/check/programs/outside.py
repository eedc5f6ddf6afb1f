"""The mistakes outside the cells that explain results.

Checked by: tests/check/test_outside.py.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, permutations
from typing import Any

import numpy as np

from refnet.batch import Array, Params
from refnet.check.entries import Axis
from refnet.check.programs.counts import counts
from refnet.check.programs.edges import Edges, Option
from refnet.check.programs.fits import edges_with_a_constant, scores_with_a_constant, solved
from refnet.check.programs.layers import Change, Layers, same
from refnet.check.programs.scores import Score, Scores
from refnet.check.where import indices
from refnet.nets.base import named

__all__ = ["Joints", "Outside"]

TELLING = 1e6
"""How many sigmas a loss is off, if it alone is wrong, for a name of why."""


class Outside:
    """A search's results, and what may be wrong outside the net's cells."""

    def __init__(self, search: Any) -> None:
        case = search.all
        self.search, self.net = search, case.net
        self.scores = Scores(case.net, case.params, case.batch)
        self.head = [
            name for name in self.scores.preview(self.scores.right.dv) if name in search.given
        ]
        self.scaled: list[tuple[Score, float]] = []
        self.sound = near(self.scores.backward(self.scores.right.dv), search.true)
        self.numbers = sum(search.given[name].size for name in self.head)
        self.gradients = bool(search.wrong - {"loss"})
        self.value = np.asarray(self.scores.right.each.sum() + self.scores.added)
        self.states = {"outputs"} | {n for n in search.given if n.startswith(("h", "c"))}

    def readings(self) -> Iterator[tuple[str, Params]]:
        """What the mistakes that fit give, by their names."""
        if self._possible:
            yield from self._of_the_loss()

    @property
    def _possible(self) -> bool:
        """Whether the outputs are right, and the loss or the read-out's gradients are not."""
        wrong = self.search.wrong
        return (
            self.sound
            and not wrong & self.states
            and (not self.head or bool(wrong & {"loss", *self.head}))
        )

    def _fits(self, name: str, value: Array) -> bool:
        return name not in self.search.given or bool(self.search.ratio(name, value) <= 1)

    def _of_the_loss(self) -> Iterator[tuple[str, Params]]:
        """Those that fit as they are."""
        readings: list[tuple[Score, str, Params]] = []
        for score in chain(self.scores.candidates(), counts(self.scores)):
            if not np.isfinite(score.dv).all():
                continue
            if not self.gradients:
                readings += self._of_the_value(score)
                continue
            k = self._factor(score.dv)
            if not k or self._proportional(score.dv):
                continue
            if k == 1:
                readings += self._read(score, k)
            else:
                self.scaled.append((score, k))
        yield from self._distinct(readings)

    def multiples(self) -> Iterator[tuple[str, Params]]:
        """Those that fit but for a factor, after the others."""
        for score, k in self.scaled:
            yield from self._distinct(self._read(score, k))

    def constants(self) -> Iterator[tuple[str, Params]]:
        """Those with a constant that is fitted."""
        if not self._possible or not self.gradients or self.numbers < 4:
            return
        white = {name: np.maximum(self.search.sigma[name], 1e-300) for name in self.head}
        theirs = self._white(self.search.given, white)
        for at, seeds in scores_with_a_constant(self.scores):

            def curve(k: float, at: Callable[[float], Score] = at) -> Array:
                return self._white(self.scores.preview(at(k).dv), white)

            for k in solved(curve, theirs, seeds):
                score = at(k)
                if self._factor(score.dv) == 1:
                    yield from self._distinct(self._read(score, 1.0))
                    break

    def _white(self, parts: Params, sigma: Params) -> Array:
        return np.concatenate([(parts[name] / sigma[name]).ravel() for name in self.head])

    def _proportional(self, dv: Array) -> bool:
        right = self.scores.right.dv
        return bool(abs((dv * right).sum()) > (1 - 1e-9) * _size(dv) * _size(right))

    @staticmethod
    def _distinct(readings: Iterable[tuple[Score, str, Params]]) -> Iterator[tuple[str, Params]]:
        """Of formulas with the same results, the first."""
        seen: list[Params] = []
        for score, name, reading in readings:
            if score.formula and any(same(reading, other) for other in seen):
                continue
            seen += [reading] * score.formula
            yield name, reading

    def _of_the_value(self, score: Score) -> Iterator[tuple[Score, str, Params]]:
        """The loss alone is wrong: one number, which says something if it is far off."""
        if self.search.gap.get("loss", 0) >= TELLING:
            loss = np.asarray(score.each.sum() + self.scores.added)
            if self._fits("loss", loss):
                yield (
                    score,
                    f"{score.name}, in the loss's value alone",
                    {**self.search.true, "loss": loss},
                )

    def _read(self, score: Score, k: float) -> Iterator[tuple[Score, str, Params]]:
        """A mistake of the gradient, and of the loss if that is wrong."""
        search, scores = self.search, self.scores
        name = score.name if k == 1 else f"{score.name}, {self._times(k)}"
        implied = np.asarray(k * score.each.sum() + scores.added)
        if not self._fits("loss", implied):
            if "loss" in search.wrong:
                return
            name, implied = f"{name}, in the gradient alone", self.value
        yield score, name, {**search.true, "loss": implied, **scores.backward(k * score.dv)}

    def _factor(self, dv: Array) -> float:
        """1, or what a gradient has to be multiplied by, if the read-out's gradients fit then;
        else 0."""
        parts = self.scores.preview(dv)
        if all(self._fits(name, parts[name]) for name in self.head):
            return 1.0
        k = self._fitted({name: self.search.given[name] for name in self.head}, parts)
        fits = all(self._fits(name, k * parts[name]) for name in self.head)
        return k if fits and self.numbers >= 4 else 0.0

    def _fitted(self, theirs: Params, parts: Params) -> float:
        a = np.concatenate([parts[name].ravel() for name in self.head])
        b = np.concatenate([theirs[name].ravel() for name in self.head])
        size = float(a @ a)
        return float(a @ b) / size if 0 < size < np.inf else 0.0

    def additions(self) -> Iterator[tuple[str, Params]]:
        """What may be added to the loss, times a constant that is fitted."""
        if not self._possible or not self.gradients:
            return
        search, scores, right = self.search, self.scores, self.scores.right
        gap = {name: search.given[name] - search.true[name] for name in self.head}
        for score in scores.additions() if self.numbers >= 4 else ():
            parts = scores.preview(score.dv)
            k = self._fitted(gap, parts)
            if k and all(self._fits(n, search.true[n] + k * parts[n]) for n in self.head):
                name = f"the loss has {k:.4g} times {score.name} more"
                both = right._replace(
                    name=name, each=right.each + k * score.each, dv=right.dv + k * score.dv
                )
                yield from (part[1:] for part in self._read(both, 1.0))

    def _times(self, k: float) -> str:
        """A factor in words."""
        T, B, C = *self.scores.grid, self.scores.v.shape[1]
        count, divisor = self.scores.w.sum(), self.scores.divisor
        known = {
            "the sign turned": -1.0, "counted twice": 2.0, "halved": 0.5,
            "divided by the outputs C, too": 1 / C, "divided by the steps T, too": 1 / T,
            "divided by the batch B, too": 1 / B, "times the outputs C": C,
            "summed, not divided": divisor, "divided by T B": divisor / (T * B),
            "divided by B": divisor / B, "divided by T": divisor / T,
            "divided by the number that counts": divisor / count if count else 1.0,
        }  # fmt: skip
        words = [text for text, value in known.items() if abs(k / value - 1) < 1e-5]
        return " or ".join(words) or f"times {k:.6g}"


class Joints:
    """A search's results, and what may be wrong on the edges of a recurrent net."""

    def __init__(self, search: Any) -> None:
        case = search.all
        self.search, self.net = search, case.net
        self.layers = Layers(case.net, case.params, case.batch)
        self.edges = Edges(self.layers)
        self.sound = near(self.layers.run(Change("")) or {}, search.true)
        wrong, given = search.wrong, set(search.given)
        self.forward = "outputs" in wrong or "outputs" not in given
        self.states = {name for name in given if name[0] in "hc"}
        self.head = wrong & {"dWhy", "dby"}

    def readings(self) -> Iterator[tuple[str, Params]]:
        """What the mistakes that fit give, by their names; where none does, those that are made for
        the wrong examples alone."""
        if not self.sound:
            return
        yield from self._tried(self._changes(self.edges.options()))
        yield from self._shared()
        some = self._some()
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
                grads = {f"d{n}": true[f"d{other}"] for n, other in some.items()}
                yield f"the gradient of {here} is that of {there}", {**true, **grads}
                both = {**true, **{n: true[n] + value for n, value in grads.items()}}
                yield f"the gradient of {here} has that of {there} added", both
                yield from self._with(some, f"{there} is used for {here}")

    def _with(self, some: dict[str, str], name: str) -> Iterator[tuple[str, Params]]:
        """Other parameters in the place of some, in both passes, with the gradients there or where
        they come from, or in one pass alone."""
        usual = self.layers
        params = {**usual.params, **{n: usual.params[other] for n, other in some.items()}}
        layers = Layers(usual.net, params, usual.batch) if self.forward else usual
        other, alone = layers.p, "forward" if self.forward else "backward"
        reading = layers.run(Change(""), self._right) if self.forward else None
        if reading is not None:
            yield name, reading
            zero = {f"d{n}": 0 * reading[f"d{n}"] for n in some}
            added = {f"d{o}": reading[f"d{o}"] + reading[f"d{n}"] for n, o in some.items()}
            yield f"{name}, with its gradient", {**reading, **zero, **added}
        elif self.forward:
            return
        layers.pulling = usual.p if self.forward else usual.net.matrices(params)[0]
        reading = layers.run(Change(""), self._right)
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
        return indices(Axis("example"), where, len(some), certified, "dx")

    def _for(self, some: Array) -> Iterator[Option]:
        for option in self.edges.options():
            if not option.edge.startswith("start"):
                yield option._replace(
                    move=option.move.only(self.layers.edges[option.edge], some[None])
                )

    def _tried(self, groups: Iterable[Iterable[Change]]) -> Iterator[tuple[str, Params]]:
        """Of every group, the changes that fit and differ."""
        for changes in groups:
            fit: list[Params] = []
            for change in changes:
                reading = self.layers.run(change, self._right)
                if reading is not None and not any(same(reading, other) for other in fit):
                    fit.append(reading)
                    yield change.name, reading

    def constants(self) -> Iterator[tuple[str, Params]]:
        """Those with a constant that is fitted to the outputs."""
        search = self.search
        if "outputs" not in search.wrong or not self.sound:
            return
        sigma = np.maximum(search.sigma["outputs"], 1e-300)
        theirs = (search.given["outputs"] / sigma).ravel()
        for at, seeds in edges_with_a_constant(self.edges):

            def curve(k: float, at: Callable[[float], Option] = at) -> Array:
                option = at(k)
                outputs = self.layers.forward(Change("", {option.edge: option.move}))[0]
                return np.asarray(outputs / sigma).ravel()

            for k in solved(curve, theirs, seeds) if self._may_be(at(1.0)) else ():
                yield from self._tried([self._forward(at(k))])

    def _right(self, part: Params) -> bool:
        search = self.search
        return all(n not in search.given or search.ratio(n, v) <= 1 for n, v in part.items())

    def _changes(self, options: Iterable[Option]) -> Iterator[Iterable[Change]]:
        """Those that the location leaves, in groups that differ in where they are made alone."""
        for option in options:
            if self.forward:
                yield self._forward(option)
            elif option.move.linear:
                yield self._backward(option)
        if self.forward:
            yield from ([change] for change in self.edges.starts())

    def _may_be(self, option: Option) -> bool:
        """Whether the states are right before it, and wrong after it."""
        wrong = bool(self.states & self.search.wrong)
        return not option.seen and not (self.states and option.outer == wrong)

    def _forward(self, option: Option) -> Iterator[Change]:
        """With a backward pass that follows, and without."""
        if not self._may_be(option):
            return
        here, name = {option.edge: option.move}, f"{option.what} {option.move.name}"
        alone = Change(f"{name}, in the forward pass alone", here)
        if self._right({"outputs": self.layers.forward(alone)[0]}):
            yield Change(name, here, here, here)
            yield Change(f"{name}, though its gradient goes back as usual", here, {}, here)
            yield Change(f"{name}, though not in the weight gradients", here, here)
            yield alone

    def _backward(self, option: Option) -> Iterator[Change]:
        wrong = self.search.wrong
        if "loss" in wrong:
            return
        here, name = {option.edge: option.move}, f"{option.what} {option.move.name}"
        if self.head:
            if option.outer and wrong == {"dWhy"} and not option.move.scales:
                yield Change(f"{name}, in the gradient of Why alone", sums=here)
            elif option.outer and self.net.readout != "none":
                yield Change(f"{name}, in the backward pass alone", {}, here, here)
            return
        if option.edge.startswith("start"):
            below = {f"dh0{option.edge[5:]}"}
        else:
            below = {n for n in wrong if self._layer(n) <= option.layer}
        if wrong <= below and not option.seen:
            yield Change(f"the gradient of {option.what} {option.move.transposed}", {}, here)
        cells = [s for s in self.layers.cells if option.edge in ("x", f"in{s}")]
        sums = not option.move.scales
        if sums and wrong <= {f"dWxh{s}{part}" for s in cells for part in ("", ".W", ".E")}:
            yield Change(f"{name}, in the gradient of Wxh alone", sums=here)

    @staticmethod
    def _layer(name: str) -> int:
        """Of a gradient's name: -1 for dx."""
        if name == "dx":
            return -1
        digits = name.partition("_l")[2].partition("_")[0].partition(".")[0]
        return int(digits) if digits.isdigit() else 0


def _size(dv: Array) -> float:
    return float(np.linalg.norm(dv))


def near(reading: Params, true: Params) -> bool:
    """Whether the reference, which is used here, agrees with its certificate."""
    return all(_size(reading[n] - true[n]) <= 1e-6 * _size(true[n]) for n in reading if n in true)


def _shape(params: Params, name: str) -> tuple[int, ...] | None:
    return params[name].shape if name in params else None
