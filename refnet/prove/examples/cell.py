"""A cell: the minimal gated unit, whose one gate forgets and resets, and its
kernel::

    f = s(a_f);  n = act(Wxn x[t] + bn + Whn (f h[t]))
    h[t+1] = (1 - f) h[t] + f n

    refnet train temporal-order --cell mine.py:MGU
    refnet prove mine.py:MGU

refnet/cells/__init__.py says what a cell has, refnet/compiled/step.py what a
kernel has. Without KERNEL (then leave out all that stands above ``class MGU``)
the cell runs in NumPy.
Source: Zhou, Wu, Zhang & Zhou (2016), eq. 6.
"""

import numpy as np

from refnet.cells.common import clip_into, dropped
from refnet.cells.gru_before import SIGMOID, Tape
from refnet.compiled._jit import inlined
from refnet.compiled.step import Cell, Product, activate, slope
from refnet.compiled.vector import number
from refnet.compiled.walk import Gated, Walk
from refnet.maths.numeric import matmul


@inlined
def step(at, stage):
    """``f = s(a_f);  s = f h``; then ``n = act(a_n);  h = (1 - f) h + f n``."""
    f, n, s, _ = at.panels
    (h,) = at.state
    if stage == 0:
        activate(at, at.gate, 0, f)
        for j in range(len(h)):
            s[j] = f[j] * h[j]
    else:
        activate(at, at.act, 1, n)
        for j in range(len(h)):
            h[j] = (number(1.0, h[j]) - f[j]) * h[j] + f[j] * n[j]


@inlined
def step_back(at, stage):
    """As ``MGU.backward`` says, ds being made between the two stages."""
    f, n, s, ds = at.panels
    df, dn = at.da
    (h,) = at.states
    (e,) = at.e
    if stage == 0:
        for j in range(len(e)):
            dn[j] = e[j] * f[j]
        slope(at, at.act, 1, n, dn)
    else:
        for j in range(len(e)):
            df[j] = e[j] * (n[j] - h[j]) + ds[j] * h[j]
            e[j] = e[j] * (number(1.0, e[j]) - f[j]) + ds[j] * f[j]
            s[j] = f[j] * h[j]
        slope(at, at.gate, 0, f, df)


PRODUCTS = Product(0), Product(1, second=True)
CELL = Cell(PRODUCTS, extra=2, reads=(0,), direct=True)
WALK = Walk("MGU", CELL, step, step_back)


class MGU:
    """The cell: functions of arrays, in NumPy, for numbers of any type."""

    GATES = ("f", "n")
    CANDIDATE = "n"
    STATES = 1
    OPTIONAL = ()
    KERNEL = Gated(WALK, Tape, "xhav")  # its tape has x, h, a and v

    def init(hidden):
        return {"bh": np.zeros(2 * hidden)}

    def forward(p, x, h0, act, gate=SIGMOID, drop=None):
        (T, B, D), H = x.shape, p["Whh"].shape[1]
        a = matmul(x.reshape(T * B, D), p["Wxh"].T) + p["bh"]
        a = a.reshape(T, B, 2, H)
        v, h = np.empty_like(a), np.empty_like(a, shape=(T + 1, B, H))
        h[0] = h0
        for t in range(T):
            seen = dropped(h[t], drop)
            a[t, :, 0] += matmul(seen, p["Whh"][:H].T)
            f = v[t, :, 0] = gate.forward(a[t, :, 0], p)
            a[t, :, 1] += matmul(f * seen, p["Whh"][H:].T)
            n = v[t, :, 1] = act.forward(a[t, :, 1], p)
            h[t + 1] = (1 - f) * h[t] + f * n
        return Tape(x, h, a, v)

    def backward(p, tape, dh, act, inputs=True, gate=SIGMOID, **options):
        """One step earlier ``e = dh + (1 - f) e + f ds + da_f Whf``, with::

        da_n = act'(a_n) (f e);  ds = da_n Whn
        da_f = s'(a_f) ((n - h) e + h ds)
        """
        clip, drop = options.get("clip"), options.get("drop")
        Whf, Whn = np.split(p["Whh"], 2)
        x, h, a, v = tape
        T, B, _, H = a.shape
        da, e, clipped = np.empty_like(a), np.zeros_like(a, shape=(B, H)), 0
        totals = {name: np.zeros_like(p[name]) for name, *_ in act.start}
        for t in reversed(range(T)):
            if t >= T - len(dh):
                e = e + dh[t - T + len(dh)]
            f, n = v[t, :, 0], v[t, :, 1]
            da[t, :, 1], slopes = act.backward(a[t, :, 1], n, e * f, p)
            clipped += clip_into(da[t, :, 1], clip)
            ds = dropped(matmul(da[t, :, 1], Whn), drop)
            df = e * (n - h[t]) + ds * h[t]
            da[t, :, 0], _ = gate.backward(a[t, :, 0], f, df, p)
            clipped += clip_into(da[t, :, 0], clip)
            for name, d in slopes.items():
                totals[name] = np.asanyarray(totals[name] + d)
            past = dropped(matmul(da[t, :, 0], Whf), drop)
            e = e * (1 - f) + ds * f + past
        seen, rows = dropped(h[:-1], drop), da.reshape(T * B, 2 * H)
        past, reset = (s.reshape(T * B, H) for s in (seen, v[:, :, 0] * seen))
        dWhf = matmul(rows[:, :H].T, past)
        dWhn = matmul(rows[:, H:].T, reset)
        grads = {
            "Whh": np.concatenate([dWhf, dWhn]),
            "Wxh": matmul(rows.T, x.reshape(T * B, x.shape[2])),
            "bh": rows.sum(axis=0),
            "h0": e,
            **totals,
        }
        if clip is not None:
            grads["clipped"] = np.asarray(clipped)
        if inputs:
            grads["x"] = matmul(rows, p["Wxh"]).reshape(x.shape)
        return grads
