"""Arrays of balls in machine words, on which the cells run as they do on floats.

A ``Words`` array holds balls as records of digits and a radius (``refnet.exact.digits``): a few
dozen nanoseconds an operation where an array of Python's objects takes ten times that, and what a
forked process sends back are its bytes. It meets arrays of ``arb`` as one of them: its entries are
then made ``arb``, without rounding.

Checked by: tests/exact/test_words.py.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from math import prod
from typing import Any

import numpy as np

from refnet.batch import Array
from refnet.exact import balls, digit_products, digits
from refnet.exact.digits import BITS, STEPS

__all__ = ["LARGEST", "Words", "centred", "centres", "decided", "from_bytes", "length", "widened",
           "words"]

kernels: Any = digits
products: Any = digit_products
"""The modules, for calls with several starred lists, which a type checker cannot count."""
LARGEST = 840
"""The most bits that records can have: radii, in units of the last digit, are float64."""
BLOCK = 128
"""Products of as many digits of 24 bits add up to at most 2^53, and are exact in float64."""
LANES = 32
"""Numbers side by side in products, quotients and exponentials."""
TILE = 512
"""Rows of a product at a time."""


def length(bits: int) -> int:
    """How many digits, an odd number, hold midpoints of that many bits; of the first digit, which
    has from 1 to 24 bits, 16 count."""
    return max(-(-(bits + 8) // BITS), 3) | 1


@cache
def _dtype(size: int) -> np.dtype[Any]:
    return np.dtype([("digits", np.int32, size), ("unit", np.int32), ("radius", float)])


def _size(dtype: np.dtype[Any]) -> int:
    return dtype.itemsize // 4 - 3


def _views(array: Array) -> list[Any]:
    """The words of a contiguous array, (N, L + 3) of int32, and the same memory as float64."""
    flat = np.asarray(array).reshape(-1)
    return [flat.view(np.int32).reshape(len(flat), -1), flat.view(float).reshape(len(flat), -1)]


def _flat(array: Any) -> list[Any]:
    return _views(np.ascontiguousarray(array))


def _room(size: int, count: int = 1) -> list[Any]:
    return [np.empty(4 * size + 64, np.int64) for _ in range(count)]


def _columns(*rows: int) -> list[Any]:
    return [np.empty((number, LANES)) for number in rows]


class Words(np.ndarray[Any, Any]):
    """Balls as records. Indexing, reshaping, joining and the like are NumPy's own; arithmetic is
    here. An entry, and an iteration over entries, gives ``arb``."""

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None,
                        **options: Any) -> Any:
        if any(getattr(value, "dtype", None) == object for value in inputs) or any(
                isinstance(value, balls.arb) for value in inputs):
            inputs = tuple(value.astype(object) if isinstance(value, Words) else value
                           for value in inputs)
            return getattr(ufunc, method)(*inputs, **options)
        if method != "__call__" or ufunc not in _OPERATIONS:
            raise TypeError(f"balls in words have no {ufunc.__name__}.{method}")
        result = _OPERATIONS[ufunc](*inputs)
        if out is None:
            return result
        out[0][...] = result
        return out[0]

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func is np.result_type:
            return self.dtype
        if func is np.where:
            args = (args[0], *self._alike(args[1:]))
        if func in (np.concatenate, np.stack):
            args = (self._alike(args[0]), *args[1:])
        result = super().__array_function__(func, types, args, kwargs)
        return result.view(Words) if getattr(result, "dtype", None) == self.dtype else result

    def _alike(self, parts: Any) -> list[Array]:
        """All of them as words, or all as objects if one has objects."""
        parts = [np.asanyarray(part) for part in parts]
        if any(part.dtype == object for part in parts):
            return [part.astype(object) for part in parts]
        return [np.asarray(words(part, _size(self.dtype))) for part in parts]

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        return found if isinstance(found, np.ndarray) else _arbs(np.asarray(found))[0]

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, np.asarray(words(value, _size(self.dtype))))

    def astype(self, dtype: Any, *args: Any, **options: Any) -> Any:
        """As ``arb`` objects, exactly as they are; or a copy."""
        if dtype != object:
            return super().astype(dtype, *args, **options)
        out = np.empty(self.size, object)
        out[:] = _arbs(self)
        return out.reshape(self.shape)

    def tolist(self) -> Any:
        """A list, or lists of lists, of ``arb``."""
        return self.astype(object).tolist()

    def sum(self, axis: Any = None, **options: Any) -> Any:  # type: ignore[override]
        """The sum over ``axis``, from the first entry on."""
        axes = tuple(range(self.ndim)) if axis is None else tuple(np.atleast_1d(axis) % self.ndim)
        rest = [n for n in range(self.ndim) if n not in axes]
        turned = np.asarray(self).transpose(*axes, *rest)
        out = np.zeros([self.shape[n] for n in rest], self.dtype)
        kernels.total(*_flat(turned), *_views(out), *_room(_size(self.dtype)))
        return out.view(Words)


# ---- to and from other numbers

def words(value: Any, size: int) -> Words:
    """Numbers as balls of ``size`` digits: records of that size, ``arb``, integers or floats;
    longer midpoints are shortened to these, within the radius."""
    if isinstance(value, Words) or getattr(value, "dtype", np.dtype(float)).kind == "V":
        return np.asarray(value).view(Words)
    if type(value) is int:
        return _constant(value, size)
    values = np.asarray(value)
    if values.dtype != object:
        mantissa, exponent = np.frexp(values.astype(float))
        whole = (mantissa * 2.0 ** 53).astype(np.int64)
        parts = np.stack([whole & digits.MASK, whole >> BITS & digits.MASK, whole >> 2 * BITS],
                         axis=-1)
        return _from_digits(parts, exponent.astype(np.int64) - 53, np.zeros(values.shape), size)
    return _from_arbs(values, size)


@lru_cache(64)
def _constant(value: int, size: int) -> Words:
    made = words(np.asarray(float(value)), size)
    made.flags.writeable = False
    return made


def _from_digits(parts: Array, exponent: Array, radius: Array, size: int) -> Words:
    """From digits (..., n) in units of 2^exponent, as the radii are."""
    units, shift = np.divmod(exponent, BITS)
    out = np.zeros(exponent.shape, _dtype(size))
    products.set_digits((parts << shift[..., None]).reshape(-1, parts.shape[-1]), units.reshape(-1),
                        np.ldexp(radius, shift).reshape(-1), *_views(out),
                        np.empty(parts.shape[-1] + size + 64, np.int64))
    return out.view(Words)


def _from_arbs(values: Array, size: int) -> Words:
    count, longest = values.size, 1
    exponents, radius = np.zeros(count, np.int64), np.zeros(count)
    signs, wholes = np.ones(count, np.int64), []
    for n, value in enumerate(map(balls.arb, values.ravel().tolist())):
        if not value.is_finite():
            raise ArithmeticError("a number has no finite enclosure")
        man, exponent = value.mid().man_exp()
        whole, exponents[n] = abs(int(man)), int(exponent)
        signs[n] = -1 if man < 0 else 1
        if not value.is_exact():
            wide, scale = value.rad().man_exp()
            shift = int(scale) - int(exponent) if whole else 0
            if shift > 0:  # digits far below the radius
                whole >>= shift
            exponents[n] = max(int(scale), int(exponent)) if whole else int(scale)
            radius[n] = np.ldexp(float(int(wide)), int(scale) - int(exponents[n])) + (shift > 0)
            radius[n] = np.nextafter(radius[n], np.inf)
        longest = max(longest, whole.bit_length())
        wholes.append(whole)
    width = -(-longest // BITS)
    data = b"".join(whole.to_bytes(3 * width, "little") for whole in wholes)
    octets = np.frombuffer(data, np.uint8).reshape(count, width, 3).astype(np.int64)
    parts = octets @ np.array([1, 2 ** 8, 2 ** 16])
    return _from_digits((parts * signs[:, None]).reshape(*values.shape, width),
                        exponents.reshape(values.shape), radius.reshape(values.shape), size)


def _arbs(array: Any) -> list[Any]:
    """The entries as ``arb``."""
    arb, size = balls.arb, _size(array.dtype)
    flat = np.asarray(array).reshape(-1)
    found = flat["digits"].astype(np.int64)
    sign = np.ones(len(flat), np.int64)
    for k in range(size):  # that of the first digit
        sign = np.where(found[:, k] != 0, np.sign(found[:, k]), sign)
    found *= sign[:, None]
    for k in range(size - 1):
        carry = found[:, k] >> BITS
        found[:, k] -= carry << BITS
        found[:, k + 1] += carry
    octets = found.astype("<i4").view(np.uint8).reshape(-1, size, 4)[:, :, :3].tobytes()
    fraction, exponent = np.frexp(flat["radius"])
    wide = np.ldexp(fraction, 53)
    out = []
    for n, (positive, unit, r, power) in enumerate(zip(
            sign.tolist(), (BITS * flat["unit"].astype(np.int64)).tolist(), wide.tolist(),
            exponent.tolist())):
        whole = int.from_bytes(octets[3 * size * n:3 * size * (n + 1)], "little") * positive
        ball = arb((whole, unit))
        if r:
            ball = arb(ball, arb((int(r), power - 53 + unit)) if r < np.inf else arb("inf"))
        out.append(ball)
    return out


def from_bytes(data: bytes, start: int, shape: tuple[int, ...], itemsize: int) -> Words:
    """The records of that many bytes each that lie in ``data`` from ``start`` on."""
    size = itemsize // 4 - 3
    found = np.frombuffer(data, _dtype(size), prod(shape), start).reshape(shape)
    return found.copy().view(Words)


def centres(array: Array) -> tuple[Array, float]:
    """The balls' centres, rounded to float64, and log2 of the largest radius."""
    flat = _flat(array)
    middle, wide = np.empty(array.size), np.empty(array.size)
    products.middle(*flat, middle, wide)
    return middle.reshape(array.shape), float(wide.max(initial=-np.inf))


