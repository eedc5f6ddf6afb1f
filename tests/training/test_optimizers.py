"""Optimisers against scalar recurrences (``==`` on rationals) and against PyTorch's."""

import math
from dataclasses import replace
from fractions import Fraction as F

import numpy as np
import pytest
from hypothesis import given, strategies as st

from refnet.compiled.elementwise import KERNELS, sum_of_squares
from refnet.training.clipping import clip_by_norm, clip_by_value
from refnet.training.optimizers import (
    OPTIMIZERS,
    RMSPROP_FORMS,
    SGD,
    Adadelta,
    Adam,
    AdamW,
    Momentum,
    Nesterov,
    RMSprop,
    optimizer,
)
from refnet.training.penalties import weight_decay
from support.arguments import refused
from support.compiled import at_every_number_of_threads
from support.marks import both_dtypes
from support.oracles import planted

fractions = st.fractions(-4, 4, max_denominator=9)
EPS = np.finfo(float).eps


def run(rule, params, gradients, state=None):
    state = state or rule.init(params)
    for grads in gradients:
        params, state = rule.step(params, grads, state)
    return params, state


def array(*values):
    return np.array(values, object if isinstance(values[0], F) else float)


@given(
    w=fractions,
    gradients=st.lists(fractions, min_size=1, max_size=5),
    rate=st.fractions(0, 1, max_denominator=9),
    mu=st.fractions(0, 1, max_denominator=9),
    multiplier=st.fractions(0, 3, max_denominator=9),
)
def test_exact_recurrences(w, gradients, rate, mu, multiplier):
    """SGD, momentum (Sutskever's form) and Nesterov (look-ahead form), == on rationals."""
    rates = {"W": multiplier}
    alpha = rate * multiplier

    def final(rule):
        params, state = run(rule, {"W": array(w)}, [{"W": array(g)} for g in gradients])
        assert state["steps"] == len(gradients)
        return params["W"][0]

    assert final(SGD(rate, rates)) == w - alpha * sum(gradients)

    value, v = w, F(0)
    for g in gradients:
        v = mu * v - alpha * g
        value = value + v
    assert final(Momentum(rate, rates, momentum=mu)) == value

    # the textbook form keeps theta and takes the gradient at theta + mu v, which is our W
    theta, v = w, F(0)
    for g in gradients:
        v = mu * v - alpha * g
        theta = theta + v
    assert final(Nesterov(rate, rates, momentum=mu)) == theta + mu * v


def test_float_rates_are_exact_on_rationals():
    params, _ = run(SGD(0.1), {"W": array(F(1, 3))}, [{"W": array(F(1))}])
    assert params["W"][0] == F(1, 3) - F(0.1) and F(0.1) != F(1, 10)
    params, _ = run(Momentum(0.5), {"W": array(F(1, 3))}, [{"W": np.array([0], object)}])
    assert params["W"][0] == F(1, 3) and isinstance(params["W"][0], F)


def scalar_rmsprop(w, gradients, rate, decay, eps, place, first):
    r = first
    for g in gradients:
        r = decay * r + (1 - decay) * g * g
        w -= rate * g / (math.sqrt(r + eps) if place == "inside" else math.sqrt(r) + eps)
    return w


GRADIENTS = [0.3, -1.7, 1e-4, 0.0, 2.5, 0.3, -0.1]


def bound(w, rate, largest_step):
    """Rounding of seven steps: each is at most ``largest_step`` rates long, computed with
    fewer than 24 roundings (and its accumulators, whose errors only shrink, with as many),
    and adds one rounding of the weight."""
    steps = len(GRADIENTS)
    return steps * EPS * (48 * rate * largest_step + abs(w) + steps * rate * largest_step)


@pytest.mark.parametrize("form", RMSPROP_FORMS)
def test_rmsprop_forms(form):
    options = RMSPROP_FORMS[form]
    rule = optimizer("rmsprop", 0.01, form)
    params, _ = run(rule, {"W": array(0.7)}, [{"W": array(g)} for g in GRADIENTS])
    expected = scalar_rmsprop(0.7, GRADIENTS, 0.01, **options)
    # |g| / sqrt(r) <= 1 / sqrt(1 - decay)
    limit = bound(0.7, 0.01, 1 / math.sqrt(1 - options["decay"]))
    assert abs(params["W"][0] - expected) <= limit
    for other in RMSPROP_FORMS:  # the forms do differ
        if other != form:
            assert (
                abs(scalar_rmsprop(0.7, GRADIENTS, 0.01, **RMSPROP_FORMS[other]) - expected)
                > 1e3 * limit
            )


