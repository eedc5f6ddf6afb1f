"""The topics by name."""

from collections.abc import Callable

from refnet.explain import flow, geometry, memory, powers, starts
from refnet.explain.base import Explanation

__all__ = ["TOPICS"]

TOPICS: dict[str, Callable[..., Explanation]] = {
    "gradient-flow": flow.explain_gradient_flow,
    "spectra": flow.explain_spectra,
    "variance": starts.explain_variance,
    "orthogonalization": starts.explain_orthogonalization,
    "memory": memory.explain,
    "powers": powers.explain,
    "geometry": geometry.explain,
}
"""Name -> function(size, seed, matrix) that computes an Explanation."""
