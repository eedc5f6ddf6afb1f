"""Other frameworks for real: judged, their weights in and out, refnet used inside them."""

import sys
from fractions import Fraction

import numpy as np
import pytest

from refnet.check import layers, survey
from refnet.check.adapters import exact_sum, jax_nets, onnx_nets, reorder, torch_nets
from refnet.check.cases import random_batch, random_params
from refnet.check.verdict import EXPLAINED, NOT_ROUNDING, compare
from refnet.exact import certify
from refnet.maths.activations import ACTIVATIONS
from refnet.matrices.transitions import transition
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.gradients import loss_and_gradients
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet
from refnet.runs.read import FileError

pytestmark = pytest.mark.needs("flint")


def case(net, dtype=np.float32, T=6, B=3, seed=0):
    rng = np.random.default_rng(seed)
    return random_params(net, rng, dtype), random_batch(net, rng, dtype, T, B)


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="PyTorch (extra torch) is not installed")


@pytest.fixture
def jax():
    return pytest.importorskip("jax", reason="JAX (extra jax) is not installed")


@pytest.fixture
def onnx():
    pytest.importorskip("onnxruntime", reason="ONNX Runtime (extra onnx) is not installed")
    return pytest.importorskip("onnx", reason="onnx (extra onnx) is not installed")


TINY = ((4, 5, 2),)


@pytest.mark.parametrize("sizes", [TINY, survey.SIZES[:1]], ids=["tiny", "one step"])
def test_torch_is_judged(torch, sizes):
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
def test_torch_is_judged_in_coarser_arithmetics(torch, name, monkeypatch):
    rows = list(survey.torch_rows(TINY, dtypes=(name,)))
    assert {row["what"] for row in rows} >= {"nn.LSTM", "nn.GRU, bias_hh", "nn.Linear x 4, ReLU"}
    assert {(row["dtype"], row["verdict"]) for row in rows} == {(name, EXPLAINED)}
    right = torch_nets.results

    def transposed(*args, **options):
        found = right(*args, **options)
        return {key: value.T if key in ("dWhh", "dW2") else value for key, value in found.items()}

    monkeypatch.setattr(torch_nets, "results", transposed)
    square = [
        row
        for row in survey.torch_rows(TINY, dtypes=(name,))
        if row["what"] in ("nn.RNN tanh", "nn.Linear x 4, Tanh")
    ]
    assert {row["verdict"] for row in square} == {NOT_ROUNDING}


def test_torch_computes_on_its_default_device(torch):
    """meta is a device without numbers, which every machine has."""
    params = RecurrentNet(2, 3, 2).init(np.random.default_rng(0))
    try:
        torch.set_default_device("meta")
        made = torch_nets.state_dict(RecurrentNet(2, 3, 2), params)
    finally:
        torch.set_default_device("cpu")
    assert {tensor.device.type for tensor in made.values()} == {"meta"}
    assert torch_nets.use_device("cpu") == "cpu"
    with pytest.raises(ValueError, match="torch cannot use the device cuda:99: "):
        torch_nets.use_device("cuda:99")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("map_name", ["matrix_exp", "cayley", "householder"])
def test_orthogonal_parametrisations_in_torch(torch, map_name, dtype):
    """The gradient in the raw matrix is right; half of it, or its transpose, is not."""
    net = RecurrentNet(2, 5, 3)
    judged, params, theirs = torch_nets.orthogonal_results(net, *case(net, dtype), map_name)
    name = "dWhh" if map_name == "householder" else "dWhh.A"
    certified = certify(judged, params, case(net, dtype)[1])
    assert compare(theirs, certified, required=(name,)).passed
    assert abs(theirs[name]).max() > 1e-3
    for wrong in (theirs[name] / 2, theirs[name].T):
        assert not compare({**theirs, name: wrong}, certified, required=()).passed
    if map_name == "householder":
        W = params["Whh"].astype(np.longdouble)
        # a product of 5 reflections of 5 units: below 1e3 roundings of size 1 an entry
        assert abs(W.T @ W - np.eye(5)).max() < 1e3 * np.finfo(dtype).eps


