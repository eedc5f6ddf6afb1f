"""Orthogonal matrices as functions of free parameters, which any optimizer can move.

Sources: matrix exponential: Lezcano-Casado & Martinez-Rubio (2019); Cayley map: torch's
``parametrizations.orthogonal``; scaled Cayley: Helfrich, Willmott & Ye (2018); Householder
products: Mhammedi et al. (2017), in the compact form of Joffrain et al. (2006).
Checked by: tests/matrices/test_transitions.py::test_push_equals_pull.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from refnet.batch import Array, Params
from refnet.maths.linalg import Exponential, OnePlus, expm, expm_pull, eye, solve
from refnet.maths.numeric import matmul, times
from refnet.matrices.transitions.manifold import Plain, polar


def _skew(A: Array) -> Array:
    """``L - L'`` of the part of A strictly below the diagonal; the rest does not matter."""
    L = np.tril(A, -1)
    return np.asanyarray(L - L.T)


def _skew_pull(dX: Array) -> Array:
    return np.tril(dX - dX.T, -1)


def _turn(X: Array, base: Array) -> Array:
    """``X base``; for a wide base, whose rows are orthonormal, ``base X'``."""
    return matmul(base, X.T) if base.shape[0] < base.shape[1] else matmul(X, base)


def _turn_pull(dW: Array, base: Array) -> Array:
    """The gradient in X."""
    return matmul(dW.T, base) if base.shape[0] < base.shape[1] else matmul(dW, base.T)


class Turned(Plain):
    """A constant base, turned: parts A (N, N), N the longer side of W, and ``base``, shaped as W.

    The base is the orthogonal matrix nearest to the start, where A = 0. Only the strictly lower
    triangle L of A matters: W is the base turned by an orthogonal function of ``L - L'``.
    """

    constant = ("base",)
    rectangular = True

    def shapes(self, rows: int, columns: int) -> dict[str, tuple[int, ...]]:
        """A (N, N) and the base, shaped as W."""
        N = max(rows, columns)
        return {"A": (N, N), "base": (rows, columns)}

    def init(self, start: Array) -> Params:
        """A = 0 at the orthogonal matrix nearest to the start."""
        N = max(start.shape)
        return {"A": np.zeros((N, N)), "base": polar(start)}


@dataclass(frozen=True)
class MatrixExponential(Turned):
    """``W = e^X base`` with X = L - L', L the strictly lower triangle of the part A (N, N).

    det W, of either sign, is that of the base. A wide W is ``base e^X'``.
    Source: Lezcano-Casado & Martinez-Rubio (2019).
    Checked by: tests/matrices/test_transitions.py::test_complex_step,
    ::test_parametrisations_stay_orthogonal.

    >>> parts = {"A": np.array([[0, 0], [np.pi / 2, 0]]), "base": np.eye(2)}
    >>> MatrixExponential().matrix(parts)[0].round(9).tolist() == [[0, -1], [1, 0]]
    True
    """

    rational = False  # it has exponentials

    def matrix(self, parts: Params) -> tuple[Array, Exponential]:
        """W, and the tape of the exponential."""
        exponential = expm(_skew(parts["A"]))
        return _turn(exponential.value, parts["base"]), exponential

    def pull_back(self, parts: Params, tape: Exponential, dW: Array) -> Params:
        """The adjoint of the exponential at X, on ``dW base'``."""
        dX = expm_pull(tape, _turn_pull(dW, parts["base"]))
        return {"A": _skew_pull(dX), "base": np.zeros_like(dW)}


class _Cayley(NamedTuple):
    """``X = (I + Y)^-1 (I - Y)`` with Y skew, and I + Y to solve with."""

    X: Array
    system: OnePlus


def _cayley(A: Array) -> _Cayley:
    """I + Y is regular for every skew Y: its eigenvalues are 1 + i m with m real."""
    system = OnePlus(_skew(A))
    Y = system.a
    return _Cayley(system.solve(np.asanyarray(eye(len(Y), Y.dtype) - Y)), system)


