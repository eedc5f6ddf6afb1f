"""Arrays in another form: a matrix's triangle, gates unit by unit, steps and examples exchanged.

Checked by: tests/check/test_programs.py.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from itertools import permutations
from typing import Any

import numpy as np

from refnet.batch import Array
from refnet.check.arithmetic import rounded_to

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

Form = Callable[[Array], Array]
TYPES: dict[str, Any] = {
    "float16": np.float16, "float32": np.float32, "bfloat16": 2.0**-8, "TF32": 2.0**-11
}  # fmt: skip
LAYOUTS = ("batch first", "time first")
"""The steps and examples of an array in one order, read as if in the other one."""


def coarse(value: Array, name: str) -> Array:
    """Rounded to a coarser type."""
    kind = TYPES[name]
    if isinstance(kind, float):
        return rounded_to(value, kind)
    return np.asarray(value.astype(kind).astype(float))


@lru_cache(maxsize=16)
def relaid(layout: str, T: int, B: int) -> tuple[Array, Array]:
    """The step and example (T, B) that are read at each."""
    flat = np.arange(T * B)
    if layout == "batch first":
        b, t = np.divmod(flat.reshape(T, B), T)
    else:
        t, b = np.divmod(flat.reshape(B, T).T, B)
    return t, b


def _by_columns(blocks: Array) -> Array:
    """Each block (H, K) as stored column by column."""
    return np.stack([block.ravel(order="F").reshape(block.shape) for block in blocks])


def _stacked(change: Form) -> Form:
    """A change of the rows of all gates together."""
    return lambda s: change(s.reshape(-1, *s.shape[2:])).reshape(s.shape)


def _inverse(blocks: Array) -> Array:
    try:
        return np.linalg.inv(blocks)
    except np.linalg.LinAlgError:
        return np.full_like(blocks, np.nan)


SQUARE: dict[str, Form] = {
    "without its diagonal": lambda s: s * (1 - np.eye(s.shape[-1])),
    "with its diagonal alone": lambda s: s * np.eye(s.shape[-1]),
    "with its lower triangle alone": np.tril,
    "with its upper triangle alone": np.triu,
    "made symmetric": lambda s: (s + s.swapaxes(-1, -2)) / 2,
    "made skew-symmetric": lambda s: (s - s.swapaxes(-1, -2)) / 2,
    "inverted": _inverse,
    "inverted and transposed": lambda s: _inverse(s).swapaxes(-1, -2),
}
OF_A_MATRIX: dict[str, Form] = {
    **{f"rounded to {kind}": partial(coarse, name=kind) for kind in TYPES},
    "by its absolute values": abs,
    "with its rows reversed": lambda s: s[:, ::-1],
    "with its rows rolled by one": lambda s: np.roll(s, 1, axis=1),
    "with its rows rolled back by one": lambda s: np.roll(s, -1, axis=1),
    "with its columns reversed": lambda s: s[..., ::-1],
    "with its columns rolled by one": lambda s: np.roll(s, 1, axis=-1),
    "with its columns rolled back by one": lambda s: np.roll(s, -1, axis=-1),
    "column by column": _by_columns,
    **SQUARE,
}
"""Of each gate's block (G, H, K)."""
OF_THE_GATES: dict[str, Form] = {
    "unit by unit": lambda s: s.reshape(s.shape[1], s.shape[0], *s.shape[2:]).swapaxes(0, 1),
    "from an array that is stored unit by unit": lambda s: s.swapaxes(0, 1).reshape(s.shape),
    "with all rows rolled by one": _stacked(lambda s: np.roll(s, 1, axis=0)),
    "with all rows rolled back by one": _stacked(lambda s: np.roll(s, -1, axis=0)),
    "with all rows reversed": _stacked(lambda s: s[::-1]),
    "with all gates column by column": _stacked(lambda s: s.ravel(order="F").reshape(s.shape)),
}
"""Of all gates together."""


@lru_cache(maxsize=8)
def orders(gates: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    """Every other order of the gates, by the form's name."""
    usual = tuple(range(len(gates)))
    return {
        f"with its gates in the order {', '.join(gates[n] for n in order)}": order
        for order in permutations(usual)
        if order != usual
    }


def pulled_back(gradient: Array, how: str) -> Array:
    """The gradient (..., H, K) of a block from that of its form; roundings let it through, and so
    do forms of all gates together."""
    form = OF_A_MATRIX.get(how)
    if form is None or how.startswith(("rounded", "by its", "inverted")):
        return gradient
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
    return np.asarray((OF_A_MATRIX | OF_THE_GATES)[how](stack))
