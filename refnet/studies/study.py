"""What a study is."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import NamedTuple

from refnet.runs.read import Record
from refnet.runs.rows import Canvas
from refnet.studies.jobs import Job
from refnet.training.papers import PROTOCOLS

__all__ = [
    "Measurement",
    "Published",
    "RowOf",
    "Study",
    "only",
    "View",
    "protocols",
    "spread",
    "under",
    "unknown",
]

RowOf = Callable[[Job], Record | None]
"""The row of a job, or None while it is not done."""


def unknown(job: Job) -> None:
    """No job is done."""


@dataclass(frozen=True)
class View:
    """What is asked of a study: ``row_of``, the row of each job that is done; the ``seeds`` of a
    cell; and, ``quick``, a small version of one or two minutes."""

    row_of: RowOf = unknown
    seeds: int = 1
    quick: bool = False

    def rows(self, jobs: Iterable[Job]) -> list[Record]:
        """The rows of those jobs that are done."""
        return [row for job in jobs if (row := self.row_of(job)) is not None]


@dataclass(frozen=True)
class Measurement:
    """Runs of a ``function``, one of each case and seed: ``cases``, its arguments by what the run
    is called; ``quick``: those that a small version has instead."""

    function: Callable[..., Record]
    cases: Mapping[str, Record]
    quick: Record = field(default_factory=dict)

    def job(self, case: str, seed: int, quick: bool) -> Job:
        """The run of one seed."""
        name = f"{self.function.__module__}:{self.function.__name__}"
        arguments = {**self.cases[case], **(self.quick if quick else {}), "seed": seed}
        return Job(f"{case}, seed {seed}", function=name, arguments=arguments)

    def jobs(self, view: View) -> list[Job]:
        """All runs."""
        return [self.job(case, n, view.quick) for n in range(view.seeds) for case in self.cases]

    def rows(self, view: View) -> dict[str, list[Record]]:
        """The rows of the runs that are done, by case."""
        return {
            case: view.rows(self.job(case, n, view.quick) for n in range(view.seeds))
            for case in self.cases
        }


class Published(NamedTuple):
    """A printed number and the runs of one study: ``place``, the paper's table; ``what`` stands
    there; ``values``, of the seeds that have ended; ``within``, how near is reproduced; ``higher``,
    whether that is better; ``form``, a format; ``cause``, where a distance is explained; ``ours``,
    what is shown if not the values' mean and extremes."""

    place: str
    what: str
    printed: float
    values: tuple[float, ...]
    study: str
    within: float
    higher: bool = True
    form: str = ".2f"
    cause: str = ""
    ours: str = ""

    @property
    def ahead(self) -> float:
        """By how much our mean is better."""
        distance = fmean(self.values) - self.printed
        return distance if self.higher else -distance


def no_numbers(view: View) -> list[Published]:
    """Of a figure no numbers are printed."""
    return []


@dataclass(frozen=True)
class Study:
    """A published table or figure, and the runs that make it again.

    ``jobs(view)``: the runs that are wanted, given those that are done; a ladder of lengths wants
    the next rung only when the last one is solved. ``table(view)``: Markdown, our numbers beside
    the printed ones. ``figure(view)``: a Matplotlib figure, if the study has one, or None while it
    has nothing to draw.
    ``published(view)``: the paper's numbers with those of the study's runs.
    ``part``: text that the names of its runs contain. ``open_ended``: a run that solves its task
    makes a further one wanted.
    ``search``: the study that searches this one's printed parameters again, in the same folder.
    ``switched(protocol)``: the same study under another protocol of the same authors.
    ``paces``: the seconds of an iteration by ``refnet.studies.costs.kind``, as measured on this
    machine, to estimate the time of runs like which none has been made.
    """

    name: str
    title: str
    jobs: Callable[[View], list[Job]]
    table: Callable[[View], str]
    figure: Callable[[View], Canvas] | None = None
    published: Callable[[View], list[Published]] = no_numbers
    part: str = ""
    open_ended: bool = False
    search: "Study | None" = None
    switched: "Callable[[str], Study] | None" = None
    paces: Mapping[str, float] = field(default_factory=dict)


def protocols(study: Study, quick: bool = False) -> list[str]:
    """The protocols that the study's runs follow, that of the first run first."""
    configs = [job.config for job in study.jobs(View(quick=quick))]
    return list(dict.fromkeys(config.protocol for config in configs if config is not None))


def under(study: Study, protocol: str) -> Study:
    """The study under another protocol of the same authors, with a folder of its own. Raises
    ValueError if there is none of that name."""
    followed = protocols(study)
    if study.switched is None:
        known = followed if len(followed) == 1 else []
    else:
        authors = followed[0].partition("/")[0]
        known = [name for name in PROTOCOLS if name.partition("/")[0] == authors]
    if protocol not in known:
        raise ValueError(
            f"--protocol {protocol}: study {study.name} can follow "
            + (" or ".join(known) or ", ".join(["none but its runs' own", *followed]))
        )
    return study if protocol == followed[0] or study.switched is None else study.switched(protocol)


def only(study: Study, text: str) -> Study:
    """The study with only the runs whose names contain the text; its table has all rows."""

    def jobs(view: View) -> list[Job]:
        return [job for job in study.jobs(view) if text in job.name]

    return replace(study, part=text, jobs=jobs)


def spread(values: list[float], form: str = ".2f", of: int = 0) -> str:
    """Mean, and the extremes if there are several; "not run" if there are none. ``of``: the number
    of seeds that were run, if not all have a value."""
    if not values:
        return "not run"
    mean = f"{sum(values) / len(values):{form}}"
    between = f"{min(values):{form}} to {max(values):{form}}, " * (len(values) > 1)
    if len(values) < of:
        return f"{mean} ({between}{len(values)} of {of} seeds)"
    return f"{mean} ({between}" + ("one seed)" if len(values) == 1 else f"{len(values)} seeds)")
