"""A user's function run on recorded arrays.

Checked by: tests/exact/test_certify_function.py.
"""

from collections.abc import Callable
from inspect import Parameter, signature
from itertools import count
from typing import Any

import numpy as np

import refnet.exact.surface  # noqa: F401  (what NumPy's calls lead to)
from refnet.batch import Array, Params
from refnet.exact.enclose import Lift
from refnet.exact.recorder import Node, Recorded, gradients, laid_out, outermost

__all__ = [
    "Arguments",
    "Function",
    "arguments_of",
    "called",
    "copied",
    "differentiated",
    "run_on",
    "recorded",
]

Function = Callable[..., Any]
"""A user's function, written in NumPy."""
Arguments = dict[str, Any]
"""What it is called with, by the names that it has for them."""


def differentiated(value: Any) -> bool:
    """Whether f has a gradient in this argument: an array of floats or Fractions, or a
    NumPy float."""
    return isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "fO"


def arguments_of(f: Function, arrays: tuple[Any, ...]) -> Arguments:
    """The arguments by the names that ``f`` has for them, else x0, x1, ..."""
    try:
        names = [
            name
            for name, parameter in signature(f).parameters.items()
            if parameter.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
        ]
    except (TypeError, ValueError):
        names = []
    for n in range(len(names), len(arrays)):
        names.append(next(name for k in count(n) if (name := f"x{k}") not in names))
    return {
        name: np.float64(parameter) if type(parameter) is float else parameter
        for name, parameter in zip(names, arrays)
    }


def called(f: Function, arguments: list[Any]) -> Recorded:
    """What f gives; TypeError if that is not recorded."""
    try:
        y = f(*arguments)
    except ValueError as error:  # NumPy's, around the refusal of a recorded array
        raise error.__cause__ if isinstance(error.__cause__, TypeError) else error  # noqa: B904
    if not isinstance(y, Recorded):
        raise TypeError(
            f"certify_function: f gave {type(y).__name__}, no array that depends on "
            "its arguments; it has to return one array computed from them in NumPy"
        )
    return y


def recorded(arguments: Arguments, lifted: Lift) -> Arguments:
    """The arguments for one run of f on the numbers that ``lifted`` makes."""
    copies = {name: copied(value) for name, value in arguments.items()}
    for name, value in arguments.items():
        if differentiated(value):
            raw = laid_out(lifted(value, name), outermost(value))
            copies[name] = Recorded(
                Node(raw, name, live=True), lifted, is_number=isinstance(value, np.generic)
            )
    return copies


def copied(value: Any) -> Any:
    """What f may assign to, for one run of it."""
    if isinstance(value, dict):
        return {key: copied(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [copied(entry) for entry in value]
    if isinstance(value, np.ndarray):
        return value.copy(order="K")
    return value.copy() if isinstance(value, set) else value


def run_on(f: Function, arguments: Arguments, cotangent: Array | None, lifted: Lift) -> Params:
    """Value and gradients."""
    inputs = recorded(arguments, lifted)
    nodes = {name: value.node for name, value in inputs.items() if isinstance(value, Recorded)}
    y = called(f, list(inputs.values())).node
    if cotangent is None and y.raw.ndim:
        raise ValueError(
            f"certify_function: f gives an array of shape {y.raw.shape}; pass "
            "cotangent, an array of that shape, or return one number"
        )
    if cotangent is not None and cotangent.shape != y.raw.shape:
        raise ValueError(
            f"certify_function: cotangent has shape {cotangent.shape}; need "
            f"{y.raw.shape}, the shape of f's result"
        )
    seed = lifted(np.ones(()) if cotangent is None else cotangent, "cotangent")
    cotangents = gradients(y, seed, list(nodes.values()), lifted)
    return {"value": y.raw, **{f"d{name}": g for name, g in zip(nodes, cotangents)}}
