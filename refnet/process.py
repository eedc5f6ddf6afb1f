"""How a process is set up before NumPy loads: the command line and the benchmarks do it first."""

import os
import signal
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import Lock
from types import FrameType
from typing import Any

__all__ = ["BLAS_THREADS", "ended", "endings", "interrupt", "interruptible", "serving", "settle",
           "settled", "starting", "stop"]

PATIENCE = 0.5
"""Seconds that a worker process has to end by itself."""

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # glibc's malloc.h
BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS",
                "VECLIB_MAXIMUM_THREADS")
"""Variables of the environment that say how many threads BLAS takes."""


def settle() -> None:
    """Limit BLAS to one thread, unless the environment asks for more, and keep freed memory.

    The last bits of a BLAS result depend on its number of threads, and its idle threads occupy
    processor cores that the compiled kernels need. glibc would return each step's tape to the
    system, which then clears every page for the next one while all threads wait.

    Call it before NumPy is imported, as the command line does; later, BLAS keeps its threads, and
    a RuntimeWarning says so:

    >>> import refnet
    >>> refnet.settle()

    Checked by: tests/test_process.py::test_settled_process_keeps_freed_memory and
    test_settled_too_late.
    """
    import ctypes
    if "numpy" in sys.modules and not any(name in os.environ for name in BLAS_THREADS):
        warnings.warn("NumPy was imported before settle(), so that its BLAS keeps all its threads: "
                      "call settle() first, or start Python with OPENBLAS_NUM_THREADS=1",
                      RuntimeWarning, stacklevel=2)
    for name in BLAS_THREADS:
        os.environ.setdefault(name, "1")
    threads = os.environ.get("NUMBA_NUM_THREADS", "1")
    if not (threads.isdecimal() and int(threads)):
        del os.environ["NUMBA_NUM_THREADS"]  # Numba could not be imported
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
        if mallopt is not None:
            mallopt(_M_MMAP_MAX, 0)
            mallopt(_M_TRIM_THRESHOLD, -1)


@contextmanager
def settled() -> Iterator[None]:
    """For the block, OpenBLAS takes the threads that its variable says, one if it says nothing:
    so it is in a settled process, and here too, where NumPy was there before.

    Checked by: tests/test_process.py::test_a_run_in_a_process_that_is_not_settled.
    """
    own = os.environ.get("OPENBLAS_NUM_THREADS", "")
    wanted = int(own) if own.isdecimal() and int(own) else 1
    with _CHANGING:
        if not _BEFORE:
            _BEFORE.extend([0, [get() for get, _ in _openblas()]])
        _BEFORE[0] += 1
        for _, put in _openblas():
            put(wanted)
    try:
        yield
    finally:
        with _CHANGING:
            _BEFORE[0] -= 1
            if not _BEFORE[0]:  # the last block of several threads
                for (_, put), before in zip(_openblas(), _BEFORE[1]):
                    put(before)
                _BEFORE.clear()


_CHANGING = Lock()
_BEFORE: list[Any] = []
"""How many blocks there are, and the threads that there were before the first one."""


@cache
def _openblas() -> list[tuple[Any, Any]]:
    """How the OpenBLAS of NumPy's and of SciPy's packages say and take a number of threads."""
    import ctypes
    found = []
    for name in ("numpy", "scipy"):
        root = Path(import_module(name).__file__ or "").parent
        for path in (*root.parent.glob(f"{name}.libs/*openblas*"),
                     *root.glob(".dylibs/*openblas*")):
            with suppress(OSError):
                library = ctypes.CDLL(str(path))
                for form in ("scipy_openblas_{}_num_threads64_", "scipy_openblas_{}_num_threads",
                             "openblas_{}_num_threads64_", "openblas_{}_num_threads"):
                    if hasattr(library, form.format("get")):
                        found.append((getattr(library, form.format("get")),
                                      getattr(library, form.format("set"))))
    return found


def endings() -> list[int]:
    """The signals that ask a process to end: Ctrl-C, SIGTERM, and the end of its terminal, unless
    that is ignored, as under nohup."""
    gone = getattr(signal, "SIGHUP", None)
    return [signal.SIGINT, signal.SIGTERM,
            *([gone] if gone and signal.getsignal(gone) != signal.SIG_IGN else [])]


def interruptible() -> None:
    """From here on the signals of ``endings`` end the process by ``interrupt``, and
    multiprocessing's tracker, which removes the semaphores that are then left, does so without a
    warning."""
    sys.warnoptions.append("ignore:resource_tracker:UserWarning")  # the tracker's options
    for number in endings():
        signal.signal(number, interrupt)


def ended() -> None:
    """From here on ignore these signals, which could still kill Python while it shuts down."""
    for number in endings():
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def starting() -> Iterator[None]:
    """Processes that are started in this block have one thread of BLAS, whatever the environment
    asks for, and Ctrl-C never reaches them; to this process it comes after the block. Another
    thread's block waits for this one's end: both change the environment."""
    with _STARTING:
        asked = {name: os.environ[name] for name in BLAS_THREADS if name in os.environ}
        os.environ.update(dict.fromkeys(BLAS_THREADS, "1"))
        mask = getattr(signal, "pthread_sigmask", lambda how, signals: None)  # Windows has none
        before = mask(getattr(signal, "SIG_BLOCK", 0), {signal.SIGINT})
        try:
            yield
        finally:
            mask(getattr(signal, "SIG_SETMASK", 0), before)
            for name in BLAS_THREADS:
                del os.environ[name]
            os.environ.update(asked)


_STARTING = Lock()


def interrupt(number: int, frame: FrameType | None) -> None:
    """End at once with one line and the status 128 + ``number``; temporary files are removed.

    An exception would be lost, or printed and forgotten, in a callback or a destructor, of which
    imports, the compiler and progress bars have many. Checked by: tests/test_signals.py.
    """
    ended()
    with suppress(OSError):  # nobody reads it, or its disk is full
        os.write(2, (b"\r\x1b[?25h\n" if os.isatty(2) else b"") + b"refnet: interrupted\n")
    with suppress(Exception):  # in the middle of printing, say
        sys.stdout.flush()
    with suppress(Exception):
        stop(sys.modules["multiprocessing"].active_children())
    _leave(number)


def _leave(number: int, frame: FrameType | None = None) -> None:
    with suppress(Exception):  # modules that are still being imported have nothing to remove
        sys.modules["refnet.runs.files"].discard()
    os._exit(128 + number)


def serving() -> None:
    """From here on this process, which another one started, leaves Ctrl-C to that one, and on
    SIGTERM ends at once and says nothing; temporary files are removed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)


def stop(children: Sequence[Any]) -> None:
    """End these processes, of ``multiprocessing``, each of which has called ``serving``; those that
    have not ended after PATIENCE seconds, in the middle of a kernel, say, are killed.

    Checked by: tests/test_process.py::test_a_worker_is_stopped_and_leaves_nothing.
    """
    for child in children:
        child.terminate()
    until = time.monotonic() + PATIENCE
    for child in children:
        child.join(max(until - time.monotonic(), 0))
        child.kill()
