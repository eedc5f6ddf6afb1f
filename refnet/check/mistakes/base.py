"""A mistake: its name and what it changes in the naive net."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from refnet.batch import Array, Batch, Params
from refnet.check.naive import FORWARD, Change, Pass, run
from refnet.nets.gradients import Net

__all__ = ["Mistake", "Mistakes", "changed", "each_block", "mistake", "padded"]


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

    @property
    def forward(self) -> bool:
        """Whether the outputs or the loss may change, too."""
        return any(place in FORWARD for change in self.passes for place in change)

    def run(self, net: Net, params: Params, batch: Batch, *more: Change, **how: Any) -> Params:
        """Every quantity of the naive net with this mistake, and with the changes ``more``."""
        first, *rest = (run(net, params, batch, change, *more, **how) for change in self.passes)
        for other in rest:
            first |= {
                name: first[name] + value for name, value in other.items() if name.startswith("d")
            }
        return first


Mistakes = Iterator[Mistake]


def mistake(name: str, change: Any = None, common: bool = True, **places: Any) -> Mistake:
    """A mistake of one pass: functions of (value, s) by place, as a dict or by keyword."""
    return Mistake(name, ({**(change or {}), **places},), common)


def changed(change: Any, *names: str) -> Callable[[Params, Pass], Params]:
    """A filter of a dict of arrays that changes the ones of these names, if they are there."""
    return lambda p, s: {**p, **{name: np.asarray(change(p[name])) for name in names if name in p}}


def each_block(change: Callable[[Array], Array], gates: int) -> Callable[[Array], Array]:
    """``change`` on every gate's block of rows."""
    return lambda stacked: np.concatenate([change(part) for part in np.split(stacked, gates)])


def padded(kept: slice, shape: tuple[int, ...]) -> Callable[[Array], Array]:
    """Puts an array back into zeros of ``shape``, at ``kept`` of the first axis."""

    def pad(part: Array) -> Array:
        whole = np.zeros(shape, part.dtype)
        whole[kept] = part
        return whole

    return pad
