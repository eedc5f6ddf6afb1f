"""Values, derivatives, kinks and the propagation of NaN, activation by activation."""

from fractions import Fraction
from math import isqrt

import numpy as np
import pytest

from refnet.maths import activations
from refnet.maths.activations import ACTIVATIONS, activation
from refnet.maths.dual import Dual, dual_array, parts
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.recurrent import RecurrentNet
from support.arguments import refused
from support.marks import both_dtypes
from support.oracles import gap, planted

KINKS = {  # name: (pre-activation, value, derivative) at the stated side
    "relu": (0.0, 0.0, 0.0),
    "leaky_relu": (0.0, 0.0, 0.01),
    "prelu": (0.0, 0.0, 0.25),
    "elu": (0.0, 0.0, 1.0),
    "softsign": (0.0, 0.0, 1.0),
    "tanh": (0.0, 0.0, 1.0),
    "sigmoid": (0.0, 0.5, 0.25),
    "identity": (0.0, 0.0, 1.0),
    "modrelu": (0.0, 0.0, 0.0),
}


def both(name, a):
    act = ACTIVATIONS[name]
    p = act.init(a.shape[-1])
    h = act.forward(a, p)
    return h, act.backward(a, h, np.ones_like(a), p)[0]


@pytest.mark.parametrize("name", KINKS)
def test_stated_side_at_a_kink(name):
    a, value, slope = KINKS[name]
    h, da = both(name, np.array([[a]]))
    assert h[0, 0] == value and da[0, 0] == slope


def test_modrelu_threshold_and_tie_of_oplu():
    act = ACTIVATIONS["modrelu"]
    p = {"b_mod": np.array([-1.0, -1.0, -1.0])}
    a = np.array([[1.0, -3.0, 0.5]])
    h = act.forward(a, p)
    da, slopes = act.backward(a, h, np.ones_like(a), p)
    assert h.tolist() == [[0, -2, 0]] and da.tolist() == [[0, 1, 0]]
    assert slopes["b_mod"].tolist() == [0, -1, 0]
    p, zero, unit = {"b_mod": np.ones(1)}, np.zeros((1, 1)), np.ones((1, 1))  # at the jump
    tangent = parts(act.forward(dual_array(zero, unit), p))[1]
    assert tangent == act.backward(zero, zero, unit, p)[0]
    a = np.array([[2.0, 2.0, 1.0, 3.0]])
    dh = np.array([[5.0, 6.0, 7.0, 8.0]])
    oplu = ACTIVATIONS["oplu"]
    assert oplu.forward(a, {}).tolist() == [[2, 2, 3, 1]]
    assert oplu.backward(a, a, dh, {})[0].tolist() == [[5, 6, 8, 7]]


def exact_root(value):
    """Of the square of a rational number, and of a dual one of them."""
    if isinstance(value, Dual):
        root = exact_root(value.x)
        return Dual(root, value.d / (2 * root))
    root = Fraction(isqrt(value.numerator), isqrt(value.denominator))
    assert root * root == value
    return root


def pairs_gap(monkeypatch, pull):
    """``<w, J v> - <J' w, v>`` of modReLU on pairs whose moduli are rational: with biases of both
    signs, on, off and 0."""
    act, F = ACTIVATIONS["modrelu_pairs"], Fraction
    monkeypatch.setattr(activations, "sqrt", np.frompyfunc(exact_root, 1, 1))
    a = np.array([[3, 4, -5, 12, 8, -15], [0, 0, -3, -4, 0, 0], [-20, 21, 0, 7, 1, 0]], object)
    at = {"a": a * F(1, 7), "b_mod": np.array([F(1, 3), F(-3, 4), F(-1, 9)])}
    v, w = (
        np.array([[F(7 * i + k, 5) for i in range(6)] for k in turn], object)
        for turn in ((1, -3, 4), (-2, 5, 3))
    )
    direction = {"a": v, "b_mod": np.array([F(2), F(-1, 3), F(4, 7)])}
    h = act.forward(at["a"], at)
    assert (h == 0).sum() == 8 and h[0, :2].tolist() == [F(3, 7) * F(22, 15), F(4, 7) * F(22, 15)]
    da, grads = pull(at["a"], h, w, at, 0)
    forward = lambda p: act.forward(p["a"], p)  # noqa: E731
    return gap(forward, at, direction, w, {"a": da, **grads})


def test_modrelu_of_pairs(monkeypatch):
    assert pairs_gap(monkeypatch, activations._modrelu_pairs_pull) == 0


@pytest.mark.parametrize(
    "old, new",
    [
        ("m.factor * gx - less * ux", "m.factor * gx"),
        ("/ m.r * along", "* along"),
        ("np.where(m.off, 0, along)", "along"),
        ("uy * gy", "0"),
    ],
)
def test_a_wrong_pullback_of_it_is_noticed(old, new, monkeypatch):
    assert pairs_gap(monkeypatch, planted(activations._modrelu_pairs_pull, old, new)) != 0


@both_dtypes
def test_modrelu_of_pairs_keeps_the_angle(dtype):
    rng, act = np.random.default_rng(0), ACTIVATIONS["modrelu_pairs"]
    a, b = rng.normal(size=(50, 8)).astype(dtype), rng.normal(size=4).astype(dtype)
    h = act.forward(a, {"b_mod": b}).astype(float)
    z, wanted = (each[:, ::2] + 1j * each[:, 1::2] for each in (a.astype(float), h))
    true = z / abs(z) * np.maximum(abs(z) + b, 0)
    assert abs(wanted - true).max() <= 8 * np.finfo(dtype).eps * abs(a).max()


@pytest.mark.parametrize("name", ["oplu", "modrelu_pairs"])
def test_an_odd_number_of_units_has_no_pairs(name):
    for backend in ("reference", "compiled"):
        for make in (
            lambda: FeedforwardNet((2, 3, 2), activation=name, backend=backend),
            lambda: RecurrentNet(2, 3, 2, activation=name, backend=backend),
        ):
            with refused(f"{name} acts on pairs of units and needs an even width, not 3"):
                make()
        FeedforwardNet((2, 4, 3), activation=name, backend=backend)


def test_oplu_keeps_the_norm_and_refuses_odd_widths():
    a = np.random.default_rng(0).normal(size=(5, 8))
    h = ACTIVATIONS["oplu"].forward(a, {})
    assert (np.sort(h, axis=1) == np.sort(a, axis=1)).all()
    assert (h[:, 0::2] >= h[:, 1::2]).all()
    for call in (
        lambda: ACTIVATIONS["oplu"].forward(a[:, :7], {}),
        lambda: ACTIVATIONS["oplu"].init(7),
    ):
        with refused("even width, not 7; use 8 or 6"):
            call()


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_nan_is_never_hidden(name):
    a = np.array([[np.nan, 1.0]])
    h, _ = both(name, a)
    assert np.isnan(h).any()


def test_constant_is_exact_on_fractions():
    act = activation("leaky_relu", 0.25)
    a = np.array([[Fraction(-3)]], object)
    assert act.forward(a, {})[0, 0] == Fraction(-3, 4)
    assert type(act.backward(a, a, a, {})[0][0, 0]) is Fraction


def test_unknown_names_and_constants_are_refused():
    with refused("choose one of identity, tanh"):
        activation("swish")
    with refused("has no constant"):
        activation("tanh", 0.5)
