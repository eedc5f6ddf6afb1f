"""What trains a task that says nothing about training: ``python -m benchmarks.defaults``.

Cells, optimizers and rates on seven tasks, with all else as the protocol refnet/default has it: the
iteration at which a run is solved, or its best evaluation. results/defaults.json keeps the rows;
``refnet.training.protocols`` chooses from them.
"""

import sys
from pathlib import Path

import numpy as np

import refnet
from benchmarks.records import Row, save
from refnet.maths.threads import set_threads
from refnet.runs.rows import environment, table
from refnet.tasks import Arrays

ITERATIONS = 2000
MAJORITY = f"{Path(refnet.__file__).parent}/prove/examples/task.py:Majority"
TASKS: Row = {
    **dict.fromkeys(("temporal-order", "temporal-order-3bit"), {"length": 60}),
    **dict.fromkeys(("random-permutation", "adding", "copy"), {"length": 60}),
    MAJORITY: {"length": 61},
    "waves": {},
}
CHOICES = (
    *((cell, "adam", 1e-3) for cell in ("gru", "lstm", "rnn")),
    *(("gru", *rule) for rule in (("adam", 1e-2), ("rmsprop", 1e-2))),
    ("rnn", "adam", 1e-2),
)


def waves(count: int = 2000) -> Arrays:
    """Sequences of 30 to 120 steps in noise, whose class is a frequency."""
    rng = np.random.default_rng(0)
    y, lengths = rng.integers(4, size=count), rng.integers(30, 121, count)
    x = [
        np.sin(np.arange(n) * (k + 2) / 12 + 6.3 * rng.random())[:, None]
        for n, k in zip(lengths, y)
    ]
    return Arrays([each + rng.standard_normal((len(each), 3)) for each in x], y, name="waves")


def row(task: str, cell: str, optimizer: str, rate: float) -> Row:
    """One run: how far it came, and when it was best."""
    settings = {"cell": cell, "optimizer": optimizer, "rate": rate, **TASKS[task]}
    settings |= {"iterations": ITERATIONS, "batch": 20, "protocol": "refnet/default"}
    if task == "waves":
        del settings["protocol"]  # that of any task object
        run = refnet.train(waves(), **settings, patience=0)
    else:
        run = refnet.train(task, **settings)
    metric = run.task.metric
    return {
        "task": run.task.name,
        "cell": cell,
        "optimizer": optimizer,
        "rate": rate,
        "metric": metric,
        "best": run.best[metric],
        "iteration": run.best["iteration"],
        "solved": bool(run.task.solved(run.rows[-1])),
    }


def main() -> None:
    set_threads(1)
    rows = []
    for task in TASKS:
        for choice in CHOICES:
            rows.append(row(task, *choice))
            print(rows[-1], file=sys.stderr, flush=True)
            save("defaults", {"environment": environment(), "rows": rows})
    print(table([*rows[0]], [[*each.values()] for each in rows]))


if __name__ == "__main__":
    main()
