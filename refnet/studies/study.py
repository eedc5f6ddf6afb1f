"""What a study is."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from refnet.studies.jobs import Job
from refnet.training.protocols import PROTOCOLS

__all__ = ["Found", "Study", "only", "protocols", "spread", "under"]

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
    ``part``: text that the names of its runs contain. ``open_ended``: a run that solves its task
    makes a further one wanted.
    ``search``: the study that searches this one's printed parameters again, in the same folder.
    ``switched(protocol)``: the same study under another protocol of the same authors.
    """

    name: str
    title: str
    jobs: Callable[[Found, int, bool], list[Job]]
    table: Callable[[Found, int, bool], str]
    figure: Callable[[Found, int, bool], Any] | None = None
    part: str = ""
    open_ended: bool = False
    search: "Study | None" = None
    switched: "Callable[[str], Study] | None" = None


def protocols(study: Study, quick: bool = False) -> list[str]:
    """The protocols that the study's runs follow, that of the first run first."""
    return list(
        dict.fromkeys(
            job.config.protocol
            for job in study.jobs(lambda job: None, 1, quick)
            if job.config is not None
        )
    )


def under(study: Study, protocol: str) -> Study:
    """The study under another protocol of the same authors, with a folder of its own. Raises
    ValueError if there is none of that name."""
    own = protocols(study)
    if study.switched is None:
        known = own if len(own) == 1 else []
    else:
        known = [name for name in PROTOCOLS if name.partition("/")[0] == own[0].partition("/")[0]]
    if protocol not in known:
        raise ValueError(
            f"--protocol {protocol}: study {study.name} can follow "
            + (" or ".join(known) or ", ".join(["none but its runs' own", *own]))
        )
    return study if protocol == own[0] or study.switched is None else study.switched(protocol)


def only(study: Study, text: str) -> Study:
    """The study with only the runs whose names contain the text; its table has all rows."""
    return replace(
        study,
        part=text,
        jobs=lambda found, seeds, quick: [
            job for job in study.jobs(found, seeds, quick) if text in job.name
        ],
    )


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
