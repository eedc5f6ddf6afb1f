"""Linear algebra for every number type that the nets run on.

float32, float64 and their complex twins go to LAPACK; longdouble, Fraction, Dual and balls,
which LAPACK would silently turn into float64, to the few lines here; integers become float64
first. Complex numbers are real ones with a complex step (refnet.nets.gradients), so nothing is
conjugated. On balls every result encloses the true one: a comparison that the balls do not
decide raises ArithmeticError or LinAlgError.
Checked by: tests/maths/test_linalg.py.
"""

import ctypes
from collections.abc import Callable
from fractions import Fraction
from functools import cache, cached_property
from itertools import count
from math import factorial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from refnet.batch import Array, Scalar
from refnet.maths.dual import Dual, dual_array, parts
from refnet.maths.kinds import inexact, kind
from refnet.maths.numeric import cos, divided, matmul, nonpositive, sin, sqrt
from refnet.maths.threads import in_parts


@cache
def _lapack(char: str, name: str, arguments: int) -> Callable[..., None]:
    """SciPy's LAPACK routine for a dtype; its arguments are addresses. A call through
    scipy.linalg would hold the interpreter's lock, and so stop all other threads."""
    from scipy.linalg import cython_lapack  # slow to import, and few nets solve anything

    # prototypes of our own: to set argtypes would change these functions for every library
    signature = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(
        ("PyCapsule_GetName", ctypes.pythonapi)
    )
    address = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    routine = cython_lapack.__pyx_capi__[_LETTERS[char] + name]
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * arguments)
    return kind(address(routine, signature(routine)))


def _call(routine: Callable[..., None], *arguments: Any) -> None:
    """Whole numbers and letters are passed by address, as arrays are."""
    routine(
        *[
            value.ctypes.data
            if isinstance(value, np.ndarray)
            else ctypes.byref(
                ctypes.c_int(value) if isinstance(value, int) else ctypes.c_char(value)
            )
            for value in arguments
        ]
    )


_LETTERS = dict(zip("fdFD", "sdcz"))
"""LAPACK's letters for its four dtypes."""


def _by_columns(a: Array) -> Array:
    """A copy as LAPACK stores it, and may overwrite it."""
    return np.array(a, a.dtype.newbyteorder("="), order="F")


