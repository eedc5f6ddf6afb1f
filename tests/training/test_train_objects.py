"""``refnet.train`` of task objects and keywords, in memory."""

import io
from dataclasses import replace

import numpy as np
import pytest

import refnet
from refnet.tasks import Task, make_task
from refnet.tasks.base import classified, rates
from support.arguments import refused

SMALL = {"hidden": 8, "iterations": 20, "evaluate_every": 10, "backend": "reference"}


class Majority(Task):
    """Which of two symbols is the more frequent one; it defines no more than it must."""

    name, inputs, outputs = "majority", 2, 2
    loss, readout, splits = "cross_entropy", "last", ("test",)
    metric, lower_is_better, criterion = "accuracy", False, "never"

    def batch(self, index, size, seed):
        symbols = np.random.default_rng([seed, index]).integers(0, 2, (9, size))
        return refnet.Batch(np.eye(2, dtype=np.float32)[symbols], (symbols.mean(0) > 0.5) * 1)

    def evaluation(self, index, seed, split="test"):
        yield self.batch(index, 50, seed + 1000)

    def score(self, outputs, batch):
        return classified(outputs, batch.y)

    def metrics(self, totals):
        return rates(totals)


def test_an_object_a_name_and_a_config_are_the_same_run(tmp_path):
    task = make_task("temporal-order", length=20, samples=50)
    by_object = refnet.train(task, **SMALL, seed=3)
    by_name = refnet.train("temporal-order:length=20,samples=50", **SMALL, seed=3)
    by_config = refnet.train(by_name.config)
    summary = refnet.train(by_name.config, tmp_path / "run", draw=False)
    assert refnet.train(replace(by_name.config, seed=1), seed=3).config == by_name.config
    in_folder = refnet.load(tmp_path / "run")
    for run in (by_object, by_name, by_config):
        assert run.task == in_folder.task
        assert run.net == in_folder.net and run.folder is None
        for name, value in in_folder.params.items():
            assert run.params[name].tobytes() == value.tobytes()
        rows = [{**row, "seconds": 0} for row in run.rows]
        assert rows == [{**row, "seconds": 0} for row in in_folder.rows]
        assert run.iteration == summary.iteration == 20


def test_an_objects_options_are_not_the_protocols():
    task = make_task("adding", length=20, protocol="manchev-spratling")
    assert refnet.train(task, **SMALL).task == task


def test_a_task_of_ones_own_trains_and_predicts():
    run = refnet.train(Majority(), hidden=16, iterations=300, backend="reference")
    assert run.config.protocol == "refnet/default" and run.config.task == "majority"
    assert run.best["accuracy"] > 0.9
    batch = Majority().batch(0, 200, seed=5)
    assert (run.net.predict(run.best_params, batch.x) == batch.y).mean() > 0.9
    assert refnet.train(Majority(), net="recurrent", cell="gru", **SMALL).net.cell == "gru"


@pytest.mark.parametrize(
    "task, settings, said",
    [
        (3, {}, "need a Config"),
        (Majority, {}, "need a Config"),
        (io.StringIO(), {}, "with batch, "),
        (Majority(), {"length": 9}, "the task is an object"),
        (Majority(), {"protocol": "vorontsov/text"}, "the task is an object"),
        (Majority(), {"cells": 9}, "cells"),
        ("majority", {}, "majority"),
        (refnet.Config("copy"), {"depth": 10}, "no effect"),
    ],
)
def test_what_is_no_task_is_refused(task, settings, said):
    with refused(said, (TypeError, ValueError)):
        refnet.train(task, **settings)


def test_a_folder_cannot_keep_an_object(tmp_path):
    with refused("is an object"):
        refnet.train(Majority(), tmp_path / "run", **SMALL)
    assert not (tmp_path / "run").exists()


def test_a_run_is_short_in_print():
    run = refnet.train(Majority(), **SMALL)
    assert len(repr(run)) < 200 and "majority" in repr(run) and "accuracy" in repr(run)
