"""The LSTM of ``refnet.cells.lstm``, compiled: one product like the simple net's for each gate.

Blocks of rows, the tape and the reproducible bits are as in ``refnet.compiled.rnn``; ``a`` is kept
only where a slope cannot be computed from the gates' values.
"""

from typing import Any

import numpy as np

from refnet.batch import Array, Params
from refnet.cells.lstm import CANDIDATE, GATES, PEEPHOLES, SIGMOID, STATES, Tape, init
from refnet.compiled._jit import inner, jit, run
from refnet.compiled.activations import (clamp, needs_a, own_gradients, own_parameter, pull, push,
                                         settings)
from refnet.compiled.layout import (add_rows, aligned, boundary, layout, normal, pack, product,
                                    share, shares, spaces, summed)
from refnet.compiled.rnn import CHUNK
from refnet.compiled.vector import FLUSH, clear, copy_rows, cut, fetch, float_control, number
from refnet.maths.activations import Activation

__all__ = ["CANDIDATE", "GATES", "STATES", "Tape", "backward", "forward", "init"]


def _used(p: Params, act: Activation) -> Params:
    names = ("Whh", "Wxh", "bh", *PEEPHOLES, *(name for name, *_ in act.start))
    return {name: p[name] for name in names if name in p}


def _peepholes(p: Params, width: int, dtype: Any) -> Array:
    """Wpi, Wpf, Wpo, padded: (3, width), zeros where p has none of that name; (0, width) if p has
    no peephole."""
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
    """``c += w s``, row by row. The rows of c are cs apart, those of w ws apart, where 0 means that
    there is one row for all."""
    for r in range(rows):
        to, by, own = cut(c, r * cs, width), cut(w, r * ws, width), cut(s, r * width, width)
        for j in range(width):
            to[j] += by[j] * own[j]


