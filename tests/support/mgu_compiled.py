"""The minimal gated unit of ``mgu``, compiled."""

from refnet.compiled import walk
from refnet.compiled._jit import inlined
from refnet.compiled.step import Cell, Product, activate, slope
from refnet.compiled.vector import number
from refnet.compiled.walk import Walk
from support.mgu import SIGMOID, Tape


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
    """As ``mgu.backward`` says, ds being made between the two stages."""
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


CELL = Cell((Product(0), Product(1, second=True)), own=2, reads=((0, 0),), direct=True)
WALK = Walk(CELL, step, step_back)


def forward(p, x, h0, act, gate=SIGMOID, keeps="tape", lengths=None):
    x, h, _, a, v, _ = WALK.forward("mgu.forward", p, x, h0, act, gate, keeps, lengths)
    return Tape(x, h, a, v)


def backward(p, tape, dh, act, inputs=True, gate=SIGMOID, **options):
    x, h, a, v = tape
    seen = walk.Tape(x, h, None, a, v, None)
    return WALK.backward("mgu.backward", p, seen, dh, act, gate, inputs, **options)
