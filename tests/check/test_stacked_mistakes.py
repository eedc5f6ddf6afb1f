"""Mistakes in putting layers together are named: every one of the table, and those that programs
make with PyTorch's layers, which share no code with the table."""

from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.judge.cases import wide
from refnet.check.cases import random_batch, random_params, with_drawn
from refnet.check.conventions import Readings
from refnet.check.mistakes import mistakes
from refnet.check.noise import spread
from refnet.check.programs.passes import run
from refnet.check.verdict import NOT_ROUNDING, compare
from refnet.exact import certify
from refnet.exact.enclose import run_on
from refnet.nets.stacked import StackedNet

pytestmark = pytest.mark.needs("flint")

T, B, H = 5, 3, 4


def case(
    cell="lstm",
    readout="last",
    layers=2,
    both=True,
    mask=True,
    added=("h0", "bhh"),
    projection=0,
    **options,
):
    if readout == "none":
        options |= {"loss": "none", "reduction": "sum"}
    outputs = (1 + both) * (projection or H) if readout == "none" else 5
    options |= {"layers": layers, "bidirectional": both, "projection": projection}
    net = StackedNet(3, H, outputs, cell=cell, readout=readout, **options)
    rng = np.random.default_rng([layers, both, mask, len(cell), len(readout)])
    params, batch = random_params(net, rng, np.float32), random_batch(net, rng, np.float32, T, B)
    params = with_drawn(net, params, added, rng, B)
    if mask:
        batch = batch._replace(mask=np.arange(T)[:, None] < np.array([T, 2, 4]))
    return net, params, batch


CASES = {
    "lstm": {},
    "every": {"readout": "every"},
    "gru, none": {"cell": "gru", "readout": "none"},
    "rnn, 3 layers": {"cell": "rnn", "layers": 3},
    "one layer": {"layers": 1},
    "one direction": {"both": False},
    "no lengths": {"mask": False, "cell": "gru"},
    "projected": {"projection": 2, "readout": "every"},
    "gain": {"cell": "rnn", "gain": 1.25},
    "clipped": {"clip_step": 0.05, "readout": "every"},
    "embedded": {"cell": "gru", "embedding": 2, "added": ("h0",)},
    "transition": {"cell": "gru", "transition": "cayley", "added": ("h0",)},
}


@pytest.mark.parametrize("name", CASES)
def test_the_stack_without_a_mistake(name):
    net, params, batch = case(**CASES[name])
    params, batch = wide(SimpleNamespace(params=params, batch=batch))
    true = run_on(net, params, batch, lambda array, name: array)
    results = run(net, params, batch)
    assert set(results) == {key for key in true if key[0] not in "hc"}
    for key, value in results.items():
        assert abs(value - true[key]).max() <= 1e-13 * max(1, abs(true[key]).max()), key


@pytest.mark.parametrize("name", CASES)
def test_every_mistake_is_named(name):
    """By its own name, or by that of another that gives the same here."""
    certified = certify(*case(**CASES[name]))
    readings, sigma = Readings(certified, pairs=False), spread(certified, np.float32)
    known = dict(readings.computed)
    assert len(known) == len(readings.computed) >= 12
    planted = 0
    for label, reading in known.items():
        theirs = {key: np.asarray(value, np.float32) for key, value in reading.items()}
        verdict = compare(theirs, certified, readings=readings, sigma=sigma)
        if verdict.verdict != NOT_ROUNDING:  # nothing of it shows here
            assert all(abs(reading[key] - readings.true[key]).max() < 1e-4 for key in reading)
            continue
        planted += 1
        if verdict.convention != label:
            other = known.get(verdict.convention)
            if other is None:  # an edit of what is given
                assert verdict.convention.startswith("d") or "gates" in verdict.convention, label
                continue
            assert all(abs(other[key] - reading[key]).max() < 1e-5 for key in reading), (
                label,
                verdict.convention,
            )
    assert planted >= 10


def test_a_name_explains_all_that_is_given():
    """One more wrong gradient, and it is none."""
    certified = certify(*case())
    readings = Readings(certified, pairs=False)
    label, reading = readings.computed[0]
    theirs = {key: np.asarray(value, np.float32) for key, value in reading.items()}
    assert compare(theirs, certified, readings=readings).convention == label
    theirs["dWxh_l1"] = theirs["dWxh_l1"] * np.linspace(1, 2, theirs["dWxh_l1"].size).reshape(
        theirs["dWxh_l1"].shape
    )
    assert compare(theirs, certified, readings=readings).convention != label


