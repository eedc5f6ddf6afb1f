"""Compiled kernels on the disk: one file each, executed only if it is what this user wrote.

A file holds a sha256 and a pickle of what Numba made. The digest is of the kernel's key (its
function, types, processor, versions) and of the pickle, so that a damaged, half-written or
exchanged file is noticed before anything of it is unpickled or run; the kernel is then compiled
again. Checked by: tests/compiled/test_startup.py.
"""

import hashlib
import logging
import os
import pickle
import re
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core import caching, compiler, serialize

from refnet.runs.files import sweep, user_cache, write_atomically

__all__ = ["KernelCache", "cache_folder", "kernel_sources"]

LIMIT = 2**28
"""Bytes that all kernels together may take."""

VERSIONS = 3
"""How many versions of the sources have their kernels kept: those that were used last."""

_log = logging.getLogger("refnet")
_SAID: set[str] = set()


def _say(what: str, *details: object) -> None:
    """One line on standard error, the first time in this process."""
    if what not in _SAID:
        _SAID.add(what)
        _log.warning("refnet: " + what, *details)


def kernel_sources() -> list[Path]:
    """The files that kernels, and all that they call, are written in."""
    package = Path(__file__).parents[1]
    return sorted([*package.glob("compiled/*.py"), *package.glob("exact/digit*.py")])


@cache
def _version() -> str:
    """A digest of the kernels' sources and of what compiles them.

    Numba itself looks only at the file of the outermost function, and would go on using a kernel
    whose helpers in another file have changed.
    """
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in kernel_sources()))
    digest.update(f"{numba.__version__} {llvmlite.__version__} {sys.version}".encode())
    return digest.hexdigest()[:16]


def cache_folder() -> Path:
    """Where compiled kernels are kept: one folder for each version of the sources, in
    NUMBA_CACHE_DIR or the user's cache folder. Raises FileNotFoundError if there is neither."""
    return Path(os.environ.get("NUMBA_CACHE_DIR") or user_cache()) / _version()


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


def _read(path: Path) -> bytes:
    """The bytes of a regular file of this user; b"" if there is none."""
    try:
        descriptor = os.open(
            path,
            os.O_RDONLY
            | getattr(os, "O_NOFOLLOW", 0)
            | getattr(os, "O_BINARY", 0)
            | getattr(os, "O_NONBLOCK", 0),
        )
    except FileNotFoundError:
        return b""
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or not _mine(status) or status.st_size > LIMIT:
            raise PermissionError("it is not a file of this user")
        return file.read()


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


def _described(function: Callable[..., Any]) -> tuple[Any, ...]:
    """What a kernel is made from: its own code, and what it closes over, other kernels included.
    (All other functions that it calls are in ``kernel_sources``, whose digest goes with it.)"""
    code = function.__code__
    constants = [value for value in code.co_consts if not hasattr(value, "co_code")]
    closure = [cell.cell_contents for cell in function.__closure__ or ()]
    return (
        function.__module__,
        function.__qualname__,
        code.co_firstlineno,
        code.co_code,
        code.co_names,
        repr(constants),
        *(
            _described(value.py_func) if hasattr(value, "py_func") else serialize.dumps(value)
            for value in closure
        ),
    )


class KernelCache(caching._Cache):  # type: ignore[misc]
    """The cache of one function; what cannot be read or written is as good as absent."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = _described(function)
        self.missed: Callable[[], None] | None = None
        """What to do, once, if the kernel that is asked for next is not there."""

    @property
    def cache_path(self) -> str:
        return str(cache_folder())

    def _place(self, signature: Any, codegen: Any) -> tuple[Path, bytes]:
        """A kernel's file and its key."""
        key = repr(
            (
                _version(),
                self._function,
                signature,
                codegen.magic_tuple(),
                bool(numba.config.BOUNDSCHECK),
            )
        ).encode()
        module, name = self._function[:2]
        name = re.sub(r"\W+", "-", f"{module.rpartition('.')[2]}.{name}")
        return cache_folder() / f"{name[-60:]}-{hashlib.sha256(key).hexdigest()[:16]}.nbc", key

    def load_overload(self, signature: Any, context: Any) -> Any:
        found = self._load(signature, context)
        missed, self.missed = self.missed, None
        if found is None and missed is not None:
            missed()
        return found

    def _load(self, signature: Any, context: Any) -> Any:
        context.refresh()
        try:
            path, key = self._place(signature, context.codegen())
            folder = os.lstat(path.parent)
            if not stat.S_ISDIR(folder.st_mode) or not _mine(folder) or folder.st_mode & 0o022:
                return None  # saving says why
            data = _read(path)
        except (FileNotFoundError, NotADirectoryError):  # saving says why
            return None
        except OSError as error:
            _say("%s is not used: %s", path, error)
            return None
        if not data:
            return None
        try:
            if hashlib.sha256(key + data[32:]).digest() != data[:32]:
                raise ValueError("its digest does not hold")
            loaded = compiler.CompileResult._rebuild(context, *pickle.loads(data[32:]))
        except Exception as error:  # whatever the linker says of an object file
            _say("a compiled kernel is damaged and compiled again: %s (%s)", path, error)
            return None
        if path.parent not in _USED:
            _USED.add(path.parent)
            with suppress(OSError):
                os.utime(path.parent)
        return loaded

    def save_overload(self, signature: Any, data: Any) -> None:
        try:
            path, key = self._place(signature, data.codegen)
        except FileNotFoundError as error:
            _say("compiled kernels are not kept: %s", error)
            return
        if data.lifted or data.library.has_dynamic_globals or b" at 0x" in key:
            return  # holds an address of this process
        payload = serialize.dumps(data._reduce())
        digest = hashlib.sha256(key + payload).digest()
        try:
            _prepare(path.parent)
            write_atomically(path, lambda file: file.write(digest + payload), sync=False)
        except OSError as error:
            _say("compiled kernels are not kept in %s: %s", path.parent, error)
            return
        with suppress(OSError):
            _bound(path.parent)

    def enable(self) -> None:
        """Always on."""

    disable = flush = enable


_USED: set[Path] = set()
"""The folders whose time of last use this process has set."""
