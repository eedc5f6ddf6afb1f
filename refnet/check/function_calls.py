"""Mistakes inside a function: what its value and gradients become if one call of NumPy in it is
another.

A run of the function on recorded floats is a sequence of calls, each at a place in the user's
source, which Python knows to the column (PEP 657). An edit changes what the calls at one place
give. It stops, scales or turns the cotangent of an operand, or it computes something else: an
operand alone, another operation, axis, constant or variable. Names show the user's text, so that
the table has no cases of its own, whatever the function is.

Checked by: tests/check/test_function_calls.py.
"""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, count, islice
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np

from refnet.batch import Array, Params
from refnet.check.function_edits import floats, sizes
from refnet.check.programs.notation import formula
from refnet.exact.functions import CertifiedFunction
from refnet.exact.interception import LIBRARIES
from refnet.exact.recorder import CALLS, WATCH, Node, Operand, Recorded, derived, same, stop
from refnet.exact.running import mapped, run_on

__all__ = ["Calls"]

WORK = 150_000
"""Calls that may be spent on one function: some ten seconds."""
VARIABLES = 6
"""The most variables that are tried in the place of an operand."""
LENGTH = 60
"""The characters of source that a name shows."""
FEW = 3
"""The most wrong entries that a constant may explain by chance."""
FITS = 1e-4
"""How near a fitted constant has to be."""
SIGNS = {
    "add": ("-", np.subtract),
    "subtract": ("+", np.add),
    "multiply": ("/", np.divide),
    "divide": ("*", np.multiply),
}
"""An operation -> the sign and the function of the one that is taken for it."""
REDUCTIONS = {"sum": "mean", "mean": "sum", "var": "std", "std": "var", "max": "min", "min": "max"}
LINEAR = ("matmul", "dot", "linalg.solve")
"""Calls that are linear in an operand, and no product entry by entry."""
CONSTANTS = ("2 * c", "c / 2", "-c", "1 / c", "c ** 2", "c ** 0.5")
"""What is taken for a constant c."""

Place = tuple[CodeType, int]
"""A call's code and instruction."""


class Call(NamedTuple):
    """A call of ``refnet.exact.recorder.CALLS``: its kind, what comes before the arguments, the
    arguments and options, and the variables where it stands."""

    kind: str
    head: tuple[Any, ...]
    args: tuple[Operand, ...]
    options: dict[str, Operand]
    variables: dict[str, Operand]

    @property
    def name(self) -> str:
        """NumPy's name of what is called."""
        called = self.head[0]
        module = getattr(called, "__module__", None) or ""
        return (
            called
            if isinstance(called, str)
            else f"{module}.{called.__name__}".removeprefix("numpy.")
        )

    def result(self, *args: Operand, **options: Operand) -> Operand:
        """What it gives with other arguments, or more options."""
        return CALLS[self.kind](*self.head, args or self.args, {**self.options, **options})

    def with_operand(self, k: int, value: Operand) -> Operand:
        """What it gives with another operand ``k``."""
        return self.result(*self.args[:k], value, *self.args[k + 1 :])


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
        if not factor:
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

        def pull(g: Array) -> Array:
            turned: Array = call.with_operand(k, Recorded(Node(g, ""), x.lift)).raw
            if turned.shape != x.shape:
                raise ValueError("no cotangent of this shape")
            return turned

        node = Node(right.raw, "an edit", ((x.node, pull),))
        rest = call.with_operand(k, stop(x))
        return straight(right, np.add(rest, Recorded(node, x.lift)))

    return edit


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


def with_options(**options: Operand) -> Edit:
    """Other options."""
    return lambda call, right: call.result(**options)


def triangle(k: int) -> Edit:
    """Another diagonal of a triangle."""
    return lambda call, right: CALLS[call.kind](*call.head, (call.args[0], k), {})


class Candidate(NamedTuple):
    """An edit of the calls at a place, in all or some of its turns."""

    name: str
    place: Place
    edit: Edit
    turns: frozenset[int] | None = None


