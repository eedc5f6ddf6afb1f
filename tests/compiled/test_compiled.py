"""The compiled core against the reference, and what it promises besides: the same bits with
any number of threads, NaN never hidden, any layout of the inputs, no dtype but its own."""

from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from functools import partial
from importlib import import_module

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from refnet import compiled
from refnet.cells import rnn as reference
from refnet.compiled import rnn, vector
from refnet.maths.activations import ACTIVATIONS
from refnet.maths.threads import get_threads
from support.arguments import refused
from support.compiled import EXACT_RUN, LAYOUTS, assert_agree, at_every_number_of_threads, draw_case
from support.marks import both_dtypes
from support.subprocesses import run_on_fractions

CELLS = ("rnn", "lstm", "gru", "gru_before")
TANH = ACTIVATIONS["tanh"]


def both(name):
    return (import_module(f"refnet.{room}.{name}") for room in ("cells", "compiled"))


def drawn(act, sizes, dtype="f4", seed=1):
    return draw_case(np.random.default_rng(seed), rnn, act, sizes, np.dtype(dtype))


@st.composite
def cases(draw):
    act = ACTIVATIONS[draw(st.sampled_from(sorted(ACTIVATIONS)))]
    T = draw(st.integers(0, 6))
    sizes = (
        T,
        draw(st.sampled_from([0, 1, 2, 3, 5, 8, 17, 33])),
        draw(st.sampled_from([0, 1, 2, 17])),
        2 * draw(st.sampled_from([1, 4, 8, 9, 17, 60])),
        draw(st.integers(0, T)),
    )
    return drawn(act, sizes, draw(st.sampled_from(["f4", "f8"])), draw(st.integers(0, 99))), act


@given(cases())
def test_matches_the_reference(case):
    assert_agree(reference, rnn, *case)


@pytest.mark.parametrize("name, factor", [("Whh", 1.001), ("bh", 1.001), ("h0", 0), ("x", -1)])
def test_a_planted_bug_is_rejected(name, factor, monkeypatch):
    case, right = drawn(TANH, (4, 19, 3, 34, 2)), rnn.backward
    assert_agree(reference, rnn, case, TANH)

    def wrong(*arguments, **options):
        gradients = right(*arguments, **options)
        return {**gradients, name: gradients[name] * np.float32(factor)}

    monkeypatch.setattr(rnn, "backward", wrong)
    with pytest.raises(AssertionError):
        assert_agree(reference, rnn, case, TANH)


@both_dtypes
@pytest.mark.parametrize("name", CELLS[1:])
def test_gated_matches_the_reference(name, dtype):
    """Every activation, a gate whose slope needs the pre-activation, clipping, every edge."""
    plain, fast = both(name)
    rng = np.random.default_rng(9)
    for n, act in enumerate(ACTIVATIONS.values()):
        gate = ACTIVATIONS[["sigmoid", "softsign"][n % 2]]
        for sizes in ((4, 19, 3, 34, 2), (3, 2, 1, 6, 2), (0, 3, 1, 4, 0), (2, 0, 1, 4, 2)):
            case = draw_case(rng, plain, act, sizes, dtype, sizes[1] == 19)
            assert_agree(plain, fast, case, act, gate, clip=0.3 if sizes[1] == 2 else None)


def bits(cell, p, x, h0, dh, act=TANH):
    tape = cell.forward(p, x, h0, act)
    gradients = cell.backward(p, tape, dh, act)
    return [tape.h.tobytes(), *(gradients[name].tobytes() for name in sorted(gradients))]


