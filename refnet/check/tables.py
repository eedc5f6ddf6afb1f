"""Rows of the judge as a table on the terminal and as JSON in a file."""

import argparse
import json
import os
import re
from collections.abc import Collection, Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from operator import methodcaller
from pathlib import Path
from platform import node
from textwrap import fill
from typing import TYPE_CHECKING, Any, TypeAlias
from xml.etree import ElementTree

from refnet.runs.files import is_special, named, printable, temporary, write_named

if TYPE_CHECKING:
    from refnet.check.verdict import Verdict

__all__ = [
    "Row",
    "cell",
    "junit",
    "said",
    "save",
    "show",
    "size",
    "sizes",
    "target",
    "without_sizes",
]

Row: TypeAlias = dict[str, Any]
"""What a table says in a line, by column, and more that goes into files."""


def cell(value: object) -> str:
    """One entry of a table."""
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, bool):
        return "passes" if value else "-"
    return printable(value)


def said(verdict: "Verdict") -> Row:
    """What a row says of a verdict: the worst quantity with both numbers, the name, where it is
    wrong, and every quantity."""
    worst = verdict.worst
    return {
        "z": worst.z,
        "rms": max(part.rms for part in verdict.parts),
        "worst": worst.name,
        "index": worst.index,
        "theirs": worst.theirs,
        "certified": worst.certified,
        "sigma": worst.sigma,
        "note": verdict.note,
        "verdict": verdict.verdict,
        "convention": verdict.convention,
        "where": verdict.where,
        "quantities": [asdict(part) for part in verdict.parts],
    }


def show(rows: Iterable[Row], columns: dict[str, int]) -> list[Row]:
    """Print each row as it comes, under a header, with the mistake's name, a note and where it is
    wrong beneath it, but for what an earlier row has said in other numbers, and return them all.
    ``columns``: names and widths. What fails before the first row fails before the header."""
    printed: list[Row] = []
    before: set[str] = set()
    for row in rows:
        if not printed:
            print("  ".join(name.ljust(width) for name, width in columns.items()).rstrip())
        printed.append(row)
        names = [row.get(name) for name in ("convention", "note") if name not in columns]
        below = [cell(line) for line in (*names, *row.get("where", ())) if line]
        kinds = [re.sub(r"\d[\d.e+-]*|nan|inf", "#", without_sizes(line)) for line in below]
        new = [line for line, kind in zip(below, kinds) if kind not in before]
        if len(new) < len(below):
            new.append("the rest as in a row above" if new else "as in a row above")
        before |= {*kinds}
        print(
            "  ".join(
                cell(row.get(name, "")).ljust(width) for name, width in columns.items()
            ).rstrip(),
            *(fill(line, 80, initial_indent="    ", subsequent_indent="      ") for line in new),
            sep="\n",
            flush=True,
        )
    return printed


def without_sizes(name: str) -> str:
    """A mistake's name without the sizes at which it was seen.

    >>> without_sizes("db is halved (at T = 7, B = 6)")
    'db is halved'
    """
    return re.sub(r" \(at [TB] = .*\)", "", name)


def size(text: str) -> int:
    """A whole number of at least 1, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least 1")
    return int(text)


def sizes(text: str) -> tuple[int, int, int]:
    """T, H and B, for argparse."""
    parts = text.split(",")
    if len(parts) != 3:
        raise argparse.ArgumentTypeError(f"{text} is not T,H,B, such as 50,32,4")
    T, H, B = map(size, parts)
    return T, H, B


def target(name: str) -> Path:
    """A file that can be written, for argparse: refused before the work whose result it is for."""
    path = named(name)
    try:
        if path.is_dir():
            raise IsADirectoryError
        if not is_special(path):
            with temporary(Path(os.path.realpath(path))) as beside:
                beside.touch()
    except OSError as error:
        raise argparse.ArgumentTypeError(
            f"{name} cannot be written ({error.strerror or 'it is a folder'}); need a file in a "
            "folder that exists"
        ) from None
    return path if is_special(path) else path.absolute()  # what runs in between may change folders


def save(path: Path | None, rows: list[Row], **facts: Any) -> None:
    """Write the rows as JSON, with the environment and ``facts``, if there is a path."""
    if path is not None:
        from refnet.runs.rows import environment, plain

        content = {"environment": environment(), **facts, "rows": rows}
        text = json.dumps(plain(content), indent=1, allow_nan=False) + "\n"
        write_named(path, methodcaller("write", text.encode(errors="backslashreplace")))


def junit(path: Path | None, rows: list[Row], fine: Collection[str]) -> None:
    """Write the rows as JUnit XML, if there is a path: a test case each, which fails unless its
    verdict is one of ``fine``; what a framework refuses is skipped."""
    if path is None:
        return
    seconds = [row.get("seconds", 0.0) for row in rows]
    root = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(
        root,
        "testsuite",
        name="refnet check",
        package="refnet.check",
        id="0",
        hostname=node() or "localhost",
        timestamp=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}",
        tests=str(len(rows)),
        errors="0",
        time=f"{sum(seconds):.3f}",
    )
    ElementTree.SubElement(suite, "properties")
    for row, time in zip(rows, seconds):
        sizes = ", ".join(f"{name} = {row[name]}" for name in ("T", "H", "B") if name in row)
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=f"refnet.check.{row['framework']}",
            time=f"{time:.3f}",
            name=_clean(", ".join(filter(None, (row["what"], row["dtype"], sizes)))),
        )
        if row["verdict"] == "refused":
            ElementTree.SubElement(case, "skipped", message=_clean(row.get("note", "")))
        elif row["verdict"] not in fine:
            worst = f"{row['worst']}: z = {cell(row['z'])}"
            message = _clean("; ".join(filter(None, (worst, row["convention"] or row["note"]))))
            failure = ElementTree.SubElement(case, "failure", type=row["verdict"], message=message)
            quantities = (
                f"{part['name']}: z = {cell(part['z'])}, {part['verdict']}; index {part['index']}, "
                f"theirs {part['theirs']!r}, certified {part['certified']!r}, sigma "
                f"{cell(part['sigma'])} {part['note']}".rstrip()
                for part in row["quantities"]
            )
            failure.text = _clean("\n".join((*row["where"], *quantities)))
    for name, outcome in (("failures", "failure"), ("skipped", "skipped")):
        suite.set(name, str(len(suite.findall(f"testcase/{outcome}"))))
    for name in ("system-out", "system-err"):
        ElementTree.SubElement(suite, name)
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode", short_empty_elements=True)
    document = f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'
    write_named(path, methodcaller("write", document.encode()))


def _clean(text: str) -> str:
    """Without the characters that XML has none for."""
    return re.sub("[^\t\n -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "", text)
