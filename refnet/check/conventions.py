"""Which mistake explains a result that is not rounding.

A *reading* is what an implementation with one mistake would give, computed in float64 by the
naive net, or a right quantity reported in another way. It is an explanation only if it agrees
with everything that was given, the right quantities included; what concerns one quantity names
that quantity. Two mistakes at once are looked for when one does not suffice.
Checked by: tests/check/test_mistake_names.py,
tests/check/test_compare.py::test_convention_is_named.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import chain, combinations, islice

import numpy as np

from refnet.batch import Array, Params
from refnet.check.arithmetic import arithmetic
from refnet.check.edits import edits, fitted_edits, shared_edits, shared_fitted_edits
from refnet.check.function_edits import other_cotangents
from refnet.check.mistakes import Mistake, faint, mistakes, of_the_types
from refnet.check.mistakes.base import Mistakes
from refnet.check.naive import covers, run
from refnet.check.noise import spread
from refnet.exact.enclose import Certified, run_on
from refnet.exact.functions import CertifiedFunction
from refnet.nets.stacked import StackedNet

__all__ = ["Readings", "scored_otherwise"]

Pair = tuple[Mistake, Mistake]
FORWARD = ("loss", "outputs")
WORK = 3e11
"""Multiplications that may be spent on one mistake, and again on two: about a minute each."""
STEP = 1e6
"""What a step of a small net costs, in multiplications of a large one."""
PAIRS = 5000
"""The most pairs of mistakes that are tried."""
COARSER = (("float32", 2.0**-24), ("float16, TF32 or bfloat16", 2.0**-11), ("bfloat16", 2.0**-8))
"""Coarser types that part of a computation may be in, with the least unit roundoff."""
BY_CHANCE = 2.0**-24
"""The chance with which numbers may be those of a coarser type although they are not in it."""


class Readings:
    """The readings of one certified case, computed when they are first needed.

    ``variants``: other readings of the parameters to try, by a label. ``pairs``: whether to look
    for two mistakes in one pass, which takes seconds.
    """

    def __init__(
        self,
        certified: Certified | CertifiedFunction,
        variants: dict[str, Params] | None = None,
        pairs: bool = True,
    ) -> None:
        self.certified, self.variants, self.pairs = certified, variants or {}, pairs
        self.true = {name: value.value for name, value in certified.named().items()}
        self.mistakes: list[Mistake] = []
        self.is_net = isinstance(certified, Certified)
        if not isinstance(certified, Certified):
            return
        batch = certified.batch
        self.net = certified.net
        self.params = {name: np.asarray(value, float) for name, value in certified.params.items()}
        self.batch = batch._replace(
            x=np.asarray(batch.x, float),
            y=batch.y if batch.y.dtype.kind in "iu" else np.asarray(batch.y, float),
        )

    @cached_property
    def computed(self) -> list[tuple[str, Params]]:
        """What every mistake, and every variant, would give, by its name; of a function, what
        other cotangents would."""
        if not isinstance(self.certified, Certified):
            return list(other_cotangents(self.certified))
        if scored_otherwise(self.certified):
            return list(_other_scores(self.certified))
        if not covers(self.net, self.params):
            return []
        more: tuple[Mistakes, ...] = ()
        if not isinstance(self.net, StackedNet):
            more = faint(self.net), of_the_types(self.net, self.certified.batch)
        every = chain(mistakes(self.net, self.params, self.batch), *more)
        with np.errstate(all="ignore"):
            self.mistakes = list(islice(every, self.passes()))
            readings = [
                (mistake.name, mistake.run(self.net, self.params, self.batch))
                for mistake in self.mistakes
            ]
            for label, other in self.variants.items():
                wide = {name: np.asarray(value, float) for name, value in other.items()}
                readings.append((label, run(self.net, self.params | wide, self.batch)))
        return readings

    def passes(self) -> int:
        """How many passes WORK allows."""
        weights = sum(value.size for value in self.params.values() if value.ndim == 2)
        x = self.batch.x
        rows, steps = (x.shape[0] * x.shape[1], len(x)) if x.ndim == 3 else (len(x), 1)
        return int(WORK / (3 * rows * weights + STEP * steps))

    def explain(
        self,
        given: Params,
        wrong: Iterable[str],
        sigma: Params,
        u: float,
        rerolled: Callable[[float], bool] | None = None,
    ) -> str:
        """The name of what explains the results ``given`` (finite float64 arrays), or "".

        ``wrong``: the names of those that are not rounding; ``sigma`` and the unit roundoff
        ``u`` say how far rounding goes; ``rerolled``: whether the errors are others at inputs that
        differ by a few unit roundoffs of a coarser type, without which none is named by their size.
        """
        wrong = set(wrong) & set(given)
        if not wrong:
            return ""
        with np.errstate(all="ignore"):
            search = _Search(self, given, wrong, sigma, u)
            return (
                search.best(search.exact())
                or search.best(search.estimated())
                or search.stored()
                or search.coarse(rerolled)
                or search.best(search.two())
            )

    def unseen(
        self, former: "Readings", given: Params, wrong: Iterable[str], sigma: Params, u: float
    ) -> str:
        """The name of a mistake that explains the results ``given``, which need not be finite, and
        changes no result of ``former`` by more than rounding, or ""."""
        with np.errstate(all="ignore"):
            search = _Search(self, given, set(wrong) & set(given), sigma, u)
            before = _Search(former, former.true, set(), sigma, u)
            seen = {label for label, reading in former.computed if before.whole(reading) > 1}
            return search.best(
                (label.format("the weight gradients"), reading)
                for label, reading in self.computed
                if label not in seen
            )


def scored_otherwise(certified: Certified) -> bool:
    """Whether a net is certified with a penalty, or another divisor than its own."""
    return certified.penalty is not None or certified.divisor is not None


def _other_scores(certified: Certified) -> Iterator[tuple[str, Params]]:
    """What comes without the penalty, or with the net's own divisor."""
    for label, divisor, penalty in (
        ("the penalty is left out", certified.divisor, None),
        ("the loss is divided as the net's reduction says", None, certified.penalty),
        ("the penalty is left out, and the loss divided as the net's reduction says", None, None),
    ):
        if (divisor, penalty) != (certified.divisor, certified.penalty):
            yield (
                label,
                run_on(
                    certified.net,
                    certified.params,
                    certified.batch,
                    lambda array, _: np.array(array, float),
                    divisor,
                    penalty,
                ),
            )


