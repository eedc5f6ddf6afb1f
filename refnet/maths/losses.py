"""Losses with their gradients, example by example; masks and reductions on top.

Checked by: tests/maths/test_losses.py, tests/cells/test_exact_transpose.py::test_push_equals_pull.
"""

from collections.abc import Callable, Mapping
from math import prod
from typing import NamedTuple

import numpy as np

from refnet.batch import Array, Scalar
from refnet.common.arguments import choice
from refnet.maths.kinds import join
from refnet.maths.numeric import Number, divided, exp, log, times

REDUCTIONS = ("mean", "batch_mean", "sum")


class Scored(NamedTuple):
    """The loss of every prediction, (N,), and its gradient in that prediction, (N, C)."""

    loss: Array
    gradient: Array


Loss = Callable[[Array, Array], Scored]


def softmax(outputs: Array) -> Array:
    """The probabilities of the classes, (..., C), of the outputs of a net.

    >>> softmax(np.zeros(4)).tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    scores = np.exp(outputs - outputs.max(axis=-1, keepdims=True))
    return np.asarray(scores / scores.sum(axis=-1, keepdims=True))


def admit_labels(logits: Array, labels: Array) -> None:
    """Raise ValueError unless ``labels`` (N,) are integers in 0..C-1, for logits (N, C).

    >>> admit_labels(np.zeros((2, 3)), np.array([0, 3]))
    Traceback (most recent call last):
    ValueError: cross_entropy: labels run from 0 to 3; need 0 to 2, because the net has 3 outputs
    """
    if labels.dtype.kind not in "iu" or labels.shape != logits.shape[:1]:
        raise ValueError(
            f"cross_entropy: labels are {labels.dtype} of shape {labels.shape}; need integers of "
            f"shape {logits.shape[:1]}, one class per row of the logits {logits.shape}"
        )
    classes = logits.shape[1]
    if labels.size and not 0 <= labels.min() <= labels.max() < classes:
        raise ValueError(
            f"cross_entropy: labels run from {labels.min()} to {labels.max()}; need "
            f"0 to {classes - 1}, because the net has {classes} outputs"
        )


def cross_entropy(logits: Array, labels: Array) -> Scored:
    """``log(sum_c exp(v_c)) - v_label`` and its gradient ``softmax(v) - onehot(label)``.

    Shapes: logits (N, C), any dtype with exp and log; labels (N,) integers in 0..C-1.
    Stable for logits of any size: the largest one of each row is subtracted first, which changes
    neither the loss nor the gradient.
    Source: Manchev & Spratling, eq. 2 and the first term of eq. 30 (the mean is ``score``'s).

    >>> loss, gradient = cross_entropy(np.zeros((1, 2)), np.array([0]))
    >>> loss.round(4).tolist(), gradient.tolist()
    ([0.6931], [[-0.5, 0.5]])
    """
    admit_labels(logits, labels)
    rows = np.arange(len(labels))
    logits = logits - largest(logits)[:, None]
    e = exp(logits)
    total = e.sum(axis=1)
    loss = log(total) - logits[rows, labels]
    gradient = e / total[:, None]
    gradient[rows, labels] = gradient[rows, labels] - 1
    return Scored(loss, gradient)


def largest(logits: Array) -> Array:
    """The largest of each row, in the same kind of numbers; of complex numbers by the real part.

    >>> largest(np.array([[1.0, 3.0], [2.0, 0.0]])).tolist()
    [3.0, 2.0]
    """
    if logits.dtype.kind == "V":  # runs, of which each has its own
        return np.asanyarray(logits.max(axis=1))
    size = logits.real if logits.dtype != object else logits.astype(float)
    return np.asanyarray(logits[np.arange(len(logits)), size.argmax(axis=1)])


def squared_error(outputs: Array, targets: Array) -> Scored:
    """``sum_c (y_c - t_c)^2 / C`` and its gradient ``2 (y - t) / C``.

    Shapes: outputs and targets (N, C), any dtype; targets are lifted to that of the outputs
    where that is exact (``refnet.maths.kinds``).

    >>> loss, gradient = squared_error(np.array([[3.0]]), np.array([[1.0]]))
    >>> loss.tolist(), gradient.tolist()
    ([4.0], [[4.0]])
    """
    if targets.shape != outputs.shape:
        raise ValueError(
            f"squared_error: targets have shape {targets.shape}, outputs "
            f"{outputs.shape}; need the same (one target per output)"
        )
    difference = outputs - join("the targets y", targets, "the outputs", outputs)
    channels = outputs.shape[1]
    return Scored(
        divided((difference * difference).sum(axis=1), channels), divided(2 * difference, channels)
    )


def none(outputs: Array, cotangent: Array) -> Scored:
    """``<outputs, cotangent>``, whose gradient is the cotangent as it is given.

    Shapes and dtypes as for ``squared_error``.

    >>> loss, gradient = none(np.array([[3.0]]), np.array([[2.0]]))
    >>> loss.tolist(), gradient.tolist()
    ([6.0], [[2.0]])
    """
    if cotangent.shape != outputs.shape:
        raise ValueError(
            f"none: the cotangent has shape {cotangent.shape}, outputs "
            f"{outputs.shape}; need the same"
        )
    gradient = join("the cotangent y", cotangent, "the outputs", outputs)
    return Scored((outputs * gradient).sum(axis=1), gradient)


LOSSES: Mapping[str, Loss] = {
    "cross_entropy": cross_entropy,
    "squared_error": squared_error,
    "none": none,
}


def smoothed(loss: Loss, smoothing: Number) -> Loss:
    """The cross-entropy against ``(1 - s) onehot(label) + s / C``: of the loss of the labels
    themselves, s (v_label - mean(v)) more.

    Source: Szegedy et al. (2016), 7.

    >>> scored = smoothed(cross_entropy, 0.5)(np.zeros((1, 2)), np.array([0]))
    >>> scored.gradient.tolist()
    [[-0.25, 0.25]]

    Checked by: tests/nets/test_weights.py::test_push_equals_pull.
    """

    def scored(logits: Array, labels: Array) -> Scored:
        each, gradient = loss(logits, labels)
        rows, C = np.arange(len(labels)), logits.shape[1]
        s = times(smoothing, logits[:, 0] * 0 + 1)
        above = logits[rows, labels] - divided(logits.sum(axis=1), C)
        gradient = gradient - divided(s, C)[:, None]
        gradient[rows, labels] = gradient[rows, labels] + s
        return Scored(each + s * above, gradient)

    return scored


def counted_predictions(
    mask: Array | None, shape: tuple[int, ...], reduction: str, weights: Array | None = None
) -> tuple[Array | None, Scalar]:
    """Which predictions count, bool of ``shape`` or None for all, and what their summed loss is
    divided by.

    ``shape``: (B,) for one prediction a sequence, (T, B) for one a step. ``weights``: of ``shape``
    or (B,).
    ``reduction``: "sum" divides by 1, "mean" by the number of predictions that count, or the sum
    of their weights, "batch_mean" by B (so a longer sequence weighs more).

    >>> counted, divisor = counted_predictions(np.array([[1, 1], [1, 0]]), (2, 2), "mean")
    >>> divisor
    3
    """
    choice("reduction", reduction, REDUCTIONS)
    counted = np.asarray(mask, bool) if mask is not None and len(shape) == 2 else None
    if weights is not None:
        weights = np.broadcast_to(weights, shape)
        counted = (weights != 0) & (True if counted is None else counted)
    if reduction == "mean" and weights is not None:
        return counted, weights[counted].sum() or 1
    if reduction == "mean":
        number = prod(shape) if counted is None else int(np.count_nonzero(counted))
    else:
        number = shape[-1] if reduction == "batch_mean" else 1
    return counted, max(number, 1)


def score(
    name: str,
    outputs: Array,
    targets: Array,
    counted: Array | None,
    divisor: Scalar,
    losses: Mapping[str, Loss] = LOSSES,
    weights: Array | None = None,
) -> tuple[Array, Array]:
    """The reduced loss, (), and its gradient in ``outputs`` (..., C), zero where masked: there
    outputs and targets are not read, and may hold anything. ``weights``: of the predictions that
    count.

    ``losses``: the functions that give the loss and gradient of every prediction, by name.

    >>> outputs, targets = np.array([[1.0], [3.0]]), np.array([[0.0], [0.0]])
    >>> loss, gradient = score("squared_error", outputs, targets, None, divisor=2)
    >>> float(loss), gradient.tolist()
    (5.0, [[1.0], [3.0]])
    """
    shape = outputs.shape[:-1]
    if targets.shape[: len(shape)] != shape:
        raise ValueError(
            f"{name}: targets have shape {targets.shape}; need {shape} first, "
            "one target a prediction (check the net's readout and the order of "
            "x's axes)"
        )
    flat, rows = outputs, targets
    if len(shape) != 1:
        flat = outputs.reshape(prod(shape), outputs.shape[-1])
        rows = targets.reshape(prod(shape), *targets.shape[len(shape) :])
    if counted is None:
        loss, gradient = losses[name](flat, rows)
        loss, gradient = divided(loss, divisor), divided(gradient, divisor)
    else:
        scores = counted.reshape(-1)
        loss, gradient = np.zeros_like(flat[:, 0]), np.zeros_like(flat)
        scored = losses[name](flat[scores], rows[scores])
        if weights is not None:
            scored = Scored(scored.loss * weights, scored.gradient * weights[:, None])
        loss[scores], gradient[scores] = (divided(part, divisor) for part in scored)
    total = np.asanyarray(np.add.reduce(loss), outputs.dtype)
    return total, gradient.reshape(outputs.shape)
