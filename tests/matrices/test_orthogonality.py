"""Defects and gradients by ``==`` on rationals; OINIT against its map of singular values."""

import math
from fractions import Fraction as F

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, given

from refnet.analysis.orthogonalization import _block_steps, orthogonalization_experiment
from refnet.maths.dual import dual_array, parts
from refnet.matrices import orthogonality
from refnet.matrices.initializers import initialize
from refnet.matrices.orthogonality import (
    FORMS,
    defect,
    defect_and_gradient,
    open_penalty,
    open_update,
    orthogonalize,
    orthogonalize_params,
)
from refnet.training.optimizers import SGD
from support.arguments import refused
from support.drawn import matrix
from support.haar import haar_failures
from support.oracles import planted
from support.strategies import arrays

EPS = np.finfo(float).eps
SHAPES = st.tuples(st.integers(1, 3), st.integers(1, 3))
ROTATION = np.array([[F(3, 5), F(4, 5), F(0)], [F(-4, 5), F(3, 5), F(0)], [F(0), F(0), F(-1)]])


@st.composite
def pairs(draw):
    """A matrix and a direction, rational."""
    shape = draw(SHAPES)
    return draw(arrays(shape, True)), draw(arrays(shape, True))


def tangent_error(W, V, form, side, gradient=defect_and_gradient):
    """The forward pass on dual numbers, against <gradient, V>; exactly 0 if both are right."""
    push = parts(np.asarray(defect(dual_array(W, V), form, side), object))[1][()]
    return push - (gradient(W, form, side)[1] * V).sum()


@given(
    pairs(),
    st.sampled_from(["squared", "mean_square", "double"]),
    st.sampled_from([None, "rows", "columns"]),
)
def test_gradient_is_the_tangent(pair, form, side):
    assert tangent_error(*pair, form, side) == 0


def test_gradient_oracle_rejects_bugs():
    """Planted: the printed order of eq. 31, no factor 4, the other side, an entry 0.1% off."""
    W = np.array([[F(1), F(2), F(-1)], [F(0), F(1, 2), F(3)], [F(2), F(-1), F(1)]])
    V = np.array([[F(1), F(-2), F(3)], [F(1, 3), F(2), F(-1)], [F(1), F(1), F(5)]])
    value, right = defect_and_gradient(W)
    one_off = right.copy()
    one_off[1, 2] = one_off[1, 2] * F(1001, 1000)
    printed = 4 * (W @ (W @ W.T - np.eye(3, dtype=int)))
    for wrong in (
        printed,
        right / F(2),
        right.T,
        one_off,
        defect_and_gradient(W, side="columns")[1] + right / F(9),
    ):
        assert tangent_error(W, V, "squared", None, lambda *_: (value, wrong)) != 0
    assert tangent_error(W, V, "squared", None) == 0


def spectral_gap(shape, side, gradient=defect_and_gradient):
    """Tangent minus <gradient, V> in balls of 400 bits."""
    from refnet.exact import balls, lift

    rng = np.random.default_rng(3)
    with balls.precision(400):
        W, V = (lift(rng.normal(size=shape), "ball") for _ in range(2))
        return tangent_error(W, V, "spectral", side, gradient)


@pytest.mark.needs("flint")
@pytest.mark.parametrize("side", [None, "rows", "columns"])
@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 5)])
def test_spectral_gradient(shape, side):
    """To 60 digits; and the value is between the longest column of E and its spectral norm."""
    off = spectral_gap(shape, side)
    assert off.contains(0) and float(off.rad()) < 1e-60
    W = np.random.default_rng(4).normal(size=shape)
    for scale in (1, 1e-3):
        columns = shape[0] > shape[1] if side is None else side == "columns"
        E = scale * (W.T @ W if columns else W @ W.T)
        E -= np.eye(len(E))
        value = defect(W * scale**0.5, "spectral", side)
        assert np.linalg.norm(E, axis=0).max() * (1 - 9 * EPS) <= value
        assert value <= np.linalg.norm(E, 2) * (1 + 9 * EPS)


@pytest.mark.needs("flint")
@pytest.mark.parametrize(
    "old, new",
    [
        ("divided(value * u, under)", "divided(u, under)"),
        ("matmul(E, dv) - ", ""),
        ("+ du[:, 0]", ""),
        ("divided(E, scale) if scale", "divided(E, 2) if scale"),
    ],
)
def test_a_wrong_spectral_gradient_is_noticed(old, new, monkeypatch):
    monkeypatch.setattr(orthogonality, "_longest", planted(orthogonality._longest, old, new))
    assert not spectral_gap((3, 3), None).contains(0)


