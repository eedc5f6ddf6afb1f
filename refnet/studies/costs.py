"""What a study needs on this machine, measured on a few steps of each kind of run."""

import time
import tracemalloc
from dataclasses import replace
from itertools import islice
from statistics import median
from typing import NamedTuple

from refnet.batch import Array
from refnet.studies.jobs import Job
from refnet.training.config import Config
from refnet.training.experiment import build
from refnet.training.loop import Run, step

__all__ = ["Cost", "measure"]

STEPS = 3


class Cost(NamedTuple):
    """``hours`` of one process for all runs, and the ``megabytes`` of the largest one."""

    hours: float
    megabytes: float


def measure(jobs: list[Job]) -> Cost:
    """The cost of these runs, at most: a run that solves its task ends earlier.

    Runs that differ in their seed, rates and strengths alone are measured once. Memory is that of
    arrays, as NumPy tells it.
    """
    known: dict[Config, tuple[float, float, float]] = {}
    seconds = 0.0
    for job in jobs:
        if job.config is None:
            continue
        kind = replace(job.config, seed=0, rate=0., strength=Config.strength, protocol="",
                       method="plain", orthogonal="hidden", open_form="squared")
        if kind not in known:
            known[kind] = _measure(job.config)
        each, evaluation, _ = known[kind]
        seconds += job.config.iterations * (each + evaluation / job.config.evaluate_every)
    return Cost(seconds / 3600, max((size for _, _, size in known.values()), default=0) / 1e6)


def _measure(config: Config) -> tuple[float, float, float]:
    """Seconds of a step and of an evaluation, and the bytes of arrays at the peak."""
    e = build(config)
    run = Run(params := e.start()[0], e.optimizer.init(params), params, {})
    taken = []
    for number in range(STEPS + 1):
        if number == STEPS:
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
        e.net.forward(run.params, part.x, part.mask)
    spent = (time.perf_counter() - started) / sum(_examples(part.x) for part in parts)
    count = getattr(e.task, "samples", None) or sum(
        _examples(part.x) for part in e.task.evaluation(0, 0, split))
    return median(taken[1:STEPS]), spent * count, size


def _examples(x: Array) -> int:
    """B of x (T, B, D) or (B, D)."""
    return int(x.shape[-2])
