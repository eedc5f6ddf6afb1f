"""The progress of a study's runs, and the time that they still need.

Checked by: tests/studies/test_pages.py.
"""

from collections.abc import Collection, Iterable, Mapping
from statistics import median

from refnet.runs.read import Record
from refnet.runs.rows import table
from refnet.studies.costs import kind
from refnet.studies.jobs import Job
from refnet.studies.store import Store
from refnet.studies.study import RowOf, Study, View
from refnet.studies.work import begun, shown

__all__ = ["jobs_of", "progress", "status"]


def jobs_of(study: Study, find: RowOf, seeds: int, quick: bool) -> dict[str, Job]:
    """All runs of the study, by key: those that are wanted, and those that a ladder has behind
    it."""
    climbed: dict[str, Job] = {}

    def row_of(job: Job) -> Record | None:
        row = find(job)
        if row is not None and study.part in job.name:
            climbed[job.key] = job
        return row

    wanted = study.jobs(View(row_of, seeds, quick))
    return climbed | {job.key: job for job in wanted}


Rows = Mapping[str, Record | None]
"""What is known of each run, by key: its row, or how far it is."""


class Times:
    """The seconds that runs still need, if none ends early by solving its task: by their own pace
    so far, or else that of the runs of their ``kind`` that have begun or ended, or else by
    ``measured``, the seconds of an iteration by kind."""

    def __init__(self, jobs: Iterable[Job], rows: Rows, measured: Mapping[str, float]) -> None:
        self.measured = measured
        self.paces: dict[str, list[float]] = {}
        for job in jobs:
            if (row := rows[job.key]) is not None and row.get("iterations", 1):
                pace = row.get("seconds", 0) / row.get("iterations", 1)
                self.paces.setdefault(kind(job), []).append(pace)

    def needed(self, job: Job, row: Record | None) -> float | None:
        """Of a run that has not ended; None if nothing like it was timed."""
        at, seconds = (row.get("iterations"), row.get("seconds")) if row else (0, 0)
        known = (
            [seconds / at]
            if at and seconds
            else self.paces.get(kind(job))
            or [self.measured[key] for key in [kind(job)] if key in self.measured]
        )
        if not known:
            return None
        return median(known) * ((job.config.iterations if job.config else 1) - (at or 0))


def status(
    study: Study, store: Store, seeds: int = 3, quick: bool = False, command: str = ""
) -> str:
    """A table of the study's runs: how far each is, and the time that it still needs, estimated
    from those that have begun or ended, or else from the study's ``paces``. ``command``: how to
    measure them."""
    find, marks = shown(store), store.repetition()
    jobs = list(jobs_of(study, find, seeds, quick).values())
    rows = {job.key: find(job) for job in jobs}
    times = Times(jobs, rows, study.paces)
    rows |= {job.key: begun(job, store, marks[job.key]) for job in jobs if job.key in marks}
    again = sum(map(bool, marks.values()))
    lines, left, unknown, short = [], 0.0, 0, 0
    for job in jobs:
        row = rows[job.key] or {
            "state": "to be made again" if marks.get(job.key) else "not run",
            "iterations": 0,
        }
        state, at, seconds = row.get("state", "done"), row.get("iterations"), row.get("seconds")
        needs: float | None = None
        if state in ("begun", "not run", "to be made again"):
            needs = times.needed(job, row)
            unknown += needs is None and job.config is not None
            short += needs is None and job.config is None
            left += needs or 0
        lines.append(
            [
                job.name,
                "damaged" if row.get("damaged") else state,
                f"{at} of {row['of']}" if state == "begun" else at or None,
                seconds,
                None if needs is None else f"{_hours(needs)} at most",
            ]
        )
    parts = [f"{_hours(left)} at most in one process"] * bool(left)
    parts += [f"{short} of minutes each"] * bool(short)
    parts += [
        f"{unknown} runs of which no time is known" + f"; measure it: {command}" * bool(command)
    ] * bool(unknown)
    going = any(row is None or row.get("state") == "begun" for row in rows.values())
    damaged = [
        f"{job.name}: {known['damaged']}\n"
        for job in jobs
        if (known := rows[job.key]) is not None and known.get("damaged")
    ]
    return (
        table(["run", "state", "iterations", "seconds", "left"], lines)
        + f"\nstill to compute: {', and '.join(parts) or 'nothing'}"
        + "; and further runs after each that is solved" * (study.open_ended and going)
        + "\n"
        + "".join(damaged)
        + f"{again} runs are still to be made again (--repeat)\n" * bool(again)
    )


def progress(
    jobs: Mapping[str, Job],
    left: Collection[str],
    going: Collection[str],
    store: Store,
    find: RowOf,
    marks: Mapping[str, str],
    measured: Mapping[str, float],
) -> str:
    """A line on the whole, and one on each run that is going on: how far it is, and the time that
    is left. ``jobs``: all runs by key; ``left``: the keys of those still to be done; ``marks``: of
    those that are made again; ``measured``: the seconds of an iteration by ``kind``."""
    rows = {
        key: begun(job, store, marks.get(key, "")) if key in left else find(job)
        for key, job in jobs.items()
    }
    times = Times(jobs.values(), rows, measured)
    needs = {key: times.needed(jobs[key], rows[key]) for key in left}
    known = [seconds for seconds in needs.values() if seconds is not None]
    done = sum(row is not None for key, row in rows.items() if key not in left)
    parts = [f"{done} of {len(jobs)} runs done"]
    if known:
        parts.append(f"{_hours(max([*known, sum(known) / max(len(going), 1)]))} at most left")
    if len(known) < len(left):
        parts.append(f"no time known of {len(left) - len(known)}")
    lines = ["; ".join(parts)]
    for key in going:
        reached, seconds = rows[key], needs[key]
        lines.append(
            f"  {jobs[key].name}: "
            + (f"{reached['iterations']:,} of {reached['of']:,} iterations" if reached else "begun")
            + ("" if seconds is None else f", {_hours(seconds)} at most left")
        )
    return "\n".join(lines)


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.1f} min"
