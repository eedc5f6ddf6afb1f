"""MNIST: as images, as sequences of pixels, and as permuted sequences.

Source: LeCun, Cortes and Burges' handwritten digits, 60,000 to train and 10,000 to test, as
IDX files; Manchev & Spratling, III-B and C; Vorontsov et al., 3.

Checked by: tests/tasks/test_mnist.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod

import numpy as np

from refnet.batch import Array, Batch
from refnet.common.arguments import choice
from refnet.tasks.base import (
    ORDER,
    Scores,
    Task,
    Totals,
    check_batch,
    classified,
    evaluation_size,
    rates,
    stream,
)
from refnet.tasks.files import Source, load, parse_idx

MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
FILES = {
    "train-images-idx3-ubyte": (
        (60_000, 28, 28),
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    ),
    "train-labels-idx1-ubyte": (
        (60_000,),
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    ),
    "t10k-images-idx3-ubyte": (
        (10_000, 28, 28),
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    ),
    "t10k-labels-idx1-ubyte": (
        (10_000,),
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
}


def read(name: str) -> Array:
    """One of FILES: uint8, in the file's shape. Errors: see ``refnet.tasks.files.load``.

    >>> read("t10k-labels-idx1-ubyte").shape
    (10000,)
    """
    shape, checksum = FILES[name]
    source = Source("mnist", name, 4 + 4 * len(shape) + prod(shape), checksum)
    images: Array = load(
        source,
        lambda data, where: parse_idx(data, shape, where),
        MIRRORS,
        "Get MNIST's four IDX files.",
    )
    return images


def permutation(name: str) -> Array:
    """The permutation of the 784 pixels called ``randomstate-N``: what NumPy's frozen legacy
    generator, ``RandomState(N).permutation(784)``, gives in every version.

    Step t of a sequence shows pixel ``permutation[t]``, pixels counted row by row.

    >>> permutation("randomstate-0")[:3].tolist()
    [693, 85, 647]
    """
    kind, _, number = name.partition("-")
    if kind != "randomstate" or not number.isdecimal() or int(number) >= 2**32:
        raise ValueError(
            f"permutation {name!r} is unknown; need randomstate-N with N from 0 to "
            "2**32 - 1, such as randomstate-0"
        )
    return np.asarray(np.random.RandomState(int(number)).permutation(784))


ORDERS = ("shuffled", "file", "drawn")
"""How examples come: every one once an epoch, at random; as they lie in the file; every batch
drawn anew from all of them, each once unless it is larger than their number."""


@lru_cache(maxsize=4)
def order(count: int, seed: int, epoch: int) -> Array:
    """The order in which an epoch goes through ``count`` examples: (count,), read-only.

    >>> sorted(order(5, seed=0, epoch=0).tolist())
    [0, 1, 2, 3, 4]
    """
    shuffled = stream(seed, ORDER, epoch).permutation(count)
    shuffled.flags.writeable = False
    return shuffled


def examples(count: int, index: int, size: int, seed: int, kind: str = "shuffled") -> Array:
    """Which examples batch ``index`` has: (size,). A batch at the end of an epoch takes the rest
    from the next one, so that each epoch has every example once and each batch the same size.

    ``kind``: of ORDERS.

    >>> sorted(examples(6, 0, 3, seed=0).tolist() + examples(6, 1, 3, seed=0).tolist())
    [0, 1, 2, 3, 4, 5]
    >>> examples(6, 1, 4, seed=0, kind="file").tolist()
    [4, 5, 0, 1]
    """
    if kind == "file":
        return np.arange(index * size, (index + 1) * size) % count
    if kind == "drawn":
        rng = stream(seed, ORDER, index)
        return np.resize(rng.choice(count, min(size, count), replace=False), size)
    epoch, place = divmod(index * size, count)
    parts = [order(count, seed, epoch)[place : place + size]]
    while left := size - sum(map(len, parts)):
        epoch += 1
        parts.append(order(count, seed, epoch)[:left])
    return np.concatenate(parts)


@dataclass(frozen=True)
class Images(Task):
    """Which digit? x (B, 784), pixels row by row; y (B,) of 10 classes.

    ``scaling``: "unit", to [0, 1]; "standard", each pixel to mean 0 and variance 1 over the
    training images; "code", the same over the images of each split by itself, as in the
    released code of Manchev & Spratling. A pixel that never changes becomes 0. "bytes": from 0 to
    255, as in the file.
    ``validation``: how many of the 60,000 training images, the last ones, are held out
    (Vorontsov et al.: 10,000).
    ``order``: of the training examples, one of ORDERS.
    The files are read, and downloaded if need be, when the task is made.
    """

    scaling: str = "unit"
    validation: int = 0
    order: str = "shuffled"
    dtype: str = "float32"

    name = "mnist"
    inputs, outputs = 784, 10
    readout = "none"
    loss = "cross_entropy"
    metric = "accuracy"
    lower_is_better = False
    criterion = "none: it runs to its last iteration"

    def __post_init__(self) -> None:
        choice(f"{self.name}: scaling", self.scaling, ("unit", "standard", "code", "bytes"))
        choice(f"{self.name}: order", self.order, ORDERS)
        choice(f"{self.name}: dtype", self.dtype, ("float32", "float64"))
        total = FILES["train-labels-idx1-ubyte"][0][0]
        if not 0 <= self.validation < total:
            raise ValueError(
                f"{self.name}: validation is {self.validation}; need 0 to "
                f"{total - 1} of the {total} training images"
            )
        self._data  # read now, so that a missing file does not stop a run half-way

    @property
    def splits(self) -> tuple[str, ...]:
        return ("validation", "test") if self.validation else ("test",)

    @property
    def pixels(self) -> Array:
        """The pixels, in the order in which they are shown: (784,)."""
        return np.arange(784)

    @cached_property
    def _data(self) -> dict[str, tuple[Array, Array]]:
        """By split: images (N, 784) uint8, pixels in order, and labels (N,) int64."""
        sets = {}
        for split, prefix in (("train", "train"), ("test", "t10k")):
            images = read(f"{prefix}-images-idx3-ubyte").reshape(-1, 784)
            sets[split] = (
                images.take(self.pixels, axis=1),
                read(f"{prefix}-labels-idx1-ubyte").astype(np.int64),
            )
        images, labels = sets["train"]
        count = len(labels) - self.validation
        return {
            "train": (images[:count], labels[:count]),
            "validation": (images[count:], labels[count:]),
            "test": sets["test"],
        }

    @cached_property
    def _standards(self) -> dict[str, tuple[Array, Array]]:
        """By split: each pixel's mean and standard deviation, from exact integer sums."""
        standards = {}
        for split in ("train", *self.splits):
            images = self._data[split if self.scaling == "code" else "train"][0]
            N = len(images)
            total = images.sum(axis=0, dtype=np.int64)
            squares = np.square(images, dtype=np.uint16).sum(axis=0, dtype=np.int64)
            spread = np.sqrt((N * squares - total * total) / (N * N))
            standards[split] = (
                (total / N).astype(self.dtype),
                np.where(spread > 0, spread, 1).astype(self.dtype),
            )
        return standards

    def _batch(self, split: str, rows: Array | slice) -> Batch:
        images, labels = self._data[split]
        x = images[rows].astype(self.dtype)
        if self.scaling == "unit":
            x /= 255
        elif self.scaling != "bytes":
            mean, spread = self._standards[split]
            x -= mean
            x /= spread
        return Batch(x, labels[rows])

    def batch(self, index: int, size: int, seed: int) -> Batch:
        check_batch(index, size, seed)
        count = len(self._data["train"][1])
        return self._batch("train", examples(count, index, size, seed, self.order))

    def evaluation(self, index: int, seed: int, split: str = "test") -> Iterator[Batch]:
        choice(f"{self.name}: split", split, self.splits)
        size = evaluation_size(784 // self.inputs)
        for start in range(0, len(self._data[split][1]), size):
            yield self._batch(split, slice(start, start + size))

    def score(self, outputs: Array, batch: Batch) -> Scores:
        return classified(outputs, batch.y)

    def metrics(self, totals: Totals) -> Scores:
        return rates(totals)


@dataclass(frozen=True)
class Pixels(Images):
    """Which digit, shown pixel by pixel? x (784, B, 1), y (B,) of 10 classes."""

    name = "sequential-mnist"
    inputs = 1
    readout = "last"

    def _batch(self, split: str, rows: Array | slice) -> Batch:
        x, y = super()._batch(split, rows)[:2]
        return Batch(np.ascontiguousarray(x.T)[:, :, None], y)


@dataclass(frozen=True)
class PermutedPixels(Pixels):
    """Sequential MNIST with the pixels in another order, the same for every image.

    ``permutation``: the order's name, see ``refnet.tasks.mnist.permutation``.
    """

    permutation: str = "randomstate-0"

    name = "permuted-mnist"

    @property
    def pixels(self) -> Array:
        return permutation(self.permutation)
