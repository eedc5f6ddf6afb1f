"""Mistakes in putting layers together: directions, lengths, the order of parts, initial states.

A stack is run once more here, cell by cell, with a place for every one of these mistakes; what is
inside a cell is the reference's own. Checked by: tests/check/test_stacked_mistakes.py.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import combinations, permutations
from typing import Any

import numpy as np

from refnet.batch import Array, Batch, Params, last_steps
from refnet.maths.losses import counted_predictions, score
from refnet.nets.stacked import StackedNet, kept, named, plain, turned

__all__ = ["Plan", "Stacking", "of_the_stack", "run"]

Turn = Callable[[Array, Array, str], Array]
"""Values (T, B, N) in the order of a cell's own direction; its own inverse."""
Change = Callable[[Params], Params]
"""Other parameters, or gradients."""
STACKED = ("Whh", "Wxh", "Wxh.W", "bh")


def _as_it_is(values: Array, steps: Array, suffix: str) -> Array:
    return values


def _whole(values: Array, steps: Array, suffix: str) -> Array:
    return turned(values, np.full_like(steps, len(values)), suffix)


@dataclass(frozen=True)
class Plan:
    """How the cells are put together; every default is right.

    ``into`` and ``out``: the order in which a cell sees its input and gives its output;
    ``pull_out`` and ``pull_into``: the same backward, if it is another. ``swapped``: the second
    direction's output stands first. ``read``: the steps after which a cell is read at last, from
    the lengths, T and the cell's suffix. ``ends``: whether a layer's output is 0 after a
    sequence's end. ``through``: the directions whose input gradient goes on to the layer below,
    ``floor``: down to this layer.
    """

    into: Turn = turned
    out: Turn = turned
    pull_out: Turn | None = None
    pull_into: Turn | None = None
    swapped: bool = False
    read: Callable[[Array, int, str], Array] = lambda steps, T, suffix: steps
    ends: bool = True
    through: tuple[int, ...] = (0, 1)
    floor: int = 0


BACKWARD = ("pull_out", "pull_into", "through", "floor")
"""The fields of a plan that only its backward pass looks at."""


@dataclass(frozen=True)
class Stacking:
    """A mistake in putting layers together; it offers what ``Mistake`` does.

    ``plan``: how the cells are put together. ``there``: the parameters that the cells get, and
    ``back``: the gradients as they are reported, a permutation back. ``batch``: likewise what it
    reads as the batch.
    """

    name: str
    plan: Plan = Plan()
    there: Change = dict
    back: Change = dict
    batch: Callable[[Batch], Batch] = Batch._make
    common: bool = True

    @property
    def label(self) -> str:
        """The name."""
        return self.name

    @property
    def passes(self) -> "tuple[Stacking, ...]":
        """This mistake: another one runs together with it."""
        return (self,)

    @property
    def forward(self) -> bool:
        """Whether the outputs or the loss may change, too."""
        return (
            self.there is not dict
            or self.batch != Batch._make
            or any(name not in BACKWARD for name in _planned(self.plan))
        )

    def run(
        self,
        net: StackedNet,
        params: Params,
        batch: Batch,
        *more: "Stacking",
        backward: bool = True,
    ) -> Params:
        """Every quantity of the stack with this mistake and ``more``. Raises ValueError for two
        that do not go together."""
        every = self, *more
        planned: dict[str, Any] = {}
        for one in every:
            params, batch, own = one.there(params), one.batch(batch), _planned(one.plan)
            if own.keys() & planned.keys():
                raise ValueError(f"{one.name} and another mistake change the same")
            planned |= own
        found = run(net, params, batch, Plan(**planned), backward)
        if not backward:
            return found
        grads = {name[1:]: value for name, value in found.items() if name.startswith("d")}
        for one in reversed(every):
            grads = one.back(grads)
        return {
            "loss": found["loss"],
            "outputs": found["outputs"],
            **{f"d{name}": value for name, value in grads.items()},
        }


