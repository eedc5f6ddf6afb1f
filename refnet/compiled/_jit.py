"""The one decorator that holds every option of the compiler, the cache, and the threads.

No fast-math flag is set: each would let the compiler drop NaN or reorder sums. Where two
roundings shall be one, the kernels say ``fma``. ``error_model="numpy"`` gives x / 0 = inf
instead of an exception, without which no division is vectorised.
"""

import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

import numba
from numba import types
from numba.core import caching, config

__all__ = ["JIT", "cache_folder", "compiled_kernels", "jit", "run"]

Function = TypeVar("Function", bound=Callable[..., Any])
JIT: bool = not config.DISABLE_JIT
_KERNELS: list[Any] = []
_OPTIONS = {"nogil": True, "error_model": "numpy", "boundscheck": False}


def cache_folder() -> Path:
    """Where compiled kernels are kept: one folder for each version of the sources.

    Numba itself looks only at the file of the outermost function, and would go on using a
    kernel whose helpers in another file have changed.
    """
    sources = sorted(Path(__file__).parent.glob("*.py"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    base = os.environ.get("NUMBA_CACHE_DIR") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "refnet")
    return Path(base) / digest


class _Locator(caching._CacheLocator):  # type: ignore[misc]
    def __init__(self, function: Callable[..., Any], file: str) -> None:
        self._line = function.__code__.co_firstlineno

    def get_cache_path(self) -> str:
        return str(cache_folder())

    def get_source_stamp(self) -> str:
        return cache_folder().name

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> "_Locator":
        return cls(function, file)


class _Implementation(caching.CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = [_Locator]


class _Cache(caching.FunctionCache):  # type: ignore[misc]
    """Numba's cache, except that what cannot be read or written is as good as absent."""

    _impl_class = _Implementation

    def load_overload(self, signature: Any, context: Any) -> Any:
        try:
            return super().load_overload(signature, context)
        except Exception:  # a damaged file can raise anything while it is unpickled
            return None

    def save_overload(self, signature: Any, data: Any) -> None:
        try:
            self._impl.locator.ensure_cache_path()
            super().save_overload(signature, data)
        except Exception:  # unwritable, full, or a damaged index
            return None


def _plainly(resolve: Callable[..., Any]) -> Callable[..., Any]:
    return lambda args, kws: resolve(tuple(map(types.unliteral, args)),
                                     {name: types.unliteral(kind) for name, kind in kws.items()})


def jit(function: Function) -> Function:
    """Compile at the first call, for the types of that call; as it is if the JIT is off."""
    kernel: Any = numba.njit(**_OPTIONS)(function)
    if JIT:
        kernel._cache = _Cache(function)
        # or a function would be compiled anew for every constant that it is called with
        kernel.get_call_template = _plainly(kernel.get_call_template)
        _KERNELS.append(kernel)
    return kernel  # type: ignore[no-any-return]


def compiled_kernels() -> list[str]:
    """The kernels compiled or loaded so far, each with its element types."""
    return [f"{kernel.py_func.__module__}.{kernel.__name__}" for kernel in _KERNELS
            if kernel.signatures]


def _serve(tasks: SimpleQueue[Any]) -> None:
    while True:
        kernel, arguments, done = tasks.get()
        failure = None
        try:
            kernel(*arguments)
        except BaseException as error:
            failure = error
        del kernel, arguments  # before the caller goes on, or the arrays would outlive its own
        done.put(failure)


@cache
def _tasks(process: int) -> SimpleQueue[Any]:
    """The queue that this process's threads serve; a forked child starts its own."""
    tasks: SimpleQueue[Any] = SimpleQueue()
    for _ in range(config.NUMBA_NUM_THREADS - 1):
        Thread(target=_serve, args=(tasks,), daemon=True).start()
    return tasks


@jit
def _pause(rounds: int) -> float:
    x = 1.0
    for _ in range(rounds):  # a chain of two roundings, 2 ns a link, that no compiler shortens
        x = x * 0.5 + 1.0
    return x


def run(kernel: Any, blocks: int, *arguments: Any) -> None:
    """``kernel(first, last, *arguments)`` over the blocks of rows, a run of blocks a thread.

    As many threads as Numba is told to use. They are Python's own: kernels hold no lock on the
    interpreter, blocks are independent, and so nothing of Numba's threading layers (one aborts
    when two Python threads start kernels at once, one dies in a forked child) is needed. A
    bare queue hands over in half the time of an executor, which small nets notice; and a
    thread that ends first stays awake for up to a millisecond, without the interpreter's lock,
    as being woken takes longer than what is left to wait for.
    """
    threads = min(numba.get_num_threads(), blocks)
    edges = [blocks * n // max(threads, 1) for n in range(threads + 1)]
    done: SimpleQueue[Any] = SimpleQueue()
    others = list(zip(edges[1:], edges[2:]))
    for edge in others:
        _tasks(os.getpid()).put((kernel, (*edge, *arguments), done))
    try:
        if blocks:
            kernel(0, edges[1], *arguments)
        for _ in range(100):
            if done.qsize() == len(others):
                break
            _pause(5000)
    finally:
        errors = [done.get() for _ in others]
    for error in filter(None, errors):
        raise error
