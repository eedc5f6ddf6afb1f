"""Steps on the Stiefel manifold: matrices M (N, P), N >= P, with orthonormal columns.

``step`` moves M down a gradient G and stays on the manifold, by one of four retractions
(Cayley, QR, polar, the exact geodesic) and in one of two metrics. Gradients are ordinary
ones, dL/dM. Sources: Edelman, Arias & Smith (1998), for metrics and geodesics; Wen & Yin
(2013), for the Cayley step in both metrics and its low-rank form; Vorontsov et al., eq. 9 as
corrected (errata 25 and 31).
Checked by: tests/matrices/test_stiefel.py.
"""

from typing import NamedTuple

import numpy as np

from refnet.batch import Array
from refnet.common.arguments import choice
from refnet.common.process import serial_blas
from refnet.maths.kinds import inexact, join
from refnet.maths.linalg import OnePlus, expm, eye, qr
from refnet.maths.numeric import Number, matmul, times
from refnet.maths.threads import LARGE, cut, in_threads

METRICS = ("canonical", "euclidean")
RETRACTIONS = ("cayley", "qr", "polar", "geodesic")


def _admit(function: str, M: Array, G: Array) -> None:
    if M.shape != G.shape or M.ndim != 2 or M.shape[0] < M.shape[1]:
        raise ValueError(
            f"stiefel.{function}: M is {M.shape} and its gradient {G.shape}; need one "
            "shape (N, P), N >= P, for orthonormal columns: transpose a wide matrix"
        )


def _half(a: Array) -> Array:
    return times(0.5, a)


@serial_blas
def gradient(M: Array, G: Array, metric: str = "canonical") -> Array:
    """The Riemannian gradient of a loss with gradient G: the steepest tangent at M.

    canonical: ``G - M G'M``; euclidean: ``G - M (M'G + G'M) / 2``, the projection of G onto the
    tangent space. At a square M the second is half of the first. Any dtype.

    >>> gradient(np.eye(2), np.array([[0.0, 1.0], [0.0, 0.0]])).tolist()  # skew, as tangents at I
    [[0.0, 1.0], [-1.0, 0.0]]

    Checked by: tests/matrices/test_stiefel.py::test_gradient_is_tangent_and_descends.
    """
    choice("stiefel: metric", metric, METRICS)
    _admit("gradient", M, G)
    K = matmul(M.T, G)
    inner = K.T if metric == "canonical" else _half(K + K.T)
    return np.asarray(G - matmul(M, inner))


@serial_blas
def step(
    M: Array, G: Array, rate: Number, retraction: str = "cayley", metric: str = "canonical"
) -> Array:
    """A step of that rate from M against the Riemannian gradient of G; M is not changed.

    Shapes: M, G (N, P), N >= P. float32 and float64 (all), longdouble (all but polar), exact
    numbers (cayley; the result's columns are exactly orthonormal if M's are).
    Raises ValueError on shapes that disagree or a name that is unknown.

    >>> M = step(np.eye(2), np.array([[0.0, 1.0], [0.0, 0.0]]), rate=0.1)
    >>> bool(np.allclose(M.T @ M, np.eye(2)))
    True

    Checked by: tests/analysis/test_analysis_theory.py::test_orders.
    """
    choice("stiefel: retraction", retraction, RETRACTIONS)
    _admit("step", M, G)
    M = inexact(M)
    G = join("stiefel.step: the gradient G", G, "M", M)
    if retraction == "cayley":
        return _cayley(M, G, rate, metric)
    if retraction == "geodesic":
        return _geodesic(M, G, rate, metric)
    target = np.asarray(M - times(rate, gradient(M, G, metric)))
    return qr(target)[0] if retraction == "qr" else _polar(target)


def _square_generator(M: Array, G: Array, metric: str) -> Array:
    """The skew S (N, N) with gradient ``M S``, for a square M: ``M'G - G'M``, or its half."""
    K = matmul(M.T, G)
    S = np.asarray(K - K.T)
    return S if metric == "canonical" else _half(S)


