"""An LSTM whose state is projected: exact on fractions, and a mistake is seen."""

from dataclasses import replace

import numpy as np
import pytest

from refnet.cells import lstm
from refnet.check.verdict import compare
from refnet.exact import certify
from refnet.nets.gradients import loss_and_gradients
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet
from refnet.nets.states import state_gradients, state_jacobians
from support.arguments import refused
from support.drawn import padded
from support.oracles import loss_push_minus_pull, planted, push_minus_pull
from support.rational import generic_case
from support.stacked import rational_net


@pytest.mark.parametrize("cell", ["lstm", "cifg"])
@pytest.mark.parametrize("readout", ["last", "every", "none"])
def test_push_equals_pull(cell, readout):
    for layers, T, h0 in ((2, 1, None), (1, 2, 0), (1, 2, 1)):  # fractions grow with both
        net = rational_net(cell, readout, projection=1, layers=layers)
        case = generic_case(net, seed=3, T=T, B=1, h0=h0)
        assert case.params["Whr_l0_reverse"].shape == (1, 2)
        assert push_minus_pull(case) == 0 and loss_push_minus_pull(case) == 0


BUGS = {
    "the projection is pulled back twice": (
        'e = matmul(e, p["Whr"])',
        'e = 2 * matmul(e, p["Whr"])',
    ),
    "its gradient takes the cell for its output": ("v[t, :, 3] * k[t])\n", "k[t])\n"),
    "and is that of the first step": ("dWhr = dWhr + matmul", "dWhr = matmul"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_push_equals_pull_rejects(bug, monkeypatch):
    net = rational_net("lstm", "every", layers=1, projection=1)
    case = generic_case(net, seed=4, T=2, B=1)
    assert push_minus_pull(case) == 0
    monkeypatch.setattr(lstm, "backward", planted(lstm.backward, *BUGS[bug]))
    assert push_minus_pull(case) != 0


@pytest.mark.parametrize("readout", ["last", "every"])
def test_one_layer_segments_and_certificate(readout):
    pytest.importorskip("flint", reason="python-flint (extra certify) is not installed")
    net = RecurrentNet(2, 4, 3, cell="lstm", readout=readout, projection=2, learn_h0=True)
    params, batch = padded(net, T=90, dtype=np.float32)
    certified = certify(net, params, batch)
    for checkpoint in ("none", "sqrt"):
        found = loss_and_gradients(replace(net, checkpoint=checkpoint), params, batch)
        theirs = {"loss": found.loss, **{f"d{name}": g for name, g in found.gradients.items()}}
        assert compare(theirs, certified).passed
        assert (found.gradients["h0"][0, 2:] == 0).all()
    theirs["dWhr"] = theirs["dWhr"] * np.float32(1.001)
    assert compare(theirs, certified).verdict == "not rounding"


def test_state_gradients():
    """One step at a time, and through the Jacobian: the same as the whole backward pass."""
    net = rational_net("lstm", layers=2, both=False, projection=1)
    case = generic_case(net, seed=5, T=1, B=1)
    found = loss_and_gradients(net, case.params, case.batch).gradients
    flow = state_gradients(net, case.params, case.batch)
    assert (flow[0] == np.concatenate([found["h0_l0"], found["h0_l1"]])).all()
    read = np.concatenate([0 * flow[1, :2], flow[1, 2:]])[:, 0].reshape(-1)
    assert (
        state_jacobians(net, case.params, case.batch.x)[0, 0].T @ read == flow[0, :, 0].reshape(-1)
    ).all()


def test_what_does_not_fit_is_refused():
    for options in ({"cell": "gru"}, {"backend": "compiled"}, {"transition": "orthogonal"}):
        with refused("projection is 2; need 0, or cell lstm"):
            RecurrentNet(2, 4, 3, **{"cell": "lstm", "projection": 2, **options})
    with refused("projection is 4; need fewer units than hidden = 4"):
        StackedNet(2, 4, 3, cell="lstm", projection=4)
    net = RecurrentNet(2, 4, 3, cell="lstm", projection=2)
    params, batch = padded(net)
    with refused("Whh has shape .16, 4.; need .16, 2., because .*P = 2"):
        net.forward({**params, "Whh": np.zeros((16, 4))}, batch.x)
