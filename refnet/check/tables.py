"""Rows of the judge as a table on the terminal and as JSON in a file."""

import argparse
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from refnet.runs.files import write_text

__all__ = ["cell", "save", "show", "size", "target"]


def cell(value: Any) -> str:
    """One entry of a table."""
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, bool):
        return "passes" if value else "-"
    return str(value)


def show(rows: Iterable[dict[str, Any]], columns: dict[str, int]) -> list[dict[str, Any]]:
    """Print each row as it comes, under a header, and return them all. ``columns``: names and
    widths. What fails before the first row fails before the header."""
    kept: list[dict[str, Any]] = []
    for row in rows:
        if not kept:
            print("  ".join(name.ljust(width) for name, width in columns.items()).rstrip())
        kept.append(row)
        print("  ".join(cell(row.get(name, "")).ljust(width)
                        for name, width in columns.items()).rstrip(), flush=True)
    return kept


def size(text: str) -> int:
    """A whole number of at least 1, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least 1")
    return int(text)


def target(name: str) -> Path:
    """A file that can be written, for argparse: refused before the work whose result it is for."""
    path = Path(name)
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{name} cannot be written; need a file in a folder that "
                                         "exists")
    return path


def save(path: Path | None, rows: list[dict[str, Any]], **facts: Any) -> None:
    """Write the rows as JSON, with the environment and ``facts``, if there is a path."""
    if path is not None:
        from refnet.runs.rows import environment, plain
        content = {"environment": environment(), **facts, "rows": rows}
        write_text(path, json.dumps(plain(content), indent=1, allow_nan=False) + "\n")
