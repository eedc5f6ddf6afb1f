"""The search for the readings that agree with everything that was given.

Checked by: tests/check/test_mistake_names.py.
"""

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import replace
from functools import cached_property
from itertools import combinations, islice
from typing import Any

import numpy as np

from refnet.batch import Array, Params
from refnet.check.coarser import FORWARD, Coarser
from refnet.check.differences import of_differences
from refnet.check.edits import edits, fitted_edits, shared_edits, shared_fitted_edits
from refnet.check.entries import either
from refnet.check.fitting import Fit
from refnet.check.function_calls import Calls
from refnet.check.function_pairs import apart, of_the_rest
from refnet.check.mistakes import Mistake
from refnet.check.mistakes.base import run_all
from refnet.check.programs.around import Around
from refnet.check.programs.constants import Constants, Waves
from refnet.check.programs.elements import Elements
from refnet.check.programs.explain import Approximations, Programs
from refnet.check.programs.functions import has
from refnet.check.programs.pairs import Pairs
from refnet.check.programs.passes import covers
from refnet.check.programs.steps import Steps
from refnet.check.programs.weights import Weights
from refnet.check.where import phrases
from refnet.exact.running import Runs
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import plain

__all__ = ["Search"]

Pair = tuple[Mistake, Mistake]
FITTED = 1000
"""The passes that must be affordable for something to be fitted."""
PAIRS = 5000
"""The most pairs of mistakes that are tried."""
ALIKE = 0.01
"""Readings closer than this, in units of what is close enough, count as equally close."""
MORE = 2
"""How many other names that would look the same are added."""


