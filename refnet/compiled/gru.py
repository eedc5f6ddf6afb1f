"""The gated recurrent units of ``refnet.cells.gru`` and ``gru_before``, compiled.

Both are one recursion: ``before`` says whether the reset gate multiplies the state before the
product with Whn or what comes out of it. Blocks of rows, tape and bits as in
``refnet.compiled.rnn``; ``a`` is kept only where a slope does not follow from the gates' values.
"""

from typing import Any

import numpy as np

from refnet.activations import Activation
from refnet.batch import Array, Params
from refnet.cells import check_shapes
from refnet.cells.gru import CANDIDATE, GATES, SIGMOID, STATES, Tape, init
from refnet.compiled._jit import jit, run
from refnet.compiled.activations import (clamp, needs_a, own_gradients, own_parameter, pull,
                                         push, settings)
from refnet.compiled.layout import (aligned, boundary, layout, load, normal, pack, product, share,
                                    shares, spaces, store, summed)
from refnet.compiled.rnn import CHUNK
from refnet.compiled.vector import copy, number

__all__ = ["CANDIDATE", "GATES", "STATES", "Tape", "backward", "forward", "init", "recur",
           "recur_back"]


def forward(p: Params, x: Array, h0: Array, act: Activation, gate: Activation = SIGMOID) -> Tape:
    """As ``refnet.cells.gru.forward``, float32 or float64; the tape's ``a`` may be None.

    Checked by: tests/test_compiled.py::test_gated_matches_the_reference.
    """
    check_shapes("gru", p, x, h0, 3, vectors=("bhn",))
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
    """``x, h, a, v, u`` of either unit; u is empty if ``before``."""
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
    (T, B, D), H = x.shape, h.shape[2]
    xs, states, values, kept, products = (x.reshape(-1), h.reshape(-1), v.reshape(-1),
                                          a.reshape(-1), u.reshape(-1))
    row = H + D + 1
    part = row * width
    work = work[boundary(work):]
    w, wu, wn, rest = (work[:3 * part], work[3 * part:3 * part + H * width],
                       work[3 * part + H * width:4 * part], work[4 * part:])
    work[:4 * part] = 0
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
        z = rest[:3 * size]
        reset, update, new = z[:size], z[size:2 * size], z[2 * size:]
        state, other = rest[3 * size:4 * size], rest[4 * size:5 * size]
        inputs = rest[5 * size:5 * size + rows * row]  # [h | x | 1]
        second = rest[5 * size + rows * row:5 * size + 2 * rows * row]  # [r h | x | 1]
        for j in range(size):
            state[j] = 0
        load(state, states, start * H, H, rows, width, H)
        for r in range(rows):
            inputs[r * row + H + D] = 1
            second[r * row + H + D] = 1
        for t in range(T):
            at = t * B + start
            store(inputs, 0, row, state, rows, width, H)
            load(inputs[H:], xs, at * D, D, rows, row, D)
            for n in range(2):
                product(z[n * size:], width, inputs, row, 1, w[n * part:], 0, row, rows,
                        width // lane, lane, False)
            if len(a):
                for n in range(2):
                    store(kept, (at * 3 + n) * H, 3 * H, z[n * size:], rows, width, H)
            push(gate, beta, own, z[:2 * size], 2 * rows, width)
            if before:
                for j in range(size):
                    other[j] = reset[j] * state[j]
                store(second, 0, row, other, rows, width, H)
                load(second[H:], xs, at * D, D, rows, row, D)
                product(new, width, second, row, 1, w[2 * part:], 0, row, rows, width // lane,
                        lane, False)
            else:
                product(other, width, inputs, row, 1, wu, 0, H, rows, width // lane, lane, False)
                for r in range(rows):
                    line = other[r * width:(r + 1) * width]
                    for j in range(width):
                        line[j] += bias[j]
                store(products, at * H, H, other, rows, width, H)
                product(new, width, inputs[H:], row, 1, wn, 0, D + 1, rows, width // lane, lane,
                        False)
                for j in range(size):
                    new[j] += reset[j] * other[j]
            if len(a):
                store(kept, (at * 3 + 2) * H, 3 * H, new, rows, width, H)
            push(code, alpha, own, new, rows, width)
            for j in range(size):
                state[j] = (number(1.0, new[j]) - update[j]) * new[j] + update[j] * state[j]
            for n in range(3):
                store(values, (at * 3 + n) * H, 3 * H, z[n * size:], rows, width, H)
            store(states, (at + B) * H, H, state, rows, width, H)


def recur_back(where: str, p: Params, tape: Any, u: Array, dh: Array, act: Activation,
               inputs: bool, gate: Activation, clip: float | None, before: bool) -> Params:
    """The gradients of either unit; u is what the reset gate multiplied, empty if ``before``."""
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
    (T, B, D), H = x.shape, h.shape[2]
    xs, states, values, kept, products = (x.reshape(-1), h.reshape(-1), v.reshape(-1),
                                          a.reshape(-1), u.reshape(-1))
    slopes, starting = dx.reshape(-1), dh0.reshape(-1)
    first = T - len(dh)
    padded, wide = (D + lane - 1) // lane * lane, (H + D + lane) // lane * lane
    whole = H // lane * lane
    groups, part = 3 if before else 4, chunk * width
    work = work[boundary(work):]
    w, wx, rest = (work[:3 * H * width], work[3 * H * width:3 * H * (width + padded)],
                   work[3 * H * (width + padded):])
    work[:3 * H * (width + padded)] = 0
    pack(w, 0, H, Whh, 3, lane, False)
    if wants_dx:
        pack(wx, 0, H, Wxh, 3, lane, False)
    for b in range(begin, end):
        start, rows = starts[b], starts[b + 1] - starts[b]
        size = rows * width
        e, state, other = rest[:size], rest[size:2 * size], rest[2 * size:3 * size]
        gates, pre = rest[3 * size:6 * size], rest[6 * size:9 * size]
        reset, update, new = gates[:size], gates[size:2 * size], gates[2 * size:3 * size]
        at = 9 * size + 4 * H * wide
        totals = rest[9 * size:at]
        seen = rest[at:at + chunk * wide]  # [h | x | 1]
        at += chunk * wide
        second = rest[at:at + chunk * wide]  # [r h | x | 1]
        at += chunk * wide
        das = rest[at:at + 4 * part]  # of r, z, n, and n's times r
        at += 4 * part
        dinputs = rest[at:at + chunk * padded]
        for j in range(9 * size + (4 * H + 2 * chunk) * wide):
            rest[j] = 0
        for r in range(chunk):
            seen[r * wide + H + D] = second[r * wide + H + D] = 1
        held = 0
        for t in range(T - 1, -1, -1):
            at = t * B + start
            load(state, states, at * H, H, rows, width, H)
            for n in range(3):
                load(gates[n * size:], values, (at * 3 + n) * H, 3 * H, rows, width, H)
                if len(a):
                    load(pre[n * size:], kept, (at * 3 + n) * H, 3 * H, rows, width, H)
            if t >= first:
                for r in range(rows):
                    sums = e[r * width:r * width + H]
                    direct = dh[t - first, start + r]
                    for j in range(H):
                        sums[j] += direct[j]
            base = held * width
            dr, dz = das[base:base + size], das[part + base:part + base + size]
            dn = das[2 * part + base:2 * part + base + size]
            drn = das[3 * part + base:3 * part + base + size]
            for j in range(size):
                dn[j] = e[j] * (number(1.0, e[j]) - update[j])
                dz[j] = e[j] * (state[j] - new[j])
            pull(code, alpha, own, pre[2 * size:], new, dn, dq[b], rows, width)
            pull(gate, beta, own, pre[size:], update, dz, dq[b], rows, width)
            if clips:
                clipped[b] += clamp(dn, number(clip, dn[0]), rows, width, H)
                clipped[b] += clamp(dz, number(clip, dz[0]), rows, width, H)
            if before:
                product(other, width, dn, width, 1, w[2 * H * width:], 0, H, rows, width // lane,
                        lane, False)
                for j in range(size):
                    dr[j] = other[j] * state[j]
                    e[j] = e[j] * update[j] + other[j] * reset[j]
                    other[j] = reset[j] * state[j]
                store(second, held * wide, wide, other, rows, width, H)
            else:
                load(other, products, at * H, H, rows, width, H)
                for j in range(size):
                    dr[j] = dn[j] * other[j]
                    drn[j] = dn[j] * reset[j]
                    e[j] = e[j] * update[j]
                product(e, width, drn, width, 1, w[2 * H * width:], 0, H, rows, width // lane,
                        lane, True)
            pull(gate, beta, own, pre, reset, dr, dq[b], rows, width)
            if clips:
                clipped[b] += clamp(dr, number(clip, dr[0]), rows, width, H)
            for n in range(2):
                product(e, width, das[n * part + base:], width, 1, w[n * H * width:], 0, H, rows,
                        width // lane, lane, True)
            load(seen[held * wide:], states, at * H, H, rows, wide, H)
            load(seen[held * wide + H:], xs, at * D, D, rows, wide, D)
            load(second[held * wide + H:], xs, at * D, D, rows, wide, D)
            held += rows
            if held + rows > chunk or t == 0:
                for n in range(groups):
                    da, total = das[n * part:(n + 1) * part], totals[n * H * wide:]
                    if n != 2 or before:
                        product(total, wide, da, 1, width, second if n == 2 else seen, wide,
                                held, H, wide // lane, lane, True)
                    else:  # its product with the state went through the reset gate: part 3
                        product(total[whole:], wide, da, 1, width, seen[whole:], wide, held, H,
                                (wide - whole) // lane, lane, True)
                    if wants_dx and n < 3:
                        product(dinputs, padded, da, width, 1, wx[n * H * padded:], 0, H, held,
                                padded // lane, lane, n > 0)
                if wants_dx:
                    for m in range(held):
                        copy(slopes, (at + (held - 1 - m) // rows * B + m % rows) * D, dinputs,
                             m * padded, D)
                held = 0
        store(starting, start * H, H, e, rows, width, H)
        for n in range(groups):
            share(parts[b], groups, n, totals[n * H * wide:], H, D, wide)
