"""All runs of a study, on any executor, with nothing done twice.

Checked by: tests/test_studies.py.
"""

import multiprocessing
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

from refnet.process import settle
from refnet.runs.folder import BusyError
from refnet.runs.rows import read_rows, table
from refnet.studies.jobs import Job
from refnet.studies.store import Store
from refnet.studies.study import Study
from refnet.studies.work import execute

__all__ = ["run", "status"]

DEATHS = 3
"""How often a run is sent again because the process that it was in died."""
PAUSE = 2.0
"""Seconds until a run that another process works on is asked for again."""


def _begin(parent: int) -> None:
    """What a worker does first: it sets itself up, and ends when its parent has ended, which
    nobody tells it: its siblings keep the queue open."""
    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(.5)
        os._exit(1)

    settle()
    threading.Thread(target=watch, daemon=True).start()


class _Processes:
    """Processes started by "spawn", one thread each, and new ones where one was killed."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.pool = self._new()

    def _new(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self.workers, multiprocessing.get_context("spawn"),
                                   initializer=_begin, initargs=(os.getpid(),))

    def submit(self, *call: Any) -> Future[dict[str, Any]]:
        """As an executor's."""
        try:
            return self.pool.submit(*call)
        except BrokenProcessPool:
            self.pool.shutdown(wait=False)
            self.pool = self._new()
            return self.pool.submit(*call)

    def end(self) -> None:
        """End the processes at once: every run goes on from its checkpoint."""
        self.pool.shutdown(wait=False, cancel_futures=True)
        for child in multiprocessing.active_children():
            child.kill()


@contextmanager
def _submitter(workers: int, executor: Executor | None) -> Iterator[Callable[..., Future[Any]]]:
    if executor is not None:
        yield executor.submit
        return
    processes = _Processes(workers)
    try:
        yield processes.submit
    finally:
        processes.end()


def run(study: Study, store: Store, seeds: int = 3, quick: bool = False, workers: int = 1,
        executor: Executor | None = None, repeat: bool = False,
        tell: Callable[[str], None] = lambda text: None) -> dict[str, str]:
    """Make all runs of the study that are not done; what was raised by those that failed, by name.

    ``executor``: any concurrent.futures.Executor, such as ``distributed.Client(address)
    .get_executor(retries=3)``; without one, ``workers`` processes with one thread each. Workers
    need to see the store's folder only to go on with unfinished runs: rows come back to here.
    ``repeat``: make the runs that are done again; new rows replace old ones.

    A run whose worker was killed is sent again, one that another process works on later. To
    stop, kill this process or interrupt it: runs are lost back to their last evaluation, rows
    never.
    """
    failed: dict[str, str] = {}
    deaths: Counter[str] = Counter()
    again = set(store.rows()) if repeat else set()
    pending: dict[Future[Any], Job] = {}
    busy: dict[str, float] = {}
    with _submitter(workers, executor) as submit:
        while True:
            rows = store.rows()

            def found(job: Job) -> dict[str, Any] | None:
                return None if job.key in again else store.done(job, rows)

            wanted = study.jobs(found, seeds, quick)
            open_jobs = {job.key: job for job in wanted
                         if found(job) is None and job.name not in failed}
            for job in pending.values():
                open_jobs.pop(job.key, None)
            for key, job in open_jobs.items():
                if busy.get(key, 0) <= time.monotonic():
                    pending[submit(execute, job, store.folder, key in again)] = job
            if not pending and not open_jobs:
                return failed
            if not pending:
                time.sleep(PAUSE)
            for future in wait(pending, PAUSE, FIRST_COMPLETED).done if pending else ():
                job = pending.pop(future)
                error = future.exception()
                if error is None:
                    store.append(future.result(), job.key in again)
                    again.discard(job.key)
                    done = sum(found(one) is not None for one in wanted) + 1
                    tell(f"[{done} of {len(wanted)}] {_line(future.result())}")
                elif isinstance(error, BusyError):
                    busy[job.key] = time.monotonic() + PAUSE
                elif isinstance(error, BrokenProcessPool) and deaths[job.key] < DEATHS:
                    deaths[job.key] += 1
                else:
                    failed[job.name] = f"{type(error).__name__}: {error}"
                    tell(f"{job.name}: {failed[job.name]}")


def _line(row: dict[str, Any]) -> str:
    return (f"{row['name']}: {row.get('state', 'done')}"
            + (f" after {row['iterations']} iterations" if "iterations" in row else "")
            + f", {row.get('seconds', 0):.0f} s")


def status(study: Study, store: Store, seeds: int = 3, quick: bool = False) -> str:
    """A table of the study's runs and how far each is, read from its folder alone."""
    rows = store.rows()
    lines = []
    for job in study.jobs(lambda job: store.done(job, rows), seeds, quick):
        row = store.done(job, rows)
        steps = read_rows(store.unfinished(job.key) / "run" / "rows.jsonl")
        if row is not None:
            lines.append([job.name, row.get("state", "done"), row.get("iterations"),
                          row.get("seconds"), None])
        elif steps and job.config is not None:
            at, seconds = steps[-1]["iteration"], steps[-1]["seconds"]
            left = seconds * (job.config.iterations / at - 1)
            lines.append([job.name, "begun", f"{at} of {job.config.iterations}", seconds,
                          f"{left / 3600:.1f} h at most"])
        else:
            lines.append([job.name, "not run", None, None, None])
    return table(["run", "state", "iterations", "seconds", "left"], lines)