def test_jax_is_judged(jax):
    rows = list(survey.jax_rows(TINY))
    assert {(row["what"], row["dtype"]) for row in rows} == {
        (f"lax.scan {cell}", dtype)
        for cell in ("rnn", "lstm", "gru")
        for dtype in ("float32", "float64")
    }
    assert {row["verdict"] for row in rows} == {EXPLAINED}


def test_jax_computes_on_the_device_that_is_named(jax):
    assert jax_nets.use_device("cpu") == "cpu"
    with pytest.raises(ValueError, match="JAX cannot use the device abacus: "):
        jax_nets.use_device("abacus")


def test_onnx_is_judged(onnx):
    rows = list(survey.onnx_rows(TINY))
    assert len(rows) == 16
    judged = [row for row in rows if row["verdict"] != "refused"]
    assert {row["verdict"] for row in judged} == {EXPLAINED}
    assert {row["framework"] for row in judged} == set(onnx_nets.RUNTIMES)
    assert all(row["note"] for row in rows if row["verdict"] == "refused")


def test_float32_results_are_no_float64(torch):
    """A framework that computes in float32 behind a float64 interface is found out."""
    net = RecurrentNet(2, 4, 3)
    params, batch = case(net, np.float64)
    low = {name: value.astype(np.float32) for name, value in params.items()}
    results = torch_nets.results(net, low, batch._replace(x=batch.x.astype(np.float32)))
    wide = {name: value.astype(np.float64) for name, value in results.items()}
    assert compare(wide, certify(net, params, batch)).verdict == NOT_ROUNDING


def test_function_of_ones_own_in_torch(torch):
    net = RecurrentNet(2, 4, 3)

    def loss(p, x, y, order=1):
        h = torch.zeros(x.shape[1], 4, dtype=x.dtype)
        for step in x[::order] if order == 1 else x.flip(0):
            h = torch.tanh(step @ p["Wxh"].T + h @ p["Whh"].T + p["bh"])
        return torch.nn.functional.cross_entropy(h @ p["Why"].T + p["by"], y)

    params, batch = case(net)
    certified = certify(net, params, batch)
    assert compare(torch_nets.gradients(loss, params, batch), certified).passed
    wrong = torch_nets.gradients(lambda p, x, y: loss(p, x, y, -1), params, batch)
    assert compare(wrong, certified).convention == "time is reversed"


def test_constant_parts_of_a_transition_in_torch(torch):
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

    params, batch = case(net)
    certified = certify(net, params, batch)
    found = torch_nets.gradients(loss, params, batch)
    assert compare(found, certified).passed and not found["dWhh.base"].any()
    assert found.keys() == {"loss", "dx", *(f"d{name}" for name in params)}
    forgot = compare(
        torch_nets.gradients(lambda p, x, y: loss(p, x, y, True), params, batch), certified
    )
    assert {part.name: part.verdict for part in forgot.parts}["dbh"] == NOT_ROUNDING


@pytest.mark.parametrize("sizes", [(2, 1, 1), (2, 2, 1), (2, 3, 1)])
def test_layers_are_those_that_a_size_allows(torch, sizes):
    """Of two units no projection is smaller."""
    (table,) = (table for table in layers.TABLES if table.package == "torch")
    found = {case.what.partition(",")[0] for case in layers.cases(table, sizes)}
    assert ("nn.LSTM proj_size" in found) == (sizes[1] > 2) and "nn.LSTM" in found


