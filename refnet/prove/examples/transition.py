"""A transition: what a recurrent matrix is made of; here a vector's circulant.

    refnet train temporal-order --transition mine.py:Circulant
    refnet prove mine.py:Circulant

The fields of the class are the transition's options. ``Plain`` is square and
on no manifold; see refnet/matrices/slots.py for all that a net asks of a
transition. ``times`` multiplies numbers of any type, exact ones exactly, by an
option. If W is not a rational function of its parts, set ``rational = False``;
name parts that are not trained in ``constant``.
"""

from dataclasses import dataclass

import numpy as np

from refnet.batch import Array, Params
from refnet.maths.numeric import times
from refnet.matrices.transitions.manifold import Plain


@dataclass(frozen=True)
class Circulant(Plain):
    """``W[i, j] = scale * c[(i - j) mod N]``."""

    scale: float = 1.0

    def shapes(self, rows: int, columns: int) -> dict[str, tuple[int, ...]]:
        return {"c": (rows,)}

    def init(self, start: Array) -> Params:
        return {"c": start[:, 0] / self.scale}

    def matrix(self, parts: Params) -> tuple[Array, Array]:
        n = np.arange(len(parts["c"]))
        index = (n[:, None] - n) % len(n)
        return times(self.scale, parts["c"][index]), index

    def pull_back(self, parts: Params, tape: Array, dW: Array) -> Params:
        sums = [dW[tape == k].sum() for k in range(len(tape))]
        return {"c": times(self.scale, np.array(sums, dW.dtype))}
