"""Arithmetic of balls in machine words: the kernels of ``refnet.exact.words``.

A ball is a row of words (L + 3 of 32 bits, L odd)::

    (d_0 + d_1 B + ... + d_{L-1} B^{L-1}  +-  r) B^unit,      B = 2^24

with digits d_i in [-B/2, B/2], the integer unit in the next word and the radius r >= 0, a float64,
in the last two. Digits of either sign need no case for the sign of a number, and a unit that
counts digits none for bits that have to be moved. Every operation computes whole numbers, keeps L
digits of them, and adds to r what that leaves out and what the operands' radii may make: r is
rounded upwards by factors of UP, 0 only where the result is exact, and inf where an operation has
no bound. ``acc`` is room for int64 digits that are not settled yet.

Sources: Knuth (1997), 4.1, balanced digits, and 4.3.1; balls: Johansson (2017), "Arb"; exponential
by tables and a series: Brent & Zimmermann (2010), 4.3.
Checked by: tests/exact/test_words.py.
"""

from math import floor, inf, ldexp
from typing import Any

import numpy as np

from refnet.compiled._jit import inner, jit

__all__ = ["BITS", "CUT", "HALF", "HUGE", "MASK", "NONE", "STEPS", "TINY", "UP", "add", "carried",
           "divide", "exponential", "multiply", "scaled", "settle", "size_of", "top_of", "total"]

BITS = 24
HALF = 1 << (BITS - 1)
MASK = (1 << BITS) - 1
BASE, ROOT = 2.0 ** BITS, 2.0 ** -BITS
ROUND = 1.5 * 2.0 ** 52
"""Added and taken away again, it leaves a whole number."""
UP = 1 + 2.0 ** -40
"""More than the roundings of a radius."""
NONE = 2 ** 40
CUT = 0.51
"""A bound of what lies below a unit, in units: digits of half a base at most."""
OF_LEAD = 2.0 ** -28
"""A bound of what a number's leading digits as a float leave out, in units of the first one."""
TINY = 1e-300
"""More than what an underflow of a radius loses."""
HUGE = 2.0 ** 1000
FAR = 40
POWERS = 2.0 ** (BITS * np.arange(-FAR, FAR + 1))
STEPS = (5, 12, 19, 26)
"""The exponential's argument is brought to 0 by multiples of 2^-5, 2^-12, ..."""
LOG = 16.635532333438686
"""log(B)."""
FURTHEST = 2 ** 20
"""What the size of an exponential's argument must be below."""
OFF = 2.0 ** 34
"""A bound of the exponential's error in its last digit: the argument's is at most FURTHEST + 1,
tables and series add 200, and e^t < 2^12.5 multiplies them."""


@inner
def top_of(a: Any, i: Any) -> Any:
    """The number of digits without leading zeros."""
    top = a.shape[1] - 3
    while top > 0 and a[i, top - 1] == 0:
        top -= 1
    return top


@inner
def _lead(a: Any, i: Any, top: Any) -> Any:
    """The number over ``B^(top - 1)``, up to OF_LEAD."""
    value, scale = 0.0, 1.0
    for k in range(top - 1, max(top - 4, -1), -1):
        value += a[i, k] * scale
        scale *= 2.0 ** -BITS
    return value


@inner
def size_of(a: Any, i: Any, top: Any) -> Any:
    """A bound of the number's magnitude over ``B^(top - 1)``."""
    return abs(_lead(a, i, top)) + OF_LEAD if top else 0.0


@inner
def scaled(r: Any, digits: Any) -> Any:
    """A bound of ``r B^digits``; of a radius that is no number, infinity."""
    if r == 0:
        return 0.0
    if not r > 0:
        return inf
    if -FAR <= digits <= FAR:
        return r * POWERS[digits + FAR] + TINY
    return ldexp(r, BITS * digits) + TINY


