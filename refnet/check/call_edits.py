"""What a call of NumPy in a user's function may be taken for.

An edit makes something of a call. It stands in the place of the call's result or, by ``taking``, of
an operand.

Checked by: tests/check/test_function_calls.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter

import numpy as np

from refnet.batch import Array
from refnet.check.call_sites import Call, Place, Seen, is_a_number, is_live
from refnet.check.function_runs import Edit
from refnet.check.programs.notation import formula
from refnet.check.pull_edits import rounded
from refnet.exact.recorder import Node, Operand, Recorded, derived, same, stop

VARIABLES = 6
"""The most variables that are tried in the place of an operand."""
OPERATIONS = {
    "add": "{} + {}",
    "subtract": "{} - {}",
    "multiply": "{} * {}",
    "divide": "{} / {}",
    "matmul": "{} @ {}",
    "maximum": "np.maximum({}, {})",
    "minimum": "np.minimum({}, {})",
}
"""Operations that are taken for each other, as text."""
FUNCTIONS = "exp log sqrt square abs tanh sin cos sinh cosh expm1 log1p negative".split()
"""Functions that are taken for each other, or applied where none is."""
REDUCTIONS = {
    "sum": ("mean", "max"), "mean": ("sum", "max"), "var": ("std",), "std": ("var",),
    "max": ("min", "sum", "mean"), "min": ("max",),
}  # fmt: skip
ALONG_AXES = {*REDUCTIONS, "cumsum", "softmax", "logsumexp", "log_softmax"}
"""Functions along an axis, for which another one may be taken."""
NORMS = (None, 1, 2, "nuc")
CONSTANTS = ("2 * c", "c / 2", "-c", "1 / c", "c ** 2", "c ** 0.5", "c + 1", "c - 1", "1 - c")
"""What is taken for a constant c."""

Edits = Iterator[tuple[str, Edit]]
"""Edits of one call, each with the text of what it computes."""


def straight(right: Recorded, other: Operand) -> Recorded:
    """The value of ``right`` with the gradient of ``other``."""
    if not isinstance(other, Recorded) or other.shape != right.shape:
        raise ValueError("no result of this shape")
    return derived(right, right.raw, "an edit", (other.node, same))


def forward_alone(edit: Edit) -> Edit:
    """The value of an edit, with the gradient of the right call."""
    return lambda call: straight(edit(call), call.right)


def constant(c: Operand) -> Edit:
    """A number."""
    return lambda call: c


def variable(name: str) -> Edit:
    """A variable where the call stands."""
    return lambda call: call.variables[name]


def operand(k: int, function: Callable[[Operand], Operand] = same) -> Edit:
    """Operand ``k``, or a function of it."""
    return lambda call: function(call.args[k])


def taking(k: int, edit: Edit) -> Edit:
    """Another operand ``k``."""
    return lambda call: call.with_operand(k, edit(call))


def changed(k: int | None, function: Callable[[Operand], Operand]) -> Edit:
    """A function of operand ``k`` before the call, or of the result (None)."""
    return (lambda call: function(call.right)) if k is None else taking(k, operand(k, function))


def reading(k: int, edit: Edit) -> Edit:
    """Other numbers for operand ``k``, which has the gradient."""

    def other(call: Call) -> Operand:
        x, numbers = call.args[k], stop(edit(call))
        return call.with_operand(k, straight(numbers, x) if is_live(x) else numbers)

    return other


def applying(operation: Callable[..., Operand]) -> Edit:
    """Another operation of the same operands."""
    return lambda call: operation(*call.args, **call.options)


def with_options(operands: int | None, **options: Operand) -> Edit:
    """The call of its first operands alone, or of all (None), with other options."""
    return lambda call: call.result(*call.args[:operands], **options)


def coarser(kind: str) -> Edit:
    """The call in a coarser type, with the gradient of the right one."""

    def narrow(node: Node) -> Array:
        return node.raw.astype(kind) if kind in vars(np) else rounded(kind)(node.raw)

    def edit(call: Call) -> Operand:
        (value,) = call.in_numpy(narrow)
        numbers = rounded(kind)(value.astype(float))
        return straight(Recorded(Node(numbers, ""), call.right.lift), call.right)

    return edit


def other_variables(seen: Seen, k: int) -> list[str]:
    """Variables of the shape of operand ``k``, which they are not."""
    x = seen.call.args[k]
    return [
        name
        for name, value in seen.call.variables.items()
        if value.node is not x.node and value.shape == x.shape and name != seen.operands[k]
    ]


def other_operands(seen: Seen, k: int) -> Edits:
    """What stands for operand ``k``: a constant's multiples and powers, a matrix's transpose, other
    variables."""
    x, shown = seen.call.args[k], seen.operands[k]
    if is_a_number(x) and x != 0 and seen.call.kind == "ufunc":
        for text in CONSTANTS:
            c = formula(text, "c")(float(x))
            yield f"{c:g}" if shown[-1].isdigit() else text.replace("c", shown), constant(c)
    if isinstance(x, Recorded):
        if x.ndim == 2 and max(x.shape) > 1:
            yield f"{shown}.T", operand(k, attrgetter("T"))
        yield from ((name, variable(name)) for name in other_variables(seen, k)[-VARIABLES:])


def numbers_read(seen: Seen, last: dict[str, Recorded]) -> Edits:
    """What the gradient takes for the numbers of an operand: a variable or, in a loop, what the
    operand is in another turn, after the ``last`` turn the variable of its name."""
    operands = [k for k, x in enumerate(seen.call.args) if isinstance(x, Recorded)]
    for k in operands:
        for name in other_variables(seen, k):
            yield f"`{name}` for `{seen.operands[k]}`", reading(k, variable(name))
    for k in operands if len(seen.turns) > 1 else ():
        for by, when in (-1, "before"), (1, "after"):
            other = partial(_of_another_turn, seen, k, by, last)
            yield f"`{seen.operands[k]}` of the turn {when}", reading(k, other)


def _of_another_turn(seen: Seen, k: int, by: int, last: dict[str, Recorded], call: Call) -> Operand:
    n = call.turn + by
    if 0 <= n < len(seen.turns):
        return seen.turns[n].call.args[k]
    return last.get(seen.operands[k], call.args[k]) if n > 0 else call.args[k]


def of_the_operation(seen: Seen) -> Edits:
    """Another operation or function, and operands that change places."""
    call, name = seen.call, seen.call.name
    if name in OPERATIONS and call.kind == "ufunc":
        for other, text in OPERATIONS.items():
            if other != name:
                yield text.format(*seen.operands), applying(getattr(np, other))
        if name in ("subtract", "divide", "matmul"):
            text = OPERATIONS[name].format(*seen.operands[::-1])
            yield text, lambda call: call.result(*call.args[::-1])
    for text in ("{} @ {}", "{}.T @ {}") if name == "linalg.solve" else ():
        yield text.format(*seen.operands), applying(formula(text.format("a", "b"), "a, b"))
    for other in FUNCTIONS if name in FUNCTIONS and call.kind == "ufunc" else ():
        if other != name:
            yield f"np.{other}({seen.operands[0]})", applying(getattr(np, other))


def other_reductions(seen: Seen) -> Edits:
    """Another reduction of the same array."""
    name = seen.call.name
    for other in REDUCTIONS.get(name, ()):
        yield seen.text.replace(f".{name}(", f".{other}("), applying(getattr(np, other))


def with_a_function(seen: Seen) -> Edits:
    """A function of the result, where none is applied, and zero."""
    yield "0", changed(None, partial(np.multiply, 0))
    for other in FUNCTIONS:
        if other not in (seen.call.name, "abs"):
            yield f"np.{other}({seen.text})", changed(None, getattr(np, other))


def other_axes(seen: Seen) -> Edits:
    """Other axes than that of a call."""
    call, name = seen.call, seen.call.name.rpartition(".")[2]
    x, second = (*call.args, None, None)[:2]
    axis: Operand = second if is_a_number(second) else call.options.get("axis")
    if name not in ALONG_AXES or not is_a_number(axis) or not isinstance(x, Recorded):
        return
    for n in set(range(x.ndim)) - {int(axis) % x.ndim}:
        text = f"axis {n} for axis {axis}"
        yield text, with_options(1, axis=n)
        if name in REDUCTIONS and not call.options.get("keepdims"):
            yield f"{text}, kept", with_options(1, axis=n, keepdims=True)


def of_options(seen: Seen) -> Edits:
    """Another axis, order or index, the other divisor of a variance, a triangle moved by one."""
    call, name = seen.call, seen.call.name.rpartition(".")[2]
    x, second = (*call.args, None, None)[:2]
    if not isinstance(x, Recorded):
        return
    yield from ((f"{seen.text} with {text}", edit) for text, edit in other_axes(seen))
    if name in ("var", "std"):
        ddof = 1 - int(call.options.get("ddof", 0))
        yield f"{seen.text} with ddof={ddof}", with_options(None, ddof=ddof)
    if name == "norm":
        yield from ((f"{seen.text} with ord={n}", with_options(1, ord=n)) for n in NORMS)
    if name in ("tril", "triu"):
        k = call.options.get("k", 0) if second is None else second
        for n in (k - 1, k + 1):
            yield f"np.{name}({seen.operands[0]}, {n})", with_options(1, k=n)
    if call.kind == "index":
        yield from of_the_index(seen, second)


def of_the_index(seen: Seen, index: Operand) -> Edits:
    """Entries one place before or after."""
    parts = index if isinstance(index, tuple) else (index,)
    for n, part in enumerate(parts[: seen.call.args[0].ndim]):
        cut = isinstance(part, slice) and part.step is None and (part.start or part.stop)
        for by, when in ((-1, "before"), (1, "after")) if cut or is_a_number(part) else ():
            where = f" along axis {n}" if len(parts) > 1 else ""
            yield f"{seen.text} one {when}{where}", taking(1, partial(_shifted, n, by))


def _shifted(n: int, by: int, call: Call) -> Operand:
    x, index = call.args
    parts = list(index) if isinstance(index, tuple) else [index]
    part, size = parts[n], x.shape[n]
    if isinstance(part, slice):
        start, end, _ = part.indices(size)
        if not 0 <= start + by <= end + by <= size:
            raise IndexError
        parts[n] = slice(start + by, end + by)
    else:
        parts[n] = part % size + by
    return tuple(parts)


def values_of(seen: Seen) -> Edits:
    """Another operand, an operand for the result, other options."""
    for k, x in enumerate(seen.call.args):
        for text, edit in other_operands(seen, k):
            yield seen.other(k, text), taking(k, edit)
        if isinstance(x, Recorded) and x.shape == seen.call.right.shape:
            yield seen.operands[k], operand(k)
    yield from of_options(seen)


def everywhere(calls: dict[Place, Seen]) -> Iterator[tuple[str, dict[Place, Edit]]]:
    """What is taken for another operand or axis at all places, where there are several."""
    shared: dict[str, dict[Place, Edit]] = {}
    for place, seen in calls.items():
        for text, edit in other_axes(seen):
            shared.setdefault(text, {})[place] = edit
        for k, shown in enumerate(seen.operands[: len(seen.call.args)]):
            for other, edit in other_operands(seen, k):
                shared.setdefault(f"`{other}` for `{shown}`", {})[place] = taking(k, edit)
    yield from ((text, edits) for text, edits in shared.items() if len(edits) > 1)