@dataclass
class Seen:
    """What a run has seen of the calls at one place: the first one, its result, and how many."""

    call: Call
    right: Recorded
    number: int
    tree: ast.expr | None
    turns: int = 0

    @cached_property
    def operands(self) -> list[str]:
        """The operands' text."""
        tree, n = self.tree, len(self.call.args)
        parts: list[ast.expr] = []
        if isinstance(tree, ast.BinOp):
            parts = [tree.left, tree.right]
        elif isinstance(tree, ast.UnaryOp):
            parts = [tree.operand]
        elif isinstance(tree, ast.Call):
            owner = [tree.func.value] if isinstance(tree.func, ast.Attribute) else []
            parts = [*(owner if self.call.kind == "method" else []), *tree.args]
        texts = [shown(part) for part in parts]
        return texts if len(texts) >= n else [f"operand {k + 1}" for k in range(n)]

    @property
    def text(self) -> str:
        """The call's text."""
        return shown(self.tree) if self.tree is not None else self.call.name

    def other(self, k: int, text: str) -> str:
        """The call's text with another operand."""
        return self.text.replace(self.operands[k], text, 1)

    @property
    def line(self) -> str:
        """Where it stands."""
        return f"line {self.number}"


def shown(tree: ast.expr) -> str:
    """An expression in at most LENGTH characters."""
    text = ast.unparse(tree)
    return text if len(text) <= LENGTH else f"{text[: LENGTH - 4]} ..."


def user_frame() -> FrameType | None:
    """The innermost frame of the user's code."""
    frame: FrameType | None = sys._getframe(2)
    while frame and str(frame.f_globals.get("__name__", "")).partition(".")[0] in LIBRARIES:
        frame = frame.f_back
    return frame


def expression(frame: FrameType) -> ast.expr | None:
    """What a frame is computing, if its source is known."""
    span = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))
    if None in span:
        return None
    first, last, start, end = span
    lines = [
        line.encode() for line in linecache.getlines(frame.f_code.co_filename)[first - 1 : last]
    ]
    if len(lines) != last - first + 1:
        return None
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    text = b"".join(lines).decode()
    try:
        statement = ast.parse(text if "=" in text.partition("(")[0] else f"({text})").body[0]
    except SyntaxError:
        return None
    if isinstance(statement, ast.AugAssign):
        return ast.BinOp(statement.target, statement.op, statement.value)
    return statement.value if isinstance(statement, ast.Expr) else None


