"""Linear algebra of recorded arrays: equal on rationals, enclosed in balls, refused where it is
not determined."""

import mpmath
import numpy as np
import pytest
import scipy.linalg

from refnet.exact import balls, certify_function, factors, lift, matrix, spectra, surface
from refnet.maths.dual import dual_array, parts
from refnet.maths.linalg import solve
from support.arguments import refused

pytestmark = pytest.mark.needs("flint")

RNG = np.random.default_rng(7)
A, B, W = (RNG.integers(-9, 9, (4, 4)) / 4 + 3 * np.eye(4) for _ in range(3))
TALL = RNG.normal(size=(5, 3))
DIGITS = 60


def by_minors(a):
    """The determinant, along the first row."""
    minors = (by_minors(np.delete(a[1:], k, axis=1)) for k in range(len(a)))
    return sum((-1) ** k * a[0, k] * minor for k, minor in enumerate(minors)) if len(a) else 1


RATIONAL = {
    "solve": lambda x: (np.linalg.solve(x, B) * W).sum(),
    "inv": lambda x: (np.linalg.inv(x) * W).sum(),
    "det": lambda x: np.linalg.det(x),
}


@pytest.mark.parametrize("name", RATIONAL)
def test_backward_equals_forward_on_rationals(name):
    """<gradient, d> is the tangent of another elimination, on dual rationals, with ``==``."""
    certified = certify_function(RATIONAL[name], A, kind="rational")
    gradient = lift(certified.gradients["x"].exact, "fraction")
    direction = lift(RNG.integers(-5, 5, (4, 4)) / 2, "fraction")
    if name == "det":  # linear in each row
        x = lift(A, "fraction")
        rows = np.arange(4)[:, None]
        tangent = sum(by_minors(np.where(rows == k, direction, x)) for k in range(4))
    else:
        right = lift(np.eye(4) if name == "inv" else B, "fraction")
        y = solve(dual_array(lift(A, "fraction"), direction), dual_array(right, right * 0))
        tangent = (parts(y)[1] * lift(W, "fraction")).sum()
    assert (gradient * direction).sum() == tangent
    in_balls = certify_function(RATIONAL[name], A).gradients["x"].value
    assert np.array_equal(in_balls, certified.gradients["x"].value)


def mp(a):
    return mpmath.matrix(a.tolist())


def contains(ball, number):
    """Whether the ball holds an mpmath number to DIGITS."""
    with balls.precision(256):
        text = balls.arb(mpmath.nstr(number, DIGITS, strip_zeros=False))
        return abs(ball - text) < balls.arb(10) ** (10 - DIGITS) * (1 + abs(text))


def test_spectra_against_high_precision():
    with mpmath.workdps(DIGITS + 20):
        symmetric, (values, vectors) = A + A.T, mpmath.eigsy(mp(A + A.T))
        u, s, v = mpmath.svd_r(mp(TALL))
        exponential = mpmath.expm(mp(A / 4))
        with balls.precision(256):
            ours = spectra.eigh(lift(symmetric, "ball"))
            singular = spectra.svd(lift(TALL, "ball"))
        for n in range(4):
            assert contains(ours.values[n], values[n]) and ours.apart[n]
            sign = 1 if ours.right[0, n] * float(vectors[0, n]) > 0 else -1
            assert all(contains(ours.right[k, n], sign * vectors[k, n]) for k in range(4))
        for n in range(3):
            assert contains(singular.values[n], s[n])
            sign = 1 if singular.right[0, n] * float(v[n, 0]) > 0 else -1
            assert all(contains(singular.right[k, n], sign * v[n, k]) for k in range(3))
            assert all(contains(singular.left[k, n], sign * u[k, n]) for k in range(5))
        certified = certify_function(lambda x: scipy.linalg.expm(x)[1, 2], A / 4, bits=256)
        assert contains(certified.value.exact[()], exponential[1, 2])


@pytest.mark.parametrize("name", ["eigh", "eigvalsh", "svd", "svdvals", "qr"])
def test_gradients_against_high_precision(name):
    """A central difference of mpmath's own routines, along one direction."""
    certified = certify_function(FUNCTIONS[name][0], A + A.T)
    direction = RNG.normal(size=(4, 4))
    direction = direction + direction.T
    with mpmath.workdps(DIGITS):
        h = mpmath.mpf(10) ** -20
        values = [FUNCTIONS[name][1](mp(A + A.T) + side * h * mp(direction)) for side in (1, -1)]
        slope = (values[0] - values[1]) / (2 * h)
    with balls.precision(256):
        ours = (certified.gradients["x"].exact * lift(direction, "ball")).sum()
        assert abs(ours - balls.arb(mpmath.nstr(slope, 50))) < 1e-25 * abs(ours)


