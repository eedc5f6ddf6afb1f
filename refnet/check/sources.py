"""The source of a user's function: its syntax, which is compiled anew with something else in it.

What stands for an expression is chosen while the function runs, by a hook between the right
expression and another one, so that one compiled function serves both a value in NumPy and its
gradients on recorded arrays.

Checked by: tests/check/test_source_edits.py.
"""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from types import CellType, CodeType, FrameType, FunctionType, MethodType
from typing import Any, NamedTuple
from warnings import catch_warnings, simplefilter

import numpy as np

from refnet.check.call_edits import straight
from refnet.check.rewrites import Block, Scope
from refnet.exact.interception import LIBRARIES
from refnet.exact.recorder import Operand, Recorded

HOOK = "_refnet_takes_"
"""The name of what chooses between an expression and another one."""
TURN = "_refnet_turns_"
"""The name of what counts the turns of loops that may not end."""
TURNS = 1000
"""The most turns of such loops in a run."""
Take = Callable[[Operand, Operand], Operand]
"""What stands for an expression, of its right value and another one."""
Edits = Sequence[tuple[Block, ast.AST]]
"""What stands elsewhere instead."""


def the_other(right: Operand, other: Operand) -> Operand:
    """The other expression."""
    return other


def forward(right: Operand, other: Operand) -> Operand:
    """The other value, with the right one's gradient."""
    recorded = isinstance(right, Recorded) and isinstance(other, Recorded)
    return straight(other, right) if recorded else other


def backward(right: Operand, other: Operand) -> Operand:
    """The right value, with the other one's gradient."""
    recorded = isinstance(right, Recorded) and isinstance(other, Recorded)
    return straight(right, other) if recorded else right


