"""The compiled core's smallest parts: the elementary functions in ulps of the true value, and the
register tile against a product of integers."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from refnet.compiled import _jit, elementary, tiles, vector


@_jit.jit
def _map(which, x, out):
    for i in range(len(x)):
        if which == 0:
            out[i] = elementary.tanh(x[i])
        elif which == 1:
            out[i] = elementary.sigmoid(x[i])
        elif which == 2:
            out[i] = elementary.exp(x[i])
        else:
            out[i] = elementary.expm1(x[i])


EXACT = (np.tanh, lambda v: np.where(v < 0, np.exp(v), 1) / (1 + np.exp(-abs(v))), np.exp, np.expm1)
ULPS = (2.6, 2.6, 1.2, 1.2)  # measured over all float32: see test_ulps_of_all_floats


def worst(which, x):
    """The largest error over x in units of the last place of the result."""
    out = np.empty_like(x)
    _map(which, x, out)
    with np.errstate(all="ignore"):
        true = EXACT[which](x.astype(np.float64 if x.dtype == np.float32 else np.longdouble))
        unit = np.spacing(abs(true).astype(x.dtype)).astype(true.dtype)
        error = abs(out - true) / unit
    assert np.array_equal(np.isnan(out), np.isnan(x))
    return np.nanmax(error, initial=0)


def float32_range(start, stop):
    x = np.arange(start, stop, dtype=np.uint32).view(np.float32)
    return x


@pytest.mark.parametrize("which", range(4))
def test_ulps(which):
    rng = np.random.default_rng(8)
    x = rng.integers(0, 2**32, 300_000, dtype=np.uint32).view(np.float32)
    near = rng.standard_normal(300_000) * 4
    x = np.concatenate([x, near.astype(np.float32), np.array([0, np.inf, np.nan], np.float32)])
    x, wide = (x, near) if which < 2 else (-abs(x), -abs(near))
    assert worst(which, x) <= ULPS[which]
    assert worst(which, wide) <= ULPS[which]


@pytest.mark.slow
@pytest.mark.parametrize("which", range(4))
def test_ulps_of_all_floats(which):
    largest = 0.0
    for start in range(0 if which < 2 else 2**31, 2**32, 2**24):
        largest = max(largest, worst(which, float32_range(start, start + 2**24)))
    print(f"{['tanh', 'sigmoid', 'exp', 'expm1'][which]}: {largest:.3f} ulp over all float32")
    assert largest <= ULPS[which]


@_jit.jit
def _rearranged(x, out):
    vector.copy_rows(out, 1, 3, vector.cut(x, 2, 8), 2, 4, 2, 2)
    vector.clear(out, 6, 1)
    vector.fetch(out, 6, 100)  # past the end, too


def test_parts_of_arrays():
    """Against slices: the compiled intrinsics, or their twins with the JIT off."""
    out = np.arange(100.0, 108)
    _rearranged(np.arange(12.0).reshape(3, 4), out)
    assert np.array_equal(out, [100, 4, 5, 103, 8, 9, 0, 107])


@_jit.jit
def _copied(out, step, source, stride, rows, count):
    vector.copy_rows(out, 0, step, source, 0, stride, rows, count)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_rows_of_any_length_are_copied(dtype):
    """And nothing beside them: shorter than a vector, and whole vectors with every rest."""
    source = np.arange(400, dtype=dtype)
    for count in range(3 * vector.lanes(source.dtype) + 2):
        out, want = np.full((3, count + 5), -1, dtype), np.full((3, count + 5), -1, dtype)
        want[:, :count] = source[: 3 * (count + 2)].reshape(3, count + 2)[:, :count]
        _copied(out.reshape(-1), count + 5, source, count + 2, 3, count)
        assert np.array_equal(out, want)


@_jit.jit
def _dots(c, a, w, depth, rows, columns, lane):
    tiles.dots(c, a, w, depth, rows, columns, lane)


@given(
    st.integers(1, 40),
    st.integers(0, 9),
    st.integers(1, 11),
    st.sampled_from(["f4", "f8"]),
    st.integers(0, 99),
)
@settings(max_examples=60)
def test_dots_are_a_product(depth, rows, columns, dtype, seed):
    """Integers small enough to be exact; NaN on every side, none of which is read."""
    rng = np.random.default_rng(seed)
    a, w = (rng.integers(-9, 10, (count, depth)).astype(dtype) for count in (rows, columns))
    padded = np.full((rows + 1, depth + 9), np.nan, dtype)
    padded[:rows, :depth] = a
    around = np.full(w.size + 40, np.nan, dtype)
    around[20:-20] = w.ravel()
    out = np.full((rows + 1, columns + 3), -1, dtype)
    _dots(
        tiles.Rows(out.reshape(-1), columns + 3),
        tiles.Rows(padded.reshape(-1), depth + 9),
        tiles.Rows(around[20:-20], depth),
        depth,
        rows,
        columns,
        vector.lanes(w.dtype),
    )
    assert np.array_equal(out[:rows, :columns], a @ w.T) and np.all(out[rows] == -1)
