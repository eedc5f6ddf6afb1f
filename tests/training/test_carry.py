"""A text as parallel streams, with the state carried on: batches, figures, resuming, refusals."""

from dataclasses import replace

import numpy as np
import pytest

from refnet.batch import Batch
from refnet.cli import main
from refnet.nets.gradients import scored
from refnet.tasks import make_task
from refnet.training import steps
from refnet.training.experiment import build
from refnet.training.fit import Fit
from refnet.training.noise import SETTINGS
from refnet.training.protocols import configure, configure_task
from refnet.training.steps import Run, evaluate
from support.arguments import refused
from support.compiled import at_every_number_of_threads
from support.oracles import planted
from support.runs import arrays, resume, same, train, train_for

LENGTH, SIZE = 5, 3
TRAINING = 16
"""Pieces of the training part: an epoch has 6 batches of 3 rows, the last of a single row."""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("".join(np.random.default_rng(0).choice(list("abcd"), 40 * LENGTH + 1)))
    given = {"batch": SIZE, "hidden": 4, "iterations": 20, "evaluate_every": 7}
    task = f"{path}:length={LENGTH},validation=0.3,test=0.3"
    return configure({"task": task, "carry": True, "cell": "lstm", "rate": 0.05, **given})


def pieces_of(task, batch):
    """The pieces of the text that a batch has, by the rows."""
    pieces = task._x.steps.reshape(-1, LENGTH)
    return [int((pieces == row).all(axis=1).argmax()) for row in batch.x.T]


def streamed(batches):
    """Batches of streams as one of whole streams, of those rows that all batches have."""
    rows = batches[-1].x.shape[1]
    return Batch(*(np.concatenate([batch[n][:, :rows] for batch in batches]) for n in range(2)))


