"""All files are read here: every size and depth is bounded before anything is unpacked.

Each function, here and in ``refnet.runs.unpack``, raises ValueError or another of ``DAMAGE``,
saying what is wrong and where, on whatever is not in its format; nothing is ever unpickled.
``reading`` adds the file's name and the repair.
Checked by: tests/training/test_checkpoint_reader.py, python -m benchmarks.fuzz.
"""

import json
import os
import re
import stat
import tomllib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Record = dict[str, Any]
"""Values by name, such as a JSON object: a row, its settings, an event's facts."""
DEEPEST = 30
"""Brackets within brackets; no file of refnet's has more than 8."""


DAMAGE = (ValueError, OverflowError, RecursionError, MemoryError)
"""What the functions here may raise about the bytes that they see."""


class FileError(ValueError):
    """A file is not what it should be: which one, what is wrong, and the repair."""


@contextmanager
def reading(path: Path, repair: str) -> Iterator[None]:
    """Whatever is wrong with the file in this block becomes a FileError of one line."""
    try:
        yield
    except FileError:
        raise
    except PermissionError as error:
        raise FileError(
            f"{path}: {error.strerror}; need permission to read it: change its permissions"
        ) from None
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}; {repair}") from None
    except DAMAGE as error:
        raise FileError(f"{path}: {error}; {repair}") from None


def size_of(path: Path, limit: int | None) -> int:
    """The size of a regular file that has at most ``limit`` bytes."""
    status = os.stat(path)  # before opening: a pipe would wait for its writer
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("is not a regular file")
    if limit is not None and status.st_size > limit:
        raise ValueError(f"has {status.st_size:,} bytes; need at most {limit:,}")
    return status.st_size


def contents(path: Path, limit: int) -> bytes:
    """The bytes of a regular file that has at most ``limit`` of them."""
    size = size_of(path, limit)
    with open(path, "rb") as file:
        return file.read(size)


_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)


def json_of(data: bytes) -> Any:
    """What JSON text holds, nested at most ``DEEPEST`` deep, no name twice in an object."""
    text = data.decode()
    if text.count("[") + text.count("{") > DEEPEST:
        depth = 0
        for token in _TOKEN.finditer(text):
            depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
            if depth > DEEPEST:
                raise ValueError(
                    f"brackets are nested more than {DEEPEST} deep at character {token.start() + 1}"
                )
    return json.loads(text, object_pairs_hook=_object)


def _object(pairs: list[tuple[str, Any]]) -> Record:
    """A JSON object, whose names have to differ: of two values no reader knows which one counts."""
    result = dict(pairs)
    if len(result) < len(pairs):
        name, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"an object has the name {name!r} more than once")
    return result


def toml_of(data: bytes) -> Record:
    """The settings in TOML text that is a flat table: at most 64 kB, few brackets and dots."""
    text = data.decode("utf-8-sig")
    for what, most in ("[{", DEEPEST), (".", 500):
        if sum(map(text.count, what)) > most:
            raise ValueError(
                f"has more than {most} of {' and '.join(what)}, which no flat table of settings has"
            )
    return tomllib.loads(text)
