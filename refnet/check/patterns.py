"""What an expression may be taken for, as pairs of expressions in Python.

In a pattern a, b and c are any expressions, f and g any functions, with whatever else they are
called with, as in ``f(a)`` or as a method, ``a.f()``; a longer name is that function alone. The
operators | and ^ are any two. So ``f(a | b)`` is ``np.sqrt(var + eps)``, for which ``f(a) | b``
puts ``np.sqrt(var) + eps``. In what is put, e is the whole expression, and np is NumPy.

>>> root = ast.parse("np.sqrt(var + eps)", mode="eval").body
>>> [ast.unparse(other) for other, _ in taken_for(root, {})][:3]
['var + eps', 'np.sqrt(var) + eps', 'var + np.sqrt(eps)']

Checked by: tests/check/test_source_edits.py.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from copy import copy, deepcopy
from functools import lru_cache
from typing import Any

__all__ = ["filled", "name_of", "owner_of", "taken_for", "with_part"]

PATTERNS = (
    ("f(a)", "a"),
    ("a | b", "a", "b"),
    ("a + b", "a - b", "a * b"),
    ("a - b", "a + b", "a * b", "b - a"),
    ("a * b", "a / b", "a + b", "a @ b"),
    ("a / b", "a * b", "a - b", "b / a"),
    ("a // b", "a / b", "b // a"),
    ("a @ b", "a * b", "b @ a"),
    ("a ** b", "a * b", "b ** a"),
    ("(a | b) ^ c", "a | (b ^ c)"),
    ("a | (b ^ c)", "(a | b) ^ c"),
    ("f(a) | b", "f(a | b)"),
    ("a | f(b)", "f(a | b)"),
    ("-a | b", "-(a | b)"),
    ("a | -b", "-(a | b)"),
    ("-a", "a"),
    ("f(a | b)", "f(a) | b", "a | f(b)", "f(a) | f(b)"),
    ("f(-a)", "-f(a)"),
    ("f(g(a))", "g(f(a))"),
    ("f(a, b)", "f(b, a)"),
    ("f(a, g(b, c))", "f(a, c)", "g(b, c)"),
    ("f([a, b])", "f([b, a])"),
    ("f((a, b))", "f((b, a))"),
    ("a < b", "a <= b", "a > b"),
    ("a <= b", "a < b", "a >= b"),
    ("a > b", "a >= b", "a < b"),
    ("a >= b", "a > b", "a <= b"),
    ("a == b", "a != b", "a <= b", "a >= b"),
    ("a != b", "a == b"),
    ("a if b else c", "a", "c"),
    ("a.T", "a"),
    ("a.real", "a.imag", "a"),
    ("a.imag", "a.real", "a"),
    ("where(a, b, c)", "b", "c", "where(a, c, b)"),
    ("solve(a, b)", "a @ b", "a.T @ b"),
    ("norm(a)", "norm(a, ord=1)", "norm(a, ord='nuc')"),
    ("norm(a, b)", "norm(a)", "norm(a, 1)", "norm(a, 2)", "norm(a, 'nuc')"),
    ("var(a)", "var(a, ddof=1)"),
    ("std(a)", "std(a, ddof=1)"),
    ("cov(a)", "cov(a, ddof=0)"),
    ("triu(a)", "triu(a, k=1)", "triu(a, k=-1)"),
    ("tril(a)", "tril(a, k=1)", "tril(a, k=-1)"),
    ("eye(a)", "eye(a, k=1)", "eye(a, k=-1)"),
    ("range(a)", "range(1, a)", "range(a - 1)", "range(a)[::-1]", "range(a - 1)[::-1]"),
    ("tanh(a)", "np.maximum(a, 0)", "1 / (1 + np.exp(-a))"),
)
"""An expression, and what is taken for it."""
WORDS = (
    ("erf(a)", "np.tanh(1.1283791670955126 * (a + 0.08943 * a ** 3))", "the tanh near it"),
    ("mean(a)", "e * a.size / (a.size - e.size)", "the sum divided by n - 1"),
)
"""The same, with what it is called."""
Names = Collection[str]
Found = dict[Any, Any]
"""The expressions, functions and operators that the letters of a pattern are; and, by NAMES, the
names of variables."""
NAMES = "names"


def taken_for(node: ast.expr, names: Names, numpy: str = "np") -> Iterator[tuple[ast.expr, str]]:
    """What is taken for an expression among variables of these ``names``, each with what it is
    called if it has a name."""
    for pattern, *others in PATTERNS:
        found: Found = {NAMES: names}
        if _matches(_parsed(pattern), node, found):
            yield from ((_built(other, found, numpy), "") for other in others)
    for pattern, other, words in WORDS:
        found = {NAMES: names, "e": node}
        if _matches(_parsed(pattern), node, found):
            yield _built(other, found, numpy), words


def filled(text: str, numpy: str, **letters: ast.expr) -> ast.expr:
    """A template with expressions for its letters."""
    return _built(text, letters, numpy)


@lru_cache(maxsize=256)
def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _matches(pattern: ast.AST, node: Any, found: Found) -> bool:
    """Whether an expression has a pattern, with what its letters are."""
    if isinstance(pattern, ast.Name):
        found[pattern.id] = node
        return isinstance(node, ast.expr)
    if not _same_kind(pattern, node):
        return False
    if isinstance(pattern, ast.Call):
        name = name_of(pattern)
        owner = owner_of(node, found[NAMES])
        operands = [owner, *node.args] if owner else node.args
        found[name] = node, operands[len(pattern.args) :]
        alike = len(name) == 1 or name == name_of(node)
        enough = len(operands) >= len(pattern.args)
        pairs = zip(pattern.args, operands)
        return alike and enough and all(_matches(*pair, found) for pair in pairs)
    if isinstance(pattern, ast.BinOp) and isinstance(pattern.op, ANY):
        found[type(pattern.op)] = node.op
        return _matches(pattern.left, node.left, found) and _matches(
            pattern.right, node.right, found
        )
    parts, others = ([*ast.iter_child_nodes(x)] for x in (pattern, node))
    return len(parts) == len(others) and all(
        _matches(part, other, found) for part, other in zip(parts, others)
    )


def _same_kind(pattern: ast.AST, node: ast.AST) -> bool:
    same = getattr(pattern, "attr", "") == getattr(node, "attr", "")
    return type(pattern) is type(node) and (same or isinstance(pattern, ast.Call))


ANY = (ast.BitOr, ast.BitXor)
"""The operators of patterns that are any."""


def _built(text: str, found: Found, numpy: str) -> ast.expr:
    """A template with what the letters of its pattern are."""

    class Build(ast.NodeTransformer):
        def visit_Name(self, name: ast.Name) -> ast.AST:
            usual = ast.Name(numpy, ast.Load()) if name.id == "np" else name
            return found.get(name.id, usual)  # type: ignore[no-any-return]

        def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
            op = found.get(type(node.op), node.op)
            return ast.BinOp(self.visit(node.left), op, self.visit(node.right))

        def visit_Call(self, call: ast.Call) -> ast.AST:
            if not isinstance(call.func, ast.Name):
                return self.generic_visit(call)
            usual, rest = found.get(call.func.id, (call, []))
            operands = [*map(self.visit, call.args), *rest]
            func, new = usual.func, {option.arg for option in call.keywords}
            if owner_of(usual, found.get(NAMES, ())) is not None:
                func = with_part(func, "value", None, operands.pop(0))
            keywords = [option for option in usual.keywords if option.arg not in new]
            return ast.Call(func, operands, [*keywords, *call.keywords])

    built: ast.expr = Build().visit(deepcopy(_parsed(text)))
    return built


def name_of(node: ast.Call) -> str:
    """The name of what is called."""
    return getattr(node.func, "attr", "") or getattr(node.func, "id", "")


def owner_of(node: ast.Call, names: Names) -> ast.expr | None:
    """The array whose method is called."""
    if not isinstance(node.func, ast.Attribute):
        return None
    root = node.func.value
    while isinstance(root, ast.Attribute):
        root = root.value
    of_a_module = isinstance(root, ast.Name) and root.id not in names
    return None if of_a_module else node.func.value


def with_part(node: Any, field: str, place: int | None, other: Any) -> Any:
    """A copy with another part."""
    new = copy(node)
    setattr(new, field, other if place is None else [*getattr(node, field)])
    if place is not None:
        getattr(new, field)[place] = other
    return new
