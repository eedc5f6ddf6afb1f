"""The backward pass is the transpose of the forward pass: an equality of rationals."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given

import refnet.cells.rnn as rnn
from refnet.maths.activations import ACTIVATIONS
from refnet.maths.dual import Dual, dual_array, parts
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.gradients import Result, loss_and_gradients
from refnet.nets.recurrent import RecurrentNet
from support.arguments import refused
from support.oracles import loss_push_minus_pull, planted, push_minus_pull
from support.rational import RNN_BUGS, generic_case
from support.strategies import feedforward_cases, rnn_cases


@given(rnn_cases())
def test_push_equals_pull(case):
    assert push_minus_pull(case) == 0


@given(rnn_cases())
def test_loss_push_equals_pull(case):
    assert loss_push_minus_pull(case) == 0


@given(feedforward_cases())
def test_feedforward_push_equals_pull(case):
    assert push_minus_pull(case) == 0
    assert loss_push_minus_pull(case) == 0


def test_dual_derivatives():
    x = Dual(Fraction(3, 2), Fraction(1))
    assert (x * x).d == 3 and (1 / x).d == Fraction(-4, 9) and (2 - x).d == -1
    assert ((x + 1) / (x * x)).d == -1 / Fraction(3, 2) ** 2 - 2 / Fraction(3, 2) ** 3
    assert Dual(2.0, 1.0).exp().d == np.exp(2.0) and Dual(4.0, 1.0).sqrt().d == 0.25
    assert Dual(2.0, 3.0).log().d == 1.5 and Dual(0.0, 1.0).tanh().d == 1
    values, tangents = parts(dual_array(np.array([1, 2], object), np.array([3, 4], object)))
    assert list(values) == [1, 2] and list(tangents) == [3, 4]
    with refused("tanh of Fraction", TypeError):
        Dual(Fraction(1)).tanh()


@pytest.mark.parametrize("bug", RNN_BUGS)
@pytest.mark.parametrize("name", ["softsign", "leaky_relu", "identity"])
def test_push_equals_pull_rejects(bug, name, monkeypatch):
    if bug == "derivative at the wrong array" and name == "identity":
        pytest.skip("the identity's derivative is the same everywhere")
    net = RecurrentNet(2, 3, 2, activation=ACTIVATIONS[name], readout="every", loss="squared_error")
    case = generic_case(net, seed=len(bug))
    assert push_minus_pull(case) == 0
    monkeypatch.setattr(rnn, "backward", planted(rnn.backward, *RNN_BUGS[bug]))
    assert push_minus_pull(case) != 0
    assert loss_push_minus_pull(case) != 0


def test_loss_oracle_rejects_sum_for_mean():
    net = RecurrentNet(2, 3, 2, activation="softsign", readout="every", loss="squared_error")
    case = generic_case(net, seed=1)

    def summed(net, params, batch):
        return loss_and_gradients(replace(net, reduction="sum"), params, batch)

    assert loss_push_minus_pull(case) == 0
    assert loss_push_minus_pull(case, summed) != 0


@pytest.mark.parametrize("name", ["W1", "W2", "b1", "b2", "x"])
def test_feedforward_oracle_rejects(name):
    case = generic_case(
        FeedforwardNet((2, 3, 3, 2), activation="softsign", loss="squared_error"), seed=2
    )

    def wrong(net, params, batch):
        result = loss_and_gradients(net, params, batch)
        entry = (0,) * result.gradients[name].ndim
        result.gradients[name][entry] *= Fraction(1001, 1000)
        return Result(*result)

    assert loss_push_minus_pull(case) == 0
    assert loss_push_minus_pull(case, wrong) != 0
