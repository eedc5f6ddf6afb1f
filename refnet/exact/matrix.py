"""Linear algebra of recorded arrays: np.linalg and scipy.linalg.expm, with their derivatives.

Floats and perturbed floats go to LAPACK, rationals and balls to python-flint, whose results
contain the true ones; spectra are in ``refnet.exact.spectra``. Signs of Q and of vectors are those
that NumPy's own routine gives at these numbers. What is not determined is refused by name: a
singular matrix, dependent columns, eigenvalues or singular values that are not proved apart.

Source of the derivatives: Giles, Collected matrix derivative results (2008); Townsend,
Differentiating the singular value decomposition (2016); Walter & Lehmann, Algorithmic
differentiation of linear algebra functions (2010).
Checked by: tests/exact/test_linear_algebra.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import numpy as np

from refnet.batch import Array
from refnet.exact.elementwise import UFUNCS, both
from refnet.exact.products import matmul_raw
from refnet.exact.recorder import Operand, Operation, Recorded, derived, record, refuse_infinite
from refnet.exact.reductions import Axes, axes_of, largest_of, smallest_of, sum_of
from refnet.exact.spectra import Spectrum
from refnet.maths import linalg
from refnet.maths.kinds import kind

__all__ = ["LINALG", "expm", "norm"]

Raw = tuple[Array, ...]


def _admit(name: str, x: Recorded, square: bool = True) -> None:
    if x.ndim < 2 or square and x.shape[-1] != x.shape[-2]:
        raise ValueError(
            f"np.linalg.{name}: an array of shape {x.shape}; need "
            f"{'square matrices' if square else 'matrices'} in the last two axes"
        )


def _is_ball(name: str, raw: Array) -> bool:
    """Whether these are exact numbers, which then have to be balls."""
    if raw.dtype != object:
        return False
    if kind(raw).__name__ not in ("arb", "int"):
        raise TypeError(
            f"np.linalg.{name} of {kind(raw).__name__} is no number of that type; use kind='ball'"
        )
    return True


def _in_floats(function: Operation, *arrays: Array) -> Raw:
    """NumPy's routine; on perturbed floats as a backward stable algorithm rounds."""
    for array in arrays:
        if array.dtype.kind == "V":
            return tuple(array.stable(function, *arrays))  # type: ignore[attr-defined]
    results = function(*arrays)
    return tuple(results) if isinstance(results, tuple) else (np.asarray(results),)


def _by_flint(method: str, a: Array, *others: Array, name: str = "") -> Any:
    """A method of python-flint's matrix of balls or rationals, for np.linalg's ``name``."""
    from refnet.exact.library import flint

    module = flint()
    matrix = module.fmpq_mat if kind(a, *others) is module.fmpq else module.arb_mat
    given = [matrix(*m.shape, m.ravel().tolist()) for m in (a, *others)]
    try:
        result = getattr(given[0], method)(*given[1:])
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


def _solve_raw(a: Array, b: Array) -> Array:
    if object in (a.dtype, b.dtype):
        return np.asarray(_by_flint("solve", a, b))
    return _in_floats(np.linalg.solve, a, b)[0]


def _inv_raw(a: Array, name: str = "inv") -> Array:
    if a.dtype == object:
        return np.asarray(_by_flint("inv", a, name=name))
    return _in_floats(np.linalg.inv, a)[0]


def _matrices(name: str, square: bool = True) -> Callable[[Operation], Operation]:
    """The operation on each matrix of a stack; tuples of results as NumPy names them."""

    def over(operation: Operation) -> Operation:
        @wraps(operation)
        def each(x: Operand, *args: Operand, **options: Any) -> Operand:
            _admit(name, x, square)
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


def _number(x: Recorded) -> Recorded:
    return x[()]


# ---- systems


