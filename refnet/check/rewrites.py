"""What an expression in a user's function may be taken for, as Python's syntax.

Each rule is about syntax alone, so that it holds for any function: another constant, variable,
size, index, axis or function of the same kind, and what ``refnet.check.patterns`` has.

Checked by: tests/check/test_source_edits.py.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from itertools import chain, pairwise, starmap
from typing import Any, NamedTuple

import numpy as np

from refnet.check.patterns import filled, name_of, taken_for, with_part
from refnet.exact.recorder import Operand

__all__ = [
    "Block",
    "Scope",
    "blocks",
    "constant_of",
    "difference",
    "expressions",
    "is_atom",
    "of_an_atom",
    "others",
    "parts_alone",
    "wrapped",
]

KINDS = (
    "logsumexp max sum",
    "exp log sqrt square abs tanh sin cos sinh cosh expm1 log1p arctan", "sum mean max min prod",
    "cumsum cumprod", "var std", "triu tril", "maximum minimum", "zeros ones", "argmax argmin",
    "softmax log_softmax", "fft ifft", "floor ceil round",
)  # fmt: skip
"""Functions that are taken for each other."""
FAMILY = {name: [*kind.split()] for kind in KINDS for name in kind.split()}
WRAPS = (
    "-a", "2 * a", "a / 2", "a ** 2", "np.sqrt(a)", "np.abs(a)", "np.exp(a)", "np.log(a)",
    "np.tanh(a)", "1 - a", "1 / a", "1 + a", "a.T", "a[::-1]", "a[::-1, ::-1]", "0 * a",
)  # fmt: skip
"""What is taken for an array or number a."""
INTEGERS = ("a - 1", "a + 1", "2 * a", "a // 2")
FLOATS = (
    "0.0",
    "2 * a",
    "a / 2",
    "-a",
    "a ** 2",
    "a ** 0.5",
    "1 / a",
    "1 - a",
    "10 * a",
    "a / 10",
    "1.0",
)
"""What is taken for a constant."""
LAST = "(e.T * (np.triu(np.equal.outer(a, a), 1).sum(1) == 0)).T"
"""What an array e of the rows with indices a is of those alone that no equal index follows."""
VARIABLES = 6
"""The most variables that are tried in the place of one."""


class Scope(NamedTuple):
    """The variables where an expression stands, by name, and the name of NumPy."""

    names: dict[str, Operand]
    numpy: str

    def is_size(self, node: ast.AST) -> bool:
        """Whether an expression is a whole number that has a name."""
        if isinstance(node, ast.Subscript):
            return isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
        return isinstance(node, ast.Name) and _kind_of(self.names.get(node.id)) is int

    def arrays(self, node: ast.AST) -> set[str]:
        """The arrays that an expression reads."""
        names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        return {name for name in names if isinstance(self.names.get(name), np.ndarray)}

    def like(self, name: str) -> list[str]:
        """Other variables of the same kind and shape."""
        kind = _kind_of(self.names.get(name))
        if not kind:
            return []
        same = [other for other, value in self.names.items() if _kind_of(value) == kind]
        return [other for other in same if other != name][-VARIABLES:]


def _kind_of(value: Operand) -> object:
    if isinstance(value, (bool, np.bool_)):
        return None
    if isinstance(value, (int, np.integer)):
        return int
    if isinstance(value, (float, np.floating)):
        return float
    return value.shape if isinstance(value, np.ndarray) else None


class Other(NamedTuple):
    """What is taken for an expression, and its text if that is not its source."""

    node: ast.expr
    text: str = ""


class Block(NamedTuple):
    """Where an expression or a statement stands: what holds it, in which field, and where in a
    list of them."""

    holder: ast.AST
    field: str
    place: int | None

    @property
    def node(self) -> Any:
        """What stands there."""
        value = getattr(self.holder, self.field)
        return value if self.place is None else value[self.place]

    def put(self, node: ast.AST) -> None:
        """Put something else there."""
        if self.place is None:
            setattr(self.holder, self.field, node)
        else:
            getattr(self.holder, self.field)[self.place] = node


def blocks(tree: ast.AST) -> Iterator[Block]:
    """Every node under a tree, and where it stands."""
    for field, value in ast.iter_fields(tree):
        if field in ("decorator_list", "args", "returns", "annotation") and not isinstance(
            tree, ast.Call
        ):
            continue
        for place, child in enumerate(value) if isinstance(value, list) else ((None, value),):
            if isinstance(child, ast.AST):
                yield Block(tree, field, place)
                yield from blocks(child)


PARTS = (ast.Tuple, ast.List, ast.Slice, ast.keyword, ast.Starred)
"""What an expression consists of that is no expression by itself, as a reader sees it."""


def expressions(tree: ast.AST) -> Iterator[Block]:
    """The expressions whose value is read; numbers and names only if they stand by themselves."""
    for block in blocks(tree):
        node = block.node
        if not isinstance(node, ast.expr) or isinstance(node, (*PARTS, ast.Lambda, ast.JoinedStr)):
            continue
        if isinstance(block.holder, (ast.JoinedStr, ast.FormattedValue, ast.Expr)):
            continue
        if isinstance(block.holder, ast.Call) and block.field == "func":
            continue
        stores = isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del))
        inside = isinstance(block.holder, (ast.expr, *PARTS))
        if not (stores or is_atom(node) and inside):
            yield block


def _atoms(node: ast.AST) -> Iterator[tuple[ast.expr, Callable[[ast.expr], ast.expr]]]:
    """The names and numbers of an expression, and how it is made with another one there."""
    for field, value in ast.iter_fields(node):
        for place, child in enumerate(value) if isinstance(value, list) else ((None, value),):
            rebuilt = partial(with_part, node, field, place)
            if is_atom(child) and field != "func":
                yield child, rebuilt
            elif isinstance(child, PARTS):
                for atom, inner in _atoms(child):
                    yield atom, partial(_through, rebuilt, inner)


def _through(
    outer: Callable[[ast.expr], ast.expr], inner: Callable[[ast.expr], ast.expr], other: ast.expr
) -> ast.expr:
    return outer(inner(other))


def constant_of(node: ast.AST) -> Operand:
    """The constant that an expression is, or None."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        c = constant_of(node.operand)
        return None if c is None else -c
    return node.value if isinstance(node, ast.Constant) else None


