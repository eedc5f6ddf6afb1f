"""Independent parts of a computation, each in a thread, such as the parts of a large product.

BLAS's own threads do not run here, because the bits would change with their number. The parts
depend on the sizes alone, and so do the bits.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextvars import ContextVar, copy_context
from functools import cache
from threading import Barrier, local
from typing import TypeVar

import numpy as np

from refnet.batch import Array
from refnet.common.process import blas_is_serial

T = TypeVar("T")

LARGE = 2**24
"""Multiplications from which threads are worth their while: a part of a product then takes some
.1 ms, several times what it takes to wake a thread."""
PARTS, LONGEST = 4, 256
"""The least number of parts of a product, and the rows (or columns) of a part, about, where that
makes more parts."""
_INSIDE = ContextVar("inside", default=False)
"""Whether this is such a part: parts of it would wait for their own thread."""


Team = Callable[[Callable[[int], None], int], None]
"""``team(part, count)`` calls ``part(n)`` for n < count, each in one of its threads."""


class _Set(local):
    """What a thread has set."""

    threads: int | None = None
    team: Team | None = None


_SET = _Set()


@cache
def usual_threads() -> int:
    """As many threads as NUMBA_NUM_THREADS says, or as there are cores for this process if that
    is no number above 0. (Numba itself would start threads, which nothing here uses.)

    Checked by: tests/maths/test_threads.py::test_an_unusable_number_of_threads.
    """
    given = os.environ.get("NUMBA_NUM_THREADS", "")
    if given.isdecimal() and int(given):
        return int(given)
    affinity = getattr(os, "sched_getaffinity", None)  # neither macOS nor Windows has it
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def get_threads() -> int:
    """How many threads the compiled core and large products take when this thread calls them.

    >>> get_threads() >= 1
    True
    """
    return _SET.threads or usual_threads()


def get_team() -> Team | None:
    """Whose threads the compiled core takes when this thread calls it; None for its own.

    >>> get_team() is None
    True

    Checked by: tests/interop/test_torch_modules.py::test_parts_run_in_pytorchs_threads.
    """
    return _SET.team


def set_threads(threads: int, team: Team | None = None) -> None:
    """Let the compiled core and large products take so many threads when this thread calls them,
    and the core those of ``team``, if given; the bits do not depend on it.

    >>> before = get_threads()
    >>> set_threads(1)
    >>> get_threads()
    1
    >>> set_threads(before)
    """
    _SET.threads, _SET.team = threads, team


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor | None:
    """The threads of this process beside the caller: a forked child gets its own. None where the
    system, short of memory, starts no more."""
    pool, all_run = ThreadPoolExecutor(threads, "refnet-parts"), Barrier(threads + 1)
    try:
        for _ in range(threads):
            pool.submit(all_run.wait)
    except RuntimeError:
        all_run.abort()
        return None
    all_run.wait()
    return pool


def _threads() -> int:
    """As many as the compiled core has; one where BLAS may have threads of its own."""
    if _INSIDE.get() or not blas_is_serial():
        return 1
    return get_threads()


def in_threads(part: Callable[[T], object], items: Sequence[T]) -> None:
    """``part(item)`` for all items, some of them in other threads; returns when all are done.

    Raises the first error of one of them.

    >>> seen = []
    >>> in_threads(seen.append, range(3))
    >>> sorted(seen)
    [0, 1, 2]

    Checked by: tests/maths/test_threads.py.
    """
    count = len(items)
    threads = min(_threads(), count)
    pool = _pool(os.getpid(), threads - 1) if threads > 1 else None
    if pool is None:
        for item in items:
            part(item)
        return

    def some(thread: int) -> None:
        for item in items[count * thread // threads : count * (thread + 1) // threads]:
            part(item)

    inside = copy_context()  # NumPy's error state is part of it
    inside.run(_INSIDE.set, True)
    others = [pool.submit(inside.copy().run, some, thread) for thread in range(1, threads)]
    try:
        inside.run(some, 0)
    finally:
        wait(others)
    for other in others:
        other.result()


def split_product(a: Array, b: Array) -> Array:
    """``a @ b`` of two float matrices, by parts of the longer side of the result.

    The same bits with any number of threads.

    >>> split_product(np.ones((2, 3)), np.ones((3, 1))).tolist()
    [[3.0], [3.0]]

    Checked by: tests/maths/test_threads.py.
    """
    rows, columns = a.shape[0], b.shape[1]
    out = np.empty((rows, columns), np.result_type(a, b))
    size = max(rows, columns)

    def multiply(part: slice) -> None:
        if rows >= columns:
            np.matmul(a[part], b, out=out[part])
        else:
            np.matmul(a, b[:, part], out=out[:, part])

    in_threads(multiply, cut(size))
    return out


def cut(size: int) -> list[slice]:
    """The parts of this number of rows or columns.

    >>> cut(8)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 6, None), slice(6, 8, None)]
    """
    count = max(PARTS, size // LONGEST)
    return [slice(size * n // count, size * (n + 1) // count) for n in range(count)]


def in_parts(function: Callable[[Array], None], a: Array, work: int) -> None:
    """Call ``function`` on parts of the columns of a, in threads, if there is much ``work`` to do
    (multiplications); otherwise on a itself.

    >>> def double(part):
    ...     part *= 2
    >>> a = np.ones((1, 3))
    >>> in_parts(double, a, work=3)
    >>> a.tolist()
    [[2.0, 2.0, 2.0]]
    """
    parts = cut(a.shape[1]) if work >= LARGE else [slice(None)]
    in_threads(function, [a[:, part] for part in parts])
