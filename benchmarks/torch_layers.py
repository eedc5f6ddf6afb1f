"""refnet.torch's layers beside torch.nn's: ``python -m benchmarks.torch_layers [--rows N ...]``.

A step is forward and backward through the module, its final state, a Linear layer and the
cross-entropy, on packed sequences where the lengths differ; a forward pass alone runs under
``torch.no_grad``. First both modules' gradients are checked against float64's. Then both take
turns in two processes, one held to one core and one to two; each counts at its better number.
Medians with quartiles go to benchmarks/results/torch_layers.json. The machine should have nothing
else to do.
"""

import statistics
import sys
from contextlib import ExitStack
from typing import Any

import numpy as np

from benchmarks.fit import CLASSES, ROWS as FITS, generated
from benchmarks.records import Row, options, record as recorded, save
from benchmarks.turns import Child, between, quotient, rounds, spread, turn
from refnet.runs.rows import machine

ROWS = [row for row in FITS if row[1] and len(row) == 6]
"""Cell, T, D, H, B and the lengths, of generated data, without a transition."""
KINDS = ("step", "forward")
ROUNDS, BUDGET = 5, 5.0
"""Rounds at least, and seconds spent on a row at least."""
AGREE = 300
"""How far a gradient may be off, in eps of its largest entry: T dependent roundings."""
STEPS: Row = {}
"""In a child process: what can be timed, by name."""


def prepare(number: int, cores: int) -> dict[str, float]:
    """Make both modules of a row; how far the worst gradient of each is from float64's, in eps of
    its largest entry."""
    import torch

    import refnet.torch

    cell, T, D, H, B, kind = ROWS[number]
    torch.set_num_threads(cores)
    data = generated(T, D, B, kind, B, 0)
    x, y, lengths = map(torch.from_numpy, (data.x, data.y, data.lengths))
    torch.manual_seed(0)
    head, first = torch.nn.Linear(H, CLASSES), getattr(torch.nn, cell.upper())(D, H)

    def outputs(layer: Any, dtype: Any = torch.float32) -> Any:
        given = x.to(dtype)
        if kind != "equal":
            given = torch.nn.utils.rnn.pack_padded_sequence(given, lengths, enforce_sorted=False)
        end = layer(given)[1]
        return head.to(dtype)((end[0] if cell == "lstm" else end)[0])

    def step(layer: Any, dtype: Any = torch.float32) -> list[np.ndarray]:
        layer.zero_grad()
        head.zero_grad()
        torch.nn.functional.cross_entropy(outputs(layer, dtype), y).backward()
        return [parameter.grad.numpy().copy() for parameter in layer.parameters()]

    def forward(layer: Any) -> None:
        with torch.no_grad():
            outputs(layer)

    def same(package: Any, dtype: Any) -> Any:
        layer = getattr(package, cell.upper())(D, H, dtype=dtype)
        layer.load_state_dict(first.state_dict())
        return layer

    exact = step(same(torch.nn, torch.float64), torch.float64)
    eps, off = float(np.finfo(np.float32).eps), {}
    for name, package in (("refnet", refnet.torch), ("torch", torch.nn)):
        layer = same(package, torch.float32)
        off[name] = max(
            float(abs(a - b).max() / (eps * abs(b).max())) for a, b in zip(step(layer), exact)
        )
        if not off[name] <= AGREE:
            raise ArithmeticError(f"{name} is {off[name]:.0f} eps from float64; need {AGREE}")
        STEPS[f"{name} step"] = lambda layer=layer: step(layer)
        STEPS[f"{name} forward"] = lambda layer=layer: forward(layer)
    return off


def timed(name: str) -> float:
    """Seconds of one of the prepared steps, in its turn."""
    return turn(STEPS[name])


def measure(number: int, least: int, budget: float) -> Row:
    """One row of the record: each module at its better number of cores."""
    with ExitStack() as stack:
        children = {n: stack.enter_context(Child("benchmarks.torch_layers", n)) for n in (1, 2)}
        off = [child.call("prepare", number, n) for n, child in children.items()][0]
        names = [f"{name} {kind}" for kind in KINDS for name in off]
        times: dict[str, dict[int, list[float]]] = {name: {1: [], 2: []} for name in names}
        for _ in rounds(least, budget):
            for name, taken in times.items():
                for cores, child in children.items():
                    taken[cores].append(child.call("timed", name))
    best = {name: min(times[name].values(), key=statistics.median) for name in names}
    return {
        "row": ROWS[number],
        "off": off,
        **{
            kind: {
                "seconds": {**spread(best[f"refnet {kind}"]), "best": min(best[f"refnet {kind}"])},
                "ratio": quotient(best[f"torch {kind}"], best[f"refnet {kind}"]),
            }
            for kind in KINDS
        },
        "machine": machine(),
    }


def main() -> int:
    parser = options("Time refnet.torch's layers.", "torch_layers --rows 0 1", "one round")
    parser.add_argument("--rows", nargs="*", type=int, metavar="N", choices=range(len(ROWS)))
    given = parser.parse_args()
    known = {tuple(row["row"]): row for row in recorded("torch_layers").get("rows", [])}
    for number in range(len(ROWS)) if given.rows is None else given.rows:
        row = measure(number, *((1, 0.0) if given.quick else (ROUNDS, BUDGET)))
        print(row["row"], *(between(row[kind]["ratio"]) for kind in KINDS), flush=True)
        known[tuple(row["row"])] = row
        if not given.quick:
            rows = [known[each] for each in ROWS if each in known]
            save("torch_layers", {"rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
