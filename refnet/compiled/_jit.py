"""The one decorator that holds every option of the compiler, and the threads.

No fast-math flag is set: each would let the compiler drop NaN or reorder sums. Where a product
and a sum are to be rounded once, the kernels say ``fma``. ``error_model="numpy"`` gives
x / 0 = inf instead of an exception, without which no division is vectorised.
"""

import os
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from itertools import count
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

import numba
import numpy as np
from numba.extending import intrinsic

from refnet.common.process import Forked, may_fork
from refnet.compiled._cache import cache_folder
from refnet.maths.threads import get_team, set_threads

__all__ = [
    "JIT",
    "cache_place",
    "cgutils",
    "compiled_kernels",
    "in_blocks",
    "inlined",
    "inner",
    "jit",
    "populate_array",
    "run",
]

Function = TypeVar("Function", bound=Callable[..., Any])


def _unknown(error: object, but: str) -> None:
    warnings.warn(
        f"Numba {numba.__version__} is not as refnet knows it ({error}): kernels {but}. "
        "Install Numba 0.61 to 0.68",
        RuntimeWarning,
        stacklevel=3,
    )


for _feature in (numba.config.CPU_FEATURES or "+").split(","):
    if _feature[:1] not in ("+", "-"):  # LLVM would abort the process
        raise ValueError(
            f"NUMBA_CPU_FEATURES has {_feature!r}; need each feature with a sign, "
            "such as NUMBA_CPU_FEATURES=+avx2,-avx512f"
        )

JIT: bool = not numba.config.DISABLE_JIT
try:
    from refnet.compiled import numba_private
    from refnet.compiled.numba_private import cgutils, populate_array
except ImportError as error:
    _unknown(error, "run as plain Python, which is slow")
    JIT, cgutils, populate_array = False, None, None
_KERNELS: list[Any] = []
_OPTIONS = {"nogil": True, "error_model": "numpy", "boundscheck": False}
_CACHED = JIT and not numba_private.MISSING
if JIT and not _CACHED:
    _unknown(numba_private.MISSING[0], "work, but every process compiles them again")


def jit(function: Function, inner: bool = False, inline: str = "never") -> Function:
    """Compile at the first call, for the types of that call; plain Python if the JIT is off.

    ``inner``: only kernels call it, so that it needs no way in from Python, which takes its
    time to compile too.
    """
    if not JIT:
        return function
    options = {**_OPTIONS, **numba_private.options(inner)}
    kernel: Any = numba.njit(**options, inline=inline)(function)
    numba_private.install(kernel, inner)
    _KERNELS.append(kernel)
    return kernel  # type: ignore[no-any-return]


inner = partial(jit, inner=True)
inlined = partial(jit, inner=True, inline="always")


def cache_place() -> str:
    """The folder of the compiled kernels, or "none"."""
    with suppress(FileNotFoundError):
        return str(cache_folder()) if _CACHED else "none"
    return "none"


def compiled_kernels() -> list[str]:
    """The kernels compiled or loaded so far."""
    return [
        f"{kernel.py_func.__module__}.{kernel.__name__}" for kernel in _KERNELS if kernel.signatures
    ]


if JIT:

    @intrinsic  # type: ignore[untyped-decorator]
    def _read(context: Any, mail: Any) -> Any:
        """``mail[0]``, read from memory at every call."""

        def generate(ctx: Any, builder: Any, sig: Any, args: Any) -> Any:
            place = ctx.make_array(mail)(ctx, builder, args[0]).data
            return builder.load_atomic(place, "monotonic", 8)

        return mail.dtype(mail), generate

    @jit
    def _watch(mail: Any, seen: int, rounds: int) -> float:
        """Stay awake for 40 ns a round, or until ``mail[0]`` is no longer ``seen`` and whoever
        changed it has had 4 microseconds to let go of the interpreter's lock."""
        x = 1.0
        for _ in range(rounds):
            changed = _read(mail) != seen
            for _ in range(2000 if changed else 20):
                x = x * 0.5 + 1.0  # two roundings, 2 ns, each after those before
            if changed:
                break
        return x
else:

    def _watch(mail: Any, seen: int, rounds: int) -> float:
        """Return at once: interpreted kernels hold the lock all the time."""
        return 0.0


