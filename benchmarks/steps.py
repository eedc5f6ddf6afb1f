"""Where a training step's time goes: ``python -m benchmarks.steps [--quick]``.

The step of ``refnet train`` for the tasks' own settings, on the compiled core: the functions of
every part are timed as the step calls them. The recursion is the cell's forward and backward
pass; no other part may take more. Medians over the steps and shares are printed and go to
benchmarks/results/steps.json. MNIST and the Penn Treebank are read from where ``refnet train``
finds them.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from refnet.nets import recurrent as nets
from refnet.nets.recurrent import RecurrentNet
from refnet.runs.files import write_text
from refnet.runs.rows import environment, table
from refnet.training import loop as train
from refnet.training.experiment import Experiment, build
from refnet.training.loop import Run
from refnet.training.protocols import preset

RESULTS = Path(__file__).parent / "results" / "steps.json"
RUNS: dict[str, dict[str, Any]] = {
    "temporal-order": {"length": 120, "method": "open"},
    "sequential-mnist": {},
    "copy": {"length": 200},
    "adding": {"length": 200},
    "ptb": {},
    "ptb, lstm": {"cell": "lstm"},
}
"""Settings beside the task's preset."""
PARTS = ("data", "recursion", "read-out and loss", "transition", "penalty", "clipping",
         "optimiser", "manifold step", "rest")
WARM = 5
"""Steps before the first that counts: kernels are compiled, threads have started."""


class Clock:
    """Charges the time that goes by to one part after the other."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Nothing is spent yet."""
        self.spent = dict.fromkeys(PARTS, 0.0)
        self.part, self.since = "rest", time.perf_counter()

    def switch(self, part: str) -> str:
        """From now on to ``part``; the part until now."""
        now = time.perf_counter()
        self.spent[self.part] += now - self.since
        before, self.part, self.since = self.part, part, now
        return before

    def charge(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, its own time charged to ``part``."""
        def timed(*args: Any, **options: Any) -> Any:
            before = self.switch(part)
            try:
                return function(*args, **options)
            finally:
                self.switch(before)
        return timed


def charged(clock: Clock, e: Experiment) -> ExitStack:
    """The functions of every part charged to the clock, until the stack is closed."""
    places = [(type(e.task), "batch", "data"), (e.net.layer.passes, "forward", "recursion"),
              (e.net.layer.passes, "backward", "recursion"),
              (train, "loss_and_gradients", "read-out and loss"),
              (RecurrentNet, "matrices", "transition"), (nets, "pulled", "transition"),
              (Experiment, "clip", "clipping"), (type(e.optimizer), "step", "optimiser"),
              (Experiment, "open_step", "optimiser"),
              (Experiment, "manifold_step", "manifold step")]
    stack = ExitStack()
    for owner, name, part in places:
        stack.enter_context(patch.object(owner, name, clock.charge(part, getattr(owner, name))))
    penalty = e.penalty
    timed = penalty and clock.charge("penalty", penalty)
    stack.enter_context(patch.object(Experiment, "penalty", property(lambda _: timed)))
    return stack


def measure(name: str, budget: float) -> dict[str, Any]:
    """One row of the record: medians over the steps of so many seconds, T their mean."""
    e = build(replace(preset(name.split(",")[0]), **RUNS[name]))
    params, _ = e.start()
    run = Run(params, e.optimizer.init(params), params, {})
    steps: list[dict[str, float]] = []
    lengths: list[int] = []
    clock = Clock()
    with charged(clock, e):
        until = float("inf")
        while time.perf_counter() < until or len(steps) < 4:
            if run.iteration == WARM:
                until = time.perf_counter() + budget
            clock.restart()
            batch = e.task.batch(run.iteration, e.config.batch, e.config.seed)
            run, _, _ = train.step(e, run, batch)
            clock.switch("rest")
            if run.iteration > WARM:
                steps.append(clock.spent)
                lengths.append(len(batch.x))
    times = {part: statistics.median(step[part] for step in steps) for part in PARTS}
    return {"run": name, "T": round(statistics.mean(lengths)), "D": e.net.inputs,
            "H": e.net.hidden, "B": e.config.batch, "steps": len(steps),
            "step": statistics.median(sum(step.values()) for step in steps), "parts": times,
            "longest beside the recursion": max(set(PARTS) - {"recursion"}, key=times.get)}


def report(record: dict[str, Any]) -> str:
    """The record as a table."""
    rows = []
    for row in record["runs"]:
        times, longest = row["parts"], row["longest beside the recursion"]
        rows.append([row["run"], f"({row['T']}, {row['D']}, {row['H']}, {row['B']})",
                     row["step"] * 1e3,
                     *(f"{times[part] * 1e3:.3f} ({times[part] / row['step']:.0%})"
                       for part in PARTS),
                     f"{longest}: {times[longest] / times['recursion']:.2f}"])
    return "ms a step, medians (share of the step):\n\n" + table(
        ["run", "(T, D, H, B)", "step", *PARTS, "longest over the recursion"], rows)


def main() -> int:
    parser = argparse.ArgumentParser(description="Time the parts of a training step.",
                                     epilog="Example: python -m benchmarks.steps --quick")
    parser.add_argument("--quick", action="store_true", help="a second each; nothing is recorded")
    quick = parser.parse_args().quick
    record: dict[str, Any] = {"environment": environment(), "runs": []}
    for name in RUNS:
        print(f"{name} ...", file=sys.stderr, flush=True)
        record["runs"].append(measure(name, 1 if quick else 10))
    print(report(record))
    if not quick:
        write_text(RESULTS, json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
