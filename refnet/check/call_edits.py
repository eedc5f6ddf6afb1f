"""What a call of NumPy in a user's function may be taken for: edits of the gradient that goes
through it, and other values in its place.

Checked by: tests/check/test_function_calls.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from refnet.batch import Array
from refnet.check.call_sites import Call, Seen, is_a_number, is_live
from refnet.check.programs.notation import formula
from refnet.exact.recorder import CALLS, Node, Operand, Recorded, derived, same, stop

VARIABLES = 6
"""The most variables that are tried in the place of an operand."""
SIGNS = {
    "add": ("-", np.subtract),
    "subtract": ("+", np.add),
    "multiply": ("/", np.divide),
    "divide": ("*", np.multiply),
}
"""An operation -> the sign and the function of the one that is taken for it."""
REDUCTIONS = {"sum": "mean", "mean": "sum", "var": "std", "std": "var", "max": "min", "min": "max"}
CONSTANTS = ("2 * c", "c / 2", "-c", "1 / c", "c ** 2", "c ** 0.5")
"""What is taken for a constant c."""

Edit = Callable[[Call, Recorded], Operand]
"""What a call gives instead, from the call and its right result."""
Edits = Iterator[tuple[str, Edit]]
"""Edits of one call, each with the text of what it computes."""


def straight(right: Recorded, other: Operand) -> Recorded:
    """The value of ``right`` with the gradient of ``other``."""
    if not isinstance(other, Recorded) or other.shape != right.shape:
        raise ValueError("no result of this shape")
    return derived(right, right.raw, "an edit", (other.node, same))


def scaled(k: int, factor: float) -> Edit:
    """The cotangent of operand ``k`` times a factor."""

    def edit(call: Call, right: Recorded) -> Operand:
        x = call.args[k]
        if not factor or not isinstance(x, Recorded):
            return call.with_operand(k, stop(x))
        times = Node(x.raw, "an edit", ((x.node, lambda g: factor * g),))
        return call.with_operand(k, Recorded(times, x.lift, is_number=x.is_number))

    return edit


def without_slope(k: int) -> Edit:
    """The cotangent of the result as that of operand ``k``."""
    return lambda call, right: straight(
        right, np.add(call.with_operand(k, stop(call.args[k])), call.args[k])
    )


def untransposed(k: int) -> Edit:
    """The cotangent of operand ``k`` as the call itself gives it with the result's in its place."""

    def edit(call: Call, right: Recorded) -> Operand:
        x = call.args[k]
        if not is_live(x):
            return right

        def pull(g: Array) -> Array:
            turned: Array = call.with_operand(k, Recorded(Node(g, ""), x.lift)).raw
            if turned.shape != x.shape:
                raise ValueError("no cotangent of this shape")
            return turned

        node = Node(right.raw, "an edit", ((x.node, pull),))
        rest = call.with_operand(k, stop(x))
        return straight(right, np.add(rest, Recorded(node, x.lift)))

    return edit


def adjoint_untransposed(call: Call, right: Recorded) -> Operand:
    """X = A^-1 B, for columns or a vector, with dB = A^-1 dX in place of A^-T dX, and
    dA = -dB X'."""

    def solved(g: Array) -> Array:
        x: Array = call.with_operand(1, Recorded(Node(g, ""), right.lift)).raw
        return x

    def of_the_matrix(g: Array) -> Array:
        columns = len(right.raw), -1
        return -(solved(g).reshape(columns) @ right.raw.reshape(columns).T)

    pulls = zip(call.args, (of_the_matrix, solved))
    return derived(
        right, right.raw, "an edit", *((x.node, pull) for x, pull in pulls if is_live(x))
    )


def pulled_alone(edit: Edit) -> Edit:
    """The gradient of an edit, with the right value."""
    return lambda call, right: straight(right, edit(call, right))


def taking(k: int, value: Operand) -> Edit:
    """Another operand ``k``."""
    return lambda call, right: call.with_operand(k, value)


