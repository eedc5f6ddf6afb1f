"""Tiny studies, slow ones, and executors that lose calls."""

import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import replace

from refnet.maths.threads import get_threads
from refnet.studies.catalogue import STUDIES
from refnet.studies.jobs import Job
from refnet.studies.runner import run
from refnet.studies.study import Study, View
from support import runs

TINY = replace(runs.TINY, iterations=40)
TIMES = ("seconds", "environment", "commit", "code", "repetition", "threads")


def tiny_jobs(iterations=40, number=3):
    return [
        Job(f"seed {seed}", replace(TINY, seed=seed, iterations=iterations), curve=("accuracy",))
        for seed in range(number)
    ]


def study_of(jobs, name="study", **options):
    """A study of these runs, without a table."""
    return Study(name, "", lambda *ask: jobs, lambda *ask: "", **options)


def tiny_study(**options):
    return study_of(tiny_jobs(**options), "tiny")


def orthogonal_start(name, seed=0, runs=2, distribution="uniform"):
    """A run that is a call of a function."""
    return Job(
        name,
        function="refnet.studies.manchev:orthogonalise",
        arguments={"distribution": distribution, "seed": seed, "runs": runs},
    )


def make_at_once(study, store, **options):
    """Make the runs of a study in three runners at the same time; what failed in each."""
    with ThreadPoolExecutor(3) as pool:
        runners = [pool.submit(make, study, store, **options) for _ in range(3)]
    return [runner.result() for runner in runners]


def make(study, store, **options):
    """Make the runs of a study in this process."""
    with ThreadPoolExecutor(1) as pool:
        return run(study, store, executor=pool, **options)


def without_times(row):
    result = {name: value for name, value in row.items() if name not in TIMES}
    for part in ("best", "final"):
        result[part] = {name: value for name, value in row[part].items() if name != "seconds"}
    return result


def results(store):
    return {key: without_times(row) for key, row in store.rows().items()}


CALLS: list[int] = []


def slow(number):
    """A function of a study."""
    CALLS.append(number)
    time.sleep(0.05)
    return {"value": number / 3, "far": float("inf")}


def count_threads(number):
    """A function of a study."""
    return {"threads": get_threads()}


def slow_study(number=4):
    jobs = [
        Job(f"slow {n}", function="support.studies:slow", arguments={"number": n})
        for n in range(number)
    ]
    return study_of(jobs, "slow")


class Distant(Executor):
    """Workers on another disk. All but the last run have come back when the scheduler dies."""

    def __init__(self, folder, number):
        self.folder, self.left = folder, number

    def submit(self, function, job, folder, *rest):
        future, self.left = Future(), self.left - 1
        if self.left:
            future.set_result(function(job, self.folder, *rest))
        else:
            future.cancel()
            future.set_running_or_notify_cancel()
        return future


def by_name(rows, seeds=1, quick=False):
    """A view of the rows that have the names of their runs."""
    return View(lambda job: rows.get(job.name), seeds, quick)


def jobs_of(name, seeds=1):
    return STUDIES[name].jobs(View(seeds=seeds))


def figure_of(name, rows, seeds=1):
    return STUDIES[name].figure(by_name(rows, seeds))


def cells_of(line):
    """What a line of a table has in its cells."""
    return [cell.strip() for cell in line.split("|")[1:-1]]


def row(state="finished", iterations=100, **best):
    return {"state": state, "iterations": iterations, "best": best, "final": best}


def flow_row(margin, norms):
    return {
        "times": list(range(len(norms[0]))),
        "updates": [0, 25],
        "norms": norms,
        "s_min": 0.9,
        "s_max": 1.1,
        "settings": {"length": 200, "margin": margin},
    }


def curve_row(state="finished", **columns):
    return {
        "state": state,
        "iterations": 300,
        "curve": {
            "iteration": [100, 200, 300],
            "loss": [2.0, 1.0, 0.5],
            "accuracy": [0.1, 0.5, 0.9],
            **columns,
        },
    }
