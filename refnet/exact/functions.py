"""Certified gradients of any function written in NumPy.

The function runs on recorded arrays (refnet.exact.recorder) of balls; precision is raised as for
nets until every number is decided. Each certificate is then checked in other ways
(refnet.exact.selfcheck).

Checked by: tests/exact/test_certify_function.py.
"""

from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from refnet.arguments import array, choice, number, whole
from refnet.batch import Array, Params
from refnet.exact.convert import lift
from refnet.exact.enclose import Enclosure, Enclosures, Lift, Progress, exactly, search
from refnet.exact.running import Arguments, Function, arguments_of, copied, differentiated, run_on
from refnet.exact.selfcheck import check_differences, check_plain
from refnet.maths.kinds import kind as kind_of
from refnet.process import serial_blas

__all__ = ["CertifiedFunction", "certify_function"]


@dataclass(frozen=True, eq=False)
class CertifiedFunction:
    """What ``certify_function`` proved about a function at its arguments.

    ``value`` and ``gradients``, by the argument's name. ``params``: the arguments that have one;
    ``constants``: the numbers that the function holds and float32 does not, so that another
    program may hold others (``np.sqrt(32)`` is rounded before it is recorded). ``kind`` and
    ``bits`` as in ``Certified``.

    Checked by: tests/exact/test_certify_function.py::test_a_net_as_a_function,
    ::test_cotangents_labels_and_constants.
    """

    function: Function
    arguments: Arguments
    cotangent: Array | None
    value: Enclosure
    gradients: Enclosures
    constants: tuple[float, ...]
    kind: str
    bits: int
    seconds: float

    @property
    def params(self) -> Params:
        """The arguments that have a gradient."""
        return {name: self.arguments[name] for name in self.gradients}

    def named(self) -> Enclosures:
        """Value and gradients by one name: value, and each gradient as d + name."""
        return {"value": self.value, **{f"d{name}": g for name, g in self.gradients.items()}}

    def run(self, lifted: Lift) -> Params:
        """Value and gradients computed on the numbers that ``lifted`` makes."""
        return run_on(self.function, self.arguments, self.cotangent, lifted)


@serial_blas
def certify_function(
    f: Function,
    *arrays: Any,
    cotangent: Any = None,
    kind: str | None = None,
    radius: float | None = None,
    bits: int = 128,
    max_bits: int = 8192,
    max_seconds: float = 600,
    progress: Progress | None = None,
    check: bool = True,
) -> CertifiedFunction:
    """Value and gradients of ``f(*arrays)`` with proved enclosures.

    ``f`` is written in NumPy and returns one array. Floats and arrays of floats (or Fractions)
    have a gradient, and f gets them as float64, a copy in the array's order in memory; integers,
    such as labels, and all else are passed on as they are. If the result is not one number, the
    gradients are those of ``(cotangent * f(*arrays)).sum()``; ``cotangent`` has the result's
    shape. f may call what is in ``refnet.exact.surface``; anything else raises TypeError. Its
    numbers, such as 0.1, are taken at their binary values.

    Kinks: an entry that ties for a maximum, ``abs`` at 0 and the like are refused where the
    gradient depends on the choice; ``refnet.exact.stop`` takes a factor out of the gradient. A
    part that is not finite is refused even where np.where leaves it out, as its derivative is not.

    ``kind``, ``radius``, ``max_bits``, ``max_seconds``, ``progress`` and the errors they lead to
    as in ``certify``; the precision grows by factors of 4, as a gradient that is exactly 0 is
    decided only at 2048 bits. ``check=False`` leaves out the self-checks, which
    raise ArithmeticError: for a function whose gradient is meant to be another than that of
    its value, by ``stop``, or at a kink, such as that of ``np.where(x > 0, x, 0)`` at 0.

    >>> def f(x, w):
    ...     return np.tanh(x @ w).sum()
    >>> certified = certify_function(f, np.ones((2, 3)), np.zeros((3, 1)))
    >>> certified.gradients["w"].value.T.tolist(), certified.gradients["x"].value.any()
    ([[2.0, 2.0, 2.0]], np.False_)

    Checked by: tests/exact/test_certify_function.py.
    """
    started = perf_counter()
    if not callable(f):
        raise TypeError(
            f"certify_function: f is {type(f).__name__}; need a function written in NumPy"
        )
    whole("certify_function: bits", bits)
    whole("certify_function: max_bits", max_bits)
    number("certify_function: max_seconds", max_seconds, "(0, inf]")
    number("certify_function: radius", 1 if radius is None else radius, "(0, inf)")
    choice("certify_function: kind", kind or "ball", ("ball", "rational"))
    given = {name: copied(value) for name, value in arguments_of(f, arrays).items()}
    if cotangent is not None:
        cotangent = np.asarray(cotangent)
    kind = _admitted(given, kind)
    constants: set[float] = set()
    run = partial(_run, f, given, cotangent, partial(_noted, kind=kind, constants=constants))
    named, bits = (
        (exactly(run()), 0)
        if kind == "rational"
        else search(run, "certify_function", bits, 4, radius, max_bits, max_seconds, progress)
    )
    if check:
        check_differences(f, given, cotangent, named, bits)
        check_plain(f, given, named)
    value = named.pop("value")
    return CertifiedFunction(
        f,
        given,
        cotangent,
        value,
        {name[1:]: value for name, value in named.items()},
        tuple(sorted(constants)),
        kind,
        bits,
        perf_counter() - started,
    )


def _admitted(arguments: Arguments, kind: str | None) -> str:
    """The kind of number, by default that of the arguments; TypeError if none is an array of
    floats, ValueError for entries that are not finite."""
    differentiable = {name: value for name, value in arguments.items() if differentiated(value)}
    for name, value in differentiable.items():
        array(f"certify_function: {name}", value)
    if not differentiable:
        raise TypeError(
            "certify_function: no argument is an array of floats, so there is no "
            "gradient; pass numbers as such an array, np.asarray(x, float)"
        )
    rational = any(value.dtype == object for value in differentiable.values())
    return kind or ("rational" if rational else "ball")


def _run(f: Function, arguments: Arguments, cotangent: Array | None, lifted: Lift) -> Params:
    results = run_on(f, arguments, cotangent, lifted)
    kind_of(*results.values())  # refuses a float, which no proof would cover
    return results


def _noted(array: Array, name: str, kind: str, constants: set[float]) -> Array:
    if not name and np.asarray(array).dtype.kind == "f":
        with np.errstate(over="ignore"):
            constants.update(float(c) for c in np.ravel(array) if np.float32(c) != c)
    return lift(array, kind, name or "a constant")
