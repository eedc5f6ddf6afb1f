"""torch.nn.RNN, LSTM and GRU, stacked and in both directions, before the judge."""

from itertools import islice

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from refnet.check import survey  # noqa: E402
from refnet.check.adapters import torch_layers  # noqa: E402


def test_torch_layers_are_judged():
    rows = list(survey.layer_rows((2,), (4, 3, 2), (np.float32,)))
    assert len(rows) == 40
    assert {row["verdict"] for row in rows} == {"explained by rounding"}
    assert {readout for row in rows for readout in ("last", "every", "none")
            if row["what"].endswith(readout)} == {"last", "every", "none"}


@pytest.mark.parametrize("name", ["dx", "dWxh_l1_reverse", "dbhh_l0", "dh0_l1"])
def test_a_wrong_layer_is_rejected(name, monkeypatch):
    right = torch_layers.layer_results

    def wrong(*args):
        found = right(*args)
        if name in found:
            found[name] = found[name] * np.float32(1.001)
        return found

    monkeypatch.setattr(torch_layers, "layer_results", wrong)
    monkeypatch.setattr(survey, "VARIANTS", ("two biases and h0",))
    found = next(islice(survey.layer_rows((2,), (4, 3, 2), (np.float32,)), 1, None))
    assert "both directions" in found["what"]
    assert (found["worst"], found["verdict"]) == (name, "not rounding")
