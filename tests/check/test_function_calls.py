"""A wrong gradient of a function is named by the call of NumPy that it goes wrong in, in the text
of the function; errors that no edit of a call gives have no such name."""

import numpy as np
import pytest

from refnet.check import compare
from refnet.exact import certify_function, stop
from refnet.exact.recorder import WATCH

pytestmark = pytest.mark.needs("flint")

RNG = np.random.default_rng(8)
ARRAYS = {
    "x": RNG.normal(size=(4, 3)),
    "W": RNG.normal(size=(3, 3)) / 2,
    "U": RNG.normal(size=(3, 3)) / 2,
    "b": RNG.normal(size=3),
}


def f(x, W, U, b):
    z = x - x.mean(axis=0)
    h = np.zeros(3)
    for t in range(len(x)):
        a = W @ z[t] + U @ h
        h = np.tanh(a + b) * 0.7 + b
    A = W - W.T
    s = np.linalg.solve(np.eye(3) + A, U)
    return (h * h).sum() / np.sqrt(len(W)) + (s * s).sum()


def results(x, W, U, b, bug=""):
    T, n = len(x), len(W)
    root = 1 if bug == "value" else np.sqrt(n)
    z = x - x.mean(axis=0)
    h, tanh = np.zeros((T + 1, n)), np.zeros((T, n))
    for t in range(T):
        tanh[t] = np.tanh(W @ z[t] + U @ h[t] + b)
        h[t + 1] = 0.7 * tanh[t] + b * (bug != "bias")
    A = W - W.T
    s = np.linalg.solve(np.eye(n) + A, U)
    value = (h[T] @ h[T]) / root + (s * s).sum()
    root = np.sqrt(n) if bug != "root" else n
    ds = np.linalg.solve((np.eye(n) + (-A if bug == "adjoint" else A)).T, 2 * s)
    dA = -ds @ s.T
    dW, dU, db, dz = (dA if bug == "half" else dA - dA.T), ds.copy(), 0 * b, 0 * z
    dh = 2 * h[T] / root
    for t in reversed(range(T)):
        db = db + dh
        da = 0.7 * dh * (1 if bug == "slope" else 1 - tanh[t] ** 2)
        db = db + da
        dW = dW + np.outer(da, z[t])
        dU = dU + np.outer(da, h[t]) * (t == T - 1 or bug != "turn")
        dz[t] = (W if bug == "transpose" else W.T) @ da
        dh = U.T @ da * {"carry": 0, "twice": 2}.get(bug, 1)
    return {
        "value": value,
        "dx": dz - (0 if bug == "mean" else dz.mean(axis=0)),
        "dW": dW,
        "dU": dU,
        "db": db,
    }


NAMES = {
    "slope": "the gradient of `a + b` in `np.tanh(a + b)` (line 27) lacks its slope",
    "mean": "no gradient goes through `x` in `x.mean(axis=0)` (line 23)",
    "carry": "no gradient goes through `h` in `U @ h` (line 26)",
    "twice": "the gradient of `h` in `U @ h` (line 26) is doubled",
    "transpose": "the gradient of `z[t]` in `W @ z[t]` (line 26) lacks a transpose",
    "turn": "the gradient goes through the last turn of `U` in `U @ h` (line 26) alone",
    "half": "no gradient goes through `W.T` in `W - W.T` (line 28)",
    "adjoint": "the gradients of `np.linalg.solve(np.eye(3) + A, U)` (line 29) lack a transpose",
    "root": "the gradient of `h * h` (line 30) is divided by 1.73205 = the ",
    "value": " (line 30) in the value alone is computed as `(h * h).sum()`",
    "bias": "is computed as `np.tanh(a + b) * 0.7`, with the right call's gradient",
}


@pytest.fixture(scope="module")
def certified():
    return certify_function(f, *ARRAYS.values())


def test_the_right_results_are_right(certified):
    assert compare(results(**ARRAYS), certified).passed


@pytest.mark.parametrize("bug", NAMES)
def test_the_call_is_named(certified, bug):
    verdict = compare(results(**ARRAYS, bug=bug), certified)
    assert verdict.verdict == "not rounding"
    assert NAMES[bug] in verdict.convention and bool(NAMES[bug]) == bool(verdict.convention)
    assert WATCH.get() is None
    assert compare(results(**ARRAYS), certified).passed


@pytest.mark.parametrize("seed", range(3))
def test_what_no_edit_gives_has_no_name(certified, seed):
    """Errors that are smooth functions of the results, and random ones."""
    rng = np.random.default_rng(seed)
    right = results(**ARRAYS)
    wrong = {
        0: {name: value + 1e-3 * np.sin(5 * value) for name, value in right.items()},
        1: right | {"dU": right["dU"] * rng.uniform(0.5, 2, (3, 3))},
        2: right | {"db": right["db"] + rng.normal(size=3)},
    }[seed]
    assert not compare(wrong, certified).convention


def test_an_operand_is_replaced_as_a_word():
    """x in np.exp(x), not in its name."""

    def product(x, y):
        return (np.exp(x) * y).sum()

    x, y = RNG.normal(size=(2, 3))
    wrong = {"value": (np.exp(x) * y).sum(), "dx": 0 * x, "dy": np.exp(x) + y * np.exp(y)}
    verdict = compare(wrong, certify_function(product, x, y))
    assert "the gradient takes `np.exp(y)` for `np.exp(x)`" in verdict.convention


