"""Names with constants that are fitted to the results: weights of parts of a sum, one constant of a
formula, and the steps at which a mistake is made.

Each generator yields readings; a reading is a name only if everything that was given agrees.
Checked by: tests/check/test_fitted_names.py.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from refnet.batch import Array, Params
from refnet.check.entries import either, plural
from refnet.check.mistakes.base import change, run_all
from refnet.check.mistakes.constants import Constant, of_the_constants
from refnet.check.programs.least_squares import improved
from refnet.check.programs.passes import runs
from refnet.nets.stacked import StackedNet

__all__ = ["Fit"]

Named = Iterator[tuple[str, Params]]
STEP = 1e-5
LEAST = 1e-6
"""A constant that is nearer to the neutral one is rounding."""
LEAST_SLOPE = 0.03
"""The cosine of slope and error below which a constant explains nothing."""
MOST = 128
"""The most parts of a sum, and the most steps, that are told apart."""


class Fit:
    """The fits of a search (``refnet.check.search``) to its wrong results."""

    def __init__(self, search: Any) -> None:
        case = search.all
        self.net, self.params, self.batch = case.net, case.params, case.batch
        self.given, self.true, self.white = search.given, search.true, search.white
        known = (n for n in search.wrong if n in self.true and n not in search.infinite)
        self.shaped = sorted(n for n in known if self.given[n].shape == self.true[n].shape)
        """The names of the wrong results that can be compared."""

    def at(self, every: Iterable[tuple[Constant, float]]) -> Iterator[Params]:
        """What mistakes with these constants give."""
        planted = [(constant.mistake(k), ()) for constant, k in every]
        outcomes = run_all(self.net, self.params, self.batch, planted)
        return (reading or self.true for reading in outcomes)

    def gap(self, reading: Params, names: Sequence[str]) -> Array:
        """The difference to a reading, in sigmas."""
        off = {name: self.given[name] - reading[name] for name in names}
        white: Array = self.white(off, names)
        return white

    def named(self) -> Named:
        """Every reading with something fitted."""
        if isinstance(self.net, StackedNet):
            return
        yield from self.constants()
        yield from self.weights_of_predictions()

    def constants(self) -> Named:
        """Mistakes with one constant."""
        names = self.shaped
        before = _norm(self.gap(self.true, names))
        every = list(product(of_the_constants(self.net), (0, 1)))
        starts = self.at((constant, constant.neutral + start) for constant, start in every)
        nearby = self.at((constant, constant.neutral + start + STEP) for constant, start in every)
        for (constant, start), reading, beside in zip(every, starts, nearby):
            error = self.gap(reading, names)
            slope = self.white({n: (beside[n] - reading[n]) / STEP for n in names}, names)
            size, left = _norm(slope), _norm(error)
            explains = 0 < size < np.inf and abs(slope @ error) >= LEAST_SLOPE * size * left
            if not explains or start and not left < before:
                continue

            def error_at(k: Array, constant: Constant = constant) -> Array:
                return self.gap(next(self.at([(constant, float(k[0]))])), names)

            ((k,), left) = improved(error_at, np.array([constant.neutral + start], float))
            if left < 1e-2 * before and abs(k - constant.neutral) > LEAST:
                yield constant.mistake(float(k)).name, next(self.at([(constant, float(k))]))

    def weights_of_predictions(self) -> Named:
        """The losses of examples, classes or steps that count otherwise."""
        names = [name for name in self.shaped if name.startswith("d")]
        if not names:
            return
        every = {name for name in self.given if name.startswith("d")} == set(names)
        where = "" if every else f" in {', '.join(names)}"
        subjects: dict[tuple[float, ...], tuple[list[str], Params]] = {}
        for noun, labels in self._groups():
            values = np.unique(labels[labels >= 0])
            if not 1 < len(values) <= MOST or noun == "prediction" and subjects:
                continue
            chosen = [(change(each=partial(_masked, labels == n)),) for n in values]
            parts = [*filter(None, runs(self.net, self.params, self.batch, chosen))]
            weights = self._weights(parts, names)
            if weights is None:
                continue
            weighted = {name: sum(w * p[name] for w, p in zip(weights, parts)) for name in names}
            text = self._in_words(noun, values, weights, labels)
            if text:
                of = {int(n): float(w) for n, w in zip(values, weights)}
                each = tuple(round(of.get(int(n), 0.0), 6) for n in labels)
                loss = sum(w * p["loss"] for w, p in zip(weights, parts))
                subjects.setdefault(each, ([], {**weighted, "loss": loss}))[0].append(text)
        for texts, weighted in subjects.values():
            label = either(texts) + where
            rest = {name: value for name, value in weighted.items() if name != "loss"}
            yield label, {**self.true, **weighted}
            yield label + ", in the gradient alone" * every, {**self.true, **rest}

    def _groups(self) -> Iterator[tuple[str, Array]]:
        """Labels of the predictions, by what they may be weighted; -1 for what does not count."""
        y, mask = np.asarray(self.batch.y), self.batch.mask
        every = getattr(self.net, "readout", "") == "every"
        shape = (
            self.batch.x.shape[:-1] if every or self.batch.x.ndim == 2 else self.batch.x.shape[1:2]
        )
        counted = mask.ravel() if mask is not None and every else np.ones(int(np.prod(shape)), bool)
        if y.dtype.kind in "iu":
            yield "class", np.where(counted, y.ravel(), -1)
        yield "example", np.where(counted, np.indices(shape)[-1].ravel(), -1)
        if every:
            yield "step", np.where(counted, np.indices(shape)[0].ravel(), -1)
            yield "prediction", np.where(counted, np.arange(counted.size), -1)

    def _weights(self, parts: Sequence[Params], names: Sequence[str]) -> Array | None:
        """The weights of a sum's parts that give theirs, or None."""
        columns = np.stack([self.white(part, names) for part in parts], axis=1)
        theirs, gap = self.white(self.given, names), self.gap(self.true, names)
        for n, column in enumerate(columns.T):
            size = float(column @ column)
            more = float(column @ gap) / size if size else 0.0
            if size and _norm(gap - more * column) <= 1e-4 * _norm(gap):
                return np.asarray(1 + more * (np.arange(len(parts)) == n))
        if (columns != 0).any(axis=1).sum() < 2 * len(parts):
            return None
        scale = np.linalg.norm(columns, axis=0)
        scale[scale == 0] = 1
        weights = np.linalg.lstsq(columns / scale, theirs, rcond=1e-12)[0] / scale
        left = _norm(theirs - columns @ weights)
        return weights if left <= 1e-2 * _norm(self.gap(self.true, names)) else None

    def _in_words(self, noun: str, values: Array, weights: Array, labels: Array) -> str:
        """Which parts count otherwise, in words; "" if all count the same."""
        near = abs(weights[:, None] - weights) <= 1e-4 * np.maximum(1, abs(weights))
        base = weights[near.sum(axis=1).argmax()]
        usual = near[near.sum(axis=1).argmax()]
        if usual.all():
            return ""
        lengths = self._lengths()
        if noun == "example" and lengths is not None:
            mean = lengths.sum() / len(lengths)
            if np.allclose(weights[: len(lengths)] * lengths, mean, rtol=1e-4):
                return "each sequence's loss is divided by its own length, then by B"
        if usual.sum() < len(values) / 2 and len(values) > 2:
            shown = ", ".join(f"{n}: {w:.4g}" for n, w in zip(values[:8], weights))
            return f"the losses are weighted by {noun} ({shown}{', ...' * (len(values) > 8)})"
        if abs(base) <= 1e-4 * abs(weights).max():
            alone = ", ".join(map(str, values[~usual]))
            return (
                f"only {plural(noun)} {alone} count"
                if "," in alone
                else f"only {noun} {alone} counts"
            )
        counted = labels >= 0
        share = counted.sum() / max(1, sum((labels == n).sum() for n in values[usual]))
        ratios: dict[float, list[str]] = {}
        for n, w in zip(values[~usual], weights[~usual]):
            ratios.setdefault(float(f"{w / base:.4g}") if abs(w) > 1e-4 else 0.0, []).append(str(n))
        left_out = "left out"
        if set(ratios) == {0.0} and abs(base - 1) > 1e-4 and abs(base - share) < 1e-3 * share:
            left_out += ", and not counted"
        texts = []
        for ratio, numbers in ratios.items():
            many = len(numbers) > 1
            subject = f"{plural(noun) if many else noun} {', '.join(numbers)}"
            if ratio:
                counts = "count" if many else "counts"
                texts.append(f"{subject} {counts} {ratio:.4g} times as much as the others")
            else:
                texts.append(f"{subject} {'are' if many else 'is'} {left_out}")
        return "; ".join(texts)

    def _lengths(self) -> Array | None:
        mask = self.batch.mask
        return None if mask is None or self.batch.y.ndim != 2 else mask.sum(axis=0)


def _masked(where: Array, scores: tuple[Array, Array], net: object) -> tuple[Array, Array]:
    """The predictions of this mask alone."""
    return np.where(where, scores[0], 0), np.where(where[:, None], scores[1], 0)


def _norm(values: Array) -> float:
    return float(np.linalg.norm(values))
