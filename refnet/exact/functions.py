"""Certified gradients of any function written in NumPy.

The function runs on recorded arrays (refnet.exact.recorder) of balls; precision is raised as for
nets until every number is decided. Each certificate is then checked in other ways
(refnet.exact.selfcheck).

Checked by: tests/exact/test_certify_function.py.
"""

from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike

from refnet.batch import Array, Params
from refnet.common.arguments import array, choice
from refnet.common.process import serial_blas
from refnet.exact.condition import condition
from refnet.exact.convert import Lift, lift
from refnet.exact.enclose import Progress
from refnet.exact.precision import Enclosure, Enclosures, Limits, admit_limits, exactly, search
from refnet.exact.running import (
    Arguments,
    Function,
    Runs,
    Value,
    arguments_of,
    copied,
    leaves,
    run_on,
)
from refnet.exact.selfcheck import check_differences, check_plain
from refnet.maths.kinds import kind as kind_of


@dataclass(frozen=True, eq=False)
class CertifiedFunction:
    """What ``certify_function`` proved about a function at its arguments.

    ``value`` and ``gradients``, by the argument's name, of a nested one ``p.W`` or ``layers.0.W``;
    of complex ones they are complex, ``exact`` of acb. ``params``: the arguments that have a
    gradient; ``constants``: the numbers that the function holds and float32 does not, so that
    another program may hold others (``np.sqrt(32)`` is rounded before it is recorded). ``kind``
    and ``bits`` as in ``Certified``.

    Checked by: tests/exact/test_certify_function.py::test_a_net_as_a_function,
    ::test_cotangents_labels_and_constants, tests/exact/test_complex.py.
    """

    function: Runs
    arguments: Arguments
    cotangent: Array | None
    quantities: Enclosures
    constants: tuple[float, ...]
    kind: str
    bits: int
    seconds: float

    @property
    def params(self) -> Params:
        """The arguments that have a gradient, by the names of their arrays."""
        return leaves(self.arguments)

    @property
    def value(self) -> Enclosure:
        """What f gives."""
        weight = np.ndim(self.cotangent) if self.cotangent is not None else 0
        value = self.quantities["value"]
        return _complex(value) if value.value.ndim > weight else value

    @property
    def gradients(self) -> Enclosures:
        """The gradients by the names of ``params``."""
        return {
            name: _complex(gradient) if array.dtype.kind == "c" else gradient
            for name, array in self.params.items()
            for gradient in [self.quantities[f"d{name}"]]
        }

    def named(self) -> Enclosures:
        """Value and gradients by one name: value, and each gradient as d + name; of complex ones
        the two parts, along a last axis."""
        return self.quantities

    def run(self, lifted: Lift) -> Params:
        """Value and gradients computed on the numbers that ``lifted`` makes."""
        return run_on(self.function, self.arguments, self.cotangent, lifted)

    def condition(self, ulp: float = 2.0**-52, inputs: tuple[str, ...] = ()) -> Params:
        """How far one ulp in the arguments moves every entry, by the names of ``named``: see
        ``refnet.exact.condition``. ``inputs``: the names of arguments; all if it is empty."""
        return condition(self.run, inputs or tuple(self.params), ulp)


def _complex(parts: Enclosure) -> Enclosure:
    """The enclosure of complex numbers from that of their parts."""
    from refnet.exact.library import flint

    real, imag = np.moveaxis(parts.exact, -1, 0)
    return Enclosure(
        np.asarray(np.frompyfunc(flint().acb, 2, 1)(real, imag), object),
        parts.value[..., 0] + 1j * parts.value[..., 1],
        np.hypot(parts.radius[..., 0], parts.radius[..., 1]) * (1 + 2**-50),
    )


