"""The rounding error of every activation and of its slope, on both backends: over all float32
and a sample of float64, within the bounds of ``ACCURACY``."""

import math
from dataclasses import replace
from functools import cache

import mpmath
import numba
import numpy as np
import pytest

from refnet.check.cases import reference_results
from refnet.compiled import _jit, activations as compiled
from refnet.maths import activations
from refnet.maths.activations import ACCURACY, ACTIVATIONS
from refnet.nets.recurrent import RecurrentNet
from support.drawn import drawn
from support.marks import both_backends, both_dtypes

POINTWISE = sorted(name for name, act in ACTIVATIONS.items() if not act.pairs)
CHUNK = 2**14  # whose arrays stay in the cache


@_jit.jit
def _push_pull(rule, a, h, g, dq):
    compiled.push(rule, h, 1, len(h), len(h))
    compiled.pull(rule, a, h, g, dq, 1, len(h))


def on_kernels(act, p, a):
    h, g, parameter = a.copy(), np.ones_like(a), np.zeros_like(a)
    for value in p.values():
        parameter[:] = value
    rule = compiled.Rule(*compiled.settings(act, a.dtype), parameter)
    _push_pull(rule, a, h, g, np.zeros_like(a))
    return h, g


def on_reference(act, p, a):
    h = act.forward(a, p)
    return h, act.backward(a, h, np.ones_like(a), p)[0]


BACKENDS = {"reference": on_reference, "compiled": on_kernels}


def parameters(act, dtype):
    """The activation's own ones; modrelu with a threshold, so that some units are off."""
    return {"b_mod": np.full(1, -0.3, dtype)} if act.name == "modrelu" else act.init(1, dtype)


def truth(act, p, exp, expm1):
    """The function a -> (f(a), f'(a)) of a number of a wider type, with its exp and expm1;
    nothing cancels in it."""
    threshold = float(p["b_mod"][0]) if "b_mod" in p else 0.0
    below = {"identity": 1.0, "prelu": 0.25, "leaky_relu": act.alpha}.get(act.name, 0.0)

    def tanh(a):
        e, m = exp(-2 * abs(a)), expm1(-2 * abs(a))
        return (-m if a > 0 else m) / (1 + e), 4 * e / (1 + e) / (1 + e)

    def sigmoid(a):
        e = exp(-abs(a))
        return (1.0 if a > 0 else e) / (1 + e), e / (1 + e) / (1 + e)

    def softsign(a):
        return a / (1 + abs(a)), 1 / (1 + abs(a)) / (1 + abs(a))

    def elu(a):
        return (a, 1.0) if a > 0 else (expm1(a), exp(a))

    def modrelu(a):
        grown = abs(a) + threshold
        return (0.0, 0.0) if grown <= 0 else (grown if a > 0 else -grown, 1.0)

    def piecewise(a):
        return (a, 1.0) if a > 0 else (below * a if below else 0.0, below)

    return {
        "tanh": tanh,
        "sigmoid": sigmoid,
        "softsign": softsign,
        "elu": elu,
        "modrelu": modrelu,
    }.get(act.name, piecewise)


def off(computed, true, allowed):
    """The error as a multiple of what is allowed; NaN is right where the truth is NaN."""
    if computed == true or computed != computed and true != true:
        return 0.0
    error = abs(computed - true) / allowed
    return error if error == error else math.inf


def scanner(both, off, wider):
    """What holds values and slopes against the truth, made number by number: by what factors
    their errors exceed the bounds, at the worst. Where a is NaN, so is the value."""

    def scan(a, value, slope, bound, eps, least):
        worst = [0.0, 0.0]
        for i in range(len(a)):
            if a[i] != a[i]:
                worst[0] = max(worst[0], 0.0 if value[i] != value[i] else math.inf)
                continue
            true = both(wider(a[i]))
            saturated = bound[2] if a[i] > 0 or bound[3] else 0.0
            worst[0] = max(
                worst[0], off(wider(value[i]), true[0], bound[0] * abs(true[0]) * eps + least)
            )
            worst[1] = max(
                worst[1],
                off(wider(slope[i]), true[1], (bound[1] * abs(true[1]) + saturated) * eps + least),
            )
        return worst

    return scan


@cache
def compiled_scan(act):
    """In float64, whose own errors are 1e-8 of the float32 bounds."""
    both = numba.njit(truth(act, parameters(act, np.float32), math.exp, math.expm1))
    return numba.njit(scanner(both, numba.njit(off), float), error_model="numpy")


def excess(act, a, scan):
    """(backends, 2): of the value and the slope."""
    bound, info = ACCURACY[act.name], np.finfo(a.dtype)
    bounds = (bound.value, bound.slope, bound.saturated, act.name != "sigmoid")
    factors = []
    for backend in BACKENDS.values():
        value, slope = backend(act, parameters(act, a.dtype), a)
        assert value.dtype == slope.dtype == a.dtype
        factors.append(
            scan(a, value, slope, bounds, float(info.eps), float(info.smallest_subnormal))
        )
    return np.array(factors, float)