def solve(a: Operand, b: Operand) -> Operand:
    """``np.linalg.solve``, recorded."""
    a, b = both(a, b)
    _admit("solve", a)
    if b.ndim == 1:
        return solve(a, b[:, None])[..., 0]
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if lead:
        a, b = (np.broadcast_to(m, lead + m.shape[-2:]) for m in (a, b))
        return np.stack([solve(a[n], b[n]) for n in range(len(a))])
    u, v = a.node, b.node
    x = _solve_raw(u.raw, v.raw)
    refuse_infinite("np.linalg.solve", x)
    return derived(
        a,
        x,
        "np.linalg.solve",
        (u, lambda g: -matmul_raw(_solve_raw(u.raw.T, g), x.T)),
        (v, lambda g: _solve_raw(u.raw.T, g)),
    )


@_matrices("inv")
def inv(a: Recorded) -> Operand:
    """``np.linalg.inv``, recorded."""
    node = a.node
    y = _inv_raw(node.raw)
    refuse_infinite("np.linalg.inv", y)
    return derived(a, y, "np.linalg.inv", (node, lambda g: -matmul_raw(y.T, matmul_raw(g, y.T))))


@_matrices("det")
def det(a: Recorded) -> Operand:
    """``np.linalg.det``, recorded; of singular matrices refused, whose derivative it has not."""
    node = a.node
    if node.raw.dtype == object:
        y = np.asarray(_by_flint("det", node.raw), object)
    else:
        (y,) = _in_floats(np.linalg.det, node.raw)
    return derived(a, y, "np.linalg.det", (node, lambda g: g * y * _inv_raw(node.raw, "det").T))


@_matrices("slogdet")
def slogdet(a: Recorded) -> Operand:
    """``np.linalg.slogdet``, recorded."""
    if a.raw.dtype == object:
        value = det(a)
        return _number(np.sign(value)), _number(np.log(abs(value)))
    node = a.node
    sign, size = _in_floats(np.linalg.slogdet, node.raw)
    log = derived(a, size, "np.linalg.slogdet", (node, lambda g: g * _inv_raw(node.raw).T))
    return _number(derived(a, sign, "np.linalg.slogdet")), _number(log)


@_matrices("cholesky")
def cholesky(a: Recorded, upper: bool = False) -> Operand:
    """``np.linalg.cholesky``, recorded, column by column."""
    rest, columns = _symmetric(a, "U" if upper else "L"), []
    for k in range(len(rest)):
        if rest.raw.dtype == object and not rest.raw[k, k] > 0:
            raise ArithmeticError(
                f"np.linalg.cholesky: pivot {k} is not positive, or its ball does not exclude it"
            )
        column = rest[:, k] / np.sqrt(rest[k, k])
        columns.append(np.where(np.arange(len(rest)) >= k, column, 0))
        rest = rest - np.outer(column, column)
    return np.stack(columns, axis=0 if upper else 1)


def matrix_power(a: Recorded, n: int) -> Operand:
    """``np.linalg.matrix_power``, recorded."""
    _admit("matrix_power", a)
    if n < 0:
        a, n = inv(a), -n
    out = record(a, np.broadcast_to(np.eye(a.shape[-1]), a.shape))
    for bit in f"{n:b}":
        out = out @ out
        out = out @ a if bit == "1" else out
    return out


def expm(A: Recorded) -> Operand:
    """``scipy.linalg.expm``, recorded."""
    _admit("expm", A)
    if A.ndim > 2:
        return np.stack([expm(part) for part in A])
    node = A.node
    _is_ball("expm", node.raw)
    tape = linalg.expm(node.raw)
    refuse_infinite("scipy.linalg.expm", tape.value)
    return derived(A, tape.value, "scipy.linalg.expm", (node, lambda g: linalg.expm_pull(tape, g)))


# ---- orthogonal factors


