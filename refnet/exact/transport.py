"""Certificates of long sequences: how far an error in a state can go.

A step widens balls entry by entry, by ``|J|``, J the step's Jacobian, though an error grows by J
alone: at H = 100 that costs three bits a step, in each direction of time. So here products of a
state with the recurrent weights use midpoints (``balls.centered``), radii do not grow, and the part
omitted from every product, d[t], is followed separately. A step is ``s[t+1] = G(s[t], W h[t])``, s
being h, or h and c. With s' the sequence that is computed, by the mean value theorem::

    s[t+1] - s'[t+1] = A[t] (s[t] - s'[t]) - L[t] W d[t],   A = K + L W,  K = dG/ds,  L = dG/d(Wh)

with the derivatives at points between, and backward, where K and L are those at s itself::

    e[t] - e'[t] = A[t]' (e[t+1] - e'[t+1]) - W' d[t]

So ``||s[t] - s'[t]||`` is at most the sum of ``||A[t-1] .. A[u+1]|| ||L[u]|| ||W|| ||d[u]||``
over u. The norms of products of many A are far smaller than their product: they are computed
in float64 for 2, 4, 8, ... steps, with bounds of all that is rounded. Then the balls get these
radii. Bounds are held as their log2, rounded upwards by SLACK.

Source: Moore, Kearfott & Cloud (2009), 6.4, mean value form; Lohner (1987), who moves the error of
an enclosure by products of Jacobians; rounding of matrix products: Higham (2002), 3.5.
Checked by: tests/exact/test_transport.py.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from refnet.batch import Array, Params
from refnet.cells import cifg, gru, lstm, rnn
from refnet.exact import balls
from refnet.maths.activations import ACTIVATIONS, Activation
from refnet.nets.layer import Layer
from refnet.nets.recurrent import RecurrentNet

SLACK = 1e-6
"""More than the rounding of a log2 below 2^20, of sums of two bounds, and of norms."""
THIN = -52
"""log2 of what states, gates and weights may differ by from their float64, besides its rounding."""
ROUGH = 2.0**-44
"""Bound of the error of an entry of K and L in float64, in units of the largest factor: they are
sums of products of a few factors, of three large ones at most, each off by 2^-50 of the
largest."""

Tape = Any
"""The tape of one of the cells below."""
Local = Callable[[Tape, Params, Activation, Any], tuple[Array, Array, Array]]


def _log2(value: ArrayLike) -> Array:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log2(value)) + SLACK


def _add(a: Array, b: Array) -> Array:
    return np.asarray(np.logaddexp2(a, b)) + SLACK


# ---- products of Jacobians


@dataclass
class Span:
    """The steps ``first <= t < end``: ``gain`` (B,) bounds the norm of the product of their
    Jacobians, ``noise`` (B,) the error at one end that the span's own defects make."""

    first: int
    end: int
    gain: Array
    parts: tuple["Span", ...] = ()
    noise: Array = field(init=False)


def _span(
    step: Callable[[int], tuple[Array, Array]], first: int, end: int
) -> tuple[Span, Array, Array]:
    """The span, the product (B, N, N) in float64, and a bound of its error's norm (B,)."""
    parts: tuple[Span, ...] = ()
    if end - first == 1:
        product, error = step(first)
    else:
        middle = first + 2 ** ((end - first - 1).bit_length() - 1)
        left, a, a_error = _span(step, first, middle)
        right, b, b_error = _span(step, middle, end)
        parts, product = (left, right), b @ a
        a_norm, b_norm = _frobenius(a), _frobenius(b)
        error = (
            np.exp2(right.gain) * a_error
            + np.exp2(left.gain) * b_error
            + (_unit(a) * a_norm * b_norm + 1e-300)
        ) * (1 + SLACK)
    gain = _norm(product, error, 1 if end - first > 2 else 0)
    if parts:
        gain = np.fmin(gain, parts[0].gain + parts[1].gain + SLACK)
    return Span(first, end, gain, parts), product, error


def _unit(a: Array) -> float:
    """n u / (1 - n u), with room for the rounding of the bound itself."""
    return float(max(a.shape[1:])) * 2.0**-52


def _frobenius(a: Array) -> Array:
    return np.asarray(np.sqrt((a * a).sum(axis=(1, 2))))


def _norm(a: Array, error: Array | float, squarings: int) -> Array:
    """log2 of a bound of the spectral norm of matrices (B, M, N) that are off by ``error`` (B,).

    ``||a||^2 = ||a'a||`` and ``||s||^2 = ||s s||`` for a symmetric s; after k squarings the
    Frobenius norm, as a bound, is too large by at most a factor of ``N^(1 / 2^(k + 1))``.
    """
    if not squarings:
        return _log2(_frobenius(a) + error)
    size = _frobenius(a) + 1e-300
    a = a / size[:, None, None]
    bound, root = np.log2(size), 1.0
    off = np.full(len(a), 2.0**-50)  # by the division, and below by products
    for n in range(squarings):
        a = a.transpose(0, 2, 1) @ a
        root, off = root / 2, 2.1 * off + 2 * _unit(a)
        size = _frobenius(a) + off
        bound = bound + root * np.log2(size)
        a, off = a / size[:, None, None], off / size + 2.0**-50
    return _add(bound + SLACK, _log2(error))


