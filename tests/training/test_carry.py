"""A text as parallel streams, with the state carried on: batches, figures, resuming, refusals."""

from dataclasses import replace

import numpy as np
import pytest

from refnet.maths.threads import get_threads, set_threads
from refnet.nets.gradients import loss_and_gradients
from refnet.tasks import make_task
from refnet.training import steps
from refnet.training.experiment import build
from refnet.training.fit import Fit
from refnet.training.loop import resume, train
from refnet.training.noise import SETTINGS
from refnet.training.protocols import configure, configure_task
from refnet.training.steps import Run, batch_of
from support.oracles import planted
from support.runs import same, train_for

LENGTH, SIZE = 5, 3


@pytest.fixture
def config(tmp_path):
    """Of a text of 20 pieces, 16 of them for training: an epoch has 6 batches, the last of 1 row."""
    path = tmp_path / "a.txt"
    path.write_text("".join(np.random.default_rng(0).choice(list("abcd"), 20 * LENGTH + 1)))
    given = {"length": LENGTH, "batch": SIZE, "hidden": 4, "iterations": 20, "evaluate_every": 7}
    task = f"{path}:validation=0.1,test=0.1"
    return configure({"task": task, "carry": True, "cell": "lstm", "rate": 0.05, **given})


def finished(config):
    fit = Fit.start(build(config))
    fit.advance()
    return fit.run


def differ(run, other):
    return any((run.params[name] != value).any() for name, value in other.params.items())


@pytest.mark.parametrize("size", [1, 3, 4, 16, 20])
def test_every_row_goes_on_where_it_ended(config, size):
    """An epoch has every piece of the part once, and row b of a batch follows row b."""
    task = build(config).task
    text, pieces = task._x.steps, {}
    batches = -(-16 // size)
    for index in range(2 * batches):
        batch = task.batch(index, size, seed=0)
        starts = [int((text == text).argmax()) for _ in ()] or rows_of(task, batch)
        assert task.continues(index, size) == (index % batches > 0)
        if index % batches:
            assert starts == [start + LENGTH for start in pieces[index - 1][: len(starts)]]
        pieces[index] = starts
    first = sorted(sum((pieces[index] for index in range(batches)), []))
    assert first == list(range(0, 16 * LENGTH, LENGTH))
    again = [task.batch(batches, size, seed=1), task.batch(0, size, seed=0)]
    assert (again[0].x == again[1].x).all()
    seen = sum((rows_of(task, batch) for batch in task.evaluation(0, 0, "validation")), [])
    assert sorted(seen) == [16 * LENGTH, 17 * LENGTH]


def rows_of(task, batch):
    """Where the rows of a batch begin in the text."""
    text = task._x.steps
    windows = np.lib.stride_tricks.sliding_window_view(text, LENGTH)[::LENGTH]
    return [LENGTH * int((windows == row).all(axis=1).argmax()) for row in batch.x.T]
