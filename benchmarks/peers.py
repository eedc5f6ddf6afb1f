"""One training step against the others: ``python -m benchmarks.peers [--quick]``.

First every peer's loss and gradients are checked against float64's; then forward + backward +
SGD step are timed. Two processes, one held to one core and one to two, hold all peers, which take
turns, round by round: every ratio is of times measured within the same seconds, with each peer at
its better number of cores. Medians over the rounds with their quartiles are printed and go to
benchmarks/results/peers.json, together with the ratios of the best rounds, for a machine that is
not quiet. The machine should have nothing else to do.

Yardsticks in the same rounds are a large product, and the roofline: a step takes at least its
arithmetic at the processor's peak (benchmarks.machine), and at least the time to write and read
back its tape and, in a feedforward net, its matrices. PyTorch is timed as it is, and in processes
of its own that call ``torch.set_flush_denormal(True)`` before anything else, so that their threads
count subnormal numbers as 0, as JAX's and refnet's do; NumPy has no such switch.
"""

import statistics
import sys
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np

from benchmarks import machine
from benchmarks.peer_steps import FEEDFORWARD, Refnet, contenders, draw, worst_error
from benchmarks.records import Row, options, record as recorded, save
from benchmarks.turns import Child, peak_memory, quotient, rounds, spread, turn
from refnet.batch import Array
from refnet.runs.rows import machine as machine_name

SIZES: tuple[tuple[Any, ...], ...] = (
    (784, 1, 100, 16),
    (784, 1, 128, 50),
    (120, 6, 100, 20),
    (1000, 10, 128, 50),
    (300, 49, 512, 50),
    (784, 1, 128, 50, "lstm"),
    (784, 1, 128, 50, "gru"),
    (784, 1, 128, 1),
    (784, 1, 128, 4),
    (200, 1, 128, 200),
    (100, 1, 128, 1000),
    (784, 1, 16, 50),
    (784, 1, 32, 50),
    (784, 1, 64, 50),
    (200, 1, 256, 50),
    (20, 1, 2000, 50),
    *((1, 784, H, B, FEEDFORWARD) for H in (100, 512) for B in (1, 16, 128, 1000)),
)
"""(T, D, H, B): sequential MNIST of two papers, temporal order, copying, and a wide net; of the
simple cell or the one named; then from the smallest batch to the largest, and from the narrowest
net to the widest, over fewer steps where each takes long; and the feedforward net of DEPTH
hidden layers."""
DTYPES = ("float32", "float64")
LENGTHS = (100, 1000, 10_000)
LARGE = 1000
PRODUCT, PEAK, BANDWIDTH = "large product", "peak", "bandwidth"
SHARE = "share of the large product's rate"
ROOF = "share of the roofline"
FLUSHED = ", flushed"
ROUNDS, BUDGET = 9, 30.0
"""Rounds at least, and seconds spent on a row at least."""
AGREE = 300
"""How far a gradient may be off, in eps of its largest entry: T dependent roundings."""


def verify(size: tuple[Any, ...], dtype: str, only: str = "") -> tuple[Row, dict[str, float]]:
    """The peers for a size whose names begin with ``only``, and how far each one's worst gradient
    is from float64's in eps of its largest entry (for float64 itself: from the NumPy loop's)."""
    problem = draw(*size)
    loss, exact = Refnet(problem, "reference").gradients()
    eps = float(np.finfo(dtype).eps)
    peers, off = {}, {}
    for name, make in contenders(problem.kind).items():
        if not name.startswith(only):
            continue
        peers[name] = make(problem.cast(dtype))
        value, gradients = peers[name].gradients()
        wanted = {key: exact[key] for key in problem.params}
        off[name] = max(abs(value - loss) / (eps * abs(loss)), worst_error(gradients, wanted, eps))
        if not off[name] <= AGREE:
            raise ArithmeticError(
                f"{name} at {size} in {dtype}: a gradient is {off[name]:.0f} "
                f"eps of its largest entry from float64's; need {AGREE}"
            )
    return peers, off


