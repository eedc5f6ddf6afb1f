"""OINIT (orthogonal initialization by gradient descent) of many square matrices, compiled; each
matrix stays in one core's cache during its descent.

For a square W the defect ``||W W' - I||^2`` is ``||W' W - I||^2``, and half its gradient
``2 (W W' - I) W`` is ``2 W (W' W - I)``. These forms need no transposed copy.

A single matrix (``refnet.matrices.orthogonality.orthogonalize``, the penalty of OPEN) uses NumPy:
the two products in BLAS take a few percent of the time of a training step.
"""

from typing import NamedTuple

import numpy as np

from refnet.batch import Array
from refnet.common.arguments import array
from refnet.compiled._jit import jit
from refnet.compiled.annotations import Arg
from refnet.compiled.layout import aligned
from refnet.compiled.tiles import Rows, Strided, product
from refnet.compiled.vector import clear, copy_rows, cut, lanes, number
from refnet.maths.numeric import Number

__all__ = ["Descents", "descend"]


class Descents(NamedTuple):
    """``W``: the final matrices, (runs, N, N); ``steps``, (runs,): the number of steps of each,
    including the last one, which only checks, or 0 if it did not converge; ``costs``, (runs,): the
    final ones."""

    W: Array
    steps: Array
    costs: Array


def descend(W: Array, rate: Number, threshold: Number, max_steps: int) -> Descents:
    """``orthogonalize`` with ``stop_cost=threshold`` for every matrix of W (runs, N, N), float32 or
    float64, in the calling thread; it raises no errors.

    Source: Manchev & Spratling, eqs. 16-18.
    Checked by:
    tests/compiled/test_compiled_orthogonality.py::test_compiled_descent_is_the_reference.
    """
    runs, N, _ = W.shape
    array("descend: W", W, (runs, N, N))
    lane = lanes(W.dtype)
    width = -(-N // lane) * lane
    padded = aligned((runs, N, width), W.dtype)
    padded[:, :, :N] = W
    steps, costs = np.zeros(runs, np.int64), np.zeros(runs, W.dtype)
    work = aligned(((2 * N + 1) * width,), W.dtype)
    _descend(
        padded.reshape(runs, N * width), 4 * rate, threshold, max_steps, lane, steps, costs, work
    )
    return Descents(padded[:, :, :N].copy(), steps, costs)


@jit
def _descend(
    Ws: Arg, rate: Arg, threshold: Arg, max_steps: int, lane: int, steps: Arg, costs: Arg, work: Arg
) -> None:
    size = Ws.shape[1]
    width = work.size - 2 * size
    N = size // width
    E, before, sums = cut(work, 0, size), cut(work, size, size), cut(work, 2 * size, width)
    for n in range(len(Ws)):
        W = Ws[n]
        for step in range(1, max_steps + 2):
            columns = Strided(W, 1, width)
            product(Rows(E, width), columns, Rows(W, width), N, N, width // lane, lane, False)
            clear(sums, 0, width)
            for i in range(N):
                row = cut(E, i * width, width)
                row[i] = row[i] - number(1.0, row[i])
                for j in range(width):
                    sums[j] += row[j] * row[j]
                    row[j] = number(-rate, row[j]) * row[j]
            cost = number(0.0, sums[0])
            for j in range(width):
                cost += sums[j]
            costs[n] = cost
            if cost < threshold:
                steps[n] = step
            if cost < threshold or not cost - cost == 0 or step > max_steps:
                break
            copy_rows(before, 0, 0, W, 0, 0, 1, N * width)
            rows = Strided(before, width, 1)
            product(Rows(W, width), rows, Rows(E, width), N, N, width // lane, lane, True)
