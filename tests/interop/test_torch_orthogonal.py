"""Modules that PyTorch lacks, judged; OINIT and OPEN on the matrices of modules."""

import copy
import io
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import refnet.torch as rt
from refnet.batch import Batch
from refnet.check.adapters.onnx_nets import session_run
from refnet.check.verdict import NOT_ROUNDING, compare
from refnet.exact import certify
from refnet.interop import files, onnx_graph, torch_cells, torch_orthogonal
from refnet.matrices.orthogonality import defect, open_update
from refnet.matrices.transitions import TRANSITIONS
from refnet.matrices.transitions.svd import SVD
from support.arguments import refused
from support.oracles import planted
from support.torch_layers import gradchecks

pytestmark = pytest.mark.needs("torch", "flint")

BOTH = {"num_layers": 2, "bidirectional": True}
LAYERS = {
    **{name: (rt.OrthogonalRNN, {"transition": name}) for name in TRANSITIONS},
    "no margin": (rt.OrthogonalRNN, {"transition": "svd:margin=0", "nonlinearity": "relu"}),
    "margin": (rt.OrthogonalRNN, {"transition": "svd:margin=0.5", **BOTH}),
    "peepholes": (rt.PeepholeLSTM, BOTH),
    "peepholes of a transition": (rt.PeepholeLSTM, {"transition": "expm"}),
    "cifg": (rt.CIFG, {"peepholes": True}),
    "reset before": (rt.GRUBefore, BOTH),
}
JUDGED = ("margin", "peepholes", "cifg", "reset before", "schur")


def layer_of(name, dtype=torch.float32, **options):
    """Parameters drawn from near the start."""
    kind, given = LAYERS[name]
    torch.manual_seed(len(name))
    layer = kind(2, 4, dtype=dtype, **given, **options)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return layer


def arrays_of(layer):
    return {name: value.numpy().copy() for name, value in layer.state_dict().items()}


def results(layer, x, y):
    """By refnet's names, of the loss sum(outputs y)."""
    x = torch.from_numpy(x).requires_grad_()
    loss = (layer(x)[0] * torch.from_numpy(y)).sum()
    loss.backward()
    theirs = {"loss": loss.detach().numpy(), "dx": x.grad.numpy()}
    return theirs | {f"d{name}": value.grad.numpy() for name, value in layer.named_parameters()}


def case(name, dtype=torch.float64):
    layer, rng = layer_of(name, dtype), np.random.default_rng(0)
    x, y = (rng.standard_normal((4, 2, width)) for width in (2, layer.net.outputs))
    return layer, *(each.astype(str(dtype).removeprefix("torch.")) for each in (x, y))


@pytest.mark.parametrize("name", LAYERS)
def test_the_bits_of_refnets_own(name):
    layer, x, _ = case(name, torch.float32)
    params = arrays_of(layer)
    assert params.keys() == layer.net.shapes.keys() & params.keys() >= layer.net.required
    outputs, tape = layer.net.forward(params, x)
    h, end = layer(torch.from_numpy(x))
    assert (h.detach().numpy() == outputs).all()
    final = np.stack(list(tape.final.values()))
    end = torch.stack(end, dim=1) if isinstance(end, tuple) else end
    assert (end.detach().numpy() == final).all()


@pytest.mark.parametrize("name", JUDGED)
def test_judged(name):
    layer, x, y = case(name)
    net = replace(layer.net, loss="none", reduction="sum")
    certified = certify(net, arrays_of(layer), Batch(x, y))
    assert compare(results(layer, x, y), certified).passed


def test_a_planted_bug_is_rejected(monkeypatch):
    layer, x, y = case("margin")
    net = replace(layer.net, loss="none", reduction="sum")
    certified = certify(net, arrays_of(layer), Batch(x, y))
    with monkeypatch.context() as patch:
        patch.setattr(SVD, "pull_back", planted(SVD.pull_back, "matmul(dW, ", "matmul(dW.T, "))
        wrong = results(layer, x, y)
    assert compare(wrong, certified).verdict == NOT_ROUNDING


@pytest.mark.parametrize("name", LAYERS)
def test_gradcheck(name):
    layer = layer_of(name, torch.float64)
    assert gradchecks(layer, torch.randn(3, 2, 2, dtype=torch.float64))


