"""Activations: value, derivative, and the side taken at a kink.

Each entry gives ``h = f(a)`` and, directly beneath, the pull-back ``da = f'(a) dh``
together with the gradients of the activation's own parameters. At a kink the derivative is
the left-hand one (relu'(0) = 0), as in PyTorch; JAX's leaky_relu takes the right-hand one. NaN
propagates.

Sources: softsign, ELU (Clevert et al. 2016), PReLU (He et al. 2015), OPLU (Chernodub &
Nowicki 2016), modReLU (Arjovsky et al. 2016, of complex numbers as pairs of units; real form:
Lezcano-Casado 2019).
Checked by: tests/maths/test_activations.py.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from refnet.batch import Array, Params
from refnet.common.arguments import optional, real, takes
from refnet.common.names import Table, absolute, reference
from refnet.common.specs import Kind, Option, read
from refnet.maths.numeric import (
    Number,
    clamp,
    constant,
    exp,
    expm1,
    nonpositive,
    sigmoid,
    sqrt,
    tanh,
    times,
)


@dataclass(frozen=True)
class Activation:
    """One activation, ``h = f(a)``, with its derivative.

    ``forward(a, p) -> h`` and ``backward(a, h, dh, p) -> (da, gradients)`` take and give
    arrays (..., H) of any dtype; ``p`` holds the activation's own parameters by name:
    ``start`` gives the name, the shape for H units and the initial value of each.
    ``rational``: the value is a rational function of its input, piece by piece.
    ``smooth``: it is analytic everywhere. ``pairs``: it acts on units 2i and 2i + 1 together, and
    needs an even H. ``alpha`` is the constant of leaky_relu and elu.
    Raises TypeError for numbers that the function is not defined on, such as tanh of Fractions.

    >>> act, a = ACTIVATIONS["softsign"], np.array([-1.0, 3.0])
    >>> h = act.forward(a, {})
    >>> h.tolist(), act.backward(a, h, np.ones(2), {})[0].tolist()
    ([-0.5, 0.75], [0.25, 0.0625])

    Checked by: tests/maths/test_activations.py, tests/maths/test_accuracy.py.
    """

    name: str
    value: Callable[[Array, Params, float], Array] = field(repr=False)
    pull: Callable[[Array, Array, Array, Params, float], tuple[Array, Params]] = field(repr=False)
    rational: bool = field(default=False, repr=False)
    smooth: bool = field(default=False, repr=False)
    alpha: float = 0
    start: tuple[tuple[str, Callable[[int], tuple[int, ...]], float], ...] = field(
        default=(), repr=False
    )
    pairs: bool = field(default=False, repr=False)

    def admit(self, hidden: int) -> None:
        """Raise ValueError for a number of units that the activation does not work on."""
        if self.pairs and hidden % 2:
            raise ValueError(
                f"{self.name} acts on pairs of units and needs an even width, not {hidden}; "
                f"use {hidden + 1} or {hidden - 1} hidden units"
            )

    def init(self, hidden: int, dtype: object = np.float64) -> Params:
        """The activation's own parameters for H = hidden units, at their usual start."""
        self.admit(hidden)
        return {
            name: np.full(shape(hidden), value, dtype)  # type: ignore[call-overload]
            for name, shape, value in self.start
        }

    def forward(self, a: Array, p: Params) -> Array:
        """``h = f(a)``."""
        if self.pairs:
            self.admit(a.shape[-1])
        return self.value(a, p, self.alpha)

    def backward(self, a: Array, h: Array, dh: Array, p: Params) -> tuple[Array, Params]:
        """``da = f'(a) dh`` and the gradients of the activation's own parameters."""
        return self.pull(a, h, dh, p, self.alpha)


def _pointwise(
    name: str,
    value: Callable[[Array], Array],
    slope: Callable[[Array, Array], Array],
    rational: bool = False,
    smooth: bool = False,
) -> Activation:
    """A function of each entry by itself, whose slope its argument a and its value h give."""

    def forward(a: Array, p: Params, alpha: float) -> Array:
        return value(a)

    def pull(a: Array, h: Array, dh: Array, p: Params, alpha: float) -> tuple[Array, Params]:
        return dh * slope(a, h), {}

    return Activation(name, forward, pull, rational, smooth)


def _identity(a: Array, p: Params, alpha: float) -> Array:
    """``h = a``."""
    return a


