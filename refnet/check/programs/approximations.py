"""Approximations of tanh and the sigmoid: tables, another exp, a coarser type.

Checked by: tests/check/test_programs.py.
"""

import math
import re
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from refnet.batch import Array
from refnet.check.programs.arrays import TYPES, coarse

__all__ = ["approximation", "names"]

Value = Callable[[Array], Array]
SIZES = (
    16,
    32,
    50,
    64,
    100,
    128,
    200,
    256,
    400,
    500,
    512,
    1000,
    1024,
    2000,
    2048,
    4096,
    8192,
    10000,
)
RANGES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 16, 20)
TABLE = "of a table of {n} values on [-{r}, {r}], {how}"
POWER = "with exp(x) = (1 + x / {n})^{n}"
TAYLOR = "with {n} terms of exp's series"


def names(function: str, tables: bool) -> Iterator[str]:
    """The approximations of a function, perhaps without tables."""
    yield from (f"{function} in {kind}" for kind in TYPES)
    yield from (f"{function} {POWER.format(n=2**k)}" for k in range(2, 17))
    yield from (f"{function} {TAYLOR.format(n=n)}" for n in range(2, 12))
    for how in ("interpolated", "nearest", "next below") if tables else ():
        for size in SIZES:
            for n in (size, size + 1):
                for r in RANGES:
                    yield f"{function} {TABLE.format(n=n, r=r, how=how)}"


def approximation(value: Value, how: str) -> Value | None:
    """The approximation of ``value`` that is so called."""
    kind = how.removeprefix("in ")
    if kind in TYPES:
        return _narrow(value, kind)
    numbers = [int(n) for n in re.findall(r"\d+", how)]
    if how.startswith("of a table"):
        return _table(value, numbers[0], numbers[1], how.rpartition(", ")[2])
    if how.startswith("with exp(x)"):
        return _of_exp(value, lambda x: (1 + x / numbers[0]) ** numbers[0])
    if how.startswith("with "):
        terms = [1 / math.factorial(k) for k in reversed(range(numbers[0]))]
        return _of_exp(value, partial(np.polyval, terms))
    return None


def _narrow(value: Value, kind: str) -> Value:
    """In the arithmetic of a type, or of rounded argument and value."""

    def narrow(a: Array) -> Array:
        if isinstance(TYPES[kind], float):
            return coarse(value(coarse(a, kind)), kind)
        b = a.astype(TYPES[kind])
        v = np.tanh(b) if value(np.zeros(1))[0] == 0 else 1 / (1 + np.exp(-b))
        return np.asarray(v.astype(float))

    return narrow


def _table(value: Value, n: int, r: int, how: str) -> Value:
    grid = np.linspace(-r, r, n)
    values = value(grid)

    def read(a: Array) -> Array:
        if how == "interpolated":
            return np.asarray(np.interp(a, grid, values))
        at = (a + r) * ((n - 1) / (2 * r))
        at = np.floor(at) if how == "next below" else np.round(at)
        return np.asarray(values[np.clip(at, 0, n - 1).astype(int)])

    return read


def _of_exp(value: Value, exp: Value) -> Value:
    if value(np.zeros(1))[0]:
        return lambda a: 1 / (1 + exp(-a))
    return lambda a: (exp(2 * a) - 1) / (exp(2 * a) + 1)
