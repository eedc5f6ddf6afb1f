"""The rule by which a study says something of its runs, and findings that are built from it.

Checked by: tests/studies/test_findings.py.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import inf, log, sqrt
from statistics import fmean, variance
from typing import Any, NamedTuple

from scipy.special import stdtrit

from refnet.runs.read import Record

__all__ = [
    "ONE_RUN",
    "REPEATED",
    "RULES",
    "Claim",
    "Finding",
    "Of",
    "Quantity",
    "Rows",
    "Verdict",
    "ahead",
    "compare",
    "slower",
    "solved",
    "stated",
]

Rows = Mapping[str, Sequence[Any]]
"""The runs that have ended, one of each seed, by the label of their cell."""
Quantity = Callable[[Any], float | None]
"""A number that a run has, or None."""
REPEATED = 0.2
"""The standard deviation of log(iterations) among runs of the same settings and seed whose rounding
differs: .17 over those that two studies record with other numbers, and rounded up, because they are
few."""
ONE_RUN = "*One run.* "
"""What a sentence begins with that no second seed supports."""


class Verdict(IntEnum):
    """What the runs say of a claim; of several claims, the least."""

    NO = 0
    ONE_RUN = 1
    HOLDS = 2


def compare(
    more: Sequence[float] | float, less: Sequence[float] | float, by: float = 0, floor: float = 0
) -> Verdict:
    """Whether the mean of ``more`` is above that of ``less`` by more than ``by``, and would be if
    all these runs were made again.

    Each is a number per run, or a fixed number: a printed one, or a threshold. Means of n and m
    runs with the standard deviation s differ from those of as many new runs: the difference of
    the two differences has the variance 2 s^2 (1/n + 1/m), where a fixed number adds nothing. So
    the claim HOLDS if its difference is larger than that root times Student's t at .975, with the
    degrees of freedom of s, which is pooled over both: a repetition turns it round with a
    probability of at most 1 in 40 (a prediction interval: Hahn & Meeker, 1991, Statistical
    Intervals, chapter 4). t counts how badly three runs tell their own spread.

    A repetition of a seed on another processor moves a run as another seed does, so that s has
    both in it. Few runs can agree by chance: ``floor``, what is known of repetitions, is the least
    s. One run does not tell how far seeds differ: with s = ``floor`` it shows ONE_RUN at most, and
    the sentence says so.

    >>> compare([97.0, 96.9, 96.9], 96.0), compare([97.0, 96.9, 96.9], 96.8), compare([97.0], 96.0)
    (<Verdict.HOLDS: 2>, <Verdict.NO: 0>, <Verdict.ONE_RUN: 1>)

    Checked by: tests/studies/test_findings.py::test_the_rule_errs_as_seldom_as_it_says.
    """
    samples = [side for side in (more, less) if not isinstance(side, (int, float))]
    if not all(samples):
        return Verdict.NO
    means = [side if isinstance(side, (int, float)) else fmean(side) for side in (more, less)]
    difference = means[0] - means[1] - by
    alone = min(map(len, samples)) == 1
    freedom = inf if alone else sum(len(sample) - 1 for sample in samples)
    pooled = (
        0
        if alone
        else sqrt(sum((len(sample) - 1) * variance(sample) for sample in samples) / freedom)
    )
    needed = (
        stdtrit(freedom, 0.975)
        * max(pooled, floor)
        * sqrt(2 * sum(1 / len(sample) for sample in samples))
    )
    if not difference > needed:
        return Verdict.NO
    return Verdict.ONE_RUN if alone else Verdict.HOLDS


@dataclass(frozen=True)
class Of:
    """A figure of the runs of a cell. If one of them has diverged, or None for it, a claim of
    them fails."""

    figure: Quantity
    label: str


@dataclass(frozen=True)
class Claim:
    """That one side is above the other, as ``compare`` has it."""

    more: Of | float
    less: Of | float
    by: float = 0
    floor: float = 0

    def verdict(self, rows: Rows) -> Verdict:
        """What these rows say of it."""
        sides = [_values(side, rows) for side in (self.more, self.less)]
        return compare(sides[0], sides[1], self.by, self.floor)


def _values(side: Of | float, rows: Rows) -> list[float] | float:
    if not isinstance(side, Of):
        return side
    values = [
        None if isinstance(row, dict) and row.get("state") == "diverged" else side.figure(row)
        for row in rows.get(side.label, ())
    ]
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) else []


class Finding(NamedTuple):
    """A sentence, and what the rows must say to have it on the page. Without claims it is one on
    settings, true under every protocol."""

    name: str
    text: str
    claims: tuple[Claim, ...] = ()


def stated(findings: Iterable[Finding], rows: Rows) -> list[str]:
    """The sentences that the rows carry; ONE_RUN marks those of which they cannot say more."""
    verdicts = [
        (
            min((claim.verdict(rows) for claim in finding.claims), default=Verdict.HOLDS),
            finding.text,
        )
        for finding in findings
    ]
    return [ONE_RUN * (verdict is Verdict.ONE_RUN) + text for verdict, text in verdicts if verdict]


def _lasted(row: Record) -> float:
    """The logarithm of the iterations, for a run that did not solve its task a lower bound."""
    return log(row["iterations"])


def _took(row: Record) -> float | None:
    return _lasted(row) if row["state"] == "solved" else None


def solved(label: str, limit: int) -> Claim:
    """All runs solve their task within the limit of iterations."""
    return Claim(log(limit), Of(_took, label), floor=REPEATED)


def slower(slow: str, fast: str, times: float = 1) -> Claim:
    """Each of the one kind takes, or does not end within, so many times the iterations in which
    the other kind solves its task."""
    return Claim(Of(_lasted, slow), Of(_took, fast), log(times), REPEATED)


def above(figure: Quantity, label: str, least: float, floor: float = 0) -> Claim:
    """The figure is above a fixed number."""
    return Claim(Of(figure, label), least, floor=floor)


def below(figure: Quantity, label: str, most: float, floor: float = 0) -> Claim:
    """The figure is below a fixed number."""
    return Claim(most, Of(figure, label), floor=floor)


def between(figure: Quantity, label: str, least: float, most: float) -> tuple[Claim, Claim]:
    """The figure is between two fixed numbers."""
    return above(figure, label, least), below(figure, label, most)


def ahead(figure: Quantity, label: str, other: str, by: float) -> Claim:
    """The figure of a cell is above that of the other by more than ``by``."""
    return Claim(Of(figure, label), Of(figure, other), by)


def near(figure: Quantity, label: str, other: str, by: float) -> tuple[Claim, Claim]:
    """The figures of two cells are less than ``by`` apart."""
    return ahead(figure, label, other, -by), ahead(figure, other, label, -by)


def printed(
    figure: Quantity, label: str, number: float, least: float, most: float
) -> tuple[Claim, Claim]:
    """The figure is above the printed number by between ``least`` and ``most``."""
    return between(figure, label, number + least, number + most)


RULES: dict[str, Callable[..., Claim | tuple[Claim, Claim]]] = {
    rule.__name__: rule for rule in (above, below, between, ahead, near, printed, solved, slower)
}
