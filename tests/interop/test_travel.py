"""Nets that travel: written for ONNX, PyTorch and Keras, run there, and judged; read back, and as
other programs write them."""

from dataclasses import replace
from functools import cache, partial

import numpy as np
import onnx
import pytest

from refnet.batch import last_steps
from refnet.check.cases import random_form
from refnet.check.verdict import NOT_ROUNDING, compare
from refnet.exact import certify
from refnet.interop import keras_weights, onnx_models, resolved, torch_weights
from refnet.interop.files import read, write
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet
from refnet.runs.read import FileError
from support.arguments import refused
from support.drawn import drawn

pytestmark = pytest.mark.needs("onnx", "onnxruntime", "torch", "keras", "safetensors", "flint")

OPEN = {"readout": "none", "loss": "none", "reduction": "sum"}
NETS = {
    "rnn": RecurrentNet(3, 4, 5, readout="every"),
    "orthogonal": RecurrentNet(3, 4, 5, transition="expm", gain=1.25),
    "relu layers": StackedNet(3, 4, 5, activation="relu", layers=2, bidirectional=True),
    "lstm": StackedNet(3, 4, 5, cell="lstm", layers=2, bidirectional=True, readout="every"),
    "projected": StackedNet(3, 4, 5, cell="lstm", projection=2, layers=2, bidirectional=True),
    "projected states": StackedNet(3, 4, 2, cell="lstm", projection=2, **OPEN),
    "cifg": RecurrentNet(3, 4, 5, cell="cifg"),
    "gru": StackedNet(3, 4, 8, cell="gru", bidirectional=True, **OPEN),
    "gru_before": RecurrentNet(3, 4, 5, cell="gru_before"),
    "symbols": StackedNet(6, 4, 5, cell="gru", embedding=2, bidirectional=True),
    "peepholes": RecurrentNet(3, 4, 5, cell="lstm"),
    "cifg peepholes": StackedNet(3, 4, 5, cell="cifg", bidirectional=True),
    "h0": StackedNet(3, 4, 5, cell="lstm", layers=2, learn_h0=True),
    "elu": RecurrentNet(3, 4, 5, activation="elu:alpha=0.5"),
    "clipped": RecurrentNet(3, 4, 5, cell="gru", clip_forward=0.25),
    "softsign gates": RecurrentNet(3, 4, 5, cell="lstm", gate="softsign"),
    "deep": FeedforwardNet((3, 4, 4, 2), transition="cayley", activation="elu"),
    "prelu": FeedforwardNet((3, 4, 4, 2), activation="prelu"),
}
REFUSED = {
    (".safetensors", "gru_before"): "no layer for the cell gru_before",
    (".safetensors", "peepholes"): "torch's layers hold no peepholes, and the net has Wpi_l0",
    (".safetensors", "cifg peepholes"): "no peepholes, and the net has Wpi_l0",
    (".safetensors", "h0"): "torch's layers hold no initial states, and the net has h0_l0",
    (".safetensors", "elu"): "torch's rnn has no activation elu",
    (".safetensors", "softsign gates"): "torch's lstm has no gate softsign",
    (".safetensors", "clipped"): "clip",
    (".keras", "clipped"): "clip",
    (".keras", "peepholes"): "Keras's layers hold no peepholes",
    (".keras", "cifg peepholes"): "Keras's layers hold no peepholes",
    (".keras", "h0"): "Keras's layers hold no initial states",
    (".keras", "elu"): "Keras has no activation elu with constant 0.5",
    (".keras", "prelu"): "Keras has no activation prelu",
}


def case(name, T=5, B=3, mask=False):
    net = NETS[name]
    added = ("Wp",) if "peepholes" in name else ()
    params, batch = random_form(net, np.random.default_rng(0), np.float32, T, B, added, mask)
    if getattr(net, "learn_h0", False):
        params |= {key: value + np.float32(0.5) for key, value in params.items() if "h0" in key}
    if getattr(net, "embedding", 0):
        symbols = np.random.default_rng(0).integers(0, net.inputs, (T, B))
        batch = batch._replace(x=np.eye(net.inputs, dtype=np.float32)[symbols])
    return net, params, batch


def seen(net, x):
    """The inputs as other frameworks take them: symbols for one-hot vectors."""
    return x.argmax(axis=2) if getattr(net, "embedding", 0) else x


def passed(outputs, certificate):
    verdict = compare({"outputs": outputs}, certificate, required=("outputs",))
    return verdict.passed


