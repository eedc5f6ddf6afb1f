"""Certified values against an independent evaluation in mpmath at 100 digits.

No entry may lie outside its ball, and none may be rounded to another float64 than the true one.
"""

from dataclasses import replace

import mpmath
import numpy as np
import pytest
from numpy.random import default_rng

from refnet.batch import Batch
from refnet.exact import balls, certify, lift
from refnet.maths import linalg, numeric
from refnet.maths.activations import ACTIVATIONS
from refnet.maths.dual import dual_array, parts
from refnet.maths.linalg import expm, expm_pull
from refnet.matrices.transitions import transition
from refnet.nets.recurrent import RecurrentNet
from support.balls import exactly
from support.enclosures import CASES, draw, faults, flint, miss
from support.highprecision import DIGITS, evaluate

pytestmark = pytest.mark.needs("flint", "mpmath")


def checked_case(label, seed=0):
    net, options = CASES[label]
    return faults(net, *draw(net, seed, **options))


@pytest.mark.parametrize("label", CASES)
def test_balls_contain_mpmath(label):
    checked, outside, misrounded = checked_case(label)
    assert checked > 50 and not outside and not misrounded


def polynomial_on_balls(patch):
    """float64's Taylor polynomial, without its remainder, as the exponential of balls."""
    patch.setitem(linalg.EXPM, flint.arb, None)


def radius_forgotten(patch):
    """Products of balls as their midpoints."""
    right = numeric.MATMUL[flint.arb]
    middle = np.frompyfunc(lambda ball: flint.arb(ball).mid(), 1, 1)
    patch.setitem(numeric.MATMUL, flint.arb, lambda a, b: middle(right(a, b)))


def root_in_float64(patch):
    """One elementary function by way of float64."""
    entry = ACTIVATIONS["tanh"]
    through = np.frompyfunc(lambda a: flint.arb(float(np.tanh(float(a)))), 1, 1)
    patch.setitem(ACTIVATIONS, "tanh", replace(entry, value=lambda a, p, alpha: through(a)))


def wrong_in_the_last_of_fifty_digits(patch):
    """A gradient multiplied by 1 + 1e-50."""
    right = RecurrentNet.backward

    def wrong(self, params, tape, doutputs, inputs=True, extra=None):
        grads = right(self, params, tape, doutputs, inputs, extra)
        return {**grads, "bh": grads["bh"] + grads["bh"] * flint.arb(10) ** -50}

    patch.setattr(RecurrentNet, "backward", wrong)


