"""What a user's function gives if something else stands in its source.

Each rule of ``refnet.check.rewrites`` makes another function, which is compiled and run in NumPy:
its value, or how the value moves along a random direction, says at once whether it can be what was
given. Only then it runs on recorded arrays, for its gradients. So edits also reach what no call of
NumPy on recorded arrays shows: constants, masks, sizes, comparisons, loops, and statements.

Checked by: tests/check/test_source_edits.py.
"""

from __future__ import annotations

import ast
import gc
import linecache
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, lru_cache, partial
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple

import numpy as np

from refnet.batch import Array, Params
from refnet.check.call_edits import straight
from refnet.check.call_sites import LENGTH, shown
from refnet.check.function_edits import floats
from refnet.check.function_runs import Candidate
from refnet.check.rewrites import Block, Scope, difference, expressions, other_blocks, others
from refnet.exact.interception import LIBRARIES
from refnet.exact.recorder import Operand, Recorded
from refnet.exact.running import Arguments, copied, mapped, run_on

HOOK = "_refnet_takes_"
"""The name of what chooses between an expression and another one."""
COMPILED, PLAIN = 10.0, 0.02
"""What compiling a function costs, in calls, and a run in NumPy, in runs on recorded arrays."""
STEP = 1e-5
"""How far arguments move along a direction."""
NEAR = 1e-6
"""How near a slope along a direction has to be, of the right one, beside CLOSE."""
CLOSE = 1e-3
KNOWN = 1e5
"""How far off a value has to be, in sigmas, to show by itself what was computed."""
Take = Callable[[Operand, Operand], Operand]
"""What stands for an expression, of its right value and another one."""


class Written(NamedTuple):
    """A function of the user's: the objects with its code, its syntax, and what its names are."""

    functions: list[FunctionType]
    tree: ast.FunctionDef | ast.Lambda
    scope: Scope

    def compiled(self) -> CodeType:
        """The code of the syntax as it is now."""
        code = self.functions[0].__code__
        lambda_ = isinstance(self.tree, ast.Lambda)
        body: ast.stmt = ast.Return(self.tree) if isinstance(self.tree, ast.Lambda) else self.tree
        arguments = ast.arguments([], [ast.arg(name) for name in code.co_freevars], None, [], [], None, [])
        around = ast.FunctionDef("around", arguments, [body], [])
        module = ast.fix_missing_locations(ast.Module([around], []))
        outer = _code_in(compile(module, code.co_filename, "exec"), "around")
        return _code_in(outer, "<lambda>" if lambda_ else code.co_name)

    @contextmanager
    def running(self, code: CodeType, take: Take) -> Iterator[None]:
        """In this block the functions have other code."""
        usual = [(function, function.__code__) for function in self.functions]
        names = self.functions[0].__globals__
        try:
            names[HOOK] = take
            for function in self.functions:
                function.__code__ = code
            yield
        finally:
            for function, right in usual:
                function.__code__ = right
            names.pop(HOOK, None)


def _code_in(code: CodeType, name: str) -> CodeType:
    return next(c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == name)


class Rewrite(NamedTuple):
    """Another function: the text of what is edited, with {} for how, its code, and whether a single
    expression is another one."""

    name: str
    written: Written
    code: CodeType
    local: bool
    sized: str


