"""The training loop: what it writes, how it stops, and that resuming changes no bit."""

import json
import signal
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest

from refnet.cli import main
from refnet.nets.gradients import loss_and_gradients
from refnet.runs import checkpoint
from refnet.training import loop, steps
from refnet.training.config import Config
from refnet.training.config_files import from_toml
from refnet.training.experiment import build
from refnet.training.fit import better as better_row
from refnet.training.loop import NotFiniteError
from refnet.training.optimizers import Adam
from refnet.training.protocols import preset
from refnet.training.summary import draw_curves
from support.arguments import refused
from support.realdata import real_data
from support.runs import SHORT, TINY, arrays, resume, resumes, rows, same, train, train_for


def test_a_run_folder_holds_everything(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "draw_curves", draw_curves)
    folder = tmp_path / "run"
    summary = loop.train(TINY, folder)
    assert summary.state == "finished" and summary.iteration == 30
    everything = {
        "config.toml",
        "rows.jsonl",
        "checkpoint.npz",
        "summary.md",
        "summary.json",
        "environment.json",
        ".lock",
    }
    figure = {"curves.png"} if find_spec("matplotlib") else set()
    assert {file.name for file in folder.iterdir()} == everything | figure
    train(TINY, tmp_path / "bare")
    assert {file.name for file in (tmp_path / "bare").iterdir()} == everything
    assert [row["iteration"] for row in rows(folder)] == [10, 20, 30]
    assert {"loss", "accuracy", "spectral_radius", "defect", "gradient_norm"} <= set(
        rows(folder)[0]
    )
    assert Config(**from_toml(folder / "config.toml")) == TINY


def test_same_seed_same_bits_and_other_seed_other_bits(tmp_path):
    for name, config in (("a", TINY), ("b", TINY), ("c", replace(TINY, seed=1))):
        train(config, tmp_path / name)
    assert same(tmp_path / "a", tmp_path / "b")
    assert arrays(tmp_path / "a")[0] != arrays(tmp_path / "c")[0]


@pytest.mark.parametrize("learnt", [False, True])
def test_the_norm_is_that_of_the_parameters(learnt):
    """Of a start state only if it is one of them. With the gradient in every h0 in it, as
    loss_and_gradients gives it, the norm is another one and so is what clipping leaves."""
    experiment = build(replace(TINY, clip="norm", clip_at=1e-3, learn_h0=learnt))
    params, _ = experiment.start()
    batch = experiment.task.batch(0, 5, 0)
    gradients = loss_and_gradients(experiment.net, params, batch, inputs=False).gradients
    clipped, norm, _ = experiment.clip(gradients, params)
    total = sum(float(np.square(gradients[name], dtype=float).sum()) for name in params) ** 0.5
    h0 = float(np.square(gradients["h0"], dtype=float).sum()) ** 0.5
    assert abs(norm - total) <= 1e-6 * total and (total**2 + h0**2) ** 0.5 > total * (1 + 1e-5)
    assert set(clipped) == set(params) and ("h0" in clipped) == learnt
    left = sum(float(np.square(value, dtype=float).sum()) for value in clipped.values()) ** 0.5
    assert abs(left - 1e-3) <= 1e-9


@pytest.mark.parametrize("net, penalised", [("temporal-order", {"Whh"}), ("mnist", None)])
def test_both_methods_act_as_in_the_released_code(net, penalised, monkeypatch):
    """OINIT on all matrices; OPEN on all of a feedforward net's, of a recurrent net's on W_hh."""
    if net == "mnist":
        monkeypatch.setenv("REFNET_DATA", str(real_data("mnist")))
    experiment = build(preset(net, method="oinit+open", hidden=5, backend="reference"))
    params = {
        name: np.ones(shapes[0]) for name, shapes in experiment.net.shapes.items() if name != "h0"
    }
    assert set(experiment.pretrained) == set(experiment.matrices)
    assert set(experiment.penalty(params)[1]) == (penalised or set(experiment.matrices))
    assert (experiment.config.orthogonal == "all") == (penalised is None)