def _errors(span: Span, defects: Array, backward: bool) -> Array:
    """Bounds of the error at every time, (T + 1, B), from those of the defects (T, B)."""
    bounds = np.full((len(defects) + 1, defects.shape[1]), -np.inf)
    _collect(span, defects, backward)
    bounds[span.first if backward else span.end] = span.noise
    _hand_down(span, bounds, backward)
    return bounds


def _collect(span: Span, defects: Array, backward: bool) -> None:
    if not span.parts:
        span.noise = defects[span.first]
        return
    for part in span.parts:
        _collect(part, defects, backward)
    early, late = span.parts[::-1] if backward else span.parts
    span.noise = _add(late.gain + early.noise, late.noise)


def _hand_down(span: Span, bounds: Array, backward: bool) -> None:
    if not span.parts:
        return
    early = span.parts[1 if backward else 0]
    start = span.end if backward else span.first
    bounds[span.parts[0].end] = _add(early.gain + bounds[start], early.noise)
    for part in span.parts:
        _hand_down(part, bounds, backward)


def _jacobian(L: Array, K: Array, W: Array) -> Array:
    """A of one step, (B, S H, S H), from L (B, S, G, H), K (B, S, S, H) and W (G, H, H)."""
    B, S, _, H = L.shape
    J = np.zeros((B, S, H, S, H))
    J[:, :, :, 0] = np.einsum("bsgj,gjk->bsjk", L, W)
    diagonal = np.arange(H)
    J[:, :, diagonal, :, diagonal] += K.transpose(3, 0, 1, 2)
    return J.reshape(B, S * H, S * H)


# ---- the derivatives of a step: L by products and by pre-activations (T, B, S, G, H), and
# K (T, B, S, S, H), in float64


def _slope(act: Activation, value: Array) -> Array:
    """Of tanh and the sigmoid, whose value gives it."""
    return act.backward(value, value, np.ones_like(value), {})[0]


def _rnn(tape: Tape, p: Params, act: Activation, gate: Any) -> tuple[Array, Array, Array]:
    L = _slope(act, tape.h[1:])[:, :, None, None]
    return L, L, np.zeros_like(L)


def _gru(tape: Tape, p: Params, act: Activation, gate: Any) -> tuple[Array, Array, Array]:
    r, z, n = (tape.v[:, :, k] for k in range(3))
    dn = (1 - z) * _slope(act, n)
    by = np.stack([dn * tape.u * _slope(gate, r), (tape.h[:-1] - n) * _slope(gate, z), dn], axis=2)[
        :, :, None
    ]
    L = by.copy()
    L[:, :, 0, 2] *= r
    return L, by, z[:, :, None, None]


def _lstm(tape: Tape, p: Params, act: Activation, gate: Any) -> tuple[Array, Array, Array]:
    i, f, g, o = (tape.v[:, :, n] for n in range(4))
    do = _slope(gate, o)
    c = np.stack(
        [g * _slope(gate, i), tape.c[:-1] * _slope(gate, f), i * _slope(act, g), np.zeros_like(g)],
        axis=2,
    )
    through_cell = f + p.get("Wpi", 0) * c[:, :, 0] + p.get("Wpf", 0) * c[:, :, 1]
    through = o * _slope(act, tape.k) + p.get("Wpo", 0) * tape.k * do
    h = through[:, :, None] * c
    h[:, :, 3] = tape.k * do
    zero = np.zeros_like(f)
    K = np.stack(
        [np.stack([zero, through * through_cell], axis=2), np.stack([zero, through_cell], axis=2)],
        axis=2,
    )
    L = np.stack([h, c], axis=2)
    return L, L, K


LOCAL: dict[ModuleType, Local] = {rnn: _rnn, gru: _gru, lstm: _lstm}


# ---- a cell whose errors are followed


