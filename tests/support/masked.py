"""Nets of every kind that long certificates know, and batches of sequences of several lengths."""

import numpy as np
from numpy.random import default_rng

from refnet import RecurrentNet
from refnet.check.cases import random_batch, random_params
from refnet.nets.stacked import StackedNet

NETS = {
    **{cell: RecurrentNet(2, 6, 4, cell) for cell in ("rnn", "gru", "lstm", "cifg")},
    "every step": RecurrentNet(2, 5, 4, "gru", readout="every", reduction="batch_mean"),
    "learned": RecurrentNet(2, 5, 2, "lstm", loss="squared_error", learn_h0=True, gain=1.25),
    "sigmoid": RecurrentNet(2, 5, 2, activation="sigmoid", loss="squared_error"),
    "transition": RecurrentNet(2, 4, 3, "gru", transition="expm"),
    "tanh gates": RecurrentNet(2, 5, 3, "lstm", activation="sigmoid", gate="tanh"),
    "stacked": StackedNet(2, 4, 3, "gru", layers=2, bidirectional=True),
    "alone": StackedNet(
        2, 4, 8, "lstm", readout="none", loss="none", reduction="sum", bidirectional=True
    ),
}
GIVEN = ("bhh", "h0", "Wpi", "Wpf", "Wpo")


def case(net, lengths=(60, 7, 0), scale=1.0, given=GIVEN):
    """Parameters with all that the net may be given, and a batch of sequences of these lengths."""
    rng, B = default_rng(2), len(lengths)
    params = random_params(net, rng, np.float32)
    params |= {
        name: value for name, value in net.init(default_rng(2), np.float32).items() if "." in name
    }  # a matrix that is exact
    for name, shapes in net.shapes.items():
        if name.split("_l")[0] in given and name not in params:
            shape = tuple(B if size == "B" else size for size in shapes[-1])
            params[name] = rng.uniform(-0.5, 0.5, shape).astype(np.float32)
    params = {
        name: value * np.float32(scale) if name.startswith("Whh") and "." not in name else value
        for name, value in params.items()
    }
    mask = np.arange(max(lengths))[:, None] < np.array(lengths)
    return params, random_batch(net, rng, np.float32, *mask.shape)._replace(mask=mask)