def widened(array: Array, width: Array) -> Words:
    """The balls with radii 2^width added; both of shapes that broadcast."""
    out = np.array(np.broadcast_to(array, np.broadcast_shapes(array.shape, width.shape)))
    every, radii = _views(out)
    widths = np.ascontiguousarray(np.broadcast_to(width, out.shape))
    products.widen(radii, every, widths.reshape(-1))
    return out.view(Words)


def decided(array: Array) -> tuple[Array, Array, Array]:
    """As ``balls.decided``."""
    flat = _flat(array)
    ends, middle, wide = np.empty((2, array.size)), np.empty(array.size), np.empty(array.size)
    products.nearest(*flat, ends, *_room(_size(array.dtype)))
    products.middle(*flat, middle, wide)
    low, high = ends
    radius = np.asarray(array)["radius"].reshape(-1)
    units = np.asarray(array)["unit"].reshape(-1).astype(np.int64)
    with np.errstate(over="ignore", under="ignore"):
        radius = np.where(radius == 0, 0, np.nextafter(np.ldexp(radius, BITS * units), np.inf))
    nearest, known = balls.settled(low, middle, high, radius)
    # float64 has fewer bits there
    odd = np.flatnonzero((nearest != 0) & (abs(nearest) < 2.0 ** -1000) | ~np.isfinite(nearest))
    if len(odd):
        rest = np.empty(len(odd), object)
        rest[:] = _arbs(np.asarray(array).reshape(-1)[odd])
        nearest[odd], known[odd], radius[odd] = balls.decided(rest)
    return (nearest.reshape(array.shape), known.reshape(array.shape), radius.reshape(array.shape))


