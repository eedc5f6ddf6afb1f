"""What a run survives, tried many times: ``python -m benchmarks.campaign [NAME ...]``.

Kills, signals, full disks, several processes at once, damaged caches and files, long runs: each
part counts its trials and what was not as promised, and goes to benchmarks/results/campaign.json.
The gate runs the same functions with few trials (tests/test_campaign.py). Needs Linux.
"""

import argparse
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.fuzz import fuzz

RESULTS = Path(__file__).parent / "results" / "campaign.json"

Row = dict[str, Any]

COMMANDS = {
    "info": ["info"],
    "train": ["train", "temporal-order", "--length", "60", "--quiet", "--backend", "reference",
              "--evaluate-every", "5"],
    "train, pre-training": ["train", "temporal-order", "--method", "oinit", "--hidden", "700",
                            "--oinit-cost", "1e-30", "--oinit-steps", "100000", "--quiet"],
    "orthogonalize": ["orthogonalize", "--runs", "100000"],
    "vectors": ["vectors", "write", "made"],
    "check": ["check", "rates", "--nets", "3"],
}


def config() -> Any:
    from refnet.training.config import Config

    # a task that so small a net does not solve, as a solved run ends by itself
    return Config(task="adding:samples=40", length=10, hidden=6, batch=4,
                  iterations=1_000_000, evaluate_every=2, optimizer="rmsprop", rate=0.01,
                  backend="reference")


def state(folder: Path) -> Any:
    """All that a run has computed: arrays, position and rows, without wall times."""
    with np.load(folder / "checkpoint.npz") as file:
        held = {name: file[name].tobytes() for name in file.files if name != "meta"}
        position = json.loads(str(file["meta"]))["position"]
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    for part in (position, position["best"], *rows):
        part.pop("seconds", None)
    return held, position, rows


def child(folder: Path, work: Callable[[], Any]) -> int:
    """A forked process that does ``work`` in a folder and ends: with 0, or with 1 after an
    exception, which it leaves in the folder's file "error"."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.chdir(folder)
        work()
        status = 0
    except BaseException as error:
        (folder / "error").write_text(f"{type(error).__name__}: {error}")
    finally:
        os._exit(status)


def go_on(folder: Path, iterations: int) -> None:
    """Start the run, or resume it if it is there."""
    from refnet.training.loop import resume, train
    settings = replace(config(), iterations=iterations)
    resume(settings, folder) if folder.exists() else train(settings, folder)


def reached(folder: Path) -> int:
    from refnet.runs.checkpoint import peek
    return int(peek(folder / "checkpoint.npz")["iteration"])


def same_as_whole(folder: Path) -> bool:
    """Whether the run, resumed for a while, equals one that was never interrupted."""
    end = reached(folder) + 7
    go_on(folder, end)
    whole = folder.parent / "whole"
    go_on(whole, end)
    return bool(state(folder) == state(whole)) and not list(folder.parent.rglob("*.part"))


def kills(trials: int, seed: int = 0) -> Row:
    """SIGKILL at random moments of training, from before there is a folder; every tenth time the
    run is compared with one that was never interrupted."""
    rng, folders, wrong = np.random.default_rng(seed), 0, []
    with TemporaryDirectory() as place:
        go_on(Path(place) / "warm", 2)  # a forked process then begins with every module loaded
    for first in range(0, trials, 10):
        with TemporaryDirectory() as place:
            folder = Path(place) / "run"
            for trial in range(min(10, trials - first)):
                pid = child(folder.parent, lambda: go_on(folder, 1_000_000))
                time.sleep(float(rng.uniform(0, 0.05 if trial % 3 == 0 else 0.6)))
                os.kill(pid, signal.SIGKILL)
                if os.waitpid(pid, 0)[1] != signal.SIGKILL:
                    wrong.append(f"trial {first + trial}: ended by itself: "
                                 f"{(folder.parent / 'error').read_text()}")
                folders += folder.exists()
            if not folder.exists():
                go_on(folder, 4)
            if not same_as_whole(folder):
                wrong.append(f"trials {first} to {first + 9}: other bits, or something left")
    return {"trials": trials, "with a folder": folders, "wrong": wrong}


def full_disks(trials: int, seed: int = 0) -> Row:
    """Files cannot grow beyond a random size; when they can again, the run goes on."""
    rng, failed, wrong = np.random.default_rng(seed), 0, []
    for trial in range(trials):
        with TemporaryDirectory() as place:
            folder, most = Path(place) / "run", int(rng.integers(1, 8000))
            if trial % 2:
                go_on(folder, 4)

            def limited() -> None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
                try:
                    go_on(folder, 30)
                finally:
                    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)

            status = os.waitpid(child(Path(place), limited), 0)[1]
            if status:
                failed += 1
                said = (Path(place) / "error").read_text()
                if "File too large" not in said or "run" not in said:
                    wrong.append(f"{most} bytes: {said}")
            if not folder.exists():
                go_on(folder, 4)
            if not same_as_whole(folder):
                wrong.append(f"{most} bytes: other bits")
    return {"trials": trials, "met the limit": failed, "wrong": wrong}


@contextmanager
def disk(place: Path, size: int) -> Iterator[None]:
    """A file system of ``size`` bytes at ``place``; raises OSError where none can be mounted."""
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)],
                          capture_output=True, text=True)
    if done.returncode:
        raise PermissionError(done.stderr)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def small_file_systems(trials: int, seed: int = 0) -> Row:
    """A file system of 4 to 80 kB, which is full before the run has ended; later it is larger."""
    rng, failed, wrong = np.random.default_rng(seed), 0, []
    for trial in range(trials):
        size = 4096 * int(rng.integers(1, 21))
        with TemporaryDirectory() as place, TemporaryDirectory() as outside, \
                disk(Path(place), size):
            folder = Path(place) / "run"
            if os.waitpid(child(Path(outside), lambda: go_on(folder, 30)), 0)[1]:
                failed += 1
                said = (Path(outside) / "error").read_text()
                if "No space left on device" not in said or place not in said:
                    wrong.append(f"{size} bytes: {said}")
            subprocess.run(["mount", "-o", "remount,size=64m", place], check=True)
            if not folder.exists():
                go_on(folder, 4)
            if not same_as_whole(folder):
                wrong.append(f"{size} bytes: other bits")
    return {"trials": trials, "met the limit": failed, "wrong": wrong}


def start(folder: Path, arguments: list[str], **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-m", "refnet", *arguments], cwd=folder, text=True,
                            env=os.environ | {"PYTHONPATH": os.getcwd()} | environment,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def begun(process: "subprocess.Popen[str]") -> bool:
    """Whether it has come to refnet's own first line, which takes over SIGTERM."""
    text = Path(f"/proc/{process.pid}/status").read_text()
    return bool(int(text.split("SigCgt:")[1].split()[0], 16) >> (signal.SIGTERM - 1) & 1)


