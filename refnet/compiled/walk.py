"""The walk of a cell over time, forward and back, written once for all cells.

A cell (``refnet.compiled.step``) states its products, and has two functions on the panels of a
block of rows: ``step`` turns the products into the gates' values and the next state, and
``step_back`` turns the gradient at the next state into the gradients of the products. A panel holds
a number for each unit of each row: (rows, width), flat, where width is H padded to whole vectors.

The walk does the rest. It takes each block of rows of the batch through all time steps in one
thread. It computes the products in registers and writes the tape. For the weights' gradients it
collects the products' gradients of a chunk of rows, some steps long, and multiplies them at once.
``refnet.compiled.plan`` describes a thread's workspace.

The sizes alone fix the order of every sum. Subnormal numbers count as zero (``FLUSH``).
"""

from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import Generic, TypeVar

import numpy as np

from refnet.batch import Array, Params
from refnet.cells.common import Cotangents
from refnet.compiled._jit import run
from refnet.compiled.activations import needs_a, own_gradients, own_parameter, settings
from refnet.compiled.annotations import Arg
from refnet.compiled.layout import (
    Layout,
    admit_counts,
    admit_lengths,
    borrow,
    common,
    give_back,
    lend,
    normal,
    normals,
    spaces,
)
from refnet.compiled.noise import Noise
from refnet.compiled.plan import Plan, plan
from refnet.compiled.step import Cell
from refnet.compiled.walk_arguments import Gradients, Tape, Weights
from refnet.compiled.walk_backward import backward_kernel
from refnet.compiled.walk_forward import forward_kernel
from refnet.maths.activations import ACTIVATIONS, Activation

__all__ = ["Gated", "Tape", "Walk"]

T = TypeVar("T")
Acts = tuple[Activation, ...]
"""A cell's activation and, if it has gates, theirs."""

SIGMOID = ACTIVATIONS["sigmoid"]
WEIGHTS = ("Whh", "Wxh", "bh")
KEEPS = ("last", "states", "tape")
"""What a forward pass keeps: the first and the last h; all h, for a read-out at every step; or all
that a backward pass needs. The rest is written to the same place at every step, which stays in the
processor's cache."""


def _need_a(acts: Acts) -> bool:
    return any([needs_a(act) for act in acts])


