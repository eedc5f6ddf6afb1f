"""The cost of a study on this machine, measured on a few steps of each kind of run."""

import hashlib
import json
import os
import time
import tracemalloc
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import median
from typing import NamedTuple

from refnet.batch import Array
from refnet.common.specs import parse_spec
from refnet.maths.threads import get_threads, set_threads
from refnet.runs.files import write_text
from refnet.runs.read import contents, json_of, reading
from refnet.runs.rows import machine
from refnet.studies.jobs import Job
from refnet.training.config import Config
from refnet.training.experiment import build
from refnet.training.steps import Run, step

__all__ = ["Cost", "kind", "measure", "remember", "remembered"]

STEPS = 3


class Cost(NamedTuple):
    """``hours`` of one process for all runs, and the ``megabytes`` of the largest one; ``paces``:
    the seconds of an iteration, its share of the evaluations in it, by ``kind``."""

    hours: float
    megabytes: float
    paces: Mapping[str, float] = {}

    @property
    def texts(self) -> tuple[str, str]:
        """Both as a table shows them. A study without training runs has neither."""
        if not self.hours:
            return "minutes", "-"
        return f"{self.hours:.2g}" if self.hours < 9.95 else f"{self.hours:.0f}", (
            f"{self.megabytes:.3g}"
        )


def kind(job: Job) -> str:
    """What runs of about the same cost a step have in common: all but their seed, rates, strengths,
    start and a transition's options."""
    shared = (
        {name: value for name, value in job.settings.items() if name != "seed"}
        if job.config is None
        else replace(
            job.config,
            seed=0,
            rate=0.0,
            strength=Config.strength,
            protocol="",
            method="open" if "open" in job.config.method else "plain",
            orthogonal="hidden",
            open_form="squared",
            recurrent="",
            transition=parse_spec(job.config.transition)[0],
            iterations=1,
        )
    )
    return hashlib.sha256(repr(shared).encode()).hexdigest()[:16]


def measure(jobs: list[Job]) -> Cost:
    """The cost of these training runs, on one thread each, if none ends early by solving its task.

    Runs of one kind are measured once. Memory is that of NumPy's arrays.
    """
    known: dict[str, tuple[float, float, float]] = {}
    paces: dict[str, float] = {}
    seconds = 0.0
    threads = get_threads()
    set_threads(1)
    try:
        for job in jobs:
            if job.config is None:
                continue
            if kind(job) not in known:
                known[kind(job)] = _measure(job.config)
            each, evaluation, _ = known[kind(job)]
            paces[kind(job)] = each + evaluation / job.config.evaluate_every
            seconds += job.config.iterations * paces[kind(job)]
    finally:
        set_threads(threads)
    return Cost(
        seconds / 3600, max((size for _, _, size in known.values()), default=0) / 1e6, paces
    )


def remember(path: Path, costs: dict[str, Cost]) -> None:
    """Write what was measured on this machine to a file; other studies' costs in it stay if they
    are of this kind of machine, too."""
    costs = {**remembered(path), **costs}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(
        path,
        json.dumps(
            {
                "machine": machine(),
                "cpus": os.cpu_count(),
                "studies": {
                    name: {
                        "hours": float(f"{cost.hours:.3g}"),
                        "megabytes": float(f"{cost.megabytes:.3g}"),
                        "paces": {key: float(f"{pace:.3g}") for key, pace in cost.paces.items()},
                    }
                    for name, cost in costs.items()
                },
            },
            indent=1,
        )
        + "\n",
    )


def remembered(path: Path, everywhere: bool = False) -> dict[str, Cost]:
    """What ``remember`` wrote on this kind of machine, or ``everywhere``; nothing if there is no
    file. Raises FileError for a file that is damaged."""
    if not path.exists():
        return {}
    with reading(path, "remove it, and measure again"):
        record = json_of(contents(path, 2**20))
        try:
            if not everywhere and record["machine"] != machine():
                return {}
            return {
                str(name): Cost(
                    float(cost["hours"]),
                    float(cost["megabytes"]),
                    {str(key): float(pace) for key, pace in cost.get("paces", {}).items()},
                )
                for name, cost in record["studies"].items()
            }
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"is no record of costs ({type(error).__name__}: {error})") from None


def _measure(config: Config) -> tuple[float, float, float]:
    """Seconds of a step and of an evaluation, and the bytes of arrays at the peak."""
    from refnet.compiled.layout import forget  # Numba is slow to import

    e = build(config)
    run = Run.start(e)[0]
    taken = []
    for number in range(STEPS + 1):
        if number == STEPS:
            forget()
            tracemalloc.start()  # the last step is slower for it, and not counted
        started = time.perf_counter()
        run = step(e, run, e.task.batch(number, config.batch, 0))[0]
        taken.append(time.perf_counter() - started)
    size = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    split = e.task.splits[0]
    parts = list(islice(e.task.evaluation(0, 0, split), 2))
    started = time.perf_counter()
    for part in parts:
        e.net.forward(run.params, part.x, part.mask, copy=False)
    spent = (time.perf_counter() - started) / sum(_examples(part.x) for part in parts)
    count = getattr(e.task, "samples", None) or sum(
        _examples(part.x) for part in e.task.evaluation(0, 0, split)
    )
    return median(taken[1:STEPS]), spent * count, size


def _examples(x: Array) -> int:
    """B of x (T, B, D) or (B, D)."""
    return int(x.shape[-2])
