"""Spectra, departure from normality and Fisher memory against closed forms."""

import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.random import default_rng

from refnet.analysis.memory import (
    chain_memory,
    fisher_memory,
    noise_covariance,
    normal_memory,
    peak_order,
    signal_to_noise,
    total_memory,
)
from refnet.analysis.spectra import (
    henrici,
    numerical_range,
    pseudospectrum,
    schur_form,
    singular_values,
    spectral_radius,
)
from refnet.maths.linalg import solve
from refnet.matrices.initializers import initialize
from support.arguments import refused

EPS = np.finfo(float).eps


@pytest.fixture
def rng():
    return default_rng(0)


def head(size):
    """The input that feeds unit 0 alone."""
    return np.eye(size)[0]


def tolerance(W, noise=1):
    """Solving with C loses about its condition number; the constant covers the n-fold sums."""
    return 10 * len(W) * EPS * np.linalg.cond(noise_covariance(W, noise))


def test_spectra():
    c, s = math.cos(1), math.sin(1)
    W = np.array([[c, -s, 5], [s, c, 7], [0, 0, 0.3]]) * 2
    assert spectral_radius(W) == pytest.approx(2, rel=100 * EPS)
    assert spectral_radius(np.eye(4, k=-1)) == 0
    summary = singular_values(np.diag([3.0, 1.0, 2.0, 2.0])[:, :3])
    assert summary == pytest.approx((1, 2, 3, math.sqrt(2 / 3), 3), rel=100 * EPS)
    assert singular_values(np.diag([1.0, 0.0])).condition == math.inf
    assert singular_values(np.eye(2, 5, dtype=np.float32)) == (1, 1, 1, 0, 1)


@pytest.mark.parametrize(
    "W, exact",
    [
        (np.array([[1.0, 1.0], [0.0, 1.0]]), 1),
        (np.array([[2.0, -3.0], [3.0, 2.0]]), 0),
        (initialize("orthogonal", (9, 9), default_rng(1)), 0),
        (initialize("chain", (50, 50), default_rng(0)), 1.02 * math.sqrt(49)),
        (np.diag([1.0, -2.0, 3.0]), 0),
        (np.zeros((0, 0)), 0),
    ],
)
def test_henrici(W, exact):
    assert abs(henrici(W) - exact) <= 10 * len(W) * EPS * np.linalg.norm(W)


def test_henrici_is_the_formula(rng):
    """The formula of the text, whose cancellation the Schur form avoids."""
    W = rng.normal(size=(20, 20))
    formula = np.linalg.norm(W) ** 2 - (abs(np.linalg.eigvals(W)) ** 2).sum()
    assert abs(henrici(W) ** 2 - formula) <= 10 * 20 * EPS * np.linalg.norm(W) ** 2


def test_schur_form(rng):
    """The factors make W again, in an orthonormal basis; nothing is below the diagonal; a normal
    matrix has no strict part, a chain nothing else; and noise and memory are those of the form."""
    for W in (
        rng.normal(size=(9, 9)),
        initialize("chain", (9, 9), rng),
        initialize("orthogonal", (9, 9), rng),
        np.diag(np.arange(9.0)),
        np.zeros((0, 0)),
    ):
        l, strict, Q = schur_form(W)
        scale = 100 * EPS * max(1, abs(W).max(initial=0))
        assert abs(Q.conj().T @ Q - np.eye(len(W))).max(initial=0) <= scale
        assert abs(Q @ (np.diag(l) + strict) @ Q.conj().T - W).max(initial=0) <= scale
        assert (np.tril(strict) == 0).all()
        assert abs(np.linalg.norm(strict) - henrici(W)) == 0
    assert abs(schur_form(initialize("orthogonal", (9, 9), rng)).strict).max() <= 100 * EPS
    chain = schur_form(initialize("chain", (9, 9), rng, gain=1.5))
    assert abs(chain.eigenvalues).max() < 1e-1  # the ninth root of rounding, at most
    assert abs(np.sort(np.linalg.svd(chain.strict)[1])[1:] - 1.5).max() < 0.1


