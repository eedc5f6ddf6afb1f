"""The parts of a compiled cell: the statement of its products, and what its two functions see and
call (``refnet.compiled.walk`` calls them).

Checked by: tests/compiled/test_new_cell.py, which adds a cell.
"""

from typing import NamedTuple

from refnet.compiled._jit import inlined, inner
from refnet.compiled.activations import Rule, clamp, pull, push
from refnet.compiled.annotations import Arg
from refnet.compiled.vector import copy_rows, cut, number

__all__ = ["Cell", "Product", "Step", "StepBack", "activate", "add_product", "slope", "through"]


class Product(NamedTuple):
    """A panel that is a product with a gate's matrices: with Whh, if ``state``, and with Wxh and
    bh, if ``inputs``. ``second``: in a second stage, where s, a panel of the cell's own, takes the
    place of h. ``bias``: the name of a parameter (H,) to add."""

    gate: int
    state: bool = True
    inputs: bool = True
    second: bool = False
    bias: str = ""


class Cell(NamedTuple):
    """What a cell is made of.

    ``products``: its first panels, in the order in which their gradients add up. ``extra``: how
    many panels it adds to them; of two stages, the last are s and its gradient ds. ``first``: the
    panel of the first gate, which the others follow. ``residual``: the panel on the tape besides
    the gates' values, or -1. ``states``: 1, h, or 2, h and c. ``reads``: the states before the
    step that ``step_back`` reads, 0 for h and 1 for c. ``direct``: h reaches the next h past the
    products too. ``alone``: the one panel is the next state, and its gradient stands where e stood.
    ``vectors``: names of parameters (H,).
    """

    products: tuple[Product, ...]
    extra: int = 0
    first: int = 0
    residual: int = -1
    states: int = 1
    reads: tuple[int, ...] = ()
    direct: bool = False
    alone: bool = False
    vectors: tuple[str, ...] = ()

    @property
    def gates(self) -> int:
        return max(product.gate for product in self.products) + 1

    @property
    def stages(self) -> int:
        return 1 + any(product.second for product in self.products)

    @property
    def columns(self) -> tuple[Arg, ...]:
        """The products' gates, states, inputs, stages and biases, as five tuples; -1: no bias."""
        return tuple(
            zip(
                *(
                    (
                        *map(int, product[:4]),
                        self.vectors.index(product.bias) if product.bias else -1,
                    )
                    for product in self.products
                )
            )
        )

    @property
    def panels(self) -> int:
        return len(self.products) + self.extra


class Step(NamedTuple):
    """What ``step`` sees. Tuples: ``panels``, whose rows are ``stride`` apart; ``state``, that
    before the step, which it replaces. ``vectors``: the cell's parameters (width,), one after the
    other, if it has them. ``pre``: the tape of pre-activations, which start at ``place`` and whose
    rows are ``apart``."""

    rows: int
    width: int
    stride: int
    H: int
    panels: Arg
    state: Arg
    act: Rule
    gate: Rule
    vectors: Arg
    pre: Arg
    place: int
    apart: int


class StepBack(NamedTuple):
    """What ``step_back`` sees. Tuples: ``panels``, ``states`` (``Cell.reads``); ``da``, the
    products' gradients, which it fills; ``e``, the gradient at the state after, which it replaces
    by that at the state before, as far as it does not come through the products. ``dvectors``:
    the gradients of ``vectors``, to add to; ``dq`` those of the activation's own parameter."""

    rows: int
    width: int
    H: int
    panels: Arg
    states: Arg
    e: Arg
    da: Arg
    act: Rule
    gate: Rule
    vectors: Arg
    dvectors: Arg
    pre: Arg
    dq: Arg
    clips: bool
    clip: Arg
    clipped: Arg


@inlined
def activate(at: Arg, rule: Arg, gate: int, panel: Arg) -> None:
    """Keep a gate's pre-activation for the tape, if the backward pass needs it; then
    ``panel = f(panel)``."""
    if len(at.pre):
        copy_rows(at.pre, at.place + gate * at.H, at.apart, panel, 0, at.stride, at.rows, at.H)
    push(rule, panel, at.rows, at.width, at.stride)


@inlined
def through(at: Arg, rule: Arg, a: Arg, h: Arg, g: Arg) -> None:
    """``g = f'(a) g``, with h = f(a)."""
    pull(rule, a, h, g, at.dq, at.rows, at.width)


@inlined
def slope(at: Arg, rule: Arg, gate: int, value: Arg, da: Arg) -> None:
    """``da = f'(a) da`` for a gate of this value; then clipped."""
    size = at.rows * at.width
    through(at, rule, cut(at.pre, gate * size, size), value, da)
    if at.clips:
        at.clipped[0] += clamp(da, number(at.clip, da[0]), at.rows, at.width, at.H)


@inner
def add_product(c: Arg, apart: int, w: Arg, stride: int, s: Arg, rows: int, width: int) -> None:
    """``c += w s``, row by row. The rows of c lie ``apart``, those of w ``stride``, where 0 means
    that there is one row for all."""
    for r in range(rows):
        to, by, v = (cut(c, r * apart, width), cut(w, r * stride, width), cut(s, r * width, width))
        for j in range(width):
            to[j] += by[j] * v[j]
