"""All runs of a study, on any executor, with nothing done twice.

Checked by: tests/studies/test_studies.py, tests/studies/test_study_kills.py.
"""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from math import inf
from multiprocessing.context import SpawnContext
from pathlib import Path
from typing import Any

from refnet.arguments import whole
from refnet.process import serving, settle, starting, stop
from refnet.runs.files import discard, naming, told
from refnet.runs.folder import BusyError
from refnet.studies.jobs import Job
from refnet.studies.progress import jobs_of, progress
from refnet.studies.store import Store
from refnet.studies.study import Study
from refnet.studies.work import execute

__all__ = ["run"]

DEATHS = 3
"""How often a run is sent again because its process died."""
PAUSE = 2.0
"""Seconds until a run that another process is working on is tried again."""
EVERY = 60.0
"""Seconds from one report of the progress to the next."""


def _begin(parent: int) -> None:
    """What a worker does first: set itself up, and watch for the end of its parent, to end then
    too; the queue does not show that, because the other workers keep it open."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        discard()
        os._exit(1)

    serving()
    settle()
    threading.Thread(target=watch, daemon=True).start()


class _Spawn(SpawnContext):
    """Processes are started by "spawn", and kept in mind: the caller may have others."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[Any] = []

    def Process(self, *args: Any, **options: Any) -> Any:  # type: ignore[override]
        self.started.append(super().Process(*args, **options))
        return self.started[-1]


