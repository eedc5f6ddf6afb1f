"""While f runs: functions that know nothing of recorded arrays, replaced by those that do.

``h = np.zeros((T + 1, H)); h[t + 1] = ...`` assigns a recorded array to a plain one, which NumPy
cannot refuse to be. Inside ``recording`` np.zeros and the like give recorded arrays, np.array and
np.asarray join recorded ones, and functions of ``math``, scipy.special and scipy.linalg that call
no ufunc have stand-ins. These replace the originals in the modules themselves and, under any name,
among the globals of f. Each checks who calls it: other threads, and the code of NumPy, SciPy and
refnet, get the original. The last block to end puts the originals back, even after an error.

Checked by: tests/exact/test_interception.py.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from functools import cache, partial, wraps
from threading import Lock
from types import CellType
from typing import Any

import numpy as np

from refnet.exact.complexes import Complex
from refnet.exact.convert import Lift
from refnet.exact.matrix import expm
from refnet.exact.recorder import Node, Operand, Operation, Recorded, dispatch, stop
from refnet.exact.reductions import Axes

Names = dict[Any, Any]
"""What names, or the numbers of cells, stand for."""
_LIFT: ContextVar[Lift | None] = ContextVar("lift", default=None)
_lock = Lock()
_installed: dict[int, list[Any]] = {}
"""The id of a namespace, or of a tuple of cells -> how many are inside, and what its names stood
for."""
CREATORS = ("zeros ones empty full eye identity zeros_like ones_like empty_like full_like").split()
JOINERS = "array asarray asanyarray ascontiguousarray".split()
REDUCERS = (
    "sum mean var std prod max min amax amin cumsum argmax argmin dot reshape transpose ravel "
    "squeeze diff flip"
).split()
"""Functions of NumPy's that are also called on a list of recorded arrays."""
MATH = {
    **{name: name for name in "exp expm1 log log1p sqrt tanh sin cos sinh cosh fabs hypot".split()},
    "atan": "arctan",
    "pow": "power",
}
"""The name of a function of math -> that of NumPy's."""
NUMPYS = "solve inv det norm svd eigh".split()
"""The functions of scipy.linalg that are called as those of np.linalg."""
LIBRARIES = {"numpy", "scipy", "refnet"}


def logsumexp(a: Operand, axis: Axes = None, b: Operand = None, keepdims: bool = False) -> Operand:
    """``scipy.special.logsumexp``, recorded."""
    top = stop(np.max(a, axis=axis, keepdims=True))
    terms = np.exp(a - top)
    total = np.sum(terms if b is None else b * terms, axis=axis, keepdims=True)
    y = np.log(total) + top
    return y if keepdims else np.squeeze(y, axis)


def softmax(x: Operand, axis: Axes = None) -> Operand:
    """``scipy.special.softmax``, recorded."""
    e = np.exp(x - stop(np.max(x, axis=axis, keepdims=True)))
    return e / np.sum(e, axis=axis, keepdims=True)


def log_softmax(x: Operand, axis: Axes = None) -> Operand:
    """``scipy.special.log_softmax``, recorded."""
    return x - logsumexp(x, axis, keepdims=True)


def _recording() -> Lift | None:
    """How the calling code records, None if it does not; two frames up is who called."""
    caller = sys._getframe(2).f_globals.get("__name__", "")
    return None if str(caller).partition(".")[0] in LIBRARIES else _LIFT.get()


def _creator(original: Operation) -> Operation:
    @wraps(original)
    def create(*args: Operand, **options: Operand) -> Operand:
        lift, result = _recording(), original(*args, **options)
        if lift is not None and original.__name__.startswith("empty"):
            result = np.zeros_like(result)  # what memory holds is no number
        if lift is None or not isinstance(result, np.ndarray):
            return result
        if result.dtype == complex:
            parts = (np.ascontiguousarray(part) for part in (result.real, result.imag))
            return Complex(*(Recorded(Node(lift(part, ""), "a constant"), lift) for part in parts))
        if result.dtype != float:
            return result
        return Recorded(Node(lift(result, ""), "a constant"), lift)

    return create


def _joiner(original: Operation) -> Operation:
    @wraps(original)
    def join(value: Operand, *args: Operand, **options: Operand) -> Operand:
        joined = value if _recording() is None else _joined(value)
        if not _is_recorded(joined):
            return original(value, *args, **options)
        dtype = args[0] if args else options.get("dtype")
        joined = joined if dtype is None else joined.astype(dtype)
        return joined.copy() if original.__name__ == "array" and joined is value else joined

    return join


