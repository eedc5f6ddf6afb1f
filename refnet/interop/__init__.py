"""Nets in other frameworks' terms: their names, shapes and orders of the gates, in and out.

A file a framework; what all of them need stands here. Checked by: tests/check/test_adapters.py.
"""

from dataclasses import fields
from fractions import Fraction
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from refnet.batch import Array, Params
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import HEAD, StackedNet, named

__all__ = ["as_stack", "exact_sum", "initial_states", "package", "reorder", "two_biases"]


def package(name: str, extra: str = "", called: str = "") -> ModuleType:
    """An optional package's module; ImportError names the package and the extra that brings it."""
    try:
        return import_module(name)
    except ImportError:
        top = name.partition(".")[0]
        raise ImportError(
            f"this needs {called or top}: pip install 'refnet[{extra or top}]'"
        ) from None


def exact_sum(a: Array, b: Array) -> Array:
    """``a + b`` without rounding: float64 if that holds it, else Fractions."""
    total = np.asarray(a, np.float64) + np.asarray(b, np.float64)
    exact = [Fraction(float(x)) + Fraction(float(y)) for x, y in zip(a.flat, b.flat)]
    if all(Fraction(float(t)) == e for t, e in zip(total.flat, exact)):
        return total
    out = np.empty(total.shape, object)
    out.reshape(-1)[:] = exact
    return out


def reorder(stacked: Array, order: tuple[int, ...]) -> Array:
    """The gates' blocks along the first axis in another order: block n is old block order[n]."""
    size = len(stacked) // len({*order})
    rows: Array = stacked[np.concatenate([np.arange(n * size, (n + 1) * size) for n in order])]
    return rows


def as_stack(net: RecurrentNet, params: Params) -> tuple[StackedNet, Params]:
    """The net as a stack of one layer, and its parameters by the stack's names."""
    if isinstance(net, StackedNet):
        return net, params
    options: dict[str, Any] = {entry.name: getattr(net, entry.name) for entry in fields(net)}
    return StackedNet(**options), {
        name if name in HEAD else named(name, "_l0"): value for name, value in params.items()
    }


def two_biases(net: RecurrentNet, p: Params, numpy: ModuleType = np) -> tuple[Array, Array]:
    """The biases of the input's and of the state's product, for one cell's parameters.
    ``numpy``: the module of the arrays, NumPy or JAX's."""
    bh = p["bh"]
    second = p.get("bhh", numpy.zeros_like(bh[: 2 * net.hidden] if net.cell == "gru" else bh))
    return bh, numpy.concatenate([second, p["bhn"]]) if net.cell == "gru" else second


def initial_states(net: StackedNet, params: Params, x: Array) -> Params:
    """h0 of every cell for every sequence, zero where it is not given."""
    return {
        f"h0{suffix}": cell.initial_state(net.of(params, suffix), x)
        for suffix, cell in net.every_cell.items()
    }
