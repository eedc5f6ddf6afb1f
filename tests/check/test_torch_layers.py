"""torch.nn.RNN, LSTM and GRU, stacked and in both directions, before the judge."""

from dataclasses import replace

import numpy as np
import pytest

from refnet.check import layers
from refnet.check.adapters import torch_nets

pytestmark = pytest.mark.needs("torch")

TABLE = layers.TABLES[0]


def test_torch_nets_are_judged():
    rows = list(layers.rows(replace(TABLE, depths=(2,)), (4, 3, 2), (np.float32,)))
    assert len(rows) == 60
    assert {row["verdict"] for row in rows} == {"explained by rounding"}
    assert {
        readout
        for row in rows
        for readout in ("last", "every", "none")
        if row["what"].endswith(readout)
    } == {"last", "every", "none"}


def test_torch_nets_are_judged_in_bfloat16():
    few = replace(TABLE, depths=(2,), directions=1, layers={"nn.LSTM": TABLE.layers["nn.LSTM"]})
    rows = list(layers.rows(few, (4, 3, 2), ("bfloat16-float32",)))
    assert [row["verdict"] for row in rows] == ["explained by rounding"] * len(few.variants)


def test_a_wrong_layer_in_bfloat16_is_rejected():
    few = replace(TABLE, depths=(2,), directions=1, layers={"nn.LSTM": TABLE.layers["nn.LSTM"]})
    wrong = replace(
        few, results=lambda case: {name: value + 1 for name, value in few.results(case).items()}
    )
    rows = list(layers.rows(wrong, (4, 3, 2), ("bfloat16-float32",)))
    assert {row["verdict"] for row in rows} == {"not rounding"}


@pytest.mark.parametrize("name", ["dx", "dWxh_l1_reverse", "dbhh_l0", "dh0_l1", "dWhr_l1_reverse"])
def test_a_wrong_layer_is_rejected(name, monkeypatch):
    right = torch_nets.results

    def wrong(*args, **options):
        found = right(*args, **options)
        if name in found:
            found[name] = found[name] * np.float32(1.001)
        return found

    monkeypatch.setattr(torch_nets, "results", wrong)
    kind = "nn.LSTM proj_size" if "Whr" in name else "nn.RNN tanh"
    table = replace(
        TABLE, depths=(2,), variants=("two biases and h0",), layers={kind: TABLE.layers[kind]}
    )
    found = list(layers.rows(table, (4, 3, 2), (np.float32,)))[1]
    assert "both directions" in found["what"]
    assert (found["worst"], found["verdict"]) == (name, "not rounding")
