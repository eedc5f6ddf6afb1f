"""The non-normal transition by its real Schur form, ``W = P (R + T) P'``.

Source: Kerg et al. (2019), nnRNN.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from refnet.batch import Array, Params, Scalar
from refnet.common.arguments import number
from refnet.maths.numeric import Number, cos, matmul, sin, times
from refnet.matrices.transitions.manifold import Manifold


class _Tape(NamedTuple):
    """The block matrix in the middle, P times it, and the rotations' entries."""

    middle: Array
    left: Array
    cos: Array
    sin: Array


@dataclass(frozen=True)
class Schur(Manifold):
    """P (N, N) orthogonal, R of 2 x 2 blocks ``g [[cos a, -sin a], [sin a, cos a]]`` and T
    strictly upper triangular; N even.

    Parts: P moves on the manifold; moduli ``g`` and angles ``a`` (N/2,); T (N, N), of which
    what is on and below the diagonal does not matter. T includes the upper corner of each
    block, so that every real matrix is one of these; T = 0 gives the normal matrices with
    eigenvalues g e^(+-i a). ``modulus_penalty``: strength of ``sum (g - 1)^2`` in the loss, as
    in the paper. ``step``, ``metric``: see Manifold.
    For floats and balls; not for rational numbers, whose cosines are not rational.
    Checked by: tests/matrices/test_transitions.py::test_complex_step.

    >>> parts = {"P": np.eye(2), "g": np.array([2.0]), "a": np.array([np.pi / 2]),
    ...          "T": np.zeros((2, 2))}
    >>> Schur().matrix(parts)[0].round(9).tolist()
    [[0.0, -2.0], [2.0, 0.0]]
    """

    modulus_penalty: Number = 0

    manifold = ("P",)
    rational = False  # it has cosines

    def __post_init__(self) -> None:
        super().__post_init__()
        number("transition schur: modulus_penalty", self.modulus_penalty)

    def shapes(self, rows: int, columns: int) -> dict[str, tuple[int, ...]]:
        """P and T (N, N), g and a (N/2,). Raises ValueError for an odd N."""
        if rows % 2:
            raise ValueError(
                f"transition schur: the matrix has {rows} rows; need an even number, "
                "for 2 x 2 blocks"
            )
        return {"P": (rows, rows), "T": (rows, rows), "g": (rows // 2,), "a": (rows // 2,)}

    def init(self, start: Array) -> Params:
        """The parts of the start matrix itself, up to rounding.

        They are read off its real Schur form, with the real eigenvalues first, so that they pair
        up; within a pair a rotation makes the two diagonal entries equal, as LAPACK does for
        complex pairs.
        """
        from scipy.linalg import schur  # slow to import, and only this needs it

        n = len(start)
        if n % 2 or start.shape != (n, n):
            raise ValueError(
                f"transition schur: the start is {start.shape}; need a square matrix "
                "of even size, for 2 x 2 blocks"
            )
        middle, P, reals = schur(start, output="real", sort=lambda re, im: im == 0)
        for i in range(0, reals, 2):
            (p, q), (_, r) = middle[i : i + 2, i : i + 2]
            turn = np.arctan2(r - p, q) / 2  # the rotation after which both are (p + r) / 2
            c, s = np.cos(turn), np.sin(turn)
            Q = np.array([[c, -s], [s, c]])
            middle[i : i + 2] = Q.T @ middle[i : i + 2]
            middle[:, i : i + 2] = middle[:, i : i + 2] @ Q
            P[:, i : i + 2] = P[:, i : i + 2] @ Q
        even = np.arange(0, n, 2)
        cos, sin = middle[even, even], middle[even + 1, even]
        T = np.triu(middle, 1)
        T[even, even + 1] += sin
        return {
            "P": np.ascontiguousarray(P),
            "T": T,
            "g": np.hypot(cos, sin),
            "a": np.arctan2(sin, cos),
        }

    def matrix(self, parts: Params) -> tuple[Array, _Tape]:
        """W, and the tape."""
        g, a = parts["g"], parts["a"]
        c, s = cos(a), sin(a)
        middle = np.triu(parts["T"], 1)
        even = np.arange(0, len(middle), 2)
        middle[even, even] = middle[even + 1, even + 1] = g * c
        middle[even + 1, even] = g * s
        middle[even, even + 1] -= g * s
        left = matmul(parts["P"], middle)
        return matmul(left, parts["P"].T), _Tape(middle, left, c, s)

    def pull_back(self, parts: Params, tape: _Tape, dW: Array) -> Params:
        """``dP = dW P M' + dW' P M``, with M the middle; ``dM = P' dW P``, read off by blocks."""
        P, g = parts["P"], parts["g"]
        right = matmul(dW, P)
        dM = matmul(P.T, right)
        even = np.arange(0, len(dM), 2)
        along = dM[even, even] + dM[even + 1, even + 1]
        across = dM[even + 1, even] - dM[even, even + 1]
        return {
            "P": np.asanyarray(matmul(right, tape.middle.T) + matmul(dW.T, tape.left)),
            "T": np.triu(dM, 1),
            "g": np.asanyarray(along * tape.cos + across * tape.sin),
            "a": np.asanyarray(g * (across * tape.cos - along * tape.sin)),
        }

    def penalty(self, parts: Params) -> tuple[Scalar, Params]:
        """``modulus_penalty sum (g - 1)^2`` and its gradient."""
        if not self.modulus_penalty:
            return 0, {}
        off = parts["g"] - 1
        return (
            times(self.modulus_penalty, np.asanyarray((off * off).sum(), off.dtype))[()],
            {"g": times(2 * self.modulus_penalty, off)},
        )
