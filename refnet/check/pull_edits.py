"""What the gradient that goes through a call of NumPy in a user's function may be taken for.

Checked by: tests/check/test_function_calls.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial

import numpy as np

from refnet.batch import Array
from refnet.check.arithmetic import rounded_to
from refnet.check.call_sites import Call, Seen, Turn
from refnet.check.function_edits import ALONG, OF_THE_MATRIX, along_axis
from refnet.check.function_runs import Edit, Pull, Receivers, Redirected, parent, replaced
from refnet.check.programs.notation import formula
from refnet.exact.complexes import Complex
from refnet.exact.recorder import Node, Operand, Recorded, same, stop
from refnet.exact.reverse import gradients, tape

COARSER = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Types that a call may be computed in, and their unit roundoffs."""
OFF_THE_DIAGONAL = {
    "has the entries off its diagonal halved": "(G + diag(diag(G))) / 2",
    "has the entries off its diagonal doubled": "2 G - diag(diag(G))",
}
"""Edits of the cotangent of a symmetric matrix."""
SLOPES = (
    "1 - y", "1 - y^2", "y (1 - y)", "y", "1 / y", "1 / x", "x", "1 - x^2",
    "(1 - y^2)^2", "(y (1 - y))^2",
)  # fmt: skip
"""What is taken for a function's slope."""
LINEAR = ("matmul", "dot", "linalg.solve", "cumsum")
"""Calls that are linear in an operand, and no product entry by entry."""
ADJOINTS = {
    "linalg.cholesky": (
        ("does not halve the diagonal", "linalg.solve(y.T, tril(y.T @ g)) @ linalg.inv(y)"),
        ("halves every entry", "linalg.solve(y.T, y.T @ g) @ linalg.inv(y) / 2"),
        ("has no triangle taken", "linalg.solve(y.T, y.T @ g) @ linalg.inv(y)"),
    ),
    "linalg.inv": (("lacks its transposes", "-y @ g @ y"), ("is -g / a^2", "-g / a^2")),
    "linalg.det": (("lacks the determinant", "g linalg.inv(a).T"),),
    "linalg.solve": (
        ("lacks a transpose", "-columns(linalg.solve(a, g)) @ columns(y).T"),
        ("has its product transposed", "-columns(y) @ columns(linalg.solve(a.T, g)).T"),
    ),
    "expm": (
        ("is that of matrices that commute: y' g", "y.T @ g"),
        ("is that of matrices that commute: g y'", "g @ y.T"),
    ),
    "linalg.norm": (("is not divided by the norm", "g a"),),
}  # fmt: skip
"""What is taken for the cotangent of the first operand, by the name of the call: in words, and as a
formula of the operand a, the result y and its cotangent g."""
FACTORS = {"has the wrong sign": -1.0, "is doubled": 2.0, "is halved": 0.5}
"""What a cotangent is often multiplied by."""
PARTS: dict[str, tuple[Callable[[Array], Array], int]] = {
    "is conjugated": (np.negative, 1),
    "has its real part alone": (np.zeros_like, 1),
    "has its imaginary part alone": (np.zeros_like, 0),
}
"""Edits of a complex cotangent: what becomes of its real part, 0, or its imaginary part, 1."""
Pulls = Iterator[tuple[str, Pull]]
"""Edits of a cotangent, each with its text."""


def changing(k: int | None, change: Callable[[Array], Array], parts: slice = slice(None)) -> Pull:
    """Another cotangent of operand ``k``, or of the result, or of one of the two parts of it."""
    return lambda turn: {port: [(parent(port), change)] for port in turn.nodes(k)[parts]}


def scaled(k: int | None, factor: float) -> Pull:
    """The cotangent times a factor."""
    return changing(k, lambda g: factor * g)


def both(first: Pull, second: Pull) -> Pull:
    """Two edits of one call."""
    return lambda turn: {**first(turn), **second(turn)}


def in_turns(turns: Collection[int], pull: Pull) -> Pull:
    """The edit in these turns alone."""
    return lambda turn: pull(turn) if turn.call.turn in turns else {}


def _from_the_result(k: int, pull: Callable[[Call, Array], Array]) -> Pull:
    """The cotangent of operand ``k`` made of the result's."""

    def edit(turn: Turn) -> Redirected:
        (port,), (end,) = turn.ports[k], turn.exits
        return {port: [], end: [(parent(end), same), (parent(port), partial(pull, turn.call))]}

    return edit


def with_slope(k: int, text: str) -> Pull:
    """The cotangent of the result times a formula of the operand x and the result y."""
    slope = formula(text, "x, y")
    return _from_the_result(k, lambda call, g: g * slope(call.args[k].raw, call.right.raw))