COPY = replace(
    preset("copy:samples=20"),
    length=12,
    hidden=6,
    batch=4,
    iterations=25,
    evaluate_every=10,
    backend="reference",
)


@pytest.mark.parametrize(
    "config, cut",
    [
        *(
            (replace(TINY, method=method), cut)
            for method in ("plain", "oinit", "open", "oinit+open")
            for cut in (10, 17)
        ),
        (COPY, 13),
        (replace(COPY, transition="orthogonal", checkpoint="sqrt"), 13),
        (replace(COPY, transition="svd:margin=none", optimizer="adam"), 13),
        (replace(COPY, cell="lstm:peepholes=true", transition="dense", activation="tanh"), 13),
        (
            replace(
                COPY, cell="gru", transition="scaled_cayley", activation="tanh", dtype="float64"
            ),
            13,
        ),
        (replace(COPY, layers=2, bidirectional=True, transition="orthogonal", learn_h0=True), 13),
        (replace(COPY, layers=3, cell="cifg", transition="dense", activation="tanh"), 13),
        (replace(COPY, transition="dense", activation="tanh", clip="step"), 13),
    ],
)
def test_resuming_gives_the_same_bits(tmp_path, config, cut):
    """Stopped before step ``cut`` + 1 and continued: as if it had never stopped."""
    assert build(config).net.checkpoint == config.checkpoint
    train(config, tmp_path / "whole")
    summary = train_for(cut, config, tmp_path / "parts")
    assert summary.state == "interrupted" and summary.iteration == cut
    assert resume(config, tmp_path / "parts").state == "finished"
    assert same(tmp_path / "parts", tmp_path / "whole")


