"""Factors of recorded matrices, QR and spectra, and what all linear algebra shares.

Floats and perturbed floats go to LAPACK, rationals and balls to python-flint, whose results
contain the true ones; spectra are in ``refnet.exact.spectra``. Signs of Q and of vectors are those
that NumPy's own routine gives at these numbers. What is not determined is refused by name: a
singular matrix, dependent columns, eigenvalues or singular values that are not proved apart.

Source of the derivatives: Townsend, Differentiating the singular value decomposition (2016);
Walter & Lehmann, Algorithmic differentiation of linear algebra functions (2010).
Checked by: tests/exact/test_linear_algebra.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial, wraps

import numpy as np

from refnet.batch import Array
from refnet.exact.products import matmul_raw
from refnet.exact.recorder import Operand, Operation, Recorded, derived, refuse_infinite
from refnet.exact.spectra import Spectrum
from refnet.maths import linalg
from refnet.maths.kinds import kind

Raw = tuple[Array, ...]


def admit(name: str, x: Recorded, square: bool = True) -> None:
    """Raise ValueError unless x is a stack of matrices."""
    if x.ndim < 2 or square and x.shape[-1] != x.shape[-2]:
        raise ValueError(
            f"np.linalg.{name}: an array of shape {x.shape}; need "
            f"{'square matrices' if square else 'matrices'} in the last two axes"
        )


def is_ball(name: str, raw: Array) -> bool:
    """Whether these are exact numbers, which then have to be balls."""
    if raw.dtype != object:
        return False
    if kind(raw).__name__ not in ("arb", "int"):
        raise TypeError(
            f"np.linalg.{name} of {kind(raw).__name__} is no number of that type; use kind='ball'"
        )
    return True


def in_floats(function: Operation, *arrays: Array) -> Raw:
    """NumPy's routine; on perturbed floats as a backward stable algorithm rounds."""
    for array in arrays:
        if array.dtype.kind == "V":
            return tuple(array.stable(function, *arrays))  # type: ignore[attr-defined]
    results = function(*arrays)
    return tuple(results) if isinstance(results, tuple) else (np.asarray(results),)


def by_flint(method: str, a: Array, *others: Array, name: str = "") -> Operand:
    """A method of python-flint's matrix of balls or rationals, for np.linalg's ``name``."""
    from refnet.exact.library import flint

    module = flint()
    matrix = module.fmpq_mat if kind(a, *others) is module.fmpq else module.arb_mat
    matrices = [matrix(*m.shape, m.ravel().tolist()) for m in (a, *others)]
    try:
        result = getattr(matrices[0], method)(*matrices[1:])
    except ZeroDivisionError:
        raise ArithmeticError(
            f"np.linalg.{name or method}: the matrix {a.shape} is singular, "
            "or its balls do not exclude it"
        ) from None
    if method == "det":
        return result
    out = np.empty(result.nrows() * result.ncols(), object)
    out[:] = result.entries()
    return out.reshape(result.nrows(), result.ncols())


def solve_raw(a: Array, b: Array) -> Array:
    """``a^-1 b``."""
    if object in (a.dtype, b.dtype):
        return np.asarray(by_flint("solve", a, b))
    return in_floats(np.linalg.solve, a, b)[0]


def inv_raw(a: Array, name: str = "inv") -> Array:
    """The inverse, for np.linalg's ``name``."""
    if a.dtype == object:
        return np.asarray(by_flint("inv", a, name=name))
    return in_floats(np.linalg.inv, a)[0]


def each_matrix(name: str, square: bool = True) -> Callable[[Operation], Operation]:
    """The operation on each matrix of a stack; tuples of results as NumPy names them."""

    def over(operation: Operation) -> Operation:
        @wraps(operation)
        def each(x: Operand, *args: Operand, **options: Operand) -> Operand:
            admit(name, x, square)
            if x.ndim == 2:
                results = operation(x, *args, **options)
            else:
                parts = [each(part, *args, **options) for part in x]
                several = isinstance(parts[0], tuple)
                results = tuple(map(np.stack, zip(*parts))) if several else np.stack(parts)
            if not isinstance(results, tuple):
                return results
            model = type(getattr(np.linalg, name)(np.eye(1)))
            return model(*results)

        return each

    return over


# ---- orthogonal factors


