"""``refnet`` and ``python -m refnet``: with BLAS on one thread, a run gives the same bits on
any number of cores."""

import sys

from refnet.process import interruptible, settle

__all__ = ["main"]


def main() -> int:
    """Run the command line; the exit status."""
    interruptible()
    settle()
    from refnet.cli import main as run
    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
