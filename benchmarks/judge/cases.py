"""Nets with inputs that bugs are planted in, each described by its name.

Checked by: tests/check/test_error_rates.py.
"""

from typing import Any, NamedTuple

import numpy as np

from refnet.batch import Batch, Params
from refnet.check.cases import random_batch, random_mask, random_params
from refnet.exact.enclose import Certified, certify
from refnet.maths.activations import ACTIVATIONS
from refnet.matrices.transitions import transition
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.gradients import Net
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet

OPTIONS: dict[str, dict[str, Any]] = {
    "every": {"readout": "every"},
    "h0": {"learn_h0": True},
    "relu": {"activation": ACTIVATIONS["relu"], "loss": "squared_error"},
    "gain": {"gain": 1.25},
    "clipped": {"clip_step": 0.05, "readout": "every"},
    **{
        name: {"transition": transition(name)}
        for name in ("orthogonal", "svd", "cayley", "householder")
    },
}
"""What a word of a name says of the net."""


class Case(NamedTuple):
    """The sizes D, H, C, T (of a feedforward net its depth) and B. The name's first word is the
    cell, ``feedforward`` or ``stacked`` (then the cell follows), the others are those of OPTIONS,
    ``mask``, ``peepholes`` and ``fading`` (Whh is small)."""

    name: str
    inputs: int
    hidden: int
    outputs: int
    steps: int
    batch: int

    @property
    def net(self) -> Net:
        """The net."""
        cell, *words = self.name.split()
        options = {key: value for word in words for key, value in OPTIONS.get(word, {}).items()}
        D, H, C = self.inputs, self.hidden, self.outputs
        if cell == "feedforward":
            return FeedforwardNet((D, *[H] * self.steps, C), **options)
        if cell == "stacked":
            return StackedNet(D, H, C, words[0], layers=2, bidirectional=True, **options)
        return RecurrentNet(D, H, C, cell, **options)

    def certified(self, rng: np.random.Generator, dtype: Any) -> Certified:
        """The certificate for parameters and inputs that are drawn."""
        net = self.net
        params = random_params(net, rng, dtype, "peepholes" in self.name)
        if "fading" in self.name:
            params["Whh"] = (params["Whh"] * 0.4).astype(dtype)
        batch = random_batch(net, rng, dtype, self.steps, self.batch)
        if "mask" in self.name:
            batch = batch._replace(mask=random_mask(rng, self.steps, self.batch))
        return certify(net, params, batch)


def table(text: str) -> tuple[Case, ...]:
    """A case a line: its name, then D, H, C, T and B."""
    rows = [line.rsplit(maxsplit=5) for line in text.strip().splitlines()]
    return tuple(Case(name.strip(), *map(int, sizes)) for name, *sizes in rows)


def wide(certified: Certified) -> tuple[Params, Batch]:
    """Parameters and batch in float64."""
    batch = certified.batch
    y = batch.y.astype(float) if batch.y.dtype.kind == "f" else batch.y
    params = {name: value.astype(float) for name, value in certified.params.items()}
    return params, batch._replace(x=batch.x.astype(float), y=y)
