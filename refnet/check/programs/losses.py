"""Losses by their formulas, with their gradients: what stands for a net's loss by mistake.

A loss compares a view of the outputs, v (N, C), with the targets t (N, C); its gradient is that of
the complex step. ``scores`` makes candidates of these, and knows the net's own loss.

Checked by: tests/check/test_outside.py.
"""

from collections.abc import Callable, Iterator

import numpy as np

from refnet.batch import Array
from refnet.check.programs.notation import formula

__all__ = ["VIEWS", "added", "gradient", "losses", "usual"]

Loss = Callable[[Array, Array], Array]
"""Of a view of the outputs and the targets, (N,)."""
View = Callable[[Array], Array]
VIEWS: dict[str, View] = {
    name: formula(text or "v")
    for name, text in {
        "": "",
        "the softmax": "softmax(v)",
        "the log softmax": "v - lse(v)",
        "the sigmoid": "sigmoid(v)",
        "the log sigmoid": "-softplus(-v)",
        "tanh": "tanh(v)",
        "relu": "relu(v)",
        "softplus": "softplus(v)",
        "exp": "exp(v)",
        "minus": "-v",
        "the square": "v^2",
        "the absolute value": "abs(v)",
        "the sign": "sign(v.real) + 0 v",
        "the part in -1 .. 1": "clip(v, -1, 1)",
        "the part in 0 .. 1": "clip(v, 0, 1)",
        "the vector of norm 1": "v / norm(v)",
        "the standardized row": "(v - mean(v)) / sqrt(mean((v - mean(v))^2) + 1e-5)",
        "the row less its mean": "v - mean(v)",
        "the row less its largest": "v - max(v)",
    }.items()
}
"""What may be taken of the outputs before the loss."""
CROSS_ENTROPY = "lse(u) sum(t) - sum(u t)"
PAIRS = {
    "the cross entropy": CROSS_ENTROPY,
    "the squared error": "sum((u - t)^2)",
    "the absolute error": "sum(abs(u - t))",
    "Huber's loss, K = 1": "sum(huber(u - t))",
    "log cosh of the error": "sum(log(cosh(u - t)))",
    "the cube of the absolute error": "sum(abs(u - t)^3)",
    "the error to the power of 4": "sum((u - t)^4)",
    "log(1 + error^2)": "sum(log(1 + (u - t)^2))",
    "sqrt(1 + error^2) - 1": "sum(sqrt(1 + (u - t)^2) - 1)",
    "the norm of the error": "norm(u - t)",
    "the largest squared error": "max((u - t)^2)",
    "the error": "sum(u - t)",
    "the squared sum of the errors": "sum(u - t)^2",
    "the squared relative error": "sum(((u - t) / t)^2)",
    "the absolute relative error": "sum(abs((u - t) / t))",
    "the squared sum of output and target": "sum((u + t)^2)",
    "minus the product with the target": "-sum(u t)",
    "1 minus the product with the target": "1 - sum(u t)",
    "1 minus the cosine": "1 - sum(u t) / (norm(u) norm(t))",
    "minus the logarithm for the label": "-sum(log(u + tiny) t)",
    "the binary cross entropy of probabilities": (
        "-sum(t log(u + tiny) + (1 - t) log(1 - u + tiny))"
    ),
    "the binary cross entropy": "sum(softplus(u) - u t)",
    "the hinge loss": "sum(margins(u, t))",
    "the squared hinge loss": "sum(margins(u, t)^2)",
    "the hinge loss of the largest other class": "max(margins(u, t))",
    "the hinge loss of every class": "sum(relu(1 - (2 t - 1) u))",
    "the exponential loss": "sum(exp(-(2 t - 1) u))",
    "Poisson's loss": "sum(exp(u) - u t)",
    "the focal loss, gamma = 1": "-(1 - sum(softmax(u) t)) log(sum(softmax(u) t))",
    "the focal loss, gamma = 2": "-(1 - sum(softmax(u) t))^2 log(sum(softmax(u) t))",
    "the squared cross entropy": f"({CROSS_ENTROPY})^2",
    "the cross entropy without the label in the sum": "lse(where(t > 0, u - 1e3, u)) - sum(u t)",
}
"""What may be made of a view u and the targets; a mean over the classes counts 1 / C times."""
PENALTIES = {
    "the sum": "sum(u)",
    "the sum of squares": "sum(u^2)",
    "the sum of absolute values": "sum(abs(u))",
    "the squared sum": "sum(u)^2",
    "the norm": "norm(u)",
    "the variance": "mean((u - mean(u))^2)",
    "the largest": "max(u)",
    "the logarithm of the sum of exp": "lse(u)",
    "the squared logarithm of the sum of exp (z-loss)": "lse(u)^2",
    "the sum of u log u": "sum(u log(u))",
}
SMOOTHING = "the label's output less the mean of all (label smoothing)"


def _loss(text: str, view: str = "", per: bool = False) -> Loss:
    """A formula of a view and the targets, divided by the number of outputs where ``per`` says."""
    f, seen = formula(text, "u, t"), VIEWS[view]
    return lambda v, t: f(seen(v), t)[:, 0] / (v.shape[1] if per else 1)


def usual(name: str) -> Loss:
    """The formula of a net's own loss."""
    entropy = name == "cross_entropy"
    return _loss(CROSS_ENTROPY if entropy else PAIRS["the squared error"], per=not entropy)


def _named(name: str, what: str) -> str:
    return f"{name} of {what}" if what else name


def losses(mean: bool) -> Iterator[tuple[str, Loss, Loss, View]]:
    """What may stand for a net's loss: its name, the loss of the outputs, and the view with the
    loss of that view. ``mean``: over the outputs."""
    for what, view in VIEWS.items():
        for name, text in PAIRS.items():
            yield _named(name, what), _loss(text, what, mean), _loss(text, "", mean), view


def added() -> Iterator[tuple[str, Loss]]:
    """What may be added to the loss of each prediction, times a constant."""
    yield SMOOTHING, _loss("sum(u t) - mean(u) sum(t)")
    for what in ("", "the softmax", "the log softmax", "the sigmoid", "tanh"):
        for name, text in PENALTIES.items():
            yield _named(name, what or "the outputs"), _loss(text, what)
        for name, text in PAIRS.items():
            yield _named(name, what), _loss(text, what)


def gradient(loss: Loss, v: Array, t: Array) -> Array:
    """The gradient of the losses in v, by the complex step."""
    out = np.empty_like(v)
    for c in range(v.shape[1]):
        ahead = v.astype(complex)
        ahead[:, c] += 1e-30j
        out[:, c] = loss(ahead, t).imag / 1e-30
    return out
