"""The mistakes in the loss and in its gradient in the outputs that explain results.

``scores`` and ``counts`` say what may stand there; here are tried all, by the gradients of the
read-out alone (``Scores.preview``), where the outputs are right and these are not. What fits but
for a factor, what may be added to the loss, and constants (``fits``) are asked for later.

Checked by: tests/check/test_outside.py.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np

from refnet.batch import Array, Params
from refnet.check.programs.counts import counts
from refnet.check.programs.fits import scores_with_a_constant
from refnet.check.programs.layers import near, same
from refnet.check.programs.least_squares import constants, solved
from refnet.check.programs.scores import Score, Scores

__all__ = ["LossMistakes"]

TELLING = 1e6
"""How many sigmas a loss is off, if it alone is wrong, for a name of why."""


class LossMistakes:
    """The search for mistakes in the loss and in its gradient in the outputs."""

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
        """The results of the mistakes that fit, by their names."""
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
        """The results of those that fit but for a factor; ``readings`` has found them."""
        for score, k in self.scaled:
            yield from self._distinct(self._read(score, k))

    def constants(self) -> Iterator[tuple[str, Params]]:
        """The results of mistakes with a constant that is fitted."""
        if not self._possible or not self.gradients or self.numbers < 4:
            return
        white = {name: np.maximum(self.search.sigma[name], 1e-300) for name in self.head}
        for at, guesses in scores_with_a_constant(self.scores):

            def error(k: Array, at: Callable[[float], Score] = at) -> Array:
                parts, given = self.scores.preview(at(float(k[0])).dv), self.search.given
                off = ((given[name] - parts[name]) / white[name] for name in self.head)
                return np.concatenate([part.ravel() for part in off])

            for k in constants(error, guesses):
                score = at(k)
                if self._factor(score.dv) == 1:
                    yield from self._distinct(self._read(score, 1.0))
                    break

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
            if self.search.agrees({"loss": loss}):
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
        if not search.agrees({"loss": implied}):
            if "loss" in search.wrong:
                return
            name, implied = f"{name}, in the gradient alone", self.value
        yield score, name, {**search.true, "loss": implied, **scores.backward(k * score.dv)}

    def _factor(self, dv: Array) -> float:
        """1, or what a gradient has to be multiplied by, if the read-out's gradients fit then;
        else 0."""
        parts = self.scores.preview(dv)
        parts = {name: parts[name] for name in self.head}
        if self.search.agrees(parts):
            return 1.0
        k = self._fitted(self.search.given, parts)
        fits = self.search.agrees({name: k * value for name, value in parts.items()})
        return k if fits and self.numbers >= 4 else 0.0

    def _fitted(self, theirs: Params, parts: Params) -> float:
        a, b = self._column(parts), self._column(theirs)
        size = float(a @ a)
        return float(a @ b) / size if 0 < size < np.inf else 0.0

    def additions(self) -> Iterator[tuple[str, Params]]:
        """What may be added to the loss, times a constant that is fitted."""
        if not self._possible or not self.gradients or self.numbers < 4:
            return
        search, scores, right = self.search, self.scores, self.scores.right
        gap = self._column({name: search.given[name] - search.true[name] for name in self.head})
        known = False
        for name, added in scores.additions():
            if known and len(added) > 1:
                return  # they give what one constant gives, too
            J = np.stack([self._column(scores.preview(score.dv)) for score in added], axis=1)
            w = np.round(solved(J, gap)[1], 12) + 0.0
            each, dv = right.each, right.dv
            for k, score in zip(w, added):
                each, dv = each + k * score.each, dv + k * score.dv
            both = Score(name.format(*w), each, dv)
            for _, said, reading in self._read(both, 1.0) if self._factor(dv) == 1 else ():
                known = True
                yield said, reading

    def _column(self, parts: Params) -> Array:
        return np.concatenate([parts[name].ravel() for name in self.head])

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


def _size(dv: Array) -> float:
    return float(np.linalg.norm(dv))
