"""Losses by their formulas, with their gradients: what stands for a net's loss by mistake.

A loss compares a view of the outputs, v (N, C), with the targets t (N, C). All may take complex v:
the gradient is that of the complex step. Checked by: tests/check/test_outside.py.
"""

from collections.abc import Callable, Iterator

import numpy as np

from refnet.batch import Array

__all__ = ["VIEWS", "added", "gradient", "losses", "softmax", "usual"]

Formula = Callable[[Array, Array], Array]
View = Callable[[Array], Array]
TINY = 1e-200


def lse(v: Array) -> Array:
    """The logarithm of each row's sum of exp."""
    top = v.real.max(axis=1, keepdims=True)
    return np.asarray(np.log(np.exp(v - top).sum(axis=1)) + top[:, 0])


def softmax(v: Array) -> Array:
    """Of each row."""
    return np.asarray(np.exp(v - lse(v)[:, None]))


def _softplus(v: Array) -> Array:
    above = v.real > 0
    return np.asarray(np.where(above, v, 0) + np.log(1 + np.exp(np.where(above, -v, v))))


def _abs(v: Array) -> Array:
    return np.asarray(v * np.sign(v.real))


def _relu(v: Array) -> Array:
    return np.where(v.real > 0, v, 0)


def _norm(v: Array) -> Array:
    return np.asarray(np.sqrt((v * v).sum(axis=1, keepdims=True)))


def _standard(v: Array) -> Array:
    wrong = v - v.mean(axis=1, keepdims=True)
    return np.asarray(wrong / np.sqrt((wrong * wrong).mean(axis=1, keepdims=True) + 1e-5))


VIEWS: dict[str, View] = {
    "": lambda v: v,
    "the softmax": softmax,
    "the log softmax": lambda v: v - lse(v)[:, None],
    "the sigmoid": lambda v: np.asarray(1 / (1 + np.exp(-v))),
    "the log sigmoid": lambda v: -_softplus(-v),
    "tanh": np.tanh,
    "relu": _relu,
    "softplus": _softplus,
    "exp": np.exp,
    "minus": np.negative,
    "the square": lambda v: v * v,
    "the absolute value": _abs,
    "the sign": lambda v: np.sign(v.real) + 0 * v,
    "the part in -1 .. 1": lambda v: np.where(abs(v.real) > 1, np.sign(v.real), v),
    "the part in 0 .. 1": lambda v: np.where(v.real < 0, 0, np.where(v.real > 1, 1, v)),
    "the vector of norm 1": lambda v: v / _norm(v),
    "the standardized row": _standard,
    "the row less its mean": lambda v: v - v.mean(axis=1, keepdims=True),
    "the row less its largest": lambda v: v - v.max(axis=1, keepdims=True),
}
"""What may be taken of the outputs before the loss."""


def _label(v: Array, t: Array) -> Array:
    return np.asarray((v * t).sum(axis=1))


def _cross_entropy(v: Array, t: Array) -> Array:
    return np.asarray(lse(v) * t.sum(axis=1) - _label(v, t))


def _margins(v: Array, t: Array) -> Array:
    return np.where(t > 0, 0, _relu(1 + v - _label(v, t)[:, None]))


def _huber(e: Array) -> Array:
    return np.where(abs(e.real) <= 1, e * e / 2, _abs(e) - 0.5)


def _focal(gamma: float) -> Formula:
    def focal(v: Array, t: Array) -> Array:
        p = _label(softmax(v), t)
        return np.asarray(-((1 - p) ** gamma) * np.log(p))

    return focal


