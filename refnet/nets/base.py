"""What the recurrent and the feedforward net share: the tape, and the way back to the parts that
their matrices are made of."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from refnet.batch import Array, Params
from refnet.matrices.transitions import Transition, pull_back

__all__ = ["Initializer", "NetTape", "choice", "pulled", "same_kind"]

Initializer = Callable[[tuple[int, int], np.random.Generator], Array]


class Matrices(Protocol):
    """A net, as far as its matrices go: those that its transition makes, if it has one."""

    @property
    def transition(self) -> Transition | None: ...
    @property
    def slots(self) -> tuple[str, ...]: ...


class NetTape(NamedTuple):
    """What a net's backward pass needs.

    ``p``: the parameters with every transition's matrix made. ``made``: the transitions'
    tapes. ``cell``: the cell's tape, or its checkpoints, or the feedforward net's
    pre-activations. ``rows``: the states read out, as rows (of a net with checkpoints: at
    the last step only). ``steps``: for a read-out at the last step, the index of each
    sequence's last state in h[0] .. h[T], one number if it is T for all; None for a read-out
    at every step.
    """

    p: Params
    made: dict[str, Any]
    cell: Any
    rows: Array
    steps: Array | int | None


def choice(what: str, value: str, options: tuple[str, ...]) -> None:
    """Raise ValueError unless ``value`` is one of ``options``."""
    if value not in options:
        raise ValueError(f"{what} {value!r} is unknown; choose one of {', '.join(options)}")


def _merge(a: Params, b: Params) -> Params:
    """``a`` with ``b`` added entry by entry."""
    return {**a, **{name: a[name] + value if name in a else value for name, value in b.items()}}


def pulled(net: "Matrices", params: Params, made: dict[str, Any],
           grads: Params, extra: Params | None) -> Params:
    """Add ``extra`` to the matrices' gradients, pull these back to their parts if the net's
    transition made them, and add what of ``extra`` is for the parts themselves."""
    extra = extra or {}
    grads = _merge(grads, {name: value for name, value in extra.items() if name in grads})
    rest = {name: value for name, value in extra.items() if name not in grads}
    if net.transition is not None:
        matrices = {slot: grads.pop(slot) for slot in net.slots}
        grads |= pull_back(net.transition, params, made, matrices)
    return _merge(grads, rest)


def same_kind(params: Params, x: Array) -> None:
    """Refuse a mix of floats and exact numbers: it would silently compute in floats."""
    exact = x.dtype == object
    for name, value in params.items():
        if (value.dtype == object) != exact:
            raise ValueError(f"{name} is {value.dtype} while x is {x.dtype}; exact numbers and "
                             "floats do not mix: lift both (refnet.exact.lift)")
