"""Runs and commands that are killed, interrupted, or refused a file. Each function makes ``trials``
trials of one such event and returns their number and whatever did not happen as promised
(``benchmarks.campaign``).
"""

import ctypes
import json
import multiprocessing
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numba.np.ufunc import parallel
from numpy.random import default_rng

from benchmarks.records import Row
from refnet.cli import main
from refnet.runs.checkpoint import peek
from refnet.training.config import Config
from refnet.training.loop import resume, train

PROGRESS = re.compile(
    r"^(\d+ of \d+ runs done; .*|"
    r"  .*: (begun|[\d,]+ of [\d,]+ iterations).*)\n",
    re.M,
)
"""What a study says of how far it is."""

A_RUN = Path(__file__).resolve().parent.parent / "tests/support/data/run"

# all but the SHORT ones go on, and end no part, for far longer than any delay
COMMANDS = {
    name: [word.format(run=A_RUN, runs=A_RUN.parent) for word in words.split()]
    for name, words in {
        "info": "info",
        "train": "train temporal-order --length 60 --quiet --backend reference --evaluate-every 5",
        "train, pre-training": "train temporal-order --method oinit --hidden 700 --quiet "
        "--oinit-cost 1e-30 --oinit-steps 100000",
        "orthogonalize": "orthogonalize --runs 100000",
        "vectors": "vectors write written",
        "check": "check torch --sizes 40,30,4",
        "study": "study copy-10000",
        "study, two processes": "study copy-10000 --workers 2",
        "explain": "explain gradient-flow --figure flow.png",
        "errata": "errata --check",
        "analyse": "analyse {run} --figure run.png",
        "compare": "compare {run} {run} --figure runs.png",
        "runs": "runs {runs}",
    }.items()
}
SHORT = ("info", "explain", "errata", "analyse", "compare", "runs")
"""Commands that may have ended before the signal comes."""


def config() -> Config:
    # a task that so small a net does not solve, as a solved run ends by itself
    return Config(
        task="adding:samples=40",
        length=10,
        hidden=6,
        batch=4,
        iterations=1_000_000,
        evaluate_every=2,
        optimizer="rmsprop",
        rate=0.01,
        backend="reference",
    )


def state(folder: Path) -> tuple[dict[str, bytes], Row, list[Row]]:
    """All that a run has computed: arrays, position and rows, without wall times."""
    with np.load(folder / "checkpoint.npz") as file:
        held = {name: file[name].tobytes() for name in file.files if name != "meta"}
        position = json.loads(str(file["meta"]))["position"]
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    for part in (position, position["best"], *rows):
        part.pop("seconds", None)
    return held, position, rows