@dataclass
class Calls:
    """The edits of the calls of a certified function, and what they give."""

    certified: CertifiedFunction
    seen: dict[Place, Seen] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.true = self.run(self._look)
        calls = sum(seen.turns for seen in self.seen.values())
        self.left = WORK // max(calls, 1)

    def run(
        self, act: Callable[[Place, FrameType, Call, Recorded], Operand], anew: int | None = None
    ) -> Params:
        """Value and gradients with the calls' results that ``act`` gives; ``anew``: a seed of
        other arguments."""

        def watch(kind: str, call: tuple[Any, ...]) -> Operand:
            token = WATCH.set(None)
            try:
                right, frame = CALLS[kind](*call), user_frame()
                if frame is None or not isinstance(right, Recorded):
                    return right
                *head, args, options = call
                what = Call(kind, tuple(head), tuple(args), dict(options), frame.f_locals)
                return act((frame.f_code, frame.f_lasti), frame, what, right)
            finally:
                WATCH.reset(token)

        certified, token = self.certified, WATCH.set(watch)
        arguments = certified.arguments
        if anew is not None:
            rng = np.random.default_rng(anew)
            arguments = {
                name: mapped(value, name, lambda _, a: a * (1 + 0.1 * rng.standard_normal(a.shape)))
                for name, value in arguments.items()
            }
        try:
            with np.errstate(all="ignore"):
                results = run_on(certified.function, arguments, certified.cotangent, floats)
        finally:
            WATCH.reset(token)
        return {name: np.asarray(value, float) for name, value in results.items()}

    def _look(self, place: Place, frame: FrameType, call: Call, right: Recorded) -> Operand:
        if place not in self.seen:
            variables = {
                name: value for name, value in call.variables.items() if isinstance(value, Recorded)
            }
            first = call._replace(variables=variables)
            self.seen[place] = Seen(first, right, frame.f_lineno, expression(frame))
        self.seen[place].turns += 1
        return right

    def edited(self, candidate: Candidate, anew: int | None = None) -> Params | None:
        """What an edit gives; None if it cannot be made, or too much was tried already."""
        self.left -= 1
        if self.left < 0:
            return None
        turn = count()

        def act(place: Place, frame: FrameType, call: Call, right: Recorded) -> Operand:
            if place != candidate.place:
                return right
            now = next(turn)
            edits = candidate.turns is None or now in candidate.turns
            return candidate.edit(call, right) if edits else right

        try:
            return self.run(act, anew)
        except Exception:  # the edit does not fit, or f does not go on with what it gives
            return None

    def pulls(self) -> Iterator[Candidate]:
        """Edits of cotangents alone."""
        for place, seen in self.seen.items():
            call, where = seen.call, f"in `{seen.text}` ({seen.line})"
            for k, x in enumerate(call.args):
                if not isinstance(x, Recorded) or not x.node.live:
                    continue
                what = f"`{seen.operands[k]}`"
                yield Candidate(f"no gradient goes through {what} {where}", place, scaled(k, 0))
                for name, n in (("first", 0), ("last", seen.turns - 1)) if seen.turns > 1 else ():
                    turn = f"the {name} turn of {what} {where}"
                    rest = frozenset(range(seen.turns)) - {n}
                    yield Candidate(
                        f"the gradient goes through {turn} alone", place, scaled(k, 0), rest
                    )
                    one = frozenset({n})
                    yield Candidate(f"no gradient goes through {turn}", place, scaled(k, 0), one)
                if call.name in LINEAR:
                    name = f"the gradient of {what} {where} lacks a transpose"
                    yield Candidate(name, place, untransposed(k))
                elif x.shape == seen.right.shape and call.name not in ("add", "subtract"):
                    lacks = "its slope" if len(call.args) == 1 else "the other factor"
                    name = f"the gradient of {what} {where} lacks {lacks}"
                    yield Candidate(name, place, without_slope(k))

    def multiples(self, given: Params, wrong: set[str]) -> Iterator[Candidate]:
        """Cotangents times the constant that fits."""
        entries = sum(given[name].size for name in wrong)
        for place, seen in self.seen.items():
            for k, x in enumerate(seen.call.args):
                if not isinstance(x, Recorded) or not x.node.live:
                    continue
                without = self.edited(Candidate("", place, scaled(k, 0)))
                if without is None:
                    continue
                part, off = (
                    np.concatenate([(a[name] - b[name]).ravel() for name in sorted(wrong)])
                    for a, b in ((self.true, without), (given, self.true))
                )
                if not part @ part > 0:
                    continue
                factor = 1 + float(part @ off / (part @ part))
                known = self._number(factor)
                if np.linalg.norm(off - (factor - 1) * part) < FITS * np.linalg.norm(off) and (
                    known or entries > FEW
                ):
                    times = known or f"multiplied by {factor:.6g}"
                    what = f"`{seen.operands[k]}` in `{seen.text}` ({seen.line})"
                    yield Candidate(f"the gradient of {what} {times}", place, scaled(k, factor))

    def _number(self, factor: float) -> str:
        """A factor in words, or ""."""
        known = {"has the wrong sign": -1.0, "is doubled": 2.0, "is halved": 0.5}
        for name, size in sizes(self.certified).items():
            known |= {f"is multiplied by {name}": size, f"is divided by {name}": 1 / size}
            known[f"is multiplied by the root of {name}"] = size**0.5
            known[f"is divided by the root of {name}"] = size**-0.5
        same_number = [text for text, value in known.items() if abs(factor / value - 1) < FITS]
        return " = ".join(same_number[:2])

    def values(self) -> Iterator[tuple[str, Seen, Candidate]]:
        """Edits of values, as text and what they are edits of."""
        for place, seen in self.seen.items():
            call = seen.call
            others = [
                edit
                for k, x in enumerate(call.args)
                for edit in (*_of_operand(seen, k, x), *_alone(seen, k))
            ]
            for text, edit in (*others, *_of_the_operation(seen), *_of_options(seen)):
                yield text, seen, Candidate("", place, edit)

    def candidates(self, given: Params, wrong: set[str]) -> Iterator[tuple[Candidate, Params]]:
        """Every edit that may explain what is ``wrong``, and the results that it gives."""
        value, gradients = "value" in wrong, wrong - {"value"}
        same_value = {"value": self.true["value"]}
        if not value:
            for candidate in chain(self.pulls(), self.multiples(given, wrong)):
                if reading := self.edited(candidate):
                    yield candidate, {**reading, **same_value}
        for text, seen, candidate in self.values():
            where = f"`{seen.text}` ({seen.line})"
            if value or "value" not in given:
                whole = candidate._replace(name=f"{where} is computed as `{text}`")
                if reading := self.edited(whole):
                    yield whole, reading
                    if not gradients:
                        alone = f"the value alone has `{text}` for {where}"
                        yield whole._replace(name=alone), {**self.true, "value": reading["value"]}
            if not value:
                name = f"the gradient takes `{text}` for {where}"
                pulled = candidate._replace(name=name, edit=pulled_alone(candidate.edit))
                if reading := self.edited(pulled):
                    yield pulled, {**reading, **same_value}

    def readings(
        self, given: Params, wrong: set[str], agrees: Callable[[Params], bool]
    ) -> Iterator[tuple[str, Params]]:
        """The edits whose results ``agrees`` accepts; of edits that are one at other arguments,
        too, the first."""
        known: list[Params] = []
        for candidate, reading in self.candidates(given, wrong):
            if not agrees(reading):
                continue
            elsewhere = self.edited(candidate, anew=1) or reading
            if not any(_alike(elsewhere, other) for other in known):
                known.append(elsewhere)
                yield candidate.name, reading
            if len(known) > 1:
                return


