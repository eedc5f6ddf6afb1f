"""Which mistake explains a result that is not rounding.

A *reading* is what an implementation with one mistake would give, computed in float64 by the
naive net, or a right quantity reported in another way. It is an explanation only if it agrees
with everything that was given, the right quantities included; what concerns one quantity names
that quantity. Two mistakes at once are looked for when one does not suffice.
Checked by: tests/check/test_mistake_names.py,
tests/check/test_compare.py::test_convention_is_named.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from itertools import chain, islice
from operator import attrgetter

import numpy as np

from refnet.batch import Params
from refnet.check.function_edits import other_cotangents
from refnet.check.mistakes import Mistake, faint, mistakes, of_the_types
from refnet.check.mistakes.base import Mistakes, run_all
from refnet.check.programs.passes import covers, run
from refnet.check.search import Search
from refnet.exact.convert import in_float64
from refnet.exact.enclose import Certified
from refnet.exact.functions import CertifiedFunction
from refnet.exact.precision import float_values
from refnet.nets.stacked import StackedNet

__all__ = ["Readings"]

WORK = 3e11
"""Multiplications that may be spent on one mistake, and again on two: about a minute each."""
Fits = list[tuple[float, str]]
STEP = 1e6
"""What a step of a small net costs, in multiplications of a large one."""


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
        self.true = float_values(certified.named())
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
            final=batch.final and {n: np.asarray(v, float) for n, v in batch.final.items()},
        )

    @cached_property
    def computed(self) -> list[tuple[str, Params]]:
        """What every mistake, and every variant, would give, by its name; of a function, what
        other cotangents would."""
        if not isinstance(self.certified, Certified):
            return list(other_cotangents(self.certified))
        if _scored_otherwise(self.certified):
            return list(_other_scores(self.certified))
        others = list(_other_finals(self.certified))
        if not covers(self.net, self.params):
            return others
        more: tuple[Mistakes, ...] = ()
        if not isinstance(self.net, StackedNet):
            more = faint(self.net), of_the_types(self.net, self.certified.batch)
        every = chain(mistakes(self.net, self.params, self.batch), *more)
        with np.errstate(all="ignore"):
            some = list(islice(every, self.passes()))
            outcomes = run_all(self.net, self.params, self.batch, [(each, ()) for each in some])
            fit = [(mistake, reading) for mistake, reading in zip(some, outcomes) if reading]
            self.mistakes = [mistake for mistake, _ in fit]
            readings = [(mistake.name, reading) for mistake, reading in fit] + others
            for label, other in self.variants.items():
                wide = {name: np.asarray(value, float) for name, value in other.items()}
                readings.append((label, run(self.net, self.params | wide, self.batch)))
        return readings

    @property
    def plain(self) -> bool:
        """Whether this is a net of real numbers with its own loss and divisor."""
        certified = self.certified
        return (
            isinstance(certified, Certified)
            and not _scored_otherwise(certified)
            and not any(np.iscomplexobj(value) for value in certified.params.values())
        )

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
        elsewhere: Callable[[], Search | None] | None = None,
    ) -> str:
        """The name of what explains the results ``given`` (finite float64 arrays), or "".

        ``wrong``: the names of those that are not rounding; ``sigma`` and the unit roundoff
        ``u`` say how far rounding goes; ``rerolled``: whether the errors are others at inputs that
        differ by a few unit roundoffs of a coarser type, without which none is named by their size;
        ``elsewhere``: the search at other sizes and inputs, or None: a name that fits here alone is
        a coincidence.
        """
        wrong = set(wrong) & set(given)
        if not wrong:
            return ""
        with np.errstate(all="ignore"):
            return _explained(Search(self, given, wrong, sigma, u, rerolled), elsewhere)

    def unseen(
        self, former: "Readings", given: Params, wrong: Iterable[str], sigma: Params, u: float
    ) -> str:
        """The name of a mistake that explains the results ``given``, which need not be finite, and
        changes no result of ``former`` by more than rounding, or ""."""
        with np.errstate(all="ignore"):
            search = Search(self, given, set(wrong) & set(given), sigma, u)
            before = Search(former, former.true, set(), sigma, u)
            seen = {label for label, reading in former.computed if before.whole(reading) > 1}
            return search.best(
                (label.format("the weight gradients"), reading)
                for label, reading in self.computed
                if label not in seen
            )


SIMPLE = (
    "edited",
    "computed",
    "around.readings",
    "around.between",
    "programs",
    "around.stacked",
    "of_parts",
    "estimated",
    "around.multiples",
)
"""Where names without fitted weights come from, in the order in which they are looked for."""
OTHERS = (
    "differences",
    "calls",
    "structure",
    "fitted_programs",
    "around.constants",
    "weighed",
    "around.additions",
    "coarser.stored",
    "coarser.coarse",
    "two",
    "calls_apart",
    "around.fitted",
    "waves",
)


def _explained(search: Search, elsewhere: Callable[[], Search | None] | None = None) -> str:
    """The name from the first place that has one."""
    for place in (*SIMPLE, *OTHERS):
        names = attrgetter(place)(search)()
        fits = [(0.0, names)] * bool(names) if isinstance(names, str) else search.fits(names)
        if fits:
            there = elsewhere() if elsewhere and place in SIMPLE else None
            return _confirmed(fits, place, there) if there else _closest(fits, place)
    return ""


def _closest(fits: Fits, place: str) -> str:
    return Search.closest(fits, first=place == "edited")


def _confirmed(fits: Fits, place: str, there: Search) -> str:
    """The name among these that explains what was given ``there``, too; or else the one that was
    found there; or "perhaps" the one here."""
    _ = there.all.computed  # on which the later places rest
    others = {name for _, name in there.fits(attrgetter(place)(there)())}
    for text in (str, _without_numbers):
        known = {text(name) for name in others}
        both = [(ratio, name) for ratio, name in fits if text(name) in known]
        if both:
            return _closest(both, place)
    name = _explained(there)
    if name and not name.startswith("perhaps"):
        x = there.all.batch.x
        sizes = dict(zip(("T", "B"), x.shape)) if x.ndim == 3 else {"B": len(x)}
        return f"{name} (at {', '.join(f'{size} = {n}' for size, n in sizes.items())})"
    return f"perhaps {_closest(fits, place).removeprefix('perhaps ')}"


def _without_numbers(name: str) -> str:
    """A name without what depends on sizes and inputs.

    >>> _without_numbers("da is left out of examples 1, 3 (the last), by 0.25")
    'da is left out of example #, by #'
    """
    name = re.sub(r" \((examples? [\d, ]+|the (first|last)( \d+)?|rows \d+ to \d+)\)", "", name)
    name = re.sub(r"\d[\d.]*(e[+-]?\d+)?((, | to )\d[\d.]*)*", "#", name)
    return re.sub(r"(example|step|unit|input|column|row|class|entr)(s|es|ies|y) #", r"\1 #", name)


def _scored_otherwise(certified: Certified) -> bool:
    """Whether a net is certified with a penalty, or another divisor than its own."""
    return certified.penalty is not None or certified.divisor is not None


def _other_finals(certified: Certified) -> Iterator[tuple[str, Params]]:
    """What comes with other cotangents of the final states, or without them in the loss."""
    final = certified.batch.final
    if not final:
        return
    right, without = (_with_final(certified, each) for each in (final, {}))
    for label, other in _finals(final):
        reading = _with_final(certified, other)
        yield label, reading
        yield f"{label}, in the backward pass alone", {**reading, "loss": right["loss"]}
    yield "the loss leaves out the last states", {**right, "loss": without["loss"]}


def _finals(final: Params) -> Iterator[tuple[str, Params]]:
    for name, value in final.items():
        two = value.ndim > 2
        for n, state in enumerate("hc" if two else "h"):
            part = value * (np.arange(2) == n)[:, None, None] if two else value
            what = f"the cotangent of the last {state}{name[2:]}"
            yield f"{what} is ignored", {**final, name: value - part}
            yield f"{what} counts twice", {**final, name: value + part}
            if two:
                moved = value + part[::-1] - part
                yield f"{what} goes to {'ch'[n]}", {**final, name: moved}
        if two:
            text = f"the cotangents of the last h{name[2:]} and c{name[2:]} change places"
            yield text, {**final, name: value[::-1]}
    if len(final) > 1 or any(value.ndim > 2 for value in final.values()):
        yield "the cotangents of all last states are ignored", {}


def _with_final(certified: Certified, final: Params) -> Params:
    return replace(certified, batch=certified.batch._replace(final=final)).run(in_float64)


def _other_scores(certified: Certified) -> Iterator[tuple[str, Params]]:
    """What comes without the penalty, or with the net's own divisor."""
    for label, divisor, penalty in (
        ("the penalty is left out", certified.divisor, None),
        ("the loss is divided as the net's reduction says", None, certified.penalty),
        ("the penalty is left out, and the loss divided as the net's reduction says", None, None),
    ):
        if (divisor, penalty) != (certified.divisor, certified.penalty):
            yield label, replace(certified, divisor=divisor, penalty=penalty).run(in_float64)
