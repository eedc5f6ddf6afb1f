"""A user's function run on recorded arrays.

Arguments may be nested: dicts, lists, tuples and NamedTuples of arrays, each of which has a name
of its own, ``p.W`` or ``layers.0.W``. Complex arrays are recorded as two real ones; as a result,
one has an axis more, the last, for the two parts.

Checked by: tests/exact/test_certify_function.py, tests/exact/test_interception.py.
"""

from collections.abc import Callable
from copy import copy
from inspect import Parameter, signature
from itertools import count
from typing import Any, NamedTuple

import numpy as np

import refnet.exact.surface  # noqa: F401  (what NumPy's calls lead to)
from refnet.batch import Array, Params
from refnet.exact.complexes import Complex
from refnet.exact.convert import Lift
from refnet.exact.interception import recording
from refnet.exact.recorder import Node, Recorded, Unrecorded, laid_out, outermost, same
from refnet.exact.reverse import gradients

Value = Any
"""An argument or result of a user's function, or a part of one."""
Function = Callable[..., Value]
"""A user's function, written in NumPy."""
Arguments = dict[str, Value]
"""What it is called with, by the names of its parameters."""
Nodes = dict[str, tuple[Recorded, ...]]
"""The recorded arrays of a run by the names of arguments: one, or two of a complex array."""


class Runs:
    """A function of arguments; ``intercepts``: whether it met code that has to be replaced while
    it runs (refnet.exact.interception), which its first run finds out."""

    def __init__(self, f: Function) -> None:
        self.f, self.intercepts = f, False

    def __call__(self, arguments: list[Value], lift: Lift) -> Value:
        """What f gives on recorded arrays; Unrecorded, if it is to be run anew."""
        try:
            if not self.intercepts:
                return self.f(*arguments)
            with recording(self.f, lift):
                return self.f(*arguments)
        except (TypeError, ValueError) as error:  # NumPy may have wrapped ours
            cause = error.__cause__
            raise cause if isinstance(cause, Unrecorded) else error  # noqa: B904


def differentiated(value: Value) -> bool:
    """Whether f has a gradient in this argument: an array of floats, complex numbers or Fractions,
    or a number of NumPy's."""
    return isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "fcO"


def mapped(value: Value, name: str, change: Callable[[str, Array], Value]) -> Value:
    """A copy of an argument, which f may assign to, with ``change(name, array)`` for each array
    that has a gradient."""
    if differentiated(value):
        return change(name, value)
    if isinstance(value, np.ndarray):
        return value.copy(order="K")
    if isinstance(value, dict):
        result = copy(value)
        result.update({key: mapped(part, f"{name}.{key}", change) for key, part in value.items()})
        return result
    if isinstance(value, (list, tuple)):
        names = getattr(value, "_fields", range(len(value)))
        changed = [mapped(part, f"{name}.{key}", change) for key, part in zip(names, value)]
        if isinstance(value, list):
            return changed
        return type(value)(*changed) if hasattr(value, "_fields") else tuple(changed)
    return value.copy() if isinstance(value, set) else value


def leaves(arguments: Arguments) -> Arguments:
    """The arrays that have a gradient, by their names."""
    named: Arguments = {}
    for name, value in arguments.items():
        mapped(value, name, named.setdefault)
    return named


def copied(value: Value) -> Value:
    """What f may assign to, for one run of it."""

    def copy_of(name: str, array: Array) -> Array:
        return array.copy(order="K")

    return mapped(value, "", copy_of)


def parts(value: Value) -> Array:
    """An array of real numbers; of complex ones, with their parts along a last axis."""
    array = np.asarray(value)
    return np.stack([array.real, array.imag], axis=-1) if array.dtype.kind == "c" else array


def arguments_of(f: Function, arrays: tuple[Value, ...]) -> Arguments:
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
    scalars = {float: np.float64, complex: np.complex128}
    return {
        name: scalars.get(type(parameter), same)(parameter)
        for name, parameter in zip(names, arrays)
    }


