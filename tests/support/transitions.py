"""Oracles of what a transition pulls back."""

from dataclasses import dataclass

import numpy as np

from refnet.maths.numeric import exp
from refnet.matrices.transitions.manifold import Plain
from refnet.prove.checks import (
    EPS as EPS,
    complex_step_error as complex_step_error,
    push_minus_pull as push_minus_pull,
)

CONSTANT = ("base", "D")
"""Parts that are not trained: their gradient is declared zero."""


@dataclass(frozen=True)
class Sinh(Plain):
    """W = sinh(P), which is not rational in P."""

    rational = False

    def shapes(self, rows, columns):
        return {"P": (rows, columns)}

    def init(self, start):
        return {"P": np.arcsinh(start)}

    def matrix(self, parts):
        e = exp(parts["P"])
        return (e - 1 / e) / 2, e

    def pull_back(self, parts, tape, dW):
        return {"P": dW * (tape + 1 / tape) / 2}
