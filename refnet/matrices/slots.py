"""Slots: the places of a net's weight matrices, each filled by a transition from its own parts.

A transition owns the parameters of one matrix, its *slot*: slot "Whh" of a factorized
transition with parts U, p and V has the parameters "Whh.U", "Whh.p" and "Whh.V". The net
only ever sees W, so every cell and every layer works with every transition. Here is what a net
asks of a transition; the transitions themselves are in refnet.matrices.transitions.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from refnet.batch import Array, Params, Scalar
from refnet.maths.numeric import Number

Residuals = dict[str, Any]
"""Slot -> what its transition's ``pull_back`` needs of ``matrix``."""


class Moved(NamedTuple):
    """Parts after a manifold step, by full name: ``params``; for each one the ``defects``
    ``||M'M - I||_F`` found after it; and those ``repaired`` because of that."""

    params: Params
    defects: dict[str, float]
    repaired: tuple[str, ...]


class Transition(Protocol):
    """The parts of a matrix, by name without the slot.

    ``shapes(rows, columns)``: the shape of every part of a matrix of that shape.
    ``init(start)``: the parts whose matrix is (or is nearest to) the start matrix, float64.
    ``matrix(parts)``: W and whatever ``pull_back`` wants to keep.
    ``pull_back(parts, tape, dW)``: the gradient in every part; zero for one that is constant.
    ``penalty(parts)``: what the transition itself adds to the loss, with its gradients.
    ``retract(params, grads, names, rate)``: a step of the named parts on their manifold.
    ``report(parts)``: what a record should say, such as the sign of the determinant.

    ``manifold``: the parts that have orthonormal columns and move by ``retract``.
    ``rates``: factors on the optimiser's learning rate, by part; absent ones are 1.
    ``orthogonalised``: the part that OINIT and OPEN act on; None: OPEN acts on the matrix made.
    ``rectangular``: whether it can make matrices that are not square.
    ``rational``: whether W is a rational function of its parts.

    Checked by: tests/matrices/test_transitions.py.
    """

    @property
    def manifold(self) -> tuple[str, ...]: ...

    @property
    def rates(self) -> Mapping[str, Number]: ...

    @property
    def rectangular(self) -> bool: ...

    @property
    def rational(self) -> bool: ...

    @property
    def orthogonalised(self) -> str | None: ...

    def shapes(self, rows: int, columns: int) -> dict[str, tuple[int, ...]]: ...
    def init(self, start: Array) -> Params: ...
    def matrix(self, parts: Params) -> tuple[Array, Any]: ...
    def pull_back(self, parts: Params, tape: Any, dW: Array) -> Params: ...
    def penalty(self, parts: Params) -> tuple[Scalar, Params]: ...
    def report(self, parts: Params) -> dict[str, float]: ...
    def retract(
        self, params: Params, grads: Params, names: tuple[str, ...], rate: Number
    ) -> Moved: ...


def parts(params: Params, slot: str) -> Params:
    """The parts of one slot, by name without the slot.

    >>> import numpy as np
    >>> sorted(parts({"Whh.U": np.eye(2), "Whh.s": np.ones(2), "bh": np.zeros(2)}, "Whh"))
    ['U', 's']
    """
    return {
        name[len(slot) + 1 :]: value
        for name, value in params.items()
        if name.startswith(slot + ".")
    }


def assemble(
    transition: Transition, params: Params, slots: tuple[str, ...]
) -> tuple[Params, Residuals]:
    """The matrix of every slot, and the residuals for ``pull_back``.

    >>> import numpy as np
    >>> from refnet.matrices.transitions import transition
    >>> matrices, residuals = assemble(transition("orthogonal"), {"Whh.M": np.eye(2)}, ("Whh",))
    >>> matrices["Whh"].tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    pairs = {slot: transition.matrix(parts(params, slot)) for slot in slots}
    return {slot: W for slot, (W, _) in pairs.items()}, {slot: t for slot, (_, t) in pairs.items()}


def pull_back(
    transition: Transition, params: Params, residuals: Residuals, grads: Params
) -> Params:
    """Gradients of every slot's parts, under their full names, from each slot's dW.

    >>> import numpy as np
    >>> from refnet.matrices.transitions import transition
    >>> params = {"Whh.M": np.eye(2)}
    >>> matrices, residuals = assemble(transition("orthogonal"), params, ("Whh",))
    >>> grads = pull_back(transition("orthogonal"), params, residuals, {"Whh": np.ones((2, 2))})
    >>> grads["Whh.M"].tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    return {
        f"{slot}.{part}": value
        for slot, tape in residuals.items()
        for part, value in transition.pull_back(parts(params, slot), tape, grads[slot]).items()
    }


def penalty(
    transition: Transition, params: Params, slots: tuple[str, ...]
) -> tuple[Scalar, Params]:
    """What the transition adds to the loss over all slots, and its gradients by full name.

    >>> import numpy as np
    >>> from refnet.matrices.transitions import transition
    >>> params = {"Whh.U": np.eye(2), "Whh.V": np.eye(2), "Whh.s": np.array([1.0, 3.0])}
    >>> value, gradients = penalty(transition("svd", prior=0.5), params, ("Whh",))
    >>> float(value), gradients["Whh.s"].tolist()
    (2.0, [0.0, 2.0])
    """
    value: Scalar = 0
    grads: Params = {}
    for slot in slots:
        addend, gradients = transition.penalty(parts(params, slot))
        value = value + addend
        grads |= {f"{slot}.{part}": gradient for part, gradient in gradients.items()}
    return value, grads