class Search:
    """Results with something wrong, and the readings that may explain them."""

    def __init__(
        self,
        readings: Any,
        given: Params,
        wrong: set[str],
        sigma: Params,
        u: float,
        rerolled: Callable[[float], bool] | None = None,
    ) -> None:
        self.rerolled = rerolled
        self.all, self.given, self.wrong, self.sigma, self.u = readings, given, wrong, sigma, u
        self.true = readings.true
        self.spread = {name: _norm(sigma[name]) for name in self.true}
        size = {name: _norm(value) for name, value in self.true.items()}
        known = {
            name: self.spread[name] / size[name]
            for name in size
            if size[name] > 0 and np.isfinite(self.spread[name])
        }
        usual = max(known.values(), default=u)
        self.relative = {name: known.get(name, usual) for name in size}
        self.infinite = {
            name: bad for name, value in given.items() if (bad := ~np.isfinite(value)).any()
        }
        self.gap = {
            name: self.in_sigmas(name, given[name] - self.true[name])
            for name in self.wrong
            if given[name].shape == self.true[name].shape
        }

    def of(
        self, given: Params, wrong: set[str], true: Params | None = None, runs: Runs | None = None
    ) -> "Search":
        """The search for what is wrong with other results, where others may be right, and the
        function another one."""
        readings = copy(self.all)
        readings.true = true or self.true
        if runs:
            readings.certified = replace(readings.certified, function=runs)
        return Search(readings, given, wrong, self.sigma, self.u, self.rerolled)

    def in_sigmas(self, name: str, off: Array) -> float:
        """The norm of a difference, each entry in its own sigma."""
        sigma = self.sigma[name]
        least = sigma[sigma > 0].min(initial=np.inf)
        return _norm(off / np.maximum(sigma, least if least < np.inf else 1.0))

    def ratio(self, name: str, value: Array) -> float:
        """The distance to a reading of one quantity, in units of what is close enough.

        What is wrong has to be explained where it is wrong: in sigmas, nine tenths of it.
        """
        theirs = self.given[name]
        if theirs.shape != value.shape:
            return np.inf
        if name in self.infinite:
            theirs, value = (
                np.where(self.infinite[name] & ~np.isfinite(array), 0, array)
                for array in (theirs, value)
            )
        size, left = _norm(value), _norm(theirs - value)
        enough = 12 * (max(self.spread[name], self.relative[name] * size) + self.u * size)
        if left == 0:
            return 0.0
        if not (enough > 0 and np.isfinite(left)):
            return np.inf
        unexplained = 0.0
        if name in self.gap:
            unexplained = 10 * self.in_sigmas(name, theirs - value) / self.gap[name]
        return float(np.max([left / enough, unexplained]))  # NaN remains, and explains nothing

    def white(self, results: Params, names: Iterable[str]) -> Array:
        """The entries of these results, each divided by its sigma."""
        parts = [np.zeros(0)]
        for name in names:
            sigma = np.where(self.sigma[name] > 0, self.sigma[name], np.inf)
            parts.append((results[name] / sigma).ravel())
        return np.concatenate(parts)

    def agrees(self, part: Params) -> bool:
        """Whether each of these results, if it was given, is close enough to what was given."""
        return all(n not in self.given or self.ratio(n, v) <= 1 for n, v in part.items())

    def whole(self, reading: Params) -> float:
        """The largest ratio of all that was given; a wrong one has to be in the reading."""
        worst = 0.0
        for name in sorted(self.given, key=self.wrong.__contains__, reverse=True):
            if name not in reading and name in self.wrong:
                return np.inf
            if name in reading:
                worst = max(worst, self.ratio(name, reading[name]))
            if not worst <= 1:
                return np.inf
        return worst

    def fits(self, readings: Iterable[tuple[str, Params]]) -> list[tuple[float, str]]:
        """The ratios and names of the readings that agree with all that was given."""
        fits = [(self.whole(reading), name) for name, reading in readings]
        return [(ratio, name) for ratio, name in fits if ratio <= 1]

    def best(self, readings: Iterable[tuple[str, Params]]) -> str:
        """The ``closest`` reading that agrees with all that was given, or ""."""
        return self.closest(self.fits(readings))

    @staticmethod
    def closest(fits: list[tuple[float, str]], first: bool = False) -> str:
        """The name of the closest reading, or of an earlier one unless another is twice as close.
        Others that are as close, and no special cases of it, follow after "perhaps", unless only
        the ``first`` is wanted."""
        if not fits:
            return ""
        least = max(min(fits)[0], ALIKE)
        name, *others = dict.fromkeys(name for ratio, name in fits if ratio <= 2 * least)
        narrower = name.replace("float16 or TF32", "TF32")
        others = [other for other in others if other != narrower and not other.startswith(name)]
        return name if first else either([name, *others[:MORE]])

    def edited(self) -> Iterator[tuple[str, Params]]:
        """Right quantities that are reported in another way: one, or the same one of each cell."""
        wrong = sorted(self.wrong)
        of = {name: (self.true[name], self.all.certified) for name in wrong}
        if len({*map(plain, wrong)}) == 1:
            every = [
                {label.replace(name, "{}"): value for label, value in edits(name, *of[name])}
                for name in wrong
            ]
            for label in every[0]:
                if all(label in each for each in every):
                    what = "each of " * (len(wrong) > 1) + ", ".join(wrong)
                    values = {name: each[label] for name, each in zip(wrong, every)}
                    yield label.replace("{}", what), {**self.true, **values}
        if sum(name.startswith("d") for name in self.given) > 1:
            for label, part in shared_edits(self.true, self.all.certified):
                yield label, {**self.true, **part}

    def computed(self) -> Iterator[tuple[str, Params]]:
        """What the mistakes give."""
        for label, reading in self.all.computed:
            yield label.format("the weight gradients"), reading

    def calls(self) -> Iterator[tuple[str, Params]]:
        """Edits of the calls in a function."""
        if not self.all.is_net and self.shaped():
            yield from Calls(self).readings()

    def calls_apart(self) -> str:
        """Edits of the calls in a function, of each gradient by itself."""
        return "" if self.all.is_net else apart(self)

    def besides(self, true: Params, runs: Runs) -> str:
        """What is wrong beside a mistake with which a function ``runs`` to results ``true``."""
        return of_the_rest(self, true, runs)

    def explains(self, reading: Params) -> bool:
        """Whether a reading explains all that was given."""
        return self.whole(reading) <= 1

    @cached_property
    def of_programs(self) -> Programs | None:
        """The edits of the net's own program, if it has one."""
        case = self.all
        known = case.mistakes and type(case.net) is RecurrentNet and has(case.net.activation)
        return Programs(self) if known and covers(case.net, case.params) else None

    def programs(self) -> Iterator[tuple[str, Params]]:
        """Edits of the net's own program."""
        if self.of_programs:
            yield from self.of_programs.readings()

    @cached_property
    def around(self) -> Around:
        """Mistakes around the net's cells."""
        return Around(self)

    def fitted_programs(self) -> Iterator[tuple[str, Params]]:
        """Edits of it with something fitted, each kind if the ones before explain nothing."""
        if self.of_programs and self.all.passes() > 3 * FITTED:
            programs = self.of_programs
            usual = (Weights, Steps, Elements)  # constants take the longest in the forward pass
            kinds = (*usual, Constants) if programs.forward else (Constants, *usual)
            for kind in (Approximations, *kinds, Pairs):
                readings = list(programs.distinct(kind(programs).readings()))
                yield from readings
                if readings:
                    return

    def waves(self) -> str:
        """Another function in the place of tanh or the sigmoid."""
        if self.of_programs is None or self.all.passes() <= 3 * FITTED:
            return ""
        return next(Waves(self.of_programs).readings(), "")

    def of_parts(self) -> Iterator[tuple[str, Params]]:
        """Mistakes in the loss alone, or in one gradient's sum."""
        if self.wrong == {"loss"}:
            for label, reading in self.all.computed:
                yield f"{label}, in the loss alone", {**self.true, "loss": reading["loss"]}
        if len(self.wrong) == 1:
            (name,) = self.wrong
            for mistake, (_, reading) in zip(self.all.mistakes, self.all.computed):
                if mistake.of_a_sum and name in reading:
                    yield mistake.label_of(name), {**self.true, name: reading[name]}

    def structure(self) -> str:
        """What makes all wrong entries of a net's certified ones, as in ``refnet.check.where``."""
        if len(self.wrong) > 1 or not self.all.is_net:
            return ""
        parts = (self.given, self.true, self.sigma, self.wrong, self.all.certified)
        return "".join(
            f"{name}: {phrase}"
            for name, phrase in phrases(*parts)
            if "; " in phrase and "the entry" not in phrase
        )

    def differences(self) -> str:
        """Whether gradients alone are wrong, as finite differences of the loss are."""
        names, params = sorted(self.wrong), self.all.certified.params
        if self.infinite or not self.shaped() or not {n[1:] for n in names} <= {*params, "x"}:
            return ""
        if any(np.iscomplexobj(value) for value in params.values()):
            return ""
        kind = of_differences(self.all.certified, self.given, self.true, names, self.u)
        return kind and f"{', '.join(names)}: finite differences, {kind}"

    def weighed(self) -> Iterator[tuple[str, Params]]:
        """Readings with weights, constants or steps that are fitted."""
        case, wrong = self.all, sorted(self.wrong)
        if all(name[0] == "d" for name in wrong):
            yield from self._shared(wrong, f"each of {', '.join(wrong)}")
        if case.mistakes and covers(case.net, case.params) and case.passes() > FITTED:
            yield from Fit(self).named()

    def estimated(self) -> Iterator[tuple[str, Params]]:
        """Readings with one constant from the given arrays."""
        if len(self.wrong) == 1:
            (name,) = self.wrong
            for label, value in fitted_edits(
                name, self.true[name], self.given[name], self.all.certified
            ):
                yield label, {**self.true, name: value}
        yield from self._shared([name for name in self.given if name[0] == "d"], "every gradient")

    def _shared(self, names: list[str], what: str) -> Iterator[tuple[str, Params]]:
        names = [name for name in names if self.given[name].shape == self.true[name].shape]
        every = shared_fitted_edits(self.given, self.true, self.all.certified, names, what)
        yield from ((label, {**self.true, **part}) for label, part in every)

    @cached_property
    def coarser(self) -> Coarser:
        """Coarser types that part of the computation may be in."""
        return Coarser(self)

    def shaped(self) -> bool:
        """Whether all that was given has the shapes of the right results."""
        return all(self.given[name].shape == self.true[name].shape for name in self.given)

    def two(self) -> Iterator[tuple[str, Params]]:
        """Two mistakes at once, of which one may be an edit of one quantity."""
        certified = self.all.certified
        computed = self.all.computed
        for label, reading in [("", self.true), *computed]:
            if not self.wrong <= set(reading):
                continue
            off = [
                name
                for name in self.given
                if name in reading and not self.ratio(name, reading[name]) <= 1
            ]
            if len(off) > (1 if label else 2):
                continue
            changed, names = dict(reading), [label.format("the weight gradients")] if label else []
            for name in off:
                fits = [
                    (edit, value)
                    for edit, value in edits(name, reading[name], certified)
                    if self.ratio(name, value) <= 1
                ]
                if fits:
                    edit, changed[name] = min(fits, key=lambda pair: self.ratio(name, pair[1]))
                    names.append(edit)
            if len(names) == 2:
                yield "; ".join(names), changed
        if self.all.pairs and set(FORWARD) & set(self.given):
            yield from self._pairs()

    def _pairs(self) -> Iterator[tuple[str, Params]]:
        """Two mistakes in one pass. What was given of the forward pass says which of them can
        be among the two."""
        case = self.all
        common = [mistake for mistake in case.mistakes if mistake.common]
        seen = {
            mistake.name: reading for mistake, (_, reading) in zip(case.mistakes, case.computed)
        }
        common = [mistake for mistake in common if self._only_wrong(seen[mistake.name])]
        forward = [mistake for mistake in common if mistake.forward]
        others = [mistake for mistake in common if not mistake.forward]
        fit = [mistake for mistake in forward if self._forward_fits(seen[mistake.name])]
        pairs = [
            (first, second)
            for first in fit
            for second in (*others, *(other for other in forward if other is not first))
        ]
        if self._forward_fits(self.true):
            pairs += combinations(others, 2)
        elif not fit:
            tried = self._together(self._affordable(combinations(forward, 2)), backward=False)
            pairs = [pair for pair, reading in tried if self._forward_fits(reading)]
        for (first, second), reading in self._together(self._affordable(pairs)):
            yield f"{first.label}; {second.label}", reading

    def _affordable(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        return islice(pairs, min(self.all.passes(), PAIRS))

    def _together(self, pairs: Iterable[Pair], **how: bool) -> Iterator[tuple[Pair, Params]]:
        """What those pairs give that go together."""
        case = self.all
        pairs = list(pairs)
        planted = [(first, second.passes) for first, second in pairs]
        outcomes = run_all(case.net, case.params, case.batch, planted, **how)
        yield from ((pair, reading) for pair, reading in zip(pairs, outcomes) if reading)

    def _only_wrong(self, reading: Params) -> bool:
        """Whether a reading differs from the truth, and only where something is wrong."""
        off = {
            name
            for name in self.given
            if name in reading
            and reading[name].shape == self.true[name].shape
            and not _norm(reading[name] - self.true[name]) <= 12 * self.spread[name]
        }
        return bool(off) and off <= self.wrong

    def _forward_fits(self, reading: Params) -> bool:
        return self.agrees({name: reading[name] for name in FORWARD if name in reading})


def _norm(array: Array) -> float:
    """The Euclidean norm, also of entries whose squares underflow or overflow."""
    size = float(np.linalg.norm(array))
    if 1e-140 < size < 1e140 or not np.isfinite(array).all():
        return size
    largest = float(abs(array).max(initial=0))
    return largest * float(np.linalg.norm(array / largest)) if largest else 0.0