# ---- arithmetic

def _operands(a: Any, b: Any) -> tuple[int, tuple[int, ...], list[Any]]:
    """Digits, the shape of the result, and words, radii and step of both."""
    size = next(_size(value.dtype) for value in (a, b) if isinstance(value, Words))
    both = [np.asarray(words(value, size)) for value in (a, b)]
    alike = both[0].shape == both[1].shape
    shape = both[0].shape if alike else np.broadcast_shapes(both[0].shape, both[1].shape)
    found: list[Any] = []
    for value in both:
        single = value.size == 1
        found += [*_flat(value if alike or single else np.broadcast_to(value, shape)),
                  int(not single)]
    return size, shape, found


def _made(size: int, shape: tuple[int, ...]) -> tuple[Any, list[Any]]:
    out = np.empty(shape, _dtype(size))
    return out.view(Words), _views(out)


def _add(sign: int) -> Callable[[Any, Any], Words]:
    def operation(a: Any, b: Any) -> Words:
        size, shape, both = _operands(a, b)
        out, views = _made(size, shape)
        kernels.add(*both, sign, *views, *_room(size))
        return out  # type: ignore[no-any-return]

    return operation


def _multiply(a: Any, b: Any) -> Words:
    size, shape, both = _operands(a, b)
    out, views = _made(size, shape)
    kernels.multiply(*both, *views, *_columns(size, size, 2 * size + 1))
    return out  # type: ignore[no-any-return]


