"""Steps on the Stiefel manifold and the margin's map, measured.

Source: Vorontsov et al., eqs. 9-11 (errata 25-28, 31); Edelman, Arias & Smith (1998).
Checked by: tests/analysis/test_analysis_theory.py.
"""

from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from refnet.batch import Array
from refnet.common.arguments import GENERATOR, count, instance, numbers, one_of, real, takes
from refnet.matrices import stiefel
from refnet.matrices.initializers import initialize
from refnet.matrices.transitions.svd import SVD


@takes(
    rates=numbers("(0, inf)"),
    rng=GENERATOR,
    retraction=one_of(stiefel.RETRACTIONS),
    metric=one_of(stiefel.METRICS),
)
def retraction_errors(
    shape: tuple[int, int],
    rates: Array,
    rng: Generator,
    retraction: str = "cayley",
    metric: str = "canonical",
) -> Array:
    """``||retraction - geodesic||_F`` after one step from a random M of that shape (N, P), N >= P,
    with orthonormal columns, along a random gradient of Frobenius norm 1, for each rate; float64.
    Steps, gradient and geodesic are those of the metric.

    A retraction of order p differs from the geodesic by rate^(p + 1). The slope of the logarithms
    between two rates is that power:

    ========== ===== ================ ================
    retraction N = P N > P, canonical N > P, euclidean
    ========== ===== ================ ================
    cayley     3     3                2
    polar      3     2                3
    qr         2     2                2
    ========== ===== ================ ================

    At N = P = 2 and at P = 1, where M moves on a circle in the plane of M and the gradient, all
    three have 3.
    Raises ValueError for a shape that is wide, or in which nothing moves: N = 1.

    >>> near, far = retraction_errors((4, 4), np.array([0.01, 0.02]), np.random.default_rng(0))
    >>> round(float(np.log2(far / near)), 2)
    3.0

    Source: erratum 26; Edelman, Arias & Smith (1998), 2.2.2 and 2.4.
    Checked by: tests/analysis/test_analysis_theory.py::test_orders.
    """
    M = initialize("orthogonal", shape, rng)
    if not 1 < len(M) >= M.shape[1]:
        raise ValueError(
            f"retraction_errors: shape is {shape}; need (N, P) with N >= P and N > 1: "
            "transpose a wide one"
        )
    G = rng.normal(size=M.shape)
    G /= np.linalg.norm(stiefel.gradient(M, G, metric))
    return np.array(
        [
            np.linalg.norm(
                stiefel.step(M, G, float(rate), retraction, metric)
                - stiefel.step(M, G, float(rate), "geodesic", metric)
            )
            for rate in rates
        ]
    )


class Descents(NamedTuple):
    """The loss's derivative along the step's direction: ``correct`` for ``A = G W' - W G'``,
    ``printed`` for the released code's ``G' W - W' G``; both (runs,)."""

    correct: Array
    printed: Array


@takes(n=count(2), runs=count(), rng=GENERATOR)
def descents(n: int, runs: int, rng: Generator) -> Descents:
    """Directional derivatives at random orthogonal W (n, n) with random gradients G of norm 1.

    With the correct A it is ``-||A||_F^2 / 2``, never above 0; with the other A its sign is
    arbitrary, so the step may climb.
    Source: erratum 31. Checked by:
    tests/analysis/test_analysis_theory.py::test_descents_drift_and_margin.

    >>> found = descents(4, 100, np.random.default_rng(0))
    >>> bool((found.correct < 0).all()), bool((found.printed > 0).any())
    (True, True)
    """
    derivatives = np.empty((2, runs))
    for run in range(runs):
        W, G = initialize("orthogonal", (n, n), rng), rng.normal(size=(n, n))
        G /= np.linalg.norm(G)
        derivatives[:, run] = (
            -(G * stiefel.gradient(W, G)).sum(),
            -(G * ((G.T @ W - W.T @ G) @ W)).sum(),
        )
    return Descents(*derivatives)


@takes(
    n=count(),
    steps=count(),
    points=count(),
    rng=GENERATOR,
    dtype=one_of(("float32", "float64")),
    rate=real("(0, inf)"),
    guarded=instance(bool, "True or False"),
)
def defect_over_steps(
    n: int,
    steps: int,
    points: int,
    rng: Generator,
    dtype: str,
    rate: float = 1e-2,
    guarded: bool = False,
) -> tuple[Array, Array]:
    """``||M'M - I||_F`` along a walk of Cayley steps with random gradients, after numbers
    of steps with evenly spaced logarithms: the numbers and the defects. There are ``points`` of
    them, less those that rounding makes equal.

    ``dtype``: "float32" or "float64"; the defect itself is measured in float64. ``guarded``: with
    the guard that training uses, which repairs M past a bound.
    Raises ValueError for fewer steps than points.
    Checked by: tests/analysis/test_analysis_theory.py::test_descents_drift_and_margin.

    >>> at, defects = defect_over_steps(4, 100, 3, np.random.default_rng(0), "float64")
    >>> at.tolist(), bool((defects < 1e-13).all())
    ([1, 10, 100], True)
    """
    if points > steps:
        raise ValueError(
            f"defect_over_steps: points is {points} and steps {steps}; need points <= steps"
        )
    at = np.unique(np.geomspace(1, steps, points).astype(int))
    M = initialize("orthogonal", (n, n), rng).astype(dtype)
    defects, where = [], set(at.tolist())
    for step in range(1, steps + 1):
        M = stiefel.step(M, rng.normal(size=(n, n)).astype(dtype) / np.float32(n), rate)
        if guarded:
            M = stiefel.guard(M).M
        if step in where:
            defects.append(stiefel.defect(M.astype(np.float64)))
    return at, np.array(defects)


@takes(
    margins=numbers("(0, inf)"),
    p=numbers("(-inf, inf)"),
    spectrum_rate=one_of(("plain", "printed", "margin_free")),
)
def margin_steps(margins: Array, p: Array, spectrum_rate: str = "printed") -> Array:
    """``ds`` of an SGD step of rate 1 with dL/ds = -1, for each margin and each p: how fast the
    spectrum moves, (margins, p).

    ``ds = (ds/dp)^2 r``, with ``ds/dp = 2m sigmoid'(p)`` and r the factor on the rate: with the
    printed r = 1 / 2m it still carries 2m, with "margin_free" it does not (erratum 28).

    Checked by: tests/analysis/test_analysis_theory.py::test_descents_drift_and_margin.

    >>> margin_steps(np.array([0.1, 1.0]), np.zeros(1)).round(5).tolist()
    [[0.0125], [0.125]]
    """
    steps = []
    for m in np.asarray(margins, float).tolist():
        transition = SVD(margin=m, spectrum_rate=spectrum_rate)
        parts = {"U": np.eye(len(p)), "V": np.eye(len(p)), "p": np.asarray(p, float)}
        tape = transition.matrix(parts)[1]
        slope = transition.pull_back(parts, tape, np.eye(len(p)))["p"]
        steps.append(slope**2 * float(transition.rates.get("p", 1)))
    return np.array(steps)
