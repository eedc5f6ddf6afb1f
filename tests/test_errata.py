"""The errata of the papers, each settled: the printed form fails, the corrected one holds.

001 is Manchev & Spratling, 002 Vorontsov et al., 003 a summary of it, 000 Merity's post, 004
Orhan's. Wording only, and so without a test: 20 (001's summary means IRNN [9], not [10]) and
29 (002, 3.1.1: T = 1000 and 10000, not 10000 twice). Exact wherever a rational can be.
"""

import itertools
import math
from fractions import Fraction as F

import numpy as np
import pytest

from refnet.analysis.memory import fisher_memory, total_memory
from refnet.analysis.spectra import spectral_radius
from refnet.maths.activations import ACTIVATIONS
from refnet.maths.dual import dual_array, parts
from refnet.matrices.initializers import initialize
from refnet.matrices.orthogonality import (defect, defect_and_gradient, open_penalty,
                                           orthogonalization_experiment, orthogonalize)
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.gradients import state_jacobians
from refnet.nets.recurrent import RecurrentNet
from refnet.training.optimizers import RMSprop

SOFTSIGN = ACTIVATIONS["softsign"]
EYE = np.eye(2, dtype=int)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def rational(*rows):
    return np.array([[F(value) for value in row] for row in rows])


W1 = rational((1, -2), (3, F(1, 2)))
W2 = rational((2, 1), (-1, F(1, 3)))
ROTATION = rational((F(3, 5), F(-4, 5)), (F(4, 5), F(3, 5)))
SHEAR = rational((1, 1), (0, 1))


def jacobian(function, at):
    """d function / d at, exact: one push of dual numbers for each column."""
    columns = []
    for i in range(len(at)):
        direction = np.array([F(int(i == j)) for j in range(len(at))])
        columns.append(parts(function(dual_array(at, direction)))[1])
    return np.stack(columns, axis=1)


def softsign(a):
    return SOFTSIGN.forward(a, {})


def slopes(a):
    """f' of softsign as a diagonal matrix."""
    one = np.array([F(1)] * len(a))
    return np.diag(SOFTSIGN.backward(a, softsign(a), one, {})[0])


def differ(a, b):
    return a.shape != b.shape or bool((a != b).any())


A1 = np.array([F(1, 2), F(-3)])  # a pre-activation


def test_erratum_01_norm_not_spectral_radius(rng):
    """rho < 1 lets gradients grow at first; ||W|| sup |f'| < 1 makes every step shrink them."""
    W = np.array([[0.5, 10], [0, 0.5]])
    assert spectral_radius(W) == 0.5 and np.linalg.norm(W, 2) > 10
    net = RecurrentNet(1, 2, 1, activation=ACTIVATIONS["identity"])
    params = net.init(rng, np.float64) | {"Whh": W}
    norms = np.linalg.norm(state_jacobians(net, params, np.zeros((6, 1, 1)))[:, 0], 2, (1, 2))
    assert norms[5] > 10 * norms[6] and norms[4] > norms[6]
    W = 0.9 * initialize("orthogonal", (2, 2), rng) @ np.diag([1, 0.3])
    norms = np.linalg.norm(state_jacobians(net, params | {"Whh": W}, np.zeros((6, 1, 1)))[:, 0],
                           2, (1, 2))
    assert (norms[:-1] < 0.91 * norms[1:]).all()


def test_erratum_02_state_jacobian():
    """diag(f'(a_i)) W, not W' diag(f(h_{i-1}))."""
    h = np.array([F(1, 3), F(-1, 2)])
    exact = jacobian(lambda state: softsign(W1 @ state), h)
    assert not differ(exact, slopes(W1 @ h) @ W1)
    assert differ(exact, W1.T @ np.diag(softsign(h)))
    assert differ(exact, W1.T @ slopes(W1 @ h))


def test_erratum_03_output_layer():
    """W h + b, as in the hidden layers; h W does not even fit unless W is square."""
    net = FeedforwardNet((2, 2, 3), activation=SOFTSIGN)
    p = {"W1": W1, "b1": A1, "W2": rational((1, 2), (3, 4), (5, 6)), "b2": rational((7, 8, 9))[0]}
    x = rational((F(1, 2), -3))
    y, _ = net.forward(p, x)
    h = softsign(W1 @ x[0] + A1)
    assert not differ(y[0], p["W2"] @ h + p["b2"])
    with pytest.raises(ValueError):
        h @ p["W2"]