def test_noise_covariance(rng):
    W = 0.9 * initialize("orthogonal", (6, 6), rng) + 0.3 * np.eye(6, k=-3)
    C = noise_covariance(W, 2)
    assert abs(C - W @ C @ W.T - 2 * np.eye(6)).max() <= tolerance(W, 2) * abs(C).max()
    power, total = np.eye(6), np.zeros((6, 6))
    for _ in range(3000):
        total, power = total + 2 * power @ power.T, power @ W
    assert abs(C - total).max() <= tolerance(W, 2) * abs(C).max()
    grows, square = np.array([[2.0, 1], [0, -1]]), np.array([[4.0, 1], [0, 1]])
    of_three = (np.eye(2) + grows @ grows.T + square @ square.T) / 2
    assert (noise_covariance(grows, 0.5, horizon=3) == of_three).all()


@pytest.mark.parametrize("start", ["chain:gain=0.2,diagonal=0.9", "chain:gain=3"])
def test_noise_beyond_float64_is_refused(start):
    """J_tot would come out as 65 of at most 50, and diagonal entries of C as negative."""
    W = initialize(start, (50, 50), default_rng(0))
    for function in (total_memory, lambda W, v: fisher_memory(W, v, 9)):
        with refused("amplifies noise to .* a horizon"):
            function(W, head(50))


def test_a_graded_covariance_is_held(rng):
    """Its condition number is 1e22, but J_tot has all digits: only its scale varies."""
    exact = sum((1 - 1e-2) / (1 - 1e-2**k) for k in range(1, 13))
    assert abs(total_memory(initialize("chain:gain=10", (12, 12), rng), head(12)) - exact) < 1e-9


@pytest.mark.parametrize("gain", [0.8, 1, 1.02, 1.3])
def test_closed_forms(gain):
    """A chain of squared gain g: J(k) = g^k (g - 1) / (g^(k+1) - 1), 1 / (k + 1) at g = 1."""
    N = 20
    W = initialize("chain", (N, N), default_rng(0), gain=gain)
    J = fisher_memory(W, head(N), N + 2)
    exact = chain_memory(gain, N)
    assert abs(J[:N] - exact).max() <= tolerance(W)
    assert abs(J[N:]).max() <= tolerance(W)  # past the end of the chain nothing is left
    assert abs(total_memory(W, head(N)) - exact.sum()) <= N * tolerance(W)


def test_normal_matrices(rng):
    """sum_i |v_i|^2 |l_i|^2k (1 - |l_i|^2) in the eigenvectors' frame; J_tot = 1."""
    N = 8
    V = initialize("orthogonal", (N, N), rng)
    l = np.linspace(-0.9, 0.8, N)
    v = rng.normal(size=N)
    v /= np.linalg.norm(v)
    W = V * l @ V.T
    exact = normal_memory(l, (V.T @ v) ** 2, 30)
    assert abs(fisher_memory(W, v, 30) - exact).max() <= tolerance(W)
    assert abs(total_memory(W, v) - 1) <= tolerance(W)
    scaled = 0.9 * initialize("orthogonal", (N, N), rng)
    assert abs(total_memory(scaled, v) - 1) <= tolerance(scaled)
    assert fisher_memory(W, v, 3, noise=4) == pytest.approx(exact[:3] / 4, rel=tolerance(W))


def in_fractions(W, steps):
    """J(k) over a horizon of ``steps`` from the covariance itself, for v = .5 and noise .5 in
    every unit: exact, where float64 loses every digit."""
    W = np.array([[Fraction(entry) for entry in row] for row in W])
    power, C, signals = np.vectorize(Fraction)(np.eye(len(W))), 0, []
    for _ in range(steps):
        signals.append(power.sum(axis=1) / 2)
        C = C + power @ power.T / 2
        power = W @ power
    return np.array([float(signal @ solve(C, signal[:, None])[:, 0]) for signal in signals])


def test_finite_horizon(rng):
    """J(k) of an orthogonal W over a horizon of n steps is 1 / n for each of them; a longer
    horizon only adds noise, and tends to the stationary J where there is one."""
    W, v = initialize("orthogonal", (6, 6), rng), head(6)
    assert abs(fisher_memory(W, v, 9, horizon=9) - 1 / 9).max() < 100 * EPS
    grown = 1.1 * initialize("chain", (6, 6), rng) + 0.5 * np.eye(6)
    curves = [fisher_memory(grown, v, 5, horizon=n) for n in (5, 10, 400)]
    assert (curves[0] >= curves[1]).all() and (curves[1] >= curves[2] * (1 - 1e-9)).all()
    assert abs(curves[2] - fisher_memory(grown, v, 5)).max() <= tolerance(grown)
    mixed = np.array([[5, 3, 0, 0], [0, 0.25, 2, 0], [0, 0, 0.5, 1], [0, 0, 0, -3]])  # some grow
    for steps in (1, 2, 30):
        memory = fisher_memory(mixed, np.full(4, 0.5), steps, noise=0.5, horizon=steps)
        assert (memory >= 0).all()
        assert abs(memory - in_fractions(mixed, steps)).max() <= 100 * steps * EPS