def _identity_pull(a: Array, h: Array, dh: Array, p: Params, alpha: float) -> tuple[Array, Params]:
    return dh, {}


def _tanh_slope(a: Array, h: Array) -> Array:
    """``1 - h^2``."""
    return 1 - h * h


def _sigmoid_slope(a: Array, h: Array) -> Array:
    """``h (1 - h)``."""
    return np.asanyarray(h * (1 - h))


def _magnitude(a: Array) -> Array:
    return np.where(nonpositive(a), -a, a)


def _softsign(a: Array) -> Array:
    """``a / (1 + |a|)``."""
    return np.asanyarray(a / (1 + _magnitude(a)))


def _softsign_slope(a: Array, h: Array) -> Array:
    """``1 / (1 + |a|)^2``."""
    return np.asanyarray(1 / (1 + _magnitude(a)) / (1 + _magnitude(a)))


def _leaky(a: Array, p: Params, alpha: float) -> Array:
    """``alpha a`` for a <= 0, otherwise a."""
    return np.where(nonpositive(a), times(alpha, a), a)


def _leaky_pull(a: Array, h: Array, dh: Array, p: Params, alpha: float) -> tuple[Array, Params]:
    return np.where(nonpositive(a), times(alpha, dh), dh), {}


def _relu(a: Array, p: Params, alpha: float) -> Array:
    """``max(a, 0)``."""
    return np.where(nonpositive(a), 0, a)


def _relu_pull(a: Array, h: Array, dh: Array, p: Params, alpha: float) -> tuple[Array, Params]:
    return np.where(nonpositive(a), 0, dh), {}


def _prelu(a: Array, p: Params, alpha: float) -> Array:
    """``slope a`` for a <= 0, otherwise a; the slope is learned."""
    return np.where(nonpositive(a), p["slope"] * a, a)


def _prelu_pull(a: Array, h: Array, dh: Array, p: Params, alpha: float) -> tuple[Array, Params]:
    left = nonpositive(a)
    per_unit = _sum_leading(np.where(left, dh * a, 0))
    dslope = per_unit if p["slope"].ndim else np.asanyarray(per_unit.sum(), per_unit.dtype)
    return np.where(left, p["slope"] * dh, dh), {"slope": dslope}


def _elu(a: Array, p: Params, alpha: float) -> Array:
    """``alpha (e^a - 1)`` for a <= 0, otherwise a."""
    left = nonpositive(a)
    guarded = a if a.dtype == object else np.where(left, a, 0)  # expm1 would overflow
    return np.where(left, times(alpha, expm1(guarded)), a)


def _elu_pull(a: Array, h: Array, dh: Array, p: Params, alpha: float) -> tuple[Array, Params]:
    left = nonpositive(a)
    # h + alpha cancels in floats. Exact numbers and balls have the precision; perturbed numbers
    # (refnet.check.noise) must allow for programs that compute the slope in this way, as JAX does.
    slope = (
        h + constant(alpha, h) if a.dtype.kind in "OV" else times(alpha, exp(np.where(left, a, 0)))
    )
    return np.where(left, slope * dh, dh), {}


def _permute_pairs(values: Array, a: Array) -> Array:
    """Swap the entries of ``values`` wherever the pair of ``a`` is out of order."""
    first, second = values[..., 0::2], values[..., 1::2]
    keep = nonpositive(a[..., 1::2] - a[..., 0::2])
    out = np.empty_like(values)
    out[..., 0::2] = np.where(keep, first, second)
    out[..., 1::2] = np.where(keep, second, first)
    return out


def _oplu(a: Array, p: Params, alpha: float) -> Array:
    """Each pair in descending order, ``(max(a, b), min(a, b))``."""
    return _permute_pairs(a, a)


def _oplu_pull(a: Array, h: Array, dh: Array, p: Params, alpha: float) -> tuple[Array, Params]:
    return _permute_pairs(dh, a), {}


def _modrelu(a: Array, p: Params, alpha: float) -> Array:
    """``sign(a) max(|a| + b, 0)``; the bias b is learned."""
    grown = _magnitude(a) + p["b_mod"]
    signed = np.where(nonpositive(a), np.where(nonpositive(-a), a + 0, -grown), grown)
    return np.where(nonpositive(grown), 0, signed)


