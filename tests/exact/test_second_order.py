"""Certified penalties and divisors, second derivatives and Jacobians: exact where rational, equal
to the floats' own where not; what an ulp moves, and the verdict that says so."""

import mpmath
import numpy as np
import pytest

from refnet import Batch, RecurrentNet, hvp, jvp, loss_and_gradients, state_jacobians
from refnet.check import compare, judge
from refnet.check.noise import spread
from refnet.exact import certify, certify_function, lift
from refnet.matrices.orthogonality import open_penalty
from refnet.matrices.slots import penalty as transition_penalty
from refnet.matrices.transitions import transition
from refnet.training.penalties import weight_decay
from support.arguments import refused

pytestmark = pytest.mark.needs("flint")

RNG = np.random.default_rng(11)


def of_open(form):
    return lambda p: open_penalty({"Whh": p["Whh"]}, 0.125, form)


def decayed(p):
    value, gradients = open_penalty({"Whh": p["Whh"]}, 0.5)
    more, further = weight_decay({"Whh": p["Whh"], "Why": p["Why"]}, 0.25)
    return value + more, {**further, "Whh": gradients["Whh"] + further["Whh"]}


SVD = transition("svd", prior=0.5, soft=0.25, margin=0.5)
PENALTIES = {
    **{form: (of_open(form), None) for form in ("squared", "unsquared", "mean_square")},
    "decay": (decayed, None),
    "prior and soft": (lambda p: transition_penalty(SVD, p, ("Whh",)), SVD),
}


def case(transition=None, steps=5, **options):
    net = RecurrentNet(2, 3, 2, transition=transition, backend="reference", **options)
    y = np.array([0, 1]) if net.loss == "cross_entropy" else RNG.integers(-4, 4, (2, 2)) / 4
    return net, net.init(RNG, np.float64), Batch(RNG.normal(size=(steps, 2, 2)), y)


def direction_of(params, batch):
    along = {name: RNG.normal(size=value.shape) for name, value in params.items()}
    return {**along, "x": RNG.normal(size=batch.x.shape)}


@pytest.mark.parametrize("name", PENALTIES)
def test_penalties_and_second_derivatives(name):
    """Each agrees with training's own floats, and rounding in them is explained."""
    penalty, matrices = PENALTIES[name]
    net, params, batch = case(matrices)
    certified = certify(net, params, batch, penalty=penalty, divisor=2.5)
    plain = loss_and_gradients(net, params, batch, penalty=penalty, divisor=2.5)
    assert certified.loss.value == pytest.approx(plain.loss, rel=1e-13)
    verdict = compare({"loss": plain.loss, **plain.gradients}, certified)
    assert verdict.passed, verdict
    if matrices is None:
        wrong = loss_and_gradients(net, params, batch, divisor=2.5).gradients
        assert compare(wrong, certified).convention == "the penalty is left out"
    along = direction_of(params, batch)
    outputs, loss = jvp(net, params, batch, along, penalty, 2.5)
    proved = certified.jvp(along)
    assert proved["loss"].value == pytest.approx(loss, rel=1e-11)
    assert proved["outputs"].value == pytest.approx(outputs, rel=1e-11)
    floats = hvp(net, params, batch, along, penalty, 2.5)
    for key, enclosure in certified.hvp(along).items():
        assert enclosure.value == pytest.approx(floats[key], rel=1e-9, abs=1e-11), key


def test_on_rationals_by_equality():
    """The tangent of the loss is <gradient, d>, and the Hessian is symmetric, with ``==``."""
    net, params, batch = case(steps=2, activation="softsign", loss="squared_error")
    certified = certify(net, params, batch, kind="rational", penalty=decayed, divisor=3)
    d, e = direction_of(params, batch), direction_of(params, batch)
    exact = {n: lift(g.exact, "fraction") for n, g in certified.gradients.items()}

    def inner(a, b):
        return sum((a[name] * lift(b[name], "fraction")).sum() for name in b)

    assert lift(certified.jvp(d)["loss"].exact, "fraction") == inner(exact, d)
    hessians = [
        {n: lift(g.exact, "fraction") for n, g in certified.hvp(along).items()} for along in (d, e)
    ]
    assert inner(hessians[0], e) == inner(hessians[1], d)
    assert certified.bits == 0