def interrupted(folder: Path, arguments: list[str], delay: float, number: int = signal.SIGINT,
                times: int = 1) -> tuple[int, str, str]:
    """Exit status, output and errors of a command that gets a signal ``delay`` seconds after its
    first line."""
    process = start(folder, arguments)
    while process.poll() is None and not begun(process):
        time.sleep(0.001)
    time.sleep(delay)
    for _ in range(times):
        process.send_signal(number)
        time.sleep(0.02)
    output, errors = process.communicate(timeout=120)
    return process.returncode, output, errors


def signals(trials: int, seed: int = 0) -> Row:
    """Ctrl-C and SIGTERM, once or twice, at random moments of every command."""
    rng, wrong, late = np.random.default_rng(seed), [], 0
    for trial in range(trials):
        name = sorted(COMMANDS)[trial % len(COMMANDS)]
        number = signal.SIGINT if rng.integers(3) else signal.SIGTERM
        delay, times = float(rng.uniform(0, 5)) ** 2 / 5, int(rng.integers(1, 3))
        with TemporaryDirectory() as place:
            status, output, errors = interrupted(Path(place), COMMANDS[name], delay, number, times)
            lines = errors.splitlines()
            if status == 0 and name == "info":
                late += 1  # it had ended
                continue
            graceful = "--resume" in output and not lines
            if status != 128 + number or not (graceful or lines == ["refnet: interrupted"]):
                wrong.append(f"{name} after {delay:.2f} s, {times} of {number}: status {status}: "
                             f"{errors[-300:]}")
            if list(Path(place).rglob("*.part")):
                wrong.append(f"{name} after {delay:.2f} s: something left")
            runs = list(Path(place).glob("runs/*/checkpoint.npz"))
            if runs and name == "train":
                more = ["train", "--resume", str(runs[0].parent), "--quiet", "--iterations", "5"]
                if start(Path(place), more).wait(120):
                    wrong.append(f"{name} after {delay:.2f} s: does not resume")
    return {"trials": trials, "had ended": late, "wrong": wrong}