def test_the_spectral_form_of_a_nearly_orthogonal_matrix():
    """The squares of its E underflow in float32, its value does not."""
    W = np.eye(4, dtype=np.float32)
    W[0, 1] = np.float32(1e-24)
    value, gradient = defect_and_gradient(W, "spectral")
    assert value == W[0, 1] and gradient.dtype == np.float32 and np.isfinite(gradient).all()


def test_the_double_form_is_both_sides():
    """Of a square matrix they are equal; of a tall one W W' has rank 2, and stays 1 away from I."""
    W = np.array([[F(2), F(1)], [F(0), F(1)], [F(1), F(0)]])
    assert defect(W, "double") == defect(W, "squared", "rows") + defect(W, "squared", "columns")
    assert defect(W[:2], "double") == 2 * defect(W[:2])
    assert defect(np.eye(3, 2), "double") == 1
    with refused("choose one of squared, unsquared, mean_square"):
        orthogonalize(np.eye(2), form="double")


@given(arrays((3, 2), False), arrays((3, 2), False))
def test_unsquared_gradient(W, V):
    """``d ||E|| = d ||E||^2 / (2 ||E||)``, in floats: a few roundings of sums of at most 12
    terms, relative to the sums of magnitudes."""
    total, gradient = defect_and_gradient(W)
    assume(total > 1e-6)
    root, unsquared = defect_and_gradient(W, "unsquared")
    assert abs(root - math.sqrt(total)) <= 4 * EPS * root
    assert (abs(unsquared - gradient / (2 * root)) <= 8 * EPS * abs(gradient) / root).all()


def test_zero_defect():
    """At an orthogonal matrix every form's gradient is 0, the unsquared one's by convention."""
    for W in (np.eye(3), np.eye(3, dtype=np.float32), np.eye(2, 4), np.eye(4, 2)):
        for form in (*FORMS, "spectral"):
            value, gradient = defect_and_gradient(W, form)
            assert value == 0 and (gradient == 0).all() and gradient.dtype == W.dtype
    value, gradient = defect_and_gradient(ROTATION)
    assert value == 0 and (gradient == 0).all()
    with refused("sqrt of Fraction", TypeError):
        defect(ROTATION * 2, "unsquared")


def test_forms_and_sides():
    W = np.array([[F(2), F(0)], [F(0), F(1)], [F(0), F(1)]])
    assert defect(W) == 9 + 1  # W'W - I = diag(3, 1)
    assert defect(W, "mean_square") == F(10, 4)
    assert defect(W, side="rows") == defect(W) + 1  # erratum 12: rows - columns more
    assert defect(W.T) == defect(W)
    assert defect(np.array([[2.0]]), "unsquared") == 3
    for arguments, message in (
        ((W[0],), "need a matrix"),
        ((np.zeros((0, 2)),), "need a matrix"),
        ((W, "frobenius"), "choose one of squared, unsquared"),
        ((W, "squared", "left"), "side 'left' is unknown"),
    ):
        with refused(message):
            defect(*arguments)


@given(arrays((3, 3), True))
def test_step_commutes_with_orthogonal_factors(W):
    """grad(Q W P) == Q grad(W) P: so a Gaussian start gives exactly Haar output."""

    def step(matrix):
        return matrix - F(1, 10) * defect_and_gradient(matrix)[1]

    P = ROTATION[[1, 2, 0]]
    assert (step(ROTATION @ W @ P) == ROTATION @ step(W) @ P).all()


def oracle(s, rate=0.1, threshold=1e-6):
    """The number of checks until the map of the singular values is below the threshold, and
    where it sends them (+-1: one beyond sqrt(1 + 1 / (4 rate)) changes its sign)."""
    for step in range(1, 10_000):
        if ((1 - s * s) ** 2).sum() < threshold:
            return step, s
        s = s * (1 + 4 * rate * (1 - s * s))


@pytest.mark.parametrize("shape", [(20, 20), (20, 9), (9, 20), (1, 5), (1, 1)])
@pytest.mark.parametrize("rate", [0.05, 0.1, 0.125, 0.2])
def test_descent_follows_singular_values(shape, rate):
    W = matrix("gaussian", shape, 5, sd=0.2)
    computed = orthogonalize(W, rate)
    u, s, vt = np.linalg.svd(W, full_matrices=False)
    smallest = s[-1]
    steps, s = oracle(s, rate)
    assert computed.steps == steps == len(computed.costs)
    assert computed.stopped == "cost" and computed.converged
    assert computed.costs[-1] < 1e-6 <= computed.costs[-2]
    assert computed.costs[-1] == float(defect(computed.W))
    # the singular vectors stay; each step adds some eps ||W||, which later ones amplify as
    # they do the singular values themselves: by 1 / smallest at most
    assert np.linalg.norm(computed.W - u * s @ vt) <= 2 * steps * max(shape) * EPS / smallest