PAIRS: dict[str, Formula] = {
    "the cross entropy": _cross_entropy,
    "the squared error": lambda u, t: ((u - t) ** 2).sum(axis=1),
    "the absolute error": lambda u, t: _abs(u - t).sum(axis=1),
    "Huber's loss, K = 1": lambda u, t: _huber(u - t).sum(axis=1),
    "log cosh of the error": lambda u, t: np.log(np.cosh(u - t)).sum(axis=1),
    "the cube of the absolute error": lambda u, t: (_abs(u - t) ** 3).sum(axis=1),
    "the error to the power of 4": lambda u, t: ((u - t) ** 4).sum(axis=1),
    "log(1 + error^2)": lambda u, t: np.log(1 + (u - t) ** 2).sum(axis=1),
    "sqrt(1 + error^2) - 1": lambda u, t: (np.sqrt(1 + (u - t) ** 2) - 1).sum(axis=1),
    "the norm of the error": lambda u, t: _norm(u - t)[:, 0],
    "the largest squared error": lambda u, t: ((u - t) ** 2).max(axis=1),
    "the error": lambda u, t: (u - t).sum(axis=1),
    "the squared sum of the errors": lambda u, t: (u - t).sum(axis=1) ** 2,
    "the squared relative error": lambda u, t: (((u - t) / t) ** 2).sum(axis=1),
    "the absolute relative error": lambda u, t: _abs((u - t) / t).sum(axis=1),
    "the squared sum of output and target": lambda u, t: ((u + t) ** 2).sum(axis=1),
    "minus the product with the target": lambda u, t: -_label(u, t),
    "1 minus the product with the target": lambda u, t: 1 - _label(u, t),
    "1 minus the cosine": lambda u, t: 1 - _label(u, t) / (_norm(u) * _norm(t))[:, 0],
    "minus the logarithm for the label": lambda u, t: -_label(np.log(u + TINY), t),
    "the binary cross entropy of probabilities": lambda u, t: (
        -(t * np.log(u + TINY) + (1 - t) * np.log(1 - u + TINY)).sum(axis=1)
    ),
    "the binary cross entropy": lambda u, t: (_softplus(u) - u * t).sum(axis=1),
    "the hinge loss": lambda u, t: _margins(u, t).sum(axis=1),
    "the squared hinge loss": lambda u, t: (_margins(u, t) ** 2).sum(axis=1),
    "the hinge loss of the largest other class": lambda u, t: _margins(u, t).max(axis=1),
    "the hinge loss of every class": lambda u, t: _relu(1 - (2 * t - 1) * u).sum(axis=1),
    "the exponential loss": lambda u, t: np.exp(-(2 * t - 1) * u).sum(axis=1),
    "Poisson's loss": lambda u, t: (np.exp(u) - u * t).sum(axis=1),
    "the focal loss, gamma = 1": _focal(1),
    "the focal loss, gamma = 2": _focal(2),
    "the squared cross entropy": lambda u, t: _cross_entropy(u, t) ** 2,
    "the cross entropy without the label in the sum": lambda u, t: (
        lse(np.where(t > 0, u - 1e3, u)) - _label(u, t)
    ),
}
"""What may be made of a view and the targets; a mean over the classes counts 1 / C times."""
PENALTIES: dict[str, View] = {
    "the sum": lambda u: u.sum(axis=1),
    "the sum of squares": lambda u: (u * u).sum(axis=1),
    "the sum of absolute values": lambda u: _abs(u).sum(axis=1),
    "the squared sum": lambda u: u.sum(axis=1) ** 2,
    "the norm": lambda u: _norm(u)[:, 0],
    "the variance": lambda u: ((u - u.mean(axis=1, keepdims=True)) ** 2).mean(axis=1),
    "the largest": lambda u: u.max(axis=1),
    "the logarithm of the sum of exp": lse,
    "the squared logarithm of the sum of exp (z-loss)": lambda u: lse(u) ** 2,
    "the sum of u log u": lambda u: (u * np.log(u)).sum(axis=1),
}
SMOOTHING = "the label's output less the mean of all (label smoothing)"


def usual(name: str) -> Formula:
    """The formula of a net's own loss."""
    if name == "cross_entropy":
        return _cross_entropy
    return lambda v, t: ((v - t) ** 2).sum(axis=1) / v.shape[1]


def _named(name: str, what: str) -> str:
    return f"{name} of {what}" if what else name


def losses(mean: bool) -> Iterator[tuple[str, Formula, View]]:
    """What may stand for a net's loss: a formula and the view that it takes. ``mean``: over the
    outputs."""
    for what, view in VIEWS.items():
        for name, formula in PAIRS.items():

            def loss(u: Array, t: Array, f: Formula = formula) -> Array:
                return f(u, t) / (u.shape[1] if mean else 1)

            yield _named(name, what), loss, view


def added() -> Iterator[tuple[str, Formula]]:
    """What may be added to the loss of each prediction, times a constant."""
    yield SMOOTHING, lambda v, t: _label(v, t) - v.mean(axis=1) * t.sum(axis=1)
    for what in ("", "the softmax", "the log softmax", "the sigmoid", "tanh"):
        for name, penalty in PENALTIES.items():
            yield _named(name, what or "the outputs"), _of_view(VIEWS[what], penalty)
        for name, formula in PAIRS.items():
            yield _named(name, what), _of_view(VIEWS[what], formula)


def _of_view(view: View, formula: Callable[..., Array]) -> Formula:
    """Of a view, and of the targets if it takes them."""
    if formula in PAIRS.values():
        return lambda v, t: formula(view(v), t)
    return lambda v, t: formula(view(v))


def gradient(formula: Formula, v: Array, t: Array) -> Array:
    """In v, by the complex step."""
    out = np.empty_like(v)
    for c in range(v.shape[1]):
        ahead = v.astype(complex)
        ahead[:, c] += 1e-30j
        out[:, c] = formula(ahead, t).imag / 1e-30
    return out
