"""The functions that stand in lines, by name: activations, and what stands for them by mistake.

That is another function, one with a constant, a rational approximation, a table, a coarser type;
most names are the formula itself (``notation``). ``runs`` evaluates lines by ``function``;
``grammar`` and ``constants`` say which functions are tried where.

Checked by: tests/check/test_programs.py.
"""

import math
import re
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
from numpy.polynomial import Chebyshev

from refnet.batch import Array
from refnet.check.programs.arrays import TYPES, coarse
from refnet.check.programs.notation import formula, slope_of
from refnet.maths.activations import ACTIVATIONS, Activation

__all__ = ["FORMS", "FUNCTIONS", "WITH_A_CONSTANT", "approximations", "function", "has"]

Value = Callable[[Array], Array]


class Function(NamedTuple):
    """The value and the slope of a function, as functions of its argument."""

    value: Value
    slope: Value


FORMS = {
    "": ("{}", ""),
    "1-": ("(1 - {})", ""),
    "^2": ("{}^2", ""),
    "1-^2": ("(1 - {}^2)", ""),
    "1-abs": ("(1 - |{}|)", "1 - abs(v)"),
    "1+^2": ("(1 + {}^2)", ""),
    "(1-)^2": ("(1 - {})^2", ""),
    "1+": ("(1 + {})", ""),
    "-": ("-{}", ""),
    "tanh": ("tanh({})", ""),
    "example 0": ("{} of example 0", "broadcast_to(v[..., :1, :], v.shape)"),
    "example before": ("{} of the example before", "roll(v, 1, axis=-2)"),
    "example after": ("{} of the next example", "roll(v, -1, axis=-2)"),
    "unit before": ("{} of the unit before", "concatenate([v[..., :1], v[..., :-1]], -1)"),
    "unit after": ("{} of the next unit", "concatenate([v[..., 1:], v[..., -1:]], -1)"),
    "other unit": ("{} of the unit before (around)", "roll(v, 1, axis=-1)"),
    "mean over units": ("{}'s mean over the units", "v.mean(-1, keepdims=True) + 0 v"),
    "mean over examples": ("{}'s mean over the examples", "v.mean(-2, keepdims=True) + 0 v"),
    "less its mean over units": (
        "({} less its mean over the units)", "v - v.mean(-1, keepdims=True)"
    ),
    "less its mean over examples": (
        "({} less its mean over the examples)", "v - v.mean(-2, keepdims=True)"
    ),
    "like unit variance": (
        "{} normalized over the units",
        "(v - v.mean(-1, keepdims=True)) / sqrt(v.var(-1, keepdims=True) + 1e-5)",
    ),
    "units reversed": ("{} with its units reversed", "v[..., ::-1]"),
    **{kind: (f"{{}} in {kind}", "") for kind in TYPES},
}  # fmt: skip
"""What is taken of a variable, by the form of its factor: in words, and as a formula of v where the
words are none."""


def form(name: str) -> Value:
    """A form of a variable, as a function of it."""
    words, text = FORMS[name]
    return partial(coarse, name=name) if name in TYPES else formula(text or words.format("v"))


PADE = (
    "x (27 + x^2) / (27 + 9 x^2)",
    "x (15 + x^2) / (15 + 6 x^2)",
    "x (945 + 105 x^2 + x^4) / (945 + 420 x^2 + 15 x^4)",
    "x (135135 + 17325 x^2 + 378 x^4 + x^6) / (135135 + 62370 x^2 + 3150 x^4 + 28 x^6)",
    "x - x^3 / 3",
    "x - x^3 / 3 + 2 x^5 / 15",
)
"""Rational approximations of tanh."""
TEXTS = {
    "": "a",
    "sigmoid": "sigmoid(a)",
    "hard sigmoid max(0, min(1, 0.2 a + 0.5))": "clip(0.2 a + 0.5, 0, 1)",
    "hard sigmoid max(0, min(1, a / 6 + 0.5))": "clip(a / 6 + 0.5, 0, 1)",
    "hard sigmoid max(0, min(1, a / 4 + 0.5))": "clip(a / 4 + 0.5, 0, 1)",
    "fast sigmoid (1 + a / (1 + |a|)) / 2": "(1 + a / (1 + abs(a))) / 2",
    "hard tanh": "clip(a, -1, 1)",
    "sin": "sin(a)",
    "arctan": "arctan(a)",
    "a / sqrt(1 + a^2)": "",
    "erf": "erf(a)",
    "erf(sqrt(pi) a / 2)": "",
    "(1 + a / sqrt(1 + a^2)) / 2": "",
    "sigmoid(1.702 a)": "",
    "the normal distribution function": "(1 + erf(a / sqrt(2))) / 2",
    "1.7159 tanh(2 x / 3)": "1.7159 tanh(2 a / 3)",
    **{pade: pade.replace("x", "a") for pade in PADE},
    **{f"{pade}, at most 1": f"clip({pade.replace('x', 'a')}, -1, 1)" for pade in PADE[:4]},
    **{
        f"(1 + tanh(a / 2)) / 2 with the tanh {pade}": f"(1 + {pade.replace('x', '(a / 2)')}) / 2"
        for pade in PADE
    },
}
"""Formulas by name; the name, if there is no other."""
SLOPES = {"": "ones_like(a)", "sigmoid": "sigmoid(a) (1 - sigmoid(a))"}
WITH_A_CONSTANT = {
    "clipped at K": "clip(a, -K, K)",
    "at most K": "minimum(a, K)",
    "at least K": "maximum(a, K)",
    "scaled to a norm of K over the batch": "a minimum(1, K / size(-2, -1))",
    "scaled to a norm of K for each example": "a minimum(1, K / size(-1))",
    "scaled to a norm of K over the batch, by K / (norm + 1e-6)": (
        "a minimum(1, K / (size(-2, -1) + 1e-6))"
    ),
    "scaled to a norm of K for each unit": "a minimum(1, K / size(-2))",
    "scaled to a largest entry of K over the batch": (
        "a minimum(1, K / abs(a).max((-2, -1), keepdims=True))"
    ),
    "always scaled to a norm of K over the batch": "a K / size(-2, -1)",
    "always scaled to a norm of K for each example": "a K / size(-1)",
    "zero where it is smaller than K": "where(abs(a) < K, 0, a)",
    "plus K": "a + K",
    "times K": "a K",
}
"""Functions with a constant; ``size`` is the norm over some axes."""


