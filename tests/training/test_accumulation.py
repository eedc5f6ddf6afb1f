"""Gradients of several batches in a step."""

from dataclasses import replace

import numpy as np
import pytest

from refnet.batch import Batch
from refnet.nets.gradients import loss_and_gradients
from refnet.nets.recurrent import RecurrentNet
from refnet.prove.checks import RATIONAL_GATE
from refnet.training import steps
from refnet.training.experiment import build
from refnet.training.fit import Fit
from refnet.training.steps import Run
from support.arguments import refused
from support.oracles import planted
from support.rational import generic_case
from support.runs import TINY, resumes


def differences(reduction, weights, accumulated=steps._accumulated):
    """On rationals: the gradients of batches of 2, 1 and 2 rows, the second of which has no
    prediction that counts, minus those of all rows in one batch."""
    options = {"gate": RATIONAL_GATE, "loss": "squared_error", "readout": "every"}
    net = RecurrentNet(2, 2, 2, activation="softsign", reduction=reduction, **options)
    case = generic_case(net, seed=5, B=5, h0=None)
    x, y = case.batch.x, case.batch.y
    mask = np.ones((3, 5), bool)
    mask[1:, 0] = mask[:, 2] = False
    weighed = np.arange(1, 6).astype(object) if weights else None
    whole = Batch(x, y, mask, weighed)
    rows = [slice(2), slice(2, 3), slice(3, 5)]
    parts = [
        Batch(x[:, r], y[:, r], mask[:, r], weighed if weighed is None else weighed[r])
        for r in rows
    ]
    e = replace(build(replace(TINY, weight_decay=0.5)), net=net, matrices=("Whh", "Wxh"))
    run = Run(case.params, {}, case.params, {})
    result = accumulated(e, run, parts)
    wanted = loss_and_gradients(net, case.params, whole, penalty=e.penalty)
    assert result.gradients.keys() == case.params.keys()
    return [result.loss - wanted.loss] + [
        result.gradients[name] - wanted.gradients[name] for name in case.params
    ]


@pytest.mark.parametrize(
    ("reduction", "weights"),
    [("mean", False), ("mean", True), ("batch_mean", False), ("sum", False), ("sum", True)],
)
def test_it_is_the_gradient_of_the_batches_together(reduction, weights):
    assert not any(np.any(difference) for difference in differences(reduction, weights))


BUGS = {
    "each batch's mean": ("penalty, divisor, on", "penalty, None, on"),
    "a penalty a batch": ("if index == first else None", ""),
    "the last batch alone": ("grads.get(name, 0) +", ""),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_rejected(bug):
    wrong = planted(steps._accumulated, *BUGS[bug])
    assert any(np.any(difference) for difference in differences("mean", False, wrong))


def test_a_step_has_the_batches_that_as_many_steps_had():
    """Each with its own noise: the loss of a step is the mean of theirs."""
    seen = {}
    for count in (1, 3):
        e = build(replace(TINY, accumulate=count, rate=0.0, dropout_inputs=0.3, zoneout=0.2))
        fit, losses = Fit.start(e), []
        fit.advance(lambda kind, facts: losses.append(facts["loss"]))
        seen[count] = np.array(losses[: 9 // count])
    assert np.allclose(seen[3], seen[1].reshape(3, 3).mean(axis=1), rtol=1e-5, atol=0)


def test_resuming_gives_the_same_bits(tmp_path):
    config = replace(TINY, accumulate=2, clip="step", clip_at=0.01, noise_inputs=0.1)
    assert resumes(config, 13, tmp_path)
    with refused("accumulate is 0; need at least 1"):
        build(replace(TINY, accumulate=0))
