"""A run's folder: it exists whole or not at all, and belongs to one process at a time.

The holder locks the file ``.lock`` in the folder. The operating system frees the lock as soon as
the process ends, however it ends. The file names the holder for any process that finds it locked.
Checked by: tests/training/test_run_folder.py.
"""

import errno
import logging
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, NamedTuple

from refnet.runs.files import (
    LOCK,
    MARK,
    argument,
    naming,
    printable,
    remove,
    sweep,
    sync_folder,
    temporary,
)

NETWORK = {
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "lustre",
    "9p",
    "afs",
    "ceph",
    "gpfs",
    "beegfs",
    "glusterfs",
    "fuse.glusterfs",
    "fuse.sshfs",
    "virtiofs",
}
MOMENT = 0.2
"""Seconds that a lock may be held by who only looks, as `refnet runs` does."""
_log = logging.getLogger("refnet")
_HELD: set[IO[bytes]] = set()


class BusyError(OSError):
    """Another process uses the run folder; the message names it."""


class Held(NamedTuple):
    """The lock on a folder."""

    file: IO[bytes]

    def check(self, folder: Path) -> None:
        """Raise BusyError if the folder of that name is not the one that is locked: it was moved
        or removed meanwhile, and another may be there. To be asked before anything is written."""
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(self.file.fileno()), os.stat(folder / LOCK)):
                return
        raise BusyError(
            f"{folder} was moved, removed or replaced while this run was going on, "
            "which writes nothing more there; go on with it where it was moved to, or "
            "start it again"
        )


def _close_in_child() -> None:
    for file in tuple(_HELD):
        file.close()
    _HELD.clear()


if hasattr(os, "register_at_fork"):  # or a child that outlives this process would keep the lock
    os.register_at_fork(after_in_child=_close_in_child)


def _lock(file: IO[bytes]) -> bool:
    """Take the lock of an open file; whether that succeeded."""
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(2**30)  # a byte after the text, which others then still can read
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            file.seek(0)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES, errno.EDEADLK):
            return False
        raise
    return True


def _file_system(folder: Path) -> str:
    """The kind of the file system that a folder is on, or "" where the system does not say."""
    kind, longest = "", -1
    with suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_bytes().split(b"\n")[:-1]:
            place, _, rest = line.partition(b" - ")
            # a space, for one, is \040 there
            name = re.sub(
                rb"\\(\d{3})", lambda octal: bytes([int(octal[1], 8)]), place.split(b" ")[4]
            )
            mount = Path(os.fsdecode(name))
            if folder.resolve().is_relative_to(mount) and len(mount.parts) >= longest:
                kind, longest = rest.split(b" ")[0].decode(), len(mount.parts)
    return kind


@cache
def _warn(folder: Path) -> None:
    """Say, once in a process, that the folder is on a network file system, if it is."""
    kind = _file_system(folder)
    if kind in NETWORK:
        _log.warning(
            "%s is on a network file system (%s): processes of this machine cannot "
            "use it at once, processes of other machines can unless its server "
            "keeps locks",
            folder,
            kind,
        )


def _open(folder: Path, wait: float = MOMENT) -> IO[bytes]:
    """The folder's lock file, locked. Raises BusyError if another process has it for more than
    ``wait`` seconds."""
    with naming(folder / LOCK):
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    file = os.fdopen(descriptor, "r+b", buffering=0)
    last = time.monotonic() + wait
    try:
        while not _lock(file):
            if time.monotonic() > last:
                by = _named(file)
                file.close()
                raise BusyError(f"{folder} is in use by {by}; wait until it has ended, or stop it")
            time.sleep(0.02)
    except OSError as error:
        if isinstance(error, BusyError):
            raise
        _log.warning(
            "%s: this file system keeps no locks (%s); see to it that no other process "
            "uses the folder",
            folder,
            error.strerror,
        )
    _HELD.add(file)
    return file


