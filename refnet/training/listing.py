"""The runs below a folder: the progress of each, and how to continue it. Checked by:
tests/training/test_run_folder.py."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from refnet.runs.checkpoint import peek
from refnet.runs.files import argument
from refnet.runs.folder import holder
from refnet.runs.read import Record, contents, json_of
from refnet.training.code import admit
from refnet.training.config_files import of_run

_UNKNOWN: Record = {
    "state": "damaged",
    "iteration": None,
    "iterations": None,
    "best": {},
    "next": "",
}


def runs(folder: Path) -> Iterator[Record]:
    """``describe`` of every run folder in and below ``folder``, also of links to one, in the order
    of their names; then the folders that cannot be read, as damaged runs.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     list(runs(Path(folder)))
    []
    """
    paths: list[Path] = []
    refused: list[OSError] = []
    for place, folders, files in os.walk(folder, onerror=refused.append):
        folders[:] = [name for name in folders if not name.startswith(".")]
        if _is_run(files):
            folders.clear()
            paths.append(Path(place))
        for path in (Path(place, name) for name in folders):
            with suppress(OSError):  # os.walk enters no links: they may lead round in a circle
                if path.is_symlink() and _is_run(os.listdir(path)):
                    paths.append(path)
    yield from map(describe, sorted(paths))
    for error in refused:
        yield {**_UNKNOWN, "run": error.filename, "next": str(error)}


def _is_run(files: list[str]) -> bool:
    return "config.toml" in files and ("checkpoint.npz" in files or "rows.jsonl" in files)


def describe(folder: Path) -> Record:
    """What is known of one run: ``run``, ``state``, ``iteration``, ``iterations`` (the limit),
    ``best`` (its row) and ``next``: the command to go on, or what is wrong.

    ``state``: running, solved, finished (at the limit), stalled (no better row for as long as
    ``patience`` says), interrupted, diverged, stopped (a kill) or damaged.

    >>> describe(Path("no-such-folder"))["state"]
    'damaged'
    """
    facts = {**_UNKNOWN, "run": str(folder)}
    try:
        config = of_run(folder)
        position = peek(folder / "checkpoint.npz")
    except (OSError, ValueError) as error:
        return {**facts, "next": " ".join(str(error).split())}
    facts |= {
        "iteration": position["iteration"],
        "iterations": config.iterations,
        "best": position.get("best", {}),
    }
    busy = holder(folder)
    state = f"running: {busy}" if busy else _ended(folder, position["iteration"])
    if state in ("stopped", "finished"):  # its limit may have been raised since
        state = "finished" if position["iteration"] >= config.iterations else "stopped"
    resume = f"refnet train --resume {argument(folder)}"
    onward = {
        "interrupted": resume,
        "stopped": resume,
        "finished": f"{resume} --iterations N",
        "stalled": f"{resume} --patience N",
        "diverged": f"refnet train --config {argument(folder / 'config.toml')} --rate X",
    }
    following = onward.get(state, "")
    try:
        admit(vars(config), folder / "config.toml", trust=False)
    except ValueError as error:
        following = str(error)
    return {**facts, "state": state, "next": following}


def _ended(folder: Path, iteration: int) -> str:
    """The state in summary.json, if that is of this checkpoint; else a kill ended the run."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        summary = json_of(contents(folder / "summary.json", 2**20))
        state = str(summary["state"])
        if state == "diverged" or summary["iterations"] == iteration:
            return state
    return "stopped"