def qr(a: Recorded, mode: str = "reduced") -> Operand:
    """``np.linalg.qr``, recorded."""
    _admit("qr", a, False)
    rows, columns = a.shape[-2:]
    if mode not in ("reduced", "r") and not (mode == "complete" and rows <= columns):
        raise TypeError(f"np.linalg.qr with mode = {mode!r} is not recorded; known: 'reduced', 'r'")
    if rows >= columns:
        q, r = _qr(a)
    else:  # the other columns in the basis of the first
        q, square = _qr(a[..., :rows])
        r = np.concatenate([square, np.swapaxes(q, -1, -2) @ a[..., rows:]], axis=-1)
    return r if mode == "r" else type(np.linalg.qr(np.eye(1)))(q, r)


@_matrices("qr", square=False)
def _qr(a: Recorded) -> Operand:
    node = a.node
    q, r = _qr_raw(node.raw)

    def pull(dq: Array, dr: Array) -> Array:
        M = matmul_raw(r, dr.T) - matmul_raw(dq.T, q)
        lower = np.tril(np.ones(M.shape, bool))
        symmetric = np.where(lower, M, M.T)
        return _solve_raw(r, (dq + matmul_raw(q, symmetric)).T).T

    return (
        derived(a, q, "np.linalg.qr", (node, lambda g: pull(g, r * 0))),
        derived(a, r, "np.linalg.qr", (node, lambda g: pull(q * 0, g * np.triu(np.ones_like(g))))),
    )


def _qr_raw(a: Array) -> Raw:
    if not _is_ball("qr", a):
        return _in_floats(np.linalg.qr, a)
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


def _symmetric(a: Recorded, UPLO: str) -> Operand:
    """The matrix that NumPy takes a triangle of."""
    lower = np.tril(np.ones(a.shape)) if UPLO.upper() == "L" else np.triu(np.ones(a.shape))
    strict = np.asarray(lower * (1 - np.eye(len(lower))))
    return np.where(lower, a, 0) + np.where(strict, a, 0).T


def _eigh_raw(a: Array) -> Spectrum:
    if _is_ball("eigh", a):
        from refnet.exact.spectra import eigh

        return eigh(a)

    def in_floats(a: Array) -> Raw:
        values, vectors = np.linalg.eigh(a)
        return values, vectors * _signs(a, lambda mean: np.linalg.eigh(mean)[1], vectors)

    values, vectors = _in_floats(in_floats, a)
    return Spectrum(vectors, values, vectors, np.ones(len(a), bool))


def _signs(stack: Array, of_mean: Callable[[Array], Array], vectors: Array) -> Array:
    """Those that turn the vectors of a stack of matrices into those of its mean."""
    if stack.ndim == 2:
        return np.ones((1, vectors.shape[-1]))
    products = (vectors * of_mean(stack.mean(axis=0))).sum(axis=-2, keepdims=True)
    return np.asarray(np.sign(products))


@_matrices("eigh")
def eigh(a: Recorded, UPLO: str = "L") -> Operand:
    """``np.linalg.eigh``, recorded; eigenvalues that are not simple are refused."""
    s = _symmetric(a, UPLO)
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


@_matrices("eigvalsh")
def eigvalsh(a: Recorded, UPLO: str = "L") -> Operand:
    """``np.linalg.eigvalsh``, recorded; only values that enter a gradient need to be simple."""
    s = _symmetric(a, UPLO)
    spectrum = _eigh_raw(s.raw)
    pull = _pull_of_values("eigvalsh", spectrum)
    return derived(s, spectrum.values, "np.linalg.eigvalsh", (s.node, pull))


def _svd_raw(a: Array) -> Spectrum:
    if _is_ball("svd", a):
        from refnet.exact.spectra import svd

        return svd(a)

    def in_floats(a: Array) -> Raw:
        left, values, right = np.linalg.svd(a, full_matrices=False)
        signs = _signs(a, lambda mean: np.linalg.svd(mean, full_matrices=False)[0], left)
        return left * signs, values, right * np.swapaxes(signs, -1, -2)

    left, values, right = _in_floats(in_floats, a)
    return Spectrum(left, values, right.T, np.ones(len(values), bool))


