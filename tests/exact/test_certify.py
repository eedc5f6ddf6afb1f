"""Certified gradients: balls contain the truth, rationals are the truth."""

import re
from dataclasses import replace
from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from numpy.random import default_rng

from refnet.batch import Batch
from refnet.cells import CELLS
from refnet.check.cases import random_batch, random_params
from refnet.exact import certify, enclose, lift
from refnet.exact.convert import lift_all, rounded
from refnet.maths.activations import ACTIVATIONS
from refnet.matrices.transitions import transition
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.gradients import loss_and_gradients
from refnet.nets.recurrent import RecurrentNet
from support.arguments import refused
from support.balls import contains, same_values
from support.strategies import feedforward_cases, rnn_cases

pytestmark = pytest.mark.needs("flint")

FEW = settings(max_examples=25)


def random_case(net, seed=0, T=6, B=3, dtype=np.float64):
    rng = default_rng(seed)
    return random_params(net, rng, dtype), random_batch(net, rng, dtype, T, B)


@FEW
@given(st.one_of(rnn_cases(), feedforward_cases()))
def test_balls_contain_rationals(case):
    net, params, batch = case[:3]
    exact = certify(net, params, batch, kind="rational")
    try:
        enclosed = certify(net, params, batch, kind="ball", radius=1e-30, max_bits=600)
    except ArithmeticError as error:  # thirds that cancel at a kink stay undecided
        assert "kink" in str(error)
        return
    for name, truth in exact.named().items():
        ball = enclosed.named()[name]
        assert ball.exact.shape == truth.exact.shape
        assert all(
            contains(x, y) for x, y in zip(ball.exact.flat, lift(truth.exact, "fraction").flat)
        ), name
        assert (ball.radius <= 1e-30).all() and (truth.radius == 0).all()


@FEW
@given(rnn_cases())
def test_rationals_agree_with_fractions(case):
    """fmpq through fmpq_mat against Python's Fraction through NumPy: two implementations."""
    net, params, batch = case[:3]
    fractions = loss_and_gradients(net, params, batch)
    exact = certify(net, params, batch)
    assert exact.kind == "rational"
    for name, value in fractions.gradients.items():
        computed = exact.gradients[name]
        assert (lift(computed.exact, "fraction") == value).all(), name
        assert (computed.value == rounded(value)).all()
    assert exact.loss.value == float(fractions.loss)


NETS = {
    **{cell: RecurrentNet(2, 3, 4, cell=cell) for cell in CELLS},
    **{
        name: RecurrentNet(2, 4, 4, activation=act, loss="squared_error", readout="every")
        for name, act in ACTIVATIONS.items()
    },
    "feedforward": FeedforwardNet((3, 4, 4, 2)),
    "gain": RecurrentNet(2, 3, 2, gain=1.05, learn_h0=True),
}


def exact_as_in_balls(net, params, batch):
    """The certificate in rationals, after a check that balls round to the same values."""
    exact, enclosed = (certify(net, params, batch, kind=kind) for kind in ("rational", "ball"))
    assert same_values(exact, enclosed)
    return exact


def test_masks_and_vanishing_entries():
    """Entries near 1e-300 are rounded to the last bit too: precision is relative."""
    net = RecurrentNet(1, 2, 2, activation=ACTIVATIONS["identity"], loss="squared_error")
    params = {
        "Whh": np.diag([2.0**-60, 3.0**-20]),
        "Wxh": np.ones((2, 1)),
        "bh": np.zeros(2),
        "Why": np.ones((2, 2)),
        "by": np.zeros(2),
    }
    mask = np.arange(20)[:, None] < np.array([20, 0])
    batch = Batch(np.full((20, 2, 1), 0.1), np.ones((2, 2)), mask)
    exact = exact_as_in_balls(net, params, batch)
    underflown, tiny = exact.gradients["h0"].value[0]
    assert underflown == 0 and 0 < abs(tiny) < 1e-150
    assert (exact.gradients["h0"].value[1] == -1).all()  # masked: read at h0 itself