@jit
def _forward_blocks(begin: int, end: int, work: Any, starts: Any, width: int, lane: int,
                    code: int, alpha: Any, gate: int, beta: Any, own: Any, peep: Any, Whh: Any,
                    Wxh: Any, bh: Any, x: Any, a: Any, v: Any, k: Any, h: Any, c: Any) -> None:
    mode = float_control(-1, FLUSH)
    (T, B, D), H = x.shape, h.shape[2]
    xs, states, cells = cut(x, 0, x.size), cut(h, 0, h.size), cut(c, 0, c.size)
    outs, values, kept = cut(k, 0, k.size), cut(v, 0, v.size), cut(a, 0, a.size)
    row, vectors = H + D + 1, width // lane
    part, free = row * width, boundary(work)
    clear(work, free, 4 * part)
    w = cut(work, free, 4 * part)
    free += 4 * part
    pack(w, 0, row, Whh, 4, lane, True)
    pack(w, H, row, Wxh, 4, lane, True)
    pack(w, H + D, row, bh, 4, lane, True)
    for b in range(begin, end):
        start, rows = starts[b], starts[b + 1] - starts[b]
        size = rows * width
        z, cell, squashed = (cut(work, free, 4 * size), cut(work, free + 4 * size, size),
                             cut(work, free + 5 * size, size))
        i, f, g, o = (cut(z, 0, size), cut(z, size, size), cut(z, 2 * size, size),
                      cut(z, 3 * size, size))
        inputs = cut(work, free + 6 * size, rows * row)  # [h | x | 1]
        clear(cell, 0, size)
        copy_rows(inputs, 0, row, states, start * H, H, rows, H)
        copy_rows(cell, 0, width, cells, start * H, H, rows, H)
        for r in range(rows):
            inputs[r * row + H + D] = 1
        for t in range(T):
            at = t * B + start
            copy_rows(inputs, H, row, xs, at * D, D, rows, D)
            for n in range(4):
                product(cut(z, n * size, size), width, inputs, row, 1, cut(w, n * part, part), 0,
                        row, rows, vectors, lane, False)
            fetch(states, (at + 2 * B) * H, rows * H)  # of the next step
            fetch(cells, (at + 2 * B) * H, rows * H)
            fetch(outs, (at + B) * H, rows * H)
            fetch(values, (at + B) * 4 * H, rows * 4 * H)
            if len(peep):
                _add_product(i, width, cut(peep, 0, width), 0, cell, rows, width)
                _add_product(f, width, cut(peep, width, width), 0, cell, rows, width)
            if len(a):
                for n in range(3):
                    copy_rows(kept, (at * 4 + n) * H, 4 * H, z, n * size, width, rows, H)
            push(gate, beta, own, z, 2 * rows, width)
            push(code, alpha, own, g, rows, width)
            for j in range(size):
                cell[j] = f[j] * cell[j] + i[j] * g[j]
            if len(peep):
                _add_product(o, width, cut(peep, 2 * width, width), 0, cell, rows, width)
            if len(a):
                copy_rows(kept, (at * 4 + 3) * H, 4 * H, o, 0, width, rows, H)
            push(gate, beta, own, o, rows, width)
            for n in range(4):
                copy_rows(values, (at * 4 + n) * H, 4 * H, z, n * size, width, rows, H)
            copy_rows(squashed, 0, 0, cell, 0, 0, 1, size)
            push(code, alpha, own, squashed, rows, width)
            copy_rows(cells, (at + B) * H, H, cell, 0, width, rows, H)
            copy_rows(outs, at * H, H, squashed, 0, width, rows, H)
            for j in range(size):
                squashed[j] = o[j] * squashed[j]
            copy_rows(states, (at + B) * H, H, squashed, 0, width, rows, H)
            copy_rows(inputs, 0, row, squashed, 0, width, rows, H)
    float_control(0, mode)


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
                     dh0: Any, parts: Any, dq: Any, dpeep: Any, clipped: Any) -> None:
    mode = float_control(-1, FLUSH)
    (T, B, D), H = x.shape, h.shape[2]
    xs, states, cells = cut(x, 0, x.size), cut(h, 0, h.size), cut(c, 0, c.size)
    outs, values, kept = cut(k, 0, k.size), cut(v, 0, v.size), cut(a, 0, a.size)
    last, slopes, starting = cut(dh, 0, dh.size), cut(dx, 0, dx.size), cut(dh0, 0, dh0.size)
    first, vectors = T - len(dh), width // lane
    shared = 4 * H * (H + D + 1)
    padded, wide = (D + lane - 1) // lane * lane, (H + D + lane) // lane * lane
    free = boundary(work)
    clear(work, free, 4 * H * (width + padded))
    w, wx = cut(work, free, 4 * H * width), cut(work, free + 4 * H * width, 4 * H * padded)
    free += 4 * H * (width + padded)
    pack(w, 0, H, Whh, 4, lane, False)
    if wants_dx:
        pack(wx, 0, H, Wxh, 4, lane, False)
    for b in range(begin, end):
        start, rows = starts[b], starts[b + 1] - starts[b]
        size, part = rows * width, chunk * width
        dqs, dpeeps = cut(dq, b * width, width), cut(dpeep, 3 * b * width, 3 * width)
        clear(work, free, 12 * size + (4 * H + chunk) * wide)
        e, q, out, cell = (cut(work, free, size), cut(work, free + size, size),
                           cut(work, free + 2 * size, size), cut(work, free + 3 * size, size))
        at = free + 4 * size
        gates, pre = cut(work, at, 4 * size), cut(work, at + 4 * size, 4 * size)
        i, f, g, o = (cut(gates, 0, size), cut(gates, size, size), cut(gates, 2 * size, size),
                      cut(gates, 3 * size, size))
        at += 8 * size
        totals, seen = cut(work, at, 4 * H * wide), cut(work, at + 4 * H * wide, chunk * wide)
        at += (4 * H + chunk) * wide
        das, dinputs = cut(work, at, 4 * part), cut(work, at + 4 * part, chunk * padded)
        for r in range(chunk):
            seen[r * wide + H + D] = 1  # rows [h | x | 1]
        copy_rows(q, 0, width, cut(dc, 0, dc.size), start * H, H, rows, H)
        held = 0
        for t in range(T - 1, -1, -1):
            at = t * B + start
            copy_rows(out, 0, width, outs, at * H, H, rows, H)
            copy_rows(cell, 0, width, cells, (at + B) * H, H, rows, H)
            for n in range(4):
                copy_rows(gates, n * size, width, values, (at * 4 + n) * H, 4 * H, rows, H)
                if len(a):
                    copy_rows(pre, n * size, width, kept, (at * 4 + n) * H, 4 * H, rows, H)
            if t >= first:
                add_rows(e, width, last, ((t - first) * B + start) * H, H, rows, H)
            base = held * width
            di, df = cut(das, base, size), cut(das, base + part, size)
            dg, do = cut(das, base + 2 * part, size), cut(das, base + 3 * part, size)
            for j in range(size):
                do[j] = e[j] * out[j]
            pull(gate, beta, own, cut(pre, 3 * size, size), o, do, dqs, rows, width)
            if clips:
                clipped[b] += clamp(do, number(clip, do[0]), rows, width, H)
            for j in range(size):
                e[j] = e[j] * o[j]
            pull(code, alpha, own, cell, out, e, dqs, rows, width)
            for j in range(size):
                q[j] += e[j]
            if len(peep):
                _add_product(q, width, cut(peep, 2 * width, width), 0, do, rows, width)
                _add_product(cut(dpeeps, 2 * width, width), 0, do, width, cell, rows, width)
            copy_rows(cell, 0, width, cells, at * H, H, rows, H)
            for j in range(size):
                di[j] = q[j] * g[j]
                df[j] = q[j] * cell[j]
                dg[j] = q[j] * i[j]
            pull(gate, beta, own, pre, i, di, dqs, rows, width)
            pull(gate, beta, own, cut(pre, size, size), f, df, dqs, rows, width)
            pull(code, alpha, own, cut(pre, 2 * size, size), g, dg, dqs, rows, width)
            if clips:
                for n in range(3):
                    da = cut(das, n * part + base, size)
                    clipped[b] += clamp(da, number(clip, da[0]), rows, width, H)
            for j in range(size):
                q[j] = q[j] * f[j]
            if len(peep):
                _add_product(q, width, cut(peep, 0, width), 0, di, rows, width)
                _add_product(q, width, cut(peep, width, width), 0, df, rows, width)
                _add_product(cut(dpeeps, 0, width), 0, di, width, cell, rows, width)
                _add_product(cut(dpeeps, width, width), 0, df, width, cell, rows, width)
            for n in range(4):
                product(e, width, cut(das, n * part + base, size), width, 1,
                        cut(w, n * H * width, H * width), 0, H, rows, vectors, lane, n > 0)
            copy_rows(seen, held * wide, wide, states, at * H, H, rows, H)
            copy_rows(seen, held * wide + H, wide, xs, at * D, D, rows, D)
            held += rows
            if held + rows > chunk or t == 0:
                for n in range(4):
                    da = cut(das, n * part, part)
                    product(cut(totals, n * H * wide, H * wide), wide, da, 1, width, seen, wide,
                            held, H, wide // lane, lane, True)
                    if wants_dx:
                        product(dinputs, padded, da, width, 1,
                                cut(wx, n * H * padded, H * padded), 0, H, held, padded // lane,
                                lane, n > 0)
                if wants_dx:
                    for n in range(held // rows):
                        copy_rows(slopes, (at + n * B) * D, D, dinputs,
                                  (held - (n + 1) * rows) * padded, padded, rows, D)
                held = 0
        copy_rows(starting, start * H, H, e, 0, width, rows, H)
        copy_rows(starting, (B + start) * H, H, q, 0, width, rows, H)
        for n in range(4):
            share(cut(parts, b * shared, shared), 4, n, cut(totals, n * H * wide, H * wide), H, D,
                  wide)
    float_control(0, mode)
