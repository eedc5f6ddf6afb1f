"""Stacked recurrent layers, in one direction or both, with a read-out.

Each layer runs over the states of the one below, the lowest over x. With two directions a layer
is two cells, of which the second runs over every sequence from its last step to its first; a
layer's output at step t is ``[h forward | h backward]``, each after its cell has seen step t.
A cell's parameters carry the number of its layer: Whh_l0, Wxh_l0, bh_l0, ..., and Whh_l0_reverse
of the second direction. Backward, the gradient of a layer's output is split by direction, each
cell's ``Layer.backward`` pulls it back, and the gradients of its input add up.

A sequence ends at its last step that counts (``refnet.nets.padding``); a layer's output after
that is 0, and has no gradient.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike

from refnet.batch import Array, Params
from refnet.cells.common import CellTape
from refnet.common.arguments import Shapes, generator, kind, whole
from refnet.common.process import serial_blas
from refnet.matrices.initializers import glorot_uniform
from refnet.matrices.slots import Residuals
from refnet.nets.base import Initializer, NetTape, draw_matrix, float_type, named as named
from refnet.nets.layer import Checkpoints, Layer
from refnet.nets.readout import columns, read_out
from refnet.nets.recurrent import RecurrentNet

HEAD = ("Why", "by")


def plain(name: str) -> str:
    """A parameter's name in a net of one layer, from that of a cell's.

    >>> plain("Wxh_l0_reverse.W")
    'Wxh.W'
    """
    matrix, _, rest = name.partition("_l")
    return matrix + "".join(rest.partition(".")[1:])


@dataclass(frozen=True, repr=False)
class StackedNet(RecurrentNet):
    """``layers`` recurrent layers, ``bidirectional`` or not, with a linear read-out.

    All other fields are those of RecurrentNet; all layers have the same. ``readout``: "every"
    step; "last": the last state of every direction, which for the second one is its state after
    the first step; "none": the outputs are those of the last layer, (T, B, H) or (T, B, 2 H),
    so that ``outputs`` has to be H or 2 H and there are no Why and by. Initial states are
    zero unless given or learned as h0_l0, h0_l0_reverse, ... of a cell's shape.

    >>> net = StackedNet(inputs=2, hidden=4, outputs=3, cell="lstm", layers=2, bidirectional=True)
    >>> params = net.init(np.random.default_rng(0), np.float64)
    >>> outputs, tape = net.forward(params, np.ones((5, 2, 2)))
    >>> gradients = net.backward(params, tape, np.ones_like(outputs))
    >>> gradients["Wxh_l1_reverse"].shape, gradients["Why"].shape
    ((16, 8), (3, 8))

    Source: Schuster & Paliwal (1997) for both directions; names and order as in PyTorch.
    Checked by: tests/nets/test_stacked.py.
    """

    READOUTS: ClassVar[tuple[str, ...]] = ("last", "every", "none")
    layers: int = field(default=1, kw_only=True)
    bidirectional: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "layers", whole("layers", self.layers))
        kind("bidirectional", self.bidirectional, bool, "True or False")
        if self.readout == "none" and self.outputs != self.width:
            raise ValueError(
                f"outputs is {self.outputs}; need {self.width}, the width of a layer, "
                "because readout is 'none'"
            )

    @property
    def width(self) -> int:
        """The width of a layer's output: that of the state, or twice that in both directions."""
        return (1 + self.bidirectional) * (self.projection or self.hidden)

    @cached_property
    def cells(self) -> tuple[dict[str, RecurrentNet], ...]:
        """The cells of every layer by their names' suffix, each as a net of one layer."""
        shared = {
            each.name: getattr(self, each.name)
            for each in fields(RecurrentNet)
            if each.name not in ("inputs", "outputs", "readout", "embedding", "noise")
        }
        directions = ("", "_reverse")[: 1 + self.bidirectional]
        return tuple(
            {
                f"_l{layer}{direction}": RecurrentNet(
                    inputs=self.width if layer else self.inputs,
                    outputs=1,
                    embedding=0 if layer else self.embedding,
                    noise=self.noise and self.noise.of(f"_l{layer}{direction}"),
                    **shared,
                )
                for direction in directions
            }
            for layer in range(self.layers)
        )

    def with_layers(self, change: Callable[[Layer], Layer]) -> "StackedNet":
        """As ``RecurrentNet.with_layers``, with every layer of every direction changed."""
        net = replace(self)
        object.__setattr__(
            net,
            "cells",
            tuple(
                {suffix: cell.with_layers(change) for suffix, cell in layer.items()}
                for layer in self.cells
            ),
        )
        return net

    @cached_property
    def slots(self) -> tuple[str, ...]:
        """The recurrent matrices of all cells, one (H, H) a gate, that a transition makes."""
        return tuple(
            slot + suffix for suffix, cell in self.every_cell.items() for slot in cell.slots
        )

    @cached_property
    def shapes(self) -> Shapes:
        """The shapes that every parameter may have, by name; B is the number of sequences."""
        head: Shapes = (
            {}
            if self.readout == "none"
            else {"Why": ((self.outputs, self.width),), "by": ((self.outputs,),)}
        )
        return {
            **{
                named(name, suffix): shape
                for suffix, cell in self.every_cell.items()
                for name, shape in cell.shapes.items()
                if name not in HEAD
            },
            **head,
        }

    @cached_property
    def required(self) -> frozenset[str]:
        """The parameters that have to be given."""
        return frozenset(
            named(name, suffix)
            for suffix, cell in self.every_cell.items()
            for name in cell.required
            if name not in HEAD
        ).union(() if self.readout == "none" else HEAD)

    @cached_property
    def reason(self) -> str:
        """Why the shapes are these, in the words of error messages."""
        directions = " in both directions" if self.bidirectional else ""
        return f"{self._sizes()}, and {self.layers} layers{directions}"

    @serial_blas
    def init(
        self,
        rng: np.random.Generator,
        dtype: DTypeLike = np.float32,
        weights: Initializer | str = glorot_uniform,
        recurrent: Initializer | str | None = None,
        inputs: Initializer | str | None = None,
        gates: Initializer | str | None = None,
        **cell_options: Any,
    ) -> Params:
        """Start values: those of ``RecurrentNet.init`` for every cell, then Why and by."""
        generator("init: rng", rng)
        params = {
            named(name, suffix): value
            for suffix, cell in self.every_cell.items()
            for name, value in cell.init(
                rng, dtype, weights, recurrent, inputs, gates, **cell_options
            ).items()
            if name not in HEAD
        }
        if self.readout != "none":
            draw = draw_matrix("weights", weights, (self.outputs, self.width), rng)
            params |= {
                "Why": draw.astype(float_type(dtype)),
                "by": np.zeros(self.outputs, float_type(dtype)),
            }
        return params

    def of(self, params: Params, suffix: str) -> Params:
        """The parameters of one cell, by the names of a net of one layer."""
        cell = self.every_cell[suffix]
        names = dict.fromkeys([*cell.shapes, "Whh", "Wxh", *cell.slots])
        full = {name: named(name, suffix) for name in names}
        return {name: params[full[name]] for name in names if full[name] in params}

    @serial_blas
    def matrices(self, params: Params, embedded: bool = False) -> tuple[Params, Residuals]:
        """As of a RecurrentNet, of every cell; the residuals."""
        p = dict(params)
        residuals: Residuals = {}
        for suffix, cell in self.every_cell.items():
            matrices, parts = cell.matrices(self.of(params, suffix), embedded)
            p |= {named(name, suffix): value for name, value in matrices.items()}
            residuals |= {slot + suffix: value for slot, value in parts.items()}
        return p, residuals

    def _run_cells(
        self, tape: NetTape, x: Array, lengths: Array | None = None
    ) -> tuple[Array, NetTape]:
        p, (T, B) = tape.p, x.shape[:2]
        steps = np.full(B, T) if lengths is None else lengths
        compiled, tapes = tape.lengths, dict[str, CellTape | Checkpoints]()
        ends: list[Array] = []
        for number, layer in enumerate(self.cells):
            states, ends = [], []
            for suffix, cell in layer.items():
                cell_p = self.of(p, suffix)
                cell_x = cell.embedded(cell_p, turned(x, steps, suffix))
                h0 = cell.initial_state(cell_p, cell_x)
                parts: list[Array] = []
                tapes[suffix] = cell.layer.forward(
                    cell_p,
                    cell_x,
                    h0,
                    lambda first, tape: parts.append(
                        tape.h[1:] if self.checkpoint != "sqrt" else tape.h[1:].copy()
                    ),
                    lengths=compiled,
                )
                h = parts[0] if len(parts) == 1 else np.concatenate(parts)
                ends.append(_last(h, h0 if h0.ndim == 2 else h0[0][:, : cell.width], steps))
                states.append(turned(h, steps, suffix))
            x = np.concatenate(states, axis=2) if len(states) > 1 else states[0]
            x = masked(x, steps) if compiled is None else x
            if number + 1 < self.layers:
                with np.errstate(all="ignore"):  # what follows an end may be anything
                    x = self.thinned(x, number)
        if self.readout == "none":
            rows, outputs = x[:0], x.copy()
        elif self.readout == "last":
            rows = np.concatenate(ends, axis=1)
            outputs = read_out(self, p, rows, self.layers - 1)
        else:
            rows = x.reshape(T * B, self.width)
            outputs = read_out(self, p, rows, self.layers - 1).reshape(T, B, self.outputs)
        last = T if (steps == T).all() else steps
        return outputs, NetTape(*tape[:4], tapes, rows, last, outputs.shape, *tape[8:])

    def _pull_cells(
        self,
        tape: NetTape,
        doutputs: Array,
        inputs: bool,
        ended: Array | None = None,
        final: Params | None = None,
    ) -> Params:
        """The gradients of what the cells see, and of Why and by; ``ended`` and ``final``: as of
        a RecurrentNet."""
        T, B = next(iter(tape.cell.values())).x.shape[:2]
        p, steps = tape.p, np.full(B, tape.steps)
        grads: Params = {}
        d = doutputs
        if self.readout != "none":
            flat = doutputs.reshape(-1, self.outputs)
            grads |= {
                "Why": self.product(flat.T, self.thinned(tape.rows, self.layers - 1)),
                "by": doutputs.sum(axis=0).reshape(-1, self.outputs).sum(axis=0),
            }
            d = self.thinned(self.product(flat, p["Why"]), self.layers - 1)
        last = d if self.readout == "last" else None  # (B, H or 2 H), in each cell's own time
        if last is None:
            d = masked(d.reshape(T, B, self.width), steps if tape.lengths is None else T)
        for number in reversed(range(self.layers)):
            below: list[Array] = []
            for n, (suffix, cell) in enumerate(self.cells[number].items()):
                part = slice(n * cell.width, (n + 1) * cell.width)
                dh = (
                    turned(d[:, :, part], steps, suffix)
                    if last is None
                    else _at_last(last[:, part], steps, T)
                )
                pulled = cell.layer.backward(
                    self.of(p, suffix),
                    tape.cell[suffix],
                    lambda first, segment: dh[first : first + len(segment.h) - 1].copy(),
                    inputs or number > 0 or tape.symbols is not None,
                    ended,
                    tape.lengths,
                    (final or {}).get(f"h0{suffix}"),
                )
                if last is not None:  # a sequence without steps is read at h0
                    h0 = pulled["h0"].copy()
                    h0[(0,) * (h0.ndim - 2)][:, : cell.width] += np.where(
                        (steps == 0)[:, None], last[:, part], 0
                    )
                    pulled["h0"] = h0
                if tape.symbols is not None and not number:
                    seen = turned(tape.symbols, steps, suffix)
                    pulled["Wxh.E"] = columns(seen, pulled.pop("x"), self.inputs)
                if "x" in pulled:
                    below.append(turned(pulled.pop("x"), steps, suffix))
                if "clipped" in pulled:
                    grads["clipped"] = grads.get("clipped", 0) + pulled.pop("clipped")
                grads |= {named(name, suffix): value for name, value in pulled.items()}
            last = None
            if below:
                d = self.thinned(np.asanyarray(sum(below[1:], below[0])), number - 1)
        return {**grads, "x": d} if inputs and tape.symbols is None else grads


