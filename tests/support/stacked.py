"""Stacked nets of rationals."""

from dataclasses import replace

from refnet.nets.stacked import StackedNet
from refnet.prove.checks import RATIONAL_GATE
from support.drawn import padded

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


float_case = padded
