"""Values, derivatives, kinks and the propagation of NaN, activation by activation."""

from fractions import Fraction

import numpy as np
import pytest

from refnet.maths.activations import ACTIVATIONS, activation
from refnet.maths.dual import dual_array, parts
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.recurrent import RecurrentNet
from support.arguments import refused

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


def test_oplu_is_refused_for_an_odd_number_of_units():
    for backend in ("reference", "compiled"):
        for make in (
            lambda: FeedforwardNet((2, 3, 2), activation="oplu", backend=backend),
            lambda: RecurrentNet(2, 3, 2, activation="oplu", backend=backend),
        ):
            with refused("needs an even width, not 3"):
                make()
        FeedforwardNet((2, 4, 3), activation="oplu", backend=backend)


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
