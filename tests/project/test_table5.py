"""The benchmark of Table 5 compares what is equal: its check before the clock starts."""

import pytest
import torch

from benchmarks.table5 import contenders, measure, verify

pytestmark = pytest.mark.needs("torch")


@pytest.fixture(autouse=True)
def one_thread():
    """Products this small only lose by threads that wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_contenders_agree():
    entries = contenders(8, "reference")
    losses = verify(entries, 8)
    assert len(losses) == 13 and all(two < 10 for _, two in losses.values())


@pytest.mark.parametrize("name,wrong", [("torch sgd", "Why"), ("torch cayley", "Wxh")])
def test_a_contender_with_other_weights_is_refused(name, wrong):
    entries = contenders(8, "reference")
    entries[name].value[wrong].data[0, 0] += 0.1
    with pytest.raises(AssertionError):
        verify(entries, 8)


def test_a_contender_that_leaves_the_manifold_is_refused():
    entries = contenders(8, "reference")
    entries["torch trivialisation"].base[0, 0] += 1e-3
    with pytest.raises(AssertionError):
        verify(entries, 8)


def test_record():
    record = measure(8, 1, "reference")
    assert record["paper_geosgd / sgd"] is None and record["steps_per_round"] == 5
    assert min(value["median"] for value in record["milliseconds"].values()) > 0
    assert set(record["ratios"]["geosgd / sgd"]) == {"median", "quartiles"}
