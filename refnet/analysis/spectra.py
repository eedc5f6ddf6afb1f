"""Eigenvalues, singular values and how far a matrix is from normal."""

from functools import partial
from typing import NamedTuple

import numpy as np

from refnet.batch import Array
from refnet.common.arguments import REAL_MATRIX, SQUARE, Rule, array, count, finite, takes


def square(function: str, W: Array) -> Array:
    """W in float64; ValueError or TypeError, in the function's name, if it is not a square matrix
    of finite numbers.

    >>> square("spectral_radius", np.ones((2, 3)))
    Traceback (most recent call last):
    ValueError: spectral_radius: W has shape (2, 3); need a square matrix
    """
    SQUARE.check(f"{function}: W", W)
    return _finite(function, W)


def _finite(function: str, W: Array) -> Array:
    try:
        W = W.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"{function}: W has entries that float64 cannot hold ({error}); need "
            "numbers, such as W.astype(np.float64)"
        ) from None
    if not np.isfinite(W).all():
        raise ValueError(
            f"{function}: W has entries that are not finite; need finite numbers: see "
            "np.argwhere(~np.isfinite(W))"
        )
    return W


@takes(W=SQUARE)
def spectral_radius(W: Array) -> float:
    """The largest modulus of an eigenvalue of W (H, H), in float64.

    Powers of W vanish in the end if it is below 1, but may grow first: it is the 2-norm
    below 1 that keeps each step from growing (erratum 1).
    Raises ValueError if W is not square or not finite.

    >>> spectral_radius(np.array([[2.0, 1.0], [0.0, -3.0]]))
    3.0

    Checked by: tests/analysis/test_analysis.py::test_spectra.
    """
    return float(np.abs(np.linalg.eigvals(square("spectral_radius", W))).max(initial=0))


class Singular(NamedTuple):
    """A summary of the singular values, the factors by which W can stretch a vector."""

    smallest: float
    mean: float
    largest: float
    sd: float
    condition: float


@takes(W=REAL_MATRIX)
def singular_values(W: Array) -> Singular:
    """Summary of the singular values of W (any shape with entries), in float64; the
    condition number is infinite for a singular W.

    Raises ValueError if W is empty or not finite.
    Source: Vorontsov et al., 2: the extreme ones bound the gain of a step.

    >>> singular_values(np.diag([3.0, 1.0])).largest
    3.0

    Checked by: tests/analysis/test_analysis.py::test_spectra.
    """
    s = np.linalg.svd(_finite("singular_values", W), compute_uv=False)
    low, high = float(s[-1]), float(s[0])
    return Singular(low, float(s.mean()), high, float(s.std()), high / low if low else float("inf"))


class SchurForm(NamedTuple):
    """``W = vectors (diag(eigenvalues) + strict) vectors*`` with orthonormal columns of
    ``vectors`` (H, H), ``eigenvalues`` (H,), and ``strict`` (H, H) upper triangular with a zero
    diagonal; all complex."""

    eigenvalues: Array
    strict: Array
    vectors: Array


@takes(W=SQUARE)
def schur_form(W: Array) -> SchurForm:
    """The Schur form of W (H, H): in an orthonormal basis W is triangular, eigenvalues on the
    diagonal and above them what feeds each direction from later ones.

    ``strict`` is zero for a normal W alone: then no direction feeds another and W acts on each
    by itself. Its Frobenius norm, Henrici's departure, does not depend on the order of the
    eigenvalues, which is LAPACK's here; a chain is all ``strict``.
    Raises ValueError if W is not square or not finite.
    Source: Schur (1909); Golub & Van Loan, Matrix Computations, 7.1.3; Goldman (2009) for what it
    means of memory.
    Checked by: tests/analysis/test_analysis.py::test_schur_form.

    >>> values, strict, _ = schur_form(np.array([[1.0, 2.0], [0.0, 3.0]]))
    >>> values.real.tolist(), abs(strict).tolist()
    ([1.0, 3.0], [[0.0, 2.0], [0.0, 0.0]])
    """
    from scipy.linalg import schur

    W = square("schur_form", W)
    if not W.size:
        return SchurForm(np.empty(0, complex), W.astype(complex), W.astype(complex))
    T, vectors = schur(W, output="complex")
    return SchurForm(np.diagonal(T).copy(), np.triu(T, 1), vectors)


