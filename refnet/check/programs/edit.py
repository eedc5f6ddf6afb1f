"""An edit of a program's lines or pulls, and a candidate: edits with a name.

``program.Program`` makes the usual edits, ``grammar`` and its neighbours make candidates of them,
``runs`` runs many candidates at once.

Checked by: tests/check/test_programs.py.
"""

from collections.abc import Callable
from typing import NamedTuple

from refnet.batch import Array, Params
from refnet.check.naive.nets import Recurrent
from refnet.check.programs.cells import Line

__all__ = ["SUMS", "Candidate", "Edit", "Fits", "Place", "Stays", "together"]

Place = tuple[str, int, int]
"""("line", n, 0), ("pull", n, m) or ("pulls", n, 0), of line n; ("tape", n, 0): what the backward
pass reads of it."""


Fits = Callable[[int, Array, list[str]], Array]
"""Which candidates' dx (K, B, D) may be that of a step, from the step, dx and the names."""


Stays = Callable[[int, Params, list[str]], Array]
"""Which candidates' states (T + 1, K, B, H) may be those at a row, from it, these and the names."""


class Edit(NamedTuple):
    """Other lines at a place. ``weight``: how much of the edit is made, by step, example and unit,
    if not all; ``more``: whether the lines are added to those that stand there."""

    place: Place
    lines: tuple[Line, ...]
    weight: Array | None = None
    more: bool = False


class Candidate(NamedTuple):
    """A mistake: its name and its edits. ``s`` is the pass around the program, if it is not the
    program's own."""

    name: str
    edits: tuple[Edit, ...]
    s: Recurrent | None = None


ENTRIES = 2e6
"""The numbers of a variable that are computed at once, of all candidates and steps."""
TOGETHER = 256
SUMS = {"over the steps": (0,), "over the examples": (-2,), "over the steps and examples": (0, -2)}
"""What the factors of a product are summed over, in place of the products."""


def together(T: int, B: int, H: int) -> int:
    """How many candidates run at once."""
    return int(min(TOGETHER, max(1, ENTRIES / (T * B * H))))
