"""Linear algebra for the number types that LAPACK has no kernel for."""

from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.linalg
from hypothesis import assume, given

from refnet.maths import linalg, threads
from refnet.maths.dual import dual_array, parts
from refnet.maths.linalg import Factored, OnePlus, expm, expm_pull, eye, qr, solve, turns
from refnet.maths.numeric import matmul
from support.arguments import refused
from support.marks import both_dtypes
from support.strategies import arrays

FLOATS = [np.float32, np.float64, np.longdouble, np.complex128, np.clongdouble]


@given(st.data())
def test_solve(data):
    """On rationals the solution is exact, and a singular matrix is not taken for a regular one."""
    n, k = data.draw(st.integers(0, 4)), data.draw(st.integers(1, 2))
    a, x = data.draw(arrays((n, n), True)), data.draw(arrays((n, k), True))
    try:
        computed = solve(a, matmul(a, x))
    except np.linalg.LinAlgError:
        assert determinant(a) == 0
    else:
        assert determinant(a) != 0 and (computed == x).all()


def determinant(a):
    if len(a) == 0:
        return Fraction(1)
    return sum(
        (-1) ** j * a[0, j] * determinant(np.delete(a[1:], j, axis=1)) for j in range(len(a))
    )


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


@pytest.mark.parametrize(
    "a, b", [((3, 3), (2, 1)), ((3, 2), (3, 1)), ((2, 3), (3, 1)), ((3, 3), (3,)), ((3, 3), (4, 1))]
)
def test_solve_refuses_shapes(a, b):
    with refused("need \\(N, N\\) and \\(N, K\\)"):
        solve(np.ones(a), np.ones(b))


@pytest.mark.parametrize("dtype", [np.float64, np.longdouble, object])
def test_singular_is_refused(dtype):
    with refused("singular", np.linalg.LinAlgError):
        solve(np.ones((3, 3), int).astype(dtype), eye(3, dtype))


def solve_one_plus(a, b, error=1.0):
    return OnePlus(a).solve(b, error)


def one_plus(a, b, error=1.0):
    """What ``OnePlus`` gives, how many products it took, and the solution from numbers
    twice as wide."""
    count = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linalg, "matmul", lambda a, b: count.append(0) or a @ b)
        patch.setattr(
            OnePlus, "_factored", property(lambda self: count.append(99) or Factored(self._matrix))
        )
        computed = solve_one_plus(a, b, error)
    wide = np.float64 if a.dtype == np.float32 else np.longdouble
    return computed, sum(count) or len(count), solve(eye(len(a), wide) + a, b.astype(wide))


@both_dtypes
@pytest.mark.parametrize("n,columns", [(1, 1), (3, 2), (20, 20), (90, 7)])
@pytest.mark.parametrize("error", [1.0, 1e4])
def test_solve_one_plus(dtype, n, columns, error):
    """By 0 to 3 products or by elimination, as the size of a demands: what is cut off is at most
    ``error`` eps / 4 of ||b||_F, and sums of n terms are rounded, each entry of a product by
    n eps of ||a|| ||b|| at most, and those of b - a x by half an eps."""
    rng, eps = np.random.default_rng(2), np.finfo(dtype).eps
    seen = set()
    for q in 10.0 ** np.arange(-20.1, 2, 0.2):
        a = rng.normal(size=(n, n))
        a = (q * a / np.linalg.norm(a)).astype(dtype)
        b = rng.normal(size=(n, columns)).astype(dtype)
        computed, products, exact = one_plus(a, b, error)
        seen.add(products)
        if products < 99:
            allowed = error * eps / 4 + eps + 2 * n * eps * q
            assert np.linalg.norm(computed - exact) <= allowed * np.linalg.norm(b), (q, products)
            assert computed.dtype == dtype
    assert seen == {0, 1, 2, 3, 99}


