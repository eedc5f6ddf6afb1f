"""refnet: exact gradients of orthogonal recurrent and deep feedforward nets.

One training step goes through the package in this order:

1. ``tasks``: data -> Batch(x, y, mask)
2. ``initializers``, ``orthogonality``: start values, OINIT and OPEN
3. ``transitions``, ``stiefel``: what a weight matrix is made of
4. ``cells``, ``nets``, ``feedforward``, ``activations``: forward and backward, by hand
5. ``losses``, ``gradients``: the loss and every derivative of it
6. ``compiled``: the cells again, in Numba
7. ``optimizers``: the step
8. ``train``, ``checkpoint``, ``record``: the loop, resuming, what a run leaves behind

Beside it: ``exact`` (number types, certified gradients) and ``check`` (a judge for other
frameworks). Names below load on first use, so that ``import refnet`` costs next to nothing.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "activations": ("ACTIVATIONS", "Activation", "activation"),
    "batch": ("Batch",),
    "nets": ("RecurrentNet",),
    "feedforward": ("FeedforwardNet",),
    "gradients": ("hvp", "jvp", "loss_and_gradients", "per_example_gradients",
                  "state_jacobians"),
    "initializers": ("initialize",),
    "optimizers": ("optimizer",),
    "process": ("settle",),
    "tasks": ("make",),
    "train": ("resume", "train"),
    "config": ("Config",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(set(_HOME) - set(_HOMES))


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return import_module(f"refnet.{name}")
    if name in _HOME:
        return getattr(import_module(f"refnet.{_HOME[name]}"), name)
    raise AttributeError(f"module 'refnet' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
