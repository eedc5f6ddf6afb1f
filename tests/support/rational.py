"""Cells and nets on rational numbers: activations, shapes, cases, and planted bugs."""

from importlib import import_module

import numpy as np

from refnet.batch import Batch
from refnet.maths.activations import ACTIVATIONS
from refnet.nets.recurrent import RecurrentNet
from refnet.prove.checks import RATIONAL_GATE as RATIONAL_GATE, generic as generic
from support.strategies import Case

SOFTSIGN = ACTIVATIONS["softsign"]


def shapes(name, T, B, D, H, act, peepholes=()):
    cell = import_module(f"refnet.cells.{name}")
    G = len(cell.GATES)
    need = {"Whh": (G * H, H), "Wxh": (G * H, D), "bh": (G * H,)}
    need |= {name: shape(H) for name, shape, _ in act.start}
    need |= dict.fromkeys(peepholes, (H,))
    if name == "gru":
        need["bhn"] = (H,)
    h0 = (B, H) if cell.STATES == 1 else (2, B, H)
    return cell, need, (T, B, D), h0


def net_shapes(net, B, h0=None):
    """The shapes of the parameters, with initial states if ``h0`` is 0 (shared) or 1."""
    start = net.init(np.random.default_rng(0), np.float64)
    states = {
        name: tuple(B if n == "B" else n for n in options[h0])
        for name, options in net.shapes.items()
        if name.startswith("h0") and h0 is not None
    }
    return {**{name: value.shape for name, value in start.items()}, **states}


def generic_case(net, seed, T=3, B=2, mask=False, h0=1):
    """A case of ``generic`` numbers, for any net; with ``mask``, of sequences of 3, 2 and 0
    steps."""
    rng = np.random.default_rng(seed)
    recurrent = isinstance(net, RecurrentNet)
    params = {name: generic(rng, shape) for name, shape in net_shapes(net, B, h0).items()}
    x = generic(rng, (T, B, net.inputs) if recurrent else (B, net.widths[0]))
    lead = (T, B) if recurrent and net.readout != "last" else (B,)
    y = generic(rng, (*lead, net.outputs if recurrent else net.widths[-1]))
    direction = {name: generic(rng, value.shape) for name, value in {**params, "x": x}.items()}
    counted = np.arange(T)[:, None] < np.array([3, 2, 0])[:B] if mask else None
    return Case(net, params, Batch(x, y, counted), direction, generic(rng, y.shape))


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