def test_function_of_ones_own_in_jax(jax):
    net = RecurrentNet(2, 4, 3)
    params, batch = case(net)
    certified = certify(net, params, batch)
    right = jax_nets.scan_loss(net)
    assert compare(jax_nets.gradients(right, params, batch), certified).passed

    def without_bias(p, x, y):
        return right({**p, "bh": 0 * p["bh"]}, x, y)

    verdict = compare(jax_nets.gradients(without_bias, params, batch), certified)
    assert verdict.verdict == NOT_ROUNDING


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_torch_state_dicts_go_in_and_out(torch, cell):
    net = RecurrentNet(2, 4, 3, cell=cell)
    params, batch = case(net)
    back = torch_nets.from_state_dict(net, torch_nets.state_dict(net, params))
    assert set(back) == set(params)
    assert all((back[name] == params[name]).all() for name in params)
    # a foreign state dict, with two biases that both count
    made = torch_nets.module(net, np.float32)
    ours = torch_nets.from_state_dict(net, made.state_dict())
    with torch.no_grad():
        h, _ = made["rnn"](torch.from_numpy(batch.x))
        outputs = made["head"](h[-1]).numpy()
    theirs = {"outputs": outputs}
    certified = certify(net, ours, batch)
    assert compare(theirs, certified, required=()).passed
    name = "bh" if cell != "gru" else "bhn"
    variant = {name: np.asarray(ours[name], float) / 2}
    assert not compare(theirs, certify(net, {**ours, **variant}, batch), required=()).passed


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda s: s.pop("rnn.bias_hh_l0"), "rnn.bias_hh_l0 is missing"),
        (lambda s: s.update({"rnn.weight_hh_l1": s["rnn.weight_hh_l0"]}), "second layer"),
        (lambda s: s.update({"rnn.weight_hh_l0": s["rnn.weight_ih_l0"]}), r"need \(4, 4\)"),
    ],
)
def test_wrong_state_dicts_are_refused(torch, change, message):
    net = RecurrentNet(2, 4, 3)
    state = torch_nets.state_dict(net, case(net)[0])
    change(state)
    with pytest.raises(ValueError, match=message):
        torch_nets.from_state_dict(net, state)


@pytest.mark.parametrize(
    "net, message",
    [
        (RecurrentNet(2, 4, 3, cell="gru_before"), "no layer for the cell gru_before"),
        (RecurrentNet(2, 4, 3, activation=ACTIVATIONS["softsign"]), "no activation softsign"),
        (RecurrentNet(2, 4, 3, gain=1.05), "gain"),
    ],
)
def test_nets_torch_has_no_layer_for_are_refused(torch, net, message):
    with pytest.raises(ValueError, match=message):
        torch_nets.state_dict(net, case(net)[0])


def test_biases_are_added_without_rounding():
    a, b = np.array([1.0, 1e16]), np.array([2.0, 1.0])
    assert exact_sum(a, b)[1] == Fraction(10**16 + 1)
    assert exact_sum(np.float32(a), np.float32([2, 4])).dtype == np.float64


@pytest.mark.parametrize("cell", onnx_nets.ORDER)
def test_onnx_weights_go_in_and_out(onnx, cell):
    net = RecurrentNet(2, 3, 1, cell=cell)
    params, batch = case(net)
    back = onnx_nets.from_onnx(net, onnx_nets.to_onnx(net, params))
    assert all((back[name] == params[name]).all() for name in back)
    loaded, read = onnx_nets.load(onnx_nets.model(net, params))
    assert (loaded.cell, loaded.hidden, loaded.inputs) == (cell, 3, 2)
    assert all((read[name] == params[name]).all() for name in back)
    certified = certify(loaded, read, batch)
    theirs = onnx_nets.results(onnx_nets.model(net, params), batch.x, "onnxruntime")
    assert compare(theirs, certified, required=("h",)).passed


