"""Unitary matrices in real arithmetic: a complex matrix of H/2 rows is a real one of H rows.

A complex number is a pair of adjacent units, its real and its imaginary part, and an entry
``a + bi`` of the matrix is the block ``[[a, -b], [b, a]]``. The complex matrix itself is kept as
the real (H, H/2) one of its columns, each number one pair of rows.
Sources: Arjovsky, Shah & Bengio (2016); Wisdom et al. (2016).
Checked by: tests/matrices/test_unitary.py.
"""

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from refnet.batch import Array, Params
from refnet.common.arguments import SEED, whole
from refnet.maths.linalg import eye, turns
from refnet.maths.numeric import Number, cos, divided, matmul, sin
from refnet.matrices import stiefel
from refnet.matrices.slots import Moved
from refnet.matrices.transitions.manifold import Manifold, Plain, polar


def _pairs(even: Array, odd: Array) -> Array:
    """(2 n, m) of two (n, m): the rows by turns."""
    return np.stack([even, odd], axis=1).reshape(-1, *even.shape[1:])


def _times_i(M: Array) -> Array:
    return _pairs(-M[1::2], M[::2])


def _whole(M: Array) -> Array:
    """The real (2 n, 2 m) of columns (2 n, m): each column, and beside it i times the column."""
    return np.stack([M, _times_i(M)], axis=2).reshape(len(M), -1)


def _folded(dW: Array) -> Array:
    """The pullback of ``_whole``."""
    return np.asanyarray(dW[:, ::2] - _times_i(dW[:, 1::2]))


def _half(name: str, rows: int) -> int:
    if rows % 2:
        raise ValueError(
            f"transition {name}: the matrix has {rows} rows; need an even number, "
            f"for complex numbers as pairs of units: use {rows + 1}"
        )
    return rows // 2


@dataclass(frozen=True)
class Unitary(Manifold):
    """Any unitary matrix, moved on the manifold of all of them ("full capacity").

    The part M (H, H/2) has the complex columns. It starts at the unitary matrix nearest to the
    start, and its steps are those of ``stiefel.step`` on the real (H, H) matrix, which stays one of
    blocks. ``step``, ``metric``: see Manifold; by Wisdom et al. cayley in the canonical metric.
    Source: Wisdom et al. (2016), 4; Tagare (2011).
    Checked by: tests/matrices/test_unitary.py::test_steps_are_those_of_complex_numbers,
    tests/matrices/test_transitions.py::test_push_equals_pull.

    >>> Unitary().matrix({"M": np.array([[0.6], [0.8]])})[0].tolist()  # .6 + .8i
    [[0.6, -0.8], [0.8, 0.6]]
    """

    manifold = ("M",)

    def shapes(self, rows: int, columns: int) -> dict[str, tuple[int, ...]]:
        """M (H, H/2). Raises ValueError for an odd H."""
        return {"M": (rows, _half("unitary", rows))}

    def init(self, start: Array) -> Params:
        """M of the unitary matrix nearest to the start. Raises ValueError for an odd H."""
        _half("unitary", len(start))
        M = _folded(start)
        nearest = polar(M[::2] + 1j * M[1::2])
        return {"M": _pairs(nearest.real, nearest.imag)}

    def matrix(self, parts: Params) -> tuple[Array, None]:
        """W of the columns."""
        return _whole(parts["M"]), None

    def pull_back(self, parts: Params, tape: None, dW: Array) -> Params:
        """Of every complex entry both places."""
        return {"M": _folded(dW)}

    def retract(self, params: Params, grads: Params, names: tuple[str, ...], rate: Number) -> Moved:
        """As Manifold's, on the whole matrices."""
        W, dW = ({name: _whole(each[name]) for name in names} for each in (params, grads))
        retracted = super().retract(W, dW, names, rate)
        return retracted._replace(
            params={name: np.ascontiguousarray(M[:, ::2]) for name, M in retracted.params.items()}
        )

    def report(self, parts: Params) -> dict[str, float]:
        """As Manifold's, of the whole matrix."""
        return {"determinant": 1, "defect_M": stiefel.defect(_whole(parts["M"]))}


def _turned(X: Array, c: Array, s: Array) -> Array:
    """Every pair of rows of X turned by its angle; c and s (n,)."""
    c, s = c[:, None], s[:, None]
    return _pairs(c * X[::2] - s * X[1::2], s * X[::2] + c * X[1::2])


def _turned_pull(Y: Array, dY: Array) -> Array:
    """The gradient (n,) in the angles, with Y what ``_turned`` gave."""
    return np.asanyarray((dY[1::2] * Y[::2] - dY[::2] * Y[1::2]).sum(axis=1))


class _Mirror(NamedTuple):
    """The reflection ``I - 2 z z* / z*z`` of complex columns: V = [v, i v] (2 n, 2), v'v."""

    V: Array
    square: Array

    @staticmethod
    def of(v: Array) -> "_Mirror":
        return _Mirror(_whole(v[:, None]), np.asanyarray((v * v).sum(), v.dtype))

    def __call__(self, X: Array) -> Array:
        return np.asanyarray(X - matmul(self.V, divided(2 * matmul(self.V.T, X), self.square)))

    def pull(self, X: Array, dY: Array) -> Array:
        """The gradient in v. That in X is the reflection of dY."""
        Z, dZ = (divided(2 * matmul(self.V.T, each), self.square) for each in (X, dY))
        dV = -(matmul(dY, Z.T) + matmul(X, dZ.T))
        dsquare = np.asanyarray((dZ * matmul(self.V.T, X)).sum(), X.dtype)
        return np.asanyarray(_folded(dV)[:, 0] + divided(2 * dsquare * self.V[:, 0], self.square))