def test_targets_that_are_whole_numbers_in_both_halves_of_a_batch(monkeypatch):
    monkeypatch.setattr(enclose, "WORK", 1)
    net = RecurrentNet(1, 3, 2, loss="squared_error")
    rng = default_rng(0)
    params, x = net.init(rng, np.float64), rng.normal(size=(4, 4, 1))
    y = np.arange(8).reshape(4, 2)
    whole, halved = (
        certify(net, params, Batch(x, targets)).loss.value for targets in (y.astype(float), y)
    )
    assert whole == halved


def test_gates_that_are_closed_over_hundreds_of_steps():
    """No precision can be foreseen from the first steps; it is then found."""
    net = RecurrentNet(1, 2, 2, cell="lstm")
    rng = default_rng(0)
    params = net.init(rng, np.float64)
    batch = Batch(np.floor(255 * rng.random((201, 1, 1))), np.array([1]))
    computed = certify(net, params, batch)
    right = loss_and_gradients(net, params, batch)
    assert np.allclose(computed.loss.value, right.loss, rtol=1e-9)


def test_huge_logits():
    net = RecurrentNet(1, 2, 3, activation=ACTIVATIONS["identity"])
    params = {
        "Whh": np.eye(2),
        "Wxh": np.ones((2, 1)),
        "bh": np.zeros(2),
        "Why": np.array([[1e4, 0], [0, -1e4], [9e3, 0]]),
        "by": np.zeros(3),
    }
    proved = certify(net, params, Batch(np.ones((2, 1, 1)), np.array([2])))
    assert proved.loss.value == 2000  # log(1 + e^-2000) is below half an ulp


def test_kink_is_refused_by_name_or_decided():
    net = RecurrentNet(1, 2, 1, activation=ACTIVATIONS["relu"], loss="squared_error")
    params = {
        "Whh": np.array([[1.0, -0.1], [0.0, 1.0]]),
        "Wxh": np.array([[1.0], [0.3]]),
        "bh": np.array([0.0, 0.0]),
        "Why": np.ones((1, 2)),
        "by": np.zeros(1),
    }
    batch = Batch(np.array([[[0.0]], [[1.0]]]), np.ones((1, 1)))
    at_kink = certify(net, params, batch)  # a[0] is exactly 0, and so decided
    assert (at_kink.gradients["x"].value[0] == 0).all()
    # 1/3 is no ball of radius 0, and 1/3 - 1/3 is a ball around the kink at any precision
    thirds = {**lift_all(params, "fraction"), "h0": np.array([Fraction(1, 3)] * 2)}
    thirds["Whh"] = np.array([[Fraction(1), Fraction(-1)], [Fraction(0), Fraction(1)]])
    thirds["Wxh"] = lift(np.zeros((2, 1)), "fraction")
    zero = Batch(lift(batch.x, "fraction"), lift(batch.y, "fraction"))
    with refused(r"entry \(0, 0\).*kink.*max_bits = 600", ArithmeticError):
        certify(net, thirds, zero, kind="ball", max_bits=600)
    assert certify(net, thirds, zero).kind == "rational"


def test_what_is_not_decided_is_said_in_one_short_line():
    """1/3 + (2/3 + 2^-53) lies exactly between two floats and is rounded to the even one. The
    hundreds of digits of a ball that is not narrow enough stay out of the message."""
    net = FeedforwardNet((1, 1), ACTIVATIONS["relu"], loss="squared_error")
    params = {
        "W1": np.array([[Fraction(1, 3)]]),
        "b1": np.array([Fraction(2, 3) + Fraction(1, 2**53)]),
    }
    batch = Batch(lift(np.ones((1, 1)), "fraction"), lift(np.zeros((1, 1)), "fraction"))
    with pytest.raises(ArithmeticError) as error:
        certify(net, params, batch, kind="ball", radius=5e-324, max_bits=1024)
    said = str(error.value)
    assert len(said) < 250 and "\n" not in said, len(said)
    assert re.search(r"loss\[\] = 1\.0000.*at 1024 bits.*kind='rational'", said), said
    for kind in ("ball", "rational"):
        assert certify(net, params, batch, kind=kind).outputs.value.item() == 1


