"""Moments of the uniform distribution on orthogonal matrices."""

import numpy as np

SIGMAS = 5


def near(mean, exact, variance, draws):
    return abs(mean - exact) <= SIGMAS * (variance / draws) ** 0.5


def haar_failures(matrices):
    """Which exact moments of Haar measure on O(n), n >= 8, the sample (N, n, n) violates.

    Diaconis & Shahshahani (1994): for k <= n / 2, tr Q^k has mean 1 (k even) or 0 (k odd)
    and variance k; those are the Fourier coefficients of the density of the eigenangles.
    An entry has mean 0 and variance 1 / n; det is +-1 with equal chances.
    """
    draws, n, _ = matrices.shape
    power, failures = np.eye(n), []
    for k in range(1, 5):
        power = power @ matrices
        if not near(np.trace(power, axis1=1, axis2=2).mean(), (k + 1) % 2, k, draws):
            failures.append(f"trace of power {k}")
    if not near(np.linalg.det(matrices).mean(), 0, 1, draws):
        failures.append("det")
    worst = abs(matrices.mean(axis=0)).max()  # of n^2 means: 5 sigmas still fail in 1 of 3e4
    if not near(worst, 0, 1 / n, draws):
        failures.append("mean")
    squares = (matrices**2).mean(axis=0)
    # Var q^2 = 3 / (n (n + 2)) - 1 / n^2
    if not near(abs(squares - 1 / n).max(), 0, 3 / n / (n + 2) - 1 / n**2, draws):
        failures.append("second moment")
    return failures
