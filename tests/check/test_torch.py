"""PyTorch for real: its layers judged, its weights in and out, refnet used inside it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import refnet.torch
from refnet.check import layers, survey
from refnet.check.adapters import torch_nets
from refnet.check.verdict import EXPLAINED, NOT_ROUNDING, compare
from refnet.exact import certify
from refnet.interop import torch_weights
from refnet.matrices.transitions import transition
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.gradients import loss_and_gradients
from refnet.nets.recurrent import RecurrentNet
from support.arguments import refused
from support.drawn import drawn
from support.marks import both_dtypes

pytestmark = pytest.mark.needs("torch", "flint")

TINY = ((4, 5, 2),)
TABLE = layers.TABLES[0]
NET = RecurrentNet(2, 4, 3)
LSTM = replace(TABLE, depths=(2,), directions=1, layers={"nn.LSTM": TABLE.layers["nn.LSTM"]})


@pytest.mark.parametrize("sizes", [TINY, survey.SIZES[:1]], ids=["tiny", "one step"])
def test_cells_are_judged(sizes):
    every = list(survey.torch_rows(sizes))
    # the exponential itself is wrong at some norms: tests/check/test_norms.py
    rows = [row for row in every if "at 1-norm" not in row["what"]]
    assert len({row["what"] for row in rows}) == 13 == len({row["what"] for row in every}) - 10
    assert {row["dtype"] for row in rows} == {"float32", "float64"}
    assert {row["verdict"] for row in rows} == {EXPLAINED}
    assert {row["what"] for row in rows if row["worst"].startswith("dWhh.")} <= {
        "orthogonal, matrix_exp",
        "orthogonal, cayley",
    }


@pytest.mark.parametrize("name", ["bfloat16-float32", "float16-float32", "tf32"])
def test_cells_are_judged_in_coarser_arithmetics(name, monkeypatch):
    rows = list(survey.torch_rows(TINY, dtypes=(name,)))
    assert {row["what"] for row in rows} >= {"nn.LSTM", "nn.GRU, bias_hh", "nn.Linear x 4, ReLU"}
    assert {(row["dtype"], row["verdict"]) for row in rows} == {(name, EXPLAINED)}
    right = torch_nets.results

    def transposed(*args, **options):
        results = right(*args, **options)
        return {key: value.T if key in ("dWhh", "dW2") else value for key, value in results.items()}

    monkeypatch.setattr(torch_nets, "results", transposed)
    square = [
        row
        for row in survey.torch_rows(TINY, dtypes=(name,))
        if row["what"] in ("nn.RNN tanh", "nn.Linear x 4, Tanh")
    ]
    assert {row["verdict"] for row in square} == {NOT_ROUNDING}


def test_torch_computes_on_its_default_device():
    """meta is a device without numbers, which every machine has."""
    params = NET.init(np.random.default_rng(0))
    try:
        torch.set_default_device("meta")
        state = torch_weights.state_dict(NET, params)
    finally:
        torch.set_default_device("cpu")
    assert {tensor.device.type for tensor in state.values()} == {"meta"}
    assert torch_nets.use_device("cpu") == "cpu"
    with refused("torch cannot use the device cuda:99: "):
        torch_nets.use_device("cuda:99")


@both_dtypes
@pytest.mark.parametrize("map_name", ["matrix_exp", "cayley", "householder"])
def test_orthogonal_parametrisations(map_name, dtype):
    """The gradient in the raw matrix is right; half of it, or its transpose, is not."""
    net = RecurrentNet(2, 5, 3)
    params, batch = drawn(net, dtype=dtype)
    judged, params, theirs = torch_nets.orthogonal_results(net, params, batch, map_name)
    name = "dWhh" if map_name == "householder" else "dWhh.A"
    certified = certify(judged, params, batch)
    assert compare(theirs, certified, required=(name,)).passed
    assert abs(theirs[name]).max() > 1e-3
    for wrong in (theirs[name] / 2, theirs[name].T):
        assert not compare({**theirs, name: wrong}, certified, required=()).passed
    if map_name == "householder":
        W = params["Whh"].astype(np.longdouble)
        # a product of 5 reflections of 5 units: below 1e3 roundings of size 1 an entry
        assert abs(W.T @ W - np.eye(5)).max() < 1e3 * np.finfo(dtype).eps


def test_constant_parts_of_a_transition():
    """The natural program takes the constant out of the graph; its gradient is 0. A parameter that
    is forgotten is not taken for one."""
    net = RecurrentNet(2, 4, 3, transition=transition("cayley"))

    def loss(p, x, y, forgotten=False):
        A, eye = p["Whh.A"].tril(-1), torch.eye(4, dtype=x.dtype)
        A = A - A.T
        W = torch.linalg.solve(eye + A, eye - A) @ p["Whh.base"].detach()
        h = torch.zeros(x.shape[1], 4, dtype=x.dtype)
        for step in x:
            h = torch.tanh(step @ p["Wxh"].T + h @ W.T + (0 if forgotten else p["bh"]))
        return torch.nn.functional.cross_entropy(h @ p["Why"].T + p["by"], y)

    params, batch = drawn(net)
    certified = certify(net, params, batch)
    theirs = torch_nets.gradients(loss, params, batch)
    assert compare(theirs, certified).passed and not theirs["dWhh.base"].any()
    assert theirs.keys() == {"loss", "dx", *(f"d{name}" for name in params)}
    forgot = torch_nets.gradients(lambda *given: loss(*given, True), params, batch)
    parts = compare(forgot, certified).parts
    assert {part.name: part.verdict for part in parts}["dbh"] == NOT_ROUNDING


@pytest.mark.parametrize("sizes", [(2, 1, 1), (2, 2, 1), (2, 3, 1)])
def test_layers_are_those_that_a_size_allows(sizes):
    """Of two units no projection is smaller."""
    names = {case.what.partition(",")[0] for case in layers.cases(TABLE, sizes)}
    assert ("nn.LSTM proj_size" in names) == (sizes[1] > 2) and "nn.LSTM" in names


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda s: s.pop("rnn.bias_hh_l0"), "rnn.bias_hh_l0 is missing"),
        (lambda s: s.update({"rnn.weight_hh_l1": s["rnn.weight_hh_l0"]}), "second layer"),
        (lambda s: s.update({"rnn.weight_hh_l0": s["rnn.weight_ih_l0"]}), r"need \(4, 4\)"),
    ],
)
def test_wrong_state_dicts_are_refused(change, message):
    state = torch_weights.state_dict(NET, drawn(NET)[0])
    change(state)
    with refused(message):
        torch_weights.from_state_dict(NET, state)


@pytest.mark.parametrize(
    "net",
    [RecurrentNet(2, 4, 3, cell="lstm", readout="every"), NET, FeedforwardNet((2, 4, 3))],
    ids=["lstm", "rnn", "feedforward"],
)
def test_refnet_inside_torch(net):
    params, batch = drawn(net)
    ours = loss_and_gradients(net, params, batch)
    function = refnet.torch.function(net)
    p = {name: torch.from_numpy(value).requires_grad_() for name, value in params.items()}
    x = torch.from_numpy(batch.x).requires_grad_()
    outputs = function(p, x)
    loss = torch.nn.functional.cross_entropy(
        outputs.reshape(-1, 3), torch.from_numpy(batch.y).reshape(-1)
    )
    loss.backward()
    theirs = {"loss": loss.detach().numpy()}
    theirs |= {f"d{name}": value.grad.numpy() for name, value in {**p, "x": x}.items()}
    assert (outputs.detach().numpy() == ours.outputs).all()
    assert compare(theirs, certify(net, params, batch)).passed
    with pytest.raises(RuntimeError, match="second derivative"):
        again = (function(p, x) ** 2).sum()
        (grad,) = torch.autograd.grad(again, x, create_graph=True)
        grad.sum().backward()


def test_what_torch_refuses_is_a_row(monkeypatch):
    """On a GPU, cuDNN's layers refuse a weight that is not contiguous, as a Cayley map makes it."""

    def refuses(*_):
        raise RuntimeError("view size is not compatible\nwith anything")

    monkeypatch.setattr(torch.func, "functional_call", refuses)
    rows = list(survey.torch_rows(((1, 2, 1),), dtypes=(np.float32,)))
    refused = {row["what"]: row for row in rows if row["verdict"] == "refused"}
    names = {what.partition(" at 1-norm")[0] for what in refused}
    assert names == {f"orthogonal, {name}" for name in ("matrix_exp", "cayley", "householder")}
    assert refused["orthogonal, cayley"]["note"] == "RuntimeError: view size is not compatible"


