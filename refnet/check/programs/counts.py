"""What counts in a loss, and how much: masks, weights, orders of means.

Checked by: tests/check/test_outside.py.
"""

from collections.abc import Iterator

import numpy as np

from refnet.batch import Array
from refnet.check.programs.losses import softmax
from refnet.check.programs.scores import Score, Scores

__all__ = ["counts"]

MANY = 16
"""The predictions of which a choice of some is no chance."""


def counts(scores: Scores) -> Iterator[Score]:
    """Other weights of the predictions, divided as usual and by their own sum."""
    for name, w in _weights(scores):
        share = w / scores.divisor
        yield Score(name, scores.each * share, scores.slope * share[:, None])
        if w.sum() > 0 and w.sum() != scores.w.sum():
            share = share * scores.w.sum() / w.sum()
            name = f"{name}, and the sum is divided by that of the weights"
            yield Score(name, scores.each * share, scores.slope * share[:, None])


def _weights(scores: Scores) -> Iterator[tuple[str, Array]]:
    w, (T, B) = scores.w, scores.grid
    t, b = (index.ravel() for index in np.indices(scores.grid))
    yield "every prediction counts", np.ones(len(w))
    yield "the mask is inverted", 1.0 - (w != 0)
    for move in scores.moves:
        yield f"the weight of each prediction {move.name}", scores.rearranged(move, w)
    for name, n, index in (("step", T, t), ("example", B, b)):
        sums = np.bincount(index, w, minlength=n)[index]
        text = f"the mean of each {name} is taken first, then that over the {name}s"
        yield text, w / np.maximum(sums, 1e-300) * scores.divisor / n
    for name, factor in (*_of_places(scores, t, b), *_of_values(scores)):
        yield f"each prediction is weighted by {name}", w * factor


def _of_places(scores: Scores, t: Array, b: Array) -> Iterator[tuple[str, Array]]:
    """Weights by step and sequence."""
    length, T = scores.sequence[b], scores.grid[0]
    yield "the length of its sequence", length
    yield "1 / the length of its sequence", 1 / np.maximum(length, 1)
    yield "the longest length / that of its sequence", length.max() / np.maximum(length, 1)
    yield "the length of its sequence / the longest", length / length.max()
    if T > 1:
        yield "its step, from 0", t
        yield "its step, from 1", t + 1
        yield "its step over T, from 1", (t + 1) / T
        yield "1 / its step, from 1", 1 / (t + 1)
        yield "the steps to the end", T - t
        yield "the steps to its sequence's end", scores.lengths[b] - t
    yield "its example, from 0", b
    yield "its example, from 1", b + 1


def _of_values(scores: Scores) -> Iterator[tuple[str, Array]]:
    """Weights by labels, outputs and losses."""
    each, v, y = scores.each, scores.v, scores.labels
    e = np.exp(each - each.max())
    yield "its loss", each
    yield "the softmax of the losses", e / e.sum()
    many = len(each) >= MANY
    if many:
        yield "1 if its loss is above the mean, else 0", each > each.mean()
        yield "1 if its loss is at most the mean, else 0", each <= each.mean()
    if y is None:
        if not many:
            return
        large = abs(v - scores.t).max(axis=1) > 1
        yield "1 if an error is above 1, else 0", large
        yield "1 if no error is above 1, else 0", ~large
        return
    counted = scores.w != 0
    number = np.bincount(y[counted], minlength=v.shape[1])[y]
    p = (softmax(v) * scores.t).sum(axis=1)
    right = v.argmax(axis=1) == y
    yield "1 / the number of its class's labels", 1 / np.maximum(number, 1)
    yield "the number of its class's labels", number
    yield ("the number of all labels / that of its class", counted.sum() / np.maximum(number, 1))
    yield "its label", y
    yield "its label plus 1", y + 1
    yield "p of the label", p
    yield "1 - p of the label", 1 - p
    yield "p (1 - p) of the label", p * (1 - p)
    if many:
        yield "1 if the largest output is not the label's, else 0", ~right
        yield "1 if the largest output is the label's, else 0", right
