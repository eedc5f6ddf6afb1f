"""The compiled core against the reference, and what it promises besides: the same bits with
any number of threads, NaN never hidden, any layout of the inputs, no dtype but its own."""

import threading
from fractions import Fraction
from importlib import import_module

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from refnet import compiled
from refnet.cells import rnn as reference
from refnet.compiled import rnn, vector
from refnet.maths.activations import ACTIVATIONS
from refnet.maths.threads import get_threads, set_threads, usual_threads
from support.arguments import refused
from support.compiled import EXACT_RUN, draw_gated
from support.subprocesses import run_on_fractions

# Both backends run float64 on the float32 inputs' values, or float32 itself: with u = eps / 2
# an entry is a sum of K products and goes through a Lipschitz chain of T steps, each worth
# K u of its terms. 8 covers the elementary functions' 3 ulps and the rounding of both sides.
SAFETY = 8


def draw_case(rng, act, T, B, D, H, K, dtype):
    p = {
        "Whh": rng.standard_normal((H, H)) / max(H, 1) ** 0.5,
        "Wxh": rng.standard_normal((H, D)),
        "bh": rng.standard_normal(H),
        **act.init(H),
    }
    if act.name == "modrelu":
        p["b_mod"] = rng.standard_normal(H) / 3
    p = {name: np.asarray(value, dtype) for name, value in p.items()}
    return (
        p,
        rng.standard_normal((T, B, D)).astype(dtype),
        rng.standard_normal((B, H)).astype(dtype),
        rng.standard_normal((K, B, H)).astype(dtype),
    )


def magnitudes(p, x, h0, dh, act, T):
    """Bounds of every quantity if all terms had one sign: the scale that rounding acts on."""
    size = {name: abs(value.astype(float)) for name, value in p.items()}
    spread = 1 + np.linalg.norm(size["Whh"], 2) if size["Whh"].size else 1.0
    growth = min(spread**T, 1e30)
    inputs = size["Wxh"].sum(axis=1, initial=0).max(initial=0) * abs(x).max(initial=0)
    state = growth * (abs(h0).max(initial=0) + T * (inputs + size["bh"].max(initial=0)) + 1)
    return growth, state, abs(dh).max(initial=0)


def assert_agree(p, x, h0, dh, act, dtype, inputs=True):
    """Assert that forward and backward agree within the derived bound."""
    T, B, D = x.shape
    H = len(p["bh"])
    want = reference.forward(p, x, h0, act)
    got = rnn.forward(p, x, h0, act)
    growth, state, dstate = magnitudes(p, x, h0, dh, act, T)
    unit = SAFETY * (T + 1) * (H + D + 8) * float(np.finfo(dtype).eps) / 2
    assert got.h.dtype == dtype and got.h.shape == want.h.shape
    assert np.all(abs(got.h - want.h) <= unit * state)
    # the same tape for both, so that a kink is decided alike
    tape = reference.Tape(got.x, want.a, want.h)
    kept = tape._replace(a=None if got.a is None else want.a)
    expected = reference.backward(p, tape, dh, act, inputs=inputs)
    gradients = rnn.backward(p, kept, dh, act, inputs=inputs)
    assert set(gradients) == set(expected)
    carried = (
        growth
        * (len(dh) + 1)
        * dstate
        * (H + 1)
        * max(
            [1.0, *(float(abs(p[name]).max(initial=0)) for name in ("Wxh", "slope") if name in p)]
        )
    )
    seen = max(
        1.0,
        float(abs(want.h).max(initial=0)),
        float(abs(x).max(initial=0)),
        float(abs(want.a).max(initial=0)),
    )
    for name, value in expected.items():
        assert gradients[name].shape == value.shape and gradients[name].dtype == dtype
        bound = unit * carried * seen * max(1, T * B)
        assert np.all(abs(gradients[name] - value) <= bound), name


@st.composite
def cases(draw):
    act = ACTIVATIONS[draw(st.sampled_from(sorted(ACTIVATIONS)))]
    dtype = np.dtype(draw(st.sampled_from(["f4", "f8"])))
    T, B = draw(st.integers(0, 6)), draw(st.sampled_from([0, 1, 2, 3, 5, 8, 17, 33]))
    D = draw(st.sampled_from([0, 1, 2, 17]))
    H = 2 * draw(st.sampled_from([1, 4, 8, 9, 17, 60]))
    K = draw(st.integers(0, T))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    return (*draw_case(rng, act, T, B, D, H, K, dtype), act, dtype)


@given(cases())
def test_matches_the_reference(case):
    assert_agree(*case)


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tight_on_a_short_run(name, dtype):
    """Few steps and tame weights: the whole difference is some tens of eps of the scale."""
    act = ACTIVATIONS[name]
    p, x, h0, dh = draw_case(np.random.default_rng(1), act, 4, 19, 3, 34, 2, np.dtype(dtype))
    want, got = reference.forward(p, x, h0, act), rnn.forward(p, x, h0, act)
    tolerance = 64 * np.finfo(dtype).eps
    assert abs(got.h - want.h).max() <= tolerance * abs(want.h).max()
    expected = reference.backward(p, want, dh, act)
    gradients = rnn.backward(p, got, dh, act)
    for key, value in expected.items():
        assert abs(gradients[key] - value).max() <= tolerance * abs(value).max(), key


