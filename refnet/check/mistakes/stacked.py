"""Mistakes in putting layers together: directions, lengths, the order of parts, initial states.

Checked by: tests/check/test_stacked_mistakes.py.
"""

from itertools import combinations
from typing import Any

from refnet.batch import Batch, Params
from refnet.check.mistakes.base import Mistake, Mistakes, mistake, of_the_memory, reading
from refnet.check.mistakes.gates import of_the_order
from refnet.check.mistakes.inputs import of_the_axes
from refnet.nets.stacked import StackedNet, named

__all__ = ["of_the_stack"]

SECOND = "the second direction"
BOTH = "the two directions' parameters"
NOTHING = "np.zeros_like(w)"
WHOLE = "turned(values, np.full_like(steps, len(values)), suffix)"


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
        yield mistake("the lengths are ignored", mask="None")


def _of_the_directions(net: StackedNet, batch: Batch) -> Mistakes:
    masked = batch.mask is not None
    turns: tuple[tuple[bool, str, dict[str, Any]], ...] = (
        (True, f"{SECOND} runs forward in time, too", {"into": "values", "out": "values"}),
        (True, f"{SECOND}'s outputs are not turned back in time", {"out": "values"}),
        (
            masked,
            f"{SECOND} turns the padded sequence round, not each by its length",
            {"into": WHOLE, "out": WHOLE},
        ),
        (
            masked,
            f"{SECOND}'s outputs are turned back with the padding, not each by its length",
            {"out": WHOLE},
        ),
        (
            True,
            f"the gradient of {SECOND}'s outputs is not turned into its time",
            {"pull_out": "values"},
        ),
        (
            True,
            f"{SECOND}'s gradient of its input is not turned back in time",
            {"pull_into": "values"},
        ),
        (
            net.readout == "last",
            f"the read-out takes {SECOND} at the last time step, of which it has seen one input",
            {"steps": "np.minimum(v, 1) if s.suffix.endswith('_reverse') else v"},
        ),
    )
    if len(batch.x) > 1:
        yield from (mistake(label, **places) for possible, label, places in turns if possible)
    yield mistake(
        "the outputs of the two directions are swapped: [second, first]",
        order="slice(None, None, -1)",
    )
    for n, text in enumerate(("first", "second")):
        yield mistake(
            f"the gradient of a layer's input is that of its {text} direction alone",
            below=f"v[{n}:{n + 1}]",
        )


def _of_the_layers(net: StackedNet, batch: Batch) -> Mistakes:
    if batch.mask is not None:
        if net.readout == "last":
            yield mistake(
                "the read-out takes the state after the padding", steps="np.full_like(v, len(s.x))"
            )
        yield mistake("a layer's output after a sequence's end is not zero", padding="values")
    for number in range(1, net.layers):
        here = f"if suffix == '_l{number}' else f(values, steps, suffix)"
        if not net.bidirectional and len(batch.x) > 1:
            late = f"np.concatenate([0 * values[:1], values[:-1]]) {here}"
            early = f"np.concatenate([values[1:], 0 * values[:1]]) {here}"
            label = f"layer {number} sees the layer below one step late, zero first"
            yield mistake(label, into=late, pull_into=early)
            yield mistake(f"{label}, in the forward pass alone", into=late, pull_into="values")
        yield mistake(
            f"no gradient flows from layer {number} to the one below",
            below=f"[part * (s.t != {number}) for part in v]",
        )


def _renamed(label: str, names: dict[str, str]) -> Mistake:
    """Parameters are taken for those that ``names`` says: a permutation of them."""
    back = {other: name for name, other in names.items()}
    return mistake(label, p=f"renamed(v, {names})", grads=f"renamed(v, {back})")


def _of_the_start(net: StackedNet, params: Params) -> Mistakes:
    yield reading("the initial states are ignored", "h0", NOTHING, NOTHING)
    if params["h0_l0"].shape[0] == 2 and net.cell in ("lstm", "cifg"):
        yield reading("h0 and c0 are swapped", "h0", "w[::-1]", "w[::-1]")
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


def _of_the_parameters(net: StackedNet, params: Params) -> Mistakes:
    if "bhh_l0" in params:
        label = "the second bias bhh is left out"
        yield reading(label, "bhh", NOTHING, NOTHING)
        yield reading(f"{label}, though not its gradient", "bhh", NOTHING)
    yield reading("the bias bh is left out", "bh", NOTHING, NOTHING)
    if net.transition is not None:
        return
    if net.projection > 1:
        yield of_the_memory("the projection Whr", net.projection, net.hidden)
    if not net.projection and net.hidden > 1:
        turn = f"blocks(w, {len(net.gates)}, np.transpose)"
        yield reading("Whh is transposed, and its gradient transposed back", "Whh", turn, turn)
    yield from of_the_order(net.gates, "Whh Wxh Wxh.W bh" + " bhh" * (net.cell != "gru"))
