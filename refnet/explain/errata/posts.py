"""Errata of two posts: Merity, Explaining and illustrating orthogonal initialization for recurrent
neural networks; Orhan, Common initialization schemes for recurrent neural networks are likely
suboptimal."""

import math
from collections.abc import Callable
from fractions import Fraction as F
from functools import partial

import numpy as np
from numpy.random import Generator

from refnet.analysis.memory import total_memory
from refnet.analysis.powers import power_norms, power_radii
from refnet.batch import Array
from refnet.explain.errata.base import AtLeast, AtMost, Comparison, Comparisons
from refnet.explain.errata.exact import ROTATION, SHEAR
from refnet.matrices.initializers import initialize

MERITY, ORHAN = "Merity", "Orhan"


def _e32(rng: Generator) -> Comparisons:
    shear, rotation = SHEAR.astype(float), ROTATION.astype(float)
    # the norm of [[1, n], [0, 1]] is (n + sqrt(n^2 + 4)) / 2
    yield Comparison(
        "||F^64|| of the shear",
        power_norms(shear, 64)[64],
        1.0,
        (64 + math.sqrt(64**2 + 4)) / 2,
        1e-12,
    )
    yield Comparison("||F^64|| of a rotation", power_norms(rotation, 64)[64], None, 1.0, 1e-12)


def _e33(rng: Generator) -> Comparisons:
    N = 2000

    def mean_sign(draw: Callable[[], Array]) -> float:
        return float(np.mean([np.sign(draw()[0, 0]) for _ in range(N)]))

    yield Comparison(
        "|mean sign of U_11| by singular values of 4 x 4 Gaussian matrices",
        abs(mean_sign(lambda: np.linalg.svd(rng.normal(size=(4, 4)))[0])),
        None,
        AtLeast(0.3),
    )
    yield Comparison(
        "|mean sign of Q_11| by plain QR",
        abs(mean_sign(lambda: np.linalg.qr(rng.normal(size=(4, 4)))[0])),
        None,
        1.0,
    )
    yield Comparison(
        "mean sign of Q_11, refnet's orthogonal initialiser",
        mean_sign(partial(initialize, "orthogonal", (4, 4), rng)),
        None,
        0.0,
        5 / math.sqrt(N),
    )


def _e35(rng: Generator) -> Comparisons:
    small, error = power_radii(4, 4000, 10, rng)
    large, large_error = power_radii(60, 120, 10, rng)
    yield Comparison(
        "log (rho(W^10) / rho(product)) / 10, mean at N = 60", large, None, AtLeast(5 * large_error)
    )
    yield Comparison(
        "the same at N = 4, less that at N = 60",
        small - large,
        None,
        AtLeast(5 * math.hypot(error, large_error)),
    )


def _e36(rng: Generator) -> Comparisons:
    N = 12
    head = np.eye(N)[0]

    def largest(gain: float) -> float:
        W, v, norms = initialize("chain", (N, N), rng, gain=gain), head, []
        for _ in range(N):
            v = W @ v
            norms.append(float(np.linalg.norm(v)))
        return max(norms)

    harmonic = float(sum(F(1, k) for k in range(1, N + 1)))
    yield Comparison("largest ||W^k v||, k >= 1, for a = .9", largest(0.9), AtLeast(1), 0.9, 1e-15)
    yield Comparison("the same for a = 1", largest(1), None, 1.0)
    yield Comparison("the same for a = 1.02", largest(1.02), None, 1.02 ** (N - 1), 1e-14)
    yield Comparison(
        "J_tot at a = 1, N = 12",
        total_memory(initialize("chain", (N, N), rng, gain=1), head),
        None,
        harmonic,
        1e-12,
    )


def _e42(rng: Generator) -> Comparisons:
    n, runs = 10, 20_000
    logs = np.log(abs(initialize("gaussian", (runs, n), rng, sd=1)))
    power, product = n * logs[:, 0], logs.sum(axis=1)
    yield Comparison(
        "median log |w|^10 less median log |w_1 ... w_10|, N(0, 1)",
        np.median(power) - np.median(product),
        AtMost(0),
        AtLeast(1),
    )
    yield Comparison(
        "standard deviation of log |w|^10 over that of the product",
        power.std() / product.std(),
        None,
        math.sqrt(n),
        0.15,
    )


def _e54(rng: Generator) -> Comparisons:
    N = 12
    for gain in (1.02, 1.5, 3.0, 10.0):
        measured = total_memory(initialize("chain", (N, N), rng, gain=gain), np.eye(N)[0])
        derived = sum((1 - gain**-2) / (1 - gain ** (-2 * k)) for k in range(1, N + 1))
        yield Comparison(
            f"J_tot of the chain, N = 12, gain {gain}", measured, AtLeast(N), derived, 1e-9
        )