class Walk:
    """A cell's forward and backward pass over time; ``name`` stands in error messages."""

    def __init__(self, name: str, cell: Cell, step: Arg, step_back: Arg) -> None:
        self.name, self.cell = name, cell
        self.kernels = forward_kernel(cell, step), backward_kernel(cell, step_back)
        self.plan = lru_cache(maxsize=64)(partial(plan, cell))
        self.names, self.gates = (*WEIGHTS, *cell.vectors), cell.gates

    def _plan(
        self,
        where: str,
        p: Params,
        act: Activation,
        slopes: bool,
        lengths: Array | None,
        noise: Params,
        x: Array,
        *others: Array,
    ) -> Plan:
        """The plan for these arrays, with the rows' own ends and noise if there are any."""
        used = [p[name] for name in self.names if name in p]
        if act.start:
            used += [p[name] for name, *_ in act.start]
        dtype = common(where, x, *others, *used)
        known = self.plan(slopes, dtype, *x.shape, *p["Whh"].shape)
        if lengths is not None:
            admit_lengths(where, lengths, known.lay.starts)
            known = known._replace(ends=lengths)
        return known._replace(noise=self._noise(where, known, noise)) if noise else known

    def _rules(
        self, lay: Layout, p: Params, acts: Acts, noise: Noise
    ) -> tuple[Arg, Arg, Array, Noise]:
        """What makes ``Rules``, in plain tuples: Numba takes a microsecond for a NamedTuple."""
        vectors = np.empty(0, lay.dtype)
        if self.cell.vectors and any([name in p for name in self.cell.vectors]):
            padded = np.zeros((len(self.cell.vectors), lay.width), lay.dtype)
            for n, name in enumerate(self.cell.vectors):
                if name in p:
                    padded[n, : lay.H] = p[name]
            vectors = padded.ravel()
        q = own_parameter(acts[0], p, lay)
        first = (*settings(acts[0], lay.dtype), q)
        gate = (*settings(acts[1], lay.dtype), q) if acts[1:] else first
        return first, gate, vectors, noise

    def _noise(self, where: str, known: Plan, given: Params) -> Noise:
        """As the kernels take it; ``shares`` may be one number for all states."""
        dtype, T, B, _, H, *_ = known.lay
        flat: Arg = {name: normal(value, dtype).ravel() for name, value in given.items()}
        noise, whole = known.noise._replace(**flat), self.cell.states * B * H
        if noise.shares.size == 1:
            noise = noise._replace(shares=np.repeat(noise.shares, whole))
        drop, shares, _, added = noise
        apart = 0 if shares.size == whole else whole
        counts = (B * H, T * apart or whole, T * B * H)
        arrays = drop, shares, added
        admit_counts(where, arrays, [part.size and n for part, n in zip(arrays, counts)])
        return noise._replace(apart=apart)

    def forward(
        self,
        p: Params,
        x: Array,
        h0: Array,
        acts: Acts,
        keeps: str = "tape",
        lengths: Array | None = None,
        **noise: Array,
    ) -> Tape:
        """The tape, with x (T, B, D), h and c (T + 1, B, H), a (T, B, gates, H) or None, v and
        k (T, B, H); what the cell has not got is None. Of what it does not keep, for which see
        KEEPS, a, v and k have one step, h two, the first and the last, and c two.

        ``lengths`` (B,), if given, are the rows' numbers of steps, in the order that
        ``layout.deal`` gives: later steps are not computed, and have anything on the tape.
        ``noise``: ``drop``, ``shares`` and ``added`` as of ``refnet.compiled.noise``."""
        where, cell, slopes = f"{self.name}.forward", self.cell, _need_a(acts)
        lay, sizes, room, _, counts, ends, random = self._plan(
            where, p, acts[0], slopes, lengths, noise, x, h0
        )
        T, B, H, dtype = lay.T, lay.B, lay.H, lay.dtype
        x, most = normal(x, dtype), KEEPS.index(keeps)
        if cell.alone and most:
            most = 2  # its tape is its states
        states, steps = (T if most >= least else min(T, 1) for least in (1, 2))
        h, c, k, a = lend((states + 1, B, H), dtype), None, None, None
        if cell.states > 1:
            c = lend((steps + 1, B, H), dtype)
            h[0], c[0] = h0
        else:
            h[0] = h0
        same = cell.alone and noise.keys() <= {"drop"}
        v = h[1:, :, None] if same else lend((steps, B, self.gates, H), dtype)
        if cell.residual >= 0:
            k = lend((steps, B, H), dtype)
        if slopes:
            a = lend((steps, B, self.gates, H), dtype)
        tape = Tape(
            x, h, h if c is None else c, v[:0] if a is None else a, v, h if k is None else k
        )
        weights = Weights(*normals([p[name] for name in WEIGHTS], dtype))
        admit_counts(where, (*weights, x), counts[:4])
        work, held = spaces(lay, room.end), Tape(x, h, c, a, v, k)

        def back_over_no_step() -> Params:
            none = Tape(*[part if part is None else part[: len(part) - T] for part in held])
            return self.backward(p, none, (h[-1:],), acts)

        run(
            self.kernels[0],
            lay.blocks,
            work,
            (lay.starts, ends, sizes, room),
            self._rules(lay, p, acts, random),
            weights,
            tape,
            most,
            then=back_over_no_step if keeps == "tape" else None,
        )
        give_back(work)
        return held

    def backward(
        self,
        p: Params,
        tape: Tape,
        cotangents: tuple[Array, ...],
        acts: Acts,
        inputs: bool = True,
        clip: float | None = None,
        lengths: Array | None = None,
        **noise: Array,
    ) -> Params:
        """The gradients, by name, for a tape that has the entries of ``forward``'s, which took the
        same ``lengths`` and ``noise``. ``cotangents``: dh, where (1, B, H) is that at each row's
        last state, and for a cell with c dc (B, H), if it is not 0. Raises ValueError for a tape of
        other sizes.

        The bits do not depend on the number of threads: weight gradients are summed within fixed
        blocks of rows, and then over the blocks in order.
        """
        where, cell, slopes = f"{self.name}.backward", self.cell, _need_a(acts)
        dh, dc = cotangents[0], cotangents[-1]
        if len(cotangents) == 1:
            dc = np.zeros_like(tape.c[0]) if cell.states > 1 else tape.h[0]
        lay, sizes, _, room, counts, ends, random = self._plan(
            where, p, acts[0], slopes, lengths, noise, tape.x, tape.h, dh, dc
        )
        T, B, D, H, dtype, G = lay.T, lay.B, lay.D, lay.H, lay.dtype, self.gates
        rules = self._rules(lay, p, acts, random)
        a = tape.a if slopes else tape.v[:0]
        read = (tape.x, tape.h, tape.c, a, tape.v, tape.k)
        seen = Tape(*normals([tape.h if part is None else part for part in read], dtype))
        weights = Weights(*normals([p[name] for name in WEIGHTS], dtype))
        admit_counts(where, (*weights, *seen, dh, dc), [*counts, len(dh) * B * H, B * H])
        parts = borrow((lay.blocks, G * H * (H + D + 1)), dtype)
        grads = Gradients(
            normal(dh, dtype),
            normal(dc, dtype),
            (np.empty if lengths is None else np.zeros)((T * inputs, B, D), dtype),
            np.empty((cell.states, B, H), dtype),
            parts,
            np.zeros((lay.blocks, lay.width), dtype),
            np.zeros((lay.blocks, len(rules[2])), dtype),
            np.zeros(lay.blocks, np.int64),
            len(dh),
            clip is not None,
            float(clip or 0),
        )
        work = spaces(lay, room.end)
        run(
            self.kernels[1],
            lay.blocks,
            work,
            (lay.starts, ends, sizes, room),
            rules,
            weights,
            seen,
            grads,
        )
        give_back(work)
        total = np.add.reduce(parts)
        give_back(parts)
        gradients = self._named(lay, total, grads, p, acts[0])
        if inputs:
            gradients["x"] = grads.dx
        return gradients

    def _named(
        self, lay: Layout, total: Array, grads: Gradients, p: Params, act: Activation
    ) -> Params:
        """The sums over the blocks, by name."""
        cell, G, D, H = self.cell, self.gates, lay.D, lay.H
        Wxh, bh = G * H * H, G * H * (H + D)
        gradients = {
            "Whh": total[:Wxh].reshape(G * H, H),
            "Wxh": total[Wxh:bh].reshape(G * H, D),
            "bh": total[bh:],
            "h0": grads.dh0[0] if cell.states == 1 else grads.dh0,
        }
        if act.start:
            gradients |= own_gradients(act, p, grads.dq, H)
        if grads.dvectors.shape[1]:
            slopes = np.add.reduce(grads.dvectors.reshape(lay.blocks, len(cell.vectors), lay.width))
            gradients |= {
                name: slopes[n, :H].copy() for n, name in enumerate(cell.vectors) if name in p
            }
        if grads.clips:
            gradients["clipped"] = np.asarray(int(grads.clipped.sum()))
        return gradients


