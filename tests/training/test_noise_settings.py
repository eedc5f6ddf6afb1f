"""Dropout, zoneout and noise in training: a function of the seed and the batch's number alone."""

from dataclasses import replace

import numpy as np
import pytest

from refnet.nets.gradients import loss_and_gradients
from refnet.training import steps
from refnet.training.experiment import build
from refnet.training.fit import Fit
from refnet.training.noise import SETTINGS, perturbed
from refnet.training.steps import Run, batch_of
from support.arguments import refused
from support.compiled import at_every_number_of_threads
from support.oracles import planted
from support.realdata import real_data
from support.runs import TINY, arrays, resume, resumes, same, train, train_for

ALL = replace(
    TINY,
    dropout_inputs=0.1,
    dropout_layers=0.2,
    dropout_state=0.3,
    zoneout=0.1,
    noise_inputs=0.1,
    noise_state=0.05,
)


@pytest.mark.parametrize("name", SETTINGS)
def test_each_setting_acts_in_training_alone(name):
    """And by itself: the same numbers whatever the other settings are."""
    config = replace(TINY, **{name: 0.25})
    e = build(config)
    run, _ = Run.start(e)
    batch = batch_of(e, run)
    net, seen = perturbed(e.net, batch, config, 3)
    noisy = loss_and_gradients(net, run.params, seen).loss
    assert noisy != loss_and_gradients(e.net, run.params, batch).loss
    again = loss_and_gradients(*(perturbed(e.net, batch, config, 3)[0], run.params, seen)).loss
    assert again == noisy
    other, elsewhere = perturbed(e.net, batch, config, 4)
    assert loss_and_gradients(other, run.params, elsewhere).loss != noisy
    whole, with_all = perturbed(e.net, batch, replace(ALL, **{name: 0.25}), 3)
    if name == "dropout_layers":
        assert (whole.noise.outputs[0] == net.noise.outputs[0]).all()
    elif name not in ("dropout_inputs", "noise_inputs"):
        (mine,) = (part[""] for part in net.noise.by_cell if part)
        assert any((mine == part[""]).all() for part in whole.noise.by_cell)
    assert e.assembled(run.params)[0].noise is None
    assert (seen.x == batch.x).all() == (name not in ("dropout_inputs", "noise_inputs"))


def test_masks_have_their_rate():
    """A share p is 0 within 6 standard deviations, and the rest 1 / (1 - p)."""
    e = build(replace(ALL, hidden=200, batch=20, layers=2))
    run, _ = Run.start(e)
    net, batch = perturbed(e.net, batch_of(e, run), e.config, 0)
    noise = net.noise
    for values, p in (
        (noise.outputs[0], 0.2),
        (noise.outputs[1], 0.2),
        (noise.products["_l1"], 0.3),
        (1.0 - noise.zoneout["_l0"], 0.1),
    ):
        share = (values == 0).mean()
        assert abs(share - p) <= 6 * np.sqrt(p * (1 - p) / values.size)
    assert set(np.unique(noise.outputs[0])) == {0, np.float32(1 / 0.8)}
    assert (noise.outputs[0] != noise.outputs[1]).any()
    assert abs(noise.added["_l0"].std() - 0.05) <= 0.05 * 6 / np.sqrt(2 * 40_000)
    assert noise.added["_l0"].dtype == np.float32 and batch.x.dtype == np.float32


@pytest.mark.parametrize(
    "config",
    [
        replace(ALL, backend="compiled"),
        replace(ALL, cell="lstm", layers=2, bidirectional=True, backend="compiled"),
        replace(ALL, cell="gru"),
    ],
    ids=["rnn", "stacked lstm", "reference gru"],
)
def test_resuming_gives_the_same_bits_on_any_number_of_threads(tmp_path, config):
    train(config, tmp_path / "whole")
    at_every_number_of_threads(lambda: train_for(13, config, tmp_path / "parts"), 1)
    resume(config, tmp_path / "parts")
    assert same(tmp_path / "parts", tmp_path / "whole")
    train(replace(config, zoneout=0.2), tmp_path / "other")
    assert arrays(tmp_path / "other") != arrays(tmp_path / "whole")


def test_noise_that_counts_from_the_start_of_a_session_is_rejected(tmp_path, monkeypatch):
    wrong = planted(
        steps._accumulated,
        "perturbed(e.net, batch, e.config, index)",
        "perturbed(e.net, batch, e.config, index - 15)",
    )

    def counting(config, folder):
        monkeypatch.setattr(steps, "_accumulated", wrong)
        resume(config, folder)

    assert not resumes(ALL, 15, tmp_path, counting)


def test_feedforward(monkeypatch):
    monkeypatch.setenv("REFNET_DATA", str(real_data("mnist")))
    config = replace(
        TINY,
        task="mnist",
        length=0,
        net="feedforward",
        cell="rnn",
        depth=2,
        dropout_inputs=0.2,
        dropout_layers=0.5,
        iterations=2,
        evaluate_every=2,
    )
    e = build(config)
    run, _ = Run.start(e)
    net, batch = perturbed(e.net, batch_of(e, run), config, 0)
    assert [value.shape for value in net.noise.outputs.values()] == [(4, 6)] * 2
    assert (batch.x == 0).sum() > (batch_of(e, run).x == 0).sum()
    with refused("dropout in a feedforward net has no compiled kernel"):
        Fit.start(build(replace(config, backend="compiled"))).advance()


def test_what_cannot_be_is_refused(tmp_path):
    with refused("dropout_inputs is 1; need less than 1"):
        build(replace(TINY, dropout_inputs=1))
    with refused("zoneout 0.1 would have no effect"):
        build(replace(TINY, net="feedforward", zoneout=0.1))