def all_excess(name, bits):
    """Of the float32 numbers with these bits: (backends, 2)."""
    a = np.asarray(bits, np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        return excess(ACTIVATIONS[name], a, compiled_scan(ACTIVATIONS[name]))


def sample(name):
    """All exponents, 256 significands each; and the range where something happens, more densely."""
    rng = np.random.default_rng(3)
    top = np.arange(512, dtype=np.uint32)[:, None] << 23
    near = np.concatenate([rng.standard_normal(50_000) * 5, rng.uniform(-120, 120, 50_000)])
    bits = np.concatenate(
        [
            (top + rng.integers(0, 2**23, (512, 256), dtype=np.uint32)).ravel(),
            (top + np.array([0, 1, 2**23 - 1], np.uint32)).ravel(),
            near.astype(np.float32).view(np.uint32),
        ]
    )
    return all_excess(name, bits.astype(np.uint32)).max()


@pytest.mark.parametrize("name", POINTWISE)
def test_float32(name):
    assert sample(name) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("name", POINTWISE)
def test_all_float32(name):
    worst = np.max(
        [
            all_excess(name, np.arange(start, start + CHUNK, dtype=np.uint64))
            for start in range(0, 2**32, CHUNK)
        ],
        axis=0,
    )
    print(f"{name}: of the bounds, value and slope, {dict(zip(BACKENDS, worst.round(3).tolist()))}")
    assert worst.max() <= 1


@pytest.mark.parametrize("name", POINTWISE)
def test_float64(name):
    """Against 40 digits, from the smallest to the largest magnitude, saturation included."""
    rng = np.random.default_rng(4)
    a = np.concatenate(
        [
            rng.standard_normal(1200) * 5,
            rng.uniform(-750, 750, 600),
            np.ldexp(rng.uniform(-1, 1, 600), rng.integers(-1074, 1024, 600)),
            [0.0, -0.0, -37.0, 37.0, -18.0, -9.0, 5e-324, -5e-324],
        ]
    )
    act = ACTIVATIONS[name]
    with mpmath.workdps(40):
        both = truth(act, parameters(act, a.dtype), mpmath.exp, mpmath.expm1)
        assert excess(act, a, scanner(both, off, mpmath.mpf)).max() <= 1


def _value(function):
    return lambda act: replace(act, value=lambda a, p, alpha: function(a))


def _slope(function):
    return lambda act: replace(act, pull=lambda a, h, dh, p, alpha: (dh * function(a, h), {}))


BUGS = {
    "elu' from the value": ("elu", _slope(lambda a, h: np.where(a <= 0, h + 1, 1))),
    "elu without expm1": (
        "elu",
        _value(lambda a: np.where(a <= 0, np.exp(np.minimum(a, 0)) - 1, a)),
    ),
    "tanh by exp": ("tanh", _value(lambda a: 1 - 2 / (np.exp(2 * np.minimum(a, 40)) + 1))),
    "tanh' of a rounded argument": (
        "tanh",
        _slope(lambda a, h: 1 / np.cosh(np.clip(a * np.float32(1.001), -80, 80)) ** 2),
    ),
    "sigmoid by tanh": ("sigmoid", _value(lambda a: (1 + np.tanh(a / 2)) / 2)),
    "sigmoid' of the wrong side": (
        "sigmoid",
        _slope(lambda a, h: (1 - h) * (1 - activations.sigmoid(-a))),
    ),
    "softsign'": ("softsign", _slope(lambda a, h: (1 - abs(h)) ** 2)),
    "leaky_relu' in half precision": (
        "leaky_relu",
        _slope(lambda a, h: np.where(a <= 0, np.float16(0.01), 1).astype(a.dtype)),
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_rejected(bug, monkeypatch):
    name, plant = BUGS[bug]
    monkeypatch.setitem(ACTIVATIONS, name, plant(ACTIVATIONS[name]))
    assert not sample(name) <= 1


@pytest.mark.parametrize(
    "slope, verdict",
    [
        (lambda a, h: h + 1, "explained by rounding"),
        (lambda a, h: np.exp(a), "explained by rounding"),
        (lambda a, h: np.exp(a) * np.float32(1.001) + np.float32(1e-6), "suspicious"),
        (lambda a, h: np.exp(a) * np.float32(1.01) + np.float32(1e-5), "not rounding"),
    ],
)
def test_the_judge_holds_both_forms_of_the_slope_of_elu(slope, verdict):
    """At a = -9 ``h + 1``, as JAX has it, is 2.5e-4 off in float32, and ``exp(a)`` right."""
    pytest.importorskip("flint")
    from refnet.check import compare
    from refnet.exact import certify

    net = RecurrentNet(2, 3, 2, activation="elu")
    params, batch = drawn(net, 3, 2)
    params["bh"] -= np.float32(9)

    def pull(a, h, dh, p, alpha):
        return np.where(a <= 0, slope(np.minimum(a, 0), h), 1) * dh, {}

    changed = replace(net, activation=replace(net.activation, pull=pull))
    computed = compare(reference_results(changed, params, batch), certify(net, params, batch))
    assert computed.verdict == verdict


@both_dtypes
@pytest.mark.parametrize("name", ["tanh", "softsign", "elu"])
@both_backends
def test_subnormal_pre_activations_of_a_net(backend, name, dtype):
    """There h = a: nothing is lost, or, in a compiled net, the smallest normal number at most."""
    info = np.finfo(dtype)
    a = info.smallest_subnormal * dtype(2) ** np.arange(info.nmant + 2, dtype=dtype)
    a = np.concatenate([a, -a])
    net = RecurrentNet(1, len(a), 1, activation=name, backend=backend)
    params = {
        name: np.zeros_like(value)
        for name, value in net.init(np.random.default_rng(0), dtype).items()
    } | {"Wxh": a[:, None]}
    h = net.forward(params, np.ones((1, 1, 1), dtype))[1].cell.h[1, 0]
    assert (abs(h - a) <= (0 if backend == "reference" else info.tiny)).all()
