"""The LSTM of ``refnet.cells.lstm``, compiled: the simple net's products once a gate.

Blocks of rows, tape and bits as in ``refnet.compiled.rnn``; ``a`` is kept only where a slope
does not follow from the gates' values.
"""

from typing import Any

import numpy as np

from refnet.activations import Activation
from refnet.batch import Array, Params
from refnet.cells import check_shapes
from refnet.cells.lstm import CANDIDATE, GATES, PEEPHOLES, SIGMOID, STATES, Tape, init
from refnet.compiled._jit import inner, jit, run
from refnet.compiled.activations import (clamp, needs_a, own_gradients, own_parameter, pull,
                                         push, settings)
from refnet.compiled.layout import (aligned, boundary, layout, load, normal, pack, product, share,
                                    shares, spaces, store, summed)
from refnet.compiled.rnn import CHUNK
from refnet.compiled.vector import copy, number

__all__ = ["CANDIDATE", "GATES", "STATES", "Tape", "backward", "forward", "init"]


def _used(p: Params, act: Activation) -> Params:
    names = ("Whh", "Wxh", "bh", *PEEPHOLES, *(name for name, *_ in act.start))
    return {name: p[name] for name in names if name in p}


def _peepholes(p: Params, width: int, dtype: Any) -> Array:
    """Wpi, Wpf, Wpo padded, (3, width), zero for those that p lacks; (0, width) without any."""
    present = any(name in p for name in PEEPHOLES)
    out = aligned((3 * present, width), dtype)
    for n, name in enumerate(PEEPHOLES):
        if name in p:
            out[n, :p[name].size] = p[name]
    return out


def forward(p: Params, x: Array, h0: Array, act: Activation, gate: Activation = SIGMOID) -> Tape:
    """As ``refnet.cells.lstm.forward``, float32 or float64; the tape's ``a`` may be None.

    Checked by: tests/test_compiled.py::test_gated_matches_the_reference.
    """
    check_shapes("lstm", p, x, h0, 4, STATES, tuple(name for name in PEEPHOLES if name in p))
    lay = layout("lstm.forward", _used(p, act), x, h0)
    T, B, D, H = lay.T, lay.B, lay.D, lay.H
    h, c = (np.empty((T + 1, B, H), lay.dtype) for _ in range(2))
    h[0], c[0] = h0
    keeps = needs_a(act) or needs_a(gate)
    a = np.empty((T, B, 4, H) if keeps else (0, 0, 4, 0), lay.dtype)
    v, k = np.empty((T, B, 4, H), lay.dtype), np.empty((T, B, H), lay.dtype)
    x = normal(x, lay.dtype)
    Whh, Wxh, bh = (normal(part, lay.dtype) for part in (p["Whh"], p["Wxh"], p["bh"][:, None]))
    row = H + D + 1
    work = spaces(lay, 4 * row * lay.width + lay.rows * (6 * lay.width + row))
    run(_forward_blocks, lay.blocks, work, lay.starts, lay.width, lay.lane,
        *settings(act, lay.dtype), *settings(gate, lay.dtype), own_parameter(act, p, lay),
        _peepholes(p, lay.width, lay.dtype), Whh, Wxh, bh, x, a, v, k, h, c)
    return Tape(x, h, c, a if keeps else None, v, k)  # type: ignore[arg-type]


@inner
def _add_product(c: Any, cs: int, w: Any, ws: int, s: Any, rows: int, width: int) -> None:
    """``c += w s``, row by row, those of c and w being cs and ws apart: 0 for a single one."""
    for r in range(rows):
        to, by, own = (c[r * cs:r * cs + width], w[r * ws:r * ws + width],
                       s[r * width:(r + 1) * width])
        for j in range(width):
            to[j] += by[j] * own[j]


