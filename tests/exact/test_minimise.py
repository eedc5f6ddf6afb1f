"""Minima on the Stiefel manifold, against closed forms and certificates."""

import numpy as np
import pytest

from refnet import stiefel
from refnet.exact import lift, minimise as module
from refnet.exact.minimise import minimise
from support.arguments import refused
from support.oracles import planted

RNG = np.random.default_rng(0)
A, B = RNG.normal(size=(2, 9, 4))
SYMMETRIC = A.T @ A + np.diag([0.0, 1, 2, 3])


def start(shape, sign=1):
    Q = np.linalg.qr(np.random.default_rng(2).normal(size=shape))[0]
    if shape[0] == shape[1]:
        Q[:, 0] *= sign * np.linalg.det(Q)
    return Q


def procrustes(W):
    return ((A @ W - B) ** 2).sum()


def brockett(W):
    return np.einsum("ij,ij,j->", W, SYMMETRIC @ W, np.array([3.0, 2.0, 1.0]))


def nearest(sign):
    """The closed form among the rotations, or the reflections: the last sign gives way."""
    U, _, V = np.linalg.svd(A.T @ B)
    return U * np.array([1, 1, 1, sign * np.linalg.det(U @ V)]) @ V


@pytest.mark.parametrize("retraction", stiefel.RETRACTIONS)
@pytest.mark.parametrize("metric", stiefel.METRICS)
@pytest.mark.parametrize("sign", [1, -1])
def test_procrustes(retraction, metric, sign):
    """The matrix nearest to a map from A to B, by its singular value decomposition, with the
    determinant of the start; twice the same bits."""
    options = {"metric": metric, "retraction": retraction}
    result = minimise(procrustes, start((4, 4), sign), **options)
    assert result.converged and result.ratio <= 1e-8
    assert abs(result.W - nearest(sign)).max() < 1e-6
    assert result.value == pytest.approx(procrustes(nearest(sign)), rel=1e-13)
    again = minimise(procrustes, start((4, 4), sign), **options)
    assert (again.W == result.W).all() and (again.values == result.values).all()


def brockett_is_wrong():
    result = module.minimise(brockett, start((4, 3)))
    values, vectors = np.linalg.eigh(SYMMETRIC)
    return (
        not result.converged
        or abs(abs(result.W) - abs(vectors[:, :3])).max() > 1e-6
        or abs(result.value - values[:3] @ [3, 2, 1]) > 1e-12 * result.value
    )


def test_brockett():
    """Its columns are the eigenvectors of the smallest eigenvalues, in their order."""
    assert not brockett_is_wrong()


@pytest.mark.parametrize(
    "old, new, steps",
    [
        ("step(M, G, rate", "step(M, -G, rate", 60),
        ("riemannian(M, G, metric)", "G", 60),
        ("ratio <= tolerance, np", "True, np", 5),
        ("guard(step(M, G, rate, retraction, metric)).M", "M - rate * R", 60),
    ],
)
def test_a_planted_bug_is_seen(old, new, steps, monkeypatch):
    wrong = planted(minimise, old, new)
    monkeypatch.setattr(module, "minimise", lambda f, W: wrong(f, W, steps=steps))
    assert brockett_is_wrong()


def test_the_gradient_may_be_given():
    """Recorded and given, they lead to the same minimum."""
    recorded = minimise(procrustes, start((4, 4)))
    given = minimise(procrustes, start((4, 4)), lambda W: 2 * A.T @ (A @ W - B))
    assert given.converged and abs(given.W - recorded.W).max() < 1e-6
    wrong = minimise(procrustes, start((4, 4)), lambda W: -2 * A.T @ (A @ W - B), steps=5)
    assert not wrong.converged and wrong.value == pytest.approx(procrustes(start((4, 4))))


@pytest.mark.parametrize("metric", stiefel.METRICS)
def test_the_scale_of_f_does_not_matter(metric):
    """Steps, rule and result have the same bits for 2^k f."""
    plain = minimise(brockett, start((4, 3)), metric=metric)
    for factor in (2.0**40, 2.0**900, 2.0**-900):
        scaled = minimise(lambda W: brockett(W) * factor, start((4, 3)), metric=metric)
        assert (plain.W == scaled.W).all() and (plain.values * factor == scaled.values).all()


def test_where_it_stops():
    W = start((4, 3))
    short = minimise(brockett, W, steps=3)
    assert len(short.values) == 4 and not short.converged and short.ratio > 1e-8
    assert short.value == short.values[-1] == brockett(short.W) < brockett(W)
    rough = minimise(brockett, W, tolerance=1e-3)
    fine = minimise(brockett, W, tolerance=1e-12)
    assert rough.converged and fine.converged and len(rough.values) < len(fine.values)
    assert np.linalg.norm(fine.gradient) < 1e-10 < np.linalg.norm(rough.gradient)
    flat = minimise(lambda W: (W * W).sum(), W)  # constant on the manifold
    assert flat.converged and (flat.W == W).all()
    kink = minimise(lambda W: abs(W).sum(), W, steps=40)
    assert not kink.converged and kink.value < abs(W).sum()
    assert minimise(brockett, W.astype(np.float32)).W.dtype == np.float64
    assert minimise(brockett, np.eye(4, dtype=int)[:, :3]).value <= brockett(np.eye(4)[:, :3])


@pytest.mark.needs("flint")
def test_certified_gradients():
    """The enclosed Riemannian gradient is as small as the floats say, and contains theirs."""
    result = minimise(brockett, start((4, 3)))
    certified = result.certify()
    assert certified.value.value == pytest.approx(result.value, rel=1e-14)
    W, G = lift(result.W, "ball"), certified.gradients["W"]
    proved = stiefel.gradient(W, G.exact, "canonical").astype(float)
    scale = np.linalg.norm(G.value)
    assert abs(proved - result.gradient).max() < 1e-14 * scale
    assert 0 < np.linalg.norm(proved) < 2e-8 * scale


def test_bad_arguments_are_named():
    W = start((4, 3))
    with refused("minimise: f gives float64 of shape .*need one real number"):
        minimise(lambda W: W, W)
    with refused("minimise: f at W is nan; need a finite number"):
        minimise(lambda W: W.sum() * np.nan, W)
    with refused(r"the gradient has shape \(3, 4\); need finite numbers of \(4, 3\)"):
        minimise(brockett, W, lambda W: W.T)
    with refused("need finite numbers"):
        minimise(brockett, W, lambda W: W * np.inf)
    with refused("minimise: M'M is off I by"):
        minimise(brockett, W * 2)
    with refused("transpose a wide matrix"):
        minimise(lambda W: W.sum(), W.T)
    with refused("minimise: f is None; need a function", TypeError):
        minimise(None, W)
    with refused("minimise: tolerance is 0; need a number in"):
        minimise(brockett, W, tolerance=0)
    with refused("float", TypeError):  # which a recorded array does not become
        minimise(lambda W: float(W.sum()), W)