def test_halves_add_the_penalty_once(monkeypatch):
    net, params, batch = case()
    whole = certify(net, params, batch, penalty=decayed, divisor=2)
    monkeypatch.setattr("refnet.exact.enclose.WORK", 0)
    halves = certify(net, params, batch, penalty=decayed, divisor=2)
    assert halves.loss.value == whole.loss.value
    for name, gradient in whole.gradients.items():
        assert np.array_equal(gradient.value, halves.gradients[name].value), name


def test_state_jacobians():
    net, params, batch = case()
    certified = certify(net, params, batch)
    ours = certified.state_jacobians()
    assert ours.value == pytest.approx(state_jacobians(net, params, batch.x), rel=1e-12, abs=1e-15)
    with mpmath.workdps(60):  # one sequence, step by step
        W, h, J = mpmath.matrix(params["Whh"].tolist()), mpmath.zeros(3, 1), mpmath.eye(3)
        for x in batch.x[:, 0]:
            a = W * h + mpmath.matrix((params["Wxh"] @ x).tolist())
            a += mpmath.matrix(params["bh"].tolist())
            h = a.apply(mpmath.tanh)
            J = mpmath.diag([1 - v**2 for v in h]) * W * J
        expected = np.array(J.tolist(), float)
    assert ours.value[0, 0] == pytest.approx(expected, rel=1e-14)
    with refused("its limits are radius, bits", TypeError):
        certified.state_jacobians(digits=3)


def chaotic(gain):
    net = RecurrentNet(2, 20, 2, backend="reference")
    params = net.init(np.random.default_rng(2), np.float64)
    params["Whh"] = gain * np.random.default_rng(3).normal(size=(20, 20)) / 20**0.5
    batch = Batch(np.random.default_rng(4).normal(size=(40, 2, 2)) * 0.3, np.array([0, 1]))
    return net, params, batch


def test_condition_is_what_an_ulp_moves():
    """Beside a certified difference: gradients certified at inputs an ulp away."""
    net, params, batch = chaotic(1.5)
    certified = certify(net, params, batch)
    by = certified.condition(2.0**-23, ("x",))
    signs = RNG.choice([-1.0, 1.0], batch.x.shape)
    nearby = certify(net, params, batch._replace(x=batch.x * (1 + 2.0**-23 * signs)))
    for name, enclosure in certified.named().items():
        change = np.linalg.norm(nearby.named()[name].value - enclosure.value)
        assert change < 4 * np.linalg.norm(by[name]), name
        assert change > np.linalg.norm(by[name]) / 4 or not change.ndim, name
    assert not certified.condition(2.0**-23, ("h0",))["dWhh"].any()
    function = certify_function(lambda x: np.sin(x * 1024).sum(), np.array([1.0, 2.0]))
    slope = 1024**2 * abs(np.sin(1024 * np.array([1.0, 2])))
    assert function.condition()["dx"] == pytest.approx(slope * [1, 2] * 2.0**-52, rel=1e-3)


def test_the_verdict_says_that_a_net_is_chaotic():
    for gain, is_chaotic in ((4.0, True), (0.5, False)):
        net, params, batch = chaotic(gain)
        theirs = loss_and_gradients(net, params, batch).gradients
        wrong = {**theirs, "Why": 2 * theirs["Why"]}
        for results in (theirs, wrong):
            verdict = judge(net, results, params, batch, dtype=np.float32)
            said = "the net is chaotic here: one ulp in x moves d" in repr(verdict)
            assert said == is_chaotic, verdict

    def steep(x):
        return np.sin(x * 2.0**40).sum()

    x = np.array([1 / 3])
    verdict = judge(steep, {"dx": np.cos(x * 2.0**40) * 2.0**40}, x)
    assert "the function is chaotic here: one ulp in the arguments moves dx" not in repr(verdict)
    verdict = judge(lambda x: np.sin(x * 2.0**50).sum(), {"dx": x}, x + 1)
    assert "the function is chaotic here: one ulp in the arguments moves dx" in repr(verdict)


def test_noise_of_a_penalty():
    """Products of the penalty round, too."""
    net, params, batch = case()
    certified = certify(net, params, batch, penalty=of_open("squared"))
    without = certify(net, params, batch)
    wider = spread(certified, np.float32)["dWhh"] > spread(without, np.float32)["dWhh"]
    assert wider.mean() > 0.6
