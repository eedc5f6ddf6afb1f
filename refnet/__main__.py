"""``refnet`` and ``python -m refnet``, in a process set up for them."""

import logging
import os
import sys
import warnings
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import Any

from refnet.common.process import ended, interruptible, settle
from refnet.runs.files import printable


class _Courtesy(FileIO):
    """Standard error: a log on a full disk, or a terminal that is gone, is no reason to stop."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data) or len(data)  # none, if nobody has emptied a pipe
        except BrokenPipeError:  # who reads it can tell us to stop
            raise
        except OSError:
            return len(data)


def _one_line(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    line: str | None = None,
) -> str:
    """A warning without the source and the traceback that others put into it."""
    first = str(message).partition("\n")[0]
    return printable(f"{filename}:{lineno}: {category.__name__}: {first}") + "\n"


class _Line(logging.Formatter):
    """A message in a line, without a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(record.getMessage())


def main() -> int:
    """Run the command line; the exit status."""
    while (null := os.open(os.devnull, os.O_RDWR)) <= 2:  # one was closed, as by >&-: no file
        os.set_inheritable(null, True)  # of ours shall take its place
    os.close(null)
    interruptible()
    settle()
    sys.stdout = sys.stdout or open(1, "w", closefd=False)
    sys.stderr = TextIOWrapper(
        BufferedWriter(_Courtesy(2, "w", closefd=False)),
        getattr(sys.stderr, "encoding", None),
        "backslashreplace",
        line_buffering=True,
    )
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        # a folder's name may have letters that its encoding lacks
        sys.stdout.reconfigure(errors="backslashreplace")
    warnings.formatwarning = _one_line
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_Line())
    from refnet.cli import main as run

    try:
        return run(sys.argv[1:])
    except BrokenPipeError:  # nobody reads why it ended
        return 141
    finally:
        ended()
        for number, stream in ((1, sys.stdout), (2, sys.stderr)):
            try:
                stream.flush()
            except OSError:  # said already; or Python would try again, and say so
                os.dup2(os.open(os.devnull, os.O_WRONLY), number)


if __name__ == "__main__":
    sys.exit(main())