def test_gaussian_start_gives_haar():
    """The output of Gaussian starts is Haar; that of starts with entries above 0 is not."""
    rng = np.random.default_rng(6)
    starts = [initialize("gaussian", (8, 8), rng) for _ in range(1500)]
    computed = [orthogonalize(W, stop_cost=1e-20, max_steps=200).W for W in starts]
    assert haar_failures(np.array(computed)) == []
    positive = [orthogonalize(abs(W), max_steps=200).W for W in starts[:300]]
    assert haar_failures(np.array(positive)) != []


def test_stopping():
    W = matrix("gaussian", (10, 10), 7)
    by_count = orthogonalize(W, stop_cost=None, max_steps=3)
    assert by_count.stopped == "steps" and not by_count.converged and by_count.steps == 4
    by_gradient = orthogonalize(W, stop_cost=None, stop_gradient=1e-3)
    assert by_gradient.stopped == "gradient"

    def norm_after(updates):
        W_then = orthogonalize(W, stop_cost=None, max_steps=updates).W
        return np.linalg.norm(defect_and_gradient(W_then)[1])

    last = by_gradient.steps - 1
    assert norm_after(last) < 1e-3 <= norm_after(last - 1)
    for most in (1e200, np.inf):
        assert orthogonalize(W, stop_cost=None, stop_gradient=most).steps == 1
    already = orthogonalize(np.eye(3))
    assert already.steps == 1 and already.costs == [0]


def test_other_forms_and_dtypes():
    W = matrix("gaussian", (6, 6), 8)
    same = orthogonalize(W, rate=0.1 * 36, form="mean_square", stop_cost=1e-6 / 36)
    assert same.steps == orthogonalize(W).steps
    # at a constant step length the unsquared form ends within about a step of zero
    unsquared = orthogonalize(W, rate=0.01, form="unsquared", max_steps=500)
    assert unsquared.stopped == "steps" and unsquared.costs[-1] < 0.1
    for dtype in (np.float32, np.longdouble):
        computed = orthogonalize(W.astype(dtype))
        assert computed.W.dtype == dtype and computed.converged
    exact = orthogonalize(np.array([[F(1, 2)]]), rate=F(1, 8), max_steps=2, stop_cost=None)
    s = F(1, 2)
    for _ in range(2):
        s = s + (s - s**3) / 2  # Newton-Schulz
    assert exact.W[0, 0] == s


def cannot(message, *arguments, **options):
    with refused(message):
        orthogonalize(*arguments, **options)


def test_starts_that_cannot_converge():
    """Erratum 17: each is refused, with its reason, before the first step."""
    W = matrix("gaussian", (5, 5), 9)
    cannot("the rate is 0.25; from 1/4 on", W, 0.25)
    cannot("rate is 0; need", W, 0)
    cannot("rate is nan; need", W, math.nan)
    cannot("for the sum of squares", W, 25 * 0.3, form="mean_square")
    bound = math.sqrt(1 + 1 / 0.2)
    cannot(r"singular value 2\.474; .* take a rate below 0\.0976", np.eye(3) * bound * 1.01)
    cannot("singular value 2.5", np.diag([2.5, 1]))
    assert orthogonalize(np.eye(3) * (bound - 0.01)).converged
    cannot("no step changes a singular value of 0", np.diag([1.0, 0]))
    cannot("no step changes a singular value of 0", np.ones((4, 3)))
    cannot("no step changes a singular value of 0", np.zeros((2, 2)))
    cannot("no step changes a singular value of 0", np.diag([1, 1e-8]).astype(np.float32))
    for bad in (math.nan, math.inf):
        holed = W.copy()
        holed[2, 3] = bad
        cannot(r"W \(5, 5\): entry \(2, 3\) is (nan|inf)", holed)


def test_cost_that_overflows():
    """Possible only for the form without a bound on the rate: an error, not NaN."""
    with np.errstate(over="ignore", invalid="ignore"):
        cannot(
            "the cost is (inf|nan) after 1 updates",
            np.eye(2, dtype=np.float32) * 2,
            1e30,
            form="unsquared",
        )


