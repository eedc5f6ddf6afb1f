"""The benchmark of a run's parts finds the functions that it charges."""

import json
import sys
import time

import pytest

from benchmarks import steps
from benchmarks.steps import NET, PARTS, RUNS, measure, shares
from refnet.training.experiment import Experiment

PAUSE = 0.01


@pytest.mark.parametrize("name", ["temporal-order", "copy"])
def test_every_part_is_found(name, monkeypatch):
    """Each has some time; what one function is made to wait is counted as its own part's."""
    move = Experiment.manifold_step

    def slower(*arguments):
        time.sleep(PAUSE)
        return move(*arguments)

    monkeypatch.setattr(Experiment, "manifold_step", slower)
    monkeypatch.setattr("benchmarks.steps.EVERY", 12)
    monkeypatch.setitem(RUNS, name, {**RUNS[name], "task": f"{name}:samples=30"})
    row = measure(name, 0.0)
    assert row["steps"] >= 4 and row["evaluations"] >= 1
    for kind in ("step", "evaluation"):
        parts = row[kind]["parts"]
        assert set(parts) == set(PARTS)
        for part in ("data", *NET):
            assert parts[part] > 0, part
        assert sum(parts.values()) <= 1.5 * row[kind]["time"]
    assert row["step"]["parts"]["optimiser"] > row["step"]["parts"]["scores"] == 0
    assert row["step"]["parts"]["clipping"] > 0
    assert all(row["evaluation"]["parts"][part] > 0 for part in ("scores", "matrices", "files"))
    assert row["evaluation"]["parts"]["optimiser"] == 0
    assert 0 < row["in the net"] < 1 and 0 < row["evaluation's share"] < 1
    assert row["step"]["parts"]["manifold step"] >= PAUSE
    assert row["evaluation"]["parts"]["manifold step"] == 0
    assert name in shares({"runs": [row]})


def test_some_runs_replace_their_rows(monkeypatch, tmp_path, capsys):
    """A run measured alone takes its place in the record; what was not measured stays."""
    path = tmp_path / "steps.json"
    step = {"time": 1.0, "parts": dict.fromkeys(PARTS, 0.0)}
    row = dict.fromkeys(("T", "D", "H", "B", "every"), 1) | {
        "step": step,
        "evaluation": step,
        steps.SHARE: 0.5,
        "in the net": 0.5,
    }
    path.write_text(
        json.dumps({"runs": [{**row, "run": "mnist"}, {**row, "run": "ptb"}], "side by side": []})
    )
    pair = {"median": 1.0, "quartiles": [1.0, 1.0]}
    monkeypatch.setattr("benchmarks.records.RESULTS", tmp_path)
    monkeypatch.setattr(steps, "measure", lambda name, budget: {**row, "run": name, "H": 7})
    monkeypatch.setattr(
        steps,
        "side_by_side",
        lambda name, *_: {"run": name, "alone": pair, "together": pair, "ratio": pair},
    )
    records = []
    for options in (["ptb", "copy"], [], ["ptb", "--quick"]):
        monkeypatch.setattr(sys, "argv", ["steps", "--runs", *options])
        assert steps.main() == 0 and "mnist" in capsys.readouterr().out
        records.append(json.loads(path.read_text()))
    assert [(run["run"], run["H"]) for run in records[0]["runs"]] == [
        ("mnist", 1),
        ("copy", 7),
        ("ptb", 7),
    ] and not records[0]["side by side"]
    assert records[1]["runs"] == records[0]["runs"] and len(records[1]["side by side"]) == 3
    assert records[2] == records[1]