def test_onnx_gate_order_matters(onnx):
    """The layout is ONNX's: weights left in torch's order give another net."""
    net = RecurrentNet(2, 3, 1, cell="lstm")
    params, batch = case(net)
    turned = {
        name: reorder(params[name], onnx_nets._back(onnx_nets.ORDER["lstm"]))
        for name in ("Whh", "Wxh", "bh")
    }
    theirs = onnx_nets.results(onnx_nets.model(net, {**params, **turned}), batch.x, "onnxruntime")
    verdict = compare(theirs, certify(net, params, batch), required=("h",))
    assert verdict.verdict == NOT_ROUNDING
    assert "gates are read in the order" in verdict.convention


@pytest.mark.parametrize("attribute, value", [("direction", "bidirectional"), ("clip", 1.0)])
def test_onnx_models_outside_the_nets_are_refused(onnx, attribute, value):
    net = RecurrentNet(2, 3, 1)
    made = onnx_nets.model(net, case(net)[0])
    made.graph.node[0].attribute.append(onnx.helper.make_attribute(attribute, value))
    with pytest.raises(ValueError, match="only a forward, unclipped"):
        onnx_nets.load(made)


def other_activation(onnx, made, folder):
    made.graph.node[0].attribute[0].strings[1] = b"Relu"  # of the candidate alone


def kept_beside(onnx, made, folder):
    onnx.save(made, folder / "model.onnx", save_as_external_data=True, size_threshold=0)
    made.CopyFrom(onnx.load(folder / "model.onnx", load_external_data=False))


def of_integers(onnx, made, folder):
    made.graph.initializer[0].data_type = onnx.TensorProto.INT32


def not_finite(onnx, made, folder):
    made.graph.initializer[1].raw_data = b"\xff" * len(made.graph.initializer[1].raw_data)


def flat(onnx, made, folder):
    dims = made.graph.initializer[0].dims
    dims[0:] = [dims[1] * dims[2]]


def another_size(onnx, made, folder):
    made.graph.node[0].attribute[1].i = 7


@pytest.mark.parametrize(
    "change, message",
    [
        (
            other_activation,
            "the activations Sigmoid, Relu, Tanh cannot be judged; need Sigmoid, f, f",
        ),
        (kept_beside, "W is kept in a file beside the model"),
        (of_integers, "W is not a tensor of float32"),
        (not_finite, "R has entries that are not finite"),
        (flat, "W has shape"),
        (another_size, "with H = 7"),
    ],
)
def test_onnx_files_are_refused_in_one_line(onnx, tmp_path, change, message):
    made = onnx_nets.model(net := RecurrentNet(2, 3, 1, cell="lstm"), case(net)[0])
    change(onnx, made, tmp_path)
    (tmp_path / "model.onnx").write_bytes(made.SerializeToString())
    with pytest.raises(FileError, match=f"model.onnx: .*{message}.*; export the model again"):
        onnx_nets.read(tmp_path / "model.onnx")
    (tmp_path / "model.onnx").write_bytes(b"garbage")
    with pytest.raises(FileError, match="not a valid ONNX model") as error:
        list(survey.model_rows(tmp_path / "model.onnx", 2, 2))
    assert "\n" not in str(error.value)


def test_only_the_recurrent_layer_of_a_model_runs(onnx, tmp_path):
    """What else the graph has, such as a tensor of 10^15 entries, is never computed."""
    made = onnx_nets.model(net := RecurrentNet(2, 3, 1), case(net)[0])
    shape = onnx.numpy_helper.from_array(np.array([10**15]), "shape")
    made.graph.initializer.append(shape)
    made.graph.node.append(onnx.helper.make_node("ConstantOfShape", ["shape"], ["huge"]))
    made.graph.output.append(onnx.helper.make_tensor_value_info("huge", 1, ["n"]))
    (tmp_path / "model.onnx").write_bytes(made.SerializeToString())
    rows = list(survey.model_rows(tmp_path / "model.onnx", 3, 2))
    assert [row["verdict"] for row in rows] == [EXPLAINED] * 2


