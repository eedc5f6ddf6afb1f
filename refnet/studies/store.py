"""A study's folder: ``rows.jsonl``, one line a finished run, ``unfinished/KEY`` with the run folder
of each run that has begun, so that a later process goes on with it, and ``repeat.json``, the runs
that are to be made again, by key, each with the mark that its new row will carry.

A line is a JSON object: ``key``, ``settings``, what the run returned, and ``sha256``, the digest
of the JSON text of all other entries (keys sorted, Python's default separators).

Checked by: tests/studies/test_study_rows.py.
"""

import codecs
import errno
import hashlib
import json
import os
from collections.abc import Collection, Iterable
from contextlib import AbstractContextManager, suppress
from operator import methodcaller
from pathlib import Path
from stat import S_ISDIR

from refnet.runs.files import naming, remove, write_atomically
from refnet.runs.folder import Held, hold
from refnet.runs.read import FileError, Record, contents, json_of, reading
from refnet.runs.rows import LIMIT, plain
from refnet.studies.jobs import Job

__all__ = ["Store", "line_of", "row_of"]

PATIENCE = 60
"""Seconds that one process waits while others append; each takes milliseconds."""
MARKS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""What editors begin a file with that they have encoded anew."""


def _digest(row: Record) -> str:
    return hashlib.sha256(json.dumps(row, sort_keys=True, allow_nan=False).encode()).hexdigest()


def row_of(line: bytes) -> Record:
    """The row of a line. Raises ValueError if its digest is not the row's."""
    row = json_of(line)
    if (
        not isinstance(row, dict)
        or type(row.get("key")) is not str
        or type(row.get("settings")) is not dict
    ):
        raise ValueError("not a row; need an object with a key and settings")
    if row.pop("sha256", None) != _digest(row):
        raise ValueError("does not match its own sha256: it was damaged or edited")
    return row


def line_of(row: Record) -> bytes:
    """A row with its digest, as it is written."""
    row = json.loads(json.dumps(plain(row), allow_nan=False))  # as it will be read
    return json.dumps({**row, "sha256": _digest(row)}, sort_keys=True).encode() + b"\n"


def _torn(line: bytes) -> bool:
    """Whether a kill can have left this of a line: a beginning, which is no JSON yet; or zeros,
    after a power failure."""
    line = line.rstrip(b"\0")
    if not line:
        return True
    try:
        json_of(line)
    except ValueError:
        return line.startswith(b"{") and line.isascii() and b"\r" not in line
    return False


def _same(row: Record, settings: Record) -> bool:
    """Whether a row was made with these settings; those that only one of the two has do not
    count."""
    return all(
        row["settings"].get(name, value) == value
        for name, value in json.loads(json.dumps(plain(settings))).items()
    )