def demand(size: tuple[Any, ...], dtype: str) -> dict[str, float]:
    """The least that a step does: operations of its products, forward, backward and for the
    weight gradients, and bytes of the inputs and the tape, each moved twice."""
    problem = draw(*size).cast(dtype)
    net = problem.net
    if problem.kind == FEEDFORWARD:
        B, size = len(problem.x), np.dtype(dtype).itemsize
        each = [value.size for name, value in problem.params.items() if name[0] == "W"]
        # W is read twice, its gradient written and read, the new W written
        return {
            "operations": 2.0 * B * (3 * sum(each) - each[0]),
            "bytes": float(size * (5 * sum(each) + 2 * B * sum(net.widths))),
        }
    T, B, D = problem.x.shape
    tape = Refnet(problem, "compiled").net.forward(problem.params, problem.x)[1].cell
    return {
        "operations": 6.0 * T * B * len(net.gates) * net.hidden * (net.hidden + D),
        "bytes": 2.0 * sum(part.nbytes for part in tape if part is not None),
    }


STEPS: Row = {}
"""In a child process: the steps that can be timed, by name."""


def prepare(size: list[Any], dtype: str, cores: int) -> dict[str, dict[str, float]]:
    """Make and verify all peers. Returns how far each is off, what a step demands, and the
    operations or bytes of one run of each yardstick."""
    peers, off = verify(tuple(size), dtype)
    a = np.ones((LARGE, LARGE), dtype)
    compute, operations = machine.peak(dtype, cores)
    move, bytes_moved = machine.bandwidth(cores)
    STEPS.update(
        {
            **{name: peer.step for name, peer in peers.items()},
            PRODUCT: lambda: a @ a,
            PEAK: compute,
            BANDWIDTH: move,
        }
    )
    for run in STEPS.values():
        run()
    return {
        "off": off,
        "demand": demand(tuple(size), dtype),
        "made": {PRODUCT: 2.0 * LARGE**3, PEAK: operations, BANDWIDTH: bytes_moved},
    }


def prepare_flushed(size: list[Any], dtype: str) -> dict[str, float]:
    """The same for PyTorch alone, subnormal numbers counting as 0 in the whole process."""
    import torch

    if not torch.set_flush_denormal(True):
        raise RuntimeError("this processor cannot count subnormal numbers as 0")
    peers, off = verify(tuple(size), dtype, only="torch")
    STEPS.update({name + FLUSHED: peer.step for name, peer in peers.items()})
    for run in STEPS.values():
        run()
    return {name + FLUSHED: value for name, value in off.items()}


def timed(name: str) -> float:
    """Seconds of one of the prepared steps, in its turn."""
    return turn(STEPS[name])


class Measured(NamedTuple):
    """Of the peers and yardsticks: what ``prepare`` says by cores, how far each peer is off, and
    seconds by name and cores."""

    known: dict[int, Row]
    off: dict[str, float]
    times: dict[tuple[str, int], list[float]]


def measure(size: tuple[Any, ...], dtype: str, least: int, budget: float) -> Measured:
    """Time all peers in turns, on one core and on two."""
    with ExitStack() as stack:
        children = {
            (cores, flushed): stack.enter_context(Child("benchmarks.peers", cores))
            for cores in (1, 2)
            for flushed in (False, True)
        }
        known = {
            cores: children[cores, False].call("prepare", size, dtype, cores) for cores in (1, 2)
        }
        off = known[1]["off"]
        for cores in (1, 2):
            off |= children[cores, True].call("prepare_flushed", size, dtype)
        names = [*off, PRODUCT, PEAK, BANDWIDTH]
        times: dict[tuple[str, int], list[float]] = {
            (name, cores): [] for name in names for cores in (1, 2)
        }
        for _ in rounds(least, budget):
            for (name, cores), taken in times.items():
                child = children[cores, name.endswith(FLUSHED)]
                taken.append(child.call("timed", name))
    return Measured(known, off, times)