class _Search:
    def __init__(
        self, readings: Readings, given: Params, wrong: set[str], sigma: Params, u: float
    ) -> None:
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
            name: self._in_sigmas(name, given[name] - self.true[name])
            for name in self.wrong
            if given[name].shape == self.true[name].shape
        }

    def _in_sigmas(self, name: str, off: Array) -> float:
        """The norm of a difference, each entry in its own sigma."""
        sigma = self.sigma[name]
        least = sigma[sigma > 0].min(initial=np.inf)
        return _norm(off / np.maximum(sigma, least if least < np.inf else 1.0))

    def ratio(self, name: str, value: Array) -> float:
        """The distance to a reading of one quantity, in units of what would do.

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
            unexplained = 10 * self._in_sigmas(name, theirs - value) / self.gap[name]
        return float(np.max([left / enough, unexplained]))  # NaN remains, and explains nothing

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

    def best(self, readings: Iterable[tuple[str, Params]]) -> str:
        """The closest reading; an earlier one unless another is twice as close."""
        least, label = np.inf, ""
        for name, reading in readings:
            ratio = self.whole(reading)
            if ratio <= 1 and (not label or ratio < least / 2):
                least, label = ratio, name
        return label

    def exact(self) -> Iterator[tuple[str, Params]]:
        """Readings without a free constant."""
        if len(self.wrong) == 1:
            (name,) = self.wrong
            for label, value in edits(name, self.true[name], self.all.certified):
                yield label, {**self.true, name: value}
        for label, part in shared_edits(self.true, self.all.certified):
            yield label, {**self.true, **part}
        for label, reading in self.all.computed:
            yield label.format("the weight gradients"), reading
        if len(self.wrong) == 1:
            for label, reading in self.all.computed:
                if "{}" in label and name in reading:
                    yield label.format(name), {**self.true, name: reading[name]}

    def estimated(self) -> Iterator[tuple[str, Params]]:
        """Readings with one constant from the given arrays."""
        if len(self.wrong) == 1:
            (name,) = self.wrong
            for label, value in fitted_edits(
                name, self.true[name], self.given[name], self.all.certified
            ):
                yield label, {**self.true, name: value}
        for label, part in shared_fitted_edits(self.given, self.true, self.all.certified):
            yield label, {**self.true, **part}

    def stored(self) -> str:
        """Whether the wrong arrays hold the numbers of a coarser type alone, wrong by no more than
        its rounding."""
        if self._shaped():
            for kind in (arithmetic(name) for name in ("bfloat16", "float16", "float32")):
                entries = sum(np.count_nonzero(self.given[name]) for name in self.wrong)
                if (
                    kind.u > self.u
                    and (self.u / kind.u) ** entries <= BY_CHANCE
                    and all(kind.holds(self.given[name]).all() for name in self.wrong)
                    and all(self._within(6 * kind.u, name, kind.tiny) for name in self.given)
                ):
                    return (
                        f"part of the computation is in {kind}: the differences have its size, "
                        f"and all numbers are those of {kind}"
                    )
        return ""

    def coarse(self, rerolled: Callable[[float], bool] | None) -> str:
        """Whether everything is wrong, each quantity by as much as the rounding of a coarser type
        makes it; or float32 results, those of the forward pass among the wrong ones, are off as
        products of factors rounded to TF32 are: no entry by more, and a wrong quantity by that
        size. A smooth mistake of this size is not ``rerolled``."""
        if not rerolled or not self._shaped():
            return ""
        if self.all.is_net and not self.wrong & set(FORWARD):
            return ""
        for kind, u in COARSER:
            if (
                u > self.u
                and self.wrong == set(self.given)
                and all(self._within(6 * u, name) and self._typical(u, name) for name in self.given)
            ):
                return (
                    (
                        f"perhaps part of the computation is in {kind}: the differences have its "
                        "size, and come out anew where inputs differ by as much"
                    )
                    if rerolled(u)
                    else ""
                )
        if self.u != 2.0**-24 or not rerolled(2.0**-11):
            return ""
        sigma = spread(self.all.certified, "tf32")
        off = {name: abs(self.given[name] - self.true[name]) for name in self.given}
        z = {name: np.where(off[name] == 0, 0, off[name] / sigma[name]) for name in off}
        if (
            all((value <= 6).all() for value in z.values())
            and max(float(np.sqrt((z[name] ** 2).mean())) for name in self.wrong) >= 1 / 8
        ):
            return (
                "perhaps part of the computation is in float16 or TF32: judged as tf32 all of "
                "it is explained by rounding"
            )
        return ""

    def _shaped(self) -> bool:
        return all(self.given[name].shape == self.true[name].shape for name in self.given)

    def _within(self, u: float, name: str, least: float = 0) -> bool:
        """Whether a quantity is at most as far off as sigma is for a unit roundoff ``u``, or by
        the ``least`` that it may be."""
        off = abs(self.given[name] - self.true[name])
        return bool((off <= np.maximum(u / self.u * self.sigma[name], least)).all())

    def _typical(self, u: float, name: str) -> bool:
        """Whether a quantity is off by as much as rounding to ``u`` makes it, in the root mean
        square, or by an eighth, as if a part of the computation is rounded so: a smooth mistake
        leaves some quantities right, or is larger in others. A few numbers may be right by
        chance."""
        size = self.given[name].size
        z = self._in_sigmas(name, self.given[name] - self.true[name]) * self.u / u
        return bool((0.125 if size > 9 else 0) <= z / max(size, 1) ** 0.5 <= 4)

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
            pairs = [
                pair
                for pair in self._affordable(combinations(forward, 2))
                if self._forward_fits(self._together(*pair, backward=False))
            ]
        for first, second in self._affordable(pairs):
            yield f"{first.label}; {second.label}", self._together(first, second)

    def _affordable(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        return islice(pairs, min(self.all.passes(), PAIRS))

    def _together(self, first: Mistake, second: Mistake, **how: bool) -> Params:
        case = self.all
        try:
            return first.run(case.net, case.params, case.batch, *second.passes, **how)
        except (ValueError, IndexError, KeyError):  # these two do not go together
            return {name: np.full_like(value, np.inf) for name, value in self.true.items()}

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
        return all(
            name not in reading or self.ratio(name, reading[name]) <= 1
            for name in FORWARD
            if name in self.given
        )


def _norm(array: Array) -> float:
    """The Euclidean norm, also of entries whose squares underflow or overflow."""
    size = float(np.linalg.norm(array))
    if 1e-140 < size < 1e140 or not np.isfinite(array).all():
        return size
    largest = float(abs(array).max(initial=0))
    return largest * float(np.linalg.norm(array / largest)) if largest else 0.0