class Gated(Generic[T]):
    """The forward and backward pass of a cell with gates, as in ``refnet.cells``, for float32 and
    float64. ``tape``: the cell's own tape; ``parts``: the fields of the walk's ``Tape``, by their
    letters, that it has, in its order.

    Checked by: tests/compiled/test_compiled.py::test_gated_matches_the_reference.
    """

    def __init__(self, walk: Walk, tape: Callable[..., T], parts: str) -> None:
        self.walk, self.tape, self.parts = walk, tape, parts

    def forward(
        self,
        p: Params,
        x: Array,
        h0: Array,
        act: Activation,
        gate: Activation = SIGMOID,
        **options: Arg,
    ) -> T:
        """As the cell's; the tape's ``a`` may be None. ``options``: those of ``Walk.forward``."""
        whole = self.walk.forward(p, x, h0, (act, gate), **options)
        return self.tape(*[getattr(whole, part) for part in self.parts])

    def backward(
        self,
        p: Params,
        tape: Iterable[Array],
        dh: Cotangents,
        act: Activation,
        inputs: bool = True,
        gate: Activation = SIGMOID,
        **options: Arg,
    ) -> Params:
        """As the cell's; ``options``: those of ``Walk.backward``."""
        whole = Tape(*map(dict(zip(self.parts, tape)).get, Tape._fields))
        cotangents = dh if isinstance(dh, tuple) else (dh,)
        return self.walk.backward(p, whole, cotangents, (act, gate), inputs, **options)
