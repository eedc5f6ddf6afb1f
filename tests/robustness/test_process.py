"""How a process is set up before NumPy loads."""

import multiprocessing
import os
import platform
import signal
import threading
import time

import pytest

from refnet.common.process import PATIENCE, serving, starting, stop
from refnet.runs.files import temporary
from support.subprocesses import run_python


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries go their own way")
@pytest.mark.parametrize("settled", [True, False])
def test_settled_process_keeps_freed_memory(settled):
    """Filling 64 MB once more costs next to no page faults; without ``settle`` it does."""
    result = run_python(f"""
from refnet.common.process import settle
{"settle()" if settled else ""}
import resource, numpy as np
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.empty(2 ** 26, np.uint8)[::4096] = 1
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
""")
    assert (int(result.stdout) < 10) == settled, result.stderr


def write(path, deaf):
    """In a worker: write to a temporary file, and go on; ``deaf`` to signals, as in a kernel."""
    serving()
    if deaf:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    with temporary(path) as part:
        part.write_text("begun")
        time.sleep(60)


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="needs POSIX")
@pytest.mark.parametrize("deaf", [False, True])
def test_a_worker_is_stopped_and_leaves_nothing(tmp_path, deaf):
    """It removes what it was writing; one that does not hear is killed after some patience. Ctrl-C,
    which a terminal sends to it too, it leaves to the process that started it."""
    worker = multiprocessing.get_context("spawn").Process(target=write, args=(tmp_path / "f", deaf))
    worker.start()
    while not any(part.read_text() for part in tmp_path.iterdir()):
        time.sleep(0.01)
    os.kill(worker.pid, signal.SIGINT)
    worker.join(0.2)
    assert worker.is_alive()
    started = time.monotonic()
    stop([worker])
    worker.join()
    assert worker.exitcode == (-signal.SIGKILL if deaf else 128 + signal.SIGTERM)
    assert any(tmp_path.iterdir()) == deaf
    assert not deaf or time.monotonic() - started >= PATIENCE


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="needs POSIX")
def test_processes_that_are_started_have_one_thread_and_no_interrupt(monkeypatch):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    code = (
        "import os, signal; print(os.environ['OPENBLAS_NUM_THREADS'], "
        "signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))"
    )
    with starting():
        inside = run_python(code)
    after = run_python(code)
    assert (inside.stdout, after.stdout) == ("1 True\n", "2 False\n")
    assert "MKL_NUM_THREADS" not in os.environ


def test_threads_that_start_processes_at_once_leave_the_environment_as_it_was(monkeypatch):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "4")
    first, order = threading.Event(), []

    def second():
        first.wait()
        with starting():
            order.append("second")

    thread = threading.Thread(target=second)
    thread.start()
    with starting():
        first.set()
        thread.join(0.2)
        order.append("first")
    thread.join()
    assert order == ["first", "second"] and os.environ["OPENBLAS_NUM_THREADS"] == "4"
