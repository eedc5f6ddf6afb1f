"""Writing files so that a crash leaves either the old one or the new one, whole."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO

__all__ = ["write_atomically", "write_text"]


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Call ``write`` on a temporary file beside ``path``, sync it, and rename it to ``path``.

    If ``write`` raises, the temporary file is removed and ``path`` is as it was.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(temporary, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_text(path: Path, text: str) -> None:
    """``write_atomically`` for text, as UTF-8."""
    write_atomically(path, lambda file: file.write(text.encode()))