@pytest.mark.parametrize(
    "name, rule, options",
    [
        ("SGD", SGD(0.01), {"lr": 0.01}),
        ("SGD", Momentum(0.01, momentum=0.8), {"lr": 0.01, "momentum": 0.8}),
        ("SGD", Nesterov(0.01, momentum=0.8), {"lr": 0.01, "momentum": 0.8, "nesterov": True}),
        ("RMSprop", optimizer("rmsprop", 0.01, "torch"), {"lr": 0.01}),
        ("Adam", Adam(0.01), {"lr": 0.01}),
        ("AdamW", AdamW(0.01, weight_decay=0.1), {"lr": 0.01, "weight_decay": 0.1}),
        ("Adadelta", Adadelta(0.01), {"lr": 0.01}),
    ],
    ids=["sgd", "momentum", "nesterov", "rmsprop", "adam", "adamw", "adadelta"],
)
def test_against_torch(name, rule, options):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    start = rng.normal(size=(3, 4))
    gradients = [rng.normal(size=(3, 4)) for _ in range(7)]
    params, wrong = (
        run(each, {"W": start}, [{"W": g} for g in gradients])[0]["W"]
        for each in (rule, replace(rule, rate=0.01001))
    )
    theirs = torch.nn.Parameter(torch.tensor(start))
    peer = getattr(torch.optim, name)([theirs], **options)
    for g in gradients:
        theirs.grad = torch.tensor(g)
        peer.step()
    right = theirs.detach().numpy()
    # sgd's directions are gradients (below 5), or up to 1 / (1 - .8) times as long; the
    # others' at most 1 / (1 - .9) as in the tests above
    limit = bound(abs(start).max(), 0.01, 25)
    assert abs(params - right).max() <= limit < abs(wrong - right).max()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_functional_and_dtype(name):
    """Arguments are unchanged, float32 stays float32, and skipped parameters pass through."""
    rng = np.random.default_rng(1)
    params = {"W": rng.normal(size=(2, 3)).astype(np.float32), "U": np.eye(2, dtype=np.float32)}
    gradients = [
        {"W": rng.normal(size=(2, 3)).astype(np.float32), "x": np.zeros(4)} for _ in range(2)
    ]
    rule = optimizer(name, 0.1, rates={"W": 0.5}, skip=("U",))
    copies = {key: value.copy() for key, value in params.items()}
    state = rule.init(params)
    once, middle = run(rule, params, gradients)
    assert all((params[key] == copies[key]).all() for key in params)
    assert int(state["steps"]) == 0 and int(middle["steps"]) == 2
    assert all(isinstance(value, np.ndarray) for value in middle.values())
    assert not any("U" in key for key in middle)
    assert once["W"].dtype == np.float32 and once["U"] is params["U"]
    assert all(v.dtype == np.float32 for k, v in middle.items() if k != "steps")


@pytest.mark.parametrize(
    "arguments, options, message",
    [
        (("sdg", 1), {}, "'sdg' is unknown; choose one of sgd"),
        (("adam", 1, "torch"), {}, "'adam' has no form 'torch'"),
        (("rmsprop", 1, "jax"), {}, "has no form 'jax'"),
        (("sgd", 1), {"momentum": 0.9}, "'sgd' takes rate, rates, skip, not 'momentum'"),
        (("momentum", 1), {"momentum": math.inf}, "Momentum: momentum is inf"),
    ],
)
def test_optimizer_errors(arguments, options, message):
    with refused(message):
        optimizer(*arguments, **options)


def test_what_does_not_fit_the_parameters_is_refused():
    params = {"W": np.zeros((2, 3))}
    with refused("there is no parameter 'V'; the parameters are W"):
        SGD(1, rates={"V": 1}).init(params)
    for grads in ({}, {"W": np.zeros((3, 2))}):
        with refused("W is .2, 3. and its gradient"):
            SGD(1).step(params, grads, SGD(1).init(params))
    with refused("sqrt of Fraction", TypeError):
        run(Adam(F(1)), {"W": array(F(1))}, [{"W": array(F(1))}])


