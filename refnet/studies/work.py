"""How a process carries out a run, wherever the run is sent.

Checked by: tests/studies/test_runs.py.
"""

import platform
import re
import subprocess
import time
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from operator import methodcaller
from pathlib import Path
from typing import Any

import numpy as np

import refnet
from refnet.maths.threads import set_threads, usual_threads
from refnet.runs import checkpoint
from refnet.runs.files import remove, write_atomically, write_text
from refnet.runs.folder import BusyError, hold
from refnet.runs.read import FileError, Record, contents, json_of, reading
from refnet.runs.rows import LIMIT, Rows, environment, machine, read_rows
from refnet.studies.jobs import Job, code_digest
from refnet.studies.store import Store, line_of, row_of
from refnet.studies.study import RowOf
from refnet.training import loop
from refnet.training.config import Config

__all__ = ["begun", "commit", "execute", "shown"]

POINTS = 100
"""Points of a curve that a row keeps."""


def execute(job: Job, folder: Path, mark: str = "", threads: int = 1) -> Record:
    """Carry out a run of the study in ``folder``, which is made if it is not there, and return its
    row; go on where the folder has it unfinished. A row that is there already is returned as it
    is. ``mark``: of a repetition; then only rows and unfinished runs of that repetition count, and
    the row carries it.

    Raises BusyError if another process works on the run, and whatever the run itself raises; but
    a loss that is not finite is an outcome, the state "diverged".
    """
    threads = min(threads, usual_threads())
    set_threads(threads)
    store = Store(folder)

    def done() -> Record | None:
        row = store.done(job, store.rows())
        return row if row is None or not mark or row.get("repetition") == mark else None

    if (row := done()) is not None:
        return row
    try:
        folder = store.unfinished(job.key)
        folder.mkdir(parents=True, exist_ok=True)
        with hold(folder):
            # another process may have ended the run before, and removed the folder, made anew here
            if (row := done()) is not None:
                return row
            if mark:
                _renew(folder, mark)
            at, codes = commit(), _note_code(folder, job.function)
            outcome = (
                _call(job, folder)
                if job.config is None
                else _train(job, job.config, folder / "run")
            )
    except (OSError, ValueError) as error:
        # another process may have ended the run in between, and removed its folder
        if (row := done()) is None:
            error.add_note(f"on {platform.node()}")
            raise
        return row
    return {
        **outcome,
        "key": job.key,
        "name": job.name,
        "settings": job.settings,
        "code": codes,
        "commit": at,
        "environment": environment(),
        "threads": threads,
        **({"repetition": mark} if mark else {}),
    }


