"""The papers' mathematics made visible: topics with tables and figures, and the errata."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

TOPICS = {
    "bptt": "bptt.explain",
    "gradient-flow": "flow.explain_gradient_flow",
    "spectra": "flow.explain_spectra",
    "variance": "starts.explain_variance",
    "orthogonalization": "starts.explain_orthogonalization",
    "memory": "memory.explain",
    "noise": "noise.explain",
    "powers": "powers.explain",
    "geometry": "geometry.explain",
    "rounding": "rounding.explain",
}
"""The function of each topic: of size, seed, matrix and what else it takes."""


def topic(name: str) -> Callable[..., Any]:
    """The function that explains a topic (``refnet.explain.base.Explanation``)."""
    module, function = TOPICS[name].split(".")
    explain: Callable[..., Any] = getattr(import_module(f"refnet.explain.{module}"), function)
    return explain


def figure(name: str, **options: Any) -> Any:
    """The Matplotlib figure of a topic, in the house style; ``options``: as the topic takes them.

    >>> len(figure("powers", size=6, matrix="chain").axes)
    4

    Checked by: tests/analysis/test_explain.py::test_figure_and_text.
    """
    return topic(name)(**options).figure()
