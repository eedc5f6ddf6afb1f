"""Cotangents of the states after the last step, beside the loss: ``Batch.final``."""

from dataclasses import replace
from fractions import Fraction as F

import numpy as np
import pytest

from refnet import FeedforwardNet, RecurrentNet
from refnet.batch import Batch
from refnet.exact import certify, enclose, transport
from refnet.nets import gradients
from refnet.nets.gradients import jvp, loss_and_gradients, per_example_gradients, tangent
from support.oracles import dot, planted
from support.rational import generic_case
from support.stacked import rational_net

NETS = {
    "stack": {},
    "lstm": {"cell": "lstm", "layers": 1, "both": False, "H": 1},
    "gru": {"cell": "gru", "layers": 1, "both": False, "readout": "every", "H": 1},
    "projection": {"cell": "cifg", "projection": 1, "layers": 1, "both": False, "readout": "none"},
}


def case_with_final(name, seed=3):
    """A case of rationals; the cotangents of every cell's states are small numbers."""
    net = rational_net(**NETS[name])
    case = generic_case(net, seed, T=2, B=2)
    states = net.forward(case.params, case.batch.x)[1].final
    final = {
        key: (np.arange(value.size).reshape(value.shape) % 5 - 2).astype(object) + F(1, 2)
        for key, value in states.items()
    }
    return case._replace(batch=case.batch._replace(final=final))


def differences(case):
    """What the final states add to the loss and its gradient, less their tangent and value."""
    net, params, batch, direction, _ = case
    alone = batch._replace(final=None)
    both, without = (loss_and_gradients(net, params, each) for each in (batch, alone))
    added = dot(both.gradients, direction) - dot(without.gradients, direction)

    def ends(at):
        return net.forward({**params, **{k: at[k] for k in at if k != "x"}}, at["x"])[1].final

    at = {key: params[key] if key != "x" else batch.x for key in direction}
    pushed = dot(tangent(ends, at, direction), batch.final)
    return both.loss - without.loss - dot(ends(at), batch.final), added - pushed


@pytest.mark.parametrize("name", NETS)
def test_push_equals_pull(name):
    assert differences(case_with_final(name)) == (0, 0)


@pytest.mark.parametrize(
    "name, old, new",
    [
        ("lstm", "(states[name] * value).sum()", "states[name].sum()"),
        ("lstm", 'return loss, {"final": final}', "return loss, {}"),
        ("lstm", '{"final": final}', '{"final": {n: v[::-1] for n, v in final.items()}}'),
        ("stack", '{"final": final}', '{"final": {n: v[::-1] for n, v in final.items()}}'),
        ("stack", '{"final": final}', '{"final": dict(list(final.items())[1:])}'),
    ],
)
def test_a_planted_bug_is_rejected(name, old, new, monkeypatch):
    monkeypatch.setattr(gradients, "with_final", planted(gradients.with_final, old, new))
    assert differences(case_with_final(name)) != (0, 0)


def test_shares_of_the_examples_add_up():
    net, params, batch, *_ = case_with_final("stack")
    whole = loss_and_gradients(net, params, batch)
    shares = per_example_gradients(net, params, batch)
    assert sum(share.loss for share in shares) == whole.loss
    for name in ("Whh_l0", "Wxh_l1_reverse", "Why"):
        assert (sum(share.gradients[name] for share in shares) == whole.gradients[name]).all()


@pytest.mark.needs("flint")
@pytest.mark.parametrize("T", [4, 203])
def test_certificates_hold_them_in_halves_and_over_many_steps(T, monkeypatch):
    """Beyond 200 steps errors are followed; balls alone, in one piece, give the same values."""
    rng = np.random.default_rng(0)
    net = RecurrentNet(1, 2, 2, cell="lstm")
    params = net.init(rng, np.float64)
    batch = Batch(rng.normal(size=(T, 2, 1)), np.array([0, 1]))
    batch = batch._replace(final={"h0": rng.normal(size=(2, 2, 2))})
    plain = certify(replace(net, clip_step=1e9), params, batch)
    monkeypatch.setattr(enclose, "WORK", 1)
    assert transport.followed(net) is not net
    halved = certify(net, params, batch).named()
    for name, enclosure in plain.named().items():
        assert (enclosure.value == halved[name].value).all(), name
    floats = loss_and_gradients(net, params, batch)
    assert abs(floats.loss - plain.loss.value) < 1e-12
    along = {"bh": np.ones(8)}
    for pushed in (plain.jvp(along)["loss"].value, jvp(net, params, batch, along)[1]):
        assert abs(pushed - dot(floats.gradients, along)) < 1e-12


BATCH = Batch(np.ones((3, 2, 1)), np.array([0, 1]))


@pytest.mark.parametrize(
    "net, batch, says",
    [
        (
            RecurrentNet(1, 2, 2, cell="lstm"),
            BATCH._replace(final={"h0": np.ones((2, 2))}),
            r"batch: final: h0 has shape \(2, 2\); need \(2, 2, 2\)",
        ),
        (
            RecurrentNet(1, 2, 2),
            BATCH._replace(
                final={"h0": np.ones((2, 2))}, mask=np.arange(3)[:, None] < np.array([3, 1])
            ),
            "sequences of different lengths",
        ),
        (RecurrentNet(1, 2, 2), BATCH._replace(final={"h": np.ones((2, 2))}), "h0"),
        (
            FeedforwardNet((1, 2)),
            Batch(np.ones((2, 1)), np.array([0, 1]), final={"h0": np.ones((2, 2))}),
            "has no steps",
        ),
    ],
)
def test_refusals(net, batch, says):
    params = net.init(np.random.default_rng(0), np.float64)
    with pytest.raises((ValueError, TypeError), match=says):
        loss_and_gradients(net, params, batch)