def _divide(a: Any, b: Any) -> Words:
    size, shape, both = _operands(a, b)
    out, views = _made(size, shape)
    kernels.divide(*both, *views, *_columns(size, size, size + 3, 2 * size + 1))
    return out  # type: ignore[no-any-return]


def _exp(a: Words) -> Words:
    size = _size(a.dtype)
    out, views = _made(size, a.shape)
    kernels.exponential(*_flat(a), *views, *_tables(size), *_columns(*[size + 6] * 4),
                        np.zeros((4, LANES), np.int64), np.zeros(LANES, np.int64))
    return out  # type: ignore[no-any-return]


@lru_cache(4)
def _tables(size: int) -> list[Any]:
    """What ``digits.exponential`` takes, each number off by less than one in its last digit."""
    arb, P = balls.arb, size + 2
    with balls.precision(BITS * P + 100):
        def fixed(values: list[Any]) -> Array:
            """(N, P + 2) digits, P of them behind the point."""
            out = np.zeros((len(values), P + 2))
            for row, value in zip(out, values):
                left = int((value * arb((1, BITS * P)) + 0.5).mid().floor().unique_fmpz())
                for k in range(P + 2):
                    digit = (left + digits.HALF & digits.MASK) - digits.HALF
                    row[k], left = digit, left - digit >> BITS
            return out

        sides = [round(8.4 * 2 ** STEPS[0])] + [2 ** (after - before - 1) + 2 for before, after in
                                                zip(STEPS, STEPS[1:])]
        entries = [(arb(n) * arb((1, -bits))).exp() for bits, side in zip(STEPS, sides)
                   for n in range(-side, side + 1)]
        first = np.cumsum([0, *(2 * side + 1 for side in sides[:-1])]) + sides
        terms, factor = [arb(1)], arb(1)
        while len(terms) < 4 or factor > arb((1, -BITS * P - 4)):
            factor = factor / (len(terms) * 2 ** (STEPS[-1] + 1))
            terms.append(terms[-1] / len(terms))
        return [fixed(entries), first.astype(np.int64), fixed(terms[::-1]),
                fixed([arb(2 ** BITS).log()])]


# ---- matrix products

class _Centred:
    def __init__(self, weights: Words) -> None:
        self.weights, self.dropped = weights, list[Array]()
        self.kept: dict[tuple[Any, ...], _Aligned] = {}


_centred: _Centred | None = None


@contextmanager
def centred(weights: Words) -> Iterator[list[Array]]:
    """In this block a product of balls by (a view of) ``weights`` encloses that of midpoints of its
    left factor, up to their last digits; the list gets log2 of a bound of the Euclidean distance
    of every row from them, (N,), product by product."""
    global _centred
    before, _centred = _centred, _Centred(weights)
    try:
        yield _centred.dropped
    finally:
        _centred = before


