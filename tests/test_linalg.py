"""Linear algebra for the number types that LAPACK has no kernel for."""

from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.linalg
from hypothesis import assume, given
from strategies import arrays

from refnet.maths.dual import dual_array, parts
from refnet.maths.linalg import expm, expm_pull, eye, qr, solve
from refnet.maths.numeric import matmul

FLOATS = [np.float32, np.float64, np.longdouble, np.complex128, np.clongdouble]


@given(st.data())
def test_solve(data):
    """On rationals the solution is exact, and a singular matrix is told from a regular one."""
    n, k = data.draw(st.integers(0, 4)), data.draw(st.integers(1, 2))
    a, x = data.draw(arrays((n, n), True)), data.draw(arrays((n, k), True))
    try:
        found = solve(a, matmul(a, x))
    except np.linalg.LinAlgError:
        assert determinant(a) == 0
    else:
        assert determinant(a) != 0 and (found == x).all()


def determinant(a):
    if len(a) == 0:
        return Fraction(1)
    return sum((-1) ** j * a[0, j] * determinant(np.delete(a[1:], j, axis=1))
               for j in range(len(a)))


@pytest.mark.parametrize("dtype", FLOATS)
def test_solve_floats(dtype):
    """The residual is below n^2 eps |a| |x|, the usual backward error with room for growth."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(7, 7)).astype(dtype), rng.normal(size=(7, 3)).astype(dtype)
    x = solve(a, b)
    assert x.dtype == dtype
    assert abs(a @ x - b).max() <= 49 * np.finfo(dtype).eps * abs(a).sum() * abs(x).max()


def test_solve_leaves_its_arguments():
    a, b = np.eye(3) * 2, np.ones((3, 1))
    for dtype in (float, object):
        left, right = a.astype(dtype), b.astype(dtype)
        solve(left, right)
        assert (left == a).all() and (right == b).all()


@pytest.mark.parametrize("a, b", [((3, 3), (2, 1)), ((3, 2), (3, 1)), ((2, 3), (3, 1)),
                                  ((3, 3), (3,)), ((3, 3), (4, 1))])
def test_solve_refuses_shapes(a, b):
    with pytest.raises(ValueError, match="need \\(N, N\\) and \\(N, K\\)"):
        solve(np.ones(a), np.ones(b))


@pytest.mark.parametrize("dtype", [np.float64, np.longdouble, object])
def test_singular_is_refused(dtype):
    with pytest.raises(np.linalg.LinAlgError, match="singular"):
        solve(np.ones((3, 3), int).astype(dtype), eye(3, dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.longdouble])
def test_qr(dtype):
    a = np.random.default_rng(1).normal(size=(6, 4)).astype(dtype)
    q, r = qr(a)
    unit = 6 * 6 * np.finfo(dtype).eps
    assert q.dtype == r.dtype == dtype
    assert abs(q @ r - a).max() <= unit * abs(a).max()
    assert abs(q.T @ q - np.eye(4)).max() <= unit
    assert (np.diag(r) > 0).all() and (np.tril(r, -1) == 0).all()


def test_qr_of_a_complex_step_is_its_derivative():
    """On dual numbers over floats and by complex step: two ways to one tangent."""
    rng = np.random.default_rng(2)
    a, d = rng.normal(size=(5, 3)), rng.normal(size=(5, 3))
    step = 2.0 ** -300
    by_step = qr(a + 1j * step * d)[0].imag / step
    lifted, _ = qr(dual_array(a, d))
    values, by_dual = parts(lifted)
    assert abs(values - qr(a)[0]).max() <= 25 * np.finfo(float).eps
    scale = np.linalg.cond(a) * abs(by_step).max()
    assert abs(by_step - by_dual).max() <= 25 * np.finfo(float).eps * scale


@pytest.mark.parametrize("size", [0.0, 0.01, 1.0, 10.0])
def test_expm(size):
    """Against SciPy; the error of repeated squaring grows with the norm."""
    a = size * np.random.default_rng(3).normal(size=(6, 6))
    skew = a - a.T
    unit = 36 * np.finfo(float).eps * (1 + abs(skew).sum(axis=0).max())
    assert abs(expm(skew).value - scipy.linalg.expm(skew)).max() <= unit
    if size <= 1:
        other = scipy.linalg.expm(a)
        assert abs(expm(a).value - other).max() <= unit * abs(other).max()


def test_expm_gains_from_longdouble():
    a = np.random.default_rng(4).normal(size=(4, 4))
    skew = (a - a.T).astype(np.longdouble)
    Q = expm(skew).value
    assert abs(Q.T @ Q - np.eye(4)).max() <= 200 * np.finfo(np.longdouble).eps


def test_expm_refuses_what_is_not_finite():
    with pytest.raises(ValueError, match="not finite"):
        expm(np.full((2, 2), np.inf))
    with pytest.raises(ValueError, match="not finite"):
        expm(np.full((2, 2), np.nan))


def expm_push_minus_pull(a, direction, cotangent, pull=expm_pull):
    _, pushed = parts(expm(dual_array(a, direction)).value)
    return (pushed * cotangent).sum() - (pull(expm(a), cotangent) * direction).sum()


@given(st.data())
def test_expm_push_equals_pull(data):
    n = data.draw(st.integers(1, 2))
    assert expm_push_minus_pull(*(data.draw(arrays((n, n), True)) for _ in range(3))) == 0


@given(st.data())
def test_expm_oracle_rejects(data):
    """The transpose left out of the adjoint; the same gradient only where it does not matter."""
    a, direction, cotangent = (data.draw(arrays((2, 2), True)) for _ in range(3))

    def wrong(tape, dvalue):
        return expm_pull(tape, dvalue).T

    right = expm_pull(expm(a), cotangent)
    assume(((right - right.T) * direction).sum() != 0)
    assert expm_push_minus_pull(a, direction, cotangent, wrong) != 0


def test_expm_pull_agrees_with_scipy():
    rng = np.random.default_rng(5)
    a, direction, cotangent = rng.normal(size=(3, 5, 5))
    frechet = scipy.linalg.expm_frechet(a, direction, compute_expm=False)
    ours = (expm_pull(expm(a), cotangent) * direction).sum()
    unit = 25 * np.finfo(float).eps * (1 + abs(a).sum(axis=0).max())
    assert abs(ours - (frechet * cotangent).sum()) <= unit * abs(frechet).max() * abs(
        cotangent).sum()
