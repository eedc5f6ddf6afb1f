"""Clipping of gradients, by their common norm or entry by entry.

Checked by: tests/training/test_optimizers.py.
"""

from math import inf
from typing import NamedTuple

import numpy as np

from refnet.batch import Params
from refnet.common.arguments import ARRAYS, real, takes
from refnet.maths.numeric import Number, clamp, times
from refnet.nets.backends import compiled


class Clipped(NamedTuple):
    """Clipped gradients, and how the clipping acted: ``factor`` that all were multiplied by
    (1: none), how many ``entries`` it changed, and the ``norm`` before (None if by value)."""

    grads: Params
    factor: float
    entries: int
    norm: float | None


@takes(grads=ARRAYS, limit=real("(0, inf]"))
def clip_by_norm(grads: Params, limit: float) -> Clipped:
    """Scale all gradients by ``limit / norm`` if their common 2-norm exceeds ``limit``.

    Pascanu et al. (2013). Give it the parameters' gradients only, not that of x. The norm is
    computed in float64, in an order that depends on the sizes alone
    (``refnet.compiled.elementwise.sum_of_squares``); squares that overflow or underflow don't
    matter. If an entry is not finite in float64, nothing can repair the gradient: it comes back
    unchanged and ``norm`` says nan or inf. Floats only: ValueError for exact numbers, whose norm
    is in general irrational.

    >>> clipped = clip_by_norm({"W": np.array([3.0, 4.0])}, limit=1)
    >>> clipped.norm, clipped.grads["W"].round(12).tolist()
    (5.0, [0.6, 0.8])
    """
    for name, g in grads.items():
        if g.dtype.kind == "c":
            raise ValueError(f"clip_by_norm: the gradient of {name} is {g.dtype}; need real floats")
    if exact := [name for name, g in grads.items() if g.dtype == object]:
        raise ValueError(
            f"clip_by_norm: the gradient of {exact[0]} holds exact numbers, whose "
            "norm is in general irrational; use clip_by_value, or float64"
        )
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        square = compiled("elementwise").sum_of_squares(grads.values())
    scaled, unit, root = grads, 1.0, square**0.5
    if not 1e-200 < square < 1e200:  # of float32 no square overflows or underflows
        with np.errstate(over="ignore"):
            flat = np.concatenate([np.zeros(0), *(g.ravel() for g in grads.values())], dtype=float)
        # np.max, unlike max, lets a NaN through
        unit = float(np.abs(flat).max(initial=0))
        if unit == 0 or not np.isfinite(unit):
            return Clipped(grads, 1, 0, unit)
        scaled = {name: g / unit for name, g in grads.items()}
        root = float(np.square(flat / unit).sum()) ** 0.5
    norm = unit * root  # inf, of many entries near the largest number
    if norm <= limit:
        return Clipped(grads, 1, 0, norm)
    return Clipped(
        {name: times(limit / root, g) for name, g in scaled.items()},
        limit / unit / root,
        sum(g.size for g in grads.values()),
        norm,
    )


@takes(grads=ARRAYS, limit=real("(0, inf]"))
def clip_by_value(grads: Params, limit: Number) -> Clipped:
    """Each entry brought into [-limit, limit]; NaN stays NaN. Any ordered dtype.

    Clipping inside the recursion, step by step, is ``clip`` of the cells' backward.

    >>> clipped = clip_by_value({"W": np.array([3.0, -0.5])}, limit=1)
    >>> clipped.grads["W"].tolist(), clipped.entries
    ([1.0, -0.5], 1)
    """
    if limit == inf:
        return Clipped(grads, 1, 0, None)
    clamped = {name: clamp(g, limit) for name, g in grads.items()}
    return Clipped(
        {name: g for name, (g, _) in clamped.items()},
        1,
        sum(changed for _, changed in clamped.values()),
        None,
    )
