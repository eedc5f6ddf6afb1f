"""Linear algebra of recorded arrays: np.linalg and scipy.linalg.expm, with their derivatives.

Here are systems, determinants, powers and norms; QR and spectra are in ``refnet.exact.factors``.

Source of the derivatives: Giles, Collected matrix derivative results (2008).
Checked by: tests/exact/test_linear_algebra.py.
"""

from __future__ import annotations

import numpy as np

from refnet.exact.elementwise import UFUNCS, both
from refnet.exact.factors import (
    admit,
    by_flint,
    each_matrix,
    eigh,
    eigvalsh,
    in_floats,
    inv_raw,
    is_ball,
    qr,
    solve_raw,
    svd,
    svdvals,
    symmetric,
)
from refnet.exact.products import matmul_raw
from refnet.exact.recorder import Operand, Operation, Recorded, derived, record, refuse_infinite
from refnet.exact.reductions import Axes, axes_of, largest_of, smallest_of, sum_of
from refnet.maths import linalg


def _number(x: Recorded) -> Operand:
    return x[()]


# ---- systems


def solve(a: Operand, b: Operand) -> Operand:
    """``np.linalg.solve``, recorded."""
    a, b = both(a, b)
    admit("solve", a)
    if b.ndim == 1:
        return solve(a, b[:, None])[..., 0]
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if lead:
        a, b = (np.broadcast_to(m, lead + m.shape[-2:]) for m in (a, b))
        return np.stack([solve(a[n], b[n]) for n in range(len(a))])
    u, v = a.node, b.node
    x = solve_raw(u.raw, v.raw)
    refuse_infinite("np.linalg.solve", x)
    return derived(
        a,
        x,
        "np.linalg.solve",
        (u, lambda g: -matmul_raw(solve_raw(u.raw.T, g), x.T)),
        (v, lambda g: solve_raw(u.raw.T, g)),
    )


@each_matrix("inv")
def inv(a: Recorded) -> Operand:
    """``np.linalg.inv``, recorded."""
    node = a.node
    y = inv_raw(node.raw)
    refuse_infinite("np.linalg.inv", y)
    return derived(a, y, "np.linalg.inv", (node, lambda g: -matmul_raw(y.T, matmul_raw(g, y.T))))


@each_matrix("det")
def det(a: Recorded) -> Operand:
    """``np.linalg.det``, recorded; of singular matrices refused, whose derivative it has not."""
    node = a.node
    if node.raw.dtype == object:
        y = np.asarray(by_flint("det", node.raw), object)
    else:
        (y,) = in_floats(np.linalg.det, node.raw)
    return derived(a, y, "np.linalg.det", (node, lambda g: g * y * inv_raw(node.raw, "det").T))


@each_matrix("slogdet")
def slogdet(a: Recorded) -> Operand:
    """``np.linalg.slogdet``, recorded."""
    if a.raw.dtype == object:
        value = det(a)
        return _number(np.sign(value)), _number(np.log(abs(value)))
    node = a.node
    sign, size = in_floats(np.linalg.slogdet, node.raw)
    log = derived(a, size, "np.linalg.slogdet", (node, lambda g: g * inv_raw(node.raw).T))
    return _number(derived(a, sign, "np.linalg.slogdet")), _number(log)


@each_matrix("cholesky")
def cholesky(a: Recorded, upper: bool = False) -> Operand:
    """``np.linalg.cholesky``, recorded, column by column."""
    rest, columns = symmetric(a, "U" if upper else "L"), []
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
    admit("matrix_power", a)
    if n < 0:
        a, n = inv(a), -n
    out = record(a, np.broadcast_to(np.eye(a.shape[-1]), a.shape))
    for bit in f"{n:b}":
        out = out @ out
        out = out @ a if bit == "1" else out
    return out


def expm(A: Recorded) -> Operand:
    """``scipy.linalg.expm``, recorded."""
    admit("expm", A)
    if A.ndim > 2:
        return np.stack([expm(part) for part in A])
    node = A.node
    is_ball("expm", node.raw)
    tape = linalg.expm(node.raw)
    refuse_infinite("scipy.linalg.expm", tape.value)
    return derived(A, tape.value, "scipy.linalg.expm", (node, lambda g: linalg.expm_pull(tape, g)))


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


def _vector_norm(x: Recorded, ord: Operand, axes: tuple[int, ...]) -> Operand:
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
