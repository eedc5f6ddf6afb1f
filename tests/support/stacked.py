"""Stacked nets of rationals, and cases of floats."""

from dataclasses import replace

import numpy as np

from refnet.batch import Batch
from refnet.nets.stacked import StackedNet
from support.rational import RATIONAL_GATE

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
        backend="reference",
    )


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
