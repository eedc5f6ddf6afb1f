"""All edits of a cell's program: of the forward pass and of the backward pass.

They are tried in this order, and of two that give the same the first one is the name.
``grammar``, ``exchanges`` and ``layouts`` make them; ``explain`` and ``stacks`` run them.

Checked by: tests/check/test_programs.py.
"""

from collections.abc import Iterator

from refnet.check.programs.edit import Candidate
from refnet.check.programs.exchanges import (
    gradients,
    late,
    moves,
    overwritten,
    peepholes,
    swaps,
    tapes,
    together,
)
from refnet.check.programs.functions import approximations
from refnet.check.programs.grammar import Grammar
from refnet.check.programs.layouts import layouts

__all__ = ["approximated", "backward_edits", "forward_edits"]


def forward_edits(g: Grammar) -> Iterator[Candidate]:
    """Edits of the forward pass, each with a backward pass that follows and with the right one."""
    yield from g.forward()
    yield from layouts(g, True)
    yield from swaps(g)
    yield from moves(g)


def backward_edits(g: Grammar, in_sums: bool, in_the_loop: bool) -> Iterator[Candidate]:
    """Edits of the backward pass: in the sums over the steps, in the loop, or in both."""
    if in_sums:
        yield from g.backward(True)
        yield from gradients(g, True)
    if in_the_loop:
        yield from g.backward(False)
        yield from g.tapes()
        yield from layouts(g, False)
        yield from gradients(g, False)
        yield from tapes(g)
        yield from peepholes(g)
        yield from late(g)
        yield from overwritten(g)
    yield from together(g)


def approximated(g: Grammar) -> Iterator[Candidate]:
    """Approximations of tanh or of the sigmoid in the lines that have it."""
    for function in ("tanh", "sigmoid"):
        of = g.program.of_function(function)
        for chosen in ([*of], *([n] for n in of if len(of) > 1)) if of else ():
            what = ", ".join(g.word(of[n].target) for n in chosen)
            for name in approximations(function, len(chosen) == len(of)):
                news = {n: of[n]._replace(function=name) for n in chosen}
                yield from g.ways(f"{what} is a {name}", news)
