"""PyTorch's layers on refnet's kernels, judged in random configurations and used as PyTorch's."""

import copy
import io
import pickle
from threading import Barrier, get_ident

import pytest
import torch
from torch.nn.utils import parametrizations, parametrize
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import DataLoader, Dataset

import refnet.torch
from benchmarks.judge.torch_modules import MODULES, main, random_configuration, verdicts
from refnet.check.verdict import EXPLAINED, NOT_ROUNDING
from refnet.interop import torch_cells, torch_modules
from support.arguments import refused
from support.torch_layers import gradchecks

pytestmark = pytest.mark.needs("torch", "flint")

NAMES = ("RNN", "LSTM", "GRU")
each_layer = pytest.mark.parametrize("name", NAMES)
CONFIGURATIONS = [random_configuration(seed) for seed in range(30)]
PACKED = CONFIGURATIONS[0]._replace(
    mode="GRU", form="packed", starts=True, lengths=(2, 5, 1, 4), steps=5
)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def random_x(*shape, **options):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), **options)


def pair(name, *sizes, **options):
    """PyTorch's layer and refnet's, with the same weights."""
    torch.manual_seed(0)
    theirs, ours = (getattr(package, name)(*sizes, **options) for package in MODULES.values())
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("config", CONFIGURATIONS, ids=lambda each: f"{each.seed} {each.mode}")
def test_configurations_are_judged(config):
    assert {name: verdict.verdict for name, verdict in verdicts(config)} == dict.fromkeys(
        MODULES, EXPLAINED
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_500_configurations_are_judged(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["torch_modules", "--count", "500"])
    assert main() == 0, capsys.readouterr().out


def mixed_up(right, *args, **options):
    """The states of a packed batch belong to other sequences."""
    ways = right(*args, **options)
    return {way: steps._replace(order=steps.order[::-1]) for way, steps in ways.items()}


def forward_twice(right, *args, **options):
    """The second direction, too, runs from the first step."""
    ways = right(*args, **options)
    return dict.fromkeys(ways, ways[""])


def without_last(right, doutputs, last, steps, wanted):
    """The gradient at the final state is lost where all states have one."""
    return right(doutputs, last, steps, wanted and doutputs is None)


@pytest.mark.parametrize(
    ("place", "name", "bug"),
    [
        (torch_modules, "packed_steps", mixed_up),
        (torch_modules, "packed_steps", forward_twice),
        (torch_cells, "_with_last", without_last),
    ],
)
def test_planted_bugs_are_rejected(place, name, bug, monkeypatch):
    right = getattr(place, name)
    monkeypatch.setattr(place, name, lambda *args, **options: bug(right, *args, **options))
    verdict_of = {name: verdict.verdict for name, verdict in verdicts(PACKED)}
    assert verdict_of == {"torch": EXPLAINED, "refnet": NOT_ROUNDING}


@each_layer
def test_gradcheck(name):
    """Through functional_call."""
    _, layer = pair(name, 2, 3, 2, bidirectional=True, dtype=torch.float64)
    starts = (2 if name == "LSTM" else 1) * [random_x(4, 2, 3, dtype=torch.float64)]
    assert gradchecks(layer, random_x(3, 2, 2, dtype=torch.float64), *starts)


@each_layer
def test_forward_passes_and_changes_around_a_backward_pass(name):
    """Two forward passes before it, twice the same graph, and outputs changed in place."""
    _, layer = pair(name, 2, 3)
    x, other = random_x(4, 2, 2), random_x(6, 1, 2)
    (layer(x)[0] ** 2).sum().backward()
    want = [parameter.grad.clone() for parameter in layer.parameters()]
    layer.zero_grad()
    loss = (layer(x)[0].mul_(0.5).mul_(2) ** 2).sum()
    layer(other)
    for _ in range(2):
        layer.zero_grad()
        loss.backward(retain_graph=True)
        assert all(torch.equal(p.grad, w) for p, w in zip(layer.parameters(), want))
    loss.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()
    loss = layer(x)[0].sum()
    with torch.no_grad():
        layer.weight_hh_l0.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@each_layer
@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_no_tape_without_gradients(name, context, monkeypatch):
    """The kernels keep nothing for a backward pass, and the numbers are the same."""
    _, layer = pair(name, 2, 3, 2, bidirectional=True)
    packed = pack_padded_sequence(random_x(5, 3, 2), torch.tensor([2, 5, 4]), enforce_sorted=False)
    keeps, right = [], torch_cells._layer
    monkeypatch.setattr(torch_cells, "_layer", lambda *args: keeps.append(args[2]) or right(*args))
    for x in (random_x(5, 3, 2), packed):
        tracked, end = layer(x)
        with context():
            outputs, last = layer(x)
        data, result = (each.data if x is packed else each for each in (tracked, outputs))
        assert torch.equal(data, result)
        ends, results = (each if name == "LSTM" else (each,) for each in (end, last))
        assert all(torch.equal(a, b) for a, b in zip(ends, results, strict=True))
    assert keeps == ([True] * 4 + [False] * 4) * 2
    layer.requires_grad_(False)
    assert not layer(random_x(5, 3, 2))[0].requires_grad


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_errors_say_what_to_do():
    x, layer = random_x(4, 2, 2), refnet.torch.LSTM(2, 3)
    with pytest.raises(RuntimeError, match=r"LSTM: a tensor is on meta; need all on the CPU"):
        refnet.torch.LSTM(2, 3, device="meta")(x.to("meta"))
    for wrong in (lambda: layer(x.half()), lambda: layer(x.double())):
        with pytest.raises(RuntimeError, match=r"are torch.float.*; need torch.float32 or"):
            wrong()
    with pytest.raises(RuntimeError, match=r"hidden\[1\] size \(1, 2, 3\), got \[1, 2, 4\]"):
        layer(x, (torch.zeros(1, 2, 3), torch.zeros(1, 2, 4)))
    with pytest.raises(RuntimeError, match="Expected 2, got 5"):
        layer(torch.zeros(4, 2, 5))
    with refused("2D or 3D, got 1D"):
        layer(torch.zeros(2))
    with pytest.raises(RuntimeError, match=r"TorchScript cannot call refnet.*restore\(model\)"):
        torch.jit.script(torch.nn.Sequential(layer))
    weight = layer.weight_hh_l0
    (gradient,) = torch.autograd.grad(layer(x)[0].sum(), weight, create_graph=True)
    with pytest.raises(RuntimeError, match="second derivative"):
        gradient.sum().backward()


class Named(torch.nn.LSTM):
    """A user's class without a forward of its own."""


class Different(torch.nn.GRU):
    def forward(self, *args):
        return super().forward(*args)


def test_accelerate_and_restore():
    """Parameters, hooks and optimizers keep their layer; a copy, pickled or not, is alike."""
    lstm, named = torch.nn.LSTM(2, 3), Named(2, 3)
    model = torch.nn.ModuleDict({"a": torch.nn.Sequential(lstm), "b": named, "c": lstm})
    weights = [*model.parameters()]
    assert refnet.torch.accelerate(model) == {"a.0": lstm, "b": named}
    assert type(lstm) is refnet.torch.LSTM and isinstance(named, Named)
    assert all(a is b for a, b in zip(weights, model.parameters()))
    assert refnet.torch.accelerate(model) == {}
    x, buffer = random_x(4, 2, 2), io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, weights_only=False)
    for other in (copy.deepcopy(model), loaded, pickle.loads(pickle.dumps(model))):
        for key in ("b", "c"):
            assert type(other[key]) is type(model[key])
            assert torch.equal(other[key](x)[0], model[key](x)[0])
    assert refnet.torch.restore(model) == {"a.0": lstm, "b": named}
    assert type(lstm) is torch.nn.LSTM and type(named) is Named
    for layer in (Different(2, 3), torch.nn.GRU(2, 3).half(), torch.nn.LSTM(2, 3, proj_size=1)):
        with pytest.warns(UserWarning, match="the model itself stays PyTorch's: "):
            assert refnet.torch.accelerate(layer) == {}


