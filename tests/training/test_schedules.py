"""Schedules of the learning rate, and the end of a run that gets no better."""

import json
from dataclasses import replace
from functools import partial
from math import cos, pi

import numpy as np
import pytest

from refnet.cli import main
from refnet.training import loop
from refnet.training.config import Config
from refnet.training.config_files import from_toml
from refnet.training.experiment import build
from refnet.training.fit import Fit
from refnet.training.listing import describe
from refnet.training.schedules import Cosine, Plateau, Step, factor
from support.arguments import refused
from support.oracles import planted
from support.runs import TINY, resume, resumes, rows, same, train


def test_step_and_cosine():
    assert [Step(every=3, by=0.5).at(n) for n in range(7)] == [1, 1, 1, 0.5, 0.5, 0.5, 0.25]
    wave = Cosine(steps=4, least=0.2)
    assert [wave.at(n) for n in (0, 4, 100)] == [1, 0.2, 0.2]
    assert abs(wave.at(1) - (0.2 + 0.4 * (1 + cos(pi / 4)))) <= 4e-16
    assert [factor(wave, 4, n) for n in range(5)] == [0.25, 0.5, 0.75, 1, wave.at(0)]
    assert factor(wave, 4, 5) == wave.at(1) < 1


def test_plateau():
    """Falls after the second evaluation in a row that is no better, and counts from there again."""
    rule = Plateau(patience=2, by=0.5, least=0.2)
    scores = [1, 2, 2, 1, 3, 3, 3, 3, 3, 3, 3]
    factors = [rule.after(scores[:n]) for n in range(len(scores) + 1)]
    assert factors == [1, 1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.2, 0.2, 0.2]


@pytest.mark.parametrize(
    "spec, says",
    [
        ("step:every=0", "schedule step: every is 0"),
        ("cosine:steps=1.5", "steps is '1.5'; need a whole number"),
        ("plateau:by=2", "schedule plateau: by is 2"),
        ("linear", "schedule 'linear' is unknown; choose one of constant"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(spec, says):
    with refused(says):
        build(replace(TINY, schedule=spec))


@pytest.mark.parametrize("transition", ["dense", "orthogonal"])
def test_each_step_has_the_rate_of_the_schedule(transition):
    """Step n of a run is that of a run without a schedule from the same state, at that rate; that
    of what moves on a manifold too."""
    config = replace(
        TINY, transition=transition, schedule="step:every=2,by=0.5", warmup=3, optimizer="sgd"
    )
    experiment, fit = build(config), Fit.start(build(config))
    for scale in (1 / 3, 2 / 3, 1, 1, 1, 0.5, 0.5, 0.25):
        plain = replace(
            config,
            schedule="constant",
            warmup=0,
            rate=config.rate * scale,
            manifold_rate=config.manifold_rate * (1 if transition == "dense" else scale),
        )
        other = Fit(experiment=build(plain), run=fit.run)
        count = iter(range(1))
        fit.advance(stop=lambda: next(count, None) is None)
        count = iter(range(1))
        other.advance(stop=lambda: next(count, None) is None)
        for name, value in fit.run.params.items():
            assert np.array_equal(value, other.run.params[name]), (name, scale)
    assert experiment.at(7).config.rate == config.rate / 4


SLOW = "plateau:patience=1,by=0.25"


@pytest.mark.parametrize("schedule, warmup", [(SLOW, 0), ("cosine:steps=20", 5)])
@pytest.mark.parametrize("cut", [13, 20, 25])
def test_resuming_gives_the_same_bits(tmp_path, schedule, warmup, cut):
    """The optimizer's rate is so large that evaluations get worse, and the rate falls."""
    config = replace(TINY, schedule=schedule, warmup=warmup, rate=0.3, iterations=40)
    assert resumes(config, cut, tmp_path)
    rates = [row["rate"] for row in rows(tmp_path / "whole")]
    assert rates == sorted(rates, reverse=True) and rates[-1] < rates[0]


def test_a_forgotten_plateau_changes_bits(tmp_path):
    config = replace(TINY, schedule=SLOW, rate=0.3, iterations=40)
    forgetful = planted(loop.resume, "run.plateau = plateau(experiment, rows.rows)", "pass")
    assert not resumes(config, 35, tmp_path, partial(forgetful, draw=False))


def test_a_run_that_gets_no_better_ends(tmp_path, capsys):
    """With a rate of 0 only the evaluation sets differ; the best row is somewhere, and two more."""
    config = replace(TINY, rate=0.0, iterations=1000, patience=2)
    folder = tmp_path / "run"
    summary = train(config, folder)
    done, best = rows(folder), summary.best["iteration"]
    assert summary.state == "stalled" and summary.iteration == best + 20 < 1000
    assert max(row["accuracy"] for row in done) == summary.best["accuracy"]
    assert json.loads((folder / "summary.json").read_text())["state"] == "stalled"
    facts = describe(folder)
    assert facts["state"] == "stalled" and facts["next"].endswith("--patience N")
    assert resume(config, folder).iteration == summary.iteration
    assert main(["train", "--resume", str(folder), "--patience", "9", "--quiet"]) == 0
    assert from_toml(folder / "config.toml")["patience"] == 9
    whole = train(replace(config, patience=9), tmp_path / "whole")
    assert same(folder, tmp_path / "whole") and whole.iteration > summary.iteration


def test_patience_is_off_by_default():
    assert Config().patience == 0
    fit = Fit.start(build(replace(TINY, rate=0.0, iterations=80)))
    assert fit.advance() == "finished"
