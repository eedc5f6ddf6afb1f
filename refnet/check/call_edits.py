"""What a call of NumPy in a user's function may be taken for: other values in its place.

Checked by: tests/check/test_function_calls.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np

from refnet.batch import Array
from refnet.check.call_sites import Call, Place, Seen, is_a_number, is_live
from refnet.check.function_runs import Edit
from refnet.check.programs.notation import formula
from refnet.check.pull_edits import rounded
from refnet.exact.recorder import CALLS, Node, Operand, Recorded, derived, same, stop

VARIABLES = 6
"""The most variables that are tried in the place of an operand."""
OPERATIONS = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "matmul": "@",
    "maximum": "max",
    "minimum": "min",
}
"""Operations that are taken for each other, and their signs."""
FUNCTIONS = "exp log sqrt square abs tanh sin cos sinh cosh expm1 log1p negative".split()
"""Functions that are taken for each other, or applied where none is."""
REDUCTIONS = {
    "sum": ("mean", "max"), "mean": ("sum", "max"), "var": ("std",), "std": ("var",),
    "max": ("min", "sum", "mean"), "min": ("max",),
}  # fmt: skip
ALONG_AXES = {*REDUCTIONS, "cumsum", "softmax", "logsumexp", "log_softmax"}
"""Functions along an axis, for which another one may be taken."""
NORMS: tuple[Literal["nuc"] | int | None, ...] = (None, 1, 2, "nuc")
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
    return lambda call, right: straight(edit(call, right), right)


def taking(k: int, value: Operand) -> Edit:
    """Another operand ``k``."""
    return lambda call, right: call.with_operand(k, value)


def taking_variable(k: int, name: str) -> Edit:
    """Another variable as operand ``k``."""
    return lambda call, right: call.with_operand(k, call.variables[name])


def of_another_turn(seen: Seen, k: int, by: int, last: Recorded | None) -> Edit:
    """The number that operand ``k`` has ``by`` turns later, after the ``last`` turn that of the
    variable, in the gradient alone."""

    def edit(call: Call, right: Recorded) -> Operand:
        n = call.turn + by
        value: Operand = seen.turns[n].call.args[k] if 0 <= n < len(seen.turns) else None
        if value is None:
            value = last if n > 0 and last is not None else call.args[k]
        return reading(k, value)(call, right)

    return edit


def reading(k: int, value: Operand) -> Edit:
    """Another number for operand ``k``, which has the gradient."""

    def edit(call: Call, right: Recorded) -> Operand:
        x = call.args[k]
        return call.with_operand(k, straight(stop(value), x) if is_live(x) else stop(value))

    return edit


def variables_read(seen: Seen) -> Iterator[tuple[int, str, Edit]]:
    """Other variables that the gradient reads for an operand, which still has its own."""

    def of(k: int, name: str) -> Edit:
        return lambda call, right: reading(k, call.variables[name])(call, right)

    for k, x in enumerate(seen.call.args):
        for name, value in seen.call.variables.items() if isinstance(x, Recorded) else ():
            if value.shape == x.shape and value.node is not x.node and name != seen.operands[k]:
                yield k, f"`{name}`", of(k, name)


def transposing(k: int) -> Edit:
    """Operand ``k`` transposed."""
    return lambda call, right: call.with_operand(k, call.args[k].T)


def operand_alone(k: int) -> Edit:
    """Operand ``k`` for the result."""
    return lambda call, right: call.args[k]


def applying(operation: Callable[..., Operand]) -> Edit:
    """Another operation of the same operands."""
    return lambda call, right: operation(*call.args)


def of_the_result(operation: Callable[[Operand], Operand]) -> Edit:
    """An operation of the result."""
    return lambda call, right: operation(right)


def with_result(k: int | None, operation: Callable[[Operand], Operand]) -> Edit:
    """An operation of operand ``k`` before the call, or of the result."""
    if k is None:
        return of_the_result(operation)
    return lambda call, right: call.with_operand(k, operation(call.args[k]))


def reducing(method: str) -> Edit:
    """Another reduction of the same array."""

    def edit(call: Call, right: Recorded) -> Operand:
        return getattr(np, method)(*call.args, **call.options)

    return edit


def with_options(**options: Operand) -> Edit:
    """Other options."""
    return lambda call, right: call.result(**options)


def norm_of(n: Literal["nuc"] | int | None) -> Edit:
    """Another norm of the same array."""
    return lambda call, right: np.linalg.norm(call.args[0], n, call.options.get("axis"))


def triangle(k: int) -> Edit:
    """Another diagonal of a triangle."""
    return lambda call, right: CALLS[call.kind](*call.head, (call.args[0], k), {})


def coarser(kind: str) -> Edit:
    """The call in a coarser type, with the gradient of the right one."""

    def edit(call: Call, right: Recorded) -> Operand:
        def narrow(node: Node) -> Array:
            return node.raw.astype(kind) if kind in vars(np) else rounded(kind)(node.raw)

        (value,) = call.in_numpy(narrow)
        return straight(Recorded(Node(rounded(kind)(value.astype(float)), ""), right.lift), right)

    return edit


def other_operands(seen: Seen, k: int, x: Operand) -> Edits:
    """Other operands, as text: a constant's multiples and powers, a matrix's transpose, other
    variables."""
    if is_a_number(x) and x != 0 and seen.call.kind == "ufunc":
        for text in CONSTANTS:
            c = formula(text, "c")(float(x))
            shown_as = text.replace("c", seen.operands[k])
            yield f"{c:g}" if seen.operands[k][-1].isdigit() else shown_as, taking(k, c)
    if not isinstance(x, Recorded):
        return
    if x.ndim == 2 and max(x.shape) > 1:
        yield f"{seen.operands[k]}.T", transposing(k)
    others = [
        name
        for name, value in seen.call.variables.items()
        if value.node is not x.node and value.shape == x.shape and name != seen.operands[k]
    ]
    yield from ((name, taking_variable(k, name)) for name in others[-VARIABLES:])


def of_operand(seen: Seen, k: int, x: Operand) -> Edits:
    """Another operand, or the operand for the result."""
    yield from ((seen.other(k, text), edit) for text, edit in other_operands(seen, k, x))
    if isinstance(x, Recorded) and x.shape == seen.right.shape:
        yield seen.operands[k], operand_alone(k)


def of_the_operation(seen: Seen) -> Edits:
    """Another operation or function, and operands that change places."""
    call, name = seen.call, seen.call.name
    if name in OPERATIONS and call.kind == "ufunc":
        a, b = seen.operands
        for other, sign in OPERATIONS.items():
            if other != name:
                text = f"{a} {sign} {b}" if len(sign) == 1 else f"np.{other}({a}, {b})"
                yield text, applying(getattr(np, other))
        if name not in ("add", "multiply", "maximum", "minimum"):
            sign = OPERATIONS[name]
            yield f"{b} {sign} {a}", lambda call, right: call.result(*call.args[::-1])
    if name == "linalg.solve":
        a, b = seen.operands
        yield f"{a} @ {b}", applying(np.matmul)
        yield f"{a}.T @ {b}", applying(lambda a, b: a.T @ b)
    if name in FUNCTIONS and call.kind == "ufunc":
        for other in FUNCTIONS:
            if other != name:
                yield f"np.{other}({seen.operands[0]})", applying(getattr(np, other))


def other_reductions(seen: Seen) -> Edits:
    """Another reduction of the same array."""
    name = seen.call.name
    for other in REDUCTIONS.get(name, ()):
        yield seen.text.replace(f".{name}(", f".{other}("), reducing(other)


def with_a_function(seen: Seen) -> Edits:
    """A function of the result, where none is applied, and zero."""
    yield "0", of_the_result(lambda y: 0 * y)
    for other in FUNCTIONS:
        if other not in (seen.call.name, "abs"):
            yield f"np.{other}({seen.text})", of_the_result(getattr(np, other))


def other_axes(seen: Seen) -> Edits:
    """Other axes than that of a call."""
    call, name = seen.call, seen.call.name.rpartition(".")[2]
    x, second = (*call.args, None, None)[:2]
    axis: Operand = second if is_a_number(second) else call.options.get("axis")
    if name not in ALONG_AXES or not is_a_number(axis) or not isinstance(x, Recorded):
        return
    for n in set(range(x.ndim)) - {int(axis) % x.ndim}:
        text = f"axis {n} for axis {axis}"
        yield text, taking(1, n) if is_a_number(second) else with_options(axis=n)
        if name in REDUCTIONS and not call.options.get("keepdims"):
            yield f"{text}, kept", with_options(axis=n, keepdims=True)


def of_options(seen: Seen) -> Edits:
    """Another axis, order or index, the other divisor of a variance, a triangle moved by one."""
    call, name = seen.call, seen.call.name.rpartition(".")[2]
    x, second = (*call.args, None, None)[:2]
    if not isinstance(x, Recorded):
        return
    yield from ((f"{seen.text} with {text}", edit) for text, edit in other_axes(seen))
    if name in ("var", "std"):
        ddof = 1 - int(call.options.get("ddof", 0))
        yield f"{seen.text} with ddof={ddof}", with_options(ddof=ddof)
    if name == "norm":
        yield from ((f"{seen.text} with ord={n}", norm_of(n)) for n in NORMS)
    if name in ("tril", "triu"):
        k = call.options.get("k", 0) if second is None else second
        for n in (k - 1, k + 1):
            yield f"np.{name}({seen.operands[0]}, {n})", triangle(n)
    if call.kind == "index":
        yield from of_the_index(seen, x.shape, second)


def of_the_index(seen: Seen, shape: tuple[int, ...], index: Operand) -> Edits:
    """Entries one place before or after."""
    parts = index if isinstance(index, tuple) else (index,)
    for n, part in enumerate(parts[: len(shape)]):
        for by in (-1, 1):
            if is_a_number(part):
                edit = _shifted(n, by)
            elif isinstance(part, slice) and part.step is None and (part.start or part.stop):
                edit = _shifted(n, by)
            else:
                continue
            where = f"along axis {n}" if len(parts) > 1 else ""
            yield f"{seen.text} one {'before' if by < 0 else 'after'} {where}".rstrip(), edit


def _shifted(n: int, by: int) -> Edit:
    def edit(call: Call, right: Recorded) -> Operand:
        x, index = call.args
        parts = list(index) if isinstance(index, tuple) else [index]
        part, size = parts[n], x.shape[n]
        if isinstance(part, slice):
            start, stop_, _ = part.indices(size)
            if not 0 <= start + by <= stop_ + by <= size:
                raise IndexError
            parts[n] = slice(start + by, stop_ + by)
        else:
            parts[n] = part % size + by
        return call.result(x, tuple(parts))

    return edit


def values_of(seen: Seen) -> Edits:
    """Edits of the operands and options of a call."""
    for k, x in enumerate(seen.call.args):
        yield from of_operand(seen, k, x)
    yield from of_options(seen)


def everywhere(calls: dict[Place, Seen]) -> Iterator[tuple[str, dict[Place, Edit]]]:
    """What is taken for another operand or axis at all places, where there are several."""
    shared: dict[str, dict[Place, Edit]] = {}
    for place, seen in calls.items():
        for text, edit in other_axes(seen):
            shared.setdefault(text, {})[place] = edit
        for k, x in enumerate(seen.call.args):
            for other, edit in other_operands(seen, k, x):
                shared.setdefault(f"`{other}` for `{seen.operands[k]}`", {})[place] = edit
    yield from ((text, edits) for text, edits in shared.items() if len(edits) > 1)