class Turns:
    """Ends a run whose loops take too many turns."""

    def __init__(self) -> None:
        self.left = TURNS

    def __call__(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("a loop that does not end")


class Written(NamedTuple):
    """A function of the user's: the objects with its code, its syntax, and what its names are."""

    functions: list[FunctionType]
    tree: ast.FunctionDef | ast.Lambda
    scope: Scope

    def compiled(self, edits: Edits) -> CodeType | None:
        """The code with edits; None if there is none."""
        usual = [(block, block.node) for block, _ in edits]
        try:
            for block, node in edits:
                block.put(node)
            with catch_warnings():
                simplefilter("ignore")
                code = self._compiled()
        except (SyntaxError, ValueError, TypeError, StopIteration):
            return None
        finally:
            for block, right in usual:
                block.put(right)
        return code if code.co_freevars == self.functions[0].__code__.co_freevars else None

    def _compiled(self) -> CodeType:
        code = self.functions[0].__code__
        body = ast.Return(self.tree) if isinstance(self.tree, ast.Lambda) else self.tree
        names = [ast.arg(name) for name in code.co_freevars]
        around = ast.FunctionDef(
            "around", ast.arguments([], names, None, [], [], None, []), [body], []
        )
        module = ast.fix_missing_locations(ast.Module([around], []))
        outer = _code_in(compile(module, code.co_filename, "exec"), "around")
        return _code_in(outer, code.co_name)

    @contextmanager
    def running(self, code: CodeType, take: Take) -> Iterator[None]:
        """In this block the functions have other code."""
        usual = [(function, function.__code__) for function in self.functions]
        names = self.functions[0].__globals__
        try:
            names |= {HOOK: take, TURN: Turns()}
            for function in self.functions:
                function.__code__ = code
            with catch_warnings():
                simplefilter("ignore")
                yield
        finally:
            for function, right in usual:
                function.__code__ = right
            del names[HOOK], names[TURN]


def hooked(right: ast.AST, other: ast.AST | None = None) -> ast.expr:
    """The hook in the place of an expression."""
    return ast.Call(ast.Name(HOOK, ast.Load()), [right, other or ast.Constant(None)], [])  # type: ignore[list-item]


class Copies:
    """Copies of a user's function and of those that it calls by name, whose code may be exchanged
    while the user's stay as they are."""

    def __init__(self, f: Callable[..., Any]) -> None:
        self.spaces: dict[int, dict[str, Any]] = {}
        self.functions: dict[int, FunctionType] = {}
        self.f = self._copy(f)

    def written(self, run: Callable[[], object]) -> list[Written]:
        """The functions that a run calls; of those inside each other the outer ones."""
        frames: dict[CodeType, dict[str, Operand]] = {}

        def look(frame: FrameType, event: str, _: object) -> None:
            if event == "return" and _is_the_users(frame.f_globals):
                frames[frame.f_code] = {**_numbers(frame.f_globals), **frame.f_locals}

        usual = sys.getprofile()
        sys.setprofile(look)
        try:
            with suppress(Exception):  # what has run by then is known
                run()
        finally:
            sys.setprofile(usual)
        trees = {code: tree for code in frames if (tree := _tree(code)) is not None}
        inner = {id(node) for tree in trees.values() for node in ast.walk(tree) if node is not tree}
        by_code: dict[CodeType, list[FunctionType]] = {}
        for function in self.functions.values():
            by_code.setdefault(function.__code__, []).append(function)
        return [
            Written(by_code[code], tree, Scope(frames[code], _numpy(by_code[code][0])))
            for code, tree in trees.items()
            if id(tree) not in inner and code in by_code
        ]

    def _copy(self, x: Any) -> Any:
        """A copy of what is a function of the user's or holds one; anything else itself."""
        if isinstance(x, partial):
            return partial(self._copy(x.func), *x.args, **x.keywords)
        if isinstance(x, MethodType):
            return MethodType(self._copy(x.__func__), x.__self__)
        if not (isinstance(x, FunctionType) and _is_the_users(x.__globals__)):
            return x
        if id(x) not in self.functions:
            cells = tuple(CellType() for _ in x.__closure__ or ())
            names = self._space(x.__globals__)
            new = FunctionType(x.__code__, names, x.__name__, x.__defaults__, cells)
            new.__kwdefaults__ = x.__kwdefaults__
            self.functions[id(x)] = new
            for cell, usual in zip(cells, x.__closure__ or ()):
                if usual != CellType():
                    cell.cell_contents = self._copy(usual.cell_contents)
        return self.functions[id(x)]

    def _space(self, names: dict[str, Any]) -> dict[str, Any]:
        """A copy of the names of a module."""
        if id(names) not in self.spaces:
            new = self.spaces[id(names)] = dict(names)
            new.update({name: self._copy(value) for name, value in names.items()})
        return self.spaces[id(names)]


def _is_the_users(names: dict[str, Any]) -> bool:
    """Whether the names are those of a module of the user's, and of no library."""
    module = str(names.get("__name__", "")).partition(".")[0]
    installed = "site-packages" in str(names.get("__file__", ""))
    return not installed and module not in LIBRARIES and module not in sys.stdlib_module_names


def _code_in(code: CodeType, name: str) -> CodeType:
    return next(c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == name)


def _numbers(names: dict[str, Any]) -> dict[str, Operand]:
    """The numbers among global names."""
    kinds = (int, float, np.generic, np.ndarray)
    return {name: value for name, value in names.items() if isinstance(value, kinds)}


def _numpy(function: FunctionType) -> str:
    """The name that a function has for NumPy."""
    return next((name for name, value in function.__globals__.items() if value is np), "np")


@lru_cache(maxsize=8)
def _parsed(source: str) -> ast.Module | None:
    try:
        module = ast.parse(source)
    except SyntaxError:
        return None
    for node in ast.walk(module):
        if isinstance(node, ast.While):
            count = ast.Expr(ast.Call(ast.Name(TURN, ast.Load()), [], []))
            node.body.insert(0, ast.copy_location(count, node))
    return module


def _tree(code: CodeType) -> ast.FunctionDef | ast.Lambda | None:
    """The syntax of a function, if its source is known."""
    module = _parsed("".join(linecache.getlines(code.co_filename)))
    kind = ast.Lambda if code.co_name == "<lambda>" else ast.FunctionDef
    fitting = [
        node
        for node in (ast.walk(module) if module else ())
        if isinstance(node, kind)
        and min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
        == code.co_firstlineno
        and getattr(node, "name", code.co_name) == code.co_name
    ]
    return fitting[0] if len(fitting) == 1 else None
