"""Balls and rationals of python-flint as number types of the nets.

A ball (arb) is a midpoint and a radius that provably contain the true value; every
operation rounds outwards. Importing this module registers the matrix products and the
exponential; lifting to these types (``refnet.exact.convert.lift``) imports it.
Source: Johansson (2017), "Arb".
Checked by: tests/test_balls.py::test_ball_product_contains_rational_product.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil, inf, log2, nextafter
from typing import Any

import numpy as np

from refnet.batch import Array, Params
from refnet.exact.library import flint
from refnet.maths.linalg import EXPM
from refnet.maths.numeric import MATMUL

__all__ = ["around_zero", "centred", "centres", "decided", "on_product", "precision", "shortened",
           "waiting"]

_listeners: list[Callable[[int], None]] = []
_kept: list[dict[Any, Any]] = []
_most = _sum_bits = 53
"""The precision asked for."""
_centred: "Centred | None" = None
GUARD, LOOKED_AT, LONG = 40, 100, 512
"""Bits beyond those that are known; about how many entries tell how many are; the rows of a sum
that counts as one over many."""


@contextmanager
def precision(bits: int, sums: int = 0) -> Iterator[None]:
    """Compute with midpoints of ``bits`` in this block, and with ``sums``, if given, in products
    of inexact matrices that sum over many rows; after it the former precision is back.

    Balls that know less are not given more: from a product whose left factor knows fewer bits,
    operations have as many as that and GUARD, until the next product. No enclosure is less true
    for it, and a recursion, which loses bits at every step, takes less time.
    """
    global _most, _sum_bits
    ctx = flint().ctx
    before = ctx.prec, _most, _sum_bits
    ctx.prec, _most, _sum_bits = bits, bits, min(sums or bits, bits)
    try:
        yield
    finally:
        ctx.prec, _most, _sum_bits = before
        for matrices in _kept:
            matrices.clear()


@contextmanager
def on_product(listener: Callable[[int], None]) -> Iterator[None]:
    """Call ``listener`` with 1 at every matrix product in this block, and with 0 while another
    process is waited for: the clock of a long computation."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


@contextmanager
def centred(weights: Array) -> Iterator[list[Array]]:
    """In this block a product of balls by (a view of) ``weights``, which cannot be written to,
    encloses that of midpoints of its left factor, up to their last bits; the list gets log2 of a
    bound of the Euclidean distance of every row from them, (N,), product by product."""
    global _centred
    before, _centred = _centred, Centred(weights)
    try:
        yield _centred.dropped
    finally:
        _centred = before


class Centred:
    """Products by weights that take midpoints. Where the weights are exact, they and the midpoints
    are whole numbers times a power of two: products of those take a third of the time."""

    def __init__(self, weights: Array) -> None:
        self.weights, self.dropped = weights, list[Array]()
        self.whole: dict[tuple[int, ...], Any] = {}
        entries = [arb(value) for value in weights.ravel().tolist()]
        self.exact = all(map(arb.is_exact, entries))
        self.scale = -min((int(value.man_exp()[1]) for value in entries if value != 0),
                          default=0) if self.exact else 0

    def product(self, left: Any, b: Array, right: Callable[[Array], Any]) -> Array:
        """left b, of an arb_mat and a view of the weights; ``right`` makes an arb_mat of those."""
        middle = left.mid()
        if not self.exact:
            self.drop(left - middle)
            return _array(middle * right(b))
        sizes = self.norms(middle)
        digits = _most - int(min((size for size in sizes if abs(size) < inf), default=0))
        numbers = self.integers(middle, digits)
        self.drop(left - flint().arb_mat(numbers) * arb((1, -digits)))
        if b.shape + b.strides not in self.whole:
            self.whole[b.shape + b.strides] = self.integers(right(b), self.scale)
        found = numbers * self.whole[b.shape + b.strides]
        return _array(flint().arb_mat(found) * arb((1, -digits - self.scale)))

    def drop(self, rest: Any) -> None:
        self.dropped.append(self.norms(rest))

    def norms(self, rows: Any) -> Array:
        """log2 of a bound of the Euclidean norm of every row."""
        ctx = flint().ctx
        ctx.prec = 53
        squares = _array(rows * rows.transpose())
        ctx.prec = _most
        return np.array([_log2_bound(square) / 2 for square in squares.diagonal()])

    def integers(self, middle: Any, digits: int) -> Any:
        """An arb_mat of exact numbers times 2^digits, rounded down, as an fmpz_mat."""
        ctx, power = flint().ctx, arb((1, digits))
        before, ctx.prec = ctx.prec, 2 ** 20
        found = [(value * power).floor().unique_fmpz() for value in middle.entries()]
        ctx.prec = before
        return flint().fmpz_mat(middle.nrows(), middle.ncols(), found)


def waiting() -> None:
    """Let the clocks look at the time."""
    for listener in _listeners:
        listener(0)


def _array(matrix: Any) -> Array:
    out = np.empty(matrix.nrows() * matrix.ncols(), object)
    out[:] = matrix.entries()
    return out.reshape(matrix.nrows(), matrix.ncols())