class _Processes:
    """Processes of one run each, and a new one where one was killed: each a pool of its own,
    because a pool that loses one process ends the others and all that waits."""

    def __init__(self) -> None:
        self.context = _Spawn()
        self.pools: list[ProcessPoolExecutor] = []
        self.calls: list[Future[Any]] = []  # the last one of each

    def _new(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(1, self.context, initializer=_begin, initargs=(os.getpid(),))

    def submit(self, *call: Any) -> Future[Any]:
        """As ``concurrent.futures.Executor.submit``, to a process that has nothing to do; a new
        one if there is none."""
        free = next((n for n, last in enumerate(self.calls) if last.done()), len(self.calls))
        if free == len(self.pools):
            self.pools.append(self._new())
        with starting():
            try:
                made = self.pools[free].submit(*call)
            except BrokenProcessPool:
                self.pools[free].shutdown(wait=False)
                self.pools[free] = self._new()
                made = self.pools[free].submit(*call)
        self.calls[free : free + 1] = [made]
        return made

    def end(self) -> None:
        """End the processes at once: every run goes on from its checkpoint."""
        for pool in self.pools:
            pool.shutdown(wait=False, cancel_futures=True)
        stop([process for process in self.context.started if process.is_alive()])


@contextmanager
def _submitter(
    workers: int, executor: Executor | None
) -> Iterator[tuple[Callable[..., Future[Any]], float]]:
    """A function to submit a run, and how many may be submitted at once."""
    if executor is not None:
        yield executor.submit, inf
        return
    processes = _Processes()
    try:
        yield processes.submit, workers
    finally:
        processes.end()


@contextmanager
def _going(executor: Executor | None) -> Iterator[None]:
    """Say what to do if an executor that was given takes no more runs, or has given them up."""
    try:
        yield
    except (BrokenExecutor, CancelledError, RuntimeError) as error:
        if executor is None:
            raise
        raise OSError(
            f"the executor ({type(executor).__name__}) has ended before its runs did: "
            "its scheduler or its processes are gone. Start it and this study again: "
            "runs that are done stay done, others go on from their last evaluation"
        ) from error


@contextmanager
def _place(folder: Path) -> Iterator[os.stat_result]:
    """What identifies a folder in the block, which keeps it open: the number of one that is gone
    would be free for a new one. (Windows opens no folder, and uses no number again.)"""
    if os.name != "posix":
        yield os.stat(folder)
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        yield os.fstat(number)
    finally:
        os.close(number)


def _check(folder: Path, place: os.stat_result) -> None:
    """Raise OSError if this is no longer the folder of that place."""
    with suppress(FileNotFoundError):
        if os.path.samestat(os.stat(folder), place):
            return
    raise OSError(
        f"{folder} was moved, removed or replaced while its runs were going on, and "
        "nothing more is written there; start the study again where its folder is now"
    )


@contextmanager
def _kept(pending: dict[Future[Any], Job], store: Store, place: os.stat_result) -> Iterator[None]:
    """Whatever ends the block, the rows that have come back are added."""
    try:
        yield
    finally:
        for future, job in pending.items():
            with suppress(Exception):  # what ended the block is what is told
                if future.done():
                    row = future.result()
                    if store.done(job, {row["key"]: row}) is not None:
                        _check(store.folder, place)
                        store.append(row)


def run(
    study: Study,
    store: Store,
    seeds: int = 3,
    quick: bool = False,
    workers: int = 1,
    executor: Executor | None = None,
    repeat: bool = False,
    tell: Callable[[str], None] = lambda text: None,
    threads: int = 1,
    measured: Mapping[str, float] = {},
) -> dict[str, str]:
    """Make all runs of the study that are not done; returns the errors of those that failed.

    ``executor``: any concurrent.futures.Executor, such as ``distributed.Client(address)
    .get_executor(retries=3)``; without one, ``workers`` processes. Workers make the store's folder
    where they are; it need be the same one only to go on with unfinished runs: rows come back to
    here. ``threads``: of each run, to the same bits with any number. ``tell``: takes a line for
    each run that has ended and, every minute, the progress; ``measured``: the seconds of an
    iteration by ``refnet.studies.costs.kind``, for runs like which none has been made.
    ``repeat``: make the runs that are done once more; new rows replace old ones. After an
    interruption, or if a run failed, a call with ``repeat`` goes on with those that are left.

    A run whose worker was killed is sent again; one that another process is working on is tried
    again later. To stop, kill or interrupt this process: no row is lost, and of unfinished runs
    only what came after their last evaluation. Raises OSError if the folder cannot be made, if it
    is moved or removed, or if the executor has ended; rows that have come back by then are added.
    """
    whole("workers", workers)
    whole("threads", threads)
    with naming(store.folder):
        store.folder.mkdir(parents=True, exist_ok=True)
    failed: dict[str, str] = {}
    deaths: Counter[str] = Counter()

    def reached(rows: dict[str, dict[str, Any]]) -> dict[str, Job]:
        return jobs_of(study, lambda job: store.done(job, rows), seeds, quick)

    named: set[str] = set()
    if repeat:
        rows = store.rows()
        jobs = reached(rows)
        done = {key for key, job in jobs.items() if store.done(job, rows) is not None}
        named = set(jobs)
        store.repeat(done, named - done)
    elif waiting := sum(map(bool, store.repetition().values())):
        tell(f"{waiting} runs are still to be made again; --repeat goes on with them")
    pending: dict[Future[Any], Job] = {}
    busy: dict[str, float] = {}
    tried = False
    report = 0.0
    with (
        _place(store.folder) as place,
        _submitter(workers, executor) as (submit, most),
        _kept(pending, store, place),
    ):
        while True:
            _check(store.folder, place)
            rows = store.rows()
            marks = store.repetition() if repeat else {}

            def found(job: Job) -> dict[str, Any] | None:
                return None if job.key in marks else store.done(job, rows)

            wanted = study.jobs(found, seeds, quick)
            left = {job.key: job for job in wanted if found(job) is None and job.name not in failed}
            busy = {key: until for key, until in busy.items() if key in left}
            sent = {job.key for job in pending.values()}
            if not report:
                store.clear(job for job in reached(rows).values() if found(job) is not None)
            if left and not tried:
                store.writable()
                tried = True
            for key, job in left.items():
                if len(pending) < most and key not in sent and busy.get(key, 0) <= time.monotonic():
                    with _going(executor):
                        pending[submit(execute, job, store.folder, marks.get(key, ""), threads)] = (
                            job
                        )
            if not pending and not left:
                return failed
            if time.monotonic() >= report:
                tell(
                    progress(
                        jobs_of(study, found, seeds, quick),
                        left.keys(),
                        [job.key for job in pending.values() if job.key in left],
                        store,
                        found,
                        marks,
                        measured,
                    )
                )
                report = time.monotonic() + EVERY
            if not pending:
                time.sleep(PAUSE)
            # what is wanted changes when a run ends; before, there is only a busy one to try again
            for future in wait(
                pending, PAUSE if busy else max(report - time.monotonic(), 0), FIRST_COMPLETED
            ).done:
                job = pending[future]
                busy.pop(job.key, None)
                with _going(executor):
                    error = future.exception()
                if error is None:
                    row = future.result()
                    if (
                        store.done(job, {row["key"]: row}) is None
                        or marks.get(job.key)
                        and "repetition" not in row
                    ):
                        error = ValueError(
                            "came back with other settings: the worker has another "
                            "version of refnet; install this one there"
                        )
                if error is None:
                    _check(store.folder, place)
                    if repeat:
                        rows[job.key] = row
                        after = reached(rows).keys()
                        # a ladder that fails earlier than before does without what follows, and one
                        # that climbs has a next run, which is left as soon as this one is not
                        store.forget(named - after)
                        store.repeat((), after - named)
                        named |= after
                    store.append(row)
                    left.pop(job.key, None)
                    tell(f"[{len(left)} to go] {_line(row)}")
                elif isinstance(error, BusyError):
                    busy[job.key] = time.monotonic() + PAUSE
                elif isinstance(error, BrokenProcessPool) and deaths[job.key] < DEATHS:
                    deaths[job.key] += 1
                else:
                    failed[job.name] = _why(error, executor is not None)
                    tell(f"{job.name}: {failed[job.name]}")
                del pending[future]


def _why(error: BaseException, elsewhere: bool) -> str:
    if isinstance(error, BrokenProcessPool):
        return (
            f"its process was killed {DEATHS + 1} times ({error}), by the system for want of "
            "memory, say, or because it starts a script that calls this anew, which needs "
            "if __name__ == '__main__'; use fewer workers, with what a run needs by: "
            "refnet study --list"
        )
    return f"{type(error).__name__}: {told(error)}" + "".join(
        f" ({note})" for note in getattr(error, "__notes__", ()) if elsewhere
    )


def _line(row: dict[str, Any]) -> str:
    return (
        f"{row['name']}: {row.get('state', 'done')}"
        + (f" after {row['iterations']} iterations" if "iterations" in row else "")
        + f", {row.get('seconds', 0):.0f} s"
    )
