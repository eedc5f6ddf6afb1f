"""Penalties, unitary nets and OINIT's options by name: from settings to what a step does."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from refnet.nets.gradients import loss_and_gradients
from refnet.training.experiment import build
from refnet.training.penalties import l1_penalty
from refnet.training.protocols import preset
from refnet.training.steps import Run, batch_of, step
from support.arguments import refused
from support.oracles import gap
from support.runs import TINY


def test_l1():
    """On rationals, exactly: the tangent away from 0, and 0 at an entry of 0."""
    W = np.array([[Fraction(-1, 2), Fraction(0)], [Fraction(3), Fraction(1, 7)]])
    V = np.array([[Fraction(2), Fraction(0)], [Fraction(-5), Fraction(1, 3)]])
    value, grads = l1_penalty({"W": W}, Fraction(2, 3))
    assert value == Fraction(2, 3) * (Fraction(7, 2) + Fraction(1, 7))
    assert grads["W"][0, 1] == 0
    forward = lambda at: l1_penalty(at, Fraction(2, 3))[0].reshape(1)  # noqa: E731
    assert gap(forward, {"W": W}, {"W": V}, 1, grads) == 0
    assert gap(forward, {"W": W}, {"W": V}, 1, {"W": abs(grads["W"])}) != 0
    assert l1_penalty({"W": np.ones(2, np.float32)}, 0.5)[1]["W"].dtype == np.float32


@pytest.mark.parametrize("backend", ["reference", "auto"])
@pytest.mark.parametrize(
    "settings",
    [
        {"l1": 0.5},
        {"norm_stabilizer": 2.0},
        {"vanishing": 2.0},
        {"method": "open", "open_form": "double"},
        {"method": "open", "open_form": "spectral"},
    ],
    ids=str,
)
def test_a_penalty_is_added_to_a_step(settings, backend):
    """Its value to the loss, its gradient to the step; and it goes together with weight decay."""
    config = replace(TINY, backend=backend, weight_decay=0.25)
    plain, more = build(config), build(replace(config, **settings))
    run = Run.start(plain)[0]
    batch = batch_of(plain, run)
    results = [
        loss_and_gradients(e.net, run.params, batch, penalty=e.penalty_on(e.net, run.params, batch))
        for e in (plain, more)
    ]
    assert results[1].loss > results[0].loss
    assert (results[0].gradients["Whh"] != results[1].gradients["Whh"]).any()
    after = step(more, run, batch)[1]
    assert after.loss == results[1].loss


@pytest.mark.parametrize("cell", ["rnn", "lstm"])
@pytest.mark.parametrize("name", ["urnn", "unitary"])
def test_unitary_nets_train(name, cell):
    """Both backends; the matrices stay unitary."""
    settings = {"transition": name, "activation": "modrelu_pairs:start=.01", "cell": cell}
    settings |= {"manifold_rate": 0.1} if name == "unitary" else {}
    losses = []
    for backend in ("reference", "compiled"):
        e = build(preset("copy", length=8, hidden=6, rate=0.01, backend=backend, **settings))
        run = Run.start(e)[0]
        for _ in range(3):
            run, result, _ = step(e, run, batch_of(e, run))
        losses.append(float(result.loss))
        for W in e.matrices_of(run.params, e.hidden).values():
            assert abs(W.T @ W - np.eye(6)).max() < 1e-5
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_oinit_by_its_other_forms_and_the_norm_of_its_gradient():
    base = {"method": "oinit", "oinit_rate": 0.01, "oinit_steps": 300}
    for settings, stopped in (
        ({}, "cost"),
        ({"oinit_cost": 0.0, "oinit_gradient": 1e-3}, "gradient"),
        ({"oinit_form": "mean_square", "oinit_rate": 0.1, "oinit_steps": 9}, "steps"),
        ({"oinit_form": "unsquared", "oinit_cost": 0.1}, "cost"),
    ):
        _, report = build(replace(TINY, **{**base, **settings})).start()
        assert {entry["stopped"] for entry in report} == {stopped}, settings


def test_a_feedforward_net_has_no_states():
    with refused("vanishing 1.0 would have no effect: it is for recurrent nets"):
        build(replace(preset("mnist"), vanishing=1.0))