def _modrelu_pull(a: Array, h: Array, dh: Array, p: Params, alpha: float) -> tuple[Array, Params]:
    off = nonpositive(_magnitude(a) + p["b_mod"])
    signed = np.where(nonpositive(a), np.where(nonpositive(-a), 0, -dh), dh)
    return np.where(off, 0, dh), {"b_mod": _sum_leading(np.where(off, 0, signed))}


class _Moduli(NamedTuple):
    """Of the pairs (x, y) of a: where both are 0, the modulus r (1 there), the factor
    ``(r + b) / r`` (1 there), and where the pair is off, r + b <= 0."""

    x: Array
    y: Array
    zero: Array
    r: Array
    factor: Array
    off: Array


def _moduli(a: Array, b: Array) -> _Moduli:
    x, y = a[..., 0::2], a[..., 1::2]
    square = np.asanyarray(x * x + y * y)
    zero = nonpositive(square)
    r = sqrt(np.where(zero, square + 1, square))
    grown = np.where(zero, r - 1, r) + b
    return _Moduli(x, y, zero, r, np.where(zero, 1, grown / r), nonpositive(grown))


def _joined(off: Array, x: Array, y: Array) -> Array:
    pairs = np.stack([np.where(off, 0, x), np.where(off, 0, y)], axis=-1)
    return pairs.reshape(*x.shape[:-1], 2 * x.shape[-1])


def _modrelu_pairs(a: Array, p: Params, alpha: float) -> Array:
    """``z / r max(r + b, 0)`` of each pair z = (x, y) with the modulus r."""
    m = _moduli(a, p["b_mod"])
    return _joined(m.off, m.x * m.factor, m.y * m.factor)


def _modrelu_pairs_pull(
    a: Array, h: Array, dh: Array, p: Params, alpha: float
) -> tuple[Array, Params]:
    """With u = z / r: ``dz = (1 + b / r) dh - (b / r) <u, dh> u``, ``db = <u, dh>``; at z = 0
    ``dz = dh``."""
    m = _moduli(a, p["b_mod"])
    gx, gy = dh[..., 0::2], dh[..., 1::2]
    ux, uy = m.x / m.r, m.y / m.r
    along = ux * gx + uy * gy
    less = p["b_mod"] / m.r * along
    da = _joined(m.off, m.factor * gx - less * ux, m.factor * gy - less * uy)
    return da, {"b_mod": _sum_leading(np.where(m.off, 0, along))}


def _sum_leading(values: Array) -> Array:
    return np.asanyarray(values.reshape(-1, values.shape[-1]).sum(axis=0))


def _shared(hidden: int) -> tuple[int, ...]:
    """The shape of a parameter that all units share."""
    return ()


def _by_unit(hidden: int) -> tuple[int, ...]:
    return (hidden,)


