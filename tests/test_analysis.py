"""Spectra, departure from normality and Fisher memory against closed forms."""

import math

import numpy as np
import pytest

from refnet.analysis.memory import fisher_memory, noise_covariance, total_memory
from refnet.analysis.spectra import henrici, singular_values, spectral_radius
from refnet.matrices.initializers import initialize

EPS = np.finfo(float).eps


@pytest.fixture
def rng():
    return np.random.default_rng(0)


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


@pytest.mark.parametrize("W, exact", [
    (np.array([[1.0, 1.0], [0.0, 1.0]]), 1),
    (np.array([[2.0, -3.0], [3.0, 2.0]]), 0),
    (initialize("orthogonal", (9, 9), np.random.default_rng(1)), 0),
    (initialize("chain", (50, 50), None), 1.02 * math.sqrt(49)),
    (np.diag([1.0, -2.0, 3.0]), 0),
    (np.zeros((0, 0)), 0),
])
def test_henrici(W, exact):
    assert abs(henrici(W) - exact) <= 10 * len(W) * EPS * np.linalg.norm(W)


def test_henrici_is_the_formula(rng):
    """The formula of the text, whose cancellation the Schur form avoids."""
    W = rng.normal(size=(20, 20))
    formula = np.linalg.norm(W) ** 2 - (abs(np.linalg.eigvals(W)) ** 2).sum()
    assert abs(henrici(W) ** 2 - formula) <= 10 * 20 * EPS * np.linalg.norm(W) ** 2


def test_noise_covariance(rng):
    W = 0.9 * initialize("orthogonal", (6, 6), rng) + 0.3 * np.eye(6, k=-3)
    C = noise_covariance(W, 2)
    assert abs(C - W @ C @ W.T - 2 * np.eye(6)).max() <= tolerance(W, 2) * abs(C).max()
    power, total = np.eye(6), np.zeros((6, 6))
    for _ in range(3000):
        total, power = total + 2 * power @ power.T, power @ W
    assert abs(C - total).max() <= tolerance(W, 2) * abs(C).max()


@pytest.mark.parametrize("gain", [0.8, 1, 1.02, 1.3])
def test_closed_forms(gain):
    """A chain of squared gain g: J(k) = g^k (g - 1) / (g^(k+1) - 1), 1 / (k + 1) at g = 1."""
    N = 20
    W = initialize("chain", (N, N), None, gain=gain)
    J = fisher_memory(W, head(N), N + 2)
    g, k = gain ** 2, np.arange(N)
    exact = 1 / (k + 1) if gain == 1 else g ** k * (g - 1) / (g ** (k + 1) - 1)
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
    k = np.arange(30)[:, None]
    exact = ((V.T @ v) ** 2 * l ** (2 * k) * (1 - l ** 2)).sum(axis=1)
    assert abs(fisher_memory(W, v, 30) - exact).max() <= tolerance(W)
    assert abs(total_memory(W, v) - 1) <= tolerance(W)
    scaled = 0.9 * initialize("orthogonal", (N, N), rng)
    assert abs(total_memory(scaled, v) - 1) <= tolerance(scaled)
    assert fisher_memory(W, v, 3, noise=4) == pytest.approx(exact[:3] / 4, rel=tolerance(W))


def test_chain_orientation():
    """Erratum of 004's torch files: for W h the chain is below the diagonal (J_tot 5.54); the
    other way round unit 0 feeds nobody (.0065). The feedback chain likewise."""
    W = initialize("chain", (50, 50), None)
    assert round(total_memory(W, head(50)), 2) == 5.54
    assert round(total_memory(W.T.copy(), head(50)), 4) == 0.0065
    feedback = initialize("fbchain", (50, 50), None)
    assert total_memory(feedback, head(50)) > 4 > 0.1 > total_memory(feedback.T, head(50))
    assert abs(fisher_memory(feedback, head(50), 3000).sum()
               - total_memory(feedback, head(50))) <= 50 * tolerance(feedback)


@pytest.mark.parametrize("function, arguments, message", [
    (spectral_radius, (np.zeros((2, 3)),), r"shape \(2, 3\); need a square"),
    (henrici, (np.zeros(3),), r"shape \(3,\); need a square"),
    (spectral_radius, (np.array([[np.nan]]),), "not finite"),
    (singular_values, (np.array([[np.inf]]),), "not finite"),
    (singular_values, (np.zeros((0, 3)),), "matrix with entries"),
    (noise_covariance, (np.eye(2),), "spectral radius 1, so the noise piles up"),
    (fisher_memory, (np.eye(2) / 2, np.ones(3), 1), r"v has shape \(3,\); need \(2,\)"),
    (total_memory, (np.eye(2) / 2, np.ones((2, 1))), r"need \(2,\), because W is \(2, 2\)"),
])
def test_errors(function, arguments, message):
    with pytest.raises(ValueError, match=message):
        function(*arguments)