def every_sign(*shapes):
    """All matrices of those shapes with entries +-1: zero mean, variance 1, independent."""
    sizes = [rows * columns for rows, columns in shapes]
    for signs in itertools.product((-1, 1), repeat=sum(sizes)):
        pieces = np.split(np.array(signs), np.cumsum(sizes)[:-1])
        yield [piece.reshape(shape) for piece, shape in zip(pieces, shapes)]


def test_erratum_04_variance_takes_the_fan_in():
    """E v_2^2 = (fan-in of W2) (fan-in of W1) = 2 * 3; the layers' sizes would give 1 * 2."""
    x = np.ones(3, int)
    squares = [((B @ A @ x) ** 2).sum() for A, B in every_sign((2, 3), (1, 2))]
    assert F(sum(squares), len(squares)) == 2 * 3


def test_erratum_05_backward_is_a_matrix_product():
    """dE/dv_l = f'(v_l) o (W_{l+1}' dE/dv_{l+1})."""
    g = np.array([F(2), F(-5)])
    exact = jacobian(lambda v: np.array([(g * (W2 @ softsign(v))).sum()]), A1)[0]
    slope = np.diag(slopes(A1))
    assert not differ(exact, slope * (W2.T @ g))
    assert differ(exact, (slope * W2) * g)      # the printed one is a matrix
    assert differ(exact, slope * (W2 @ g))


def test_erratum_06_weight_gradient_is_an_outer_product():
    """dE/dW = (dE/dv) h', with the shape of W."""
    h, g = np.array([F(1), F(-2), F(3)]), np.array([F(5), F(7)])
    W = rational((1, 2, 3), (4, 5, 6))
    exact = jacobian(lambda w: np.array([(g * (w.reshape(2, 3) @ h)).sum()]), W.ravel())
    assert not differ(exact.reshape(2, 3), np.outer(g, h))
    with pytest.raises(ValueError):
        h * g


def test_erratum_07_range_and_fan_out():
    """Var dE/dv_1 = Var g prod_{i=2..3} fan-out_i Var W_i = 2 (2^2) 1 (3^2), for layers of 3,
    2 and 1 units; the printed range i = 1..2 contains W_1, which is not on the way."""
    values = [(2 * A.T @ (3 * B.T) @ np.ones(1, int)) ** 2 for A, B in
              every_sign((2, 3), (1, 2))]
    mean = sum(value[0] for value in values) / F(len(values))
    assert mean == (2 * 4) * (1 * 9)
    for var_w1 in (1, 25):
        assert mean != (3 * var_w1) * (2 * 4)


def test_errata_08_and_09_variances_of_gradients():
    """With n = 2 units everywhere, lmax = 2 hidden layers, Var W = 1, x^2 = 4, g^2 = 9:
    Var dE/dv_l = [n Var W]^(lmax + 1 - l) Var g, and Var dE/dW_l = [n Var W]^lmax Var x Var g
    for every l; printed were Var x, and the exponent lmax + 1."""
    x, g = np.array([2, 2]), np.array([3, 3])
    dv1, dW1, dW2, count = 0, 0, 0, 0
    for A, B, C in every_sign((2, 2), (2, 2), (2, 2)):
        dv2 = C.T @ g
        dv1 += (B.T @ dv2)[0] ** 2
        dW1 += ((B.T @ dv2)[0] * x[0]) ** 2
        dW2 += (dv2[0] * (A @ x)[0]) ** 2
        count += 1
    assert F(int(dv1), count) == 2 ** 2 * 9 != 2 ** 2 * 4
    assert F(int(dW1), count) == F(int(dW2), count) == 2 ** 2 * 4 * 9 != 2 ** 3 * 4 * 9


def test_erratum_10_glorot_is_uniform(rng):
    """Normalised initialisation fills its interval evenly; a Gaussian of that variance leaves
    it in 8% of the entries (beyond sqrt(3) standard deviations)."""
    limit = math.sqrt(6 / 300)
    W = initialize("glorot_uniform", (100, 200), rng)
    assert 0.999 * limit < abs(W).max() <= limit
    outside = (abs(initialize("glorot_normal", (100, 200), rng)) > limit).mean()
    assert abs(outside - 0.0833) < 5 * math.sqrt(0.0833 / W.size)


