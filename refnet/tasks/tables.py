"""Files of data as tasks: arrays in an .npz, rows of a .csv or .tsv, a text by characters.

Checked by: tests/tasks/test_tables.py.
"""

import csv
import re
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from io import StringIO
from math import log
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

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

DATE = r"\d{4}-\d\d"
"""How a date begins: a year alone is a number, and "today" is no date of a file."""


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
        """x and y, and what else of Arrays the file has."""
        raise NotImplementedError

    def task(self) -> Arrays:
        """The task. Raises OSError or ValueError, which names the file."""
        if not (self.validation >= 0 <= self.test and self.validation + self.test < 1):
            raise ValueError(
                f"{self.path}: validation is {self.validation} and test {self.test}; need two "
                "fractions from 0 on that leave some for training"
            )
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
    """``np.savez(path, x=x, y=y)``, with ``lengths``, ``weights`` and, for each sequence, the name
    of its part as ``splits`` if wanted: what Arrays takes. x and a y of every step may also be
    those of all sequences, one after another, (S, D), with lengths whose sum is S. Nothing is
    unpickled.
    """

    def read(self) -> Record:
        try:
            with open(self.path, "rb") as opened, np.load(opened, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
        except (ValueError, EOFError, TypeError, BadZipFile, zlib.error):
            raise ValueError(
                f"{self.path} is damaged, or not an archive of plain arrays; need what "
                "np.savez(path, x=x, y=y, lengths=lengths) writes, without arrays of objects"
            ) from None
        known = ("x", "y", "lengths", "splits", "weights")
        if not {"x", "y"} <= arrays.keys() <= set(known):
            raise ValueError(
                f"{self.path} has {', '.join(arrays) or 'nothing'}; need x and y, and of "
                "lengths, splits and weights what there is"
            )
        x, y, lengths = arrays["x"], arrays["y"], arrays.get("lengths")
        if lengths is None:
            return arrays
        if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or (lengths < 1).any():
            raise ValueError(
                f"{self.path}: lengths is {short(lengths.tolist())}; need a whole number from 1 on "
                "for each sequence"
            )
        if x.ndim in (1, 2) and len(x) == lengths.sum():
            each_step = y.shape[:1] == x.shape[:1] != lengths.shape
            for name in ("x", "y") if each_step else ("x",):
                arrays[name] = np.split(arrays[name], np.cumsum(lengths)[:-1])
            del arrays["lengths"]
        return arrays


@dataclass(frozen=True)
class Table(DataFile):
    """Rows with a header, one step each, separated by commas, semicolons or tabs.

    The columns: ``id`` says to which sequence a row belongs, ``time`` in which order its rows come
    (without such a column: as in the file), ``target`` has the target of the sequence, the same in
    all its rows that have one, or else one for every step (that of a row may be missing).
    ``split``: if given, the column with the part of a sequence, train, validation or test. All
    others are features, numbers; a single one of words is symbols.
    """

    id: str = "id"
    time: str = "time"
    target: str = "target"
    split: str = ""

    def read(self) -> Record:
        names, lines = _rows(self.path)
        for what in ("id", "time", "target", "split"):
            column = getattr(self, what)
            if column not in names and column != {"time": "time", "split": ""}.get(what):
                raise ValueError(
                    f"{self.path} has no column {column!r} for {what}; its columns are "
                    f"{', '.join(names)}: give {what}=COLUMN (--{what} COLUMN)"
                )
        columns = {name: np.array([line[n] for line in lines]) for n, name in enumerate(names)}
        order, starts = self._order(columns)
        roles = (self.id, self.time, self.target, self.split)
        features = [name for name in names if name not in roles]
        if not features:
            raise ValueError(f"{self.path} has no column beside {', '.join(names)}; need a feature")
        x = self._features({name: columns[name] for name in features})[order]
        y, there = self._values(self.target, columns[self.target])
        if not there.all():
            y = y.astype(object)
            y[~there] = None
        rows = [*map(np.flatnonzero, np.split(there[order], starts))]
        parts = np.split(y[order], starts)
        first = np.array([0, *starts])
        single = all(len(set(part[at].tolist())) <= 1 for part, at in zip(parts, rows))
        if self.readout == "last" or self.readout == "auto" and single:
            ends = first + [at[-1] if len(at) else 0 for at in rows]
            given: Record = {"y": y[order][ends], "readout": "last"}
        else:
            given = {"y": parts, "readout": "every"}
        given["x"] = np.split(x, starts)
        if self.split:
            texts = columns[self.split]
            given["splits"] = texts[order][first]
            bad = ~np.isin(texts, PARTS)
            whole = np.repeat(given["splits"], np.diff([*first, len(order)]))
            bad[order] |= texts[order] != whole
            need = f"need {', '.join(PARTS)}, the same in all rows of a sequence"
            self._refuse(bad, self.split, texts, need)
        return given

    def _refuse(self, bad: Array, name: str, texts: Array, need: str) -> None:
        """Raise ValueError about the first entry of a column that is ``bad``."""
        if bad.any():
            text = str(texts[bad.argmax()])
            what = f"lacks {name}" if text in MISSING else f"has {short(text)} as {name}"
            raise ValueError(
                f"{self.path}: line {_line(self.path, int(bad.argmax()))} {what}; {need}"
            )

    def _values(self, name: str, texts: Array) -> tuple[Array, Array]:
        """Integers if all are, else real numbers, else the words; and which are not missing."""
        there = ~np.isin(texts, MISSING)
        filled = np.where(there, texts, "0")
        try:
            return filled.astype(np.int64), there
        except (OverflowError, ValueError) as error:
            limit = 2.0**63 if isinstance(error, OverflowError) else np.inf
        try:
            numbers = filled.astype(np.float64)
        except ValueError:
            return np.where(there, texts, ""), there
        need = "need finite numbers, and 1e20 for a whole one of more than 64 bits"
        self._refuse(abs(numbers) >= limit, name, texts, need)
        return numbers, there & ~np.isnan(numbers)

    def _order(self, columns: dict[str, Array]) -> tuple[Array, Array]:
        """The rows by sequence, in the order of the file, and by time; where the later start."""
        ids = columns[self.id]
        self._refuse(np.isin(ids, MISSING), self.id, ids, "need the name of the row's sequence")
        _, first, number = np.unique(ids, return_index=True, return_inverse=True)
        rank = first[number]
        times = self._times(columns[self.time]) if self.time in columns else np.arange(len(ids))
        order = np.lexsort((times, rank))
        sequence, times = rank[order], times[order]
        same = sequence[1:] == sequence[:-1]
        if (same & (times[1:] == times[:-1])).any():
            at = order[1 + int((same & (times[1:] == times[:-1])).argmax())]
            raise ValueError(
                f"{self.path}: line {_line(self.path, at)} repeats the time "
                f"{columns[self.time][at]} of sequence {ids[at]}; need one row for each step"
            )
        return order, np.flatnonzero(~same) + 1

    def _times(self, texts: Array) -> Array:
        """Numbers or dates, to be sorted by."""
        times, there = self._values(self.time, texts)
        need = "fill it in, or leave the column out if the rows stand in order"
        self._refuse(~there, self.time, texts, need)
        if times.dtype.kind == "f":  # two may differ and be the same in float64
            texts, place = np.unique(texts, return_inverse=True)
            with suppress(ArithmeticError):  # an exponent of twenty digits
                times = np.unique([*map(Decimal, texts.tolist())], return_inverse=True)[1][place]
        if times.dtype.kind != "U":
            return times
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of zones: NumPy turns all into UTC
            bad = [not (re.match(DATE, text) and _parses(np.datetime64, text)) for text in texts]
            need = "need numbers, or dates such as 2024-01-31 or 2024-01-31T23:59"
            self._refuse(np.array(bad), self.time, texts, need)
            dates, seconds = (texts.astype(f"datetime64{unit}") for unit in ("", "[s]"))
        need = "need no fractions of seconds beside dates of other centuries"
        self._refuse(dates.astype(seconds.dtype) != seconds, self.time, texts, need)
        return dates

    def _features(self, columns: dict[str, Array]) -> Array:
        """Numbers (S, D), NaN for what is missing; or the words of a single column, (S,)."""
        out = []
        for name, texts in columns.items():
            values, there = self._values(name, texts)
            if values.dtype.kind == "U":
                if len(columns) == 1:
                    self._refuse(texts == "", name, texts, "need a word in every row")
                    return texts
                bad = there & ~np.array([_parses(float, text) for text in texts])
                self._refuse(bad, name, texts, "need numbers in every column of features")
            if self.missing == "refuse":
                need = (
                    f"fill it in, or name the data {self.path}:missing=mean, which takes the mean "
                    "of the training part"
                )
                self._refuse(~there, name, texts, need)
            out.append(np.where(there, values, np.nan))
        return np.column_stack(out)


def _parses(kind: Callable[[str], object], text: str) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return True


def _text(path: str, newline: str | None = None) -> str:
    """A text in UTF-8, without the mark of its byte order."""
    try:
        with open(path, newline=newline, encoding="utf-8-sig") as file:
            text = file.read()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: {error}; need a text in UTF-8") from None
    if "\0" in text:
        raise ValueError(f"{path}: character {text.index(chr(0))} (from 0) is NUL; need a text")
    return text


def _reader(path: str) -> Any:
    """The rows of a table, the header first."""
    file = StringIO(_text(path, newline=""), newline="")
    separator = max((",", ";", "\t"), key=file.readline().count)
    file.seek(0)
    return csv.reader(file, delimiter=separator)


def _line(path: str, row: int) -> int:
    """The line, from 1, on which that row below the header begins: quoted entries have breaks."""
    reader = _reader(path)
    for _ in range(row + 1):
        next(reader)
    return int(reader.line_num) + 1


def _rows(path: str) -> tuple[list[str], list[list[str]]]:
    """The header and the rows of a table."""
    reader = _reader(path)
    try:
        header, *lines = [*reader] or [[]]
    except csv.Error as error:
        raise ValueError(f"{path}: {error}; need a table with a header") from None
    while lines and not lines[-1]:
        lines.pop()
    names = [name.strip() for name in header]
    if "" in names or len(set(names)) != len(names) or not lines:
        raise ValueError(
            f"{path}: its header is {short(reader.dialect.delimiter.join(names))}, with "
            f"{len(lines)} rows beneath it; need a header of different names, none of them empty, "
            "and rows beneath it"
        )
    for number, line in enumerate(lines):
        if len(line) != len(names):
            raise ValueError(
                f"{path}: line {_line(path, number)} has {len(line)} entries; need {len(names)}, "
                "as the header has"
            )
    return names, [[entry.strip() for entry in line] for line in lines]


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
        text = _text(self.path)
        pieces = max(len(text) - 1, 0) // self.length if self.length > 0 else 0
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
