"""The generated tasks: long time lags, drawn for every batch.

Temporal order, 3-bit temporal order, adding and random permutation (Manchev & Spratling,
III-A, after Hochreiter & Schmidhuber, 1997); copy and adding (Vorontsov et al., 3; Orhan,
2019). Where a text and its released code make different data, ``protocol`` says which is meant.
Positions are 0-based and ranges half-open; q = int(length / 10).

Checked by: tests/tasks/test_tasks.py, tests/training/test_scores.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import log
from typing import ClassVar

import numpy as np

from refnet.batch import Array, Batch
from refnet.common.arguments import choice
from refnet.tasks.base import (
    EVALUATION,
    TRAINING,
    Scores,
    Task,
    Totals,
    check_batch,
    classified,
    evaluation_size,
    one_hot,
    rates,
    stream,
)


@dataclass(frozen=True)
class Generated(Task):
    """What the generated tasks share. A subclass says how to ``draw`` a batch.

    ``length``: T of the papers. ``samples``: sequences in an evaluation.
    ``dtype``: float32 or float64; the numbers are the same in both.
    """

    length: int = 60
    samples: int = 10_000
    dtype: str = "float32"

    shortest = 1
    needs = "a sequence has steps"
    choices: ClassVar[dict[str, tuple[str, ...]]] = {}
    splits = ("test",)
    loss = "cross_entropy"
    readout = "last"
    metric = "accuracy"
    lower_is_better = False

    def __post_init__(self) -> None:
        if self.length < self.shortest:
            raise ValueError(
                f"{self.name}: length is {self.length}; need at least {self.shortest}: {self.needs}"
            )
        if self.samples < 1:
            raise ValueError(f"{self.name}: samples is {self.samples}; need at least 1")
        for option, known in {"dtype": ("float32", "float64"), **self.choices}.items():
            choice(f"{self.name}: {option}", getattr(self, option), known)

    @property
    def criterion(self) -> str:
        return "no error in the evaluation"

    @property
    def steps(self) -> int:
        """T of ``batch.x``."""
        return self.length

    def draw(self, rng: np.random.Generator, size: int) -> Batch:
        """``size`` sequences."""
        raise NotImplementedError

    def batch(self, index: int, size: int, seed: int) -> Batch:
        check_batch(index, size, seed)
        return self.draw(stream(seed, TRAINING, index), size)

    def evaluation(self, index: int, seed: int, split: str = "test") -> Iterator[Batch]:
        choice(f"{self.name}: split", split, self.splits)
        size = evaluation_size(self.steps)
        for part, start in enumerate(range(0, self.samples, size)):
            yield self.draw(stream(seed, EVALUATION, index, part), min(size, self.samples - start))

    def score(self, outputs: Array, batch: Batch) -> Scores:
        return classified(outputs, batch.y)

    def metrics(self, totals: Totals) -> Scores:
        return rates(totals)

    def solved(self, metrics: Totals) -> bool:
        return metrics["errors"] == 0


@dataclass(frozen=True)
class TemporalOrder(Generated):
    """In which order did A and B come? Symbols 0, 1 are A, B; 2..5 distract.

    One of A, B at a step of [q, 2q), one at a step of [int(length / 2), + q); class
    v0 + 2 v1. x (T, B, 6) one-hot, y (B,) of 4 classes. The text leaves places and symbols to
    Hochreiter & Schmidhuber; these are the released code's.
    """

    name = "temporal-order"
    shortest = 10
    needs = "the first symbol stands in a tenth of the sequence, which must have at least one step"
    inputs = 6
    outputs = 4
    starts: ClassVar[tuple[float, ...]] = (0.1, 0.5)

    def draw(self, rng: np.random.Generator, size: int) -> Batch:
        q = int(self.length * 0.1)
        first = np.array([int(self.length * start) for start in self.starts])[:, None]
        at = first + rng.integers(0, q, (len(first), size))
        bits = rng.integers(0, 2, at.shape)
        symbols = rng.integers(2, 6, (self.length, size))
        symbols[at, np.arange(size)] = bits
        return Batch(one_hot(symbols, 6, self.dtype), 2 ** np.arange(len(first)) @ bits)


@dataclass(frozen=True)
class TemporalOrder3Bit(TemporalOrder):
    """Temporal order with three symbols, from q, int(.3 length) and int(.6 length) on.

    y (B,): v0 + 2 v1 + 4 v2, 8 classes.
    """

    name = "temporal-order-3bit"
    outputs = 8
    starts = (0.1, 0.3, 0.6)


@dataclass(frozen=True)
class RandomPermutation(Generated):
    """Which was the first symbol, 0 or 1? All others are uniform over 2..99.

    x (T, B, 100) one-hot, y (B,): the first symbol, of 100 classes, as in the released code.
    """

    name = "random-permutation"
    inputs = outputs = 100
    shortest = 2
    needs = "the symbol to remember and one to distract from it"

    def draw(self, rng: np.random.Generator, size: int) -> Batch:
        symbols = rng.integers(2, 100, (self.length, size))
        symbols[0] = rng.integers(0, 2, size)
        return Batch(one_hot(symbols, 100, self.dtype), symbols[0].copy())


@dataclass(frozen=True)
class Adding(Generated):
    """Add the two marked values. Values are U[0, 1); markers are 1 at two steps, else 0.

    ====================== ============= ==================== ======== =============
    protocol               first marker   second marker        target   channels of x
    ====================== ============= ==================== ======== =============
    manchev-spratling      [0, q)        [q, q + int(.4 T))   sum      marker, value
    manchev-spratling-code [0, q)        [q, q + int(.4 T))   half-sum marker, value
    manchev-spratling-hs97 [0, q)        [q, q + int(.4 T))   half-sum marker, value
    vorontsov              [0, T // 2)   [T // 2, T)          sum      value, marker
    vorontsov-code         [0, T // 2)   [T // 2, T)          half-sum value, marker
    orhan-pitkow           [0, T // 2)   [T // 2, T)          sum      marker, value
    ====================== ============= ==================== ======== =============

    x (T, B, 2), y (B, 1). Three definitions of an error are reported: ``errors_text``
    (|e| < 1e-4 is right), ``errors_code`` (e^2 > .04 on the half-sum is wrong) and
    ``errors_hs97`` (|e| > .04 is wrong); except in errors_code, e is that of the protocol's target.
    Those of Manchev & Spratling differ in the definition that counts; HS97 is that of Hochreiter &
    Schmidhuber (1997), whose target, from 0 to 1, is the half-sum, too.
    """

    protocol: str = "manchev-spratling"

    name = "adding"
    inputs = 2
    outputs = 1
    loss = "squared_error"
    metric = "mse"
    lower_is_better = True
    shortest = 10
    needs = "both markers need room"
    choices = {
        "protocol": (
            "manchev-spratling",
            "manchev-spratling-code",
            "manchev-spratling-hs97",
            "vorontsov",
            "vorontsov-code",
            "orhan-pitkow",
        )
    }

    @property
    def halved(self) -> bool:
        """Whether the target is half the sum."""
        return self.protocol.endswith(("code", "hs97"))

    @property
    def baseline(self) -> float:
        """The mean squared error of always answering the mean: 1/6, or 1/24 if halved."""
        return 1 / 24 if self.halved else 1 / 6

    @property
    def criterion(self) -> str:
        return {
            "manchev-spratling": "no |error| of 1e-4 or more in the evaluation",
            "manchev-spratling-code": "no squared error above .04 in the evaluation",
            "manchev-spratling-hs97": "no |error| above .04 in the evaluation",
            "orhan-pitkow": "mean squared error below .0025",
        }.get(
            self.protocol,
            f"mean squared error below a tenth of the baseline's, {self.baseline / 10:.4g}",
        )

    def draw(self, rng: np.random.Generator, size: int) -> Batch:
        T, columns = self.length, np.arange(size)
        if self.protocol.startswith("manchev"):
            q = int(T * 0.1)
            middle, end = q, q + int(T * 0.4)
        else:
            middle, end = T // 2, T
        at = np.stack([rng.integers(0, middle, size), rng.integers(middle, end, size)])
        # float32 whatever the dtype: the same numbers in both, and never rounded up to 1
        values = rng.random((T, size), dtype=np.float32)
        markers = np.zeros((T, size), self.dtype)
        markers[at, columns] = 1
        target = values[at, columns].sum(axis=0, dtype=np.float64)[:, None]
        pair = (values, markers) if self.protocol.startswith("vorontsov") else (markers, values)
        return Batch(
            np.stack(pair, axis=-1).astype(self.dtype, copy=False),
            (target / 2 if self.halved else target).astype(self.dtype),
        )

    def score(self, outputs: Array, batch: Batch) -> Scores:
        if outputs.shape != batch.y.shape:
            raise ValueError(
                f"adding.score: outputs have shape {outputs.shape}; need "
                f"{batch.y.shape}, as the batch's targets have"
            )
        with np.errstate(invalid="ignore", over="ignore"):
            error = (outputs - batch.y).astype(np.float64)
            half = error if self.halved else error / 2
            right = {
                "text": abs(error) < 1e-4,
                "code": half * half <= 0.04,
                "hs97": abs(error) <= 0.04,
            }
            squares = float((error * error).sum())
        return {
            "count": error.size,
            "squares": squares,
            **{f"errors_{name}": error.size - int(good.sum()) for name, good in right.items()},
        }

    def metrics(self, totals: Totals) -> Scores:
        number = totals["count"]
        return {
            "mse": totals["squares"] / number,
            **{name: totals[name] for name in ("errors_text", "errors_code", "errors_hs97")},
        }

    def solved(self, metrics: Totals) -> bool:
        if self.protocol.startswith("manchev"):
            name = self.protocol.removeprefix("manchev-spratling").lstrip("-") or "text"
            return metrics[f"errors_{name}"] == 0
        return metrics["mse"] < (0.0025 if self.protocol == "orhan-pitkow" else self.baseline / 10)


@dataclass(frozen=True)
class Copy(Generated):
    """Repeat ten symbols after ``length`` steps of silence.

    ``length`` + 20 steps: ten symbols of 1..8, length - 1 blanks, the delimiter, ten blanks;
    y (T, B): blank (0) until the last ten steps, then the symbols; 9 classes.
    ``encoding``: "one-hot", x (T, B, 10) with the delimiter as 9 (text of Vorontsov et al.,
    Orhan), or "scalar", x (T, B, 1) with the delimiter as -1 (code of Vorontsov et al.).
    The loss is over all steps; accuracy and errors are over the last ten only.
    """

    length: int = 200
    encoding: str = "one-hot"

    name = "copy"
    outputs = 9
    readout = "every"
    criterion = "at least 99% of the last ten symbols right"
    shortest = 1
    needs = "the delimiter takes a step"
    choices = {"encoding": ("one-hot", "scalar")}

    @property
    def inputs(self) -> int:
        return 1 if self.encoding == "scalar" else 10

    @property
    def steps(self) -> int:
        return self.length + 20

    @property
    def baseline(self) -> float:
        """The loss of a net that remembers nothing: ten guesses among eight symbols."""
        return 10 * log(8) / self.steps

    def draw(self, rng: np.random.Generator, size: int) -> Batch:
        symbols = np.zeros((self.steps, size), np.int64)
        symbols[:10] = rng.integers(1, 9, (10, size))
        y = np.zeros_like(symbols)
        y[-10:] = symbols[:10]
        scalar = self.encoding == "scalar"
        symbols[-11] = -1 if scalar else 9
        return Batch(
            symbols[:, :, None].astype(self.dtype) if scalar else one_hot(symbols, 10, self.dtype),
            y,
        )

    def score(self, outputs: Array, batch: Batch) -> Scores:
        every = classified(outputs.reshape(-1, self.outputs), batch.y.ravel())
        last = classified(outputs[-10:].reshape(-1, self.outputs), batch.y[-10:].ravel())
        return {**last, "loss": every["loss"], "steps": every["count"]}

    def metrics(self, totals: Totals) -> Scores:
        return {**rates(totals), "cross_entropy": totals["loss"] / totals["steps"]}

    def solved(self, metrics: Totals) -> bool:
        return metrics["accuracy"] >= 0.99
