"""The training loop in memory: the same run as in a folder, and on from where it stopped."""

from dataclasses import replace

import numpy as np

from refnet.training import steps
from refnet.training.experiment import build
from refnet.training.fit import Fit
from refnet.training.steps import NotFiniteError
from support.arguments import refused
from support.runs import TINY, arrays, rows, train


def facts(fit):
    return [{name: value for name, value in row.items() if name != "seconds"} for row in fit.rows]


def test_it_is_the_run_of_a_folder(tmp_path):
    fit, seen = Fit.start(build(TINY)), []
    assert fit.advance(lambda kind, facts: seen.append(kind)) == "finished"
    train(TINY, tmp_path / "run")
    assert facts(fit) == rows(tmp_path / "run")
    held, position = arrays(tmp_path / "run")
    saved = fit.run.to_checkpoint({})
    assert held.keys() > {f"best/{name}" for name in fit.run.best_params}
    for group, named in saved.groups.items():
        assert all(held[f"{group}/{name}"] == value.tobytes() for name, value in named.items())
    assert position["iteration"] == fit.run.iteration == 30
    assert seen == (["step"] * 10 + ["row"]) * 3


def test_it_goes_on_to_the_same_bits():
    whole = Fit.start(build(TINY))
    whole.advance()
    part = Fit.start(build(TINY))
    count = iter(range(17))
    assert part.advance(stop=lambda: next(count, None) is None) == "interrupted"
    assert part.run.iteration == 17
    on = Fit(experiment=part.experiment, run=part.run, rows=part.rows)
    assert on.advance() == "finished" and facts(on) == facts(whole)
    for name, value in whole.run.params.items():
        assert np.array_equal(on.run.params[name], value)
    longer = Fit(experiment=build(replace(TINY, iterations=40)), run=on.run, rows=on.rows)
    assert longer.advance() == "finished" and longer.run.iteration == 40


def test_what_is_not_finite_leaves_the_run_as_it_was(monkeypatch):
    def wild(e, run, batch):
        if run.iteration == 12:
            batch = batch._replace(x=batch.x * np.float32(np.inf))
        return step(e, run, batch)

    step = steps.step
    monkeypatch.setattr("refnet.training.fit.step", wild)
    fit = Fit.start(build(TINY))
    with refused("step 13: the batch's x is not finite", NotFiniteError):
        fit.advance()
    assert fit.run.iteration == 12 and len(fit.rows) == 1
