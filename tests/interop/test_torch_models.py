"""A language model and a tagger train on refnet's layers as on PyTorch's."""

import numpy as np
import pytest
import torch

from benchmarks.torch_models import MODELS, apart, both
from refnet.interop import torch_cells

pytestmark = pytest.mark.needs("torch")

SMALL = {"words": 30, "hidden": 12, "B": 4}
STEPS = 20


def curves(name, dtype):
    return {
        kind: [step() for _ in range(STEPS)] for kind, step in both(name, dtype, **SMALL).items()
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", MODELS)
def test_the_same_loss_curve(name, dtype):
    """Within rounding, which the steps may amplify, each by a factor of 2 at most."""
    losses = curves(name, dtype)
    assert losses["torch"][-1] < losses["torch"][0]
    for steps in (1, 5, 10):
        part = {kind: values[:steps] for kind, values in losses.items()}
        assert apart(part) <= 8 * torch.finfo(dtype).eps * 2**steps


def test_a_planted_bug_leaves_the_curve(monkeypatch):
    """One gradient, off by a thousandth."""
    right = torch_cells._with_last

    def wrong(*given):
        dh = np.array(right(*given))
        dh[0] *= 1.001
        return dh

    monkeypatch.setattr(torch_cells, "_with_last", wrong)
    losses = curves("tagger", torch.float64)
    assert apart({kind: values[:10] for kind, values in losses.items()}) > 1e-9