def wrong_torch(mistake, net, params, batch):
    """PyTorch's layer, used in a way that programs do."""
    import torch

    from refnet.interop import torch_weights

    p = {name: torch.from_numpy(value.copy()).requires_grad_() for name, value in params.items()}
    layer = torch.nn.LSTM(3, H, net.layers, bidirectional=True)
    state = torch_weights.layer_state_dict(net, params)
    if mistake == "gates":
        state = {
            name: torch.cat([value.chunk(4)[n] for n in (0, 2, 3, 1)])
            for name, value in state.items()
        }
    layer.load_state_dict(state)
    starts = [p[f"h0{suffix}"] for suffix in net.every_cell]
    if mistake == "initial states":
        starts = [starts[n] for n in (1, 0, 3, 2)]
    h0 = torch.stack(starts)
    x = torch.from_numpy(batch.x).requires_grad_()
    lengths = torch.from_numpy(batch.mask.sum(axis=0))
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
    start = h0[:, 0].contiguous(), h0[:, 1].contiguous()
    h, (end, _) = layer(x if mistake == "padding" else packed, start)
    rows = torch.cat([end[-2], end[-1]], 1)
    if mistake == "last step":
        h, _ = torch.nn.utils.rnn.pad_packed_sequence(h)
        rows = h[lengths - 1, torch.arange(B)]
    outputs = rows @ p["Why"].T + p["by"]
    loss = torch.nn.functional.cross_entropy(outputs, torch.from_numpy(batch.y))
    loss.backward()
    given = ("Why", "by", *(f"h0{suffix}" for suffix in net.every_cell))
    results = {"loss": loss, "outputs": outputs, "dx": x.grad}
    results |= {f"d{name}": p[name].grad for name in given}
    for suffix in net.every_cell:
        for ours, theirs in {**torch_weights.LAYER_NAMES, "bhh": "bias_hh"}.items():
            if ours == "Whr":
                continue
            grad = getattr(layer, f"{theirs}{suffix}").grad
            if mistake == "gates":
                grad = torch.cat([grad.chunk(4)[n] for n in (0, 3, 1, 2)])
            results[f"d{ours}{suffix}"] = grad
    return {name: value.detach().numpy() for name, value in results.items()}


@pytest.mark.needs("torch")
@pytest.mark.parametrize(
    "mistake, name",
    [
        ("none", ""),
        ("initial states", "the initial states of the two directions are swapped"),
        (
            "last step",
            "the read-out takes the second direction at the last time step, of which it has "
            "seen one input",
        ),
        ("padding", "the lengths are ignored"),
        ("gates", "the gates are read in the order i, o, f, g (as ONNX stacks them)"),
    ],
)
def test_mistakes_with_torch_are_named(mistake, name):
    net, params, batch = case()
    verdict = compare(wrong_torch(mistake, net, params, batch), certify(net, params, batch))
    assert verdict.convention == name, verdict.worst
    assert verdict.passed == (mistake == "none")


PAIRS = [
    ("every", ("the outputs of the two directions are swapped: [second, first]", "bh is left out")),
    (
        "every",
        (
            "the gradient of the second direction's outputs is not turned into its time",
            "no gradient flows from layer 1 to the one below",
        ),
    ),
    ("lstm", ("h0 and c0 are swapped", "the two directions' parameters of layer 0 are swapped")),
    ("gru, none", ("gates are read in the order z, r, n", "the initial states are ignored")),
]


@pytest.mark.parametrize("name, pair", PAIRS)
def test_two_mistakes_at_once_are_named(name, pair):
    net, params, batch = case(**CASES[name])
    first, second = (
        next(each for each in mistakes(net, params, batch) if text in each.name) for text in pair
    )
    theirs = first.run(net, params, batch, *second.passes)
    theirs = {key: np.asarray(value, np.float32) for key, value in theirs.items()}
    certified = certify(net, params, batch)
    verdict = compare(theirs, certified, readings=Readings(certified))
    assert set(verdict.convention.split("; ")) == {first.name, second.name}
    assert not compare(theirs, certified, readings=Readings(certified, pairs=False)).convention