@inner
def settle(acc: Any, n: Any, unit: Any, r: Any, out: Any, radii: Any, o: Any) -> None:
    """``out[o]`` from the first n of ``acc``, in units of ``B^unit``, as the radius r is."""
    L = out.shape[1] - 3
    carry = 0
    for i in range(n):
        value = acc[i] + carry
        carry = (value + HALF) >> BITS
        acc[i] = value - (carry << BITS)
    while carry != 0:
        value = carry
        carry = (value + HALF) >> BITS
        acc[n] = value - (carry << BITS)
        n += 1
    while n > 0 and acc[n - 1] == 0:
        n -= 1
    drop = max(n - L, 0)
    if drop:
        r = scaled(r, -drop)
        for i in range(drop):
            if acc[i] != 0:
                r += CUT
                break
    for i in range(L):
        out[o, i] = acc[drop + i] if drop + i < n else 0
    out[o, L] = unit + drop if n > 0 or r > 0 else 0
    radii[o, (L + 1) // 2] = r * UP if r < HUGE else inf


@inner
def carried(t: Any, n: Any) -> None:
    """Digits settled in place, but for the last one."""
    for k in range(n - 1):
        carry = (t[k] + HALF) >> BITS
        t[k] -= carry << BITS
        t[k + 1] += carry


@inner
def _copy(a: Any, ar: Any, i: Any, sign: Any, out: Any, radii: Any, o: Any) -> None:
    L = out.shape[1] - 3
    for k in range(L):
        out[o, k] = sign * a[i, k]
    out[o, L] = a[i, L]
    radii[o, (L + 1) // 2] = ar[i, (L + 1) // 2]


@inner
def _sum(a: Any, ar: Any, i: Any, b: Any, br: Any, j: Any, sign: Any, out: Any, radii: Any, o: Any,
         acc: Any) -> None:
    """``out[o] = a[i] + sign b[j]``."""
    L = out.shape[1] - 3
    ta, tb = top_of(a, i), top_of(b, j)
    ra, rb = ar[i, (L + 1) // 2], br[j, (L + 1) // 2]
    if tb == 0 and rb == 0:
        _copy(a, ar, i, 1, out, radii, o)
        return
    if ta == 0 and ra == 0:
        _copy(b, br, j, sign, out, radii, o)
        return
    ua, ub = np.int64(a[i, L]), np.int64(b[j, L])
    top = max(ua + ta, ub + tb)
    low = max(min(ua, ub), top - (L + 2))
    for k in range(top - low):
        acc[k] = 0
    r = scaled(ra, ua - low) + scaled(rb, ub - low)
    if ua < low and ta:
        r += CUT
    if ub < low and tb:
        r += CUT
    for k in range(max(low - ua, 0), ta):
        acc[ua + k - low] += a[i, k]
    for k in range(max(low - ub, 0), tb):
        acc[ub + k - low] += sign * b[j, k]
    settle(acc, top - low, low, r * UP, out, radii, o)


@jit
def add(a: Any, ar: Any, i: Any, b: Any, br: Any, j: Any, sign: Any, out: Any, radii: Any,
        acc: Any) -> None:
    """``out[o] = a[i o] + sign b[j o]``; i and j are 1, or 0 for a number alike for all."""
    for o in range(len(out)):
        _sum(a, ar, i * o, b, br, j * o, sign, out, radii, o, acc)


@jit
def total(a: Any, ar: Any, out: Any, radii: Any, acc: Any) -> None:
    """``out[o] = sum_k a[k N + o]``, o < N."""
    N = len(out)
    for k in range(0, len(a), N):
        for o in range(N):
            _sum(a, ar, k + o, out, radii, o, 1, out, radii, o, acc)


# ---- products, quotients and exponentials: several numbers side by side, a column of float64
# digits each, whose whole numbers stay below 2^53

@inner
def _load(a: Any, i: Any, x: Any, v: Any) -> None:
    """Column v of x: the digits of ``a[i]``, the first one not 0 in the last row."""
    L = len(x)
    empty = L - top_of(a, i)
    for k in range(L):
        x[k, v] = a[i, k - empty] if k >= empty else 0


@inner
def _loaded(a: Any, step: Any, first: Any, n: Any, x: Any) -> None:
    """n columns from ``a[first step]`` on."""
    if step:
        for v in range(n):
            _load(a, first + v, x, v)
    elif first == 0:
        for v in range(x.shape[1]):
            _load(a, 0, x, v)


@inner
def _carry(x: Any, first: Any, last: int) -> None:
    """Digits of the rows from first on settled; the row ``last`` gets what is left."""
    for k in range(first, last):
        for v in range(x.shape[1]):
            carry = (x[k, v] * ROOT + ROUND) - ROUND
            x[k, v] -= carry * BASE
            x[k + 1, v] += carry


@inner
def _clear(x: Any, n: Any) -> None:
    for k in range(n):
        for v in range(x.shape[1]):
            x[k, v] = 0.0


@inner
def _store(x: Any, n: Any, v: Any, unit: Any, r: Any, up: Any, out: Any, radii: Any, o: Any
           ) -> None:
    """``out[o]`` from n settled digits of column v, in units of ``B^unit``; the radius ``r B^up``.
    """
    L = out.shape[1] - 3
    while n > 0 and x[n - 1, v] == 0:
        n -= 1
    drop = max(n - L, 0)
    r = scaled(r, up - drop) if up != drop else r
    if drop:
        for k in range(drop):
            if x[k, v] != 0:
                r += CUT
                break
    for k in range(L):
        out[o, k] = np.int32(x[drop + k, v]) if drop + k < n else 0
    out[o, L] = unit + drop if n > 0 or r > 0 else 0
    radii[o, (L + 1) // 2] = r * UP if r < HUGE else inf


@jit
def multiply(a: Any, ar: Any, i: Any, b: Any, br: Any, j: Any, out: Any, radii: Any, x: Any, y: Any,
             z: Any) -> None:
    """``out[o] = a[i o] b[j o]``."""
    L, lanes = len(x), x.shape[1]
    for first in range(0, len(out), lanes):
        n = min(lanes, len(out) - first)
        _loaded(a, i, first, n, x)
        _loaded(b, j, first, n, y)
        _clear(z, 2 * L + 1)
        for k in range(0 if i else L - top_of(a, 0), L):
            for m in range(0 if j else L - top_of(b, 0), L):
                for v in range(lanes):
                    z[k + m, v] += x[k, v] * y[m, v]
        _carry(z, 0, 2 * L)
        for v in range(n):
            o = first + v
            ta, tb = top_of(a, i * o), top_of(b, j * o)
            ra, rb = ar[i * o, (L + 1) // 2], br[j * o, (L + 1) // 2]
            unit = np.int64(a[i * o, L]) + b[j * o, L]
            if (ta or ra > 0) and (tb or rb > 0):
                up = max(ta + tb - L - 1, 0)  # the units of r, so that it does not overflow
                r = scaled(ra, -up) * rb
                if ra > 0:
                    r += ra * scaled(size_of(b, j * o, tb), tb - 1 - up)
                if rb > 0:
                    r += rb * scaled(size_of(a, i * o, ta), ta - 1 - up)
                shift = ta + tb - 2 * L  # of the unit
                _store(z, 2 * L, v, unit + shift, r * UP, up - shift, out, radii, o)
            else:
                _store(z, 0, v, 0, 0.0, 0, out, radii, o)


@jit
def divide(a: Any, ar: Any, i: Any, b: Any, br: Any, j: Any, out: Any, radii: Any, x: Any, y: Any,
           z: Any, rest: Any) -> None:
    """``out[o] = a[i o] / b[j o]``: long division, whose remainder bounds the error."""
    L, lanes = len(x), x.shape[1]
    for first in range(0, len(out), lanes):
        n = min(lanes, len(out) - first)
        _loaded(a, i, first, n, x)
        _loaded(b, j, first, n, y)
        _clear(rest, L + 1)
        _clear(z, L + 3)
        for k in range(L):
            for v in range(lanes):
                rest[L + 1 + k, v] = x[k, v]
        for place in range(L, -1, -1):
            k = place + L  # the row that b's leading digit meets
            for v in range(lanes):
                lead = y[L - 1, v] + y[L - 2, v] * ROOT + y[L - 3, v] * (ROOT * ROOT)
                value = rest[k, v] + rest[k - 1, v] * ROOT + rest[k - 2, v] * (ROOT * ROOT)
                z[place, v] = (value / lead + ROUND) - ROUND
            for m in range(L):
                for v in range(lanes):
                    rest[place + 1 + m, v] -= z[place, v] * y[m, v]
            _carry(rest, place + 1, k)
            if place:
                for v in range(lanes):
                    rest[k - 1, v] += rest[k, v] * BASE
                    rest[k, v] = 0.0
        _carry(z, 0, L + 2)
        for v in range(n):
            o = first + v
            ta, tb = top_of(a, i * o), top_of(b, j * o)
            ra, rb = ar[i * o, (L + 1) // 2], br[j * o, (L + 1) // 2]
            least = abs(_lead(b, j * o, tb)) - OF_LEAD - scaled(rb, 1 - tb)
            if tb == 0 or not least > 0:
                _store(z, 0, v, 0, inf, 0, out, radii, o)
                continue
            left = 0.0
            for k in range(L + 1):
                left = left * ROOT + abs(rest[k, v])
            r = left / least + TINY if left > 0 else 0.0
            if ra > 0:
                r += scaled(ra / least, L - ta + 1)
            if rb > 0:
                r += scaled(size_of(a, i * o, ta) / least * UP * rb / least, L - tb + 1)
            unit = (np.int64(a[i * o, L]) + ta) - (np.int64(b[j * o, L]) + tb) - L
            _store(z, L + 3, v, unit, r * UP, 0, out, radii, o)


@inner
def _times(a: Any, m: Any, b: Any, n: Any, low: Any, P: Any, acc: Any) -> None:
    """``a = a b / B^P`` from place ``low`` on, with a guard digit; a has m digits, b n."""
    _clear(acc, P + 4)
    for k in range(m):
        for j in range(max(P - 1 + low - k, 0), n):
            for v in range(a.shape[1]):
                acc[k + j - P + 1, v] += a[k, v] * b[j, v]
    _carry(acc, 0, P + 3)
    for k in range(P + 2):
        for v in range(a.shape[1]):
            a[k, v] = acc[k + 1, v]


@jit
def exponential(a: Any, ar: Any, out: Any, radii: Any, tables: Any, first: Any, series: Any,
                log: Any, acc: Any, t: Any, s: Any, e: Any, steps: Any, whole: Any) -> None:
    """``out[o] = exp(a[o])``.

    With P = L + 2 digits behind the point: ``x = n log(B) + t``, and t is brought near 0 by the
    entries of ``tables``, e to the multiples of 2^-STEPS, whose middles lie at ``first``;
    ``series`` holds 1 / k!, highest k first, and ``log`` log(B).
    """
    L, lanes = out.shape[1] - 3, t.shape[1]
    P = L + 2
    for start in range(0, len(out), lanes):
        n = min(lanes, len(out) - start)
        _clear(t, P + 2)
        for v in range(n):
            o = start + v
            top, unit = top_of(a, o), np.int64(a[o, L])
            x = ldexp(_lead(a, o, top), BITS * (unit + top - 1)) if top else 0.0
            whole[v] = 0
            if abs(x) < FURTHEST:
                whole[v] = np.int64(floor(x / LOG + 0.5))
                for k in range(P + 2):
                    t[k, v] = -whole[v] * log[0, k]
                for k in range(max(-P - unit, 0), top):
                    t[unit + k + P, v] += a[o, k]
        _carry(t, 0, P + 1)
        for stage in range(4):
            scale, row = 2.0 ** STEPS[stage], P - 1 if stage < 3 else P - 2
            down = BASE / scale if stage < 3 else BASE * BASE / scale
            for v in range(lanes):
                value = t[P, v] + t[P - 1, v] * ROOT + t[P - 2, v] * (ROOT * ROOT)
                step = (value * scale + ROUND) - ROUND
                t[row, v] -= step * down
                steps[stage, v] = first[stage] + np.int64(step)
        _carry(t, 0, P + 1)
        for k in range(P + 2):
            for v in range(lanes):
                s[k, v] = series[0, k]
        terms = len(series)
        for m in range(1, terms):
            _times(s, P + 1, t, P - 1, terms - 1 - m, P, acc)
            for k in range(P + 1):
                for v in range(lanes):
                    s[k, v] += series[m, k]
        for stage in range(3, -1, -1):
            for v in range(lanes):
                for k in range(P + 1):
                    e[k, v] = tables[steps[stage, v], k]
            _times(s, P + 2, e, P + 1, 0, P, acc)
        for v in range(n):
            o = start + v
            top, r, unit = top_of(a, o), ar[o, (L + 1) // 2], np.int64(a[o, L])
            wide = scaled(r, unit)
            x = ldexp(_lead(a, o, top), BITS * (unit + top - 1)) if top else 0.0
            if top == 0 and r == 0:  # exactly 1
                _clear_column(s, v)
                s[P, v] = 1.0
                _store(s, P + 2, v, -P, 0.0, 0, out, radii, o)
            elif wide <= 1 and abs(x) < FURTHEST:
                value = s[P, v] + s[P - 1, v] * ROOT + s[P - 2, v] * (ROOT * ROOT) + ROOT
                if r > 0:
                    r = scaled(value * r, P + unit) * (1 + wide)
                _store(s, P + 2, v, whole[v] - P, (OFF + r) * UP, 0, out, radii, o)
            else:
                _store(s, 0, v, 0, inf, 0, out, radii, o)


@inner
def _clear_column(x: Any, v: Any) -> None:
    for k in range(len(x)):
        x[k, v] = 0.0