@pytest.mark.parametrize(
    "break_it",
    [
        lambda g: {**g, "Whh": g["Whh"].T},
        lambda g: {**g, "bh": g["bh"] * np.float32(1.001)},
        lambda g: {**g, "h0": g["h0"] * 0},
        lambda g: {**g, "x": np.roll(g["x"], 1, axis=0)},
    ],
)
def test_tight_rejects_planted_bugs(break_it, monkeypatch):
    honest = rnn.backward
    monkeypatch.setattr(rnn, "backward", lambda *args, **kw: break_it(honest(*args, **kw)))
    with pytest.raises(AssertionError):
        test_tight_on_a_short_run("tanh", np.float32)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["lstm", "gru", "gru_before"])
def test_gated_matches_the_reference(name, dtype):
    """Every activation, a gate whose slope needs the pre-activation, clipping, every edge."""
    plain = import_module(f"refnet.cells.{name}")
    fast = import_module(f"refnet.compiled.{name}")
    rng = np.random.default_rng(9)
    tolerance = 256 * np.finfo(dtype).eps  # some tens of roundings a step, four steps
    for n, act in enumerate(ACTIVATIONS.values()):
        for T, B, D, H in ((4, 19, 3, 34), (3, 2, 1, 6), (0, 3, 1, 4), (2, 0, 1, 4)):
            gate = ACTIVATIONS[["sigmoid", "softsign"][n % 2]]
            p, x, h0, dh = draw_gated(rng, plain, act, T, B, D, H, min(T, 2), dtype, B == 19)
            options = {"clip": 0.3} if B == 2 else {}
            want, got = plain.forward(p, x, h0, act, gate), fast.forward(p, x, h0, act, gate)
            assert got.h.dtype == dtype and got.h.shape == want.h.shape
            assert np.all(abs(got.h - want.h) <= tolerance * abs(want.h).max(initial=1))
            expected = plain.backward(p, want, dh, act, gate=gate, **options)
            # the same tape, so that kinks and clipping are decided alike
            gradients = fast.backward(p, want, dh, act, gate=gate, **options)
            assert set(gradients) == set(expected)
            for key, value in expected.items():
                assert gradients[key].shape == value.shape, (act.name, key)
                scale = abs(value).max(initial=np.finfo(dtype).tiny)
                assert np.all(abs(gradients[key] - value) <= tolerance * scale), (act.name, key)


@pytest.mark.parametrize("name", ["lstm", "gru", "gru_before"])
def test_gated_same_bits(name):
    fast = import_module(f"refnet.compiled.{name}")
    act = ACTIVATIONS["tanh"]
    p, x, h0, dh = draw_gated(np.random.default_rng(3), fast, act, 30, 37, 3, 20, 7, np.float32)
    before, found = get_threads(), []
    try:
        for threads in range(1, usual_threads() + 1):
            set_threads(threads)
            tape = fast.forward(p, x, h0, act)
            gradients = fast.backward(p, tape, dh, act)
            found.append([gradients[key].tobytes() for key in sorted(gradients)])
    finally:
        set_threads(before)
    assert all(bits == found[0] for bits in found)


def test_clip():
    act = ACTIVATIONS["tanh"]
    p, x, h0, dh = draw_case(np.random.default_rng(2), act, 5, 6, 2, 10, 5, np.dtype("f8"))
    tape = reference.forward(p, x, h0, act)
    want = reference.backward(p, tape, dh, act, clip=0.2)
    got = rnn.backward(p, tape, dh, act, clip=0.2)
    assert want["clipped"] > 0 and got["clipped"] == want["clipped"]
    np.testing.assert_allclose(got["Whh"], want["Whh"], rtol=0, atol=1e-13)


def bits(p, x, h0, dh, act):
    tape = rnn.forward(p, x, h0, act)
    gradients = rnn.backward(p, tape, dh, act)
    return [tape.h.tobytes(), *(gradients[name].tobytes() for name in sorted(gradients))]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", ["tanh", "prelu"])
def test_same_bits(name, dtype):
    """At every number of threads, over repeats, and from two Python threads at once."""
    act = ACTIVATIONS[name]
    case = (*draw_case(np.random.default_rng(3), act, 30, 37, 3, 50, 7, np.dtype(dtype)), act)
    before = get_threads()
    try:
        results = []
        for threads in range(1, usual_threads() + 1):
            set_threads(threads)
            results += [bits(*case), bits(*case)]
        assert all(result == results[0] for result in results)
        found = []
        both = [threading.Thread(target=lambda: found.append(bits(*case))) for _ in range(2)]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()
        assert found == [results[0], results[0]]
    finally:
        set_threads(before)


