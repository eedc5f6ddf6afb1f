"""Parts of a computation in a coarser type: what is rounded to it there, to the nearest number."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from refnet.batch import Array, Batch
from refnet.check.arithmetic import rounded_to
from refnet.check.mistakes.base import Mistakes, mistake
from refnet.nets.gradients import Net

__all__ = ["half", "of_the_types"]


def _through(value: Array, dtype: Any) -> Array:
    """Floats rounded to a type of NumPy's, in their own type; labels as they are."""
    return value.astype(dtype).astype(value.dtype) if value.dtype.kind == "f" else value


def _digits(value: Array, u: float) -> Array:
    return rounded_to(value, u) if value.dtype.kind == "f" else value


half: Callable[[Array], Array] = partial(_through, dtype=np.float16)
"""Rounded to float16."""
TYPES: dict[str, Callable[[Array], Array]] = {
    "float32": partial(_through, dtype=np.float32),
    "float16 or TF32": half,
    "bfloat16": partial(_digits, u=2.0**-8),
    "TF32": partial(_digits, u=2.0**-11),
}
"""TF32 has the digits of float16 with the range of float32: where the numbers are in both ranges,
the two are the same."""


def of_the_types(net: Net, batch: Batch) -> Mistakes:
    """Each place in each type that is coarser than that of x."""
    for name, coarse in TYPES.items():
        if name == "float32" and batch.x.dtype != np.float64:
            continue

        def rounded(v: Any, s: Any, coarse: Callable[[Array], Array] = coarse) -> Any:
            return (
                {key: coarse(part) for key, part in v.items()} if isinstance(v, dict) else coarse(v)
            )

        def function(f: Any, s: Any, coarse: Callable[[Array], Array] = coarse) -> Any:
            return lambda *given: coarse(f(*given))

        def product(f: Any, s: Any, coarse: Callable[[Array], Array] = coarse) -> Any:
            return lambda a, b: f(coarse(a), coarse(b))

        yield mistake(f"every activation passes through {name}", common=False, act=function)
        yield mistake(
            f"the parameters and inputs are rounded to {name}",
            common=False,
            p=rounded,
            x=rounded,
            y=rounded,
            h0=rounded,
        )
        yield mistake(
            f"the factors of matrix products are rounded to {name}", common=False, product=product
        )
        yield mistake(
            f"the gradient that is carried passes through {name}", common=False, e=rounded
        )
        if batch.x.ndim == 3:
            yield mistake(f"the states pass through {name}", common=False, h=rounded)
            yield mistake(
                f"the states pass through {name}, and so do their gradients",
                common=False,
                h=rounded,
                e=rounded,
            )
            yield mistake(f"the sums over the steps are in {name}", common=False, parts=rounded)