def _make(folder: Path) -> IO[bytes]:
    """A new folder's lock file, locked; until it is, another process may take the folder for left
    over and remove it."""
    while True:
        with naming(folder):
            folder.mkdir(exist_ok=True)
        with suppress(FileNotFoundError):
            file = _open(folder)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file.fileno()), os.stat(folder / LOCK)):
                    return file
            _close(file)


def _named(file: IO[bytes]) -> str:
    file.seek(0)
    text = file.read(200).decode("utf-8", "replace")
    return printable(text.strip()) or "a process that has just begun"


def _close(file: IO[bytes]) -> None:
    if file in _HELD:  # not in a forked child
        _HELD.discard(file)
        with suppress(OSError):
            file.truncate(0)
        file.close()


@contextmanager
def hold(folder: Path, new: bool = False, wait: float = MOMENT) -> Iterator[Held]:
    """The folder is this process's for the block; what a kill left of files is removed. ``new``:
    it is made first.

    Raises BusyError, which names the holder, if another process (or another thread of this one)
    has it and keeps it for ``wait`` seconds. The lock holds between machines if the file
    system's server keeps locks: where that is uncertain, a line says so.
    """
    file = _make(folder) if new else _open(folder, wait)
    try:
        _warn(folder)
        with suppress(OSError):
            file.seek(0)
            file.truncate(0)
            file.write(
                f"process {os.getpid()} on {platform.node()} since "
                f"{time.strftime('%Y-%m-%d %H:%M:%S')}\n".encode()
            )
        sweep(folder, mine=True)
        yield Held(file)
    finally:
        _close(file)


def holder(folder: Path) -> str:
    """Which process has the folder, or "" if none."""
    for mode in ("r+b", "rb"):  # the second for who may only read; not every system can lock it
        with suppress(OSError), open(folder / LOCK, mode, buffering=0) as file:
            return "" if _lock(file) else _named(file)
    return ""


def vacant(folder: Path) -> None:
    """Raise FileExistsError unless a run's folder can be made there.

    >>> vacant(Path("no-such-folder"))
    """
    folder = folder.resolve()
    if folder.exists() and os.path.samefile(folder, os.curdir):
        raise FileExistsError(
            f"{folder} is the working directory, which a new run's folder would "
            "replace; name a folder within it with --out"
        )
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file; name another folder with --out")
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(
            f"{folder} is not empty; resume that run with --resume "
            f"{argument(folder)}, or name another folder with --out"
        )


@contextmanager
def create(folder: Path, fill: Callable[[Path], None]) -> Iterator[Held]:
    """A new run folder, made by ``fill`` under another name and then there whole; held for the
    block. If ``fill`` raises, or this process is killed, there is no folder.

    Raises FileExistsError if the folder is there with anything in it.
    """
    folder = folder.resolve()
    vacant(folder)
    with naming(folder.parent):
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
        except FileExistsError:  # not the folder: a file has its parent's name
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
    _sweep_folders(folder.parent)
    with temporary(folder) as part:
        with hold(part, new=True) as held:
            fill(part)
            sync_folder(part)
            if os.name == "posix":
                _publish(part, folder)
                yield held
                return
        _publish(part, folder)  # Windows moves no folder that has an open file
    with hold(folder) as held:
        yield held


def _publish(part: Path, folder: Path) -> None:
    try:
        if os.name != "posix" and folder.exists():
            folder.rmdir()
        os.rename(part, folder)
        sync_folder(folder.parent)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise FileExistsError(
                f"{folder} has just been made by another process; name another folder with --out"
            ) from None
        raise OSError(
            error.errno,
            f"{error.strerror}: it cannot be replaced as a whole; name a folder within it",
            str(folder),
        ) from None


def _sweep_folders(parent: Path) -> None:
    """Remove the unfinished run folders that a kill left beside the new one."""
    for path in parent.glob(f".*{MARK}"):
        if path.is_dir() and not path.is_symlink():
            with suppress(OSError):
                if not (path / LOCK).exists():
                    path.rmdir()  # a kill came before there was a lock: it is empty
                    continue
                with open(path / LOCK, "r+b", buffering=0) as file:
                    if _lock(file):
                        remove(path)
