"""Mistakes in putting layers together: directions, lengths, the order of parts, initial states.

Checked by: tests/check/test_stacked_mistakes.py.
"""

from collections.abc import Callable
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from refnet.batch import Array, Batch, Params
from refnet.check.mistakes.base import (
    Mistake,
    Mistakes,
    each_block,
    mistake,
    of_the_memory,
    reading,
)
from refnet.check.mistakes.gates import of_the_order
from refnet.check.mistakes.inputs import of_the_axes
from refnet.check.naive import Change, Pass
from refnet.nets.stacked import StackedNet, named, turned

__all__ = ["of_the_stack"]

Turn = Callable[[Array, Array, str], Array]
"""Values (T, B, N) in the order of a cell's own direction, from the lengths and its suffix."""
STACKED = ("Whh", "Wxh", "Wxh.W", "bh")
SECOND = "the second direction"


def of_the_stack(net: StackedNet, params: Params, batch: Batch) -> Mistakes:
    """Every mistake that can be made with this stack."""
    if net.bidirectional:
        yield from _of_the_directions(net, batch)
    yield from _of_the_layers(net, batch)
    if "h0_l0" in params:
        yield from _of_the_start(net, params)
    yield from _of_the_cells(net, params)
    yield from _of_the_parameters(net, params)
    yield from of_the_axes(batch)
    if batch.mask is not None:
        yield mistake("the lengths are ignored", mask=lambda v, s: None)


def _as_it_is(values: Array, steps: Array, suffix: str) -> Array:
    return values


def _whole(values: Array, steps: Array, suffix: str) -> Array:
    return turned(values, np.full_like(steps, len(values)), suffix)


def _always(turn: Turn, f: Turn, s: Pass) -> Turn:
    return turn


def _of_the_directions(net: StackedNet, batch: Batch) -> Mistakes:
    masked = batch.mask is not None
    turns: tuple[tuple[bool, str, Turn, tuple[str, ...]], ...] = (
        (True, f"{SECOND} runs forward in time, too", _as_it_is, ("into", "out")),
        (True, f"{SECOND}'s outputs are not turned back in time", _as_it_is, ("out",)),
        (
            masked,
            f"{SECOND} turns the padded sequence round, not each by its length",
            _whole,
            ("into", "out"),
        ),
        (
            masked,
            f"{SECOND}'s outputs are turned back with the padding, not each by its length",
            _whole,
            ("out",),
        ),
        (
            True,
            f"the gradient of {SECOND}'s outputs is not turned into its time",
            _as_it_is,
            ("pull_out",),
        ),
        (
            True,
            f"{SECOND}'s gradient of its input is not turned back in time",
            _as_it_is,
            ("pull_into",),
        ),
    )
    if len(batch.x) > 1:
        for possible, label, turn, places in turns:
            if possible:
                yield Mistake(label, ({place: partial(_always, turn) for place in places},))
        if net.readout == "last":
            yield mistake(
                f"the read-out takes {SECOND} at the last time step, of which it has seen one "
                "input",
                steps=lambda v, s: np.minimum(v, 1) if s.suffix.endswith("_reverse") else v,
            )
    yield mistake(
        "the outputs of the two directions are swapped: [second, first]",
        order=lambda v, s: slice(None, None, -1),
    )
    for n, text in enumerate(("first", "second")):
        yield mistake(
            f"the gradient of a layer's input is that of its {text} direction alone",
            below=lambda v, s, n=n: v[n : n + 1],
        )


def _of_the_layers(net: StackedNet, batch: Batch) -> Mistakes:
    if batch.mask is not None:
        if net.readout == "last":
            yield mistake(
                "the read-out takes the state after the padding",
                steps=lambda v, s: np.full_like(v, len(s.x)),
            )
        yield mistake(
            "a layer's output after a sequence's end is not zero",
            padding=lambda f, s: lambda values, steps: values,
        )
    for number in range(1, net.layers):
        yield mistake(
            f"no gradient flows from layer {number} to the one below",
            below=lambda v, s, n=number: [0 * part for part in v] if s.t == n else v,
        )


def _renamed(label: str, names: dict[str, str]) -> Mistake:
    """Parameters are taken for those that ``names`` says: a permutation of them."""

    def rename(names: dict[str, str]) -> Any:
        return lambda values, s: {names.get(name, name): value for name, value in values.items()}

    return mistake(
        label, p=rename(names), grads=rename({other: name for name, other in names.items()})
    )


def _of_the_start(net: StackedNet, params: Params) -> Mistakes:
    yield reading("the initial states are ignored", np.zeros_like, np.zeros_like, "h0")
    if params["h0_l0"].shape[0] == 2 and net.cell in ("lstm", "cifg"):
        yield reading("h0 and c0 are swapped", np.flipud, np.flipud, "h0")
    layers = [list(layer) for layer in net.cells]
    orders = {
        "the initial states of the two directions are swapped": [
            suffix for layer in layers for suffix in layer[::-1]
        ],
        "the initial states are taken in the order of the layers from the top": [
            suffix for layer in layers[::-1] for suffix in layer
        ],
        "the initial states are ordered by direction first, then by layer": [
            suffix for direction in zip(*layers) for suffix in direction
        ],
    }
    usual = list(net.every_cell)
    for label, order in orders.items():
        if order != usual:
            yield _renamed(label, {f"h0{a}": f"h0{b}" for a, b in zip(usual, order)})


def _of_the_cells(net: StackedNet, params: Params) -> Mistakes:
    """The parameters of two cells in each other's place."""
    layers = [list(layer) for layer in net.cells]

    def swap(label: str, pairs: Any, *only: str) -> Mistakes:
        """One mistake, unless a shape differs: those that are named of each pair, or all."""
        names = {
            named(name, there): named(name, other)
            for pair in pairs
            for there, other in (pair, pair[::-1])
            for name in net.of(params, there)
            if name in (only or {*net.of(params, there)} - {"h0"})
        }
        if names and all(
            b in params and params[a].shape == params[b].shape for a, b in names.items()
        ):
            yield _renamed(label, names)

    for (a, first), (b, second) in combinations(enumerate(layers), 2):
        pairs = list(zip(first, second))
        yield from swap(f"layers {a} and {b} are swapped", pairs)
        yield from swap(f"Whh of layers {a} and {b} are swapped", pairs, "Whh")
    if net.bidirectional:
        for number, layer in enumerate(layers):
            yield from swap(f"{BOTH} of layer {number} are swapped", [layer])
        if len(layers) > 1:
            yield from swap(f"{BOTH} are swapped", layers)


BOTH = "the two directions' parameters"


def _of_the_parameters(net: StackedNet, params: Params) -> Mistakes:
    if "bhh_l0" in params:
        drop = reading("the second bias bhh is left out", np.zeros_like, np.zeros_like, "bhh")
        yield drop
        change: Change = {"p": drop.passes[0]["p"]}
        yield Mistake(f"{drop.name}, though not its gradient", (change,))
    yield reading("the bias bh is left out", np.zeros_like, np.zeros_like, "bh")
    if net.transition is not None:
        return
    if net.projection > 1:
        yield of_the_memory("the projection Whr", net.projection, net.hidden)
    if not net.projection and net.hidden > 1:
        turn = each_block(np.transpose, len(net.gates))
        yield reading("Whh is transposed, and its gradient transposed back", turn, turn, "Whh")
    yield from of_the_order(net.gates, *STACKED, *(("bhh",) if net.cell != "gru" else ()))