def _size(*axes: int) -> str:
    return f"(sqrt((a * a).sum(axis={axes}, keepdims=True)) + 1e-300)"


def _with(text: str, k: float) -> Function:
    """The slope of what is scaled is that of nothing."""
    scaled = "scaled" in text
    python = WITH_A_CONSTANT[text].replace("K", f"({k!r})")
    python = re.sub(r"size\(([-\d, ]+)\)", lambda axes: _size(*eval(f"{axes[1]},")), python)
    value = formula(python, "a")
    return Function(value, np.ones_like if scaled else slope_of(value))


@lru_cache(maxsize=4096)
def function(name: str) -> Function:
    """A function by its name; one with a constant as ``clipped at K|0.5``, two in a row as ``tanh
    then at most K|0.9``, one with polynomials on -size .. size added as ``tanh plus a wave size w0
    w1 ...``. Raises KeyError for any other name."""
    if name in TEXTS:
        value = formula(TEXTS[name] or name, "a")
        return Function(value, formula(SLOPES[name], "a") if name in SLOPES else slope_of(value))
    if name in FUNCTIONS:
        entry = ACTIVATIONS[name]
        return Function(
            lambda a: entry.forward(a, {}),
            lambda a: entry.backward(a, entry.forward(a, {}), np.ones_like(a), {})[0],
        )
    if name in TYPES:
        return Function(partial(coarse, name=name), np.ones_like)
    inner, _, outer = name.partition(" then ")
    if outer:
        f, g = function(inner), function(outer)
        return Function(lambda a: g.value(f.value(a)), lambda a: g.slope(f.value(a)) * f.slope(a))
    usual, _, wave = name.partition(" plus a wave ")
    if wave:
        size, *w = map(float, wave.split())
        f, series = function(usual), Chebyshev(w, [-size, size])
        slope = series.deriv()
        return Function(lambda a: f.value(a) + series(a), lambda a: f.slope(a) + slope(a))
    usual, _, how = name.partition(" ")
    if usual in FUNCTIONS and (approximate := _approximation(function(usual).value, how)):
        return Function(approximate, function(usual).slope)
    text, _, constant = name.partition("|")
    if constant:
        return _with(text, float(constant))
    shift = {"rolled by one unit": 1, "rolled back by one unit": -1}[name]
    return Function(lambda a: np.roll(a, shift, axis=-1), np.ones_like)


FUNCTIONS = (
    *TEXTS,
    *(name for name, entry in ACTIVATIONS.items() if not entry.start and not entry.pairs
      and name not in TEXTS),
)  # fmt: skip
"""The names of functions without a constant."""


def has(activation: Activation) -> bool:
    """Whether programs can run the activation: it concerns single units and has no parameters."""
    return activation.name in FUNCTIONS and activation == ACTIVATIONS[activation.name]


SIZES = (
    16, 32, 50, 64, 100, 128, 200, 256, 400, 500, 512, 1000, 1024, 2000, 2048, 4096, 8192, 10000,
)  # fmt: skip
RANGES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 16, 20)
TABLE = "of a table of {n} values on [-{r}, {r}], {how}"
POWER = "with exp(x) = (1 + x / {n})^{n}"
TAYLOR = "with {n} terms of exp's series"


def approximations(function: str, tables: bool) -> Iterator[str]:
    """The names of approximations of tanh or the sigmoid, perhaps without tables."""
    yield from (f"{function} in {kind}" for kind in TYPES)
    yield from (f"{function} {POWER.format(n=2**k)}" for k in range(2, 17))
    yield from (f"{function} {TAYLOR.format(n=n)}" for n in range(2, 12))
    for how in ("interpolated", "nearest", "next below") if tables else ():
        for size in SIZES:
            for n in (size, size + 1):
                for r in RANGES:
                    yield f"{function} {TABLE.format(n=n, r=r, how=how)}"


def _approximation(value: Value, how: str) -> Value | None:
    """The approximation of ``value`` that is so called."""
    kind = how.removeprefix("in ")
    if kind in TYPES:
        return partial(_narrow, value, kind)
    numbers = [int(n) for n in re.findall(r"\d+", how)]
    if how.startswith("of a table"):
        return _table(value, numbers[0], numbers[1], how.rpartition(", ")[2])
    if how.startswith("with exp(x)"):
        return _of_exp(value, lambda x: (1 + x / numbers[0]) ** numbers[0])
    if how.startswith("with "):
        terms = [1 / math.factorial(k) for k in reversed(range(numbers[0]))]
        return _of_exp(value, partial(np.polyval, terms))
    return None


def _narrow(value: Value, kind: str, a: Array) -> Array:
    """In the arithmetic of a type, or of rounded argument and value."""
    if isinstance(TYPES[kind], float):
        return coarse(value(coarse(a, kind)), kind)
    b = a.astype(TYPES[kind])
    v = np.tanh(b) if value(np.zeros(1))[0] == 0 else 1 / (1 + np.exp(-b))
    return np.asarray(v.astype(float))


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
