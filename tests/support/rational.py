"""Cells and nets on rational numbers: activations, shapes, cases, and planted bugs."""

from fractions import Fraction
from importlib import import_module

import numpy as np

from refnet.batch import Batch
from refnet.maths.activations import ACTIVATIONS, Activation
from refnet.nets.recurrent import RecurrentNet
from support.strategies import Case

SOFTSIGN = ACTIVATIONS["softsign"]
RATIONAL_GATE = Activation(  # (1 + softsign(a)) / 2: rational, in (0, 1), generic slope
    "rational_gate",
    lambda a, p, alpha: (1 + SOFTSIGN.forward(a, p)) / 2,
    lambda a, h, dh, p, alpha: (SOFTSIGN.backward(a, 2 * h - 1, dh, p)[0] / 2, {}),
    rational=True,
)


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


def generic_case(net, seed, learn_h0=True):
    """A case without zeros, ties or repeated entries, so that every planted bug shows."""
    rng = np.random.default_rng(seed)

    def draw(shape):
        values = rng.choice(np.arange(1, 400), size=shape, replace=False)
        signs = rng.choice([-1, 1], size=shape)
        return np.vectorize(lambda v: Fraction(int(v), 97), otypes=[object])(values * signs)

    T, B = 3, 2
    if isinstance(net, RecurrentNet):
        H = net.hidden
        shapes = {
            "Whh": (H, H),
            "Wxh": (H, net.inputs),
            "bh": (H,),
            "Why": (net.outputs, H),
            "by": (net.outputs,),
            "h0": (B, H),
            **{name: shape(H) for name, shape, _ in net.activation.start},
        }
        steps = (T, B) if net.readout == "every" else (B,)
        x, y = draw((T, B, net.inputs)), draw((*steps, net.outputs))
    else:
        shapes = {}
        for layer in range(1, net.depth + 2):
            shapes[f"W{layer}"] = (net.widths[layer], net.widths[layer - 1])
            shapes[f"b{layer}"] = (net.widths[layer],)
        x, y = draw((B, net.widths[0])), draw((B, net.widths[-1]))
    params = {name: draw(shape) for name, shape in shapes.items()}
    direction = {name: draw(value.shape) for name, value in {**params, "x": x}.items()}
    return Case(net, params, Batch(x, y), direction, draw(y.shape))


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
