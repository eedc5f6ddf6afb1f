"""The precision of a computation on balls: doubled until every entry of its results is decided.

Checked by: tests/exact/test_certify.py, tests/exact/test_two_processes.py.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import TypedDict

import numpy as np

from refnet.batch import Array, Params
from refnet.common.arguments import count, optional, real
from refnet.exact.convert import rounded
from refnet.exact.parts import Clock, Progress, side_by_side


@dataclass(frozen=True)
class Enclosure:
    """One quantity: ``exact``, arb or fmpq that provably hold the true value; ``value``, the
    float64 nearest to the true value (of one that lies halfway between two, within 2^-64 of
    their distance, the even one); ``radius``, a float64 upper bound on the balls' radii (0 for
    rationals). All three of one shape.

    Checked by: tests/exact/test_enclosures.py::test_balls_contain_mpmath,
    tests/exact/test_certify.py::test_a_value_between_two_floats_is_rounded_to_the_even_one.
    """

    exact: Array
    value: Array
    radius: Array


Enclosures = dict[str, Enclosure]
"""Quantities by their names."""


def float_values(quantities: Enclosures) -> Params:
    """The float64 values alone, by the same names."""
    return {name: quantity.value for name, quantity in quantities.items()}


LARGE = 50_000
"""The numbers from which on they are rounded in halves."""
SUMS = 256
"""The precision that sums over all steps and sequences start at."""
MAX_BITS, MAX_SECONDS = 65536, 600.0


class Limits(TypedDict, total=False):
    """How far a certificate goes: until no ball's radius is above ``radius`` (None: until each
    rounds to one float64), from ``bits`` to ``max_bits`` of precision, for ``max_seconds``."""

    radius: float | None
    bits: int | None
    max_bits: int
    max_seconds: float


LIMITS = {
    "radius": optional(real("(0, inf)")),
    "bits": optional(count()),
    "max_bits": count(),
    "max_seconds": real("[0, inf]"),
}


def admit_limits(name: str, limits: Limits) -> None:
    """Raise TypeError or ValueError, in the name of ``name``, for a limit that is unknown or out of
    range."""
    for key, value in limits.items():
        if key not in LIMITS:
            raise TypeError(f"{name} has no argument {key}; its limits are {', '.join(LIMITS)}")
        LIMITS[key].check(f"{name}: {key}", value)


def exactly(results: Params) -> Enclosures:
    """Enclosures of rationals."""
    return {
        name: Enclosure(value, rounded(value), np.zeros(value.shape))
        for name, value in results.items()
    }


def search(
    run: Callable[[], Params], name: str, limits: Limits, growth: int, progress: Progress | None
) -> tuple[Enclosures, int]:
    """What ``run`` gives on balls, at ``growth`` times the precision until all of it is decided,
    and the bits that it took; the limits and errors are those of ``certify``, or of ``name``.
    """
    from refnet.exact import balls

    radius, max_bits = limits.get("radius"), limits["max_bits"]
    max_seconds = limits.get("max_seconds", MAX_SECONDS)
    started, bits, sums, doubt = perf_counter(), min(limits["bits"] or 1, max_bits), SUMS, None
    while True:
        before = doubt
        with (
            balls.precision(bits, sums if bits < max_bits else 0),
            _clock(name, started, max_seconds, bits, progress),
        ):
            try:
                results = run()
                with balls.precision(bits):
                    named, doubt = _enclosures(results, radius)
            except (ArithmeticError, np.linalg.LinAlgError) as error:
                doubt = str(error)
        if doubt is None:
            return named, bits
        if bits == max_bits:
            if doubt == before:
                raise ArithmeticError(
                    f"{name}: {doubt}, at {bits} bits as at fewer: more will not help. If there is "
                    "a kink exactly there, such as abs at 0 or a tie for a maximum, "
                    "certify or certify_function with kind='rational' names it, if all of it is "
                    "rational"
                )
            raise ArithmeticError(
                f"{name}: {doubt}, at {bits} bits; raise max_bits = {max_bits}, "
                "or use kind='rational' if all of it is rational"
            )
        bits, sums = min(growth * bits, max_bits), growth * sums


def _decided(every: Array) -> Params:
    from refnet.exact import balls

    return {"all": np.stack(balls.decided(every))}


def _enclosures(results: Params, radius: float | None) -> tuple[Enclosures, str | None]:
    """The enclosures, and what is wrong with the first entry that is not decided."""
    every = np.concatenate([value.ravel() for value in results.values()])
    left, right = np.array_split(every, 2)
    parts = (
        (_decided(every),)
        if every.size < LARGE
        else side_by_side(partial(_decided, left), partial(_decided, right))
    )
    rounded_entries, known, radii = np.concatenate([part["all"] for part in parts], axis=1)
    undecided = np.flatnonzero(known == 0 if radius is None else ~(radii <= radius))
    named, first = {}, 0
    doubt = None
    for name, value in results.items():
        part = slice(first, first + value.size)
        named[name] = Enclosure(
            value, *(numbers[part].reshape(value.shape) for numbers in (rounded_entries, radii))
        )
        if len(undecided) and first <= undecided[0] < part.stop:
            doubt = _undecided(name, value, int(undecided[0]) - first, radius)
        first = part.stop
    return named, doubt


def _undecided(name: str, value: Array, place: int, radius: float | None) -> str:
    """What is wrong with the entry of a quantity at that flat place."""
    from refnet.exact import balls

    index = [int(i) for i in np.unravel_index(place, value.shape)]
    goal = "to round to one float64" if radius is None else f"below {radius:g}"
    ball = balls.arb(value[tuple(index)])
    middle, radius_text = ball.mid().str(20, radius=False), ball.rad().str(3, radius=False)
    return f"{name}{index} = {middle} +/- {radius_text} is not narrow enough {goal}"


def _clock(
    name: str, started: float, max_seconds: float, bits: int, progress: Progress | None
) -> AbstractContextManager[None]:
    """Watch the time at every matrix product of the balls."""
    from refnet.exact import balls

    clock = Clock(bits, progress, started)

    def tick(products: int) -> None:
        clock.tick(products)
        passed = perf_counter() - started
        if passed > max_seconds:
            raise TimeoutError(
                f"{name}: {passed:.0f} s passed, more than max_seconds = "
                f"{max_seconds:g}, after {clock.done.sum()} matrix products at "
                f"{bits} bits; raise it, or shorten the sequences"
            )

    return balls.on_product(tick)