@lru_cache(maxsize=1)
def commit() -> str:
    """The commit of the source tree, with a "+" if it was changed since, when this process began
    its first run; "" without git, and for a package that git does not keep, in a repository of
    something else, say."""
    try:
        _, commit, changed = (
            subprocess.run(
                ["git", *words],
                cwd=Path(refnet.__file__).parent,
                capture_output=True,
                text=True,
                check=True,
                timeout=60,
            ).stdout.strip()
            for words in (
                ["ls-files", "--error-unmatch", "__init__.py"],
                ["rev-parse", "--short=12", "HEAD"],
                ["status", "--porcelain", "--untracked-files=no", "."],
            )
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return commit + ("+" if changed else "")


def _marked(folder: Path, mark: str) -> bool:
    """Whether what is in a run's folder was made by the repetition of this mark."""
    try:
        return (folder / "repetition").read_bytes() == mark.encode()
    except FileNotFoundError:
        return False


def _renew(folder: Path, mark: str) -> None:
    """Empty a run's folder of what was made before this repetition."""
    if _marked(folder, mark):
        return
    for path in (folder / "run", folder / "made.json", folder / "code"):
        remove(path)
        if path.exists():
            raise FileError(f"{path} is of an earlier run, and cannot be removed; remove it")
    write_text(folder / "repetition", mark)


def _note_code(folder: Path, function: str) -> list[str]:
    """The digests of all versions of the code that have worked on this run."""
    path = folder / "code"
    known: list[str] = []
    if path.exists():
        with reading(path, "remove the file: which code began the run is then unknown"):
            known = contents(path, 2**20).decode().split()
            if not all(re.fullmatch("[0-9a-f]{16}", digest) for digest in known):
                raise ValueError("is no list of digests of 16 hexadecimal digits")
    if (digest := code_digest(function)) not in known:
        known.append(digest)
        write_text(path, "\n".join(known) + "\n")
    return known


def _call(job: Job, folder: Path) -> Record:
    """What the function returns, and its seconds. It is kept in the folder until there is a row,
    so that a process that waited for the folder does not make it once more."""
    path = folder / "made.json"
    if path.exists():
        with reading(path, f"remove {folder}, and it is made again"):
            saved = row_of(data := contents(path, LIMIT))
            outcome = saved.get("made")
            if line_of(saved) != data or saved["key"] != job.key or type(outcome) is not dict:
                raise ValueError("is not what this run has made")
            return outcome
    module, name = job.function.split(":")
    started = time.perf_counter()
    outcome = {
        **getattr(import_module(module), name)(**job.arguments),
        "machines": [machine()],
        "seconds": round(time.perf_counter() - started, 1),
    }
    line = line_of({"key": job.key, "settings": job.settings, "made": outcome})
    write_atomically(path, methodcaller("write", line))
    return outcome


def _train(job: Job, config: Config, folder: Path) -> Record:
    """The outcome of the run, and the kinds of all machines that it has been on."""
    begin: Callable[..., Any] = loop.resume if folder.exists() else loop.train
    try:
        summary = begin(config, folder, draw=False)
    except (checkpoint.CheckpointError, FileError) as error:
        raise FileError(_or_remove(error, folder)) from None
    except FileExistsError as error:  # another process has begun the run in between
        raise BusyError(str(error)) from None
    except loop.NotFiniteError as error:
        rows = read_rows(folder / "rows.jsonl")
        best = json_of(contents(folder / "summary.json", LIMIT))["best"]
        outcome = {
            "state": "diverged",
            "iterations": rows[-1]["iteration"] if rows else 0,
            "best": best,
            "final": rows[-1] if rows else {},
            "reason": str(error.__cause__ or error),  # without the folder, which goes
            "seconds": rows[-1]["seconds"] if rows else 0,
        }
    else:
        rows = read_rows(folder / "rows.jsonl")
        outcome = {
            "state": summary.state,
            "iterations": summary.iteration,
            "best": summary.best,
            "final": summary.final,
            "seconds": round(summary.seconds, 1),
        }
    saved = checkpoint.load(folder / "checkpoint.npz", loop.identity(config))
    return {**outcome, "curve": _curve(job, rows), "machines": saved.record["machines"]}


def _or_remove(error: Exception, folder: Path) -> str:
    return f"{error}. Or remove {folder.parent}: the study then makes this run from its beginning"


def begun(job: Job, store: Store, mark: str = "") -> Record | None:
    """How far a training run is that has not ended, in the form of a row: its state is "begun".
    ``damaged`` says what is wrong with its files, if they are not whole or of another run; it is
    then as one without an evaluation. None if it has no folder, or not from the repetition of this
    mark."""
    folder = store.unfinished(job.key) / "run"
    if job.config is None or not folder.exists() or mark and not _marked(folder.parent, mark):
        return None
    row: Record = {
        "state": "begun",
        "iterations": 0,
        "of": job.config.iterations,
        "best": {},
        "final": {},
        "seconds": 0,
        "curve": _curve(job, []),
    }
    try:
        saved = checkpoint.load(folder / "checkpoint.npz", loop.identity(job.config))
        rows = Rows.counted(folder / "rows.jsonl", saved.record["rows"])[0].rows
    except (checkpoint.CheckpointError, FileError, KeyError, TypeError) as error:
        return row | {"damaged": _or_remove(error, folder)} if folder.exists() else None
    return row | {
        "iterations": saved.position["iteration"],
        "seconds": saved.position["seconds"],
        "best": saved.position["best"],
        "final": rows[-1] if rows else {},
        "curve": _curve(job, rows),
    }


def shown(store: Store) -> RowOf:
    """What tables and figures are made of: the row of a run that has ended, or how far it is."""

    def size() -> int:
        return store.path.stat().st_size if store.path.exists() else 0

    read, rows = size(), store.rows()

    def row_of_job(job: Job) -> Record | None:
        nonlocal read, rows
        row = store.done(job, rows) or begun(job, store)
        if (row is None or "damaged" in row) and size() != read:
            # another process may have ended it since: its row is there before its folder goes
            read, rows = size(), store.rows()
            row = store.done(job, rows) or row
        return row

    return row_of_job


def _curve(job: Job, rows: list[Record]) -> dict[str, list[Any]]:
    """The columns wanted, at no more than POINTS rows, the first and the last among them: half of
    them evenly spaced, the others closer together the earlier they are."""
    if not job.curve:
        return {}
    if not rows:
        return {name: [] for name in ("iteration", *job.curve)}
    points, half, last = rows, POINTS // 2, len(rows) - 1
    if len(rows) > POINTS:
        points = [
            rows[n]
            for n in sorted(
                {*np.linspace(0, last, half).astype(int), *np.geomspace(1, last, half).astype(int)}
            )
        ]
    return {name: [_rounded(row.get(name)) for row in points] for name in ("iteration", *job.curve)}


def _rounded(value: Any) -> Any:
    return float(f"{value:.7g}") if isinstance(value, float) else value
