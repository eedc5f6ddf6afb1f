"""``refnet`` and ``python -m refnet``: with BLAS on one thread, a run gives the same bits on
any number of cores."""

import os
import sys
from io import TextIOWrapper

from refnet.process import ended, interruptible, settle

__all__ = ["main"]


def main() -> int:
    """Run the command line; the exit status."""
    interruptible()
    settle()
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed, as by >&-
            setattr(sys, name, open(os.devnull, "w"))
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        # a folder's name may have letters that its encoding lacks
        sys.stdout.reconfigure(errors="backslashreplace")
    from refnet.cli import main as run
    try:
        return run(sys.argv[1:])
    finally:
        ended()
        try:
            sys.stdout.flush()
        except OSError:  # said already; or Python would try again, and say so
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


if __name__ == "__main__":
    sys.exit(main())
