"""Arrays in another form: a matrix's triangle, gates unit by unit, steps and examples exchanged.

A form has a name and a formula (``notation``). ``layouts`` makes candidates that take a matrix or
the gates in such a form, ``program`` keeps the forms of parameters, and ``refnet.check.edits``
reports gradients so.

Checked by: tests/check/test_programs.py.
"""

from functools import lru_cache
from itertools import permutations
from typing import Any

import numpy as np

from refnet.batch import Array
from refnet.check.arithmetic import rounded_to
from refnet.check.programs.notation import formula

__all__ = [
    "LAYOUTS",
    "OF_A_MATRIX",
    "OF_THE_GATES",
    "SQUARE",
    "TYPES",
    "coarse",
    "formed",
    "orders",
    "pulled_back",
    "relaid",
]

TYPES: dict[str, Any] = {
    "float16": np.float16, "float32": np.float32, "bfloat16": 2.0**-8, "TF32": 2.0**-11
}  # fmt: skip
LAYOUTS = ("batch first", "time first")
"""The steps and examples of an array in one order, read as if in the other one."""


def coarse(value: Array, name: str) -> Array:
    """An array rounded to a coarser type."""
    kind = TYPES[name]
    if isinstance(kind, float):
        return rounded_to(value, kind)
    return np.asarray(value.astype(kind).astype(float))


@lru_cache(maxsize=16)
def relaid(layout: str, T: int, B: int) -> tuple[Array, Array]:
    """The step and the example (T, B) that a program reads at each place which takes one layout for
    the other."""
    flat = np.arange(T * B)
    if layout == "batch first":
        b, t = np.divmod(flat.reshape(T, B), T)
    else:
        t, b = np.divmod(flat.reshape(B, T).T, B)
    return t, b


SQUARE = {
    "without its diagonal": "s (1 - eye(s.shape[-1]))",
    "with its diagonal alone": "s eye(s.shape[-1])",
    "with its lower triangle alone": "tril(s)",
    "with its upper triangle alone": "triu(s)",
    "made symmetric": "(s + s.swapaxes(-1, -2)) / 2",
    "made skew-symmetric": "(s - s.swapaxes(-1, -2)) / 2",
    "inverted": "linalg.inv(s)",
    "inverted and transposed": "linalg.inv(s).swapaxes(-1, -2)",
}
OF_A_MATRIX = {
    **{f"rounded to {kind}": "" for kind in TYPES},
    "by its absolute values": "abs(s)",
    "with its rows reversed": "s[:, ::-1]",
    "with its rows rolled by one": "roll(s, 1, axis=1)",
    "with its rows rolled back by one": "roll(s, -1, axis=1)",
    "with its columns reversed": "s[..., ::-1]",
    "with its columns rolled by one": "roll(s, 1, axis=-1)",
    "with its columns rolled back by one": "roll(s, -1, axis=-1)",
    "column by column": "s.swapaxes(1, 2).reshape(s.shape)",
    **SQUARE,
}
"""What is made of each gate's block s (G, H, K), in words and as a formula."""
ROWS = "s.reshape(-1, *s.shape[2:])"
OF_THE_GATES = {
    "unit by unit": "s.reshape(s.shape[1], s.shape[0], *s.shape[2:]).swapaxes(0, 1)",
    "from an array that is stored unit by unit": "s.swapaxes(0, 1).reshape(s.shape)",
    "with all rows rolled by one": f"roll({ROWS}, 1, axis=0).reshape(s.shape)",
    "with all rows rolled back by one": f"roll({ROWS}, -1, axis=0).reshape(s.shape)",
    "with all rows reversed": f"{ROWS}[::-1].reshape(s.shape)",
    "with all gates column by column": f'{ROWS}.ravel(order="F").reshape(s.shape)',
}
"""Of all gates together."""


@lru_cache(maxsize=8)
def orders(gates: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    """Every other order of the gates, by the name of this form."""
    usual = tuple(range(len(gates)))
    return {
        f"with its gates in the order {', '.join(gates[n] for n in order)}": order
        for order in permutations(usual)
        if order != usual
    }


def pulled_back(gradient: Array, how: str) -> Array:
    """The gradient (..., H, K) of a block from the gradient of its form. Roundings, and forms of
    all gates together, let it through as it is."""
    if how not in OF_A_MATRIX or how.startswith(("rounded", "by its", "inverted")):
        return gradient
    form = formula(OF_A_MATRIX[how], "s")
    if how in SQUARE:
        return form(gradient)
    shape = gradient.shape[-2:]
    where = form(np.arange(shape[0] * shape[1]).reshape(1, *shape))
    out = np.empty_like(gradient).reshape(*gradient.shape[:-2], -1)
    out[..., where.ravel()] = gradient.reshape(out.shape)
    return out.reshape(gradient.shape)


def formed(stack: Array, how: str, gates: tuple[str, ...] = ()) -> Array:
    """The blocks (G, H, K) of the gates in another form."""
    if how in orders(gates):
        return stack[list(orders(gates)[how])]
    if how.startswith("rounded to "):
        return coarse(stack, how.removeprefix("rounded to "))
    try:
        return np.asarray(formula((OF_A_MATRIX | OF_THE_GATES)[how], "s")(stack))
    except np.linalg.LinAlgError:  # it has no inverse
        return np.full_like(stack, np.nan)
