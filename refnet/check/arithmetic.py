"""The arithmetics that a program may compute in: what is rounded, and how far.

Besides the three float types there are those that hardware has and NumPy does not, by name. Their
numbers travel as float32, which holds all of them.
Sources: bfloat16: Intel (2018), BFLOAT16 hardware numerics definition; TF32: NVIDIA (2020), A100
tensor core GPU architecture; sums in float32: Micikevicius et al. (2018), Mixed precision training.
Checked by: tests/check/test_low_precision.py.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from refnet.batch import Array

__all__ = ["NAMED", "Arithmetic", "Kind", "arithmetic", "rounded_to", "stored"]


@dataclass(frozen=True)
class Arithmetic:
    """``u``: the unit roundoff, half the distance from 1 to the next number, of every result;
    ``sums``: that of the accumulator of sums and matrix products; ``operands``: that to which the
    factors of matrix products are rounded first, 0 if they are not; ``tiny``: the smallest normal
    number; ``bits``: those of a number, which seed the noise."""

    name: str
    u: float
    sums: float
    operands: float
    tiny: float
    bits: int

    def __str__(self) -> str:
        return self.name

    def holds(self, values: Array) -> Array:
        """Whether each of these float64 is a number of this arithmetic, bool."""
        if self.name in ("float16", "float32", "float64"):
            with np.errstate(over="ignore"):
                return np.asarray(values.astype(self.name).astype(float) == values)
        return np.asarray(rounded_to(values, self.u) == values)


NAMED = {
    kind.name: kind
    for kind in (
        Arithmetic("bfloat16", 2.0**-8, 2.0**-8, 0, 2.0**-126, 16),
        Arithmetic("bfloat16-float32", 2.0**-8, 2.0**-24, 0, 2.0**-126, 16),
        Arithmetic("float16-float32", 2.0**-11, 2.0**-24, 0, 2.0**-14, 16),
        Arithmetic("tf32", 2.0**-24, 2.0**-24, 2.0**-11, 2.0**-126, 32),
    )
}
"""bfloat16 throughout; bfloat16 and float16 with sums and products in float32, rounded once, as
PyTorch and JAX compute them; float32 whose matrix products round their factors to TF32."""


Kind = Arithmetic | DTypeLike
"""What ``arithmetic`` takes."""


def arithmetic(dtype: Kind) -> Arithmetic:
    """An arithmetic of ``NAMED``, by its name, or that of NumPy's float16, float32 or float64.

    Raises ValueError or TypeError for any other.
    """
    if isinstance(dtype, Arithmetic):
        return dtype
    try:
        kind = np.dtype(dtype)
    except TypeError:
        kind = np.dtype(bool)
    name = dtype if isinstance(dtype, str) else kind.name
    if name in NAMED:
        return NAMED[name]
    if kind.kind != "f" or kind.itemsize > 8:
        raise ValueError(
            f"dtype {dtype} is none of float16, float32, float64, "
            f"{', '.join(NAMED)}; pass the one that they computed in, such as "
            "dtype=np.float32"
        )
    info = np.finfo(kind)
    u = float(info.eps) / 2
    return Arithmetic(kind.name, u, u, 0, float(info.tiny), info.bits)


def stored(dtype: Kind) -> Any:
    """The type of NumPy's in which the numbers of an arithmetic travel."""
    kind = arithmetic(dtype)
    return np.dtype(np.float32 if kind.name in NAMED else kind.name)


def rounded_to(values: Array, u: float) -> Array:
    """``values`` to the nearest number whose unit roundoff is ``u``, ties to even, in their own
    type; no bounds of the exponent.

    >>> rounded_to(np.array([1 + 2**-9, 1.0 + 2**-8, 1 + 3 * 2**-8]), 2**-8).tolist()
    [1.0, 1.0, 1.015625]
    """
    mantissa, exponent = np.frexp(values)
    return np.asarray(np.ldexp(np.rint(mantissa / u) * u, exponent), np.asarray(values).dtype)
