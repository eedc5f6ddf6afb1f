"""A name that fits at some sizes alone is a coincidence: a function is asked at others."""

import numpy as np
import pytest

from refnet.batch import Batch
from refnet.check import judge
from refnet.check.cases import random_batch, random_params, reference_results
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.recurrent import RecurrentNet
from support.byhand import read

pytestmark = pytest.mark.needs("flint")


def case(net, B, T=6):
    rng = np.random.default_rng(3)
    return random_params(net, rng, np.float64), random_batch(net, rng, np.float64, T, B)


@pytest.mark.parametrize("labels", [[1, 1, 0, 1], [2, 0, 2, 2], [2, 1, 0, 1], [0, 1, 0, 0]])
def test_a_class_that_counts_not_in_the_gradient_is_named(labels):
    net = FeedforwardNet((3, 5, 3))

    def theirs(params, batch):
        right = reference_results(net, params, batch)
        counts = (batch.y != 0).astype(float)
        some = reference_results(net, params, batch._replace(weights=counts))
        share = counts.sum() / len(counts)
        scaled = {name: share * value for name, value in some.items() if name[0] == "d"}
        return {**right, **scaled}

    params, batch = case(net, 4)
    batch = batch._replace(y=np.array(labels))
    name = judge(net, theirs, params, batch).convention
    assert name.startswith("class 0 is left out, in the gradient alone")
    name = judge(net, theirs(params, batch), params, batch).convention  # of arrays no more is known
    assert "class 0 is left out" in name
    assert name == "class 0 is left out, in the gradient alone" or name.startswith("perhaps")


def test_an_order_by_length_is_no_reversal_of_some():
    net = RecurrentNet(2, 4, 3)
    params, batch = case(net, 4)
    batch = Batch(batch.x, np.array([0, 2, 2, 1]), np.arange(6)[:, None] < np.array([6, 2, 5, 1]))

    def theirs(params, batch):
        right = reference_results(net, params, batch)
        order = np.argsort(-batch.mask.sum(axis=0), kind="stable")
        return {**right, "dx": right["dx"][:, order]}

    name = judge(net, theirs, params, batch).convention
    assert name == "the gradient of the input x is sorted by length, the longest first"
    assert "class" not in judge(net, theirs(params, batch), params, batch).convention


@pytest.mark.parametrize("outputs, name", [(3, "3 = C times"), (4, "4 = C times"), (2, "or 2 = C")])
def test_a_factor_that_two_sizes_explain_is_asked_at_others(outputs, name):
    net = RecurrentNet(2, 5, outputs, readout="every", loss="squared_error")
    given = case(net, 4)

    def theirs(params, batch):
        right = reference_results(net, params, batch)
        return {**right, "loss": outputs * right["loss"]}

    assert name in judge(net, theirs, *given).convention
    if outputs == 4:
        assert "4 = B = C times" in judge(net, theirs(*given), *given).convention


def old_slope(p, batch):
    """A tanh net whose slope takes the state before the step."""
    x, y, *_ = batch
    h = [np.zeros((x.shape[1], len(p["bh"])))]
    for x_t in x:
        h.append(np.tanh(x_t @ p["Wxh"].T + h[-1] @ p["Whh"].T + p["bh"]))
    loss, v, dv = read(p, h[-1], y)
    grads = {f"d{name}": np.zeros_like(p[name]) for name in ("Whh", "Wxh", "bh")}
    dh = dv @ p["Why"]
    for t in reversed(range(len(x))):
        da = dh * (1 - h[t] ** 2)
        grads["dWhh"] += da.T @ h[t]
        grads["dWxh"] += da.T @ x[t]
        grads["dbh"] += da.sum(axis=0)
        dh = da @ p["Whh"]
    return {"loss": loss, "outputs": v, "dWhy": dv.T @ h[-1], "dby": dv.sum(axis=0), **grads}


@pytest.mark.parametrize("T", [1, 6])
def test_one_step_gives_no_other_name(T):
    net = RecurrentNet(2, 5, 3)
    name = judge(net, old_slope, *case(net, 4, T)).convention
    assert name.startswith("the slope of h is (1 - h[t]^2), not (1 - h[t+1]^2)")
