"""A data set's files: found or downloaded, and always checked before use.

refnet looks for a file in the folder named by REFNET_DATA (there, or in a folder of the data
set's name), then in the user's cache, plain or gz. It downloads what is free to download into the
cache. Unpacking is bounded, and the unpacked bytes must match a pinned sha256.

Checked by: tests/tasks/test_data_files.py.
"""

import gzip
import io
import logging
import os
import sys
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from hashlib import sha256
from operator import methodcaller
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from refnet.batch import Array
from refnet.runs.files import described, sweep, user_cache, write_atomically
from refnet.runs.progress import counter


class Source(NamedTuple):
    """One file: the data set's name, the file's, and its size and sha256 once unpacked."""

    folder: str
    name: str
    size: int
    sha256: str


def folders(folder: str) -> list[Path]:
    """Where a data set's files are looked for, in this order.

    >>> folders("mnist")[-1] == user_cache() / "mnist"
    True
    """
    named = os.environ.get("REFNET_DATA")
    if named and not Path(named).is_dir():
        raise FileNotFoundError(
            f"REFNET_DATA is {named!r}, which is not a folder; set it to the "
            "folder that has the data sets, or unset it"
        )
    chosen = [Path(named) / folder, Path(named)] if named else []
    with suppress(FileNotFoundError):
        chosen.append(user_cache() / folder)
    return chosen


def find(source: Source) -> Path | None:
    """The file, plain or gz, in the first of ``folders`` that has it.

    >>> find(Source("mnist", "no-such-file", 1, "0" * 64)) is None
    True
    """
    places = (
        place / f"{source.name}{end}" for place in folders(source.folder) for end in ("", ".gz")
    )
    return next((place for place in places if place.is_file()), None)


def load(
    source: Source, parse: Callable[[bytes, str], Any], mirrors: tuple[str, ...], missing: str
) -> Any:
    """The parsed file. ``parse(data, where)`` may raise ValueError about what it sees.

    ``mirrors``: addresses of folders that have it as gz; if there are none, it is never
    downloaded. ``missing``: what to get, for the error if no file is found.
    Raises ValueError for a file that is not what it should be, FileNotFoundError if there is
    none; a download is kept only if it is right, and used also where it cannot be kept.

    >>> load(Source("mnist", "no-such-file", 1, "0" * 64), len, (), "Get it.")
    Traceback (most recent call last):
    FileNotFoundError: ...
    """
    path = find(source)
    if path:
        with path.open("rb") as file:
            return _checked(file, source, parse, str(path))
    target = user_cache() / source.folder / f"{source.name}.gz"
    failures = []
    for mirror in mirrors:
        address = f"{mirror}{source.name}.gz"
        try:
            packed = _download(address, source)
            parsed = _checked(io.BytesIO(packed), source, parse, address)
        except (OSError, ValueError) as error:
            failures.append(f" {address}: {error}.")
            continue
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            sweep(target.parent)
            write_atomically(target, methodcaller("write", packed))
        except OSError as error:
            logging.getLogger("refnet").warning(
                "%s is used, but not kept for the next run: %s", source.name, described(error)
            )
        return parsed
    looked = ", ".join(str(folder) for folder in folders(source.folder))
    raise FileNotFoundError(
        f"{source.name} is not in {looked}.{''.join(failures)} {missing} Put it, plain or gz, "
        f"into {target.parent}, or name its folder in REFNET_DATA"
    )


def _checked(
    file: IO[bytes], source: Source, parse: Callable[[bytes, str], Any], where: str
) -> Any:
    data = unpack(file, source.size, where)
    if data.startswith(b"\x1f\x8b"):
        raise ValueError(f"{where}: is packed twice; unpack it once with gunzip")
    short = (
        (
            f"it has {len(data):,} bytes unpacked, and should have {source.size:,}: it is "
            "truncated, or another file; get it again"
        )
        if len(data) < source.size
        else ""
    )
    try:
        parsed = parse(data, where)
    except ValueError as error:
        if not short:
            raise
        raise ValueError(f"{error} ({short})") from None
    if short:
        raise ValueError(f"{where}: {short}")
    digest = sha256(data).hexdigest()
    if digest != source.sha256:
        raise ValueError(
            f"{where}: sha256 of the unpacked bytes is {digest}; need "
            f"{source.sha256}: the file is damaged or another one; replace it"
        )
    return parsed


