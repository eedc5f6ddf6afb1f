"""The face of a package: names that load on first use, so that an import takes almost no time.

A package imports these names under ``if TYPE_CHECKING``, so that type checkers and editors see
them, and else takes what ``face`` gives, which reads them there.
Checked by: tests/project/test_public_names.py.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any


def face(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The ``__getattr__`` and ``__dir__`` of a package, whose ``__init__.py`` is ``file``."""

    @cache
    def homes() -> dict[str, str]:
        """The names that the package hands on -> the modules that it has them from."""
        import ast  # slow to import
        from pathlib import Path

        tree = ast.parse(Path(file).read_bytes())
        block = next(node for node in tree.body if isinstance(node, ast.If))
        imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
        return {alias.name: str(node.module) for node in imports for alias in node.names}

    def load(name: str) -> Any:
        if name == "__all__":
            return sorted(homes())
        if name not in homes():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = homes()[name]
        attributes = vars(import_module(home))
        return attributes[name] if name in attributes else import_module(f"{home}.{name}")

    return load, lambda: sorted(homes())