def test_phase():
    rng = np.random.default_rng(10)
    weights = {f"W{i}": initialize("gaussian", (30 + i, 20), rng) for i in range(4)}
    copies = {name: W.copy() for name, W in weights.items()}
    one_by_one, report = orthogonalize_params(weights, stop_cost=1e-8)
    at_once, same = orthogonalize_params(weights, parallel=True, stop_cost=1e-8)
    assert report == same and [entry["matrix"] for entry in report] == list(weights)
    for name, entry in zip(weights, report):
        assert one_by_one[name].tobytes() == at_once[name].tobytes()
        assert defect(one_by_one[name]) == entry["costs"][-1] < 1e-8
        assert (weights[name] == copies[name]).all()
    with refused("W9 .1, 1. has the singular value 0"):
        orthogonalize_params({"W9": np.zeros((1, 1))})


@given(pairs(), st.sampled_from(["squared", "mean_square"]))
def test_open_penalty_and_update(pair, form):
    """With SGD the penalty and the update are the same step, == eq. 31 as corrected."""
    W, dE = pair
    rate, strength = F(1, 10), F(2, 3)
    value, grads = open_penalty({"W": W, "V": W.T}, strength, form)
    assert value == strength * (defect(W, form) + defect(W.T, form))
    assert (grads["W"] == strength * defect_and_gradient(W, form)[1]).all()
    sgd = SGD(rate)
    by_penalty, _ = sgd.step({"W": W}, {"W": dE + grads["W"]}, sgd.init({"W": W}))
    opened = {"W": open_update(W, rate, strength, form)}
    by_update, _ = sgd.step(opened, {"W": dE}, sgd.init(opened))
    assert (by_penalty["W"] == by_update["W"]).all()
    if form == "squared" and W.shape[0] <= W.shape[1]:
        E = W @ W.T - np.eye(len(W), dtype=int)
        assert (by_update["W"] == W - rate * (dE + 4 * strength * (E @ W))).all()


def test_open_keeps_dtype():
    W = np.ones((2, 3), np.float32)
    value, grads = open_penalty({"W": W}, 0.1)
    assert value.dtype == grads["W"].dtype == open_update(W, 0.1, 0.1).dtype == np.float32
    assert open_penalty({}, 0.1)[0] == 0


def test_experiment_is_the_descent():
    """Blocks of float32 runs count what ``orthogonalize`` and the singular values count."""
    size, runs = 12, 40
    steps = _block_steps("gaussian", size, 0.1, 1e-6, 100, np.random.SeedSequence(3), runs)
    rng = np.random.default_rng(np.random.SeedSequence(3))
    for count in steps:
        W = initialize("gaussian", (size, size), rng)
        assert count == orthogonalize(W).steps
        assert count == oracle(np.linalg.svd(W, compute_uv=False))[0]


def test_experiment(monkeypatch):
    """II-A in small, with a bound of 5 standard errors on the means of 80,000 runs: 22.86 and
    24.04, standard deviations 3.4. (All 10,000: test_experiment_of_the_text.)"""
    seen = []
    results = {}
    for distribution, mean in (("gaussian", 22.86), ("uniform", 24.04)):
        result = orthogonalization_experiment(
            distribution, runs=220, progress=lambda *n: seen.append(n)
        )
        assert result.success_rate == 1 and len(result.steps) == 220
        assert abs(result.mean - mean) <= 5 * 3.4 / math.sqrt(220)
        assert result.extremes[0] < result.mean < result.extremes[1] and 2 < result.sd < 5
        results[distribution] = result
    assert seen[:5] == [(50, 220), (100, 220), (150, 220), (200, 220), (220, 220)]
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    again = orthogonalization_experiment("gaussian", runs=220)
    assert (again.steps == results["gaussian"].steps).all()


def test_experiment_that_fails():
    """Rates from 1/4 on never converge; a rate beyond the bound makes runs diverge quietly."""
    assert orthogonalization_experiment("gaussian", runs=5, size=8, rate=0.3).success_rate == 0
    result = orthogonalization_experiment("glorot_normal", runs=5, rate=0.2)
    assert result.success_rate == 0 and math.isnan(result.mean) and result.extremes == (0, 0)
    with refused("runs is 0"):
        orthogonalization_experiment("gaussian", runs=0)


@pytest.mark.slow
def test_experiment_of_the_text():
    """All of II-A: 22.77 and 24.00 mean steps within 0.1, and every run converges."""
    for distribution, mean in (("gaussian", 22.77), ("uniform", 24.00)):
        result = orthogonalization_experiment(distribution)
        assert abs(result.mean - mean) <= 0.1 and result.success_rate == 1
