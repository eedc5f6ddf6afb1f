"""What the gradient that goes through a call of NumPy in a user's function may be taken for.

Checked by: tests/check/test_function_calls.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from refnet.batch import Array
from refnet.check.arithmetic import rounded_to
from refnet.check.call_sites import Seen, Turn
from refnet.check.function_edits import ALONG, OF_THE_MATRIX, along_axis
from refnet.check.function_runs import Edit, Pull, Receivers, Redirected, parent
from refnet.check.programs.notation import formula
from refnet.exact.complexes import Complex
from refnet.exact.recorder import Node, Operand, Recorded, same
from refnet.exact.reverse import gradients, tape

COARSER = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Types that a call may be computed in, and their unit roundoffs."""
OFF_THE_DIAGONAL = {
    "has the entries off its diagonal halved": "(G + diag(diag(G))) / 2",
    "has the entries off its diagonal doubled": "2 G - diag(diag(G))",
}
"""Edits of the cotangent of a symmetric matrix."""
SLOPES = ("1 - y", "1 - y^2", "y (1 - y)", "y", "1 / y", "1 / x", "x", "1 - x^2")
"""What is taken for a function's slope."""
LINEAR = ("matmul", "dot", "linalg.solve")
"""Calls that are linear in an operand, and no product entry by entry."""
FACTORS = {"has the wrong sign": -1.0, "is doubled": 2.0, "is halved": 0.5}
"""What a cotangent is often multiplied by."""
Pulls = Iterator[tuple[str, Pull]]
"""Edits of a cotangent, each with its text."""


def nodes(turn: Turn, k: int | None) -> tuple[Node, ...]:
    """The ports of operand ``k``, of the result, or of part -1 - k of a result of several."""
    if k is None:
        return turn.exits
    return turn.ports[k] if k >= 0 else tuple({turn.outs[-1 - k]} & {*turn.exits})


def changing(k: int | None, change: Callable[[Array], Array]) -> Pull:
    """Another cotangent of operand ``k``, or of the result."""
    return lambda turn: {port: [(parent(port), change)] for port in nodes(turn, k)}


def _of_a_part(k: int | None, n: int, change: Callable[[Array], Array]) -> Pull:
    """Another cotangent of the real or the imaginary part."""

    def edit(turn: Turn) -> Redirected:
        port = nodes(turn, k)[n]
        return {port: [(parent(port), change)]}

    return edit


def scaled(k: int | None, factor: float) -> Pull:
    """The cotangent times a factor."""
    return changing(k, lambda g: factor * g)


def _from_the_result(k: int, pull: Callable[[Turn, Array], Array]) -> Pull:
    """The cotangent of operand ``k`` made of the result's."""

    def edit(turn: Turn) -> Redirected:
        (port,), (end,) = turn.ports[k], turn.exits
        return {port: [], end: [(parent(end), same), (parent(port), partial(pull, turn))]}

    return edit


def without_slope(k: int) -> Pull:
    """The cotangent of the result as that of operand ``k``."""
    return _from_the_result(k, lambda turn, g: g)


def with_slope(k: int, text: str) -> Pull:
    """The cotangent of the result times a formula of the operand x and the result y."""
    slope = formula(text, "x, y")
    return _from_the_result(k, lambda turn, g: g * slope(turn.call.args[k].raw, turn.right.raw))


def untransposed(k: int) -> Pull:
    """The cotangent of operand ``k`` as the call itself gives it with the result's in its place."""

    def pull(turn: Turn, g: Array) -> Array:
        x = turn.call.args[k]
        turned: Array = turn.call.with_operand(k, Recorded(Node(g, ""), x.lift)).raw
        if turned.shape != x.shape:
            raise ValueError("no cotangent of this shape")
        return turned

    return _from_the_result(k, pull)


