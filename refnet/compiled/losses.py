"""The cross-entropy of ``refnet.maths.losses``, and of ``refnet.tasks.base.classified`` with its
errors, compiled. They read the logits a few times instead of a dozen times, which saves a
measurable part of a step, and of an evaluation, with a read-out at every step."""

import numpy as np

from refnet.batch import Array
from refnet.common.arguments import array
from refnet.compiled._jit import jit, run
from refnet.compiled.annotations import Arg
from refnet.compiled.elementary import exp
from refnet.compiled.layout import borrow, common, give_back, normal
from refnet.compiled.products import block_starts
from refnet.compiled.vector import cut
from refnet.maths import losses
from refnet.maths.losses import Scored
from refnet.maths.threads import get_threads

__all__ = ["LOSSES", "classified", "cross_entropy"]

CHUNK = 256
"""Rows whose numbers stay in the nearest cache between two loops."""


def cross_entropy(logits: Array, labels: Array) -> Scored:
    """As ``refnet.maths.losses.cross_entropy``; for dtypes other than float32 and float64, and for
    labels that are to be refused, it calls that one.

    Checked by: tests/maths/test_losses.py::test_compiled_cross_entropy.
    """
    if (
        logits.dtype.char in "fd"
        and logits.ndim == 2
        and labels.dtype.kind in "iu"
        and labels.shape == logits.shape[:1]
    ):
        dtype = np.dtype(logits.dtype.char)
        scored = Scored(np.empty(len(logits), dtype), np.empty(logits.shape, dtype))
        starts = block_starts(len(logits))
        known = np.zeros(len(starts) - 1, bool)
        _run(_cross_entropy, starts, 0, normal(logits, dtype), labels, (*scored,), known)
        if all(known.tolist()):
            return scored
    return losses.cross_entropy(logits, labels)


def classified(logits: Array, labels: Array) -> tuple[int, float]:
    """How many of the predictions (N, C) of ``labels`` (N,) are wrong, and the sum of their
    cross-entropies: of float32 or float64. ValueError for labels outside 0 .. C - 1.

    >>> classified(np.array([[2.0, 1.0], [0.0, 5.0]]), np.array([0, 0]))[0]
    1

    Checked by: tests/training/test_scores.py::test_classified.
    """
    array("classified: logits", logits, ("N", "C"))
    losses.admit_labels(logits, labels)
    dtype, starts = common("classified", logits), block_starts(len(logits))
    errors, loss = np.zeros(len(starts) - 1, np.int64), np.zeros(len(starts) - 1)
    _run(_classified, starts, CHUNK * logits.shape[1], normal(logits, dtype), labels, errors, loss)
    return int(errors.sum()), float(loss.sum())


def _run(
    kernel: Arg, starts: Array, numbers: int, logits: Array, labels: Array, *results: Arg
) -> None:
    threads = min(get_threads(), len(starts) - 1)
    work = borrow((threads, numbers), logits.dtype)
    run(kernel, len(starts) - 1, work, starts, logits, normal(labels, np.dtype(np.int64)), *results)
    give_back(work)


@jit
def _cross_entropy(
    begin: int, end: int, work: Arg, starts: Arg, logits: Arg, labels: Arg, scored: Arg, known: Arg
) -> None:
    """Fill ``scored``; ``known``: whether a block's labels are in 0 .. C - 1."""
    loss, gradient = scored
    C, first, last = logits.shape[1], starts[begin], starts[end]
    for n in range(first, last):
        if not 0 <= labels[n] < C:
            return
        top = logits[n, 0]
        for c in range(1, C):
            if logits[n, c] > top:
                top = logits[n, c]
        for c in range(C):
            gradient[n, c] = logits[n, c] - top
        loss[n] = -gradient[n, labels[n]]
    flat = cut(gradient, first * C, (last - first) * C)
    for i in range(len(flat)):  # all rows at once: a few classes alone would not fill a vector
        flat[i] = exp(flat[i])
    for n in range(first, last):
        total = gradient[n, 0]
        for c in range(1, C):
            total += gradient[n, c]
        loss[n] += np.log(total)
        for c in range(C):
            gradient[n, c] /= total
        gradient[n, labels[n]] -= 1
    known[begin:end] = True


@jit
def _classified(
    begin: int, end: int, work: Arg, starts: Arg, logits: Arg, labels: Arg, errors: Arg, loss: Arg
) -> None:
    C = logits.shape[1]
    for block in range(begin, end):
        for first in range(starts[block], starts[block + 1], CHUNK):
            rows = min(CHUNK, starts[block + 1] - first)
            flat = cut(work, 0, rows * C)
            for n in range(rows):
                row = cut(logits, (first + n) * C, C)
                best, odd = 0, row[0] - row[0]  # 0, unless it is not finite
                for c in range(1, C):
                    odd += row[c] - row[c]
                    if row[c] > row[best]:
                        best = c
                errors[block] += best != labels[first + n] or odd != 0
                for c in range(C):
                    flat[n * C + c] = row[c] - row[best]
                loss[block] -= flat[n * C + labels[first + n]]
            for i in range(rows * C):
                flat[i] = exp(flat[i])
            for n in range(rows):
                total = flat[n * C]
                for c in range(1, C):
                    total += flat[n * C + c]
                loss[block] += np.log(total)


LOSSES = {**losses.LOSSES, "cross_entropy": cross_entropy}
