"""The manifold of matrices with orthonormal columns: its geometry, steps on it, and minima of any
function on it.

>>> import numpy as np
>>> from refnet import stiefel
>>> rng = np.random.default_rng(0)
>>> A, B = rng.normal(size=(2, 9, 3))  # orthogonal Procrustes: the rotation of A nearest to B
>>> U, _, V = np.linalg.svd(A.T @ B)
>>> start = np.diag([1.0, 1.0, np.linalg.det(U @ V)])  # no step changes the sign of det W
>>> nearest = stiefel.minimise(lambda W: ((A @ W - B) ** 2).sum(), start)
>>> bool(np.allclose(nearest.W, U @ V)), nearest.converged
(True, True)
>>> X = stiefel.log(start, nearest.W)  # the shortest way there
>>> bool(np.allclose(stiefel.exp(start, X), U @ V))
True

Checked by: tests/matrices/test_geodesics.py, tests/matrices/test_stiefel.py,
tests/exact/test_minimise.py.
"""

from refnet.analysis.geometry import retraction_errors
from refnet.exact.minimise import Minimum, minimise
from refnet.matrices.geodesics import (
    distance,
    exp,
    geodesic,
    inner,
    log,
    project,
    retract,
    transport,
)
from refnet.matrices.stiefel import METRICS, RETRACTIONS, defect, determinant, gradient, guard, step

__all__ = [
    "METRICS",
    "Minimum",
    "RETRACTIONS",
    "defect",
    "determinant",
    "distance",
    "exp",
    "geodesic",
    "gradient",
    "guard",
    "inner",
    "log",
    "minimise",
    "project",
    "retract",
    "retraction_errors",
    "step",
    "transport",
]
