"""What checkpoints cost and save: ``python -m benchmarks.checkpoints [--quick]``.

The same training step of the compiled net with and without them, in turns, as T grows. First
both gradients are checked against float64's. Medians and quartiles of the times and of their
ratio, pair by pair, and the peak memory of a step are printed and go to
benchmarks/results/checkpoints.json. The machine should have nothing else to do.
"""

import sys
from dataclasses import replace

import numpy as np

from benchmarks.measured import checkpoints
from benchmarks.peer_steps import Refnet, draw, worst_error
from benchmarks.records import Row, options, save
from benchmarks.turns import peak_memory, rounds, seconds, spread
from refnet.runs.rows import environment

LENGTHS = (1000, 10_000, 100_000)
SIZE = {"D": 1, "H": 100, "B": 16}
NAMES = ("none", "sqrt")
PAIRS, BUDGET = 7, 10.0
"""Pairs of steps at least, and seconds spent on a length at least."""


def steps(T: int, dtype: str) -> dict[str, Refnet]:
    """The training step without and with checkpoints."""
    variants = {}
    for name in NAMES:
        variants[name] = Refnet(draw(T, **SIZE).cast(dtype), "compiled")
        variants[name].net = replace(variants[name].net, checkpoint=name)
    return variants


def off(peers: dict[str, Refnet], exact: dict[str, np.ndarray]) -> dict[str, float]:
    """How far each one's worst gradient is from float64's, in eps of its largest entry.

    Raises ArithmeticError if checkpoints make it more than twice as far (and 10 eps).
    """
    eps = float(np.finfo(np.float32).eps)
    errors = {}
    for name, peer in peers.items():
        _, gradients = peer.gradients()
        errors[name] = worst_error(gradients, {key: exact[key] for key in peer.params}, eps)
    if not errors["sqrt"] <= 2 * errors["none"] + 10:
        raise ArithmeticError(
            f"gradients with checkpoints are {errors['sqrt']:.0f} eps from "
            f"float64's, without them {errors['none']:.0f}"
        )
    return errors


def compare(T: int) -> Row:
    """One row of the record."""
    peers = steps(T, "float32")
    row: Row = {"T": T, "off": off(peers, steps(T, "float64")["sqrt"].gradients()[1])}
    times: dict[str, list[float]] = {name: [] for name in NAMES}
    for _ in rounds(PAIRS, BUDGET):
        for name, peer in peers.items():
            times[name].append(seconds(peer.step))
    row["seconds"] = {name: spread(values) for name, values in times.items()}
    row["ratio"] = spread(
        [checkpointed / plain for plain, checkpointed in zip(times["none"], times["sqrt"])]
    )
    row["peak bytes"] = {name: peak_memory(peer.step) for name, peer in peers.items()}
    return row


def main() -> int:
    parser = options(
        "Time and memory of a training step with and without checkpoints.",
        "checkpoints --quick",
        "without the longest",
    )
    quick = parser.parse_args().quick
    record: Row = {"environment": environment(), **SIZE, "dtype": "float32", "lengths": []}
    for T in LENGTHS[:-1] if quick else LENGTHS:
        print(f"T = {T} ...", file=sys.stderr, flush=True)
        record["lengths"].append(compare(T))
    print(checkpoints(record))
    if not quick:
        save("checkpoints", record)
    return 0


if __name__ == "__main__":
    sys.exit(main())