class _Crew:
    """Threads that take tasks from one queue. Each is started when it is first needed: if there
    were more threads than tasks, a task might go to one that sleeps, not to one that is awake."""

    def __init__(self) -> None:
        self.tasks: SimpleQueue[Any] = SimpleQueue()
        self.mail = np.zeros(1, np.int64)  # a new number there is the sign of new tasks
        self.numbers = count(1)
        self.size = 0

    def call(self, tasks: list[Any]) -> int:
        """Put the tasks; the sign that they came with."""
        while self.size < len(tasks):
            Thread(target=self.serve, daemon=True).start()
            self.size += 1  # once it runs: tasks for a refused one would wait for ever
        for task in tasks:
            self.tasks.put(task)
        self.mail[0] = sign = next(self.numbers)
        return sign

    def serve(self) -> None:
        """What each thread does."""
        while True:
            kernel, arguments, done = self.tasks.get()
            seen = int(self.mail[0])
            failure = None
            try:
                kernel(*arguments)
            except BaseException as error:
                failure = error
            del kernel, arguments  # before the caller goes on, or the arrays would outlive its own
            done.put(failure)
            _watch(self.mail, seen, 10_000)


@cache
def _crew(process: int) -> _Crew:
    """The crew of this process: a forked child gets its own."""
    return _Crew()


_COMPILED: dict[tuple[Any, str], Any] = {}
"""The machine code of each kernel for work spaces of each dtype: the kernel itself looks at the
type of every argument first, which for tuples takes microseconds."""
_AHEAD: dict[int, Forked] = {}
"""By process: another one, which compiles the kernels that this one will need next."""
PATIENCE = 60
"""Seconds until it is given up."""


def _before_first_call(kernel: Any, then: Callable[[], Any] | None) -> None:
    """Wait for the process that may be compiling this kernel. If that is still to be done, have
    another process compile those that ``then`` calls meanwhile."""
    if not _CACHED:
        return
    other = _AHEAD.pop(os.getpid(), None)
    if other is not None:
        with other:
            other.ready(PATIENCE)
    if then is None or not may_fork():
        return

    def compile_ahead() -> bytes:
        set_threads(1)  # others would wait for the compiler, which this one holds
        then()
        return b""

    def missed() -> None:
        if os.getpid() not in _AHEAD:  # another thread may have begun one
            with suppress(OSError):  # no more processes, or no memory
                _AHEAD[os.getpid()] = Forked(compile_ahead)

    kernel._cache.missed = missed


def _after_first_call(kernel: Any, dtype: Any) -> Any:
    """What is to be called from now on."""
    if _CACHED:
        for signature, compiled in kernel.overloads.items():
            if signature[2].dtype == numba.from_dtype(dtype):  # that of the space to work in
                return compiled.entry_point
    return kernel


def run(
    kernel: Any, blocks: int, spaces: Any, *arguments: Any, then: Callable[[], Any] | None = None
) -> None:
    """``kernel(first, last, space, *arguments)`` over the blocks of rows, a run of blocks and a
    row of ``spaces`` (threads, numbers), of the dtype of its arrays, to work in for each thread.
    ``then`` calls those kernels that will be needed next; only to have them compiled.

    Unlike ``in_blocks`` it looks at no argument's type but the first time.
    """
    key = kernel, spaces.dtype.char
    compiled = _COMPILED.get(key)
    if compiled is None:
        _before_first_call(kernel, then)
        in_blocks(kernel, blocks, spaces, *arguments)
        _COMPILED[key] = _after_first_call(kernel, spaces.dtype)
    else:
        in_blocks(compiled, blocks, spaces, *arguments)


def in_blocks(kernel: Any, blocks: int, spaces: Any, *arguments: Any) -> None:
    """``kernel(first, last, space, *arguments)`` over the blocks, as ``run`` calls it.

    The threads are Python's own: kernels hold no lock on the interpreter, blocks are
    independent, and so nothing of Numba's threading layers (one aborts when two Python threads
    start kernels at once, one dies in a forked child) is needed. To be woken takes a thread
    30 microseconds, which small nets notice; so for .4 ms after its last task it looks, without
    the interpreter's lock, for a sign of the next, and the caller stays awake for a while too.
    """
    threads = len(spaces)
    if threads == 1:
        kernel(0, blocks, spaces[0], *arguments)
        return
    edges = [blocks * n // threads for n in range(threads + 1)]
    if (team := get_team()) is not None:
        team(lambda n: kernel(*edges[n : n + 2], spaces[n], *arguments), threads)
        return
    crew = _crew(os.getpid())
    done: SimpleQueue[Any] = SimpleQueue()
    sign = crew.call(
        [(kernel, (*edges[n : n + 2], spaces[n], *arguments), done) for n in range(1, threads)]
    )
    try:
        kernel(0, edges[1], spaces[0], *arguments)
        for _ in range(100):
            if done.qsize() == threads - 1:
                break
            _watch(crew.mail, sign, 250)
    finally:
        errors = [done.get() for _ in range(1, threads)]
    for error in filter(None, errors):
        raise error