def test_rows_do_not_depend_on_their_neighbours():
    """A sequence's states have the same bits alone and in any place of a batch."""
    act = ACTIVATIONS["tanh"]
    p, x, h0, _ = draw_case(np.random.default_rng(4), act, 9, 13, 2, 30, 1, np.dtype("f4"))
    whole = rnn.forward(p, x, h0, act).h
    for b in range(13):
        alone = rnn.forward(p, x[:, b : b + 1], h0[b : b + 1], act).h
        assert np.array_equal(alone[:, 0], whole[:, b])


@pytest.mark.parametrize(
    "change",
    [
        np.asfortranarray,
        lambda v: v.astype(v.dtype.newbyteorder(">")),
        lambda v: np.repeat(v, 2, axis=-1)[..., ::2],
        lambda v: v[..., ::-1].copy()[..., ::-1],
        lambda v: np.frombuffer(b"\0" + v.tobytes(), np.uint8)[1:].view(v.dtype).reshape(v.shape),
    ],
    ids=["fortran", "big-endian", "strided", "reversed", "unaligned, read-only"],
)
def test_any_layout_gives_the_same_bits(change):
    act = ACTIVATIONS["tanh"]
    p, x, h0, dh = draw_case(np.random.default_rng(5), act, 4, 6, 3, 10, 2, np.dtype("f4"))
    want = bits(p, x, h0, dh, act)
    got = bits(
        {name: change(value) for name, value in p.items()}, change(x), change(h0), change(dh), act
    )
    assert got == want
    assert all(len(kernel.signatures) <= 2 for kernel in rnn.WALK.kernels)


@pytest.mark.parametrize("dtype", [np.float16, np.longdouble, np.complex128, object])
def test_other_dtypes_are_refused(dtype):
    act = ACTIVATIONS["tanh"]
    p, x, h0, dh = draw_case(np.random.default_rng(6), act, 2, 2, 1, 2, 1, np.dtype("f4"))
    with refused('backend="reference"', TypeError):
        rnn.forward(
            {name: value.astype(dtype) for name, value in p.items()},
            x.astype(dtype),
            h0.astype(dtype),
            act,
        )


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_not_hidden(name, bad):
    """They come out exactly where the reference has them, forward and backward."""
    act = ACTIVATIONS[name]
    for where in ("x", "h0", "bh"):
        p, x, h0, dh = draw_case(np.random.default_rng(7), act, 3, 5, 2, 6, 1, np.dtype("f4"))
        {"x": x[1, 2], "h0": h0[2], "bh": p["bh"]}[where][0] = bad
        with np.errstate(all="ignore"):
            want = reference.forward(p, x, h0, act)
            got = rnn.forward(p, x, h0, act)
            assert np.array_equal(np.isnan(got.h), np.isnan(want.h))
            expected = reference.backward(p, want, dh, act)
            gradients = rnn.backward(p, got, dh, act)
        for key in ("Whh", "Wxh", "bh", "h0"):
            assert np.array_equal(np.isfinite(gradients[key]), np.isfinite(expected[key])), key


@pytest.mark.parametrize("name", ["rnn", "lstm", "gru", "gru_before"])
def test_subnormal_numbers_count_as_zero(name):
    """Every step halves the gradient, until float32 has no normal numbers left; and they are back
    once the kernel is done."""
    plain, fast = (import_module(f"refnet.{room}.{name}") for room in ("cells", "compiled"))
    T, B, H, G, act = 140, 3, 8, len(plain.GATES), ACTIVATIONS["tanh"]
    p = {"Whh": np.zeros((G * H, H)), "Wxh": np.zeros((G * H, 1)), **plain.init(H)}
    p = {key: np.zeros_like(value, np.float32) for key, value in p.items()}
    if name == "rnn":
        p["Whh"] = np.eye(H, dtype=np.float32) / 2
    x, dh = np.zeros((T, B, 1), np.float32), np.ones((1, B, H), np.float32)
    tape = plain.forward(p, x, np.zeros(((2,) if name == "lstm" else ()) + (B, H), np.float32), act)
    dc = {"dc": dh[0]} if name == "lstm" else {}
    want, got = (cell.backward(p, tape, dh, act, **dc)["h0"] for cell in (plain, fast))
    if name == "lstm":
        want, got = want[1], got[1]
    assert np.all(want > 0) and np.all(want < np.finfo(np.float32).tiny)
    assert np.array_equal(got, 0 * want if vector.FLUSH else want)
    assert np.all(want * np.float32(0.5) > 0)


def test_source_is_exact_on_fractions():
    """The kernels' Python source, the JIT off, equals the reference with ==, and never asks for
    numbers outside an array."""
    assert run_on_fractions(EXACT_RUN) > 100


def test_info():
    facts = compiled.info()
    assert all(value for value in facts.values()), facts
    assert facts["threads"] == get_threads() and facts["cpu"] and facts["cache"]
    assert Fraction(facts["vector bytes"]) in (16, 32, 64)
