"""Certificates and sigmas of nets on the disk, for the next time the same ones are asked for.

They lie in the user's cache folder under the hash of what decides them: net, parameters and batch,
refnet's own code, Python, NumPy and FLINT. Files are .npz of numbers with a digest; nothing is
unpickled, and a damaged file is written again. Together they take at most ``MOST`` bytes: those
unused the longest go. REFNET_JUDGE_CACHE names another folder; "off" stores nothing.
``benchmarks.verdicts`` measures what this saves: of an LSTM with T = 784, H = 128, B = 16, the
second verdict takes 1.2 s and the first 54 s.
Checked by: tests/check/test_store.py.
"""

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import cache, partial
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from refnet.batch import Array, Params
from refnet.runs.files import sweep, user_cache, write_atomically
from refnet.runs.read import DAMAGE
from refnet.runs.unpack import npz_of

__all__ = ["digest_of", "read", "write"]

MOST = 2**29
LARGEST = MOST // 4
"""Of one file, in bytes."""


def folder() -> Path | None:
    """Where the files lie, or None if there are to be none."""
    chosen = os.environ.get("REFNET_JUDGE_CACHE", "")
    if chosen:
        return None if chosen == "off" else Path(chosen)
    try:
        return user_cache() / "judge"
    except FileNotFoundError:
        return None


def digest_of(*values: Any) -> bytes:
    """The hash of arrays, texts and numbers, and of mappings and sequences of them."""
    digest = sha256()
    for piece in _pieces(values):
        digest.update(len(piece).to_bytes(8, "little") + piece)
    return digest.digest()


def _pieces(value: Any) -> Iterable[bytes]:
    if isinstance(value, dict):
        value = [(repr(name), value[name]) for name in sorted(value, key=repr)]
    if isinstance(value, (tuple, list)):
        yield str(len(value)).encode()
        for entry in value:
            yield from _pieces(entry)
    else:
        array = np.asarray(value)
        yield f"{array.dtype.str}{array.shape}".encode()
        yield repr(array.tolist()).encode() if array.dtype == object else array.tobytes()


@cache
def _code() -> bytes:
    """The hash of refnet's own code and of the versions below it."""
    digest, home = sha256(sys.version.encode()), Path(__file__).resolve().parent.parent
    for path in sorted(home.rglob("*.py")):
        digest.update(path.read_bytes())
    for package in ("numpy", "scipy", "python-flint"):
        with suppress(PackageNotFoundError):
            digest.update(f"{package} {version(package)}".encode())
    return digest.digest()


def _path(key: str) -> Path | None:
    home = folder()
    return home and home / f"{sha256(_code() + key.encode()).hexdigest()[:40]}.npz"


def _digest(arrays: Params) -> Array:
    return np.frombuffer(digest_of(arrays), np.uint8)


def read(key: str) -> Params | None:
    """The arrays stored under that key, or None."""
    path = _path(key)
    if path is None:
        return None
    try:
        arrays = npz_of(path, LARGEST)
        os.utime(path)
    except (OSError, *DAMAGE):
        return None
    return arrays if np.array_equal(arrays.pop("digest", 0), _digest(arrays)) else None


def write(key: str, arrays: Params) -> None:
    """Store arrays of numbers under that key; where nothing can be written, nothing is."""
    path = _path(key)
    if path is None or sum(value.nbytes for value in arrays.values()) > LARGEST * 3 // 4:
        return
    content: dict[str, Any] = {**arrays, "digest": _digest(arrays)}
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep(path.parent)
        write_atomically(path, partial(np.savez, **content), sync=False)
        _bound(path.parent)


def _bound(home: Path) -> None:
    """Remove the files that were used longest ago until the rest is small enough."""
    total = 0
    for path in sorted(home.glob("*.npz"), key=lambda path: -path.stat().st_mtime):
        total += path.stat().st_size
        if total > MOST:
            path.unlink(missing_ok=True)