def test_clip():
    p, x, h0, dh = drawn(TANH, (5, 6, 2, 10, 5), "f8", 2)
    tape = reference.forward(p, x, h0, TANH)
    want, got = (cell.backward(p, tape, dh, TANH, clip=0.2) for cell in (reference, rnn))
    assert want["clipped"] > 0 and got["clipped"] == want["clipped"]
    np.testing.assert_allclose(got["Whh"], want["Whh"], rtol=0, atol=1e-13)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(
    "name, act", [("rnn", "tanh"), ("rnn", "prelu"), *((name, "tanh") for name in CELLS[1:])]
)
def test_same_bits(name, act, dtype):
    """At every number of threads, over repeats, and from two Python threads at once."""
    cell, act = import_module(f"refnet.compiled.{name}"), ACTIVATIONS[act]
    case = draw_case(np.random.default_rng(3), cell, act, (30, 37, 3, 50, 7), np.dtype(dtype))
    compute = partial(bits, cell, *case, act)
    results = at_every_number_of_threads(compute)
    with ThreadPoolExecutor(2) as pool:
        results += [future.result() for future in [pool.submit(compute) for _ in range(2)]]
    assert all(result == results[0] for result in results)


def test_rows_do_not_depend_on_their_neighbours():
    """A sequence's states have the same bits alone and in any place of a batch."""
    p, x, h0, _ = drawn(TANH, (9, 13, 2, 30, 1))
    whole = rnn.forward(p, x, h0, TANH).h
    for b in range(13):
        alone = rnn.forward(p, x[:, b : b + 1], h0[b : b + 1], TANH).h
        assert np.array_equal(alone[:, 0], whole[:, b])


@pytest.mark.parametrize("change", LAYOUTS.values(), ids=LAYOUTS)
def test_any_layout_gives_the_same_bits(change):
    p, *arrays = drawn(TANH, (4, 6, 3, 10, 2))
    changed = {name: change(value) for name, value in p.items()}
    assert bits(rnn, changed, *map(change, arrays)) == bits(rnn, p, *arrays)
    assert all(len(kernel.signatures) <= 2 for kernel in rnn.WALK.kernels)


@pytest.mark.parametrize("dtype", [np.float16, np.longdouble, np.complex128, object])
def test_other_dtypes_are_refused(dtype):
    p, x, h0, _ = drawn(TANH, (2, 2, 1, 2, 1))
    p = {name: value.astype(dtype) for name, value in p.items()}
    with refused('backend="reference"', TypeError):
        rnn.forward(p, x.astype(dtype), h0.astype(dtype), TANH)


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_not_hidden(name, bad):
    """They come out exactly where the reference has them, forward and backward."""
    act = ACTIVATIONS[name]
    for where in ("x", "h0", "bh"):
        p, x, h0, dh = drawn(act, (3, 5, 2, 6, 1))
        {"x": x[1, 2], "h0": h0[2], "bh": p["bh"]}[where][0] = bad
        with np.errstate(all="ignore"):
            want = reference.forward(p, x, h0, act)
            got = rnn.forward(p, x, h0, act)
            assert np.array_equal(np.isnan(got.h), np.isnan(want.h))
            expected = reference.backward(p, want, dh, act)
            gradients = rnn.backward(p, got, dh, act)
        for key in ("Whh", "Wxh", "bh", "h0"):
            assert np.array_equal(np.isfinite(gradients[key]), np.isfinite(expected[key])), key


@pytest.mark.parametrize("name", CELLS)
def test_subnormal_numbers_count_as_zero(name):
    """Every step halves the gradient, until float32 has no normal numbers left; and they are back
    once the kernel is done."""
    plain, fast = both(name)
    T, B, H, G, act = 140, 3, 8, len(plain.GATES), ACTIVATIONS["tanh"]
    p = {"Whh": np.zeros((G * H, H)), "Wxh": np.zeros((G * H, 1)), **plain.init(H)}
    p = {key: np.zeros_like(value, np.float32) for key, value in p.items()}
    if name == "rnn":
        p["Whh"] = np.eye(H, dtype=np.float32) / 2
    x, dh = np.zeros((T, B, 1), np.float32), np.ones((1, B, H), np.float32)
    tape = plain.forward(p, x, np.zeros(((2,) if name == "lstm" else ()) + (B, H), np.float32), act)
    cotangents = (dh, dh[0]) if name == "lstm" else dh
    want, got = (cell.backward(p, tape, cotangents, act)["h0"] for cell in (plain, fast))
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
