"""What a task is, and what tasks share: random streams, batch sizes, counting errors."""

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Protocol

import numpy as np

from refnet.batch import Array, Batch
from refnet.common.arguments import SEED, whole
from refnet.maths.losses import admit_labels

Scores = dict[str, float]
"""Counts and sums over a batch, or the figures to report, by name."""
Totals = Mapping[str, float]
"""The sums of scores, or figures, by name."""
TRAINING, EVALUATION, ORDER = 0, 1, 2
"""The random streams: training batches, evaluation sets, the order of a data set."""


class Task(Protocol):
    """Data, and what a net needs to learn from it: shapes, loss, read-out, when it is solved.

    Batches are pure functions of the task's options, the seed and an index, so that a run
    resumes from its position alone. A class that inherits from this one gets ``batches`` and
    ``solved``; one that does not has to define everything here.
    Checked by: tests/tasks/test_tasks.py.
    """

    @property
    def name(self) -> str:
        """The name that ``refnet.tasks.make_task`` knows it by."""

    @property
    def inputs(self) -> int:
        """D of ``batch.x``."""

    @property
    def outputs(self) -> int:
        """C: classes, or real targets."""

    @property
    def loss(self) -> str:
        """cross_entropy or squared_error."""

    @property
    def readout(self) -> str:
        """What of a recurrent net is read out: "last" or "every" step; "none": the task is for
        a feedforward net, x is (B, D)."""

    @property
    def splits(self) -> tuple[str, ...]:
        """What ``evaluation`` offers: "test", and "validation" if something was held out."""

    @property
    def metric(self) -> str:
        """The metric by which the best weights are chosen."""

    @property
    def lower_is_better(self) -> bool:
        """Whether a smaller ``metric`` is the better one."""

    @property
    def criterion(self) -> str:
        """When the task counts as solved, in words."""

    def batch(self, index: int, size: int, seed: int) -> Batch:
        """Training batch number ``index`` (from 0), of ``size`` examples."""

    def batches(self, size: int, seed: int, start: int = 0) -> Iterator[Batch]:
        """The training batches from number ``start`` on, without end."""
        return (self.batch(index, size, seed) for index in count(start))

    def evaluation(self, index: int, seed: int, split: str = "test") -> Iterator[Batch]:
        """The batches of evaluation set number ``index``.

        Generated tasks draw a fresh set for each index; data sets give the whole split in a
        fixed order. Raises ValueError for a split that is not in ``splits``.
        """

    def score(self, outputs: Array, batch: Batch) -> Scores:
        """Counts and sums over one batch; add them up by name and pass them to ``metrics``.

        ``outputs``: the net's, (B, C) or (T, B, C). An output that is not finite is an error.
        """

    def metrics(self, totals: Totals) -> Scores:
        """The figures to report, from the sums of the scores of all batches."""

    def solved(self, metrics: Totals) -> bool:
        """Whether the figures meet ``criterion``; never, for a task that has none."""
        return False


def check_batch(index: int, size: int, seed: int, least: int = 0) -> None:
    """Raise TypeError or ValueError unless these are a batch's number, size and seed.

    >>> check_batch(0, 20, seed=0)
    """
    for name, value, need in (("index", index, 0), ("size", size, least), ("seed", seed, 0)):
        whole(f"batch: {name}", value, need, SEED)


def stream(seed: int, *key: int) -> np.random.Generator:
    """The generator of one stream: the same for the same numbers, independent otherwise.

    >>> bool((stream(0, 1).random(3) == stream(0, 1).random(3)).all())
    True
    """
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))


def evaluation_size(steps: int) -> int:
    """Sequences in a batch of an evaluation, 1000 at most.

    About 40,000 steps in all, or 128 sequences as long as these have no more than 200,000 steps:
    so many that what each batch takes beside its steps is little beside them.

    >>> evaluation_size(60), evaluation_size(784)
    (666, 128)
    """
    steps = max(steps, 1)
    return min(max(40_000 // steps, min(128, 200_000 // steps), 1), 1000)


def shortest_first(lengths: Array) -> Iterator[Array]:
    """The batches of an evaluation of sequences of these lengths, as rows.

    >>> [rows.tolist() for rows in shortest_first(np.array([9, 3, 8]))]
    [[1, 2, 0]]
    """
    rows = np.argsort(lengths, kind="stable")
    size = evaluation_size(int(lengths.max()))
    return (rows[start : start + size] for start in range(0, len(rows), size))


def one_hot(symbols: Array, classes: int, dtype: str) -> Array:
    """``symbols`` (...) as (..., classes).

    >>> one_hot(np.array([0, 2]), 3, "float32").tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """
    return np.eye(classes, dtype=dtype).take(symbols, axis=0)


LARGE = 2**11
"""Predictions from which they are scored by a compiled loop."""


def classified(outputs: Array, labels: Array) -> Scores:
    """How many of the predictions (N, C) of ``labels`` (N,) are wrong, and their loss.

    The first of the largest outputs is what is predicted. A prediction with an output that is
    not finite is wrong.

    >>> sorted(classified(np.array([[2.0, 1.0], [0.0, 5.0]]), np.array([0, 0])))
    ['count', 'errors', 'loss']

    Checked by: tests/training/test_scores.py::test_classified.
    """
    if len(labels) >= LARGE and outputs.dtype.char in "fd" and outputs.dtype.isnative:
        from refnet.compiled import losses  # Numba is slow to import

        errors, total = losses.classified(outputs, labels)
        return {"count": len(labels), "errors": errors, "loss": total}
    admit_labels(outputs, labels)
    # one row a class: NumPy is slow along many short rows
    wide = np.ascontiguousarray(outputs.T)
    finite = np.isfinite(wide)
    with np.errstate(invalid="ignore", over="ignore"):
        wide = wide - wide.max(axis=0)
        target = wide[labels, np.arange(len(labels))]
        right = target == 0
        top = wide == 0
        if not finite.all() or np.count_nonzero(top) > len(labels):
            right &= finite.all(axis=0)
            tied = np.flatnonzero(right & (top.sum(axis=0) > 1))
            right[tied] = wide[:, tied].argmax(axis=0) == labels[tied]
        loss = np.log(np.exp(wide).sum(axis=0)) - target
    return {
        "count": len(labels),
        "errors": len(labels) - int(right.sum()),
        "loss": float(loss.sum(dtype=np.float64)),
    }


def rates(totals: Totals) -> Scores:
    """What ``classified`` counted, as accuracy, errors and mean cross-entropy (in nats).

    >>> totals = classified(np.array([[2.0, 1.0], [0.0, 5.0]]), np.array([0, 0]))
    >>> rates(totals)["accuracy"]
    0.5
    """
    errors, number = totals["errors"], totals["count"]
    return {
        "accuracy": 1 - errors / number,
        "errors": errors,
        "cross_entropy": totals["loss"] / number,
    }
