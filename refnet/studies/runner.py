"""All runs of a study, on any executor, with nothing done twice.

Checked by: tests/test_studies.py.
"""

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

from refnet.process import settle
from refnet.runs.rows import read_rows, table
from refnet.studies.jobs import Job, execute
from refnet.studies.store import Store
from refnet.studies.study import Study

__all__ = ["run", "status"]

ATTEMPTS = 4
"""How often a run is sent before it is given up, if its worker dies each time."""


class _Processes:
    """Processes started by "spawn", one thread each, and new ones where one was killed."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.pool = self._new()

    def _new(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self.workers, multiprocessing.get_context("spawn"),
                                   initializer=settle)

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
    A run whose worker was killed is sent again. To stop, kill this process or interrupt it: runs
    are lost back to their last evaluation, rows never.
    """
    failed: dict[str, str] = {}
    attempts: dict[str, int] = {}
    again: set[str] = set(store.rows()) if repeat else set()
    pending: dict[Future[Any], Job] = {}

    def found(job: Job) -> dict[str, Any] | None:
        return None if job.key in again else store.done(job, rows)

    with _submitter(workers, executor) as submit:
        while True:
            rows = store.rows()
            wanted = study.jobs(found, seeds, quick)
            sent = {job.key for job in pending.values()}
            for job in wanted:
                if found(job) is None and job.key not in sent and job.name not in failed:
                    sent.add(job.key)
                    pending[submit(execute, job, store.unfinished(job.key))] = job
            if not pending:
                return failed
            for future in wait(pending, return_when=FIRST_COMPLETED).done:
                job = pending.pop(future)
                error = future.exception()
                if error is None:
                    store.append(future.result())
                    again.discard(job.key)
                    tell(_line(future.result(), len(wanted), sum(
                        found(one) is not None for one in wanted) + 1))
                elif isinstance(error, BrokenProcessPool):
                    attempts[job.key] = attempts.get(job.key, 0) + 1
                    if attempts[job.key] >= ATTEMPTS:
                        failed[job.name] = f"its worker died {ATTEMPTS} times"
                else:
                    failed[job.name] = f"{type(error).__name__}: {error}"
                    tell(f"{job.name}: {failed[job.name]}")


def _line(row: dict[str, Any], of: int, done: int) -> str:
    return (f"[{done} of {of}] {row['name']}: {row.get('state', 'done')}"
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