def eye(n: int, dtype: DTypeLike) -> Array:
    """The identity (n, n) of a dtype; for objects of Python ints, exact in every field.

    >>> eye(2, np.float32).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    return np.eye(n, dtype=int if dtype == object else dtype).astype(dtype)


def _admit_system(a: Array, b: Array) -> None:
    if a.ndim != 2 or b.ndim != 2 or not a.shape[0] == a.shape[1] == b.shape[0]:
        raise ValueError(
            f"solve: a is {a.shape} and b {b.shape}; need (N, N) and (N, K): give a "
            "single right-hand side as a column, b[:, None]"
        )


def solve(a: Array, b: Array) -> Array:
    """``a^-1 b`` by Gaussian elimination, never by an inverse: (N, N) and (N, K) give (N, K).

    Raises np.linalg.LinAlgError if a is singular (floats: a pivot is exactly 0; balls: every
    candidate contains 0), ValueError on shapes that disagree.

    >>> solve(np.array([[2.0, 0.0], [0.0, 4.0]]), np.ones((2, 1))).tolist()
    [[0.5], [0.25]]

    Checked by: tests/maths/test_linalg.py::test_solve,
    tests/maths/test_linalg.py::test_solve_refuses_shapes.
    """
    _admit_system(a, b)
    a, b = inexact(a), inexact(b)
    dtype = np.result_type(a, b)
    if dtype.char in _LETTERS and a.size:
        return Factored(a.astype(dtype)).solve(b.astype(dtype))
    a, b = a.astype(dtype), b.astype(dtype)
    if dtype == object:
        kind(a, b)
    n = len(a)
    for k in range(n):
        if dtype == object:  # exact numbers need a pivot that is not zero, not a large one
            good = [i for i in range(k, n) if a[i, k] != 0]
            pivot = good[0] if good else k
        else:
            pivot = k + int(np.argmax(abs(a[k:, k])))
        if not a[pivot, k] != 0:
            raise np.linalg.LinAlgError(
                f"solve: the matrix {a.shape} is singular, or its balls do not exclude it"
            )
        if pivot != k:
            a[[k, pivot]], b[[k, pivot]] = a[[pivot, k]], b[[pivot, k]]
        factors = divided(a[k + 1 :, k, None], a[k, k])
        a[k + 1 :, k:] = a[k + 1 :, k:] - factors * a[k, k:]
        b[k + 1 :] = b[k + 1 :] - factors * b[k]
    for k in reversed(range(n)):
        b[k] = divided(b[k] - matmul(a[k : k + 1, k + 1 :], b[k + 1 :])[0], a[k, k])
    return b


class Factored:
    """The LU decomposition of a float or complex a (N, N), to solve with it and its transpose.

    Raises np.linalg.LinAlgError if a pivot is exactly 0.
    Checked by: tests/maths/test_linalg.py::test_factored.
    """

    def __init__(self, a: Array) -> None:
        n = len(a)
        self.lu, self.pivots = _by_columns(a), np.empty(n, np.intc)
        info = np.array(0, np.intc)
        _call(_lapack(a.dtype.char, "getrf", 6), n, n, self.lu, n, self.pivots, info)
        if info:
            raise np.linalg.LinAlgError(f"solve: the matrix {a.shape} is singular")

    def solve(self, b: Array, transposed: bool = False) -> Array:
        """``a^-1 b``, or ``a'^-1 b``, of a's dtype; large ones by columns in several threads."""
        x, n = _by_columns(b), len(self.lu)
        routine = _lapack(x.dtype.char, "getrs", 9)

        def part(columns: Array) -> None:
            info = np.array(0, np.intc)
            _call(
                routine,
                b"T" if transposed else b"N",
                n,
                columns.shape[1],
                self.lu,
                n,
                self.pivots,
                columns,
                n,
                info,
            )

        in_parts(part, x, n * x.size)
        return x


MOST = 3
"""Products that ``OnePlus`` makes at most: Gaussian elimination takes about as long."""


class OnePlus:
    """``I + a`` for a (N, N) of any dtype, to solve with it and its transpose; a is not changed.

    Where a is small, by products alone. The fixed-point iteration ``x <- b - a x`` from
    ``x = b`` leaves, after k products, the residual ``(-a)^(k+1) b`` and with
    ``q = ||a||_F < 1`` an error
    ``||x - (I + a)^-1 b||_F <= q^(k+1) / (1 - q) ||b||_F``. float32 and float64 take the least
    k with which that is at most ``error`` eps / 4 of ``||b||_F``, if it is not above MOST: what
    is cut off is then smaller than what is rounded. All else is ``solve``; of floats, the
    decomposition is kept.
    Source: Golub & Van Loan, Matrix Computations, lemma 2.3.3 (the Neumann series).
    Checked by: tests/maths/test_linalg.py::test_solve_one_plus.
    """

    def __init__(self, a: Array) -> None:
        self.a = inexact(a)
        flat = self.a.ravel(order="K")
        self.size = float(np.dot(flat, flat)) ** 0.5 if a.dtype.char in "fd" else np.inf

    def solve(self, b: Array, error: float = 1, transposed: bool = False) -> Array:
        """``(I + a)^-1 b``, or ``(I + a')^-1 b``. Raises as ``linalg.solve``."""
        a, q = self.a.T if transposed else self.a, self.size
        _admit_system(a, b)
        bound = error * float(np.finfo(a.dtype).eps) / 4 if q < 0.5 and a.dtype == b.dtype else 0
        for products in range(MOST + 1):
            if bound and q ** (products + 1) / (1 - q) <= bound:
                x = b
                for _ in range(products):
                    x = np.asarray(b - matmul(a, x))
                return x
        if a.dtype == b.dtype and a.dtype.char in _LETTERS and a.size:
            return self._factored.solve(b, transposed)
        return solve(self._matrix.T if transposed else self._matrix, b)

    @cached_property
    def _matrix(self) -> Array:
        a = np.array(self.a, subok=True)
        diagonal = np.arange(len(a))
        a[diagonal, diagonal] = a[diagonal, diagonal] + 1
        return a

    @cached_property
    def _factored(self) -> Factored:
        return Factored(self._matrix)


def qr(a: Array) -> tuple[Array, Array]:
    """Q (N, K) with orthonormal columns and R (K, K) upper triangular with a positive
    diagonal, ``a = Q R``; a is (N, K), N >= K, of full rank, which makes both unique.

    Any dtype with square roots.

    >>> Q, R = qr(np.array([[3.0], [4.0]]))
    >>> Q.round(12).tolist(), R.round(12).tolist()
    ([[0.6], [0.8]], [[5.0]])

    Checked by: tests/maths/test_linalg.py::test_qr.
    """
    a = inexact(a)
    if a.dtype.char in "fd":
        q, r = np.linalg.qr(a)
        signs = np.where(np.diag(r) < 0, -1, 1).astype(a.dtype)
        return q * signs, r * signs[:, None]
    # Householder reflections, each turning a column onto the half of its axis that is further from
    # it: the one that has no cancellation, and a derivative for a column that is on the axis, too
    n, columns = a.shape
    q, r = eye(n, a.dtype), a.copy()
    for k in range(columns):
        v = r[k:, k].copy()
        length = sqrt(np.asanyarray((v * v).sum(), v.dtype))[()]
        sign = 1 if nonpositive(v[:1])[0] else -1
        v[0] = v[0] - sign * length
        u = 2 * v / (v * v).sum()
        r[k:] = r[k:] - np.multiply.outer(u, matmul(v[None], r[k:])[0])
        q[:, k:] = q[:, k:] - np.multiply.outer(matmul(q[:, k:], v[:, None])[:, 0], u)
        r[k], q[:, k] = sign * r[k], sign * q[:, k]
    return q[:, :columns], np.triu(r[:columns])


PI: dict[type, Callable[[], Scalar]] = {}
"""Kind of object arrays -> its own pi."""


def turns(like: Array) -> tuple[Array, Array]:
    """cos and sin of ``2 pi k / n``, k = 0 .. n - 1, both (n,) in the kind of ``like`` (n,).

    Exact numbers have those of 1, 2 and 4 parts of a turn; TypeError of others.

    >>> [part.round(9).tolist() for part in turns(np.zeros(4))]
    [[1.0, 0.0, -1.0, -0.0], [0.0, 1.0, 0.0, -1.0]]

    Checked by: tests/maths/test_linalg.py::test_turns.
    """
    n = len(like)
    k = np.arange(n)
    if like.dtype != object:
        wide = np.longdouble if like.dtype.char in "gG" else np.float64
        angle = 8 * np.arctan(wide(1)) * k / n
        if like.dtype.kind == "V":
            angle = like * 0 + angle
        cosines, sines = np.cos(angle), np.sin(angle)
        return cosines.astype(like.dtype), sines.astype(like.dtype)
    number = kind(like)
    number = kind(parts(like)[0]) if number is Dual else number
    if 4 % n == 0:
        quarter = np.array([[1, 0, -1, 0], [0, 1, 0, -1]], object)[:, :: 4 // n]
        return quarter[0], quarter[1]
    if number not in PI:
        raise TypeError(
            f"turns: the cosine of 1/{n} of a turn is no {number.__name__}; use float64, balls "
            "(refnet.exact), or 1, 2 or 4 complex numbers"
        )
    angle = np.array([2 * PI[number]() * j / n for j in range(n)], object)
    return cos(angle), sin(angle)


EXPM: dict[type, Callable[[Array], Array] | None] = {int: None, float: None, Fraction: None}
"""Kind of object arrays -> its own exponential; None where the Taylor polynomial stands for it."""


def _expm_of_dual(a: Array) -> Array:
    """``exp([[x, d], [0, x]])`` has e^x on its diagonal and its derivative along d above."""
    x, d = parts(a)
    n = len(x)
    whole = expm(np.block([[x, d], [d * 0, x]])).value
    return dual_array(whole[:n, :n], whole[:n, n:])


def _expm_of_kind(a: Array) -> Callable[[Array], Array] | None:
    """The exponential of a's kind; None if the Taylor polynomial stands for it."""
    if a.dtype != object:
        return None
    number = kind(a)
    if number is Dual:
        return _expm_of_dual if _expm_of_kind(np.concatenate(parts(a))) else None
    if number not in EXPM:
        raise TypeError(
            f"expm of {number.__name__} is not known, and a truncated series would not "
            "enclose it; lift the matrix (refnet.exact.lift)"
        )
    return EXPM[number]


class Exponential(NamedTuple):
    """``value``: the exponential; the rest is what its adjoint needs: the scaled matrix, the
    Horner sums of its Taylor polynomial, and the powers before each squaring. Without sums
    the value is the kind's own exponential of ``scaled``."""

    value: Array
    scaled: Array
    sums: list[Array]
    powers: list[Array]


def _degree(dtype: np.dtype[Any], norm: float, derivatives: int) -> int:
    """The least Taylor degree at which the next term, of the value and of so many derivatives, is
    at most a quarter of eps."""
    eps = float(np.finfo(dtype).eps) if dtype.kind in "fc" else 2.0**-52
    return next(k for k in count(1) if norm**k / factorial(k) <= eps / 4) + derivatives - 1


def expm(a: Array) -> Exponential:
    """The matrix exponential of a (N, N), by scaling and squaring of a Taylor polynomial.

    ``e^a = (e^(a / 2^s))^(2^s)`` with s such that the scaled matrix has a 1-norm of at most
    1/2; real floats take the degree that their norm demands for the value and its derivative,
    all else, which may carry a derivative, that for 1/2 and one derivative more. On balls, and
    dual numbers over balls, it is python-flint's exponential, whose radius contains the remainder
    of its series. On rational numbers it is the polynomial of that degree: not e^a, but a map
    whose adjoint can be proved by equality.
    Source: Higham, Functions of Matrices (2008), chapter 10.

    >>> expm(np.array([[0.0, 1.0], [0.0, 0.0]])).value.tolist()
    [[1.0, 1.0], [0.0, 1.0]]

    Checked by: tests/maths/test_linalg.py::test_expm, ::test_derivatives_of_expm,
    tests/exact/test_enclosures.py::test_rotations.
    """
    of_kind = _expm_of_kind(a)
    if of_kind is not None:
        return Exponential(of_kind(a), a, [], [])
    a = inexact(a)
    norm = np.where(nonpositive(a), -a, a).sum(axis=0)
    squarings = 0
    while not nonpositive(2 * norm - 1).all():
        norm, squarings = divided(norm, 2), squarings + 1
        if squarings > 64:
            raise ValueError(
                f"expm: the matrix {a.shape} has entries that are not finite, or "
                "of a size whose exponential is not"
            )
    scaled = divided(a, 2**squarings)
    identity = eye(len(a), a.dtype)
    degree = (
        _degree(a.dtype, float(norm.max(initial=0)), 1)
        if a.dtype.kind == "f"
        else _degree(a.dtype, 0.5, 2)
    )
    sums = [np.asanyarray(identity + divided(scaled, degree))]
    for k in range(degree - 1, 0, -1):
        sums.append(np.asanyarray(identity + divided(matmul(scaled, sums[-1]), k)))
    powers = [sums[-1]]
    for _ in range(squarings):
        powers.append(matmul(powers[-1], powers[-1]))
    return Exponential(powers[-1], scaled, sums, powers)


def expm_pull(tape: Exponential, dvalue: Array) -> Array:
    """The gradient in a, given that in ``e^a``: backwards through every product of ``expm``.

    ``X = Y Y`` gives ``dY = dX Y' + Y' dX``; ``X = I + a Y / k`` gives
    ``da += dX Y' / k`` and ``dY = a' dX / k``.

    >>> tape = expm(np.zeros((2, 2)))
    >>> expm_pull(tape, np.eye(2)).tolist()  # at 0 the derivative is the identity
    [[1.0, 0.0], [0.0, 1.0]]

    Checked by: tests/maths/test_linalg.py::test_expm_push_equals_pull.
    """
    if not tape.sums:  # exp of [[a', d], [0, a']] has the derivative at a' along d in its corner
        n = len(dvalue)
        turned = tape.scaled.T
        block = np.block([[turned, dvalue], [np.zeros_like(dvalue), turned]])
        return expm(block).value[:n, n:]
    d = dvalue
    for power in reversed(tape.powers[:-1]):
        d = matmul(d, power.T) + matmul(power.T, d)
    da: Scalar = 0
    for k, inner in enumerate(reversed(tape.sums[:-1]), start=1):
        d = divided(d, k)
        da = da + matmul(d, inner.T)
        d = matmul(tape.scaled.T, d)
    return divided(da + divided(d, len(tape.sums)), 2 ** (len(tape.powers) - 1))
