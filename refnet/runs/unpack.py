"""Arrays out of .npz and safetensors files, within the bounds of ``refnet.runs.read``.

Declared sizes, methods, headers and offsets are checked before anything is unpacked.
Checked by: tests/training/test_checkpoint_reader.py, python -m benchmarks.fuzz.
"""

import struct
import zipfile
import zlib
from io import BytesIO
from math import prod
from pathlib import Path

import numpy as np
from numpy.lib.format import read_array_header_1_0, read_array_header_2_0, read_magic

from refnet.batch import Array, Params
from refnet.runs.read import json_of, size_of

KINDS = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "I64": "<i8", "BOOL": "|b1"}


def npy_of(data: bytes) -> Array:
    """The array of a .npy file: numbers, booleans or text of a fixed width."""
    file = BytesIO(data)
    try:
        header = {(1, 0): read_array_header_1_0, (2, 0): read_array_header_2_0}[read_magic(file)]
        shape, columns_first, dtype = header(file, max_header_size=4096)
    except Exception as error:  # whatever damage does to NumPy's parser
        reason = " ".join(str(error).split())
        raise ValueError(f"its .npy header is malformed: {reason[:200]}") from None
    if dtype.kind not in "biufU":
        raise ValueError(
            f"its dtype is {dtype}; "
            + (
                "objects need allow_pickle, and no file that does is opened"
                if dtype.hasobject
                else "need numbers that are real: save bfloat16, say, as float32"
            )
        )
    body = len(data) - file.tell()
    if len(shape) > 32 or prod(shape) * dtype.itemsize != body:
        raise ValueError(f"{body:,} bytes do not make shape {shape} of {dtype.name}")
    flat: Array = np.frombuffer(data, dtype, offset=file.tell())
    array = flat.reshape(shape[::-1]).T if columns_first else flat.reshape(shape)
    return np.array(array, order="K")


def npz_of(path: Path, limit: int | None = None, only: str = "") -> Params:
    """The arrays of an .npz file, which unpack to at most ``limit`` bytes; or ``only`` one.

    Without a limit, nothing may be compressed, so that they take no more than the file does.
    """
    size = size_of(path, limit)
    with open(path, "rb") as file:
        file.seek(max(0, size - 2**16))
        tail = file.read(2**16)
        end = tail.rfind(b"PK\5\6")
        if end < 0 or int.from_bytes(tail[end + 12 : end + 16], "little") > (
            size if limit is None else 2**20
        ):
            raise ValueError(
                "is truncated, or no .npz file: it does not end with a directory of arrays"
            )
        try:
            with zipfile.ZipFile(file) as archive:
                return _members(archive, size, limit, only)
        except (
            zipfile.BadZipFile,
            zlib.error,
            EOFError,
            NotImplementedError,
            OverflowError,
            RuntimeError,
            struct.error,
        ) as error:
            raise ValueError(f"is damaged: {error}") from None


def _members(archive: zipfile.ZipFile, size: int, limit: int | None, only: str) -> Params:
    stored = {zipfile.ZIP_STORED}
    infos = [info for info in archive.infolist() if only in ("", info.filename[:-4])]
    methods = stored if limit is None else {*stored, zipfile.ZIP_DEFLATED}
    for info in infos:
        if (
            info.compress_type not in methods
            or info.flag_bits & ~0x80E
            or (info.compress_type in stored and info.file_size != info.compress_size)
        ):
            raise ValueError(
                f"{info.filename[:80]!r} is packed or encrypted in a way that this "
                "file should not be"
            )
    unpacked, packed = sum(i.file_size for i in infos), sum(i.compress_size for i in infos)
    if packed > size or (limit is not None and unpacked > limit):
        raise ValueError(
            f"its arrays would take {unpacked:,} bytes; need at most "
            f"{size if limit is None else limit:,}"
        )
    arrays: Params = {}
    for info in infos:
        name = info.filename.removesuffix(".npy")
        if name in arrays:
            raise ValueError(f"has two arrays named {name[:80]!r}")
        with archive.open(info) as member:
            data = member.read(info.file_size + 1)
        try:
            arrays[name] = npy_of(data)
        except ValueError as error:
            raise ValueError(f"{name[:80]!r}: {error}") from None
    return arrays


def safetensors_of(data: bytes) -> Params:
    """The arrays of a safetensors file of float16, float32, float64, int64 and bool."""
    size = int.from_bytes(data[:8], "little")
    if len(data) < max(8 + size, 10):
        raise ValueError(
            f"is truncated, or no safetensors file: it has {len(data):,} bytes; need "
            f"8 + {size:,}, by what should be the header's length"
        )
    header, body = json_of(data[8 : 8 + size]), data[8 + size :]
    if not isinstance(header, dict):
        raise ValueError("the header is not a JSON object")
    arrays: Params = {}
    used = 0
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        match entry:
            case {"dtype": str(kind), "shape": list(shape), "data_offsets": [int(a), int(b)]} if (
                kind in KINDS
                and 0 <= a <= b <= len(body)
                and len(shape) <= 32
                and all(type(n) is int and n >= 0 for n in shape)
            ):
                dtype = np.dtype(KINDS[kind])
            case _:
                raise ValueError(
                    f"{name[:80]!r}: {str(entry)[:120]}; need a dtype of "
                    f"{', '.join(KINDS)}, a shape, and data_offsets within the "
                    f"{len(body):,} bytes after the header: otherwise the file is "
                    "truncated"
                )
        if prod(shape) * dtype.itemsize != b - a:
            raise ValueError(f"{name[:80]!r}: {b - a} bytes do not make shape {shape} of {kind}")
        used += b - a
        if used > len(body):
            raise ValueError(f"{name[:80]!r} overlaps another array")
        arrays[name] = (
            np.frombuffer(body[a:b], dtype).reshape(shape).astype(dtype.newbyteorder("="))
        )
    return arrays
