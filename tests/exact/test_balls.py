"""Rationals and balls as numbers: lifted exactly, rounded correctly, and containing the truth."""

from fractions import Fraction
from math import log2

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from refnet.exact import balls, lift
from refnet.exact.convert import lift_all, rounded
from support.arguments import refused
from support.balls import contains, exactly, flint

pytestmark = pytest.mark.needs("flint")


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=5),
    st.sampled_from(["fraction", "rational"]),
)
def test_lift_and_round_are_inverse(values, kind):
    array = np.array(values, float)
    assert (rounded(lift(array, kind)) == array).all()
    nearest, known, _ = balls.decided(lift(array, "ball"))
    assert known.all() and (nearest == array).all()


@given(st.fractions(max_denominator=10**6))
def test_rounding_is_that_of_fractions(number):
    third = np.array([number / 3], object)
    with balls.precision(200):
        nearest, known, _ = balls.decided(lift(third, "ball"))
    assert known.all() and nearest[0] == float(number / 3) == rounded(third)[0]


def test_rounding_beyond_the_range():
    huge = np.array([Fraction(10) ** 400, -(Fraction(10) ** 400), Fraction(1, 10**400)], object)
    assert rounded(huge).tolist() == [np.inf, -np.inf, 0]


def test_lift_takes_every_float_exactly():
    for dtype in (np.float16, np.float32, np.float64, np.longdouble):
        tenth = np.array([dtype(1) / dtype(10)])
        assert lift(tenth, "fraction")[0] == Fraction(*tenth[0].as_integer_ratio())
        assert contains(lift(tenth, "ball")[0], lift(tenth, "fraction")[0])
        assert lift(tenth, "ball")[0].is_exact()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("kind", ["fraction", "rational", "ball"])
def test_lift_names_what_is_not_finite(bad, kind):
    with refused(r"Whh: entry \(0, 1\) is (nan|inf)"):
        lift_all({"Whh": np.array([[1, bad]])}, kind)


def test_ball_that_is_not_decided_is_not_called_known():
    with balls.precision(20):
        _, known, _ = balls.decided(np.array([flint.arb(1) / 3, flint.arb(1) / 4, 0], object))
    assert known.tolist() == [False, True, True]


@pytest.mark.parametrize("low", [1.0, np.nextafter(1, 2), -1.5, 1e-270, 1e308])
@pytest.mark.parametrize("size, known", [(0.49, True), (0.51, False), (0.99, False)])
def test_no_number_of_a_tie_is_further_than_stated_from_the_middle(low, size, known):
    """By TIE a ball counts as one of the middle only if all of its numbers are that near."""
    low, high = np.float64(low), np.nextafter(low, np.inf)
    gap = Fraction(high) - Fraction(low)
    radius = gap * Fraction(size) / 2**balls.TIE
    even = low if low.view(np.int64) % 2 == 0 else high
    with balls.precision(2000):
        exact = [
            flint.arb(flint.fmpq(number.numerator, number.denominator))
            for number in (Fraction(low) + gap / 2, radius)
        ]
        for side in (-0.9, 0, 0.9):
            ball = flint.arb(exact[0] + side * exact[1], exact[1])
            nearest, computed, _ = balls.decided(np.array([ball], object))
            assert computed[0] == known and (nearest[0] == even or not known)


@pytest.mark.parametrize("sign", [-1, 1])
def test_the_end_of_the_range_is_not_between_two_numbers(sign):
    largest = flint.arb(sign * np.finfo(float).max)
    with balls.precision(2000):
        ball = flint.arb(largest + sign * flint.arb(1e300), 1e300)
        assert ball.contains(largest)
        assert not balls.decided(np.array([ball], object))[1].any()


@pytest.mark.parametrize("exponent", [-1200.5, -20.0, 0.75, 2000.25])
def test_a_radius_grows_by_the_power_of_two(exponent):
    """Against a power of two at 200 bits: no less, nor much more."""
    with balls.precision(200):
        values = np.array([flint.arb(0), flint.arb(1) / 3, 5], object)
        wide = balls.widened(values, np.array(exponent))
        power = flint.arb(2) ** exponent
        for ball, value in zip(wide, map(flint.arb, values)):
            least = power + value.rad()
            assert least <= ball.rad() <= 1.0001 * least + flint.arb((1, -198))
        assert balls.widened(values, np.array([-np.inf] * 3))[0].is_exact()
        assert not any(ball.is_finite() for ball in balls.widened(values, np.array(np.inf)))


@given(st.integers(-(2**70), 2**70), st.integers(-5000, 5000), st.integers(0, 2**20))
def test_the_largest_magnitude_in_a_ball(mantissa, exponent, radius):
    ball = flint.arb(flint.arb((mantissa, exponent)), flint.arb((radius, exponent)))
    largest = abs(mantissa) + int(exactly(ball.rad()) / Fraction(2) ** exponent)
    computed = balls.log2_bound(ball)
    if largest:
        assert abs(computed - (log2(largest) + exponent)) < 1e-6
    else:
        assert computed == -np.inf
    assert balls.log2_bound(flint.arb(1, np.inf)) == np.inf


def test_ball_product_contains_rational_product():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(3, 4)), rng.normal(size=(4, 2))
    true = lift(a, "rational") @ lift(b, "rational")
    with balls.precision(30):
        product = balls.MATMUL[flint.arb](lift(a, "ball"), lift(b, "ball"))
    assert all(contains(x, y) for x, y in zip(product.flat, lift(true, "fraction").flat))
    assert (balls.MATMUL[flint.fmpq](lift(a, "rational"), lift(b, "rational")) == true).all()


def test_a_ball_that_is_no_number_is_undecided_without_a_warning(monkeypatch):
    """Also where its conversion sets the processor's flag for invalid operations, as on ARM."""
    no_number = np.array([balls.arb("nan"), balls.arb(1)])
    value, known, radius = balls.decided(no_number)
    assert np.isnan(value[0]) and known.tolist() == [False, True] and radius.tolist() == [np.inf, 0]

    def flagged(ball):
        return (np.float64(np.inf) - np.inf,) * 3 + (np.inf,)

    monkeypatch.setattr(balls, "_all_ends", np.frompyfunc(flagged, 1, 4))
    assert not balls.decided(no_number)[1].any()