GRADIENT = """
import sys, threading, hashlib
import numpy as np
from refnet.batch import Batch
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.gradients import loss_and_gradients
net = RecurrentNet(3, 20, 4, "{cell}", backend="compiled")
rng = np.random.default_rng(0)
p, b = net.init(rng, "float32"), Batch(rng.standard_normal((9, 16, 3)).astype("f4"),
                                       np.zeros(16, int))
def bits(*_):
    found = loss_and_gradients(net, p, b)
    parts = [np.asarray(found.loss).tobytes()]
    parts += [found.gradients[name].tobytes() for name in sorted(found.gradients)]
    return hashlib.sha256(b"".join(parts)).hexdigest()
"""


def gradient(cache: Path, cell: str = "rnn", then: str = "print(bits())"
             ) -> "subprocess.Popen[str]":
    """A process that prints the digest of a compiled gradient."""
    return subprocess.Popen([sys.executable, "-c", GRADIENT.format(cell=cell) + then], text=True,
                            env=os.environ | {"NUMBA_CACHE_DIR": str(cache)},
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def cold_starts(trials: int, seed: int = 0) -> Row:
    """Six processes at once with one empty cache."""
    wrong = []
    for trial in range(trials):
        with TemporaryDirectory() as place:
            processes = [gradient(Path(place)) for _ in range(6)]
            found = [process.communicate() + (process.returncode,) for process in processes]
            if len(set(found)) != 1 or found[0][1:] != ("", 0):
                wrong.append(f"trial {trial}: {found}")
            if list(Path(place).rglob("*.part")):
                wrong.append(f"trial {trial}: something left")
    return {"trials": trials, "wrong": wrong}


TOGETHER = """
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
import asyncio, os, multiprocessing, numba
alone = bits()
found = set()
with ThreadPoolExecutor(8) as pool:
    found |= set(pool.map(bits, range(40)))
for threads in range(1, numba.config.NUMBA_NUM_THREADS + 1):
    numba.set_num_threads(threads)
    found.add(bits())
async def all_at_once():
    return await asyncio.gather(*(asyncio.to_thread(bits) for _ in range(8)))
found |= set(asyncio.run(all_at_once()))
with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
    found |= set(pool.map(bits, range(8)))
for _ in range(4):
    pid = os.fork()
    if not pid:
        os._exit(bits() != alone)
    found.add(alone if os.waitpid(pid, 0)[1] == 0 else "another in a fork")
print(found == {alone})
"""


def together(trials: int, seed: int = 0) -> Row:
    """Threads, numbers of threads, asyncio, pools and forks give the bits of one call alone."""
    wrong = []
    with TemporaryDirectory() as place:
        for trial in range(trials):
            cell = ("rnn", "lstm", "gru", "gru_before")[trial % 4]
            process = gradient(Path(place), cell, TOGETHER)
            output, errors = process.communicate()
            if (output, errors, process.returncode) != ("True\n", "", 0):
                wrong.append(f"{cell}: {output}{errors[-400:]}")
    return {"trials": trials, "wrong": wrong}


def damaged_caches(trials: int, seed: int = 0) -> Row:
    """One bit flipped in one kernel's file, two files exchanged, or one cut short."""
    rng, wrong, said = np.random.default_rng(seed), [], 0
    with TemporaryDirectory() as place:
        cache = Path(place) / "whole"
        right = gradient(cache).communicate()[0]
        for trial in range(trials):
            copy = Path(place) / "copy"
            shutil.copytree(cache, copy)
            kernels = sorted(copy.rglob("*.nbc"))
            one, two = (kernels[n] for n in rng.choice(len(kernels), 2, replace=False))
            data = bytearray(one.read_bytes())
            match trial % 6:
                case 4:
                    one.write_bytes(two.read_bytes())
                    two.write_bytes(data)
                case 5:
                    one.write_bytes(data[:int(rng.integers(len(data)))])
                case _:
                    data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
                    one.write_bytes(data)
            process = gradient(copy)
            output, errors = process.communicate()
            said += "damaged" in errors
            if process.returncode or output != right or len(errors.splitlines()) > 1:
                wrong.append(f"{one.name}: status {process.returncode}: {output}{errors[-300:]}")
            shutil.rmtree(copy)
    return {"trials": trials, "reported": said, "wrong": wrong}


def two_at_once(trials: int, seed: int = 0) -> Row:
    """Two processes resume one run at the same moment: one does, the other names it."""
    wrong, refused = [], 0
    for trial in range(trials):
        with TemporaryDirectory() as place:
            folder = Path(place) / "run"
            go_on(folder, 4)
            pids = [child(Path(place), lambda: go_on(folder, 60)) for _ in range(2)]
            lost = sum(os.waitpid(pid, 0)[1] != 0 for pid in pids)
            refused += lost
            if lost > 1 or lost and "in use by" not in (Path(place) / "error").read_text():
                wrong.append(f"trial {trial}: {lost} failed")
            if not same_as_whole(folder):
                wrong.append(f"trial {trial}: other bits")
    return {"trials": trials, "refused": refused, "wrong": wrong}


def moved(trials: int, seed: int = 0) -> Row:
    """A run that was stopped is copied, and goes on in its new place."""
    from refnet.training.loop import train
    wrong = []
    for trial in range(trials):
        with TemporaryDirectory() as place:
            asked = iter(range(1000))
            train(config(), Path(place) / "old", stop=lambda: next(asked) >= trial % 20)
            shutil.copytree(Path(place) / "old", Path(place) / "new" / "run")
            shutil.rmtree(Path(place) / "old")
            if not same_as_whole(Path(place) / "new" / "run"):
                wrong.append(f"stopped after {trial % 20} steps: other bits")
    return {"trials": trials, "wrong": wrong}


def memory(trials: int, seed: int = 0) -> Row:
    """Resident bytes after a tenth of the steps and at the end."""
    from refnet.training.loop import train
    sizes: list[int] = []

    def observe(kind: str, facts: dict[str, Any]) -> None:
        if kind == "row":
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            sizes.append(pages * os.sysconf("SC_PAGE_SIZE"))

    with TemporaryDirectory() as place:
        train(replace(config(), iterations=trials, evaluate_every=max(trials // 100, 1), rate=1e-5),
              Path(place) / "run", observe)
    early, late = max(sizes[:len(sizes) // 10 + 1]), max(sizes)
    grown = late - early
    return {"trials": trials, "megabytes": round(late / 1e6, 1), "grown": round(grown / 1e6, 1),
            "wrong": [f"{grown:,} bytes more"] if grown > 10_000_000 else []}


def files(trials: int, seed: int = 0) -> Row:
    """Mutated files of every kind that refnet reads (benchmarks.fuzz)."""
    found = fuzz(trials, seed)
    return {"trials": trials, "kinds": found["kinds"], "wrong": found["wrong"]}


PARTS: dict[str, tuple[Callable[[int], Row], int]] = {
    "kills": (kills, 282), "signals": (signals, 144), "full disks": (full_disks, 60),
    "small file systems": (small_file_systems, 40),
    "two at once": (two_at_once, 20), "moved": (moved, 20), "cold starts": (cold_starts, 3),
    "together": (together, 4), "damaged caches": (damaged_caches, 67), "memory": (memory, 20_000),
    "files": (files, 20_000),
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Try what a run survives.", epilog="Example: "
                                     "python -m benchmarks.campaign kills signals\nParts: "
                                     + ", ".join(PARTS))
    parser.add_argument("names", nargs="*", metavar="NAME", help="which parts (default: all)")
    parser.add_argument("--quick", action="store_true", help="a twentieth of the trials; nothing "
                        "is recorded")
    args = parser.parse_args()
    unknown = set(args.names) - set(PARTS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; the parts are {', '.join(PARTS)}")
    from refnet.runs.files import write_text
    from refnet.runs.rows import environment, table
    from refnet.studies.work import commit
    record: dict[str, Any] = {"parts": {}}
    if RESULTS.exists() and not args.quick:
        record = json.loads(RESULTS.read_text())
    for name in args.names or PARTS:
        part, trials = PARTS[name]
        started = time.perf_counter()
        found = part(max(trials // 20, 1) if args.quick else trials)
        found["commit"] = commit()
        found["minutes"] = round((time.perf_counter() - started) / 60, 1)
        record["parts"][name] = found
        print(f"{name}: {found['trials']} trials, {len(found['wrong'])} wrong, "
              f"{found['minutes']} minutes", *found["wrong"][:20], sep="\n  ", flush=True)
        if not args.quick:
            record["environment"] = environment()
            write_text(RESULTS, json.dumps(record, indent=1) + "\n")
    print(table(["part", "trials", "wrong"], [[name, row["trials"], len(row["wrong"])]
                                              for name, row in record["parts"].items()]))
    return 1 if any(row["wrong"] for row in record["parts"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
