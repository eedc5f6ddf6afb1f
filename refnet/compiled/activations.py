"""The activations and their slopes on a block of rows, in place.

``CODES`` numbers the entries of ``refnet.maths.activations``; the loops here compute the same
formulas number by number, with the same side at a kink and NaN kept. Rows are ``width`` apart;
``q`` and ``dq`` (width,) hold the activation's own parameter for each unit and its gradient.
Checked by: tests/compiled/test_compiled.py::test_matches_the_reference.
"""

from typing import NamedTuple

import numpy as np

from refnet.batch import Array, Params
from refnet.compiled._jit import inner
from refnet.compiled.annotations import Arg
from refnet.compiled.elementary import exp, expm1, sigmoid, tanh
from refnet.compiled.layout import Layout
from refnet.compiled.vector import cut, number, whole_registers
from refnet.maths.activations import ACTIVATIONS, Activation

__all__ = [
    "Rule",
    "by_parameter",
    "by_unit",
    "clamp",
    "known",
    "needs_a",
    "own_gradients",
    "own_parameter",
    "pull",
    "push",
    "settings",
]

CODES = {
    name: code
    for code, name in enumerate(
        (
            "identity",
            "tanh",
            "sigmoid",
            "softsign",
            "relu",
            "leaky_relu",
            "prelu",
            "elu",
            "oplu",
            "modrelu",
            "modrelu_pairs",
        )
    )
}
IDENTITY, TANH, SIGMOID, SOFTSIGN, RELU, LEAKY, PRELU, ELU, OPLU, MODRELU, PAIRS = range(11)


class Rule(NamedTuple):
    """An activation by code and constant, and its own parameter, padded."""

    code: int
    alpha: Arg
    q: Arg


def needs_a(act: Activation) -> bool:
    """Whether the slope needs the pre-activation, because it cannot be had from ``h`` (accurately,
    for elu: h + alpha cancels)."""
    return (
        act.name in ("softsign", "prelu", "elu", "oplu", "modrelu", "modrelu_pairs")
        or act.name == "leaky_relu"
        and not act.alpha > 0
    )


def own_parameter(act: Activation, p: Params, lay: Layout) -> Array:
    """The activation's own parameter for every unit, padded: (width,)."""
    q = np.zeros(lay.width, lay.dtype)
    for name, *_ in act.start:
        q[: lay.H] = by_unit(p[name], lay.H)
    return q


