"""Certificates and sigmas on the disk, for the next request of the same ones.

They lie in the user's cache folder under the hash of what decides them: net or function (with the
functions that it calls), parameters and batch, refnet's own code, Python, NumPy and FLINT. Files
are .npz of numbers with a digest; nothing is unpickled, and a damaged file is made again. Together
they take at most ``MOST`` bytes: the longest unused ones go. REFNET_JUDGE_CACHE names another
folder; "off" keeps none.
Checked by: tests/check/test_store.py.
"""

import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import fields, is_dataclass
from dis import get_instructions
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from refnet.batch import Params
from refnet.exact.recorder import outermost
from refnet.maths.activations import ACTIVATIONS, Activation
from refnet.runs.files import sweep, user_cache, write_atomically
from refnet.runs.read import DAMAGE
from refnet.runs.unpack import npz_of

__all__ = ["described", "kept", "keep", "pieces"]

MOST = 2**29
LARGEST = MOST // 4
"""Of one file, in bytes."""
PLAIN = (bool, int, float, str, type(None))
TRUSTED = ("numpy", "scipy", "math", "refnet")
"""What a function may take from modules: their versions, or refnet's own code, are in the hash."""
OUTSIDE = {
    "open",
    "eval",
    "exec",
    "globals",
    "__import__",
    "load",
    "loadtxt",
    "genfromtxt",
    "fromfile",
    "memmap",
    "random",
}
"""Names of what reads from elsewhere; no hash covers it."""


def folder() -> Path | None:
    """Where the files lie, or None if there are to be none."""
    chosen = os.environ.get("REFNET_JUDGE_CACHE", "")
    if chosen:
        return None if chosen == "off" else Path(chosen)
    try:
        return user_cache() / "judge"
    except FileNotFoundError:
        return None


def pieces(value: Any) -> Iterable[bytes]:
    """The bytes of numbers, arrays, and mappings and sequences of them."""
    if isinstance(value, (dict, tuple, list)):  # x[0, 1] is not x[[0, 1]]
        yield f"{type(value).__name__} {len(value)}".encode()
    if isinstance(value, dict):
        for name in sorted(value, key=repr):
            yield repr(name).encode()
            yield from pieces(value[name])
    elif isinstance(value, (tuple, list)):
        for entry in value:
            yield from pieces(entry)
    elif isinstance(value, (np.ndarray, np.generic)) and value.dtype != object:
        order = outermost(value)  # decides what is a view
        yield f"{type(value).__name__} {value.dtype.str}{value.shape}{order}".encode()
        yield np.ascontiguousarray(value).tobytes()
    else:
        yield repr(value.tolist() if isinstance(value, np.ndarray) else value).encode()


def described(what: Any) -> list[bytes] | None:
    """What decides what a net or a function computes; None if that cannot be found out here."""
    found: list[bytes] = []
    return found if _describe(what, found, {}) else None


def _describe(value: Any, found: list[bytes], seen: dict[int, int]) -> bool:
    if isinstance(value, (*PLAIN, np.ndarray, np.generic)):
        found.extend(pieces(value))
        return not isinstance(value, np.ndarray) or value.dtype != object
    if isinstance(value, (tuple, list)) or type(value) is dict:
        found.append(f"{type(value).__name__} {len(value)}".encode())
        entries = value.items() if isinstance(value, dict) else value
        return all(_describe(entry, found, seen) for entry in entries)
    if isinstance(value, Activation):
        found.append(f"{value.name} {value.alpha!r}".encode())
        return ACTIVATIONS.get(value.name) is value
    if is_dataclass(value) and type(value).__module__.startswith("refnet."):
        found.append(type(value).__qualname__.encode())
        return all(_describe(getattr(value, one.name), found, seen) for one in fields(value))
    if isinstance(value, ModuleType):
        found.append(value.__name__.encode())
        return value.__name__.split(".")[0] in TRUSTED
    if isinstance(value, FunctionType) and str(value.__module__).split(".")[0] not in TRUSTED:
        return _describe_function(value, found, seen)
    return _described_by_name(value, found)


