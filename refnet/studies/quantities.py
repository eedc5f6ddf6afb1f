"""Quantities of a run's row, which columns show and findings compare.

Checked by: tests/studies/test_findings.py.
"""

from collections.abc import Callable

from refnet.runs.read import Record

__all__ = ["BATCH", "QUANTITIES", "accuracy", "last_accuracy", "solved_at"]

BATCH = 16
"""Examples of an iteration of MNIST pixel by pixel."""


def accuracy(row: Record) -> float | None:
    """The best accuracy in percent: the test set's at the weights that the protocol selects."""
    best = row["best"]
    share = best.get("test_accuracy", best.get("accuracy"))
    return None if share is None else 100 * share


def last_accuracy(row: Record) -> float | None:
    """The accuracy at the end in percent; None before there is an evaluation."""
    return 100 * row["final"]["accuracy"] if row["final"] else None


def solved_at(row: Record) -> float | None:
    """Iterations until the task was solved."""
    return row["iterations"] if row["state"] == "solved" else None


def best(row: Record, name: str, times: float = 1) -> float | None:
    """A column at the run's best evaluation, by a factor."""
    return times * row["best"][name] if name in row["best"] else None


def final(row: Record, name: str) -> float | None:
    """A column at the run's last evaluation."""
    value: float | None = row["final"].get(name)
    return value


def errors(row: Record, criterion: str) -> float | None:
    """The wrong answers by a criterion when the task was solved; the least of a run that did not
    solve it."""
    numbers: Record = row["final"] if row["state"] == "solved" else row["best"]
    errors: float | None = numbers.get(f"errors_{criterion}")
    return errors


def lost(row: Record) -> float | None:
    """By how many percentage points a run ends below its best accuracy, on the same set."""
    ends = [row[name].get("accuracy") for name in ("best", "final")]
    return None if None in ends else 100 * (ends[0] - ends[1])


def gain_after(row: Record, iteration: int) -> float:
    """By how many percentage points the best validation accuracy is above that of the evaluations
    up to the iteration."""
    curve = zip(row["curve"]["accuracy"], row["curve"]["iteration"])
    before = max(value for value, at in curve if at <= iteration)
    return float(100 * (row["best"]["accuracy"] - before))


def spectrum_end(row: Record, margin: float) -> float:
    """The largest singular value's distance from 1, in margins."""
    return float((row["final"]["s_max"] - 1) / margin)


def examples_until_learning(row: Record) -> float | None:
    """The examples at the first test with more than 11.4% of the answers right."""
    curve = zip(row["curve"]["iteration"], row["curve"]["accuracy"])
    return next((BATCH * at for at, value in curve if value > 0.114), None)


def first_accuracy(row: Record) -> float:
    """The accuracy of the first evaluation in percent."""
    return float(100 * row["curve"]["accuracy"][0])


def last_gain(row: Record) -> float:
    """The percentage points that the last evaluation adds."""
    return float(100 * (row["curve"]["accuracy"][-1] - row["curve"]["accuracy"][-2]))


def middle(row: Record) -> float:
    """The mean of the best accuracy and that at the end."""
    return ((accuracy(row) or 0) + (last_accuracy(row) or 0)) / 2


def below_radius_1(row: Record) -> float | None:
    """The best accuracy of the evaluations at which the spectral radius is below 1, in percent."""
    curve = zip(row["curve"]["accuracy"], row["curve"]["spectral_radius"])
    return max((100 * value for value, radius in curve if radius < 1), default=None)


def length(row: float) -> float:
    """The longest length of a ladder, which stands for its rows."""
    return float(row)


def slowdown(row: Record) -> float:
    """The time of a step of geoSGD over that of SGD."""
    return float(row["geosgd"] / row["sgd"])


QUANTITIES: dict[str, Callable[..., float | None]] = {
    quantity.__name__: quantity
    for quantity in (
        accuracy,
        last_accuracy,
        solved_at,
        best,
        final,
        errors,
        lost,
        gain_after,
        spectrum_end,
        examples_until_learning,
        first_accuracy,
        last_gain,
        middle,
        below_radius_1,
        length,
        slowdown,
    )
}
