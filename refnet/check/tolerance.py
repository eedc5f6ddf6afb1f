"""The rtol and atol that a computation warrants, for those who keep their own comparison.

Checked by: tests/check/test_tolerance.py.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from refnet.batch import Array
from refnet.check.arithmetic import Kind, arithmetic
from refnet.check.certificates import Given, case_of, certificate, sigma_of
from refnet.check.judgement import LIMITS
from refnet.common.process import serial_blas
from refnet.exact.enclose import Progress
from refnet.nets.gradients import Net

__all__ = ["Tolerance", "tolerances"]


class Tolerance(NamedTuple):
    """As in ``np.testing.assert_allclose(theirs, certified, rtol, atol)``."""

    rtol: float
    atol: float


@serial_blas
def tolerances(
    what: Net | Callable[..., Array],
    *inputs: Any,
    dtype: Kind | None = None,
    cotangent: ArrayLike | None = None,
    progress: Progress | None = None,
) -> dict[str, Tolerance]:
    """Of each quantity the rtol and atol that rounding in ``dtype`` warrants at these inputs.

    ``what``, ``inputs`` and ``cotangent`` as in ``refnet.check.judge``; ``dtype``: by default
    that of the inputs. With sigma_i, the spread of rounding in entry i, and v_i its certified
    value, they solve::

        minimise  sum_i (atol + rtol |v_i|)
        so that   atol + rtol |v_i| >= 6 sigma_i + u |v_i| + tiny    for every i,

    6 being the judge's limit of rounding, u the unit roundoff for the last one, and tiny the
    smallest normal number, which flushing it to zero may cost. They hold between a result in
    ``dtype`` and one that is exact or in a wider type; between two results in ``dtype``, take
    twice as much. A tolerance is one line over all entries, so small mistakes hide in it that
    the judge finds entry by entry.

    >>> import numpy as np
    >>> def energy(x):
    ...     return (x * x).sum()
    >>> allowed = tolerances(energy, np.linspace(1, 2, 100, dtype=np.float32))
    >>> allowed["dx"].rtol < 1e-6 and allowed["dx"].atol < 1e-6
    True

    Checked by: tests/check/test_tolerance.py.
    """
    case = case_of(what, inputs, cotangent, progress)
    kind = arithmetic(_kind(inputs) if dtype is None else dtype)
    sigma = sigma_of(case, kind)
    return {
        name: _tolerance(
            abs(enclosure.value),
            LIMITS[0] * sigma[name] + kind.u * abs(enclosure.value) + kind.tiny,
        )
        for name, enclosure in certificate(case).named().items()
    }


def _kind(inputs: Given) -> np.dtype[Any]:
    """The widest float type among the inputs."""
    arrays = [
        value
        for part in inputs
        for value in (
            part.values()
            if isinstance(part, Mapping)
            else part
            if isinstance(part, tuple)
            else (part,)
        )
    ]
    return np.result_type(
        np.float16,
        *(
            value.dtype
            for value in arrays
            if isinstance(value, np.ndarray) and value.dtype.kind == "f"
        ),
    )


def _tolerance(size: Array, need: Array) -> Tolerance:
    """The line over the points (size, need) that is lowest on average."""
    if not size.size or not np.isfinite(need).all():
        return Tolerance(0.0, 0.0 if not size.size else np.inf)

    def atol(rtol: float) -> float:
        return float((need - rtol * size).max(initial=0))

    mean = float(size.mean())
    if mean == 0:
        return Tolerance(0.0, atol(0))
    from scipy.optimize import minimize_scalar  # the import takes as long as a small verdict

    # the objective is convex in rtol; the steepest line that may be needed has atol 0
    scale = float(need.max()) / mean

    def on_average(rtol: float) -> float:
        return atol(rtol) + rtol * mean

    def scaled(r: float) -> float:
        return (atol(r * scale) / scale + r * mean) / mean

    optimum = minimize_scalar(
        scaled,
        bounds=(0, float((need / np.maximum(size, 1e-9 * mean)).max() / scale)),
        method="bounded",
        options={"xatol": 1e-6},
    )
    best = min(0.0, float(optimum.x) * scale, key=on_average)
    return Tolerance(best, atol(best) * (1 + 1e-12))
