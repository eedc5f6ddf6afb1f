"""Nets with inputs that bugs are planted in, each described by its name.

Checked by: tests/check/test_error_rates.py.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.records import Row
from refnet.batch import Batch, Params
from refnet.check.cases import NORMS, bounded, random_batch, random_mask, random_params
from refnet.exact.enclose import Certified, certify
from refnet.maths.activations import ACTIVATIONS
from refnet.matrices.transitions import transition
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.gradients import Net
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet

LENGTHS = (1, 2, 3, 5, 7, 10, 15, 20, 50, 100, 200, 784)
MATRICES = ("orthogonal", "svd", "cayley", "householder")
OPTIONS: dict[str, Row] = {
    "every": {"readout": "every"},
    "h0": {"learn_h0": True},
    "relu": {"activation": ACTIVATIONS["relu"], "loss": "squared_error"},
    "gain": {"gain": 1.25},
    "clipped": {"clip_step": 0.05, "readout": "every"},
    **{name: {"transition": transition(name)} for name in MATRICES},
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

    def certified(self, rng: np.random.Generator, dtype: npt.DTypeLike) -> Certified:
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


def random_case(
    rng: np.random.Generator, dtype: npt.DTypeLike, longest: int
) -> tuple[Net, Params, Batch]:
    """A net of random kind, size and weight scale; long and wide ones are rare."""
    T = int(rng.choice([length for length in LENGTHS if length <= longest]))
    B = int(rng.integers(1, 9 if T <= 50 else 3))
    loss = str(rng.choice(["cross_entropy", "cross_entropy", "squared_error"]))
    kind = str(rng.choice("rnn rnn rnn lstm lstm gru gru gru_before feedforward".split()))
    if kind == "feedforward":
        H, act = int(rng.integers(2, 25)), str(rng.choice(["tanh", "relu"]))
        widths = (int(rng.integers(1, 9)), *[H] * int(rng.integers(1, 6)), int(rng.integers(2, 8)))
        flat = FeedforwardNet(widths, ACTIVATIONS[act], loss=loss, backend="reference")
        return flat, random_params(flat, rng, dtype), random_batch(flat, rng, dtype, 0, B)
    matrix = str(rng.choice(MATRICES)) if rng.random() < 0.1 else "dense"
    H = (
        int(rng.integers(1, 33 if T <= 50 else 13))
        if matrix == "dense"
        else int(rng.integers(2, 13))
    )
    if T <= 20 and rng.random() < 0.06 and matrix == "dense":
        H = int(rng.choice([64, 128]))
    act = str(rng.choice(["tanh", "tanh", "relu"])) if kind == "rnn" else "tanh"
    net = RecurrentNet(
        int(rng.integers(1, 5)),
        H,
        int(rng.integers(2, 8)),
        cell=kind,
        loss=loss,
        activation=ACTIVATIONS[act],
        readout=str(rng.choice(["last", "every"])),
        transition=transition(matrix),
        backend="reference",
    )
    peepholes = kind == "lstm" and rng.random() < 0.4
    norm = float(rng.choice(NORMS)) if bounded(net) else None
    params = random_params(net, rng, dtype, peepholes, norm)
    if matrix == "dense":
        # states of relu and of large scales overflow float32 after many steps: no rounding error
        scale = rng.uniform(0.3, 1.5 if T <= 50 and act != "relu" else 1)
        params["Whh"] = (params["Whh"] * scale).astype(dtype)
    batch = random_batch(net, rng, dtype, T, B)
    return net, params, batch._replace(mask=random_mask(rng, T, B)) if rng.random() < 0.3 else batch


def wide(certified: Certified) -> tuple[Params, Batch]:
    """Parameters and batch in float64."""
    batch = certified.batch
    y = batch.y.astype(float) if batch.y.dtype.kind == "f" else batch.y
    params = {name: value.astype(float) for name, value in certified.params.items()}
    return params, batch._replace(x=batch.x.astype(float), y=y)