def _alike(a: Params, b: Params) -> bool:
    return all(
        np.linalg.norm(a[name] - b[name]) <= 1e-9 * np.linalg.norm(a[name])
        for name in a
        if name != "value"
    )


def _is_a_number(x: Operand) -> bool:
    return isinstance(x, (int, float, np.generic)) and not isinstance(x, (bool, np.bool_))


def _of_operand(seen: Seen, k: int, x: Operand) -> Edits:
    """Other operands: a constant's multiples and powers, a matrix's transpose, other variables."""
    if _is_a_number(x) and x != 0 and seen.call.kind == "ufunc":
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


def _alone(seen: Seen, k: int) -> Edits:
    """An operand for the result."""
    x = seen.call.args[k]
    if isinstance(x, Recorded) and x.shape == seen.right.shape:
        yield seen.operands[k], operand_alone(k)


def _of_the_operation(seen: Seen) -> Edits:
    """The inverse operation, and mean for sum."""
    call = seen.call
    if call.name in SIGNS:
        sign, operation = SIGNS[call.name]
        yield f"{seen.operands[0]} {sign} {seen.operands[1]}", applying(operation)
    if call.kind == "method" and call.name in REDUCTIONS:
        other = REDUCTIONS[call.name]
        yield seen.text.replace(f".{call.name}(", f".{other}("), calling(other)


def _of_options(seen: Seen) -> Edits:
    """Another axis, the other divisor of a variance, a triangle moved by one."""
    call, name = seen.call, seen.call.name.rpartition(".")[2]
    x, second = (*call.args, None, None)[:2]
    if not isinstance(x, Recorded):
        return
    axis = second if _is_a_number(second) else call.options.get("axis")
    if name in (*REDUCTIONS, "cumsum", "softmax", "logsumexp") and _is_a_number(axis):
        for n in set(range(x.ndim)) - {int(axis) % x.ndim}:
            edit = taking(1, n) if _is_a_number(second) else with_options(axis=n)
            yield f"{seen.text} along axis {n}", edit
    if name in ("var", "std"):
        ddof = 1 - int(call.options.get("ddof", 0))
        yield f"{seen.text} with ddof={ddof}", with_options(ddof=ddof)
    if name in ("tril", "triu"):
        k = int(second or call.options.get("k") or 0)
        for n in (k - 1, k + 1):
            yield f"np.{name}({seen.operands[0]}, {n})", triangle(n)
