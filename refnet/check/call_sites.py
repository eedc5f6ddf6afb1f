"""The calls of NumPy in a user's function: where each stands, and the text of its source, which
Python knows to the column (PEP 657).

The first of the files about mistakes inside a function. Read on in this order, of the gradient:
``call_sites`` (a call and its text), ``function_runs`` (a run whose backward pass is made anew with
an edit), ``pull_edits`` and ``call_edits`` (what a call's gradient may be taken for),
``function_constants`` (constants that are fitted), ``function_calls`` (the search); of the value:
``patterns``, ``rewrites`` and ``statements`` (what source may be taken for), ``sources`` (the
source compiled anew), ``source_edits`` (what it gives then), ``function_pairs`` (two mistakes).

Checked by: tests/check/test_function_calls.py.
"""

from __future__ import annotations

import ast
import linecache
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import islice
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np

from refnet.batch import Array
from refnet.exact.complexes import Complex
from refnet.exact.interception import LIBRARIES
from refnet.exact.recorder import CALLS, Node, Operand, Recorded

LENGTH = 60
"""The characters of source that a name shows."""
Place = tuple[CodeType, int]
"""A call's code and instruction."""


class Call(NamedTuple):
    """A call of ``refnet.exact.recorder.CALLS``: its kind, what comes before the arguments, the
    arguments and options, its right result, the variables where it stands, and how many calls came
    before at its place."""

    kind: str
    head: tuple[Any, ...]
    args: tuple[Operand, ...]
    options: dict[str, Operand]
    right: Operand
    variables: dict[str, Operand]
    turn: int

    @property
    def name(self) -> str:
        """NumPy's name of what is called; of a ufunc's reduction add.reduce."""
        called = self.head[0]
        if isinstance(called, str):
            return called
        module = getattr(called, "__module__", "scipy.special")
        way = self.head[1] if self.kind == "ufunc" else "__call__"
        name = called.__name__ if way == "__call__" else f"{called.__name__}.{way}"
        return f"{module}.{name}".removeprefix("numpy.")

    def result(self, *args: Operand, **options: Operand) -> Operand:
        """What it gives with other arguments, or more options."""
        return CALLS[self.kind](*self.head, args or self.args, {**self.options, **options})

    def in_numpy(self, raw: Callable[[Node], Array]) -> Iterator[Array]:
        """What NumPy itself gives, on the numbers of nodes: arrays of real numbers."""
        args, called = [_plain(x, raw) for x in self.args], self.head[0]
        options = {name: _plain(x, raw) for name, x in self.options.items()}
        if self.kind == "ufunc":
            called = getattr(called, self.head[1])
        elif self.kind == "method":
            called, args = getattr(args[0], called), args[1:]
        elif self.kind == "library":
            called = self.head[2]
        result = called(*args, **options)
        for part in result if isinstance(result, tuple) else (result,):
            yield from (part.real, part.imag) if np.iscomplexobj(part) else (np.asarray(part),)

    def with_operand(self, k: int, value: Operand) -> Operand:
        """What it gives with another operand ``k``."""
        return self.result(*self.args[:k], value, *self.args[k + 1 :])


class Turn(NamedTuple):
    """A call in a run, the ports that the operands and the result pass through (of what is moved or
    has no gradient none), and the nodes that f goes on with."""

    place: Place
    call: Call
    ports: tuple[tuple[Node, ...], ...]
    exits: tuple[Node, ...]
    outs: tuple[Node, ...]

    def operand(self, k: int | None) -> Operand:
        """Operand ``k``, the result (None), or part -1 - k of a result of several (k < 0)."""
        if k is None:
            return self.call.right
        return self.call.args[k] if k >= 0 else self.call.right[-1 - k]

    def nodes(self, k: int | None) -> tuple[Node, ...]:
        """Its ports."""
        if k is None:
            return self.exits
        return self.ports[k] if k >= 0 else tuple({self.outs[-1 - k]} & {*self.exits})


@dataclass
class Seen:
    """What a run has seen of the calls at one place."""

    number: int
    tree: ast.expr | None
    turns: list[Turn] = field(default_factory=list)

    @property
    def call(self) -> Call:
        """The last call."""
        return self.turns[-1].call

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
        elif isinstance(tree, ast.Subscript):
            parts = [tree.value, tree.slice]
        texts = [shown(part) for part in parts]
        return texts if len(texts) >= n else [f"operand {k + 1}" for k in range(n)]

    @property
    def text(self) -> str:
        """The call's text."""
        return shown(self.tree) if self.tree is not None else self.call.name

    def other(self, k: int, text: str) -> str:
        """The call's text with another operand."""
        operand = rf"(?<![\w.]){re.escape(self.operands[k])}(?!\w)"
        other, replaced = re.subn(operand, lambda _: text, self.text, count=1)
        return other if replaced else f"{self.text} with {text} for {self.operands[k]}"

    @property
    def where(self) -> str:
        """The call's text and line."""
        return f"`{self.text}` (line {self.number})"


def sides(x: Operand) -> tuple[Recorded, ...]:
    """The recorded arrays of an operand: one, of complex numbers two, of a list all."""
    if isinstance(x, Complex):
        return x.real, x.imag
    if isinstance(x, (list, tuple)):
        return tuple(side for part in x for side in sides(part))
    return (x,) if isinstance(x, Recorded) else ()


def _plain(x: Operand, raw: Callable[[Node], Array]) -> Operand:
    if isinstance(x, Complex):
        return raw(x.real.node) + 1j * raw(x.imag.node)
    if isinstance(x, (list, tuple)):
        return [_plain(part, raw) for part in x]
    return raw(x.node) if isinstance(x, Recorded) else x


def is_live(x: Operand) -> bool:
    """Whether a gradient goes through an operand."""
    return any(side.node.live for side in sides(x))


def shown(tree: ast.expr) -> str:
    """An expression in at most LENGTH characters."""
    text = ast.unparse(tree)
    return text if len(text) <= LENGTH else f"{text[: LENGTH - 4]} ..."


def user_frame() -> FrameType | None:
    """The innermost frame of the user's code."""
    frame: FrameType | None = sys._getframe(1)
    while frame and str(frame.f_globals.get("__name__", "")).partition(".")[0] in LIBRARIES:
        frame = frame.f_back
    return frame


def expression(frame: FrameType) -> ast.expr | None:
    """What a frame is computing, if its source is known."""
    code = frame.f_code
    span = next(islice(code.co_positions(), frame.f_lasti // 2, None), ())
    return _expressions("".join(linecache.getlines(code.co_filename))).get(span)


@lru_cache(maxsize=8)
def _expressions(source: str) -> dict[tuple[int | None, ...], ast.expr]:
    """The expressions of a file by first and last line and column; ``a += b`` as ``a + b``, and a
    method's call also by its name, where Python sees one that stands on another line."""
    try:
        nodes = [*ast.walk(ast.parse(source))]
    except SyntaxError:
        return {}
    known: dict[tuple[int | None, ...], ast.expr] = {}
    for node in nodes:
        if isinstance(node, ast.AugAssign):
            known[_span(node)] = ast.BinOp(node.target, node.op, node.value)
        elif isinstance(node, ast.expr):
            known[_span(node)] = node
        if isinstance(node, ast.Call) and isinstance(name := node.func, ast.Attribute):
            first, start = name.end_lineno, (name.end_col_offset or 0) - len(name.attr.encode())
            known[first, node.end_lineno, start, node.end_col_offset] = node
    return known


def _span(node: ast.expr | ast.stmt) -> tuple[int | None, ...]:
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset
