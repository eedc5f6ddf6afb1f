"""What a weight matrix is made of: own parameters -> W before the net, dW -> theirs after.

A transition owns the parameters of one matrix, its *slot*: slot "Whh" of a factorised
transition with parts U, p and V has the parameters "Whh.U", "Whh.p" and "Whh.V". The net
only ever sees W, so every cell and every layer works with every transition.
"""

from typing import Any, Protocol

from refnet.batch import Array, Params

__all__ = ["Transition", "assemble", "pull_back"]


class Transition(Protocol):
    """The parts of a matrix, by name without the slot.

    ``init(start)``: the parts whose matrix is (or is nearest to) the start matrix.
    ``matrix(parts)``: W and whatever ``pull_back`` wants to keep.
    ``pull_back(parts, tape, dW)``: the gradient in every part.
    ``manifold``: the parts that have orthonormal columns and move by a retraction.
    """

    name: str
    manifold: tuple[str, ...]

    def init(self, start: Array) -> Params: ...
    def matrix(self, parts: Params) -> tuple[Array, Any]: ...
    def pull_back(self, parts: Params, tape: Any, dW: Array) -> Params: ...


def _parts(params: Params, slot: str) -> Params:
    return {name[len(slot) + 1:]: value for name, value in params.items()
            if name.startswith(slot + ".")}


def assemble(transition: Transition, params: Params, slots: tuple[str, ...]
             ) -> tuple[Params, dict[str, Any]]:
    """The matrix of every slot, and the tapes for ``pull_back``."""
    made = {slot: transition.matrix(_parts(params, slot)) for slot in slots}
    return {slot: W for slot, (W, _) in made.items()}, {slot: t for slot, (_, t) in made.items()}


def pull_back(transition: Transition, params: Params, tapes: dict[str, Any], grads: Params
              ) -> Params:
    """Gradients of every slot's parts, under their full names, from each slot's dW."""
    return {f"{slot}.{part}": value for slot, tape in tapes.items()
            for part, value in
            transition.pull_back(_parts(params, slot), tape, grads[slot]).items()}
