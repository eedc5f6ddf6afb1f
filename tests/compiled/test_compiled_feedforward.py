"""The compiled feedforward net against the reference, and what it promises besides: the same bits
with any number of threads, NaN never hidden, any layout of the inputs, no dtype but its own."""

from dataclasses import replace
from functools import partial

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from refnet.batch import Batch
from refnet.compiled import feedforward, vector
from refnet.maths.activations import ACTIVATIONS
from refnet.matrices.transitions import TRANSITIONS
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.gradients import loss_and_gradients
from refnet.training.config import Config
from refnet.training.experiment import build
from support.arguments import refused
from support.compiled import LAYOUTS, at_every_number_of_threads
from support.drawn import drawn
from support.marks import both_dtypes
from support.realdata import real_data
from support.subprocesses import run_on_fractions


def both(widths, act, B, dtype, seed=0):
    """The net on both backends, parameters with every entry drawn, x and a cotangent."""
    net = FeedforwardNet(widths, activation=act, backend="reference")
    params, batch = drawn(net, B=B, dtype=dtype, seed=seed)
    doutputs = np.random.default_rng(seed).standard_normal((B, widths[-1])).astype(dtype)
    return net, replace(net, backend="compiled"), params, batch.x, doutputs


def compare(net, fast, params, x, doutputs, inputs=True):
    """Outputs and gradients agree to some roundings of a sum for each layer and in each of a sum's
    terms, of the largest entry."""
    dtype = x.dtype
    tolerance = 16 * (len(net.widths) + 2) * np.finfo(dtype).eps
    want, tape = net.forward(params, x)
    got, fast_tape = fast.forward(params, x)
    assert got.shape == want.shape and got.dtype == dtype
    assert np.all(abs(got - want) <= tolerance * abs(want).max(initial=1))
    assert fast_tape.rows.shape == tape.rows.shape
    assert np.all(abs(fast_tape.rows - tape.rows) <= tolerance * abs(tape.rows).max(initial=1))
    expected = net.backward(params, tape, doutputs, inputs)
    gradients = fast.backward(params, fast_tape, doutputs, inputs)
    assert set(gradients) == set(expected)
    for name, value in expected.items():
        assert gradients[name].shape == value.shape and gradients[name].dtype == dtype, name
        scale = abs(value).max(initial=np.finfo(dtype).tiny)
        assert np.all(abs(gradients[name] - value) <= tolerance * scale), name


@both_dtypes
@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_matches_the_reference(name, dtype):
    """Odd sizes, narrower than a vector and wider than a panel; a batch of none, of one example,
    of fewer than a block, of several with one cut short, and of more than a chunk."""
    for widths in ((3, 2, 2), (11, 20, 20, 34, 5), (70, 102, 8, 1), (5, 1)):
        for B in (0, 1, 2, 8, 37, 200):
            compare(*both(widths, name, B, dtype, B), inputs=B % 2 == 0)


@given(
    st.lists(st.integers(1, 60), min_size=2, max_size=5),
    st.integers(1, 40),
    st.sampled_from(["tanh", "relu", "softsign"]),
)
def test_any_sizes(widths, B, name):
    compare(*both(tuple(widths), name, B, np.float64))


@pytest.mark.parametrize("name, factor", [("W2", -1), ("b1", 1.001), ("W1", 1.001), ("x", -1)])
@pytest.mark.parametrize("B", [1, 19])
def test_a_planted_bug_is_rejected(name, factor, B, monkeypatch):
    right = feedforward.backward

    def wrong(*arguments, **options):
        gradients = right(*arguments, **options)
        return {**gradients, name: gradients[name] * np.float32(factor)}

    monkeypatch.setattr(feedforward, "backward", wrong)
    with pytest.raises(AssertionError):
        compare(*both((3, 6, 6, 2), "tanh", B, np.float32))


def bits(net, params, x, doutputs):
    outputs, tape = net.forward(params, x)
    gradients = net.backward(params, tape, doutputs)
    return [outputs.tobytes(), *(gradients[name].tobytes() for name in sorted(gradients))]


@both_dtypes
@pytest.mark.parametrize("name", ["tanh", "prelu", "oplu"])
def test_same_bits(name, dtype, monkeypatch):
    """Nothing is too small here for several threads."""
    monkeypatch.setattr(feedforward, "ALONE", 1)
    feedforward.sizes.cache_clear()
    try:
        for B in (1, 37, 200):
            _, *case = both((300, 300, 300, 300, 7), name, B, dtype)
            results = [*at_every_number_of_threads(partial(bits, *case)), bits(*case)]
            assert all(result == results[0] for result in results)
    finally:
        feedforward.sizes.cache_clear()


