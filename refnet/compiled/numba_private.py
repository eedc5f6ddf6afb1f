"""All that is used of Numba beside its public interface, and why.

``njit(cache=True)`` is not enough. It notices changes in the file of the outermost function alone
and would run a kernel whose helper, in another file, has changed since. It unpickles and runs
whatever lies in its folder, damaged or not, whoever wrote it. It cannot say that a kernel is not
there while another process could compile the next one. And it makes machine code and a way in from
Python of every function that only kernels call, and compiles each again for every constant that it
is called with: most of the time until a first gradient.

setup.cfg bounds the versions of Numba to those on which the tests have run
(benchmarks/results/versions.json). On another one that lacks some of these parts, ``MISSING`` says
what, and kernels are compiled plainly and not kept.
Checked by: tests/compiled/test_startup.py.
"""

import gc
import hashlib
import pickle
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numba
from numba import types
from numba.core import cgutils  # with populate_array: what the intrinsics are written with
from numba.np.arrayobj import populate_array

from refnet.compiled._cache import cache_folder, read, say, version, write

__all__ = [
    "MISSING",
    "InnerLibrary",
    "KernelCache",
    "cgutils",
    "install",
    "options",
    "populate_array",
]

MISSING: list[str] = []
"""What this Numba lacks of what follows."""


def _part(place: str, *attributes: str) -> Any:
    """What stands at "module:name" and has these attributes; else a class that has nothing."""
    module, name = place.split(":")
    try:
        part = getattr(import_module(module), name)
        for attribute in attributes:
            if not hasattr(part, attribute):
                raise AttributeError(f"{place} has no {attribute}")
    except (AttributeError, ImportError) as error:
        MISSING.append(str(error))
        return object
    return part


_part("numba.core.cpu:CPUTargetOptions", "no_cfunc_wrapper", "no_cpython_wrapper", "_nrt")
_part("numba.core.registry:CPUDispatcher", "compile", "get_call_template")
_part("numba.core.codegen:JITCPUCodegen", "_library_class")
_Cache = _part("numba.core.caching:_Cache", "load_overload", "save_overload")
_Result = _part("numba.core.compiler:CompileResult", "_rebuild", "_reduce", "entry_point")
_Library = _part(
    "numba.core.codegen:JITCodeLibrary",
    "_finalize_final_module",
    "_finalize_dynamic_globals",
    "serialize_using_bitcode",
    "serialize_using_object_code",
)
_dumps = _part("numba.core.serialize:dumps")
_lock = _part("numba.core.compiler_lock:global_compiler_lock")


def options(inner: bool) -> dict[str, bool]:
    """The compiler's options that ``numba.njit`` does not document: no way in from C, none from
    Python into what only kernels call, and no counts of references, for kernels make no arrays."""
    if MISSING:
        return {}
    return {"no_cfunc_wrapper": True, "_nrt": False, "no_cpython_wrapper": inner}


def install(kernel: Any, inner: bool) -> None:
    """Give a kernel the cache, and compile it as ``_compiling`` says; constants in a call count as
    numbers of their type. Its symbol has its digest, because a number that Numba counts in each
    process may be that of another kernel, of the same name, that another process kept.

    Checked by: tests/compiled/test_cache.py::test_kernels_of_one_name_are_not_taken_for_each_other.
    """
    if not MISSING:
        kernel._cache = KernelCache(kernel.py_func)
        digest = hashlib.sha256(repr(kernel._cache._function).encode()).hexdigest()
        kernel.py_func.__qualname__ += f".{digest[:16]}"
        kernel.compile = _compiling(kernel, inner)
        kernel.get_call_template = _without_constants(kernel.get_call_template)


def _without_constants(resolve: Callable[..., Any]) -> Callable[..., Any]:
    def resolved(args: Any, kws: Any) -> Any:
        plain = {name: types.unliteral(kind) for name, kind in kws.items()}
        return resolve(tuple(map(types.unliteral, args)), plain)

    return resolved


