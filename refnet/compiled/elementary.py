"""exp, expm1, tanh and the sigmoid of float32 and float64, in operations that LLVM vectorizes.

Checked by: tests/compiled/test_vector.py.
"""

from math import factorial, log

import numpy as np

from refnet.compiled._jit import inner
from refnet.compiled.annotations import Arg
from refnet.compiled.vector import fma, number, power

__all__ = ["exp", "expm1", "sigmoid", "tanh"]

LOG2E = 1 / log(2)
C = tuple(1 / factorial(k) for k in range(14))


@inner
def _wide(x: Arg) -> bool:
    """Whether x is a float64; the compiler makes this a constant."""
    return bool(number(1.0, x) + number(1e-10, x) != number(1.0, x))


@inner
def _reduced(x: Arg) -> Arg:
    """``n, k, p``: x = k log 2 + f with \\|f\\| <= log(2) / 2, p = e^f - 1 by Taylor's series;
    n holds k + bias in its lowest bits."""
    magic = number(6755399441055744.0, x) if _wide(x) else number(12582912.0, x)
    n = fma(x, number(LOG2E, x), magic)
    k = n - magic
    if _wide(x):
        f = fma(k, number(-6.93147180369123816490e-01, x), x)
        f = fma(k, number(-1.90821492927058770002e-10, x), f)
        p = number(C[13], x)
        p = fma(p, f, number(C[12], x))
        p = fma(p, f, number(C[11], x))
        p = fma(p, f, number(C[10], x))
        p = fma(p, f, number(C[9], x))
        p = fma(p, f, number(C[8], x))
        p = fma(p, f, number(C[7], x))
    else:
        f = fma(k, number(-0.693359375, x), x)
        f = fma(k, number(2.12194440e-4, x), f)
        p = number(C[7], x)
    p = fma(p, f, number(C[6], x))
    p = fma(p, f, number(C[5], x))
    p = fma(p, f, number(C[4], x))
    p = fma(p, f, number(C[3], x))
    p = fma(p, f, number(C[2], x))
    p = fma(p * f, f, f)
    return n, k, p


@inner
def expm1(x: Arg) -> Arg:
    """``e^x - 1`` for x <= 0, within 1.2 ulp of the true value for every float32 (float64: of a
    sample; all by tests/compiled/test_vector.py::test_ulps_of_all_floats); NaN stays NaN."""
    low = number(-50.0, x)
    n, _, p = _reduced(low if x < low else x)
    bias = number(1023.0, x) if _wide(x) else number(127.0, x)
    scale = power(n + bias)
    return fma(scale, p, scale - number(1.0, x))


@inner
def exp(x: Arg) -> Arg:
    """``e^x`` for x <= 0, down to the subnormal numbers, within 1.2 ulp; NaN stays NaN."""
    low = number(-800.0, x) if _wide(x) else number(-120.0, x)
    _, k, p = _reduced(low if x < low else x)
    # 2^k as 2^half 2^(k - half): one factor alone would underflow early
    magic = number(6755399441055744.0, x) if _wide(x) else number(12582912.0, x)
    bias = number(1023.0, x) if _wide(x) else number(127.0, x)
    half = fma(k, number(0.5, x), magic)
    first = power(half + bias)
    second = power((k - (half - magic)) + magic + bias)
    return fma(first, p, first) * second


@inner
def tanh(x: Arg) -> Arg:
    """``m / (m + 2)`` with ``m = e^(-2 |x|) - 1`` and the sign of x: no cancellation anywhere;
    within 2.6 ulp."""
    m = expm1(number(-2.0, x) * abs(x))
    return np.copysign(m / (m + number(2.0, x)), x)


@inner
def sigmoid(x: Arg) -> Arg:
    """``1 / (1 + e^-x)``, by ``e^x / (1 + e^x)`` for negative x; within 2.6 ulp."""
    negative = x < number(0.0, x)
    e = exp(x if negative else -x)
    unit = number(1.0, x)
    return (e if negative else unit) / (unit + e)
