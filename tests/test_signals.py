"""Ctrl-C at any moment of any command: one line and 130, and nothing unfinished left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

COMMANDS = {
    "start-up": ["info"],
    "train": ["train", "temporal-order", "--length", "60", "--quiet", "--backend", "reference"],
    "pre-training": ["train", "temporal-order", "--method", "oinit", "--hidden", "700", "--quiet",
                     "--oinit-cost", "1e-30", "--oinit-steps", "100000"],
    "orthogonalize": ["orthogonalize", "--runs", "100000"],
    "vectors": ["vectors", "write", "made"],
    "check": ["check", "rates", "--nets", "3"],
}


def start(folder, arguments):
    return subprocess.Popen([sys.executable, "-m", "refnet", *arguments], cwd=folder,
                            env=os.environ | {"PYTHONPATH": os.getcwd()},
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ready(process):
    """Whether the process has reached refnet's own code: its SIGINT handler is installed."""
    text = Path(f"/proc/{process.pid}/status").read_text()
    caught = int(text.split("SigCgt:")[1].split()[0], 16)
    return bool(caught >> (signal.SIGTERM - 1) & 1)


def interrupted(folder, arguments, delay, times=1):
    """Exit status, standard output and error of a command that gets Ctrl-C ``delay`` seconds after
    its first own line of code."""
    process = start(folder, arguments)
    deadline = time.monotonic() + 60
    while not ready(process):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.002)
    time.sleep(delay)
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(0.02)
    output, errors = process.communicate(timeout=60)
    return process.returncode, output, errors


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs Linux's /proc")
@pytest.mark.parametrize("name, delay", [
    ("start-up", 0.0), ("start-up", 0.1), ("train", 0.3), ("pre-training", 2), ("orthogonalize", 3),
    ("vectors", 2), ("check", 3)])
def test_one_line_and_130(tmp_path, name, delay):
    status, output, errors = interrupted(tmp_path, COMMANDS[name], delay)
    lines = (errors + output).splitlines()
    if name == "train" and status == 130 and "--resume" in output:
        return  # it had begun, and says how to go on
    assert status == 130, errors
    assert [line for line in errors.splitlines()] == ["refnet: interrupted"], lines
    assert not list(tmp_path.rglob("*.part"))


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs Linux's /proc")
def test_a_second_signal_ends_a_run_at_once(tmp_path):
    status, output, errors = interrupted(tmp_path, COMMANDS["train"] + ["--batch", "2000"], 4, 2)
    assert status == 130 and errors.splitlines() in (["refnet: interrupted"], [])