def parts_alone(node: ast.expr, scope: Scope) -> Iterator[ast.expr]:
    """The parts of an expression through which alone it depends on arrays."""
    names = scope.arrays(node)
    if len(names) == 1:
        yield ast.Name(min(names), ast.Load())
    for part in ast.iter_child_nodes(node):
        rest = [x for x in ast.iter_child_nodes(node) if x is not part and scope.arrays(x)]
        if isinstance(part, ast.expr) and not is_atom(part) and scope.arrays(part) and not rest:
            yield part
            yield from (x for x in parts_alone(part, scope) if not is_atom(x))


def is_atom(node: object) -> bool:
    """Whether an expression is a name or a constant."""
    return isinstance(node, ast.Name) or isinstance(node, ast.AST) and constant_of(node) is not None


def of_an_atom(atom: ast.expr, scope: Scope) -> Iterator[ast.expr]:
    """What is taken for a name or a number."""
    if isinstance(atom, ast.Name):
        like = scope.like(atom.id)
        yield from (ast.Name(other, ast.Load()) for other in like)
        if _kind_of(scope.names.get(atom.id)) is not int:
            variables = (ast.Name(other, ast.Load()) for other in like)
            yield from (filled("1 - a", scope.numpy, a=other) for other in variables)
        if _kind_of(scope.names.get(atom.id)) is int:
            texts = (*INTEGERS, *(f"a * {other}" for other in like))
            yield from (filled(text, scope.numpy, a=atom) for text in texts)
    else:
        c = constant_of(atom)
        if isinstance(c, bool):
            yield ast.Constant(not c)
        elif isinstance(c, int):
            yield from (ast.Constant(n) for n in (c + 1, c - 1, 2 * c, c / 2, -c, 0) if n != c)
            if abs(c) > 1:
                yield ast.Constant(1 / c)
        elif isinstance(c, float) and c:
            for text in FLOATS:
                value = eval(text, {"a": c})
                if isinstance(value, float) and value != c:
                    yield ast.Constant(float(f"{value:.15g}"))


def wrapped(node: ast.expr, scope: Scope) -> Iterator[Other]:
    """A function of an expression, or of a variable in it, or a multiple."""
    if not isinstance(node, (ast.Compare, ast.BoolOp, ast.ListComp, ast.GeneratorExp)):
        if constant_of(node) is None:
            yield from (Other(filled(text, scope.numpy, a=node)) for text in WRAPS)
    for atom, rebuilt in _atoms(node):
        if isinstance(atom, ast.Name) and _kind_of(scope.names.get(atom.id)) not in (None, int):
            yield from (Other(rebuilt(filled(text, scope.numpy, a=atom))) for text in WRAPS)


def others(node: ast.expr, scope: Scope) -> Iterator[Other]:
    """What is taken for an expression."""
    if is_atom(node):
        yield from map(Other, of_an_atom(node, scope))
        return
    atoms = (Other(with_it(x)) for atom, with_it in _atoms(node) for x in of_an_atom(atom, scope))
    patterns = starmap(Other, taken_for(node, scope.names, scope.numpy))
    first, second = (patterns, atoms) if isinstance(node, ast.BinOp) else (atoms, patterns)
    yield from chain(first, second)
    if isinstance(node, ast.Subscript):
        yield from map(Other, _index(node, scope))
        index = scope.names.get(node.slice.id) if isinstance(node.slice, ast.Name) else None
        if isinstance(index, np.ndarray) and index.dtype.kind in "iu" and index.ndim == 1:
            last = filled(LAST, scope.numpy, a=node.slice, e=node)
            yield Other(last, "the last of equal indices alone")
    if isinstance(node, ast.Call):
        yield from map(Other, _call(node, scope))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        yield Other(_turned(node))