def test_erratum_11_norm_needs_orthonormal_columns():
    tall = np.array([[F(3, 5)], [F(4, 5)]])
    x = np.array([F(7)])
    assert ((tall @ x) ** 2).sum() == (x ** 2).sum()
    y = np.array([F(4, 5), F(-3, 5)])
    assert defect(tall.T) == 0 and ((tall.T @ y) ** 2).sum() == 0 != (y ** 2).sum()


def test_erratum_12_tall_matrices():
    """||W W' - I||^2 = ||W' W - I||^2 + rows - columns: never below rows - columns."""
    for W in (rational((1, 2), (0, F(1, 2)), (-1, 3)), rational((1, 0), (0, 1), (0, 0))):
        assert defect(W, side="rows") == defect(W, side="columns") + 1
    assert defect(rational((1, 0), (0, 1), (0, 0))) == 0


def expected_defect(m, variance, fourth):
    """E ||X X' - I||_F^2 for m x m independent entries of mean 0."""
    return m * m * fourth + 2 * m * m * (m - 1) * variance ** 2 - 2 * m * m * variance + m


def test_errata_13_and_16_mean_of_the_defect():
    """Over all X with entries -1 (chance 2/3) or 2 (1/3): variance 2, fourth moment 6. The
    entries of X X' are not i.i.d.: the diagonal's mean is m s^2. Nor is E f the entries' mean,
    0, which 001 takes for that of its Gaussian process."""
    mean = F(0)
    for entries in itertools.product((-1, 2), repeat=4):
        chance = F(2, 3) ** entries.count(-1) * F(1, 3) ** entries.count(2)
        mean += chance * defect(np.array([F(e) for e in entries]).reshape(2, 2))
    assert mean == expected_defect(2, 2, 6)
    assert mean != 4 * 2 + 2 and mean != 0      # printed (23), and mu_x
    assert expected_defect(100, F(1, 100), F(3, 10 ** 4)) == 101 != 100 ** 2 * F(1, 100) + 100
    uniform = expected_defect(100, F(1, 300), F(1, 5 * 10 ** 4))
    assert round(float(uniform), 2) == 55.53


def variance_of_defect(m, s2):
    """Var ||X X' - I||_F^2 for m x m entries N(0, s2), from the Wishart matrix G = X X' / s2:
    f = s2^2 tr G^2 - 2 s2 tr G + m, with Var tr G = 2 m^2, Cov(tr G, tr G^2) = 4 E tr G^2 =
    4 m^2 (2 m + 1) (E tr G^2 is quadratic in the scale, whose statistic is tr G) and
    Var tr G^2 = 4 m^2 (9 m^2 + 10 m + 5)."""
    return (s2 ** 4 * 4 * m * m * (9 * m * m + 10 * m + 5) + 4 * s2 ** 2 * 2 * m * m
            - 4 * s2 ** 3 * 4 * m * m * (2 * m + 1))


def test_erratum_14_variance_of_the_defect(rng):
    """12.2 at m = 100, s = .1, where (26) has 4.0. Exactly, for m = 2, by a quadrature that
    gives all moments of a Gaussian up to the 9th; and by simulation (the sample variance of a
    nearly normal variable has the relative standard error sqrt(2 / N))."""
    nodes, chances = np.polynomial.hermite_e.hermegauss(5)
    chances = chances / chances.sum()
    first = second = 0.0
    for index in itertools.product(range(5), repeat=4):
        f = float(defect(0.5 * nodes[list(index)].reshape(2, 2)))
        chance = chances[list(index)].prod()
        first, second = first + chance * f, second + chance * f * f
    assert abs(second - first ** 2 - variance_of_defect(2, 0.25)) < 1e-12
    assert abs(first - expected_defect(2, 0.25, 3 * 0.25 ** 2)) < 1e-12

    true, printed = variance_of_defect(100, 0.01), 2 * 1e4 * 1e-4 + 2 * 100 * 0.01
    assert round(true, 1) == 12.2 and printed == pytest.approx(4)
    N = 600
    sample = np.array([defect(initialize("gaussian", (100, 100), rng)) for _ in range(N)])
    assert abs(sample.mean() - 101) <= 5 * math.sqrt(true / N)
    assert abs(sample.var() - true) <= 5 * true * math.sqrt(2 / N) < true - printed