def qr(a: Recorded, mode: str = "reduced") -> Operand:
    """``np.linalg.qr``, recorded."""
    admit("qr", a, False)
    rows, columns = a.shape[-2:]
    if mode not in ("reduced", "r") and not (mode == "complete" and rows <= columns):
        raise TypeError(f"np.linalg.qr with mode = {mode!r} is not recorded; known: 'reduced', 'r'")
    if rows >= columns:
        q, r = _qr(a)
    else:  # the other columns in the basis of the first
        q, square = _qr(a[..., :rows])
        r = np.concatenate([square, np.swapaxes(q, -1, -2) @ a[..., rows:]], axis=-1)
    return r if mode == "r" else type(np.linalg.qr(np.eye(1)))(q, r)


@each_matrix("qr", square=False)
def _qr(a: Recorded) -> Operand:
    node = a.node
    q, r = _qr_raw(node.raw)

    def pull(dq: Array, dr: Array) -> Array:
        M = matmul_raw(r, dr.T) - matmul_raw(dq.T, q)
        lower = np.tril(np.ones(M.shape, bool))
        symmetric = np.where(lower, M, M.T)
        return solve_raw(r, (dq + matmul_raw(q, symmetric)).T).T

    return (
        derived(a, q, "np.linalg.qr", (node, lambda g: pull(g, r * 0))),
        derived(a, r, "np.linalg.qr", (node, lambda g: pull(q * 0, g * np.triu(np.ones_like(g))))),
    )


def _qr_raw(a: Array) -> Raw:
    if not is_ball("qr", a):
        return in_floats(np.linalg.qr, a)
    from refnet.exact.balls import arb

    try:
        q, r = linalg.qr(a + arb(0))
        refuse_infinite("np.linalg.qr", q)
    except ArithmeticError as error:
        raise ArithmeticError(
            "np.linalg.qr: a column depends on those before it, or its balls do not exclude it "
            f"({error})"
        ) from None
    numpys = np.linalg.qr(np.asarray(a, float))[1]
    signs = np.where(np.diag(numpys) < 0, -1, 1)
    return q * signs, r * signs[:, None]


# ---- spectra


def _needed(g: Array) -> list[int]:
    """The places of cotangents that are not certain to be 0."""
    if g.dtype == object:
        return [n for n, value in enumerate(g.tolist()) if not (value == 0)]
    return list(range(len(g)))


def _refuse_close(name: str, spectrum: Spectrum, places: Iterable[int], what: str) -> None:
    for n in places:
        if not spectrum.apart[n]:
            others = "the others and from 0" if name.startswith("svd") else "the others"
            value = spectrum.values[n].mid().str(12, radius=False)
            raise ArithmeticError(
                f"np.linalg.{name}: value {n}, {value}, is not proved apart from {others}, and its "
                f"{what} is not defined where they meet"
            )


def _pull_of_values(name: str, spectrum: Spectrum) -> Callable[[Array], Array]:
    def pull(g: Array) -> Array:
        some = _needed(g)
        _refuse_close(name, spectrum, some, "derivative")
        left, right = spectrum.left[:, some], spectrum.right[:, some]
        return matmul_raw(left * g[some], right.T)

    return pull


def _gaps(values: Array) -> Array:
    """1 / (values[j] - values[i]), 0 on the diagonal; not float for an int zero."""
    gaps = values - values[:, None]
    same = np.eye(len(values), dtype=bool)
    inverse = 1 / np.where(same, values * 0 + 1, gaps)
    return np.asanyarray(np.where(same, values * 0, inverse))


def symmetric(a: Recorded, UPLO: str) -> Operand:
    """The matrix that NumPy takes a triangle of."""
    lower = np.tril(np.ones(a.shape)) if UPLO.upper() == "L" else np.triu(np.ones(a.shape))
    strict = np.asarray(lower * (1 - np.eye(len(lower))))
    return np.where(lower, a, 0) + np.where(strict, a, 0).T


def _eigh_raw(a: Array) -> Spectrum:
    if is_ball("eigh", a):
        from refnet.exact.spectra import eigh

        return eigh(a)

    def routine(a: Array) -> Raw:
        values, vectors = np.linalg.eigh(a)
        return values, vectors * _signs(a, lambda mean: np.linalg.eigh(mean)[1], vectors)

    values, vectors = in_floats(routine, a)
    return Spectrum(vectors, values, vectors, np.ones(len(a), bool))


