"""How a process is set up before NumPy loads: the command line and the benchmarks do it first."""

import ctypes
import os
import sys

__all__ = ["settle"]

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # glibc's malloc.h


def settle() -> None:
    """Hold BLAS to one thread, unless the environment says more, and let freed memory stay.

    BLAS changes the last bits with its number of threads, and idle ones take a core from the
    compiled core's, which does not. glibc would give each step's tape back to the system, which
    clears every page anew for the next one while all threads wait: up to a sixth of a step.
    Checked by: tests/test_process.py::test_settled_process_keeps_freed_memory.
    """
    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS",
                 "VECLIB_MAXIMUM_THREADS"):
        os.environ.setdefault(name, "1")
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
        if mallopt is not None:
            mallopt(_M_MMAP_MAX, 0)
            mallopt(_M_TRIM_THRESHOLD, -1)
