"""Products of many rows with a narrow matrix: exact on whole numbers, the same bits at any number
of threads, and only where they are meant to be used."""

import numpy as np
import pytest

from refnet.compiled.products import LEAST, LONG, NARROW, matmul
from refnet.maths import numeric
from support.compiled import at_every_number_of_threads

LARGE = [
    (5 * LONG + 7, 128, 10),
    (2 * LONG, 100, 21),
    (2 * LONG, 33, NARROW),
    (3 * LONG, 7, 300),
    (9 * LONG + 1, 1, 500),
    (2**18, 17, 1),
]
SHAPES = [*LARGE, *((M, N, K) for N, K, M in LARGE if M <= NARROW)]


def whole_numbers(rng, shape, dtype):
    """So small that every sum of their products is exact in float32."""
    return rng.integers(-8, 9, shape).astype(dtype)


def arranged(array, way):
    """The same numbers, lying in another way in memory."""
    if way == "turned":
        return np.asfortranarray(array)
    if way == "cut":
        wide = np.zeros((array.shape[0], array.shape[1] + 3), array.dtype)
        wide[:, 2:-1] = array
        return wide[:, 2:-1]
    array.setflags(write=way != "fixed")
    return array


@pytest.fixture
def compiled_only(monkeypatch):
    """The product of NumPy refused."""

    def refuse(a, b):
        raise AssertionError(f"{a.shape} @ {b.shape} was not compiled")

    monkeypatch.setattr(numeric, "matmul", refuse)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("shape", SHAPES)
def test_products_are_exact_on_whole_numbers(shape, dtype, compiled_only):
    N, K, M = shape
    rng = np.random.default_rng(sum(shape))
    a, b = whole_numbers(rng, (N, K), dtype), whole_numbers(rng, (K, M), dtype)
    true = a.astype(np.int64) @ b.astype(np.int64)
    for way in ("as it is", "turned", "cut", "fixed"):
        product = matmul(arranged(a, way), arranged(b, way))
        assert product.dtype == a.dtype and np.array_equal(product, true)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_same_bits_with_any_number_of_threads(shape):
    N, K, M = shape
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(sides).astype("f4") for sides in ((N, K), (K, M)))
    results = at_every_number_of_threads(lambda: matmul(a, b))
    assert all(np.array_equal(result, results[0]) for result in results)
    size = np.sqrt((a * a).sum(axis=1))[:, None] * np.sqrt((b * b).sum(axis=0))
    # every product and every sum of K of them is rounded
    assert (abs(results[0] - a.astype("f8") @ b) <= 2 * K * np.finfo("f4").eps * size).all()


def test_others_are_numpys(monkeypatch):
    """Small products, wide ones and other number types."""
    calls = []
    monkeypatch.setattr(numeric, "matmul", lambda a, b: calls.append(a) or a @ b)
    side = round(LEAST**0.5)
    wide = np.ones((2 * LONG, NARROW + 1), "f4")
    for a, b in (
        (np.ones((2 * LONG, 4), "f4"), np.ones((4, 4), "f4")),
        (wide, np.ones((NARROW + 1, NARROW + 1), "f4")),
        (wide.T, wide),
        (np.ones((side, 1)), np.ones((1, side), "f4")),
        *((wide[:, :40].astype(kind), np.ones((40, 60), kind)) for kind in (">f4", "g", "F", "i4")),
    ):
        assert np.array_equal(matmul(a, b), a @ b) and len(calls) == 1
        calls.clear()


def test_not_finite_stays_where_it_belongs():
    """The columns that a product is padded with let nothing into its rows."""
    a, b = np.ones((3 * LONG, 150), "f4"), np.ones((150, 10), "f4")
    a[LONG + 5, 3] = np.nan
    a[7, 149] = np.inf
    product = matmul(a, b)
    assert np.isnan(product[LONG + 5]).all() and (product[7] == np.inf).all()
    assert np.isfinite(np.delete(product, [7, LONG + 5], axis=0)).all()
    assert np.isnan(matmul(product.T, a)).all()
    product[LONG + 5] = 0
    assert (matmul(product.T, np.ones((3 * LONG, 200), "f4")) == np.inf).all()
