"""What may be wrong around the cells of a net, and in the cells of a stack, for a search.

Each kind of reading is made when it is first asked for, and is empty where the net, what was given
or the price of a pass does not allow it. ``refnet.check.search`` asks; ``loss_mistakes``,
``edge_mistakes`` and ``stacks`` answer.

Checked by: tests/check/test_outside.py.
"""

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from refnet.batch import Params
from refnet.check.programs.edge_mistakes import EdgeMistakes
from refnet.check.programs.fitted_stacks import fitted
from refnet.check.programs.loss_mistakes import LossMistakes
from refnet.check.programs.stacks import Stacks, known_cells
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet

__all__ = ["Around"]

PASSES = 1000
"""The passes that must be affordable."""
Readings = Iterator[tuple[str, Params]]


class Around:
    """What may be wrong around the cells: each kind of reading is empty where the net, or what was
    given, does not allow it."""

    def __init__(self, search: Any) -> None:
        self.search, self.case = search, search.all
        true, given = search.true, search.given
        self.known = (
            self.case.plain
            and all(given[name].shape == true[name].shape for name in given)
            and self.case.passes() > PASSES
        )

    @cached_property
    def loss(self) -> LossMistakes | None:
        """The mistakes in the loss and its gradient in the outputs, or None."""
        return LossMistakes(self.search) if self.known and self.case.net.loss != "none" else None

    @cached_property
    def edges(self) -> EdgeMistakes | None:
        """The mistakes in what goes into the cells and comes out of them, or None."""
        recurrent = self.known and isinstance(self.case.net, RecurrentNet)
        return EdgeMistakes(self.search) if recurrent and not self.case.net.embedding else None

    def readings(self) -> Readings:
        """The readings without a constant. Where two names differ only in what a bracket says about
        the ends of a sequence, both lose the bracket."""
        known = [
            *(self.loss.readings() if self.loss else ()),
            *(self.edges.readings() if self.edges else ()),
        ]
        short = [re.sub(r" \([^)]*\)", "", name) for name, _ in known]
        for (name, reading), text in zip(known, short):
            yield name if short.count(text) == 1 else text, reading

    @cached_property
    def stacks(self) -> Stacks | None:
        """The edits inside the cells of a stack, or None."""
        net = self.case.net if self.edges else None
        known = isinstance(net, StackedNet) and known_cells(net, self.case.params)
        return Stacks(self.search) if known else None

    def stacked(self) -> Readings:
        """The readings of edits inside the cells of a stack."""
        yield from self.stacks.readings() if self.stacks else ()

    def fitted(self) -> Readings:
        """The readings of such edits with something fitted."""
        yield from fitted(self.stacks) if self.stacks else ()

    def multiples(self) -> Readings:
        """The readings of mistakes in the loss that fit but for a factor."""
        yield from self.loss.multiples() if self.loss else ()

    def additions(self) -> Readings:
        """The readings of what may be added to the loss."""
        yield from self.loss.additions() if self.loss else ()

    def constants(self) -> Readings:
        """The readings of constants in the loss and its gradient."""
        yield from self.loss.constants() if self.loss else ()

    def between(self) -> Readings:
        """The readings of constants on the edges between the cells."""
        yield from self.edges.constants() if self.edges else ()