@jit
def _forward_blocks(begin: int, end: int, work: Any, starts: Any, width: int, lane: int,
                    code: int, alpha: Any, gate: int, beta: Any, own: Any, peep: Any, Whh: Any,
                    Wxh: Any, bh: Any, x: Any, a: Any, v: Any, k: Any, h: Any, c: Any) -> None:
    (T, B, D), H = x.shape, h.shape[2]
    xs, states, cells, outs = x.reshape(-1), h.reshape(-1), c.reshape(-1), k.reshape(-1)
    values, kept = v.reshape(-1), a.reshape(-1)
    row = H + D + 1
    work = work[boundary(work):]
    w, rest = work[:4 * row * width], work[4 * row * width:]
    w[:] = 0
    pack(w, 0, row, Whh, 4, lane, True)
    pack(w, H, row, Wxh, 4, lane, True)
    pack(w, H + D, row, bh, 4, lane, True)
    for b in range(begin, end):
        start, rows = starts[b], starts[b + 1] - starts[b]
        size = rows * width
        z = rest[:4 * size]
        i, f, g, o = z[:size], z[size:2 * size], z[2 * size:3 * size], z[3 * size:]
        cell, squashed = rest[4 * size:5 * size], rest[5 * size:6 * size]
        inputs = rest[6 * size:6 * size + rows * row]  # [h | x | 1]
        for j in range(size):
            cell[j] = 0
        load(inputs, states, start * H, H, rows, row, H)
        load(cell, cells, start * H, H, rows, width, H)
        for r in range(rows):
            inputs[r * row + H + D] = 1
        for t in range(T):
            at = t * B + start
            load(inputs[H:], xs, at * D, D, rows, row, D)
            for n in range(4):
                product(z[n * size:], width, inputs, row, 1, w[n * row * width:], 0, row, rows,
                        width // lane, lane, False)
            if len(peep):
                _add_product(i, width, peep[0], 0, cell, rows, width)
                _add_product(f, width, peep[1], 0, cell, rows, width)
            if len(a):
                for n in range(3):
                    store(kept, (at * 4 + n) * H, 4 * H, z[n * size:], rows, width, H)
            push(gate, beta, own, z[:2 * size], 2 * rows, width)
            push(code, alpha, own, g, rows, width)
            for j in range(size):
                cell[j] = f[j] * cell[j] + i[j] * g[j]
            if len(peep):
                _add_product(o, width, peep[2], 0, cell, rows, width)
            if len(a):
                store(kept, (at * 4 + 3) * H, 4 * H, o, rows, width, H)
            push(gate, beta, own, o, rows, width)
            for n in range(4):
                store(values, (at * 4 + n) * H, 4 * H, z[n * size:], rows, width, H)
            for j in range(size):
                squashed[j] = cell[j]
            push(code, alpha, own, squashed, rows, width)
            store(cells, (at + B) * H, H, cell, rows, width, H)
            store(outs, at * H, H, squashed, rows, width, H)
            for j in range(size):
                squashed[j] = o[j] * squashed[j]
            store(states, (at + B) * H, H, squashed, rows, width, H)
            store(inputs, 0, row, squashed, rows, width, H)


def backward(p: Params, tape: Tape, dh: Array, act: Activation, inputs: bool = True,
             gate: Activation = SIGMOID, dc: Array | None = None, clip: float | None = None
             ) -> Params:
    """As ``refnet.cells.lstm.backward``, float32 or float64; the bits as in
    ``refnet.compiled.rnn.backward``.

    Checked by: tests/test_compiled.py::test_gated_matches_the_reference.
    """
    dc = np.zeros_like(tape.c[0]) if dc is None else dc
    lay = layout("lstm.backward", _used(p, act), tape.x, tape.h, dh, dc)
    T, B, D, H = lay.T, lay.B, lay.D, lay.H
    x, h, c, v, k, dh, dc = (normal(value, lay.dtype) for value in (
        tape.x, tape.h, tape.c, tape.v, tape.k, dh, dc))
    keeps = needs_a(act) or needs_a(gate)
    a = normal(tape.a, lay.dtype) if keeps else np.empty((0, 0, 4, 0), lay.dtype)
    Whh, Wxh = (normal(p[name], lay.dtype) for name in ("Whh", "Wxh"))
    padded, wide = (-(-n // lay.lane) * lay.lane for n in (D, H + D + 1))
    chunk = max(CHUNK // max(lay.rows, 1), 1) * lay.rows
    peep = _peepholes(p, lay.width, lay.dtype)
    work = spaces(lay, 4 * H * (lay.width + padded + wide) + lay.rows * 12 * lay.width
                  + chunk * (4 * lay.width + padded + wide))
    parts = shares(lay, 4)
    dq = np.zeros((lay.blocks, lay.width), lay.dtype)
    dpeep = np.zeros((lay.blocks, 3, lay.width), lay.dtype)
    dx = np.empty((T, B, D) if inputs else (0, 0, 0), lay.dtype)
    dh0 = np.empty((2, B, H), lay.dtype)
    clipped = np.zeros(lay.blocks, np.int64)
    run(_backward_blocks, lay.blocks, work, lay.starts, lay.width, lay.lane, chunk,
        *settings(act, lay.dtype), *settings(gate, lay.dtype), own_parameter(act, p, lay), peep,
        clip is not None, clip or 0.0, Whh, Wxh, x, a, v, k, h, c, dh, dc, inputs, dx, dh0,
        parts, dq, dpeep, clipped)
    grads = {**summed(lay, parts, 4), "h0": dh0, **own_gradients(act, p, dq, H)}
    slopes = dpeep.sum(axis=0)
    grads |= {name: slopes[n, :H].copy() for n, name in enumerate(PEEPHOLES) if name in p}
    if clip is not None:
        grads["clipped"] = np.asarray(int(clipped.sum()))
    if inputs:
        grads["x"] = dx
    return grads


@jit
def _backward_blocks(begin: int, end: int, work: Any, starts: Any, width: int, lane: int,
                     chunk: int, code: int, alpha: Any, gate: int, beta: Any, own: Any,
                     peep: Any, clips: bool, clip: Any, Whh: Any, Wxh: Any, x: Any, a: Any,
                     v: Any, k: Any, h: Any, c: Any, dh: Any, dc: Any, wants_dx: bool, dx: Any,
                     dh0: Any, parts: Any, dq: Any, dpeep: Any,
                     clipped: Any) -> None:
    (T, B, D), H = x.shape, h.shape[2]
    xs, states, cells, outs = x.reshape(-1), h.reshape(-1), c.reshape(-1), k.reshape(-1)
    values, kept, slopes = v.reshape(-1), a.reshape(-1), dx.reshape(-1)
    starting = dh0.reshape(-1)
    first = T - len(dh)
    padded, wide = (D + lane - 1) // lane * lane, (H + D + lane) // lane * lane
    work = work[boundary(work):]
    w, wx, rest = (work[:4 * H * width], work[4 * H * width:4 * H * (width + padded)],
                   work[4 * H * (width + padded):])
    work[:4 * H * (width + padded)] = 0
    pack(w, 0, H, Whh, 4, lane, False)
    if wants_dx:
        pack(wx, 0, H, Wxh, 4, lane, False)
    for b in range(begin, end):
        start, rows = starts[b], starts[b + 1] - starts[b]
        size = rows * width
        e, q, out = rest[:size], rest[size:2 * size], rest[2 * size:3 * size]
        gates, pre = rest[3 * size:7 * size], rest[7 * size:11 * size]
        cell = rest[11 * size:12 * size]
        i, f, g, o = (gates[:size], gates[size:2 * size], gates[2 * size:3 * size],
                      gates[3 * size:])
        at = 12 * size + 4 * H * wide
        totals = rest[12 * size:at]
        seen = rest[at:at + chunk * wide]  # [h | x | 1]
        at += chunk * wide
        das = rest[at:at + 4 * chunk * width]
        at += 4 * chunk * width
        dinputs = rest[at:at + chunk * padded]
        for j in range(12 * size + (4 * H + chunk) * wide):
            rest[j] = 0
        for r in range(chunk):
            seen[r * wide + H + D] = 1
        load(q, dc.reshape(-1), start * H, H, rows, width, H)
        held = 0
        for t in range(T - 1, -1, -1):
            at = t * B + start
            load(out, outs, at * H, H, rows, width, H)
            load(cell, cells, (at + B) * H, H, rows, width, H)
            for n in range(4):
                load(gates[n * size:], values, (at * 4 + n) * H, 4 * H, rows, width, H)
                if len(a):
                    load(pre[n * size:], kept, (at * 4 + n) * H, 4 * H, rows, width, H)
            if t >= first:
                for r in range(rows):
                    sums = e[r * width:r * width + H]
                    own_row = dh[t - first, start + r]
                    for j in range(H):
                        sums[j] += own_row[j]
            base, part = held * width, chunk * width
            di, df = das[base:base + size], das[part + base:part + base + size]
            dg = das[2 * part + base:2 * part + base + size]
            do = das[3 * part + base:3 * part + base + size]
            for j in range(size):
                do[j] = e[j] * out[j]
            pull(gate, beta, own, pre[3 * size:], o, do, dq[b], rows, width)
            if clips:
                clipped[b] += clamp(do, number(clip, do[0]), rows, width, H)
            for j in range(size):
                e[j] = e[j] * o[j]
            pull(code, alpha, own, cell, out, e, dq[b], rows, width)
            for j in range(size):
                q[j] += e[j]
            if len(peep):
                _add_product(q, width, peep[2], 0, do, rows, width)
                _add_product(dpeep[b, 2], 0, do, width, cell, rows, width)
            load(cell, cells, at * H, H, rows, width, H)
            for j in range(size):
                di[j] = q[j] * g[j]
                df[j] = q[j] * cell[j]
                dg[j] = q[j] * i[j]
            pull(gate, beta, own, pre, i, di, dq[b], rows, width)
            pull(gate, beta, own, pre[size:], f, df, dq[b], rows, width)
            pull(code, alpha, own, pre[2 * size:], g, dg, dq[b], rows, width)
            if clips:
                for n in range(3):
                    da = das[n * part + base:n * part + base + size]
                    clipped[b] += clamp(da, number(clip, da[0]), rows, width, H)
            for j in range(size):
                q[j] = q[j] * f[j]
            if len(peep):
                _add_product(q, width, peep[0], 0, di, rows, width)
                _add_product(q, width, peep[1], 0, df, rows, width)
                _add_product(dpeep[b, 0], 0, di, width, cell, rows, width)
                _add_product(dpeep[b, 1], 0, df, width, cell, rows, width)
            for n in range(4):
                product(e, width, das[n * part + base:], width, 1, w[n * H * width:], 0, H, rows,
                        width // lane, lane, n > 0)
            load(seen[held * wide:], states, at * H, H, rows, wide, H)
            load(seen[held * wide + H:], xs, at * D, D, rows, wide, D)
            held += rows
            if held + rows > chunk or t == 0:
                for n in range(4):
                    product(totals[n * H * wide:], wide, das[n * part:], 1, width, seen, wide, held,
                            H, wide // lane, lane, True)
                    if wants_dx:
                        product(dinputs, padded, das[n * part:], width, 1, wx[n * H * padded:],
                                0, H, held, padded // lane, lane, n > 0)
                if wants_dx:
                    for m in range(held):
                        copy(slopes, (at + (held - 1 - m) // rows * B + m % rows) * D, dinputs,
                             m * padded, D)
                held = 0
        store(starting, start * H, H, e, rows, width, H)
        store(starting, (B + start) * H, H, q, rows, width, H)
        for n in range(4):
            share(parts[b], 4, n, totals[n * H * wide:], H, D, wide)
