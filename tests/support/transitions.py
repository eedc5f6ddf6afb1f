"""Oracles of what a transition pulls back."""

from dataclasses import dataclass

import numpy as np

from refnet.maths.dual import dual_array, parts
from refnet.maths.numeric import exp
from refnet.matrices.transitions.manifold import Plain

CONSTANT = ("base", "D")
"""Parts that are not trained: their gradient is declared zero."""
EPS = np.finfo(float).eps


def push_minus_pull(made, at, direction, cotangent, pull_back=None):
    """``<w, J v> - <J' w, v>``, the push by dual numbers."""
    lifted = {part: dual_array(value, direction[part]) for part, value in at.items()}
    pushed = parts(made.matrix(lifted)[0])[1]
    grads = (pull_back or type(made).pull_back)(made, at, made.matrix(at)[1], cotangent)
    assert set(grads) == set(at)
    return (pushed * cotangent).sum() - sum((grads[part] * direction[part]).sum() for part in at)


def complex_step_error(made, at, direction, cotangent, pull_back=None):
    """|push - pull| in units of eps times the size of what is added up."""
    step = 2.0**-300
    lifted = {part: value + 1j * step * direction[part] for part, value in at.items()}
    push = made.matrix(lifted)[0].imag / step
    grads = (pull_back or type(made).pull_back)(made, at, made.matrix(at)[1], cotangent)
    size = 1 + (abs(push) * abs(cotangent)).sum()
    size += sum((abs(grads[part]) * abs(direction[part])).sum() for part in at)
    pulled = sum((grads[part] * direction[part]).sum() for part in at)
    return abs((push * cotangent).sum() - pulled) / (EPS * size)


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
