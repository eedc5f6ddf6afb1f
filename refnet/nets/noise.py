"""Random numbers in a net: dropout, zoneout and noise, as arrays that a net is given.

A net with ``noise`` is a function of its parameters and inputs like any other: it is judged,
certified and differentiated with these numbers as constants. ``refnet.training.noise`` draws them
for every batch. Input dropout and input noise need nothing of the net: they are another x.

With masks m (fixed over time), k and numbers n, h~ the state that the cell makes::

    the cell sees m h[t] in its products with Whh, and h[t] elsewhere
    h[t+1] = k[t] h[t] + (1 - k[t]) h~[t+1] + n[t]        (an LSTM's c: without n)

Source: Gal & Ghahramani (2016) for masks fixed over time, with that of a gated cell's state in the
products alone; Krueger et al. (2017) for zoneout.
Checked by: tests/nets/test_dropout.py.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from refnet.batch import Array, Params
from refnet.cells.common import CellTape, Cotangents, widened
from refnet.common.arguments import admit
from refnet.maths.activations import Activation
from refnet.maths.numeric import alike
from refnet.nets.base import add_gradients


@dataclass(frozen=True, eq=False, repr=False)
class Noise:
    """The random numbers of one batch of B sequences. All are factors but ``added``.

    ``outputs``: by the number of a layer, from 0, (B, W): of its output, where the layer above or
    the read-out reads it. By a cell's suffix ("" in a net of one layer): ``products``, (B, H), m
    above; ``zoneout``, (T, B, H), of an LSTM (T, 2, B, H) for h and c, k above; ``added``,
    (T, B, H), n above. Real or exact numbers; floats are taken at their binary values among exact
    ones.

    >>> noise = Noise(outputs={0: np.array([[0.0, 2.0]])})
    >>> from refnet.nets.recurrent import RecurrentNet
    >>> net = RecurrentNet(inputs=1, hidden=2, outputs=1, noise=noise)
    >>> params = net.init(np.random.default_rng(0), np.float64)
    >>> outputs, tape = net.forward(params, np.ones((3, 1, 1)))
    >>> net.backward(params, tape, np.ones((1, 1)))["Why"][0, 0] == 0
    np.True_
    """

    outputs: dict[int, Array] = field(default_factory=dict)
    products: Params = field(default_factory=dict)
    zoneout: Params = field(default_factory=dict)
    added: Params = field(default_factory=dict)

    def _arrays(self) -> Params:
        given = {f"outputs[{layer}]": value for layer, value in self.outputs.items()}
        for part, arrays in zip(("products", "zoneout", "added"), self.by_cell):
            given |= {f"{part}[{suffix!r}]": value for suffix, value in arrays.items()}
        return given

    def __repr__(self) -> str:
        """The arrays' names and shapes."""
        shapes = (f"{name} {np.shape(value)}" for name, value in self._arrays().items())
        return f"Noise({', '.join(shapes)})"

    def admit(self, where: str, shapes: dict[str, tuple[int, ...]], reason: str) -> None:
        """Raise ValueError or TypeError unless all arrays are among these, and of their shapes."""
        given = self._arrays()
        for name in given.keys() - shapes.keys():
            raise ValueError(f"{where}: noise.{name} is not among {', '.join(shapes)}; {reason}")
        admit(f"{where}: noise", given, {name: (shapes[name],) for name in given}, {}, reason)

    def of(self, suffix: str) -> "Noise":
        """That of one cell, as a net of one layer has it."""
        parts = ({"": part[suffix]} if suffix in part else {} for part in self.by_cell)
        return Noise({}, *parts)

    @property
    def by_cell(self) -> tuple[Params, Params, Params]:
        return self.products, self.zoneout, self.added

    def examples(self, rows: slice | Array) -> "Noise":
        """That of some of the sequences."""
        return Noise(
            {layer: value[rows] for layer, value in self.outputs.items()},
            *({name: value[..., rows, :] for name, value in part.items()} for part in self.by_cell),
        )

    def thinned(self, rows: Array, layer: int) -> Array:
        """A layer's output, or its gradient, (T, B, W), (T B, W) or (B, W), times the factors."""
        if layer not in self.outputs:
            return rows
        factors = alike(self.outputs[layer], rows)
        return np.asanyarray((rows.reshape(-1, *factors.shape) * factors).reshape(rows.shape))


