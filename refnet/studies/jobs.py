"""One run of a study: a key, and how it is carried out wherever it is sent.

Checked by: tests/test_studies.py.
"""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import refnet
from refnet.runs.rows import environment, read_rows
from refnet.training import loop
from refnet.training.config import Config, applicable

__all__ = ["Job", "code_digest", "execute"]

DECISIVE = ("batch.py", "maths", "matrices", "cells", "compiled", "nets", "tasks", "training")
"""The parts of the package that can change a run's bits."""
POINTS = 100
"""Points of a curve that a row keeps."""


@dataclass(frozen=True)
class Job:
    """One run: a training run, or a function of JSON arguments.

    ``name``: unique in its study. ``function``: "module:name"; it takes ``arguments`` by name and
    returns what the row keeps. ``curve``: the columns of a training run's rows that its study's
    figure needs.
    """

    name: str
    config: Config | None = None
    function: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    curve: tuple[str, ...] = ()

    @property
    def settings(self) -> dict[str, Any]:
        """All that the run depends on beside the code."""
        if self.config is None:
            return {"function": self.function, **self.arguments}
        return {name: value for name, value in applicable(self.config).items()
                if name != "protocol"}

    @property
    def key(self) -> str:
        """The hash of the settings, the seed among them; those at their default are left out, so
        that a setting that is new and not used changes no key."""
        defaults = {entry.name: entry.default for entry in fields(Config)}
        decisive = {name: value for name, value in self.settings.items()
                    if self.config is None or value != defaults[name]}
        text = json.dumps(decisive, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@lru_cache(maxsize=1)
def code_digest() -> str:
    """The hash of the source files that can change a run's bits."""
    root = Path(refnet.__file__).parent
    digest = hashlib.sha256()
    for part in DECISIVE:
        for path in sorted((root / part).rglob("*.py")) or [root / part]:
            digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]


@lru_cache(maxsize=1)
def _commit() -> str:
    """The commit of the source tree, with a "+" if it was changed since; "" without git."""
    try:
        commit, changed = (subprocess.run(
            ["git", *words], cwd=Path(refnet.__file__).parent, capture_output=True, text=True,
            check=True, timeout=60).stdout.strip()
            for words in (["rev-parse", "--short=12", "HEAD"],
                          ["status", "--porcelain", "--untracked-files=no", "."]))
    except (OSError, subprocess.SubprocessError):
        return ""
    return commit + ("+" if changed else "")


def execute(job: Job, folder: Path, threads: int = 1) -> dict[str, Any]:
    """Carry out a run and return its row; go on where ``folder`` has it unfinished.

    A run stops at its last checkpoint when the process that sent it has ended. Raises
    InterruptedError then, and whatever the run itself raises, but for a loss that is not finite:
    that is an outcome, the state "diverged".
    """
    import numba
    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
    codes = _note_code(folder)
    if job.config is None:
        module, name = job.function.split(":")
        made = getattr(import_module(module), name)(**job.arguments)
    else:
        made = _train(job, job.config, folder / "run")
    return {"key": job.key, "name": job.name, "settings": job.settings, **made, "code": codes,
            "commit": _commit(), "environment": environment()}


def _note_code(folder: Path) -> list[str]:
    """The digests of all versions of the code that have worked on this run."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "code"
    known = path.read_text(encoding="utf-8").split() if path.exists() else []
    if code_digest() not in known:
        known.append(code_digest())
        path.write_text("\n".join(known) + "\n", encoding="utf-8")
    return known


def _train(job: Job, config: Config, folder: Path) -> dict[str, Any]:
    parent = os.getppid()
    begin: Callable[..., Any] = loop.resume
    if not (folder / "checkpoint.npz").exists():
        shutil.rmtree(folder, ignore_errors=True)  # what a kill left of a start
        begin = loop.train
    try:
        summary = begin(config, folder, stop=lambda: os.getppid() != parent)
    except loop.NotFiniteError as error:
        rows = read_rows(folder / "rows.jsonl")
        return {"state": "diverged", "iterations": rows[-1]["iteration"] if rows else 0,
                "best": {}, "final": rows[-1] if rows else {}, "reason": str(error),
                "seconds": rows[-1]["seconds"] if rows else 0, "curve": _curve(job, rows)}
    if summary.state == "interrupted":
        raise InterruptedError(f"{job.name}: stopped at iteration {summary.iteration}, because "
                               "the process that sent it has ended")
    return {"state": summary.state, "iterations": summary.iteration, "best": summary.best,
            "final": summary.final, "seconds": round(summary.seconds, 1),
            "curve": _curve(job, read_rows(folder / "rows.jsonl"))}


def _curve(job: Job, rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """The columns wanted, at no more than POINTS evenly spaced rows, the last one included."""
    if not job.curve:
        return {}
    every = -(-len(rows) // POINTS) or 1
    kept = rows[::-1][::every][::-1]
    return {name: [_rounded(row.get(name)) for row in kept] for name in ("iteration", *job.curve)}


def _rounded(value: Any) -> Any:
    return float(f"{value:.5g}") if isinstance(value, float) else value
