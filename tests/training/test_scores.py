"""What is right, what is wrong, and when a task is solved."""

import numpy as np
import pytest

from refnet.batch import Batch
from refnet.maths.losses import cross_entropy
from refnet.tasks import base, make_task
from refnet.tasks.base import classified
from support.arguments import refused
from support.marks import both_dtypes

GENERATED = ("temporal-order", "temporal-order-3bit", "adding", "random-permutation", "copy")
TEXT, CODE = "manchev-spratling", "manchev-spratling-code"


def predictions(task, batch):
    """Outputs that are right everywhere."""
    if task.loss == "squared_error":
        return batch.y.copy()
    return np.eye(task.outputs, dtype=np.float32)[batch.y] * 100


def judged(task, spoil=lambda outputs: None):
    totals = {}
    for batch in task.evaluation(0, seed=0):
        outputs = predictions(task, batch)
        spoil(outputs)
        for name, value in task.score(outputs, batch).items():
            totals[name] = totals.get(name, 0) + value
    return task.metrics(totals)


@pytest.mark.parametrize("name", GENERATED)
def test_perfect_is_solved_and_not_a_number_is_not(name):
    task = make_task(name, samples=300)
    assert task.solved(judged(task))

    def nan(outputs):
        outputs[...] = np.nan

    assert not task.solved(judged(task, nan))
    assert task.metric in judged(task) and "loss" not in judged(task)


@pytest.mark.parametrize("name", ["temporal-order", "temporal-order-3bit", "random-permutation"])
def test_one_error_in_ten_thousand_is_not_solved(name):
    left = [1]

    def spoil(outputs):
        if left:
            outputs[0] = np.roll(outputs[0], left.pop())

    metrics = judged(make_task(name, length=10), spoil)
    assert metrics["errors"] == 1 and metrics["accuracy"] == 1 - 1 / 10_000
    assert not make_task(name).solved(metrics)


@pytest.mark.parametrize("large", [0, 10**9])
@both_dtypes
def test_classified(dtype, large, monkeypatch):
    """Errors as by argmax row by row, ties, extremes and what is not finite included; the loss as
    the reference has it, by sums of C terms in another order; compiled, and not."""
    monkeypatch.setattr(base, "LARGE", large)
    rng = np.random.default_rng(0)
    for classes in (1, 2, 9, 49):
        outputs = rng.integers(-3, 3, (500, classes)).astype(dtype)
        outputs[::3] += rng.normal(size=outputs[::3].shape)
        labels = rng.integers(0, classes, 500)
        counted = classified(outputs, labels)
        assert counted["errors"] == int((outputs.argmax(axis=1) != labels).sum())
        loss = cross_entropy(outputs, labels).loss.sum(dtype=float)
        assert abs(counted["loss"] - loss) <= 2 * classes * np.finfo(dtype).eps * 500 * 8
    most = np.finfo(dtype).max
    outputs = np.array([[most, -most], [np.inf, 0], [0, -np.inf], [np.nan, 0], [0, 0]], dtype)
    assert [classified(row[None], np.array([0]))["errors"] for row in outputs] == [0, 1, 1, 1, 0]
    assert classified(outputs[-1:], np.array([1]))["errors"] == 1
    for wrong in (np.array([2]), np.array([-1]), np.array([0, 0]), np.array([0.5])):
        with refused("labels"):
            classified(outputs[:1], wrong)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_one_output_that_is_not_finite_is_an_error(value):
    """argmax would name class 0 for a row of NaN, and be right a quarter of the time."""
    task = make_task("temporal-order", samples=50)

    def spoil(outputs):
        outputs[::2, 1] = value

    assert judged(task, spoil)["errors"] == 25