def forward(net, params, x):
    """On the reference backend, which needs no compiling."""
    return replace(net, backend="reference").forward(params, x)[0]


def by_onnx(net, params, batch, proto=None, **more):
    import onnxruntime

    proto = onnx_models.to_model(net, params, bool(more)) if proto is None else proto
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(["outputs"], {"x": seen(net, batch.x), **more})[0]


def by_torch(net, params, batch):
    """The tensors in torch's own layers, by their names and with none left over."""
    import torch

    state = torch_weights.state_dict(net, params)
    x = torch.from_numpy(seen(net, batch.x))
    if isinstance(net, FeedforwardNet):
        act = getattr(torch.nn, torch_weights.ACTIVATIONS[net.activation.name])
        layers = [torch.nn.Linear(a, b) for a, b in zip(net.widths, net.widths[1:])]
        parts = [part for layer in layers[:-1] for part in (layer, act())]
        module = torch.nn.Sequential(*parts, layers[-1])
        module.load_state_dict(state)
        return module(x).detach().numpy()
    flat, _, vectors = resolved(net, params)
    options = {"nonlinearity": flat.activation.name} if net.cell == "rnn" else {}
    if flat.projection:
        options["proj_size"] = flat.projection
    kind = getattr(torch.nn, flat.cell.upper())
    parts = {
        "rnn": kind(
            flat.inputs, flat.hidden, flat.layers, bidirectional=flat.bidirectional, **options
        )
    }
    if vectors is not None:
        parts["embedding"] = torch.nn.Embedding(*vectors.shape)
    if net.readout != "none":
        parts["head"] = torch.nn.Linear(flat.width, net.outputs)
    module = torch.nn.ModuleDict(parts)
    module.load_state_dict(state)
    h, end = module["rnn"](module["embedding"](x) if vectors is not None else x)
    end = end[0] if isinstance(end, tuple) else end
    if net.readout == "last":
        h = torch.cat([*end[-1 - flat.bidirectional :]], dim=1)
    return (module["head"](h) if net.readout != "none" else h).detach().numpy()


def by_keras(net, params, batch):
    x = seen(net, batch.x)
    recurrent = isinstance(net, RecurrentNet)
    model = keras_weights.to_model(net, params)
    outputs = np.asarray(model(x.swapaxes(0, 1) if recurrent else x))
    return outputs.swapaxes(0, 1) if outputs.ndim == 3 else outputs


RUN = {".onnx": by_onnx, ".safetensors": by_torch, ".keras": by_keras}
CASES = [(suffix, name) for suffix in RUN for name in NETS if (suffix, name) not in REFUSED]


@cache
def certified(name):
    return certify(*case(name))


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("suffix, name", CASES)
def test_the_other_framework_computes_the_net(suffix, name):
    outputs = RUN[suffix](*case(name))
    assert passed(outputs, certified(name))


@pytest.mark.parametrize("suffix, name", CASES)
def test_what_is_written_is_read_back(suffix, name, tmp_path):
    net, params, batch = case(name)
    write(tmp_path / f"net{suffix}", net, params)
    again = read(tmp_path / f"net{suffix}")
    outputs = forward(again.net, again.params, seen(net, batch.x))
    assert passed(outputs, certified(name))


@pytest.mark.parametrize("suffix, name", REFUSED)
def test_what_a_format_lacks_is_refused_by_name(suffix, name, tmp_path):
    net, params, _ = case(name)
    with refused(REFUSED[suffix, name]):
        write(tmp_path / f"net{suffix}", net, params)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"zoneout": 0.1}, "has zoneout 0.1, which no other"),
        ({"activation": "modrelu"}, "no activation modrelu"),
    ],
)
def test_options_that_onnx_lacks_are_refused_by_name(options, message):
    net = RecurrentNet(3, 4, 5, **options)
    with refused(message):
        onnx_models.to_model(net, drawn(net)[0])


def test_a_layer_that_onnx_lacks_is_refused_by_name():
    net = FeedforwardNet((3, 4, 2), activation="oplu")
    with refused("ONNX has no operator for the activation oplu"):
        onnx_models.to_model(net, net.init(np.random.default_rng(0)))


@pytest.mark.parametrize(
    "name, message", [("net.pt", "torch reads no state dict: "), ("net.keras", "Keras cannot load")]
)
def test_a_damaged_file_is_refused_by_name(name, message, tmp_path):
    (tmp_path / name).write_bytes(b"no model")
    with refused(f"{name}: {message}.*; need a model whose layers refnet has", FileError):
        read(tmp_path / name)


