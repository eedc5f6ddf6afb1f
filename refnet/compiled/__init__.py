"""The cells again, the cross-entropy and the descent of OINIT, compiled by Numba for float32 and
float64.

A cell's module here offers what its namesake in ``refnet.cells`` does: ``forward`` and
``backward``, to the same result in another order of rounding and, on x86, with subnormal numbers
as zeros (``refnet.compiled.vector.FLUSH``). Nothing is compiled before it is called.
"""

import platform
from typing import Any

__all__ = ["info"]


def info() -> dict[str, Any]:
    """What the compiled core runs on: machine, versions, threads, BLAS, cache and kernels.

    Checked by: tests/test_compiled.py::test_info.
    """
    import llvmlite.binding as llvm
    import numba
    import numpy as np

    from refnet.compiled import vector
    from refnet.compiled._cache import cache_folder
    from refnet.compiled._jit import JIT, compiled_kernels
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return {
        "machine": platform.machine(),
        "cpu": llvm.get_host_cpu_name(),
        "vector bytes": vector.BYTES,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "jit": JIT,
        "threads": numba.get_num_threads(),
        "threading layer": "none: Python threads that release the interpreter lock",
        "blas": f"{blas['name']} {blas['version']}",
        "cache": str(cache_folder()),
        "kernels": compiled_kernels(),
    }
