"""The simple recurrent net of ``refnet.cells.rnn``, compiled.

Each thread takes some blocks of rows of the batch through all time steps. A step is one matrix
product, accumulated in registers, and the activation on its result while that is in the first-level
cache. Pre-activations are kept only where the slope cannot be computed from ``h``; their gradients
are kept for a few steps at a time, and then one product adds these steps to the weight gradients.
"""

from typing import Any

import numpy as np

from refnet.batch import Array, Params
from refnet.cells.rnn import GATES, STATES, Tape, init
from refnet.compiled._jit import jit, run
from refnet.compiled.activations import (clamp, needs_a, own_gradients, own_parameter, pull, push,
                                         settings)
from refnet.compiled.layout import (add_rows, boundary, layout, normal, pack, product, share,
                                    shares, spaces, summed)
from refnet.compiled.vector import FLUSH, clear, copy_rows, cut, fetch, float_control, number
from refnet.maths.activations import Activation

__all__ = ["GATES", "STATES", "Tape", "backward", "forward", "init"]

CHUNK = 96
"""The number of rows in one product for the weight gradients. 64 is faster for narrow nets and 128
for some wide ones, by a few per cent of a backward pass."""


def forward(p: Params, x: Array, h0: Array, act: Activation) -> Tape:
    """As ``refnet.cells.rnn.forward``, float32 or float64; the tape's ``a`` is None where the
    slope is computed from ``h``.

    Raises TypeError for any other dtype; the net checks the shapes.
    Checked by: tests/test_compiled.py::test_matches_the_reference.
    """
    own = {name: p[name] for name, *_ in act.start}
    lay = layout("rnn.forward", {name: p[name] for name in ("Whh", "Wxh", "bh")} | own, x, h0)
    T, B, D, H = lay.T, lay.B, lay.D, lay.H
    x = normal(x, lay.dtype)
    h = np.empty((T + 1, B, H), lay.dtype)
    h[0] = h0
    a = np.empty((T, B, H) if needs_a(act) else (0, 0, 0), lay.dtype)
    Whh, Wxh, bh = (normal(part, lay.dtype) for part in (p["Whh"], p["Wxh"], p["bh"][:, None]))
    row = H + D + 1
    work = spaces(lay, row * lay.width + 2 * lay.rows * (lay.width + row + lay.lane))
    run(_forward_blocks, lay.blocks, work, lay.starts, lay.width, lay.lane,
        *settings(act, lay.dtype), own_parameter(act, p, lay), Whh, Wxh, bh, x, a, h)
    return Tape(x, a if needs_a(act) else None, h)  # type: ignore[arg-type]