def _planned(plan: Plan) -> dict[str, Any]:
    """What a plan changes."""
    return {
        one.name: value
        for one in fields(Plan)
        if (value := getattr(plan, one.name)) is not one.default
    }


def run(
    net: StackedNet, params: Params, batch: Batch, plan: Plan = Plan(), backward: bool = True
) -> Params:
    """Loss, outputs and, if ``backward``, gradients by the names of ``Certified.named``."""
    net = replace(net, backend="reference", checkpoint="none")
    p, made = net.matrices(params)
    x, (T, B) = batch.x, batch.x.shape[:2]
    steps = np.full(B, T) if batch.mask is None else last_steps(batch.mask)
    end = (lambda values: kept(values, steps)) if plan.ends else (lambda values: values)
    tapes: dict[str, Any] = {}
    for layer in net.cells:
        states, ends = [], []
        for suffix, cell in layer.items():
            own = net.of(p, suffix)
            tapes[suffix] = cell.layer.run(
                cell.layer.scaled(own), plan.into(x, steps, suffix), cell.initial_state(own, x)
            )
            h = tapes[suffix].h
            ends.append(h[plan.read(steps, T, suffix), np.arange(B)])
            states.append(plan.out(h[1:], steps, suffix))
        order = slice(None, None, -1 if plan.swapped else 1)
        x, rows = end(np.concatenate(states[order], axis=2)), np.concatenate(ends[order], axis=1)
    last = net.readout == "last"
    rows = rows if last else x
    outputs = rows if net.readout == "none" else rows @ p["Why"].T + p["by"]
    counted, divisor = counted_predictions(batch.mask, outputs.shape[:-1], net.reduction)
    loss, d = score(net.loss, outputs, batch.y, counted, divisor)
    if not backward:
        return {"loss": np.asarray(loss), "outputs": outputs}
    grads: Params = {}
    if net.readout != "none":
        flat = d.reshape(-1, net.outputs)
        grads = {"Why": flat.T @ rows.reshape(len(flat), -1), "by": flat.sum(axis=0)}
        d = d @ p["Why"]
    for number in reversed(range(net.layers)):
        below: list[Array] = []
        cells = list(net.cells[number].items())
        for n, (suffix, cell) in enumerate(cells):
            at = (len(cells) - 1 - n if plan.swapped else n) * cell.width
            part, tape = d[..., at : at + cell.width], tapes[suffix]
            if last:
                dh = np.zeros_like(tape.h)
                dh[plan.read(steps, T, suffix), np.arange(B)] = part
            else:
                dh = np.concatenate(
                    [0 * tape.h[:1], (plan.pull_out or plan.out)(end(part), steps, suffix)]
                )
            found = cell.layer.backward(net.of(p, suffix), tape, partial(_direct, dh))
            found.pop("clipped", None)
            if last:
                found["h0"][(0,) * (found["h0"].ndim - 2)][:, : cell.width] += dh[0]
            below.append((plan.pull_into or plan.into)(found.pop("x"), steps, suffix))
            grads |= {f"{name}{suffix}": value for name, value in found.items()}
        last = False
        d = sum((dx for n, dx in enumerate(below) if n in plan.through), np.zeros_like(below[0]))
        d = d * (number > plan.floor or plan.floor == 0)
    grads = net.gathered(params, p, made, {**grads, "x": d})
    return {
        "loss": np.asarray(loss),
        "outputs": outputs,
        **{f"d{name}": value for name, value in grads.items()},
    }


def _direct(dh: Array, first: int, part: Any) -> Array:
    return dh[1:].copy()


