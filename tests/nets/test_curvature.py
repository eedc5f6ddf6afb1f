"""Gauss-Newton, Fisher and Hessian against their definitions, with ``==`` on rationals."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import refnet.nets.curvature as curvature
from refnet.batch import Batch
from refnet.exact import certify, lift
from refnet.maths.dual import dual_array, parts
from refnet.maths.losses import counted_predictions, softmax
from refnet.nets.curvature import curvature_matrix, fvp, gnvp
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.gradients import hvp, jvp, loss_and_gradients, scored
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet
from refnet.prove.checks import RATIONAL_GATE
from support.arguments import refused
from support.oracles import planted
from support.rational import generic_case

SOFT = {"activation": "softsign", "loss": "squared_error"}
NETS = {
    "every step, masked, weighted": RecurrentNet(2, 2, 2, readout="every", **SOFT),
    "last step": RecurrentNet(1, 2, 2, reduction="sum", **SOFT),
    "gated": RecurrentNet(1, 1, 1, cell="gru", gate=RATIONAL_GATE, **SOFT),
    "both directions": StackedNet(1, 1, 1, bidirectional=True, **SOFT),
    "Cayley map": RecurrentNet(1, 2, 1, transition="cayley", **SOFT),
    "feedforward": FeedforwardNet((2, 2, 2), activation="relu", loss="squared_error"),
}


def cubed(p):
    W = next(value for name, value in p.items() if value.ndim == 2 and "." not in name)
    name = next(name for name, value in p.items() if value is W)
    return (W * W * W).sum(), {name: 3 * W * W}


def case_of(name):
    net = NETS[name]
    case = generic_case(net, 3, T=2, mask="masked" in name, h0=0)
    if "weighted" in name:
        case = case._replace(
            batch=case.batch._replace(weights=np.array([Fraction(1, 3), Fraction(5, 2)]))
        )
    return case


def flat(values, names):
    return np.concatenate([values[name].ravel() for name in names])


def second_derivative(case, u, v, penalty, divisor):
    """``u'H v`` by the forward pass alone, on dual numbers over dual numbers."""
    net, params, batch, *_ = case
    zero = Fraction(0)
    lifted = {
        name: dual_array(
            dual_array(value, u.get(name, value * zero)),
            dual_array(v.get(name, value * zero), value * zero),
        )
        for name, value in {**params, "x": batch.x}.items()
    }
    x = lifted.pop("x")
    outputs, tape = net.forward(lifted, x, batch.mask)
    loss = scored(net, outputs, batch, divisor)[0]
    loss = np.asarray(loss + penalty(tape.p)[0] if penalty else loss)
    return parts(parts(loss)[1])[1][()]


def differs(case, penalty=None, divisor=None):
    """Whether the module's matrices are not what their definitions give."""
    net, params, batch, direction, _ = case
    (H, names), (G, _), (F, _) = (
        curvature.curvature_matrix(net, params, batch, form, None, penalty, divisor)
        for form in ("hessian", "gauss_newton", "fisher")
    )
    u, v = ({name: direction[name] * k + k for name in names} for k in (1, 2))
    uHv = flat(u, names) @ H @ flat(v, names)
    if uHv != second_derivative(case, u, v, penalty, divisor) or (H != H.T).any():
        return True
    tangent = jvp(net, params, batch, v)[0]
    turned = jvp(net, params, batch, u)[0]
    counted, natural = counted_predictions(
        batch.mask, tangent.shape[:-1], net.reduction, batch.weights
    )
    weights = 1 if batch.weights is None else batch.weights
    each = (tangent * turned).sum(axis=-1) * weights
    each = each if counted is None else np.where(counted, each, 0)
    expected = each.sum() * Fraction(2, tangent.shape[-1]) / (divisor or natural)
    if penalty is not None:
        plain = curvature.curvature_matrix(net, params, batch, "hessian", None, None, divisor)
        expected += flat(u, names) @ (H - plain.matrix) @ flat(v, names)
    return any(flat(u, names) @ each @ flat(v, names) != expected for each in (G, F)) or (
        (G != G.T).any()
    )


@pytest.mark.parametrize("name", NETS)
def test_against_its_definition(name):
    """The Hessian is the mixed part of the loss on nested dual numbers, without a backward pass;
    Gauss-Newton and Fisher are J' (2 / C) J, with masks, weights, divisors and penalties."""
    case = case_of(name)
    assert not differs(case)
    assert not differs(case, cubed, 3)


