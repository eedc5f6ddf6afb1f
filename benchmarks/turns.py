"""Timing in turns: what is compared runs in processes held to some cores, one after the other,
round by round, so that each ratio is of times measured within the same seconds."""

import json
import os
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.records import Row
from refnet.batch import Array
from refnet.compiled.layout import forget

Times = list[float] | Array
TURN = 0.1
"""Seconds of a turn without timing, and then seconds with it."""


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def rounds(least: int, budget: float) -> Iterator[int]:
    """The rounds of a measurement, counted from 0: so many at least, and until ``budget`` seconds
    have passed."""
    until = time.perf_counter() + budget
    for number in count():
        if number >= least and time.perf_counter() >= until:
            return
        yield number


def peak_memory(step: Callable[[], object]) -> int:
    """Bytes that a step allocates at its peak; what was made before does not count."""
    forget()
    tracemalloc.start()
    step()
    memory = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return memory


def turn(run: Callable[[], object]) -> float:
    """The median of the seconds a step takes once its threads are awake."""
    time.sleep(TURN)  # idle threads of the peer that ran before go on spinning for a while
    for _ in ("untimed", "timed"):
        taken = []
        until = time.perf_counter() + TURN
        while time.perf_counter() < until:
            taken.append(seconds(run))
    return statistics.median(taken)


class Child:
    """A module in a process of its own, held to some cores before anything starts; its functions
    are called there, by name. ``first``: the number of the first of the cores."""

    def __init__(self, module: str, cores: int, first: int = 0) -> None:
        held = sorted(os.sched_getaffinity(0))[first : first + cores]
        code = (
            f"import os; os.sched_setaffinity(0, {held}); "
            f"from benchmarks import turns; turns.answer({module!r})"
        )
        threads = {
            f"{name}_NUM_THREADS": str(cores) for name in ("OMP", "OPENBLAS", "MKL", "NUMBA")
        }
        # after a product, OpenBLAS's threads would keep a core busy for 2^26 cycles; 2^10 here
        threads["OPENBLAS_THREAD_TIMEOUT"] = "10"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **threads},
        )

    def call(self, function: str, *arguments: Any) -> Any:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps([function, arguments]) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{function}{arguments} failed; the reason stands above")
        return json.loads(answer)

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def answer(module: str) -> None:
    """The child's side: a result for every call that comes in."""
    functions = vars(import_module(module))
    for line in sys.stdin:
        name, arguments = json.loads(line)
        print(json.dumps(functions[name](*arguments)), flush=True)


def spread(values: npt.ArrayLike) -> Row:
    low, median, high = np.quantile(values, [0.25, 0.5, 0.75])
    return {"median": float(median), "quartiles": [float(low), float(high)]}


def quotient(over: Times, under: Times) -> Row:
    """Round by round, and of each one's best round."""
    return {**spread(np.array(over) / np.array(under)), "best": min(over) / min(under)}


def between(entry: Row, digits: int = 2, scale: float = 1) -> str:
    """A median with its quartiles and the best round's."""
    low, high = (scale * value for value in entry["quartiles"])
    best = f", best {scale * entry['best']:.{digits}f}" if "best" in entry else ""
    return f"{scale * entry['median']:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}{best}]"
