"""Penalties of states and of gradients: their gradients in balls, and against PyTorch."""

from dataclasses import replace

import numpy as np
import pytest

from refnet.batch import Batch
from refnet.nets.gradients import loss_and_gradients, tangent
from refnet.nets.noise import Noise
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.regularizers import norm_stabilizer, vanishing_gradients
from refnet.nets.stacked import StackedNet
from support.arguments import refused
from support.oracles import dot, planted

MASK = np.arange(4)[:, None] < np.array([2, 4, 0])
NETS = {
    "rnn": ({}, None),
    "masked": ({"readout": "every"}, MASK),
    "last of a masked one": ({"learn_h0": True}, MASK),
    "lstm": ({"cell": "lstm", "learn_h0": True, "gain": 1.25}, None),
    "gru with unitary matrices": ({"cell": "gru", "transition": "unitary"}, MASK),
    "embedding": ({"embedding": 3, "transition": "cayley"}, None),
    "zoneout": ({"cell": "lstm", "zoneout": 0.25}, None),
}


def case(name, dtype=np.float64, h0=True):
    options, mask = NETS[name]
    rng = np.random.default_rng(1)
    net = RecurrentNet(2, 4, 3, backend="reference", **options)
    params = net.init(rng, dtype)
    if h0:
        params["h0"] = np.zeros((2, 3, 4) if net.cell == "lstm" else (3, 4))
        if net.learn_h0:
            params["h0"] = params["h0"][..., 0, :]
    params = {key: (v + rng.normal(size=v.shape) / 4).astype(dtype) for key, v in params.items()}
    y = rng.integers(0, 3, (4, 3) if net.readout == "every" else 3)
    return net, params, Batch(rng.normal(size=(4, 3, 2)).astype(dtype), y, mask)


def stabilizer_gap(name, function=norm_stabilizer):
    """Push minus pull, by the complex step, in units of eps times what is added up."""
    net, params, batch = case(name)
    grads = function(net, params, batch)[1]
    constant = getattr(net.transition, "constant", ())
    v = {
        key: np.random.default_rng(2).normal(size=g.shape) * (key.split(".")[-1] not in constant)
        for key, g in grads.items()
    }
    push = tangent(lambda p: {"value": norm_stabilizer(net, p, batch)[0]}, params, v)["value"]
    size = sum((abs(grads[key]) * abs(v[key])).sum() for key in v)
    return abs(float(push - dot(grads, v))) / (np.finfo(float).eps * (1 + size))


@pytest.mark.parametrize("name", NETS)
def test_norm_stabilizer(name):
    """The gradient within 1000 eps; the value by its definition."""
    assert stabilizer_gap(name) <= 1000
    net, params, batch = case(name)
    every = replace(net, readout="every")
    tape = every.forward(params, batch.x)[1]
    norms = np.linalg.norm(tape.cell.h, axis=2)
    steps = np.diff(norms, axis=0)[np.ones((4, 3), bool) if batch.mask is None else batch.mask]
    assert norm_stabilizer(net, params, batch)[0] == pytest.approx((steps**2).mean(), rel=1e-13)


@pytest.mark.parametrize(
    "old, new",
    [
        ("d[1:-1] - slope[1:]", "d[1:-1]"),
        ("-slope[:1]", "slope[:1]"),
        ("2 * change", "change"),
        ("+= d[0] if", "+= 0 * d[0] if"),
    ],
)
def test_a_wrong_gradient_of_it_is_noticed(old, new):
    wrong = planted(norm_stabilizer, old, new)
    assert max(stabilizer_gap(name, wrong) for name in ("rnn", "masked")) > 1000


@pytest.mark.needs("flint")
def test_norm_stabilizer_in_balls():
    """The tangent of balls holds what the gradient in balls says, to 60 digits, a state of zeros
    at the start among them."""
    from refnet.exact import balls
    from refnet.exact.convert import lift_all

    net, params, batch = case("rnn", h0=False)

    def run(p):
        p, x = {name: value for name, value in p.items() if name != "x"}, p["x"]
        value, grads = norm_stabilizer(net, p, batch._replace(x=x))
        return {"value": value, **grads}

    with balls.precision(400):
        at = lift_all({**params, "x": batch.x}, "ball")
        grads = run(at)
        del grads["value"]
        v = {key: np.cos(np.arange(g.size)).reshape(g.shape) for key, g in grads.items()}
        v = lift_all(v, "ball")
        off = tangent(run, at, v)["value"].item() - dot(grads, v)
        assert off.contains(0) and float(off.rad()) < 1e-60


def test_noise_is_that_of_the_batch():
    """Noise on the state changes the states; dropout of what is read out does not."""
    net, params, batch = case("rnn", h0=False)
    rng = np.random.default_rng(3)
    noisy = Noise(outputs={0: np.zeros((3, 4))}, added={"": rng.normal(size=(4, 3, 4))})
    plain, noise, dropped = (
        float(norm_stabilizer(replace(net, noise=each), params, batch)[0])
        for each in (None, noisy, Noise(outputs=noisy.outputs))
    )
    assert plain == dropped != noise


