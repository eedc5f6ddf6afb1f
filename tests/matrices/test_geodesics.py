"""Geometry of the Stiefel manifold: exact on rationals, of the stated orders in floats."""

from fractions import Fraction

import numpy as np
import pytest
from scipy.linalg import expm, logm

from refnet import stiefel
from refnet.matrices import geodesics
from refnet.matrices.geodesics import (
    distance,
    exp,
    geodesic,
    inner,
    log,
    project,
    retract,
    transport,
)
from refnet.matrices.stiefel import METRICS, gradient
from refnet.prove.checks import generic
from support.arguments import refused
from support.oracles import planted

SHAPES = [(4, 4), (5, 4), (7, 2), (6, 1), (2, 2)]
both_metrics = pytest.mark.parametrize("metric", METRICS)


def drawn(shape, metric, length=1.0, dtype=np.float64, seed=1):
    """A point and two tangents, the first of that length."""
    rng = np.random.default_rng(seed)
    M = np.linalg.qr(rng.normal(size=shape))[0].astype(dtype)
    for _ in range(2):
        M = M - M @ (M.T @ M - np.eye(shape[1], dtype=dtype)) / 2
    X, Z = (project(M, rng.normal(size=shape).astype(dtype)) for _ in range(2))
    return M, X * (length / inner(M, X, X, metric) ** 0.5).astype(dtype), Z


def test_exact_on_rationals():
    """The projection is orthogonal, the inner product represents a gradient in its metric, and the
    Cayley step is (I - S/2)^-1 (I + S/2) M, whose columns are orthonormal: with ``==``."""
    rng = np.random.default_rng(0)
    N = np.array([[3, 4, 0], [4, -3, 0], [0, 0, 5]]) * Fraction(1, 5)
    for P in (1, 2, 3):
        M, G, Z = N[:, :P], generic(rng, (3, P)), generic(rng, (3, P))
        X = project(M, Z)
        assert (project(M, X) == X).all() and (M.T @ X + X.T @ M == 0).all()
        assert ((Z - X) * project(M, G)).sum() == 0
        for metric in METRICS:
            assert inner(M, gradient(M, G, metric), X, metric) == (G * X).sum()
        new, F = retract(M, X), X - M @ (M.T @ X) / 2
        S = F @ M.T - M @ F.T
        assert (new.T @ new == np.eye(P, dtype=int)).all() and (S @ M == X).all()
        assert (new - S @ new / 2 == M + S @ M / 2).all()


def orders(shape, metric):
    """The observed powers of the length, by halving it: of the retractions, and of project."""
    M, X, Z = drawn(shape, metric)
    errors = []
    for t in (2.0**-7, 2.0**-8):
        end = exp(M, t * X, metric)
        steps = [retract(M, t * X, name) - end for name in ("cayley", "polar", "qr")]
        carried = project(end, Z) - geodesics._transport(M, t * X, Z, metric)
        errors.append([np.linalg.norm(error) for error in (*steps, carried)])
    return np.log2(errors[0]) - np.log2(errors[1])


ORDERS = {
    ("square", "canonical"): [3, 3, 2, 2],
    ("square", "euclidean"): [3, 3, 2, 2],
    ("tall", "canonical"): [3, 2, 2, 1],
    ("tall", "euclidean"): [2, 3, 2, 2],
    "circle": [3, 3, 3, 2],
}


@both_metrics
@pytest.mark.parametrize("shape", SHAPES)
def test_orders(shape, metric):
    """Those of the module's table."""
    key = "square" if shape[0] == shape[1] else "tall", metric
    expected = ORDERS["circle" if shape in ((6, 1), (2, 2)) else key]
    assert orders(shape, metric) == pytest.approx(expected, abs=0.1)


def parallel_errors(shape, metric):
    """How far transport is from an isometry, from the geodesic's own velocity, from linear and
    from a pole ladder, made of exp and log alone, whose error falls at least by t^3."""
    M, X, Z = drawn(shape, metric, 1.5)
    end, carried = exp(M, X, metric), geodesics._transport(M, X, Z, metric)
    ends = geodesic(M, X, np.array([1 - 1e-5, 1 + 1e-5]), metric)
    velocity = geodesics._transport(M, X, X, metric)
    yield abs(end.T @ carried + carried.T @ end).max(), 1e-13
    lowered = geodesics._lowered
    product = (lowered(end, carried, metric) * velocity).sum()
    yield abs(product - inner(M, Z, X, metric)), 1e-12
    yield abs((ends[1] - ends[0]) / 2e-5 - velocity).max(), 1e-8
    there_and_back = geodesics._transport(end, -velocity, carried, metric)
    yield abs(there_and_back - Z).max(), 1e-12
    ladders = []
    for t in (2.0**-3, 2.0**-4):
        middle, end = geodesic(M, t * X, np.array([0.5, 1]), metric)
        pole = exp(middle, -log(middle, exp(M, t * Z, metric), metric), metric)
        rung = -log(end, pole, metric) / t
        ladders.append(np.linalg.norm(rung - geodesics._transport(M, t * X, Z, metric)))
    yield ladders[1], ladders[0] / 6 + 1e-11