@each_layer
def test_parametrizations(name):
    """A weight that another module makes, before and after a change to refnet and back."""
    theirs, ours = pair(name, 2, 3)
    x = random_x(4, 2, 2)
    weight = "weight_hh_l0" if name == "RNN" else "weight_ih_l0"
    for layer in (theirs, ours):
        parametrizations.orthogonal(layer, weight)
    ours.load_state_dict(theirs.state_dict())
    copy.deepcopy(ours)
    for layer in (theirs, ours):
        layer(x)[0].sum().backward()
    for a, b in zip(theirs.parameters(), ours.parameters()):
        assert torch.allclose(a.grad, b.grad, atol=1e-5)
    assert [*refnet.torch.restore(ours), *refnet.torch.accelerate(ours)] == ["", ""]
    want = ours(x)[0]
    parametrize.remove_parametrizations(ours, weight)
    assert type(ours) is getattr(refnet.torch, name)
    assert torch.equal(ours(x)[0], want)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_what_records_operations_sees_pytorchs():
    theirs, ours = pair("LSTM", 2, 3)
    x = random_x(4, 2, 2)
    traced = torch.jit.trace(ours, x)
    assert not any("PythonOp" in node.kind() for node in traced.graph.nodes())
    assert torch.equal(traced(x)[0], theirs(x)[0])

    def loss(layer):
        return lambda p: torch.func.functional_call(layer, p, (x,))[0].sum()

    grads = [torch.func.grad(loss(each))(dict(each.named_parameters())) for each in (theirs, ours)]
    assert all(torch.equal(grads[0][key], grads[1][key]) for key in grads[0])