def _cayley_pull(tape: _Cayley, dX: Array) -> Array:
    """From ``(I + Y) dX = -dY (I + X)``: ``dY = -Z (I + X)'`` with ``(I + Y)' Z = dX``."""
    Z = tape.system.solve(dX, transposed=True)
    return _skew_pull(-matmul(Z, eye(len(Z), tape.X.dtype) + tape.X.T))


@dataclass(frozen=True)
class CayleyMap(Turned):
    """``W = (I + Y)^-1 (I - Y) base`` with Y = L - L', L the strictly lower triangle of A.

    The Cayley map reaches exactly the rotations that do not have the eigenvalue -1.
    Source: Cayley (1846); as a parametrisation, torch's ``parametrizations.orthogonal``.
    Checked by: tests/matrices/test_transitions.py::test_push_equals_pull,
    ::test_rational_parametrisations_are_exactly_orthogonal.

    >>> parts = {"A": np.array([[0.0, 0.0], [1.0, 0.0]]), "base": np.eye(2)}
    >>> CayleyMap().matrix(parts)[0].tolist()
    [[0.0, 1.0], [-1.0, 0.0]]
    """

    def matrix(self, parts: Params) -> tuple[Array, _Cayley]:
        """W, and the Cayley transform."""
        tape = _cayley(parts["A"])
        return _turn(tape.X, parts["base"]), tape

    def pull_back(self, parts: Params, tape: _Cayley, dW: Array) -> Params:
        """One more solve with the transposed matrix."""
        dX = _turn_pull(dW, parts["base"])
        return {"A": _cayley_pull(tape, dX), "base": np.zeros_like(dW)}


@dataclass(frozen=True)
class ScaledCayley(Plain):
    """``W = (I + Y)^-1 (I - Y) D``: the Cayley map times a constant diagonal of +-1.

    Every orthogonal matrix has such a D, so both components of O(N) are within reach: det W
    is the product of D.
    Source: Helfrich, Willmott & Ye (2018).
    Checked by: tests/matrices/test_transitions.py::test_push_equals_pull,
    ::test_scaled_cayley_reaches_what_the_cayley_map_cannot.

    >>> parts = {"A": np.array([[0.0, 0.0], [1.0, 0.0]]), "D": np.array([1.0, -1.0])}
    >>> ScaledCayley().matrix(parts)[0].tolist() == [[0, -1], [-1, 0]]
    True
    """

    constant = ("D",)

    def shapes(self, rows: int, columns: int) -> dict[str, tuple[int, ...]]:
        """A (N, N) and D (N,)."""
        return {"A": (rows, rows), "D": (rows,)}

    def init(self, start: Array) -> Params:
        """A and D (N,) of the orthogonal matrix Q nearest to the start, exactly.

        ``Y = (I + Q D)^-1 (I - Q D)``. The signs are chosen column by column in a Gaussian
        elimination of I + Q D, each so that its pivot is at least 1 in magnitude: the column
        is e + d q with d = +-1, and the elimination leaves 1 of e in that row.
        """
        Q = polar(start)
        n = len(Q)
        columns, D = Q.copy(), np.ones(n)
        for k in range(n):
            D[k] = -1 if columns[k, k] < 0 else 1
            # the eliminated column k of I + Q D; e_k has not been touched by earlier steps
            column = D[k] * columns[:, k]
            column[k] += 1
            factors = column[k + 1 :] / column[k]
            columns[k + 1 :, k + 1 :] -= np.multiply.outer(factors, columns[k, k + 1 :])
        identity = np.eye(n)
        Y = solve(identity + Q * D, identity - Q * D)
        return {"A": np.tril((Y - Y.T) / 2, -1), "D": D}

    def matrix(self, parts: Params) -> tuple[Array, _Cayley]:
        """W, and the Cayley transform."""
        tape = _cayley(parts["A"])
        return np.asanyarray(tape.X * parts["D"]), tape

    def pull_back(self, parts: Params, tape: _Cayley, dW: Array) -> Params:
        """As the Cayley map's, at ``dW D``."""
        return {
            "A": _cayley_pull(tape, np.asanyarray(dW * parts["D"])),
            "D": np.zeros_like(parts["D"]),
        }


