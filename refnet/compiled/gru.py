"""The gated recurrent units of ``refnet.cells.gru`` and ``gru_before``, compiled.

Both share one source: ``before`` says whether the reset gate multiplies the state before the
product with Whn, or the result of that product. Blocks of rows, the tape and the reproducible bits
are as in ``refnet.compiled.rnn``; ``a`` is kept only where a slope cannot be computed from the
gates' values.
"""

from typing import Any

import numpy as np

from refnet.batch import Array, Params
from refnet.cells.gru import CANDIDATE, GATES, SIGMOID, STATES, Tape, init
from refnet.compiled._jit import jit, run
from refnet.compiled.activations import (clamp, needs_a, own_gradients, own_parameter, pull, push,
                                         settings)
from refnet.compiled.layout import (add_rows, aligned, boundary, layout, normal, pack, product,
                                    share, shares, spaces, summed)
from refnet.compiled.rnn import CHUNK
from refnet.compiled.vector import FLUSH, clear, copy_rows, cut, fetch, float_control, number
from refnet.maths.activations import Activation

__all__ = ["CANDIDATE", "GATES", "STATES", "Tape", "backward", "forward", "init", "recur",
           "recur_back"]


def forward(p: Params, x: Array, h0: Array, act: Activation, gate: Activation = SIGMOID) -> Tape:
    """As ``refnet.cells.gru.forward``, float32 or float64; the tape's ``a`` may be None.

    Checked by: tests/test_compiled.py::test_gated_matches_the_reference.
    """
    x, h, a, v, u = recur("gru.forward", p, x, h0, act, gate, before=False)
    return Tape(x, h, a, v, u)


def backward(p: Params, tape: Tape, dh: Array, act: Activation, inputs: bool = True,
             gate: Activation = SIGMOID, clip: float | None = None) -> Params:
    """As ``refnet.cells.gru.backward``, float32 or float64; the bits as in
    ``refnet.compiled.rnn.backward``.

    Checked by: tests/test_compiled.py::test_gated_matches_the_reference.
    """
    return recur_back("gru.backward", p, tape, tape.u, dh, act, inputs, gate, clip, before=False)


def _used(p: Params, act: Activation, before: bool) -> Params:
    names = ("Whh", "Wxh", "bh", *(() if before else ("bhn",)), *(name for name, *_ in act.start))
    return {name: p[name] for name in names}


def recur(where: str, p: Params, x: Array, h0: Array, act: Activation, gate: Activation,
          before: bool) -> tuple[Array, Array, Any, Array, Array]:
    """The tape's ``x, h, a, v, u`` for either kind of unit; u is empty if ``before``."""
    lay = layout(where, _used(p, act, before), x, h0)
    T, B, D, H = lay.T, lay.B, lay.D, lay.H
    h = np.empty((T + 1, B, H), lay.dtype)
    h[0] = h0
    keeps = needs_a(act) or needs_a(gate)
    a = np.empty((T, B, 3, H) if keeps else (0, 0, 3, 0), lay.dtype)
    v = np.empty((T, B, 3, H), lay.dtype)
    u = np.empty((0, 0, 0) if before else (T, B, H), lay.dtype)
    x = normal(x, lay.dtype)
    Whh, Wxh, bh = (normal(part, lay.dtype) for part in (p["Whh"], p["Wxh"], p["bh"][:, None]))
    bias = aligned((lay.width,), lay.dtype)
    if not before:
        bias[:H] = p["bhn"]
    row = H + D + 1
    work = spaces(lay, 4 * row * lay.width + lay.rows * (5 * lay.width + 2 * row))
    run(_forward_blocks, lay.blocks, work, lay.starts, lay.width, lay.lane, before,
        *settings(act, lay.dtype), *settings(gate, lay.dtype), own_parameter(act, p, lay),
        Whh, Wxh, bh, bias, x, a, v, u, h)
    return x, h, a if keeps else None, v, u


