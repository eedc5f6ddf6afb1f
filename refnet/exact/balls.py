"""Balls and rationals of python-flint as number types of the nets.

A ball (arb) is a midpoint and a radius that provably contain the true value; every
operation rounds outwards. Importing this module registers the matrix products and the
exponential; lifting to these types (``refnet.exact.convert.lift``) imports it.
Source: Johansson (2017), "Arb".
Checked by: tests/exact/test_balls.py::test_ball_product_contains_rational_product.
"""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from math import floor, inf, log2, nextafter
from typing import Any

import numpy as np

from refnet.batch import Array, Params, Scalar
from refnet.exact.library import flint
from refnet.maths.linalg import EXPM, PI
from refnet.maths.numeric import MATMUL

_flint = flint()
arb, arb_mat, ctx = _flint.arb, _flint.arb_mat, _flint.ctx
Ball = Scalar
Matrix = Any
"""python-flint's numbers and matrices, which have no types for a checker."""
Cache = dict[Hashable, tuple[Array | list[Ball], Matrix]]
_listeners: list[Callable[[int], None]] = []
_centered: list[tuple[Array, list[Array]]] = []
_caches: list[Cache] = []
_full_bits = _sum_bits = 53
"""The precision asked for, and that of sums over many rows."""
TIE = 64
"""A value that is proved to lie halfway between two float64s, within 2^-TIE of their distance,
rounds to the even one: where it lies there exactly, as 1/3 of a sum can, no ball around it is ever
on one side.
"""
GUARD, SAMPLE, LONG = 40, 100, 512
"""Bits beyond those that are known; about how many entries are sampled to learn how many are; the
rows from which on a sum is one over many."""


@contextmanager
def precision(bits: int, sums: int = 0) -> Iterator[None]:
    """Compute with midpoints of ``bits`` in this block, and with ``sums``, if given, in products
    of inexact matrices that sum over many rows; its end restores the former precision.

    Bits that rounding has made meaningless are not computed: after a product whose left factor is
    accurate to fewer bits, operations use that many and GUARD, until the next product. Every
    enclosure still holds, and a recursion, which loses bits at every step, takes less time.
    """
    global _full_bits, _sum_bits
    before = ctx.prec, _full_bits, _sum_bits
    ctx.prec, _full_bits, _sum_bits = bits, bits, min(sums or bits, bits)
    try:
        yield
    finally:
        ctx.prec, _full_bits, _sum_bits = before
        for matrices in _caches:
            matrices.clear()


@contextmanager
def on_product(listener: Callable[[int], None]) -> Iterator[None]:
    """Call ``listener`` with 1 at every matrix product in this block, and with 0 while it waits for
    another process: the clock of a long computation."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


@contextmanager
def centered(weights: Array) -> Iterator[list[Array]]:
    """In this block a product by (a view of) ``weights`` takes the midpoints of its left factor.
    The list gets log2 of a bound of each row's Euclidean distance from them, (N,), by product."""
    distances: list[Array] = []
    _centered.append((weights, distances))
    try:
        yield distances
    finally:
        _centered.pop()


def bits() -> tuple[int, int]:
    """The precision asked for, and that of sums over many rows."""
    return _full_bits, _sum_bits


def waiting() -> None:
    """Have every listener check the time."""
    for listener in _listeners:
        listener(0)


def _array(matrix: Matrix) -> Array:
    out = np.empty(matrix.nrows() * matrix.ncols(), object)
    out[:] = matrix.entries()
    return out.reshape(matrix.nrows(), matrix.ncols())


def _product(matrix: Matrix) -> Callable[[Array, Array], Array]:
    cache: Cache = {}

    def right(b: Array) -> Matrix:
        """b as a matrix; that of the last call again if the entries are the same, such as the
        weights at every time step. Those of an array that is not writeable need no comparison."""
        fixed = isinstance(b.base, np.ndarray) and not b.base.flags.writeable
        key = (id(b.base), b.shape, b.strides, b.ctypes.data) if fixed else b.shape
        if fixed and key in cache:
            return cache[key][1]
        entries = b.ravel().tolist()
        if key not in cache or cache[key][0] != entries:
            cache[key] = b if fixed else entries, matrix(*b.shape, entries)
        return cache[key][1]

    def product(a: Array, b: Array) -> Array:
        for listener in _listeners:
            listener(1)
        entries = a.ravel().tolist()
        if matrix is arb_mat:
            known = _known(entries)
            ctx.prec = min(_full_bits, known + GUARD) if known > 0 else _full_bits
            if _centered and np.may_share_memory(b, _centered[-1][0]):
                _centered[-1][1].append(np.array([_distance(row) for row in a.tolist()]))
                columns = matrix(*a.T.shape, a.T.ravel().tolist()).mid()
                return _array(right(b.T) * columns).T  # quicker than many columns of b
            if (
                a.shape[1] >= LONG
                and len(a) >= b.shape[1]
                and known < _full_bits
                and _known(b[:, :1].ravel().tolist()) < _full_bits
            ):
                return _sums(entries, a.shape, b)
        return _array(matrix(*a.shape, entries) * right(b))

    _caches.append(cache)
    return product