def attention(x, W, b, bug=""):
    root = x * x + (0.02 if bug == "constant" else 0.01)
    u = x / (root if bug == "root" else np.sqrt(root))
    axis = 0 if bug == "axis" else 1
    s = u @ W @ u.T
    if bug == "variable":
        s = (u @ stop(W) + stop(x) @ W - stop(x @ W)) @ u.T
    e = np.exp(s - stop(s.max(axis=axis, keepdims=True)))
    below = e.sum(axis=axis, keepdims=True)
    p = e / (stop(below) if bug == "softmax" else below)
    a = p @ x + (b if bug != "term" else b + 2)
    y = np.tanh(a)
    if bug == "tanh":
        y = stop(y) + stop(1 - y) * (a - stop(a))
    c = np.cumsum(y, axis=0)
    return ((c - y if bug == "shift" else c) * x[: -1 if bug == "index" else None][-3:].sum()).sum()


def formula(x, W, b):
    root = x * x + 0.01
    u = x / np.sqrt(root)
    s = u @ W @ u.T
    e = np.exp(s - s.max(axis=1, keepdims=True))
    p = e / e.sum(axis=1, keepdims=True)
    y = np.tanh(p @ x + b)
    c = np.cumsum(y, axis=0)
    return (c * x[1:].sum()).sum()


MORE = {
    "constant": "`x * x + 0.01` (line 143) is computed as `x * x + 0.02`",
    "root": "`np.sqrt(root)` (line 144) is computed as `root`",
    "axis": "`axis=0` stands for `axis=1` everywhere (lines 146, 147)",
    "term": "is computed with 2 added",
    "index": "`x[1:]` (line 150) is computed as `x[:-1]`",
    "shift": " is computed as an array that is shifted by one along axis 0 (later), with zeros",
    "variable": "the gradient of `u @ W` (line 145) takes `x` for `u`",
    "softmax": "no gradient goes through `e` in `e.sum(axis=1, keepdims=True)` (line 147)",
    "tanh": "the gradient of `p @ x + b` in `np.tanh(p @ x + b)` (line 148) has the slope 1 - y",
}


@pytest.fixture(scope="module")
def certified_formula():
    return certify_function(formula, *(ARRAYS[name] for name in "xWb"))


@pytest.mark.parametrize("bug", MORE)
def test_mistakes_of_the_value_and_of_the_gradient_are_named(certified_formula, bug):
    def program(x, W, b):
        return attention(x, W, b, bug)

    arrays = (ARRAYS[name] for name in "xWb")
    wrong = certify_function(program, *arrays, check=False).named()
    verdict = compare({name: e.value for name, e in wrong.items()}, certified_formula)
    assert MORE[bug] in verdict.convention


def test_a_coarser_type_and_decimals_are_named(certified_formula):
    right = {name: e.value for name, e in certified_formula.named().items()}
    decimals = compare({name: np.round(v, 5) for name, v in right.items()}, certified_formula)
    assert decimals.convention == "dW, db, dx, value: rounded to 5 decimals"
    x, W, b = (ARRAYS[name] for name in "xWb")
    u = x / np.sqrt(x * x + 0.01)
    s = u @ W @ u.T
    e = np.exp(s - s.max(axis=1, keepdims=True))
    y = np.tanh((e / e.sum(axis=1, keepdims=True) @ x + b).astype(np.float32)).astype(float)
    value = np.cumsum(y, axis=0).sum() * x[1:].sum()
    narrow = compare({**right, "value": value}, certified_formula)
    assert "`np.tanh(p @ x + b)` (line 148) is computed in float32" in narrow.convention


def test_braces_in_the_text_of_a_call():
    def f(x):
        return (x * {"a": 3.0}["a"]).sum()

    x = RNG.normal(size=4)
    verdict = compare({"value": 2 * x.sum(), "dx": np.full(4, 2.0)}, certify_function(f, x))
    assert verdict.convention.startswith("`{'a': 3.0}` (line 198) has 2 for `3.0`")


@pytest.mark.parametrize("name", ["value", "dx"])
def test_reductions_by_ufuncs_and_scipys_functions_are_searched(name):
    from scipy.special import expit

    def f(x):
        return np.add.reduce(expit(x - np.maximum.reduce(x)) * x)

    certified = certify_function(f, RNG.normal(size=4))
    right = {key: quantity.value for key, quantity in certified.named().items()}
    assert not compare({**right, name: right[name] + 0.1}, certified).passed


def test_which_result_of_a_call_no_gradient_goes_through_is_counted_as_in_python():
    def f(x, cut=lambda a: a):
        values, vectors = np.linalg.eigh(x + x.T)
        return (values**2).sum() + cut(vectors)[0] ** 3 @ np.arange(1.0, 4.0)

    x = RNG.normal(size=(3, 3))
    wrong = certify_function(lambda x: f(x, stop), x, check=False).named()
    theirs = {name: quantity.value for name, quantity in wrong.items()}
    said = compare(theirs, certify_function(lambda x: f(x), x)).convention
    assert said.startswith(
        "no gradient goes through result [1] of `np.linalg.eigh(x + x.T)` (line "
    )