def turned(values: Array, steps: Array, suffix: str) -> Array:
    """``values`` (T, B, ...) with every sequence's steps (B,) in the order of the cell's own
    direction; what follows a sequence stays where it is.

    >>> turned(np.arange(3)[:, None], np.array([2]), "_l0_reverse")[:, 0].tolist()
    [1, 0, 2]
    """
    if not suffix.endswith("_reverse"):
        return values
    T = len(values)
    if (steps == T).all():
        return values[::-1]
    t = np.arange(T)[:, None]
    return values[np.where(t < steps, steps - 1 - t, t), np.arange(len(steps))]


def masked(values: Array, steps: Array | int) -> Array:
    """``values`` (T, B, N) with 0 after the end of every sequence.

    >>> masked(np.ones((3, 1, 1)), np.array([2]))[:, 0, 0].tolist()
    [1.0, 1.0, 0.0]
    """
    after = np.arange(len(values))[:, None] >= steps
    return np.where(after[:, :, None], 0, values) if after.any() else values


def _last(h: Array, h0: Array, steps: Array) -> Array:
    """Each sequence's state after its last step, (B, H): h0 if it has none."""
    out = np.empty_like(h, shape=h0.shape)
    out[...] = h0
    some = np.flatnonzero(steps)
    out[some] = h[steps[some] - 1, some]
    return out


def _at_last(rows: Array, steps: Array, T: int) -> Array:
    """``rows`` (B, H) as the gradient of the states (T, B, H) after each sequence's last step."""
    out = np.zeros_like(rows, shape=(T, *rows.shape))
    some = np.flatnonzero(steps)
    out[steps[some] - 1, some] = rows[some]
    return out
