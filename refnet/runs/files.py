"""Writing files so that a crash leaves either the old one or the new one, whole.

Each file gets a temporary name in the same folder, ``.NAME.*.refnet.part``, and is then renamed.
``sweep`` removes the files that a kill left; errors of the operating system name the file.
Checked by: tests/robustness/test_named_files.py, tests/training/test_run_folder.py,
tests/training/test_checkpoint.py.
"""

import errno
import os
import re
import time
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from operator import methodcaller
from pathlib import Path
from shlex import quote
from typing import IO

_OPEN: set[Path] = set()
"""The temporary files and folders of this process."""

LOCK, MARK = ".lock", ".refnet.part"
MINUTE = 60
"""Seconds after which a temporary file that nobody has written to counts as left over."""


REPAIRS = {
    **dict.fromkeys(
        (errno.EEXIST, errno.ENOTDIR),
        "; need a folder there, and a file has that "
        "name: name another place, or move the file away",
    ),
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM, errno.EROFS),
        "; need permission to use it: name another place, or change its permissions",
    ),
    errno.EISDIR: "; need a file there, and a folder has that name: name a file",
    errno.ENOENT: "; check the name",
    errno.ENAMETOOLONG: "; name a shorter one",
    errno.EMFILE: "; allow more open files, such as with ulimit -n 4096",
    **dict.fromkeys(
        (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)),
        "; free some space there, or write to another disk",
    ),
    errno.EFBIG: "; allow larger files, such as with ulimit -f unlimited",
}
"""What may help where the operating system refuses something."""


def user_cache() -> Path:
    """The user's cache folder for refnet, in XDG_CACHE_HOME or ~/.cache.

    Raises FileNotFoundError if there is neither, as for a user without a home folder.

    >>> user_cache().name
    'refnet'
    """
    home = os.environ.get("XDG_CACHE_HOME")
    if not home and os.path.expanduser("~") == "~":
        raise FileNotFoundError(
            "this user has no home folder to keep a cache in; set XDG_CACHE_HOME to a folder for it"
        )
    return Path(home or os.path.expanduser("~/.cache")) / "refnet"


def printable(text: object) -> str:
    """A text that was not written here, such as a file's name, for a terminal: in one line, with
    escapes for what a terminal would obey or could not show.

    >>> printable("a\\n\\x1b[31mb\\udcff")
    'a\\\\n\\\\x1b[31mb\\\\udcff'

    Checked by: tests/robustness/test_printable.py.
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def described(error: BaseException) -> str:
    """An error in one printable line; of the operating system's, with what may help."""
    said = printable(" ".join(str(error).split()))
    if isinstance(error, MemoryError):
        return (
            f"not enough memory ({said or 'the system gives no more'}); need smaller sizes: "
            "units, length, batch or examples"
        )
    if isinstance(error, OSError) and said.startswith("[Errno"):  # the system's own words
        if error.errno in (errno.ENOSPC, errno.EIO, errno.EFBIG) and error.filename is None:
            said += ": standard output"  # every file is named
        said += REPAIRS.get(error.errno or 0, "")
    return said


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors of the operating system in this block name ``path``, with the names that temporary
    files and folders will get in place of their own."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        given = re.sub(rf"\.([^/\\]+)\.[0-9a-f]{{8}}{re.escape(MARK)}", r"\1", str(path))
        raise OSError(error.errno, error.strerror, given) from None


def argument(path: Path) -> str:
    """A path as an argument of a command in a shell.

    >>> argument(Path("a run")), argument(Path("-y"))
    ("'a run'", './-y')
    """
    return quoted(f"./{path}" if str(path).startswith("-") else str(path))


def quoted(text: str) -> str:
    """A word of a command in a shell, printable: bytes that are not are escaped as in Bash and
    Zsh.

    >>> print(quoted("a\\x1b'b"))
    $'a\\x1b\\x27b'

    Checked by: tests/robustness/test_printable.py::test_a_shell_reads_the_word.
    """
    if text.isprintable():
        return quote(text)
    return (
        "$'"
        + "".join(
            c
            if c.isprintable() and c not in "\\'"
            else "".join(f"\\x{byte:02x}" for byte in os.fsencode(c))
            for c in text
        )
        + "'"
    )


@contextmanager
def temporary(path: Path) -> Iterator[Path]:
    """A name beside ``path`` that no other process has; removed if it is still there at the
    end of the block."""
    part = path.with_name(f".{path.name}.{os.urandom(4).hex()}{MARK}")
    _OPEN.add(part)
    try:
        yield part
    finally:
        remove(part)
        _OPEN.discard(part)


def remove(path: Path) -> None:
    """Remove a file or a folder if it is there; of a folder its lock last, so that what a kill
    leaves of it is recognised."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            for inside in sorted(path.iterdir(), key=lambda inside: inside.name == LOCK):
                remove(inside)
            path.rmdir()
        else:
            path.unlink(missing_ok=True)


def discard() -> None:
    """Remove every temporary file of this process, which is about to end at once."""
    for path in tuple(_OPEN):
        remove(path)


def sweep(folder: Path, mine: bool = False) -> None:
    """Remove the temporary files that a kill left in a folder: the ones nobody has written to
    for a minute, or all if the folder is this process's own (``mine``)."""
    with suppress(OSError):
        for path in folder.glob(f".*{MARK}"):
            if (
                path.is_file()
                and path not in _OPEN
                and (mine or time.time() - path.stat().st_mtime > MINUTE)
            ):
                remove(path)


def sync_folder(folder: Path) -> None:
    """Write the names in a folder to the disk, where the system can do that: some file systems of
    other machines cannot, nor can anyone who may not read the folder."""
    if os.name == "posix":
        try:
            handle = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EBADF, errno.EINVAL):
                raise


def write_atomically(path: Path, write: Callable[[IO[bytes]], object], sync: bool = True) -> None:
    """Call ``write`` on a temporary file beside ``path``, sync it, and rename it to ``path``.

    If ``write`` raises, the temporary file is removed and ``path`` is as it was. A file that was
    there gives the new one its permissions. ``sync=False``: a power failure may lose the new file
    or leave it damaged, which the reader will notice.
    """
    with naming(path), temporary(path) as part:
        with open(part, "xb") as file:
            with suppress(FileNotFoundError):
                if path.is_file() and not path.is_symlink():
                    part.chmod(path.stat().st_mode & 0o777)
            write(file)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(part, path)
        if sync:
            sync_folder(path.parent)


def write_named(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """``write_atomically`` for what a user named: a link is followed, and what is no file of its
    own, such as a pipe or /dev/stdout, is written to."""
    if not is_special(path):
        write_atomically(Path(os.path.realpath(path)), write)
        return
    buffer = BytesIO()
    write(buffer)
    with naming(path), open(path, "ab") as file:
        file.write(buffer.getvalue())


def is_special(path: Path) -> bool:
    """Whether it is a device, a pipe or an open file's name in /dev, none of which can be
    replaced."""
    return (
        path.exists()
        and not path.is_dir()
        and (not path.is_file() or path.absolute().parts[1:2] in (("dev",), ("proc",)))
    )


def named(text: str) -> Path:
    """A path, for argparse: an empty one, as of a variable that is not set, is none."""
    if not text:
        raise ArgumentTypeError(
            "the name is empty, as that of a variable which is not set; need a "
            "path (the working directory is .)"
        )
    return Path(text)


def write_text(path: Path, text: str) -> None:
    """``write_atomically`` for text, as UTF-8; of names that are not, bytes as ``\\udcff``."""
    write_atomically(path, methodcaller("write", text.encode(errors="backslashreplace")))