class ZonedTape(NamedTuple):
    """x (T, B, D), the states h (T + 1, B, H) and, of a cell with two, c; the steps' tapes."""

    x: Array
    h: Array
    c: Array | None
    parts: list[CellTape]


def _at(shares: Array | None, t: int) -> Any:
    return shares if shares is None or not shares.ndim else shares[t]


class Zoned(NamedTuple):
    """A cell's passes of the reference, which go step by step and change the state between two of
    them by the ``shares`` k and by ``added`` (see above), each an array, or None; k may be one
    number."""

    passes: Any

    def forward(
        self,
        p: Params,
        x: Array,
        h0: Array,
        act: Activation,
        shares: Array | None = None,
        added: Array | None = None,
        **options: Any,
    ) -> ZonedTape | CellTape:
        """As of ``passes``: x (T, B, D), h0 (B, H) or (2, B, H)."""
        if not len(x):  # no state to change
            unchanged: CellTape = self.passes.forward(p, x, h0, act, **options)
            return unchanged
        width = p["Whh"].shape[1]
        old, parts = h0, []
        states = [h0]
        for t in range(len(x)):
            part = self.passes.forward(p, x[t : t + 1], old, act, **options)
            H = h0.shape[-1]
            new = part.h[1] if h0.ndim == 2 else np.stack([widened(part.h[1], H), part.c[1]])
            if (k := _at(shares, t)) is not None:
                new = k * old + (1 - k) * new
            if added is not None:
                new = np.array(new)
                state = new if h0.ndim == 2 else new[0]
                state[:, :width] = state[:, :width] + added[t]
            parts.append(part)
            states.append(new)
            old = new
        h = np.stack(states)
        if h0.ndim == 2:
            return ZonedTape(x, h, None, parts)
        return ZonedTape(x, h[:, 0, :, :width], h[:, 1], parts)

    def backward(
        self,
        p: Params,
        tape: ZonedTape | CellTape,
        dh: Cotangents,
        act: Activation,
        inputs: bool = True,
        **options: Any,
    ) -> Params:
        """As of ``passes``. With e the complete gradient at h[t+1], the cell's pullback has
        (1 - k) e, and k e is added to what it gives for h[t]."""
        shares = options.pop("shares", None)
        options.pop("added", None)
        if not isinstance(tape, ZonedTape):
            unchanged: Params = self.passes.backward(p, tape, dh, act, inputs, **options)
            return unchanged
        dh, dc = dh if isinstance(dh, tuple) else (dh, None)
        two, width = tape.c is not None, dh.shape[2]
        shape = (2, *tape.c.shape[1:]) if tape.c is not None else tape.h.shape[1:]
        e = np.zeros_like(tape.h, shape=shape)
        if dc is not None:
            e[1] = dc
        total: Params = {}
        dx: list[Array] = []
        first = len(tape.x) - len(dh)
        for t in reversed(range(len(tape.x))):
            if t >= first:
                e_h = e[0] if two else e
                e_h[:, :width] = e_h[:, :width] + dh[t - first]
            k = _at(shares, t)
            through, direct = (e, 0) if k is None else ((1 - k) * e, k * e)
            cotangents = (through[:1, :, :width], through[1]) if two else through[None]
            grads = self.passes.backward(p, tape.parts[t], cotangents, act, inputs, **options)
            e = np.array(direct + grads.pop("h0"))
            if inputs:
                dx.append(grads.pop("x"))
            total = {name: np.asanyarray(g) for name, g in add_gradients(total, grads).items()}
        return {**total, "h0": e, **({"x": np.concatenate(dx[::-1])} if inputs else {})}
