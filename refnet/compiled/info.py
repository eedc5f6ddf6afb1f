"""What the compiled core runs on: the content of ``refnet info``."""

import os
import platform
from typing import Any

import numba
import numpy as np
from llvmlite.binding import get_host_cpu_name

from refnet.compiled._jit import JIT, cache_folder

__all__ = ["info"]


def info() -> dict[str, Any]:
    """Facts by name: machine, threads, BLAS, the cache folder and the kernels kept there.

    The compiled core has threads of its own (Python's, on kernels that hold no lock), so
    Numba's threading layers do not matter to it.
    Checked by: tests/test_readme.py::test_info_names_the_cache.
    """
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    folder = cache_folder()
    kept = sorted({path.name.split("-")[0] for path in folder.glob("*.nbi")})
    return {
        "machine": f"{platform.machine()}, {get_host_cpu_name()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "numpy, numba": f"{np.__version__}, {numba.__version__}",
        "threads": numba.get_num_threads(),
        "threading": "Python threads on kernels that release the interpreter's lock",
        "BLAS": f"{blas['name']} {blas['version']}",
        "JIT": "on" if JIT else "off (NUMBA_DISABLE_JIT)",
        "cache folder": str(folder),
        "compiled kernels": ", ".join(kept) or "none yet",
    }
