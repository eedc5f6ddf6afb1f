"""Files of data as tasks: arrays in an .npz, rows of a .csv or .tsv, a text by characters.

Checked by: tests/tasks/test_tables.py.
"""

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import log
from pathlib import Path
from typing import Any

import numpy as np

from refnet.batch import Array, Batch
from refnet.common.arguments import choice, short
from refnet.runs.read import Record
from refnet.tasks.arrays import FRACTIONS, PARTS, Arrays
from refnet.tasks.base import Scores, Totals, check_batch

EVALUATED = 10
"""The parallel streams of an evaluation, as in PyTorch's word_language_model: few zero states."""

MISSING = ("", "NA", "NaN", "nan", "?")
"""How a table writes that a value is missing."""


@dataclass(frozen=True)
class DataFile:
    """A file, and how it is read as a task; the options not explained here are those of Arrays.

    ``validation``, ``test``: the fractions that are held out, drawn with ``split_seed``, unless
    the file names the part of each sequence.
    """

    path: str
    validation: float = FRACTIONS[1]
    test: float = FRACTIONS[2]
    split_seed: int = 0
    targets: str = "auto"
    readout: str = "auto"
    missing: str = "refuse"
    standardize: bool = True
    order: str = "shuffled"
    dtype: str = "float32"

    def read(self) -> Record:
        """x, y, and lengths and splits if the file has them."""
        raise NotImplementedError

    def task(self) -> Arrays:
        """The task. Raises OSError or ValueError, which names the file."""
        shared = ("targets", "readout", "missing", "standardize", "order", "dtype")
        options: Record = {name: getattr(self, name) for name in shared}
        options["splits"] = (1 - self.validation - self.test, self.validation, self.test)
        given = options | {"seed": self.split_seed} | self.read()
        try:
            return self.kind()(**given, name=Path(self.path).name)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{self.path}: {error}") from None

    def kind(self) -> Callable[..., Arrays]:
        """The class of the task."""
        return Arrays