def test_erratum_15_fourth_moment_of_a_uniform():
    """b^4 / 5, which the paper's own general formula gives, and Var X^2 = 4 b^4 / 45."""
    b = F(3, 7)
    exact = (b ** 5 - (-b) ** 5) / 5 / (2 * b)      # the integral of x^4 over the density
    general = sum((-b) ** i * b ** (4 - i) for i in range(5)) / F(5)
    assert exact == general == b ** 4 / 5 != 3 * b ** 4 / 5
    assert exact - (b ** 2 / 3) ** 2 == 4 * b ** 4 / 45 != 22 * b ** 4 / 45


def test_erratum_17_it_does_not_always_converge(rng):
    """s -> s (1 + 4 a (1 - s^2)): a = .2 fails from Glorot at n = 100 every time, a = .1 does
    not; a = 1/8 is Newton-Schulz. (The bounds: tests/test_orthogonality.py.)"""
    assert orthogonalization_experiment("glorot_normal", runs=10, rate=0.2).success_rate == 0
    assert orthogonalization_experiment("glorot_normal", runs=10, rate=0.1).success_rate == 1
    with pytest.raises(ValueError, match="grow without bound"):
        orthogonalize(initialize("glorot_normal", (100, 100), rng), 0.2)
    s = F(2, 3)
    assert s * (1 + 4 * F(1, 8) * (1 - s * s)) == s * (3 - s * s) / 2


def test_erratum_18_order_of_the_factors():
    """4 (W W' - I) W is the gradient; 4 W (W W' - I) equals it only for a normal W."""
    for W, normal in ((SHEAR, False), (W1, False), (ROTATION * F(2), True), (W1 + W1.T, True)):
        E = W @ W.T - EYE
        exact = jacobian(lambda w: np.array([defect(w.reshape(2, 2))[()]]), W.ravel())
        assert not differ(exact.reshape(2, 2), 4 * E @ W)
        assert differ(exact.reshape(2, 2), 4 * W @ E) != normal


def test_erratum_19_the_penalty_sums_over_layers():
    value, grads = open_penalty({"W1": W1, "W2": W2}, F(1, 3))
    assert value == (defect(W1) + defect(W2)) / 3 != defect(W1) / 3
    assert not differ(grads["W2"], defect_and_gradient(W2)[1] / 3)


def test_errata_21_and_34_order_of_the_chain():
    """da_{i+1}/da_i = W_{i+1} D_i: (dh_i/da_i first, so on the right); 002 prints D_i W_{i+1}.
    003 prints dh_i/da_i da_i/dh_i, but a_i does not depend on h_i: it is dh_j/da_j
    da_{j+1}/dh_j. (003 also means factorised, not factorial, and Cayley.)"""
    exact = jacobian(lambda a: W1 @ softsign(a), A1)
    assert not differ(exact, W1 @ slopes(A1)) and differ(exact, slopes(A1) @ W1)
    two = jacobian(lambda a: W2 @ softsign(W1 @ softsign(a)), A1)
    A2 = W1 @ softsign(A1)
    assert not differ(two, W2 @ slopes(A2) @ W1 @ slopes(A1))
    denominator = slopes(A1) @ W1.T @ slopes(A2) @ W2.T
    assert not differ(two.T, denominator)       # the transpose: denominator layout
    assert differ(two, slopes(A1) @ W1 @ slopes(A1) @ W2)   # 003's D_i stands still


def test_erratum_22_eta_below_one_must_be_uniform():
    """eta <= 1 suffices for nothing (an orthogonal W keeps the norm), nor does eta_t < 1 at
    every t: prod (1 - 1 / t^2) tends to 1/2. sup eta < 1 does."""
    v = np.array([F(1), F(2)])
    for _ in range(50):
        v = ROTATION @ v
    assert (v * v).sum() == 5
    product = F(1)
    for t in range(2, 200):
        product *= 1 - F(1, t * t)
    assert product == F(200, 2 * 199) > F(1, 2)
    assert 0.99 ** 5000 < 1e-21


