"""The types of what Numba compiles, in one place.

Numba infers them at the first call. The same source takes float32 and float64 arrays when it is
compiled, and arrays of Fractions when it runs as plain Python; no annotation of ours is read.
"""

from typing import Any, TypeAlias

__all__ = ["Arg", "IR"]

Arg: TypeAlias = Any
"""An argument of a kernel: a flat array, a number, or a NamedTuple of them."""

IR: TypeAlias = Any
"""What an intrinsic is written with: Numba's contexts and types, and LLVM's builders and values."""