def child(folder: Path, work: Callable[[], object]) -> int:
    """A forked process that does ``work`` in a folder and ends: with 0, or with 1 after an
    exception, which it leaves in the folder's file "error"."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    # Numba takes a lock at every question for its threads; shared with the parent, as a fork leaves
    # it, a killed process would keep it for ever
    parallel._backend_init_process_lock = multiprocessing.RLock()
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
    settings = replace(config(), iterations=iterations)
    (resume if folder.exists() else train)(settings, folder, draw=False)


def other_bits(folder: Path, what: str) -> list[str]:
    """Whether the run, begun if it is not there and resumed for a while, differs from one that was
    never interrupted, or left something; ``what`` happened to it."""
    if not folder.exists():
        go_on(folder, 4)
    end = int(peek(folder / "checkpoint.npz")["iteration"]) + 7
    go_on(folder, end)
    whole = folder.parent / "whole"
    go_on(whole, end)
    same = state(folder) == state(whole) and not list(folder.parent.rglob("*.part"))
    return [] if same else [f"{what}: other bits, or something left"]


def kills(trials: int, seed: int = 0) -> Row:
    """SIGKILL at random moments of training, from before there is a folder; every tenth time the
    run is compared with one that was never interrupted."""
    rng, folders, wrong = default_rng(seed), 0, []
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
                    wrong.append(
                        f"trial {first + trial}: ended by itself: "
                        f"{(folder.parent / 'error').read_text()}"
                    )
                folders += folder.exists()
            wrong += other_bits(folder, f"trials {first} to {first + 9}")
    return {"trials": trials, "with a folder": folders, "wrong": wrong}


def full_disks(trials: int, seed: int = 0) -> Row:
    """Files cannot grow beyond a random size; when they can again, the run goes on."""
    rng, failed, wrong = default_rng(seed), 0, []
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
            wrong += other_bits(folder, f"{most} bytes")
    return {"trials": trials, "met the limit": failed, "wrong": wrong}


@contextmanager
def disk(place: Path, size: int) -> Iterator[None]:
    """A file system of ``size`` bytes at ``place``; raises OSError where none can be mounted."""
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise PermissionError(done.stderr)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def small_file_systems(trials: int, seed: int = 0) -> Row:
    """A file system of 4 to 80 kB, which is full before the run has ended; later it is larger."""
    rng, failed, wrong = default_rng(seed), 0, []
    for trial in range(trials):
        size = 4096 * int(rng.integers(1, 21))
        with (
            TemporaryDirectory() as place,
            TemporaryDirectory() as outside,
            disk(Path(place), size),
        ):
            folder = Path(place) / "run"
            if os.waitpid(child(Path(outside), lambda: go_on(folder, 30)), 0)[1]:
                failed += 1
                said = (Path(outside) / "error").read_text()
                if "No space left on device" not in said or place not in said:
                    wrong.append(f"{size} bytes: {said}")
            subprocess.run(["mount", "-o", "remount,size=64m", place], check=True)
            wrong += other_bits(folder, f"{size} bytes")
    return {"trials": trials, "met the limit": failed, "wrong": wrong}


RESUME = "train --resume run --iterations 20 --quiet"
DENIED: list[tuple[str, int, str, str]] = [
    ("shut", 0o500, "shut", "train adding --length 10 --out shut/new/run"),
    ("run", 0o500, "run/config.toml", RESUME),
    ("run", 0o000, "run/config.toml", RESUME),
    ("run/.lock", 0o000, "run/.lock", RESUME),
    ("run/config.toml", 0o000, "run/config.toml", RESUME),
    ("run/checkpoint.npz", 0o000, "run/checkpoint.npz", RESUME),
    ("run/rows.jsonl", 0o000, "run/rows.jsonl", RESUME),
    ("run/rows.jsonl", 0o400, "run/rows.jsonl", RESUME),
    ("run/config.toml", 0o000, "run/config.toml", "train --config run/config.toml"),
    ("run/checkpoint.npz", 0o000, "run/checkpoint.npz", "analyse run"),
    ("run/rows.jsonl", 0o000, "run/rows.jsonl", "compare run run"),
    ("shut", 0o500, "shut/flow.png", "explain powers --figure shut/flow.png"),
    ("matrix.npy", 0o000, "matrix.npy", "explain spectra --matrix matrix.npy"),
    ("shut", 0o500, "shut/studies", "study figure-1 --quick --folder shut/studies"),
    ("figure-1/rows.jsonl", 0o000, "figure-1/rows.jsonl", "study figure-1 --table --folder ."),
    ("shut", 0o500, "shut/vectors", "vectors write shut/vectors"),
    ("manifest.json", 0o000, "manifest.json", "vectors judge . shut"),
    ("shut", 0o500, "shut/rows.json", "check torch --sizes 2,2,2 --json shut/rows.json"),
    ("mine.py", 0o000, "mine.py", "check function mine.py:gradients"),
]
"""The path that is protected, its mode, the file that the error must name, and the command."""


def obey_modes() -> None:
    """Make the modes of files binding for this process and those that it starts, even if they are
    root's."""
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        libc.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP; only root may, only root needs to
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # linux/capability.h, version 3
    sets = (ctypes.c_uint32 * 6)()
    libc.capget(header, sets)
    sets[0] &= ~0b110
    if libc.capset(header, sets):
        raise OSError(ctypes.get_errno(), "capset")


def denied(trials: int, seed: int = 0) -> Row:
    """A file or folder whose mode forbids what a command needs: one line that names it, and
    nothing is left or lost."""
    wrong = []
    for trial in range(trials):
        shut, mode, named, arguments = DENIED[trial % len(DENIED)]
        with TemporaryDirectory() as name:
            place = Path(name)
            go_on(place / "run", 4)
            for folder in ("shut", "figure-1"):
                (place / folder).mkdir()
            for file in ("matrix.npy", "figure-1/rows.jsonl", "manifest.json", "mine.py"):
                (place / file).touch()
            before = sorted(place.rglob("*"))

            def run() -> None:
                obey_modes()
                with open("said", "w") as said, redirect_stderr(said):
                    sys.exit(main(arguments.split()))

            usual = (place / shut).stat().st_mode
            (place / shut).chmod(mode)
            pid = child(place, run)
            os.waitpid(pid, 0)
            (place / shut).chmod(usual)
            ended, said = ((place / name).read_text() for name in ("error", "said"))
            what = f"{arguments} with {shut} {mode:o}"
            lines = [line for line in said.splitlines() if not line.startswith(("usage:", " "))]
            if (
                ended != "SystemExit: 2"
                or len(lines) != 1
                or named not in lines[0]
                or "denied" not in lines[0]
            ):
                wrong.append(f"{what}: {ended}: {said}")
            if sorted(set(place.rglob("*")) - {place / "said", place / "error"}) != before:
                wrong.append(f"{what}: left something")
            wrong += other_bits(place / "run", what)
    return {"trials": trials, "wrong": wrong}


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
            wrong += other_bits(folder, f"trial {trial}")
    return {"trials": trials, "refused": refused, "wrong": wrong}