def test_erratum_23_frobenius_norm():
    """The 2-norm sees only the worst direction: it has no gradient for the other ones."""
    def two_norm(W):
        return np.linalg.norm(W.T @ W - np.eye(2), 2) ** 2

    near, far = np.diag([2, 1.0]), np.diag([2, 1.5])
    assert two_norm(near) == two_norm(far) == 9
    assert defect(near) == 9 < defect(far) == 9 + 1.25 ** 2


def test_erratum_24_singular_values_can_be_zero():
    assert np.linalg.svd(np.diag([2.0, 0.0]), compute_uv=False).tolist() == [2, 0]


def cayley(A, M, rate):
    """(I + rate/2 A)^-1 (I - rate/2 A) M for 2 x 2 matrices, exact: A is skew."""
    I = np.array([[F(1), F(0)], [F(0), F(1)]])
    P = I + rate / 2 * A
    adjugate = np.array([[P[1, 1], -P[0, 1]], [-P[1, 0], P[0, 0]]])
    inverse = adjugate / (P[0, 0] * P[1, 1] - P[0, 1] * P[1, 0])
    return inverse @ (I - rate / 2 * A) @ M


def test_erratum_25_cayley_multiplies():
    """M' M == I after (...)^-1 (...) M; not after M + (...)^-1 (...)."""
    A = W1 @ ROTATION.T - ROTATION @ W1.T
    moved = cayley(A, ROTATION, F(1, 3))
    assert not differ(moved.T @ moved, EYE) and differ(moved, ROTATION)
    printed = ROTATION + cayley(A, EYE, F(1, 3))
    assert differ(printed.T @ printed, EYE)


def test_erratum_26_a_retraction_not_a_geodesic():
    """Cayley and exp(-rate A) agree to second order: their difference falls like rate^3."""
    def difference(rate):
        A = np.array([[0, 1.0], [-1.0, 0]])
        c, s = math.cos(rate), math.sin(rate)   # exp(-rate A)
        P = np.linalg.solve(np.eye(2) + rate / 2 * A, np.eye(2) - rate / 2 * A)
        return abs(P - np.array([[c, -s], [s, c]])).max()

    for rate in (0.2, 0.1, 0.05):
        assert difference(rate) > 0
        # the leading term is rate^3 / 12, the next ones are of order rate^4 (here ^5)
        assert abs(difference(rate) / rate ** 3 - 1 / 12) < rate
    assert 7 < difference(0.1) / difference(0.05) < 9


def spectrum(p, m):
    return 2 * m * (1 / (1 + math.exp(-p)) - 0.5) + 1


def test_erratum_27_open_range_and_large_margins():
    """Inside (1 - m, 1 + m), ends excluded; m > 1 gives negative s, no singular values."""
    for p in (-30, -1, 0, 1, 30):
        assert 0.5 < spectrum(p, 0.5) < 1.5
    assert spectrum(-5, 2) < 0 < spectrum(-5, 1)


def test_erratum_28_dividing_the_rate_by_2m():
    """At p = 0 (sigma' = 1/4) with dL/ds = 1: dp is free of m, ds = 2m sigma' dp is not. Under
    RMSprop, whose steps do not know the gradient's scale, dp becomes 1 / (2m) times as long."""
    rate = F(1, 10)
    moved = {}
    for m in (F(1, 100), F(1), F(10)):
        dp = rate / (2 * m) * (2 * m * F(1, 4))
        assert dp == rate / 4
        moved[m] = 2 * m * F(1, 4) * dp
        rule = RMSprop(float(rate / (2 * m)), decay=0, eps=0)
        p = {"p": np.zeros(1)}
        after, _ = rule.step(p, {"p": np.array([float(2 * m / 4)])}, rule.init(p))
        assert after["p"][0] == pytest.approx(-float(rate / (2 * m)), rel=1e-15)
    assert moved[F(1)] == 100 * moved[F(1, 100)] == moved[F(10)] / 10