def _known(entries: list[Ball]) -> int:
    """The largest accuracy in bits of a sample of the entries; the full precision if all are
    exact."""
    return max(
        (
            value.rel_accuracy_bits()
            for value in entries[:: len(entries) // SAMPLE + 1]
            if type(value) is arb and not value.is_exact()
        ),
        default=_full_bits,
    )


def _distance(row: list[Ball]) -> float:
    """log2 of a bound of the Euclidean distance of the row from its midpoints."""
    radii = (value.rad() for value in row if type(value) is arb)
    return log2_bound(sum((radius * radius for radius in radii), arb(0))) / 2


def log2_bound(ball: Ball) -> float:
    """log2 of the largest magnitude in a ball, up to the rounding of a float64."""
    if not ball.is_finite():
        return inf
    mantissa, exponent = ball.abs_upper().man_exp()
    return log2(int(mantissa)) + int(exponent) if mantissa else -inf


def _sums(entries: list[Ball], shape: tuple[int, ...], b: Array) -> Array:
    """A product of two inexact matrices that sums over many rows, as the gradient of a weight
    does: it is near the end of a computation and needs fewer bits than a recursion."""
    before, ctx.prec = ctx.prec, min(ctx.prec, _sum_bits)
    try:
        left, right = (
            arb_mat(*size, [+value for value in values])
            for size, values in ((shape, entries), (b.shape, b.ravel().tolist()))
        )
        return _array(left * right)
    finally:
        ctx.prec = before


def _expm(a: Array) -> Array:
    return _array(arb_mat(*a.shape, a.ravel().tolist()).exp())


MATMUL[arb] = _product(arb_mat)
EXPM[arb] = _expm
PI[arb] = arb.pi
MATMUL[_flint.fmpq] = _product(_flint.fmpq_mat)
EXPM[_flint.fmpq] = None


def _ends(value: Ball) -> tuple[float, float, float, float]:
    ball = arb(value)  # an exact zero in an object array is often the int 0
    # the conversion to float64 rounds to nearest; a bound must not shrink
    radius = 0.0 if ball.is_exact() else nextafter(float(ball.rad()), inf)
    return float(ball.lower()), float(ball), float(ball.upper()), radius


_all_ends = np.frompyfunc(_ends, 1, 4)


def each(method: str) -> Callable[[Array], Array]:
    """The method of that name, of every entry; an exact zero may be the int 0."""

    def of_entry(value: Ball) -> Ball:
        return getattr(arb(value), method)()

    return np.frompyfunc(of_entry, 1, 1)


def decided(balls: Array) -> tuple[Array, Array, Array]:
    """The correctly rounded float64 of every ball; whether it is known, bool; and an upper bound,
    float64, on the ball's radius, 0 for an exact one."""
    with np.errstate(invalid="ignore"):  # of a ball that is no number, whose ends are NaN
        low, middle, high, radius = (np.asarray(part, float) for part in _all_ends(balls))
    return (*settled(low, middle, high, radius), radius)


def settled(low: Array, middle: Array, high: Array, radius: Array) -> tuple[Array, Array]:
    """The float64 of balls whose ends and midpoints round to these, and whether it is known.

    Rounding is monotonic, so it is known where both ends round to the same float64; and by TIE,
    which makes it the even one: a ball that holds the middle of two neighbors holds no number
    that is further than twice its radius from it. Elsewhere the value is the midpoint's.

    >>> low, radius = np.array([1.0]), np.array([2.0 ** -120])
    >>> value, known = settled(low, low, np.nextafter(low, 2), radius)
    >>> value.tolist(), known.tolist()
    ([1.0], [True])

    Checked by:
    tests/exact/test_certify.py::test_a_value_between_two_floats_is_rounded_to_the_even_one,
    tests/exact/test_balls.py::test_no_number_of_a_tie_is_further_than_stated_from_the_middle.
    """
    same = low == high
    with np.errstate(under="ignore", over="ignore", invalid="ignore"):
        gap = high - low
        tie = (
            (np.nextafter(low, np.inf) == high)
            & np.isfinite(gap)
            & (radius <= np.ldexp(gap, -TIE - 1))
        )
    even = np.where(low.view(np.int64) % 2 == 0, low, high)
    return np.where(same, low + 0.0, np.where(tie, even, middle)), same | tie


def _symmetric(width: float) -> Ball:
    """The ball of radius 2^width, rounded upwards, around 0."""
    if not -inf < width < inf:
        return arb(0, 0 if width == -inf else inf)
    whole = floor(width)
    return arb(0, arb((int(2.0 ** (width - whole + 30)) + 1, whole - 30)))


def widened(array: Array, width: Array) -> Array:
    """The balls with radii 2^width added; the shapes broadcast."""
    return np.asarray(array + np.frompyfunc(_symmetric, 1, 1)(width), object)


def shortened(arrays: Params) -> Params:
    """The balls with midpoints of as many bits as sums over many rows have."""
    before, ctx.prec = ctx.prec, _sum_bits
    try:
        return {
            name: np.asarray(+value, object) if value.dtype == object else value
            for name, value in arrays.items()
        }
    finally:
        ctx.prec = before