def unpack(file: IO[bytes], size: int, where: str) -> bytes:
    """At most ``size`` bytes, unpacked if the file is gz; never reads more than one beyond them.

    Raises ValueError for a damaged gz, and for a file that goes on after ``size`` bytes.

    >>> import io
    >>> unpack(io.BytesIO(b"text"), 10, "a file")
    b'text'
    """
    packed = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    try:
        data = (gzip.GzipFile(fileobj=file) if packed else file).read(size + 1)
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{where}: damaged or truncated gz ({error}); get it again") from None
    if len(data) > size:
        raise ValueError(
            f"{where}: goes on after the {size} bytes that it should have; get the original file"
        )
    return data


def parse_idx(data: bytes, shape: tuple[int, ...], where: str) -> Array:
    """An IDX file of unsigned bytes as a read-only uint8 array of ``shape``.

    Raises ValueError for another magic number, other dimensions, missing or trailing bytes.

    >>> header = bytes([0, 0, 8, 1, 0, 0, 0, 2])  # unsigned bytes, one dimension, of size 2
    >>> parse_idx(header + bytes([7, 9]), (2,), "a file").tolist()
    [7, 9]
    """
    header = 4 + 4 * len(shape)
    if len(data) < header:
        raise ValueError(
            f"{where}: has {len(data)} bytes; an IDX header of {len(shape)} "
            f"dimensions has {header}: the file is truncated; get it again"
        )
    magic = int.from_bytes(data[:4], "big")
    need = 0x800 + len(shape)
    if magic != need:
        raise ValueError(
            f"{where}: magic number is {magic}; need {need}, IDX of unsigned bytes "
            f"in {len(shape)} dimensions: it is another file"
        )
    sizes = tuple(np.frombuffer(data, ">u4", len(shape), 4).tolist())
    if sizes != shape:
        raise ValueError(f"{where}: dimensions are {sizes}; need {shape}: it is another file")
    body = len(data) - header
    if body != np.prod(shape):
        raise ValueError(
            f"{where}: {body} bytes follow the header; need {np.prod(shape)} for "
            f"{shape}: the file is truncated or has trailing bytes; get it again"
        )
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape)


def _download(address: str, source: Source) -> bytes:
    """The bytes at the address, with a progress bar; OSError or ValueError if that fails."""
    from http.client import HTTPException  # these two are slow to import and seldom needed
    from urllib.request import urlopen

    limit = source.size + 2**16  # no gz is larger than that
    received = bytearray()
    try:
        with urlopen(address, timeout=30) as reply:
            total = int(reply.headers.get("Content-Length") or 0)
            with _bar(f"downloading {source.name}", total) as show:
                while len(received) <= limit and (part := reply.read(2**16)):
                    received += part
                    show(len(received), total)
    except HTTPException as error:
        raise OSError(f"not a proper answer ({error!r})") from None
    if len(received) > limit:
        raise ValueError(f"more than {limit} bytes; gave up")
    if len(received) < total:
        raise OSError(f"the connection broke off after {len(received)} of {total} bytes")
    return bytes(received)


def _bar(label: str, total: int) -> AbstractContextManager[Callable[[int, int], None]]:
    """A progress bar, or a line where there is no rich (extra ``cli``) to draw one."""
    try:
        import rich.progress  # noqa: F401
    except ImportError:
        print(f"{label}: {total} bytes", file=sys.stderr, flush=True)
        return nullcontext(lambda done, total: None)
    return counter(label, total)