@cache
def _order(n: int, seed: int) -> Array:
    """A permutation of n numbers, the same with every version of NumPy."""
    return np.argsort(np.random.SeedSequence(seed).generate_state(n, np.uint64), kind="stable")


class _Tape(NamedTuple):
    """cos and sin of the angles, the reflections, F, and the columns after each factor."""

    c: Array
    s: Array
    mirrors: tuple[_Mirror, _Mirror]
    F: Array
    columns: list[Array]


@dataclass(frozen=True)
class UnitaryEvolution(Plain):
    """``W = D3 R2 F^-1 D2 P R1 F D1``: the uRNN's matrix, with 7 H/2 parameters.

    D: diagonal, ``e^(i theta)``; R: reflections ``I - 2 z z* / z*z``; F: the discrete Fourier
    transform; P: a constant permutation, drawn by its own ``seed``, the same for all matrices of
    one size. Parts: ``theta`` (3, H/2), the phases, and ``v`` (2, H), z as pairs. The phases start
    at the angles of the pairs in the start's first three columns, uniform where the start is
    orthogonal or Gaussian, and v at its last two columns.
    For floats and balls; rational numbers have no cosines.
    Source: Arjovsky, Shah & Bengio (2016), eq. 6.
    Checked by: tests/matrices/test_unitary.py::test_the_evolution_is_exactly_pulled_back,
    ::test_against_complex_pytorch.

    >>> parts = {"theta": np.zeros((3, 1)), "v": np.array([[1.0, 0.0], [1.0, 0.0]])}
    >>> (UnitaryEvolution().matrix(parts)[0].round(9) + 0).tolist()  # (-1) (-1)
    [[1.0, 0.0], [0.0, 1.0]]
    """

    seed: int = 0

    rational = False  # it has cosines

    def __post_init__(self) -> None:
        whole("transition urnn: seed", self.seed, 0, SEED)

    def shapes(self, rows: int, columns: int) -> dict[str, tuple[int, ...]]:
        """theta (3, H/2) and v (2, H). Raises ValueError for an odd H."""
        return {"theta": (3, _half("urnn", rows)), "v": (2, rows)}

    def init(self, start: Array) -> Params:
        """Angles and vectors read off the start. Raises ValueError for an odd H, and for a
        column of zeros where a vector is to be."""
        H = 2 * _half("urnn", len(start))
        phases, vectors = start[:, np.arange(3) % H].T, start[:, [H - 1, H - 2]].T
        if not vectors.any(axis=1).all():
            raise ValueError(
                "transition urnn: one of the start's last two columns is zero, and no reflection "
                "has such a vector; start from another matrix, such as orthogonal"
            )
        return {"theta": np.arctan2(phases[:, 1::2], phases[:, ::2]), "v": np.array(vectors)}

    def matrix(self, parts: Params) -> tuple[Array, _Tape]:
        """W, factor by factor from the right; F is not normalised, F^-1 = F* / n."""
        c, s, v = cos(parts["theta"]), sin(parts["theta"]), parts["v"]
        n = c.shape[1]
        mirrors = _Mirror.of(v[0]), _Mirror.of(v[1])
        place = np.multiply.outer(np.arange(n), np.arange(n)) % n
        cosines, sines = turns(v[0, ::2])
        F = _whole(_pairs(cosines[place], -sines[place]))
        columns = [_pairs(*(eye(n, v.dtype) * each[0] for each in (c, s)))]
        columns.append(matmul(F, columns[-1]))
        columns.append(mirrors[0](columns[-1])[self._rows(n)])
        columns.append(_turned(columns[-1], c[1], s[1]))
        columns.append(divided(matmul(F.T, columns[-1]), n))
        columns.append(_turned(mirrors[1](columns[-1]), c[2], s[2]))
        return _whole(columns[-1]), _Tape(c, s, mirrors, F, columns)

    def _rows(self, n: int) -> Array:
        return (2 * _order(n, self.seed)[:, None] + np.arange(2)).ravel()

    def pull_back(self, parts: Params, tape: _Tape, dW: Array) -> Params:
        """Factor by factor from the left: of a unitary one its conjugate transpose."""
        c, s, mirrors, F, columns = tape
        n, d = len(F) // 2, _folded(dW)
        third = _turned_pull(columns[5], d)
        d = _turned(d, c[2], -s[2])
        second, d = mirrors[1].pull(columns[4], d), mirrors[1](d)
        d = divided(matmul(F, d), n)
        middle = _turned_pull(columns[3], d)
        d = _turned(d, c[1], -s[1])[np.argsort(self._rows(n))]
        first, d = mirrors[0].pull(columns[1], d), mirrors[0](d)
        d = matmul(F.T, d)
        return {
            "theta": np.stack([_turned_pull(columns[0], d), middle, third]),
            "v": np.stack([first, second]),
        }
