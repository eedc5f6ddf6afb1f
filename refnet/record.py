"""What a run leaves behind: rows, the machine it ran on, a table, a figure."""

import json
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from refnet.files import write_text

if TYPE_CHECKING:
    from refnet.config import Config
    from refnet.train import Summary

__all__ = ["append_row", "environment", "read_rows", "table", "write_reports", "write_rows"]


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
    from importlib.metadata import PackageNotFoundError, version
    versions = {}
    for package in ("refnet", "numpy", "scipy", "numba"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return {"python": platform.python_version(), **versions, "machine": platform.machine(),
            "system": platform.system(), "cpus": os.cpu_count()}


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


def write_reports(folder: Path, config: "Config", task: Any, rows: list[dict[str, Any]],
                  summary: "Summary") -> None:
    """summary.md and summary.json, and curves.png where matplotlib is installed."""
    facts = {"task": config.task, "length": config.length or "-", "method": config.method,
             "state": summary.state, "iterations": summary.iteration,
             **{f"best {k}": v for k, v in summary.best.items() if k not in ("seconds", "clipped")},
             "wall time (s)": round(summary.seconds, 1)}
    text = f"# {config.task}, {config.method}: {summary.state}\n\n"
    text += f"Success criterion: {task.criterion}\n\n"
    text += table(["", "value"], [[name, value] for name, value in facts.items()])
    write_text(folder / "summary.md", text)
    write_text(folder / "summary.json", json.dumps(
        {"config": {name: getattr(config, name) for name in config.__dataclass_fields__},
         "state": summary.state, "iterations": summary.iteration, "best": summary.best,
         "final": summary.final, "seconds": round(summary.seconds, 1)}, indent=1) + "\n")
    if rows:
        try:
            from refnet.plots import plot_curves
        except ImportError:
            return
        plot_curves(folder / "curves.png", rows, task.metric, f"{config.task}, {config.method}")


def finite(values: list[Any]) -> np.ndarray[Any, Any]:
    """A column of rows as floats, None and absent as NaN."""
    return np.array([np.nan if value is None else value for value in values], float)
