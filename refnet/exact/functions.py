"""Certified gradients of any function written in NumPy.

The function runs on recorded arrays (refnet.exact.recorder) of balls; precision is raised as for
nets until every number is decided. Kinds of numbers that agree prove nothing about a rule of
differentiation that all of them share, so each certificate is checked in two ways that use none:
by a central difference in balls, and by the function's value on NumPy's own arrays.

Checked by: tests/test_functions.py.
"""

from collections.abc import Callable
from dataclasses import dataclass
from inspect import Parameter, signature
from itertools import count
from time import perf_counter
from typing import Any

import numpy as np

import refnet.exact.surface  # noqa: F401  (what NumPy's calls lead to)
from refnet.arguments import choice, number, whole
from refnet.batch import Array, Params
from refnet.exact.convert import lift, rounded
from refnet.exact.enclose import Enclosure, Lift, Progress, search
from refnet.exact.recorder import Node, Recorded, gradients
from refnet.maths.kinds import kind as kind_of

__all__ = ["CertifiedFunction", "arguments_of", "certify_function"]

CHECK_BITS = 768
"""Precision of the self-check; the step of its central difference is 2**(-bits / 3)."""
AGREE = 2.0**-128
"""The relative difference allowed between slope and difference; the latter's error is of the order
of the step squared."""


@dataclass(frozen=True)
class CertifiedFunction:
    """What ``certify_function`` proved about a function at its arguments.

    ``value`` and ``gradients``, by the argument's name. ``params``: the arguments that have one;
    ``constants``: the numbers that the function holds and float32 does not, so that another
    program may hold others (``np.sqrt(32)`` is rounded before it is recorded). ``kind`` and
    ``bits`` as in ``Certified``.
    """

    function: Callable[..., Any]
    arguments: dict[str, Any]
    cotangent: Array | None
    value: Enclosure
    gradients: dict[str, Enclosure]
    constants: tuple[float, ...]
    kind: str
    bits: int
    seconds: float

    @property
    def params(self) -> Params:
        """The arguments that have a gradient."""
        return {name: self.arguments[name] for name in self.gradients}

    def named(self) -> dict[str, Enclosure]:
        """Value and gradients by one name: value, and each gradient as d + name."""
        return {"value": self.value, **{f"d{name}": g for name, g in self.gradients.items()}}

    def run(self, lifted: Lift) -> Params:
        """Value and gradients computed on the numbers that ``lifted`` makes."""
        return _run(self.function, self.arguments, self.cotangent, lifted)


def certify_function(f: Callable[..., Any], *arrays: Any, cotangent: Any = None,
                     kind: str | None = None, radius: float | None = None, bits: int = 128,
                     max_bits: int = 8192, max_seconds: float = 600,
                     progress: Progress | None = None, check: bool = True) -> CertifiedFunction:
    """Value and gradients of ``f(*arrays)`` with proved enclosures.

    ``f`` is written in NumPy and returns one array. Arrays of floats (or Fractions) have a
    gradient; integers, such as labels, and arguments that are not arrays are passed on as they
    are. If the result is not one number, the gradients are those of
    ``(cotangent * f(*arrays)).sum()``; ``cotangent`` has the result's shape. f may call what is in
    ``refnet.exact.surface``; anything else raises TypeError. Its numbers, such as 0.1, are taken
    at their binary values.

    Kinks: an entry that ties for a maximum, ``abs`` at 0 and the like are refused where the
    gradient depends on the choice; ``refnet.exact.stop`` takes a factor out of the gradient. A
    part that is not finite is refused even where np.where leaves it out, as its derivative is not.

    ``kind``, ``radius``, ``max_bits``, ``max_seconds``, ``progress`` and the errors they lead to
    as in ``certify``; the precision grows by factors of 4, as a gradient that is exactly 0 is
    decided only at 2048 bits. ``check=False`` leaves out the self-check (see the module), which
    raises ArithmeticError: for a function whose gradient is meant to be another than that of
    its value, by ``stop``, or at a kink, such as that of ``np.where(x > 0, x, 0)`` at 0.

    >>> def f(x, w):
    ...     return np.tanh(x @ w).sum()
    >>> certified = certify_function(f, np.ones((2, 3)), np.zeros((3, 1)))
    >>> certified.gradients["w"].value.T.tolist(), certified.gradients["x"].value.any()
    ([[2.0, 2.0, 2.0]], np.False_)

    Checked by: tests/test_functions.py.
    """
    started = perf_counter()
    if not callable(f):
        raise TypeError(f"certify_function: f is {type(f).__name__}; need a function written in "
                        "NumPy")
    whole("certify_function: bits", bits)
    whole("certify_function: max_bits", max_bits)
    number("certify_function: max_seconds", max_seconds, "(0, inf]")
    number("certify_function: radius", 1 if radius is None else radius, "(0, inf)")
    choice("certify_function: kind", kind or "ball", ("ball", "rational"))
    given = {name: _copied(one) for name, one in arguments_of(f, arrays).items()}
    if cotangent is not None:
        cotangent = np.asarray(cotangent)
    own = [one for one in given.values() if _differentiated(one)]
    if not own:
        raise TypeError("certify_function: no argument is an array of floats, so there is no "
                        "gradient; pass integers as floats, x.astype(float)")
    if kind is None:
        kind = "rational" if any(one.dtype == object for one in own) else "ball"
    constants: set[float] = set()

    def run() -> Params:
        found = _run(f, given, cotangent, lambda array, name: _noted(array, name, kind, constants))
        kind_of(*found.values())  # refuses a float, which no proof would cover
        return found

    if kind == "ball":
        named, bits = search(run, "certify_function", bits, 4, radius, max_bits, max_seconds,
                             progress)
    else:
        named, bits = {name: Enclosure(value, rounded(value), np.zeros(value.shape))
                       for name, value in run().items()}, 0
    if check:
        _self_check(f, given, cotangent, named, bits)
    value = named.pop("value")
    return CertifiedFunction(f, given, cotangent, value, {
        name[1:]: one for name, one in named.items()}, tuple(sorted(constants)), kind, bits,
        perf_counter() - started)