def test_packed_and_single_sequences():
    layer = layer_of("peepholes")
    x = torch.randn(5, 3, 2)
    lengths = torch.tensor([2, 5, 3])
    h, (h_n, c_n) = layer(pack_padded_sequence(x, lengths, enforce_sorted=False))
    h, _ = pad_packed_sequence(h)
    for b, length in enumerate(lengths):
        alone, (h_1, c_1) = layer(x[:length, b])
        torch.testing.assert_close(h[:length, b], alone)
        torch.testing.assert_close(torch.stack([h_n[:, b], c_n[:, b]]), torch.stack([h_1, c_1]))


def test_the_transitions_own_loss():
    """A prior on s and soft orthogonality, with their gradients."""
    layer = rt.OrthogonalRNN(2, 3, transition="svd:prior=0.5,soft=0.25", dtype=torch.float64)
    matrix = layer.Whh_l0
    with torch.no_grad():
        matrix.s.copy_(torch.tensor([1.0, 2.0, 3.0]))
        matrix.U.mul_(2)
    defects = sum(float(defect(matrix.parts()[name].detach().numpy())) for name in "UV")
    assert layer.penalty().item() == pytest.approx(0.5 * 5 + 0.25 * defects, rel=1e-12)
    parts = [value.detach().clone().requires_grad_() for value in matrix.parts().values()]
    call = torch.func.functional_call

    def function(*values):
        return call(matrix, dict(zip(matrix.names, values)), ()).sum() + (
            torch_cells.applied(
                torch_orthogonal._pulled(matrix.transition, "penalty"),
                dict(zip(matrix.names, values)),
            )
        )

    assert torch.autograd.gradcheck(function, parts)
    assert layer_of("cayley").penalty().item() == 0


def test_parts_stay_on_their_manifold():
    """Adam for the rest; constant parts are no parameters, so that nothing decays them."""
    torch.manual_seed(0)
    layer = rt.OrthogonalRNN(2, 6, transition="svd:margin=0.1", batch_first=True)
    x, y = torch.randn(8, 5, 2), torch.randn(8, 6)
    optimizer = torch.optim.AdamW(layer.parameters(), 0.01)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = ((layer(x)[1][0] - y) ** 2).mean()
        loss.backward()
        losses.append(loss.item())
        defects = rt.retract_(layer, 0.05)
        optimizer.step()
        assert defects.keys() == {"Whh_l0.U", "Whh_l0.V"} and max(defects.values()) < 1e-5
    assert losses[-1] < 0.9 * losses[0]
    s = torch.linalg.svdvals(layer.Whh_l0().detach())
    assert 0.9 <= s.min() and s.max() <= 1.1 and s.max() - s.min() > 1e-3
    constant = layer_of("scaled_cayley").Whh_l0
    assert {"D"} == {name for name, _ in constant.named_buffers()}


def test_oinit_in_place():
    """Gate by gate, in the parameter that an optimiser already has; all or nothing."""
    torch.manual_seed(0)
    model = nn.ModuleDict({"rnn": nn.GRU(3, 6, bidirectional=True), "head": nn.Linear(6, 2)})
    mine = rt.CIFG(3, 6)
    before = model.rnn.weight_ih_l0.clone(), model.rnn.weight_hh_l0.data_ptr()
    report = rt.orthogonalize_(model, max_steps=1000) + rt.orthogonalize_(mine, max_steps=1000)
    assert {fact["stopped"] for fact in report} == {"cost"} and len(report) == 6 + 1 + 3
    assert report[0]["matrix"] == "rnn.weight_hh_l0[r]" and report[-1]["matrix"] == "Whh_l0[o]"
    blocks = [*model.rnn.weight_hh_l0_reverse.chunk(3), *mine.Whh_l0.chunk(3)]
    assert all(float(defect(block.detach().numpy())) < 1e-5 for block in blocks)
    assert torch.equal(model.rnn.weight_ih_l0, before[0])
    assert model.rnn.weight_hh_l0.data_ptr() == before[1]
    nn.init.zeros_(model.head.weight)
    nn.init.normal_(model.rnn.weight_hh_l0, std=0.2)
    start = model.rnn.weight_hh_l0.clone()
    with refused("head.weight.*singular value"):
        rt.orthogonalize_(model)
    assert torch.equal(model.rnn.weight_hh_l0, start)
    with torch.no_grad(), refused("makes Whh_l0.matrix of its parts"):
        rt.orthogonalize_(rt.OrthogonalRNN(2, 4, transition="expm"))