def _compiling(kernel: Any, inner: bool) -> Callable[..., Any]:
    """``kernel.compile``, into a library of its own kind if it is ``inner``, and without the
    garbage collector, which would look through the compiler's millions of objects again and
    again."""
    compile_, codegen = kernel.compile, kernel.targetctx.codegen()

    def call(*arguments: Any) -> Any:
        with _lock:
            enabled, before = gc.isenabled(), codegen._library_class
            gc.disable()
            codegen._library_class = InnerLibrary if inner else _Library
            try:
                return compile_(*arguments)
            finally:
                codegen._library_class = before
                if enabled:
                    gc.enable()

    return call


class InnerLibrary(_Library):  # type: ignore[misc,valid-type]
    """What Numba makes of a function that only kernels call: code to link into them, and none of
    the machine code that nothing would ever run.

    Checked by: tests/compiled/test_startup.py::test_machine_code_of_kernels_only.
    """

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def serialize_using_object_code(self) -> Any:
        """For the cache."""
        return self.serialize_using_bitcode()

    @property
    def codegen(self) -> Any:
        """Asked for only to say where in the machine code its Python objects stand."""
        return _Nowhere


class _Nowhere:
    @staticmethod
    def set_env(name: str, env: Any) -> None:
        """Nothing."""


def _described(function: Callable[..., Any]) -> tuple[Any, ...]:
    """What a kernel is made from: its own code, and what it closes over, other kernels included.
    (All other functions that it calls are in ``kernel_sources``, whose digest goes with it, or in
    the same file of a user's, whose digest is here.)"""
    code = function.__code__
    yours = not function.__module__.startswith("refnet.compiled")  # with functions that it calls
    path = Path(code.co_filename)
    source = path.read_bytes() if yours and path.is_file() else b""
    constants = [value for value in code.co_consts if not hasattr(value, "co_code")]
    closure = [cell.cell_contents for cell in function.__closure__ or ()]
    return (
        function.__module__,
        function.__qualname__,
        code.co_firstlineno,
        code.co_code,
        code.co_names,
        repr(constants),
        hashlib.sha256(source).hexdigest(),
        *(
            _described(value.py_func) if hasattr(value, "py_func") else _dumps(value)
            for value in closure
        ),
    )


class KernelCache(_Cache):  # type: ignore[misc,valid-type]
    """The cache of one function; what cannot be read or written is as good as absent."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = _described(function)
        self.missed: Callable[[], None] | None = None
        """What to do, once, if the kernel that is asked for next is not there."""

    @property
    def cache_path(self) -> str:
        return str(cache_folder())

    def _place(self, signature: Any, codegen: Any) -> tuple[Path, bytes]:
        """A kernel's file and its key."""
        key = repr(
            (
                version(),
                self._function,
                signature,
                codegen.magic_tuple(),
                bool(numba.config.BOUNDSCHECK),
            )
        ).encode()
        module, name = self._function[:2]
        name = re.sub(r"\W+", "-", f"{module.rpartition('.')[2]}.{name}")
        return cache_folder() / f"{name[-60:]}-{hashlib.sha256(key).hexdigest()[:16]}.nbc", key

    def load_overload(self, signature: Any, context: Any) -> Any:
        result = self._load(signature, context)
        missed, self.missed = self.missed, None
        if result is None and missed is not None:
            missed()
        return result

    def _load(self, signature: Any, context: Any) -> Any:
        context.refresh()
        try:
            path, key = self._place(signature, context.codegen())
        except FileNotFoundError:  # saving says why
            return None
        data = read(path)
        if not data:
            return None
        try:
            if hashlib.sha256(key + data[32:]).digest() != data[:32]:
                raise ValueError("its digest does not hold")
            return _Result._rebuild(context, *pickle.loads(data[32:]))
        except Exception as error:  # whatever the linker says of an object file
            say("a compiled kernel is damaged and compiled again: %s (%s)", path, error)
            return None

    def save_overload(self, signature: Any, data: Any) -> None:
        try:
            path, key = self._place(signature, data.codegen)
        except FileNotFoundError as error:
            say("compiled kernels are not kept: %s", error)
            return
        if data.lifted or data.library.has_dynamic_globals or b" at 0x" in key:
            return  # holds an address of this process
        payload = _dumps(data._reduce())
        write(path, hashlib.sha256(key + payload).digest() + payload)

    def enable(self) -> None:
        """Always on."""

    disable = flush = enable