def adjoint_untransposed(turn: Turn) -> Redirected:
    """X = A^-1 B, for columns or a vector, with dB = A^-1 dX in place of A^-T dX, and
    dA = -dB X'."""
    call, right = turn.call, turn.right

    def solved(g: Array) -> Array:
        x: Array = call.with_operand(1, Recorded(Node(g, ""), right.lift)).raw
        return x

    def of_the_matrix(g: Array) -> Array:
        columns = len(right.raw), -1
        return np.asarray(-solved(g).reshape(columns) @ right.raw.reshape(columns).T)

    pulls = zip(turn.ports, (of_the_matrix, solved))
    return {turn.exits[0]: [(parent(ports[0]), pull) for ports, pull in pulls if ports]}


def instead(edit: Edit) -> Pull:
    """The gradient of an edit, with the right value."""

    def pull(turn: Turn) -> Redirected:
        origins: list[tuple[Node, Node]] = []

        def leaf(x: Operand) -> Operand:
            if not (isinstance(x, Recorded) and x.node.live):
                return x
            node = Node(x.raw, "", live=True)
            origins.append((node, x.node))
            return Recorded(node, x.lift, is_number=x.is_number)

        call = turn.call._replace(
            args=tuple(map(leaf, turn.call.args)),
            variables={name: leaf(value) for name, value in turn.call.variables.items()},
        )
        other = edit(call, leaf(turn.right))
        if not isinstance(other, Recorded) or other.shape != turn.right.shape:
            raise ValueError("no result of this shape")
        used = set(map(id, tape(other.node)))

        def pulled(node: Node, g: Array) -> Array:
            return gradients(other.node, g, [node], other.lift)[0]

        receivers: Receivers = [
            (origin, partial(pulled, node)) for node, origin in origins if id(node) in used
        ]
        return {turn.exits[0]: receivers}

    return pull


def forms(shape: tuple[int, ...]) -> Iterator[tuple[str, Callable[[Operand], Operand]]]:
    """What may be done to an array: along its axes and, if it is square, as to a matrix."""
    if len(shape) == 2 and shape[0] == shape[1] > 1:
        every = OF_THE_MATRIX | OFF_THE_DIAGONAL
        yield from ((how, formula(text, "G")) for how, text in every.items())
    for axis, size in enumerate(shape):
        for how, text in ALONG.items() if size > 1 else ():
            yield how.format(f"along axis {axis}"), along_axis(text, axis)


def rounded(kind: str) -> Callable[[Array], Array]:
    """Numbers rounded to a type."""
    return lambda a: rounded_to(a, COARSER[kind])


def pulls_of(seen: Seen, k: int | None) -> Pulls:
    """Edits of the cotangent of operand ``k``, or of the result, that need no constant; the text
    has {} where the operand's stands."""
    call, turns = seen.call, len(seen.turns)
    x = seen.right if k is None else call.args[k] if k >= 0 else seen.right[-1 - k]
    yield "no gradient goes through {}", scaled(k, 0)
    gradient = "the gradient of {} "
    if isinstance(x, Complex):
        yield gradient + "is conjugated", _of_a_part(k, 1, np.negative)
        yield gradient + "has its real part alone", _of_a_part(k, 1, np.zeros_like)
        yield gradient + "has its imaginary part alone", _of_a_part(k, 0, np.zeros_like)
    if k is not None and k >= 0 and isinstance(x, Recorded) and isinstance(seen.right, Recorded):
        if call.name in LINEAR:
            yield gradient + "lacks a transpose", untransposed(k)
        elif x.shape == seen.right.shape and call.name not in ("add", "subtract"):
            lacks = "the other factor" if call.name in ("multiply", "divide") else "its slope"
            yield f"{gradient}lacks {lacks}", without_slope(k)
            for text in SLOPES if len(call.args) == 1 else ():
                yield f"{gradient}has the slope {text}, with the result y", with_slope(k, text)
    for times, factor in FACTORS.items() if turns > 1 else ():
        yield gradient + times, scaled(k, factor)


def reshaped_pulls(seen: Seen, k: int | None) -> Pulls:
    """Edits of the entries of a cotangent."""
    x = seen.right if k is None else seen.call.args[k] if k >= 0 else seen.right[-1 - k]
    for how, change in forms(x.shape):
        yield f"the gradient of {{}} {how}", changing(k, change)
    for kind in COARSER:
        yield f"the gradient of {{}} is rounded to {kind}", changing(k, rounded(kind))