class Sources:
    """The edits of the source of a certified function (``refnet.check.function_calls``)."""

    def __init__(self, calls: Any) -> None:
        self.calls, self.certified, self.given = calls, calls.certified, calls.given
        self.f = self.certified.function.f
        self.each = COMPILED / max(sum(len(seen.turns) for seen in calls.tape.seen.values()), 1)

    @cached_property
    def written(self) -> list[Written]:
        """The functions that f consists of."""
        frames: dict[CodeType, dict[str, Operand]] = {}

        def look(frame: FrameType, event: str, _: object) -> None:
            module = str(frame.f_globals.get("__name__", "")).partition(".")[0]
            if event == "return" and module not in LIBRARIES:
                frames[frame.f_code] = {**_numbers(frame.f_globals), **frame.f_locals}

        usual = sys.getprofile()
        sys.setprofile(look)
        try:
            self.plain(self.certified.arguments)
        finally:
            sys.setprofile(usual)
        trees = {code: tree for code in frames if (tree := _tree(code)) is not None}
        inner = {id(node) for tree in trees.values() for node in ast.walk(tree) if node is not tree}
        return [
            Written(functions, tree, Scope(frames[code], _numpy(functions[0])))
            for code, tree in trees.items()
            if id(tree) not in inner and (functions := _functions(code))
        ]

    def plain(self, arguments: Arguments) -> Array:
        """The value in NumPy."""
        with np.errstate(all="ignore"):
            y = np.asarray(self.f(*copied(list(arguments.values()))))
        return np.stack([y.real, y.imag], axis=-1) if y.dtype.kind == "c" else y.astype(float)

    def rewrites(self) -> Iterator[Rewrite]:
        """The functions that the rules make."""
        for written in self.written:
            for block in expressions(written.tree):
                yield from self._of(written, block)
            for text, edits in other_blocks(written.tree):
                code = self._compiled(written, edits)
                if code is not None:
                    yield Rewrite("{}" + text, written, code, local=False, sized="")

    def _of(self, written: Written, block: Block) -> Iterator[Rewrite]:
        """Those that have another expression at one place."""
        right: Any = block.node
        for other, text in others(right, written.scope):
            takes = ast.Call(ast.Name(HOOK, ast.Load()), [right, other], [])
            code = self._compiled(written, [(block, takes)])
            if code is not None:
                sized = _sized(right, other, written.scope)
                name = _named(right, other, text)
                yield Rewrite(name, written, code, local=True, sized=sized)

    def _compiled(self, written: Written, edits: list[tuple[Block, ast.AST]]) -> CodeType | None:
        """The code with edits; None if it is none, or if too much was tried already."""
        self.calls.left -= self.each
        if self.calls.left < 0:
            return None
        usual = [(block, block.node) for block, _ in edits]
        try:
            for block, node in edits:
                block.put(node)
            code = written.compiled()
        except (SyntaxError, ValueError, TypeError, StopIteration):
            return None
        finally:
            for block, right in usual:
                block.put(right)
        return code if code.co_freevars == written.functions[0].__code__.co_freevars else None

    def value(self, rewrite: Rewrite, arguments: Arguments, take: Take) -> Array | None:
        """The value of another function; None if it has none."""
        self.calls.left -= PLAIN
        try:
            with rewrite.written.running(rewrite.code, take):
                return self.plain(arguments)
        except Exception:  # the edit does not fit
            return None

    def results(self, rewrite: Rewrite, take: Take, arguments: Arguments) -> Params | None:
        """Value and gradients of another function; None if it has none."""
        try:
            with rewrite.written.running(rewrite.code, take), np.errstate(all="ignore"):
                certified = self.certified
                return run_on(certified.function, arguments, certified.cotangent, floats)
        except Exception:  # as in ``value``
            return None

    def candidate(self, name: str, rewrite: Rewrite, take: Take) -> Candidate:
        """As an edit of the calls."""
        rerun = partial(self.results, rewrite, take)
        return Candidate(name, sized=rewrite.sized or False, rerun=rerun)

    def of_values(self) -> Iterator[tuple[Candidate, Params]]:
        """Edits of the value, with the gradient that follows from it, the right expression's, the
        right one or, if these explain nothing, any."""
        search, alone = self.calls.search, []
        for rewrite in self.rewrites():
            value = self.value(rewrite, self.certified.arguments, _the_other)
            if value is None or not search.agrees({"value": value}):
                continue
            verb = "is computed as" if rewrite.local else ""
            if self.calls.wrong == {"value"}:
                name = f"in the value alone, {rewrite.name.format(verb)}"
                yield self.candidate(name, rewrite, _the_other), {**self.calls.true, "value": value}
                continue
            name = rewrite.name.format(verb)
            takes = ("", _the_other), (", with the right one's gradient", _forward)
            for text, take in takes[: 1 + rewrite.local]:
                candidate = self.candidate(name + text, rewrite, take)
                reading = self.calls.edited(candidate)
                if reading and search.explains(reading):
                    yield candidate, reading
                    break
            else:
                name = f"{name}: the value is that, the gradients are others"
                candidate = self.candidate(name, rewrite, _the_other)
                alone.append((candidate, {**self.calls.true, **self.given, "value": value}))
        if search.gap.get("value", 0) > KNOWN:
            yield from alone

    def of_gradients(self) -> Iterator[tuple[Candidate, Params]]:
        """Edits of the gradient, with the right value."""
        for rewrite in self.rewrites():
            if rewrite.local and self._slope_fits(rewrite, *self._kept(rewrite)):
                name = "the gradient takes `{1}` for {0}"
                right, _, other = rewrite.name.partition(" {} ")
                candidate = self.candidate(f"the gradient takes {other} for {right}", rewrite, _backward)
                if reading := self.calls.edited(candidate):
                    yield candidate, {**reading, "value": self.calls.true["value"]}
            if self._slope_fits(rewrite, _the_other, _the_other):
                how = "is computed as" if rewrite.local else ""
                name = f"in the gradient, {rewrite.name.format(how)}"
                candidate = self.candidate(name, rewrite, _the_other)
                if reading := self.calls.edited(candidate):
                    yield candidate, {**reading, "value": self.calls.true["value"]}

    def _kept(self, rewrite: Rewrite) -> tuple[Take, Take] | tuple[None, None]:
        """What gives an expression its right values, moved as the other one moves, twice."""
        kept: list[tuple[Operand, Operand]] = []

        def keep(right: Operand, other: Operand) -> Operand:
            kept.append((right, other))
            return right

        self.value(rewrite, self.certified.arguments, keep)
        if not any(_moves(right, other) for right, other in kept):
            return None, None

        def taking() -> Take:
            values = iter(kept)

            def take(right: Operand, other: Operand) -> Operand:
                first, second = next(values)
                return first + (other - second) if _moves(first, second) else first

            return take

        return taking(), taking()

    def _slope_fits(self, rewrite: Rewrite, more: Take | None, less: Take | None) -> bool:
        """Whether another function moves along the direction as the gradients that were given."""
        if more is None or less is None:
            return False
        if not self.direction:
            return True
        a = self.value(rewrite, self._moved(STEP), more)
        b = self.value(rewrite, self._moved(-STEP), less)
        if a is None or b is None or a.shape != b.shape:
            return False
        slope = self._total(a - b) / (2 * STEP)
        given, right, size = self.along
        return abs(slope - given) <= CLOSE * size + NEAR * abs(right)

    def _total(self, value: Array) -> float:
        cotangent = self.certified.cotangent
        if cotangent is None:
            return float(value.sum())
        weight = np.asarray(cotangent)
        if value.ndim > weight.ndim:
            weight = np.stack([weight.real, weight.imag], axis=-1)
        return float((weight.real * value).sum())

    @cached_property
    def direction(self) -> Params:
        """Random numbers for the arrays with a wrong gradient."""
        rng = np.random.default_rng(3)
        return {
            name: rng.standard_normal(array.shape)
            for name, array in self.calls.true.items()
            if name in self.calls.wrong - {"value"}
        }

    @cached_property
    def along(self) -> tuple[float, float, float]:
        """The slopes along the direction by the gradients that were given and by the right ones,
        and the size of what the former are off by."""
        given, right = (
            sum(float((results[name] * d).sum()) for name, d in self.direction.items())
            for results in (self.given, self.calls.true)
        )
        off = [np.linalg.norm(self.given[name] - self.calls.true[name]) for name in self.direction]
        return given, right, float(np.linalg.norm(off))

    def _moved(self, by: float) -> Arguments:
        def move(name: str, array: Array) -> Array:
            d = self.direction.get(f"d{name}")
            if d is None:
                return array.copy(order="K")
            return array + by * (d[..., 0] + 1j * d[..., 1] if array.dtype.kind == "c" else d)

        return {name: mapped(value, name, move) for name, value in self.certified.arguments.items()}


