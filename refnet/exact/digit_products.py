"""Balls in machine words: kernels for matrix products, of whole numbers in float64, and from and to
other numbers. How a ball lies in words is said in ``refnet.exact.digits``.

Checked by: tests/exact/test_words.py.
"""

from math import ceil, floor, frexp, inf, ldexp
from typing import Any

import numpy as np

from refnet.compiled._jit import inner, jit
from refnet.exact.digits import (BITS, CUT, HALF, HUGE, MASK, NONE, TINY, UP, carried, scaled,
                                 settle, size_of, top_of)

__all__ = ["accumulate", "align", "carry_all", "extent", "middle", "nearest", "settle_all",
           "set_digits", "widen"]


@jit
def extent(a: Any, K: Any, high: Any, low: Any) -> None:
    """For every row of K numbers the place behind its first digit, and that of its last one."""
    L = a.shape[1] - 3
    for m in range(len(high)):
        high[m], low[m] = -NONE, NONE
        for k in range(m * K, (m + 1) * K):
            top = top_of(a, k)
            if top:
                high[m] = max(high[m], a[k, L] + top)
                first = 0
                while a[k, first] == 0:
                    first += 1
                low[m] = min(low[m], a[k, L] + first)


@jit
def align(a: Any, ar: Any, K: Any, low: Any, digits: Any, size: Any, off: Any) -> None:
    """Rows of K numbers as whole numbers in units of ``B^low``, digit by digit, (D, M, K); their
    magnitudes ``size``, over ``B^D``, and how far they are ``off``, (M, K), with the radii."""
    L = a.shape[1] - 3
    for m in range(digits.shape[1]):
        for k in range(K):
            i = m * K + k
            top, r = top_of(a, i), ar[i, (L + 1) // 2]
            shift = a[i, L] - low[m]
            for d in range(len(digits)):
                digits[d, m, k] = a[i, d - shift] if 0 <= d - shift < top else 0
            off[m, k] = scaled(r, shift)
            for d in range(min(-shift, top)):
                if a[i, d] != 0:
                    off[m, k] += CUT
                    break
            size[m, k] = scaled(size_of(a, i, top), shift + top - 1 - len(digits))


@jit
def accumulate(found: Any, first: Any, second: Any, cut: Any, acc: Any) -> None:
    """Products of digits, (I, M, J, N), go to the digit of ``acc`` (M, N, n) that they belong to,
    less ``cut``; those below it are left out."""
    I, M, J, N = found.shape
    for i in range(I):
        for m in range(M):
            for j in range(max(cut - first - second - i, 0), J):
                place = first + i + second + j - cut
                for n in range(N):
                    acc[m, n, place] += np.int64(found[i, m, j, n])


@jit
def carry_all(acc: Any) -> None:
    """Every row's digits settled, but for the last one."""
    for i in range(len(acc)):
        for d in range(acc.shape[1] - 1):
            carry = (acc[i, d] + HALF) >> BITS
            acc[i, d] -= carry << BITS
            acc[i, d + 1] += carry


@jit
def settle_all(acc: Any, rows: Any, columns: Any, radius: Any, out: Any, radii: Any, room: Any
               ) -> None:
    """``out[m N + n]`` from the digits ``acc[m, n]`` in units of ``B^(rows[m] + columns[n])``."""
    M, N, n = acc.shape
    for m in range(M):
        for k in range(N):
            for d in range(n):
                room[d] = acc[m, k, d]
            settle(room, n, rows[m] + columns[k], radius[m, k], out, radii, m * N + k)


# ---- to and from other numbers

@jit
def set_digits(digits: Any, units: Any, radius: Any, out: Any, radii: Any, acc: Any) -> None:
    """``out[o]`` from digits of any size, (N, n), in units of ``B^units``."""
    for o in range(len(out)):
        for k in range(digits.shape[1]):
            acc[k] = digits[o, k]
        settle(acc, digits.shape[1], units[o], radius[o], out, radii, o)


@jit
def widen(radii: Any, a: Any, width: Any) -> None:
    """Add ``2^width`` to the radii; nothing where it is -inf."""
    L = a.shape[1] - 3
    for i in range(len(a)):
        if width[i] > -inf:
            if top_of(a, i) == 0 and radii[i, (L + 1) // 2] == 0:
                a[i, L] = np.int64(floor(width[i] / BITS))
            power: Any = np.int64(floor(width[i])) + 1 - BITS * np.int64(a[i, L])
            r = (radii[i, (L + 1) // 2] + ldexp(1.0, power) + TINY) * UP
            radii[i, (L + 1) // 2] = r if r < HUGE else inf


@jit
def middle(a: Any, ar: Any, out: Any, wide: Any) -> None:
    """The midpoints as float64, up to 2^-52 of them, and log2 of a bound of each radius."""
    L = a.shape[1] - 3
    for i in range(len(a)):
        top, r = top_of(a, i), ar[i, (L + 1) // 2]
        value, scale = 0.0, 1.0
        for k in range(top - 1, max(top - 5, -1), -1):
            value += a[i, k] * scale
            scale *= 2.0 ** -BITS
        out[i] = ldexp(value, BITS * (np.int64(a[i, L]) + top - 1)) if top else 0.0
        if r > 0:
            fraction, exponent = frexp(r)
            wide[i] = exponent + BITS * np.int64(a[i, L])
        else:
            wide[i] = -inf


@inner
def _nearest(acc: Any, n: Any, unit: Any) -> Any:
    """The float64 nearest to settled digits, ties to even, unless it is subnormal."""
    while n > 0 and acc[n - 1] == 0:
        n -= 1
    if n == 0:
        return 0.0
    sign = 1 if acc[n - 1] > 0 else -1
    carry = 0
    for k in range(n):  # digits from 0 on
        value = sign * acc[k] + carry
        carry = value >> BITS
        acc[k] = value & MASK
    while acc[n - 1] == 0:
        n -= 1
    bits, here, mantissa = 0, 0, acc[n - 1]
    while mantissa >> bits:
        bits += 1
    # 55 bits: of a float64, the next, and one for all that are left
    rest, k = 0, n - 2
    while bits < 55:
        here = min(BITS, 55 - bits)
        digit = acc[k] if k >= 0 else 0
        mantissa = mantissa << here | digit >> (BITS - here)
        rest = digit & ((1 << (BITS - here)) - 1)
        bits += here
        k -= 1
    exponent = BITS * (unit + k + 1) + (BITS - here)
    while rest == 0 and k >= 0:
        rest = acc[k]
        k -= 1
    if rest != 0:
        mantissa |= 1
    return ldexp(np.float64(sign * mantissa), exponent)


@jit
def nearest(a: Any, ar: Any, ends: Any, acc: Any) -> None:
    """``ends[0]`` and ``ends[1]``: the float64 nearest to the lower and to the upper end."""
    L = a.shape[1] - 3
    for i in range(len(a)):
        r, unit = ar[i, (L + 1) // 2], np.int64(a[i, L])
        for end in range(2):
            for k in range(L + 8):
                acc[k] = a[i, k] if k < L else 0
            place, far = 0, r
            while far >= 2.0 ** 40 and place < L:
                far = scaled(far, -1)
                place += 1
            if not far < 2.0 ** 40:
                ends[end, i] = inf if end else -inf
                continue
            acc[place] += np.int64(ceil(far)) * (2 * end - 1)
            carried(acc, L + 8)
            ends[end, i] = _nearest(acc, L + 8, unit)
