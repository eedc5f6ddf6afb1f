"""The files of compiled kernels: one for each, which is read only if this user wrote it.

Checked by: tests/compiled/test_cache.py.
"""

import hashlib
import logging
import os
import re
import stat
import sys
from contextlib import suppress
from functools import cache
from operator import methodcaller
from pathlib import Path

import llvmlite
import numba

from refnet.runs.files import sweep, user_cache, write_atomically

__all__ = ["cache_folder", "kernel_sources", "read", "say", "version", "write"]

LIMIT = 2**28
"""Bytes that all kernels together may take."""

VERSIONS = 3
"""How many versions of the sources have their kernels kept: those that were used last."""

_log = logging.getLogger("refnet")
_SAID: set[str] = set()


def say(what: str, *details: object) -> None:
    """One line on standard error, the first time in this process."""
    if what not in _SAID:
        _SAID.add(what)
        _log.warning("refnet: " + what, *details)


def kernel_sources() -> list[Path]:
    """The files that kernels, and all that they call, are written in."""
    return sorted(Path(__file__).parent.glob("*.py"))


def _digest() -> str:
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in kernel_sources()))
    digest.update(f"{numba.__version__} {llvmlite.__version__} {sys.version}".encode())
    return digest.hexdigest()[:16]


@cache
def version() -> str:
    """A digest of the kernels' sources, as they were when they were imported, and of what compiles
    them.

    Numba itself looks only at the file of the outermost function, and would go on using a kernel
    whose helpers in another file have changed.
    """
    return _digest()


version()  # before the kernels' modules are imported


def cache_folder() -> Path:
    """Where compiled kernels are kept: one folder for each version of the sources, in
    NUMBA_CACHE_DIR or the user's cache folder. Raises FileNotFoundError if there is neither."""
    return Path(os.environ.get("NUMBA_CACHE_DIR") or user_cache()) / version()


def _mine(status: os.stat_result) -> bool:
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()


def _prepare(folder: Path) -> None:
    """Make the folder, or refuse it: what is in it will be executed."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode) or not _mine(status):
        raise PermissionError(
            "it belongs to another user, or is not a folder; remove it, or set "
            "NUMBA_CACHE_DIR to a folder of your own"
        )
    if os.name == "posix" and stat.S_IMODE(status.st_mode) != 0o700:
        if status.st_mode & 0o022:  # others could write here
            for path in folder.iterdir():
                path.unlink()
        folder.chmod(0o700)


def read(path: Path) -> bytes:
    """The bytes of a kernel's file; b"" if there is none, or if it or its folder is not this
    user's alone."""
    flags = (getattr(os, f"O_{name}", 0) for name in ("NOFOLLOW", "BINARY", "NONBLOCK"))
    try:
        folder = os.lstat(path.parent)
        if not stat.S_ISDIR(folder.st_mode) or not _mine(folder) or folder.st_mode & 0o022:
            return b""  # writing says why
        with open(os.open(path, sum(flags, os.O_RDONLY)), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or not _mine(status) or status.st_size > LIMIT:
                raise PermissionError("it is not a file of this user")
            data = file.read()
        _use(path.parent)
        return data
    except (FileNotFoundError, NotADirectoryError):
        return b""
    except OSError as error:
        say("%s is not used: %s", path, error)
        return b""


@cache
def _use(folder: Path) -> None:
    """Set the time of last use, once in this process."""
    with suppress(OSError):
        os.utime(folder)


def write(path: Path, data: bytes) -> None:
    """Write a kernel's file, in a folder that is this user's alone, or say why not. A kernel of
    sources that changed since they were imported is of neither version."""
    if _digest() != version():
        say(
            "compiled kernels are not kept: refnet changed since this process began; start it again"
        )
        return
    try:
        _prepare(path.parent)
        write_atomically(path, methodcaller("write", data), sync=False)
    except OSError as error:
        say("compiled kernels are not kept in %s: %s", path.parent, error)
        return
    with suppress(OSError):
        _bound(path.parent)


def _bound(folder: Path) -> None:
    """Remove the kernels of old versions, the oldest ones beyond ``LIMIT`` bytes, and what a kill
    left half-written; another process may do so at the same time."""
    sweep(folder)
    versions = [
        path
        for path in folder.parent.iterdir()
        if re.fullmatch("[0-9a-f]{16}", path.name) and _mine(os.lstat(path))
    ]
    versions.sort(key=lambda path: (path == folder, path.stat().st_mtime), reverse=True)
    left = LIMIT
    for rank, version in enumerate(versions):
        kernels = [
            (path.stat(), path) for path in version.iterdir() if path.suffix in (".nbc", ".nbi")
        ]
        for status, path in sorted(kernels, key=lambda kernel: -kernel[0].st_mtime):
            left -= status.st_size
            if left < 0 or rank >= VERSIONS:
                path.unlink(missing_ok=True)
        if rank >= VERSIONS:
            version.rmdir()