def untransposed(k: int) -> Pull:
    """The cotangent of operand ``k`` as the call itself gives it with the result's in its place."""

    def pull(call: Call, g: Array) -> Array:
        x = call.args[k]
        turned: Array = call.with_operand(k, Recorded(Node(g, ""), x.lift)).raw
        if turned.shape != x.shape:
            raise ValueError("no cotangent of this shape")
        return turned

    return _from_the_result(k, pull)


def _by_formula(text: str, call: Call, g: Array) -> Array:
    return formula(text, "a, y, g")(call.args[0].raw, call.right.raw, g)


def _along(n: int, call: Call, g: Array) -> Array:
    """The cotangent of a softmax's operand, or of its logarithm's, with its sum along axis n."""
    y = call.right.raw
    if call.name == "softmax":
        return np.asarray(y * (g - (g * y).sum(n, keepdims=True)))
    return np.asarray(g - np.exp(y) * g.sum(n, keepdims=True))


def adjoints(call: Call) -> Iterator[tuple[str, Callable[[Call, Array], Array]]]:
    """Other cotangents of the first operand, each with its text."""
    for text, adjoint in ADJOINTS.get(call.name, ()):
        yield text, partial(_by_formula, adjoint)
    if call.name in ("softmax", "log_softmax"):
        yield from ((f"sums along axis {n}", partial(_along, n)) for n in range(call.right.ndim))


def adjoint_untransposed(call: Call) -> Operand:
    """X = A^-1 B with the gradients dB = A^-1 dX in place of A^-T dX, and dA = -dB X'."""
    A, B = call.args
    return np.linalg.solve(stop(A).T, B - A @ stop(call.right))


def instead(edit: Edit) -> Pull:
    """The gradient of an edit, with the right value."""

    def pull(turn: Turn) -> Redirected:
        origins: list[tuple[Node, Node]] = []

        def leaf(x: Recorded) -> Recorded:
            if not x.node.live:
                return x
            node = Node(x.raw, "", live=True)
            origins.append((node, x.node))
            return Recorded(node, x.lift, is_number=x.is_number)

        other = edit(replaced(turn.call, leaf))
        if not isinstance(other, Recorded) or other.shape != turn.call.right.shape:
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


def _not_zero(change: Callable[[Array], Array], g: Array) -> Array:
    """A changed cotangent; ValueError for zeros, which have a name of their own."""
    changed = change(g)
    if np.linalg.norm(changed) <= 1e-12 * np.linalg.norm(g):
        raise ValueError("no gradient goes through this")
    return changed


def rounded(kind: str) -> Callable[[Array], Array]:
    """Numbers rounded to a type."""
    return lambda a: rounded_to(a, COARSER[kind])


def pulls_of(seen: Seen, k: int | None) -> Pulls:
    """Edits of the cotangent of operand ``k``, or of the result, that need no constant; the text
    has {} where the operand's stands."""
    call, turns = seen.call, range(len(seen.turns))
    x, right = seen.turns[-1].operand(k), call.right
    none, gradient = scaled(k, 0), "the gradient of {} "
    yield "no gradient goes through {}", none
    for name, n in (("first", turns[0]), ("last", turns[-1])) if len(turns) > 1 else ():
        only = f"the gradient goes through the {name} turn of {{}} alone"
        yield only, in_turns({*turns} - {n}, none)
        yield f"no gradient goes through the {name} turn of {{}}", in_turns({n}, none)
    for how, (change, n) in PARTS.items() if isinstance(x, Complex) else ():
        yield gradient + how, changing(k, change, slice(n, n + 1))
    if k is not None and k >= 0 and isinstance(x, Recorded) and isinstance(right, Recorded):
        if call.name in LINEAR:
            yield gradient + "lacks a transpose", untransposed(k)
        elif x.shape == right.shape and call.name not in ("add", "subtract"):
            lacks = "the other factor" if call.name in ("multiply", "divide") else "its slope"
            yield f"{gradient}lacks {lacks}", with_slope(k, "1")
            for text in SLOPES if len(call.args) == 1 else ():
                yield f"{gradient}has the slope {text}, with the result y", with_slope(k, text)
        for text, pull in adjoints(call) if k == 0 else ():
            yield gradient + text, _from_the_result(k, pull)
    for times, factor in FACTORS.items() if len(turns) > 1 else ():
        yield gradient + times, scaled(k, factor)


def reshaped_pulls(seen: Seen, k: int | None) -> Pulls:
    """Edits of the entries of a cotangent."""
    for how, change in forms(seen.turns[-1].operand(k).shape):
        yield f"the gradient of {{}} {how}", changing(k, partial(_not_zero, change))
    for kind in COARSER:
        yield f"the gradient of {{}} is rounded to {kind}", changing(k, rounded(kind))
