"""Named arrays in three encodings that any language reads: safetensors, .npz and JSON.

Written so that the same arrays give the same bytes on every machine: sorted names, C order,
little endian, no time stamps, shortest decimals that give the same float64 back.
Checked by: tests/check/test_vectors.py.
"""

import codecs
import io
import json
import zipfile
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from refnet.batch import Array, Params
from refnet.runs.read import DAMAGE, contents, json_of
from refnet.runs.unpack import npz_of, safetensors_of

__all__ = ["ENCODINGS", "decode", "encode", "from_json", "to_json"]

ENCODINGS = ("json", "npz", "safetensors")
TYPES = {"float16": "F16", "float32": "F32", "float64": "F64", "int64": "I64", "bool": "BOOL"}
WORDS = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}


def to_json(array: Array) -> dict[str, Any]:
    """shape, dtype and flat data in C order; NaN and infinities as the strings of WORDS."""

    def word(value: Any) -> Any:
        if isinstance(value, float) and not np.isfinite(value):
            return "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return value

    return {
        "shape": list(array.shape),
        "dtype": str(array.dtype),
        "data": [word(value) for value in array.ravel().tolist()],
    }


def from_json(entry: Any) -> Array:
    """The array of ``to_json``. Raises ValueError on anything else."""
    if not isinstance(entry, dict) or not {"shape", "data"} <= set(entry):
        raise ValueError("an array needs a shape and flat data")
    dtype = entry.get("dtype", "float64")
    if not isinstance(dtype, str) or dtype not in TYPES:
        raise ValueError(f"dtype {str(dtype)[:80]!r} is none of {', '.join(TYPES)}")
    shape, data = entry["shape"], entry["data"]
    if (
        not isinstance(shape, list)
        or not isinstance(data, list)
        or not all(type(n) is int and n >= 0 for n in shape)
    ):
        raise ValueError("a shape is a list of integers, and data is one flat list")
    values = [WORDS.get(value, value) if isinstance(value, str) else value for value in data]
    if not all(isinstance(value, (int, float)) for value in values):
        raise ValueError(
            "data holds something that is not a number, NaN or Infinity; write one "
            "flat list in C order, without lists inside"
        )
    if len(values) != prod(shape):
        raise ValueError(f"data has {len(values)} numbers, which do not make shape {shape}")
    # a float32 may be written as 1e300, an int64 may not, nor as .5 or NaN
    with np.errstate(over="ignore", invalid="ignore"), suppress(OverflowError, ValueError):
        array = np.array(values, dtype)
        if array.dtype.kind == "f" or array.tolist() == values:
            return array.reshape(shape)
    raise ValueError(f"data holds a number that is no {dtype}")


def encode(arrays: Params, encoding: str, about: dict[str, Any]) -> bytes:
    """The bytes of one file; ``about`` goes into JSON only, beside "arrays"."""
    arrays = dict(sorted(arrays.items()))
    if encoding == "json":
        content = {**about, "arrays": {name: to_json(value) for name, value in arrays.items()}}
        text = json.dumps(content, sort_keys=True, allow_nan=False, separators=(",", ":"))
        return f"{text}\n".encode()
    if encoding == "npz":
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, value in arrays.items():
                member = io.BytesIO()
                np.lib.format.write_array(member, value.copy("C"), (1, 0), allow_pickle=False)
                info = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
                info.create_system = 3  # the same byte on Windows
                archive.writestr(info, member.getvalue())
        return file.getvalue()
    header, body = {}, bytearray()
    for name, value in arrays.items():
        start = len(body)
        # in C order whatever the array's own is; writers that copy memory are not
        body += value.astype(value.dtype.newbyteorder("<")).tobytes()
        header[name] = {
            "dtype": TYPES[str(value.dtype)],
            "shape": list(value.shape),
            "data_offsets": [start, len(body)],
        }
    data = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    data += b" " * (-len(data) % 8)
    return len(data).to_bytes(8, "little") + data + body


def decode(path: Path, limit: int = 2**26) -> tuple[Params, dict[str, Any]]:
    """The arrays of a file in any of the three encodings, and what else its JSON holds.

    Raises ValueError, naming the file, on whatever is not one, and on a file of more than
    ``limit`` bytes, packed or unpacked.
    """
    encoding = path.suffix[1:]
    if encoding not in ENCODINGS:
        raise ValueError(f"{path.name} is none of .json, .npz, .safetensors")
    try:
        if encoding == "npz":
            return npz_of(path, limit), {}
        data = contents(path, limit)
        return _from_json_file(data) if encoding == "json" else (safetensors_of(data), {})
    except (OSError, *DAMAGE) as error:
        raise ValueError(f"{path.name} cannot be read: {error}") from None


def _from_json_file(data: bytes) -> tuple[Params, dict[str, Any]]:
    content = json_of(data.removeprefix(codecs.BOM_UTF8))  # some editors and shells begin with it
    if not isinstance(content, dict) or not isinstance(content.get("arrays"), dict):
        raise ValueError('it has no "arrays"')
    arrays = {}
    for name, entry in content.pop("arrays").items():
        try:
            arrays[name] = from_json(entry)
        except (ValueError, OverflowError) as error:
            raise ValueError(f"{name[:80]!r}: {error}") from None
    return arrays, content
