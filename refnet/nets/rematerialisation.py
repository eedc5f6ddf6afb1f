"""Gradient checkpointing: long sequences in memory proportional to the square root of T.

The forward pass keeps the state at the start of every segment of 10 sqrt(T) steps, and the tape
of the last one; the backward pass goes over the segments from the last to the first, runs each
one but the last forward again and pulls back through it. That is almost one forward pass more,
and never are more held than sqrt(T) / 10 starts and the tape of one segment.

Source: Chen, Xu, Zhang & Guestrin (2016), for segments of equal length.
"""

from math import isqrt
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from refnet.batch import Array, Params
from refnet.cells.common import check_shapes
from refnet.maths.numeric import matmul

if TYPE_CHECKING:
    from refnet.nets.base import NetTape
    from refnet.nets.recurrent import RecurrentNet

__all__ = ["Checkpoints", "backward", "forward", "segments"]

STRETCH = 10
"""Segments are up to this many times sqrt(T) long: what a cell spends on every call, such as
starting threads, then costs a few per cent of one, for about five times the least memory."""


class Checkpoints(NamedTuple):
    """What stands for the cell's tape: x (T, B, D), the state at the start of every segment,
    (B, H) or, for the LSTM, [h, c] (2, B, H), and the last segment's tape, which the first
    backward pass takes away: a second one makes it anew."""

    x: Array
    starts: list[Array]
    last: list[Any]

    @property
    def h(self) -> Array:
        """None: AttributeError, for those who look for the states of a net's tape."""
        raise AttributeError("a net with checkpoint='sqrt' keeps no states on its tape; run "
                             "dataclasses.replace(net, checkpoint='none')")


def segments(T: int) -> list[tuple[int, int]]:
    """``(first, end)`` of the segments ``first <= t < end``: as few of equal length as none needs
    more than STRETCH ceil(sqrt(T)) steps; a single empty one if T = 0.

    Checked by: tests/test_checkpointing.py::test_segments.
    """
    parts = max(1, -(-T // (STRETCH * (isqrt(max(T - 1, 0)) + 1))))
    edges = [T * n // parts for n in range(parts + 1)]
    return list(zip(edges, edges[1:]))


def _each(steps: Array | int | None, B: int) -> Array | None:
    """A net tape's ``steps`` as one number a sequence."""
    return np.full(B, steps) if isinstance(steps, int) else steps


def _read_within(steps: Array, first: int, end: int) -> Array:
    """The sequences whose last state is one of h[first + 1] .. h[end]."""
    return np.flatnonzero((first < steps) & (steps <= end))


def forward(net: "RecurrentNet", p: Params, x: Array, h0: Array, steps: Array | int | None
            ) -> tuple[Array, Array, Checkpoints]:
    """The outputs as rows; the states read out, (B, H), or none for a read-out at every step;
    and the checkpoints. ``p`` and ``steps`` are those of a ``NetTape``.

    Checked by: tests/test_checkpointing.py::test_equals_the_net_without_checkpoints.
    """
    seen, H = net.scaled(p), net.hidden
    # here, because a segment's own message would speak of the segment's shape
    check_shapes(net.cell, seen, x, h0, len(net.gates), h0.ndim - 1)
    state, starts, outputs = h0, [], []
    steps = _each(steps, x.shape[1])
    rows, tape = np.empty((0, H)), None
    for first, end in segments(len(x)):
        starts.append(state)
        tape = None  # before the next one is made
        tape = net.module.forward(seen, x[first:end], state, net.activation)
        if steps is None:
            outputs.append(net.read_out(p, tape.h[1:].reshape(-1, H)))
        else:
            rows = rows if first else tape.h[0].copy()  # a sequence without steps is read at h0
            here = _read_within(steps, first, end)
            rows[here] = tape.h[steps[here] - first, here]
        state = tape.h[-1].copy() if h0.ndim == 2 else np.stack([tape.h[-1], tape.c[-1]])
    read = net.read_out(p, rows) if steps is not None else np.concatenate(outputs)
    return read, rows, Checkpoints(x, starts, [tape])


def backward(net: "RecurrentNet", tape: "NetTape", doutputs: Array, inputs: bool) -> Params:
    """What the cell's own backward pass gives, and the gradients of Why and by.

    ``carry`` is the complete gradient at the state where the later segment starts: it joins
    the direct gradient at the last state (the LSTM's cell state has no other) of this one.

    Checked by: tests/test_checkpointing.py::test_equals_the_net_without_checkpoints,
    tests/test_checkpointing.py::test_a_planted_bug_is_rejected.
    """
    p, _, (x, starts, last), rows, _ = tape
    seen, H, (T, B) = net.scaled(p), net.hidden, x.shape[:2]
    steps = _each(tape.steps, B)
    flat = doutputs.reshape(T * B if steps is None else B, net.outputs)
    total: Params = {"by": flat.sum(axis=0)}
    if steps is not None:
        drows, total["Why"] = matmul(flat, p["Why"]), matmul(flat.T, rows)
    kept = list(last)
    last.clear()
    dx = []
    carry = np.zeros_like(starts[0])
    for (first, end), start in reversed(list(zip(segments(T), starts))):
        part = (kept.pop() if kept else
                net.module.forward(seen, x[first:end], start, net.activation))
        own: Params = {}
        if steps is None:
            drow = flat[first * B:end * B]
            dh = matmul(drow, p["Why"]).reshape(end - first, B, H)
            own["Why"] = matmul(drow.T, part.h[1:].reshape(-1, H))
        else:
            here = _read_within(steps, first, end)
            earliest = steps[here].min(initial=end)
            dh = np.zeros((end - earliest + 1, B, H), drows.dtype)
            dh[steps[here] - earliest, here] = drows[here]
        dh[-1:] += carry if carry.ndim == 2 else carry[0]
        dc = {} if carry.ndim == 2 else {"dc": carry[1]}
        own |= net.module.backward(seen, part, dh, net.activation, inputs, **net.clipping, **dc)
        carry = own.pop("h0")
        if inputs:
            dx.append(own.pop("x"))
        total |= {name: np.asarray(total[name] + value) if name in total else value
                  for name, value in own.items()}
        del part, dh  # before the next ones are made
    if steps is not None:
        at_start = np.where((steps == 0)[:, None], drows, 0)
        carry = carry + at_start if carry.ndim == 2 else np.stack([carry[0] + at_start, carry[1]])
    if inputs:
        total["x"] = np.concatenate(dx[::-1])
    return {**total, "h0": carry}
