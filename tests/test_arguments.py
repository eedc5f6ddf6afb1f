"""What enters is checked once, by name, kind and shape, and refused in one clear line."""

from dataclasses import replace

import numpy as np
import pytest

from refnet.batch import Batch
from refnet.maths.activations import ACTIVATIONS
from refnet.matrices.transitions import TRANSITIONS
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.gradients import (hvp, jvp, loss_and_gradients, per_example_gradients,
                                   state_jacobians)
from refnet.nets.recurrent import RecurrentNet

REFUSED = (ValueError, TypeError)
T, B, D, H, C = 5, 6, 3, 4, 2


def rng():
    return np.random.default_rng(0)


def problem(net, dtype=np.float64):
    """Parameters and a batch for a net."""
    params = net.init(rng(), dtype)
    recurrent = isinstance(net, RecurrentNet)
    x = rng().normal(size=(T, B, D) if recurrent else (B, D)).astype(dtype)
    lead = (T, B) if recurrent and net.readout == "every" else (B,)
    y = (rng().integers(0, C, lead) if net.loss == "cross_entropy"
         else rng().normal(size=(*lead, C)).astype(dtype))
    return params, Batch(x, y)


def label(net):
    parts = [str(getattr(net, "widths", getattr(net, "cell", ""))), net.activation.name,
             type(net.transition).__name__, net.loss, getattr(net, "backend", "")]
    return "-".join(parts)


NETS = ([RecurrentNet(D, H, C, cell=cell) for cell in ("rnn", "lstm", "gru", "gru_before")]
        + [RecurrentNet(D, H, C, activation=name) for name in ACTIVATIONS]
        + [FeedforwardNet((D, H, H, C), activation=name) for name in ACTIVATIONS]
        + [RecurrentNet(D, H, C, transition=name) for name in TRANSITIONS]
        + [FeedforwardNet((D, H, H, C), transition=name) for name in TRANSITIONS]
        + [RecurrentNet(D, H, C, cell="lstm", transition="cayley", learn_h0=True)])


@pytest.mark.parametrize("net", NETS, ids=label)
def test_declared_shapes_are_those_of_the_start(net):
    """For the cells, their optional parameters, the activations and the transitions."""
    options = {"peepholes": True} if getattr(net, "cell", "") == "lstm" else {}
    start = net.init(rng(), np.float64, weights="orthogonal", **options)
    assert {name: value.shape for name, value in start.items()} == {
        name: net.shapes[name][0] for name in start}
    assert net.required <= start.keys() <= net.shapes.keys()


@pytest.mark.parametrize("kind", ["orthogonal", "product", "svd", "expm", "cayley", "householder"])
@pytest.mark.parametrize("shape", [(2, 5), (5, 2), (1, 3)])
def test_declared_shapes_of_rectangular_matrices(kind, shape):
    made = RecurrentNet(1, 2, 1, transition=kind).transition
    start = made.init(np.eye(*shape))
    assert {name: value.shape for name, value in start.items()} == made.shapes(*shape)


def steps(net, params, batch):
    """Every function of a net's parameters and a batch."""
    moved = {"x": np.ones_like(batch.x)}
    yield lambda: loss_and_gradients(net, params, batch)
    yield lambda: net.forward(params, batch.x, batch.mask)
    yield lambda: jvp(net, params, batch, moved)
    yield lambda: hvp(net, params, batch, moved)
    yield lambda: per_example_gradients(net, params, batch)
    if isinstance(net, RecurrentNet) and batch.mask is None and net.cell != "lstm":
        yield lambda: state_jacobians(net, params, batch.x)


def refused(call, name, error=REFUSED):
    with pytest.raises(error, match=name) as found:
        call()
    assert "\n" not in str(found.value)
    return str(found.value)


def wrong_arrays(value):
    """What may stand for an array and must not pass, with the exception that it deserves."""
    yield np.concatenate([value[None], value[None]]), ValueError
    yield value[None], ValueError
    yield value[..., None], ValueError
    if value.ndim:
        yield np.concatenate([value, value]), ValueError
        yield value[:0], ValueError
        yield value[..., :1] if value.shape[-1] > 1 else value[..., [0, 0]], ValueError
    if value.ndim == 2 and value.shape[0] != value.shape[1]:
        yield value.T, ValueError
    yield value.tolist(), TypeError
    yield value.astype(str), TypeError
    yield value > 0, TypeError
    yield np.ma.MaskedArray(value, value > 0), TypeError
    yield None, TypeError
    yield "text", TypeError


@pytest.mark.parametrize("net", [
    net for net in NETS if net.activation.name in ("tanh", "prelu", "modrelu")], ids=label)
def test_wrong_parameters_are_named(net):
    params, batch = problem(net)
    for name, value in params.items():
        for wrong, error in wrong_arrays(value):
            if getattr(wrong, "shape", None) in net.shapes[name] and error is ValueError:
                continue  # a slope a unit is as good as one for all
            refused(lambda: loss_and_gradients(net, {**params, name: wrong}, batch),
                    f": {name} ", error)
        rest = {key: other for key, other in params.items() if key != name}
        for call in steps(net, rest, batch):
            refused(call, f"missing {name}", ValueError)
    for call in steps(net, {**params, "Wyh": np.zeros(2)}, batch):
        refused(call, "Wyh is unknown", ValueError)


