"""Certificates whose errors are followed, against those on balls alone, mpmath and brute force."""

import numpy as np
import pytest
from numpy.random import default_rng

from refnet import RecurrentNet
from refnet.cells import CELLS
from refnet.check.cases import random_batch, random_params
from refnet.exact import balls, enclose, transport
from refnet.exact.convert import lift
from refnet.maths.numeric import matmul
from support.arguments import refused
from support.balls import same_values
from support.enclosures import CASES, draw, faults
from support.masked import NETS, case

pytestmark = pytest.mark.needs("flint", "mpmath")


def missed(net, params, batch, bits=400):
    """Names of what has an entry outside of its ball, by balls alone at more bits."""
    run = transport.followed(net)
    assert run is not net
    with balls.precision(bits):
        computed = enclose._run(run, params, batch, "ball")
        assert all(
            value.is_finite()
            for array in computed.values()
            for value in map(balls.arb, array.ravel())
        )
    with balls.precision(4 * bits):
        true = enclose._run(net, params, batch, "ball")
    assert list(computed) == list(true)
    return [
        name
        for name, value in true.items()
        if not all(
            balls.arb(wide).contains(narrow)
            for wide, narrow in zip(computed[name].ravel(), map(balls.arb, value.ravel()))
        )
    ]


@pytest.mark.parametrize("scale", [0.1, 1.0, 2.0])
@pytest.mark.parametrize("net", NETS.values(), ids=NETS)
def test_contains_what_balls_alone_enclose(net, scale):
    assert missed(net, *case(net, scale=scale)) == []


def same_numbers(net, params, batch, monkeypatch):
    monkeypatch.setattr(enclose, "FOLLOWED", 0)
    computed = enclose.certify(net, params, batch)
    monkeypatch.setattr(transport, "followed", lambda net: net)
    alone = enclose.certify(net, params, batch)
    assert same_values(alone, computed)


def test_a_matrix_that_is_not_exact_is_certified_without_a_word(monkeypatch):
    """Errors of the exponential of a drawn matrix are not followed, for balls alone suffice."""
    net = NETS["transition"]
    rng = default_rng(2)
    params, batch = random_params(net, rng, np.float32), case(net)[1]
    same_numbers(net, params, batch, monkeypatch)


@pytest.mark.parametrize("net", NETS.values(), ids=NETS)
def test_rounds_to_the_same_numbers(net, monkeypatch):
    same_numbers(net, *case(net), monkeypatch)


@pytest.mark.parametrize(
    "label",
    [
        label
        for label, (net, _) in CASES.items()
        if hasattr(net, "cell") and transport.followed(net) is not net
    ],
)
def test_contains_mpmath(label, monkeypatch):
    monkeypatch.setattr(enclose, "FOLLOWED", 0)
    net, options = CASES[label]
    checked, outside, misrounded = faults(net, *draw(net, **options), bits=250)
    assert checked > 50 and not outside and not misrounded


def nothing_added(patch):
    patch.setattr(balls, "widened", lambda array, width: array)


def a_millionth_added(patch):
    right = transport._errors
    patch.setattr(transport, "_errors", lambda *given: right(*given) - 20)


def midpoints_without_their_distance(patch):
    patch.setattr(balls, "_distance", lambda row: -5000.0)


def tape_left_as_it_is(patch):
    right = balls.widened
    patch.setattr(
        balls, "widened", lambda array, width: array if array.ndim > 2 else right(array, width)
    )


