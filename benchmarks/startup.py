"""How long the first gradient takes: ``python -m benchmarks.startup [--quick]``.

For every compiled net, a fresh process with an empty cache folder, and then another that finds
the cache full. Seconds of the whole process and of the first gradient alone, and of the imports,
are printed and go to benchmarks/results/startup.json.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from tempfile import TemporaryDirectory

from benchmarks.records import Row, options, save

TARGETS = {"empty": 4, "full": 1}
"""Seconds that the first gradient may take, by the state of the cache."""


def nets() -> Row:
    """Every cell that has a compiled kernel, in a small net: the time is the compiler's."""
    from refnet.cells import CELLS
    from refnet.nets.recurrent import RecurrentNet

    return {cell: RecurrentNet(6, 100, 4, cell, backend="compiled") for cell in CELLS}


def first_gradient(name: str, dtype: str) -> Row:
    """Seconds of the first gradient in this process, and the kernels it used."""
    import numpy as np

    from refnet.batch import Batch
    from refnet.nets.gradients import loss_and_gradients

    net = nets()[name]
    rng = np.random.default_rng(0)
    params = net.init(rng, dtype)
    batch = Batch(rng.standard_normal((10, 20, 6)).astype(dtype), np.zeros(20, int))
    start = time.perf_counter()
    loss_and_gradients(net, params, batch)
    seconds = time.perf_counter() - start
    from refnet.compiled._jit import compiled_kernels

    return {"gradient": seconds, "kernels": len(compiled_kernels())}


def imports(light: float) -> Row:
    """Seconds of ``import refnet``, as measured before this module was there, and of every module
    of it.

    Raises RuntimeError if a kernel has been compiled by that.
    """
    import refnet

    start = time.perf_counter() - light
    from importlib import import_module
    from pkgutil import walk_packages

    for module in walk_packages(refnet.__path__, "refnet."):
        if module.name != "refnet.__main__":
            import_module(module.name)
    whole = time.perf_counter() - start
    from refnet.compiled._jit import compiled_kernels

    if compiled_kernels():
        raise RuntimeError(f"compiled at import: {', '.join(compiled_kernels())}")
    return {"import refnet": light, "import of every module": whole}


def child(call: str, cache: str) -> Row:
    """What a call of this module gives in a process of its own, and that process's seconds."""
    code = (
        "import json, time; start = time.perf_counter(); import refnet; "
        "light = time.perf_counter() - start; from benchmarks import startup; "
        f"print(json.dumps(startup.{call}))"
    )
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "NUMBA_CACHE_DIR": cache},
    )
    seconds = time.perf_counter() - start
    if done.returncode:
        raise RuntimeError(f"{call}: {done.stderr.strip()[-400:]}")
    return {**json.loads(done.stdout), "process": seconds}


def medians(runs: list[Row]) -> Row:
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def measure(name: str, dtype: str, repeats: int) -> Row:
    """One row of the record."""
    runs_by_state: dict[str, list[Row]] = {state: [] for state in TARGETS}
    for _ in range(repeats):
        with TemporaryDirectory() as cache:
            for runs in runs_by_state.values():
                runs.append(child(f"first_gradient({name!r}, {dtype!r})", cache))
    return {
        "net": name,
        "dtype": dtype,
        **{f"{state} cache": medians(runs) for state, runs in runs_by_state.items()},
    }


def main() -> int:
    parser = options("Time the first gradient of a process.", "startup --quick", "once each")
    quick = parser.parse_args().quick
    from benchmarks.measured import startup
    from refnet.runs.rows import environment

    repeats = 1 if quick else 3
    record: Row = {"environment": environment(), "nets": []}
    with TemporaryDirectory() as cache:
        record["imports"] = medians([child("imports(light)", cache) for _ in range(repeats)])
    for name in nets():
        for dtype in ("float32", "float64"):
            print(f"{name} {dtype} ...", file=sys.stderr, flush=True)
            record["nets"].append(measure(name, dtype, repeats))
    print(startup(record))
    if not quick:
        save("startup", record)
    return 0


if __name__ == "__main__":
    sys.exit(main())
