"""One training step against the others: ``python -m benchmarks.peers [--quick]``.

First every peer's loss and gradients are checked against float64's; then forward + backward +
SGD step are timed, the peers taking turns, on one core and on two, and each is taken at its
best. Medians, quartiles and ratios are printed and go to benchmarks/results/peers.json. The
machine should have nothing else to do: the large product's rate of the same minutes is the
yardstick.
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
from refnet.files import write_text
from refnet.record import environment, table

RESULTS = Path(__file__).parent / "results" / "peers.json"
SIZES: tuple[tuple[Any, ...], ...] = (
    (784, 1, 100, 16), (784, 1, 128, 50), (120, 6, 100, 20), (1000, 10, 128, 50),
    (300, 49, 512, 50), (784, 1, 128, 50, "lstm"), (784, 1, 128, 50, "gru"))
"""(T, D, H, B): sequential MNIST of two papers, temporal order, copying, and a wide net; of the
simple cell or the one named."""
LENGTHS = (100, 1000, 10_000)
LARGE = 1000
SHARE = "share of the large product's rate"
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


def turns(runs: dict[str, Any], budget: float) -> dict[str, list[float]]:
    """Seconds of every run, which take turns until the budget of seconds is spent."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    start = time.perf_counter()
    while time.perf_counter() - start < budget or min(map(len, times.values())) < 4:
        for name, run in runs.items():
            time.sleep(TURN)  # idle threads of the one before go on spinning for a while
            for kept in ([], times[name]):
                until = time.perf_counter() + TURN
                while time.perf_counter() < until:
                    kept.append(seconds(run))
    return times


def measure(size: tuple[Any, ...], dtype: str, budget: float) -> dict[str, Any]:
    """Times of all peers on the cores this process may use."""
    peers, off = verify(size, dtype)
    a = np.ones((LARGE, LARGE), dtype)
    runs = {**{name: peer.step for name, peer in peers.items()}, "large product": lambda: a @ a}
    return {"off": off, "times": turns(runs, budget)}


def child(cores: int, call: str) -> Any:
    """What a call of this module gives in a process of its own, held to that many cores before
    anything starts."""
    held = sorted(os.sched_getaffinity(0))[:cores]
    code = (f"import os; os.sched_setaffinity(0, {held}); import json, sys; "
            f"from benchmarks import peers; json.dump(peers.{call}, sys.stdout)")
    threads = {name: str(cores) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS",
                                             "NUMBA_NUM_THREADS")}
    # after a product, OpenBLAS's threads would keep a core busy for 2^26 cycles; 2^10 here
    threads["OPENBLAS_THREAD_TIMEOUT"] = "10"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          env={**os.environ, **threads})
    if done.returncode:
        raise RuntimeError(f"{call} on {cores} cores: {done.stderr.strip()[-400:]}")
    return json.loads(done.stdout)


def spread(values: list[float]) -> dict[str, Any]:
    low, median, high = statistics.quantiles(values, n=4)
    return {"median": median, "quartiles": [low, high]}


def compare(size: tuple[Any, ...], dtype: str, budget: float) -> dict[str, Any]:
    """One row of the record: every peer at its better number of threads."""
    found = {cores: child(cores, f"measure({size}, {dtype!r}, {budget})") for cores in (1, 2)}
    net = draw(*size).net
    T, B, D, H = size[0], size[3], net.inputs, net.hidden
    row: dict[str, Any] = {"T": T, "D": D, "H": H, "B": B, "cell": net.cell, "dtype": dtype,
                           "off": found[1]["off"], "peers": {}}
    for name in found[1]["times"]:
        best = min(found, key=lambda n: statistics.median(found[n]["times"][name]))
        row["peers"][name] = {"threads": best, **spread(found[best]["times"][name])}
    mine = row["peers"]["compiled"]["median"]
    row["ratios"] = {name: row["peers"][name]["median"] / mine for name in row["off"]}
    work = 6 * T * B * len(net.gates) * H * (H + D)
    rate = 2 * LARGE ** 3 / row["peers"]["large product"]["median"]
    row[SHARE] = work / mine / rate
    row["large product, GFLOP/s"] = rate / 1e9
    row["two threads over one"] = (statistics.median(found[1]["times"]["compiled"])
                                   / statistics.median(found[2]["times"]["compiled"]))
    return row


