"""``refnet`` and ``python -m refnet``: with BLAS on one thread, a run gives the same bits on
any number of cores."""

import os
import sys

from refnet.process import ended, interruptible, settle

__all__ = ["main"]


def main() -> int:
    """Run the command line; the exit status."""
    interruptible()
    settle()
    from refnet.cli import main as run
    try:
        status = run(sys.argv[1:])
        sys.stdout.flush()
        return status
    except OSError as error:  # a full disk, or a reader that has ended
        print(f"refnet: standard output: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python would try again, and say so
        return 2
    finally:
        ended()


if __name__ == "__main__":
    sys.exit(main())