def torch_vanishing(net, params, batch, f):
    """Pascanu et al.'s formula by PyTorch's derivatives, sequence by sequence."""
    import torch

    p = {name: torch.tensor(value) for name, value in params.items()}
    W = p["Whh"].clone().requires_grad_()
    T, B, _ = batch.x.shape
    total = 0
    for b in range(B):
        h, pre = torch.zeros(net.hidden, dtype=W.dtype), []
        steps = T if batch.mask is None else int(batch.mask[:, b].sum())
        for t in range(steps):
            x = torch.tensor(batch.x[t, b])
            pre.append(net.gain * (p["Wxh"] @ x + p["Whh"] @ h + p["bh"]))
            pre[-1].requires_grad_()
            h = f(pre[-1])
        outputs = p["Why"] @ h + p["by"]
        loss = torch.nn.functional.cross_entropy(outputs[None], torch.tensor(batch.y[b : b + 1]))
        g = torch.autograd.grad(loss / B, pre) if pre else []
        for t in range(steps - 1):
            slope = torch.autograd.grad(f(pre[t]).sum(), pre[t])[0]
            back = (g[t + 1] @ (net.gain * W)) * slope
            total = total + (back.norm() / g[t + 1].norm() - 1) ** 2 / B
    total.backward()
    return total.item(), W.grad.numpy()


@pytest.mark.needs("torch")
@pytest.mark.parametrize("activation", ["tanh", "softsign", "leaky_relu"])
def test_vanishing_gradients(activation, function=vanishing_gradients):
    """Value and immediate gradient, within 1e-12 of the largest entry: some hundred roundings."""
    import torch

    f = {"tanh": torch.tanh, "softsign": torch.nn.functional.softsign}.get(
        activation, torch.nn.functional.leaky_relu
    )
    for mask in (None, np.arange(4)[:, None] < np.array([2, 4, 1])):
        net, params, batch = case("rnn", h0=False)
        net, batch = replace(net, activation=activation, gain=1.25), batch._replace(mask=mask)
        value, grads = function(net, params, batch)
        wanted, dW = torch_vanishing(net, params, batch, f)
        assert value == pytest.approx(wanted, rel=1e-12)
        assert abs(grads["Whh"] - dW).max() <= 1e-12 * abs(dW).max()


@pytest.mark.needs("torch")
@pytest.mark.parametrize(
    "old, new",
    [
        ("carried / length - 1", "carried / length"),
        ("divided(2 * off * unit, B * length)", "divided(2 * off * unit, length)"),
        ("[1:], slice(None))[1:]", "[1:], slice(None))[:-1]"),
        ("net.gain, matmul", "1, matmul"),
    ],
)
def test_a_wrong_penalty_of_vanishing_gradients_is_noticed(old, new):
    with pytest.raises(AssertionError):
        test_vanishing_gradients("tanh", planted(vanishing_gradients, old, new))


def test_a_gradient_whose_square_underflows_counts():
    net = RecurrentNet(1, 2, 1, activation="identity", loss="squared_error")
    params = {**net.init(np.random.default_rng(0)), "Whh": np.eye(2, dtype="f4") / 2}
    params["Why"] *= np.float32(1e-18)
    batch = Batch(np.ones((9, 1, 1), "f4"), np.full((1, 1), 1, "f4"))
    assert vanishing_gradients(net, params, batch)[0] == pytest.approx(8 / 4, rel=1e-5)


@pytest.mark.parametrize("backend", ["reference", "compiled"])
def test_as_penalties_of_the_loss(backend):
    """With a transition, whose parts they reach, on both backends."""
    net, params, batch = case("embedding", np.float32, h0=False)
    net = replace(net, backend=backend)
    plain = loss_and_gradients(net, params, batch)
    for term in (norm_stabilizer, vanishing_gradients):
        more, grads = term(net, params, batch)
        both = loss_and_gradients(net, params, batch, penalty=lambda p: term(net, params, batch))
        assert both.loss == pytest.approx(float(plain.loss + more), rel=1e-6)
        changed = (both.gradients["Whh.A"] != plain.gradients["Whh.A"]).any()
        assert changed and both.gradients["Whh.A"].dtype == np.float32
        assert set(grads) <= {*params, "Whh"}


def test_nets_that_regularizers_do_not_fit_are_refused():
    batch = Batch(np.ones((3, 1, 2)), np.zeros(1, int))
    rng = np.random.default_rng(0)
    for net, message in (
        (StackedNet(2, 4, 3, layers=2), "several layers or directions; need one of each"),
        (RecurrentNet(2, 4, 3, cell="gru"), "need cell rnn"),
        (RecurrentNet(2, 4, 3, zoneout=0.5), "zoneout 0.5"),
    ):
        with refused(message):
            vanishing_gradients(net, net.init(rng, np.float64), batch)
    with refused("norm_stabilizer: the net has several"):
        norm_stabilizer(StackedNet(2, 4, 3), StackedNet(2, 4, 3).init(rng, np.float64), batch)