def test_signal_to_noise(rng):
    """An orthogonal W has 1 / (H (k + 1)); a chain that amplifies does better."""
    W, k = initialize("orthogonal", (6, 6), rng), np.arange(5)
    assert abs(signal_to_noise(W, head(6), 5, noise=2) * 12 * (k + 1) - 1).max() < 100 * EPS
    chain = signal_to_noise(initialize("chain", (6, 6), rng, gain=1.3), head(6), 5)
    assert (chain[1:] > signal_to_noise(W, head(6), 5)[1:]).all()


def test_peak_order(rng):
    """A chain whose units are shuffled is found by the order in which they become active."""
    shuffle = rng.permutation(8)
    W = initialize("chain", (8, 8), rng, gain=0.9)[np.ix_(shuffle, shuffle)]
    state, states = np.eye(8)[list(shuffle).index(0)], []
    for _ in range(8):
        states.append(state)
        state = W @ state
    profile, order = peak_order(np.array(states)[:, None], W)
    assert (shuffle[order] == np.arange(8)).all()
    assert abs(profile[8] - 0.9) < 4 * EPS and abs(np.delete(profile, 8)).max() == 0
    assert len(peak_order(np.array(states)[:, None], W, widest=2)[0]) == 5


def test_numerical_range(rng):
    """A normal matrix: the hull of its eigenvalues. A 2 x 2 Jordan block: a disc of half its
    corner. Any: it contains the eigenvalues, and its points are x* W x."""
    normal = np.array([[0, -2.0], [2, 0]])
    assert abs(abs(numerical_range(normal, 8).imag).max() - 2) < 10 * EPS
    assert abs(numerical_range(normal, 8).real).max() < 10 * EPS
    block = numerical_range(np.array([[0, 3.0], [0, 0]]), 20)
    assert abs(abs(block) - 1.5).max() < 10 * EPS
    W = rng.normal(size=(7, 7))
    boundary = numerical_range(W, 60)
    for angle in np.linspace(0, 2 * np.pi, 13):
        turned = np.exp(-1j * angle)
        assert (turned * np.linalg.eigvals(W)).real.max() <= (turned * boundary).real.max() + 0.05


def test_pseudospectrum(rng):
    """The distance to the next eigenvalue for a normal W; for a chain far less; and it is the
    smallest perturbation that makes z an eigenvalue."""
    W, z = np.diag([1.0, -2.0, 0.5]), np.array([[0.7 + 0.2j, -1], [3j, 0.5]])
    distance = abs(z[..., None] - np.diag(W)).min(axis=-1)
    assert abs(pseudospectrum(W, z) - distance).max() < 10 * EPS
    chain = initialize("chain", (12, 12), rng, gain=1)
    assert pseudospectrum(chain, np.array([0.5]))[0] < 0.5**12
    W, point = rng.normal(size=(5, 5)), 0.3 + 0.4j
    u, s, vh = np.linalg.svd(point * np.eye(5) - W)
    perturbed = W + s[-1] * np.outer(u[:, -1], vh[-1])
    assert abs(np.linalg.eigvals(perturbed) - point).min() < 1e-12
    assert abs(pseudospectrum(W, np.array(point)) - s[-1]) < 100 * EPS


@pytest.mark.parametrize(
    "function, arguments, message",
    [
        (schur_form, (np.full((2, 2), np.nan),), "schur_form: W has entries that are not finite"),
        (fisher_memory, (np.eye(2) / 2, head(2), 6, 1, 5), "delays is 6 but the horizon 5"),
        (peak_order, (np.ones((3, 8)), np.eye(8)), "need .T, B, H. with H = 8"),
        (noise_covariance, (np.eye(2),), "spectral radius 1, so the noise grows without end"),
        (fisher_memory, (np.eye(2) / 2, np.ones(3), 1), r"v has shape \(3,\); need \(2,\)"),
        (total_memory, (np.eye(2) / 2, np.ones((2, 1))), r"need \(2,\), because W is \(2, 2\)"),
    ],
)
def test_errors(function, arguments, message):
    with refused(message):
        function(*arguments)
