"""What Numba makes of a function that only kernels call: code to link into them.

Numba by itself makes machine code of it as well, which nothing would ever run.
"""

from typing import Any

from numba.core.codegen import JITCodeLibrary

__all__ = ["InnerLibrary", "JITCodeLibrary"]


class InnerLibrary(JITCodeLibrary):  # type: ignore[misc]
    """The code of such a function, and no machine code.

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
