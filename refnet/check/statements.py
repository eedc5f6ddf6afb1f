"""What statements in a user's function may be taken for, or what stands at several places at once.

Checked by: tests/check/test_source_edits.py.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import combinations, islice, pairwise
from typing import Any

from refnet.check.patterns import with_part
from refnet.check.rewrites import Block, Scope, blocks, expressions, is_atom, of_an_atom

__all__ = ["other_blocks"]

MOST = 60
"""The most pairs of parts that are exchanged."""
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
                new = ast.AugAssign(node.target, node.op, ast.UnaryOp(ast.USub(), node.value))
                yield f"{what} is `{ast.unparse(new)}`", [(block, new)]
                new_value = ast.copy_location(ast.Assign([node.target], node.value), node)
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
            how = f"`{what}` stands for `{text}`" if what else f"`{text}` is left out"
            yield f"{how} everywhere {lines}", [*zip(every, news)]


def _instead(text: str, nodes: list[Any], scope: Scope) -> Iterator[tuple[str, list[ast.expr]]]:
    """What stands for all of these nodes: calls along an axis, or names or numbers."""
    if not isinstance(nodes[0], ast.Call):
        for other in of_an_atom(nodes[0], scope):
            yield ast.unparse(other), [other] * len(nodes)
        return
    without = [[k for k in x.keywords if k.arg not in ("axis", "keepdims")] for x in nodes]
    yield "", [with_part(x, "keywords", None, rest) for x, rest in zip(nodes, without)]
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
