"""Cases of rational numbers, and planted bugs."""

from functools import partial

import numpy as np

from refnet.nets.recurrent import RecurrentNet
from refnet.prove.checks import generic
from support.strategies import case_of


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
