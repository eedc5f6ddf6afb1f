"""Mistakes in what goes in: time, batch, masks, start, biases, memory order, gain, read-out."""

from typing import Any

import numpy as np

from refnet.batch import Array, Batch, Params, last_steps
from refnet.check.mistakes.base import (
    Mistakes,
    changed,
    each_block,
    mistake,
    of_the_memory,
    padded,
    reading,
)
from refnet.check.mistakes.scoring import class_alone
from refnet.check.naive import Pass
from refnet.nets.layer import GAINED
from refnet.nets.recurrent import RecurrentNet

__all__ = ["of_inputs", "of_parameters", "of_readout", "of_the_axes"]

LATER, EARLIER = slice(None, -1), slice(1, None)


def shifted(array: Array, later: bool) -> Array:
    """Every entry one step later or earlier; the end that is left over keeps its value."""
    return np.concatenate([array[:1], array[LATER]] if later else [array[EARLIER], array[-1:]])


def of_the_axes(batch: Batch) -> Mistakes:
    """Time reversed, or read as the batch."""
    T, B, D = batch.x.shape
    turn = changed(lambda dx: dx[::-1], "x")
    if T > 1:
        yield mistake("time is reversed", x=lambda v, s: v[::-1], grads=turn)
    if T > 1 and B > 1:
        yield mistake(
            "x is read with batch and time swapped",
            x=lambda v, s: v.reshape(B, T, D).swapaxes(0, 1),
            grads=changed(lambda dx: dx.swapaxes(0, 1).reshape(T, B, D), "x"),
        )


def of_inputs(net: RecurrentNet, params: Params, batch: Batch) -> Mistakes:
    """Another reading of x, mask and h0."""
    x, _, mask = batch
    T, B, D = x.shape
    yield from of_the_axes(batch)
    if T > 1:
        yield mistake("time is reversed, and so is the gradient in x", x=lambda v, s: v[::-1])
        yield from _dropped_steps(net, batch)
    if T > 1 and B > 1:
        if T == B:
            yield mistake(
                "x has batch and time swapped",
                x=lambda v, s: v.swapaxes(0, 1),
                grads=changed(lambda dx: dx.swapaxes(0, 1), "x"),
            )
        yield from _dropped_examples(net, batch)
    if D > 1:
        yield mistake(
            "the inputs' features are reversed",
            x=lambda v, s: v[..., ::-1],
            grads=changed(lambda dx: dx[..., ::-1], "x"),
        )
    if mask is not None:
        yield mistake("the mask is ignored", mask=lambda v, s: None)
        yield mistake(
            "the mask is shifted by one step (later)", mask=_if_given(lambda v: shifted(v, True))
        )
        yield mistake(
            "the mask is shifted by one step (earlier)",
            mask=_if_given(lambda v: np.concatenate([v[1:], np.zeros_like(v[:1])])),
        )
        yield mistake(
            "the mask is inverted: True is read as padding", mask=_if_given(np.logical_not)
        )
        live = mask[..., None]
        yield mistake(
            "masked steps leave the state as it is",
            h=_held,
            carry=_held_back(mask),
            da=_cleared(mask),
        )
        yield mistake("the states after a sequence's end are zero", h=_ended)
        yield mistake(
            "masked inputs are replaced by zeros",
            x=lambda v, s: np.where(live, v, 0),
            grads=changed(lambda dx: np.where(live, dx, 0), "x"),
        )
    if "h0" in params:
        yield mistake("h0 is ignored", h0=lambda v, s: 0 * v, grads=changed(lambda g: 0 * g, "h0"))
        if net.cell == "lstm":
            yield mistake(
                "h0 and c0 are swapped",
                h0=lambda v, s: v[::-1],
                grads=changed(lambda g: g[::-1], "h0"),
            )
            yield mistake(
                "c0 is ignored",
                h0=lambda v, s: np.stack([v[0], 0 * v[1]]),
                grads=changed(lambda g: np.stack([g[0], 0 * g[1]]), "h0"),
            )


def _if_given(change: Any) -> Any:
    return lambda v, s: None if v is None else change(v)


def _held(h: Array, s: Pass) -> Array:
    live = s.batch.mask[s.t][:, None]  # type: ignore[index]
    if s.c:
        s.c[-1] = np.where(live, s.c[-1], s.c[-2])
    return np.where(live, h, s.h[-1])


def _ended(h: Array, s: Pass) -> Array:
    live = (s.t < last_steps(s.batch.mask))[:, None]  # type: ignore[arg-type]
    if s.c:
        s.c[-1] = np.where(live, s.c[-1], 0)
    return np.where(live, h, 0)


def _held_back(mask: Array) -> Any:
    def carry(v: Any, s: Pass) -> Any:
        live = mask[s.t][:, None]
        return np.where(live, v[0], s.e), np.where(live, v[1], s.full if s.c else v[1])

    return carry


def _cleared(mask: Array) -> Any:
    return lambda da, s: np.where(mask[s.t].reshape(-1, *(1,) * (da.ndim - 1)), da, 0)


def _dropped_steps(net: RecurrentNet, batch: Batch) -> Mistakes:
    """Without one step: the states are those of T - 1 steps."""
    for label, part in (("first", EARLIER), ("last", LATER)):
        cut = _if_given(lambda v, part=part: v[part])

        places = {"y": cut} if net.readout == "every" else {}
        yield mistake(
            f"the {label} step of the sequence is dropped",
            x=cut,
            mask=cut,
            **places,
            grads=changed(padded(part, batch.x.shape), "x"),
        )