def by_unit(value: Array, units: int) -> Array:
    """An activation's parameter for each of its units: (units,) of one (), for every unit or pair.

    >>> by_unit(np.array([1.0, 2.0]), 4).tolist()
    [1.0, 1.0, 2.0, 2.0]
    """
    return np.repeat(value, units // value.size)


def by_parameter(total: Array, value: Array) -> Array:
    """The pullback of ``by_unit``."""
    return total if total.shape == value.shape else total.reshape(*value.shape, -1).sum(axis=-1)


def own_gradients(act: Activation, p: Params, dq: Array, H: int) -> Params:
    """The gradients of the activation's own parameters from the blocks' (blocks, width)."""
    return {
        name: np.asarray(
            by_parameter(dq[:, :H].sum(axis=0), p[name]) if p[name].ndim else dq[:, :H].sum()
        )
        for name, *_ in act.start
    }


@inner
def _above(x: Arg) -> Arg:
    """``max(x, 0)``, the sign of zero and NaN kept."""
    return number(0.0, x) if x < 0 else x


@inner
def _modulus(x: Arg, y: Arg, b: Arg) -> tuple[Arg, Arg]:
    """Of a complex number as a pair: its modulus, 1 for 0; and modReLU's factor."""
    square = x * x + y * y
    r = np.sqrt(number(1.0, x) if square <= 0 else square)
    grown = (number(0.0, x) if square <= 0 else r) + b
    factor = number(1.0, x) if square <= 0 else grown / r
    return r, number(0.0, x) if grown <= 0 else factor


@inner
def push(rule: Arg, c: Arg, rows: int, width: int, stride: int) -> None:
    """``c = f(c)`` for rows that are ``stride`` apart. Where one side of a kink is the number as it
    was loaded, LLVM may store the other side alone, under a mask or number by number, which
    without AVX-512 takes up to ten times as long: hence ``+ 0`` and ``* 1``, here and in
    ``pull``."""
    whole_registers()
    code, alpha, q = rule
    for r in range(rows):
        row = cut(c, r * stride, width)  # known not to be indexed from its end
        if code == TANH:
            for i in range(width):
                row[i] = tanh(row[i])
        elif code == SIGMOID:
            for i in range(width):
                row[i] = sigmoid(row[i])
        elif code == SOFTSIGN:
            for i in range(width):
                size = -row[i] if row[i] <= 0 else row[i]
                row[i] = row[i] / (number(1.0, size) + size)
        elif code == RELU:
            for i in range(width):
                row[i] = _above(row[i]) + number(0.0, row[i])
        elif code == LEAKY:
            for i in range(width):
                row[i] = row[i] * (number(alpha, row[i]) if row[i] <= 0 else number(1.0, row[i]))
        elif code == ELU:
            for i in range(width):
                least = row[i] if row[i] <= 0 else number(0.0, row[i])
                row[i] = number(alpha, row[i]) * expm1(least) + _above(row[i])
        elif code == PRELU:
            for i in range(width):
                row[i] = q[i] * row[i] if row[i] <= 0 else row[i]
        elif code == OPLU:
            for pair in range(width // 2):
                first, second = row[2 * pair], row[2 * pair + 1]
                keep, zero = second - first <= 0, number(0.0, first)
                row[2 * pair] = (first if keep else second) + zero
                row[2 * pair + 1] = (second if keep else first) + zero
        elif code == MODRELU:
            for i in range(width):
                zero = number(0.0, row[i])
                grown = (-row[i] if row[i] <= 0 else row[i]) + q[i]
                signed = (zero if row[i] == 0 else -grown) if row[i] <= 0 else grown
                row[i] = zero if grown <= 0 else signed
        elif code == PAIRS:
            for pair in range(width // 2):
                _, factor = _modulus(row[2 * pair], row[2 * pair + 1], q[2 * pair])
                row[2 * pair] *= factor
                row[2 * pair + 1] *= factor


@inner
def pull(rule: Arg, a: Arg, h: Arg, g: Arg, dq: Arg, rows: int, width: int) -> None:
    """``g = f'(a) g``; the gradients of the activation's own parameters are added to ``dq``. ``a``
    is read only where ``needs_a`` says so."""
    code, alpha, q = rule
    n = rows * width
    if code == TANH:
        for i in range(n):
            g[i] = g[i] * (number(1.0, h[i]) - h[i] * h[i])
    elif code == SIGMOID:
        for i in range(n):
            g[i] = g[i] * (h[i] * (number(1.0, h[i]) - h[i]))
    elif code == SOFTSIGN:
        for i in range(n):
            size = number(1.0, a[i]) + (-a[i] if a[i] <= 0 else a[i])
            g[i] = g[i] * (number(1.0, size) / size / size)
    elif code == RELU:
        for i in range(n):
            g[i] = number(0.0, g[i]) if h[i] <= 0 else g[i]
    elif code == LEAKY:
        negative = h if alpha > 0 else a  # h has the sign of a for a positive constant only
        for i in range(n):
            g[i] = g[i] * (number(alpha, g[i]) if negative[i] <= 0 else number(1.0, g[i]))
    elif code == ELU:
        for i in range(n):
            least = a[i] if a[i] <= 0 else number(0.0, a[i])
            g[i] = g[i] * ((number(alpha, g[i]) if a[i] <= 0 else number(1.0, g[i])) * exp(least))
    elif code == PRELU:
        for r in range(rows):
            below, row = cut(a, r * width, width), cut(g, r * width, width)
            for j in range(width):
                dq[j] += row[j] * below[j] if below[j] <= 0 else number(0.0, row[j])
                row[j] = q[j] * row[j] if below[j] <= 0 else row[j]
    elif code == OPLU:
        for pair in range(n // 2):
            first, second = g[2 * pair], g[2 * pair + 1]
            keep, zero = a[2 * pair + 1] - a[2 * pair] <= 0, number(0.0, first)
            g[2 * pair] = (first if keep else second) + zero
            g[2 * pair + 1] = (second if keep else first) + zero
    elif code == MODRELU:
        for r in range(rows):
            below, row = cut(a, r * width, width), cut(g, r * width, width)
            for j in range(width):
                zero = number(0.0, row[j])
                size = -below[j] if below[j] <= 0 else below[j]
                passed = zero if size + q[j] <= 0 else row[j]
                signed = -passed if below[j] <= 0 else passed
                dq[j] += zero if below[j] == 0 else signed
                row[j] = passed + zero
    elif code == PAIRS:
        for r in range(rows):
            below, row = cut(a, r * width, width), cut(g, r * width, width)
            for pair in range(width // 2):
                i, j = 2 * pair, 2 * pair + 1
                size, factor = _modulus(below[i], below[j], q[i])
                x, y = below[i] / size, below[j] / size
                along = number(0.0, x) if factor == 0 else x * row[i] + y * row[j]
                less = q[i] / size * along
                dq[i] += along
                row[i] = factor * row[i] - less * x
                row[j] = factor * row[j] - less * y


@inner
def clamp(da: Arg, limit: Arg, rows: int, width: int, H: int) -> int:
    """Bring the entries of da into [-limit, limit], and return how many were changed."""
    count = 0
    for r in range(rows):
        row = cut(da, r * width, H)
        for i in range(H):
            count += (row[i] > limit) + (row[i] < -limit)
            least = limit if row[i] > limit else row[i]
            row[i] = -limit if least < -limit else least
    return count


def known(act: Activation) -> bool:
    """Whether the kernels compute this activation, and not another one of the same name.

    >>> from refnet.maths.activations import clipped
    >>> known(ACTIVATIONS["relu"]), known(clipped(ACTIVATIONS["relu"], 6))
    (True, False)
    """
    usual = ACTIVATIONS.get(act.name) if act.name in CODES else None
    return usual is not None and usual.value is act.value and usual.pull is act.pull


def settings(act: Activation, dtype: Arg) -> tuple[int, Arg]:
    """The code and the constant of an activation, as the kernels take them."""
    if not known(act):
        raise ValueError(
            f"activation {act.name} has no compiled kernel; use backend 'reference' "
            "(--backend reference)"
        )
    return CODES[act.name], act.alpha if dtype.char == "O" else float(act.alpha)
