"""A run's records: rows, the machine that it ran on, tables."""

import json
import logging
import os
import platform
import zlib
from hashlib import sha256
from operator import methodcaller
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from refnet.common.process import BLAS_THREADS, cpu_features, openblas
from refnet.common.version import __version__
from refnet.runs.files import argument, naming, printable, write_named
from refnet.runs.read import Record, contents, json_of, reading

Canvas: TypeAlias = Any
"""A figure or axes of Matplotlib's, which is an optional package."""
KIND = (
    "NUMBA_CPU_NAME",
    "NUMBA_CPU_FEATURES",
    "NUMBA_OPT",
    "OPENBLAS_CORETYPE",
    "MKL_CBWR",
    "NPY_DISABLE_CPU_FEATURES",
)
"""Variables of the environment that change bits."""
FEATURES = ("fma", "avx2", "avx512f", "neon", "sve")
"""Features of processors that change bits: whether a product is rounded before it is added, and how
many numbers a vector register has, which decides the order of a sum."""
LIMIT = 2**30
"""Bytes of a rows.jsonl: a million rows take a third of it."""


class Rows:
    """The rows of a run: in memory, and one JSON line each in ``path``.

    ``lines``, ``size`` (bytes) and ``sha256`` say what the file holds; a checkpoint records them.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[Record] = []
        self.size = 0
        self._digest = sha256()

    def record(self) -> Record:
        """What a checkpoint keeps of the rows, so that none it counts can be lost unnoticed."""
        return {"lines": len(self.rows), "bytes": self.size, "sha256": self._digest.hexdigest()}

    def _take(self, line: bytes, row: Record) -> None:
        self.rows.append(row)
        self.size += len(line)
        self._digest.update(line)

    def append(self, row: Record) -> None:
        """Add a row and sync it to the disk."""
        line = json.dumps(plain(row), allow_nan=False).encode() + b"\n"
        with naming(self.path), open(self.path, "ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self._take(line, row)

    @staticmethod
    def counted(path: Path, record: Record) -> tuple["Rows", int]:
        """The rows that a checkpoint counts, and the number of lines after them.

        Raises FileError, with the line and the repair, if a row that the checkpoint counts is
        missing or damaged.
        """
        rows = Rows(path)
        with reading(
            path,
            f"put back a whole copy of it, or train again with: refnet train "
            f"--config {argument(path.parent / 'config.toml')}",
        ):
            data = contents(path, LIMIT) if path.exists() else b""
            lines = data.splitlines(keepends=True)
            for number, line in enumerate(lines[: record["lines"]], 1):
                rows._take(line, _row(line, number))
            if len(lines) < record["lines"]:
                raise ValueError(
                    f"line {len(lines) + 1}: is missing; the checkpoint counts "
                    f"{record['lines']} rows"
                )
            if rows.record() != record:
                raise ValueError(
                    f"lines 1 to {record['lines']}: are not those that the checkpoint "
                    "counts: one of them was changed"
                )
        return rows, len(lines) - record["lines"]

    @staticmethod
    def resumed(path: Path, record: Record) -> "Rows":
        """The rows that a checkpoint counts; later ones, which a kill may leave, are cut off and
        reported, for they will be computed again. Errors: see ``counted``; the file is then left
        as it was."""
        rows, tail = Rows.counted(path, record)
        if tail:
            logging.getLogger("refnet").warning(
                "%s: line %d and later (%d in all) were written after the last checkpoint; they "
                "are computed again",
                path,
                record["lines"] + 1,
                tail,
            )
        if path.exists() and (tail or os.stat(path).st_nlink > 1):  # others keep what they link to
            write_named(path, methodcaller("write", contents(path, LIMIT)[: rows.size]))
        return rows


def _row(line: bytes, number: int) -> Record:
    """One line as a row."""
    try:
        row = json_of(line)
    except ValueError as error:
        raise ValueError(f"line {number}: {error}") from None
    if not isinstance(row, dict) or type(row.get("iteration")) is not int or line[-1:] != b"\n":
        raise ValueError(
            f"line {number}: not a complete row; need an object with an iteration, and a line break"
        )
    return row


def read_rows(path: Path) -> list[Record]:
    """The rows of a run, [] if there is no file; a last line that a kill cut short is left out.

    Raises FileError, with the line, if another line is damaged.
    """
    if not path.exists():
        return []
    with reading(path, "put back a whole copy of it"):
        lines = contents(path, LIMIT).splitlines(keepends=True)
        if lines and not lines[-1].endswith(b"\n"):
            lines.pop()
        return [_row(line, number) for number, line in enumerate(lines, 1)]


def plain(value: Any) -> Any:
    """JSON has no infinities: they become the strings NaN, Infinity and -Infinity."""
    if isinstance(value, float) and not np.isfinite(value):
        return "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    return [plain(entry) for entry in value] if isinstance(value, (list, tuple)) else value


def environment() -> Record:
    """Versions and machine, so that two runs can be compared: of the processor's features those
    that change bits, and the kind of processor that BLAS computes for.

    Checked by: tests/training/test_other_machines.py::test_an_environment_names_what_changes_bits.
    """
    from importlib.metadata import version

    from llvmlite.binding import get_host_cpu_name

    features = cpu_features()
    versions = {package: version(package) for package in ("numpy", "scipy", "numba")}
    return {
        "python": platform.python_version(),
        "refnet": __version__,
        **versions,
        "machine": platform.machine(),
        "processor": get_host_cpu_name(),
        "features": " ".join(name for name in FEATURES if features.get(name)),
        "blas": _blas(),
        "system": platform.system(),
        "cpus": os.cpu_count(),
    }


def _blas() -> str:
    """The kind of processor that NumPy's OpenBLAS computes for; "" of another BLAS."""
    import ctypes

    for path in Path(np.__file__).parent.glob("*core/_multiarray_umath*"):
        if corename := openblas(ctypes.CDLL(str(path)), "get_corename"):
            corename.restype = ctypes.c_char_p
            return str(corename().decode())
    return ""


def machine() -> str:
    """The kind of machine: on two of one kind, a run has the same bits.

    Processor with a checksum of its features, system, the versions of NumPy, SciPy and Numba, and
    the environment's variables by which these compute as for another processor, by which BLAS
    takes more than one thread, or by which Numba compiles nothing. The number of cores does not
    matter as long as it keeps to one (``refnet.settle``).
    """
    facts = environment()
    features = zlib.crc32(cpu_features().flatten().encode())
    return (
        f"{facts['processor']} {features:08x}, {facts['system']} {facts['machine']}, "
        f"numpy {facts['numpy']}, scipy {facts['scipy']}, numba {facts['numba']}"
        + "".join(f", {name}={os.environ[name]}" for name in KIND if os.environ.get(name))
        + "".join(
            f", {name}={os.environ[name]}"
            for name in BLAS_THREADS
            if os.environ.get(name, "1") != "1"
        )
        + ", not compiled" * (os.environ.get("NUMBA_DISABLE_JIT", "") not in ("", "0"))
    )


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "-" if value is None else printable(value)


def table(header: list[str], rows: list[list[Any]]) -> str:
    """A Markdown table, its columns padded so that it also reads as plain text."""
    cells = [header, *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = [
        "| " + " | ".join(value.ljust(w) for value, w in zip(row, widths)) + " |" for row in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(lines) + "\n"


def finite(values: list[Any]) -> np.ndarray[Any, Any]:
    """A column of rows as floats, None and absent as NaN."""
    return np.array([np.nan if value is None else value for value in values], float)
