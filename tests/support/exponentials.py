"""A net whose transition is an exponential, with mistakes in its approximants."""

from dataclasses import replace
from math import factorial

import numpy as np

from refnet import RecurrentNet
from refnet.check.cases import reference_results
from refnet.matrices.transitions import transition

PADE = {3: 0.01495585, 5: 0.2539398, 7: 0.9504179, 9: 2.097848, 13: 5.371920}
"""Degrees and the largest 1-norms for them, in float64: Higham (2005), Table 2.3."""
NET = RecurrentNet(3, 4, 5, transition=transition("expm"), backend="reference")


def skew(A):
    L = np.tril(A, -1)
    return L - L.T


def norm_of(X):
    return abs(X).sum(axis=0).max()


def pade(X, degree, squarings, last):
    """The exponential by an approximant whose last coefficient is multiplied by ``last``."""
    X = X / 2**squarings
    c = [
        factorial(2 * degree - k)
        * factorial(degree)
        / (factorial(2 * degree) * factorial(k) * factorial(degree - k))
        for k in range(degree + 1)
    ]
    c[degree] *= last
    up = down = np.zeros_like(X)
    for a in reversed(c):
        unit = np.asarray(a * np.eye(len(X)), X.dtype)
        up, down = up @ X + unit, -down @ X + unit
    power = np.linalg.solve(down, up)
    for _ in range(squarings):
        power = power @ power
    return power


def gradients(p, batch, wrong):
    """Those of NET; ``wrong``: the degree whose approximant has a mistake, or "squared"."""
    X, base = skew(p["Whh.A"]), p["Whh.base"]
    norm, n = norm_of(X), len(X)
    degree = next((degree for degree, most in PADE.items() if norm <= most), 13)
    squarings = max(0, int(np.ceil(np.log2(norm / PADE[13])))) if norm else 0
    last = 0.9 if wrong == ("squared" if squarings else degree) else 1
    dense = {name: value for name, value in p.items() if "." not in name}
    r = reference_results(
        replace(NET, hidden=n, transition=None),
        {**dense, "Whh": pade(X, degree, squarings, last) @ base},
        batch,
    )
    d = r.pop("dWhh") @ base.T
    dX = pade(np.block([[X.T, d], [0 * d, X.T]]), degree, squarings, last)[:n, n:]
    return {**r, "dWhh.A": np.tril(dX - dX.T, -1), "dWhh.base": 0 * base}