def copied(trials: int, seed: int = 0) -> Row:
    """A run that was stopped is copied, and goes on in its new place."""
    wrong = []
    for trial in range(trials):
        with TemporaryDirectory() as place:
            asked = iter(range(1000))
            train(config(), Path(place) / "old", stop=lambda: next(asked) >= trial % 20, draw=False)
            shutil.copytree(Path(place) / "old", Path(place) / "new" / "run")
            shutil.rmtree(Path(place) / "old")
            wrong += other_bits(Path(place) / "new/run", f"stopped after {trial % 20} steps")
    return {"trials": trials, "wrong": wrong}


def memory(trials: int, seed: int = 0) -> Row:
    """Resident bytes after a tenth of the steps and at the end."""
    sizes: list[int] = []

    def observe(kind: str, facts: Row) -> None:
        if kind == "row":
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            sizes.append(pages * os.sysconf("SC_PAGE_SIZE"))

    with TemporaryDirectory() as place:
        train(
            replace(config(), iterations=trials, evaluate_every=max(trials // 100, 1), rate=1e-5),
            Path(place) / "run",
            observe,
        )
    early, late = max(sizes[: len(sizes) // 10 + 1]), max(sizes)
    grown = late - early
    return {
        "trials": trials,
        "megabytes": round(late / 1e6, 1),
        "grown": round(grown / 1e6, 1),
        "wrong": [f"{grown:,} bytes more"] if grown > 10_000_000 else [],
    }


def start(folder: Path, arguments: list[str], **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "refnet", *arguments],
        cwd=folder,
        text=True,
        env=os.environ | {"PYTHONPATH": os.getcwd()} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=_heard,
    )


def _heard() -> None:
    """SIGHUP ends what is started, also where this process ignores it, as under nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def begun(process: "subprocess.Popen[str]") -> bool:
    """Whether it has come to refnet's own first line, which takes over SIGTERM."""
    text = Path(f"/proc/{process.pid}/status").read_text()
    return bool(int(text.split("SigCgt:")[1].split()[0], 16) >> (signal.SIGTERM - 1) & 1)


def interrupted(
    folder: Path, arguments: list[str], delay: float, number: int = signal.SIGINT, times: int = 1
) -> tuple[int, str, str]:
    """Exit status, output and errors of a command that gets a signal ``delay`` seconds after its
    first line; a study's progress is left out of its errors."""
    process = start(folder, arguments)
    while process.poll() is None and not begun(process):
        time.sleep(0.001)
    time.sleep(delay)
    for _ in range(times):
        process.send_signal(number)
        time.sleep(0.02)
    try:
        output, errors = process.communicate(timeout=120)
    finally:
        process.kill()
    return process.returncode, output, PROGRESS.sub("", errors)


def signals(trials: int, seed: int = 0) -> Row:
    """Ctrl-C and SIGTERM, once or twice, at random moments of every command."""
    rng, wrong, late = default_rng(seed), [], 0
    for trial in range(trials):
        name = sorted(COMMANDS)[trial % len(COMMANDS)]
        number = signal.SIGINT if rng.integers(3) else signal.SIGTERM
        delay, times = float(rng.uniform(0, 5)) ** 2 / 5, int(rng.integers(1, 3))
        what = f"{name} after {delay:.2f} s"
        with TemporaryDirectory() as place:
            status, output, errors = interrupted(Path(place), COMMANDS[name], delay, number, times)
            lines = errors.splitlines()
            if status == 0 and name in SHORT:
                late += 1
                continue
            graceful = "--resume" in output and not lines
            if status != 128 + number or not (graceful or lines == ["refnet: interrupted"]):
                wrong.append(f"{what}, {times} of {number}: status {status}: {errors[-300:]}")
            if list(Path(place).rglob("*.part")):
                wrong.append(f"{what}: something left")
            runs = list(Path(place).glob("runs/*/checkpoint.npz"))
            if runs and name == "train":
                more = ["train", "--resume", str(runs[0].parent), "--quiet", "--iterations", "5"]
                if start(Path(place), more).wait(120):
                    wrong.append(f"{what}: does not resume")
    return {"trials": trials, "had ended": late, "wrong": wrong}
