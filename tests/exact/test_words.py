"""Balls in machine words, against those of python-flint at a higher precision."""

import flint
import numpy as np
import pytest

from refnet.exact import balls, digits, words
from refnet.exact.convert import lift

pytestmark = pytest.mark.needs("flint")

BITS = [16, 60, 330, words.LARGEST]
TRUE = 3000
arb = flint.arb


def numbers(count, seed=0, spread=30):
    """Exact ones, zeros, ones that no float holds, and balls with a radius, in that order."""
    rng = np.random.default_rng(seed)
    wanted, count = count, max(count, 20)
    found = lift(rng.normal(size=count) * 2.0 ** rng.integers(-spread, spread // 3, count), "ball")
    quarter = count // 4
    found[:5] = [arb(0), arb(1), arb(-1), arb(2) ** 23, arb(2) ** 24 - 1]
    with balls.precision(TRUE):
        found[quarter:] /= 7
        found[2 * quarter:] = [arb(value.mid(), abs(value).upper() * arb((1, -40)))
                               for value in found[2 * quarter:]]
    return found[:wanted]


def in_words(values, bits):
    return words.words(np.asarray(values, object), words.length(bits))


def end(value, place):
    """The midpoint, or nearly an end: objects have radii of 30 bits, rounded upwards."""
    return value.mid() + value.rad() * place * (1 - arb((1, -25)))


def missed(found, operation, *operands):
    """How many results lack that of the operands' midpoints, or of their ends."""
    out = 0
    with balls.precision(TRUE):
        for index in np.ndindex(found.shape):
            wide = found[index]
            for place in (0, -1, 1):
                true = operation(*(end(one[index], place) for one in operands))
                out += not (wide.contains(true) if true.is_exact() else wide.overlaps(true))
    return out


BINARY = {"add": (np.add, lambda a, b: a + b), "subtract": (np.subtract, lambda a, b: a - b),
          "multiply": (np.multiply, lambda a, b: a * b), "divide": (np.divide, lambda a, b: a / b)}
UNARY = {"negative": (np.negative, lambda a: -a), "exp": (np.exp, lambda a: a.exp()),
         "tanh": (np.tanh, lambda a: a.tanh())}


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("name", BINARY)
def test_contains_results_of_two(name, bits):
    operation, true = BINARY[name]
    a, b = numbers(200), numbers(200, seed=1)[::-1].copy()
    b[b == 0] = arb(3)
    u, v = in_words(a, bits), in_words(b, bits)
    found = operation(u, v)
    assert not missed(found, true, u.astype(object), v.astype(object))
    exact = [not (x.is_exact() and y.is_exact()) or value.rel_accuracy_bits() > bits - 16
             for x, y, value in zip(a, b, found) if not (x.is_zero() or value.is_exact())]
    assert all(exact) and not missed(operation(u, 3), lambda x: true(x, arb(3)), u.astype(object))


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("name", UNARY)
def test_contains_results_of_one(name, bits):
    operation, true = UNARY[name]
    u = in_words(numbers(200, spread=12), bits)
    assert not missed(operation(u), true, u.astype(object))


def test_exponential_over_its_range():
    """Also where the tables' entries change, far from 0, and refused beyond that."""
    steps = np.array([n / 64 + sign * 2.0 ** -30 for n in range(-600, 600) for sign in (-1, 0, 1)])
    x = np.concatenate([steps, [-5e5, 5e5, 1e-200, -1e-9]])
    u = words.words(x, words.length(100))
    found = np.exp(u)
    assert not missed(found, lambda a: a.exp(), u.astype(object))
    assert min(value.rel_accuracy_bits() for value in found if not value.is_exact()) > 90
    assert not np.exp(words.words(np.array([2e6, -2e6]), 5))[0].is_finite()


def test_an_infinite_radius_times_zero_is_unknown():
    with balls.precision(200):
        wide = words.widened(words.words(np.array([3.0]), 9), np.array([5000.0]))
        assert not (wide * words.words(np.array([2.0]), 9)).tolist()[0].is_exact()
        row = np.array([balls.arb(0), balls.arb(balls.arb(1) / 3, balls.arb(.001))], object)
        column = np.array([balls.arb(0, 1) * balls.arb((1, 1030)), balls.arb(1) / 3], object)
        with np.errstate(invalid="ignore"):
            product = words.words(row.reshape(1, 2), 9) @ words.words(column.reshape(2, 1), 9)
        assert product.tolist()[0][0].contains(balls.arb(1) / 9 + balls.arb(.0003))


def test_what_is_exact_stays_so():
    zero = words.words(np.zeros(3), 15)
    assert all(value.is_zero() for value in np.tanh(zero))
    assert [float(value) for value in 1 / (1 + np.exp(-zero))] == [0.5] * 3
    third = words.words(np.ones(3), 15) / 3
    assert all((value.is_zero()) for value in third * zero)
    assert not any(value.is_exact() for value in third)
    assert all(not value.is_finite() for value in third / (third - third))


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("shape", [(3, 5, 4), (2, 300, 3), (600, 2, 2)])
def test_contains_products_and_sums(shape, bits):
    M, K, N = shape
    rng = np.random.default_rng(0)
    a, b = (rng.permutation(numbers(size[0] * size[1])).reshape(size) for size in ((M, K), (K, N)))
    u, v = in_words(a, bits), in_words(b, bits)
    found, added = u @ v, u.sum(axis=0)
    with balls.precision(TRUE):
        for place in (0, -1, 1):
            x, y = (np.asarray(np.frompyfunc(lambda value: end(value, place), 1, 1)(
                w.astype(object)), object) for w in (u, v))
            product, total = x @ y, x.sum(axis=0)
            assert all(one.contains(true) if true.is_exact() else one.overlaps(true)
                       for one, true in zip(found.ravel(), product.ravel()))
            assert all(one.contains(true) if true.is_exact() else one.overlaps(true)
                       for one, true in zip(added, total))


def test_to_objects_and_back():
    """Exactly what the words hold; and they hold what they were made of."""
    values = numbers(200)
    u = in_words(values, 330)
    with balls.precision(TRUE):
        assert all(found.contains(true) for found, true in zip(u, values))
        again = words.words(u.astype(object), words.length(330))
        assert all(one.contains(other) for one, other in zip(again, u))
    assert (words.words(np.array([0.1, -3.0, 0.0]), 5).astype(object) == lift(
        np.array([0.1, -3.0, 0.0]), "ball")).all()


@pytest.mark.parametrize("bits", [60, 330])
def test_decided_as_by_flint(bits):
    rng = np.random.default_rng(0)
    values = numbers(400)
    with balls.precision(400):
        values = np.concatenate([values, lift(rng.normal(size=9) * 2.0 ** -1060, "ball")])
        u = in_words(values, bits)
        found, true = words.decided(u), balls.decided(u.astype(object))
    # a radius is counted in whole units of the last digit
    assert true[1][found[1]].all() and (found[1] == true[1]).mean() > 0.95
    np.testing.assert_array_equal(found[0][found[1]], true[0][found[1]])
    assert (found[2] >= true[2] * (1 - 1e-8)).all()


def test_ties_are_decided_to_even():
    for offset in (0, 1):
        value = arb(2 ** 53 + 2 * offset + 1)
        exact = words.decided(in_words([value, arb(-(2 ** 53 + 2 * offset + 1))], 100))
        assert exact[0].tolist() == [float(2 ** 53 + 2 * offset + 1), -float(
            2 ** 53 + 2 * offset + 1)] and exact[1].all()
        wide = words.decided(in_words([arb(value, arb((1, -60)))], 160))
        assert not wide[1].any()


def test_widened_by_a_power_of_two():
    u = in_words([arb(0), arb(1) / 3, arb(5)], 330)
    wide = words.widened(u, np.array([-20.5, -1000.25, -np.inf]))
    with balls.precision(2000):
        assert wide[0].contains(arb(2) ** -20.5) and not wide[0].contains(arb(2) ** -19)
        assert wide[1].contains(u[1].mid() + arb((1, -1001))) and wide[2].is_exact()


@pytest.mark.parametrize("table", [0, 2, 3])
def test_a_wrong_table_is_found(table, monkeypatch):
    """One unit in the fifteenth digit of the tables, the series or the logarithm."""
    size = words.length(330)
    made = [part.copy() for part in words._tables(size)]
    made[table][:, 4] += 1
    monkeypatch.setattr(words, "_tables", lambda size: made)
    u = in_words(numbers(200, spread=12), 330)
    assert missed(np.exp(u), lambda a: a.exp(), u.astype(object))


def test_meets_objects_as_one_of_them():
    u, a = in_words([arb(1) / 3, arb(2)], 100), np.array([arb(1), arb(3)], object)
    assert (u * a).dtype == (a - u).dtype == object
    assert (a - u)[1] == 1 and (u + a)[1] == 5
    with pytest.raises(TypeError, match="no sin"):
        np.sin(u)


def test_digits_have_room():
    """Sums of products in float64 stay below 2^53 up to the largest size."""
    size = words.length(words.LARGEST)
    assert (size + 4) * 2.0 ** (2 * digits.BITS - 2) * 2 < 2.0 ** 53
    assert words.BLOCK * 2 ** (2 * digits.BITS - 2) <= 2 ** 53
    assert digits.BITS * (size + 3) + 14 < 1000