@dataclass
class Followed:
    """The passes of a cell on balls: forward once, then backward once."""

    cell: ModuleType

    def forward(
        self, p: Params, x: Array, h0: Array, act: Activation, gate: Activation | None = None
    ) -> Tape:
        """The cell's tape, which contains the true one."""
        with balls.centered(p["Whh"]) as distances:
            tape = self.cell.forward(p, x, h0, act, *_gates(gate))
        values, radius = _in_float64({**tape._asdict(), "x": None, "a": None})
        weights, weights_radius = _in_float64(
            {key: p[key] for key in ("Whh", *self.cell.OPTIONAL) if key in p}
        )
        W = weights.pop("Whh")
        G, H = len(self.cell.GATES), W.shape[1]
        peepholes = sum(abs(value).max() for value in weights.values())
        largest = max(1.0, peepholes, *(abs(values[key]).max() for key in "hvcu" if key in values))
        L, by, K = LOCAL[self.cell](type(tape)(**values), weights, act, gate)
        S, off = L.shape[2], ROUGH * largest**3
        self.norm = float(_norm(W[None], 2.0**weights_radius * W.size, 5)[0])
        self.reach, self.by = (
            _log2(np.sqrt((slopes * slopes).sum(axis=(2, 3)).max(axis=2)) + S * G * off)
            for slopes in (L, by)
        )
        error = np.full(x.shape[1], off * S * (G * np.sqrt((W * W).sum()) + H))

        def step(t: int) -> tuple[Array, Array]:
            return _jacobian(L[t], K[t], W.reshape(G, H, H)), error

        with np.errstate(over="ignore", invalid="ignore"):  # such products have no use
            self.span, *_ = _span(step, 0, len(x))
        d = np.stack(distances)
        E = _errors(self.span, self.reach + self.norm + d, False)
        of_a = _log2(2 * largest * (np.sqrt((W * W).sum(axis=1).max()) + peepholes)) + np.maximum(
            np.maximum(E[:-1], d) + 1, E[1:]
        )
        if not np.max([radius, weights_radius, of_a.max(), E.max()]) <= THIN:
            raise ArithmeticError("states are not narrow enough for their errors to be followed")
        widths = {"h": E, "c": E, "a": of_a, "v": of_a, "u": of_a, "k": E[1:]}
        for key in widths.keys() & tape._asdict().keys():  # in place, as a tape may fill a memory
            value = getattr(tape, key)
            value[...] = balls.widened(
                value, np.expand_dims(widths[key], tuple(range(2, value.ndim)))
            )
        return tape

    def backward(
        self,
        p: Params,
        tape: Tape,
        dh: Array,
        act: Activation,
        inputs: bool = True,
        gate: Activation | None = None,
        **options: Array,
    ) -> Params:
        """The gradients, which contain the true ones."""
        with np.errstate(invalid="ignore"):  # of infinite errors, which are refused below
            with balls.centered(p["Whh"]) as distances:
                grads = self.cell.backward(p, tape, dh, act, inputs, *_gates(gate), **options)
            E = _errors(self.span, self.norm + np.stack(distances[::-1]), True)
            da = np.maximum(self.reach, self.by) + E[1:]
        if not np.max([da.max(), E.max()]) < np.inf:
            raise ArithmeticError("gradients are not narrow enough for their errors to be followed")
        total = np.logaddexp2.reduce(da, axis=None) + da.size * SLACK
        factors = {
            "Whh": tape.h,
            "Wxh": tape.x,
            **{key: tape.c for key in self.cell.OPTIONAL if key in p},
        }
        rows = p["Wxh"]
        widths = {
            "h0": E[0][:, None],
            "x": (da + _size(rows) + np.log2(len(rows)) + SLACK)[..., None],
            **{key: total + _size(factor) for key, factor in factors.items()},
        }
        return {key: balls.widened(value, widths.get(key, total)) for key, value in grads.items()}


def _gates(gate: Activation | None) -> tuple[Activation, ...]:
    return () if gate is None else (gate,)


def _in_float64(arrays: dict[str, Any]) -> tuple[dict[str, Any], float]:
    """The midpoints of balls in float64, and log2 of the largest radius of them all."""
    given = {name: value for name, value in arrays.items() if value is not None}
    radius = max(
        (
            float(ball.rad())
            for value in given.values()
            for ball in value.ravel().tolist()
            if type(ball) is balls.arb
        ),
        default=0.0,
    )  # a zero may be the int
    return (
        {name: None if value is None else value.astype(float) for name, value in arrays.items()},
        float(_log2(np.nextafter(radius, np.inf))),
    )


def _size(array: Array) -> float:
    """log2 of a bound of the largest entry of balls."""
    return balls.log2_bound(balls.each("abs_upper")(array).max())


def followed(net: RecurrentNet) -> RecurrentNet:
    """A copy of the net whose layers follow their errors, to be run on balls; the net itself if
    they cannot be: ``gru_before`` multiplies the state before its product with the weights, a
    projection makes the state by a product of its own, and other activations than tanh and the
    sigmoid, as well as clipping, have a kink or values without a bound.
    """
    smooth = (ACTIVATIONS["tanh"], ACTIVATIONS["sigmoid"])
    if (
        net.cell == "gru_before"
        or net.projection
        or net.clip_step is not None
        or net.clip_forward is not None
        or net.zoneout
        or net.noise is not None
        or not {net.activation, net.gate} <= {*smooth}
    ):
        return net
    return replace(net, backend="reference").with_layers(_followed)


def _followed(layer: Layer) -> Layer:
    if layer.passes is not cifg:
        return replace(layer, passes=Followed(layer.passes))
    passes = Followed(lstm)
    return replace(
        layer,
        passes=SimpleNamespace(
            forward=partial(cifg.forward, run=passes.forward),
            backward=partial(cifg.backward, pull=passes.backward),
        ),
    )
