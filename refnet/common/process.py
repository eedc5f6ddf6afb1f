"""The process that refnet runs in: BLAS's threads, memory, signals, and child processes."""

import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, wraps
from importlib.util import find_spec
from pathlib import Path
from select import select
from threading import Lock, RLock, get_ident
from types import FrameType
from typing import Any, NoReturn, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

PATIENCE = 0.5
"""Seconds that a worker process has to end by itself."""

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # glibc's malloc.h
BLAS_THREADS = (
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
"""Variables of the environment that say how many threads BLAS takes."""


def settle() -> None:
    """Keep freed memory, and start BLAS with one thread unless the environment asks for more.

    glibc would return each step's tape to the system, which then clears every page for the next
    one while all threads wait. refnet's calls run with one thread of OpenBLAS in any process; where
    NumPy is imported after this, your own have one, too, and so has another BLAS (MKL, BLIS,
    Accelerate), which refnet cannot hold to one itself.

    >>> import refnet
    >>> refnet.settle()

    Checked by: tests/robustness/test_process.py::test_settled_process_keeps_freed_memory.
    """
    import ctypes

    global _starts_serial
    for name in BLAS_THREADS:
        os.environ.setdefault(name, "1")
    _starts_serial |= "numpy" not in sys.modules and os.environ["OPENBLAS_NUM_THREADS"] == "1"
    threads = os.environ.get("NUMBA_NUM_THREADS", "1")
    if not (threads.isdecimal() and int(threads)):
        del os.environ["NUMBA_NUM_THREADS"]  # Numba could not be imported
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
        if mallopt is not None:
            mallopt(_M_MMAP_MAX, 0)
            mallopt(_M_TRIM_THRESHOLD, -1)


def cpu_features() -> Any:
    """The processor's features by name, an LLVM FeatureMap, without those that
    NUMBA_CPU_FEATURES takes away; none where LLVM cannot tell, as on some ARM systems.

    >>> "avx2" in cpu_features() or "neon" in cpu_features() or not cpu_features()
    True

    Checked by: tests/training/test_other_machines.py::test_an_environment_names_what_changes_bits.
    """
    from llvmlite import binding

    masked = os.environ.get("NUMBA_CPU_FEATURES", "").split(",")
    features = binding.FeatureMap()
    with suppress(RuntimeError):
        features.update(binding.get_host_cpu_features())
    for name in features:
        features[name] &= f"-{name}" not in masked
    return features


def serial_blas(function: Callable[P, R]) -> Callable[P, R]:
    """A decorator: OpenBLAS has one thread while ``function`` runs, and then the user's number
    again.

    OpenBLAS wakes its threads even for a 12 x 12 system, which takes hundreds of times as long
    where other processes have the cores, and the last bits depend on their number. It has one
    number for the whole process: what other threads compute meanwhile has one thread, too. Nothing
    is done to another BLAS.

    >>> @serial_blas
    ... def double(x):
    ...     return 2 * x
    >>> double(4)
    8

    Checked by: tests/robustness/test_blas.py.
    """

    @wraps(function)
    def serial(*args: P.args, **kwargs: P.kwargs) -> R:
        if _starts_serial or (thread := get_ident()) in _SERIAL:
            return function(*args, **kwargs)
        try:
            if _settled():
                _SERIAL.add(thread)
            else:
                _hold()
            return function(*args, **kwargs)
        finally:
            _SERIAL.discard(thread)
            if _BEFORE:
                _release()

    return serial


_CHANGING = RLock()
_SERIAL: set[int] = set()
"""The threads inside a decorated function."""
_starts_serial = False
"""Whether OpenBLAS was loaded with one thread, after ``settle``: nothing is to be held."""
_BEFORE: list[tuple[Any, int]] = []
"""What sets the number of threads of an OpenBLAS that is held, and the user's number."""
_changes = False
"""Whether it has ever been held: if not, a number that is 1 stays 1."""
if hasattr(os, "register_at_fork"):  # a child gets no lock that another thread holds
    os.register_at_fork(
        before=_CHANGING.acquire,
        after_in_parent=_CHANGING.release,
        after_in_child=_CHANGING.release,
    )


def _settled() -> bool:
    if _changes:
        return False
    for get, _ in _openblas():
        if get() > 1:
            return False
    return True


def _hold() -> None:
    global _changes
    with _CHANGING:
        _changes = True
        _SERIAL.add(get_ident())
        if not _BEFORE:
            for get, put in _openblas():
                _BEFORE.append((put, get()))
        for put, _ in _BEFORE:
            put(1)


def _release() -> None:
    with _CHANGING:
        if not _SERIAL:  # no other thread holds it
            for put, number in _BEFORE:
                put(number)
            _BEFORE.clear()


def blas_is_serial() -> bool:
    """Whether BLAS has one thread in what ``serial_blas`` decorates: OpenBLAS, or any whose
    variable says so."""
    return bool(_openblas()) or "1" in map(os.environ.get, BLAS_THREADS)


@cache
def _openblas() -> list[tuple[Any, Any]]:
    """What gets and what sets the number of threads of each OpenBLAS that NumPy and SciPy are
    linked to, which a search in one of their own libraries reaches."""
    import ctypes

    pairs = {}
    for package, pattern in (
        ("numpy", "_core/_multiarray_umath*.so"),
        ("scipy", "linalg/cython_lapack*.so"),
    ):
        (folder,) = find_spec(package).submodule_search_locations  # type: ignore[union-attr, misc]
        for path in Path(folder).glob(pattern):
            library = ctypes.PyDLL(str(path))  # keeps Python's lock: these calls take nanoseconds
            get, put = (openblas(library, f"{each}_num_threads") for each in ("get", "set"))
            if put:
                pairs[ctypes.cast(put, ctypes.c_void_p).value] = get, put
    return list(pairs.values())


def openblas(library: object, call: str) -> Any:
    """OpenBLAS's function ``call``, by whatever name a library or those it is linked to have it;
    None if they have it by none."""
    names = (
        f"{prefix}openblas_{call}{suffix}" for prefix in ("scipy_", "") for suffix in ("64_", "")
    )
    return next((getattr(library, name) for name in names if hasattr(library, name)), None)


def endings() -> list[int]:
    """The signals that ask a process to end: Ctrl-C, SIGTERM, and the end of its terminal, unless
    that is ignored, as under nohup."""
    gone = getattr(signal, "SIGHUP", None)
    return [
        signal.SIGINT,
        signal.SIGTERM,
        *([gone] if gone and signal.getsignal(gone) != signal.SIG_IGN else []),
    ]


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
    imports, the compiler and progress bars have many. Checked by: tests/robustness/test_signals.py.
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

    Checked by: tests/robustness/test_process.py::test_a_worker_is_stopped_and_leaves_nothing.
    """
    for child in children:
        child.terminate()
    until = time.monotonic() + PATIENCE
    for child in children:
        child.join(max(until - time.monotonic(), 0))
        child.kill()


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
    import ctypes

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
