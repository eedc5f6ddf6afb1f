"""Imports run one way: each part of the package takes from those before it, and no file reaches
itself."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "refnet"
FILES = sorted(PACKAGE.rglob("*.py"))

ORDER = (
    "batch common maths runs cells compiled tasks "
    "matrices transitions nets analysis training estimators exact interop torch jax stiefel check "
    "__init__ prove studies explain book cli __main__"
).split()
"""From the ground up: a part imports from itself and from those on its left."""


def part(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def home(name):
    """The file of a module, or of what is imported from one; None outside of the package."""
    place = PACKAGE.parent.joinpath(*name.split("."))
    for folder in (place, place.parent):
        for path in (folder.with_suffix(".py"), folder / "__init__.py"):
            if path.exists() and PACKAGE in path.parents:
                return path
    return None


def imports(source):
    """The files of the package that a source imports, wherever the statement stands."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {home(name) for name in names} - {None}


GRAPH = {path: imports(path.read_text(encoding="utf-8")) for path in FILES}


def wrong_ways(graph):
    return [
        f"{path.relative_to(PACKAGE)} imports {other.relative_to(PACKAGE)}"
        for path, imported in graph.items()
        for other in imported
        if ORDER.index(part(other)) > ORDER.index(part(path))
    ]


def test_every_part_has_a_place():
    assert {part(path) for path in FILES} == set(ORDER)
    assert sum(map(len, GRAPH.values())) > 100


def test_parts_import_from_those_before_them():
    assert wrong_ways(GRAPH) == []


def test_no_file_reaches_itself():
    assert set(TopologicalSorter(GRAPH).static_order()) == set(FILES)


@pytest.mark.parametrize(
    "source",
    [
        "from refnet.nets.recurrent import RecurrentNet",
        "def lazily():\n    import refnet.nets.recurrent",
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from refnet.nets import recurrent",
    ],
)
def test_a_planted_circle_is_found(source):
    """Also within a function or where only the type checker looks."""
    layer, cell = PACKAGE / "nets" / "layer.py", PACKAGE / "cells" / "rnn.py"
    with pytest.raises(CycleError):
        list(TopologicalSorter({**GRAPH, layer: imports(source)}).static_order())
    assert wrong_ways({**GRAPH, cell: imports(source)}) == [
        "cells/rnn.py imports nets/recurrent.py"
    ]
