"""Certified functions: what is certified is true, and the arguments that do not fit are refused."""

from fractions import Fraction

import numpy as np
import pytest

pytest.importorskip("flint", reason="python-flint (extra certify) is not installed")
from refnet import Batch, RecurrentNet  # noqa: E402
from refnet.check import compare  # noqa: E402
from refnet.check.noise import spread  # noqa: E402
from refnet.check.verdict import NOT_ROUNDING  # noqa: E402
from refnet.exact import certify, certify_function, lift  # noqa: E402

RNG = np.random.default_rng(1)


def test_a_net_as_a_function():
    """A tanh net written out has, to the last bit, the values that the certifier gives the net."""
    net = RecurrentNet(2, 3, 2)
    params = net.init(RNG)
    batch = Batch(RNG.normal(size=(30, 2, 2)), np.array([0, 1]))
    names = list(params)

    def written(x, *arrays):
        p = dict(zip(names, arrays))
        h = np.zeros((2, 3))
        for step in x:
            h = np.tanh(step @ p["Wxh"].T + h @ p["Whh"].T + p["bh"])
        v = h @ p["Why"].T + p["by"]
        return (np.log(np.exp(v).sum(axis=1)) - v[np.arange(2), batch.y]).mean()

    mine = certify(net, params, batch)
    written_out = certify_function(written, batch.x, *params.values())
    assert written_out.value.value == mine.loss.value
    for n, name in enumerate(("x", *names)):
        own = "x" if not n else f"x{n}"
        assert np.array_equal(written_out.gradients[own].value, mine.gradients[name].value), name


def softsign(x, w):
    a = x @ w
    return (a / (1 + abs(a))).sum()


def test_fractions_are_computed_exactly():
    x = np.array([[Fraction(1, 3), Fraction(-2, 7)]])
    w = np.array([[Fraction(1)], [Fraction(2)]])
    certified = certify_function(softsign, x, w)
    a = Fraction(1, 3) - Fraction(4, 7)
    slope = 1 / (1 + abs(a)) ** 2
    assert certified.kind == "rational" and certified.bits == 0
    assert lift(certified.value.exact, "fraction") == a / (1 - a)
    assert (lift(certified.gradients["w"].exact, "fraction") == slope * x.T).all()


def test_cotangents_labels_and_constants():
    def rows(x, labels, rate=0.1):
        return x[np.arange(len(x)), labels] * rate

    x, labels, w = RNG.normal(size=(3, 4)), np.array([3, 0, 1]), np.array([1.0, 2, 3])
    certified = certify_function(rows, x, labels, cotangent=w)
    expected = np.zeros((3, 4))
    expected[np.arange(3), labels] = [float(Fraction(0.1) * Fraction(c)) for c in w]
    assert np.array_equal(certified.gradients["x"].value, expected)
    assert certified.constants == (0.1,) and list(certified.params) == ["x"]
    assert set(certified.named()) == {"value", "dx"}


def test_what_a_function_does_to_its_arguments_does_not_count():
    def centred(x, labels):
        x -= x.mean()
        labels += 1
        return (x[:, labels] ** 2).sum()

    x, labels = np.arange(8.0).reshape(2, 4) ** 2, np.array([0, 1, 2])
    certified = certify_function(centred, x, labels)
    assert np.array_equal(x, np.arange(8.0).reshape(2, 4) ** 2) and labels.tolist() == [0, 1, 2]
    assert certified.value.value == centred(x.copy(), labels.copy())
    assert np.array_equal(certified.arguments["x"], x)


def test_every_argument_has_a_name_of_its_own():
    certified = certify_function(lambda x1, *others: (x1 * others[0]).sum(), np.ones(2), np.ones(2))
    assert list(certified.gradients) == ["x1", "x2"]


def test_a_constant_is_rounded_once_in_each_run():
    """A leak of 0.01 at every step is one float32 number, off in one direction at all steps."""
    def leaky(x):
        for _ in range(50):
            x = x * 1.01
        return x.sum()

    certified = certify_function(leaky, np.ones(2))
    sigma = spread(certified, np.float32)
    theirs = np.prod(np.full(50, np.float32(1.01), np.longdouble))
    off = float(abs(theirs - certified.gradients["x"].value[0]))
    assert off < 4 * sigma["dx"][0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_kinks_in_some_runs_only(dtype):
    """Where rounding decides which of two is larger, both gradients are explained."""
    def larger(x):
        return (np.maximum(x[0] * 3, x[1]) * x[2]).sum()

    third = np.array([1 / 3, 1 / 3 * 3 * (1 - np.finfo(dtype).eps / 8), 1])
    certified = certify_function(larger, third)
    for gradient in ([3.0, 0, third[1]], [0, 1.0, third[1]]):
        assert compare({"dx": np.array(gradient, dtype)}, certified).passed
    assert not compare({"dx": np.array([30.0, 0, third[1]], dtype)}, certified).passed


def test_verdict():
    x, w = RNG.normal(size=(4, 3)).astype(np.float32), RNG.normal(size=(3, 2)).astype(np.float32)
    certified = certify_function(softsign, x, w)
    a = x @ w
    slope = 1 / (1 + abs(a)) ** 2
    theirs = {"value": (a / (1 + abs(a))).sum(), "dx": slope @ w.T, "dw": x.T @ slope}
    verdict = compare(theirs, certified)
    assert verdict.passed and "algorithm as it is written" in verdict.rule
    wrong = compare({**theirs, "dw": x.T @ (1 / (1 + abs(a)))}, certified)
    assert wrong.verdict == NOT_ROUNDING and wrong.worst.name == "dw" and not wrong.convention
    assert not compare({"dx": theirs["dx"]}, certified).passed  # dw is missing


@pytest.mark.parametrize("arguments, options, says", [
    ((np.ones((2, 2)),), {}, "pass cotangent"),
    ((np.ones((2, 2)),), {"cotangent": np.ones(2)}, r"need \(2, 2\)"),
    ((np.ones(2, int),), {}, "no argument is an array of floats"),
    ((np.ones(1),), {"kind": "float"}, "choose one of ball, rational"),
    ((np.ones(1),), {"bits": 0}, "bits is 0"), ((np.ones(1),), {"max_bits": 2.5}, "max_bits is"),
    ((np.ones(1),), {"radius": -1}, "radius is -1"),
    ((np.ones(1),), {"max_seconds": 0}, "max_seconds is 0"),
    ((np.array([np.nan]),), {}, r"x: entry \(0,\) is nan"),
])
def test_refusals(arguments, options, says):
    with pytest.raises((TypeError, ValueError), match=says):
        certify_function(lambda x: x * 2, *arguments, **options)


def test_limits():
    with pytest.raises(ArithmeticError, match="certify_function: dx.*at 128 bits; raise max_bits"):
        certify_function(lambda x: (np.exp(x) / np.exp(x)).sum(), np.ones(2), max_bits=128)
    with pytest.raises(TimeoutError, match="certify_function: .*max_seconds"):
        certify_function(softsign, np.ones((2, 2)), np.ones((2, 1)), max_seconds=1e-9)
