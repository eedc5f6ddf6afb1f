"""Formulas as they are written on paper, of which the tables of this room consist.

A blank between two operands is a product, ^ a power: 2 x^2 (1 - x) is ``2 * x**2 * (1 - x)``. A
formula sees NumPy's names and those here; all take complex numbers, so that a slope is that of the
complex step. Used by ``functions``, ``losses``, ``scores``, ``counts``, ``arrays`` and ``edges``.

Checked by: tests/check/test_programs.py::test_a_formula_is_read_as_it_is_written.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import erf

from refnet.batch import Array

__all__ = ["formula", "slope_of", "softmax"]


def _lse(v: Array) -> Array:
    """The logarithm of each row's sum of exp."""
    top = v.real.max(axis=1, keepdims=True)
    return np.asarray(np.log(np.exp(v - top).sum(axis=1, keepdims=True)) + top)


def softmax(v: Array) -> Array:
    """The softmax of each row."""
    return np.asarray(np.exp(v - _lse(v)))


def _softplus(v: Array) -> Array:
    above = v.real > 0
    return np.asarray(np.where(above, v, 0) + np.log(1 + np.exp(np.where(above, -v, v))))


def _abs(v: Array) -> Array:
    return np.asarray(v * np.sign(v.real))


def _relu(v: Array) -> Array:
    return np.where(v.real > 0, v, 0)


def _sigmoid(v: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-v)))


def _rows(reduced: Callable[..., Array]) -> Callable[[Array], Array]:
    return lambda v: reduced(v, axis=1, keepdims=True)


def _norm(v: Array) -> Array:
    return np.asarray(np.sqrt((v * v).sum(axis=1, keepdims=True)))


def _huber(e: Array) -> Array:
    return np.where(abs(e.real) <= 1, e * e / 2, _abs(e) - 0.5)


def _margins(u: Array, t: Array) -> Array:
    label = (u * t).sum(axis=1, keepdims=True)
    return np.where(t > 0, 0, _relu(1 + u - label))


def _columns(v: Array) -> Array:
    return v.reshape(len(v), -1)


NAMES: dict[str, Any] = {
    **vars(np), "erf": erf, "abs": _abs, "relu": _relu, "sigmoid": _sigmoid, "softplus": _softplus,
    "sum": _rows(np.sum), "mean": _rows(np.mean), "max": _rows(np.max), "norm": _norm,
    "lse": _lse, "softmax": softmax, "huber": _huber, "margins": _margins, "columns": _columns,
    "tiny": 1e-200,
}  # fmt: skip
"""``sum``, ``mean``, ``max``, ``norm`` and ``lse`` are those of each row (N, 1)."""


@lru_cache(maxsize=4096)
def formula(text: str, arguments: str = "v") -> Callable[..., Array]:
    """The function of these arguments that a formula says.

    >>> formula("x (27 + x^2) / (27 + 9 x^2)", "x")(3.0)
    1.0
    """
    python = re.sub(r"(?<=[\w)\]]) (?=[\w(])", " * ", text).replace("^", "**")
    function: Callable[..., Array] = eval(f"lambda {arguments}: {python}", NAMES)
    return function


def slope_of(value: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """The slope of a function of single numbers, by the complex step."""
    return lambda a: np.imag(value(a + 1e-30j)) / 1e-30