@jit
def _forward_blocks(begin: int, end: int, work: Any, starts: Any, width: int, lane: int,
                    before: bool, code: int, alpha: Any, gate: int, beta: Any, own: Any,
                    Whh: Any, Wxh: Any, bh: Any, bias: Any, x: Any, a: Any, v: Any, u: Any,
                    h: Any) -> None:
    mode = float_control(-1, FLUSH)
    (T, B, D), H = x.shape, h.shape[2]
    xs, states, values, kept, products = (cut(x, 0, x.size), cut(h, 0, h.size), cut(v, 0, v.size),
                                          cut(a, 0, a.size), cut(u, 0, u.size))
    row, vectors, free = H + D + 1, width // lane, boundary(work)
    part = row * width
    clear(work, free, 4 * part)
    w, wu = cut(work, free, 3 * part), cut(work, free + 3 * part, H * width)
    wn = cut(work, free + 3 * part + H * width, (D + 1) * width)
    free += 4 * part
    pack(w, 0, row, Whh, 3, lane, True)
    pack(w, H, row, Wxh, 3, lane, True)
    pack(w, H + D, row, bh, 3, lane, True)
    # of the candidate, state and inputs apart
    pack(wu, 0, H, Whh[2 * H:], 1, lane, True)
    pack(wn, 0, D + 1, Wxh[2 * H:], 1, lane, True)
    pack(wn, D, D + 1, bh[2 * H:], 1, lane, True)
    for b in range(begin, end):
        start, rows = starts[b], starts[b + 1] - starts[b]
        size = rows * width
        z, state, other = (cut(work, free, 3 * size), cut(work, free + 3 * size, size),
                           cut(work, free + 4 * size, size))
        reset, update, new = cut(z, 0, size), cut(z, size, size), cut(z, 2 * size, size)
        at = free + 5 * size
        inputs = cut(work, at, rows * row)  # [h | x | 1]
        second = cut(work, at + rows * row, rows * row)  # [r h | x | 1]
        clear(state, 0, size)
        copy_rows(state, 0, width, states, start * H, H, rows, H)
        for r in range(rows):
            inputs[r * row + H + D] = 1
            second[r * row + H + D] = 1
        for t in range(T):
            at = t * B + start
            copy_rows(inputs, 0, row, state, 0, width, rows, H)
            copy_rows(inputs, H, row, xs, at * D, D, rows, D)
            for n in range(2):
                product(cut(z, n * size, size), width, inputs, row, 1, cut(w, n * part, part), 0,
                        row, rows, vectors, lane, False)
            fetch(states, (at + 2 * B) * H, rows * H)  # of the next step
            fetch(values, (at + B) * 3 * H, rows * 3 * H)
            if len(a):
                for n in range(2):
                    copy_rows(kept, (at * 3 + n) * H, 3 * H, z, n * size, width, rows, H)
            push(gate, beta, own, z, 2 * rows, width)
            if before:
                for j in range(size):
                    other[j] = reset[j] * state[j]
                copy_rows(second, 0, row, other, 0, width, rows, H)
                copy_rows(second, H, row, xs, at * D, D, rows, D)
                product(new, width, second, row, 1, cut(w, 2 * part, part), 0, row, rows,
                        vectors, lane, False)
            else:
                product(other, width, inputs, row, 1, wu, 0, H, rows, vectors, lane, False)
                for r in range(rows):
                    line = cut(other, r * width, width)
                    for j in range(width):
                        line[j] += bias[j]
                fetch(products, (at + B) * H, rows * H)
                copy_rows(products, at * H, H, other, 0, width, rows, H)
                product(new, width, cut(inputs, H, rows * row - H), row, 1, wn, 0, D + 1, rows,
                        vectors, lane, False)
                for j in range(size):
                    new[j] += reset[j] * other[j]
            if len(a):
                copy_rows(kept, (at * 3 + 2) * H, 3 * H, new, 0, width, rows, H)
            push(code, alpha, own, new, rows, width)
            for j in range(size):
                state[j] = (number(1.0, new[j]) - update[j]) * new[j] + update[j] * state[j]
            for n in range(3):
                copy_rows(values, (at * 3 + n) * H, 3 * H, z, n * size, width, rows, H)
            copy_rows(states, (at + B) * H, H, state, 0, width, rows, H)
    float_control(0, mode)