def test_the_three_definitions_of_an_error_in_adding():
    def errors(protocol, off):
        task = make_task("adding", protocol=protocol, dtype="float64", length=10)
        batch = Batch(np.zeros((10, 1, 2)), np.ones((1, 1)))
        score = task.score(batch.y + off, batch)
        return [score[f"errors_{name}"] for name in ("text", "code", "hs97")]

    assert errors(TEXT, 9e-5) == [0, 0, 0]
    assert errors(TEXT, 2e-4) == errors(CODE, -2e-4) == [1, 0, 0]
    assert errors(TEXT, 0.041) == errors(CODE, -0.041) == [1, 0, 1]
    assert errors(TEXT, 0.39) == [1, 0, 1] and errors(TEXT, 0.41) == [1, 1, 1]
    assert errors(CODE, 0.19) == [1, 0, 1] and errors(CODE, 0.21) == [1, 1, 1]
    assert errors(TEXT, np.nan) == [1, 1, 1]
    paper, code = make_task("adding"), make_task("adding", protocol="manchev-spratling-code")
    close = {"mse": 0.01, "errors_text": 3, "errors_code": 0, "errors_hs97": 0}
    assert code.solved(close) and not paper.solved(close)
    assert not code.solved({**close, "errors_code": 1})
    strict = make_task("adding", protocol="manchev-spratling-hs97")
    assert strict.solved(close) and not strict.solved({**close, "errors_hs97": 1})
    assert paper.solved({**close, "errors_text": 0})


@pytest.mark.parametrize(
    "protocol, baseline",
    [
        ("vorontsov", 1 / 6),
        ("vorontsov-code", 1 / 24),
        ("orhan-pitkow", 1 / 6),
        ("manchev-spratling", 1 / 6),
        ("manchev-spratling-code", 1 / 24),
        ("manchev-spratling-hs97", 1 / 24),
    ],
)
def test_the_baseline_of_adding(protocol, baseline):
    """Always answering the mean of the sum, 1. With S = sum - 1, E S^2 = 1/6 and
    E S^4 = 1/15, so 10,000 squares have a standard deviation of .2 in their mean / 100;
    a half-sum's are a quarter of it."""
    task = make_task("adding", length=20, protocol=protocol)
    assert task.baseline == baseline

    def constant(outputs):
        outputs[...] = 0.5 if task.halved else 1

    assert abs(judged(task, constant)["mse"] - baseline) < 5 * 0.2 / 100 * (6 * baseline)
    if not protocol.startswith("manchev"):
        limit = 0.0025 if protocol == "orhan-pitkow" else baseline / 10
        assert task.solved({"mse": 0.99 * limit}) and not task.solved({"mse": 1.01 * limit})
        assert f"{limit:.4g}".lstrip("0") in task.criterion


def test_copy_counts_the_last_ten_steps_alone():
    """All blanks are right at all but ten steps, and score nothing."""
    task = make_task("copy", length=980, samples=40)

    def blank(outputs):
        outputs[...] = 0
        outputs[..., 0] = 100

    assert judged(task, blank)["accuracy"] == 0 and judged(task)["accuracy"] == 1

    def wrong_before(outputs):
        outputs[:-10] = np.nan

    assert judged(task, wrong_before)["accuracy"] == 1

    def no_memory(outputs):
        outputs[...] = np.where(np.arange(9) == 0, 100, 0)
        outputs[-10:] = np.where(np.arange(9) == 0, -100, 0)

    average = judged(task, no_memory)["cross_entropy"]
    # float32 sums of ten log 8 are off by a few eps each
    assert abs(average - task.baseline) < 20 * np.finfo(np.float32).eps * task.baseline


def test_outputs_of_another_shape_are_refused():
    """(B,) against (B, 1) would broadcast to (B, B)."""
    for name in ("adding", "temporal-order"):
        task = make_task(name)
        batch = task.batch(0, 5, 0)
        with refused("shape"):
            task.score(predictions(task, batch)[:4], batch)
    with refused(r"adding.score: outputs have shape \(5,\); need \(5, 1\)"):
        make_task("adding").score(np.zeros(5), make_task("adding").batch(0, 5, 0))
