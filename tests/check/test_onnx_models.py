"""Whole ONNX models judged: as exporters write them, and by what their author meant."""

import numpy as np
import onnx
import pytest

from refnet import cli
from refnet.check import models
from refnet.check.adapters import onnx_nets
from refnet.check.verdict import EXPLAINED, NOT_ROUNDING
from refnet.interop import onnx_models
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet
from support.arguments import refused
from support.drawn import drawn

pytestmark = pytest.mark.needs("onnx", "onnxruntime", "torch", "safetensors", "flint")


def verdicts(path, **options):
    rows = models.rows(path, 6, 3, **options)
    return {row["framework"]: row["verdict"] for row in rows}


@pytest.fixture
def exported(tmp_path):
    """A file with torch.onnx.export's model of a module."""
    import torch

    def export(module, *inputs, **options):
        path = tmp_path / "model.onnx"
        torch.manual_seed(0)
        torch.onnx.export(module.eval(), inputs, path, dynamo=False, **options)
        return path

    return export


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "kind, options",
    [
        ("RNN", {}),
        ("LSTM", {"batch_first": True, "num_layers": 2}),
        ("LSTM", {"bidirectional": True}),
        ("GRU", {"bidirectional": True, "num_layers": 2, "bias": False}),
    ],
)
def test_exported_layers_are_judged(kind, options, exported):
    import torch

    layer = getattr(torch.nn, kind)(3, 4, **options)
    path = exported(
        layer, torch.zeros(5, 2, 3), input_names=["x"], dynamic_axes={"x": {0: "a", 1: "b"}}
    )
    assert {*verdicts(path).values()} == {EXPLAINED}


@pytest.mark.filterwarnings("ignore")
def test_states_that_are_inputs(exported):
    import torch

    states = torch.zeros(2, 2, 4), torch.zeros(2, 2, 4)
    path = exported(torch.nn.LSTM(3, 4, num_layers=2), torch.zeros(5, 2, 3), states)
    assert {*verdicts(path).values()} == {EXPLAINED}


def packed(rnn, x, lengths):
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

    first = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    return pad_packed_sequence(rnn(first)[0], batch_first=True)[0]


def pooled(rnn, x, lengths):
    import torch

    states = rnn(x)[0]
    counted = (torch.arange(x.shape[1])[None] < lengths[:, None])[..., None]
    mean = (states * counted).sum(1) / counted.sum(1)
    last = states[torch.arange(x.shape[0]), lengths - 1]
    return torch.cat([states.amax(1), mean, last], 1)


def normalized(rnn, x, lengths):
    import torch

    torch.manual_seed(0)
    return torch.nn.LayerNorm(4)(rnn(x)[0])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("read", [packed, pooled, normalized])
def test_what_is_read_of_sequences_is_judged(read, exported):
    """Lengths, pools, a norm: onnxruntime agrees with the operators' definition; what the other
    runtime ignores is named, with the fewest steps at which it shows."""
    import torch

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = torch.nn.GRU(3, 4, batch_first=True)

        def forward(self, x, lengths):
            return read(self.rnn, x, lengths)

    names = ["x", "lengths"]
    axes = dict(zip(names, ({0: "b", 1: "t"}, {0: "b"})))
    given = torch.zeros(2, 5, 3), torch.tensor([4, 5])
    path = exported(Model(), *given, input_names=names, dynamic_axes=axes)
    ours, other = models.rows(path, 6, 3)
    assert ours["verdict"] == EXPLAINED, ours
    assert other["verdict"] == (NOT_ROUNDING if read is packed else EXPLAINED)
    if read is packed:
        assert other["convention"] == "sequence_lens is ignored"
        assert "the smallest sizes at which it still shows: T = " in other["where"][-1]


@pytest.mark.parametrize(
    "net, lengths, options",
    [
        (StackedNet(6, 4, 5, cell="gru_before", embedding=3, bidirectional=True), True, {}),
        (StackedNet(3, 4, 5, cell="lstm", layers=2, learn_h0=True), False, {"peepholes": True}),
        (StackedNet(3, 4, 2, cell="lstm", projection=2, readout="every"), True, {}),
        (FeedforwardNet((3, 4, 4, 2), activation="elu"), False, {}),
    ],
)
def test_exported_nets_are_judged(net, lengths, options, tmp_path):
    params, _ = drawn(net, **options)
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx_models.to_model(net, params, lengths).SerializeToString())
    judged = verdicts(path)
    assert judged.pop("onnxruntime") == EXPLAINED
    ignored = lengths  # sequence_lens, by the evaluator of the onnx package
    assert judged == {"onnx reference": NOT_ROUNDING if ignored else EXPLAINED}


@pytest.mark.parametrize("change", [lambda v: v[:, ::-1], lambda v: v * np.float32(1.001)])
def test_a_wrong_runtime_is_rejected(change, tmp_path, monkeypatch):
    net = StackedNet(3, 4, 5, cell="gru", layers=2, readout="every")
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx_models.to_model(net, drawn(net)[0]).SerializeToString())
    right = onnx_nets.session_run
    monkeypatch.setattr(onnx_nets, "session_run", lambda *a: [change(v) for v in right(*a)])
    assert {*verdicts(path).values()} == {NOT_ROUNDING}


