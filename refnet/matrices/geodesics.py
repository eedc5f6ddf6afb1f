"""The geometry of the Stiefel manifold St(N, P): matrices M (N, P), N >= P, with ``M'M = I``.

A tangent X at M has a skew ``M'X``. The metrics are the canonical one,
``<X, Y> = tr X'(I - M M'/2) Y``, and the euclidean one, ``<X, Y> = tr X'Y``. Descent against a
gradient is in ``refnet.matrices.stiefel``.

What replaces a geodesic or the transport along it errs, for a tangent of length t, by

============================ ============ =============== ===============
error                        N = P        N > P canonical N > P euclidean
============================ ============ =============== ===============
``retract`` cayley - ``exp`` t^3          t^3             t^2
``retract`` polar - ``exp``  t^3          t^2             t^3
``retract`` qr - ``exp``     t^2          t^2             t^2
``project`` - ``transport``  t^2          t               t^2
============================ ============ =============== ===============

but at N = P = 2 and P = 1, where all three retractions have t^3 and ``project`` t^2.
Sources: Edelman, Arias & Smith (1998), 2.2-2.4; Absil, Mahony & Sepulchre (2008), 4.1 and 8.1.
Checked by: tests/matrices/test_geodesics.py::test_orders.
"""

from collections.abc import Callable
from math import pi

import numpy as np

from refnet.batch import Array, Scalar
from refnet.common.arguments import REAL_MATRIX, numbers, one_of, takes
from refnet.maths.kinds import inexact, join
from refnet.maths.linalg import eye
from refnet.maths.numeric import divided, matmul
from refnet.matrices.stiefel import METRICS, RETRACTIONS, gradient, step

SHOTS = 2000
"""How often ``log`` shoots at most."""
_METRIC = one_of(METRICS)


def admit_point(what: str, M: Array, *tangents: Array, floats: bool = True) -> list[Array]:
    """M, which has to have orthonormal columns, and tangents at M, in one kind of numbers: exact
    numbers exactly so, others to the root of eps. ``floats``: whether only these will do.

    Raises ValueError or TypeError for anything else.

    >>> admit_point("here", np.eye(2), np.eye(2))
    Traceback (most recent call last):
    ValueError: here: M'X + X'M is off 0 by 2; need a tangent X at M, such as project(M, X)
    """
    M = inexact(M)
    if floats and M.dtype == object:
        raise TypeError(f"{what}: M holds exact numbers; need floats, such as M.astype(float)")
    points = [M, *(join(f"{what}: X", X, "M", M) for X in tangents)]
    for n, X in enumerate(points):
        if X.shape != M.shape or len(X) < X.shape[1]:
            raise ValueError(
                f"{what}: {'X' if n else 'M'} has shape {X.shape}; need one shape (N, P), N >= P, "
                f"as of M {M.shape}: transpose a wide matrix"
            )
        K = matmul(M.T, X)
        error = abs(K + K.T if n else K - eye(len(K), M.dtype))
        if M.dtype == object:
            good = not (error != 0).any()
        else:
            good = error.max() <= np.finfo(M.dtype).eps ** 0.5 * (abs(X).max() if n else 1)
        if not good:
            product, target, need = (
                ("M'X + X'M", "0", "a tangent X at M, such as project(M, X)")
                if n
                else ("M'M", "I", "orthonormal columns, such as those of np.linalg.qr(M)[0]")
            )
            off = float(error.max())
            raise ValueError(f"{what}: {product} is off {target} by {off:.3g}; need {need}")
    return points


@takes(M=REAL_MATRIX, Z=REAL_MATRIX)
def project(M: Array, Z: Array) -> Array:
    """The tangent at M (N, P) nearest to Z (N, P): ``Z - M (M'Z + Z'M) / 2``. Any dtype.

    At ``Y = exp(M, X)``, ``project(Y, Z)`` carries a tangent Z from M to Y approximately:
    ``transport`` does so without an error.

    >>> project(np.eye(2), np.array([[5.0, 2.0], [0.0, 7.0]])).tolist()
    [[0.0, 1.0], [-1.0, 0.0]]

    Checked by: tests/matrices/test_geodesics.py::test_exact_on_rationals.
    """
    (M,) = admit_point("project", M, floats=False)
    return gradient(M, join("project: Z", Z, "M", M), "euclidean")


@takes(M=REAL_MATRIX, X=REAL_MATRIX, Y=REAL_MATRIX, metric=_METRIC)
def inner(M: Array, X: Array, Y: Array, metric: str = "canonical") -> Scalar:
    """``<X, Y>`` of two tangents at M in a metric; all (N, P), of any dtype.

    >>> X = np.array([[0.0, 1.0], [-1.0, 0.0]])
    >>> float(inner(np.eye(2), X, X)), float(inner(np.eye(2), X, X, "euclidean"))
    (1.0, 2.0)

    Checked by: tests/matrices/test_geodesics.py::test_exact_on_rationals.
    """
    M, X, Y = admit_point("inner", M, X, Y, floats=False)
    return (_lowered(M, X, metric) * Y).sum()


