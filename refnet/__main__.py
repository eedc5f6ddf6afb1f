"""``refnet`` and ``python -m refnet``: BLAS is held to one thread before NumPy loads.

BLAS changes the last bits with its thread count; the compiled core, which has threads of
its own, does not. So a run gives the same bits on any number of cores.
"""

import os
import sys

__all__ = ["main"]


def main() -> int:
    """Run the command line; the exit status."""
    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS",
                 "VECLIB_MAXIMUM_THREADS"):
        os.environ.setdefault(name, "1")
    from refnet.cli import main as run
    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
