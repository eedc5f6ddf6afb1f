"""What an expression or a statement in a user's function may be taken for, as Python's syntax.

Each rule is about syntax alone, so that it holds for any function: another operand, operator, order
of operations, constant, variable, index, axis or function of the same kind; a part that is left
out; statements that are left out or change places.

Checked by: tests/check/test_source_edits.py.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from copy import copy, deepcopy
from functools import partial
from itertools import combinations, islice, pairwise
from typing import Any, NamedTuple

import numpy as np

from refnet.exact.recorder import Operand

__all__ = [
    "Block",
    "Scope",
    "blocks",
    "constant_of",
    "difference",
    "expressions",
    "is_atom",
    "other_blocks",
    "others",
    "parts_alone",
    "with_part",
    "wrapped",
]

OPERATORS: dict[type[ast.operator], tuple[type[ast.operator], ...]] = {
    ast.Add: (ast.Sub, ast.Mult),
    ast.Sub: (ast.Add, ast.Mult),
    ast.Mult: (ast.Div, ast.Add, ast.MatMult),
    ast.Div: (ast.Mult, ast.Sub),
    ast.MatMult: (ast.Mult,),
    ast.FloorDiv: (ast.Div,),
    ast.Pow: (ast.Mult,),
}
"""Operators that are taken for each other."""
COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq, ast.LtE, ast.GtE),
    ast.NotEq: (ast.Eq,),
}
KINDS = (
    "logsumexp max sum",
    "exp log sqrt square abs tanh sin cos sinh cosh expm1 log1p arctan", "sum mean max min prod",
    "cumsum cumprod", "var std", "triu tril", "maximum minimum", "zeros ones", "argmax argmin",
    "softmax log_softmax", "fft ifft", "floor ceil round",
)  # fmt: skip
"""Functions that are taken for each other."""
FAMILY = {name: [*kind.split()] for kind in KINDS for name in kind.split()}
WRAPS = (
    "-_", "2 * _", "_ / 2", "_ ** 2", "np.sqrt(_)", "abs(_)", "np.exp(_)", "np.log(_)",
    "np.tanh(_)", "1 - _", "1 / _", "1 + _", "_.T", "_[::-1]", "_[::-1, ::-1]", "0 * _",
)  # fmt: skip
"""What is taken for an array or number _."""
PARTS_OF = {"real": "imag", "imag": "real"}
INTEGERS = ("_ - 1", "_ + 1", "2 * _", "_ // 2")
FLOATS = (
    "0.0",
    "2 * _",
    "_ / 2",
    "-_",
    "_ ** 2",
    "_ ** 0.5",
    "1 / _",
    "1 - _",
    "10 * _",
    "_ / 10",
    "1.0",
)
"""What is taken for a constant."""
SPECIAL = {"range": ("range(1, _)", "range(_ - 1)", "range(_)[::-1]", "range(_ - 1)[::-1]")}
"""What is taken for a function of one argument."""
WORDS = {
    "erf": ("np.tanh(1.1283791670955126 * (_ + 0.08943 * _ ** 3))", "the tanh near it"),
    "mean": ("__ * _.size / (_.size - __.size)", "the sum divided by n - 1"),
}
"""The same, of the argument _ and the result __, in words."""
LAST = "(__.T * (np.triu(np.equal.outer(_, _), 1).sum(1) == 0)).T"
"""What an array __ of the rows with indices _ is of those alone that no equal index follows."""
MOST = 60
"""The most pairs of parts that are exchanged."""
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


def with_part(node: Any, field: str, place: int | None, other: Any) -> Any:
    """A copy with another part."""
    new = copy(node)
    setattr(new, field, other if place is None else [*getattr(node, field)])
    if place is not None:
        getattr(new, field)[place] = other
    return new


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


def _filled(text: str, numpy: str, part: ast.expr, whole: ast.expr | None = None) -> ast.expr:
    """A template with expressions in the place of _ and __."""
    parts = {"_": part, "__": whole}

    class Fill(ast.NodeTransformer):
        def visit_Name(self, name: ast.Name) -> ast.AST:
            return parts.get(name.id) or name

    filled: ast.expr = Fill().visit(ast.parse(text.replace("np.", f"{numpy}."), mode="eval").body)
    return filled


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


def _of_an_atom(atom: ast.expr, scope: Scope) -> Iterator[ast.expr]:
    """What is taken for a name or a number."""
    if isinstance(atom, ast.Name):
        like = scope.like(atom.id)
        yield from (ast.Name(other, ast.Load()) for other in like)
        if _kind_of(scope.names.get(atom.id)) is not int:
            variables = (ast.Name(other, ast.Load()) for other in like)
            yield from (_filled("1 - _", scope.numpy, other) for other in variables)
        if _kind_of(scope.names.get(atom.id)) is int:
            texts = (*INTEGERS, *(f"_ * {other}" for other in like))
            yield from (_filled(text, scope.numpy, atom) for text in texts)
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
                value = eval(text, {"_": c})
                if isinstance(value, float) and value != c:
                    yield ast.Constant(float(f"{value:.15g}"))


def wrapped(node: ast.expr, scope: Scope) -> Iterator[Other]:
    """A function of an expression, or of a variable in it, or a multiple."""
    if not isinstance(node, (ast.Compare, ast.BoolOp, ast.ListComp, ast.GeneratorExp)):
        if constant_of(node) is None:
            yield from (Other(_filled(text, scope.numpy, node)) for text in WRAPS)
    for atom, rebuilt in _atoms(node):
        if isinstance(atom, ast.Name) and _kind_of(scope.names.get(atom.id)) not in (None, int):
            yield from (Other(rebuilt(_filled(text, scope.numpy, atom))) for text in WRAPS)


def others(node: ast.expr, scope: Scope) -> Iterator[Other]:
    """What is taken for an expression."""
    yield from map(Other, _others(node, scope))
    if isinstance(node, ast.Subscript) and isinstance(index := node.slice, ast.Name):
        i = scope.names.get(index.id)
        if isinstance(i, np.ndarray) and i.dtype.kind in "iu" and i.ndim == 1:
            yield Other(_filled(LAST, scope.numpy, index, node), "the last of equal indices alone")
    if isinstance(node, ast.Call) and (argument := _argument(node, scope)):
        if words := WORDS.get(_name_of(node)):
            yield Other(_filled(words[0], scope.numpy, argument, node), words[1])


def _others(node: ast.expr, scope: Scope) -> Iterator[ast.expr]:
    if is_atom(node):
        yield from _of_an_atom(node, scope)
        return
    for atom, rebuilt in _atoms(node):
        for other in _of_an_atom(atom, scope):
            yield rebuilt(other)
    rules = RULES.get(type(node))
    if rules is not None:
        yield from rules(node, scope)


def _operation(node: ast.BinOp, scope: Scope) -> Iterator[ast.expr]:
    """Another operator or order, or one operand alone."""
    a, b, op = node.left, node.right, node.op
    yield from (ast.BinOp(a, other(), b) for other in OPERATORS.get(type(op), ()))
    yield a
    yield b
    if not isinstance(op, (ast.Add, ast.Mult)):
        yield ast.BinOp(b, op, a)
    if isinstance(op, ast.MatMult):
        yield _turned(node)
    if isinstance(a, ast.BinOp):
        yield ast.BinOp(a.left, a.op, ast.BinOp(a.right, op, b))
    if isinstance(b, ast.BinOp):
        yield ast.BinOp(ast.BinOp(a, op, b.left), b.op, b.right)
    for k, side in enumerate((a, b)):
        if isinstance(side, ast.Call) and side.args:
            inner = ast.BinOp(side.args[0], op, b) if k == 0 else ast.BinOp(a, op, side.args[0])
            yield with_part(side, "args", 0, inner)
        if isinstance(side, ast.UnaryOp) and isinstance(side.op, ast.USub):
            inner = ast.BinOp(side.operand, op, b) if k == 0 else ast.BinOp(a, op, side.operand)
            yield ast.UnaryOp(ast.USub(), inner)


def _name_of(node: ast.Call) -> str:
    """The name of what is called."""
    return getattr(node.func, "attr", "") or getattr(node.func, "id", "")


def _owner(node: ast.Call, scope: Scope) -> ast.expr | None:
    """The array whose method is called."""
    if not isinstance(node.func, ast.Attribute):
        return None
    root = node.func.value
    while isinstance(root, ast.Attribute):
        root = root.value
    of_a_module = isinstance(root, ast.Name) and root.id not in scope.names
    return None if of_a_module else node.func.value


def _argument(node: ast.Call, scope: Scope) -> ast.expr | None:
    """What a function is applied to."""
    return _owner(node, scope) or (node.args[0] if node.args else None)


def _call(node: ast.Call, scope: Scope) -> Iterator[ast.expr]:
    """Another function, its argument alone, functions in the other order, other options."""
    name, owner, argument = _name_of(node), _owner(node, scope), _argument(node, scope)
    if argument is None:
        return
    if name != "range":
        yield argument
    for other in FAMILY.get(name, ()):
        if other != name and isinstance(node.func, ast.Attribute):
            yield ast.Call(with_part(node.func, "attr", None, other), node.args, node.keywords)
    for text in SPECIAL.get(name, ()) if len(node.args) == 1 else ():
        yield _filled(text, scope.numpy, argument)

    def applied(inner: ast.expr) -> ast.expr:
        if owner is not None:
            func = with_part(node.func, "value", None, inner)
            return ast.Call(func, node.args, node.keywords)
        return ast.Call(node.func, [inner, *node.args[1:]], node.keywords)

    if isinstance(argument, ast.BinOp):
        a, op, b = argument.left, argument.op, argument.right
        yield ast.BinOp(applied(a), op, b)
        yield ast.BinOp(a, op, applied(b))
        yield ast.BinOp(applied(a), op, applied(b))
    if isinstance(argument, ast.UnaryOp):
        yield ast.UnaryOp(argument.op, applied(argument.operand))
    if isinstance(argument, ast.Call) and argument.args:
        yield with_part(argument, "args", 0, applied(argument.args[0]))
    if len(node.args) > 1 and owner is None:
        yield ast.Call(node.func, [node.args[1], node.args[0], *node.args[2:]], node.keywords)
    if name == "solve" and len(node.args) == 2:
        a, b = node.args
        yield ast.BinOp(a, ast.MatMult(), b)
        yield ast.BinOp(ast.Attribute(a, "T", ast.Load()), ast.MatMult(), b)
    if isinstance(argument, (ast.List, ast.Tuple)) and len(argument.elts) == 2 and not owner:
        yield applied(with_part(argument, "elts", None, argument.elts[::-1]))
    if name == "norm" and len(node.args) > 1:
        orders = [ast.Constant(n) for n in (None, 1, 2, "nuc")]
        yield from (ast.Call(node.func, [argument, n], node.keywords) for n in orders)
    if name == "einsum":
        yield from (with_part(node, "args", 0, text) for text in _subscripts(argument))
    if name == "where" and len(node.args) == 3:
        condition, a, b = node.args
        yield from (a, b, ast.Call(node.func, [condition, b, a], []))
    for n in range(len(node.keywords)):
        yield ast.Call(node.func, node.args, node.keywords[:n] + node.keywords[n + 1 :])
    option, values = {
        "var": ("ddof", (1,)), "std": ("ddof", (1,)), "cov": ("ddof", (0,)),
        "norm": ("ord", (1, "nuc", "fro")),
        "triu": ("k", (1, -1)), "tril": ("k", (1, -1)), "eye": ("k", (1, -1)),
    }.get(name, ("axis", (0, 1, -1)) if name in FAMILY else ("", ()))  # fmt: skip
    if not any(keyword.arg == option for keyword in node.keywords):
        for value in values:
            keyword = ast.keyword(option, ast.Constant(value))
            yield ast.Call(node.func, node.args, [*node.keywords, keyword])


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
        yield from (_filled(text, scope.numpy, node) for text in INTEGERS)
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


def _comparison(node: ast.Compare, scope: Scope) -> Iterator[ast.expr]:
    for other in COMPARISONS.get(type(node.ops[0]), ()):
        yield ast.Compare(node.left, [other(), *node.ops[1:]], node.comparators)


def _choice(node: ast.IfExp, scope: Scope) -> Iterator[ast.expr]:
    yield from (node.body, node.orelse)


def _unary(node: ast.UnaryOp, scope: Scope) -> Iterator[ast.expr]:
    yield node.operand


def _attribute(node: ast.Attribute, scope: Scope) -> Iterator[ast.expr]:
    if node.attr in PARTS_OF:
        yield with_part(node, "attr", None, PARTS_OF[node.attr])
    if node.attr in ("T", *PARTS_OF):
        yield node.value


RULES: dict[type, Callable[..., Iterator[ast.expr]]] = {
    ast.BinOp: _operation,
    ast.Call: _call,
    ast.Subscript: _index,
    ast.Compare: _comparison,
    ast.IfExp: _choice,
    ast.UnaryOp: _unary,
    ast.Attribute: _attribute,
}
SIMPLE = (ast.Assign, ast.AugAssign, ast.Expr)


def other_blocks(tree: ast.AST, scope: Scope) -> Iterator[tuple[str, list[tuple[Block, ast.AST]]]]:
    """What is taken for statements, or at all places at once: each with its text, and what stands
    where instead."""
    yield from _everywhere(tree, scope)
    yield from _exchanged(tree)
    for block in blocks(tree):
        node = block.node
        if isinstance(node, ast.stmt):
            text = ast.unparse(node).splitlines()[0]
            what = f"line {node.lineno} (`{text}`)"
            if isinstance(node, SIMPLE) and not isinstance(
                getattr(node, "value", None), ast.Constant
            ):
                yield f"{what} is left out", [(block, ast.Pass())]
            if isinstance(node, ast.AugAssign):
                for other in OPERATORS.get(type(node.op), ())[:1]:
                    new = ast.AugAssign(node.target, other(), node.value)
                    yield f"{what} is `{ast.unparse(new)}`", [(block, new)]
                new_value = ast.Assign([node.target], node.value)
                yield f"{what} is `{ast.unparse(new_value)}`", [(block, new_value)]
            if isinstance(node, ast.If):
                for value in (True, False):
                    new_if = ast.If(ast.Constant(value), node.body, node.orelse)
                    yield f"{what} is always {value}", [(block, new_if)]
        for _, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                yield from _in_the_other_order(node, value)


def _exchanged(tree: ast.AST) -> Iterator[tuple[str, list[tuple[Block, ast.AST]]]]:
    """Two parts of one array, each where the other one stands."""
    parts: dict[str, list[Block]] = {}
    for block in expressions(tree):
        if isinstance(block.node, ast.Subscript):
            parts.setdefault(ast.unparse(block.node.value), []).append(block)
    for a, b in islice((pair for same in parts.values() for pair in combinations(same, 2)), MOST):
        texts = [f"`{ast.unparse(block.node)}` (line {block.node.lineno})" for block in (a, b)]
        if ast.unparse(a.node) != ast.unparse(b.node):
            yield f"{' and '.join(texts)} change places", [(a, b.node), (b, a.node)]


def _everywhere(tree: ast.AST, scope: Scope) -> Iterator[tuple[str, list[tuple[Block, ast.AST]]]]:
    """Another axis, constant or variable wherever it stands, if it does so more than once."""
    places: dict[str, list[Block]] = {}
    for block in blocks(tree):
        node = block.node
        axes = [k for k in node.keywords if k.arg == "axis"] if isinstance(node, ast.Call) else []
        if axes:
            places.setdefault(ast.unparse(axes[0]), []).append(block)
        elif is_atom(node) and not isinstance(getattr(node, "ctx", None), ast.Store):
            places.setdefault(ast.unparse(node), []).append(block)
    for text, every in places.items():
        if len(every) < 2:
            continue
        lines = f"(lines {', '.join(map(str, sorted({block.node.lineno for block in every})))})"
        for what, news in _instead(text, [block.node for block in every], scope):
            yield f"`{what}` stands for `{text}` everywhere {lines}", [*zip(every, news)]


def _instead(text: str, nodes: list[Any], scope: Scope) -> Iterator[tuple[str, list[ast.expr]]]:
    """What stands for all of these nodes: calls along an axis, or names or numbers."""
    if not isinstance(nodes[0], ast.Call):
        for other in _of_an_atom(nodes[0], scope):
            yield ast.unparse(other), [other] * len(nodes)
        return
    for axis in (0, 1, 2, -1):
        for kept in ([], [ast.keyword("keepdims", ast.Constant(True))]):
            options = [ast.keyword("axis", ast.Constant(axis)), *kept]
            what = ", ".join(map(ast.unparse, options))
            names = {option.arg for option in options}
            yield (
                what,
                [
                    with_part(
                        x, "keywords", None, [k for k in x.keywords if k.arg not in names] + options
                    )
                    for x in nodes
                ],
            )


def _in_the_other_order(
    holder: ast.AST, body: list[ast.stmt]
) -> Iterator[tuple[str, list[tuple[Block, ast.AST]]]]:
    field = next(name for name, value in ast.iter_fields(holder) if value is body)
    for n, (a, b) in enumerate(pairwise(body)):
        if isinstance(a, SIMPLE) and isinstance(b, SIMPLE):
            text = f"lines {a.lineno} and {b.lineno} change places"
            yield text, [(Block(holder, field, n), b), (Block(holder, field, n + 1), a)]


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