def roofline(size: tuple[int, int, int, int], dtype: str) -> dict[str, Any]:
    """The compiled step of the simple cell by parts; "rest" is what they leave of it. For a
    process on one core, as the parts run on one thread."""
    from benchmarks.roofline import once, parts
    peer = Refnet(draw(*size).cast(dtype), "compiled")
    peer.step()
    found = parts(*size, dtype)
    whole = once(peer.step, 1)
    T, D, H, B = size
    return {"size": size, "dtype": dtype, "step": whole, **found,
            "rest": whole - sum(found.values()),
            "GFLOP/s of the step": 6 * T * B * H * (H + D) / whole / 1e9}


def lengths(budget: float) -> list[dict[str, Any]]:
    """Time per time step and memory as T grows, at H = 128, B = 50, D = 1 in float32. The tape
    that the memory is compared with is all states and the inputs."""
    made = {T: Refnet(draw(T, 1, 128, 50).cast("f4"), "compiled") for T in LENGTHS}
    times = turns({str(T): peer.step for T, peer in made.items()}, budget)
    each = {T: statistics.median(times[str(T)]) / T for T in made}
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
                     "peak MB with the inputs": (peak + inputs) / 1e6,
                     "times one tape": (peak + inputs) / tape})
    return rows


def report(record: dict[str, Any]) -> str:
    """The record as tables."""
    def taken(row: dict[str, Any], name: str) -> str:
        if name not in row["peers"]:
            return "-"
        found = row["peers"][name]
        low, median, high = (1e3 * value for value in (
            found["quartiles"][0], found["median"], found["quartiles"][1]))
        return f"{median:.2f} [{low:.2f}, {high:.2f}] ({row['ratios'][name]:.2f})"

    names = list(dict.fromkeys(name for row in record["sizes"] for name in row["off"]))
    rows = [[f"{row['cell']} ({row['T']}, {row['D']}, {row['H']}, {row['B']})", row["dtype"],
             *(taken(row, name) for name in names), f"{row[SHARE]:.0%}",
             row["large product, GFLOP/s"], row["two threads over one"],
             " ".join(f"{off:.1f}" for off in row["off"].values())] for row in record["sizes"]]
    parts = ["product forward", "product backward", "weight gradient", "activation", "rest"]
    return "\n".join([
        "ms a step, median [quartiles] (times the compiled one):\n",
        table(["cell (T, D, H, B)", "dtype", *names, "of large product", "its GFLOP/s",
               "2 threads / 1", "eps off: " + " ".join(names)], rows),
        "the simple cell on one thread, ms by part:\n",
        table(["(T, D, H, B)", "dtype", "step", *parts, "GFLOP/s"],
              [[str(tuple(row["size"])), row["dtype"], row["step"] * 1e3,
                *(row[part] * 1e3 for part in parts), row["GFLOP/s of the step"]]
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
    return old


def main() -> int:
    parser = argparse.ArgumentParser(description="Time a training step against other frameworks.",
                                     epilog="Example: python -m benchmarks.peers --quick")
    parser.add_argument("--quick", action="store_true",
                        help="the smallest size and the gated cells in float32, a second each; "
                        "nothing is recorded")
    parser.add_argument("--rows", type=int, nargs="+", metavar="N", choices=range(len(SIZES)),
                        help="only these sizes, counted from 0, anew into the record that is there")
    options = parser.parse_args()
    quick = options.quick
    sizes, dtypes, budget = SIZES, ("float32", "float64"), 4
    if options.rows:
        sizes = tuple(SIZES[n] for n in options.rows)
    if quick:
        sizes, dtypes, budget = (SIZES[2], *SIZES[5:]), ("float32",), 1
    record: dict[str, Any] = {"environment": environment(), "sizes": [], "roofline": []}
    for size in sizes:
        for dtype in dtypes:
            print(f"{size} {dtype} ...", file=sys.stderr, flush=True)
            record["sizes"].append(compare(size, dtype, budget))
            if len(size) == 4:
                record["roofline"].append(child(1, f"roofline({size}, {dtype!r})"))
    if options.rows:
        record = merged(json.loads(RESULTS.read_text()), record)
    else:
        record["lengths"] = child(2, f"lengths({budget})")
    print(report(record))
    if not quick:
        write_text(RESULTS, json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