@both_dtypes
@pytest.mark.parametrize(
    "name, options",
    [
        *((name, {}) for name in OPTIMIZERS),
        ("rmsprop", {"place": "outside", "decay": F(1, 3)}),
        ("adamw", {"beta1": F(2, 3), "beta2": 0, "eps": 0.1, "weight_decay": F(1, 3)}),
    ],
)
def test_large_steps(name, options, dtype, monkeypatch):
    """Compiled, on any number of threads, to the bits that NumPy gives each parameter alone."""
    rng = np.random.default_rng(0)
    shapes = {"W": (300, 900), "none": (0, 3), "V": (513, 257), "b": (77,), "c": ()}
    params, grads = (
        {key: rng.standard_normal(shape).astype(dtype) for key, shape in shapes.items()}
        for _ in range(2)
    )
    params["V"], grads["W"] = np.asfortranarray(params["V"]), np.asfortranarray(grads["W"])
    params["b"].flags.writeable = False
    rule = OPTIMIZERS[name](0.1, rates={"V": F(1, 3)}, **options)
    state = {
        key: np.square(rng.standard_normal(value.shape)).astype(dtype) if value.ndim else value
        for key, value in rule.init(params).items()
    }
    state["steps"] = np.asarray(4)
    results = at_every_number_of_threads(lambda: rule.step(params, grads, state), most=3)
    monkeypatch.setattr(OPTIMIZERS[name], "large", math.inf)
    for key, value in params.items():
        alone = OPTIMIZERS[name](0.1, rates={"V": F(1, 3)} if key == "V" else {}, **options)
        rest = {
            place: each for place, each in state.items() if place.split("/")[0] in (key, "steps")
        }
        stepped, after = alone.step({key: value}, {key: grads[key]}, rest)
        for params_, state_ in results:
            assert (stepped[key] == params_[key]).all() and params_[key].shape == shapes[key]
            assert all((each == state_[place]).all() for place, each in after.items())


@both_dtypes
@pytest.mark.parametrize(
    "name, kernel, right, wrong",
    [
        ("sgd", "sgd", "rate * g[i]", "rate * (g[i] + 1)"),
        ("momentum", "momentum", "else v", "else g[i]"),
        ("nesterov", "momentum", "momentum * v if", "v if"),
        ("rmsprop", "rmsprop", "rest * (g[i] * g[i])", "rest * g[i]"),
        ("adam", "adam", "unbias1 * m", "m"),
        ("adam", "adam", "else value[i]", "else value[i] + rate"),
        ("adamw", "adam", "- decay * value[i]", "- decay * m"),
        ("adadelta", "adadelta", "decay * update[i]", "decay * square[i]"),
    ],
)
def test_wrong_kernels_are_noticed_from_the_threshold_on(
    name, kernel, right, wrong, dtype, monkeypatch
):
    kind, function = OPTIMIZERS[name], KERNELS[kernel][0]
    bug = planted(getattr(function, "py_func", function), right, wrong)
    rng, threshold = np.random.default_rng(0), kind.large
    for size in (threshold - 1, threshold, threshold + 1):
        params, grads, *old = ({"W": rng.random(size).astype(dtype)} for _ in range(4))
        state = {"steps": np.asarray(4)}
        state |= {f"W/{each}": value["W"] for each, value in zip(kind.accumulators, old)}

        def stepped():
            params_, state_ = kind(0.1).step(params, grads, state)
            return [each.tobytes() for each in (params_ | state_).values()]

        compiled = stepped()
        with monkeypatch.context() as patch:
            patch.setattr(kind, "large", math.inf)
            assert compiled == stepped()
        with monkeypatch.context() as patch:
            patch.setitem(KERNELS, kernel, (bug, *KERNELS[kernel][1:]))
            assert (compiled == stepped()) == (size < threshold)


def test_an_overridden_move_is_used_at_every_size():
    class Signed(RMSprop):
        def move(self, g, state, steps):
            return np.sign(g), state

    for size in (1, RMSprop.large):
        params, grads = {"W": np.ones(size)}, {"W": np.full(size, -3.0)}
        after, _ = run(Signed(0.5), params, [grads])
        assert (after["W"] == 1.5).all()


def test_whole_numbers_are_taken_as_floats():
    assert float(weight_decay({"W": np.array([[100]], np.int8)}, 0.5)[0]) == 5000
    params = {"W": np.array([1, 2])}
    for name in ("momentum", "nesterov", "rmsprop", "adam"):
        rule = optimizer(name, 0.1)
        after, _ = rule.step(params, {"W": np.array([1.0, 2.0])}, rule.init(params))
        assert after["W"].dtype == float and (after["W"] < params["W"]).all()


def test_what_cannot_be_clipped_is_said():
    with refused("the gradient of W is complex128; need real floats"):
        clip_by_norm({"W": np.ones(2, complex)}, 1)
    exact = {"W": np.array([F(1, 3)])}
    assert clip_by_value(exact, math.inf) == (exact, 1, 0, None)


def test_weight_decay():
    """c sum W^2 has the gradient 2 c W; with a 1/2 it would be c W."""
    W = {"A": array(F(1, 2), F(-3)), "B": array(F(5, 7))}
    value, grads = weight_decay(W, F(1, 10))
    assert value == F(1, 10) * (F(1, 4) + 9 + F(25, 49))
    assert list(grads["A"]) == [F(1, 10), F(-6, 10)] and grads["B"][0] == F(1, 7)
    value, grads = weight_decay({"A": np.ones(3, np.float32)}, 0.5)
    assert value == 1.5 and grads["A"].dtype == np.float32 and (grads["A"] == 1).all()


