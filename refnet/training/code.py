"""The code of your own that a run names: its digests, and when a folder's code may run.

A run that names files or modules (``refnet.common.names``) has ``code.json``: the digest of the
source of every setting that names one, and the sources. You run code when you name it yourself: in
a command, or in Python. That a folder or a TOML file names code is not enough, for both may come
from anyone: it runs if you have trained or saved a net with a file at that place before, as
``trusted`` in the user's cache says, and, of a run's folder, if the source is unchanged; else only
with ``trust``.
Checked by: tests/training/test_own_names.py.
"""

import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from refnet.common.names import digest, reference, source
from refnet.runs.files import user_cache, write_text
from refnet.runs.read import contents, json_of, reading
from refnet.training.config import Config

CODE = "code.json"
_log = logging.getLogger("refnet")


def _homes(settings: Mapping[str, Any]) -> dict[str, str]:
    """The files and modules that settings name, by setting."""
    named = {name: reference(value) for name, value in settings.items()}
    return {name: both[0] for name, both in named.items() if both}


def _trusted() -> list[str]:
    """The files that this user has trained with; without a home folder none is remembered."""
    with suppress(OSError):
        return (user_cache() / "trusted").read_text().splitlines()
    return []


def record(folder: Path, config: Config) -> None:
    """Write code.json, if the run names code, and trust that code from now on.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     record(Path(folder), Config("copy"))
    ...     list(Path(folder).iterdir())
    []
    """
    homes = _homes(asdict(config))
    if not homes:
        return
    digests = {name: digest(home) for name, home in homes.items()}
    sources = {
        digests[name]: source(home).read_text("utf-8", "replace") for name, home in homes.items()
    }
    text = json.dumps({"digests": digests, "sources": sources}, indent=1)
    write_text(folder / CODE, text + "\n")
    remember(asdict(config))


def remember(settings: Mapping[str, Any]) -> None:
    """Trust the code that settings name from now on, as this user has named it.

    >>> remember({"cell": "rnn"})
    """
    places = {str(source(home)) for home in _homes(settings).values()}
    with suppress(OSError):
        if not places <= {*_trusted()}:
            user_cache().mkdir(parents=True, exist_ok=True)
            write_text(user_cache() / "trusted", "\n".join([*{*_trusted(), *places}]) + "\n")


def admit(settings: Mapping[str, Any], path: Path, trust: bool) -> None:
    """Raise ValueError unless the code that the settings in the file ``path`` name may run; with
    ``trust``, log why it might not. Nothing runs here.

    >>> admit({"task": "copy"}, Path("config.toml"), trust=False)
    """
    homes, folder = _homes(settings), path.parent
    of_run, digests = (folder / "checkpoint.npz").exists(), {}
    if homes and of_run:
        with suppress(ValueError) if trust else reading(folder / CODE, _REPAIR):
            digests = json_of(contents(folder / CODE, 2**24))["digests"]
    for name, home in homes.items():
        place = source(home)
        if of_run and digests.get(name) != digest(home):
            reason = f"has changed since the run in {folder} (which has its source in {CODE})"
        elif str(place) not in _trusted():
            reason = "you have not used before"
        else:
            continue
        said = f"{path}: {name} names the code {place}, which {reason}"
        if not trust:
            raise ValueError(f"{said}; {_REPAIR}")
        _log.warning("%s; it runs because you trust it", said)


_REPAIR = "to run code that you have read, add --trust (in Python trust=True)"
