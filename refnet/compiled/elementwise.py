"""What a training step does with every number of every parameter, in one pass over them."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from refnet.batch import Array
from refnet.compiled._jit import jit
from refnet.compiled.layout import normal
from refnet.compiled.vector import cut

__all__ = ["sum_of_squares"]

SUMS = 256
"""The number of sums that are made side by side: enough for whole vectors, few enough for the
nearest cache."""


def sum_of_squares(arrays: Iterable[Array]) -> float:
    """``sum a^2`` over all numbers of all arrays of floats, computed in float64.

    Number i of each array goes to sum i mod 256, and NumPy adds up the 256 sums: the sizes alone
    fix the order. Squares that overflow give inf.

    Raises TypeError for complex numbers.

    >>> sum_of_squares([np.array([3.0, 4.0], np.float32), np.array([[12.0]])])
    169.0

    Checked by: tests/test_optimizers.py::test_sum_of_squares.
    """
    sums = np.zeros(SUMS)
    for array in arrays:
        if array.dtype.char not in "fd":
            array = array.astype(np.float64, casting="same_kind")
        _add_squares(normal(array, np.dtype(array.dtype.char)).reshape(-1), sums)
    return float(sums.sum())


@jit
def _add_squares(flat: Any, sums: Any) -> None:
    """``sums[i mod SUMS] += flat[i]^2``."""
    for start in range(0, len(flat), SUMS):
        left = len(flat) - start
        part = cut(flat, start, SUMS if SUMS < left else left)
        for j in range(len(part)):
            value = np.float64(part[j])
            sums[j] += value * value