@pytest.mark.parametrize("form", ["squared", "unsquared", "mean_square"])
def test_open(form):
    """As a penalty, with its gradient through blocks and transitions; as an update."""
    layer = nn.LSTM(2, 3, dtype=torch.float64)
    net = rt.OrthogonalRNN(2, 4, transition="svd", dtype=torch.float64)
    mats = rt.matrices(layer)
    assert list(mats) == [f"weight_hh_l0[{gate}]" for gate in "ifgo"]
    value = rt.open_penalty(layer, 0.5, form)
    want = sum(0.5 * float(defect(block.detach().numpy(), form)) for block in mats.values())
    assert value.item() == pytest.approx(want, rel=1e-12)
    W = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda W: rt.open_penalty({"W": W}, 0.5, form), [W])
    value.backward()
    assert layer.weight_hh_l0.grad.abs().min() > 0 and layer.weight_ih_l0.grad is None
    rt.open_penalty(net, 0.5, form).backward()
    assert net.Whh_l0.s.grad is not None
    block = mats["weight_hh_l0[g]"].detach().numpy().copy()
    rt.open_update_(layer, 0.1, 0.5, form)
    after = layer.weight_hh_l0[6:9].detach().numpy()
    assert (after == open_update(block, 0.1, 0.5, form)).all()


@pytest.mark.parametrize("name", ["margin", "scaled_cayley", "cifg"])
def test_copies(name):
    layer, x = layer_of(name), torch.randn(3, 2, 2)
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    copies = [copy.deepcopy(layer), torch.load(file, weights_only=False), layer_of(name)]
    kind, options = LAYERS[name]
    other = kind(2, 4, **options)
    other.load_state_dict(layer.state_dict())
    for each in [*copies, other]:
        assert torch.equal(each(x)[0], layer(x)[0])


def test_errors():
    with refused("no kernel for .*prelu"):
        rt.OrthogonalRNN(2, 4, nonlinearity="prelu")
    with refused("schur"):
        rt.OrthogonalRNN(2, 3, transition="schur")
    with pytest.raises(RuntimeError, match="Expected 2, got 3"):
        rt.CIFG(2, 4)(torch.ones(3, 2, 3))
    with pytest.raises(RuntimeError, match="need torch.float32"):
        rt.CIFG(2, 4)(torch.ones(3, 2, 2, dtype=torch.float64))
    layer = rt.OrthogonalRNN(2, 4)
    loss = layer(torch.ones(3, 2, 2))[0].sum()
    with torch.no_grad():
        layer.Whh_l0.M.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.needs("onnx", "onnxruntime")
@pytest.mark.parametrize("name", ["margin", "peepholes", "cifg", "reset before"])
def test_layers_travel(name, tmp_path):
    """As ONNX, with the same outputs, and as refnet's own file, with the same bits."""
    layer = layer_of(name)
    for kind in ("onnx", "npz"):
        files.write(tmp_path / f"layer.{kind}", layer.net, layer.params())
    again = files.read(tmp_path / "layer.npz").params
    assert all((again[name] == value).all() for name, value in arrays_of(layer).items())
    x = torch.randn(5, 3, 2)
    proto = onnx_graph.load(tmp_path / "layer.onnx")
    inputs = {proto.graph.input[0].name: x.numpy()}
    (theirs,) = session_run(proto, [proto.graph.output[0].name], inputs, "onnxruntime")
    assert np.allclose(theirs, layer(x)[0].detach().numpy(), atol=1e-5)


def test_autocast_is_said():
    layer = rt.GRUBefore(2, 4)
    with torch.autocast("cpu", torch.bfloat16), pytest.warns(UserWarning, match="autocast is on"):
        outputs, _ = layer(torch.ones(5, 3, 2))
    assert outputs.dtype == torch.float32
    model = nn.Sequential(nn.LSTM(2, 4))
    rt.accelerate(model)
    with torch.autocast("cpu", torch.bfloat16), pytest.warns(UserWarning, match="autocast is on"):
        model(torch.ones(5, 3, 2))
