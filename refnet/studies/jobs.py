"""One run of a study, and its key.

Checked by: tests/studies/test_status.py.
"""

import hashlib
import json
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path

import refnet
from refnet.runs.read import Record
from refnet.training.config import Config, applicable
from refnet.training.protocols import configure

__all__ = ["Job", "code_digest", "training_run"]

DECISIVE = (
    "batch.py",
    "common",
    "maths",
    "matrices",
    "cells",
    "compiled",
    "nets",
    "tasks",
    "training",
    "analysis",
)
"""The parts of the package that can change a run's bits."""


UNSET = {**vars(Config()), "backend": "compiled"}
_RUNS: dict[str, "Job"] = {}


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
    arguments: Record = field(default_factory=dict)
    curve: tuple[str, ...] = ()

    @property
    def settings(self) -> Record:
        """All that the run depends on beside the code."""
        if self.config is None:
            return {"function": self.function, **self.arguments}
        settings = applicable(self.config)
        if settings["backend"] == "auto":  # the same bits, and what recorded rows have
            settings["backend"] = "compiled"
        return {name: value for name, value in settings.items() if name != "protocol"}

    @cached_property
    def key(self) -> str:
        """The hash of the settings, the seed among them; those at their default are left out, so
        that a setting that is new and not used changes no key."""
        decisive = {
            name: value
            for name, value in self.settings.items()
            if self.config is None or value != UNSET[name]
        }
        text = json.dumps(decisive, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def training_run(name: str, settings: Record, curve: tuple[str, ...] = ()) -> Job:
    """A training run with these settings, which are configured once."""
    key = repr((name, sorted(settings.items()), curve))
    if key not in _RUNS:
        _RUNS[key] = Job(name, configure(settings), curve=curve)
    return _RUNS[key]


@cache
def code_digest(function: str = "") -> str:
    """The hash of the source files that can change a run's bits; ``function``: as of Job, whose
    module is one of them."""
    root = Path(refnet.__file__).parent
    files = {
        path.relative_to(root).as_posix(): path
        for part in DECISIVE
        for path in sorted((root / part).rglob("*.py")) or [root / part]
    }
    if function:
        module = import_module(function.partition(":")[0])
        files[module.__name__] = Path(str(module.__file__))
    digest = hashlib.sha256()
    for name, path in files.items():
        digest.update(name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]
