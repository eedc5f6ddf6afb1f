"""What the processor can do, and where the compiled net's time goes: ``python -m
benchmarks.roofline [--quick]``.

The processor's peak and the memory's bandwidth (benchmarks.machine) stand beside a large product
of OpenBLAS, on one core and on all. Then a step of the simple cell by its inner parts: each runs
on one thread, over and over on the same rows, as it does inside the recursion. The best of the
rounds each; written to benchmarks/results/roofline.json.
"""

import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks import machine
from benchmarks.peer_steps import Refnet, draw
from benchmarks.records import Row, options, processor, save
from benchmarks.turns import Child, rounds, seconds
from refnet.compiled._jit import jit
from refnet.compiled.activations import Rule, pull, push, settings
from refnet.compiled.layout import aligned, cut_up
from refnet.compiled.plan import CHUNK
from refnet.compiled.tiles import Rows, Strided, product
from refnet.maths.activations import ACTIVATIONS
from refnet.runs.rows import environment, machine as machine_name, table

SIZES = (
    (784, 1, 100, 16),
    (784, 1, 128, 50),
    (120, 6, 100, 20),
    (1000, 10, 128, 50),
    (300, 49, 512, 50),
)
"""(T, D, H, B) of the step that is taken apart."""
PARTS = ("product forward", "product backward", "weight gradient", "activation", "rest")
REPEATS, LARGE = 300, 1000
ROUNDS, BUDGET = 9, 3.0
"""Rounds at least, and seconds spent on a step at least."""


@jit
def _products(
    n: int, c: Any, a: Any, w: Any, shape: tuple[int, int, int], lane: int, add: bool
) -> None:
    depth, rows, vectors = shape
    for _ in range(n):
        product(c, a, w, depth, rows, vectors, lane, add)


@jit
def _activations(n: int, rule: Any, c: Any, h: Any, rows: int, width: int, back: bool) -> None:
    for _ in range(n):
        if back:
            pull(rule, h, h, c, rule.q, rows, width)
        else:
            push(rule, c, rows, width, width)


def parts(
    T: int, D: int, H: int, B: int, dtype: Any
) -> dict[str, tuple[Callable[[], None], float]]:
    """Every part as something to time, and what makes its seconds those of a training step on
    one thread."""
    dtype = np.dtype(dtype)
    lay = cut_up(dtype, T, B, D, H, H)
    rows, width, row = lay.rows, lay.width, H + D + 1
    wide, n = -(-row // lay.lane) * lay.lane, max(1, REPEATS * 100**2 // H**2)
    w = aligned((row * width,), dtype)  # small numbers everywhere, so packed in any way
    w[:] = 1e-3
    chunk = max(CHUNK // rows, 1) * rows
    a, c = aligned((chunk * wide,), dtype), aligned((rows * width,), dtype)
    das, total = aligned((chunk * width,), dtype), aligned((H * wide,), dtype)
    q = aligned((width,), dtype)
    rule = Rule(*settings(ACTIVATIONS["tanh"], dtype), q)
    h = aligned((rows * width,), dtype)
    c[:] = np.random.default_rng(0).standard_normal(c.size)
    steps = T * B / rows / n
    out, packed, units = Rows(c, width), Rows(w, 0), width // lay.lane
    shape, sums = (chunk, H, wide // lay.lane), Rows(total, wide)
    # (how often in a training step, arguments of the product)
    products: dict[str, tuple[float, tuple[Any, ...]]] = {
        "product forward": (
            steps,
            (out, Strided(a, row, 1), packed, (row, rows, units), lay.lane, False),
        ),
        "product backward": (
            steps,
            (out, Strided(das, width, 1), packed, (H, rows, units), lay.lane, False),
        ),
        "weight gradient": (
            steps * rows / chunk,
            (sums, Strided(das, 1, width), Rows(a, wide), shape, lay.lane, True),
        ),
    }

    def activated() -> None:
        for back in (False, True):
            _activations(n, rule, c, h, rows, width, back)

    return {
        **{
            name: (partial(_products, n, *arguments), times)
            for name, (times, arguments) in products.items()
        },
        "activation": (activated, steps),
    }


def limits(dtype: str, cores: int) -> Row:
    """What this process's cores can do."""
    a = np.ones((LARGE, LARGE), dtype)
    works = {"peak": machine.peak(dtype, cores), "large product": (lambda: a @ a, 2.0 * LARGE**3)}
    rates = {
        f"{name}, GFLOP/s": 1e-9 * machine.rate(what, 3 * ROUNDS) for name, what in works.items()
    }
    return {
        "dtype": dtype,
        "cores": cores,
        **rates,
        "bandwidth, GB/s": 1e-9 * machine.rate(machine.bandwidth(cores), 3 * ROUNDS),
    }


def step_by_parts(size: list[Any], dtype: str) -> Row:
    """The compiled step of the simple cell by parts, the best of the rounds each; "rest" is
    what they leave of it. For a child on one core, as the parts run on one thread."""
    T, D, H, B = size
    runs = {
        "step": (Refnet(draw(T, D, H, B).cast(dtype), "compiled").step, 1.0),
        **parts(T, D, H, B, dtype),
    }
    best = dict.fromkeys(runs, float("inf"))
    for _ in rounds(ROUNDS, BUDGET):
        for name, (run, times) in runs.items():
            best[name] = min(best[name], times * seconds(run))
    return {
        "size": size,
        "dtype": dtype,
        **best,
        "rest": 2 * best["step"] - sum(best.values()),
        "GFLOP/s of the step": 6 * T * B * H * (H + D) / best["step"] / 1e9,
    }


def tables(record: Row) -> tuple[str, str]:
    """What the processor can do, and the step by parts in shares of its time and of the peak of
    one core."""
    limit = [
        [
            processor(record["machine"]),
            row["dtype"],
            row["cores"],
            *(
                f"{row[name]:.0f}"
                for name in ("peak, GFLOP/s", "large product, GFLOP/s", "bandwidth, GB/s")
            ),
        ]
        for row in record["limits"]
    ]
    peaks = {row["dtype"]: row["peak, GFLOP/s"] for row in record["limits"] if row["cores"] == 1}
    steps = [
        [
            str(tuple(row["size"])),
            row["dtype"],
            f"{row['step'] * 1e3:.1f}",
            *(f"{row[part] / row['step']:.0%}" for part in PARTS),
            f"{row['GFLOP/s of the step'] / peaks[row['dtype']]:.0%}",
        ]
        for row in record["steps"]
    ]
    return (
        table(
            ["processor", "dtype", "cores", "peak, GFLOP/s", "OpenBLAS's product", "GB/s"], limit
        ),
        table(["(T, D, H, B)", "dtype", "ms", *PARTS, "of the peak"], steps),
    )


def main() -> int:
    parser = options(
        "Measure what the processor can do, and a step by its parts.",
        "roofline --quick",
        "the smallest size alone",
    )
    quick = parser.parse_args().quick
    record: Row = {
        "environment": environment(),
        "machine": machine_name(),
        "limits": [],
        "steps": [],
    }
    for cores in sorted({1, len(os.sched_getaffinity(0))}):
        for dtype in ("float32", "float64"):
            with Child("benchmarks.roofline", cores) as child:
                record["limits"].append(child.call("limits", dtype, cores))
    for size in SIZES[2:3] if quick else SIZES:
        for dtype in ("float32", "float64"):
            with Child("benchmarks.roofline", 1) as process:
                record["steps"].append(process.call("step_by_parts", size, dtype))
    print("\n".join(tables(record)))
    if not quick:
        save("roofline", record)
    return 0


if __name__ == "__main__":
    sys.exit(main())
