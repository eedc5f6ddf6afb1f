"""The Penn Treebank by characters: predict the next one in every line.

Mikolov's word-level preprocessing read as characters, as Vorontsov et al. (3 and their
released code) do: 49 symbols, the newline among them and ``<unk>`` one of them. A line
keeps its leading and trailing space and ends with the newline. The text is licensed: it is
never downloaded.

Checked by: tests/tasks/test_ptb.py.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from math import log

import numpy as np

from refnet.batch import Array, Batch
from refnet.common.arguments import choice
from refnet.tasks.arrays import ORDERS, batches_of
from refnet.tasks.base import Scores, Task, Totals, check_batch, classified, one_hot, shortest_first
from refnet.tasks.files import Source, load

SYMBOLS = ("<unk>", "\n", *" #$&'*-./0123456789N\\abcdefghijklmnopqrstuvwxyz")
"""The 49 symbols by number. 0 also stands for what follows the end of a line."""

# bytes and sha256 of ptb.train.txt, ptb.valid.txt and ptb.test.txt
FILES = {
    "train": (5_101_618, "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf"),
    "valid": (399_782, "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2"),
    "test": (449_945, "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0"),
}
WIDTH = 10
"""Lines whose lengths differ only in the last digit share batches."""


def encode(text: bytes, where: str) -> Array:
    """The symbols' numbers, uint8. Raises ValueError for a character that is not a symbol.

    >>> len(encode(b" a banknote", "a file"))
    11
    """
    codes = np.frombuffer(text.replace(b"<unk>", b"\0"), np.uint8)
    table = np.full(256, 255, np.uint8)
    table[0] = 0
    table[[ord(symbol) for symbol in SYMBOLS[1:]]] = np.arange(1, len(SYMBOLS))
    symbols = table[codes]
    if (symbols == 255).any():
        at = int((symbols == 255).argmax())
        line = int((codes[:at] == ord("\n")).sum()) + 1
        raise ValueError(
            f"{where}: line {line} has {chr(codes[at])!r}, which is none of the 49 "
            "symbols of the Penn Treebank as Mikolov prepared it"
        )
    return symbols


def lines(split: str) -> tuple[list[Array], Array]:
    """A file's lines as symbols, and their lengths as the released code counts them: in
    characters, the newline included and ``<unk>`` as five; the paper's shares of 23% and 99% agree
    with it. Errors: see ``refnet.tasks.files.load``.

    >>> symbols, lengths = lines("valid")
    >>> len(symbols), len(lengths)
    (3370, 3370)
    """
    name = f"ptb.{split}.txt"

    def parse(data: bytes, where: str) -> tuple[list[Array], Array]:
        symbols = encode(data, where)
        ends = np.flatnonzero(symbols == SYMBOLS.index("\n")) + 1
        return (
            np.split(symbols, ends)[:-1],
            np.array([len(line) + 1 for line in data.split(b"\n")[:-1]], np.int64),
        )

    corpus: tuple[list[Array], Array] = load(
        Source("ptb", name, *FILES[split]),
        parse,
        (),
        "Get the Penn Treebank as Mikolov prepared it for language models: ptb.train.txt, "
        "ptb.valid.txt and ptb.test.txt. It is licensed (LDC99T42), so refnet does not download "
        "it.",
    )
    return corpus


@dataclass(frozen=True)
class Characters(Task):
    """Which character is next? x (T, B, 49) one-hot, y and mask (T, B).

    ``characters``: the most characters that a line may have to be used, in every split, counted
    as ``lines`` does: 75 (23% of the training lines) or 300 (99%) in the paper. T is one more
    than the number of symbols in the batch's longest line.

    A line of n symbols has n + 1 steps. The first n - 1 ask for symbols 2..n. The last two
    are trivial, as in the released code: after the newline comes 0, and after that 0 again
    (there, a line as long as the limit lacks the last one). The figures ``bpc`` and ``accuracy``
    leave them out; ``bpc_with_ends`` and ``accuracy_with_ends``, as the released code counts
    (the paper does not say), and the loss include them.
    ``select``: the figure by which the best weights are chosen, bpc or accuracy; the paper's is
    accuracy. ``order``: of the training lines, one of ORDERS; the released code mixes lengths.
    The files are read when the task is made.
    """

    characters: int = 75
    select: str = "bpc"
    order: str = "shuffled"
    dtype: str = "float32"

    name = "ptb"
    inputs = outputs = len(SYMBOLS)
    loss = "cross_entropy"
    readout = "every"
    splits = ("validation", "test")
    criterion = "none: it runs to its last iteration"

    def __post_init__(self) -> None:
        choice("ptb: order", self.order, ORDERS)
        choice("ptb: dtype", self.dtype, ("float32", "float64"))
        choice("ptb: select", self.select, ("bpc", "accuracy"))
        for split, chosen in self._lines.items():
            if not chosen:
                raise ValueError(
                    f"ptb: characters is {self.characters}, and no line of the "
                    f"{split} file is that short; the paper uses 75 and 300"
                )

    @property
    def metric(self) -> str:
        return self.select

    @property
    def lower_is_better(self) -> bool:
        return self.select == "bpc"

    @cached_property
    def _lines(self) -> dict[str, list[Array]]:
        """By split: the lines that are short enough, as symbols."""
        chosen = {}
        for split, file in (("train", "train"), ("validation", "valid"), ("test", "test")):
            every, characters = lines(file)
            chosen[split] = [every[i] for i in np.flatnonzero(characters <= self.characters)]
        return chosen

    @cached_property
    def _lengths(self) -> dict[str, Array]:
        """By split: the lines' numbers of symbols."""
        return {
            split: np.array([len(line) for line in chosen]) for split, chosen in self._lines.items()
        }

    @cached_property
    def _schedule(self) -> Callable[[int, int, int], list[Array]]:
        """The batches of an epoch, as rows: all lines of similar lengths together, or mixed."""
        alike = self._lengths["train"] // WIDTH
        return lru_cache(maxsize=2)(partial(batches_of, alike, order=self.order, near=len(alike)))

    def _batch(self, split: str, rows: Array) -> Batch:
        chosen = [self._lines[split][row] for row in rows]
        lengths = self._lengths[split][rows]
        T = int(lengths.max(initial=0)) + 1
        symbols = np.zeros((T + 1, len(rows)), np.int64)
        for column, line in enumerate(chosen):
            symbols[: len(line), column] = line
        return Batch(
            one_hot(symbols[:T], self.inputs, self.dtype),
            symbols[1:],
            np.arange(T)[:, None] <= lengths,
        )

    def batch(self, index: int, size: int, seed: int) -> Batch:
        check_batch(index, size, seed, least=1)
        epoch, place = divmod(index, -(-len(self._lines["train"]) // size))
        return self._batch("train", self._schedule(size, seed, epoch)[place])

    def evaluation(self, index: int, seed: int, split: str = "test") -> Iterator[Batch]:
        """The whole split, shortest lines first."""
        choice("ptb: split", split, self.splits)
        steps = self._lengths[split] + 1
        return (self._batch(split, rows) for rows in shortest_first(steps))

    def score(self, outputs: Array, batch: Batch) -> Scores:
        assert batch.mask is not None
        lengths = batch.mask.sum(axis=0) - 1
        inside = np.arange(len(batch.mask))[:, None] < lengths - 1
        ends = batch.mask & ~inside
        return {
            **classified(outputs[inside], batch.y[inside]),
            **{
                f"end_{name}": value
                for name, value in classified(outputs[ends], batch.y[ends]).items()
            },
        }

    def metrics(self, totals: Totals) -> Scores:
        count, errors, loss = (totals[name] for name in ("count", "errors", "loss"))
        all_count, all_errors, all_loss = (
            totals[name] + totals[f"end_{name}"] for name in ("count", "errors", "loss")
        )
        return {
            "bpc": loss / count / log(2),
            "accuracy": 1 - errors / count,
            "bpc_with_ends": all_loss / all_count / log(2),
            "accuracy_with_ends": 1 - all_errors / all_count,
        }
