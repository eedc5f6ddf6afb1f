"""Steps on the Stiefel manifold: exact on rationals, of the right order in floats."""

from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, given

from refnet.maths import linalg
from refnet.maths.linalg import eye, solve
from refnet.maths.numeric import matmul, times
from refnet.matrices.stiefel import METRICS, RETRACTIONS, defect, determinant, gradient, guard, step
from support.arguments import refused
from support.marks import both_dtypes
from support.strategies import arrays

HALF = Fraction(1, 2)
RATE = st.sampled_from([Fraction(1, 7), Fraction(2), Fraction(-1, 3)])


def cayley_of(A):
    return solve(eye(len(A), object) + A, eye(len(A), object) - A)


@st.composite
def points(draw, tall=None):
    """A rational M with orthonormal columns, det +1 or -1, and a gradient of its shape."""
    N = draw(st.integers(1, 5 if tall else 3))
    P = N if tall is False else draw(st.integers(1, N))
    L = np.tril(draw(arrays((N, N), True)), -1)
    Q = cayley_of(L - L.T) * draw(st.sampled_from([1, -1]))
    return Q[:, :P], draw(arrays((N, P), True))


def inner(A, B):
    return (A * B).sum()


@given(points(tall=True), RATE, st.sampled_from(METRICS))
def test_cayley_is_exact(point, rate, metric):
    """Orthonormal columns stay so, by equality, and the square, the low-rank and the full form
    are all eq. 9 as corrected: (I + r/2 A)^-1 (I - r/2 A) M, which the printed form is not."""
    M, G = point
    new = step(M, G, rate, metric=metric)
    identity = eye(len(M), object)
    assert (matmul(new.T, new) == eye(M.shape[1], object)).all()
    F = G if metric == "canonical" else G - matmul(M, matmul(M.T, G)) * HALF
    A = matmul(F, M.T) - matmul(M, F.T)
    turn = solve(identity + times(rate / 2, A), identity - times(rate / 2, A))
    assert (new == matmul(turn, M)).all()
    if M.shape[1] == len(M):  # erratum 25
        printed = M + turn
        assert (matmul(printed.T, printed) != identity).any()


@given(points(tall=True), st.sampled_from(METRICS), st.data())
def test_gradient_is_tangent_and_descends(point, metric, data):
    """The gradient is tangent, represents dL in its metric, and is (A M) of the Cayley step, so
    that the step descends: the loss's slope along it is minus its squared length."""
    M, G = point
    g = gradient(M, G, metric)
    cross = matmul(M.T, g)
    assert (cross + cross.T == 0).all()
    # any tangent: the canonical gradient of any matrix
    Z = gradient(M, data.draw(arrays(M.shape, True)))
    shape = g if metric == "euclidean" else g - matmul(M, cross) * HALF
    assert inner(shape, Z) == inner(G, Z)
    assert inner(G, g) == inner(shape, g) and inner(G, g) >= 0
    assert (inner(G, g) == 0) == (g == 0).all()
    F = G if metric == "canonical" else G - matmul(M, matmul(M.T, G)) * HALF
    assert (matmul(matmul(F, M.T) - matmul(M, F.T), M) == g).all()


@given(points(tall=False), RATE)
def test_metrics_agree_on_square_matrices_up_to_the_rate(point, rate):
    M, G = point
    assert (step(M, G, rate) == step(M, G, 2 * rate, metric="euclidean")).all()


def random_point(N, P, dtype=np.longdouble, seed=1):
    rng = np.random.default_rng(seed)
    M, G = np.linalg.qr(rng.normal(size=(N, P)))[0], rng.normal(size=(N, P))
    M = M.astype(dtype)
    for _ in range(2):  # float64's orthogonality, improved to dtype's
        M = M - M @ (M.T @ M - np.eye(P, dtype=dtype)) / 2
    return M, (G / np.linalg.norm(G)).astype(dtype)


@pytest.mark.parametrize("shape", [(4, 4), (5, 4), (7, 2)])
@pytest.mark.parametrize("metric", METRICS)
def test_geodesic_is_one(shape, metric):
    """It starts along minus the gradient, stays on the manifold and obeys the geodesic
    equation of its metric (Edelman et al., 2.7 and 2.41), by central differences: their error
    is of the order of h^2 and of eps / h^2."""
    M, G = random_point(*shape)
    h = 2.0**-14
    ahead, behind = (step(M, G, rate, "geodesic", metric) for rate in (h, -h))
    small = 10 * (h * h + np.finfo(np.longdouble).eps / (h * h))
    velocity = (ahead - behind) / (2 * h)
    acceleration = (ahead - 2 * M + behind) / (h * h)
    assert abs(velocity + gradient(M, G, metric)).max() <= small
    assert abs(ahead.T @ ahead - np.eye(shape[1])).max() <= 1000 * np.finfo(np.longdouble).eps
    V = velocity
    if metric == "euclidean":
        residual = acceleration + M @ (V.T @ V)
    else:
        residual = acceleration + V @ (V.T @ M) + M @ (M.T @ V @ M.T @ V + V.T @ V)
    assert abs(residual).max() <= small


@pytest.mark.parametrize("retraction", RETRACTIONS)
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.longdouble])
def test_every_step_stays_and_descends(retraction, metric, dtype):
    for shape in ((6, 6), (6, 4), (6, 2), (3, 1), (1, 1)):
        M, G = random_point(*shape, dtype=dtype)
        before = M.copy()
        if retraction == "polar" and dtype == np.longdouble:
            with refused("cayley", TypeError):
                step(M, G, 0.5, retraction, metric)
            return
        new = step(M, G, 0.5, retraction, metric)
        assert new.dtype == dtype and (M == before).all()
        # a few dozen operations on entries of size 1
        assert abs(new.T @ new - np.eye(shape[1])).max() <= 100 * np.finfo(dtype).eps
        if shape[0] > 1:
            small = step(M, G, 1e-3, retraction, metric)
            assert inner(G, small) < inner(G, M)