@pytest.mark.slow
def test_compiled_models_break_once():
    """torch.compile around a layer: a single graph break, and refnet's gradients."""
    _, layer = pair("GRU", 2, 3)
    head, x = torch.nn.Linear(3, 1), random_x(4, 2, 2)

    def model(x):
        return head(torch.relu(layer(2 * x)[0])).sum()

    model(x).backward()
    want = layer.weight_hh_l0.grad.clone()
    layer.zero_grad()
    torch._dynamo.utils.counters.clear()
    torch.compile(model, backend="eager")(x).backward()
    assert torch.equal(layer.weight_hh_l0.grad, want)
    assert sum(torch._dynamo.utils.counters["graph_break"].values()) == 1


class Encoded(Dataset):
    """What a layer makes of sequences, in the process that loads them."""

    def __init__(self, layer):
        self.layer = layer

    def __len__(self):
        return 4

    def __getitem__(self, n):
        with torch.no_grad():
            return self.layer(torch.full((3, 1, 2), float(n)))[0]


@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_data_loaders_run_layers(context):
    dataset = Encoded(refnet.torch.GRU(2, 3))
    want = torch.stack([dataset[n] for n in range(4)])
    loader = DataLoader(dataset, batch_size=2, num_workers=2, multiprocessing_context=context)
    assert torch.equal(torch.cat([*loader]), want)


def test_threads_are_as_many_as_pytorchs(monkeypatch):
    seen = []
    right = torch_cells.Layer.run

    def run(*args, **options):
        seen.append(torch_cells.get_threads())
        return right(*args, **options)

    monkeypatch.setattr(torch_cells.Layer, "run", run)
    before = torch_cells.get_threads()
    for threads in (1, 3):
        torch.set_num_threads(threads)
        refnet.torch.GRU(2, 3)(random_x(4, 2, 2))
    assert seen == [1, 3] and torch_cells.get_threads() == before


@pytest.mark.skipif(not torch_cells._openmp(), reason="PyTorch has other threads")
def test_parts_run_in_pytorchs_threads(monkeypatch):
    """Two at a time, for each waits for another, and as many calls as there are parts; an error
    comes back. A forked child, where PyTorch's threads are gone, takes refnet's own."""
    torch.set_num_threads(2)
    meeting, seen = Barrier(2, timeout=60), []

    def part(n):
        seen.append((n, get_ident()))
        meeting.wait()
        if n == 3:
            raise ValueError("of part 3")

    with torch_cells._threads_of_torch():
        with pytest.raises(ValueError, match="of part 3"):
            torch_cells.get_team()(part, 4)
    assert sorted(n for n, _ in seen) == [0, 1, 2, 3] and len({thread for _, thread in seen}) == 2
    assert torch_cells.get_team() is None
    monkeypatch.setattr(torch_cells, "PROCESS", 0)
    with torch_cells._threads_of_torch():
        assert torch_cells.get_team() is None


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_tangents_are_refused():
    """PyTorch's forward mode, whose tangents no kernel has."""
    with torch.autograd.forward_ad.dual_level():
        x = torch.autograd.forward_ad.make_dual(random_x(4, 2, 2), random_x(4, 2, 2))
        with torch.no_grad(), pytest.raises(NotImplementedError, match="jvp"):
            refnet.torch.GRU(2, 3)(x)