class _Aligned:
    """Rows of balls as whole numbers in units of ``B^low``, digit by digit, of ``most`` digits
    at most: ``digits`` (D, M, K), ``size`` and ``off`` (M, K)."""

    def __init__(self, rows: Any, most: int) -> None:
        M, K = rows.shape
        every, radii = _flat(rows)
        high, self.low = np.empty(M, np.int64), np.empty(M, np.int64)
        products.extent(every, K, high, self.low)
        high[high == -digits.NONE] = self.low[self.low == digits.NONE] = 0
        D = max(min(int((high - self.low).max(initial=1)), most), 1)
        self.low = np.maximum(self.low, high - D)
        self.digits = np.empty((D, M, K))
        self.size, self.off = np.empty((M, K)), np.empty((M, K))
        products.align(every, radii, K, self.low, self.digits, self.size, self.off)


def _product(a: Words, b: Words) -> Words:
    balls.count_product()
    size = _size(a.dtype)
    marked = _centred is not None and np.may_share_memory(b, _centred.weights)
    (M, K), N = a.shape, b.shape[1]
    long = not marked and K >= balls.LONG
    most = min(size + 1, length(balls.bits()[1])) if long else size + 1
    if marked and _centred is not None:
        key = b.shape + b.strides
        if key not in _centred.kept:
            _centred.kept[key] = _Aligned(b.T, most)
        right = _centred.kept[key]
    else:
        right = _Aligned(b.T, most)
    out, _ = _made(size, (M, N))
    dropped = []
    for first in range(0, M, TILE):
        left = _Aligned(a[first:first + TILE], most)
        if marked:
            dropped.append(_distance(left))
            left.off = np.zeros_like(left.off)
        _multiplied(left, right, out[first:first + TILE])
    if marked and _centred is not None:
        _centred.dropped.append(np.concatenate(dropped))
    return out  # type: ignore[no-any-return]


def _distance(left: _Aligned) -> Array:
    """log2 of a bound of the Euclidean norm of what the rows are off by."""
    largest = left.off.max(axis=1, initial=0)
    ratio = left.off / np.where(largest == 0, 1, largest)[:, None]
    with np.errstate(divide="ignore"):
        return np.asarray(np.log2(largest) + np.log2(np.sqrt((ratio * ratio).sum(axis=1)))
                          + 2.0 ** -20 + BITS * left.low)


def _multiplied(left: _Aligned, right: _Aligned, out: Words) -> None:
    """``out`` (M, N) from rows of a left and columns of a right factor."""
    (I, M, K), (J, N, _), size = left.digits.shape, right.digits.shape, _size(out.dtype)
    cut = max(I + J - 1 - (size + 4), 0)
    acc = np.zeros((M, N, I + J - cut + 4), np.int64)
    group = max(1, 256 // M)
    for k in range(0, K, BLOCK):
        for i in range(0, I, group):
            some = left.digits[i:i + group, :, k:k + BLOCK]
            second = max(cut - (i + len(some) - 1), 0)
            if second >= J:
                continue
            others = right.digits[second:, :, k:k + BLOCK]
            found = (some.reshape(-1, some.shape[2]) @ others.reshape(-1, some.shape[2]).T)
            products.accumulate(found.reshape(len(some), M, len(others), N), i, second, cut, acc)
        products.carry_all(acc.reshape(M * N, -1))
    # what is left out below the cut, and in units of it
    radius = sum((a * 2.0 ** (BITS * (places - cut))) @ b.T for places, a, b in (
        (I, left.size, right.off), (J, left.off, right.size), (0, left.off, right.off)))
    radius = radius * (1 + (K + 16) * 2.0 ** -52)
    if cut:
        radius += K * min(I, J) * 2.0 ** (BITS - 1)
    products.settle_all(acc, left.low + cut, right.low, radius, *_views(out), *_room(I + J + size))


_OPERATIONS: dict[np.ufunc, Callable[..., Any]] = {
    np.add: _add(1), np.subtract: _add(-1), np.multiply: _multiply, np.divide: _divide,
    np.matmul: _product, np.exp: _exp, np.negative: lambda a: _add(-1)(0, a),
    np.tanh: lambda a: 1 - 2 / (1 + np.exp(a + a)),
}