def called(f: Runs, arguments: Arguments, lifted: Lift) -> tuple[Recorded, ...]:
    """What f gives: one recorded array, or the two parts of a complex one; TypeError if that is
    not recorded."""
    y = f(list(arguments.values()), lifted)
    if isinstance(y, Complex):
        return y.real, y.imag
    if not isinstance(y, Recorded):
        raise TypeError(
            f"certify_function: f gave {type(y).__name__}, no array that depends on "
            "its arguments; it has to return one array computed from them in NumPy"
        )
    return (y,)


def joined(raws: list[Array]) -> Array:
    """The numbers of an array from those of its parts."""
    return raws[0] if len(raws) == 1 else np.stack(raws, axis=-1)


def sides(array: Array, number: int) -> list[Array]:
    """The parts, ``number`` of them, of what ``joined`` gave."""
    return [array] if number == 1 else list(np.moveaxis(array, -1, 0))


def recorded(arguments: Arguments, lifted: Lift) -> tuple[Arguments, Nodes]:
    """The arguments for one run of f on the numbers that ``lifted`` makes, and their parts."""
    nodes: Nodes = {}

    def record(name: str, value: Value) -> Value:
        both = (value.real, value.imag) if value.dtype.kind == "c" else (value,)
        nodes[name] = tuple(
            Recorded(
                Node(laid_out(lifted(side, name), outermost(side)), name, live=True),
                lifted,
                is_number=isinstance(value, np.generic),
            )
            for side in both
        )
        return Complex(*nodes[name]) if len(both) == 2 else nodes[name][0]

    return {name: mapped(value, name, record) for name, value in arguments.items()}, nodes


class Run(NamedTuple):
    """A run of f: what it gave, and the nodes of its arguments."""

    results: tuple[Recorded, ...]
    nodes: dict[str, list[Node]]

    @property
    def value(self) -> Array:
        """The numbers that f gave."""
        return joined([y.raw for y in self.results])

    def named(self, cotangents: list[Array]) -> Params:
        """Gradients by name, from the cotangents of the nodes in their order."""
        queue = iter(cotangents)
        return {
            f"d{name}": joined([next(queue) for _ in both]) for name, both in self.nodes.items()
        }

    def gradients(self, cotangent: Array | None, lifted: Lift) -> Params:
        """The gradients, of the value times the cotangent if there is one."""
        shape = self.results[0].shape
        if cotangent is None and (shape or len(self.results) > 1):
            raise ValueError(
                f"certify_function: f gives an array of shape {shape}{_complex(self.results)}; "
                "pass cotangent, an array of that shape, or return one real number"
            )
        if cotangent is not None and cotangent.shape != shape:
            raise ValueError(
                f"certify_function: cotangent has shape {cotangent.shape}; need {shape}, the shape "
                "of f's result"
            )
        weight = np.ones(()) if cotangent is None else cotangent
        if weight.dtype.kind == "c" and len(self.results) == 1:
            raise ValueError("certify_function: cotangent is complex, and f's result is real")
        every = [node for both in self.nodes.values() for node in both]
        total: list[Array] = []
        for y, part in zip(self.results, (weight.real, weight.imag)):
            cotangents = gradients(y.node, lifted(np.asarray(part), "cotangent"), every, lifted)
            total = [a + b for a, b in zip(total, cotangents)] if total else cotangents
        return self.named(total)


def forward(f: Runs, arguments: Arguments, lifted: Lift) -> Run:
    """A run of f on the numbers that ``lifted`` makes."""
    inputs, arrays = recorded(arguments, lifted)
    nodes = {name: [side.node for side in both] for name, both in arrays.items()}
    try:
        return Run(called(f, inputs, lifted), nodes)
    except Unrecorded:
        if f.intercepts:
            raise
        f.intercepts = True
        return forward(f, arguments, lifted)


def run_on(f: Runs, arguments: Arguments, cotangent: Array | None, lifted: Lift) -> Params:
    """Value and gradients."""
    run = forward(f, arguments, lifted)
    return {"value": run.value, **run.gradients(cotangent, lifted)}


def _complex(results: tuple[Recorded, ...]) -> str:
    return " of complex numbers" if len(results) > 1 else ""