def without(name):
    def change(proto):
        for node in proto.graph.node:
            others = [entry for entry in node.attribute if entry.name != name]
            del node.attribute[:]
            node.attribute.extend(others)

    return change


def weights(name, new):
    def change(proto):
        for entry in proto.graph.initializer:
            if entry.name == name:
                value = new(onnx.numpy_helper.to_array(entry)).astype(np.float32)
                entry.CopyFrom(onnx.numpy_helper.from_array(value, entry.name))

    return change


def gates_of_torch(value):
    i, o, f, c = np.split(value, 4, axis=1)
    return np.concatenate([i, f, c, o], axis=1)


def of_first_half(factor):
    def change(value):
        rows = np.arange(value.shape[1]).reshape(-1, *[1] * (value.ndim - 2))
        return value * np.where(rows < len(rows) / 2, factor, 1)

    return change


RESET = without("linear_before_reset")


@pytest.mark.parametrize(
    "cell, change, name",
    [
        ("gru", RESET, "the layers are computed as gru_before: linear_before_reset is 0"),
        ("lstm", weights("R_l1", gates_of_torch),
         "R of layer 2 has its gates in the order i, f, c, o, not i, o, f, c"),
        ("lstm", weights("by", lambda b: b + 0.01), "the read-out's bias differs"),
        ("gru", weights("by", lambda b: 2 * b), "the read-out's bias is doubled"),
        ("lstm", weights("B_l0", lambda B: 2 * B), "the bias of layer 1 is doubled"),
        ("gru", weights("R_l0", lambda R: R.reshape(3, 4, 4).swapaxes(1, 2).reshape(1, 12, 4)),
         "R of layer 1 is transposed, gate by gate"),
        ("lstm", weights("W_l1", of_first_half(1.5)), "W of layer 2 differs in i, o"),
        ("gru", weights("B_l0", of_first_half(0)), "the bias of layer 1 is zero"),
        ("gru", weights("B_l1", lambda B: B[:, ::-1]), "the bias that the reset multiplies of "
         "layer 2 differs; the bias of layer 2 differs"),
    ],
)  # fmt: skip
def test_weights_that_were_not_meant_have_a_name(cell, change, name, tmp_path):
    """By its operators' definition a converter's mistake is right; by the net that it converts it
    is wrong, and the two nets' weights say why."""
    from refnet.interop.files import write

    net = StackedNet(3, 4, 5, cell=cell, layers=2)
    params, _ = drawn(net)
    source, path = tmp_path / "net.safetensors", tmp_path / "model.onnx"
    write(source, net, params)
    proto = onnx_models.to_model(net, params)
    path.write_bytes(proto.SerializeToString())
    assert {*verdicts(path, intended=str(source)).values()} == {EXPLAINED}
    assert {*verdicts(path, intended=cell).values()} == {EXPLAINED}
    change(proto)
    path.write_bytes(proto.SerializeToString())
    assert {*verdicts(path).values()} == {EXPLAINED}
    for row in models.rows(path, 6, 3, intended=str(source)):
        assert row["verdict"] == NOT_ROUNDING and row["convention"] == name
        assert row["H"] == 4 and "outputs: everywhere" in "; ".join(row["where"])
    if change is RESET:
        for row in models.rows(path, 6, 3, intended=cell):
            assert row["verdict"] == NOT_ROUNDING and row["convention"] == name


@pytest.mark.parametrize(
    "intended, message",
    [
        ("lstm", "the model has GRU; need LSTM for lstm"),
        ("grue", "--as 'grue' is unknown"),
        ("layers.npz", "the model has 1 recurrent layers, .*layers.npz 2"),
    ],
)
def test_an_intended_net_that_does_not_fit_is_refused(intended, message, tmp_path):
    from refnet.interop.files import write

    net = RecurrentNet(3, 4, 5, cell="gru")
    two = StackedNet(3, 4, 5, cell="gru", layers=2)
    write(tmp_path / "layers.npz", two, drawn(two)[0])
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx_models.to_model(net, drawn(net)[0]).SerializeToString())
    intended = str(tmp_path / intended) if "." in intended else intended
    with refused(message):
        verdicts(path, intended=intended)


@pytest.mark.filterwarnings("ignore")
def test_an_output_without_time_has_no_first_step(exported, capsys):
    """Sequences come first, and their last state is read out."""
    import torch

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = torch.nn.GRU(3, 4, batch_first=True)

        def forward(self, x):
            return self.rnn(x)[0][:, -1]

    axes = {"x": {0: "a", 1: "b"}}
    path = exported(Model(), torch.zeros(2, 5, 3), input_names=["x"], dynamic_axes=axes)
    assert cli.main(["check", "onnx", str(path), "--as", "gru_before"]) == 1
    out = capsys.readouterr().out
    assert "linear_before_reset is 1" in out and "parts first" not in out
    assert max(map(len, out.splitlines())) <= 80
