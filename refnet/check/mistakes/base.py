"""A mistake: its name and what it changes in the naive net.

The formula that stands at a place of the naive net instead of the right one is a text, such as
``"s.h[s.t + 1]"``. It sees the right value ``v``, the pass ``s``, NumPy and the names of
``refnet.check.mistakes.formulas``; where a function stands, it sees the right one as ``f`` and its
arguments: ``"f(a, a, dh)"``. Checked by:
tests/check/test_mistake_names.py,
tests/check/test_naive.py::test_a_mistake_is_the_text_of_a_formula_or_a_function.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import islice
from typing import Any

import numpy as np

from refnet.batch import Batch, Params
from refnet.check.mistakes import formulas
from refnet.check.naive import FORWARD, Change, Pass
from refnet.check.programs.passes import run, runs
from refnet.nets.gradients import Net
from refnet.nets.stacked import plain

__all__ = [
    "Mistake",
    "Mistakes",
    "change",
    "changed",
    "mistake",
    "of_the_memory",
    "reading",
    "run_all",
]

ARGUMENTS = {
    **dict.fromkeys(("sigmoid", "act"), "a"),
    **dict.fromkeys(("sigmoid_pull", "act_pull"), "a, h, dh"),
    "product": "a, b",
}
"""The arguments of the places at which functions stand."""


@dataclass(frozen=True)
class Mistake:
    """What one implementation does otherwise.

    ``passes``: the change, or several whose gradients are added. A ``name`` with {} belongs to
    a sum over the steps, in which each gradient can go wrong alone: {} is that gradient.
    ``common``: whether it is worth trying together with another mistake.
    """

    name: str
    passes: tuple[Change, ...]
    common: bool = True

    @property
    def label(self) -> str:
        """The name, where all weight gradients are concerned."""
        return self.name.format("the weight gradients")

    def label_of(self, part: str) -> str:
        """The name, where only a part of the weight gradients is concerned."""
        return self.name.format(part)

    @property
    def of_a_sum(self) -> bool:
        """Whether it is in a sum over the steps, in which each gradient can go wrong alone."""
        return "{}" in self.name

    @property
    def forward(self) -> bool:
        """Whether the outputs or the loss may change, too."""
        return any(place in FORWARD for change in self.passes for place in change)

    def run(self, net: Net, params: Params, batch: Batch, *more: Change, **how: Any) -> Params:
        """Every quantity of the naive net with this mistake, and with the changes ``more``."""
        passes = (run(net, params, batch, change, *more, **how) for change in self.passes)
        return reduce(_added, passes)


Mistakes = Iterator[Mistake]


def run_all(
    net: Net,
    params: Params,
    batch: Batch,
    every: Iterable[tuple[Mistake, Sequence[Change]]],
    **how: bool,
) -> Iterator[Params | None]:
    """What mistakes give, each made with some more changes; None for those that do not go
    together."""
    every = list(every)
    changes = ((change, *more) for mistake, more in every for change in mistake.passes)
    outcomes = runs(net, params, batch, changes, **how)
    for mistake, _ in every:
        passes = [results for results in islice(outcomes, len(mistake.passes)) if results]
        yield reduce(_added, passes) if len(passes) == len(mistake.passes) else None


def _added(first: Params, other: Params) -> Params:
    gradients = {n: first[n] + value for n, value in other.items() if n.startswith("d")}
    return {**first, **gradients}


@lru_cache(maxsize=4096)
def _function(text: str, *arguments: str) -> Callable[..., Any]:
    """The function of these arguments, one list after the other, that a text says."""
    heads = "".join(f"lambda {names}: " for names in arguments)
    function: Callable[..., Any] = eval(heads + text, vars(formulas))
    return function


def change(**places: str | Callable[..., Any]) -> Change:
    """A change by place: what stands there is a text, or a function of (value, s)."""

    def function(place: str, what: str | Callable[..., Any]) -> Callable[..., Any]:
        if callable(what):
            return what
        arguments = ARGUMENTS.get(place)
        return _function(what, "f, s", arguments) if arguments else _function(what, "v, s")

    return {place: function(place, what) for place, what in places.items()}


def mistake(name: str, common: bool = True, **places: str | Callable[..., Any]) -> Mistake:
    """A mistake of one pass, by ``change``."""
    return Mistake(name, (change(**places),), common)


def changed(text: str, *names: str) -> Callable[[Params, Pass], Params]:
    """A function of a dict of arrays and the pass that changes the arrays of these names, in every
    cell; the text says how, of the array ``w``."""
    function = _function(text, "w, s")
    return lambda p, s: {
        name: np.asarray(function(value, s)) if plain(name) in names else value
        for name, value in p.items()
    }


def reading(
    name: str,
    names: str,
    there: str = "",
    back: str = "",
    common: bool = True,
    **places: str | Callable[..., Any],
) -> Mistake:
    """The parameters of these names are read as ``there`` makes them, and their gradients are
    reported as ``back`` makes them: texts of ``w``."""
    for place, text in (("p", there), ("grads", back)):
        if text:
            places[place] = changed(text, *names.split())
    return mistake(name, common, **places)


def of_the_memory(name: str, rows: int, columns: int) -> Mistake:
    """The mistake that a matrix is read as if it were stored column by column."""
    return reading(
        f"{name} is read in the other memory order (column by column)",
        name.split()[-1],
        f"w.reshape({columns}, {rows}).T",
        f"w.T.reshape({rows}, {columns})",
    )
