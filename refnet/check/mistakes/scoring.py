"""Mistakes in the loss: reductions, labels, and other losses than the one asked for.

The usual ones, by the names that users know; ``refnet.check.programs.scores`` tries many more.

Checked by: tests/check/test_mistake_names.py.
"""

from math import log

import numpy as np

from refnet.batch import Array, Batch
from refnet.check.entries import either
from refnet.check.mistakes.base import Mistake, Mistakes, mistake
from refnet.maths.losses import counted_predictions
from refnet.nets.gradients import Net
from refnet.nets.recurrent import RecurrentNet

__all__ = ["class_alone", "faint", "of_the_classes", "of_the_labels", "of_the_loss"]

CLASSES = 32
"""The most classes of a batch of which each is looked for, if one may be left out."""
SMOOTHED = "-(np.log(softmax(v)) * ((1 - {0}) * y + {0} / y.shape[1])).sum(axis=1)"
FINITE = "-np.log(likely(v, y) + {})"


def loss(name: str, formula: str, common: bool = True) -> Mistake:
    """The mistake of another loss: a formula of the outputs v and the targets y, both (N, C), for
    each prediction. Its gradient is derived."""
    return mistake(name, common, each=f"scored(s, lambda v, y: {formula})")


def of_the_loss(net: Net, batch: Batch) -> Mistakes:
    """Mistakes in the loss: another one, or the same one divided by something else."""
    C = net.outputs if isinstance(net, RecurrentNet) else net.widths[-1]
    every = isinstance(net, RecurrentNet) and net.readout == "every"
    lead = batch.x.shape[:2] if every else batch.x.shape[-2:-1]
    yield from _of_the_reduction(net, batch, lead, C)
    if net.loss == "cross_entropy":
        yield from _of_the_softmax(C)
    if batch.weights is not None:
        yield mistake("the weights of the predictions are ignored", weights="None")
    if batch.mask is not None and len(lead) == 2:
        yield mistake(
            "masked predictions add to the gradient, though not to the loss",
            each="(v[0], s.raw[1])",
        )
        for step, later in (("before", True), ("after", False)):
            yield mistake(
                f"the mask of the step {step} multiplies the gradient",
                each=f"(v[0], s.raw[1] * shifted(s.batch.mask, {later}).reshape(-1, 1))",
            )
        yield mistake(
            "masked predictions add to the loss, though not to the gradient",
            each="(s.raw[0], v[1])",
        )


def _of_the_reduction(net: Net, batch: Batch, lead: tuple[int, ...], C: int) -> Mistakes:
    usual = counted_predictions(batch.mask, lead, net.reduction, batch.weights)[1]
    others: dict[str, float] = (
        {"the squared error has a factor 1/2": usual * 2} if (net.loss == "squared_error") else {}
    )
    others |= {
        f"the reduction is {name} instead of {net.reduction}": counted_predictions(
            batch.mask, lead, name, batch.weights
        )[1]
        for name in ("sum", "mean", "batch_mean")
    }
    if batch.weights is not None:
        label = "the loss is divided by the number of predictions, not the sum of their weights"
        others[label] = counted_predictions(batch.mask, lead, "mean")[1]
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
        yield mistake(either(labels), divisor=str(divisor))


def _of_the_softmax(C: int) -> Mistakes:
    if C > 1:
        yield mistake("the labels are one too large", y=f"(v + 1) % {C}")
        yield mistake("the labels are one too small", y=f"(v - 1) % {C}")
    for name, formula in (
        ("the softmax is applied twice", "-np.log(likely(softmax(v), y))"),
        (
            "a sigmoid for every class in place of the softmax",
            "(np.maximum(v, 0) - v * y + np.log1p(np.exp(-abs(v)))).mean(axis=1)",
        ),
        ("label smoothing of 0.1", SMOOTHED.format(0.1)),
        ("the loss is the squared error of the softmax", "((softmax(v) - y) ** 2).mean(axis=1)"),
        ("the loss is the squared error of the logits", "((v - y) ** 2).mean(axis=1)"),
        (
            "the loss is the multi-class hinge loss",
            "np.where(y > 0, 0, np.maximum(0, 1 + v - (v * y).sum(axis=1, keepdims=True)))"
            ".mean(axis=1)",
        ),
        (
            "the softmax is taken over the examples, not the classes",
            "-np.log((softmax(v.T).T * y).sum(axis=1))",
        ),
    ):
        yield loss(name, formula)
    for name, formula in (
        ("the gradient takes the labels of the next example", "softmax(v) - np.roll(y, -1, 0)"),
        ("the gradient takes the labels of the previous example", "softmax(v) - np.roll(y, 1, 0)"),
    ):
        yield mistake(name, each=f"(v[0], sloped(s, lambda v, y: {formula}))")


def _labels(batch: Batch) -> Array:
    """The labels, -1 for one that does not count."""
    y, mask = np.asarray(batch.y), batch.mask
    return y if mask is None or mask.shape != y.shape else np.where(mask, y, -1)


def class_alone(batch: Batch, b: int) -> int | None:
    """The class that all predictions of example ``b`` have and no other prediction has, or None."""
    labels = _labels(batch)
    here, others = (
        set(part.ravel().tolist()) - {-1}
        for part in (labels[..., b], np.delete(labels, b, axis=-1))
    )
    return here.pop() if len(here) == 1 and not here & others else None


def of_the_classes(net: Net, batch: Batch) -> Mistakes:
    """Mistakes that take one class for padding, the most frequent class first. A class that only
    the first or the last example has is not named here: that example is left out."""
    if net.loss != "cross_entropy":
        return
    labels, counts = np.unique(_labels(batch), return_counts=True)
    ends = [class_alone(batch, b) for b in (0, -1)] if isinstance(net, RecurrentNet) else []
    for c in labels[np.argsort(-counts, kind="stable")][:CLASSES]:
        if c < 0 or c in ends and batch.x.shape[-2] > 1:
            continue

        name, rest = f"class {c} is left out of the loss", f"dropped(v, s.y.reshape(-1) == {c})"
        yield mistake(
            f"{name}, and not counted",
            common=False,
            each=rest,
            divisor=f"v * share_of_others(s, {c})",
            report=f"loss_without(v, s, {c})",
        )
        yield mistake(name, common=False, each=rest)


def of_the_labels(net: Net, batch: Batch) -> Mistakes:
    """Mistakes that give one example the label of another class."""
    if net.loss == "cross_entropy" and batch.y.ndim == 1 and batch.y.size <= CLASSES:
        C = net.outputs if isinstance(net, RecurrentNet) else net.widths[-1]
        for b, right in enumerate(batch.y.tolist()):
            for c in range(min(C, 9)):
                if c != right:
                    name = f"example {b} has the label {c}, not {right}"
                    yield mistake(name, common=False, y=f"put(v, {b}, {c})")


def faint(net: Net) -> Mistakes:
    """Small constants that keep a cross entropy finite or its labels soft. Coarse types round them
    away, so that ``types`` and these are told apart by size."""
    if net.loss != "cross_entropy":
        return
    for power in range(3, 17):
        e = 10.0**-power
        name, formula = f"the loss is -log(p + {e:.0e}) in place of -log p", FINITE.format(e)
        yield loss(name, formula, common=False)
        alone = f"(scored(s, lambda v, y: {formula})[0], v[1])"
        yield mistake(f"{name}, without it in the gradient", common=False, each=alone)
    for share in (0.001, 0.01, 0.02, 0.05, 0.2):
        yield loss(f"label smoothing of {share}", SMOOTHED.format(share), common=False)
