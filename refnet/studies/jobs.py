"""One run of a study, and its key.

Checked by: tests/test_studies.py.
"""

import hashlib
import json
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import refnet
from refnet.training.config import Config, applicable

__all__ = ["Job", "code_digest"]

DECISIVE = ("batch.py", "maths", "matrices", "cells", "compiled", "nets", "tasks", "training")
"""The parts of the package that can change a run's bits."""


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
