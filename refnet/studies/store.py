"""A study's folder: ``rows.jsonl``, one line a finished run, and ``unfinished/KEY`` with the run
folder of each run that has begun, so that another process or machine can go on.

Checked by: tests/test_studies.py.
"""

import json
import os
import shutil
from pathlib import Path
from typing import Any

from refnet.runs.rows import plain
from refnet.studies.jobs import Job

__all__ = ["Store"]


class Store:
    """The rows of a study, by key, in one folder.

    Rows are appended whole or not at all, by any number of processes; the last row of a key
    counts.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.path = self.folder / "rows.jsonl"

    def rows(self) -> dict[str, dict[str, Any]]:
        """The rows by key. A last line without its end was never finished and does not count.

        Raises ValueError, naming the line, for one that is damaged.
        """
        if not self.path.exists():
            return {}
        lines = self.path.read_bytes().split(b"\n")[:-1]
        rows = {}
        for number, line in enumerate(lines, 1):
            if not line:
                continue
            try:
                row = json.loads(line)
                rows[row["key"]] = row
            except (ValueError, KeyError, TypeError, RecursionError):
                raise ValueError(f"{self.path}: line {number} is damaged; remove it, and its run "
                                 "is made again") from None
        return rows

    def append(self, row: dict[str, Any], again: bool = False) -> None:
        """Add a row, unless its run has one and this is not ``again``, and forget the run's
        checkpoints. A torn line before it is cut off."""
        import fcntl
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.path, "a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            content = file.read()
            file.truncate(content.rfind(b"\n") + 1)
            if again or row["key"] not in self.rows():
                file.write(json.dumps(plain(row), sort_keys=True).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        shutil.rmtree(self.unfinished(row["key"]), ignore_errors=True)

    def unfinished(self, key: str) -> Path:
        """The folder of a run that has not ended."""
        return self.folder / "unfinished" / key

    def done(self, job: Job, rows: dict[str, dict[str, Any]]) -> dict[str, Any] | None:
        """The row of a job, if it is done with the same settings; settings that only one of the
        two has do not count."""
        row = rows.get(job.key)
        if row is None or any(row["settings"].get(name, value) != value
                              for name, value in json.loads(json.dumps(job.settings)).items()):
            return None
        return row
