"""Dropout of the state, zoneout and noise inside the kernels: a factor or a number for each row and
unit, read where a step loads or stores its state. ``refnet.nets.noise`` has the equations.

Checked by: tests/nets/test_dropout.py::test_compiled_cells_match_the_reference,
tests/compiled/test_compiled.py::test_source_is_exact_on_fractions.
"""

from typing import NamedTuple

from refnet.compiled._jit import inner
from refnet.compiled.annotations import Arg
from refnet.compiled.vector import cut, number

__all__ = ["Noise", "mix_rows", "scale_rows"]


class Noise(NamedTuple):
    """Flat arrays, each empty where there is none of its kind: ``drop`` (B, H), m; ``shares``
    (T, states, B, H), k, where those of two steps lie ``apart`` (0 if all steps have the same);
    ``added`` (T, B, H), n."""

    drop: Arg
    shares: Arg
    apart: int
    added: Arg


@inner
def scale_rows(to: Arg, at: int, step: int, by: Arg, place: int, rows: int, count: int) -> None:
    """``to[at + r step + j] *= by[place + r count + j]`` for r < rows and j < count."""
    for r in range(rows):
        row, factors = cut(to, at + r * step, count), cut(by, place + r * count, count)
        for j in range(count):
            row[j] *= factors[j]


@inner
def mix_rows(
    new: Arg, step: int, old: Arg, at: int, shares: Arg, place: int, rows: int, count: int
) -> None:
    """``new = k old + (1 - k) new``, where the rows of new lie ``step`` apart."""
    for r in range(rows):
        row, before = cut(new, r * step, count), cut(old, at + r * count, count)
        k = cut(shares, place + r * count, count)
        for j in range(count):
            row[j] = k[j] * before[j] + (number(1.0, row[j]) - k[j]) * row[j]
