"""Where a run's time goes: ``python -m benchmarks.steps [--quick] [--runs NAME ...]``.

``refnet train`` with the tasks' own settings, on the compiled core: the functions of every part
are timed as the loop calls them, steps and evaluations apart. A run is as many steps to an
evaluation as the settings say. The net is what it computes: its matrices, the layers' forward
and backward pass, its read-out and the loss. Means over the steps and the evaluations between
the quartiles of their time go to benchmarks/results/steps.json. MNIST and the Penn Treebank are
read from where ``refnet train`` finds them.

Then two runs of one thread each are put side by side, each on a core of its own, by turns with
one alone: what they share is the memory and the largest cache.
"""

import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from benchmarks.records import Row, options, record as recorded, save
from benchmarks.turns import Child, between, quotient, spread
from refnet.nets import recurrent as base
from refnet.nets.backends import passes_of
from refnet.nets.recurrent import RecurrentNet
from refnet.runs import checkpoint
from refnet.runs.rows import Rows, machine, table
from refnet.training import loop, steps as training
from refnet.training.experiment import Experiment, build
from refnet.training.protocols import preset

RUNS: dict[str, Row] = {
    "temporal-order": {"length": 120, "method": "open"},
    "mnist": {},
    "sequential-mnist": {},
    "permuted-mnist": {},
    "copy": {"length": 200},
    "adding": {"length": 200},
    "ptb": {},
    "ptb, lstm": {"cell": "lstm"},
}
"""Settings beside the task's preset."""
NET = ("layers", "read-out and loss", "transition")
PARTS = (
    "data",
    *NET,
    "penalty",
    "clipping",
    "optimiser",
    "manifold step",
    "scores",
    "matrices",
    "files",
    "rest",
)
SIDE_BY_SIDE = ("temporal-order", "sequential-mnist", "ptb")
MOVES = ("penalty", "clipping", "optimiser", "manifold step")
SHARE = "evaluation's share"
EVERY = 40
"""Steps to an evaluation while they are timed."""
WARM = 5
"""Steps before the first that counts, and one evaluation: kernels are compiled, threads have
started."""


