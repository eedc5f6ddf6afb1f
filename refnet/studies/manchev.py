"""The tables and figures of Manchev & Spratling, under the protocol of their released code."""

from functools import partial
from typing import Any

from refnet.matrices.orthogonality import orthogonalization_experiment
from refnet.runs.rows import table
from refnet.studies.grid import Cell, accuracy, grid, solved_at
from refnet.studies.jobs import Job
from refnet.studies.study import Found, Study, spread
from refnet.training.protocols import SYNTHETIC, configure

__all__ = ["STUDIES"]

PROTOCOL, TEXT = "manchev-spratling/code", "manchev-spratling/text"
NETS = {"SRNN": "plain", "SRNN+OPEN": "open", "SRNN+OINIT": "oinit"}

MEANS = {"gaussian": "22.77", "uniform": "24.00"}


def orthogonalise(distribution: str, seed: int, runs: int) -> dict[str, Any]:
    """The 10,000-run experiment of II-A, for one distribution."""
    made = orthogonalization_experiment(distribution, runs=runs, seed=seed)
    return {"mean": round(made.mean, 4), "sd": round(made.sd, 4),
            "extremes": [int(value) for value in made.extremes],
            "success": made.success_rate}


def _experiment(distribution: str, seed: int, quick: bool) -> Job:
    return Job(f"{distribution}, seed {seed}", function="refnet.studies.manchev:orthogonalise",
               arguments={"distribution": distribution, "seed": seed,
                          "runs": 500 if quick else 10_000})


def _experiments(found: Found, seeds: int, quick: bool) -> list[Job]:
    return [_experiment(distribution, seed, quick) for seed in range(seeds)
            for distribution in MEANS]


def _experiment_table(found: Found, seeds: int, quick: bool) -> str:
    lines = []
    for distribution, printed in MEANS.items():
        rows = [row for seed in range(seeds)
                if (row := found(_experiment(distribution, seed, quick))) is not None]
        extremes = [value for row in rows for value in row["extremes"]]
        lines.append([distribution, spread([row["mean"] for row in rows]), printed,
                      f"{min(extremes)} to {max(extremes)}" if extremes else "not run",
                      spread([100 * row["success"] for row in rows]), "100"])
    return table(["start", "mean steps", "printed", "fewest to most", "success, %", "printed"],
                 lines)


LADDER: dict[str, dict[str, int]] = {
    "temporal-order": {"plain": 50, "open": 80, "oinit": 120},
    "temporal-order-3bit": {"plain": 50, "open": 70, "oinit": 90},
    "adding": {"plain": 80, "open": 80, "oinit": 100},
    "random-permutation": {"plain": 90, "open": 140, "oinit": 240},
}
"""Table I: the longest length solved, by problem and method."""
STEP = 10


def _rung(task: str, method: str, length: int, seed: int, quick: bool,
          protocol: str = PROTOCOL) -> Job:
    settings = {"task": task, "method": method, "length": length, "seed": seed,
                "protocol": protocol}
    if quick:
        settings |= {"task": f"{task}:samples=1000", "iterations": 1000}
    return Job(f"{task}, {method}, T = {length}, seed {seed}", configure(settings))


def _climb(found: Found, task: str, method: str, seed: int, quick: bool,
           protocol: str = PROTOCOL) -> tuple[int, Job | None]:
    """The longest length solved with all shorter ones, and the next rung; None at the end."""
    length = STEP
    while True:
        job = _rung(task, method, length, seed, quick, protocol)
        row = found(job)
        if row is None:
            return length - STEP, None if quick and length > 2 * STEP else job
        if row["state"] != "solved":
            return length - STEP, None
        length += STEP


def _rungs(found: Found, seeds: int, quick: bool, protocol: str = PROTOCOL) -> list[Job]:
    # quick: one problem, two rungs
    tasks = SYNTHETIC[:1] if quick else SYNTHETIC
    return [job for seed in range(1 if quick else seeds) for task in tasks
            for method in NETS.values()
            if (job := _climb(found, task, method, seed, quick, protocol)[1]) is not None]


