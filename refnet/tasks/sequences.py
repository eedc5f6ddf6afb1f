"""Sequences of different lengths from a user's arrays, and how a net sees them.

``Sequences`` holds the steps of all sequences one after another. ``Encoding`` is fitted on the
training part: it knows the classes, the words, the means and the scales, so that it turns new
sequences into batches and a net's outputs into answers, without the data that it was fitted on.

Checked by: tests/tasks/test_arrays.py.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from refnet.batch import Array, Batch, Params
from refnet.common.arguments import short
from refnet.tasks.base import shortest_first

Data: TypeAlias = Any
"""Sequences, targets, lengths or weights in lists, arrays or frames."""


class Sequences(NamedTuple):
    """The steps of all sequences, one after another.

    ``steps``: symbols (S,), or features (S, D); ``lengths``: (N,), whose sum is S.

    >>> both = sequences("x", [[1.0, 2.0], [3.0]])
    >>> both.steps.tolist(), both.lengths.tolist()
    ([[1.0], [2.0], [3.0]], [2, 1])
    """

    steps: Array
    lengths: Array

    def rows(self, chosen: Array) -> Array:
        """The indices in ``steps`` of these sequences: (T, B), with T the longest one's length;
        the last step stands for what follows it."""
        ends = np.cumsum(self.lengths)[chosen] - 1
        T = self.lengths[chosen].max()
        steps = np.arange(T)[:, None] + (ends + 1 - self.lengths[chosen])
        return np.asarray(np.minimum(steps, ends))

    def mask(self, chosen: Array) -> Array:
        """Which steps of these sequences are their own: bool (T, B)."""
        lengths = self.lengths[chosen]
        return np.asarray(np.arange(lengths.max())[:, None] < lengths)

    def part(self, chosen: Array) -> "Sequences":
        """Some of the sequences, in their order."""
        marked = np.zeros(len(self.lengths), bool)
        marked[chosen] = True
        return Sequences(self.steps[np.repeat(marked, self.lengths)], self.lengths[marked])

    def place(self, step: int) -> str:
        """Where an index in ``steps`` lies, for messages."""
        number = int(np.searchsorted(np.cumsum(self.lengths), step, side="right"))
        first = int(self.lengths[:number].sum())
        return f"sequence {number}, step {step - first} (both from 0)"


def sequences(what: str, values: Data, lengths: Data = None) -> Sequences:
    """The user's sequences: padded (N, T) or (N, T, D), batch first, of which ``lengths`` (N,) says
    how many steps count (None: all); or a list of N arrays (T,) or (T, D).

    Raises TypeError or ValueError for what is not sequences of numbers or words, or has none.

    >>> sequences("x", np.ones((2, 5, 3)), lengths=[5, 4]).steps.shape
    (9, 3)
    """
    if isinstance(values, Sequences):
        return values
    if hasattr(values, "__array__") and not isinstance(values, np.ndarray):
        values = np.asarray(values)  # a table of pandas or polars, a tensor
    if isinstance(values, np.ndarray) and values.dtype != object:
        return _padded(what, values, lengths)
    if not isinstance(values, (Sequence, np.ndarray)) or isinstance(values, str):
        raise TypeError(
            f"{what} is {short(values)}; need an array (N, T) or (N, T, D), or a list of N arrays "
            "(T,) or (T, D)"
        )
    if lengths is not None:
        raise ValueError(
            f"{what} is a list, whose arrays have their own lengths; leave out lengths"
        )
    arrays = [np.asarray(each) for each in values]
    for number, each in enumerate(arrays):
        if each.ndim not in (1, 2):
            raise ValueError(
                f"{what}: sequence {number} is {short(values[number])}; need an array (T,) or "
                "(T, D), or list(text) for a text's characters"
            )
        if each.shape[1:] != arrays[0].shape[1:]:
            raise ValueError(
                f"{what}: sequence {number} has shape {each.shape}, and sequence 0 "
                f"{arrays[0].shape}; need (T,) for all, or (T, D) with one D"
            )
    counted = np.array([len(each) for each in arrays], np.int64)
    _admit_lengths(what, counted)
    return Sequences(_numbers(what, np.concatenate(arrays)), counted)


def _padded(what: str, values: Array, lengths: Data) -> Sequences:
    if values.ndim not in (2, 3):
        raise ValueError(
            f"{what} has shape {values.shape}; need (N, T) for one feature or symbol a step, or "
            f"(N, T, D)" + (f": pass {what}.reshape(-1, 1)" if values.ndim == 1 else "")
        )
    N, T = values.shape[:2]
    if lengths is None:
        counted = np.full(N, T)
    else:
        counted = np.asarray(lengths)
        if counted.shape != (N,) or counted.dtype.kind not in "iu" or counted.max(initial=0) > T:
            raise ValueError(
                f"lengths is {short(lengths)}; need {N} whole numbers from 1 to {T}, since "
                f"{what} has shape {values.shape}"
            )
    _admit_lengths(what, counted)
    steps = values.reshape(N * T, *values.shape[2:])
    if (counted < T).any():
        steps = steps[(np.arange(T) < counted[:, None]).ravel()]
    return Sequences(_numbers(what, steps), counted.astype(np.int64))


def _admit_lengths(what: str, lengths: Array) -> None:
    if not len(lengths):
        raise ValueError(f"{what} has no sequences; need at least one")
    if lengths.min() < 1:
        raise ValueError(
            f"{what}: sequence {int(lengths.argmin())} has no steps; leave it out, and its target"
        )


def _numbers(what: str, steps: Array) -> Array:
    """Steps as they are computed with: floats (S, D), or symbols (S,), integers or words."""
    if steps.dtype.kind not in "biufU" or steps.ndim == 2 and steps.dtype.kind == "U":
        raise TypeError(
            f"{what} has entries of {steps.dtype}; need numbers, or one word a step, in all "
            "sequences"
        )
    if steps.ndim == 1 and steps.dtype.kind in "biuU":
        return steps
    return steps.reshape(len(steps), -1).astype(np.float64, copy=steps.dtype != np.float32)


@dataclass(frozen=True)
class Encoding:
    """From a user's sequences to batches, and from a net's outputs to answers.

    ``features``: D, the features of a step; 0 for symbols. ``words``: the symbols, in the order of
    their numbers; empty if the numbers themselves were given, which are less than ``symbols``.
    ``classes``: the labels by number; empty for real targets, of which there are ``targets``.
    ``every``: whether each step has a target. ``mean``, ``scale``: of the features, and
    ``target_mean``, ``target_scale``: of real targets, in the training part. ``missing``: whether
    a feature may be NaN, as in Arrays.

    >>> encoding = Encoding(features=1, classes=["no", "yes"], mean=[2.0], scale=[0.5])
    >>> batch = next(encoding.batches([[1.0, 2.0, 3.0]]))[1]
    >>> batch.x.ravel().tolist(), encoding.answers(np.array([[0.2, 0.1]])).tolist()
    ([-2.0, 0.0, 2.0], ['no'])

    Checked by: tests/tasks/test_arrays.py::test_an_encoding_needs_no_data.
    """

    features: int = 0
    symbols: int = 0
    words: list[str] = field(default_factory=list)
    classes: list[Any] = field(default_factory=list)
    targets: int = 1
    every: bool = False
    mean: list[float] = field(default_factory=list)
    scale: list[float] = field(default_factory=list)
    target_mean: list[float] = field(default_factory=list)
    target_scale: list[float] = field(default_factory=list)
    missing: str = "refuse"
    dtype: str = "float32"
    name: str = "arrays"

    @property
    def inputs(self) -> int:
        """D of a net for such sequences."""
        return self.features or self.symbols

    @property
    def outputs(self) -> int:
        """C: the classes, or the real targets."""
        return len(self.classes) or self.targets

    @property
    def loss(self) -> str:
        """The loss for such targets."""
        return "cross_entropy" if self.classes else "squared_error"

    @property
    def readout(self) -> str:
        """The read-out for such targets."""
        return "every" if self.every else "last"

    def encoded(self, given: Sequences) -> Sequences:
        """The steps as the net sees them: scaled features, with the mean where one may be missing
        (a NaN), or the symbols' numbers. Raises ValueError for what is not finite, and for what
        the training part did not have: other features, a new word."""
        steps = given.steps
        if self.features != (steps.shape[1] if steps.ndim == 2 else 0):
            have, need = (
                f"{n} features a step" if n else "symbols (integers or words)"
                for n in (steps.shape[1] if steps.ndim == 2 else 0, self.features)
            )
            raise ValueError(f"x has {have}; need {need}, as in training")
        if steps.ndim == 2:
            with np.errstate(over="ignore", invalid="ignore"):
                scaled = ((steps - np.array(self.mean)) / np.array(self.scale)).astype(self.dtype)
            if self.missing == "mean":
                scaled[np.isnan(steps)] = 0
            if (bad := ~np.isfinite(scaled)).any():
                step, feature = np.argwhere(bad)[0]
                raise ValueError(
                    f"x: {given.place(int(step))} has {steps[step, feature]} as feature "
                    f"{feature}; need finite numbers that {self.dtype} can hold (NaN only with "
                    "missing='mean')"
                )
            return given._replace(steps=scaled)
        if self.words:
            numbers = np.searchsorted(self.words, steps.astype(str)).clip(max=len(self.words) - 1)
            new = np.array(self.words)[numbers] != steps
        else:
            numbers = steps.astype(np.int64)
            new = (numbers < 0) | (numbers >= self.symbols)
        if new.any():
            at = int(new.argmax())
            raise ValueError(
                f"x: {given.place(at)} has the symbol {short(steps[at].item())}; need "
                + (
                    "one of the words that training had"
                    if self.words
                    else f"0 to {self.symbols - 1}; pass x as floats if these are quantities"
                )
            )
        return given._replace(steps=numbers)

    def batches(self, x: Data, lengths: Data = None) -> Iterator[tuple[Array, Batch]]:
        """New sequences, as Arrays takes them, as batches without targets (y is empty), the
        shortest first, each with the numbers of its sequences."""
        seen = self.encoded(sequences("x", x, lengths))
        for rows in shortest_first(seen.lengths):
            mask = seen.mask(rows)
            x = seen.steps[seen.rows(rows)]
            yield rows, Batch(x, np.empty(0), None if mask.all() else mask)

    def apply(self, net: Any, params: Params, x: Data, lengths: Data = None) -> Array | list[Array]:
        """A net's outputs for new sequences: (N, C), or of every step a list of N arrays (T, C)."""
        places: list[Array] = []
        parts: list[Array] = []
        for rows, batch in self.batches(x, lengths):
            outputs = net.forward(params, batch.x, batch.mask, copy=False)[0]
            places.append(rows)
            parts.extend(outputs.swapaxes(0, 1) if self.every else [outputs])
        if not self.every:
            return np.concatenate(parts)[np.argsort(np.concatenate(places))]
        steps = sequences("x", x, lengths).lengths
        by_place = np.argsort(np.concatenate(places))
        return [parts[place][: steps[row]] for row, place in enumerate(by_place)]

    def predict(
        self, net: Any, params: Params, x: Data, lengths: Data = None
    ) -> Array | list[Array]:
        """What the net answers for new sequences: labels (N,) or real targets (N, C); with targets
        at every step a list of N such arrays, (T,) or (T, C)."""
        outputs = self.apply(net, params, x, lengths)
        return [self.answers(each) for each in outputs] if self.every else self.answers(outputs)

    def answers(self, outputs: Data) -> Array:
        """The labels of the largest outputs (..., C), or the real targets in the user's units."""
        if self.classes:
            labels: Array = np.array(self.classes)[outputs.argmax(axis=-1)]
            return labels
        return np.asarray(outputs * np.array(self.target_scale) + np.array(self.target_mean))

    def record(self) -> dict[str, object]:
        """All of it as JSON has it; ``Encoding(**record)`` is equal."""
        return asdict(self)