def _lowered(M: Array, X: Array, metric: str) -> Array:
    """The gradient G, dL/dM, of a loss whose Riemannian gradient in the metric is X."""
    return X - divided(matmul(M, matmul(M.T, X)), 2) if metric == "canonical" else X


@takes(M=REAL_MATRIX, X=REAL_MATRIX, retraction=one_of(RETRACTIONS[:-1]))
def retract(M: Array, X: Array, retraction: str = "cayley") -> Array:
    """A point near ``exp(M, X)``, from M (N, P) along the tangent X (N, P), that costs less.

    cayley: ``(I - S/2)^-1 (I + S/2) M`` with the skew S of low rank for which ``S M = X``; qr and
    polar: the factor with orthonormal columns of ``M + X``. Kinds of numbers as of ``step``: cayley
    is exact on rationals. The orders are in the module's table.

    >>> retract(np.eye(2), np.array([[0.0, -2.0], [2.0, 0.0]])).tolist()
    [[0.0, -1.0], [1.0, 0.0]]

    Checked by: tests/matrices/test_geodesics.py::test_exact_on_rationals, ::test_orders.
    """
    M, X = admit_point("retract", M, X, floats=False)
    return step(M, -_lowered(M, X, "canonical"), 1, retraction)


@takes(M=REAL_MATRIX, X=REAL_MATRIX, metric=_METRIC)
def exp(M: Array, X: Array, metric: str = "canonical") -> Array:
    """Where the geodesic of the metric from M along the tangent X is after time 1; (N, P), floats.

    >>> quarter = exp(np.eye(2), np.array([[0.0, -np.pi / 2], [np.pi / 2, 0.0]]))
    >>> abs(quarter).round(12).tolist()
    [[0.0, 1.0], [1.0, 0.0]]

    Checked by: tests/matrices/test_geodesics.py::test_log_inverts_exp,
    tests/matrices/test_stiefel.py::test_geodesic_is_one.
    """
    M, X = admit_point("exp", M, X)
    return _exp(M, X, metric)


def _exp(M: Array, X: Array, metric: str) -> Array:
    return step(M, -_lowered(M, X, metric), 1, "geodesic", metric)


@takes(M=REAL_MATRIX, X=REAL_MATRIX, times=numbers("(-inf, inf)"), metric=_METRIC)
def geodesic(M: Array, X: Array, times: Array, metric: str = "canonical") -> Array:
    """The geodesic from M along the tangent X at some times, (K,): (K, N, P), floats.

    >>> X = np.array([[0.0, -np.pi], [np.pi, 0.0]])
    >>> abs(geodesic(np.eye(2), X, np.array([0.0, 0.5, 1.0])))[:, 1, 0].round(12).tolist()
    [0.0, 1.0, 0.0]

    Checked by: tests/matrices/test_geodesics.py::test_log_inverts_exp.
    """
    return np.array([exp(M, float(t) * X, metric) for t in times])


def _christoffel(M: Array, X: Array, Y: Array, metric: str) -> Array:
    """The symmetric ``Gamma(X, Y)`` of Edelman et al., 2.2.3 and 2.4.1: a field Z along a curve c
    is parallel if ``Z' + Gamma(c', Z) = 0``."""
    K, a, b = X.T @ Y, M.T @ X, M.T @ Y
    if metric == "euclidean":
        return np.asarray(M @ (K + K.T) / 2)
    return np.asarray((X @ (Y.T @ M) + Y @ (X.T @ M) + M @ (a @ b + b @ a + K + K.T)) / 2)


def _flow(rate: Callable[[Array], Array], Z: Array, pieces: int) -> Array:
    """``Z(1)`` of ``Z' = rate(Z)``, linear, by its Taylor series on so many pieces of time."""
    for _ in range(pieces):
        term, k = Z, 0
        while np.linalg.norm(term) > np.finfo(Z.dtype).eps / 4 * np.linalg.norm(Z):
            k += 1
            term = rate(term) / (k * pieces)
            Z = Z + term
    return Z


@takes(M=REAL_MATRIX, X=REAL_MATRIX, Z=REAL_MATRIX, metric=_METRIC)
def transport(M: Array, X: Array, Z: Array, metric: str = "canonical") -> Array:
    """Parallel transport of the tangent Z at M along the geodesic to ``exp(M, X)``; (N, P), floats.

    The geodesic is ``e^(tA) M e^(tC)`` with skew A and C, and the metric does not change under
    rotations from either side. So ``Z(t) = e^(tA) V(t) e^(tC)``, and V obeys a linear equation with
    constant coefficients: both are Taylor series, to rounding, in time proportional to the length
    of X. Lengths and angles stay, and X becomes the geodesic's velocity at its end.

    >>> M, X = np.eye(3)[:, :1], np.array([[0.0], [np.pi / 2], [0.0]])  # on a great circle
    >>> (transport(M, X, X) / -np.pi).ravel()[:1].round(12).tolist()
    [0.5]

    Checked by: tests/matrices/test_geodesics.py::test_transport_is_parallel.
    """
    M, X, Z = admit_point("transport", M, X, Z)
    return _transport(M, X, Z, metric)


