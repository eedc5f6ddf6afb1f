"""What is printed on a terminal fits its width, and no word is cut.

A table that is wider has its cells wrapped between words; where even the longest words side by
side are too wide, after the commas, colons and slashes of paths and specs, too; and where that is
not enough, every row becomes a block of lines ``name: value``. Prose wraps between words. Programs,
JSON and commands stay as they are, to be pasted. Files and pipes get all text as it was written.
"""

import re
from collections.abc import Iterator
from itertools import groupby, zip_longest
from operator import methodcaller
from shutil import get_terminal_size
from textwrap import TextWrapper, wrap
from typing import IO, Any

UNTOUCHED = re.compile(r"[{\[|]|(refnet|python|pip) (?!\w+: )|https?:")
"""How lines begin that are not wrapped; ``refnet train: `` is how an error begins."""
PROGRAM = re.compile(r'"""|import |from |#include')
"""How a program begins, which is printed as it is."""
NEW = re.compile(rf"{UNTOUCHED.pattern}|\w[\w ]*: ")
"""How lines begin that do not go on with the one above."""
LISTED = re.compile(r"^\s*- |^\d+\. |\S   *\S")
"""Items of lists, and rows of columns: what does not fit goes below, indented."""


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split(" | ")]


def _words(text: str, width: int, indent: str = "") -> list[str]:
    return wrap(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    ) or [""]


class _Parts(TextWrapper):
    """Between words, and within one after a comma, a colon or a slash."""

    wordsep_simple_re = re.compile(r"(\s+|(?<=[,:/])(?=\S))")


def _parts(text: str, width: int) -> list[str]:
    return _Parts(width, break_long_words=False, break_on_hyphens=False).wrap(text) or [""]


def _table(lines: list[str], width: int) -> Iterator[str]:
    """A Markdown table within ``width``."""
    header, *rows = (_cells(line) for line in [lines[0], *lines[2:]])
    columns = list(zip(header, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    room = width - 3 * len(columns) - 1
    for split in (_words, _parts):
        least = [max(len(p) for cell in column for p in split(cell, 1)) for column in columns]
        if sum(least) <= room:
            break
    else:
        for row in rows:
            name = max(map(len, header)) + 2
            for title, value in zip(header, row, strict=True):
                first, *more = _words(value, width - name - 2)
                yield f"  {title + ':' if title else '':<{name}}{first}".rstrip()
                yield from (" " * (name + 2) + line for line in more)
            yield ""
        return
    while sum(widths) > room:  # the widest that can give way does
        at = max(range(len(widths)), key=lambda n: (widths[n] > least[n]) * widths[n])
        widths[at] -= 1

    def line(row: Any) -> str:
        return "| " + " | ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)) + " |"

    for n, row in enumerate([header, *rows]):
        parts = [split(cell, w) for cell, w in zip(row, widths, strict=True)]
        yield from map(line, zip_longest(*parts, fillvalue=""))
        if n == 0:
            yield "|" + "|".join("-" * (w + 2) for w in widths) + "|"


def _prose(lines: list[str], width: int) -> list[str]:
    """Lines within ``width``. What one is too long by begins the next, if that goes on with it."""
    left, out = lines[::-1], list[str]()
    while left:
        line = left.pop()
        start = line[: len(line) - len(line.lstrip())]
        if len(line) <= width or UNTOUCHED.match(line.lstrip()):
            out.append(line)
            continue
        *parts, rest = _words(line, width, start + "  " * bool(LISTED.search(line)))
        out += parts
        after = left[-1] if left else ""
        words = after.lstrip()
        goes_on = not LISTED.search(line) and words and not NEW.match(words)
        if parts and goes_on and after.startswith(start) and not LISTED.search(after):
            left[-1] = after[: len(after) - len(words)] + f"{rest.strip()} {words}"
        else:
            out.append(rest)
    return out


def wrapped(text: str, width: int) -> str:
    """``text`` with its tables and its prose within ``width`` columns.

    >>> rows = ["| name | what it is |", "|--|--|", "| a | one word after another |"]
    >>> print(wrapped("\\n".join(rows), 24))
    | name | what it is    |
    |------|---------------|
    | a    | one word      |
    |      | after another |

    Checked by: tests/robustness/test_terminal.py.
    """
    if PROGRAM.match(text):
        return text
    lines, out = text.split("\n"), list[str]()
    for is_table, part in groupby(lines, methodcaller("startswith", "|")):
        block = list(part)
        if is_table and len(block) > 2 and max(map(len, block)) > width:
            out += _table(block, width)
        else:
            out += block if is_table else _prose(block, width)
    return "\n".join(out)


def said(text: str, stream: Any) -> str:
    """``text`` as it is written to a stream: wrapped, if that is a terminal."""
    return wrapped(text, get_terminal_size().columns) if stream.isatty() else text


class Fitted:
    """Standard output on a terminal, which ``fitted`` makes fit."""

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write what fits."""
        self.stream.write(said(text, self.stream))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)
