"""Learning-rate schedules: the factor of the rates at every step.

Checked by: tests/training/test_schedules.py.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import cos, inf, pi
from typing import ClassVar

from refnet.common.arguments import check_fields, count, real


@dataclass(frozen=True)
class Schedule:
    """The rate as it is; and what all schedules have, the factor after so many steps and after the
    evaluations so far."""

    RULES: ClassVar = {
        "every": count(),
        "steps": count(),
        "patience": count(),
        "by": real("(0, 1]"),
        "least": real("[0, 1]"),
    }

    def __post_init__(self) -> None:
        rules = {name: self.RULES[name] for name in vars(self)}
        check_fields(f"schedule {type(self).__name__.lower()}", self, rules)

    def at(self, step: int) -> float:
        """The factor at a step, counted from 0."""
        return 1.0

    def after(self, scores: Sequence[float]) -> float:
        """The factor after evaluations of these scores, of which larger ones are better."""
        return 1.0


@dataclass(frozen=True)
class Step(Schedule):
    """``by^(n // every)`` at step n."""

    every: int = 1000
    by: float = 0.1

    def at(self, step: int) -> float:
        return float(self.by ** (step // self.every))


@dataclass(frozen=True)
class Cosine(Schedule):
    """``least + (1 - least) (1 + cos(pi n / steps)) / 2`` at step n, and ``least`` after ``steps``.

    A run's limit may be raised when it is resumed, so ``steps`` is a number of its own.
    Source: Loshchilov & Hutter (2017), eq. 5, without restarts.
    """

    steps: int = 10_000
    least: float = 0.0

    def at(self, step: int) -> float:
        return self.least + (1 - self.least) * (1 + cos(pi * min(step / self.steps, 1))) / 2


@dataclass(frozen=True)
class Plateau(Schedule):
    """Times ``by``, down to ``least``, whenever ``patience`` evaluations in a row have not been
    better than the best before them."""

    patience: int = 5
    by: float = 0.5
    least: float = 0.0

    def after(self, scores: Sequence[float]) -> float:
        best, waited, value = -inf, 0, 1.0
        for score in scores:
            best, waited = (score, 0) if score > best else (best, waited + 1)
            if waited == self.patience:
                value, waited = value * self.by, 0
        return max(value, self.least)


SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "constant": Schedule,
    "step": Step,
    "cosine": Cosine,
    "plateau": Plateau,
}


def factor(schedule: Schedule, warmup: int, step: int) -> float:
    """The factor at a step, counted from 0: ``(step + 1) / warmup`` in the warm-up, and then what
    the schedule says, whose steps begin after it.

    >>> [factor(Step(every=2), warmup=2, step=n) for n in range(6)]
    [0.5, 1.0, 1.0, 1.0, 0.1, 0.1]
    """
    return (step + 1) / warmup if step < warmup else schedule.at(step - warmup)
