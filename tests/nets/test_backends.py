"""With backend "auto" the numbers of a call and the net's parts decide what computes it."""

from dataclasses import replace

import numpy as np
import pytest

from refnet import Batch, FeedforwardNet, RecurrentNet, StackedNet, loss_and_gradients
from refnet.maths.activations import ACTIVATIONS
from refnet.nets import backends
from refnet.nets.noise import Noise
from support.arguments import refused

NETS = [
    RecurrentNet(2, 3, 2, clip_step=0.1),
    RecurrentNet(2, 3, 2, "lstm"),
    RecurrentNet(2, 3, 2, checkpoint="sqrt", readout="every"),
    StackedNet(2, 3, 2, "gru", layers=2, bidirectional=True),
    RecurrentNet(2, 3, 2, "gru", noise=Noise(products={"": np.full((5, 3), 2.0)})),
    RecurrentNet(2, 3, 2, zoneout=0.1),
    FeedforwardNet((2, 3, 3, 2)),
]
NO_KERNEL = [
    RecurrentNet(2, 3, 2, clip_forward=1),
    RecurrentNet(2, 3, 2, "lstm", projection=2),
    FeedforwardNet((2, 3, 2), noise=Noise(outputs={0: np.full((5, 3), 2.0)})),
    RecurrentNet(2, 3, 2, activation=replace(ACTIVATIONS["relu"], value=lambda a, p, alpha: a)),
    RecurrentNet(2, 3, 2, "gru", gate=replace(ACTIVATIONS["tanh"], name="mine")),
    FeedforwardNet((2, 3, 2), activation=replace(ACTIVATIONS["tanh"], pull=lambda *given: given)),
]


def case(net, dtype):
    params = net.init(np.random.default_rng(0), np.float64)
    flat = isinstance(net, FeedforwardNet)
    x = np.random.default_rng(1).normal(size=(5, 2) if flat else (4, 5, 2))
    every = not flat and net.readout == "every"
    y = np.zeros((4, 5) if every else 5, int)
    return {name: value.astype(dtype) for name, value in params.items()}, Batch(x.astype(dtype), y)


def same_bits(a, b):
    return all(np.array_equal(a[name], b[name]) for name in {**a, **b})


@pytest.mark.parametrize("net", NETS, ids=repr)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.longdouble, np.complex128])
def test_auto_has_the_bits_of_the_backend_it_names(net, dtype):
    compiled = dtype in (np.float32, np.float64)
    assert net.backend == "auto"
    assert net.backend_for(dtype) == ("compiled" if compiled else "reference")
    params, batch = case(net, dtype)
    result = loss_and_gradients(net, params, batch)
    named = loss_and_gradients(replace(net, backend=net.backend_for(dtype)), params, batch)
    assert same_bits(
        {"loss": result.loss, **result.gradients}, {"loss": named.loss, **named.gradients}
    )


@pytest.mark.parametrize("net", NO_KERNEL, ids=repr)
def test_nets_without_kernels_take_the_reference(net):
    assert net.backend_for(np.float32) == "reference"
    if not isinstance(net, FeedforwardNet):
        params, batch = case(net, np.float32)
        result = net.forward(params, batch.x)[0]
        named = replace(net, backend="reference").forward(params, batch.x)[0]
        assert same_bits({"": result}, {"": named})


def test_a_planted_bug_is_rejected(monkeypatch):
    """A choice by the net alone would send every number to the kernels."""
    monkeypatch.setattr(backends.Backed, "backend_for", lambda net, dtype: "compiled")
    net = RecurrentNet(2, 3, 2)
    params, batch = case(net, np.longdouble)
    with refused('backend="reference"', TypeError):
        loss_and_gradients(net, params, batch)