class Store:
    """The rows of a study, by key, in one folder.

    Rows are appended whole or not at all, by any number of processes; the last row of a key
    counts.
    """

    def __init__(self, folder: Path) -> None:
        with naming(folder):  # the working directory may be gone
            self.folder = folder.absolute()
            with suppress(FileNotFoundError):
                if not S_ISDIR(os.stat(self.folder).st_mode):
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        self.path = self.folder / "rows.jsonl"
        self.again = self.folder / "repeat.json"

    def rows(self) -> dict[str, Record]:
        """The rows by key. A last line that a kill cut short was never finished and does not
        count.

        Raises FileError, naming the line, for one that is damaged or was edited.
        """
        if not self.path.exists():
            return {}
        rows = {}
        with reading(self.path, "put back a whole copy of it"):
            *lines, last = contents(self.path, LIMIT).split(b"\n")
            for number, line in enumerate([*lines, last] if not _torn(last) else lines, 1):
                if not line:
                    continue
                try:
                    row = row_of(line)
                except ValueError as error:
                    if line.startswith(MARKS) or b"\r" in line[:-1]:
                        raise ValueError(
                            "was saved in another encoding, or without line feeds between its lines"
                        ) from None
                    raise FileError(
                        f"{self.path}: line {number}: {error}; remove that line, and "
                        "its run is made again"
                    ) from None
                rows[row["key"]] = row
        return rows

    def held(self) -> AbstractContextManager[Held]:
        """The folder is this process's for the block; nothing is written in it otherwise."""
        return hold(self.folder, wait=PATIENCE)

    def writable(self) -> None:
        """Raise OSError if no row could be added."""
        with self.held(), naming(self.path), open(self.path, "ab"):
            pass

    def append(self, row: Record) -> None:
        """Add a row, unless its run has one that is not to be made again, and forget the run's
        checkpoints. A line before it that a kill cut short is cut off.

        Raises FileError, and adds nothing, if a line of the file is damaged; BusyError if another
        process keeps the folder.
        """
        key = row["key"]
        with naming(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        with self.held():
            known, asked = self.rows().get(key), self._asked()
            if known is None and asked.get(key):  # its old row is gone: this one is the new one
                row = {**row, "repetition": asked[key]}
            if (
                known is None
                or not _same(known, row["settings"])
                or "repetition" in row
                and row["repetition"] == self._left(asked).get(key)
            ):
                line = line_of(row)
                with naming(self.path), open(self.path, "a+b") as file:
                    file.seek(0)
                    last = file.read().split(b"\n")[-1]
                    if _torn(last):
                        file.truncate(file.tell() - len(last))
                    else:  # whole, as an editor may leave it
                        file.write(b"\n")
                    file.write(line)
                    file.flush()
                    os.fsync(file.fileno())
            if asked:
                self._ask(asked)
            if key not in self._left(asked):  # or another process may be making it again
                remove(self.unfinished(key))

    def repetition(self) -> dict[str, str]:
        """The keys of the runs that a repetition still has to make, from when it is asked for until
        it is done, whatever comes between, and the marks of their new rows: empty for those that
        had none. Raises FileError if its file is damaged."""
        return self._left(self._asked())

    def repeat(self, keys: Collection[str], others: Collection[str] = ()) -> None:
        """From now on these runs are to be made again, and ``others``, which are not done, made; if
        some of them still are, because a repetition was interrupted, all but those that it has
        made."""
        with self.held():
            asked = self._asked()
            fresh = set(keys)
            if not self._left(asked).keys().isdisjoint({*keys, *others}):
                fresh -= asked.keys()
            self._ask(
                {**dict.fromkeys(others, ""), **asked, **dict.fromkeys(fresh, os.urandom(8).hex())}
            )

    def forget(self, keys: Collection[str]) -> None:
        """Of what is still to be made again leave these out."""
        with self.held():
            asked = self._asked()
            without = self._left(asked).keys() & set(keys)
            self._ask({key: mark for key, mark in asked.items() if key not in without})

    def _left(self, asked: dict[str, str]) -> dict[str, str]:
        rows = self.rows() if asked else {}
        return {
            key: mark
            for key, mark in asked.items()
            if key not in rows or mark and rows[key].get("repetition") != mark
        }

    def _asked(self) -> dict[str, str]:
        """The runs of all repetitions since nothing was left of one, and their marks."""
        with reading(self.again, "remove it, and no run is made again"):
            try:
                asked = json_of(contents(self.again, LIMIT))
            except FileNotFoundError:
                return {}
            if not isinstance(asked, dict) or not all(type(mark) is str for mark in asked.values()):
                raise ValueError("is not an object of keys and marks")
            return asked

    def _ask(self, asked: dict[str, str]) -> None:
        if self._left(asked):
            text = json.dumps(asked, indent=1).encode() + b"\n"
            write_atomically(self.again, methodcaller("write", text))
        else:
            self.again.unlink(missing_ok=True)

    def clear(self, jobs: Iterable[Job]) -> None:
        """Remove the folders of runs that are done: a kill between a row and the removal of its
        run's folder leaves it. In a store that is not to be written it stays."""
        left = [job for job in jobs if self.unfinished(job.key).exists()]
        if not left:
            return
        with suppress(OSError), self.held():
            rows, again = self.rows(), self.repetition()
            for job in left:
                if job.key not in again and self.done(job, rows) is not None:
                    remove(self.unfinished(job.key))

    def unfinished(self, key: str) -> Path:
        """The folder of a run that has not ended."""
        return self.folder / "unfinished" / key

    def done(self, job: Job, rows: dict[str, Record]) -> Record | None:
        """The row of a job, if it is done with the same settings."""
        row = rows.get(job.key)
        return row if row is not None and _same(row, job.settings) else None