def test_solve_one_plus_takes_no_product_too_few(monkeypatch):
    """The test above rejects an iteration that stops a product early."""
    monkeypatch.setattr(linalg, "matmul", lambda a, b: a @ b)
    eps, a, b = np.finfo(float).eps, np.full((3, 3), 1e-6), np.ones((3, 2))
    computed, products, exact = one_plus(a, b)
    assert products == 2 and np.linalg.norm(computed - exact) <= 2 * eps * np.linalg.norm(b)
    early = b - a @ b
    assert np.linalg.norm(early - exact) > 1e4 * eps * np.linalg.norm(b)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("n,columns", [(1, 1), (6, 3), (200, 500)])
def test_factored(dtype, n, columns, monkeypatch):
    """Both systems' residuals are within the backward error, n eps each of the sums of n terms;
    the same bits with any number of threads."""
    rng = np.random.default_rng(4)
    a = rng.normal(size=(n, n)).astype(dtype) + 3 * n**0.5 * np.eye(n, dtype=dtype)
    b = rng.normal(size=(n, columns)).astype(dtype)
    held, factored = (a.copy(), b.copy()), Factored(a)
    for transposed in (False, True):
        computed = []
        for count in (1, 2, 3):
            monkeypatch.setattr(threads, "_threads", lambda: count)
            computed.append(factored.solve(b, transposed))
            assert np.array_equal(computed[0], computed[-1]) and computed[-1].dtype == dtype
        swapped = Factored(a.astype(factored.lu.dtype.newbyteorder())).solve(
            b.astype(b.dtype.newbyteorder()), transposed
        )
        assert np.array_equal(swapped, computed[0])
        system, size = a.T if transposed else a, abs(a).sum(axis=0).max() + abs(a).sum(axis=1).max()
        allowed = n * np.finfo(dtype).eps * size * abs(computed[0]).max()
        assert abs(system @ computed[0] - b).max() <= allowed
    assert np.array_equal(held[0], a) and np.array_equal(held[1], b)
    with refused("singular", np.linalg.LinAlgError):
        Factored(np.zeros((n, n), dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.longdouble, np.complex128])
@pytest.mark.parametrize("size", [1e-9, 1e-3, 1.0])
def test_one_plus_transposed(dtype, size):
    rng, unit = np.random.default_rng(5), np.eye(6, dtype=dtype)
    a = (size * rng.normal(size=(6, 6))).astype(dtype)
    b, system = rng.normal(size=(6, 2)).astype(dtype), OnePlus(a)
    for transposed, whole in ((False, unit + a), (True, unit + a.T)):
        left = whole @ system.solve(b, transposed=transposed) - b
        assert abs(left).max() <= 100 * (1 + size) ** 2 * np.finfo(dtype).eps * abs(b).max() * (
            np.linalg.cond(whole.astype(complex))
        )


@given(st.data())
def test_solve_one_plus_of_other_numbers(data):
    """Rationals: exact, however small; NaN and matrices without an inverse: as ``solve``."""
    n = data.draw(st.integers(1, 3))
    a, x = data.draw(arrays((n, n), True)), data.draw(arrays((n, 2), True))
    a = a / 10**9
    assert (solve_one_plus(a, x + matmul(a, x)) == x).all()


def test_solve_one_plus_refuses_as_solve_does():
    with refused("singular", np.linalg.LinAlgError):
        solve_one_plus(-np.eye(2), np.ones((2, 1)))
    with refused("need \\(N, N\\) and \\(N, K\\)"):
        solve_one_plus(np.zeros((3, 3)), np.ones((2, 1)))
    assert np.isnan(solve_one_plus(np.full((2, 2), np.nan), np.ones((2, 1)))).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.longdouble])
def test_qr(dtype):
    a = np.random.default_rng(1).normal(size=(6, 4)).astype(dtype)
    q, r = qr(a)
    unit = 6 * 6 * np.finfo(dtype).eps
    assert q.dtype == r.dtype == dtype
    assert abs(q @ r - a).max() <= unit * abs(a).max()
    assert abs(q.T @ q - np.eye(4)).max() <= unit
    assert (np.diag(r) > 0).all() and (np.tril(r, -1) == 0).all()