class Clock:
    """Counts the time that passes as one part's or another's."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Begin again, with no time counted."""
        self.spent = dict.fromkeys(PARTS, 0.0)
        self.part, self.since = "rest", time.perf_counter()

    def switch(self, part: str) -> str:
        """Count the time from now on as that of ``part``; returns the part until now."""
        now = time.perf_counter()
        self.spent[self.part] += now - self.since
        before, self.part, self.since = self.part, part, now
        return before

    def charge(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with its own time counted as that of ``part``."""

        def timed(*args: Any, **options: Any) -> Any:
            before = self.switch(part)
            try:
                return function(*args, **options)
            finally:
                self.switch(before)

        return timed


def charged(clock: Clock, e: Experiment) -> ExitStack:
    """The functions of every part charged to the clock, until the stack is closed."""
    net = type(e.net)
    layers: Any = None
    if isinstance(e.net, RecurrentNet):
        layers = passes_of(e.net.cell, e.net.backend_for(e.config.dtype))
    draws = next(name for name in ("draw", "_batch") if hasattr(e.task, name))
    places = [
        (type(e.task), "batch", "data"),
        (type(e.task), draws, "data"),
        (training, "loss_and_gradients", "read-out and loss"),
        (net, "forward", "read-out and loss"),
        (net, "matrices", "transition"),
        (base, "pull_to_parts", "transition"),
        (Experiment, "clip", "clipping"),
        (type(e.optimizer), "step", "optimiser"),
        (Experiment, "open_step", "optimiser"),
        (Experiment, "manifold_step", "manifold step"),
        (type(e.task), "score", "scores"),
        (Experiment, "matrices_of", "matrices"),
        (training, "spectral_radius", "matrices"),
        (training, "defect", "matrices"),
        (Experiment, "report", "matrices"),
        (checkpoint, "save", "files"),
        (Rows, "append", "files"),
    ]
    if layers is not None:  # a feedforward net's stand under "read-out and loss"
        places += [(layers, "forward", "layers"), (layers, "backward", "layers")]
    stack = ExitStack()
    for owner, name, part in places:
        stack.enter_context(patch.object(owner, name, clock.charge(part, getattr(owner, name))))
    penalty = Experiment.penalty

    def timed(e: Experiment) -> Any:
        pull = penalty.__get__(e)
        return pull and clock.charge("penalty", pull)

    stack.enter_context(patch.object(Experiment, "penalty", property(timed)))
    return stack


def typical(times: list[dict[str, float]]) -> Row:
    """Means over the entries whose time is between the quartiles, or over all if there are few."""
    whole = sorted(times, key=lambda spent: sum(spent.values()))
    middle = whole[len(whole) // 4 : -(-3 * len(whole) // 4)] if len(whole) > 3 else whole
    parts = {part: statistics.mean(spent[part] for spent in middle) for part in PARTS}
    return {"time": sum(parts.values()), "parts": parts}


def measure(name: str, budget: float) -> Row:
    """One row of the record, from the steps that ``budget`` seconds allow; T is a mean."""
    config = replace(preset(name.split(",")[0]), **RUNS[name])
    e = build(config)
    clock, steps, evaluations = Clock(), [], []
    lengths: list[int] = []
    until = float("inf")

    def observe(kind: str, facts: Row) -> None:
        nonlocal until
        clock.switch("rest")
        if kind == "step":
            steps.append(clock.spent)
        elif kind == "row":
            evaluations.append(clock.spent)
            if len(evaluations) == 1:  # the first compiles
                del steps[:]
                until = time.perf_counter() + budget
        clock.restart()

    draw = type(e.task).batch

    def batch(task: Any, *arguments: Any) -> Any:
        drawn = draw(task, *arguments)
        lengths.append(len(drawn.x))
        return drawn

    with (
        TemporaryDirectory() as folder,
        patch.object(type(e.task), "batch", batch),
        charged(clock, e),
    ):
        loop.train(
            replace(config, iterations=10**9, evaluate_every=EVERY),
            f"{folder}/run",
            observe,
            lambda: time.perf_counter() > until and len(evaluations) > 1,
        )
    del steps[:WARM], evaluations[:1]

    step, evaluation = typical(steps), typical(evaluations)
    every = config.evaluate_every
    whole = every * step["time"] + evaluation["time"]
    inside = sum(every * step["parts"][part] + evaluation["parts"][part] for part in NET)
    feedforward = not isinstance(e.net, RecurrentNet)
    return {
        "run": name,
        "T": 1 if feedforward else round(statistics.mean(lengths)),
        "D": e.task.inputs,
        "H": config.hidden,
        "B": config.batch,
        "every": every,
        "steps": len(steps),
        "evaluations": len(evaluations),
        "step": step,
        "evaluation": evaluation,
        SHARE: evaluation["time"] / whole,
        "in the net": inside / whole,
    }


STEPPED: Row = {}
"""In a child process: the experiment that it trains and the present state of its run, by name."""


def step_for(name: str, budget: float) -> float:
    """Go on training for ``budget`` seconds; the median of the seconds of a step."""
    if name not in STEPPED:
        e = build(replace(preset(name.split(",")[0]), **RUNS[name]))
        params, _ = e.start()
        STEPPED[name] = e, training.Run(params, e.optimizer.init(params), params, {})
    e, run = STEPPED[name]
    taken = []
    until = time.perf_counter() + budget
    while time.perf_counter() < until or len(taken) <= WARM:
        start = time.perf_counter()
        batch = e.task.batch(run.iteration, e.config.batch, e.config.seed)
        run, _, _ = training.step(e, run, batch)
        taken.append(time.perf_counter() - start)
    STEPPED[name] = e, run
    return statistics.median(taken)


def side_by_side(name: str, rounds: int, budget: float) -> Row:
    """How much longer a step takes while another run is on the other core."""
    times: dict[str, list[float]] = {"alone": [], "together": []}
    with (
        Child("benchmarks.steps", 1, 0) as single,
        Child("benchmarks.steps", 1, 1) as other,
        ThreadPoolExecutor(2) as pool,
    ):
        for child in (single, other):
            child.call("step_for", name, 0.0)
        for _ in range(rounds):
            times["alone"].append(single.call("step_for", name, budget))
            both = [pool.submit(child.call, "step_for", name, budget) for child in (single, other)]
            times["together"].append(both[0].result())
            both[1].result()
    return {
        "run": name,
        **{kind: spread(values) for kind, values in times.items()},
        "ratio": quotient(times["together"], times["alone"]),
    }


def shares(record: Row) -> str:
    """The record as a table: a step and an evaluation by parts, and the whole run."""
    rows = []
    for row in record["runs"]:
        for kind in ("step", "evaluation"):
            parts, time = row[kind]["parts"], row[kind]["time"]
            rest = time - sum(parts[part] for part in ("data", *NET, *MOVES))
            rows.append(
                [
                    f"{row['run']} ({row['T']}, {row['D']}, {row['H']}, {row['B']})"
                    if kind == "step"
                    else "",
                    kind,
                    f"{time * 1e3:.1f}",
                    *(f"{parts[part] / time:.0%}" for part in ("data", *NET)),
                    f"{sum(parts[part] for part in MOVES) / time:.0%}",
                    f"{rest / time:.0%}",
                    f"{row['in the net']:.0%}" if kind == "step" else "",
                    f"1 in {row['every']}: {row[SHARE]:.0%}" if kind == "evaluation" else "",
                ]
            )
    return table(
        [
            "run (T, D, H, B)",
            "",
            "ms",
            "data",
            *NET,
            "update",
            "rest",
            "in the net",
            "evaluations, of the time",
        ],
        rows,
    )


def together(record: Row) -> str:
    """Two runs side by side, as a table."""
    return table(
        ["run", "one alone, ms a step", "beside another", "ratio"],
        [
            [
                row["run"],
                between(row["alone"], 2, 1e3),
                between(row["together"], 2, 1e3),
                between(row["ratio"], 3),
            ]
            for row in record.get("side by side", [])
        ],
    )


def main() -> int:
    parser = options("Time the parts of a training step.", "steps --quick", "a second each")
    parser.add_argument(
        "--runs",
        nargs="*",
        metavar="NAME",
        choices=RUNS,
        help="measure only these runs, and replace them in the record; without a "
        f"name, only two runs side by side. The names: {'; '.join(RUNS)}",
    )
    args = parser.parse_args()
    quick, some = args.quick, args.runs is not None
    record = recorded("steps") if some else {}

    for name in args.runs if some else RUNS:
        print(f"{name} ...", file=sys.stderr, flush=True)
        rows = {row["run"]: row for row in record.get("runs", [])}
        rows[name] = {**measure(name, 1 if quick else 8), "machine": machine()}
        record["runs"] = [rows[known] for known in RUNS if known in rows]
        if not quick:
            save("steps", record)
    if not args.runs:
        record["side by side"] = [
            side_by_side(name, *((3, 0.3) if quick else (9, 1.0))) for name in SIDE_BY_SIDE
        ]
        if not quick:
            save("steps", record)
    print(shares(record))
    print(together(record))
    return 0


if __name__ == "__main__":
    sys.exit(main())
