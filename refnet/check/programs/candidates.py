"""All edits of a cell's program: of the forward pass, the loop of the backward pass, and its sums.

Checked by: tests/check/test_programs.py.
"""

from collections.abc import Iterator

from refnet.check.programs.exchanges import gradients, late, moves, peepholes, swaps, tapes
from refnet.check.programs.grammar import Grammar
from refnet.check.programs.layouts import layouts
from refnet.check.programs.runs import Candidate

__all__ = ["of_the_forward_pass", "of_the_loop", "of_the_sums"]


def of_the_forward_pass(g: Grammar) -> Iterator[Candidate]:
    """With a backward pass that follows, and with the right one."""
    yield from g.forward()
    yield from layouts(g, True)
    yield from swaps(g)
    yield from moves(g)


def of_the_loop(g: Grammar) -> Iterator[Candidate]:
    """Of the steps of the backward pass and of what they read."""
    yield from g.backward(False)
    yield from g.tapes()
    yield from layouts(g, False)
    yield from gradients(g, False)
    yield from tapes(g)
    yield from peepholes(g)
    yield from late(g)


def of_the_sums(g: Grammar) -> Iterator[Candidate]:
    """Of the parameters' gradients."""
    yield from g.backward(True)
    yield from gradients(g, True)