@pytest.mark.parametrize("size", [1, 3, 4, 16, 20])
def test_every_row_goes_on_where_it_ended(config, size):
    """An epoch has every piece once; row b of a batch follows row b of the one before."""
    task = build(config).task
    batches = -(-TRAINING // size)
    epoch = [pieces_of(task, task.batch(index, size, seed=0)) for index in range(batches)]
    for before, after in zip(epoch, epoch[1:]):
        assert after == [piece + 1 for piece in before[: len(after)]]
    assert sorted(sum(epoch, [])) == list(range(TRAINING))
    assert [task.continues(n, size) for n in range(batches + 1)] == [
        *(n > 0 for n in range(batches)),
        False,
    ]
    assert (task.batch(batches, size, seed=1).x == task.batch(0, size, seed=0).x).all()
    held = sum((pieces_of(task, batch) for batch in task.evaluation(0, 0, "validation")), [])
    assert sorted(held) == list(range(TRAINING, TRAINING + 12))


@pytest.mark.parametrize("backend", ["reference", "compiled"])
def test_losses_and_figures_are_those_of_whole_streams(config, backend):
    """With a rate of 0, so that the parameters stay: in the epoch's full batches, and likewise in
    the next epoch, which starts at zero; evaluations start at zero whatever was trained on."""
    e = build(replace(config, rate=0.0, backend=backend, dtype="float64"))
    run, _ = Run.start(e)
    batches = [e.task.batch(n, SIZE, 0) for n in range(5)]
    outputs, _ = e.net.forward(run.params, streamed(batches).x)
    wanted = [
        scored(e.net, outputs[n * LENGTH : (n + 1) * LENGTH], batch)[0]
        for n, batch in enumerate(batches)
    ]
    losses, figures = [], []
    for n in range(11):
        run, result, norm = steps.step(e, run, e.task.batch(n, SIZE, 0))
        losses.append(result.loss)
        figures.append(evaluate(e, run, norm)["bpc"])
        assert bool(run.carried) == (n != 5)
    assert np.allclose(losses[:5], wanted, rtol=1e-14, atol=0) and losses[6:] == losses[:5]
    held = list(e.task.evaluation(0, 0, "validation"))
    totals = {}
    for rows, batches in ((slice(2), held), (slice(2, None), held[:1])):  # 12 pieces, 10 streams
        stream = Batch(*(np.concatenate([b[n][:, rows] for b in batches]) for n in range(2)))
        score = e.task.score(e.net.forward(run.params, stream.x)[0], stream)
        totals = {name: totals.get(name, 0) + value for name, value in score.items()}
    assert np.isclose(figures[0], e.task.metrics(totals)["bpc"], rtol=1e-14, atol=0)
    assert len(set(figures)) == 1


@pytest.mark.parametrize(
    "settings",
    [{}, {"layers": 2, "zoneout": 0.1}, {"cell": "rnn", "checkpoint": "sqrt"}, {"accumulate": 4}],
    ids=["lstm", "stacked", "rnn", "accumulated"],
)
def test_resuming_gives_the_same_bits_on_any_number_of_threads(config, tmp_path, settings):
    config = replace(config, **settings)
    train(config, tmp_path / "whole")
    at_every_number_of_threads(lambda: train_for(8, config, tmp_path / "parts"), 1)
    assert any(name.startswith("carried/h0") for name in arrays(tmp_path / "parts")[0])
    resume(config, tmp_path / "parts")
    assert same(tmp_path / "parts", tmp_path / "whole")


BUGS = {
    "not carried": (steps.step, "carried=result.final", "carried={}"),
    "from another row": (steps._started, "value[..., :B, :]", "value[..., ::-1, :][..., :B, :]"),
    "into the next epoch": (steps._accumulated, "index + 1)", "1)"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_changes_the_bits(config, monkeypatch, bug):
    def trained():
        fit = Fit.start(build(replace(config, batch=4)))
        fit.advance()
        return fit.run.params["Whh"]

    function, old, new = BUGS[bug]
    right, wrong = trained(), planted(function, old, new)
    where = "fit" if function is steps.step else "steps"
    monkeypatch.setattr(f"refnet.training.{where}.{function.__name__}", wrong)
    assert (trained() != right).any()


def test_a_checkpoint_without_the_states_is_rejected(config, tmp_path, monkeypatch):
    train(config, tmp_path / "whole")
    wrong = planted(Run.to_checkpoint, "if self.carried:", "if False:")
    monkeypatch.setattr(Run, "to_checkpoint", wrong)
    train_for(8, config, tmp_path / "parts")
    resume(config, tmp_path / "parts")
    assert not same(tmp_path / "parts", tmp_path / "whole")


def test_what_cannot_be_is_refused(config):
    for settings, said in (
        ({"bidirectional": True}, "bidirectional is True; need False with carry"),
        ({"learn_h0": True}, "learn_h0 is True; need False with carry"),
        ({"order": "mixed"}, "order is 'mixed'; need 'shuffled' with carry"),
        ({"ignore": "0"}, "ignore is '0'; need '' with carry"),
    ):
        with refused(said):
            build(replace(config, **settings))
    with refused("carry True would have no effect: it is for texts"):
        build(replace(config, task="adding"))


def test_the_task_says_whether_states_are_carried(config):
    """By --carry, by its spec or as an object: one run."""
    whole = Fit.start(build(config))
    whole.advance()
    name = config.task.partition(":")[0]
    task = make_task(name, length=LENGTH, validation=0.3, test=0.3, carry=True)
    spec = replace(config, task=f"{config.task},carry=true", carry=False)
    given = {name: getattr(config, name) for name in ("batch", "hidden", "cell", "rate")}
    given |= {"iterations": 20, "evaluate_every": 7}
    with refused("carry True would have no effect: the task is an object"):
        configure_task(task, {**given, "carry": True})
    for other in (build(spec), build(configure_task(task, given), task)):
        fit = Fit.start(other)
        fit.advance()
        assert (fit.run.params["Whh"] == whole.run.params["Whh"]).all()


def test_a_run_is_analysed(config, tmp_path, capsys):
    train(config, tmp_path / "run")
    assert main(["analyse", str(tmp_path / "run")]) == 0
    assert "largest exponent" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("name", [name for name in SETTINGS if not name.endswith("inputs")])
def test_noise_acts_on_a_net_of_symbols(config, name):
    """Whose inputs are integers (T, B), from which neither its dtype nor its shape follows."""
    noisy = build(replace(config, **{name: 0.25}))
    run, _ = Run.start(noisy)
    batch = noisy.task.batch(0, SIZE, 0)
    losses = {float(steps.step(e, run, batch)[1].loss) for e in (noisy, build(config))}
    assert len(losses) == 2
