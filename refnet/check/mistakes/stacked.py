"""Mistakes in putting layers together: directions, lengths, the order of parts, initial states.

Each moves an edge between cells (``refnet.check.programs.layers``) or takes one cell's parameters
for another's.

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


UNTURNED = "on(s, 'in', lambda cell: SAME)"
STEPS = "s.layers.edges['out' + cell.removesuffix('_reverse')]"
"""The edge of an output in the order of a cell of the first direction."""
IN_TIME = f"on(s, 'out', lambda cell: {STEPS})"
WHOLE = "on(s, 'in', lambda cell: s.layers.turn(cell, True))"
TURNED = f"on(s, 'out', lambda cell: s.layers.turn(cell, True).after({STEPS}))"
STATE = "lambda cell: gathered('', ({})[None], rows=len(s.x) + 1)"
"""The move to the states after so many steps (B,)."""
FIRST = f"on(s, 'read', {STATE.format('np.minimum(s.lengths, 1)')})"


def edged(name: str, moves: str, ways: str = "there back sums") -> Mistake:
    """The mistake of other moves on edges (``refnet.check.programs.layers``), in some of the
    passes."""
    text = f"edged(v, {moves}, '{ways}')"
    return mistake(name, edges=text) if "there" in ways else mistake(name, pulls=text)


def _of_the_directions(net: StackedNet, batch: Batch) -> Mistakes:
    masked = batch.mask is not None
    for possible, label, moves, *ways in (
        (True, f"{SECOND} runs forward in time, too", f"{UNTURNED} | {IN_TIME}"),
        (True, f"{SECOND}'s outputs are not turned back in time", IN_TIME),
        (
            masked,
            f"{SECOND} turns the padded sequence round, not each by its length",
            f"{WHOLE} | {TURNED}",
        ),
        (
            masked,
            f"{SECOND}'s outputs are turned back with the padding, not each by its length",
            TURNED,
        ),
        (True, f"the gradient of {SECOND}'s outputs is not turned into its time", IN_TIME, "back"),
        (True, f"{SECOND}'s gradient of its input is not turned back in time", UNTURNED, "back"),
        (
            net.readout == "last",
            f"the read-out takes {SECOND} at the last time step, of which it has seen one input",
            FIRST,
        ),
    ):
        if possible and len(batch.x) > 1:
            yield edged(label, moves, *ways)
    label = "the outputs of the two directions are swapped: [second, first]"
    yield edged(label, "exchanged(s.layers)")
    for other, text in (("'_reverse' in cell", "first"), ("'_reverse' not in cell", "second")):
        label = f"the gradient of a layer's input is that of its {text} direction alone"
        yield edged(label, f"on(s, 'in', lambda cell: CUT, lambda cell: {other})", "back")


def _of_the_layers(net: StackedNet, batch: Batch) -> Mistakes:
    if batch.mask is not None:
        if net.readout == "last":
            last = f"on(s, 'read', {STATE.format('0 * s.lengths + len(s.x)')}, len)"
            yield edged("the read-out takes the state after the padding", last)
        unpadded = "{name: SAME for name in s.layers.edges if name.startswith('pad')}"
        yield edged("a layer's output after a sequence's end is not zero", unpadded)
    for number in range(1, net.layers):
        here = f"lambda cell: '_l{number}' in cell"
        label = f"no gradient flows from layer {number} to the one below"
        yield edged(label, f"on(s, 'in', lambda cell: CUT, {here})", "back")


def _renamed(label: str, names: dict[str, str]) -> Mistake:
    """Parameters are taken for those that ``names`` says: a permutation of them."""
    back = {other: name for name, other in names.items()}
    there, reported = (
        f"{{{way}.get(name, name): value for name, value in v.items()}}" for way in (names, back)
    )
    return mistake(label, p=there, grads=reported)


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