@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_a_run_of_a_step_in_numpy_goes_on_in_the_kernels_with_the_same_bits(
    tmp_path, optimizer, monkeypatch
):
    config = replace(
        COPY,
        hidden=64,
        transition="dense",
        optimizer=optimizer,
        backend="compiled",
        clip="norm",
        clip_at=0.1,
    )
    train(config, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(Adam, "large", np.inf)
        train_for(13, config, tmp_path / "parts")
    assert resume(config, tmp_path / "parts").state == "finished"
    assert same(tmp_path / "parts", tmp_path / "whole")


def test_resume_oracle_rejects_a_lost_accumulator(tmp_path, monkeypatch):
    """If the optimiser's state did not come back, the comparison above would see it."""
    load = checkpoint.load

    def forgetful(path, config):
        saved = load(path, config)
        for value in saved.groups["optimizer"].values():
            value *= 0
        return saved

    monkeypatch.setattr(checkpoint, "load", forgetful)
    assert not resumes(TINY, 15, tmp_path)


def test_a_signal_after_the_last_step_does_not_make_the_run_an_interrupted_one(
    tmp_path, monkeypatch, capsys
):
    write = loop.write_reports

    def late(*arguments):
        signal.raise_signal(signal.SIGTERM)
        write(*arguments)

    monkeypatch.setattr(loop, "write_reports", late)
    assert main([*SHORT, "--out", str(tmp_path / "run")]) == 143
    said = capsys.readouterr().out
    assert "| finished" in said and "go on with" not in said


@pytest.mark.parametrize("rate, moves", [(0.0, False), (1e-3, True)])
def test_bases_stay_where_they_are_at_a_rate_of_0(tmp_path, rate, moves):
    config = replace(TINY, transition="svd:margin=0.5", recurrent="orthogonal", manifold_rate=rate)
    train(config, tmp_path / "run")
    start, _ = build(config).start()
    path = tmp_path / "run" / "checkpoint.npz"
    params = checkpoint.load(path, loop.identity(config)).groups["params"]
    assert [(params[f"Whh.{part}"] != start[f"Whh.{part}"]).any() for part in "UVp"] == [
        moves,
        moves,
        True,
    ]


@pytest.mark.filterwarnings("ignore:.*encountered in.*:RuntimeWarning")
@pytest.mark.parametrize("rate", [1e12, 1e30])
def test_a_step_that_leaves_the_manifold_is_a_divergence(tmp_path, rate):
    config = replace(TINY, transition="orthogonal:step=geodesic", manifold_rate=rate)
    with refused("step 1: too large for the manifold: .* its rate", NotFiniteError):
        train(config, tmp_path / "run")
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["state"] == "diverged"


def test_a_figure_that_cannot_be_drawn_does_not_fail_the_run(tmp_path, monkeypatch, caplog):
    """As with Matplotlib's setting text.usetex, where there is no LaTeX."""
    plots = pytest.importorskip("refnet.runs.plots")

    def fail(*arguments):
        raise RuntimeError("latex could not be found")

    monkeypatch.setattr(loop, "draw_curves", draw_curves)
    monkeypatch.setattr(plots, "plot_curves", fail)
    assert loop.train(TINY, tmp_path / "run").state == "finished"
    assert "curves.png: Matplotlib could not draw it: latex could not be found" in caplog.text


def test_a_solved_task_stops(tmp_path, monkeypatch):
    summary = train(
        replace(
            TINY,
            rate=0.003,
            hidden=20,
            iterations=4000,
            evaluate_every=50,
            method="oinit",
            batch=20,
        ),
        tmp_path / "run",
    )
    assert summary.state == "solved" and summary.iteration < 4000
    assert rows(tmp_path / "run")[-1]["errors"] == 0


def test_unreadable_settings_are_refused(tmp_path):
    path = tmp_path / "c.toml"
    for text, message in (
        ("rat = 1", "setting 'rat' is unknown"),
        ("rate = 'x'", "need a float"),
        ("rate = ", "not a readable TOML file"),
    ):
        path.write_text(text)
        with refused(message):
            from_toml(path)
    with refused("absent.toml: No such file .*; need a TOML file"):
        from_toml(tmp_path / "absent.toml")


@pytest.mark.parametrize(
    "config",
    [
        Config(
            "copy:samples=30",
            length=12,
            hidden=6,
            net="recurrent",
            transition="svd:margin=0.5",
            recurrent="orthogonal",
            embedding=3,
        ),
        Config(
            "temporal-order:samples=30",
            length=12,
            hidden=6,
            cell="gru",
            transition="orthogonal",
            layers=2,
        ),
    ],
)
def test_an_evaluation_makes_its_matrices_once(config, monkeypatch):
    """And gives the bits of the net that makes new ones for every batch."""
    e = build(config)
    params, _ = e.start()
    net, pieces = e.assembled(params)
    batches = list(e.task.evaluation(0, 0))
    for batch in batches:
        assert np.array_equal(
            net.forward(pieces, batch.x, batch.mask)[0],
            e.net.forward(params, batch.x, batch.mask)[0],
        )
    called = []
    kind = type(e.net.transition)
    original = kind.matrix
    monkeypatch.setattr(
        kind, "matrix", lambda self, parts: called.append(0) or original(self, parts)
    )
    steps.outputs(e, params, iter(batches * 3))
    assert len(called) == len(e.hidden)


def test_a_start_beyond_the_range_of_its_type_is_refused(tmp_path):
    config = preset("temporal-order", length=10, weights="gaussian:sd=1e300")
    with refused("the start of .* is not finite in float32: give an init"):
        train(config, tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("task", ["temporal-order:samples=20", "adding:samples=20"])
def test_of_equal_evaluations_the_first_is_the_best(task):
    pieces = build(Config(task, length=20)).task
    less, more = {pieces.metric: 0.25}, {pieces.metric: 0.5}
    better, worse = (less, more) if pieces.lower_is_better else (more, less)
    assert better_row(pieces, worse, {}) and better_row(pieces, better, worse)
    assert not better_row(pieces, worse, better) and not better_row(pieces, worse, dict(worse))