@pytest.mark.parametrize(
    "net",
    [
        RecurrentNet(2, 4, 3, cell="lstm", readout="every"),
        RecurrentNet(2, 4, 3),
        FeedforwardNet((2, 4, 3)),
    ],
    ids=["lstm", "rnn", "feedforward"],
)
def test_refnet_inside_torch(torch, net):
    params, batch = case(net)
    ours = loss_and_gradients(net, params, batch)
    function = torch_nets.as_function(net)
    p = {name: torch.from_numpy(value).requires_grad_() for name, value in params.items()}
    x = torch.from_numpy(batch.x).requires_grad_()
    outputs = function(x, **p)
    loss = torch.nn.functional.cross_entropy(
        outputs.reshape(-1, 3), torch.from_numpy(batch.y).reshape(-1)
    )
    loss.backward()
    theirs = {
        "loss": loss.detach().numpy(),
        "dx": x.grad.numpy(),
        **{f"d{name}": value.grad.numpy() for name, value in p.items()},
    }
    assert (outputs.detach().numpy() == ours.outputs).all()
    assert compare(theirs, certify(net, params, batch)).passed
    with pytest.raises(RuntimeError, match="once_differentiable"):
        again = (function(x, **p) ** 2).sum()
        (grad,) = torch.autograd.grad(again, x, create_graph=True)
        grad.sum().backward()


@pytest.mark.parametrize(
    "net",
    [RecurrentNet(2, 4, 3, cell="gru", readout="every"), RecurrentNet(2, 4, 3)],
    ids=["gru", "rnn"],
)
def test_refnet_inside_jax(jax, net):
    params, batch = case(net)
    function = jax_nets.as_function(net)

    def loss(p, x, y):
        logs = jax.nn.log_softmax(function(p, x))
        return -jax.numpy.take_along_axis(logs, y[..., None], axis=-1).mean()

    for jit in (False, True):
        theirs = jax_nets.gradients(loss, params, batch, jit)
        assert compare(theirs, certify(net, params, batch)).passed


def test_a_stack_without_a_read_out_inside_jax(jax):
    net = StackedNet(
        2,
        3,
        6,
        cell="rnn",
        layers=2,
        bidirectional=True,
        readout="none",
        loss="none",
        reduction="sum",
    )
    params, batch = case(net)

    def loss(p, x, y):
        return (jax_nets.as_function(net)(p, x) * y).sum()

    assert compare(jax_nets.gradients(loss, params, batch), certify(net, params, batch)).passed


@pytest.mark.parametrize(
    "extra, use",
    [
        ("torch", lambda net, p, b: torch_nets.results(net, p, b)),
        ("jax", lambda net, p, b: jax_nets.results(net, p, b)),
        ("onnx", lambda net, p, b: onnx_nets.model(net, p)),
    ],
)
def test_missing_extra_is_named(monkeypatch, extra, use):
    monkeypatch.setitem(sys.modules, extra, None)
    net = RecurrentNet(2, 3, 1)
    with pytest.raises(ImportError, match=rf"refnet\[{extra}\]"):
        use(net, *case(net))


def test_what_torch_refuses_is_a_row_of_its_own(torch, monkeypatch):
    """On a GPU, cuDNN's layers refuse a weight that is not contiguous, as a Cayley map makes it."""

    def refuses(*_):
        raise RuntimeError("view size is not compatible\nwith anything")

    monkeypatch.setattr(torch_nets, "orthogonal_results", refuses)
    rows = list(survey.torch_rows(((1, 2, 1),), dtypes=(np.float32,)))
    found = {row["what"]: row for row in rows if row["verdict"] == "refused"}
    names = {what.partition(" at 1-norm")[0] for what in found}
    assert names == {f"orthogonal, {name}" for name in ("matrix_exp", "cayley", "householder")}
    assert found["orthogonal, cayley"]["note"] == "RuntimeError: view size is not compatible"
