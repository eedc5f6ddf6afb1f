"""The recorded measurements: written, and read back; and the options that benchmarks share."""

import argparse
import json
import sys
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import Any

__all__ = [
    "RESULTS",
    "Row",
    "checked",
    "grouped",
    "named_tables",
    "options",
    "processor",
    "record",
    "rows_in",
    "save",
]

Row = dict[str, Any]
RESULTS = Path(__file__).parent / "results"


def record(name: str) -> Row:
    """What benchmarks/results/NAME.json holds; nothing if it is not there."""
    path = RESULTS / f"{name}.json"
    entries: Row = json.loads(path.read_text()) if path.exists() else {}
    return entries


def rows_in(path: Path) -> list[Row]:
    """The rows of a file with a line of JSON for each; none if it is not there."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def save(name: str, entries: Row) -> None:
    """Write benchmarks/results/NAME.json."""
    from refnet.runs.files import write_text  # benchmarks.startup measures what imports take

    write_text(RESULTS / f"{name}.json", json.dumps(entries, indent=1) + "\n")


def processor(machine: str) -> str:
    """The processor of a recorded ``refnet.runs.rows.machine()``.

    >>> processor("znver5 1d191075, Linux x86_64")
    'Zen 5'
    """
    return machine.split()[0].replace("znver", "Zen ")


def grouped(rows: Iterable[Row], key: Callable[[Row], Hashable]) -> dict[Any, list[Row]]:
    """The rows by what they have in common, in their order."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def named_tables(*makers: Callable[[], str]) -> dict[str, Callable[[], str]]:
    """Functions that make tables, by the names that the pages have for them."""
    return {make.__name__.replace("_", "-"): make for make in makers}


def checked(names: list[str], known: Iterable[str]) -> list[str]:
    """The names of the command line; ends the program unless they are known, and at least one."""
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        sys.exit(f"{', '.join(unknown) or 'nothing'} is named; need some of {', '.join(known)}")
    return names


def options(description: str, example: str, quick: str = "") -> argparse.ArgumentParser:
    """A benchmark's parser; with --quick, if it says what that does."""
    parser = argparse.ArgumentParser(
        description=description, epilog=f"Example: python -m benchmarks.{example}"
    )
    if quick:
        parser.add_argument("--quick", action="store_true", help=f"{quick}; nothing is recorded")
    return parser