@jit
def _forward_blocks(begin: int, end: int, work: Any, starts: Any, width: int, lane: int,
                    code: int, alpha: Any, q: Any, Whh: Any, Wxh: Any, bh: Any, x: Any, a: Any,
                    h: Any) -> None:
    mode = float_control(-1, FLUSH)
    (T, B, D), H = x.shape, h.shape[2]
    xs, states, kept = cut(x, 0, x.size), cut(h, 0, h.size), cut(a, 0, a.size)
    row, vectors = H + D + 1, width // lane
    free = boundary(work)
    clear(work, free, row * width)
    w = cut(work, free, row * width)
    free += row * width
    pack(w, 0, row, Whh, 1, lane, True)
    pack(w, H, row, Wxh, 1, lane, True)
    pack(w, H + D, row, bh, 1, lane, True)
    step = max(width, (row + lane - 1) // lane * lane)  # between rows [h | x | 1]
    for b in range(begin, end):
        start, rows = starts[b], starts[b + 1] - starts[b]
        now = cut(work, free, rows * step)
        after = cut(work, free + rows * step, rows * step)
        copy_rows(now, 0, step, states, start * H, H, rows, H)
        for t in range(T):
            at = t * B + start
            copy_rows(now, H, step, xs, at * D, D, rows, D)
            for r in range(rows):
                now[r * step + H + D] = 1
            product(after, step, now, step, 1, w, 0, row, rows, vectors, lane, False)
            fetch(states, (at + 2 * B) * H, rows * H)  # of the next step
            if len(a):
                fetch(kept, (at + B) * H, rows * H)
                copy_rows(kept, at * H, H, after, 0, step, rows, H)
            for r in range(rows):
                push(code, alpha, q, cut(after, r * step, width), 1, width)
            copy_rows(states, (at + B) * H, H, after, 0, step, rows, H)
            now, after = after, now
    float_control(0, mode)


def backward(p: Params, tape: Tape, dh: Array, act: Activation, inputs: bool = True,
             clip: float | None = None) -> Params:
    """As ``refnet.cells.rnn.backward``, float32 or float64, for a tape made by ``forward`` above.

    The bits do not depend on the number of threads: weight gradients are summed within fixed
    blocks of rows, and then over the blocks in order.
    Checked by: tests/test_compiled.py::test_matches_the_reference,
    tests/test_compiled.py::test_same_bits.
    """
    own = {name: p[name] for name, *_ in act.start}
    lay = layout("rnn.backward", {name: p[name] for name in ("Whh", "Wxh", "bh")} | own, tape.x,
                 tape.h, dh)
    T, B, D, H = lay.T, lay.B, lay.D, lay.H
    x, h, dh = (normal(value, lay.dtype) for value in (tape.x, tape.h, dh))
    a = (np.empty((0, 0, 0), lay.dtype) if tape.a is None or not needs_a(act)
         else normal(tape.a, lay.dtype))
    Whh, Wxh = (normal(p[name], lay.dtype) for name in ("Whh", "Wxh"))
    padded, wide = (-(-n // lay.lane) * lay.lane for n in (D, H + D + 1))
    chunk = max(CHUNK // max(lay.rows, 1), 1) * lay.rows
    work = spaces(lay, (H + lay.rows * 3) * lay.width + H * (padded + wide)
                  + chunk * (lay.width + padded + wide))
    parts = shares(lay)
    dq = np.zeros((lay.blocks, lay.width), lay.dtype)
    dx = np.empty((T, B, D) if inputs else (0, 0, 0), lay.dtype)
    dh0 = np.empty((B, H), lay.dtype)
    clipped = np.zeros(lay.blocks, np.int64)
    run(_backward_blocks, lay.blocks, work, lay.starts, lay.width, lay.lane, chunk,
        *settings(act, lay.dtype), own_parameter(act, p, lay), clip is not None, clip or 0.0,
        Whh, Wxh, x, a, h, dh, inputs, dx, dh0, parts, dq, clipped)
    grads = {**summed(lay, parts), "h0": dh0, **own_gradients(act, p, dq, H)}
    if clip is not None:
        grads["clipped"] = np.asarray(int(clipped.sum()))
    if inputs:
        grads["x"] = dx
    return grads


@jit
def _backward_blocks(begin: int, end: int, work: Any, starts: Any, width: int, lane: int,
                     chunk: int, code: int, alpha: Any, q: Any, clips: bool, clip: Any, Whh: Any,
                     Wxh: Any, x: Any, a: Any, h: Any, dh: Any, wants_dx: bool, dx: Any,
                     dh0: Any, parts: Any, dq: Any, clipped: Any) -> None:
    mode = float_control(-1, FLUSH)
    (T, B, D), H = x.shape, h.shape[2]
    xs, states, kept, last, slopes = (cut(x, 0, x.size), cut(h, 0, h.size), cut(a, 0, a.size),
                                      cut(dh, 0, dh.size), cut(dx, 0, dx.size))
    first, vectors = T - len(dh), width // lane
    shared = H * (H + D + 1)
    padded, wide = (D + lane - 1) // lane * lane, (H + D + lane) // lane * lane
    free = boundary(work)
    clear(work, free, H * (width + padded))
    w, wx = cut(work, free, H * width), cut(work, free + H * width, H * padded)
    free += H * (width + padded)
    pack(w, 0, H, Whh, 1, lane, False)
    if wants_dx:
        pack(wx, 0, H, Wxh, 1, lane, False)
    for b in range(begin, end):
        start, rows = starts[b], starts[b + 1] - starts[b]
        size, dqs = rows * width, cut(dq, b * width, width)
        clear(work, free, 3 * size + (H + chunk) * wide)  # as far as the first rows of das
        state, before = cut(work, free, size), cut(work, free + size, size)
        at = free + 2 * size
        total, seen = cut(work, at, H * wide), cut(work, at + H * wide, chunk * wide)  # [h | x | 1]
        at += (H + chunk) * wide
        das = cut(work, at, chunk * width + size)  # and the gradient on its way to the next
        carry = cut(das, 0, size)
        dinputs = cut(work, at + chunk * width + size, chunk * padded)
        for r in range(chunk):
            seen[r * wide + H + D] = 1
        held = 0
        for t in range(T - 1, -1, -1):
            at = t * B + start
            copy_rows(state, 0, width, states, (at + B) * H, H, rows, H)
            if len(a):
                copy_rows(before, 0, width, kept, at * H, H, rows, H)
            copy_rows(seen, held * wide, wide, states, at * H, H, rows, H)
            copy_rows(seen, held * wide + H, wide, xs, at * D, D, rows, D)
            if t >= first:
                add_rows(carry, width, last, ((t - first) * B + start) * H, H, rows, H)
            da = carry
            pull(code, alpha, q, before, state, da, dqs, rows, width)
            if clips:
                clipped[b] += clamp(da, number(clip, da[0]), rows, width, H)
            held += rows
            carry = cut(das, held * width, size)
            product(carry, width, da, width, 1, w, 0, H, rows, vectors, lane, False)
            if held + rows > chunk or t == 0:
                product(total, wide, das, 1, width, seen, wide, held, H, wide // lane, lane, True)
                if wants_dx:
                    product(dinputs, padded, das, width, 1, wx, 0, H, held, padded // lane,
                            lane, False)
                    for n in range(held // rows):
                        copy_rows(slopes, (at + n * B) * D, D, dinputs,
                                  (held - (n + 1) * rows) * padded, padded, rows, D)
                held = 0
                copy_rows(das, 0, 0, carry, 0, 0, 1, size)
                carry = cut(das, 0, size)
        copy_rows(cut(dh0, 0, dh0.size), start * H, H, carry, 0, width, rows, H)
        share(cut(parts, b * shared, shared), 1, 0, total, H, D, wide)
    float_control(0, mode)
