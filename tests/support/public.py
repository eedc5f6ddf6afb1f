"""The package's public names."""

import inspect
from importlib import import_module
from pkgutil import walk_packages

FACES = (
    "refnet",
    "refnet.analysis",
    "refnet.check",
    "refnet.exact",
    "refnet.tasks",
    "refnet.matrices.transitions",
)
MADE_BY_CLIENTS = ("Batch", "Config", "FeedforwardNet", "RecurrentNet", "StackedNet")
"""The other classes are what functions return."""
ROOMS = ("analysis", "cells", "maths", "matrices", "nets", "tasks", "training")
"""The rooms in which every function needs an example; of the others, what the faces hand on."""
MODULES = [
    module_info.name
    for room in ROOMS
    for module_info in walk_packages(import_module(f"refnet.{room}").__path__, f"refnet.{room}.")
]


def names_of(module):
    """What a face hands on, or what a module defines without an underscore."""
    return getattr(module, "__all__", None) or [
        name
        for name, value in vars(module).items()
        if name[0] != "_" and getattr(value, "__module__", None) == module.__name__
    ]


PUBLIC = {
    f"{value.__module__}.{name}": value
    for module in ("refnet.batch", "refnet.stiefel", *FACES, *MODULES)
    for name in names_of(import_module(module))
    for value in [getattr(import_module(module), name)]
    if inspect.isfunction(value) or name in MADE_BY_CLIENTS
}
