"""Kinds of bug that people write, as changes of the text of three programs.

A line of kinds.txt is: the program, the net (a cell, then ``every``, ``mask`` and ``peepholes``),
the text that is replaced, what replaces it, what the location must say, and what a name must say
(regular expressions, or a name of PLACES), with ``::`` between them and ``\\n`` for a line's end.
"""

from pathlib import Path
from typing import NamedTuple


class Kind(NamedTuple):
    """A bug, and what a person would want to read of it; ``name`` is empty if none is wanted."""

    program: str
    net: str
    old: str
    new: str
    where: str
    name: str


PLACES = {
    "BACK": r"after the read-out's gradients|backward pass",
    "FORWARD": "forward pass",
    "LOSS": r"loss's gradient in the outputs|in the loss|read-out|predictions|example|class",
}


def _kind(line: str) -> Kind:
    fields = [field.replace("\\n", "\n").replace("\\\\", "\\") for field in line.split(" :: ")]
    kind = Kind(*fields)
    return kind._replace(where=PLACES.get(kind.where, kind.where))


KINDS = [
    _kind(line)
    for line in Path(__file__).with_name("kinds.txt").read_text(encoding="utf-8").splitlines()
]