def test_erratum_30_baselines_of_adding(rng):
    """The best constant's mean squared error: 1/6 for the sum of two U[0, 1), 1/24 for half."""
    one = F(1, 3) - F(1, 2) ** 2
    assert 2 * one == F(1, 6) and 2 * one / 4 == F(1, 24)
    sums = rng.random((2, 200_000)).sum(axis=0)
    # Var (x - mean)^2 = E d^4 - Var^2 = 1 / 15 - 1 / 36 for the triangular distribution
    assert abs(sums.var() - 1 / 6) <= 5 * math.sqrt((1 / 15 - 1 / 36) / 200_000)
    assert abs((sums / 2).var() - 1 / 24) <= 5 * math.sqrt((1 / 15 - 1 / 36) / 16 / 200_000)


def test_erratum_31_side_of_the_skew_matrix():
    """Along -A W with A = G W' - W G' the loss falls by ||A||^2 / 2; with 002's code's
    A = G' W - W' G, still on the left, it can rise."""
    W = rational((0, 1, 0), (F(-3, 5), 0, F(4, 5)), (F(4, 5), 0, F(3, 5)))
    assert not differ(W @ W.T, np.eye(3, dtype=int))
    signs = set()
    for entries in itertools.islice(itertools.product((-1, 0, 2), repeat=9), 0, None, 97):
        G = np.array([F(e) for e in entries]).reshape(3, 3)
        A = G @ W.T - W @ G.T
        assert (G * -(A @ W)).sum() == -(A * A).sum() / 2 <= 0
        printed = G.T @ W - W.T @ G
        signs.add(bool((G * -(printed @ W)).sum() > 0))
    assert signs == {True, False}


def test_erratum_32_unit_eigenvalues_are_not_enough():
    """The shear has both eigenvalues 1, and its n-th power the entry n; a rotation is normal."""
    power = EYE
    for n in range(1, 50):
        power = power @ SHEAR
        assert power[0, 1] == n
    assert not differ(np.linalg.matrix_power(ROTATION, 49).T
                      @ np.linalg.matrix_power(ROTATION, 49), EYE)


def test_erratum_33_signs_of_qr(rng):
    """LAPACK's Q has a first entry of one sign; Haar's has either. (All of the distribution:
    tests/test_initializers.py.)"""
    draws = [rng.normal(size=(4, 4)) for _ in range(200)]
    assert {np.sign(np.linalg.qr(G)[0][0, 0]) for G in draws} == {-1.0}
    mean = np.mean([initialize("orthogonal", (4, 4), rng)[0, 0] for _ in draws])
    assert abs(mean) <= 5 * math.sqrt(1 / 4 / 200)


def test_erratum_35_powers_against_products(rng):
    """rho(W^n) exceeds rho of a product of n draws by a factor whose n-th root falls towards
    1 as N grows: log rho(W) and the product's exponent both tend to 0 for N(0, 1/N)."""
    def gap(N, runs, n=10):
        """Mean of (log rho(W^n) - log rho(product)) / n, and its standard error."""
        draws = rng.normal(size=(runs, n, N, N)) / math.sqrt(N)
        gaps = [math.log(spectral_radius(W[0]))
                - math.log(spectral_radius(np.linalg.multi_dot(W))) / n for W in draws]
        return np.mean(gaps), np.std(gaps) / math.sqrt(runs)

    (small, error), (large, large_error) = gap(4, 1500), gap(60, 120)
    assert large > 5 * large_error
    assert small - large > 5 * math.hypot(error, large_error)


def test_erratum_36_a_chain_amplifies_only_above_one():
    """||W^k v|| = a^k down the chain, then 0. At a = 1 J_tot is the harmonic number H_N."""
    N = 12
    v = np.eye(N)[0]
    for gain, grows in ((0.9, False), (1, False), (1.02, True)):
        W = initialize("chain", (N, N), None, gain=gain)
        norms = [np.linalg.norm(np.linalg.matrix_power(W, k) @ v) for k in range(N + 1)]
        assert (max(norms) > 1) == grows and norms[N] == 0
    W = initialize("chain", (N, N), None, gain=1)
    harmonic = sum(F(1, k) for k in range(1, N + 1))
    assert abs(total_memory(W, v) - float(harmonic)) < 1e-12
    assert np.allclose(fisher_memory(W, v, N), 1 / np.arange(1, N + 1), rtol=1e-12)