def _signs(stack: Array, of_mean: Callable[[Array], Array], vectors: Array) -> Array:
    """The signs that give the vectors of each matrix of a stack the directions of its mean's."""
    if stack.ndim == 2:
        return np.ones((1, vectors.shape[-1]))
    products = (vectors * of_mean(stack.mean(axis=0))).sum(axis=-2, keepdims=True)
    return np.asarray(np.sign(products))


@each_matrix("eigh")
def eigh(a: Recorded, UPLO: str = "L") -> Operand:
    """``np.linalg.eigh``, recorded; eigenvalues that are not simple are refused."""
    s = symmetric(a, UPLO)
    node = s.node
    spectrum = _eigh_raw(node.raw)
    _refuse_close("eigh", spectrum, range(len(spectrum.apart)), "vector")
    w, v = spectrum.values, spectrum.right

    def pull(g: Array) -> Array:
        return matmul_raw(matmul_raw(v, matmul_raw(v.T, g) * _gaps(w)), v.T)

    return (
        derived(s, w, "np.linalg.eigh", (node, _pull_of_values("eigh", spectrum))),
        derived(s, v, "np.linalg.eigh", (node, pull)),
    )


@each_matrix("eigvalsh")
def eigvalsh(a: Recorded, UPLO: str = "L") -> Operand:
    """``np.linalg.eigvalsh``, recorded; only values that enter a gradient need to be simple."""
    s = symmetric(a, UPLO)
    spectrum = _eigh_raw(s.raw)
    pull = _pull_of_values("eigvalsh", spectrum)
    return derived(s, spectrum.values, "np.linalg.eigvalsh", (s.node, pull))


def _svd_raw(a: Array) -> Spectrum:
    if is_ball("svd", a):
        from refnet.exact.spectra import svd

        return svd(a)

    def routine(a: Array) -> Raw:
        left, values, right = np.linalg.svd(a, full_matrices=False)
        signs = _signs(a, lambda mean: np.linalg.svd(mean, full_matrices=False)[0], left)
        return left * signs, values, right * np.swapaxes(signs, -1, -2)

    left, values, right = in_floats(routine, a)
    return Spectrum(left, values, right.T, np.ones(len(values), bool))


@each_matrix("svd", square=False)
def _svd(a: Recorded) -> Operand:
    node = a.node
    spectrum = _svd_raw(node.raw)
    _refuse_close("svd", spectrum, range(len(spectrum.apart)), "vector")
    u, s, v = spectrum[:3]
    gaps = _gaps(s * s)

    def side(vectors: Array, others: Array, g: Array) -> Array:
        """The cotangent by way of the left vectors, or that of the transpose by the right ones."""
        inner = matmul_raw(vectors.T, g)
        turning = inner * gaps
        within = matmul_raw(vectors, (turning + turning.T) * s)
        outside = (g - matmul_raw(vectors, inner)) / s
        return matmul_raw(within + outside, others.T)

    return (
        derived(a, u, "np.linalg.svd", (node, partial(side, u, v))),
        derived(a, s, "np.linalg.svd", (node, _pull_of_values("svd", spectrum))),
        derived(a, v.T, "np.linalg.svd", (node, lambda g: side(v, u, g.T).T)),
    )


def svd(
    a: Recorded, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False
) -> Operand:
    """``np.linalg.svd``, recorded; values that are not simple, or 0, have no vectors."""
    admit("svd", a, False)
    if hermitian:
        raise TypeError("np.linalg.svd with hermitian=True is not recorded; use np.linalg.eigh")
    if not compute_uv:
        return svdvals(a)
    if full_matrices and a.shape[-1] != a.shape[-2]:
        raise TypeError(
            f"np.linalg.svd of the shape {a.shape}: the further vectors of full matrices are not "
            "determined; use full_matrices=False, or compute_uv=False for the values"
        )
    return _svd(a)


@each_matrix("svdvals", square=False)
def svdvals(x: Recorded) -> Operand:
    """``np.linalg.svdvals``, recorded; only values that enter a gradient need to be simple."""
    spectrum = _svd_raw(x.raw)
    pull = _pull_of_values("svdvals", spectrum)
    return derived(x, spectrum.values, "np.linalg.svd", (x.node, pull))