def _call(node: ast.Call, scope: Scope) -> Iterator[ast.expr]:
    """Another function of the same kind, another axis, or an option less."""
    name = name_of(node)
    for other in FAMILY.get(name, ()):
        if other != name and isinstance(node.func, ast.Attribute):
            yield ast.Call(with_part(node.func, "attr", None, other), node.args, node.keywords)
    if name == "einsum":
        yield from (with_part(node, "args", 0, text) for text in _subscripts(node.args[0]))
    for n in range(len(node.keywords)):
        yield ast.Call(node.func, node.args, node.keywords[:n] + node.keywords[n + 1 :])
    if name in FAMILY and not any(option.arg == "axis" for option in node.keywords):
        for axis in (0, 1, -1):
            option = ast.keyword("axis", ast.Constant(axis))
            yield ast.Call(node.func, node.args, [*node.keywords, option])


def _subscripts(text: ast.expr) -> Iterator[ast.expr]:
    """The subscripts of einsum with two neighbours in another order."""
    letters = constant_of(text)
    for n, (a, b) in enumerate(pairwise(letters) if isinstance(letters, str) else ()):
        if a.isalpha() and b.isalpha():
            yield ast.Constant(f"{letters[:n]}{b}{a}{letters[n + 2 :]}")


def _turned(node: ast.BinOp) -> ast.expr:
    """A product of matrices in which each transpose is left out, and taken where there is none."""

    class Turn(ast.NodeTransformer):
        def visit_Attribute(self, x: ast.Attribute) -> ast.AST:
            return x.value if x.attr == "T" and isinstance(x.value, ast.Name) else x

        def visit_Name(self, x: ast.Name) -> ast.AST:
            return ast.Attribute(x, "T", ast.Load()) if x.id in turned else x

        def visit_Call(self, x: ast.Call) -> ast.AST:
            return x

    turned = {
        part.value.id
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute) and part.attr == "T" and isinstance(part.value, ast.Name)
    }
    other: ast.expr = Turn().visit(deepcopy(node))
    return other


def _index(node: ast.Subscript, scope: Scope) -> Iterator[ast.expr]:
    """Another axis of a shape; without an index, and slices that begin or end elsewhere."""
    if isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
        array, n = node.value.value, constant_of(node.slice)
        axes = np.ndim(scope.names.get(array.id, 0)) if isinstance(array, ast.Name) else 0
        for axis in range(axes):
            if isinstance(n, int) and axis != n % axes:
                other = ast.Subscript(node.value, ast.Constant(axis), ast.Load())
                yield from (other, ast.BinOp(node, ast.Mult(), other))
        yield from (filled(text, scope.numpy, a=node) for text in INTEGERS)
        return
    yield node.value
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    for n, part in enumerate(parts):
        if not isinstance(part, ast.Slice):
            continue
        low, high = (constant_of(end) if end else None for end in (part.lower, part.upper))
        ends = low if isinstance(low, int) else 0, high if isinstance(high, int) else 0
        bounds = [ast.Slice()] if ast.unparse(part) != ":" else []
        for by in (-1, 1):  # an end that would be at the array's own is left out
            moved = [end + by for end in ends]
            bounded = (part.lower is None) == (not ends[0]), (part.upper is None) == (not ends[1])
            if all(bounded) and any(ends):
                bounds.append(ast.Slice(*(ast.Constant(end) if end else None for end in moved)))
        if part.lower is None:
            bounds.append(ast.Slice(ast.Constant(1), part.upper, part.step))
        if part.upper is None:
            bounds.append(ast.Slice(part.lower, ast.Constant(-1), part.step))
        if part.step is None:
            bounds.append(ast.Slice(part.lower, part.upper, ast.Constant(-1)))
        for bound in bounds:
            slices = [*parts[:n], bound, *parts[n + 1 :]]
            index = slices[0] if len(slices) == 1 else ast.Tuple(slices, ast.Load())
            yield ast.Subscript(node.value, index, ast.Load())


def difference(a: ast.AST, b: ast.AST) -> tuple[ast.AST, ast.AST]:
    """The smallest parts, of two expressions, in which alone they differ."""
    if type(a) is not type(b):
        return a, b
    pairs = []
    for (_, x), (_, y) in zip(ast.iter_fields(a), ast.iter_fields(b)):
        xs, ys = ([value] if not isinstance(value, list) else value for value in (x, y))
        if len(xs) != len(ys):
            return a, b
        pairs += [(p, q) for p, q in zip(xs, ys) if p is not q and not _same(p, q)]
    if len(pairs) == 1 and all(isinstance(part, ast.expr) for part in pairs[0]):
        return difference(*pairs[0])
    return a, b


def _same(a: object, b: object) -> bool:
    if isinstance(a, ast.AST) and isinstance(b, ast.AST):
        return ast.dump(a) == ast.dump(b)
    return a == b
