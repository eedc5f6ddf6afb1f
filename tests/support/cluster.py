"""A cluster on this machine, for tests of studies."""

import json
import os
import subprocess
import sys
import time


def scheduler_and_workers(folder, workers=2):
    """A scheduler and workers of dask, each a process without a nanny; their address."""

    def dask(*words):
        code = "import sys; from distributed.cli import dask_{0}; dask_{0}.main()".format(words[0])
        return subprocess.Popen(
            [sys.executable, "-c", code, *words[1:]],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": os.getcwd()},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    file = folder / "scheduler.json"
    processes = [dask("scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", str(file))]
    deadline = time.monotonic() + 60
    while not file.exists() or not file.read_text():
        assert time.monotonic() < deadline and processes[0].poll() is None
        time.sleep(0.05)
    processes += [
        dask(
            "worker",
            "--no-nanny",
            "--nthreads",
            "1",
            "--no-dashboard",
            "--scheduler-file",
            str(file),
        )
        for _ in range(workers)
    ]
    return processes, json.loads(file.read_text())["address"]
