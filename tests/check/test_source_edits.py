"""A mistake in a function is named by what the function's source says in its place."""

import re

import numpy as np
import pytest

from refnet.check import compare
from refnet.check.sources import HOOK, Copies
from refnet.exact import certify_function
from refnet.exact.recorder import stop

pytestmark = pytest.mark.needs("flint")

RNG = np.random.default_rng(11)
X, W, V = RNG.normal(size=(5, 3)), RNG.normal(size=(3, 3)), RNG.normal(size=3)
ROWS = np.array([0, 2, 2, 1, 2])
EPS = 1e-3


def clipped(r):
    delta = 1.5
    return np.where(np.abs(r) < delta, r * r / 2, delta * (np.abs(r) - delta / 2)).sum()


def f(x, w, v):
    centred = x - x.mean(axis=0)
    var = (centred**2).mean(axis=0)
    z = centred / np.sqrt(var + EPS) * v
    h = np.zeros(3)
    for t in range(len(z)):
        h = np.tanh(w @ h + z[t])
        h = h * v
    below = np.tril(np.ones((5, 5)), -1)
    return (below @ z * x).sum() + h @ w @ h + clipped(z)


def program(bug):
    """f with a mistake."""

    def other(x, w, v):
        centred = x - x.mean(axis=0)
        var = (centred**2).sum(axis=0) / (len(x) - (bug == "divisor"))
        root = np.sqrt(var) + EPS if bug == "root" else np.sqrt(var + EPS)
        z = centred / root * v
        h = np.zeros(3)
        for t in range(len(z) - (bug == "turn")):
            h = np.tanh(w @ (h * v if bug == "order" else h) + z[t])
            if bug not in ("left out", "order"):
                h = h * v
        below = np.tril(np.ones((5, 5)), 0 if bug == "mask" else -1)
        delta = 3.0 if bug == "constant" else 1.5
        huber = np.where(np.abs(z) < delta, z * z / 2, delta * (np.abs(z) - delta / 2)).sum()
        last = (stop(h @ w) if bug == "stop" else h @ w) @ h
        return (below @ z * x).sum() + last + huber * (3.5 if bug == "factor" else 1)

    return other


NAMES = {
    "divisor": "`(centred ** 2).mean(axis=0)` is computed as the sum divided by n - 1",
    "root": "`np.sqrt(var + EPS)` is computed as `np.sqrt(var) + EPS`",
    "turn": "`range(len(z))` is computed as `range(len(z) - 1)`",
    "left out": "`h * v` is computed as `h`",
    "order": "change places",
    "mask": "`np.tril(np.ones((5, 5)), -1)` is computed as `np.tril(np.ones((5, 5)), 0)`",
    "constant": "`delta = 1.5` is computed as `delta = 3.0`",
    "factor": "is multiplied by 3.5",
    "stop": "no gradient goes through `h @ w`",
}


@pytest.fixture(scope="module")
def certified():
    return certify_function(f, X, W, V)


@pytest.mark.parametrize("bug", NAMES)
def test_a_mistake_is_named_in_the_words_of_the_source(certified, bug):
    wrong = certify_function(program(bug), X, W, V, check=False).named()
    verdict = compare({name: e.value for name, e in wrong.items()}, certified)
    assert NAMES[bug] in re.sub(r" \(line \d+\)", "", verdict.convention)


def test_the_right_program_is_right(certified):
    right = certify_function(program(""), X, W, V, check=False).named()
    assert compare({name: e.value for name, e in right.items()}, certified).passed


def judged(f, program, *arrays):
    """What is said of a program in f's place, which is a function or gives value and gradients."""
    results = certify_function(program, *arrays, check=False).named()
    return compare({name: e.value for name, e in results.items()}, certify_function(f, *arrays))


def test_what_another_size_would_tell_apart_is_perhaps():
    def scaled(x):
        return (x / np.sqrt(x.shape[1])).sum() ** 2

    def wrong(x):
        return (x / np.sqrt(x.shape[0] * x.shape[1])).sum() ** 2

    said = judged(scaled, wrong, X[:2]).convention
    assert said.startswith("perhaps ") and "x.shape[1] * x.shape[0]" in said and "2 * " in said


