"""The one decorator that holds every option of the compiler, and the cache.

No fast-math flag is set: each would let the compiler drop NaN or reorder sums. Where two
roundings shall be one, the kernels say ``fma``. ``error_model="numpy"`` gives x / 0 = inf
instead of an exception, without which no division is vectorised.
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba import types
from numba.core import caching, config

__all__ = ["JIT", "cache_folder", "compiled_kernels", "jit"]

Function = TypeVar("Function", bound=Callable[..., Any])
JIT: bool = not config.DISABLE_JIT
_KERNELS: list[Any] = []
_OPTIONS = {"nogil": True, "error_model": "numpy", "boundscheck": False}


def cache_folder() -> Path:
    """Where compiled kernels are kept: one folder for each version of the sources.

    Numba itself looks only at the file of the outermost function, and would go on using a
    kernel whose helpers in another file have changed.
    """
    sources = sorted(Path(__file__).parent.glob("*.py"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    base = os.environ.get("NUMBA_CACHE_DIR") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "refnet")
    return Path(base) / digest


class _Locator(caching._CacheLocator):  # type: ignore[misc]
    def __init__(self, function: Callable[..., Any], file: str) -> None:
        self._line = function.__code__.co_firstlineno

    def get_cache_path(self) -> str:
        return str(cache_folder())

    def get_source_stamp(self) -> str:
        return cache_folder().name

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> "_Locator":
        return cls(function, file)


class _Implementation(caching.CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = [_Locator]


class _Cache(caching.FunctionCache):  # type: ignore[misc]
    """Numba's cache, except that what cannot be read or written is as good as absent."""

    _impl_class = _Implementation

    def load_overload(self, signature: Any, context: Any) -> Any:
        try:
            return super().load_overload(signature, context)
        except Exception:  # a damaged file can raise anything while it is unpickled
            return None

    def save_overload(self, signature: Any, data: Any) -> None:
        try:
            self._impl.locator.ensure_cache_path()
            super().save_overload(signature, data)
        except Exception:  # unwritable, full, or a damaged index
            return None


def _plainly(resolve: Callable[..., Any]) -> Callable[..., Any]:
    return lambda args, kws: resolve(tuple(map(types.unliteral, args)),
                                     {name: types.unliteral(kind) for name, kind in kws.items()})


def jit(function: Function) -> Function:
    """Compile at the first call, for the types of that call; as it is if the JIT is off."""
    kernel: Any = numba.njit(**_OPTIONS)(function)
    if JIT:
        kernel._cache = _Cache(function)
        # or a function would be compiled anew for every constant that it is called with
        kernel.get_call_template = _plainly(kernel.get_call_template)
        _KERNELS.append(kernel)
    return kernel  # type: ignore[no-any-return]


def compiled_kernels() -> list[str]:
    """The kernels compiled or loaded so far, each with its element types."""
    return [f"{kernel.py_func.__module__}.{kernel.__name__}" for kernel in _KERNELS
            if kernel.signatures]