def _joined(value: Operand) -> Operand:
    """Nested lists as one recorded array, if any of them is recorded."""
    if not isinstance(value, (list, tuple)):
        return value
    parts = [_joined(part) for part in value]
    return np.stack(parts) if any(map(_is_recorded, parts)) else value


def _stand_in(original: Operation, ours: Operation) -> Operation:
    """``ours`` for recorded arguments."""

    @wraps(original)
    def call(*args: Operand, **options: Operand) -> Operand:
        values = (*args, *options.values())
        return (ours if any(map(_is_recorded, values)) else original)(*args, **options)

    return call


def _library(original: Operation, operation: Operation) -> Operation:
    """The call of ``operation`` in place of a function outside NumPy."""

    def call(*args: Operand, **options: Operand) -> Operand:
        return dispatch("library", operation.__name__, operation, original, args, options)

    return call


def _of_lists(original: Operation) -> Operation:
    """The function, of a list with a recorded entry of the joined array."""

    @wraps(original)
    def call(value: Operand, *args: Operand, **options: Operand) -> Operand:
        joined = value if _recording() is None else _joined(value)
        return original(joined, *args, **options)

    return call


def _is_recorded(value: Operand) -> bool:
    return isinstance(value, (Recorded, Complex))


@cache
def _stand_ins() -> dict[int, tuple[Operation, Operation]]:
    """id of a function -> itself, and what stands for it."""
    import scipy.linalg
    import scipy.special

    pairs = [(getattr(np, name), _creator(getattr(np, name))) for name in CREATORS]
    pairs += [(getattr(np, name), _joiner(getattr(np, name))) for name in JOINERS]
    pairs += [(getattr(np, name), _of_lists(getattr(np, name))) for name in REDUCERS]
    for name, numpys in MATH.items():
        pairs.append((getattr(math, name), _stand_in(getattr(math, name), getattr(np, numpys))))
    pairs.append((math.erf, _stand_in(math.erf, scipy.special.erf)))
    for name in NUMPYS:
        original = getattr(scipy.linalg, name)
        pairs.append((original, _stand_in(original, getattr(np.linalg, name))))
    for module, ours in (
        (scipy.special, (logsumexp, softmax, log_softmax)),
        (scipy.linalg, (expm,)),
    ):
        for operation in ours:
            original = getattr(module, operation.__name__)
            pairs.append((original, _stand_in(original, _library(original, operation))))
    return {id(original): (original, stand_in) for original, stand_in in pairs}


def _names_of(f: Operation) -> tuple[Names, _Cells]:
    """What f's names stand for; of a partial, a method or an object that can be called, too."""
    while isinstance(f, partial):
        f = f.func
    f = inspect.unwrap(f)
    if not hasattr(f, "__globals__"):
        f = getattr(f, "__func__", type(f).__call__)
    return getattr(f, "__globals__", {}), _Cells(getattr(f, "__closure__", None) or ())


class _Cells(Names):
    """What a function took from the functions around it, by the numbers of its cells."""

    def __init__(self, cells: tuple[CellType, ...]) -> None:
        super().__init__()
        self.cells = cells
        for n, cell in enumerate(cells):
            with suppress(ValueError):  # an empty one
                super().__setitem__(n, cell.cell_contents)

    def __setitem__(self, n: int, value: object) -> None:
        self.cells[n].cell_contents = value
        super().__setitem__(n, value)


@contextmanager
def _replaced(key: int, names: Names) -> Iterator[None]:
    stand_ins = _stand_ins()
    with _lock:
        entry = _installed.get(key)
        if entry is None:
            saved = {
                name: value
                for name, value in names.items()
                if id(value) in stand_ins and stand_ins[id(value)][0] is value
            }
            for name, value in saved.items():
                names[name] = stand_ins[id(value)][1]
            entry = _installed[key] = [0, saved]
        entry[0] += 1
    try:
        yield
    finally:
        with _lock:
            entry[0] -= 1
            if not entry[0]:
                for name, value in entry[1].items():
                    if names.get(name) is stand_ins[id(value)][1]:
                        names[name] = value
                del _installed[key]


@contextmanager
def recording(f: Operation, lift: Lift) -> Iterator[None]:
    """In this block, and in this thread, what f creates is recorded; numbers are ``lift``'s."""
    import scipy.linalg
    import scipy.special

    token = _LIFT.set(lift)
    try:
        with ExitStack() as stack:
            modules = [module.__dict__ for module in (np, math, scipy.special, scipy.linalg)]
            names, cells = _names_of(f)
            namespaces = {id(space): space for space in (*modules, names)}
            namespaces[id(cells.cells)] = cells
            for key, space in namespaces.items():
                stack.enter_context(_replaced(key, space))
            yield
    finally:
        _LIFT.reset(token)