@serial_blas
def certify_function(
    f: Function,
    *arrays: Value,
    cotangent: ArrayLike | None = None,
    kind: str | None = None,
    progress: Progress | None = None,
    check: bool = True,
    **limits: Unpack[Limits],
) -> CertifiedFunction:
    """Value and gradients of ``f(*arrays)`` with proved enclosures.

    ``f`` is written in NumPy and returns one array. Floats, complex numbers and arrays of them (or
    of Fractions) have a gradient, also inside dicts, lists, tuples and NamedTuples, and f gets them
    as float64 or complex128, a copy in the array's order in memory; integers, such as labels, and
    all else are passed on as they are. If the result is not one real number, the gradients are
    those of ``(cotangent * f(*arrays)).sum()``, of complex numbers of the real part of that sum
    with the cotangent conjugated; ``cotangent`` has the result's shape. A complex gradient is
    ``dRe + i dIm``, as in PyTorch; JAX's is its conjugate. f may call what is in
    ``refnet.exact.surface``, ``refnet.exact.matrix`` and ``refnet.exact.interception``; anything
    else raises TypeError. Its numbers, such as 0.1, are taken at their binary values.

    ``h = np.zeros((T + 1, H)); h[t + 1] = ...`` works: if f needs it, np.zeros and the like, and
    functions of scipy and math, have stand-ins while f runs, in its thread alone.

    Kinks: an entry that ties for a maximum, ``abs`` at 0 and the like are refused where the
    gradient depends on the choice, and so are singular matrices, dependent columns and eigenvalues
    or singular values that are not apart; ``refnet.exact.stop`` takes a factor out of the gradient.
    A part that is not finite is refused even where np.where leaves it out, as its derivative is
    not.

    ``kind``, ``progress``, ``limits`` and the errors they lead to as in ``certify``; the precision
    starts at ``bits=128``, ends at ``max_bits=8192`` and grows by factors of 4, as a gradient that
    is exactly 0 is decided only at 2048 bits. ``check=False`` leaves out the self-checks, which
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
    admit_limits("certify_function", limits)
    choice("certify_function: kind", kind or "ball", ("ball", "rational"))
    given = {name: copied(value) for name, value in arguments_of(f, arrays).items()}
    if cotangent is not None:
        cotangent = np.asarray(cotangent)
    kind = _admitted(given, kind)
    constants: set[float] = set()
    runs = Runs(f)
    run = partial(_run, runs, given, cotangent, partial(_noted, kind=kind, constants=constants))
    named, bits = (
        (exactly(run()), 0)
        if kind == "rational"
        else search(run, "certify_function", {"bits": 128, "max_bits": 8192, **limits}, 4, progress)
    )
    if check:
        check_differences(runs, given, cotangent, named, bits)
        check_plain(runs, given, named)
    return CertifiedFunction(
        runs,
        given,
        cotangent,
        named,
        tuple(sorted(constants)),
        kind,
        bits,
        perf_counter() - started,
    )


def _admitted(arguments: Arguments, kind: str | None) -> str:
    """The kind of number, by default that of the arguments; TypeError if none is an array of
    floats, ValueError for entries that are not finite."""
    differentiable = leaves(arguments)
    for name, value in differentiable.items():
        array(f"certify_function: {name}", value, kinds="fiucO")
    if not differentiable:
        raise TypeError(
            "certify_function: no argument is an array of floats, so there is no "
            "gradient; pass numbers as such an array, np.asarray(x, float)"
        )
    rational = any(value.dtype == object for value in differentiable.values())
    return kind or ("rational" if rational else "ball")


def _run(f: Runs, arguments: Arguments, cotangent: Array | None, lifted: Lift) -> Params:
    results = run_on(f, arguments, cotangent, lifted)
    kind_of(*results.values())  # refuses a float, which no proof would cover
    return results


def _noted(array: Array, name: str, kind: str, constants: set[float]) -> Array:
    """The array lifted; ``constants`` gets f's own numbers that float32 does not hold."""
    if not name and np.asarray(array).dtype.kind == "f":
        with np.errstate(over="ignore"):
            constants.update(float(c) for c in np.ravel(array) if np.float32(c) != c)
    return lift(array, kind, name or "a constant")