def _noted(array: Array, name: str, kind: str, constants: set[float]) -> Array:
    if not name and np.asarray(array).dtype.kind == "f":
        with np.errstate(over="ignore"):
            constants.update(float(c) for c in np.ravel(array) if np.float32(c) != c)
    return lift(array, kind, name or "a constant")


def _differentiated(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "fO"


def arguments_of(f: Callable[..., Any], arrays: tuple[Any, ...]) -> dict[str, Any]:
    """The arguments by the names that ``f`` has for them, else x0, x1, ..."""
    try:
        names = [name for name, one in signature(f).parameters.items() if one.kind in
                 (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)]
    except (TypeError, ValueError):
        names = []
    for n in range(len(names), len(arrays)):
        names.append(next(name for k in count(n) if (name := f"x{k}") not in names))
    return {name: np.asarray(one) if isinstance(one, (np.generic, float)) else one
            for name, one in zip(names, arrays)}


def _called(f: Callable[..., Any], arguments: list[Any]) -> Recorded:
    try:
        y = f(*arguments)
    except ValueError as error:  # NumPy's, around the refusal of a recorded array
        raise error.__cause__ if isinstance(error.__cause__, TypeError) else error
    if not isinstance(y, Recorded):
        raise TypeError(f"certify_function: f gave {type(y).__name__}, no array that depends on "
                        "its arguments; it has to return one array computed from them in NumPy")
    return y


def _recorded(arguments: dict[str, Any], lifted: Lift) -> dict[str, Any]:
    return {name: Recorded(Node(lifted(one, name), name, live=True), lifted)
            if _differentiated(one) else _copied(one) for name, one in arguments.items()}


def _copied(value: Any) -> Any:
    """What f may assign to, for one run of it."""
    if isinstance(value, dict):
        return {key: _copied(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_copied(one) for one in value]
    return value.copy() if isinstance(value, (np.ndarray, set)) else value


def _run(f: Callable[..., Any], arguments: dict[str, Any], cotangent: Array | None, lifted: Lift
         ) -> Params:
    own = _recorded(arguments, lifted)
    nodes = {name: one.node for name, one in own.items() if isinstance(one, Recorded)}
    y = _called(f, list(own.values())).node
    if cotangent is None and y.raw.ndim:
        raise ValueError(f"certify_function: f gives an array of shape {y.raw.shape}; pass "
                         "cotangent, an array of that shape, or return one number")
    if cotangent is not None and cotangent.shape != y.raw.shape:
        raise ValueError(f"certify_function: cotangent has shape {cotangent.shape}; need "
                         f"{y.raw.shape}, the shape of f's result")
    seed = lifted(np.ones(()) if cotangent is None else cotangent, "cotangent")
    found = gradients(y, seed, list(nodes.values()), lifted)
    return {"value": y.raw, **{f"d{name}": g for name, g in zip(nodes, found)}}


def _self_check(f: Callable[..., Any], arguments: dict[str, Any], cotangent: Array | None,
                named: dict[str, Enclosure], bits: int) -> None:
    """ArithmeticError where the gradients are not what a central difference gives along a random
    direction, or the value not near NumPy's own."""
    from refnet.exact import balls
    rng = np.random.default_rng(0)
    remedy = ("f has a kink or a jump exactly here, stop() changes its gradient, or the "
              "certificate is wrong; check=False leaves out this check")

    def lifted(array: Array, name: str) -> Array:
        return lift(array, "ball", name or "a constant")

    with balls.precision(max(CHECK_BITS, 3 * bits)):
        step = balls.arb((1, -max(CHECK_BITS, 3 * bits) // 3))
        way = {name[1:]: lifted(rng.normal(size=one.value.shape), name)
               for name, one in named.items() if name != "value"}
        weight = lifted(np.ones(()) if cotangent is None else cotangent, "cotangent")
        ends = []
        for side in (1, -1):
            own = {name: Recorded(Node(lifted(one, name) + side * step * way[name], name), lifted)
                   if name in way else _copied(one) for name, one in arguments.items()}
            ends.append(np.sum(_called(f, list(own.values())).raw * weight))
        slope = (ends[0] - ends[1]) / (2 * step)
        parts = [lift(named[f"d{name}"].exact, "ball") * one for name, one in way.items()]
        total = sum((np.sum(part) for part in parts), balls.arb(0))
        size = abs(slope) + sum((np.sum(abs(part)) for part in parts), balls.arb(0))
        if abs(slope - total) > AGREE * size:
            raise ArithmeticError(
                f"certify_function: along a random direction the gradient gives {total.str(12)}, "
                f"a central difference {slope.str(12)}; {remedy}")
    with np.errstate(all="ignore"):
        plain = np.asarray(f(*(np.array(one, float) if _differentiated(one) else _copied(one)
                               for one in arguments.values())), float)
    value = named["value"].value
    size = max([1.0, *(float(np.abs(np.asarray(one, float)).max(initial=0))
                       for one in (value, *arguments.values()) if isinstance(one, np.ndarray))])
    far = abs(plain - value).max(initial=0) if plain.shape == value.shape else np.inf
    if far > np.finfo(float).eps**0.5 * size:  # half the digits: f itself may cancel
        raise ArithmeticError(f"certify_function: on NumPy's own arrays f is off by {far:.3g} from "
                              f"the certified value; {remedy}")
