"""Ctrl-C at any moment of any command: one line and 130, and nothing unfinished left behind."""

import os
import shlex
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import pytest

from benchmarks.stopped import COMMANDS, interrupted
from support.runs import SHORT
from support.subprocesses import run_refnet

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs Linux")
NEEDED = {
    "check": ("flint", "torch", "jax", "onnx", "onnxruntime"),
    "vectors": ("flint",),
    "explain": ("matplotlib",),
    "analyse": ("matplotlib",),
    "compare": ("matplotlib",),
}


MOMENTS = [
    ("study, two processes", 4, signal.SIGINT),
    ("study, two processes", 4, signal.SIGHUP),
    ("train, pre-training", 2, signal.SIGINT),
    ("orthogonalize", 2, signal.SIGINT),
    ("vectors", 2, signal.SIGTERM),
    ("check", 2, signal.SIGINT),
    ("train", 2, signal.SIGHUP),
    ("errata", 1, signal.SIGTERM),
    ("train", 0.3, signal.SIGINT),
    ("info", 0.0, signal.SIGINT),
    ("compare", 0, signal.SIGINT),
]


def missing(name):
    return [module for module in NEEDED.get(name, ()) if find_spec(module) is None]


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """How each command ends, and its folder, by its moment; four wait at a time."""

    def end(moment, folder):
        name, *when = moment
        return moment, (folder, *interrupted(folder, COMMANDS[name], *when))

    moments = [moment for moment in MOMENTS if not missing(moment[0])]
    folders = [tmp_path_factory.mktemp("signal") for _ in moments]  # threads would race
    with ThreadPoolExecutor(4) as pool:
        return dict(pool.map(end, moments, folders))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("moment", MOMENTS, ids=str)
def test_one_line_and_128_plus_the_number(ended, moment):
    name, _, number = moment
    if missing(name):
        pytest.skip(f"{', '.join(missing(name))} (extras) not installed")
    folder, status, output, errors = ended[moment]
    assert status == 128 + number, errors
    if "--resume" not in output:  # a run that had begun says how to go on instead
        assert errors.splitlines() == ["refnet: interrupted"]
    assert not list(folder.rglob("*.part"))


def test_under_nohup_the_end_of_the_terminal_ends_nothing(tmp_path):
    words = [*SHORT, "--iterations", "100", "--out", str(tmp_path / "run")]
    run = subprocess.Popen(
        ["nohup", sys.executable, "-m", "refnet", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while not (tmp_path / "run").exists():
        time.sleep(0.01)
    run.send_signal(signal.SIGHUP)
    assert run.wait() == 0


def test_a_signal_ends_a_process_whose_stderr_is_full():
    code = (
        "import time; from refnet.common.process import interruptible; interruptible(); "
        "print('up', flush=True); time.sleep(60)"
    )
    with open("/dev/full", "w") as full:
        run = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=full)
    with run:
        assert run.stdout.readline() == b"up\n"
        run.send_signal(signal.SIGTERM)
        assert run.wait(30) == 128 + signal.SIGTERM


def test_a_second_signal_ends_a_run_at_once(tmp_path):
    status, output, errors = interrupted(
        tmp_path, COMMANDS["train"] + ["--batch", "2000"], 4, times=2
    )
    assert status == 130 and errors.splitlines() in (["refnet: interrupted"], [])


@pytest.mark.parametrize(
    "words, said", [(["info"], "refnet info"), (["train", "--help"], "refnet")]
)
def test_a_full_standard_output_is_named(words, said):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "refnet", *words], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 2
    assert done.stderr == (
        f"{said}: [Errno 28] No space left on device: standard output; free "
        "some space there, or write to another disk\n"
    )


def test_a_name_that_the_output_cannot_encode_is_written_all_the_same(tmp_path):
    done = run_refnet(*SHORT, "--out", tmp_path / "rün", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("r\\xfcn\n") and (tmp_path / "rün" / "summary.md").is_file()


@pytest.mark.parametrize(
    "words, closed, status",
    [
        ("errata", ">&-", 0),
        ("train --help", ">&-", 0),
        *(("train", closed, 2) for closed in (">&-", "2>&-", ">&- 2>&-")),
    ],
)
def test_a_command_whose_output_is_closed_does_what_it_does_otherwise(words, closed, status):
    done = subprocess.run(
        f"{shlex.quote(sys.executable)} -m refnet {words} {closed}",
        shell=True,
        capture_output=True,
        text=True,
    )
    assert done.returncode == status and "Traceback" not in done.stderr
    assert done.stderr.count("\n") == (status == 2 and "2" not in closed)