@dataclass(frozen=True)
class Npz(DataFile):
    """``np.savez(path, x=x, y=y)``, with ``lengths`` and, for each sequence, the name of its part
    as ``splits`` if wanted: what Arrays takes. x and a y of every step may also be those of all
    sequences, one after another, (S, D), with lengths whose sum is S. Nothing is unpickled.
    """

    def read(self) -> Record:
        try:
            with np.load(self.path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
        except (ValueError, EOFError, AttributeError) as error:
            raise ValueError(
                f"{self.path}: {error}; need what np.savez(path, x=x, y=y, lengths=lengths) "
                "writes, without arrays of objects"
            ) from None
        known = ("x", "y", "lengths", "splits")
        if not {"x", "y"} <= arrays.keys() <= set(known):
            raise ValueError(
                f"{self.path} has {', '.join(arrays) or 'nothing'}; need x and y, and of "
                "lengths and splits what there is"
            )
        if "splits" in arrays:
            arrays["splits"] = arrays["splits"].tolist()
        lengths = arrays.get("lengths")
        if lengths is not None and len(lengths) != len(arrays["x"]) == lengths.sum():
            cuts = np.cumsum(lengths)[:-1]
            each_step = len(arrays["y"]) == len(arrays["x"])
            for name in ("x", "y") if each_step else ("x",):
                arrays[name] = np.split(arrays[name], cuts)
            del arrays["lengths"]
        return arrays


@dataclass(frozen=True)
class Table(DataFile):
    """Rows with a header, one step each, separated by commas, semicolons or tabs.

    The columns: ``id`` says to which sequence a row belongs, ``time`` in which order its rows come
    (without such a column: as in the file), ``target`` has the target of the sequence, the same in
    all its rows that have one, or else one for every step (that of a row may be missing).
    ``split``: if given, the column with the part, train, validation or test. All others are
    features, numbers; a single one of words is symbols.
    """

    id: str = "id"
    time: str = "time"
    target: str = "target"
    split: str = ""

    def read(self) -> Record:
        names, lines = _rows(self.path)
        for what in ("id", "target", "split"):
            column = getattr(self, what)
            if column not in names and (column or what != "split"):
                raise ValueError(
                    f"{self.path} has no column {column!r} for {what}; its columns are "
                    f"{', '.join(names)}: give {what}=COLUMN (--{what} COLUMN)"
                )
        if self.time not in names and self.time != "time":
            raise ValueError(
                f"{self.path} has no column {self.time!r} for time; its columns are "
                f"{', '.join(names)}"
            )
        columns = {name: np.array([line[n] for line in lines]) for n, name in enumerate(names)}
        order, starts = self._order(columns)
        roles = (self.id, self.time, self.target, self.split)
        features = [name for name in names if name not in roles]
        if not features:
            raise ValueError(f"{self.path} has no column beside {', '.join(names)}; need a feature")
        x = self._features({name: columns[name] for name in features})[order]
        column = columns[self.target][order]
        y, there = _values(column), ~np.isin(column, MISSING)
        rows = [*map(np.flatnonzero, np.split(there, starts))]
        parts: Any = np.split(y, starts)
        single = all(len(set(part[at].tolist())) <= 1 for part, at in zip(parts, rows))
        if self.readout == "last" or self.readout == "auto" and single:
            ends = np.array([at[-1] if len(at) else 0 for at in rows]) + [0, *starts]
            given: Record = {"y": _values(column[ends]), "readout": "last"}
        else:
            given = {"y": parts, "readout": "every"}
        given["x"] = np.split(x, starts)
        if self.split:
            given["splits"] = [part[0] for part in np.split(columns[self.split][order], starts)]
        return given

    def _order(self, columns: dict[str, Array]) -> tuple[Array, Array]:
        """The rows by sequence, in the order of the file, and by time; where the later start."""
        ids = columns[self.id]
        _, first, number = np.unique(ids, return_index=True, return_inverse=True)
        rank = first[number]
        times = self._times(columns[self.time]) if self.time in columns else np.arange(len(ids))
        order = np.lexsort((times, rank))
        sequence, times = rank[order], times[order]
        same = sequence[1:] == sequence[:-1]
        if (same & (times[1:] == times[:-1])).any():
            at = order[1 + int((same & (times[1:] == times[:-1])).argmax())]
            raise ValueError(
                f"{self.path}: line {at + 2} repeats the time {columns[self.time][at]} of sequence "
                f"{ids[at]}; need one row for each step"
            )
        return order, np.flatnonzero(~same) + 1

    def _times(self, column: Array) -> Array:
        """Numbers or dates, as numbers."""
        times = _values(column)
        if times.dtype.kind == "U":
            for line, entry in enumerate(column, 2):
                try:
                    np.datetime64(entry)
                except ValueError:
                    raise ValueError(
                        f"{self.path}: line {line} has {short(str(entry))} as {self.time}; need "
                        "numbers, or dates such as 2024-01-31 or 2024-01-31T23:59"
                    ) from None
            times = column.astype("datetime64[us]").astype(np.int64)
        if times.dtype.kind == "f" and np.isnan(times).any():
            raise ValueError(
                f"{self.path}: line {int(np.isnan(times).argmax()) + 2} lacks {self.time}; fill it "
                "in, or leave the column out if the rows stand in order"
            )
        return times

    def _features(self, columns: dict[str, Array]) -> Array:
        numbers = {name: _values(column) for name, column in columns.items()}
        words = [name for name, column in numbers.items() if column.dtype.kind == "U"]
        if words and len(columns) == 1:
            return columns[words[0]]
        for name in words:
            each = (_values(columns[name][n : n + 1]) for n in range(len(columns[name])))
            at = next(n for n, value in enumerate(each) if value.dtype.kind == "U")
            raise ValueError(
                f"{self.path}: line {at + 2} has {short(str(columns[name][at]))} as {name}; need "
                "numbers in every column of features"
            )
        for name, column in numbers.items():
            if self.missing == "refuse" and column.dtype.kind == "f" and np.isnan(column).any():
                raise ValueError(
                    f"{self.path}: line {int(np.isnan(column).argmax()) + 2} lacks {name}; fill it "
                    f"in, or name the data {self.path}:missing=mean, which takes the mean of the "
                    "training part"
                )
        return np.column_stack([column.astype(np.float64) for column in numbers.values()])


def _rows(path: str) -> tuple[list[str], list[list[str]]]:
    """The header and the lines of a table."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            first = file.readline()
            file.seek(0)
            separator = max((",", ";", "\t"), key=first.count)
            header, *lines = [*csv.reader(file, delimiter=separator)] or [[]]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path}: {error}; need a table in UTF-8 with a header") from None
    while lines and not lines[-1]:
        lines.pop()
    names = [name.strip() for name in header]
    if len(set(names)) != len(names) or not lines:
        raise ValueError(f"{path}: need a header of different names, and rows beneath it")
    for number, line in enumerate(lines):
        if len(line) != len(names):
            raise ValueError(
                f"{path}: line {number + 2} has {len(line)} entries; need {len(names)}, as the "
                "header has"
            )
    return names, [[entry.strip() for entry in line] for line in lines]


def _values(texts: Array) -> Array:
    """Integers if all are, else real numbers with NaN for what is missing, else the words."""
    try:
        return texts.astype(np.int64)
    except ValueError:
        here = ~np.isin(texts, MISSING)
        out = np.full(len(texts), np.nan)
        try:
            out[here] = texts[here].astype(np.float64)
        except ValueError:
            return np.where(here, texts, "")
        return out


class Stream(Arrays):
    """A text in pieces, of which every character is predicted from those before it."""

    metric = "bpc"
    lower_is_better = True

    def metrics(self, totals: Totals) -> Scores:
        rates = super().metrics(totals)
        return {"bpc": rates["cross_entropy"] / log(2), **rates}


class Carried(Stream):
    """A text whose parts are read as parallel streams: row b of a batch goes on in the text where
    row b of the one before ended. A part is cut into as many streams as a batch has rows, the
    first of which may be a piece longer, so that the last batch of an epoch may have fewer rows.
    An evaluation has EVALUATED streams.
    """

    def continues(self, index: int, size: int) -> bool:
        """Whether training batch number ``index`` goes on where the one before ended."""
        return index % -(-self.size // size) > 0

    def batch(self, index: int, size: int, seed: int) -> Batch:
        check_batch(index, size, seed, least=1)
        return self._batch(_streams(self._parts["train"], size, index % -(-self.size // size)))

    def evaluation(self, index: int, seed: int, split: str = "test") -> Iterator[Batch]:
        choice(f"{self.name}: split", split, tuple(p for p in PARTS if len(self._parts[p])))
        rows = self._parts[split]
        batches = range(-(-len(rows) // EVALUATED))
        return (self._batch(_streams(rows, EVALUATED, number)) for number in batches)


def _streams(rows: Array, size: int, number: int) -> Array:
    """Piece ``number`` of each of ``size`` streams of consecutive pieces, where there is one.

    >>> [_streams(np.arange(5), 2, number).tolist() for number in range(3)]
    [[0, 3], [1, 4], [2]]
    """
    lengths = len(rows) // size + (np.arange(size) < len(rows) % size)
    starts = np.cumsum(lengths) - lengths
    return np.asarray(rows[(starts + number)[number < lengths]])


@dataclass(frozen=True)
class Text(DataFile):
    """A text in UTF-8: which character is next? It is cut into pieces of ``length`` steps, of
    which the last ones are for validation and test. Every piece starts at the initial state or,
    with ``carry``, at the state in which the piece before it ended.
    """

    validation: float = 0.05
    test: float = 0.05
    length: int = 100
    carry: bool = False

    def read(self) -> Record:
        try:
            text = Path(self.path).read_text("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{self.path}: {error}; need a text in UTF-8") from None
        pieces = (len(text) - 1) // self.length if self.length > 0 else 0
        held = [max(round(pieces * part), part > 0) for part in (self.validation, self.test)]
        if pieces - sum(held) < 1:
            raise ValueError(
                f"{self.path} has {len(text)} characters, {pieces} piece{'s' * (pieces != 1)} of "
                f"length {self.length}; need at least one for each part: give a smaller length "
                "(--length), or test=0"
            )
        characters = np.array(list(text[: pieces * self.length + 1]))
        x = characters[:-1].reshape(pieces, self.length)
        splits = np.repeat(PARTS, [pieces - sum(held), *held]).tolist()
        return {"x": x, "y": characters[1:].reshape(x.shape), "readout": "every", "splits": splits}

    def kind(self) -> Callable[..., Arrays]:
        return Carried if self.carry else Stream


def arrays_of(file: DataFile) -> Arrays:
    """The task of a file, which is read again only if it has changed.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.txt").write_text("abcab" * 100)
    ...     arrays_of(Text(f"{folder}/a.txt", length=10)).inputs
    3
    """
    place = Path(file.path)
    if not place.is_file():
        raise FileNotFoundError(f"there is no file {file.path}; name one that exists")
    facts = place.stat()
    return _made(file, facts.st_mtime_ns, facts.st_size)


@lru_cache(maxsize=2)
def _made(file: DataFile, *stamp: int) -> Arrays:
    return file.task()


READERS: dict[str, type[DataFile]] = {".npz": Npz, ".csv": Table, ".tsv": Table, ".txt": Text}
"""By the end of a file's name."""