@pytest.mark.parametrize("start", ["dense", "identity", "triangular"])
def test_qr_of_a_complex_step_is_its_derivative(start):
    """On dual numbers over floats and by complex step: two ways to one tangent. Columns that lie on
    their axis already have one, too."""
    rng = np.random.default_rng(2)
    a, d = rng.normal(size=(5, 3)), rng.normal(size=(5, 3))
    a = {"dense": a, "identity": np.eye(5, 3), "triangular": np.triu(a)}[start]
    step = 2.0**-300
    by_step = qr(a + 1j * step * d)[0].imag / step
    lifted, _ = qr(dual_array(a, d))
    values, by_dual = parts(lifted)
    assert abs(values - qr(a)[0]).max() <= 25 * np.finfo(float).eps
    scale = np.linalg.cond(a) * abs(by_step).max()
    assert abs(by_step - by_dual).max() <= 25 * np.finfo(float).eps * scale
    # Q'Q = I makes Q'dQ skew, and R stays triangular: d = dQ R + Q dR has no other solution
    q, r = qr(a)
    turn = q.T @ d @ np.linalg.inv(r)
    skew = np.tril(turn, -1) - np.tril(turn, -1).T
    true = q @ skew + (np.eye(5) - q @ q.T) @ d @ np.linalg.inv(r)
    assert abs(by_dual - true).max() <= 25 * np.finfo(float).eps * np.linalg.cond(a) * scale


@pytest.mark.parametrize("size", [0.1, 0.41, 0.417, 0.46, 0.5, -0.5])
def test_derivatives_of_expm(size):
    """All of them are e^a for one number: what is cut off of the series is less than an eps."""
    a, along = np.array([[size]]), np.ones((1, 1))
    true, limit = np.exp(size), 2 * np.finfo(float).eps
    step = 2.0**-300
    shifted = expm(a + 1j * step * along)
    for computed in (
        expm(a).value,
        expm_pull(expm(a), along),
        shifted.value.imag / step,
        expm_pull(shifted, along.astype(complex)).imag / step,
    ):
        assert abs(computed[0, 0] - true) <= limit * true


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
    with refused("not finite"):
        expm(np.full((2, 2), np.inf))
    with refused("not finite"):
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


@pytest.mark.parametrize("dtype", FLOATS)
def test_turns(dtype):
    """To a few roundings of the angles, which are below 2 pi."""
    c, s = turns(np.zeros(7, dtype))
    assert c.dtype == s.dtype == dtype
    turn = np.exp(2j * np.arctan(np.longdouble(1)) * 4 * np.arange(7) / 7)
    assert abs(c + 1j * s - turn).max() <= 8 * np.finfo(dtype).eps


def test_turns_of_exact_numbers():
    for n, cosines, sines in ((1, "1", "0"), (2, "1 -1", "0 0"), (4, "1 0 -1 0", "0 1 0 -1")):
        for like in (np.full(n, Fraction(1)), dual_array(*[np.full(n, Fraction(1))] * 2)):
            c, s = turns(like)
            assert c.tolist() == [*map(int, cosines.split())]
            assert s.tolist() == [*map(int, sines.split())]
    with refused("cosine of 1/3 of a turn is no Fraction", TypeError):
        turns(np.full(3, Fraction(1)))


@pytest.mark.needs("flint")
def test_turns_of_balls():
    """The sixth root of 1 itself, to 60 digits, also as a dual number."""
    from refnet.exact import balls, lift

    with balls.precision(250):
        ones = lift(np.ones(6), "ball")
        for like in (ones, dual_array(ones, ones)):
            c, s = turns(like)
            off = [c[1] - lift(np.array(0.5), "ball").item(), s[1] * s[1] * 4 - 3]
            assert all(value.contains(0) and float(value.rad()) < 1e-60 for value in off)