def _by_pair(hidden: int) -> tuple[int, ...]:
    return (hidden // 2,)


_ENTRIES = (
    Activation("identity", _identity, _identity_pull, rational=True, smooth=True),
    _pointwise("tanh", tanh, _tanh_slope, smooth=True),
    _pointwise("sigmoid", sigmoid, _sigmoid_slope, smooth=True),
    _pointwise("softsign", _softsign, _softsign_slope, rational=True),
    Activation("relu", _relu, _relu_pull, rational=True),
    Activation("leaky_relu", _leaky, _leaky_pull, rational=True, alpha=0.01),
    Activation("prelu", _prelu, _prelu_pull, rational=True, start=(("slope", _shared, 0.25),)),
    Activation("elu", _elu, _elu_pull, alpha=1),
    Activation("oplu", _oplu, _oplu_pull, rational=True, pairs=True),
    Activation("modrelu", _modrelu, _modrelu_pull, rational=True, start=(("b_mod", _by_unit, 0),)),
    Activation(
        "modrelu_pairs",
        _modrelu_pairs,
        _modrelu_pairs_pull,
        start=(("b_mod", _by_pair, 0),),
        pairs=True,
    ),
)


def _lacks(value: object) -> list[str]:
    return [] if isinstance(value, Activation) else ["being an Activation"]


ACTIVATIONS: Table[Activation] = Table(
    "activation", {entry.name: entry for entry in _ENTRIES}, _lacks
)


class Accuracy(NamedTuple):
    """Bounds of an activation's rounding error in float32 and float64, on both backends, in eps.

    ``|h - f(a)| <= value eps |f(a)|`` and ``|da - f'(a)| <= (slope |f'(a)| + saturated) eps``
    for dh = 1, each plus the smallest subnormal number (in a compiled net, which takes
    subnormal numbers as zero, the smallest normal one); for every a, alpha = 1 (elu) and
    0.01 (leaky_relu).
    ``saturated`` is an absolute error. The slopes of tanh, ``1 - h h``, and for a > 0 of the
    sigmoid, ``h (1 - h)``, are computed from the rounded h, so that its distance from 1 is known
    only to about eps. The relative error therefore grows as the slope vanishes, to 1 at |a| = 9
    (tanh, float32) and a = 17 (sigmoid, float32). PyTorch and JAX do the same: it saves storing
    the pre-activations for the backward pass. The sigmoid's slope for a <= 0 has no such error.
    Checked by: tests/maths/test_accuracy.py.
    """

    value: float
    slope: float
    saturated: float = 0


ACCURACY: dict[str, Accuracy] = {
    "identity": Accuracy(0, 0),
    "relu": Accuracy(0, 0),
    "oplu": Accuracy(0, 0),
    "modrelu": Accuracy(0.5, 0),
    "prelu": Accuracy(0.5, 0),
    "leaky_relu": Accuracy(1, 0.5),
    "softsign": Accuracy(1.5, 2),
    "elu": Accuracy(2.6, 2.6),
    "tanh": Accuracy(2.6, 0, 4),
    "sigmoid": Accuracy(3.6, 5, 2),
}


def _options(entry: Activation) -> dict[str, Option]:
    defaults = {"alpha": entry.alpha} if entry.alpha else {}
    if entry.start:
        defaults["start"] = entry.start[-1][2]
    return {option: Option((float,), value) for option, value in defaults.items()}


SPEC = Kind(ACTIVATIONS, _options)
"""What the text "elu:alpha=0.5" may hold."""


@takes(alpha=optional(real("(-inf, inf)")), start=optional(real("(-inf, inf)")))
def activation(name: str, alpha: float | None = None, start: float | None = None) -> Activation:
    """The activation of that name, or of a spec such as "elu:alpha=0.5"; ``alpha`` replaces the
    constant of leaky_relu or elu, and ``start`` the initial value of what prelu (the slope),
    modrelu or modrelu_pairs (the bias) learns.

    Raises ValueError for an unknown name, or an option that the activation does not have.

    >>> activation("leaky_relu", alpha=0.5).forward(np.array([-1.0, 2.0]), {}).tolist()
    [-0.5, 2.0]

    Checked by: tests/maths/test_activations.py::test_unknown_names_and_constants_are_refused.
    """
    name, given = read("activation", SPEC, absolute(name))
    entry, alpha, start = ACTIVATIONS[name], given.get("alpha", alpha), given.get("start", start)
    if reference(name):
        entry = replace(entry, name=name)  # by which a saved net finds it
    if alpha is not None:
        if not entry.alpha:
            raise ValueError(
                f"activation {name!r} has no constant; alpha is for leaky_relu and elu"
            )
        entry = replace(entry, alpha=alpha)
    if start is not None:
        if not entry.start:
            raise ValueError(
                f"activation {name!r} learns nothing; start is for prelu, modrelu and modrelu_pairs"
            )
        entry = replace(entry, start=tuple((part, shape, start) for part, shape, _ in entry.start))
    return entry


def clipped(act: Activation, limit: Number) -> Activation:
    """``act`` of its input clipped to [-limit, limit]; the slope outside is 0, and at both ends
    the left-hand one.

    >>> float(clipped(ACTIVATIONS["identity"], 3).forward(np.array(-5.0), {}))
    -3.0
    """

    def value(a: Array, p: Params, alpha: float) -> Array:
        return act.forward(clamp(a, limit)[0], p)

    def pull(a: Array, h: Array, dh: Array, p: Params, alpha: float) -> tuple[Array, Params]:
        bound = constant(limit, a)
        off = nonpositive(a + bound) | (nonpositive(bound - a) & ~nonpositive(a - bound))
        da, slopes = act.backward(clamp(a, limit)[0], h, dh, p)
        return np.where(off, 0, da), slopes

    return replace(act, value=value, pull=pull, smooth=False)
