"""What a run records: rows, the machine it ran on, tables."""

import json
import os
import platform
from pathlib import Path
from typing import Any

import numpy as np

from refnet import __version__
from refnet.runs.files import write_text

__all__ = ["append_row", "environment", "finite", "read_rows", "table", "write_rows"]


def append_row(path: Path, row: dict[str, Any]) -> None:
    """Add one JSON line and sync it to disk."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
        file.flush()
        os.fsync(file.fileno())


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a run; a last line that a kill cut short is left out."""
    if not path.exists():
        return []
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """All rows at once, atomically."""
    write_text(path, "".join(json.dumps(row) + "\n" for row in rows))


def environment() -> dict[str, Any]:
    """Versions and machine, for whoever compares two runs."""
    from importlib.metadata import version
    versions = {package: version(package) for package in ("numpy", "scipy", "numba")}
    return {"python": platform.python_version(), "refnet": __version__, **versions,
            "machine": platform.machine(), "system": platform.system(), "cpus": os.cpu_count()}


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "-" if value is None else str(value)


def table(header: list[str], rows: list[list[Any]]) -> str:
    """A Markdown table, its columns padded so that it also reads as plain text."""
    cells = [header, *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = ["| " + " | ".join(value.ljust(w) for value, w in zip(row, widths)) + " |"
             for row in cells]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(lines) + "\n"


def finite(values: list[Any]) -> np.ndarray[Any, Any]:
    """A column of rows as floats, None and absent as NaN."""
    return np.array([np.nan if value is None else value for value in values], float)
