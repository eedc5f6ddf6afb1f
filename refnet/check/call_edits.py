"""Edits of a call of NumPy in a user's function: the numbers that its gradient reads, and the type
that it is computed in.

Checked by: tests/check/test_function_calls.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from refnet.batch import Array
from refnet.check.call_sites import Call, Seen, is_live
from refnet.check.function_runs import Edit
from refnet.check.programs.notation import formula
from refnet.check.pull_edits import rounded
from refnet.exact.recorder import Node, Operand, Recorded, derived, same, stop

SLOPES = ("1 - x", "x (1 - x)", "1 - x^2", "x^2")
"""What is taken for a factor x that is a gate or a state."""
Edits = Iterator[tuple[str, Edit]]
"""Edits of one call, each with the text of what it computes."""


def straight(right: Recorded, other: Operand) -> Recorded:
    """The value of ``right`` with the gradient of ``other``."""
    if not isinstance(other, Recorded) or other.shape != right.shape:
        raise ValueError("no result of this shape")
    return derived(right, right.raw, "an edit", (other.node, same))


def variable(name: str) -> Edit:
    """A variable where the call stands."""
    return lambda call: call.variables[name]


def operand(k: int, function: Callable[[Operand], Operand]) -> Edit:
    """A function of operand ``k``."""
    return lambda call: function(call.args[k])


def reading(k: int, edit: Edit) -> Edit:
    """Other numbers for operand ``k``, which has the gradient."""

    def other(call: Call) -> Operand:
        x, numbers = call.args[k], stop(edit(call))
        return call.with_operand(k, straight(numbers, x) if is_live(x) else numbers)

    return other


def other_variables(seen: Seen, k: int) -> list[str]:
    """Variables of the shape of operand ``k``, which they are not."""
    x = seen.call.args[k]
    return [
        name
        for name, value in seen.call.variables.items()
        if value.node is not x.node and value.shape == x.shape and name != seen.operands[k]
    ]


def numbers_read(seen: Seen, last: dict[str, Recorded]) -> Edits:
    """What the gradient takes for the numbers of an operand: a variable or, in a loop, what the
    operand is in another turn, after the ``last`` turn the variable of its name."""
    operands = [k for k, x in enumerate(seen.call.args) if isinstance(x, Recorded)]
    for k in operands:
        for name in other_variables(seen, k):
            yield f"`{name}` for `{seen.operands[k]}`", reading(k, variable(name))
    for k in operands if seen.call.name == "multiply" else ():
        for text in SLOPES:
            shown = re.sub("x", seen.operands[k], text)
            yield f"`{shown}` for `{seen.operands[k]}`", reading(k, operand(k, formula(text, "x")))
    for k in operands if len(seen.turns) > 1 else ():
        for by, when in (-1, "before"), (1, "after"):
            other = partial(_of_another_turn, seen, k, by, last)
            yield f"`{seen.operands[k]}` of the turn {when}", reading(k, other)


def _of_another_turn(seen: Seen, k: int, by: int, last: dict[str, Recorded], call: Call) -> Operand:
    n = call.turn + by
    if 0 <= n < len(seen.turns):
        return seen.turns[n].call.args[k]
    return last.get(seen.operands[k], call.args[k]) if n > 0 else call.args[k]


def coarser(kind: str) -> Edit:
    """The call in a coarser type, with the gradient of the right one."""

    def narrow(node: Node) -> Array:
        return node.raw.astype(kind) if kind in vars(np) else rounded(kind)(node.raw)

    def edit(call: Call) -> Operand:
        (value,) = call.in_numpy(narrow)
        numbers = rounded(kind)(value.astype(float))
        return straight(Recorded(Node(numbers, ""), call.right.lift), call.right)

    return edit