def test_a_state_for_each_sequence_is_refused():
    net, params, _ = case("h0")
    with refused("h0_l0 has a state for each sequence"):
        onnx_models.to_model(net, {**params, "h0_l0": np.ones((2, 3, 4), np.float32)})


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_gates_in_another_order_are_rejected(name, monkeypatch):
    from refnet.interop import onnx_nodes

    monkeypatch.setitem(onnx_nodes.ORDER, name, {"lstm": (0, 1, 2, 3), "gru": (0, 1, 2)}[name])
    verdict = compare({"outputs": by_onnx(*case(name))}, certified(name), required=("outputs",))
    assert verdict.verdict == NOT_ROUNDING


@pytest.mark.parametrize("name", ["lstm", "gru_before", "symbols"])
def test_a_model_takes_any_lengths(name):
    net, params, batch = case(name, 7, 4, True)
    lengths = last_steps(batch.mask).astype(np.int32)
    outputs = by_onnx(net, params, batch, lengths=lengths)
    assert passed(outputs, certify(net, params, batch))
    assert len({*lengths}) > 1 and not passed(
        by_onnx(net, params, batch), certify(net, params, batch)
    )
    again, read_params = onnx_models.net_of(onnx_models.to_model(net, params, lengths=True))
    assert again.cell == net.cell and np.array_equal(read_params["Why"], params["Why"])


# ---- as other programs write them


def of_torch(kind, symbols=False, head="last", initial=False, **options):
    """A model as people write it, and what it gives as refnet's nets do."""
    import torch

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(7, 3)
            self.cells = getattr(torch.nn, kind)(3, 4, **options)
            self.out = torch.nn.Linear(4 * (1 + self.cells.bidirectional), 5)

        def forward(self, x, *states):
            given = self.table(x) if symbols else x
            state = states if kind == "LSTM" else states[0] if states else None
            h, end = self.cells(given, *([state] if states else []))
            end = end[0] if kind == "LSTM" else end
            if head == "softmax":
                return torch.softmax(self.out(end[-1]), 1)
            if head == "last":
                both = [end[-2], end[-1]] if self.cells.bidirectional else [end[-1]]
                return self.out(torch.cat(both, 1))
            return self.out(h) if head == "every" else (h, end)

    torch.manual_seed(0)
    model = Model().eval()
    x = torch.randint(0, 7, (2, 5)) if symbols else torch.randn(2, 5, 3)
    x = x if options.get("batch_first") else x.swapaxes(0, 1).contiguous()
    rows = options.get("num_layers", 1) * (1 + options.get("bidirectional", False))
    states = [torch.zeros(rows, 2, 4)] * (2 if kind == "LSTM" else 1) if initial else []
    return model, (x, *states)


MODELS = {
    "RNN": partial(of_torch, "RNN", head="every"),
    "RNN relu": partial(of_torch, "RNN", nonlinearity="relu", bidirectional=True),
    "LSTM states": partial(of_torch, "LSTM", head="states", num_layers=2, batch_first=True),
    "LSTM": partial(of_torch, "LSTM", True, bidirectional=True, num_layers=2, batch_first=True),
    "LSTM given": partial(of_torch, "LSTM", initial=True, bidirectional=True),
    "GRU": partial(of_torch, "GRU", True, "every", num_layers=2, batch_first=True),
    "GRU softmax": partial(of_torch, "GRU", head="softmax"),
    "GRU plain": partial(of_torch, "GRU", bias=False, initial=True),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "dynamo", [False, pytest.param(True, marks=pytest.mark.needs("onnxscript"))]
)
@pytest.mark.parametrize("name", MODELS)
def test_models_of_torch_are_read(name, dynamo, tmp_path):
    import torch

    model, inputs = MODELS[name]()
    torch.onnx.export(model, inputs, tmp_path / "model.onnx", dynamo=dynamo, verbose=False)
    net, params = read(tmp_path / "model.onnx")
    with torch.no_grad():
        theirs = model(*inputs)
    theirs = (theirs[0] if isinstance(theirs, tuple) else theirs).numpy()
    x = inputs[0].numpy()
    if model.cells.batch_first:
        x = np.ascontiguousarray(x.swapaxes(0, 1))
        theirs = theirs.swapaxes(0, 1) if theirs.ndim == 3 else theirs
    ours = forward(net, params, x)
    if "softmax" in name:
        theirs, ours = np.log(theirs), ours - np.log(np.exp(ours).sum(1, keepdims=True))
    assert np.allclose(ours, theirs, 1e-5, 1e-6)
    options = model.cells
    shape = options.num_layers, options.bidirectional, options.mode.partition("_")[0].lower()
    assert (net.layers, net.bidirectional, net.cell) == shape