def taking_variable(k: int, name: str) -> Edit:
    """Another variable as operand ``k``."""
    return lambda call, right: call.with_operand(k, call.variables[name])


def transposing(k: int) -> Edit:
    """Operand ``k`` transposed."""
    return lambda call, right: call.with_operand(k, call.args[k].T)


def operand_alone(k: int) -> Edit:
    """Operand ``k`` for the result."""
    return lambda call, right: call.args[k]


def applying(operation: Callable[..., Operand]) -> Edit:
    """Another operation of the same operands."""
    return lambda call, right: operation(*call.args)


def calling(method: str) -> Edit:
    """Another method of the same array."""
    return lambda call, right: call._replace(head=(method,)).result()


def dividing_by_one_less(call: Call, right: Recorded) -> Operand:
    """A mean over n entries, divided by n - 1."""
    n = call.args[0].size / right.size
    return right * (n / (n - 1))


def with_options(**options: Operand) -> Edit:
    """Other options."""
    return lambda call, right: call.result(**options)


def triangle(k: int) -> Edit:
    """Another diagonal of a triangle."""
    return lambda call, right: CALLS[call.kind](*call.head, (call.args[0], k), {})


def of_operand(seen: Seen, k: int, x: Operand) -> Edits:
    """Other operands: a constant's multiples and powers, a matrix's transpose, other variables."""
    if is_a_number(x) and x != 0 and seen.call.kind == "ufunc":
        for text in CONSTANTS:
            shown_as = text.replace("c", seen.operands[k])
            yield seen.other(k, shown_as), taking(k, formula(text, "c")(float(x)))
    if not isinstance(x, Recorded):
        return
    if x.ndim == 2 and x.shape[0] == x.shape[1] and x.shape[0] > 1:
        yield seen.other(k, f"{seen.operands[k]}.T"), transposing(k)
    others = [
        name
        for name, value in seen.call.variables.items()
        if value is not x and value.shape == x.shape and name != seen.operands[k]
    ]
    yield from ((seen.other(k, name), taking_variable(k, name)) for name in others[-VARIABLES:])


def alone(seen: Seen, k: int) -> Edits:
    """An operand for the result."""
    x = seen.call.args[k]
    if isinstance(x, Recorded) and x.shape == seen.right.shape:
        yield seen.operands[k], operand_alone(k)


def of_the_operation(seen: Seen) -> Edits:
    """The inverse operation, and mean for sum."""
    call = seen.call
    if call.name in SIGNS:
        sign, operation = SIGNS[call.name]
        yield f"{seen.operands[0]} {sign} {seen.operands[1]}", applying(operation)
    if call.kind == "method" and call.name in REDUCTIONS:
        other = REDUCTIONS[call.name]
        yield seen.text.replace(f".{call.name}(", f".{other}("), calling(other)


def of_options(seen: Seen) -> Edits:
    """Another axis, the other divisor of a variance, a triangle moved by one."""
    call, name = seen.call, seen.call.name.rpartition(".")[2]
    x, second = (*call.args, None, None)[:2]
    if not isinstance(x, Recorded):
        return
    axis: Operand = second if is_a_number(second) else call.options.get("axis")
    if name in (*REDUCTIONS, "cumsum", "softmax", "logsumexp") and is_a_number(axis):
        for n in set(range(x.ndim)) - {int(axis) % x.ndim}:
            edit = taking(1, n) if is_a_number(second) else with_options(axis=n)
            yield f"{seen.text} along axis {n}", edit
    if name == "mean":
        yield f"{seen.text} with n - 1 for n", dividing_by_one_less
    if name in ("var", "std"):
        ddof = 1 - int(call.options.get("ddof", 0))
        yield f"{seen.text} with ddof={ddof}", with_options(ddof=ddof)
    if name in ("tril", "triu"):
        k = call.options.get("k", 0) if second is None else second
        for n in (k - 1, k + 1):
            yield f"np.{name}({seen.operands[0]}, {n})", triangle(n)