@both_metrics
@pytest.mark.parametrize("shape", SHAPES)
def test_transport_is_parallel(shape, metric):
    for error, allowed in parallel_errors(shape, metric):
        assert error <= allowed
    if shape[0] == shape[1]:  # closed form: M e^S carries M Z to M e^(S/2) Z e^(S/2)
        M, X, Z = drawn(shape, metric, 1.5)
        half = expm(M.T @ X / 2)
        expected = M @ half @ M.T @ Z @ half
        assert abs(transport(M, X, Z, metric) - expected).max() <= 1e-13


BUGS = {
    "half the symbol": ("_christoffel", "K + K.T)) / 2)", "K + K.T)) / 3)"),
    "a term of the symbol": ("_christoffel", "a @ b + b @ a +", ""),
    "turned on one side": ("_transport", "(1 - twice) * (Z @ a)", "0"),
    "not back": ("_transport", "(turn, _flow(drift, Z, pieces), pieces)", "(drift, Z, pieces)"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_parallel_oracles_reject(bug, monkeypatch):
    name, old, new = BUGS[bug]
    monkeypatch.setattr(geodesics, name, planted(getattr(geodesics, name), old, new))
    assert any(
        not error <= allowed
        for metric in METRICS
        for error, allowed in parallel_errors((5, 3), metric)
    )


@both_metrics
@pytest.mark.parametrize(
    "shape, part",
    [(shape, 0.5) for shape in ((4, 4), (5, 4), (7, 2), (6, 1), (40, 3))]
    + [((4, 4), 0.98), ((6, 1), 0.98), ((5, 3), 0.9)],
)
def test_log_inverts_exp(shape, metric, part):
    """Also near the longest geodesic that is the only shortest one; log is of the matrix where M is
    square, and an angle on the sphere."""
    length, room = part * geodesics._reach(shape, metric), 1e-11
    M, X, _ = drawn(shape, metric, length)
    Y = exp(M, X, metric)
    assert abs(log(M, Y, metric) - X).max() <= room
    assert distance(Y, M, metric) == pytest.approx(length, rel=1e-11)
    path = geodesic(M, X, np.array([0, 0.25, 1]), metric)
    assert distance(M, path[1], metric) == pytest.approx(length / 4, rel=1e-11)
    assert abs(path[2] - Y).max() == 0 and abs(path[0] - M).max() <= 1e-15
    if shape[0] == shape[1]:
        assert abs(M @ logm(M.T @ Y).real - X).max() <= room
    if shape[1] == 1:
        assert np.arccos((M * Y).sum()) == pytest.approx(length, rel=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.longdouble])
def test_log_of_other_floats(dtype):
    M, X, _ = drawn((5, 3), "canonical", 1.0, dtype)
    back = log(M, exp(M, X))
    assert back.dtype == dtype and abs(back - X).max() <= 1000 * np.finfo(dtype).eps
    assert (log(M, M) == 0).all() and distance(M, M) == 0


def test_log_refuses():
    """What is too far, or cannot be reached; beyond half a great circle it goes the other way."""
    I = np.eye(4)
    for M, Y in (
        (I[:, :1], -I[:, :1]),
        (I[:, :2], -I[:, :2]),
        (I, -I),
        (I, np.diag([1.0, 1, 1, -1])),
    ):
        for metric in METRICS:
            with refused("log: no geodesic from M to Y .* need nearer points"):
                log(M, Y, metric)
    M, X, _ = drawn((5, 1), "canonical", 1.2 * np.pi)
    Y = exp(M, X)
    assert distance(M, Y) == pytest.approx(0.8 * np.pi)
    with refused(r"log: Y has shape \(4, 1\); need \(4, 2\)"):
        log(I[:, :2], I[:, :1])


def test_wrong_points_and_tangents_are_named():
    M, X, _ = drawn((4, 2), "canonical")
    for function in (exp, retract, lambda M, X: geodesic(M, X, np.ones(1))):
        with refused("off 0 by .* need a tangent X at M, such as project"):
            function(M, X + M)
        with refused("M'M is off I by .* need orthonormal columns, such as those of np.linalg.qr"):
            function(2 * M, X)
        with refused("transpose a wide matrix"):
            function(M.T, X.T)
        with refused(r"X has shape \(4, 1\)"):
            function(M, X[:, :1])
        with refused("off 0 by nan"):
            function(M, X * np.nan)
    exact = np.eye(3, dtype=int)[:, :2].astype(object)
    for function in (exp, log, distance):
        with refused("holds exact numbers; need floats", TypeError):
            function(exact, exact * 0)
    with refused("retract: retraction 'geodesic' is unknown; choose one of cayley, qr, polar"):
        stiefel.retract(M, X, "geodesic")
    assert stiefel.exp(np.eye(2, dtype=int), np.array([[0, -1], [1, 0]])).dtype == np.float64