@pytest.mark.parametrize("change", LAYOUTS.values(), ids=LAYOUTS)
def test_any_layout_gives_the_same_bits(change):
    _, fast, params, *arrays = both((3, 10, 10, 2), "tanh", 6, np.float32)
    changed = {name: change(value) for name, value in params.items()}
    assert bits(fast, changed, *map(change, arrays)) == bits(fast, params, *arrays)


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_not_hidden(name, bad):
    """They come out exactly where the reference has them, forward and backward."""
    for B in (1, 5):
        for where in ("x", "b2"):
            net, fast, params, x, doutputs = both((3, 6, 6, 2), name, B, np.float32)
            (x[0] if where == "x" else params[where])[0] = bad
            with np.errstate(all="ignore"):
                want, tape = net.forward(params, x)
                got, fast_tape = fast.forward(params, x)
                assert np.array_equal(np.isnan(got), np.isnan(want))
                expected = net.backward(params, tape, doutputs)
                gradients = fast.backward(params, fast_tape, doutputs)
            for key, value in expected.items():
                assert np.array_equal(np.isfinite(gradients[key]), np.isfinite(value)), key


@pytest.mark.parametrize("B", [1, 3])
def test_subnormal_numbers_count_as_zero(B):
    """Every layer halves the gradient, until float32 has no normal numbers left."""
    net = FeedforwardNet((8,) * 141, activation="identity", backend="reference")
    params = {
        name: (np.eye(8) / 2 if name[0] == "W" else np.zeros(8)).astype(np.float32)
        for name in net.shapes
    }
    x, doutputs = np.zeros((B, 8), np.float32), np.ones((B, 8), np.float32)
    want, got = (
        each.backward(params, each.forward(params, x)[1], doutputs)["x"]
        for each in (net, replace(net, backend="compiled"))
    )
    assert np.all(want > 0) and np.all(want < np.finfo(np.float32).tiny)
    assert np.array_equal(got, 0 * want if vector.FLUSH else want)


@pytest.mark.parametrize("dtype", [np.longdouble, np.complex128])
def test_other_dtypes_are_refused(dtype):
    _, fast, params, x, _ = both((3, 4, 2), "tanh", 2, np.float64)
    with refused('backend="reference"', TypeError):
        fast.forward({name: value.astype(dtype) for name, value in params.items()}, x.astype(dtype))


def test_settings(monkeypatch):
    with refused("backend 'gpu' is unknown"):
        FeedforwardNet((2, 2), backend="gpu")
    monkeypatch.setenv("REFNET_DATA", str(real_data("mnist")))
    net = build(Config("mnist", net="feedforward", depth=2, hidden=4)).net
    assert net.backend_for(np.float32) == "compiled"


@pytest.mark.parametrize("name", sorted(TRANSITIONS))
def test_every_transition(name):
    """The matrices are made, the layers compiled, the gradients pulled back."""
    net = FeedforwardNet((6, 6, 6, 3), transition=name, backend="reference")
    rng = np.random.default_rng(0)
    params = net.init(rng, np.float64, recurrent="orthogonal")
    batch = Batch(rng.standard_normal((9, 6)), rng.integers(0, 3, 9))
    want, got = (
        loss_and_gradients(replace(net, backend=backend), params, batch)
        for backend in ("reference", "compiled")
    )
    assert abs(got.loss - want.loss) <= 1e-13 and set(got.gradients) == set(want.gradients)
    for key, value in want.gradients.items():
        np.testing.assert_allclose(
            got.gradients[key], value, rtol=0, atol=1e-12 * max(1, abs(value).max())
        )


EXACT_RUN = """
from dataclasses import replace
from functools import partial
from refnet.compiled import feedforward
from refnet.nets.feedforward import FeedforwardNet
for name, act in ACTIVATIONS.items():
    if not act.rational: continue
    for widths, B in (((6, 10, 22, 2), 3), ((2, 4, 4, 4, 1), 11), ((6, 2, 2), 2), ((6, 2, 2), 1),
                      ((2, 2), 0)):
        net = FeedforwardNet(widths, activation=act, backend="reference")
        params = {n: draw(*shapes[-1]) for n, shapes in net.shapes.items()}
        x, d = draw(B, widths[0]), draw(B, widths[-1])
        a, ta = net.forward(params, x)
        want = net.backward(params, ta, d)
        for feedforward.CHUNK, feedforward.ACROSS in ((96, 8), (2, 1)):
            feedforward.sizes.cache_clear()
            fast = replace(net, backend="compiled")
            b, tb = fast.forward(params, x)
            assert a.shape == b.shape and (a == b).all(), (name, B)
            got = fast.backward(params, tb, d)
            assert set(want) == set(got)
            for k in want:
                assert want[k].shape == got[k].shape and np.all(want[k] == got[k]), (name, B, k)
                count += 1
"""


def test_source_is_exact_on_fractions():
    """The kernels' Python source, the JIT off, equals the reference with ==, and never asks for
    numbers outside an array."""
    assert run_on_fractions(EXACT_RUN) > 100
