"""One training step against the others: ``python -m benchmarks.peers [--quick]``.

First every peer's loss and gradients are checked against float64's; then forward + backward +
SGD step are timed. A process held to one core and one on two stand by with all peers, and one
turn is given after the other, round by round: every ratio is one of times of the same seconds,
each peer at its better number of cores. Medians over the rounds with their quartiles are
printed and go to benchmarks/results/peers.json, and so does what each one's best round gives,
where the machine is not quiet. It should have nothing else to do: a large product in the same
rounds is the yardstick.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peer_steps import Refnet, contenders, draw
from benchmarks.roofline import parts
from refnet.runs.files import write_text
from refnet.runs.rows import environment, table

RESULTS = Path(__file__).parent / "results" / "peers.json"
SIZES: tuple[tuple[Any, ...], ...] = (
    (784, 1, 100, 16), (784, 1, 128, 50), (120, 6, 100, 20), (1000, 10, 128, 50),
    (300, 49, 512, 50), (784, 1, 128, 50, "lstm"), (784, 1, 128, 50, "gru"))
"""(T, D, H, B): sequential MNIST of two papers, temporal order, copying, and a wide net; of the
simple cell or the one named."""
LENGTHS = (100, 1000, 10_000)
LARGE = 1000
PRODUCT = "large product"
SHARE = "share of the large product's rate"
ROUNDS, BUDGET = 9, 90.0
"""Rounds at least, and seconds spent on a row at least."""
TURN = 0.1
"""Seconds that a peer steps untimed, and then timed, when it has its turn."""
AGREE = 300
"""How far a gradient may be off, in eps of its largest entry: T dependent roundings."""


def seconds(run: Any) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def verify(size: tuple[Any, ...], dtype: str) -> tuple[dict[str, Any], dict[str, float]]:
    """The peers for a size, and how far each one's worst gradient is from float64's in eps of
    its largest entry (for float64 itself: from the NumPy loop's)."""
    problem = draw(*size)
    loss, exact = Refnet(problem, "reference").gradients()
    eps = float(np.finfo(dtype).eps)
    peers, off = {}, {}
    for name, make in contenders(problem.net.cell).items():
        peers[name] = make(problem.cast(dtype))
        value, found = peers[name].gradients()
        off[name] = max([abs(value - loss) / (eps * abs(loss))] + [
            float(abs(found[key] - exact[key]).max() / (eps * abs(exact[key]).max()))
            for key in problem.params])
        if not off[name] <= AGREE:
            raise ArithmeticError(f"{name} at {size} in {dtype}: a gradient is {off[name]:.0f} "
                                  f"eps of its largest entry from float64's; need {AGREE}")
    return peers, off


def turn(run: Any) -> float:
    """The median of the seconds a step takes once its threads are awake."""
    time.sleep(TURN)  # idle threads of the peer before go on spinning for a while
    for _ in ("untimed", "timed"):
        taken = []
        until = time.perf_counter() + TURN
        while time.perf_counter() < until:
            taken.append(seconds(run))
    return statistics.median(taken)


class Child:
    """This module in a process of its own, held to some cores before anything starts; its
    functions of the name are called there."""

    def __init__(self, cores: int) -> None:
        held = sorted(os.sched_getaffinity(0))[:cores]
        code = (f"import os; os.sched_setaffinity(0, {held}); "
                "from benchmarks import peers; peers.answer()")
        threads = {f"{name}_NUM_THREADS": str(cores)
                   for name in ("OMP", "OPENBLAS", "MKL", "NUMBA")}
        # after a product, OpenBLAS's threads would keep a core busy for 2^26 cycles; 2^10 here
        threads["OPENBLAS_THREAD_TIMEOUT"] = "10"
        self.process = subprocess.Popen([sys.executable, "-c", code], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        env={**os.environ, **threads})

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

    def __exit__(self, *_: Any) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def answer() -> None:
    """The child's side: a result for every call that comes in."""
    for line in sys.stdin:
        name, arguments = json.loads(line)
        print(json.dumps(globals()[name](*arguments)), flush=True)


STEPS: dict[str, Any] = {}
"""In a child: what can be timed."""


def prepare(size: list[Any], dtype: str) -> dict[str, float]:
    """Make and verify all peers; how far each is off."""
    peers, off = verify(tuple(size), dtype)
    a = np.ones((LARGE, LARGE), dtype)
    STEPS.update({**{name: peer.step for name, peer in peers.items()}, PRODUCT: lambda: a @ a})
    for run in STEPS.values():
        run()
    return off


def timed(name: str) -> float:
    """A turn of what was prepared."""
    return turn(STEPS[name])


def compare(size: tuple[Any, ...], dtype: str, rounds: int, budget: float) -> dict[str, Any]:
    """One row of the record: every peer at its better number of cores."""
    with Child(1) as one, Child(2) as two:
        off = one.call("prepare", size, dtype)
        two.call("prepare", size, dtype)
        names = [*off, PRODUCT]
        children = {1: one, 2: two}
        times: dict[tuple[str, int], list[float]] = {
            (name, cores): [] for name in names for cores in children}
        began = time.perf_counter()
        while len(times[PRODUCT, 2]) < rounds or time.perf_counter() - began < budget:
            for (name, cores), taken in times.items():
                taken.append(children[cores].call("timed", name))
    best = {name: min(children, key=lambda n: statistics.median(times[name, n]))
            for name in names}
    at = {name: np.array(times[name, best[name]]) for name in names}
    net = draw(*size).net
    T, B, D, H = size[0], size[3], net.inputs, net.hidden
    work = 6 * T * B * len(net.gates) * H * (H + D)
    return {"T": T, "D": D, "H": H, "B": B, "cell": net.cell, "dtype": dtype, "off": off,
            "rounds": len(times[PRODUCT, 2]),
            "peers": {name: {"threads": best[name], **spread(at[name]), "best": min(at[name])}
                      for name in names},
            "ratios": {name: quotient(at[name], at["compiled"]) for name in off},
            SHARE: quotient(work / (2 * LARGE ** 3) * at[PRODUCT], at["compiled"]),
            "large product, GFLOP/s": spread(2e-9 * LARGE ** 3 / at[PRODUCT]),
            "two threads over one": quotient(times["compiled", 1], times["compiled", 2])}


def roofline(size: list[Any], dtype: str) -> dict[str, Any]:
    """The compiled step of the simple cell by parts, the best of the rounds each; "rest" is
    what they leave of it. For a child on one core, as the parts run on one thread."""
    T, D, H, B = size
    runs = {"step": (Refnet(draw(T, D, H, B).cast(dtype), "compiled").step, 1.0),
            **parts(T, D, H, B, dtype)}
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(ROUNDS):
        for name, (run, times) in runs.items():
            best[name] = min(best[name], times * seconds(run))
    return {"size": size, "dtype": dtype, **best, "rest": 2 * best["step"] - sum(best.values()),
            "GFLOP/s of the step": 6 * T * B * H * (H + D) / best["step"] / 1e9}


def lengths(rounds: int, budget: float) -> list[dict[str, Any]]:
    """Time per time step and memory as T grows, at H = 128, B = 50, D = 1 in float32. The tape
    that the memory is compared with is all states and the inputs."""
    made = {T: Refnet(draw(T, 1, 128, 50).cast("f4"), "compiled") for T in LENGTHS}
    times: dict[int, list[float]] = {T: [] for T in made}
    began = time.perf_counter()
    while len(times[LENGTHS[0]]) < rounds or time.perf_counter() - began < budget:
        for T, peer in made.items():
            times[T].append(turn(peer.step) / T)
    each = {T: statistics.median(taken) for T, taken in times.items()}
    best = {T: min(taken) for T, taken in times.items()}
    rows = []
    for T, peer in made.items():
        tracemalloc.start()
        peer.step()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        inputs = peer.batch.x.nbytes
        tape = 4 * (T + 1) * 50 * 128 + inputs
        rows.append({"T": T, "microseconds per time step": each[T] * 1e6,
                     "times the least": each[T] / min(each.values()),
                     "in the best rounds": best[T] / min(best.values()),
                     "peak MB with the inputs": (peak + inputs) / 1e6,
                     "times one tape": (peak + inputs) / tape})
    return rows


def spread(values: Any) -> dict[str, Any]:
    low, median, high = np.quantile(values, [0.25, 0.5, 0.75])
    return {"median": float(median), "quartiles": [float(low), float(high)]}


def quotient(over: Any, under: Any) -> dict[str, Any]:
    """Round by round, and of each one's best round."""
    return {**spread(np.array(over) / np.array(under)), "best": min(over) / min(under)}


def between(entry: dict[str, Any], digits: int = 2, scale: float = 1) -> str:
    """A median with its quartiles and the best round's."""
    low, high = (scale * value for value in entry["quartiles"])
    best = f", best {scale * entry['best']:.{digits}f}" if "best" in entry else ""
    return f"{scale * entry['median']:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}{best}]"


def report(record: dict[str, Any]) -> str:
    """The record as tables."""
    names = list(dict.fromkeys(name for row in record["sizes"] for name in row["off"]))
    others = names[1:]
    rows = [[f"{row['cell']} ({row['T']}, {row['D']}, {row['H']}, {row['B']})", row["dtype"],
             between(row["peers"]["compiled"], 2, 1e3),
             *(between(row["ratios"][name]) if name in row["off"] else None for name in others),
             between(row[SHARE]), between(row["large product, GFLOP/s"], 0),
             between(row["two threads over one"]),
             " ".join(f"{off:.1f}" for off in row["off"].values())] for row in record["sizes"]]
    shown = ["product forward", "product backward", "weight gradient", "activation", "rest"]
    return "\n".join([
        "medians [quartiles, best rounds]; the others' times over the compiled one's:\n",
        table(["cell (T, D, H, B)", "dtype", "compiled, ms", *others, "of large product",
               "its GFLOP/s", "2 threads / 1", "eps off: " + " ".join(names)], rows),
        "the simple cell on one thread, ms by part:\n",
        table(["(T, D, H, B)", "dtype", "step", *shown, "GFLOP/s"],
              [[str(tuple(row["size"])), row["dtype"], row["step"] * 1e3,
                *(row[part] * 1e3 for part in shown), row["GFLOP/s of the step"]]
               for row in record["roofline"]]),
        "(T, 1, 128, 50), float32, all threads, as T grows:\n",
        table(list(record["lengths"][0]), [list(row.values()) for row in record["lengths"]])])


def merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The old record with the new rows in their places."""
    def place(row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(row.get(name) for name in ("T", "D", "H", "B", "cell", "dtype"))

    def spot(row: dict[str, Any]) -> tuple[Any, ...]:
        return (*row["size"], row["dtype"])

    for part, key in (("sizes", place), ("roofline", spot)):
        fresh = {key(row): row for row in json.loads(json.dumps(new[part]))}
        old[part] = [fresh.get(key(row), row) for row in old[part]]
    return {**old, "lengths": new["lengths"]}


def main() -> int:
    parser = argparse.ArgumentParser(description="Time a training step against other frameworks.",
                                     epilog="Example: python -m benchmarks.peers --quick")
    parser.add_argument("--quick", action="store_true",
                        help="the smallest size and the gated cells in float32, three rounds; "
                        "nothing is recorded")
    parser.add_argument("--rows", type=int, nargs="+", metavar="N", choices=range(len(SIZES)),
                        help="only these sizes, from 0, and the lengths, anew into the record")
    options = parser.parse_args()
    quick = options.quick
    sizes, dtypes, rounds, budget = SIZES, ["float32", "float64"], ROUNDS, BUDGET
    if options.rows:
        sizes = tuple(SIZES[n] for n in options.rows)
    if quick:
        sizes, dtypes, rounds, budget = (SIZES[2], *SIZES[5:]), ["float32"], 3, 0.0
    record: dict[str, Any] = {"environment": environment(), "sizes": [], "roofline": []}
    for size in sizes:
        for dtype in dtypes:
            print(f"{size} {dtype} ...", file=sys.stderr, flush=True)
            record["sizes"].append(compare(size, dtype, rounds, budget))
            if len(size) == 4:
                with Child(1) as one:
                    record["roofline"].append(one.call("roofline", size, dtype))
    with Child(2) as two:
        record["lengths"] = two.call("lengths", rounds, budget)
    if options.rows:
        record = merged(json.loads(RESULTS.read_text()), record)
    print(report(record))
    if not quick:
        write_text(RESULTS, json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