@takes(W=SQUARE)
def henrici(W: Array) -> float:
    """Henrici's departure from normality, ``sqrt(||W||_F^2 - sum |lambda|^2)``; 0 if normal.

    It is the norm of the strictly upper part of the complex Schur form, and computed as that:
    the difference of the two sums would lose half the digits.
    Raises ValueError if W is not square or not finite.
    Source: Henrici (1962); Orhan & Pitkow (2020).

    >>> henrici(np.array([[1.0, 2.0], [0.0, 1.0]]))
    2.0

    Checked by: tests/analysis/test_analysis.py::test_henrici.
    """
    return float(np.linalg.norm(schur_form(square("henrici", W)).strict))


@takes(W=SQUARE, angles=count())
def numerical_range(W: Array, angles: int = 180) -> Array:
    """Points on the boundary of ``{x* W x : |x| = 1}``, (angles,), complex, counter-clockwise.

    This set is convex and contains the eigenvalues; for a normal W it is their convex hull, and
    the farther it reaches beyond that hull, the farther W is from normal. The outermost point in
    the direction e^it belongs to the top eigenvector of the Hermitian part of ``e^-it W``.
    Raises ValueError if W is not square, empty or not finite.
    Source: Johnson (1978); Horn & Johnson, Topics in Matrix Analysis, chapter 1.

    >>> points = numerical_range(np.array([[0.0, 2.0], [0.0, 0.0]]), angles=4)
    >>> abs(points).round(12).tolist()  # a circle of radius 1, although both eigenvalues are 0
    [1.0, 1.0, 1.0, 1.0]

    Checked by: tests/analysis/test_analysis.py::test_numerical_range.
    """
    W = square("numerical_range", W)
    if not W.size:
        raise ValueError("numerical_range: W is empty; need a matrix with entries")
    points = np.empty(angles, complex)
    for i, angle in enumerate(2 * np.pi * np.arange(angles) / angles):
        turned = np.exp(-1j * angle) * W
        x = np.linalg.eigh((turned + turned.conj().T) / 2)[1][:, -1]
        points[i] = x.conj() @ W @ x
    return points


_POINTS = finite(Rule(partial(array, kinds="fiuc"), (None, "z", 1j, [1j], np.array([np.nan]))))


@takes(W=SQUARE, z=_POINTS)
def pseudospectrum(W: Array, z: Array) -> Array:
    """The smallest singular value of ``z I - W`` at every point of ``z`` (any shape, complex).

    Where it is below eps, z is an eigenvalue of a matrix within eps of W: the level sets are the
    borders of the eps-pseudospectra. For a normal W it is the distance to the nearest eigenvalue.
    Float64; one SVD of the triangular Schur form for each point.
    Raises ValueError if W is not square, empty or not finite.
    Source: Trefethen & Embree (2005), section 2.
    Checked by: tests/analysis/test_analysis.py::test_pseudospectrum.

    >>> pseudospectrum(np.diag([1.0, 3.0]), np.array([0.0, 2.5])).tolist()
    [1.0, 0.5]
    """
    W = square("pseudospectrum", W)
    if not W.size:
        raise ValueError("pseudospectrum: W is empty; need a matrix with entries")
    values, strict, _ = schur_form(W)
    triangular = np.diag(values) + strict
    z = np.asarray(z, complex)
    return np.array(
        [
            np.linalg.svd(point * np.eye(len(W)) - triangular, compute_uv=False)[-1]
            for point in z.ravel()
        ]
    ).reshape(z.shape)