@pytest.mark.parametrize("net", [
    RecurrentNet(D, H, C), RecurrentNet(D, H, C, cell="lstm", readout="every"),
    RecurrentNet(D, H, C, loss="squared_error", checkpoint="sqrt"),
    RecurrentNet(D, H, C, backend="compiled"), FeedforwardNet((D, H, C)),
    FeedforwardNet((D, C), loss="squared_error")], ids=label)
def test_wrong_batches_are_named(net):
    params, batch = problem(net)
    for name in ("x", "y"):
        for wrong, error in wrong_arrays(getattr(batch, name)):
            if getattr(wrong, "shape", ())[:2] == (2 * T, B) and name == "x":
                continue  # T is free
            wrong_batch = batch._replace(**{name: wrong})
            if name == "x" and getattr(wrong, "shape", ())[1:] == batch.x.shape[1:]:
                continue  # so is B
            for call in list(steps(net, params, batch))[:1]:
                refused(lambda: loss_and_gradients(net, params, wrong_batch), f": {name} ", error)
    if net.loss == "squared_error":
        refused(lambda: loss_and_gradients(net, params, batch._replace(y=batch.y + 1j)),
                "y.real", TypeError)
    if isinstance(net, RecurrentNet):
        good = np.ones((T, B), bool)
        for wrong in (good[1:], good.T, good[..., None], np.full((T, B), .5),
                      np.full((T, B), np.nan), good * 2, good.tolist(), "text",
                      np.ma.MaskedArray(good), good.astype(str)):
            for call in steps(net, params, batch._replace(mask=wrong)):
                refused(call, "mask")
        first = loss_and_gradients(net, params, batch._replace(mask=good))
        for same in (good.astype(float), good.astype(np.uint8)):
            again = loss_and_gradients(net, params, batch._replace(mask=same))
            assert again.loss == first.loss
    else:
        refused(lambda: loss_and_gradients(net, params, batch._replace(mask=np.ones((B, 1)))),
                "mask is for sequences", ValueError)
    outputs, tape = net.forward(params, batch.x)
    for wrong, error in wrong_arrays(outputs):
        refused(lambda: net.backward(params, tape, wrong), "doutputs", error)
    for extra in ({"by": np.zeros((1, C))}, {"Wyh": np.zeros(2)}):
        extra = {"b1" if "by" in extra and "by" not in params else name: value
                 for name, value in extra.items()}
        refused(lambda: net.backward(params, tape, outputs, extra=extra), "extra")


def test_directions_are_checked():
    net = RecurrentNet(D, H, C, activation="prelu")
    params, batch = problem(net)
    for function in (jvp, hvp):
        for direction in ({"Wrong": np.ones(2)}, {"by": np.ones((1, C))}, {"by": np.ones(1)},
                          {"Whh": np.ones(H)}, {"x": np.ones((T, B, 1))}, {"by": [1.0, 2.0]},
                          {"slope": np.ones(H)}, {"y": np.ones(B)}):
            refused(lambda: function(net, params, batch, direction), next(iter(direction)))
        refused(lambda: function(net, params, batch, [1]), "direction", TypeError)
        refused(lambda: function(net, params, tuple(batch), {}), "batch", TypeError)
        refused(lambda: function("net", params, batch, {}), "net", TypeError)


@pytest.mark.parametrize("change, message", [
    ({"x": (3, 2)}, r"need \(T, B, D\) with D = 3.*pass x\[:, None, :\]"),
    ({"Wxh": (13, 2)}, r"Wxh has shape \(13, 2\); need \(16, 3\).*gates of lstm are i, f, g, o"),
    ({"Whh": (4, 16)}, r"Whh has shape \(4, 16\); need \(16, 4\).*: pass Whh.T"),
    ({"Wpo": (2,)}, r"Wpo has shape \(2,\); need \(4,\)"),
    ({"bh": (16, 1)}, r"pass bh.reshape\(16,\)"),
    ({"h0": (2, 3)}, r"h0 has shape \(2, 3\); need \(2, 4\) or \(2, B, 4\) with B = 6"),
    ({"wxh": (2, 3)}, r"wxh is unknown \(did you mean Wxh\?\)"),
])
def test_the_likely_repair_is_said(change, message):
    net = RecurrentNet(D, H, C, cell="lstm")
    params, batch = problem(net)
    arrays = {**params, "x": batch.x} | {key: np.zeros(shape) for key, shape in change.items()}
    x = arrays.pop("x")
    refused(lambda: net.forward(arrays, x), message, ValueError)


def test_names_and_lists_are_taken_for_what_they_name():
    by_name = RecurrentNet(D, H, C, activation="relu", transition="orthogonal")
    assert by_name.activation is ACTIVATIONS["relu"]
    assert type(by_name.transition).__name__ == "Orthogonal"
    assert replace(by_name, activation="tanh", transition=None) == RecurrentNet(D, H, C)
    assert RecurrentNet(D, H, C, transition="dense").transition is None
    assert FeedforwardNet([D, C]).widths == (D, C)
    assert (RecurrentNet(D, H, C).init(rng(), recurrent="orthogonal")["Whh"].shape == (H, H))
    hash(FeedforwardNet([D, C])), hash(by_name)