def _plans(net: StackedNet, batch: Batch) -> Iterator[tuple[str, Plan]]:
    T, masked, last = len(batch.x), batch.mask is not None, net.readout == "last"
    if net.bidirectional and T > 1:
        yield "the second direction runs forward in time, too", Plan(_as_it_is, _as_it_is)
        yield "the second direction's outputs are not turned back in time", Plan(out=_as_it_is)
        if masked:
            yield (
                "the second direction turns the padded sequence round, not each by its length",
                Plan(_whole, _whole),
            )
            yield (
                "the second direction's outputs are turned back with the padding, not each by "
                "its length",
                Plan(out=_whole),
            )
        yield (
            "the gradient of the second direction's outputs is not turned into its time",
            Plan(pull_out=_as_it_is),
        )
        yield (
            "the second direction's gradient of its input is not turned back in time",
            Plan(pull_into=_as_it_is),
        )
        if last:
            yield (
                "the read-out takes the second direction at the last time step, of which it has "
                "seen one input",
                Plan(
                    read=lambda steps, T, suffix: (
                        np.minimum(steps, 1) if suffix.endswith("_reverse") else steps
                    )
                ),
            )
    if net.bidirectional:
        yield "the outputs of the two directions are swapped: [second, first]", Plan(swapped=True)
        for n, text in enumerate(("first", "second")):
            yield (
                f"the gradient of a layer's input is that of its {text} direction alone",
                Plan(through=(n,)),
            )
    if masked and last:
        yield (
            "the read-out takes the state after the padding",
            Plan(read=lambda steps, T, suffix: np.full_like(steps, T)),
        )
    if masked:
        yield "a layer's output after a sequence's end is not zero", Plan(ends=False)
    for number in range(1, net.layers):
        yield f"no gradient flows from layer {number} to the one below", Plan(floor=number)


def _renamed(names: dict[str, str]) -> Change:
    """The arrays under other names: a permutation of them."""
    return lambda values: {names.get(name, name): value for name, value in values.items()}


def _swap(net: StackedNet, params: Params, first: str, second: str, *only: str) -> Change | None:
    """Two cells' parameters swapped, or those that are named; None if their shapes differ."""
    names = [name for name in net.of(params, first) if (name in only if only else name != "h0")]
    pairs = {named(name, first): named(name, second) for name in names}
    if not all(b in params and params[a].shape == params[b].shape for a, b in pairs.items()):
        return None
    return _renamed(pairs | {b: a for a, b in pairs.items()}) if pairs else None


def _each(change: Callable[[Array], Array], *names: str) -> Change:
    """``change`` of the named parameters of every cell."""
    return lambda values: {
        full: change(value) if plain(full) in names else value for full, value in values.items()
    }


def _taken(order: tuple[int, ...], value: Array) -> Array:
    blocks = np.split(value, len(order))
    return np.concatenate([blocks[n] for n in order])


def _of_the_start(net: StackedNet, params: Params) -> Iterator[tuple[str, Change, Change]]:
    suffixes = list(net.every_cell)
    if f"h0{suffixes[0]}" not in params:
        return
    nothing = _each(lambda v: 0 * v, "h0")
    yield "the initial states are ignored", nothing, nothing
    if params[f"h0{suffixes[0]}"].shape[0] == 2 and net.cell in ("lstm", "cifg"):
        turn = _each(lambda v: v[::-1], "h0")
        yield "h0 and c0 are swapped", turn, turn
    layers = [list(layer) for layer in net.cells]
    flipped = [suffix for layer in layers for suffix in layer[::-1]]
    orders = {
        "the initial states of the two directions are swapped": flipped,
        "the initial states are taken in the order of the layers from the top": [
            suffix for layer in layers[::-1] for suffix in layer
        ],
        "the initial states are ordered by direction first, then by layer": [
            layer[n] for n in range(len(layers[0])) for layer in layers
        ],
    }
    for label, order in orders.items():
        if order != suffixes:
            there = {f"h0{a}": f"h0{b}" for a, b in zip(order, suffixes)}
            back = {b: a for a, b in there.items()}
            yield label, _renamed(back), _renamed(there)


