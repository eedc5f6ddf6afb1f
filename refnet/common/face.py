"""The face of a package: names that load on first use, so that an import takes almost no time.

A package calls ``face`` and, under ``if TYPE_CHECKING``, imports the same names, so that type
checkers and editors see them. Checked by: tests/project/test_public_names.py.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

__all__ = ["face"]


def face(
    package: str, homes: dict[str, tuple[str, ...]], modules: dict[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """A package's ``__getattr__``, ``__dir__`` and ``__all__``.

    ``homes``: the names that the package hands on, by the module that has them. ``modules``:
    whole modules that it hands on, by the name that they have here.
    """
    places = {name: (module, name) for module, names in homes.items() for name in names}
    names = sorted([*places, *(modules or {})])

    def load(name: str) -> Any:
        if modules and name in modules:
            return import_module(modules[name])
        if name in places:
            module, attribute = places[name]
            return getattr(import_module(module), attribute)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return load, lambda: names, names