def _factors(M: Array, G: Array, metric: str) -> tuple[Array, Array]:
    """U, V (N, 2P) with ``A = U V' = F M' - M F'``, skew, and gradient ``A M``.

    F is G for the canonical metric and ``(I - M M'/2) G`` for the euclidean one.
    """
    F = G if metric == "canonical" else np.asarray(G - _half(matmul(M, matmul(M.T, G))))
    return np.hstack([F, M]), np.hstack([M, -F])


def _length(a: Array) -> float:
    """``||a||_F``; 1 for exact numbers, with which systems are solved without truncation."""
    flat = a.ravel(order="K")
    return float(np.dot(flat, flat)) ** 0.5 if a.dtype.kind == "f" else 1.0


def _corrected(a: Array, b: Array, scale: Number) -> Array:
    """``(I + a)^-1 b``, for a step that subtracts ``scale`` times this from M: the error of the
    truncated series in that step is at most eps / 4 in the Frobenius norm."""
    size = abs(float(scale)) * _length(b)
    return OnePlus(a).solve(b, 1 / size if size > 0 else 1)


def _cayley(M: Array, G: Array, rate: Number, metric: str) -> Array:
    """``(I + r/2 A)^-1 (I - r/2 A) M`` with ``A = G M' - M G'`` (canonical), r the rate.

    The inverse always exists: A is skew, so its eigenvalues are i m with m real, and those of
    I + r/2 A are 1 + i r m / 2, of magnitude at least 1. Hence nothing here guards against a
    singular matrix. The two other matrices solved with below are regular for the same reason:
    S is skew, and det(I + r/2 V'U) = det(I + r/2 U V') by Sylvester's identity. All forms give
    ``M - r (...)``, in which the rounding errors of the correction shrink with the rate.

    Square M: ``A = M S M'`` with ``S = M'G - G'M``, so the step is
    ``M (I - r/2 S) (I + r/2 S)^-1 = M - r M S (I + r/2 S)^-1``, one product with M.
    Tall M: ``A = U V'`` with 2P columns, so (Sherman, Morrison, Woodbury) the step is
    ``M - r U (I + r/2 V'U)^-1 V'M``, a system of 2P unknowns for one of N. At N < 2P this is
    no cheaper than N unknowns, and A is built.

    At the small rates of training a system is I to a few digits: see ``linalg.OnePlus``.
    Checked by: tests/matrices/test_stiefel.py::test_small_steps_agree_with_the_solve.
    """
    choice("stiefel: metric", metric, METRICS)
    N, P = M.shape
    if N == P:
        S = _square_generator(M, G, metric)
        # X (I + r/2 S) = M S, transposed: LAPACK stores by columns, so neither side is copied
        # out of order
        X = _corrected(times(rate / 2, S).T, matmul(M, S).T, rate).T
        return np.asarray(M - times(rate, X))
    U, V = _factors(M, G, metric)
    if 2 * P <= N:
        VM = matmul(V.T, M)
        X = matmul(U, _corrected(times(rate / 2, matmul(V.T, U)), VM, rate * _length(U)))
        return np.asarray(M - times(rate, X))
    A = matmul(U, V.T)
    return np.asarray(M - times(rate, _corrected(times(rate / 2, A), matmul(A, M), rate)))


def _geodesic(M: Array, G: Array, rate: Number, metric: str) -> Array:
    """Along the geodesic of the metric, by a matrix exponential of the smaller side.

    Square M, both metrics: ``M e^(-r S)``. Tall M, canonical: ``e^(-r A) M``, as
    ``M - r U phi(-r V'U) V'M`` with ``phi(z) = (e^z - 1) / z``. Tall M, euclidean, with D the
    direction, a = M'D: ``[M D] e^([[a, -D'D], [I, a]]) [I; 0] e^(-a)``.
    Source: Edelman, Arias & Smith (1998), 2.2.2 and 2.4.
    """
    choice("stiefel: metric", metric, METRICS)
    N, P = M.shape
    if N == P:
        return matmul(M, expm(times(-rate, _square_generator(M, G, metric))).value)
    if metric == "canonical":
        U, V = _factors(M, G, metric)
        z = times(-rate, matmul(V.T, U))
        identity = eye(2 * P, M.dtype)
        phi = expm(np.block([[z, identity], [identity * 0, identity * 0]])).value[: 2 * P, 2 * P :]
        return np.asarray(M - times(rate, matmul(U, matmul(phi, matmul(V.T, M)))))
    D = times(-rate, gradient(M, G, metric))
    a, identity = matmul(M.T, D), eye(P, M.dtype)
    turn = expm(np.block([[a, -matmul(D.T, D)], [identity, a]])).value[:, :P]
    return matmul(matmul(np.hstack([M, D]), turn), expm(-a).value)


