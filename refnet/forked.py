"""Work in a forked process, while this one does something else."""

import ctypes
import os
import signal
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from select import select
from typing import NoReturn

from refnet.process import endings

__all__ = ["Forked", "may_fork"]

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def may_fork() -> bool:
    """Whether there is a core for another process, and a way to it: Windows cannot fork, and macOS
    not beside running libraries."""
    return sys.platform == "linux" and len(os.sched_getaffinity(0)) > 1


class Forked:
    """``work``, begun at once in a forked process. What that prints is lost, and it ends with this
    process at the latest.

    Checked by: tests/exact/test_two_processes.py,
    tests/compiled/test_startup.py::test_the_second_kernel_is_made_ahead.
    """

    def __init__(self, work: Callable[[], bytes]) -> None:
        self.reading, writing = os.pipe()
        parent = os.getpid()
        with warnings.catch_warnings():
            # the child runs none of the threads that libraries warn about
            warnings.simplefilter("ignore")
            self.child = os.fork()
        if self.child == 0:
            os.close(self.reading)
            _live(work, writing, parent)
        os.close(writing)

    def ready(self, seconds: float) -> bool:
        """Whether it has begun to give its result, or ended, within so many seconds."""
        return bool(select([self.reading], [], [], seconds)[0])

    def result(self) -> bytes | None:
        """What ``work`` gave; None if it failed, whatever the reason."""
        with open(self.reading, "rb", closefd=False) as pipe:
            data = pipe.read()
        return data[:-1] if data[-1:] == b"+" else None

    def __enter__(self) -> "Forked":
        return self

    def __exit__(self, *error: object) -> None:
        """End it, if it has not ended."""
        os.close(self.reading)
        with suppress(ProcessLookupError, ChildProcessError):  # a program may reap all its children
            os.kill(self.child, signal.SIGKILL)
            os.waitpid(self.child, 0)


def _live(work: Callable[[], bytes], writing: int, parent: int) -> NoReturn:
    """The child's whole life: the bytes, and a plus at their end."""
    try:
        # it would keep the parent's locks, and its pipes open
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            for number in endings():
                signal.signal(number, signal.SIG_DFL)
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            with open(writing, "wb") as pipe:
                pipe.write(work())
                pipe.write(b"+")
    finally:
        os._exit(0)