def diagonal_of(matrices):
    """Functions without signs: of vectors the squares."""
    return sum(abs(m[k, k]) * (k + 1) for m in matrices for k in range(4))


FUNCTIONS = {
    "eigh": (
        lambda x: sum((np.linalg.eigh(x)[1][k, k]) ** 2 * (k + 1) for k in range(4)),
        lambda x: sum(mpmath.eigsy(x)[1][k, k] ** 2 * (k + 1) for k in range(4)),
    ),
    "eigvalsh": (
        lambda x: sum(np.linalg.eigvalsh(x)[k] ** 2 * (k + 1) for k in range(4)),
        lambda x: sum(mpmath.eigsy(x)[0][k] ** 2 * (k + 1) for k in range(4)),
    ),
    "svd": (
        lambda x: diagonal_of(np.linalg.svd(x)[::2]),
        lambda x: diagonal_of(mpmath.svd_r(x)[::2]),
    ),
    "svdvals": (
        lambda x: np.linalg.norm(x, 2) * np.linalg.norm(x, "nuc"),
        lambda x: mpmath.svd_r(x)[1][0] * sum(mpmath.svd_r(x)[1]),
    ),
    "qr": (lambda x: diagonal_of(np.linalg.qr(x)), lambda x: diagonal_of(mpmath.qr(x))),
}


@pytest.mark.parametrize(
    "text, x, says",
    [
        ("np.linalg.solve(x, x[0]).sum()", np.ones((2, 2)), "solve: the matrix .* is singular"),
        ("np.linalg.inv(x).sum()", np.ones((2, 2)), "inv: the matrix .* is singular"),
        ("np.linalg.det(x)", np.ones((2, 2)), "det: the matrix .* is singular"),
        ("np.linalg.qr(x)[0].sum()", np.ones((3, 2)), "qr: a column depends on those before"),
        ("np.linalg.eigh(x)[0].sum()", np.eye(3), "eigh: value 0, 1.0.*not proved apart"),
        ("np.linalg.eigvalsh(x)[1]", np.diag([1.0, 2, 2]), "eigvalsh: value 1, 2.0.*apart"),
        ("np.linalg.svd(x)[1][0]", np.ones((2, 2)), "svd: value 1, .* and from 0"),
        ("np.linalg.norm(x, 'nuc')", np.ones((3, 2)), "svdvals: value 1, .*derivative"),
        ("np.linalg.norm(x, 2)", np.eye(2), "svdvals: value 0, 1.0.*not proved apart"),
    ],
)
def test_clusters_are_refused(text, x, says):
    with refused(says, ArithmeticError):
        certify_function(eval(f"lambda x: {text}", {"np": np}), x, max_bits=512)


def test_a_simple_value_beside_a_cluster():
    certified = certify_function(lambda x: np.linalg.eigvalsh(x)[2], np.diag([1.0, 1, 2]))
    assert certified.gradients["x"].value.tolist() == np.diag([0.0, 0, 1]).tolist()
    rank_one = np.outer([1.0, 2], [3.0, 1, 2])
    gradient = certify_function(lambda x: np.linalg.norm(x, 2), rank_one).gradients["x"].value
    assert gradient == pytest.approx(rank_one / np.linalg.norm(rank_one), rel=1e-15)


@pytest.mark.parametrize("text", ["qr(x)[1][0, 0]", "eigvalsh(x)[0]", "svdvals(x)[0]"])
def test_what_is_not_rational_is_refused(text):
    f = eval(f"lambda x: np.linalg.{text}", {"np": np})
    with refused("no number of that type; use kind='ball'", TypeError):
        certify_function(f, A, kind="rational")


@pytest.mark.parametrize(
    "table, name, wrong, text",
    [
        (
            spectra,
            "_bounds",
            lambda C, off, radii, disc, i, others: np.full(len(C), balls.arb(0.5)),
            "eigh(x)[1][0, 1]",
        ),
        (spectra, "_refined", lambda A, X: X, "eigh(x)[1][0, 1]"),
        (factors, "_gaps", lambda values: 1 / (values - values[:, None] + 1), "eigh(x)[1][0, 1]"),
        (surface.FUNCTIONS, "linalg.inv", lambda a: matrix.inv(a).T, "inv(x)[0, 1]"),
    ],
)
def test_a_wrong_rule_is_rejected(table, name, wrong, text, monkeypatch):
    change = monkeypatch.setitem if type(table) is dict else monkeypatch.setattr
    change(table, name, wrong)
    f = eval(f"lambda x: np.linalg.{text}", {"np": np})
    if name == "_refined":  # what is not refined is wider, and not wrong
        with refused("not narrow enough", ArithmeticError):
            certify_function(f, A, max_bits=512)
        return
    with refused("off by|differences to both sides", ArithmeticError):
        certify_function(f, A)
