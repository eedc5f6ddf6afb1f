"""The benchmark of a run's parts finds the functions that it charges."""

import pytest

from benchmarks.steps import NET, PARTS, RUNS, measure, shares


@pytest.mark.parametrize("name", ["temporal-order", "copy"])
def test_every_part_is_found(name, monkeypatch):
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
    assert (row["step"]["parts"]["manifold step"] > 1e-5) == (name == "copy")
    assert name in shares({"runs": [row]})