def compare(size: tuple[Any, ...], dtype: str, least: int, budget: float) -> Row:
    """One row of the record: every peer at its better number of cores."""
    known, off, times = measure(size, dtype, least, budget)
    names = [*off, PRODUCT, PEAK, BANDWIDTH]
    best = {name: min((1, 2), key=lambda n: statistics.median(times[name, n])) for name in names}
    best[PEAK] = best[BANDWIDTH] = 2  # both cores do twice the work of one
    at = {name: np.array(times[name, best[name]]) for name in names}
    demanded = known[1]["demand"]
    problem = draw(*size)

    def roof(cores: int) -> Array:
        """Seconds of a step at the yardsticks' rates, round by round."""
        least = [
            demanded[what] / known[cores]["made"][name] * np.array(times[name, cores])
            for what, name in (("operations", PEAK), ("bytes", BANDWIDTH))
        ]
        return np.maximum(*least)

    def rate(name: str) -> Row:
        return spread(1e-9 * known[best[name]]["made"][name] / at[name])

    return {
        "T": size[0],
        "D": size[1],
        "H": size[2],
        "B": size[3],
        "cell": problem.kind,
        "dtype": dtype,
        "off": off,
        "rounds": len(times[BANDWIDTH, 2]),
        "demand": demanded,
        "peers": {
            name: {"threads": best[name], **spread(at[name]), "best": min(at[name])}
            for name in names
        },
        "ratios": {name: quotient(at[name], at["compiled"]) for name in off},
        SHARE: quotient(
            demanded["operations"] / known[1]["made"][PRODUCT] * at[PRODUCT], at["compiled"]
        ),
        ROOF: quotient(roof(best["compiled"]), at["compiled"]),
        f"{ROOF} on one core": quotient(roof(1), times["compiled", 1]),
        "large product, GFLOP/s": rate(PRODUCT),
        "peak, GFLOP/s": rate(PEAK),
        "bandwidth, GB/s": rate(BANDWIDTH),
        "two threads over one": quotient(times["compiled", 1], times["compiled", 2]),
    }


def lengths(least: int, budget: float) -> list[Row]:
    """Time per time step and memory as T grows, at H = 128, B = 50, D = 1 in float32. The tape
    that the memory is compared with is all states and the inputs."""
    nets = {T: Refnet(draw(T, 1, 128, 50).cast("f4"), "compiled") for T in LENGTHS}
    times: dict[int, list[float]] = {T: [] for T in nets}
    for _ in rounds(least, budget):
        for T, peer in nets.items():
            times[T].append(turn(peer.step) / T)
    each = {T: statistics.median(taken) for T, taken in times.items()}
    best = {T: min(taken) for T, taken in times.items()}
    rows = []
    for T, peer in nets.items():
        peak = peak_memory(peer.step)
        inputs = peer.batch.x.nbytes
        tape = 4 * (T + 1) * 50 * 128 + inputs
        rows.append(
            {
                "T": T,
                "microseconds per time step": each[T] * 1e6,
                "times the least": each[T] / min(each.values()),
                "in the best rounds": best[T] / min(best.values()),
                "peak MB with the inputs": (peak + inputs) / 1e6,
                "times one tape": (peak + inputs) / tape,
            }
        )
    return rows


def placed(rows: list[Row], new: Row) -> list[Row]:
    """The rows with a new one in its place, in the order of SIZES."""

    def place(row: Row) -> tuple[int | str, ...]:
        return tuple(row[name] for name in ("T", "D", "H", "B", "cell", "dtype"))

    by_place = {place(row): row for row in [*rows, new]}
    order = [
        (*size[:4], size[4] if len(size) > 4 else "rnn", dtype)
        for size in SIZES
        for dtype in DTYPES
    ]
    return [by_place[at] for at in order if at in by_place]


def main() -> int:
    parser = options(
        "Time a training step against other frameworks.",
        "peers --quick",
        "the smallest size and the gated cells in float32, three rounds",
    )
    parser.add_argument(
        "--rows",
        type=int,
        nargs="*",
        metavar="N",
        choices=range(len(SIZES)),
        help="measure only these sizes, counted from 0, and replace them in the "
        "record; without a number, only time and memory as sequences grow",
    )
    args = parser.parse_args()
    from benchmarks import measured  # which imports this module

    quick, some = args.quick, args.rows is not None
    sizes, dtypes, least, budget = SIZES, DTYPES, ROUNDS, BUDGET
    if some:
        sizes = tuple(SIZES[n] for n in args.rows)
    if quick:
        sizes, dtypes, least, budget = (SIZES[2], *SIZES[5:7]), DTYPES[:1], 3, 0.0
    record: Row = recorded("peers") if some else {"sizes": []}

    for size in sizes:
        for dtype in dtypes:
            print(f"{size} {dtype} ...", file=sys.stderr, flush=True)
            row = compare(size, dtype, least, budget)
            record["sizes"] = placed(record["sizes"], {**row, "machine": machine_name()})
            if not quick:
                save("peers", record)
    if not (some and sizes):
        with Child("benchmarks.peers", 2) as two:
            record["lengths"] = two.call("lengths", least, budget)
        if not quick:
            save("peers", record)
    print(measured.peers(record))
    if "lengths" in record:
        print(measured.lengths(record))
    return 0


if __name__ == "__main__":
    sys.exit(main())