def test_layers_are_judged():
    rows = list(layers.rows(replace(TABLE, depths=(2,)), (4, 3, 2), (np.float32,)))
    assert len(rows) == 60
    assert {row["verdict"] for row in rows} == {EXPLAINED}
    assert {row["what"].rpartition(" ")[2] for row in rows} == {"last", "every", "none"}


@pytest.mark.usefixtures("unnamed")
@pytest.mark.parametrize("off, verdict", [(0, EXPLAINED), (1, NOT_ROUNDING)])
def test_layers_are_judged_in_bfloat16(off, verdict):
    table = replace(
        LSTM, results=lambda case: {name: v + off for name, v in LSTM.results(case).items()}
    )
    rows = list(layers.rows(table, (4, 3, 2), ("bfloat16-float32",)))
    assert [row["verdict"] for row in rows] == [verdict] * len(LSTM.variants)


@pytest.mark.usefixtures("unnamed")
@pytest.mark.parametrize("name", ["dx", "dWxh_l1_reverse", "dbhh_l0", "dh0_l1", "dWhr_l1_reverse"])
def test_a_wrong_layer_is_rejected(name, monkeypatch):
    right = torch_nets.results

    def wrong(*args, **options):
        results = right(*args, **options)
        if name in results:
            results[name] = results[name] * np.float32(1.001)
        return results

    monkeypatch.setattr(torch_nets, "results", wrong)
    kind = "nn.LSTM proj_size" if "Whr" in name else "nn.RNN tanh"
    variants = ("two biases and h0",)
    table = replace(TABLE, depths=(2,), variants=variants, layers={kind: TABLE.layers[kind]})
    rows = list(layers.rows(table, (4, 3, 2), (np.float32,)))
    row = rows[1]
    assert "both directions" in row["what"]
    assert (row["worst"], row["verdict"]) == (name, NOT_ROUNDING)
    first = next(row for row in rows if row["verdict"] == NOT_ROUNDING)
    assert any(
        "it still shows" in line and "T = 1, B = 1, H = 3" in line for line in first["where"]
    )