@pytest.mark.parametrize(
    "plant, label",
    [
        (polynomial_on_balls, "expm-rnn"),
        (radius_forgotten, "expm-rnn"),
        (root_in_float64, "rnn"),
        (wrong_in_the_last_of_fifty_digits, "rnn"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_planted_bug_is_rejected(plant, label, monkeypatch):
    net, options = CASES[label]
    plant(monkeypatch)
    net = replace(net, activation=ACTIVATIONS[net.activation.name])
    _, outside, _ = faults(net, *draw(net, **options), bits=200)
    assert outside


def test_mpmath_reference_against_differences():
    """Its derivatives against central differences of its values: a step of 1e-30 leaves an
    error of 1e-60 times a third derivative, and cancellation 1e-70."""
    for label in ("gru", "lstm-every", "modrelu-rnn", "expm-rnn", "schur-gru", "elu-layers"):
        net, options = CASES[label]
        params, batch = draw(net, **options)
        true = evaluate(net, params, batch)
        name = max(params, key=lambda key: params[key].size * ("." not in key or key[-1] in "AP"))
        index = (1,) + (0,) * (params[name].ndim - 1)

        def shifted(step):
            entry = np.array(params[name], object)
            entry[index] = mpmath.mpf(float(entry[index])) + step
            return evaluate(net, {**params, name: entry}, batch)["loss"].item()

        with mpmath.workdps(DIGITS):
            h = mpmath.mpf(10) ** -30
            assert abs((shifted(h) - shifted(-h)) / (2 * h) - true[f"d{name}"][index]) < 1e-50


def rotation(angle):
    """The 2 x 2 skew matrix of that angle, lifted, with NumPy's ints where it has zeros."""
    lower = np.tril(lift(np.array([[0, 0], [angle, 0]]), "ball"), -1)
    return lower - lower.T


ANGLES = default_rng(0).uniform(-10, 10, 2000)


def outside_rotations(exponential=expm):
    """How many of the four entries of each angle's rotation are not in their balls."""
    wrong = 0
    with mpmath.workdps(DIGITS), balls.precision(200):
        for angle in map(float, ANGLES):
            c, s = mpmath.cos(angle), mpmath.sin(angle)
            enclosed = exponential(rotation(angle)).value
            wrong += sum(miss(ball, true) != 0 for ball, true in zip(enclosed.flat, (c, -s, s, c)))
    return wrong


def test_rotations(monkeypatch):
    """e^X of thousands of rotations against cos and sin; the old polynomial fails nearly all."""
    assert outside_rotations() == 0
    polynomial_on_balls(monkeypatch)
    assert outside_rotations() > 3 * len(ANGLES)


def test_a_net_that_rotates():
    """Outputs and gradients of a certified rotation, in closed form."""
    net = RecurrentNet(
        1,
        2,
        1,
        activation=ACTIVATIONS["identity"],
        loss="squared_error",
        transition=transition("expm"),
    )
    with mpmath.workdps(DIGITS):
        for angle in map(float, ANGLES[:100]):
            params = {
                "Whh.A": np.array([[0, 0], [angle, 0]]),
                "Whh.base": np.eye(2),
                "Wxh": np.zeros((2, 1)),
                "bh": np.zeros(2),
                "by": np.zeros(1),
                "Why": np.array([[1.0, 0.0]]),
                "h0": np.array([1.0, 0.0]),
            }
            enclosed = certify(net, params, Batch(np.zeros((1, 1, 1)), np.zeros((1, 1))))
            c, s = mpmath.cos(angle), mpmath.sin(angle)  # the loss is cos^2
            for enclosure, true in ((enclosed.outputs, c), (enclosed.loss, c * c)):
                assert not miss(enclosure.exact.item(), true)
                assert enclosure.value.item() == float(exactly(true))
            slope = enclosed.gradients["Whh.A"]
            assert not miss(slope.exact[1, 0], -2 * c * s)
            assert slope.value[1, 0] == float(exactly(-2 * c * s))


def test_dual_balls_have_the_derivative_of_the_exponential():
    """Push and pull of e^X on balls, and on dual balls of dual balls, overlap at 60 digits."""
    rng = default_rng(1)
    with balls.precision(300):
        X, D, E, w = (lift(rng.normal(size=(3, 3)), "ball") for _ in range(4))
        value, push = parts(expm(dual_array(X, D)).value)
        assert all(a.overlaps(b) for a, b in zip(value.flat, expm(X).value.flat))
        pull = expm_pull(expm(X), w)
        assert (push * w).sum().overlaps((pull * D).sum())
        assert float((push * w).sum().rad()) < 1e-60
        twice = dual_array(dual_array(X, D), dual_array(E, D * 0))
        second = parts(parts(expm(twice).value)[1])[1]
        h = flint.arb((1, -90))  # central differences of the first derivative: h^2 = 1e-54
        ahead, behind = (parts(expm(dual_array(X + E * step, D)).value)[1] for step in (h, -h))
        off = (ahead - behind) / (2 * h) - second
        assert all(abs(float(entry)) < 1e-50 for entry in off.flat)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 11))
def test_balls_contain_mpmath_for_more_draws(seed):
    for label in CASES:
        _, outside, misrounded = checked_case(label, seed)
        assert not outside and not misrounded, label
