"""refnet: exact gradients of orthogonal recurrent and deep feedforward nets.

One training step goes through the package in this order:

1. ``tasks``: data -> Batch(x, y, mask)
2. ``matrices``: start values, OINIT and OPEN; what a weight matrix is made of
3. ``cells``: forward and, directly beneath, backward, by hand; ``compiled``: the same in Numba
4. ``nets``: cells and layers with a read-out; the loss and every derivative of it
5. ``training``: optimizers, the step, the loop around it
6. ``runs``: what a run leaves on the disk

Beneath them ``maths`` (arithmetic for any number type, activations, losses); beside them
``exact`` (certified gradients), ``check`` (a judge for other frameworks) and ``analysis``.
Names below load on first use, so that ``import refnet`` costs next to nothing.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "batch": ("Batch",),
    "maths.activations": ("ACTIVATIONS", "Activation", "activation"),
    "matrices.initializers": ("initialize",),
    "nets.recurrent": ("RecurrentNet",),
    "nets.feedforward": ("FeedforwardNet",),
    "nets.gradients": ("hvp", "jvp", "loss_and_gradients", "per_example_gradients",
                       "state_jacobians"),
    "process": ("settle",),
    "tasks": ("make",),
    "training.config": ("Config",),
    "training.load": ("load",),
    "training.loop": ("resume", "train"),
    "training.optimizers": ("optimizer",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"refnet.{_HOME[name]}"), name)
    raise AttributeError(f"module 'refnet' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
