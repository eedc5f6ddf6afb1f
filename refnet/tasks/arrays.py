"""A user's own arrays as a task: the parts, the targets, batches of like lengths.

Checked by: tests/tasks/test_arrays.py.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import InitVar, dataclass, replace
from functools import cached_property, lru_cache
from hashlib import sha256
from typing import Any, cast

import numpy as np

from refnet.batch import Array, Batch
from refnet.common.arguments import choice, short, whole
from refnet.tasks.base import (
    ORDER,
    Scores,
    Task,
    Totals,
    check_batch,
    classified,
    rates,
    shortest_first,
    stream,
)
from refnet.tasks.sequences import Data, Encoding, Sequences, sequences
from refnet.tasks.targets import Targets, targets_of

PARTS = ("train", "validation", "test")
FRACTIONS = (0.7, 0.15, 0.15)
ORDERS = ("shuffled", "mixed")
"""How sequences come, every one once an epoch: those of like lengths together, or all mixed."""
DATA = ("_x", "_y", "_parts", "_present", "_weights")
NEAR = 16
"""Batches whose sequences, drawn at random, are sorted by length and cut anew."""


def divide(fractions: Sequence[float], count: int, seed: int, groups: Array | None) -> Array:
    """The part of each of ``count`` sequences, an index of PARTS, in these fractions; likewise
    of every group, a number for each sequence, to within one sequence.

    >>> np.bincount(divide((0.5, 0.25, 0.25), 8, 0, None)).tolist()
    [4, 2, 2]

    Checked by: tests/tasks/test_arrays.py::test_parts_are_stratified.
    """
    try:
        shares = np.array(fractions, float)
    except (TypeError, ValueError):
        shares = np.zeros(0)
    if (
        shares.shape != (3,)
        or not (shares >= 0).all()
        or not shares[0]
        or abs(sum(shares) - 1) > 1e-6
    ):
        raise ValueError(
            f"splits is {short(fractions)}; need the fractions of train, validation and test, such "
            f"as {FRACTIONS}, or the name of a part for each of the {count} sequences"
        )
    order = stream(seed, ORDER).permutation(count)
    if groups is not None:
        order = order[np.argsort(groups[order], kind="stable")]
    parts = np.zeros(count, np.int64)
    for part in (1, 2):
        left = order[parts[order] == 0]
        share = shares[part] / (shares[0] + shares[part:].sum())
        passed = np.floor(np.arange(len(left) + 1) * share + 0.5)
        parts[left[np.diff(passed) > 0]] = part
    return parts


def batches_of(
    lengths: Array, size: int, seed: int, epoch: int, order: str, near: int = NEAR
) -> list[Array]:
    """The batches of an epoch, as rows. With the order "shuffled", ``near`` batches drawn at random
    at a time are sorted by length and cut anew; batches come in random order, and one may be
    smaller.

    >>> epoch = batches_of(np.array([9, 3, 8, 4]), 2, 0, 0, "shuffled")
    >>> sorted(sorted(rows.tolist()) for rows in epoch)
    [[0, 2], [1, 3]]
    """
    rng = stream(seed, ORDER, epoch)
    rows = rng.permutation(len(lengths))
    if order == "shuffled":
        group = np.arange(len(rows)) // (near * size)
        rows = rows[np.lexsort((lengths[rows], group))]
    cuts = np.split(rows, range(size, len(rows), size))
    return [cuts[i] for i in rng.permutation(len(cuts))]


@dataclass(eq=False, repr=False)
class Arrays(Task):
    """Sequences and their targets, as a task.

    ``x``: padded, (N, T, D), batch first, with ``lengths`` (N,) or all of T steps; or a list of N
    arrays (T, D), each of its own length. Without the last axis a step is one feature, if x is
    floats, or one symbol, if x is integers from 0 on, or words: for a net with an ``embedding``.
    ``y``: a target for each sequence, (N,) or (N, C); or for every step, padded or as a list as x
    is. Integers, booleans and strings are classes, floats are real; ``targets``: "auto" is this,
    "classes" and "real" are for the others, and a list names all classes there can be, in the order
    of the net's outputs.
    ``readout``: "auto" takes a y with as many entries for a sequence as it has steps as one for
    "every" step; else "last".
    ``splits``: the fractions of train, validation and test, drawn with ``seed`` and in the same
    proportion of every class; or the name of a part for each sequence.
    ``standardize``: subtract the mean from every feature and real target, and divide by the
    standard deviation, both of the training part. ``encoding`` has them.
    ``missing``: "refuse" features that are NaN, or put the training part's "mean" there. Where
    a step of "every" has no target, NaN or "", it does not count. All else must be there.
    ``weights``: of the sequences in the training loss, (N,); None: all alike. ``encoding``: one
    fitted before, to be used in place of this training part's.
    ``order``: how the training part comes, one of ORDERS. ``dtype``: float32 or float64.

    ``loss``, ``metric`` and the figures: cross-entropy and accuracy; or the squared error of the
    standardized targets, ``mse`` in the user's units, and ``r2``, 1 - mse / (the mse of always
    answering the training part's mean), over all targets.

    >>> x = [np.ones((length, 2)) * length for length in (3, 5, 4, 6)]
    >>> task = Arrays(x, ["short", "long", "short", "long"], splits=(0.5, 0, 0.5))
    >>> batch = task.batch(index=0, size=2, seed=0)
    >>> task.inputs, task.outputs, batch.x.shape[1:], batch.y.shape
    (2, 2, (2, 2), (2,))

    Raises TypeError or ValueError, in one line, for what does not fit together.
    Checked by: tests/tasks/test_arrays.py.
    """

    x: InitVar[Data]
    y: InitVar[Data]
    lengths: InitVar[Data] = None
    splits: Data = FRACTIONS
    seed: int = 0
    targets: Any = "auto"
    readout: str = "auto"
    standardize: bool = True
    missing: str = "refuse"
    order: str = "shuffled"
    dtype: str = "float32"
    name: str = "arrays"
    weights: InitVar[Data] = None
    encoding: Encoding = cast(Encoding, None)

    criterion = "none: it runs to its last iteration, or as patience says"

    def __post_init__(self, x: Data, y: Data, lengths: Data, weights: Data) -> None:
        whole(f"{self.name}: seed", self.seed, 0)
        for option, known in {
            "readout": ("auto", "last", "every"),
            "missing": ("refuse", "mean"),
            "order": ORDERS,
            "dtype": ("float32", "float64"),
        }.items():
            choice(f"{self.name}: {option}", getattr(self, option), known)
        given = sequences("x", x, lengths)
        padded = x.shape[1] if isinstance(x, np.ndarray) and x.ndim > 1 else given.lengths.max()
        goal = self._goal(y, given, int(padded))
        self.readout = "every" if goal.every else "last"
        groups = goal.values if goal.classes and not goal.every else None
        self._parts = _parts(self.splits, len(given.lengths), self.seed, groups)
        self.splits = tuple(name for name in PARTS[1:] if len(self._parts[name])) or PARTS[:1]
        encoding = self.encoding or self._fitted(given, goal)
        self.encoding = replace(encoding, missing=self.missing)
        self._weights = _weights(weights, len(given.lengths), self.dtype, self._parts["train"])
        self._x, self._y = self.encoding.encoded(given), goal.values
        self._present = None if goal.present.all() else goal.present
        if not goal.classes:
            mean, scale = self.encoding.target_mean, self.encoding.target_scale
            with np.errstate(over="ignore"):
                self._y = ((goal.values - np.array(mean)) / np.array(scale)).astype(self.dtype)
            if not np.isfinite(self._y).all():
                raise ValueError(f"y has targets that are too large for {self.dtype}; scale them")

    def __repr__(self) -> str:
        sizes = f"inputs {self.inputs}, outputs {self.outputs}"
        return f"<{self.name}: {sizes}, loss {self.loss}, readout {self.readout}>"

    @classmethod
    def recorded(cls, encoding: Encoding, name: str, reason: str) -> "Arrays":
        """The task of a run whose data are not there, for ``reason``: its encoding without a batch.

        >>> task = Arrays.recorded(Encoding(features=2, classes=[0, 1]), "a.csv", "no data")
        >>> task.inputs, task.metric
        (2, 'accuracy')

        Checked by: tests/training/test_predict_from_folder.py.
        """
        task = cls.__new__(cls)
        vars(task).update(encoding=encoding, name=name, readout=encoding.readout, reason=reason)
        task.splits = PARTS[1:]
        return task

    def __getattr__(self, name: str) -> Any:
        if name in DATA and "reason" in vars(self):
            raise ValueError(vars(self)["reason"])
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def _goal(self, y: Data, given: Sequences, padded: int) -> Targets:
        kind, known = self.targets, self.encoding.classes if self.encoding else None
        if not isinstance(kind, str):
            kind, known = "classes", list(kind)
        choice(f"{self.name}: targets", kind, ("auto", "classes", "real"))
        return targets_of(y, given.lengths, padded, kind, self.readout, known)

    def _fitted(self, given: Sequences, goal: Targets) -> Encoding:
        train = np.isin(np.arange(len(given.lengths)), self._parts["train"])
        steps = np.repeat(train, given.lengths)
        seen = given.steps[steps]
        facts: dict[str, Any] = {}
        if seen.ndim == 2:
            mean, scale = _moments(seen, self.standardize)
            facts = {"features": seen.shape[1], "mean": mean, "scale": scale}
        elif seen.dtype.kind == "U":
            words = np.unique(given.steps).tolist()
            facts = {"words": words, "symbols": len(words)}
        else:
            facts = {"symbols": int(given.steps.max()) + 1}
        if not goal.classes:
            known = goal.present & (steps if goal.every else train)
            mean, scale = _moments(goal.values[known], self.standardize)
            facts |= {"targets": len(mean), "target_mean": mean, "target_scale": scale}
        return Encoding(classes=goal.classes, every=goal.every, dtype=self.dtype, **facts)

    @property
    def size(self) -> int:
        """How many sequences the training part has."""
        return len(self._parts["train"])

    @property
    def counts(self) -> Array:
        """How often the training part has each class, (C,); at a read-out of every step, of all."""
        train = np.isin(np.arange(len(self._x.lengths)), self._parts["train"])
        if self.readout == "every":
            train = np.repeat(train, self._x.lengths)
            train &= True if self._present is None else self._present
        return np.bincount(self._y[train], minlength=self.outputs)

    @property
    def inputs(self) -> int:
        return self.encoding.inputs

    @property
    def outputs(self) -> int:
        return self.encoding.outputs

    @property
    def symbols(self) -> int:
        """How many symbols x has; 0 if it has features."""
        return self.encoding.symbols

    @property
    def loss(self) -> str:
        return self.encoding.loss

    @property
    def metric(self) -> str:
        return "accuracy" if self.encoding.classes else "mse"

    @property
    def lower_is_better(self) -> bool:
        return not self.encoding.classes

    @cached_property
    def _epoch(self) -> Callable[[int, int, int], list[Array]]:
        train = self._parts["train"]

        @lru_cache(maxsize=2)
        def epoch(size: int, seed: int, number: int) -> list[Array]:
            cuts = batches_of(self._x.lengths[train], size, seed, number, self.order)
            return [train[rows] for rows in cuts]

        return epoch

    def _batch(self, rows: Array) -> Batch:
        steps, mask = self._x.rows(rows), self._x.mask(rows)
        x = self._x.steps[steps]
        every = self.readout == "every"
        if every and self._present is not None:
            mask &= self._present[steps]
        weights = None if self._weights is None else self._weights[rows]
        return Batch(x, self._y[steps if every else rows], None if mask.all() else mask, weights)

    def batch(self, index: int, size: int, seed: int) -> Batch:
        check_batch(index, size, seed, least=1)
        epoch, place = divmod(index, -(-len(self._parts["train"]) // size))
        return self._batch(self._epoch(size, seed, epoch)[place])

    def evaluation(self, index: int, seed: int, split: str = "test") -> Iterator[Batch]:
        """A whole part, the shortest sequences first; "train" is a part, too."""
        choice(f"{self.name}: split", split, tuple(p for p in PARTS if len(self._parts[p])))
        rows = self._parts[split]
        return (self._batch(rows[part]) for part in shortest_first(self._x.lengths[rows]))

    def score(self, outputs: Array, batch: Batch) -> Scores:
        y = batch.y
        if self.readout == "every":
            counted = np.ones(y.shape[:2], bool) if batch.mask is None else batch.mask
            outputs, y = outputs[counted], y[counted]
        if self.encoding.classes:
            return classified(outputs, y)
        error = (outputs - y).astype(np.float64)
        in_units = error * np.array(self.encoding.target_scale)
        return {
            "count": error.size,
            "loss": float((error * error).sum()),
            "spread": float((y.astype(np.float64) ** 2).sum()),
            "squares": float((in_units * in_units).sum()),
        }

    def metrics(self, totals: Totals) -> Scores:
        if self.encoding.classes:
            return rates(totals)
        return {
            "mse": totals["squares"] / totals["count"],
            "r2": 1 - totals["loss"] / (totals["spread"] or 1),
        }

    def record(self) -> dict[str, Any]:
        """What a run keeps of the task: the encoding, and a digest of all data and their parts."""
        digest = sha256()
        for values in (*self._x, self._y, *self._parts.values(), self._present, self._weights):
            if values is not None:
                digest.update(repr(values.shape).encode() + np.ascontiguousarray(values).tobytes())
        return {**self.encoding.record(), "sha256": digest.hexdigest()}


def _weights(weights: Data, count: int, dtype: str, train: Array) -> Array | None:
    if weights is None:
        return None
    values = np.asarray(weights, dtype)
    right = values.shape == (count,) and np.isfinite(values).all() and values.min() >= 0
    if not right or not values[train].any():
        raise ValueError(
            f"weights is {short(weights)}; need {count} numbers, none below 0 and not all 0 in "
            "the training part"
        )
    return values


def _parts(splits: Data, count: int, seed: int, groups: Array | None) -> dict[str, Array]:
    """The rows of each of PARTS."""
    names = np.asarray(splits, object)
    if names.shape == (count,) and all(isinstance(each, str) for each in names):
        for each in names:
            choice("splits: part", str(each), PARTS)
        numbers = np.array([PARTS.index(each) for each in names])
    else:
        numbers = divide(splits, count, seed, groups)
    if not (numbers == 0).any():
        raise ValueError("splits: no sequence is in train; need at least one")
    return {name: np.flatnonzero(numbers == part) for part, name in enumerate(PARTS)}


def _moments(values: Array, standardize: bool) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each column, 1 where that is 0; 0 and 1 if nothing is done."""
    D = values.shape[1]
    if not standardize:
        return [0.0] * D, [1.0] * D
    counted = np.isfinite(values)
    values = np.where(counted, values, 0).astype(np.float64)
    power = np.frexp(abs(values).max(axis=0, initial=0))[1]
    values = np.ldexp(values, -power)  # exact, and no square is too large
    number = np.maximum(counted.sum(axis=0), 1)
    mean = values.sum(axis=0) / number
    apart = np.where(counted, values - mean, 0)
    scale = np.sqrt((apart * apart).sum(axis=0) / number)
    varies = scale > 1e-12 * abs(mean)
    return np.ldexp(mean, power).tolist(), np.where(varies, np.ldexp(scale, power), 1).tolist()
