"""All edits of a cell's program: of the forward pass, the loop of the backward pass, and its sums.

Checked by: tests/check/test_programs.py.
"""

from collections.abc import Iterator

from refnet.check.programs import approximations
from refnet.check.programs.exchanges import gradients, late, moves, peepholes, swaps, tapes
from refnet.check.programs.grammar import Grammar
from refnet.check.programs.layouts import layouts
from refnet.check.programs.runs import Candidate

__all__ = ["approximated", "of_the_forward_pass", "of_the_loop", "of_the_sums"]


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


def approximated(g: Grammar) -> Iterator[Candidate]:
    """An approximation of tanh or of the sigmoid, in the lines that have it."""
    for function in ("tanh", "sigmoid"):
        of = {n: line for n, line in enumerate(g.program.lines) if line.function == function}
        for chosen in ([*of], *([n] for n in of if len(of) > 1)) if of else ():
            what = ", ".join(g.word(of[n].target) for n in chosen)
            for name in approximations.names(function, len(chosen) == len(of)):
                news = {n: of[n]._replace(function=name) for n in chosen}
                yield from g.ways(f"{what} is a {name}", news)