BUGS = {
    "the divisor is left out": ("gnvp", "batch, divisor)[1]}", "batch)[1]}"),
    "the penalty is left out": ("_through_outputs", "penalty is not None", "False"),
    "the factor C / 2": ("fvp", "y=-tangents", "y=-2 * tangents"),
    "rows for columns": ("curvature_matrix", "product[each]", "(1 + len(columns)) * product[each]"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_definitions_reject(bug, monkeypatch):
    name, old, new = BUGS[bug]
    wrong = planted(getattr(curvature, name), old, new)
    monkeypatch.setattr(curvature, name, wrong)
    if name in ("gnvp", "fvp"):
        form = {"gnvp": "gauss_newton", "fvp": "fisher"}[name]
        monkeypatch.setitem(curvature.PRODUCTS, form, wrong)
    assert differs(case_of("last step"), cubed, 3)


def labelled(smoothing=0.0):
    net = RecurrentNet(2, 2, 3, readout="every", smoothing=smoothing)
    rng = np.random.default_rng(4)
    params = {n: v + rng.normal(size=v.shape) / 2 for n, v in net.init(rng, np.float64).items()}
    weights, mask = np.array([[1, 2.0], [0.5, 3]]), np.array([[True, True], [True, False]])
    batch = Batch(rng.normal(size=(2, 2, 2)), rng.integers(0, 3, (2, 2)), mask, weights)
    return net, params, batch


def expected_outer_product(net, params, batch):
    """``sum_n w_n / D sum_c p_c g_c g_c'``, g the gradient of one prediction's own loss."""
    net = replace(net, smoothing=0, reduction="sum")
    p = softmax(net.forward(params, batch.x, batch.mask)[0])
    total, names = 0, list(params)
    for t, b in np.argwhere(batch.mask):
        for c in range(p.shape[-1]):
            alone = np.zeros_like(batch.weights)
            alone[t, b] = 1
            labelled = batch._replace(y=np.full_like(batch.y, c), weights=alone)
            g = flat(loss_and_gradients(net, params, labelled).gradients, names)
            total = total + batch.weights[t, b] * p[t, b, c] * np.outer(g, g)
    return total / batch.weights[batch.mask].sum()


@pytest.mark.parametrize("smoothing", [0.0, 0.25])
def test_fisher_is_the_expected_outer_product(smoothing, monkeypatch):
    """Of all labels, each as likely as the net says; the labels at hand play no part."""
    net, params, batch = labelled(smoothing)
    expected = expected_outer_product(net, params, batch)
    room = 1000 * np.finfo(float).eps * abs(expected).max()

    def off():
        return abs(curvature.curvature_matrix(net, params, batch, "fisher").matrix - expected).max()

    assert off() <= room
    monkeypatch.setitem(curvature.PRODUCTS, "fisher", planted(fvp, "(p * tangents)", "tangents"))
    assert off() > 1e9 * room


@pytest.mark.needs("flint")
def test_fisher_is_gauss_newton_by_certificate():
    """Of the cross-entropy, which is not rational: both are rounded correctly, and so equal."""
    net, params, batch = labelled(0.25)
    certified = certify(net, params, batch, divisor=3)
    along = {name: np.ones_like(value) for name, value in params.items()}
    proved, fisher = certified.gnvp(along), certified.fvp(along)
    floats = gnvp(net, params, batch, along, None, 3)
    for name, enclosure in proved.items():
        assert np.array_equal(enclosure.value, fisher[name].value), name
        assert enclosure.value == pytest.approx(floats[name], rel=1e-12, abs=1e-14)
    soft = replace(net, activation="softsign", loss="squared_error", smoothing=0)
    targets = batch._replace(y=np.ones((2, 2, 3)))
    exact = certify(soft, params, targets, kind="rational")
    lifted = {name: lift(value, "fraction") for name, value in params.items()}
    rational = Batch(*(lift(targets[k], "fraction") for k in (0, 1)), batch.mask)
    rational = rational._replace(weights=lift(batch.weights, "fraction"))
    product = gnvp(soft, lifted, rational, {n: lift(v, "fraction") for n, v in along.items()})
    for name, enclosure in exact.gnvp(along).items():
        assert (lift(enclosure.exact, "fraction") == product[name]).all(), name


def test_order_and_names():
    net, params, batch, direction, _ = case_of("Cayley map")
    matrix, places = curvature_matrix(net, params, batch)
    assert list(places) == [name for name in params if name != "Whh.base"]
    wanted = ["x", "by", "Whh.A"]
    matrix, places = curvature_matrix(net, params, batch, names=[*wanted, "by"])
    assert list(places) == wanted and places["x"] == slice(0, batch.x.size)
    v = {name: {**direction}[name] for name in wanted}
    product = hvp(net, params, batch, v)
    assert (matrix @ flat(v, wanted) == flat(product, wanted)).all()
    with refused("curvature_matrix: names has 'Wyh' is unknown"):
        curvature_matrix(net, params, batch, names=["Wyh"])
    with refused("fvp: the net's loss 'none' is unknown; choose one of cross_entropy"):
        linear = replace(net, loss="none", reduction="sum")
        fvp(linear, params, batch, {})
    zeros = gnvp(linear, params, batch, {"by": params["by"]})
    assert not any((value != 0).any() for value in zeros.values())


@pytest.mark.parametrize("dtype", [np.float32, np.longdouble, np.complex128])
def test_every_kind_of_floats(dtype):
    net, params, batch = labelled()
    cast = {name: value.astype(dtype) for name, value in params.items()}
    batch = batch._replace(weights=None)
    along = {name: np.ones_like(value) for name, value in cast.items()}
    exact = {name: np.ones_like(value) for name, value in params.items()}
    for product in (gnvp, fvp):
        ours = product(net, cast, batch._replace(x=batch.x.astype(dtype)), along)
        for name, value in product(net, params, batch, exact).items():
            assert ours[name].dtype == dtype, name
            assert ours[name] == pytest.approx(value, rel=1e-4, abs=1e-5), name
