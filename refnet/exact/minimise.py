"""Minima of any function of a matrix with orthonormal columns.

Steepest descent on the Stiefel manifold by the steps of ``refnet.matrices.stiefel``; the gradient
comes from the recorder, so that the minimum can be certified by the same source.
Checked by: tests/exact/test_minimise.py.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Unpack

import numpy as np

from refnet.batch import Array
from refnet.common.arguments import FUNCTION, REAL_MATRIX, count, one_of, optional, real, takes
from refnet.exact.convert import in_float64
from refnet.exact.functions import CertifiedFunction, certify_function
from refnet.exact.precision import Limits
from refnet.exact.running import Function, Runs, arguments_of, run_on
from refnet.matrices.geodesics import admit_point
from refnet.matrices.stiefel import METRICS, RETRACTIONS, gradient as riemannian, guard, step

ARMIJO, MEMORY, SHRINK = 1e-4, 0.85, 0.1
"""Wen & Yin's: the part of the predicted decrease that is asked for, the weight of earlier values
in the value to fall below, and the factor on a rate that is refused."""
ROOM, LONGEST = 64, 1024.0
"""In eps of the largest value so far, what rounding of f may hide; the length of the longest step.
"""


@dataclass(frozen=True, eq=False)
class Minimum:
    """``W`` (N, P); ``value`` there; ``gradient``, the Riemannian one (N, P), and ``ratio``, its
    norm over the largest norm of dL/dW on the way; ``converged``: whether that is within the
    tolerance; ``values`` of the start and after every step, (steps + 1,). All float64."""

    f: Function
    W: Array
    value: float
    gradient: Array
    ratio: float
    converged: bool
    values: Array

    def certify(self, **limits: Unpack[Limits]) -> CertifiedFunction:
        """Value and gradient dL/dW at W with proved enclosures, as ``certify_function`` gives them.

        The Riemannian gradient of the enclosures encloses, too: ``refnet.stiefel.gradient(
        refnet.exact.lift(W, "ball"), certified.gradients["W"].exact)``.
        """
        return certify_function(self.f, self.W, **limits)


@takes(
    f=FUNCTION,
    W=REAL_MATRIX,
    gradient=optional(FUNCTION),
    metric=one_of(METRICS),
    retraction=one_of(RETRACTIONS),
    tolerance=real("(0, 1)"),
    steps=count(),
)
def minimise(
    f: Function,
    W: Array,
    gradient: Callable[[Array], Array] | None = None,
    *,
    metric: str = "canonical",
    retraction: str = "cayley",
    tolerance: float = 1e-8,
    steps: int = 1000,
) -> Minimum:
    """A local minimum of f over the matrices (N, P), N >= P, with orthonormal columns, from W.

    ``f``: a function of one matrix, in NumPy, that gives one real number: what
    ``certify_function`` takes. ``gradient``: a function that gives dL/dW (N, P); by default f is
    recorded. ``metric`` and ``retraction`` as of ``refnet.stiefel.step``. Rates are Barzilai and
    Borwein's, made smaller until f is below a mean of its earlier values by Armijo's rule (Zhang &
    Hager).

    It stops, converged, where the norm of the Riemannian gradient is at most ``tolerance`` times
    the largest norm of dL/dW so far, which does not depend on the scale of f. Else it stops after
    ``steps`` steps, or where no rate that moves W lowers f, and ``converged`` is False. Steps do
    not change the sign of a square W's determinant. The same arguments give the same bits.

    Raises ValueError if W's columns are not orthonormal, or f or its gradient give no finite number
    or no array of W's shape, and as ``certify_function`` does.
    Source: Wen & Yin (2013), algorithm 2.

    >>> A = np.diag([3.0, 1.0, 2.0])  # the smallest eigenvalue, by its Rayleigh quotient
    >>> least = minimise(lambda w: (w * (A @ w)).sum(), np.full((3, 1), 3**-0.5))
    >>> least.converged, round(least.value, 12), abs(least.W).round(6).T.tolist()
    (True, 1.0, [[0.0, 1.0, 0.0]])

    Checked by: tests/exact/test_minimise.py::test_procrustes, ::test_brockett.
    """
    M = guard(admit_point("minimise", W)[0].astype(np.float64)).M
    gradient_at, eps = _slope(f, M, gradient), float(np.finfo(float).eps)

    def value_at(M: Array) -> float:
        value = np.asarray(f(M.copy()))
        if value.shape or value.dtype.kind not in "fiu":
            raise ValueError(
                f"minimise: f gives {value.dtype} of shape {value.shape}; need one real number"
            )
        return float(value) * scale

    def gradients(M: Array) -> tuple[Array, Array]:
        G = gradient_at(M) * scale
        return G, riemannian(M, G, metric)

    scale = 1.0
    values = [value_at(M)]
    if not np.isfinite(values[0]):
        raise ValueError(f"minimise: f at W is {values[0]}; need a finite number")
    scale = _scale(gradients(M)[0])  # no square of an entry over- or underflows
    values[0] *= scale
    (G, R), mean, weight = gradients(M), values[0], 1.0
    largest, size = np.linalg.norm(G), np.linalg.norm(R)
    rate = float(1 / size) if size else 1.0
    while size > tolerance * largest and len(values) <= steps:
        slope, room = float((G * R).sum()), ROOM * eps * max(map(abs, values))
        while True:
            new = guard(step(M, G, rate, retraction, metric)).M
            value = value_at(new)
            accepted = value <= mean - ARMIJO * rate * slope + room
            if accepted or rate * size <= eps:
                break
            rate *= SHRINK
        if not accepted:
            break
        before, shift = R, new - M
        M, (G, R) = new, gradients(new)
        largest, size = max(largest, np.linalg.norm(G)), np.linalg.norm(R)
        mean = (MEMORY * weight * mean + value) / (MEMORY * weight + 1)
        weight = MEMORY * weight + 1
        values.append(value)
        if (cross := abs((shift * (R - before)).sum())) > 0:
            short, long = cross / ((R - before) ** 2).sum(), (shift * shift).sum() / cross
            rate = float(short if len(values) % 2 else long)
        rate = min(rate, float(LONGEST / size)) if size else rate
    ratio = float(size / largest) if largest else 0.0
    values = [value / scale for value in values]
    return Minimum(f, M, values[-1], R / scale, ratio, ratio <= tolerance, np.array(values))


def _scale(G: Array) -> float:
    """The power of two that brings the largest entry near 1."""
    return float(2.0 ** -np.clip(np.frexp(abs(G).max(initial=0))[1], -1000, 1000))


def _slope(
    f: Function, W: Array, gradient: Callable[[Array], Array] | None
) -> Callable[[Array], Array]:
    """The function that gives dL/dW, float64: ``gradient``, or f recorded."""
    runs, (name,) = Runs(f), arguments_of(f, (W,))

    def slope(M: Array) -> Array:
        results = {} if gradient else run_on(runs, {name: M}, None, in_float64)
        G = np.asarray(gradient(M.copy()) if gradient else results[f"d{name}"], np.float64)
        if G.shape != W.shape or not np.isfinite(G).all():
            raise ValueError(
                f"minimise: the gradient has shape {G.shape}; need finite numbers of {W.shape}"
            )
        return G

    return slope