def test_caps_and_progress(monkeypatch):
    net = RecurrentNet(2, 8, 2)
    params, batch = random_case(net, T=40)
    with refused(r"loss\[\] = nan.*not narrow enough.*at 30 bits", ArithmeticError):
        certify(net, params, batch, bits=20, max_bits=30)
    with refused("max_seconds = 1e-09", TimeoutError):
        certify(net, params, batch, max_seconds=1e-9)
    monkeypatch.setattr("refnet.exact.parts.EVERY", 0)  # else a fast machine is asked for nothing
    calls = []
    certify(net, params, batch, progress=lambda *call: calls.append(call))
    assert len(calls) >= 40 and calls == sorted(calls)


def test_refuses_what_is_not_rational():
    params, batch = random_case(NETS["tanh"])
    with refused("not rational"):
        certify(NETS["tanh"], params, batch, kind="rational")
    with refused("kind 'float' is unknown"):
        certify(NETS["tanh"], params, batch, kind="float")


def test_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "flint", None)
    with refused(r"refnet\[certify\]", ImportError):
        lift(np.ones(1), "ball")


def test_exact_relu_net_at_papers_size():
    """H = 32, T = 50: thousands of digits, no rounding at all."""
    net = RecurrentNet(2, 32, 1, activation=ACTIVATIONS["relu"], loss="squared_error")
    params, batch = random_case(net, T=50, B=2, dtype=np.float32)
    params["Whh"] /= 4
    exact_as_in_balls(net, params, batch)


@pytest.mark.slow
def test_784_steps():
    net = RecurrentNet(1, 32, 10)
    params, batch = random_case(net, T=784, B=4, dtype=np.float32)
    enclosed = certify(net, params, batch)
    floats = loss_and_gradients(
        net,
        {k: v.astype(float) for k, v in params.items()},
        batch._replace(x=batch.x.astype(float)),
    )
    # float64 BPTT over 784 steps is good to far more than six digits of the largest entry
    for name, value in floats.gradients.items():
        error = abs(value - enclosed.gradients[name].value).max()
        assert error <= 1e-6 * abs(value).max(), name


def test_rational_transitions_are_exact():
    net = RecurrentNet(
        2,
        4,
        1,
        transition=transition("cayley"),
        loss="squared_error",
        activation=ACTIVATIONS["relu"],
    )
    params, batch = random_case(net)
    exact_as_in_balls(net, params, batch)

    def other(chosen):
        other = replace(net, transition=chosen)
        return other, other.init(default_rng(0), np.float64, recurrent="orthogonal")

    for margin in (0, "none"):
        svd, started = other(f"svd:margin={margin}")
        exact = certify(svd, started, batch, kind="rational")
        assert (
            certify(svd, started, batch).gradients["Whh.U"].value == exact.gradients["Whh.U"].value
        ).all()
    for chosen in ("expm", "schur", "svd:margin=1"):
        irrational, started = other(chosen)
        with refused("not rational"):
            certify(irrational, started, batch, kind="rational")


def test_a_count_is_no_gradient():
    """A net that clips says how many entries it clipped; that is not certified."""
    net = RecurrentNet(2, 4, 2, clip_step=0.01)
    params, batch = random_case(net)
    assert loss_and_gradients(net, params, batch).gradients["clipped"] > 0
    assert set(certify(net, params, batch).gradients) == {*params, "h0", "x"}


@pytest.mark.parametrize("classes", [3, 5, 10])
def test_a_value_between_two_floats_is_rounded_to_the_even_one(classes):
    """Without weights a softmax has 1 / classes everywhere, and some sums of such parts lie halfway
    between two floats: the value is that of exact division, at any precision."""
    rng = default_rng(0)
    net = FeedforwardNet((20, classes))
    params = {name: 0 * value for name, value in net.init(rng, np.float64).items()}
    x, y = rng.normal(size=(8, 20)), rng.integers(0, classes, 8)
    off = Fraction(1, classes) - lift(np.eye(classes)[y], "fraction")
    true = rounded(off.T @ lift(x, "fraction") / 8)
    for bits in (None, 1024):
        computed = certify(net, params, Batch(x, y), bits=bits).gradients["W1"].value
        assert computed.tolist() == true.tolist()