def _named(right: ast.expr, other: ast.expr, text: str) -> str:
    """Both as text, with {} where the verb stands."""
    line, both = f"(line {right.lineno})", (ast.unparse(right), ast.unparse(other))
    if text:
        return f"`{shown(right)}` {line} {{}} {text}"
    if max(map(len, both)) <= LENGTH:
        return f"`{both[0]}` {line} {{}} `{both[1]}`"
    old, new = difference(right, other)
    inside = f" in `{shown(right)}`" if old is not right else ""
    return f"`{shown(old)}`{inside} {line} {{}} `{shown(new)}`"


def _sized(right: ast.expr, other: ast.expr, scope: Scope) -> str:
    """What stands for a size, which is another number at other sizes, or ""."""
    old, new = difference(right, other)
    before, now = (sum(map(scope.is_size, ast.walk(part))) for part in (old, new))
    return ast.unparse(new) if before != now or scope.is_size(old) and old is right else ""


def _moves(right: Operand, other: Operand) -> bool:
    """Whether both are numbers of one shape that move with the arguments."""
    both = [isinstance(x, (np.ndarray, np.floating, np.complexfloating)) for x in (right, other)]
    return all(both) and right.dtype.kind in "fc" and np.shape(right) == np.shape(other)


def _the_other(right: Operand, other: Operand) -> Operand:
    return other


def _forward(right: Operand, other: Operand) -> Operand:
    """The other value, with the right one's gradient."""
    recorded = isinstance(right, Recorded) and isinstance(other, Recorded)
    return straight(other, right) if recorded else other


def _backward(right: Operand, other: Operand) -> Operand:
    """The right value, with the other one's gradient."""
    recorded = isinstance(right, Recorded) and isinstance(other, Recorded)
    return straight(right, other) if recorded else right


def _numbers(names: dict[str, Any]) -> dict[str, Operand]:
    """The numbers among global names."""
    kinds = (int, float, np.generic, np.ndarray)
    return {name: value for name, value in names.items() if isinstance(value, kinds)}


def _numpy(function: FunctionType) -> str:
    """The name that a function has for NumPy."""
    return next((name for name, value in function.__globals__.items() if value is np), "np")


def _functions(code: CodeType) -> list[FunctionType]:
    """The functions with this code."""
    return [x for x in gc.get_referrers(code) if isinstance(x, FunctionType) and x.__code__ is code]


@lru_cache(maxsize=8)
def _parsed(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except SyntaxError:
        return None


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