def _transport(M: Array, X: Array, Z: Array, metric: str) -> Array:
    a = M.T @ X
    B, twice = X - M @ a, 1 if metric == "canonical" else 2

    def turn(Z: Array) -> Array:
        """A Z + Z C."""
        inside = M.T @ Z
        return np.asarray(
            B @ inside - M @ (B.T @ Z) + twice * (M @ (a @ inside)) + (1 - twice) * (Z @ a)
        )

    def drift(V: Array) -> Array:
        return np.asarray(-_christoffel(M, X, V, metric) - turn(V))

    pieces = 1 + int(2 * np.linalg.norm(X))
    return _flow(turn, _flow(drift, Z, pieces), pieces)


def _reach(shape: tuple[int, int], metric: str) -> float:
    """A length below which a geodesic is the only shortest one: the injectivity radius, or a bound.

    N = P: a rotation by pi in one plane. Euclidean: pi (Zimmermann & Stoye 2024). Canonical:
    sqrt(4/5) pi, as the curvature is at most 5/4 (Rentmeesters 2013), and pi on the sphere, P = 1.
    """
    if shape[0] == shape[1]:
        return pi if metric == "canonical" else pi * 2**0.5
    return pi if metric == "euclidean" or shape[1] == 1 else pi * 0.8**0.5


@takes(M=REAL_MATRIX, Y=REAL_MATRIX, metric=_METRIC)
def log(M: Array, Y: Array, metric: str = "canonical") -> Array:
    """The shortest tangent X at M with ``exp(M, X) = Y``; M, Y, X (N, P), floats.

    By shooting: X moves by what is left, ``Y - exp(M, X)``, projected and carried back to M by
    parallel transport. Where the curvature along X is K and its length t, each shot leaves
    ``1 - sin(r) / r`` of the error, ``r = sqrt(K) t``; K is at most 5/4 (canonical) and 1
    (euclidean). So it converges up to the lengths below which a geodesic is the only shortest one,
    pi for N = P, P = 1 and the euclidean metric, else sqrt(4/5) pi, and the slower, the nearer to
    these. What it returns is shorter than that, and so the logarithm.

    Raises ValueError for points that are farther apart, and for those that it has not joined after
    2,000 shots, or that nothing joins: square matrices whose determinants differ.
    Source: Bryner (2017) for shooting; Rentmeesters (2013), Zimmermann & Stoye (2024) for the
    lengths.

    >>> X = np.array([[0.0, -3.0], [3.0, 0.0]])
    >>> bool(np.allclose(log(np.eye(2), exp(np.eye(2), X)), X))
    True

    Checked by: tests/matrices/test_geodesics.py::test_log_inverts_exp, ::test_log_refuses.
    """
    (M,), (Y,) = admit_point("log", M), admit_point("log", Y)
    Y = join("log: Y", Y, "M", M)
    if Y.shape != M.shape:
        raise ValueError(f"log: Y has shape {Y.shape}; need {M.shape}, that of M")
    reach, eps = _reach(M.shape, metric), float(np.finfo(M.dtype).eps)
    X = project(M, Y - M)
    if (size := float(np.linalg.norm(X))) > 0:
        X = X * M.dtype.type(min(float(np.linalg.norm(Y - M)), reach) / size)
    for _ in range(SHOTS):
        end = _exp(M, X, metric)
        left = gradient(end, Y - end, "euclidean")
        length = float((_lowered(M, X, metric) * X).sum()) ** 0.5
        joined = np.linalg.norm(left) <= 200 * eps * M.size**0.5
        if joined or length > 2 * reach:
            break
        X = X + _transport(end, -_transport(M, X, X, metric), left, metric)
    if not joined or np.linalg.norm(Y - end) > eps**0.5 * M.size or length >= reach:
        raise ValueError(
            f"log: no geodesic from M to Y {M.shape} is shorter than {reach:.4g}, below which it "
            f"is the only shortest one ({metric} metric), or none was reached; need nearer points"
            + (", and determinants of one sign" if M.shape[0] == M.shape[1] else "")
        )
    return X


@takes(M=REAL_MATRIX, Y=REAL_MATRIX, metric=_METRIC)
def distance(M: Array, Y: Array, metric: str = "canonical") -> float:
    """The length of the shortest geodesic from M to Y, that of ``log(M, Y)``; errors as of ``log``.

    >>> M = np.eye(3)[:, :1]
    >>> round(distance(M, np.array([[0.0], [0.6], [0.8]])), 6)  # a quarter of a great circle
    1.570796

    Checked by: tests/matrices/test_geodesics.py::test_log_inverts_exp.
    """
    X = log(M, Y, metric)
    square: Scalar = (_lowered(M, X, metric) * X).sum()
    return float(square**0.5)
