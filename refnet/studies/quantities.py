"""Quantities of a run's row, which findings compare.

Checked by: tests/studies/test_findings.py.
"""

from refnet.runs.read import Record
from refnet.studies.comparison import Quantity
from refnet.studies.grid import accuracy, last_accuracy

__all__ = [
    "BATCH",
    "below_radius_1",
    "best",
    "characters",
    "examples_until_learning",
    "final",
    "gain_after",
    "last_gain",
    "lost",
    "middle",
    "spectrum_end",
]

BATCH = 16
"""Examples of an iteration of MNIST pixel by pixel."""


def best(name: str, times: float = 1) -> Quantity:
    """A column at the run's best evaluation, by a factor."""
    return lambda row: times * row["best"][name] if name in row["best"] else None


def final(name: str) -> Quantity:
    """A column at the run's last evaluation."""
    return lambda row: row["final"].get(name)


def lost(row: Record) -> float | None:
    """By how many percentage points a run ends below its best accuracy, on the same set."""
    ends = [row[name].get("accuracy") for name in ("best", "final")]
    return None if None in ends else 100 * (ends[0] - ends[1])


def gain_after(row: Record, iteration: int) -> float:
    """By how many percentage points the best validation accuracy is above that of the evaluations
    up to the iteration."""
    curve = row["curve"]
    return float(
        100
        * (
            row["best"]["accuracy"]
            - max(
                value for value, at in zip(curve["accuracy"], curve["iteration"]) if at <= iteration
            )
        )
    )


def spectrum_end(row: Record, margin: float) -> float:
    """The largest singular value's distance from 1, in margins."""
    return float((row["final"]["s_max"] - 1) / margin)


def examples_until_learning(row: Record) -> float | None:
    """The examples at the first test with more than 11.4% of the answers right."""
    return next(
        (
            BATCH * at
            for at, value in zip(row["curve"]["iteration"], row["curve"]["accuracy"])
            if value > 0.114
        ),
        None,
    )


def last_gain(row: Record) -> float:
    """The percentage points that the last evaluation adds."""
    return float(100 * (row["curve"]["accuracy"][-1] - row["curve"]["accuracy"][-2]))


def middle(row: Record) -> float:
    """The mean of the best accuracy and that at the end."""
    return ((accuracy(row) or 0) + (last_accuracy(row) or 0)) / 2


def below_radius_1(row: Record) -> float | None:
    """The best accuracy of the evaluations at which the spectral radius is below 1, in percent."""
    return max(
        (
            100 * value
            for value, radius in zip(row["curve"]["accuracy"], row["curve"]["spectral_radius"])
            if radius < 1
        ),
        default=None,
    )


characters = best("test_accuracy_with_ends", 100)
"""The percentage of the characters right, ends of lines counted."""
