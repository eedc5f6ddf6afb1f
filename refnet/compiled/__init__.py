"""Numba's kernels for float32 and float64: the cells, the layers of the feedforward net, the
cross-entropy and the gradient descent of OINIT.

Each cell's module has the same ``forward`` and ``backward`` as the module of that name in
``refnet.cells``; a gated cell's ``forward`` can also do without a tape. Results differ by rounding,
because sums run in another order, and on x86 zero replaces subnormal numbers
(``refnet.compiled.vector.FLUSH``). Numba compiles each function at its first call.
"""

import platform
from typing import Any

__all__ = ["info"]


def info() -> dict[str, Any]:
    """The environment of the compiled core: machine, versions, threads, BLAS and cache.

    Checked by: tests/compiled/test_compiled.py::test_info.
    """
    import llvmlite.binding as llvm
    import numba
    import numpy as np

    from refnet.compiled import vector
    from refnet.compiled._jit import JIT, cache_place
    from refnet.maths.threads import get_threads

    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return {
        "machine": platform.machine(),
        "cpu": llvm.get_host_cpu_name(),
        "vector bytes": vector.BYTES,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "jit": JIT,
        "threads": get_threads(),
        "threading layer": "none: Python threads that release the interpreter lock",
        "blas": f"{blas['name']} {blas['version']}",
        "cache": cache_place(),
    }
