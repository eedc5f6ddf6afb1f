"""The README's tables, generated from recorded results: ``python -m benchmarks.readme``.

A table stands between ``<!-- NAME -->`` and ``<!-- /NAME -->``; no number in it is typed.
tests/test_readme.py checks that the README is what this makes of the records.
"""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.runs import FOLDER, RUNS
from refnet.record import table

README = Path(__file__).parent.parent / "README.md"


def summary(name: str) -> dict:
    return json.loads((FOLDER / name / "summary.json").read_text())


def command(name: str) -> str:
    return f"`refnet train {RUNS[name]}`"


def minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def classification(*names: str) -> str:
    rows = []
    for name in names:
        run = summary(name)
        best = run["best"]
        rows.append([command(name), run["state"], run["iterations"], f"{best['accuracy']:.2%}",
                     f"{run['final']['spectral_radius']:.3f}", minutes(run["seconds"])])
    return table(["command", "ended", "iterations", "best test accuracy",
                  "spectral radius at the end", "wall time"], rows)


TABLES: dict[str, Callable[[], str]] = {
    "temporal-order": lambda: classification(*(f"temporal-order-{m}"
                                               for m in ("plain", "oinit", "open"))),
    "mnist-feedforward": lambda: classification(*(f"mnist-feedforward-{m}"
                                                  for m in ("plain", "oinit", "open"))),
    "sequential-mnist": lambda: classification("sequential-mnist-oinit"),
}


def generate(text: str) -> str:
    """The README with every table made anew; raises KeyError for a marker without a table."""
    def fill(match: re.Match[str]) -> str:
        name = match.group(1)
        return f"<!-- {name} -->\n{TABLES[name]()}<!-- /{name} -->"
    return re.sub(r"<!-- ([a-z0-9-]+) -->\n.*?<!-- /\1 -->", fill, text, flags=re.DOTALL)


def main() -> int:
    README.write_text(generate(README.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
