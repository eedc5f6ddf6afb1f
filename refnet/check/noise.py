"""How far rounding alone may carry a gradient: the reference on randomly perturbed numbers
(``refnet.check.noisy``, with the model of every operation's error).

Checked by: tests/check/test_noise.py, tests/check/test_compare.py.
"""

from __future__ import annotations

from functools import partial
from math import log2
from typing import Protocol

import numpy as np

from refnet.batch import Array, Params
from refnet.check.arithmetic import Kind, arithmetic
from refnet.check.noisy import Source, Split, noisy, running, runs_of
from refnet.check.summation import power_of_two
from refnet.exact.convert import Lift
from refnet.exact.enclose import Certified
from refnet.exact.parts import Clock, Progress, side_by_side
from refnet.exact.precision import Enclosures

__all__ = ["RUNS", "Certificate", "spread", "unit"]


class Certificate(Protocol):
    """What is certified of a net, a function or a model: ``Certified``, ``CertifiedFunction``."""

    def named(self) -> Enclosures:
        """Every result by name."""

    def run(self, lifted: Lift) -> Params:
        """The results on the numbers that ``lifted`` makes."""


RUNS = 30
LARGE = 50_000
"""The number of entries in all quantities from which on the runs are done in two halves."""


def unit(dtype: Kind) -> float:
    """The unit roundoff u: half the distance from 1 to the next number of this arithmetic."""
    return arithmetic(dtype).u


def _lift(certified: Certificate, source: Source) -> Lift:
    if not isinstance(certified, Certified):
        return lambda array, name: noisy(array) if name else source.constant(array)
    # Parameters that only enter products and sums need no copy for every run. x and y do: without
    # a loss y is the cotangent of the outputs, and nothing else in what it enters is random. Nor is
    # anything in the sum of two biases, which a program may add one after the other.
    transformed = (
        certified.net.transition is not None
        or certified.penalty is not None
        or getattr(certified.net, "gain", 1) != 1
    )
    return lambda array, name: (
        noisy(array)
        if transformed or name in ("x", "y") or name.startswith(("bhh", "final "))
        else np.asarray(array, float)
    )


def _passes(
    certified: Certificate, dtype: Kind, seed: int, columns: Array, runs: int, clock: Clock
) -> Params:
    """Every quantity in the given runs, (R, *shape); runs that part at a kink go on alone."""
    source = Source(dtype, seed, columns, runs, clock.tick)
    try:
        with running(source), np.errstate(all="ignore"):
            quantities = certified.run(_lift(certified, source))
            return {
                name: np.moveaxis(runs_of(noisy(value)), -1, 0)
                for name, value in quantities.items()
            }
    except Split as split:
        left = split.left
    sides = [_passes(certified, dtype, seed, columns[side], runs, clock) for side in (left, ~left)]
    order = np.argsort(np.concatenate([columns[left], columns[~left]]))
    return {name: np.concatenate([side[name] for side in sides])[order] for name in sides[0]}


def _all_passes(certified: Certificate, dtype: Kind, runs: int, seed: int, clock: Clock) -> Params:
    """Every quantity in every run, (R, *shape). A long computation runs in two halves, side by side
    on two cores; its bits are those of one core."""
    passes = partial(_passes, certified, dtype, seed, runs=runs, clock=clock)
    every, half = np.arange(runs), runs // 2
    if sum(enclosure.value.size for enclosure in certified.named().values()) < LARGE:
        return passes(every)
    first, second = side_by_side(
        partial(passes, every[:half]), partial(passes, every[half:]), partial(clock.tick, 0)
    )
    return {name: np.concatenate([first[name], second[name]]) for name in first}


def spread(
    certified: Certificate,
    dtype: Kind,
    runs: int = RUNS,
    seed: int = 0,
    progress: Progress | None = None,
) -> Params:
    """The standard deviation that rounding in ``dtype`` explains, entry by entry.

    Keys and shapes are those of ``certified.named()``; float64. Deviations are taken from
    the certified value. An entry that is exactly zero in every run, and certified to be,
    has sigma 0: no rounding can change it. Any other has at least the smallest normal
    number of ``dtype``, which is what flushing it to zero may cost. Where a run overflows it is
    not finite. ``progress`` as in ``certify``, with the bits of ``dtype``.
    """
    clock = Clock(round(-log2(unit(dtype))), progress)
    passes = _all_passes(certified, dtype, runs, seed, clock)
    out = {}
    for name, enclosure in certified.named().items():
        with np.errstate(invalid="ignore"):  # runs that overflow have no deviation
            deviation = passes[name] - enclosure.value
            largest = power_of_two(abs(deviation).max(axis=0))
            sigma = largest * np.sqrt(((deviation / largest) ** 2).mean(axis=0))
        untouched = (sigma == 0) & (enclosure.value == 0) & (enclosure.radius == 0)
        out[name] = np.where(untouched, 0, np.maximum(sigma, arithmetic(dtype).tiny))
    return out
