"""What a layer can have besides: coupled gates, gates by name, clipped inputs, a second bias,
and a projected state."""

from dataclasses import replace

import numpy as np
import pytest

from refnet.cells import lstm
from refnet.check.cases import reference_results
from refnet.check.verdict import compare
from refnet.exact import certify
from refnet.maths.activations import ACTIVATIONS, clipped
from refnet.nets.gradients import loss_and_gradients
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet
from refnet.nets.states import state_gradients, state_jacobians
from support.arguments import refused
from support.drawn import padded
from support.oracles import loss_push_minus_pull, planted, push_minus_pull
from support.rational import generic_case
from support.stacked import rational_net


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru", "gru_before", "cifg"])
def test_a_second_bias_is_added(cell):
    """Its gradient is that of the rows of bh that it is added to, also with a gain."""
    net = rational_net(cell, layers=2 if cell == "rnn" else 1, both=False, gain=2)
    case = generic_case(net, seed=5, T=2, B=1)
    size = net.every_cell["_l0"].shapes["bhh"][0]
    case.params["bhh_l0"] = case.params["bh_l0"][: size[0]] * 3
    case.direction["bhh_l0"] = case.params["bhh_l0"] + 1
    assert push_minus_pull(case) == 0 and loss_push_minus_pull(case) == 0
    computed = loss_and_gradients(net, case.params, case.batch)
    merged = {name: value for name, value in case.params.items() if name != "bhh_l0"}
    merged["bh_l0"] = merged["bh_l0"].copy()
    merged["bh_l0"][: size[0]] += case.params["bhh_l0"]
    assert loss_and_gradients(net, merged, case.batch).loss == computed.loss
    assert (computed.gradients["bhh_l0"] == computed.gradients["bh_l0"][: size[0]]).all()


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_clipped_inputs(cell):
    """A bound that is reached by some entries: the pull is the transpose of the push; one that
    none reaches changes nothing."""
    net = rational_net(cell, "every", layers=1, both=False, clip_forward=2)
    case = generic_case(net, seed=6, T=2, B=2)
    assert push_minus_pull(case) == 0 and loss_push_minus_pull(case) == 0
    free = replace(net, clip_forward=None)
    assert push_minus_pull(case._replace(net=free)) == 0
    clipped_loss, free_loss, wide_loss = (
        loss_and_gradients(each, case.params, case.batch).loss
        for each in (net, free, replace(net, clip_forward=10**6))
    )
    assert clipped_loss != free_loss == wide_loss


def test_clipped_ends_and_nan():
    act = clipped(ACTIVATIONS["identity"], 3)
    a = np.array([-4, -3, -2, 3, 4, np.nan])
    h = act.forward(a, {})
    assert np.array_equal(h, [-3, -3, -2, 3, 3, np.nan], equal_nan=True)
    da, _ = act.backward(a, h, np.ones(6), {})
    assert np.array_equal(da, [0, 0, 1, 1, 0, 1])  # at both ends the left-hand slope


@pytest.mark.parametrize("name", ["softsign", "tanh", "relu"])
def test_gates_by_name(name):
    """Other gates on both backends, certified; and they are not the sigmoid."""
    pytest.importorskip("flint", reason="python-flint (extra certify) is not installed")
    net = RecurrentNet(2, 4, 3, cell="lstm", gate=name, backend="reference")
    assert net.gate is ACTIVATIONS[name]
    params, batch = padded(net, dtype=np.float32)
    certified = certify(net, params, batch)
    for backend in ("reference", "compiled"):
        theirs = reference_results(replace(net, backend=backend), params, batch)
        assert compare(theirs, certified).passed
    assert reference_results(replace(net, gate="sigmoid"), params, batch)["loss"] != theirs["loss"]
    flow = state_gradients(net, params, batch)  # one step at a time, with these gates too
    assert abs(flow[0] - theirs["dh0"]).max() <= 1e-5 * abs(flow).max()


