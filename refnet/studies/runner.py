"""All runs of a study, on any executor, with nothing done twice.

Checked by: tests/studies/test_runs.py.
"""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
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
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from math import inf
from multiprocessing.context import SpawnContext
from pathlib import Path
from typing import Any

from refnet.common.arguments import whole
from refnet.common.process import serving, settle, starting, stop
from refnet.runs.files import described, discard, naming
from refnet.runs.folder import BusyError
from refnet.runs.read import Record
from refnet.studies.jobs import Job
from refnet.studies.progress import jobs_of, progress
from refnet.studies.store import Store
from refnet.studies.study import Study, View
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


class _Processes(Executor):
    """Processes of one run each, and a new one where one was killed: each a pool of its own,
    because a pool that loses one process ends the others and all that waits."""

    def __init__(self) -> None:
        self.context = _Spawn()
        self.calls: dict[ProcessPoolExecutor, Future[Any]] = {}  # the last one of each

    def _new(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(1, self.context, initializer=_begin, initargs=(os.getpid(),))

    def submit(self, *call: Any) -> Future[Any]:  # type: ignore[override]
        """As any executor's, to a process that has nothing to do; a new one if there is none."""
        pool = next((pool for pool, last in self.calls.items() if last.done()), None) or self._new()
        with starting():
            try:
                future = pool.submit(*call)
            except BrokenProcessPool:
                del self.calls[pool]
                pool = self._new()
                future = pool.submit(*call)
        self.calls[pool] = future
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes at once: every run goes on from its checkpoint."""
        for pool in self.calls:
            pool.shutdown(wait=False, cancel_futures=True)
        stop([process for process in self.context.started if process.is_alive()])


@contextmanager
def _going(executor: Executor) -> Iterator[None]:
    """Say what to do if an executor that was given takes no more runs, or has given them up."""
    try:
        yield
    except (BrokenExecutor, CancelledError, RuntimeError) as error:
        if isinstance(executor, _Processes):
            raise
        raise OSError(
            f"the executor ({type(executor).__name__}) has ended before its runs did: "
            "its scheduler or its processes are gone. Start it and this study again: "
            "runs that are done stay done, others go on from their last evaluation"
        ) from error


@contextmanager
def _place(folder: Path) -> Iterator[Callable[[], None]]:
    """A function that raises OSError if this is no longer the folder that it is now. The block
    keeps the folder open: the number of a folder that is gone would be free for a new one.
    (Windows opens no folder, and uses no number again.)"""
    number = os.open(folder, os.O_RDONLY) if os.name == "posix" else None
    place = os.stat(folder)

    def check() -> None:
        with suppress(FileNotFoundError):
            if os.path.samestat(os.stat(folder), place):
                return
        raise OSError(
            f"{folder} was moved, removed or replaced while its runs were going on, and "
            "nothing more is written there; start the study again where its folder is now"
        )

    try:
        yield check
    finally:
        if number is not None:
            os.close(number)


class _Runs:
    """The runs of a study: those that are left, and those that have been sent to a worker."""

    def __init__(
        self,
        study: Study,
        store: Store,
        sizes: tuple[int, bool],
        repeat: bool,
        tell: Callable[[str], object],
    ) -> None:
        self.study, self.store, self.sizes, self.tell = study, store, sizes, tell
        self.repeat = repeat
        self.rows = store.rows()
        self.pending: dict[Future[Any], Job] = {}
        self.failed: dict[str, str] = {}
        self.deaths: Counter[str] = Counter()
        self.busy: dict[str, float] = {}  # when they are tried again
        self.reached: set[str] = set()  # by this repetition
        if repeat:
            jobs = self.climbed()
            done = {key for key, job in jobs.items() if store.done(job, self.rows) is not None}
            self.reached = set(jobs)
            store.repeat(done, self.reached - done)
        elif waiting := sum(map(bool, store.repetition().values())):
            tell(f"{waiting} runs are still to be made again; --repeat goes on with them")

    def climbed(self) -> dict[str, Job]:
        """The runs that there are, whether or not they are to be made again."""
        return jobs_of(self.study, partial(self.store.done, rows=self.rows), *self.sizes)

    def row_of(self, job: Job) -> Record | None:
        """The row of a run that is done, and not to be made again."""
        return None if job.key in self.marks else self.store.done(job, self.rows)

    def read(self) -> None:
        """See what is left."""
        self.rows = self.store.rows()
        self.marks = self.store.repetition() if self.repeat else {}
        self.left = {
            job.key: job
            for job in self.study.jobs(View(self.row_of, *self.sizes))
            if self.row_of(job) is None and job.name not in self.failed
        }
        self.busy = {key: until for key, until in self.busy.items() if key in self.left}

    def sendable(self) -> list[Job]:
        """The runs that are left, have not been sent, and are not to be tried later."""
        sent, now = {job.key for job in self.pending.values()}, time.monotonic()
        return [
            job
            for key, job in self.left.items()
            if key not in sent and self.busy.get(key, 0) <= now
        ]

    def progress(self) -> str:
        """How far all runs are."""
        return progress(
            jobs_of(self.study, self.row_of, *self.sizes),
            self.left.keys(),
            [job.key for job in self.pending.values() if job.key in self.left],
            self.store,
            self.row_of,
            self.marks,
            self.study.paces,
        )

    def fault(self, job: Job, future: Future[Any]) -> BaseException | None:
        """Why a run has brought no row."""
        if (error := future.exception()) is not None:
            return error
        row = future.result()
        if self.store.done(job, {row["key"]: row}) is not None and (
            not self.marks.get(job.key) or "repetition" in row
        ):
            return None
        return ValueError(
            "came back with other settings: the worker has another "
            "version of refnet; install this one there"
        )

    def add(self, job: Job, row: Record) -> None:
        """Add the row of a run that has ended."""
        if self.repeat:
            self.rows[job.key] = row
            after = self.climbed().keys()
            # a ladder that fails earlier than before does without what follows, and one
            # that climbs has a next run, which is left as soon as this one is not
            self.store.forget(self.reached - after)
            self.store.repeat((), after - self.reached)
            self.reached |= after
        self.store.append(row)
        self.left.pop(job.key, None)
        self.tell(f"[{len(self.left)} to go] {_line(row)}")

    def fail(self, job: Job, error: BaseException, remote: bool) -> None:
        """Try a run again that another process works on, or whose process was killed; any other
        error is its end."""
        if isinstance(error, BusyError):
            self.busy[job.key] = time.monotonic() + PAUSE
        elif isinstance(error, BrokenProcessPool) and self.deaths[job.key] < DEATHS:
            self.deaths[job.key] += 1
        else:
            self.failed[job.name] = _why(error, remote)
            self.tell(f"{job.name}: {self.failed[job.name]}")

    @contextmanager
    def saved(self, check: Callable[[], None]) -> Iterator[None]:
        """Whatever ends the block, the rows that have come back are added."""
        try:
            yield
        finally:
            for future, job in self.pending.items():
                with suppress(Exception):  # the user is told what ended the block
                    if future.done():
                        row = future.result()
                        if self.store.done(job, {row["key"]: row}) is not None:
                            check()
                            self.store.append(row)


def _silent(text: str) -> None:
    pass


def run(
    study: Study,
    store: Store,
    seeds: int = 3,
    quick: bool = False,
    executor: Executor | int = 1,
    repeat: bool = False,
    tell: Callable[[str], object] = _silent,
    threads: int = 1,
) -> dict[str, str]:
    """Make all runs of the study that are not done; returns the errors of those that failed.

    ``executor``: a number of processes, or any concurrent.futures.Executor, such as
    ``distributed.Client(address).get_executor(retries=3)``. Workers make the store's folder
    where they are; it need be the same one only to go on with unfinished runs: rows come back to
    here. ``threads``: of each run, to the same bits with any number. ``tell``: takes a line for
    each run that has ended and, every minute, the progress.
    ``repeat``: make the runs that are done once more; new rows replace old ones. After an
    interruption, or if a run failed, a call with ``repeat`` goes on with those that are left.

    A run whose worker was killed is sent again; one that another process is working on is tried
    again later. To stop, kill or interrupt this process: no row is lost, and of unfinished runs
    only what came after their last evaluation. Raises OSError if the folder cannot be made, if it
    is moved or removed, or if the executor has ended; rows that have come back by then are added.
    """
    pool: AbstractContextManager[Executor]
    if isinstance(executor, int):
        whole("executor", executor)
        most, pool = float(executor), _Processes()
    else:
        most, pool = inf, nullcontext(executor)
    whole("threads", threads)
    with naming(store.folder):
        store.folder.mkdir(parents=True, exist_ok=True)
    runs = _Runs(study, store, (seeds, quick), repeat, tell)
    report = 0.0
    with _place(store.folder) as check, pool as workers, runs.saved(check):
        runs.read()
        store.clear(job for job in runs.climbed().values() if runs.row_of(job) is not None)
        if runs.left:
            store.writable()
        while runs.pending or runs.left:
            for job in runs.sendable():
                if len(runs.pending) < most:
                    mark = runs.marks.get(job.key, "")
                    with _going(workers):
                        future = workers.submit(execute, job, store.folder, mark, threads)
                    runs.pending[future] = job
            if time.monotonic() >= report:
                tell(runs.progress())
                report = time.monotonic() + EVERY
            if not runs.pending:
                time.sleep(PAUSE)
            # what is wanted changes when a run ends; before, there is only a busy one to try again
            patience = PAUSE if runs.busy else max(report - time.monotonic(), 0)
            for future in wait(runs.pending, patience, FIRST_COMPLETED).done:
                job = runs.pending[future]
                runs.busy.pop(job.key, None)
                with _going(workers):
                    error = runs.fault(job, future)
                if error is None:
                    check()
                    runs.add(job, future.result())
                else:
                    runs.fail(job, error, most == inf)
                del runs.pending[future]
            check()
            runs.read()
    return runs.failed


def _why(error: BaseException, remote: bool) -> str:
    if isinstance(error, BrokenProcessPool):
        return (
            f"its process was killed {DEATHS + 1} times ({error}), by the system for want of "
            "memory, say, or because it starts a script that calls this anew, which needs "
            "if __name__ == '__main__'; use fewer workers, with what a run needs by: "
            "refnet study --list"
        )
    return f"{type(error).__name__}: {described(error)}" + "".join(
        f" ({note})" for note in getattr(error, "__notes__", ()) if remote
    )


def _line(row: Record) -> str:
    return (
        f"{row['name']}: {row.get('state', 'done')}"
        + (f" after {row['iterations']} iterations" if "iterations" in row else "")
        + f", {row.get('seconds', 0):.0f} s"
    )