def _described_by_name(value: Any, found: list[bytes]) -> bool:
    """Functions and classes of the trusted modules: what their name leads to. Objects that were
    made, such as np.vectorize(f), hold more than their name says."""
    name = str(getattr(value, "__qualname__", None) or getattr(value, "__name__", ""))
    homes = (
        ("numpy", "scipy.special")
        if isinstance(value, np.ufunc)
        else (str(getattr(value, "__module__", None)),)
    )
    for home in homes:
        if home.split(".")[0] in (*TRUSTED, "builtins") and value is getattr(
            sys.modules.get(home), name, None
        ):
            found.append(f"{home}.{name}".encode())
            return True
    return False


def _describe_function(function: FunctionType, found: list[bytes], seen: dict[int, int]) -> bool:
    """Its code, defaults, and all that it takes from outside; of one met before, which one."""
    if id(function) in seen:
        found.append(f"function {seen[id(function)]}".encode())
        return True
    seen[id(function)] = len(seen)
    # a variable of the function around it may have the name of a global one, or of an attribute
    try:
        held = [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError:  # one of them has no value yet
        return False
    names: set[str] = set()
    for code in _codes(function.__code__):
        if OUTSIDE & {*code.co_names} or any(
            one.opname == "IMPORT_NAME" and one.argval.split(".")[0] not in TRUSTED
            for one in get_instructions(code)
        ):
            return False
        found += [
            code.co_code,
            *(
                repr(part).encode()
                for part in (
                    code.co_names,
                    code.co_varnames,
                    code.co_argcount,
                    [one for one in code.co_consts if not isinstance(one, CodeType)],
                )
            ),
        ]
        names |= {*code.co_names}
    return all(
        _describe(one, found, seen)
        for one in (
            function.__defaults__,
            function.__kwdefaults__,
            vars(function),
            *held,
            *(function.__globals__[name] for name in sorted(names) if name in function.__globals__),
        )
    )


def _codes(code: CodeType) -> Iterable[CodeType]:
    """A function's code, and that of the functions and comprehensions in it."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes(inner)


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


def _digest(arrays: Params) -> np.ndarray[Any, Any]:
    digest = sha256()
    for piece in pieces({name: arrays[name] for name in arrays if name != "digest"}):
        digest.update(len(piece).to_bytes(8, "little") + piece)
    return np.frombuffer(digest.digest(), np.uint8)


def kept(key: str) -> Params | None:
    """The arrays kept under that key, or None."""
    path = _path(key)
    if path is None:
        return None
    try:
        arrays = npz_of(path, LARGEST)
    except (OSError, *DAMAGE):
        return None
    if not np.array_equal(arrays.get("digest", 0), _digest(arrays)):
        return None
    with suppress(OSError):
        os.utime(path)
    del arrays["digest"]
    return arrays


def keep(key: str, arrays: Params) -> None:
    """Keep arrays of numbers under that key; where nothing can be written, nothing is."""
    path = _path(key)
    if path is None or sum(value.nbytes for value in arrays.values()) > LARGEST * 3 // 4:
        return
    content: dict[str, Any] = {**arrays, "digest": _digest(arrays)}
    write: Callable[[Any], object] = lambda file: np.savez(file, **content)  # noqa: E731
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep(path.parent)
        write_atomically(path, write, sync=False)
        _bound(path.parent)


def _bound(home: Path) -> None:
    """Remove the files that were used longest ago until the rest is small enough."""
    files = sorted(
        ((path.stat().st_mtime, path.stat().st_size, path) for path in home.glob("*.npz")),
        reverse=True,
    )
    total = 0
    for _, size, path in files:
        total += size
        if total > MOST:
            path.unlink(missing_ok=True)
