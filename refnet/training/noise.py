"""Dropout, zoneout and noise of a training step. Its random numbers are a function of the seed, the
batch's number, the place and the layer, so that neither an interruption nor the number of threads
changes them.

Masks of dropout are fixed over time and divided by 1 - rate, so that evaluations have none; those
of zoneout differ from step to step, and in evaluations their mean takes their place.
Source: Srivastava et al. (2014); Gal & Ghahramani (2016); Krueger et al. (2017).
Checked by: tests/training/test_noise_settings.py.
"""

from dataclasses import replace
from typing import Any

from refnet.batch import Array, Batch
from refnet.cells import CELLS
from refnet.nets.gradients import Net
from refnet.nets.noise import Noise
from refnet.nets.recurrent import RecurrentNet
from refnet.tasks.base import stream
from refnet.training.config import Config

NOISE = 3
"""The random streams of tasks (``refnet.tasks.base``) are 0 to 2."""
SETTINGS = (
    "dropout_inputs",
    "dropout_layers",
    "dropout_state",
    "zoneout",
    "noise_inputs",
    "noise_state",
)
"""Their order is the place's number in the random stream."""


def perturbed(net: Net, batch: Batch, config: Config, index: int) -> tuple[Net, Batch]:
    """The net and the batch of training step ``index`` with the noise of the settings; both as they
    are without any.

    >>> config = Config("copy", dropout_inputs=0.5)
    >>> from refnet.training.experiment import build
    >>> e = build(config)
    >>> _, batch = perturbed(e.net, e.task.batch(index=0, size=20, seed=0), config, index=0)
    >>> sorted(set(batch.x.ravel().tolist()))
    [0.0, 2.0]
    """
    if not any(getattr(config, name) for name in SETTINGS):
        return net, batch
    x = batch.x
    dtype = x.dtype if x.dtype.kind == "f" else config.dtype  # symbols are integers

    def uniform(name: str, shape: tuple[int, ...], layer: int = 0) -> Array:
        place = SETTINGS.index(name)
        return stream(config.seed, NOISE, index, place, layer).random(shape)

    def factors(name: str, shape: tuple[int, ...], layer: int = 0) -> Array:
        rate = getattr(config, name)
        scaled: Array = ((uniform(name, shape, layer) >= rate) / (1 - rate)).astype(dtype)
        return scaled

    def normal(name: str, shape: tuple[int, ...], layer: int = 0) -> Array:
        rng = stream(config.seed, NOISE, index, SETTINGS.index(name), layer)
        scaled: Array = (getattr(config, name) * rng.standard_normal(shape)).astype(dtype)
        return scaled

    if config.dropout_inputs:
        batch = batch._replace(x=batch.x * factors("dropout_inputs", x.shape[-2:]))
    if config.noise_inputs:
        batch = batch._replace(x=batch.x + normal("noise_inputs", x.shape))
    B = x.shape[isinstance(net, RecurrentNet)]
    parts: dict[str, dict[Any, Array]] = {}
    if config.dropout_layers:
        if isinstance(net, RecurrentNet):
            widths = [net.width] * len(net.cells)
        else:
            widths = list(net.widths[1:-1])
        parts["outputs"] = {
            layer: factors("dropout_layers", (B, width), layer)
            for layer, width in enumerate(widths)
        }
    if isinstance(net, RecurrentNet):
        cells = list(enumerate(net.every_cell))
        P, T = net.projection or net.hidden, len(x)
        lead = (2,) * (CELLS[net.cell].STATES - 1)
        if config.dropout_state:
            parts["products"] = {name: factors("dropout_state", (B, P), n) for n, name in cells}
        if config.zoneout:
            parts["zoneout"] = {
                name: (uniform("zoneout", (T, *lead, B, net.hidden), n) < config.zoneout).astype(
                    dtype
                )
                for n, name in cells
            }
        if config.noise_state:
            parts["added"] = {name: normal("noise_state", (T, B, P), n) for n, name in cells}
    return (replace(net, noise=Noise(**parts)) if parts else net), batch
