"""Mistakes in the loss: reductions, labels, and other losses than the one asked for."""

from math import log
from typing import Any

import numpy as np

from refnet.batch import Array, Batch, Params
from refnet.check.mistakes.base import Mistakes, mistake
from refnet.check.naive import Pass
from refnet.maths.losses import counted_predictions
from refnet.nets.gradients import Net
from refnet.nets.recurrent import RecurrentNet

__all__ = ["class_alone", "faint", "of_the_classes", "of_the_loss"]

CLASSES = 32
"""The most classes of a batch of which each is looked for, if one may be left out."""


def of_the_loss(net: Net, batch: Batch) -> Mistakes:
    """Another loss, and the same one divided by something else."""
    C = net.outputs if isinstance(net, RecurrentNet) else net.widths[-1]
    every = isinstance(net, RecurrentNet) and net.readout == "every"
    lead = batch.x.shape[:2] if every else batch.x.shape[-2:-1]
    yield from _of_the_reduction(net, batch, lead, C)
    if net.loss == "cross_entropy":
        yield from _of_the_softmax(C)
    elif C > 1:
        yield mistake("the targets' channels are reversed", y=lambda v, s: v[..., ::-1])
    if batch.mask is not None and len(lead) == 2:
        yield mistake(
            "masked predictions add to the gradient, though not to the loss",
            each=lambda v, s: (v[0], s.raw[1]),
        )
        yield mistake(
            "masked predictions add to the loss, though not to the gradient",
            each=lambda v, s: (s.raw[0], v[1]),
        )
        yield mistake(
            "each sequence's loss is divided by its own length, then by B", each=_by_length
        )


def _of_the_reduction(net: Net, batch: Batch, lead: tuple[int, ...], C: int) -> Mistakes:
    usual = counted_predictions(batch.mask, lead, net.reduction)[1]
    others: dict[str, float] = (
        {"the squared error has a factor 1/2": usual * 2} if (net.loss == "squared_error") else {}
    )
    others |= {
        f"the reduction is {name} instead of {net.reduction}": counted_predictions(
            batch.mask, lead, name
        )[1]
        for name in ("sum", "mean", "batch_mean")
    }
    if batch.mask is not None:
        others["the loss is divided by T B, although a mask leaves steps out"] = (
            len(batch.x) * lead[-1]
        )
    if isinstance(net, RecurrentNet):
        others["the loss is divided by the steps T, too"] = usual * len(batch.x)
        others["the loss is divided by the steps T instead"] = len(batch.x)
    others["the loss is divided by the outputs C, too"] = usual * C
    if net.loss == "squared_error":
        others |= {
            "the squared error is summed over the outputs, not their mean": usual / C,
            "half the squared error, summed over the outputs": usual * 2 / C,
        }
    else:
        others["the logarithm has base 2"] = usual * log(2)
    alike: dict[float, list[str]] = {}  # at these sizes
    for label, divisor in others.items():
        if divisor != usual:
            alike.setdefault(divisor, []).append(label)
    for divisor, labels in alike.items():
        yield mistake(", or ".join(labels), divisor=lambda v, s, n=divisor: n)


def _of_the_softmax(C: int) -> Mistakes:
    if C > 1:
        yield mistake("the labels are one too large", y=lambda v, s: (v + 1) % C)
        yield mistake("the labels are one too small", y=lambda v, s: (v - 1) % C)
        yield mistake("the order of the classes is reversed", y=lambda v, s: C - 1 - v)
    yield mistake("the softmax is applied twice", each=_softmax_twice)
    yield mistake("a sigmoid for every class in place of the softmax", each=_binary)
    yield mistake("label smoothing of 0.1", each=lambda v, s: _smoothed(s, 0.1))
    yield mistake("the loss is the squared error of the softmax", each=_brier)
    yield mistake("the loss is the squared error of the logits", each=_linear)
    yield mistake(
        "the gradient of the softmax leaves out the label",
        each=lambda v, s: (v[0], v[1] + _onehot(s) * s.raw[2][:, None]),
    )
    yield mistake(
        "the gradient takes the logits for the softmax",
        each=lambda v, s: (v[0], v[1] + (_logits(s) - _softmax(_logits(s))) * s.raw[2][:, None]),
    )


def _labels(batch: Batch) -> Array:
    """The labels, -1 for one that does not count."""
    y, mask = np.asarray(batch.y), batch.mask
    return y if mask is None or mask.shape != y.shape else np.where(mask, y, -1)


def class_alone(batch: Batch, b: int) -> int | None:
    """The class of all predictions of example ``b`` that no other has, or None."""
    labels = _labels(batch)
    here, others = (
        set(part.ravel().tolist()) - {-1}
        for part in (labels[..., b], np.delete(labels, b, axis=-1))
    )
    return here.pop() if len(here) == 1 and not here & others else None


