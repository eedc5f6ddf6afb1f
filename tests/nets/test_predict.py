"""What a net predicts, and what batch-first arrays are told."""

from dataclasses import replace

import numpy as np
import pytest

import refnet
from refnet.nets import backends
from support.arguments import refused
from support.oracles import planted

T, B, D, C = 5, 3, 2, 4
NETS = [
    refnet.RecurrentNet(D, 3, C),
    refnet.RecurrentNet(D, 3, C, "lstm", readout="every", checkpoint="sqrt", backend="reference"),
    refnet.StackedNet(D, 3, C, layers=2, bidirectional=True, backend="reference"),
    refnet.FeedforwardNet((D, 3, C)),
]


def case(net):
    rng = np.random.default_rng(0)
    flat = isinstance(net, refnet.FeedforwardNet)
    x = rng.normal(size=(B, D) if flat else (T, B, D))
    return net.init(rng, np.float64), x, None if flat else np.array([T, 2, 0])


@pytest.mark.parametrize("net", NETS, ids=repr)
def test_predictions_are_those_of_the_outputs(net):
    params, x, lengths = case(net)
    mask = None if lengths is None else np.array([[t < n for n in lengths] for t in range(T)])
    outputs = net.forward(params, x, mask)[0]
    classes = net.predict(params, x, lengths=lengths)
    assert (classes == outputs.argmax(-1)).all() and classes.dtype.kind == "i"
    assert (classes == net.predict(params, x, mask)).all()
    shares = net.predict(params, x, mask, probabilities=True)
    logs = np.log(shares) - outputs
    assert abs(logs - logs[..., :1]).max() <= 8 * np.finfo(float).eps * abs(outputs).max() * C
    assert abs(shares.sum(-1) - 1).max() <= C * np.finfo(float).eps
    plain = replace(net, loss="squared_error").predict(params, x, mask)
    assert np.array_equal(plain, outputs)


def test_lengths_that_do_not_fit_are_refused():
    params, x, lengths = case(NETS[0])
    for wrong in (lengths[:2], lengths + 1, lengths - 1, lengths / 2, list(lengths), lengths[None]):
        with refused("lengths", (TypeError, ValueError)):
            NETS[0].predict(params, x, lengths=wrong)
    with refused("one of them"):
        NETS[0].predict(params, x, np.ones((T, B), bool), lengths)


def test_batch_first_arrays_are_told_how_to_turn():
    """Where y, a mask or lengths show that the first axis of x is the batch."""
    net = NETS[0]
    params, x, lengths = case(net)
    first, y = x.swapaxes(0, 1), np.zeros(B, int)
    for call in (
        lambda: refnet.loss_and_gradients(net, params, refnet.Batch(first, y)),
        lambda: refnet.per_example_gradients(net, params, refnet.Batch(first, y)),
        lambda: net.predict(params, first, lengths=lengths),
        lambda: net.forward(params, first, np.ones((T, B), bool)),
        lambda: net.forward(params, x.transpose(1, 2, 0)),
    ):
        with refused(r"time-major.* x\.swapaxes\(0, 1\)") as caught:
            call()
    with pytest.raises(ValueError) as caught:
        refnet.loss_and_gradients(net, params, refnet.Batch(x, np.zeros(B + 1, int)))
    assert "time-major" not in str(caught.value)


def test_a_planted_bug_is_rejected(monkeypatch):
    """A mask that lets one step too many in."""
    wrong = planted(backends.Backed.predict, "[:, None] < lengths", "[:, None] <= lengths")
    monkeypatch.setattr(backends.Backed, "predict", wrong)
    with pytest.raises(AssertionError):
        test_predictions_are_those_of_the_outputs(NETS[2])