def _ladder_table(found: Found, seeds: int, quick: bool, protocol: str = PROTOCOL) -> str:
    lines = []
    for task in SYNTHETIC[:1] if quick else SYNTHETIC:
        line: list[Any] = [task]
        for method in NETS.values():
            ended: list[float] = []
            open_ended: list[int] = []
            for seed in range(1 if quick else seeds):
                reached, job = _climb(found, task, method, seed, quick, protocol)
                (ended if job is None else open_ended).append(reached)
            begun = [reached for reached in open_ended if reached]
            line += [", ".join([spread(ended, ".0f")] * bool(ended)
                               + [f"at least {max(begun, default=0)}, not finished"] * bool(begun))
                     or "not run", LADDER[task][method]]
        lines.append(line)
    return table(["longest T solved", *(part for net in NETS for part in (net, "printed"))], lines)


RATES = {.1: "91.40", .01: "91.65", .001: "90.66", .0001: "88.80", .00001: "72.81"}

STUDIES = [
    Study("orthogonalisation", "The orthogonalisation experiment of Manchev & Spratling, II-A: "
          "10,000 random 100 x 100 matrices", _experiments, _experiment_table),
    grid("figure-2", "Figure 2 of Manchev & Spratling: spectral radius and gradient norm on "
         "temporal order, T = 60", [
             Cell(net, {"task": "temporal-order", "length": 60, "method": method,
                        "protocol": PROTOCOL}, quick={"task": "temporal-order:samples=1000",
                                                      "iterations": 1500})
             for net, method in NETS.items()],
         [("iterations until solved", solved_at, ".0f"),
          ("spectral radius at the end", lambda row: row["final"].get("spectral_radius"), ".3f")],
         ("spectral_radius", "gradient_norm", "accuracy")),
    grid("table-iii", "Table III of Manchev & Spratling: MNIST, ten hidden layers, best accuracy "
         "in %", [
             Cell(net, {"task": "mnist", "method": method, "protocol": PROTOCOL}, (printed,),
                  quick={"iterations": 6000})
             for net, method, printed in (("FF", "plain", "11.35"), ("FF+OPEN", "open", "97.03"),
                                          ("FF+OINIT", "oinit", "96.77"))],
         [("best accuracy, %", accuracy, ".2f")], ("accuracy", "loss")),
    grid("table-iv", "Table IV of Manchev & Spratling: MNIST, ten hidden layers, OPEN with lambda "
         "= 1.0", [
             Cell(f"alpha = {rate:g}", {"task": "mnist", "method": "open", "strength": 1.0,
                                        "rate": rate, "protocol": PROTOCOL}, (printed,),
                  quick={"iterations": 4000}) for rate, printed in RATES.items()],
         [("best accuracy, %", accuracy, ".2f")], ("accuracy", "loss")),
    Study("table-i", "Table I of Manchev & Spratling: the longest sequence solved, in steps of 10",
          _rungs, _ladder_table),
    Study("table-i-text", "Table I of Manchev & Spratling under the protocol of their text: SGD",
          partial(_rungs, protocol=TEXT), partial(_ladder_table, protocol=TEXT)),
    grid("table-ii", "Table II and Figures 3a, 3b of Manchev & Spratling: MNIST pixel by pixel, a "
         "million iterations", [
             Cell(net, {"task": "sequential-mnist", "method": method, "protocol": PROTOCOL},
                  (printed,), quick={"iterations": 300, "evaluate_every": 300})
             for net, method, printed in (("SRNN+OINIT", "oinit", "86.81"),
                                          ("SRNN+OPEN", "open", "91.81"),
                                          ("SRNN", "plain", "11.35"))],
         [("best accuracy, %", accuracy, ".2f")],
         ("accuracy", "spectral_radius", "defect", "gradient_norm")),
]