@pytest.mark.filterwarnings("ignore")
def test_the_last_step_of_both_directions_is_another_net(tmp_path):
    """h[-1] of a bidirectional layer has the backward state after one step alone."""
    import torch

    class Last(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.cells = torch.nn.GRU(3, 4, bidirectional=True)
            self.out = torch.nn.Linear(8, 5)

        def forward(self, x):
            return self.out(self.cells(x)[0][-1])

    torch.onnx.export(Last().eval(), (torch.zeros(5, 2, 3),), tmp_path / "m.onnx", dynamo=False)
    with refused("m.onnx: the graph computes no net of refnet's", FileError):
        read(tmp_path / "m.onnx")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_models_of_keras_are_read(tmp_path):
    keras = keras_weights.keras_package()
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            layers.Embedding(7, 3),
            layers.Dropout(0.5),
            layers.Bidirectional(layers.GRU(4, return_sequences=True, reset_after=False)),
            layers.Bidirectional(layers.GRU(4, reset_after=False)),
            layers.Dense(5, activation="softmax"),
        ]
    )
    model.save(tmp_path / "model.keras")
    net, params = read(tmp_path / "model.keras")
    assert (net.cell, net.layers, net.bidirectional, net.embedding) == ("gru_before", 2, True, 3)
    x = np.random.default_rng(0).integers(0, 7, (5, 2))
    ours = forward(net, params, x)
    shares = np.exp(ours) / np.exp(ours).sum(1, keepdims=True)
    assert np.allclose(shares, np.asarray(model(x.T)), 1e-5, 1e-6)
    other = keras.Sequential([keras.Input((None, 3)), layers.Conv1D(4, 2), layers.GRU(4)])
    other.save(tmp_path / "other.keras")
    with refused("other.keras: the model has the layer Conv1D", FileError):
        read(tmp_path / "other.keras")


def test_a_state_dict_of_torch_is_read(tmp_path):
    import torch

    model, (x,) = of_torch("LSTM", True, batch_first=True)
    torch.save(model.state_dict(), tmp_path / "model.pt")
    net, params = read(tmp_path / "model.pt")
    ours = forward(net, params, np.ascontiguousarray(x.numpy().T))
    assert np.allclose(ours, model(x).detach().numpy(), 1e-5, 1e-6)
    state = {**model.state_dict(), "norm.weight": torch.ones(5)}
    torch.save(state, tmp_path / "model.pt")
    with refused("norm.weight: need the weights of an embedding", FileError):
        read(tmp_path / "model.pt")


def test_a_graph_that_computes_something_else_is_refused():
    """The graph is evaluated beside the net that its weights give."""
    net, params, _ = case("h0")
    proto = onnx_models.to_model(net, params)
    assert onnx_models.net_of(proto)[0].layers == 2
    (gemm,) = (node for node in proto.graph.node if node.op_type == "Gemm")
    gemm.attribute.append(onnx.helper.make_attribute("alpha", 2.0))
    with refused("computes no net"):
        onnx_models.net_of(proto)


def test_export_command(tmp_path, capsys):
    from refnet import load, train
    from refnet.cli import main

    train(
        "temporal-order",
        tmp_path / "run",
        length=10,
        hidden=4,
        iterations=3,
        evaluate_every=1,
        transition="cayley",
    )
    run = load(tmp_path / "run")
    for name in ("model.onnx", "model.safetensors", "model.keras", "net.npz"):
        assert main(["export", str(tmp_path / "run"), "--to", str(tmp_path / name)]) == 0
    x = np.random.default_rng(0).standard_normal((6, 2, run.net.inputs)).astype(np.float32)
    ours = forward(run.net, run.best_params, x)
    for name in ("model.onnx", "model.safetensors", "model.keras", "net.npz"):
        net, params = read(tmp_path / name)
        assert np.allclose(forward(net, params, x), ours, 1e-4, 1e-6)
    assert main(["export", str(tmp_path / "model.onnx"), "--to", str(tmp_path / "again.npz")]) == 0
    assert "parameters" in capsys.readouterr().out
    assert main(["export", str(tmp_path / "run"), "--to", str(tmp_path / "model.txt")]) == 2
    assert "the format" in capsys.readouterr().err
