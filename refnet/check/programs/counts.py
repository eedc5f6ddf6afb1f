"""What counts in a loss, and how much: masks, weights, orders of means.

The weights of the predictions are formulas (``notation``) of what ``scores.Scores`` knows of them.

Checked by: tests/check/test_outside.py.
"""

from collections.abc import Iterator

import numpy as np

from refnet.batch import Array
from refnet.check.programs.scores import Score, Scores

__all__ = ["counts"]

MANY = 16
"""The predictions of which a choice of some is no chance."""
OF_PLACES = {
    "the length of its sequence": "length",
    "1 / the length of its sequence": "1 / maximum(length, 1)",
    "the longest length / that of its sequence": "length.max() / maximum(length, 1)",
    "the length of its sequence / the longest": "length / length.max()",
}
OF_STEPS = {
    "its step, from 0": "t",
    "its step, from 1": "t + 1",
    "its step over T, from 1": "(t + 1) / T",
    "1 / its step, from 1": "1 / (t + 1)",
    "the steps to the end": "T - t",
    "the steps to its sequence's end": "end - t",
}
OF_EXAMPLES = {"its example, from 0": "b", "its example, from 1": "b + 1"}
OF_LOSSES = {
    "its loss": "e",
    "the softmax of the losses": "exp(e - e.max()) / exp(e - e.max()).sum()",
}
OF_ERRORS = {
    "1 if an error is above 1, else 0": "abs(v - target).max(axis=1) > 1",
    "1 if no error is above 1, else 0": "abs(v - target).max(axis=1) <= 1",
}
OF_LABELS = {
    "1 / the number of its class's labels": "1 / maximum(number, 1)",
    "the number of its class's labels": "number",
    "the number of all labels / that of its class": "counted / maximum(number, 1)",
    "its label": "y",
    "its label plus 1": "y + 1",
    "p of the label": "p",
    "1 - p of the label": "1 - p",
    "p (1 - p) of the label": "p (1 - p)",
}
OF_MANY = {
    "1 if its loss is above the mean, else 0": "e > e.mean()",
    "1 if its loss is at most the mean, else 0": "e <= e.mean()",
}
OF_MANY_LABELS = {
    "1 if the largest output is not the label's, else 0": "v.argmax(axis=1) != y",
    "1 if the largest output is the label's, else 0": "v.argmax(axis=1) == y",
}


def counts(scores: Scores) -> Iterator[Score]:
    """Candidates with other weights of the predictions, divided as usual and by the sum of the
    weights."""
    seen: set[bytes] = set()  # of weights with few values, others may be alike by chance
    for name, w in _weights(scores):
        shares = w * scores.w.sum() / (w.sum() or np.nan)
        key = np.round(shares, 9).tobytes() if len(np.unique(w)) > 2 else name.encode()
        yield scores.weighted(name, w)
        if w.sum() > 0 and w.sum() != scores.w.sum() and key not in seen:
            name = f"{name}, and the sum is divided by that of the weights"
            yield scores.weighted(name, shares)
        seen.add(key)


def _weights(scores: Scores) -> Iterator[tuple[str, Array]]:
    w, (T, B) = scores.w, scores.grid
    t, b = (index.ravel() for index in np.indices(scores.grid))
    yield "every prediction counts", np.ones(len(w))
    yield "the mask is inverted", 1.0 - (w != 0)
    for move in scores.moves:
        if move.picks or move.scales:
            yield f"the weight of each prediction {move.name}", scores.rearranged(move, w)
    for name, n, index in (("step", T, t), ("sequence", B, b)):
        sums = np.bincount(index, w, minlength=n)[index]
        text = f"the mean of each {name} is taken first, then that over the {name}s"
        yield text, w / np.maximum(sums, 1e-300) * scores.divisor / n
    many, y = len(w) >= MANY, scores.labels
    tables = [OF_PLACES, OF_STEPS if T > 1 else {}, OF_EXAMPLES, OF_LOSSES, OF_MANY if many else {}]
    known = {"length": scores.sequence[b], "end": scores.lengths[b], "t": t, "T": T, "b": b}
    known |= {"e": scores.each, "target": scores.t}
    if y is None:
        tables.append(OF_ERRORS if many else {})
    else:
        number = np.bincount(y[w != 0], minlength=scores.v.shape[1])[y]
        known |= {
            "number": number,
            "counted": (w != 0).sum(),
            "p": (scores.p * scores.t).sum(axis=1),
        }
        for c in np.unique(y[w != 0]).tolist():
            yield f"class {c} is left out", w * (y != c)
        tables += [OF_LABELS, OF_MANY_LABELS if many else {}]
    for table in tables:
        for name, text in table.items():
            yield f"each prediction is weighted by {name}", w * scores.value(text, **known)
