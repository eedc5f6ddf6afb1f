"""Watched runs, runs loaded from their folders, and what analyse and compare say of them."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from refnet.batch import Batch
from refnet.cli import main
from refnet.explain.runs import analyse, compare
from refnet.nets.gradients import loss_and_gradients
from refnet.nets.recurrent import RecurrentNet
from refnet.runs.read import FileError
from refnet.runs.style import label_of
from refnet.training.experiment import build
from refnet.training.load import load
from refnet.training.loop import resume, train
from refnet.training.protocols import preset
from refnet.training.watch import SEQUENCES, observed
from support.arguments import refused

KINDS = {
    "plain": {"task": "temporal-order", "length": 10},
    "svd": {"task": "copy", "length": 3, "transition": "svd:margin=1"},
    "lstm": {"task": "temporal-order", "length": 10, "cell": "lstm"},
    "stacked": {"task": "temporal-order", "length": 10, "layers": 2, "bidirectional": True},
}


def config(kind, **given):
    return preset(
        **{
            **KINDS[kind],
            "hidden": 6,
            "batch": 4,
            "iterations": 4,
            "evaluate_every": 2,
            "backend": "reference",
            **given,
        }
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for kind in KINDS:
        train(config(kind, watch=True), folder / kind)
    train(config("plain", seed=1), folder / "unwatched")
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_watched(runs, kind):
    """Rows have what they promise, of the parameters at that time; the metrics and the bits of
    training do not depend on it."""
    run = load(runs / kind)
    assert [row["iteration"] for row in run.rows] == [2, 4]
    seen = run.rows[-1]["watch"]
    batch = next(iter(run.task.evaluation(4, 0, "test")))
    gradients = loss_and_gradients(run.net, run.params, batch).gradients
    for name, value in run.params.items():
        assert seen["gradients"][name] == pytest.approx(np.linalg.norm(gradients[name]), rel=1e-4)
    total = sum(norm**2 for norm in seen["gradients"].values()) ** 0.5
    assert seen["gradient_norm"] == pytest.approx(total)
    for name, W in run.experiment.matrices_of(run.params, run.experiment.matrices).items():
        s = np.linalg.svd(W.astype(float), compute_uv=False)
        assert seen["matrices"][name]["s_max"] == pytest.approx(s[0])
        assert ("henrici" in seen["matrices"][name]) == (W.shape[0] == W.shape[1])
    assert ("flow" in seen) == (kind != "stacked")
    assert kind == "stacked" or len(seen["flow"]) == len(seen["flow_at"]) == len(batch.x) + 1
    assert "watch" not in run.best and "watch" not in (runs / kind / "summary.md").read_text()


def test_watching_changes_no_bit(runs, tmp_path):
    train(config("plain"), tmp_path / "same")
    plain, watched = load(tmp_path / "same"), load(runs / "plain")
    assert all((plain.params[name] == watched.params[name]).all() for name in plain.params)


def test_load(runs, tmp_path):
    """A loaded run goes on like the run itself; the folder is left as it was."""
    before = {path.name: path.read_bytes() for path in (runs / "plain").iterdir()}
    run = load(str(runs / "plain"))
    assert run.iteration == 4 and run.best["iteration"] in (2, 4)
    assert {path.name: path.read_bytes() for path in (runs / "plain").iterdir()} == before
    shutil.copytree(runs / "plain", tmp_path / "on")
    resume(config("plain", watch=True, iterations=6), tmp_path / "on")
    assert load(tmp_path / "on").iteration == 6
    with refused("config.toml", (FileError, ValueError)):
        load(tmp_path / "none")


@pytest.mark.parametrize("kind", KINDS)
def test_analyse(runs, kind):
    report = analyse(runs / kind)
    assert report.tables[0].rows[0][0].startswith("Whh")
    tables = {table.caption.split()[0]: table for table in report.tables}
    run = load(runs / kind)
    for name, *row in tables["Hidden"].rows:
        pair = [
            run.experiment.matrices_of(params, [name])[name]
            for params in (run.experiment.start()[0], run.best_params)
        ]
        assert row[::2] == [pytest.approx(W.std()) for W in pair]
    if kind == "stacked":  # its layers run in both directions
        return
    flow = tables["Gradient"].rows[0]
    assert all(np.isfinite(value) and value >= 0 for value in flow[:3])
    longer = next(table for table in report.tables if "longer T" in table.caption)
    assert longer.header == [f"T = {n * run.config.length}" for n in (1, 2, 3, 4)]
    assert all(np.isfinite(longer.rows[0]))


def test_the_flow_ends_with_the_sequences():
    """Not in the padding, to which longer ones of the same batch stretch theirs."""
    net = RecurrentNet(2, 4, 3, readout="every")
    rng = np.random.default_rng(0)
    experiment = replace(build(config("plain")), net=net)
    params = net.init(rng, np.float64)
    x, y = rng.normal(size=(12, 20, 2)), rng.integers(0, 3, (12, 20))
    mask = np.arange(12)[:, None] < np.where(np.arange(20) < SEQUENCES, 5, 12)
    report = observed(experiment, params, Batch(x, y, mask))
    assert report["flow_at"][-1] == 5 and report["flow"][-1] > 0
    whole = observed(experiment, params, Batch(x[:5, :SEQUENCES], y[:5, :SEQUENCES]))
    assert np.allclose(report["flow"], whole["flow"], rtol=1e-12)


def test_rows_unknown_to_the_checkpoint_are_refused(runs, tmp_path):
    path = shutil.copytree(runs / "plain", tmp_path / "run") / "rows.jsonl"
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    for use in (load, analyse, lambda folder: compare([folder, runs / "plain"])):
        with refused("rows.jsonl: .*put back a whole copy of it", FileError):
            use(path.parent)


def test_runs_of_one_name_are_told_apart(runs, tmp_path):
    other = shutil.copytree(runs / "plain", tmp_path / "plain")
    report = compare([runs / "plain", other])
    assert [row[0] for row in report.tables[0].rows] == [str(runs / "plain"), str(other)]
    with refused("of copy and temporal-order; name runs of one task"):
        compare([runs / "plain", runs / "svd"])


def test_names_are_shown_as_they_are():
    assert label_of("_a$b$") == r" _a\$b\$" and label_of("run 1") == "run 1"


def test_compare(runs):
    report = compare([runs / "plain", runs / "unwatched"])
    assert report.tables[0].header[1:3] == ["seed", "watch"]
    train(config("plain", task="adding"), runs / "adding")
    with refused("runs of one task"):
        compare([runs / "plain", runs / "adding"])


def test_commands(runs, tmp_path):
    pytest.importorskip("matplotlib")
    from support.figures import faults

    for arguments in (["analyse", runs / "plain"], ["compare", runs / "plain", runs / "unwatched"]):
        figure = tmp_path / "figure.png"
        assert main([*map(str, arguments), "--figure", str(figure)]) == 0
        assert figure.read_bytes().startswith(b"\x89PNG")
        figure.unlink()
    assert not faults(analyse(runs / "lstm").figure())
    assert not faults(compare([runs / "plain", runs / "unwatched"]).figure())
    rows = (runs / "plain" / "rows.jsonl").read_text().splitlines()
    assert all("watch" in json.loads(line) for line in rows)
