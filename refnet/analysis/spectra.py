"""Eigenvalues, singular values and how far a matrix is from normal."""

from typing import NamedTuple

import numpy as np

from refnet.batch import Array

__all__ = ["Singular", "henrici", "singular_values", "spectral_radius"]


def _square(function: str, W: Array) -> Array:
    if W.ndim != 2 or W.shape[0] != W.shape[1]:
        raise ValueError(f"{function}: W has shape {W.shape}; need a square matrix")
    return _finite(function, W)


def _finite(function: str, W: Array) -> Array:
    W = W.astype(np.float64)
    if not np.isfinite(W).all():
        raise ValueError(f"{function}: W has entries that are not finite")
    return W


def spectral_radius(W: Array) -> float:
    """The largest modulus of an eigenvalue of W (H, H), in float64.

    Powers of W vanish in the end if it is below 1, but may grow first: it is the 2-norm
    below 1 that keeps each step from growing (erratum 1).
    Raises ValueError if W is not square or not finite.
    Checked by: tests/test_analysis.py::test_spectra.
    """
    return float(np.abs(np.linalg.eigvals(_square("spectral_radius", W))).max(initial=0))


class Singular(NamedTuple):
    """A summary of the singular values: gains of W over all directions."""

    smallest: float
    mean: float
    largest: float
    sd: float
    condition: float


def singular_values(W: Array) -> Singular:
    """Summary of the singular values of W (any shape with entries), in float64; the
    condition number is infinite for a singular W.

    Raises ValueError if W is empty or not finite.
    Source: Vorontsov et al., 2: the extreme ones bound the gain of a step.
    Checked by: tests/test_analysis.py::test_spectra.
    """
    if W.ndim != 2 or 0 in W.shape:
        raise ValueError(f"singular_values: W has shape {W.shape}; need a matrix with entries")
    s = np.linalg.svd(_finite("singular_values", W), compute_uv=False)
    low, high = float(s[-1]), float(s[0])
    return Singular(low, float(s.mean()), high, float(s.std()),
                    high / low if low else float("inf"))


def henrici(W: Array) -> float:
    """Henrici's departure from normality, ``sqrt(||W||_F^2 - sum |lambda|^2)``; 0 if normal.

    It is the norm of the strictly upper part of the complex Schur form, and computed as that:
    the difference of the two sums would lose half the digits.
    Raises ValueError if W is not square or not finite.
    Source: Henrici (1962); Orhan & Pitkow (2020).
    Checked by: tests/test_analysis.py::test_henrici.
    """
    from scipy.linalg import schur
    W = _square("henrici", W)
    if not W.size:
        return 0.0
    return float(np.linalg.norm(np.triu(schur(W, output="complex")[0], 1)))
