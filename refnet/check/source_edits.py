"""What a user's function gives if something else stands in its source.

Each rule of ``refnet.check.rewrites`` makes another function, which is compiled and run in NumPy:
its value, or how the value moves along a random direction, says at once whether it can be what was
given. Only then it runs on recorded arrays, for its gradients. So edits also reach what no call of
NumPy on recorded arrays shows: constants, masks, sizes, comparisons, loops, and statements.

Checked by: tests/check/test_source_edits.py, tests/check/test_function_calls.py.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from os.path import commonprefix
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from refnet.batch import Array, Params
from refnet.check.call_edits import straight
from refnet.check.call_sites import LENGTH, shown
from refnet.check.function_edits import floats
from refnet.check.function_runs import Candidate
from refnet.check.patterns import with_part
from refnet.check.programs.notation import formula
from refnet.check.pull_edits import SLOPES, forms
from refnet.check.rewrites import (
    Block,
    Scope,
    blocks,
    constant_of,
    difference,
    expressions,
    is_atom,
    others,
    parts_alone,
    wrapped,
)
from refnet.check.sources import Copies, Edits, Take, Written, backward, forward, hooked, the_other
from refnet.check.statements import other_blocks
from refnet.exact.recorder import Operand, Recorded
from refnet.exact.running import Arguments, Runs, copied, mapped, run_on

COMPILED, PLAIN = 10.0, 0.02
"""What compiling a function costs, in calls, and a run in NumPy, in runs on recorded arrays."""
VERB = "\0"
"""What stands in a name for the verb, or for a constant."""
STEP = 1e-5
"""How far arguments move along a direction."""
CLOSE, NEAR = 1e-3, 1e-6
"""How near a slope along a direction has to be, of the size of what is wrong and of the slope."""
KNOWN = 1e5
"""How far off a value has to be, in sigmas, to show by itself what was computed."""
Readings = Iterator[tuple[Candidate, Params]]


Slope = Callable[[Operand, Operand], Operand]
"""How fast a result moves with an operand."""


def _one(x: Operand, y: Operand) -> float:
    return 1.0


class Rewrite(NamedTuple):
    """Another function: the text of what is edited, with VERB for the verb, its code, whether a
    single expression is another one, and the text of a size in it."""

    name: str
    written: Written
    code: CodeType
    local: bool
    sized: str = ""

    def said(self, verb: str) -> str:
        """Its name with a verb, or of statements with what stands before it."""
        if self.local:
            return self.name.replace(VERB, f"{verb} is computed as".strip())
        return f"{verb}, {self.name}".removeprefix(", ")


class Sources:
    """The edits of the source of a certified function (``refnet.check.function_calls``)."""

    def __init__(self, calls: Any) -> None:
        self.calls, self.certified, self.given = calls, calls.certified, calls.given
        self.search, copies = calls.search, Copies(self.certified.function.f)
        self.runs = Runs(copies.f)
        self.each = COMPILED / max(sum(len(seen.turns) for seen in calls.tape.seen.values()), 1)
        self.in_part: list[tuple[Candidate, Params]] = []
        self.arguments = {
            name: mapped(value, name, _wide) for name, value in self.certified.arguments.items()
        }
        self.written = copies.written(partial(self.plain, self.arguments))

    def plain(self, arguments: Arguments) -> Array:
        """The value in NumPy."""
        with np.errstate(all="ignore"):
            y = np.asarray(self.runs.f(*copied(list(arguments.values()))))
        return np.stack([y.real, y.imag], axis=-1) if y.dtype.kind == "c" else y.astype(float)

    def rewrites(self) -> Iterator[Rewrite]:
        """The functions that the rules make: of single expressions, of statements, and of what a
        function of an expression may stand for it."""
        for function in self.written:
            for block in expressions(function.tree):
                yield from self._of(function, block, others)
            for text, edits in other_blocks(function.tree, function.scope):
                if code := self.compiled(function, edits):
                    yield Rewrite(text, function, code, local=False)
        for function in self.written:
            for block in expressions(function.tree):
                yield from self._of(function, block, wrapped)

    def _of(self, function: Written, block: Block, rules: Any) -> Iterator[Rewrite]:
        """Those that have another expression at one place."""
        right = block.node
        for other, text in rules(right, function.scope):
            if code := self.compiled(function, [(block, hooked(right, other))]):
                name = _named(block, other, text)
                yield Rewrite(name, function, code, True, _sized(right, other, function.scope))

    def compiled(self, function: Written, edits: Edits) -> CodeType | None:
        """The code with edits; None if there is none, or if too much was tried already."""
        self.calls.left -= self.each
        return function.compiled(edits) if self.calls.left >= 0 else None

    def value(self, rewrite: Rewrite, arguments: Arguments, take: Take) -> Array | None:
        """The value of another function; None if it has none of the right shape."""
        self.calls.left -= PLAIN
        try:
            with rewrite.written.running(rewrite.code, take):
                value = self.plain(arguments)
        except Exception:  # the edit does not fit
            return None
        return value if value.shape == self.calls.true["value"].shape else None

    def results(self, rewrite: Rewrite, take: Take, arguments: Arguments) -> Params | None:
        """Value and gradients of another function; None if it has none."""
        certified = self.certified
        try:
            with rewrite.written.running(rewrite.code, take), np.errstate(all="ignore"):
                return run_on(self.runs, arguments, certified.cotangent, floats)
        except Exception:  # as in ``value``
            return None

    def candidate(self, name: str, rewrite: Rewrite, take: Take) -> Candidate:
        """As an edit of the calls."""
        sized = rewrite.sized or False
        return Candidate(name, sized=sized, rerun=partial(self.results, rewrite, take))

    def of_values(self) -> Readings:
        """Edits of the value, with the gradient that follows from it, the right expression's, or
        the right one."""
        for rewrite in self.rewrites():
            yield from self.computed(rewrite, the_other)

    def computed(self, rewrite: Rewrite, take: Take) -> Readings:
        """What an edit of the value gives, with any of the gradients; what explains the value alone
        goes to ``in_part``."""
        value = self.value(rewrite, self.arguments, take)
        if value is None or not self.search.agrees({"value": value}):
            return
        if self.calls.wrong == {"value"}:
            name = rewrite.said(" in the value alone" if rewrite.local else "in the value alone")
            yield self.candidate(name, rewrite, take), {**self.calls.true, "value": value}
            return
        name = rewrite.said("")
        ways = [("", take)]
        if rewrite.local:
            ways.append((", with the right call's gradient", _with(forward, take)))
        for text, way in ways:
            candidate = self.candidate(name + text, rewrite, way)
            reading = self.calls.edited(candidate)
            if reading and self.search.explains(reading):
                yield candidate, reading
                return
        if take is the_other and "value" in self.given:
            candidate = self.candidate(name, rewrite, take)
            self.in_part.append((candidate, {**self.calls.true, **self.given, "value": value}))

    def of_the_value_alone(self) -> Readings:
        """Edits that explain the value, and what else is wrong."""
        for candidate, reading in self.in_part:
            if self.search.gap.get("value", 0) > KNOWN:
                rest = self._rest(candidate) or "the gradients are wrong in another way"
                yield candidate._replace(name=f"{candidate.name}; {rest}", sized=None), reading

    def _rest(self, candidate: Candidate) -> str:
        """What else is wrong, beside an edit of the value."""
        rewrite, take = candidate.rerun.args  # type: ignore[union-attr]
        true = self.results(rewrite, take, self.arguments)
        with rewrite.written.running(rewrite.code, take):
            finite = true and all(np.isfinite(value).all() for value in true.values())
            return str(self.search.besides(true, self.runs)) if finite else ""

    def reshaped(self) -> Readings:
        """Edits of the entries of values."""
        for rewrite, right in self.single():
            for how, form in forms(np.shape(right)) if isinstance(right, np.ndarray) else ():
                if not how.startswith(("has its mean", "has its sum")):
                    name = f"{rewrite.name} an array that {how}"
                    yield from self.computed(rewrite._replace(name=name), partial(_formed, form))

    def single(self) -> Iterator[tuple[Rewrite, Operand]]:
        """Every expression whose value is read, each as a rewrite that changes nothing, and what it
        is in the last turn."""
        for function in self.written:
            for block in expressions(function.tree):
                code = self.compiled(function, [(block, hooked(block.node))])
                seen: list[Operand] = []
                if code:
                    name = f"`{shown(block.node)}` (line {block.node.lineno}) {VERB}"
                    rewrite = Rewrite(name, function, code, True)
                    self.value(rewrite, self.arguments, partial(_keep, seen))
                    if seen:
                        yield rewrite, seen[-1]

    def constants(self) -> Iterator[tuple[Rewrite, Block]]:
        """Every real constant, each as a rewrite that changes nothing."""
        for function in self.written:
            for block in blocks(function.tree):
                c = constant_of(block.node) if isinstance(block.node, ast.expr) else None
                whole = isinstance(block.holder, (ast.Subscript, ast.Slice, ast.Tuple, ast.keyword))
                if isinstance(c, bool) or not isinstance(c, (int, float)) or whole:
                    continue
                if code := self.compiled(function, [(block, hooked(block.node))]):
                    inside = block.holder if isinstance(block.holder, ast.expr) else block.node
                    line, text = block.node.lineno, ast.unparse(block.node)
                    name = f"`{shown(inside)}` (line {line}) has {VERB} for `{text}`"
                    yield Rewrite(name, function, code, local=False), block

    def of_gradients(self) -> Readings:
        """Edits of the gradient, with the right value."""
        for rewrite in self.rewrites():
            right, _, other = rewrite.name.partition(f" {VERB} ")
            kept = self._kept(rewrite) if rewrite.local else None
            if kept and self._slope_fits(rewrite, *kept):
                yield from self._in_the_gradient(
                    f"the gradient takes {other} for {right}", rewrite, backward
                )
            if self._slope_fits(rewrite, the_other, the_other):
                name = f"in the gradient, {rewrite.said('')}"
                yield from self._in_the_gradient(name, rewrite, the_other)

    def of_slopes(self) -> Readings:
        """Other slopes of expressions of one variable."""
        for function in self.written:
            for block in expressions(function.tree):
                if is_atom(block.node):
                    continue
                for part in parts_alone(block.node, function.scope):
                    edits = [(block, hooked(block.node, part))]
                    if code := self.compiled(function, edits):
                        where = f"`{shown(block.node)}` (line {block.node.lineno})"
                        what = f"the gradient of `{shown(part)}` in {where} has the slope {VERB}"
                        yield from self._sloped(Rewrite(what, function, code, local=True))

    def _sloped(self, rewrite: Rewrite) -> Readings:
        for text in (*SLOPES, "y / x", "y (1 - y) / x"):
            slope = formula(text, "x, y")
            kept = self._kept(rewrite, slope)
            if not kept:
                return
            if self._slope_fits(rewrite, *kept):
                name = rewrite.name.replace(VERB, f"{text}, with the result y")
                yield from self._in_the_gradient(name, rewrite, partial(_with_slope, slope))

    def _in_the_gradient(self, name: str, rewrite: Rewrite, take: Take) -> Readings:
        candidate = self.candidate(name, rewrite, take)
        if reading := self.calls.edited(candidate):
            yield candidate, {**reading, "value": self.calls.true["value"]}

    def _kept(self, rewrite: Rewrite, slope: Slope = _one) -> tuple[Take, Take] | None:
        """What gives an expression its right values, moved as the other one moves, times a slope,
        for two runs; None if it cannot move so."""
        kept: list[tuple[Operand, Operand]] = []

        def keep(right: Operand, other: Operand) -> Operand:
            kept.append((right, other))
            return right

        self.value(rewrite, self.arguments, keep)
        if not any(_moves(right, other) for right, other in kept):
            return None

        def taking() -> Take:
            values = iter(kept)

            def take(right: Operand, other: Operand) -> Operand:
                first, second = next(values)
                if not _moves(first, second):
                    return first
                return first + (other - second) * slope(second, first)

            return take

        return taking(), taking()

    def _slope_fits(self, rewrite: Rewrite, more: Take, less: Take) -> bool:
        """Whether another function moves along the direction as the gradients that were given."""
        a = self.value(rewrite, self.calls.tape.moved(STEP), more)
        b = self.value(rewrite, self.calls.tape.moved(-STEP), less)
        if a is None or b is None:
            return False
        slope = self._total(a - b) / (2 * STEP)
        given, right, size = self.along
        return abs(slope - given) <= CLOSE * size + NEAR * abs(right)

    def _total(self, value: Array) -> float:
        """The sum of a value times the cotangent."""
        if self.certified.cotangent is None:
            return float(value.sum())
        weight = np.asarray(self.certified.cotangent)
        if value.ndim > weight.ndim:
            weight = np.stack([weight.real, weight.imag], axis=-1)
        return float((weight.real * value).sum())

    @cached_property
    def along(self) -> tuple[float, float, float]:
        """The slopes along the tape's direction by the gradients that were given and by the right
        ones, and the size of what the former are off by."""
        names = sorted(self.calls.wrong - {"value"})
        direction, true = self.calls.tape.direction, self.calls.true
        given, right = (
            sum(float((results[name] * direction[name]).sum()) for name in names)
            for results in (self.given, true)
        )
        off = [np.linalg.norm(self.given[name] - true[name]) for name in names]
        return given, right, float(np.linalg.norm(off))


def _wide(name: str, array: Array) -> Array:
    return array.astype(complex if array.dtype.kind == "c" else float)


def _with(way: Take, take: Take) -> Take:
    return lambda right, other: way(right, take(right, other))


def _formed(form: Callable[[Operand], Operand], right: Operand, other: Operand) -> Operand:
    return form(right)


def _with_slope(slope: Slope, right: Operand, other: Operand) -> Operand:
    """The right value, whose gradient goes to the other operand with a slope."""
    recorded = isinstance(right, Recorded) and isinstance(other, Recorded)
    return straight(right, other * slope(other.raw, right.raw)) if recorded else right


def _keep(seen: list[Operand], right: Operand, other: Operand) -> Operand:
    seen.append(right)
    return right


def _moves(right: Operand, other: Operand) -> bool:
    """Whether both are numbers of one shape that move with the arguments."""
    both = [isinstance(x, (np.ndarray, np.floating, np.complexfloating)) for x in (right, other)]
    return all(both) and right.dtype.kind in "fc" and np.shape(right) == np.shape(other)


def _named(block: Block, other: ast.expr, text: str) -> str:
    """An expression and another one as text, with VERB where the verb stands; of one that its line
    has twice, what holds it."""
    right, holder = block.node, block.holder
    if isinstance(holder, (ast.Assign, ast.AugAssign)) and is_atom(right):
        right, other = holder, with_part(holder, block.field, block.place, other)
    line, both = f"(line {right.lineno})", (ast.unparse(right), ast.unparse(other))
    if text:
        return f"`{shown(right)}` {line} {VERB} {text}"
    if max(map(len, both)) <= LENGTH:
        return f"`{both[0]}` {line} {VERB} `{both[1]}`"
    old, new = (ast.unparse(part) for part in difference(right, other))
    if max(len(old), len(new)) <= LENGTH:
        return f"`{old}` in `{shown(right)}` {line} {VERB} `{new}`"
    start = max(len(commonprefix((old, new))) - LENGTH // 2, 0)
    old, new = (f"{'... ' * (start > 0)}{part[start : start + LENGTH]}" for part in (old, new))
    return f"`{old}` {line} {VERB} `{new}`"


def _sized(right: ast.expr, other: ast.expr, scope: Scope) -> str:
    """What stands for a size, which is another number at other sizes, or ""."""
    old, new = difference(right, other)
    before, now = (sum(map(scope.is_size, ast.walk(part))) for part in (old, new))
    return ast.unparse(new) if now > before or scope.is_size(old) and old is right else ""