def test_clip_by_norm():
    grads = {"A": np.array([[3.0, 0.0]]), "B": np.array([-4.0])}
    same = clip_by_norm(grads, 5)
    assert same == (grads, 1, 0, 5.0)
    scaled = clip_by_norm(grads, 2.5)
    assert scaled.factor == 0.5 and scaled.norm == 5 and scaled.entries == 3
    assert (scaled.grads["A"] == [[1.5, 0]]).all() and scaled.grads["B"] == -2
    zero = {"A": np.zeros(2), "B": np.zeros(0)}
    assert clip_by_norm(zero, 1) == (zero, 1, 0, 0.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, ">f4", np.float16, np.longdouble])
def test_sum_of_squares(dtype):
    """To float64's rounding, over several arrays of any memory order and of no whole vectors, and
    the same bits whatever the order in memory."""
    rng = np.random.default_rng(0)
    shapes = (300, 7), (1,), (0, 3), (511,)
    arrays = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
    exact = sum(F(float(value)) ** 2 for g in arrays for value in g.ravel())
    total = sum_of_squares(arrays)
    assert abs(F(total) - exact) <= exact * F(EPS) * 8
    assert sum_of_squares([np.asfortranarray(g) for g in arrays]) == total
    assert sum_of_squares([]) == 0 and math.isnan(sum_of_squares([*arrays, np.full(3, np.nan)]))
    with refused("complex", TypeError):
        sum_of_squares([np.ones(2, complex)])


@pytest.mark.parametrize(
    "dtype, size",
    [
        (np.float32, 1e38),
        *((float, size) for size in (1e308, 1e300, 1e160, 1e-150, 3e-160, 1e-300, 5e-324)),
    ],
)
def test_clip_by_norm_extremes(dtype, size):
    """No overflow or underflow of the squares: n entries of size x have the norm x sqrt(n)."""
    size = float(dtype(size))
    grads = {"A": np.array([size, 0], dtype), "B": np.full(3, -size, dtype)}
    limit = max(size / 4, 5e-324)
    clipped = clip_by_norm(grads, limit)
    assert clipped.norm == pytest.approx(2 * size, rel=4 * EPS)
    assert clipped.grads["A"].dtype == dtype and clipped.factor < 1
    # the factor and the product round once each
    assert clipped.grads["A"] == pytest.approx(
        [limit / 2, 0], rel=2 * float(np.finfo(dtype).eps), abs=5e-324
    )


def test_clip_by_norm_of_a_norm_that_overflows():
    most = np.full(4, 1.5e308)
    clipped = clip_by_norm({"A": most}, 1)
    assert clipped.norm == np.inf and clipped.grads["A"] == pytest.approx([0.5] * 4, rel=4 * EPS)
    assert clip_by_norm({"A": most}, np.inf).grads["A"] is most


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", [0, 1])
def test_clip_by_norm_not_finite(bad, where):
    grads = {"A": np.ones(2), "B": np.ones(2)}
    grads["AB"[where]][1] = bad
    clipped = clip_by_norm(grads, 0.1)
    assert clipped.grads is grads and clipped.entries == 0 and not math.isfinite(clipped.norm)


def test_clip_by_value():
    grads = {"A": np.array([3, -0.5, np.nan, -np.inf], np.float32), "B": np.array([-1.0])}
    clipped = clip_by_value(grads, 1)
    assert clipped.grads["A"].dtype == np.float32
    assert clipped.grads["A"].tolist()[:2] == [1, -0.5] and clipped.grads["A"][3] == -1
    assert np.isnan(clipped.grads["A"][2]) and clipped.grads["B"][0] == -1
    assert (clipped.factor, clipped.entries, clipped.norm) == (1, 2, None)
    exact = clip_by_value({"A": array(F(7, 3), F(1, 3))}, F(2))
    assert list(exact.grads["A"]) == [2, F(1, 3)] and exact.entries == 1


def test_a_state_that_lacks_something_or_is_another_parameters_is_refused():
    params = {"W": np.ones((2, 2), np.float32)}
    rule = optimizer("momentum", rate=0.1)
    state = rule.init(params)
    for wrong, message in (
        ({}, "the state has no W/velocity"),
        ({"W/velocity": state["W/velocity"]}, "the state has no steps"),
        (
            {**state, "W/velocity": np.zeros((3, 2))},
            "W/velocity is float64 .3, 2. and its parameter float32 .2, 2.;",
        ),
    ):
        with refused(message):
            rule.step(params, params, wrong)