@pytest.mark.parametrize(
    "plant",
    [nothing_added, a_millionth_added, tape_left_as_it_is, midpoints_without_their_distance],
)
def test_a_radius_that_is_too_small_is_found(plant, monkeypatch):
    plant(monkeypatch)
    net = RecurrentNet(2, 1, 4, "rnn")
    assert missed(net, *case(net))


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_derivatives_of_a_step(cell):
    """K + L W by central differences of the reference's step, and L by its backward pass."""
    net = RecurrentNet(2, 4, 3, cell)
    rng = default_rng(0)
    params = {name: value.astype(float) for name, value in case(net)[0].items()}
    p = net.layer.scaled(params)
    lead = () if net.cell != "lstm" else (2,)
    state, x = rng.normal(size=(*lead, 1, 4)), rng.normal(size=(1, 1, 2))
    tape = net.layer.run(p, x, state)
    gate = None if cell == "rnn" else net.gate
    L, by, K = transport.LOCAL[CELLS[cell]](tape, p, net.activation, gate)
    G = len(net.gates)
    J = transport._jacobian(L[0], K[0], p["Whh"].reshape(G, 4, 4))[0]

    def stepped(state):
        after = net.layer.run(p, x, state)
        return np.concatenate([after.h[1, 0], *([after.c[1, 0]] if lead else [])])

    for n in range(state.size):
        step = np.zeros(state.size)
        step[n] = 1e-5
        step = step.reshape(state.shape)
        np.testing.assert_allclose(
            J[:, n], (stepped(state + step) - stepped(state - step)) / 2e-5, atol=1e-9
        )
    e = rng.normal(size=(*lead, 1, 4))
    dh = e[:1].reshape(1, 1, 4)
    pulled = net.layer.pull(p, tape, (dh, e[1]) if lead else dh)
    np.testing.assert_allclose(
        pulled["bh"],
        np.einsum("sgj,sj->gj", by[0, 0], e.reshape(-1, 4)).ravel(),
        rtol=1e-12,
        atol=1e-15,
    )
    np.testing.assert_allclose(pulled["h0"].ravel(), J.T @ e.ravel(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("squarings", [0, 1, 5])
def test_bound_of_the_spectral_norm(squarings):
    """Never below the norm, nor above it by more than N^(1 / 2^(k + 1)); tight for rank one."""
    rng = default_rng(0)
    some = rng.normal(size=(5, 30, 7)) * 10.0 ** rng.integers(-100, 100, (5, 1, 1))
    ones = rng.normal(size=(5, 30, 1)) * rng.normal(size=(5, 1, 7))
    for a, room in ((some, 7**0.5 ** (squarings + 1)), (ones, 1)):
        norm = np.log2(np.linalg.svd(a, compute_uv=False)[:, 0])
        computed = transport._norm(a, 0.0, squarings)
        assert (norm <= computed).all() and (computed <= norm + np.log2(room) + 1e-4).all()
        assert (transport._norm(a, 2.0**norm, squarings) >= norm + 1).all()


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("size", [1, 3])
def test_errors_against_all_products(size, backward):
    """Every error is at least, and of numbers at most, the sum over all earlier defects."""
    rng = default_rng(0)
    steps = 23
    A = rng.normal(size=(steps, 2, size, size)) / size**0.5
    defects = rng.uniform(-90, -60, (steps, 2))
    span, *_ = transport._span(lambda t: (A[t], np.zeros(2)), 0, steps)
    computed = transport._errors(span, defects, backward)
    for b in range(2):
        for t in range(steps + 1):
            total, product = 0.0, np.eye(size)
            for u in range(t, steps) if backward else reversed(range(t)):
                total += np.linalg.norm(product, 2) * 2.0 ** defects[u, b]
                product = product @ (A[u, b].T if backward else A[u, b])
            true = np.log2(total) if total else -np.inf
            assert true <= computed[t, b]
            assert size > 1 or computed[t, b] <= true + 1e-3 or total == 0 == 2 ** computed[t, b]


def test_products_of_jacobians_are_bounded_with_their_error():
    """In float64 with matrices that cancel: off by as much as the bound says, and not by less."""
    rng = default_rng(0)
    A = rng.normal(size=(8, 1, 5, 5))
    off = 1e-9 * rng.normal(size=A.shape)
    error = np.sqrt((off**2).sum(axis=(2, 3)))
    span, product, bound = transport._span(lambda t: (A[t], error[t]), 0, 8)
    true = np.eye(5)
    for t in range(8):
        true = (A[t, 0] + off[t, 0]) @ true
    assert 0 < np.linalg.norm(true - product[0]) <= bound[0] < 1e-2 * np.linalg.norm(true)
    assert np.log2(np.linalg.norm(true, 2)) <= span.gain[0]


@pytest.mark.parametrize("exact", [True, False])
def test_products_that_take_midpoints(exact):
    """With weights and balls of any size the distance contains what is cut off."""
    rng = default_rng(0)
    weights = lift(rng.normal(size=(6, 4)) * 2.0 ** rng.integers(-60, 60, (6, 4)), "ball")
    with balls.precision(100):
        if not exact:
            weights = weights / 3
        a = (
            lift(rng.normal(size=(3, 6)), "ball")
            / 7
            * lift(2.0 ** rng.integers(-90, 90, (3, 1)), "ball")
        )
        with balls.centered(weights) as distances:
            product = matmul(a, weights[...])
        assert len(distances) == 1
    with balls.precision(1000):
        size = sum(float(value) ** 2 for value in weights.ravel()) ** 0.5
        for row, off in enumerate(distances[0]):
            near = [
                value + balls.arb(0, balls.arb(2.0 ** (off + 1e-9) * size))
                for value in product[row]
            ]
            true = a[row] @ weights
            assert all(ball.overlaps(value) for ball, value in zip(near, true))
            assert -125 < off - np.log2(float(sum(v * v for v in a[row])) ** 0.5) < -90


def test_midpoints_are_not_shortened():
    """A product at 30 bits contains that of midpoints of 300 bits, whose rows are off by nothing
    but their radii."""
    with balls.precision(300):
        a = lift(np.arange(1, 7).reshape(2, 3), "ball") / 7
        middle = np.frompyfunc(balls.arb.mid, 1, 1)(a)
        weights = lift(np.array([[1.5], [-0.25], [3.0]]), "ball")
    with balls.precision(30), balls.centered(weights) as distances:
        products = [matmul(row, weights[...]) for row in (middle, a)]
    assert (distances[0] == -np.inf).all()
    with balls.precision(2000):
        true = middle @ weights
        assert all(
            wide.contains(narrow)
            for product in products
            for wide, narrow in zip(product.ravel(), true.ravel())
        )
        for row, bound in zip(a, distances[1]):
            radii = sum(float(value.rad()) ** 2 for value in row) ** 0.5
            assert 0 <= bound - np.log2(radii) < 1e-6


def test_too_few_bits_are_raised(monkeypatch):
    monkeypatch.setattr(enclose, "FOLLOWED", 0)
    net = NETS["lstm"]
    params, batch = case(net)
    assert enclose.certify(net, params, batch, bits=40).bits in (160, 320)
    with refused("not narrow enough for their errors.*at 60 bits", ArithmeticError):
        enclose.certify(net, params, batch, bits=40, max_bits=60)


def test_long_sequences_need_fewer_bits(monkeypatch):
    """Of 220 steps, whose first ones predict what all lose."""
    net = RecurrentNet(2, 12, 3, "lstm")
    params, _ = case(net)
    batch = random_batch(net, default_rng(0), np.float32, 220, 1)
    params["h0"] = params["h0"][:, :1]
    searched = []
    search = enclose.search
    monkeypatch.setattr(
        enclose,
        "search",
        lambda run, name, limits, *rest: (
            searched.append(limits["bits"]),
            search(run, name, limits, *rest),
        )[1],
    )
    computed = enclose.certify(net, params, batch)
    monkeypatch.setattr(transport, "followed", lambda net: net)
    alone = enclose.certify(net, params, batch)
    assert searched == [computed.bits, alone.bits] and 2 * computed.bits < alone.bits
    assert same_values(alone, computed)


@pytest.mark.parametrize(
    "net",
    [
        RecurrentNet(2, 4, 3, "gru_before"),
        RecurrentNet(2, 4, 3, "lstm", projection=2),
        RecurrentNet(2, 4, 3, activation="relu"),
        RecurrentNet(2, 4, 3, activation="identity"),
        RecurrentNet(2, 4, 3, clip_step=1.0),
        RecurrentNet(2, 4, 3, "lstm", clip_forward=3.0),
        RecurrentNet(2, 4, 3, "gru", gate="softsign"),
    ],
    ids=["gru_before", "projection", "relu", "identity", "clip_step", "clip_forward", "gate"],
)
def test_what_is_not_followed(net):
    assert transport.followed(net) is net