def _of_the_parameters(net: StackedNet, params: Params) -> Iterator[tuple[str, Change, Change]]:
    suffixes, G = list(net.every_cell), len(net.gates)
    layers = [list(layer) for layer in net.cells]
    for (a, first), (b, second) in combinations(enumerate(layers), 2):
        for only in ((), ("Whh",)):
            swaps = [_swap(net, params, one, two, *only) for one, two in zip(first, second)]
            if all(swaps):

                def both(values: Params, swaps: Any = swaps) -> Params:
                    for swap in swaps:
                        values = swap(values)
                    return values

                text = "Whh of " if only else ""
                yield f"{text}layers {a} and {b} are swapped", both, both
    for number, layer in enumerate(layers):
        swap = _swap(net, params, *layer) if len(layer) == 2 else None
        if swap:
            yield f"the two directions' parameters of layer {number} are swapped", swap, swap
    if net.bidirectional:
        swaps = [_swap(net, params, *layer) for layer in layers]
        if all(swaps) and len(layers) > 1:

            def every(values: Params) -> Params:
                for swap in swaps:
                    values = swap(values)  # type: ignore[misc]
                return values

            yield "the two directions' parameters are swapped", every, every
    if f"bhh{suffixes[0]}" in params:
        drop = _each(lambda v: 0 * v, "bhh")
        yield "the second bias bhh is left out", drop, drop
        yield "the second bias bhh is left out, though not its gradient", drop, lambda g: g
    bias = _each(lambda v: 0 * v, "bh")
    yield "the bias bh is left out", bias, bias
    if net.transition is None:
        yield from _of_the_matrices(net, G)


def _of_the_matrices(net: StackedNet, G: int) -> Iterator[tuple[str, Change, Change]]:
    if net.projection:
        P, H = net.projection, net.hidden
        if P > 1:
            yield (
                "the projection Whr is read in the other memory order (column by column)",
                _each(lambda v: v.reshape(H, P).T, "Whr"),
                _each(lambda v: v.T.reshape(P, H), "Whr"),
            )
    elif net.hidden > 1:
        turn = _each(lambda v: np.concatenate([part.T for part in np.split(v, G)]), "Whh")
        yield "Whh is transposed in the forward and backward pass", turn, turn
    stacked = STACKED if net.cell == "gru" else (*STACKED, "bhh")
    known = {(0, 3, 1, 2): " (as in ONNX)", (1, 0, 2): " (as in ONNX and Keras)"}
    for order in permutations(range(G)):
        if order != tuple(range(G)):
            back = tuple(order.index(n) for n in range(G))
            names = ", ".join(net.gates[n] for n in order)
            label = f"the gates are read in the order {names}{known.get(order, '')}"
            yield (
                label,
                _each(partial(_taken, back), *stacked),
                _each(partial(_taken, order), *stacked),
            )


def _of_the_batch(batch: Batch) -> Iterator[Stacking]:
    T, B, _ = batch.x.shape
    if T > 1:
        yield Stacking(
            "time is reversed",
            batch=lambda b: b._replace(x=b.x[::-1]),
            back=lambda g: {**g, "x": g["x"][::-1]},
        )
    if T > 1 and B > 1:
        yield Stacking(
            "x is read with batch and time swapped",
            batch=lambda b: b._replace(x=b.x.reshape(B, T, -1).swapaxes(0, 1)),
            back=lambda g: {**g, "x": g["x"].swapaxes(0, 1).reshape(T, B, -1)},
        )
    if batch.mask is not None:
        yield Stacking("the lengths are ignored", batch=lambda b: b._replace(mask=None))


def of_the_stack(net: StackedNet, params: Params, batch: Batch) -> Iterator[Stacking]:
    """Every mistake that can be made with this stack."""
    for label, plan in _plans(net, batch):
        yield Stacking(label, plan)
    for label, there, back in (*_of_the_start(net, params), *_of_the_parameters(net, params)):
        usual = "read in the order" not in label or "(as in" in label
        yield Stacking(label, there=there, back=back, common=usual)
    yield from _of_the_batch(batch)