def _polar(a: Array) -> Array:
    """The nearest matrix with orthonormal columns: ``U V'`` of the SVD."""
    if a.dtype.char not in "fd":
        raise TypeError(
            f"stiefel: the polar factor of {a.dtype} is not available; use the cayley "
            "or qr retraction, or float64"
        )
    u, _, vt = np.linalg.svd(a, full_matrices=False)
    return np.asarray(u @ vt)


@serial_blas
def defect(M: Array) -> float:
    """``||M'M - I||_F`` of floats, measured in M's own dtype.

    >>> defect(np.array([[2.0], [0.0]]))
    3.0

    M'M is symmetric: of a large one, parts of its columns down to the diagonal are made in threads.
    Checked by: tests/matrices/test_stiefel.py::test_defect.
    """
    N, P = M.shape
    parts = cut(P) if N * P * P >= LARGE else [slice(0, P)]
    squares = np.zeros(len(parts), M.dtype)

    def measure(n: int) -> None:
        n = n // 2 if n % 2 == 0 else len(parts) - 1 - n // 2  # a thread's parts: short and long
        block, columns = M[:, parts[n]], M[:, : parts[n].start]
        E, above = block.T @ block, (columns.T @ block).ravel()
        diagonal = np.arange(len(E))
        E[diagonal, diagonal] -= 1
        squares[n] = np.dot(E.ravel(), E.ravel()) + 2 * np.dot(above, above)

    in_threads(measure, range(len(parts)))
    return float(squares.sum() ** 0.5)


@serial_blas
def determinant(M: Array) -> int:
    """+1 or -1 for a square M, 0 for a tall one, whose determinant is not defined.

    No step can change it: the group O(N) has two components, and every retraction here is a
    continuous path: from det +1 no Cayley step leads to det -1.

    >>> determinant(np.diag([1.0, -1.0]))
    -1
    """
    if M.shape[0] != M.shape[1]:
        return 0
    return int(np.linalg.slogdet(M if M.dtype.char in "fd" else M.astype(np.float64))[0])


class Guarded(NamedTuple):
    """``M``; its ``defect`` when measured; whether it was ``repaired``."""

    M: Array
    defect: float
    repaired: bool


@serial_blas
def guard(M: Array) -> Guarded:
    """Measure the drift of M off the manifold and, past a bound, bring it back.

    The bound is ``4 sqrt(P) eps``: the rounding of a perfect M's entries alone gives a defect
    of about .3 sqrt(P) eps, and 4 leaves some hundred steps between repairs. A repair is a
    Newton-Schulz step towards the polar factor, ``M - M (M'M - I) / 2``, which takes a small
    defect d to at most about 3/4 d^2.

    float32, float64, longdouble. Raises ValueError if the defect is above 1/2 or not a
    number: rounding does not do that, and which matrix was meant is not known.

    >>> guarded = guard(np.eye(2) * 1.001)
    >>> guarded.repaired, defect(guarded.M) < 1e-4
    (True, True)

    Checked by: tests/matrices/test_stiefel.py::test_guard.
    """
    size, P = defect(M), M.shape[1]
    if size <= 4 * P**0.5 * float(np.finfo(M.dtype).eps):
        return Guarded(M, size, False)
    if not size <= 0.5:
        raise ValueError(
            f"stiefel.guard: M {M.shape} has ||M'M - I|| = {size:.3g}; need a matrix "
            "with orthonormal columns, up to rounding: start from an orthogonal one"
        )
    E = np.asarray(M.T @ M - eye(P, M.dtype))
    return Guarded(np.asarray(M - matmul(M, _half(E))), size, True)
