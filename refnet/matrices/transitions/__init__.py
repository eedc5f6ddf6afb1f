"""What a weight matrix is made of: own parameters -> W before the net, dW -> theirs after.

``transition(name, **options)`` makes one by name; "dense" is no transition (None).
A new one is a class like those here, with a line in the table.
"""

from dataclasses import fields
from typing import Any

from refnet.arguments import choice
from refnet.matrices.slots import Transition
from refnet.matrices.transitions.manifold import Orthogonal, Product
from refnet.matrices.transitions.parametrisations import (CayleyMap, Householder,
                                                          MatrixExponential, ScaledCayley)
from refnet.matrices.transitions.schur import Schur
from refnet.matrices.transitions.svd import SVD

__all__ = ["TRANSITIONS", "Transition", "transition"]

TRANSITIONS: dict[str, type[Any]] = {
    "orthogonal": Orthogonal, "product": Product, "svd": SVD, "expm": MatrixExponential,
    "cayley": CayleyMap, "scaled_cayley": ScaledCayley, "householder": Householder,
    "schur": Schur}


def transition(name: str, **options: Any) -> Transition | None:
    """The transition of that name with its options, which are its class's fields; None for
    "dense". Raises ValueError for a name, an option or a value it does not take.

    >>> import numpy as np
    >>> made = transition("cayley")
    >>> W, tape = made.matrix(made.init(np.eye(3)))
    >>> W.tolist() == np.eye(3).tolist()
    True

    Checked by: tests/test_transitions.py::test_registry.
    """
    choice("transition", name, ("dense", *TRANSITIONS))
    if name == "dense":
        if options:
            raise ValueError(f"transition 'dense' takes no options; choose one of "
                             f"{', '.join(TRANSITIONS)}")
        return None
    known = [entry.name for entry in fields(TRANSITIONS[name])]
    for option in options:
        if option not in known:
            raise ValueError(f"transition {name}: {option!r} is unknown; its options are "
                             f"{', '.join(known) or 'none'}")
    made: Transition = TRANSITIONS[name](**options)
    return made
