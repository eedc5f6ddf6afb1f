"""Work for all cores on Python's own threads, to the same bits at any number of them.

What runs must let go of the interpreter's lock, as compiled kernels, BLAS and LAPACK do.
"""

import os
from collections.abc import Callable, Sequence
from functools import cache
from queue import SimpleQueue
from threading import Thread, current_thread
from typing import Any

import numba
from numba.core import config

__all__ = ["each", "run"]

NAME = "refnet worker"


def _serve(tasks: SimpleQueue[Any]) -> None:
    while True:
        kernel, arguments, done = tasks.get()
        try:
            kernel(*arguments)
        except BaseException as error:
            done.put(error)
        else:
            done.put(None)
        del kernel, arguments, done  # or the arrays would live until the next task


@cache
def _tasks(process: int) -> SimpleQueue[Any]:
    """The queue that this process's threads serve; a forked child starts its own."""
    tasks: SimpleQueue[Any] = SimpleQueue()
    for _ in range(config.NUMBA_NUM_THREADS - 1):
        Thread(target=_serve, args=(tasks,), name=NAME, daemon=True).start()
    return tasks


def run(kernel: Any, blocks: int, *arguments: Any) -> None:
    """``kernel(first, last, *arguments)`` over the blocks of rows, a run of blocks a thread.

    As many threads as Numba is told to use. They are Python's own: kernels hold no lock on the
    interpreter, blocks are independent, and so nothing of Numba's threading layers (one aborts
    when two Python threads start kernels at once, one dies in a forked child) is needed. A
    bare queue hands over in half the time of an executor, which small nets notice.
    """
    # within a part of other work there is nobody left to wait for
    threads = min(1 if current_thread().name == NAME else numba.get_num_threads(), blocks)
    edges = [blocks * n // max(threads, 1) for n in range(threads + 1)]
    done: SimpleQueue[Any] = SimpleQueue()
    others = list(zip(edges[1:], edges[2:]))
    for edge in others:
        _tasks(os.getpid()).put((kernel, (*edge, *arguments), done))
    try:
        if blocks:
            kernel(0, edges[1], *arguments)
    finally:
        errors = [done.get() for _ in others]
    for error in filter(None, errors):
        raise error


def each(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """``[function(item) for item in items]``.

    Checked by: tests/test_compiled.py::test_threads.
    """
    results: list[Any] = [None] * len(items)

    def some(first: int, last: int) -> None:
        for n in range(first, last):
            results[n] = function(items[n])

    run(some, len(items))
    return results