class _Product(NamedTuple):
    """``Y = S^-1 V[:, :P]`` and S, for the product of reflections."""

    Y: Array
    S: Array


@dataclass(frozen=True)
class Householder(Plain):
    """``W = H_1 ... H_K D``, the first P of N columns: reflections ``H = I - 2 v v' / v'v``.

    The part V (K, N) has the vectors as rows, K = min(P, N - 1); D of +-1 is constant, so a
    square W has determinant (-1)^K times the product of D. The product of all reflections is
    ``I - V' S^-1 V`` with S upper triangular: V V' above its diagonal and half of it on it.
    A wide W is the transpose of a tall one; its D is (P, 1) where a tall one's is (P,).
    Source: Mhammedi et al. (2017), in the compact form of Joffrain et al. (2006).
    Checked by: tests/matrices/test_transitions.py::test_push_equals_pull,
    ::test_rational_parametrisations_are_exactly_orthogonal.

    >>> parts = {"V": np.array([[1.0, 0.0]]), "D": np.ones(2)}
    >>> Householder().matrix(parts)[0].tolist()
    [[-1.0, 0.0], [0.0, 1.0]]
    """

    constant = ("D",)
    rectangular = True

    def shapes(self, rows: int, columns: int) -> dict[str, tuple[int, ...]]:
        """V (K, N) and D (P,), or (P, 1) for a wide W."""
        N, P = max(rows, columns), min(rows, columns)
        return {"V": (min(P, N - 1), N), "D": (P, 1) if rows < columns else (P,)}

    def init(self, start: Array) -> Params:
        """V and D of the orthogonal matrix nearest to the start: its QR decomposition by
        reflections, whose R is D."""
        rest = polar(start)
        wide = rest.shape[0] < rest.shape[1]
        rest = np.array(rest.T if wide else rest)
        N, P = rest.shape
        K = min(P, N - 1)
        V, D = np.zeros((K, N)), np.ones(P)
        for k in range(K):
            D[k] = 1 if rest[k, k] < 0 else -1  # away from the column: no cancellation
            v = rest[k:, k].copy()
            v[0] -= D[k]
            V[k, k:] = v
            rest[k:] -= np.multiply.outer(2 * v / (v @ v), v @ rest[k:])
        if K < P:
            D[K] = 1 if rest[K, K] > 0 else -1
        return {"V": V, "D": D[:, None] if wide else D}

    def matrix(self, parts: Params) -> tuple[Array, _Product]:
        """W by one solve with S; the tape is Y and S."""
        V, D = parts["V"], parts["D"]
        gram = matmul(V, V.T)
        diagonal = np.arange(len(gram))
        S = np.triu(gram)
        S[diagonal, diagonal] = times(0.5, gram[diagonal, diagonal])
        Y = solve(S, V[:, : len(D)])
        product = eye(V.shape[1], V.dtype)[:, : len(D)] - matmul(V.T, Y)
        return np.asanyarray((product.T if D.ndim == 2 else product) * D), _Product(Y, S)

    def pull_back(self, parts: Params, tape: _Product, dW: Array) -> Params:
        """Back through ``I - V' Y``, ``S Y = V`` and ``S`` of ``V V'``."""
        V, D = parts["V"], parts["D"]
        Y, S = tape
        G = np.asanyarray(dW * D)
        G = G.T if D.ndim == 2 else G
        Z = solve(S.T, matmul(V, G))  # minus the gradient at the right-hand side of S Y = V
        dV = -matmul(Y, G.T)
        dV[:, : len(D)] = dV[:, : len(D)] - Z
        dS = np.triu(matmul(Z, Y.T))
        diagonal = np.arange(len(dS))
        dS[diagonal, diagonal] = times(0.5, dS[diagonal, diagonal])
        return {"V": np.asanyarray(dV + matmul(dS + dS.T, V)), "D": np.zeros_like(D)}
