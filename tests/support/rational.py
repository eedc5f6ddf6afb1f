"""Cells and nets on rational numbers: activations, shapes, cases, and planted bugs."""

from fractions import Fraction
from functools import partial

import numpy as np

from refnet.maths.activations import ACTIVATIONS, Activation
from refnet.nets.recurrent import RecurrentNet
from support.strategies import case_of

SOFTSIGN = ACTIVATIONS["softsign"]
RATIONAL_GATE = Activation(  # (1 + softsign(a)) / 2: rational, in (0, 1), generic slope
    "rational_gate",
    lambda a, p, alpha: (1 + SOFTSIGN.forward(a, p)) / 2,
    lambda a, h, dh, p, alpha: (SOFTSIGN.backward(a, 2 * h - 1, dh, p)[0] / 2, {}),
    rational=True,
)


def generic(rng, shape, under=97):
    """Fractions without zeros, ties or repeated entries, so that every planted bug shows."""
    values = rng.choice(np.arange(1, 400), size=shape, replace=False)
    signs = rng.choice([-1, 1], size=shape)
    return np.vectorize(lambda v: Fraction(int(v), under), otypes=[object])(values * signs)


def generic_case(net, seed, T=3, B=2, mask=False, h0=1):
    """A case of ``generic`` numbers, for any net; with ``mask``, of sequences of 3, 2 and 0
    steps."""
    counted = np.arange(T)[:, None] < np.array([3, 2, 0])[:B] if mask else None
    h0 = h0 if isinstance(net, RecurrentNet) else None
    return case_of(partial(generic, np.random.default_rng(seed)), net, T, B, h0, counted)


RNN_BUGS = {
    "wrong transpose": ('carry = matmul(da[t], p["Whh"])', 'carry = matmul(da[t], p["Whh"].T)'),
    "dropped carry": ("g = carry + dh[t - first] if t >= first else carry", "g = dh[t - first]"),
    "h[t] for h[t-1]": ("h[:-1].reshape", "h[1:].reshape"),
    "missing bias sum": ("rows.sum(axis=0)", "rows[0]"),
    "missing h0 gradient": ('"h0": carry', '"h0": carry * 0'),
    "derivative at the wrong array": (
        "act.backward(a[t], h[t + 1], g, p)",
        "act.backward(h[t], h[t], g, p)",
    ),
    "input gradient through the wrong step": (
        'grads["x"] = matmul(rows, p["Wxh"])',
        'grads["x"] = matmul(rows[::-1], p["Wxh"])',
    ),
    "one entry off by 0.1%": (
        "    if inputs:\n",
        "    grads['Whh'][0, 0] *= 1 + type(grads['Whh'][0, 0])(1) / 1000\n    if inputs:\n",
    ),
}
