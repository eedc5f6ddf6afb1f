"""What a study is."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from refnet.studies.jobs import Job

__all__ = ["Found", "Study", "only", "spread"]

Found = Callable[[Job], dict[str, Any] | None]
"""The row of a job, or None while it is not done."""


@dataclass(frozen=True)
class Study:
    """A published table or figure, and the runs that make it again.

    ``jobs(found, seeds, quick)``: the runs that are wanted, given those that are done; a ladder
    of lengths wants the next rung only when the last one is solved. ``quick``: a small version,
    of one or two minutes. ``table(found, seeds, quick)``: Markdown, our numbers beside the
    printed ones. ``figure(found, seeds, quick)``: a Matplotlib figure, if the study has one, or
    None while it has nothing to draw.
    ``search``: the study that searches this one's printed parameters again, in the same folder.
    """

    name: str
    title: str
    jobs: Callable[[Found, int, bool], list[Job]]
    table: Callable[[Found, int, bool], str]
    figure: Callable[[Found, int, bool], Any] | None = None
    search: "Study | None" = None


def only(study: Study, text: str) -> Study:
    """The study with only the runs whose names contain the text; its table has all rows."""
    return replace(study, jobs=lambda found, seeds, quick: [
        job for job in study.jobs(found, seeds, quick) if text in job.name])


def spread(values: list[float], form: str = ".2f") -> str:
    """Mean, and the extremes if there are several; "not run" if there are none."""
    if not values:
        return "not run"
    mean = f"{sum(values) / len(values):{form}}"
    if len(values) == 1:
        return f"{mean} (one seed)"
    return f"{mean} ({min(values):{form}} to {max(values):{form}}, {len(values)} seeds)"