def test_in_float32():
    """Also a gradient of wrong numbers of a narrow type."""
    x, w = X.astype(np.float32), W.astype(np.float32)

    def scaled(x, w):
        return (np.tanh(x @ w) / np.sqrt((w * w).sum() + 0.1)).sum()

    def halved(x, w):
        return (np.tanh(x @ w) / np.sqrt((w * w).sum() / 2 + 0.1)).sum()

    wrong = certify_function(halved, x, w, check=False).gradients
    value = certify_function(scaled, x, w).value.value
    results = {"value": value, **{f"d{name}": e.value for name, e in wrong.items()}}
    given = {name: np.asarray(a, np.float32) for name, a in results.items()}
    verdict = compare(given, certify_function(scaled, x, w))
    assert "(w * w).sum()" in verdict.convention and "/ 2" in verdict.convention


def test_of_equal_indices_the_last_alone():
    def table(E):
        return (E[ROWS] * X).sum()

    dE = np.zeros((3, 3))
    dE[ROWS] = X
    said = compare({"value": (W[ROWS] * X).sum(), "dE": dE}, certify_function(table, W)).convention
    assert "the gradient takes the last of equal indices alone for `E[ROWS]`" in said


def contrast(a, b):
    s = a @ b.T
    below = np.exp(s).sum(axis=1, keepdims=True)
    return (np.exp(s) / below * X @ W).sum()


A, B = RNG.normal(size=(5, 2)), RNG.normal(size=(3, 2))


def right_contrast():
    return {n: e.value for n, e in certify_function(contrast, A, B).named().items()}


def test_a_mistake_in_one_gradient_alone():
    def detached(a, b):
        s = a @ b.T
        below = np.exp(s).sum(axis=1, keepdims=True)
        return (np.exp(s) / stop(below) * X @ W).sum()

    wrong = certify_function(detached, A, B, check=False).gradients["b"].value
    verdict = compare({**right_contrast(), "db": wrong}, certify_function(contrast, A, B))
    assert "no gradient goes through" in verdict.convention
    assert ", in db alone" in verdict.convention


def test_two_mistakes_have_two_names():
    """One in each of two gradients; one in the value, and another in a gradient."""
    right = right_contrast()

    def detached(a, b):
        s = a @ b.T
        below = np.exp(s).sum(axis=1, keepdims=True)
        return (np.exp(s) / stop(below) * X @ W).sum()

    da = certify_function(detached, A, B, check=False).gradients["a"].value
    wrong = {**right, "da": da, "db": np.sin(right["db"])}
    said = compare(wrong, certify_function(contrast, A, B)).convention
    assert "da: no gradient goes through" in said and "; db: no name" in said

    def other_axis(a, b):
        s = a @ b.T
        return (np.exp(s) / np.exp(s).sum(axis=0, keepdims=True) * X @ W).sum()

    wrong = {n: e.value for n, e in certify_function(other_axis, A, B, check=False).named().items()}
    wrong["db"] = -wrong["db"]
    said = compare(wrong, certify_function(contrast, A, B)).convention
    assert "axis=0, keepdims=True" in said and "db has the wrong sign" in said


def test_two_calls_without_a_gradient():
    """The statistics of a normalization, both constants."""

    def normalized(x, w):
        a = x @ w
        return (np.tanh((a - a.mean(axis=0)) / np.sqrt(a.var(axis=0) + EPS)) * x).sum()

    def detached(x, w):
        a = x @ w
        z = (a - stop(a.mean(axis=0))) / np.sqrt(stop(a.var(axis=0)) + EPS)
        return (np.tanh(z) * x).sum()

    said = judged(normalized, detached, X, W).convention
    assert "no gradient goes through `a` in `a.mean(axis=0)`" in said
    assert "; no gradient goes through `a` in `a.var(axis=0)`" in said


def test_a_slope_too_many():
    """The slope of a gate where its value alone belongs."""

    def gated(w):
        i = 1 / (1 + np.exp(-(X @ w)))
        return (i * np.tanh(X)).sum() + (i * (w[0] * X)).sum()

    i = 1 / (1 + np.exp(-(X @ W)))
    dw = X.T @ (i * (1 - i) * (np.tanh(X) + W[0] * X))
    dw[0] += (i * (1 - i) * X).sum(axis=0)
    wrong = {"value": (i * np.tanh(X)).sum() + (i * (W[0] * X)).sum(), "dw": dw}
    said = compare(wrong, certify_function(gated, W)).convention
    assert "the gradient of `i * (w[0] * X)`" in said and "takes `i (1 - i)` for `i`" in said


def cholesky_backward(L, dL, half=0.5):
    phi = np.tril(L.T @ dL) * (1 - (1 - half) * np.eye(len(L)))
    S = np.linalg.solve(L.T, phi) @ np.linalg.inv(L)
    return (S + S.T) / 2