def test_small_steps_agree_with_the_solve():
    """At every rate, by the iteration or not, a Cayley step is that of Gaussian elimination: what
    is cut off is a quarter of an eps, M - r X is rounded by half an eps of its entries on either
    side, and r X by some N eps of r ||G||, the sums of N terms in S, M S and the solve."""
    for dtype in (np.float32, np.float64):
        eps = np.finfo(dtype).eps
        for shape in ((1, 1), (5, 5), (64, 64), (300, 300), (9, 7), (40, 6), (300, 20)):
            M, G = random_point(*shape, dtype=dtype)
            size = np.linalg.norm(M)
            for rate in 10.0 ** np.arange(-12, 2):
                fast = step(M, G, rate)
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(linalg, "MOST", -1)
                    slow = step(M, G, rate)
                turned = min(rate, 1) * shape[0] * eps  # ||G|| = 1; a step is bounded by 2 ||M||
                assert np.linalg.norm(fast - slow) <= eps / 4 + eps * size + 8 * turned * size


@pytest.mark.parametrize("retraction", RETRACTIONS)
def test_determinant_never_changes(retraction):
    """The Cayley transform never reaches det -1 from det +1, at any rate; det -1 is reported."""
    rng = np.random.default_rng(3)
    for sign in (1, -1):
        M, G = random_point(4, 4, np.float64)
        M[:, 0] *= sign * determinant(M)
        assert determinant(M) == sign
        for rate in 10.0 ** rng.uniform(-3, 3, size=20):
            assert determinant(step(M, G, rate, retraction)) == sign
    assert determinant(M[:, :2]) == 0


@pytest.mark.parametrize(
    "shape, steps",
    [((16, 16), 30_000), ((8, 3), 10_000), pytest.param((16, 16), 100_000, marks=pytest.mark.slow)],
)
def test_float32_steps_do_not_drift(shape, steps):
    """Many Cayley steps in float32 end below 1e-5 (measured in float64), with the guard's few
    repairs; without it 20,000 end above."""
    rng = np.random.default_rng(4)
    M, _ = random_point(*shape, np.float32)
    G = rng.normal(size=(64, *shape)).astype(np.float32)
    free, repairs = M, 0
    for k in range(steps):
        M, _, repaired = guard(step(M, G[k % 64], 1e-2))
        repairs += repaired
    assert defect(M.astype(np.float64)) < 1e-5
    assert 0 < repairs < steps / 50
    if shape == (16, 16):
        for k in range(20_000):
            free = step(free, G[k % 64], 1e-2)
        assert defect(free.astype(np.float64)) > 1e-5


@pytest.mark.parametrize("shape", [(5, 3), (300, 263), (263, 263)])
@both_dtypes
def test_defect(shape, dtype):
    """Of a large matrix, made by parts, it is that of the whole: wherever one entry is off, as
    ``||M'M - I||_F`` says in float64, within ten times the rounding of sums of N products."""
    M = random_point(*shape, dtype)[0]
    for column in np.linspace(0, shape[1] - 1, 7).astype(int):
        off = M.copy()
        off[column, column] += 1
        E = off.astype(float).T @ off - np.eye(shape[1])
        tolerance = 10 * np.finfo(dtype).eps * shape[0] ** 0.5
        assert abs(defect(off) / np.linalg.norm(E) - 1) < tolerance


@given(points(tall=True))
def test_guard(point):
    """A repair takes a defect d to at most about 3/4 d^2, which a single column reaches; a good
    matrix is returned as it is."""
    M = point[0].astype(np.float64)
    same = guard(M)
    assert not same.repaired and same.M is M and same.defect == defect(M)
    for P in (1, 30):  # (1 + k eps) I has the defect 2 k sqrt(P) eps
        assert [guard(np.eye(P) * (1 + k * 2.0**-52)).repaired for k in (1, 3)] == [False, True]
    off = guard(M * (1 + 1e-5))
    assert off.repaired and off.defect > 1e-5
    left = guard(off.M).defect / off.defect**2  # 3/4 / sqrt(P) where all values are off alike
    assert left == pytest.approx(0.75 / M.shape[1] ** 0.5, rel=0.01)
    for hopeless in (2 * M, 0 * M, M * np.nan):
        with refused("start from an orthogonal one"):
            guard(hopeless)


def test_wrong_arguments_are_named():
    M = np.eye(3)
    with refused("retraction 'newton' is unknown; choose one of cayley"):
        step(M, M, 0.1, "newton")
    for retraction in RETRACTIONS:
        with refused("metric 'flat' is unknown"):
            step(M, M, 0.1, retraction, "flat")
    with refused("transpose a wide matrix"):
        step(M[:2], M[:2], 0.1)
    with refused(r"its gradient \(3, 2\)"):
        step(M, M[:, :2], 0.1)


@given(points(tall=True), RATE)
def test_the_exactness_test_rejects(point, rate):
    """A step with the rate left out of one side does not keep the columns orthonormal."""
    M, G = point
    A = matmul(G, M.T) - matmul(M, G.T)
    assume((matmul(A, M) != 0).any() and rate != 1)
    identity = eye(len(M), object)
    wrong = matmul(solve(identity + times(HALF, A), identity - times(rate / 2, A)), M)
    assert (matmul(wrong.T, wrong) != eye(M.shape[1], object)).any()
