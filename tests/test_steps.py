"""The benchmark of a training step's parts finds the functions that it charges."""

import pytest

from benchmarks.steps import PARTS, measure


@pytest.mark.parametrize("name", ["temporal-order", "adding"])
def test_every_part_is_found(name):
    row = measure(name, 0.0)
    assert row["steps"] >= 4 and set(row["parts"]) == set(PARTS)
    for part in ("data", "recursion", "read-out and loss", "transition", "clipping", "optimiser"):
        assert row["parts"][part] > 0, part
