"""Random nets and batches to judge others on: exact inputs that any framework can hold."""

from typing import Any

import numpy as np

from refnet.batch import Array, Batch, Params
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.gradients import Net, loss_and_gradients
from refnet.nets.recurrent import RecurrentNet

__all__ = ["random_batch", "random_params", "reference_results"]


def random_params(net: Net, rng: np.random.Generator, dtype: Any) -> Params:
    """Parameters that hide nothing: every bias and slope is drawn too, no entry is zero."""
    return {name: value if name.count(".") else
            (value + rng.uniform(-0.3, 0.3, value.shape)).astype(dtype)
            for name, value in net.init(rng, dtype=dtype).items()}


def random_batch(net: Net, rng: np.random.Generator, dtype: Any, steps: int, batch: int) -> Batch:
    """Inputs from N(0, 1), classes or real targets at random; T = ``steps``, B = ``batch``."""
    predictions: tuple[int, ...] = (batch,)
    if isinstance(net, RecurrentNet):
        x: Array = rng.normal(size=(steps, batch, net.inputs)).astype(dtype)
        outputs = net.outputs
        if net.readout == "every":
            predictions = (steps, batch)
    else:
        assert isinstance(net, FeedforwardNet)
        x, outputs = rng.normal(size=(batch, net.widths[0])).astype(dtype), net.widths[-1]
    y: Array = (rng.integers(0, outputs, predictions) if net.loss == "cross_entropy"
                else rng.normal(size=(*predictions, outputs)).astype(dtype))
    return Batch(x, y)


def reference_results(net: Net, params: Params, batch: Batch) -> Params:
    """What a net's own backend gives, by the names that ``compare`` takes."""
    found = loss_and_gradients(net, params, batch)
    return {"loss": found.loss, "outputs": found.outputs,
            **{f"d{name}": value for name, value in found.gradients.items()}}
