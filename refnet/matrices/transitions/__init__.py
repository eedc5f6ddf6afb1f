"""Transitions make a weight matrix from their own parameters.

Before a net's forward pass a transition turns its parts into W; after the backward pass it turns dW
into the gradients of the parts. ``transition(name, **options)`` returns one by its name or spec;
"dense" returns None: the matrix is itself the parameter. To add a transition, write a class like
those here and enter it in TRANSITIONS.
"""

from collections import ChainMap
from functools import partial
from typing import Any

from refnet.common.names import Table, lacking
from refnet.common.specs import Kind, Option, field_options, read
from refnet.matrices.slots import Transition
from refnet.matrices.transitions.manifold import Orthogonal, Product
from refnet.matrices.transitions.parametrisations import (
    CayleyMap,
    Householder,
    MatrixExponential,
    ScaledCayley,
)
from refnet.matrices.transitions.schur import Schur
from refnet.matrices.transitions.svd import SVD
from refnet.matrices.transitions.unitary import Unitary, UnitaryEvolution

__all__ = [
    "SPEC",
    "TRANSITIONS",
    "CayleyMap",
    "Householder",
    "MatrixExponential",
    "Orthogonal",
    "Product",
    "SVD",
    "ScaledCayley",
    "Schur",
    "Transition",
    "Unitary",
    "UnitaryEvolution",
    "transition",
]

NEEDS = (
    *("shapes", "init", "matrix", "pull_back", "penalty", "report", "retract", "manifold", "rates"),
    *("orthogonalised", "rectangular", "rational", "__dataclass_fields__"),
)
TRANSITIONS: Table[Any] = Table(
    "transition",
    {
        "orthogonal": Orthogonal,
        "product": Product,
        "svd": SVD,
        "expm": MatrixExponential,
        "cayley": CayleyMap,
        "scaled_cayley": ScaledCayley,
        "householder": Householder,
        "schur": Schur,
        "urnn": UnitaryEvolution,
        "unitary": Unitary,
    },
    partial(lacking, needs=NEEDS),
)


def _options(entry: type | None) -> dict[str, Option]:
    return field_options(entry) if entry else {}


SPEC = Kind(ChainMap(TRANSITIONS, {"dense": None}), _options)
"""The names and options that a text such as "svd:margin=0.1" may hold."""


def __dir__() -> list[str]:
    return __all__


def transition(name: str, **options: Any) -> Transition | None:
    """The transition of that name with its options, which are its class's fields, or of a spec
    with them; None for "dense". Raises ValueError for a name, an option or a value it does not
    take.

    >>> import numpy as np
    >>> transition("svd:margin=0.1") == transition("svd", margin=0.1)
    True
    >>> cayley = transition("cayley")
    >>> W, tape = cayley.matrix(cayley.init(np.eye(3)))
    >>> W.tolist() == np.eye(3).tolist()
    True

    Checked by: tests/matrices/test_transitions.py::test_registry.
    """
    name, given = read("transition", SPEC, name)
    options = given | options
    if name == "dense":
        if options:
            raise ValueError(
                f"transition 'dense' takes no options; choose one of {', '.join(TRANSITIONS)}"
            )
        return None
    known = SPEC.options(name)
    for option in options:
        if option not in known:
            raise ValueError(
                f"transition {name}: {option!r} is unknown; its options are "
                f"{', '.join(known) or 'none'}"
            )
    instance: Transition = TRANSITIONS[name](**options)
    return instance
