"""Stacked nets of rationals and of floats."""

from dataclasses import replace
from fractions import Fraction

import numpy as np

from refnet.batch import Batch
from refnet.nets.stacked import StackedNet
from support.rational import RATIONAL_GATE
from support.strategies import Case

GATE = replace(RATIONAL_GATE, name="sigmoid")
"""A gate of rationals for which 1 - s(a) = s(-a), as for the sigmoid."""


def rational_net(
    cell="rnn",
    readout="last",
    loss="squared_error",
    layers=2,
    both=True,
    D=2,
    H=2,
    act="softsign",
    **options,
):
    outputs = (1 + both) * (options.get("projection") or H) if readout == "none" else 2
    return StackedNet(
        D,
        H,
        outputs,
        cell=cell,
        activation=act,
        readout=readout,
        loss=loss,
        reduction="sum",
        layers=layers,
        bidirectional=both,
        gate=GATE,
        **options,
    )


def shapes(net, B, h0=None):
    """The shapes of the parameters, with initial states if ``h0`` is 0 (shared) or 1."""
    found = {
        name: tuple(value.shape)
        for name, value in net.init(np.random.default_rng(0), np.float64).items()
    }
    if h0 is not None:
        found |= {
            name: tuple(B if n == "B" else n for n in options[h0])
            for name, options in net.shapes.items()
            if name.startswith("h0")
        }
    return found


def generic_case(net, seed, T=3, B=3, mask=True, h0=1):
    """No zeros, ties or repeats: every planted bug shows."""
    rng = np.random.default_rng(seed)

    def draw(shape):
        values = rng.choice(np.arange(1, 400), size=shape) * rng.choice([-1, 1], size=shape)
        return np.vectorize(lambda v: Fraction(int(v), 97), otypes=[object])(values)

    params = {name: draw(shape) for name, shape in shapes(net, B, h0).items()}
    x = draw((T, B, net.inputs))
    y = draw((*((B,) if net.readout == "last" else (T, B)), net.outputs))
    direction = {name: draw(value.shape) for name, value in {**params, "x": x}.items()}
    kept = np.arange(T)[:, None] < np.array([3, 2, 0])[:B] if mask else None
    return Case(net, params, Batch(x, y, kept), direction, draw(y.shape))


def float_case(net, seed=0, T=6, B=4, dtype=np.float64, mask=True):
    rng = np.random.default_rng(seed)
    params = {
        name: (value + rng.uniform(-0.4, 0.4, value.shape)).astype(dtype)
        for name, value in net.init(rng, dtype).items()
    }
    x = rng.standard_normal((T, B, net.inputs)).astype(dtype)
    lead = (B,) if net.readout == "last" else (T, B)
    y = (
        rng.integers(0, net.outputs, lead)
        if net.loss == "cross_entropy"
        else rng.standard_normal((*lead, net.outputs)).astype(dtype)
    )
    kept = np.arange(T)[:, None] < np.array([T, 3, 1, 0])[:B] if mask else None
    return params, Batch(x, y, kept)
