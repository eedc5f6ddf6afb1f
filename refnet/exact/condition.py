"""How far one ulp in the inputs moves a result: what tells a chaotic computation from a wrong one.

The computation runs in float64 at inputs that are off by random signs times one ulp. One ulp of
float64 would drown in the run's own rounding, so the inputs move by at least STEP, and the result
is scaled down in proportion: a lower bound where a result changes by its whole size.

Source: condition numbers by sampling: Kenney & Laub (1994), small-sample condition estimates.
Checked by: tests/exact/test_second_order.py::test_condition_is_what_an_ulp_moves.
"""

from collections.abc import Callable, Collection

import numpy as np

from refnet.batch import Array, Params
from refnet.exact.convert import Lift, in_float64

STEP = 2.0**-42
"""1024 ulps of float64."""
RUNS = 4


def condition(run: Callable[[Lift], Params], inputs: Collection[str], ulp: float) -> Params:
    """The root mean square, over RUNS runs, of what one ulp (``ulp`` times an entry) in the inputs
    ``inputs`` changes in every entry; ``run(lifted)`` computes by name."""

    def lifted(array: Array, name: str) -> Array:
        value = in_float64(array, name)
        if name not in inputs:
            return value
        return np.asarray(value * (1 + step * rng.choice([-1.0, 1.0], value.shape)))

    rng, step = np.random.default_rng(0), max(ulp, STEP)
    with np.errstate(all="ignore"):
        here = run(in_float64)
        squares = {name: np.zeros(np.shape(value)) for name, value in here.items()}
        for _ in range(RUNS):
            for name, value in run(lifted).items():
                squares[name] += (np.asarray(value, float) - here[name]) ** 2
        return {name: np.sqrt(value / RUNS) * (ulp / step) for name, value in squares.items()}