@pytest.mark.parametrize(
    "net",
    [
        RecurrentNet(2, 3, 2, backend="reference"),
        StackedNet(2, 3, 2, layers=2, bidirectional=True, backend="reference"),
    ],
    ids=["one layer", "stacked"],
)
def test_a_net_runs_with_other_layers(net):
    """Every cell with half the gain, as the net of that gain has it, and the net as it was."""
    params = net.init(np.random.default_rng(0), np.float64)
    x = np.random.default_rng(1).normal(size=(5, 3, 2))
    usual = net.forward(params, x)[0]
    halved = net.with_layers(lambda layer: replace(layer, gain=0.5))
    expected = replace(net, gain=0.5).forward(params, x)[0]
    assert (halved.forward(params, x)[0] == expected).all() and (expected != usual).any()
    assert (net.forward(params, x)[0] == usual).all()
    assert (replace(halved).forward(params, x)[0] == usual).all()


def test_what_does_not_fit_is_refused():
    with refused("need sigmoid for the cell cifg"):
        RecurrentNet(2, 4, 3, cell="cifg", gate="relu")
    with refused("clip_forward has no compiled kernel"):
        RecurrentNet(2, 4, 3, clip_forward=1, backend="compiled")


@pytest.mark.parametrize("cell", ["lstm", "cifg"])
@pytest.mark.parametrize("readout", ["last", "every", "none"])
def test_a_projection_is_pulled_back(cell, readout):
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
def test_a_wrong_projection_is_rejected(bug, monkeypatch):
    net = rational_net("lstm", "every", layers=1, projection=1)
    case = generic_case(net, seed=4, T=2, B=1)
    assert push_minus_pull(case) == 0
    monkeypatch.setattr(lstm, "backward", planted(lstm.backward, *BUGS[bug]))
    assert push_minus_pull(case) != 0


@pytest.mark.parametrize("readout", ["last", "every"])
def test_one_layer_segments_and_certificate(readout):
    pytest.importorskip("flint", reason="python-flint (extra certify) is not installed")
    net = RecurrentNet(
        2, 4, 3, cell="lstm", readout=readout, projection=2, learn_h0=True, backend="reference"
    )
    params, batch = padded(net, T=90, dtype=np.float32)
    certified = certify(net, params, batch)
    for checkpoint in ("none", "sqrt"):
        theirs = reference_results(replace(net, checkpoint=checkpoint), params, batch)
        assert compare(theirs, certified).passed
        assert (theirs["dh0"][0, 2:] == 0).all()
    theirs["dWhr"] = theirs["dWhr"] * np.float32(1.001)
    assert compare(theirs, certified).verdict == "not rounding"


def test_state_gradients_of_a_projection():
    """One step at a time, and through the Jacobian: the same as the whole backward pass."""
    net = rational_net("lstm", layers=2, both=False, projection=1)
    case = generic_case(net, seed=5, T=1, B=1)
    computed = loss_and_gradients(net, case.params, case.batch).gradients
    flow = state_gradients(net, case.params, case.batch)
    assert (flow[0] == np.concatenate([computed["h0_l0"], computed["h0_l1"]])).all()
    read = np.concatenate([0 * flow[1, :2], flow[1, 2:]])[:, 0].reshape(-1)
    assert (
        state_jacobians(net, case.params, case.batch.x)[0, 0].T @ read == flow[0, :, 0].reshape(-1)
    ).all()


def test_a_projection_that_does_not_fit_is_refused():
    for options in ({"cell": "gru"}, {"backend": "compiled"}, {"transition": "orthogonal"}):
        with refused("projection is 2; need 0, or cell lstm"):
            RecurrentNet(2, 4, 3, **{"cell": "lstm", "projection": 2, **options})
    with refused("projection is 4; need fewer units than hidden = 4"):
        StackedNet(2, 4, 3, cell="lstm", projection=4)
    net = RecurrentNet(2, 4, 3, cell="lstm", projection=2, backend="reference")
    params, batch = padded(net)
    with refused("Whh has shape .16, 4.; need .16, 2., because .*P = 2"):
        net.forward({**params, "Whh": np.zeros((16, 4))}, batch.x)
