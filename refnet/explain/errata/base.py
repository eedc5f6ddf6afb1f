"""What an erratum is, and how its check decides.

A check computes quantities, with refnet's own functions where they exist, and compares them with
the printed form and with the corrected form. The erratum is settled if the
printed form fails in every comparison in which it says something else, and the corrected form
holds in all.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from refnet.batch import Scalar


class AtMost(NamedTuple):
    """A form that gives an upper bound."""

    bound: Scalar


class AtLeast(NamedTuple):
    """A form that gives a lower bound."""

    bound: Scalar


def _holds(measured: Scalar, said: Scalar, tolerance: float) -> bool:
    if isinstance(said, AtMost):
        return bool(measured <= said.bound + tolerance)
    if isinstance(said, AtLeast):
        return bool(measured >= said.bound - tolerance)
    if np.shape(measured) != np.shape(said):
        return False
    return bool(np.max(abs(np.asarray(measured) - np.asarray(said)), initial=0) <= tolerance)


class Comparison(NamedTuple):
    """One quantity: what refnet ``measured`` and what the ``printed`` and the ``correct`` form say.

    A form gives a value, an ``AtMost`` or an ``AtLeast``; ``printed`` is None where it says
    nothing, or the same as the correct one. ``tolerance``: 0 for exact numbers, else the rounding
    or sampling error to allow.
    """

    what: str
    measured: Scalar
    printed: Scalar
    correct: Scalar
    tolerance: float = 0

    @property
    def correct_holds(self) -> bool:
        """Whether the measured quantity is what the corrected form says."""
        return _holds(self.measured, self.correct, self.tolerance)

    @property
    def printed_fails(self) -> bool:
        """Whether the measured quantity is not what the printed form says."""
        return self.printed is None or not _holds(self.measured, self.printed, self.tolerance)


Comparisons = Iterable[Comparison]
Check = Callable[[np.random.Generator], Comparisons]


@dataclass(frozen=True)
class Erratum:
    """One entry of the list.

    ``number``: the one by which docstrings and messages refer to it. ``source``, ``where``: the
    text and the place in it. ``printed``, ``correct``: the two forms. ``why``: the derivation, in
    a few lines. ``check``: None for errors of wording.
    """

    number: int
    source: str
    where: str
    printed: str
    correct: str
    why: str
    check: Check | None = None

    def comparisons(self, seed: int = 0) -> list[Comparison]:
        """The check's comparisons, random ones from ``seed``; none for wording."""
        return [*self.check(np.random.default_rng([seed, self.number]))] if self.check else []

    def settled(self, seed: int = 0) -> bool:
        """Whether the printed form fails and the corrected one holds."""
        return all(c.correct_holds and c.printed_fails for c in self.comparisons(seed))


def as_text(value: Scalar) -> str:
    """A quantity of a comparison in a few characters; matrices by rows."""
    if value is None:
        return "-"
    if isinstance(value, AtMost):
        return f"at most {as_text(value.bound)}"
    if isinstance(value, AtLeast):
        return f"at least {as_text(value.bound)}"
    if isinstance(value, np.ndarray):
        rows = value if value.ndim > 1 else value[None]
        return "; ".join(" ".join(as_text(entry) for entry in row) for row in rows)
    return f"{value:.6g}" if isinstance(value, (float, np.floating)) else str(value)