def _dropped_examples(net: RecurrentNet, batch: Batch) -> Mistakes:
    B = batch.x.shape[1]
    for label, b in (("first", 0), ("last", B - 1)):

        def without(v: Any, s: Pass, b: int = b) -> Any:
            each, dv = (part.copy().reshape(-1, B, *part.shape[1:]) for part in v)
            each[:, b], dv[:, b] = 0, 0
            return each.reshape(v[0].shape), dv.reshape(v[1].shape)

        c = class_alone(batch, b) if net.loss == "cross_entropy" else None
        who = f"the {label} example of the batch" + ("" if c is None else f", or class {c},")
        yield mistake(f"{who} is left out", each=without)
        yield mistake(
            f"{who} is left out, and not counted",
            each=without,
            divisor=lambda v, s: v * (B - 1) / B,
        )


def of_parameters(net: RecurrentNet, params: Params) -> Mistakes:
    """Another reading of the parameters."""
    H, G, D, C = net.hidden, len(net.gates), net.inputs, net.outputs
    yield mistake(
        "the bias bh is left out (one of two biases only)", p=changed(lambda b: 0 * b, "bh")
    )
    yield mistake(
        "the bias bh is added twice (as each of two biases)", p=changed(lambda b: 2 * b, "bh")
    )
    yield mistake("the bias by is left out", p=changed(lambda b: 0 * b, "by"))
    turn = each_block(np.transpose, G)
    if H > 1:
        yield mistake("Whh is transposed in the forward and backward pass", p=changed(turn, "Whh"))
        yield reading("Whh is transposed, and its gradient transposed back", turn, turn, "Whh")
    for name, rows, columns in (("Whh", G * H, H), ("Wxh", G * H, D), ("Why", C, H)):
        if min(rows, columns) > 1 and not (name == "Whh" and G == 1):
            yield of_the_memory(name, rows, columns)
    if net.gain != 1:
        shrink, grow = (
            changed(lambda v, n=factor: v * n, *GAINED) for factor in (1 / net.gain, net.gain)
        )
        yield mistake("the gain is ignored", p=shrink, grads=shrink)
        yield mistake("the gain is applied twice", p=grow, grads=grow)
        rest = changed(lambda v: v / net.gain, *(name for name in GAINED if name != "Whh"))
        yield mistake("the gain multiplies Whh alone", p=rest, grads=rest)
        yield mistake("the gain is left out of the gradients", grads=shrink)


def of_readout(net: RecurrentNet, batch: Batch) -> Mistakes:
    """Other states read out, other gradients into the states."""
    T, B = batch.x.shape[:2]
    every = net.readout == "every"
    if not every and T > 1:
        yield mistake(
            "the read-out takes the state before the last", steps=lambda v, s: np.maximum(v - 1, 0)
        )
        yield mistake(
            "the read-out takes the mean of all states",
            rows=lambda v, s: np.mean(s.h[1:], axis=0),
            direct=lambda v, s: np.stack([0 * s.drows] + [s.drows / T] * T),
        )
    if net.cell == "lstm":
        yield mistake(
            "the read-out takes the cell c, not h",
            rows=lambda v, s: (
                np.stack(s.c[1:]).reshape(v.shape)
                if every
                else np.stack(s.c)[s.lengths, np.arange(B)]
            ),
            direct=_to_the_cell,
            q=lambda v, s: v + s.to_the_cell[s.t + 1],
        )
    if every and T > 1:
        for label, later in (("later", True), ("earlier", False)):
            yield mistake(
                f"the targets are shifted by one step ({label})",
                y=lambda v, s, later=later: shifted(v, later),
            )
        yield mistake(
            "the read-out's gradient enters at the last step only",
            direct=lambda v, s: np.concatenate([0 * v[:-1], v[-1:]]),
        )
        yield mistake(
            "the read-out's gradient is missing at the last step",
            direct=lambda v, s: np.concatenate([v[:-1], 0 * v[-1:]]),
        )
        yield mistake(
            "the read-out's gradient enters one step too late",
            direct=lambda v, s: np.concatenate([v[:2] * 0, v[1:-1]]),
        )
        yield mistake(
            "the read-out's gradient enters one step too early",
            direct=lambda v, s: np.concatenate([v[1:], 0 * v[:1]]),
        )
        for label, share in (("", 1), (", divided by B alone", T)):
            yield mistake(
                f"only the last step counts in the loss{label}",
                each=lambda v, s, n=share: tuple(
                    np.concatenate([0 * part[:-B], part[-B:] * n]) for part in v
                ),
            )
    yield mistake("the read-out's gradient enters the recursion twice", direct=lambda v, s: 2 * v)
    yield mistake(
        "the gradient of Why takes the state one step earlier",
        grads=lambda g, s: {**g, "Why": g["Why"] * 0 + _outer(s, every)},
    )


def _to_the_cell(direct: Array, s: Pass) -> Array:
    s.to_the_cell = direct
    return 0 * direct


def _outer(s: Pass, every: bool) -> Array:
    B = s.x.shape[1]
    rows = (
        np.stack(s.h[:-1]).reshape(s.rows.shape)
        if every
        else np.stack(s.h)[np.maximum(s.lengths - 1, 0), np.arange(B)]
    )
    return s.product(s.dv.T, rows)