def of_the_classes(net: Net, batch: Batch) -> Mistakes:
    """One class taken for padding: each that is among those that count, the usual ones first. One
    that the first or the last example of a sequence alone has is named with it."""
    if net.loss != "cross_entropy":
        return
    labels, counts = np.unique(_labels(batch), return_counts=True)
    ends = [class_alone(batch, b) for b in (0, -1)] if isinstance(net, RecurrentNet) else []
    for c in labels[np.argsort(-counts, kind="stable")][:CLASSES]:
        if c < 0 or c in ends and batch.x.shape[-2] > 1:
            continue

        def without(v: Any, s: Pass, c: int = c) -> Any:
            keep = (s.y.reshape(-1) != c).astype(v[0].dtype)
            return v[0] * keep, v[1] * keep[:, None]

        def fewer(v: Any, s: Pass, c: int = c) -> Any:
            weights = s.raw[2]
            return v * (weights[s.y.reshape(-1) != c].sum() / weights.sum() or 1)

        def nothing(results: Params, s: Pass, c: int = c) -> Params:
            keep = s.raw[2][s.y.reshape(-1) != c]
            return results if keep.any() else {**results, "loss": results["loss"] * np.nan}

        yield mistake(
            f"class {c} is left out of the loss, and not counted",
            common=False,
            each=without,
            divisor=fewer,
            report=nothing,
        )
        yield mistake(f"class {c} is left out of the loss", common=False, each=without)


def faint(net: Net) -> Mistakes:
    """Constants that keep a cross entropy finite or its labels soft, the usual ones: coarse types
    round the small ones away."""
    if net.loss != "cross_entropy":
        return
    for power in range(3, 17):
        e = 10.0**-power
        name = f"the loss is -log(p + {e:.0e}) in place of -log p"
        yield mistake(name, common=False, each=lambda v, s, e=e: _kept_finite(s, e))
        yield mistake(
            f"{name}, without it in the gradient",
            common=False,
            each=lambda v, s, e=e: (_kept_finite(s, e)[0], v[1]),
        )
    for share in (0.001, 0.01, 0.02, 0.05, 0.2):
        yield mistake(
            f"label smoothing of {share}",
            common=False,
            each=lambda v, s, share=share: _smoothed(s, share),
        )


def _logits(s: Pass) -> Array:
    return s.outputs.reshape(-1, s.outputs.shape[-1])


def _onehot(s: Pass) -> Array:
    return np.eye(s.outputs.shape[-1], dtype=s.outputs.dtype)[s.y.reshape(-1)]


def _softmax(v: Array) -> Array:
    e = np.exp(v - v.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True))


def _pull_softmax(p: Array, dp: Array) -> Array:
    return np.asarray(p * (dp - (p * dp).sum(axis=1, keepdims=True)))


def _weighted(each: Array, dv: Array, s: Pass) -> tuple[Array, Array]:
    weights = s.raw[2]
    return each * weights, dv * weights[:, None]


def _softmax_twice(v: Any, s: Pass) -> Any:
    once, onehot = _softmax(_logits(s)), _onehot(s)
    twice = _softmax(once)
    return _weighted(-np.log((twice * onehot).sum(axis=1)), _pull_softmax(once, twice - onehot), s)


def _binary(v: Any, s: Pass) -> Any:
    a, onehot = _logits(s), _onehot(s)
    losses = np.maximum(a, 0) - a * onehot + np.log1p(np.exp(-abs(a)))
    C = a.shape[1]
    return _weighted(losses.sum(axis=1) / C, (1 / (1 + np.exp(-a)) - onehot) / C, s)


def _smoothed(s: Pass, share: float) -> Any:
    p, of = _softmax(_logits(s)), s.x.dtype.type
    soft = _onehot(s) * of(1 - share) + of(share) / p.shape[1]
    return _weighted(-(np.log(p) * soft).sum(axis=1), p - soft, s)


def _kept_finite(s: Pass, e: float) -> Any:
    p, onehot = _softmax(_logits(s)), _onehot(s)
    likely = (p * onehot).sum(axis=1)
    more = likely + s.x.dtype.type(e)
    return _weighted(-np.log(more), (p - onehot) * (likely / more)[:, None], s)


def _brier(v: Any, s: Pass) -> Any:
    p = _softmax(_logits(s))
    wrong, C = p - _onehot(s), p.shape[1]
    return _weighted((wrong * wrong).sum(axis=1) / C, _pull_softmax(p, 2 * wrong / C), s)


def _linear(v: Any, s: Pass) -> Any:
    wrong, C = _logits(s) - _onehot(s), s.outputs.shape[-1]
    return _weighted((wrong * wrong).sum(axis=1) / C, 2 * wrong / C, s)


def _by_length(v: Any, s: Pass) -> Any:
    counted = s.mask
    if counted is None:
        return v
    share = counted.sum() / (counted.shape[1] * np.maximum(counted.sum(axis=0), 1))
    weight = np.broadcast_to(share, counted.shape).reshape(-1).astype(s.x.dtype)
    return v[0] * weight, v[1] * weight[:, None]