@_matrices("svd", square=False)
def _svd(a: Recorded) -> Operand:
    node = a.node
    spectrum = _svd_raw(node.raw)
    _refuse_close("svd", spectrum, range(len(spectrum.apart)), "vector")
    u, s, v = spectrum[:3]
    gaps = _gaps(s * s)

    def side(mine: Array, g: Array, other: Array) -> Array:
        """The cotangent by the left vectors, or of the transpose by the right ones."""
        inner = matmul_raw(mine.T, g)
        turning = inner * gaps
        within = matmul_raw(mine, (turning + turning.T) * s)
        outside = (g - matmul_raw(mine, inner)) / s
        return matmul_raw(within + outside, other.T)

    return (
        derived(a, u, "np.linalg.svd", (node, lambda g: side(u, g, v))),
        derived(a, s, "np.linalg.svd", (node, _pull_of_values("svd", spectrum))),
        derived(a, v.T, "np.linalg.svd", (node, lambda g: side(v, g.T, u).T)),
    )


def svd(
    a: Recorded, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False
) -> Operand:
    """``np.linalg.svd``, recorded; values that are not simple, or 0, have no vectors."""
    _admit("svd", a, False)
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


@_matrices("svdvals", square=False)
def svdvals(x: Recorded) -> Operand:
    """``np.linalg.svdvals``, recorded; only values that enter a gradient need to be simple."""
    spectrum = _svd_raw(x.raw)
    pull = _pull_of_values("svdvals", spectrum)
    return derived(x, spectrum.values, "np.linalg.svd", (x.node, pull))


# ---- norms


def norm(x: Recorded, ord: Operand = None, axis: Axes = None, keepdims: bool = False) -> Operand:
    """``np.linalg.norm``, recorded."""
    axes = axes_of(x, axis)
    if ord is None or ord == {1: 2, 2: "fro"}.get(len(axes)):
        return np.sqrt(sum_of(x * x, axis, keepdims=keepdims))
    if len(axes) == 1:
        y = _vector_norm(x, ord, axes)
    elif len(axes) == 2 and ord in (2, -2, "nuc"):
        turned: Operand = x
        values = svdvals(np.moveaxis(turned, axes, (-2, -1)))
        y = sum_of(values, -1) if ord == "nuc" else values[..., 0 if ord == 2 else -1]
    elif len(axes) == 2 and ord in (1, -1, np.inf, -np.inf):
        summed, other = axes if abs(ord) == 1 else axes[::-1]
        sums = sum_of(abs(x), summed, keepdims=True)
        y = (largest_of if ord > 0 else smallest_of)(sums, (other,), keepdims=True)
        y = np.squeeze(y, axes)
    else:
        raise TypeError(
            f"np.linalg.norm with ord = {ord} over {len(axes)} axes is not recorded; known: None, "
            "numbers and inf of vectors; 'fro', 'nuc', 1, 2, inf and their negatives of matrices"
        )
    return np.expand_dims(y, axes) if keepdims else y


def _vector_norm(x: Recorded, ord: Any, axes: tuple[int, ...]) -> Operand:
    size = UFUNCS["absolute"](x)
    if ord in (np.inf, -np.inf):
        return (largest_of if ord > 0 else smallest_of)(size, axes)
    if ord == 1:
        return sum_of(size, axes)
    if isinstance(ord, str) or ord == 0:
        raise TypeError(f"np.linalg.norm with ord = {ord} of a vector is not recorded")
    return sum_of(size**ord, axes) ** (1 / ord)


_ALL = solve, inv, det, slogdet, cholesky, matrix_power, qr, eigh, eigvalsh, svd, svdvals, norm
LINALG: dict[str, Operation] = {f"linalg.{operation.__name__}": operation for operation in _ALL}
"""What NumPy's functions of these names lead to."""