@pytest.mark.parametrize(
    ("function", "gradient", "name"),
    [
        (
            lambda w: (np.linalg.cholesky(w @ w.T + np.eye(3)) * X[:3]).sum(),
            lambda w, g: (g + g.T) @ w,
            "does not halve the diagonal",
        ),
        (
            lambda w: np.linalg.solve(w, V) @ X[0],
            lambda w, _: -np.outer(np.linalg.solve(w, X[0]), np.linalg.solve(w, V)),
            "lacks a transpose",
        ),
        (
            lambda w: np.linalg.norm(w @ W) + (w * X[:3]).sum(),
            lambda w, _: w @ W @ W.T + X[:3],
            "is not divided by the norm",
        ),
        (
            lambda w: np.cumsum(w, axis=0)[1:].sum(),
            lambda w, _: np.cumsum(np.arange(3)[:, None] > 0, axis=0) + 0 * w,
            "lacks a transpose",
        ),
    ],
)
def test_the_gradients_of_linear_algebra(function, gradient, name):
    L = np.linalg.cholesky(W @ W.T + np.eye(3))
    wrong = gradient(W, cholesky_backward(L, np.tril(X[:3]), half=1.0))
    verdict = compare({"value": function(W), "dw": wrong}, certify_function(function, W))
    assert verdict.verdict == "not rounding" and name in verdict.convention


def test_the_slope_of_an_expression():
    """z in place of z (1 - z), of a sigmoid that is written out."""

    def gated(w):
        z = 1 / (1 + np.exp(-(X @ w)))
        return (z * np.tanh(X @ w)).sum()

    z, c = 1 / (1 + np.exp(-(X @ W))), np.tanh(X @ W)
    wrong = {"value": (z * c).sum(), "dw": X.T @ (c * z + z * (1 - c * c))}
    said = compare(wrong, certify_function(gated, W)).convention
    assert "the gradient of `X @ w` in `1 / (1 + np.exp(-(X @ w)))`" in said
    assert "has the slope y, with the result y" in said


@pytest.mark.parametrize("seed", range(4))
def test_an_error_at_random_has_no_name(seed):
    """In one gradient, where the value is not given."""
    rng = np.random.default_rng(seed)
    right = right_contrast()
    off = (0.3, 0.1, 0.01, 1e-3)[seed] * abs(right["da"]).max() * rng.normal(size=A.shape)
    assert not compare({"da": right["da"] + off}, certify_function(contrast, A, B)).convention


def test_what_is_searched_stays_as_it_was():
    """Other code runs in copies of the user's functions, and of no library's."""
    code = f.__code__, clipped.__code__
    names = {**globals()}
    assert not compare({"value": 1.0}, certify_function(f, X, W, V)).passed
    assert (f.__code__, clipped.__code__) == code and {**globals()} == names
    copies = Copies(f)
    found = copies.written(lambda: copies.f(X, W, V))
    assert {written.tree.name for written in found} == {"f", "clipped"}
    for written in found:
        assert (
            not {*written.functions} & {f, clipped} and HOOK not in written.functions[0].__globals__
        )


def test_augmented_assignments():
    def total(x):
        s = np.zeros(3)
        for row in x:
            s *= 0.5
            s += np.tanh(row)
        return (s * s).sum()

    def undamped(x):
        return (np.tanh(x).sum(axis=0) ** 2).sum()

    def subtracted(x):
        damped = (0.5 ** np.arange(5))[::-1, None]
        return (np.sinh(damped * np.tanh(x)).sum(axis=0) ** 2).sum()

    said = judged(total, undamped, X).convention
    assert said.startswith("`s *= 0.5` (line ") and said.endswith("is computed as `s *= 1.0`")
    assert not judged(total, subtracted, X).convention


def test_a_loop_that_would_not_end_ends():
    """Newton's steps to a root: with other bounds or steps they would go on for ever."""

    def root(x):
        y, off = 1.0 + 0 * x, 1.0
        while off > 1e-9:
            new = (y + x / y) / 2
            off = abs((new - y).sum())
            y = new
        return (y * x).sum()

    x = np.array([2.0, 3.0])
    wrong = {"value": 2 * x @ np.sqrt(x), "dx": 3 * np.sqrt(x)}
    said = compare(wrong, certify_function(root, x)).convention
    assert said.endswith("is computed as `2 * (y * x).sum()`")