def _product(matrix: Any) -> Callable[[Array, Array], Array]:
    kept: dict[Any, tuple[Any, Any]] = {}

    def right(b: Array) -> Any:
        """b as a matrix; that of the last call again if it has the same entries, such as the
        weights at every time step: which an array that cannot be written to has for sure."""
        fixed = isinstance(b.base, np.ndarray) and not b.base.flags.writeable
        key = (id(b.base), b.shape, b.strides, b.ctypes.data) if fixed else b.shape
        if fixed and key in kept:
            return kept[key][1]
        entries = b.ravel().tolist()
        if key not in kept or kept[key][0] != entries:
            kept[key] = b if fixed else entries, matrix(*b.shape, entries)
        return kept[key][1]

    def product(a: Array, b: Array) -> Array:
        for listener in _listeners:
            listener(1)
        entries = a.ravel().tolist()
        if _centred is not None and b.base is _centred.weights:
            flint().ctx.prec = _most
            return _centred.product(matrix(*a.shape, entries), b, right)
        if matrix is flint().arb_mat:
            known = _known(entries)
            flint().ctx.prec = min(_most, known + GUARD) if known > 0 else _most
            if (a.shape[1] >= LONG and len(a) >= b.shape[1] and known < _most
                    and _known(b[:, :1].ravel().tolist()) < _most):
                return _sums(entries, a.shape, b)
        return _array(matrix(*a.shape, entries) * right(b))

    _kept.append(kept)
    return product


def _known(entries: list[Any]) -> int:
    """How many bits the best known of some entries has; all that there are of exact ones."""
    return max((value.rel_accuracy_bits() for value in entries[::len(entries) // LOOKED_AT + 1]
                if type(value) is arb and not value.is_exact()), default=_most)


def _sums(entries: list[Any], shape: tuple[int, ...], b: Array) -> Array:
    """A product of two inexact matrices that sums over many rows, as the gradient of a weight
    does: it is near the end of a computation and needs fewer bits than a recursion."""
    ctx = flint().ctx
    before, ctx.prec = ctx.prec, min(ctx.prec, _sum_bits)
    try:
        left, right = (flint().arb_mat(*size, [+value for value in values]) for size, values in (
            (shape, entries), (b.shape, b.ravel().tolist())))
        return _array(left * right)
    finally:
        ctx.prec = before


arb = flint().arb
MATMUL[arb] = _product(flint().arb_mat)
EXPM[arb] = lambda a: _array(flint().arb_mat(*a.shape, a.ravel().tolist()).exp())
MATMUL[flint().fmpq] = _product(flint().fmpq_mat)
EXPM[flint().fmpq] = None


def _log2_bound(ball: Any) -> float:
    """log2 of a bound of the ball's largest absolute value."""
    if not ball.is_finite():
        return inf
    man, exponent = ball.abs_upper().man_exp()
    # 2^-40 is more than the logarithm's rounding
    return log2(int(man)) + int(exponent) + 2.0 ** -40 if man else -inf


_all_floats = np.frompyfunc(float, 1, 1)


def centres(balls: Array) -> tuple[Array, float]:
    """The midpoints, float64, and log2 of a bound of the largest radius."""
    row = flint().arb_mat(1, balls.size, balls.ravel().tolist())
    all_of_them = flint().arb_mat(balls.size, 1, [1] * balls.size)
    wide = ((row - row.mid()) * all_of_them).entries()[0]
    return np.asarray(_all_floats(balls), float), _log2_bound(wide)


def around_zero(widths: Array) -> Array:
    """Balls around 0 with radii from 2^width to twice that."""
    def ball(width: float) -> Any:
        return arb(0, arb((1, ceil(width)))) if width > -inf else arb(0)

    return np.asarray(np.frompyfunc(ball, 1, 1)(widths), object)


def _ends(value: Any) -> tuple[float, float, float, float]:
    ball = arb(value)  # an exact zero in an object array is often the int 0
    # the conversion to float64 rounds to nearest; a bound must not shrink
    radius = 0.0 if ball.is_exact() else nextafter(float(ball.rad()), inf)
    return float(ball.lower()), float(ball), float(ball.upper()), radius


_all_ends = np.frompyfunc(_ends, 1, 4)


def decided(balls: Array) -> tuple[Array, Array, Array]:
    """The correctly rounded float64 of every ball; whether it is known, bool; and an upper bound,
    float64, on the ball's radius, 0 for an exact one.

    Rounding is monotonic, so it is known where both ends round to the same float64. Elsewhere
    the value is the midpoint's.
    """
    low, middle, high, radius = (np.asarray(part, float) for part in _all_ends(balls))
    return np.where(low == high, low + 0.0, middle), low == high, radius


def shortened(arrays: Params) -> Params:
    """The balls with midpoints of as many bits as sums over many rows have."""
    ctx = flint().ctx
    before, ctx.prec = ctx.prec, _sum_bits
    try:
        return {name: np.asarray(+value, object) for name, value in arrays.items()}
    finally:
        ctx.prec = before
