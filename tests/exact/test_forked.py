"""Work in a forked process; what it gives, and what comes of a failure:
tests/exact/test_two_processes.py."""

import fcntl
import os
import signal
import subprocess
import sys
import time

import pytest

from refnet.common.process import Forked, may_fork

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks on Linux alone")


def test_it_ends_with_its_parent(tmp_path):
    """At once, so that the parent's locks, which it holds too, and pipes are free."""
    code = (
        "import fcntl, sys, time\nfrom refnet.common.process import Forked\n"
        "file = open(sys.argv[1], 'w')\nfcntl.flock(file, fcntl.LOCK_EX)\n"
        "other = Forked(lambda: time.sleep(100))\nprint(other.child, flush=True)\n"
        "time.sleep(100)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "lock")], stdout=subprocess.PIPE, text=True
    )
    child = int(parent.stdout.readline())
    os.kill(child, 0)
    time.sleep(0.2)  # it has come to its sleep
    parent.send_signal(signal.SIGKILL)
    parent.communicate(timeout=10)
    with open(tmp_path / "lock") as file:
        for _ in range(100):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.01)
        else:
            raise AssertionError("the lock is still held")


def test_its_own_end_is_not_awaited():
    with Forked(lambda: time.sleep(100)) as other:
        assert not other.ready(0.01)
    with pytest.raises(ProcessLookupError):
        os.kill(other.child, 0)


def test_one_core(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
    assert not may_fork()