def recur_back(where: str, p: Params, tape: Any, u: Array, dh: Array, act: Activation,
               inputs: bool, gate: Activation, clip: float | None, before: bool) -> Params:
    """The gradients for either kind of unit; u is what the reset gate multiplied, and empty if
    ``before``."""
    lay = layout(where, _used(p, act, before), tape.x, tape.h, dh)
    T, B, D, H = lay.T, lay.B, lay.D, lay.H
    x, h, v, u, dh = (normal(value, lay.dtype) for value in (tape.x, tape.h, tape.v, u, dh))
    keeps = needs_a(act) or needs_a(gate)
    a = normal(tape.a, lay.dtype) if keeps else np.empty((0, 0, 3, 0), lay.dtype)
    Whh, Wxh = (normal(p[name], lay.dtype) for name in ("Whh", "Wxh"))
    padded, wide = (-(-n // lay.lane) * lay.lane for n in (D, H + D + 1))
    chunk = max(CHUNK // max(lay.rows, 1), 1) * lay.rows
    groups = 3 if before else 4
    parts = shares(lay, groups)
    work = spaces(lay, 3 * H * (lay.width + padded) + 4 * H * wide + lay.rows * 9 * lay.width
                  + chunk * (4 * lay.width + padded + 2 * wide))
    dq = np.zeros((lay.blocks, lay.width), lay.dtype)
    dx = np.empty((T, B, D) if inputs else (0, 0, 0), lay.dtype)
    dh0 = np.empty((B, H), lay.dtype)
    clipped = np.zeros(lay.blocks, np.int64)
    run(_backward_blocks, lay.blocks, work, lay.starts, lay.width, lay.lane, chunk, before,
        *settings(act, lay.dtype), *settings(gate, lay.dtype), own_parameter(act, p, lay),
        clip is not None, clip or 0.0, Whh, Wxh, x, a, v, u, h, dh, inputs, dx, dh0,
        parts, dq, clipped)
    found = summed(lay, parts, groups)
    grads = {name: value[:3 * H] for name, value in found.items()}
    grads |= {"h0": dh0, **own_gradients(act, p, dq, H)}
    if not before:
        grads["Whh"][2 * H:] = found["Whh"][3 * H:]
        grads["bhn"] = found["bh"][3 * H:]
    if clip is not None:
        grads["clipped"] = np.asarray(int(clipped.sum()))
    if inputs:
        grads["x"] = dx
    return grads


@jit
def _backward_blocks(begin: int, end: int, work: Any, starts: Any, width: int, lane: int,
                     chunk: int, before: bool, code: int, alpha: Any, gate: int, beta: Any,
                     own: Any, clips: bool, clip: Any, Whh: Any, Wxh: Any, x: Any, a: Any,
                     v: Any, u: Any, h: Any, dh: Any, wants_dx: bool, dx: Any, dh0: Any,
                     parts: Any, dq: Any, clipped: Any) -> None:
    mode = float_control(-1, FLUSH)
    (T, B, D), H = x.shape, h.shape[2]
    xs, states, values, kept, products = (cut(x, 0, x.size), cut(h, 0, h.size), cut(v, 0, v.size),
                                          cut(a, 0, a.size), cut(u, 0, u.size))
    last, slopes, starting = cut(dh, 0, dh.size), cut(dx, 0, dx.size), cut(dh0, 0, dh0.size)
    first, vectors = T - len(dh), width // lane
    padded, wide = (D + lane - 1) // lane * lane, (H + D + lane) // lane * lane
    whole = H // lane * lane
    groups, part = 3 if before else 4, chunk * width
    shared = groups * H * (H + D + 1)
    free = boundary(work)
    clear(work, free, 3 * H * (width + padded))
    w, wx = cut(work, free, 3 * H * width), cut(work, free + 3 * H * width, 3 * H * padded)
    wn = cut(w, 2 * H * width, H * width)
    free += 3 * H * (width + padded)
    pack(w, 0, H, Whh, 3, lane, False)
    if wants_dx:
        pack(wx, 0, H, Wxh, 3, lane, False)
    for b in range(begin, end):
        start, rows = starts[b], starts[b + 1] - starts[b]
        size, dqs = rows * width, cut(dq, b * width, width)
        clear(work, free, 9 * size + (4 * H + 2 * chunk) * wide)
        e, state, other = (cut(work, free, size), cut(work, free + size, size),
                           cut(work, free + 2 * size, size))
        at = free + 3 * size
        gates, pre = cut(work, at, 3 * size), cut(work, at + 3 * size, 3 * size)
        reset, update, new = (cut(gates, 0, size), cut(gates, size, size),
                              cut(gates, 2 * size, size))
        at += 6 * size
        totals = cut(work, at, 4 * H * wide)
        at += 4 * H * wide
        seen = cut(work, at, chunk * wide)  # [h | x | 1]
        second = cut(work, at + chunk * wide, chunk * wide)  # [r h | x | 1]
        at += 2 * chunk * wide
        das = cut(work, at, 4 * part)  # of r, z, n, and n's times r
        dinputs = cut(work, at + 4 * part, chunk * padded)
        for r in range(chunk):
            seen[r * wide + H + D] = second[r * wide + H + D] = 1
        held = 0
        for t in range(T - 1, -1, -1):
            at = t * B + start
            copy_rows(state, 0, width, states, at * H, H, rows, H)
            for n in range(3):
                copy_rows(gates, n * size, width, values, (at * 3 + n) * H, 3 * H, rows, H)
                if len(a):
                    copy_rows(pre, n * size, width, kept, (at * 3 + n) * H, 3 * H, rows, H)
            if t >= first:
                add_rows(e, width, last, ((t - first) * B + start) * H, H, rows, H)
            base = held * width
            dr, dz = cut(das, base, size), cut(das, base + part, size)
            dn, drn = cut(das, base + 2 * part, size), cut(das, base + 3 * part, size)
            for j in range(size):
                dn[j] = e[j] * (number(1.0, e[j]) - update[j])
                dz[j] = e[j] * (state[j] - new[j])
            pull(code, alpha, own, cut(pre, 2 * size, size), new, dn, dqs, rows, width)
            pull(gate, beta, own, cut(pre, size, size), update, dz, dqs, rows, width)
            if clips:
                clipped[b] += clamp(dn, number(clip, dn[0]), rows, width, H)
                clipped[b] += clamp(dz, number(clip, dz[0]), rows, width, H)
            if before:
                product(other, width, dn, width, 1, wn, 0, H, rows, vectors, lane, False)
                for j in range(size):
                    dr[j] = other[j] * state[j]
                    e[j] = e[j] * update[j] + other[j] * reset[j]
                    other[j] = reset[j] * state[j]
                copy_rows(second, held * wide, wide, other, 0, width, rows, H)
                copy_rows(second, held * wide + H, wide, xs, at * D, D, rows, D)
            else:
                copy_rows(other, 0, width, products, at * H, H, rows, H)
                for j in range(size):
                    dr[j] = dn[j] * other[j]
                    drn[j] = dn[j] * reset[j]
                    e[j] = e[j] * update[j]
                product(e, width, drn, width, 1, wn, 0, H, rows, vectors, lane, True)
            pull(gate, beta, own, pre, reset, dr, dqs, rows, width)
            if clips:
                clipped[b] += clamp(dr, number(clip, dr[0]), rows, width, H)
            for n in range(2):
                product(e, width, cut(das, n * part + base, size), width, 1,
                        cut(w, n * H * width, H * width), 0, H, rows, vectors, lane, True)
            copy_rows(seen, held * wide, wide, states, at * H, H, rows, H)
            copy_rows(seen, held * wide + H, wide, xs, at * D, D, rows, D)
            held += rows
            if held + rows > chunk or t == 0:
                for n in range(groups):
                    da, total = cut(das, n * part, part), cut(totals, n * H * wide, H * wide)
                    if n != 2 or before:
                        product(total, wide, da, 1, width, second if n == 2 else seen, wide,
                                held, H, wide // lane, lane, True)
                    else:  # its product with the state went through the reset gate: part 3
                        product(cut(total, whole, H * wide - whole), wide, da, 1, width,
                                cut(seen, whole, chunk * wide - whole), wide, held, H,
                                (wide - whole) // lane, lane, True)
                    if wants_dx and n < 3:
                        product(dinputs, padded, da, width, 1,
                                cut(wx, n * H * padded, H * padded), 0, H, held, padded // lane,
                                lane, n > 0)
                if wants_dx:
                    for n in range(held // rows):
                        copy_rows(slopes, (at + n * B) * D, D, dinputs,
                                  (held - (n + 1) * rows) * padded, padded, rows, D)
                held = 0
        copy_rows(starting, start * H, H, e, 0, width, rows, H)
        for n in range(groups):
            share(cut(parts, b * shared, shared), groups, n,
                  cut(totals, n * H * wide, H * wide), H, D, wide)
    float_control(0, mode)
