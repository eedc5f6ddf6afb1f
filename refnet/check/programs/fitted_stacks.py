"""Edits inside the cells of a stack that need something fitted.

Where the outputs are wrong, one constant is fitted to them; else, whatever fits in a net of one
layer is looked for in each cell (``stacks``).

Checked by: tests/check/test_outside.py::test_layers_by_hand_are_named.
"""

from collections.abc import Iterable, Iterator
from copy import copy
from operator import methodcaller
from typing import Any

from refnet.batch import Params
from refnet.check.programs.constants import Constants
from refnet.check.programs.edit import Candidate
from refnet.check.programs.explain import Programs
from refnet.check.programs.stacks import Stacks

__all__ = ["fitted"]


def fitted(stacks: Stacks) -> Iterator[tuple[str, Params]]:
    """The results of what fits, by its name."""
    if not stacks.search.wrong & {"outputs", "loss"}:
        yield from stacks.backward(methodcaller("fitted_programs"))
    elif "outputs" in stacks.search.wrong:
        for said, cells in stacks.places():
            programs = _Forward(stacks, cells)
            for name, reading in programs.distinct(Constants(programs).readings()):
                yield f"{name}{said}", reading


class _Forward(Programs):
    """The outputs of a stack with edits in some cells."""

    def __init__(self, stacks: Stacks, cells: Iterable[str]) -> None:
        self.stacks, self.cells = stacks, [*cells]
        self.search = copy(stacks.search)
        self.search.wrong = {"outputs"}
        self.program, self.grammar = stacks.grammar.program, stacks.grammar
        self.forward, self.backward = True, False
        ((_, self.program.results),) = self.outcomes([Candidate("", ())])

    def outcomes(self, candidates: Iterable[Candidate]) -> Iterator[tuple[Candidate, Params]]:
        """The outputs alone."""
        yield from self.stacks.outcomes(candidates, self.cells)

    def run(
        self, candidates: Iterable[Candidate], *filters: Any
    ) -> Iterator[tuple[Candidate, Params]]:
        """All results."""
        for candidate in candidates:
            yield candidate, self.stacks.reading(candidate, self.cells) or {}
