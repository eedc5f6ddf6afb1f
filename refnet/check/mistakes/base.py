"""A mistake: its name and what it changes in the naive net."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from refnet.batch import Array, Batch, Params
from refnet.check.naive import FORWARD, Change, Pass, run
from refnet.nets.gradients import Net
from refnet.nets.stacked import plain

__all__ = [
    "Mistake",
    "Mistakes",
    "changed",
    "each_block",
    "mistake",
    "of_the_memory",
    "padded",
    "reading",
]


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


def mistake(name: str, common: bool = True, **places: Any) -> Mistake:
    """A mistake of one pass: functions of (value, s) by place."""
    return Mistake(name, (places,), common)


def changed(change: Any, *names: str) -> Callable[[Params, Pass], Params]:
    """A filter of a dict of arrays that changes the ones of these names, in every cell."""
    return lambda p, s: {
        name: np.asarray(change(value)) if plain(name) in names else value
        for name, value in p.items()
    }


def reading(name: str, there: Any, back: Any, *names: str, common: bool = True) -> Mistake:
    """The parameters of these names are read as ``there`` makes them, and their gradients are
    reported as ``back`` makes them."""
    return mistake(name, common=common, p=changed(there, *names), grads=changed(back, *names))


def of_the_memory(name: str, rows: int, columns: int) -> Mistake:
    """A matrix is read as if it were stored column by column."""
    return reading(
        f"{name} is read in the other memory order (column by column)",
        lambda W: W.reshape(columns, rows).T,
        lambda W: W.T.reshape(rows, columns),
        name.split()[-1],
    )


def each_block(change: Callable[[Array], Array], gates: int) -> Callable[[Array], Array]:
    """``change`` on every gate's block of rows."""
    return lambda stacked: np.concatenate([change(part) for part in np.split(stacked, gates)])


def padded(rows: slice, shape: tuple[int, ...]) -> Callable[[Array], Array]:
    """Puts an array back into zeros of ``shape``, at ``kept`` of the first axis."""

    def pad(part: Array) -> Array:
        whole = np.zeros(shape, part.dtype)
        whole[rows] = part
        return whole

    return pad
