"""The mistakes outside the cells that explain results.

Checked by: tests/check/test_outside.py.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np

from refnet.batch import Array, Params
from refnet.check.programs.counts import counts
from refnet.check.programs.edges import Edges, Option
from refnet.check.programs.layers import Change, Layers, same
from refnet.check.programs.scores import Score, Scores

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
        return not wrong & self.states and (not self.head or bool(wrong & {"loss", *self.head}))

    def _fits(self, name: str, value: Array) -> bool:
        return name not in self.search.given or bool(self.search.ratio(name, value) <= 1)

    def _of_the_loss(self) -> Iterator[tuple[str, Params]]:
        """Where one fits as it is, none that fits but for a factor."""
        readings: list[tuple[Score, str, Params]] = []
        scaled = readings.copy()
        for score in chain(self.scores.candidates(), counts(self.scores)):
            if not np.isfinite(score.dv).all():
                continue
            if not self.gradients:
                readings += self._of_the_value(score)
                continue
            k = self._factor(score.dv)
            if k:
                (readings if k == 1 else scaled).extend(self._read(score, k))
        yield from self._distinct(readings or scaled)

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
        own = np.asarray(k * score.each.sum() + scores.added)
        if not self._fits("loss", own):
            if "loss" in search.wrong:
                return
            name, own = f"{name}, in the gradient alone", self.value
        yield score, name, {**search.true, "loss": own, **scores.backward(k * score.dv)}

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
        wrong, given = search.wrong, set(search.given)
        self.forward = "outputs" in wrong or "outputs" not in given
        self.states = {name for name in given if name[0] in "hc"}
        self.head = wrong & {"dWhy", "dby"}

    def readings(self) -> Iterator[tuple[str, Params]]:
        """What the mistakes that fit give, by their names."""
        for changes in self._changes():
            fit: list[Params] = []
            for change in changes:
                reading = self.layers.run(change, self._right)
                if reading is not None and not any(same(reading, other) for other in fit):
                    fit.append(reading)
                    yield change.name, reading

    def _right(self, part: Params) -> bool:
        search = self.search
        return all(n not in search.given or search.ratio(n, v) <= 1 for n, v in part.items())

    def _changes(self) -> Iterator[Iterable[Change]]:
        """Those that the location leaves, in groups that differ in where they are made alone."""
        for option in self.edges.options():
            if self.forward:
                yield self._forward(option)
            elif option.move.linear:
                yield self._backward(option)
        if self.forward:
            yield from ([change] for change in self.edges.starts())

    def _forward(self, option: Option) -> Iterator[Change]:
        """With a backward pass that follows, and without."""
        if option.seen or self.states and option.outer == bool(self.states & self.search.wrong):
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
            if option.outer and wrong == {"dWhy"}:
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
        if wrong <= {f"dWxh{s}{part}" for s in cells for part in ("", ".W", ".E")}:
            yield Change(f"{name}, in the gradient of Wxh alone", sums=here)

    @staticmethod
    def _layer(name: str) -> int:
        """Of a gradient's name: -1 for dx."""
        if name == "dx":
            return -1
        digits = name.partition("_l")[2].partition("_")[0].partition(".")[0]
        return int(digits) if digits.isdigit() else 0
