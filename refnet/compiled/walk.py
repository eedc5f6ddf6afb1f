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

from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from refnet.batch import Array, Params
from refnet.compiled._jit import jit, run
from refnet.compiled.activations import needs_a, own_gradients, own_parameter, settings
from refnet.compiled.layout import (
    Layout,
    add_rows,
    admit_counts,
    borrow,
    boundary,
    common,
    give_back,
    normal,
    normals,
    pack,
    product,
    spaces,
)
from refnet.compiled.plan import Plan, plan
from refnet.compiled.step import Cell, Rule, Step, StepBack
from refnet.compiled.vector import FLUSH, clear, copy_rows, cut, fetch, float_control, split
from refnet.maths.activations import Activation

__all__ = ["Tape", "Walk"]

WEIGHTS = ("Whh", "Wxh", "bh")
KEEPS = ("last", "states", "tape")
"""What a forward pass keeps: the first and the last h; all h, for a read-out at every step; or all
that a backward pass needs. The rest is written to the same place at every step, which stays in the
processor's cache."""


class Rules(NamedTuple):
    """The activation and that of the gates, by code and constant; the activation's own parameter
    and the cell's vectors, padded."""

    act: int
    alpha: Any
    gate: int
    beta: Any
    own: Any
    vectors: Any


class Weights(NamedTuple):
    """The matrices as the net has them, gate below gate."""

    Whh: Any
    Wxh: Any
    bh: Any


class Tape(NamedTuple):
    """What the kernels keep and read: x (T, B, D); h and c (T + 1, B, H); the gates'
    pre-activations a, empty if no slope needs them, and values v, (T, B, gates, H); the kept panel
    k (T, B, H). What the cell has not got is h; of a cell alone, v is h from its second state."""

    x: Any
    h: Any
    c: Any
    a: Any
    v: Any
    k: Any


class Gradients(NamedTuple):
    """Those that come in, dh at the last states and dc at the last c, and those that go out:
    ``parts`` has for each block those of Whh, Wxh and bh, one after the other; the others are sums
    or counts for each block."""

    dh: Any
    dc: Any
    dx: Any
    dh0: Any
    parts: Any
    dq: Any
    dvectors: Any
    clipped: Any


def kernels(cell: Cell, step: Any, step_back: Any) -> tuple[Any, Any]:
    """The cell's two kernels, each for the blocks of rows from ``begin`` to ``end``. What is in
    capitals is a constant to the compiler, which leaves out what the cell has no use for."""
    GATES, FIRST, KEPT, STATES, STAGES = (
        cell.gates,
        cell.first,
        cell.kept,
        cell.states,
        cell.stages,
    )
    PRODUCTS, PANELS, ALONE, DIRECT = len(cell.products), cell.panels, cell.alone, cell.direct
    GATE, STATE, INPUTS, SECOND, BIAS = zip(
        *(
            (*map(int, product[:4]), cell.vectors.index(product.bias) if product.bias else -1)
            for product in cell.products
        )
    )
    READS, SEEN = len(cell.reads), max(len(cell.reads), 1)
    WHICH, LATER = zip(*cell.reads, *([(0, 0)] * (not READS)))

    def forward(
        begin: int,
        end: int,
        work: Any,
        starts: Any,
        s: Any,
        room: Any,
        rules: Any,
        weights: Any,
        tape: Any,
        keeps: int,
    ) -> None:
        mode = float_control(-1, FLUSH)
        act, gate = Rule(rules.act, rules.alpha, rules.own), Rule(rules.gate, rules.beta, rules.own)
        vectors = rules.vectors
        B, D, H, lane, width, row = s.B, s.D, s.H, s.lane, s.width, s.row
        units = width // lane
        work = cut(work, boundary(work), room.end)
        w = cut(work, *room.w)
        Whh, Wxh = cut(weights.Whh, 0, weights.Whh.size), cut(weights.Wxh, 0, weights.Wxh.size)
        clear(w, 0, len(w))
        for p in range(PRODUCTS):
            own, depth = cut(w, p * row * width, row * width), H * STATE[p] + (D + 1) * INPUTS[p]
            if STATE[p]:
                pack(own, 0, depth, Whh, GATE[p] * H, H, H, lane, True)
            if INPUTS[p]:
                pack(own, depth - D - 1, depth, Wxh, GATE[p] * H, H, D, lane, True)
                pack(own, depth - 1, depth, weights.bh, GATE[p] * H, H, 1, lane, True)
        for b in range(begin, end):
            start, rows = starts[b], starts[b + 1] - starts[b]
            size, stride = rows * width, s.step if ALONE else width
            now, after, flat = cut(work, *room.now), cut(work, *room.after), cut(work, *room.panels)
            panels = split(flat, size, size, PANELS)
            state = split(cut(work, *room.state), size, size, STATES)
            copy_rows(now, 0, s.step, tape.h, start * H, H, rows, H)
            if not ALONE:
                clear(work, room.state[0], room.state[1])
                copy_rows(state[0], 0, width, tape.h, start * H, H, rows, H)
                if STATES > 1:
                    copy_rows(state[1], 0, width, tape.c, start * H, H, rows, H)
            for t in range(s.T):
                at = t * B + start
                kept, state_at = at if keeps == 2 else start, at if keeps else start
                for stage in range(STAGES):
                    if ALONE:
                        panels = (after,)
                    seen = now
                    if stage:
                        seen = after
                        copy_rows(seen, 0, s.step, panels[PANELS - 2], 0, width, rows, H)
                    copy_rows(seen, H, s.step, tape.x, at * D, D, rows, D)
                    for r in range(rows):
                        seen[r * s.step + H + D] = 1
                    for p in range(PRODUCTS):
                        if SECOND[p] == stage:
                            depth, skip = H * STATE[p] + (D + 1) * INPUTS[p], H - H * STATE[p]
                            product(
                                panels[p],
                                stride,
                                cut(seen, skip, rows * s.step - skip),
                                s.step,
                                1,
                                cut(w, p * row * width, row * width),
                                0,
                                depth,
                                rows,
                                units,
                                lane,
                                False,
                            )
                            if BIAS[p] >= 0:
                                for r in range(rows):
                                    to, bias = (
                                        cut(panels[p], r * width, width),
                                        cut(vectors, BIAS[p] * width, width),
                                    )
                                    for j in range(width):
                                        to[j] += bias[j]
                    if not stage:  # bring what the next step writes
                        fetch(tape.v, (kept + B) * GATES * H, rows * GATES * H)
                        if not ALONE:
                            fetch(tape.h, (state_at + 2 * B) * H, rows * H)
                        if STATES > 1:
                            fetch(tape.c, (kept + 2 * B) * H, rows * H)
                        if KEPT >= 0:
                            fetch(tape.k, (kept + B) * H, rows * H)
                        if len(tape.a):
                            fetch(tape.a, (kept + B) * GATES * H, rows * GATES * H)
                    step(
                        Step(
                            rows,
                            width,
                            stride,
                            H,
                            panels,
                            state,
                            act,
                            gate,
                            vectors,
                            tape.a,
                            kept * GATES * H,
                            GATES * H,
                        ),
                        stage,
                    )
                for n in range(GATES):
                    copy_rows(
                        tape.v,
                        (kept * GATES + n) * H,
                        GATES * H,
                        panels[FIRST + n],
                        0,
                        stride,
                        rows,
                        H,
                    )
                if KEPT >= 0:
                    copy_rows(tape.k, kept * H, H, panels[KEPT], 0, width, rows, H)
                if ALONE:
                    now, after = after, now
                else:
                    copy_rows(tape.h, (state_at + B) * H, H, state[0], 0, width, rows, H)
                    copy_rows(now, 0, s.step, state[0], 0, width, rows, H)
                    if STATES > 1:
                        copy_rows(tape.c, (kept + B) * H, H, state[1], 0, width, rows, H)
        float_control(0, mode)

    def backward(
        begin: int,
        end: int,
        work: Any,
        starts: Any,
        s: Any,
        room: Any,
        rules: Any,
        weights: Any,
        tape: Any,
        grads: Any,
        last: int,
        clips: bool,
        clip: Any,
    ) -> None:
        mode = float_control(-1, FLUSH)
        act, gate = Rule(rules.act, rules.alpha, rules.own), Rule(rules.gate, rules.beta, rules.own)
        vectors = rules.vectors
        B, D, H, lane, width, wide, padded = (s.B, s.D, s.H, s.lane, s.width, s.wide, s.padded)
        units = width // lane
        whole, chunk, wants_dx = H // lane * lane, s.chunk * width, len(grads.dx) > 0
        work = cut(work, boundary(work), room.end)
        w, wx = cut(work, *room.w), cut(work, *room.wx)
        Whh, Wxh = cut(weights.Whh, 0, weights.Whh.size), cut(weights.Wxh, 0, weights.Wxh.size)
        clear(work, 0, room.wx[0] + room.wx[1])
        for p in range(PRODUCTS):
            if STATE[p]:
                pack(cut(w, p * H * width, H * width), 0, H, Whh, GATE[p] * H, H, H, lane, False)
            if INPUTS[p] and wants_dx:
                pack(cut(wx, p * H * padded, H * padded), 0, H, Wxh, GATE[p] * H, H, D, lane, False)
        for b in range(begin, end):
            start, rows = starts[b], starts[b + 1] - starts[b]
            size, each = rows * width, GATES * H * (H + D + 1)
            totals, share = cut(work, *room.totals), cut(grads.parts, b * each, each)
            clear(totals, 0, len(totals))
            clear(work, room.seen[0], room.da[0] - room.seen[0])
            seen, second = cut(work, *room.seen), cut(work, *room.second)
            da, dinputs = cut(work, *room.da), cut(work, *room.dx)
            panels = split(cut(work, *room.panels), size, size, PANELS)
            states = split(cut(work, *room.states), size, size, SEEN)
            e, pre = split(cut(work, *room.e), size, size, STATES), cut(work, *room.pre)
            dq, dvectors = (
                cut(grads.dq, b * width, width),
                cut(grads.dvectors, b * len(vectors), len(vectors)),
            )
            clipped = cut(grads.clipped, b, 1)
            if STATES > 1:
                copy_rows(e[1], 0, width, grads.dc, start * H, H, rows, H)
            if ALONE:
                e = (cut(da, 0, size),)
                clear(da, 0, size)
            for r in range(s.chunk):
                seen[r * wide + H + D] = 1
                if STAGES > 1:
                    second[r * wide + H + D] = 1
            held = 0
            for t in range(s.T - 1, -1, -1):
                at = t * B + start
                for n in range(GATES):
                    copy_rows(
                        panels[FIRST + n],
                        0,
                        width,
                        tape.v,
                        (at * GATES + n) * H,
                        GATES * H,
                        rows,
                        H,
                    )
                    if len(tape.a):
                        copy_rows(
                            pre, n * size, width, tape.a, (at * GATES + n) * H, GATES * H, rows, H
                        )
                if KEPT >= 0:
                    copy_rows(panels[KEPT], 0, width, tape.k, at * H, H, rows, H)
                for n in range(READS):
                    copy_rows(
                        states[n],
                        0,
                        width,
                        tape.c if WHICH[n] else tape.h,
                        (at + LATER[n] * B) * H,
                        H,
                        rows,
                        H,
                    )
                if t >= s.T - last:
                    add_rows(e[0], width, grads.dh, ((t - s.T + last) * B + start) * H, H, rows, H)
                das = split(cut(da, held * width, len(da) - held * width), chunk, size, PRODUCTS)
                here = StepBack(
                    rows,
                    width,
                    H,
                    panels,
                    states,
                    e,
                    das,
                    act,
                    gate,
                    vectors,
                    dvectors,
                    pre,
                    dq,
                    clips,
                    clip,
                    clipped,
                )
                step_back(here, 0)
                if STAGES > 1:
                    for p in range(PRODUCTS):
                        if SECOND[p]:
                            product(
                                panels[PANELS - 1],
                                width,
                                das[p],
                                width,
                                1,
                                cut(w, p * H * width, H * width),
                                0,
                                H,
                                rows,
                                units,
                                lane,
                                False,
                            )
                    step_back(here, 1)
                    copy_rows(second, held * wide, wide, panels[PANELS - 2], 0, width, rows, H)
                    copy_rows(second, held * wide + H, wide, tape.x, at * D, D, rows, D)
                copy_rows(seen, held * wide, wide, tape.h, at * H, H, rows, H)
                copy_rows(seen, held * wide + H, wide, tape.x, at * D, D, rows, D)
                held += rows
                if ALONE:
                    e = (cut(da, held * width, size),)
                more = DIRECT
                for p in range(PRODUCTS):
                    if STATE[p] and not SECOND[p]:
                        product(
                            e[0],
                            width,
                            das[p],
                            width,
                            1,
                            cut(w, p * H * width, H * width),
                            0,
                            H,
                            rows,
                            units,
                            lane,
                            more,
                        )
                        more = True
                if held + rows > s.chunk or t == 0:
                    more = False
                    for p in range(PRODUCTS):
                        own, skip = cut(da, p * chunk, held * width), 0 if STATE[p] else whole
                        product(
                            cut(totals, p * H * wide + skip, H * wide - skip),
                            wide,
                            own,
                            1,
                            width,
                            cut(second if SECOND[p] else seen, skip, held * wide - skip),
                            wide,
                            held,
                            H,
                            (wide - skip) // lane,
                            lane,
                            True,
                        )
                        if INPUTS[p] and wants_dx:
                            product(
                                dinputs,
                                padded,
                                own,
                                width,
                                1,
                                cut(wx, p * H * padded, H * padded),
                                0,
                                H,
                                held,
                                padded // lane,
                                lane,
                                more,
                            )
                            more = True
                    if wants_dx:
                        for n in range(held // rows):
                            copy_rows(
                                grads.dx,
                                (at + n * B) * D,
                                D,
                                dinputs,
                                (held - (n + 1) * rows) * padded,
                                padded,
                                rows,
                                D,
                            )
                    held = 0
                    if ALONE:
                        copy_rows(da, 0, 0, e[0], 0, 0, 1, size)
                        e = (cut(da, 0, size),)
            for p in range(PRODUCTS):
                row = p * H * wide
                if STATE[p]:
                    copy_rows(share, GATE[p] * H * H, H, totals, row, wide, H, H)
                if INPUTS[p]:
                    copy_rows(share, (GATES * H + GATE[p] * D) * H, D, totals, row + H, wide, H, D)
                    copy_rows(
                        share, (GATES * (H + D) + GATE[p]) * H, 1, totals, row + H + D, wide, H, 1
                    )
                if BIAS[p] >= 0:
                    copy_rows(dvectors, BIAS[p] * width, 1, totals, row + H + D, wide, H, 1)
            for n in range(STATES):
                copy_rows(grads.dh0, (n * B + start) * H, H, e[n], 0, width, rows, H)
        float_control(0, mode)

    for kernel in (forward, backward):
        kernel.__module__ = step.__module__
        kernel.__qualname__ = kernel.__name__
    return jit(forward), jit(backward)


class Walk:
    """A cell's forward and backward pass over time."""

    def __init__(self, cell: Cell, step: Any, step_back: Any) -> None:
        self.cell = cell
        self.kernels = kernels(cell, step, step_back)
        self.plan = lru_cache(maxsize=64)(partial(plan, cell))
        self.names, self.gates = (*WEIGHTS, *cell.vectors), cell.gates

    def _plan(
        self, where: str, p: Params, slopes: bool, act: Activation, x: Array, *others: Array
    ) -> Plan:
        used = [p[name] for name in self.names if name in p]
        if act.start:
            used += [p[name] for name, *_ in act.start]
        dtype = common(where, x, *others, *used)
        return self.plan(slopes, dtype, *x.shape, *p["Whh"].shape)

    def _rules(self, lay: Layout, p: Params, act: Activation, gate: Activation | None) -> Rules:
        vectors = np.empty(0, lay.dtype)
        if self.cell.vectors and any([name in p for name in self.cell.vectors]):
            padded = np.zeros((len(self.cell.vectors), lay.width), lay.dtype)
            for n, name in enumerate(self.cell.vectors):
                if name in p:
                    padded[n, : lay.H] = p[name]
            vectors = padded.ravel()
        return Rules(
            *settings(act, lay.dtype),
            *settings(gate or act, lay.dtype),
            own_parameter(act, p, lay),
            vectors,
        )

    def forward(
        self,
        where: str,
        p: Params,
        x: Array,
        h0: Array,
        act: Activation,
        gate: Activation | None = None,
        keeps: str = "tape",
    ) -> Tape:
        """The tape, with x (T, B, D), h and c (T + 1, B, H), a (T, B, gates, H) or None, v and
        k (T, B, H); what the cell has not got is None. Of what it does not keep, for which see
        KEEPS, a, v and k have one step, h two, the first and the last, and c two."""
        cell, slopes = self.cell, needs_a(act) or gate is not None and needs_a(gate)
        lay, sizes, room, _, counts = self._plan(where, p, slopes, act, x, h0)
        T, B, H, dtype = lay.T, lay.B, lay.H, lay.dtype
        x, most = normal(x, dtype), KEEPS.index(keeps)
        if cell.alone and most:
            most = 2  # its tape is its states
        states, steps = (T if most >= least else min(T, 1) for least in (1, 2))
        h, c, k, a = np.empty((states + 1, B, H), dtype), None, None, None
        if cell.states > 1:
            c = np.empty((steps + 1, B, H), dtype)
            h[0], c[0] = h0
        else:
            h[0] = h0
        v = h[1:, :, None] if cell.alone else np.empty((steps, B, self.gates, H), dtype)
        if cell.kept >= 0:
            k = np.empty((steps, B, H), dtype)
        if slopes:
            a = np.empty((steps, B, self.gates, H), dtype)
        tape = Tape(
            x, h, h if c is None else c, v[:0] if a is None else a, v, h if k is None else k
        )
        weights = Weights(*normals([p[name] for name in WEIGHTS], dtype))
        admit_counts(where, (*weights, x), counts[:4])
        work, made = spaces(lay, room.end), Tape(x, h, c, a, v, k)

        def back_over_no_step() -> Params:
            none = Tape(*[part if part is None else part[: len(part) - T] for part in made])
            return self.backward(where, p, none, h[-1:], act, gate)

        run(
            self.kernels[0],
            lay.blocks,
            work,
            lay.starts,
            sizes,
            room,
            self._rules(lay, p, act, gate),
            weights,
            tape,
            most,
            then=back_over_no_step if keeps == "tape" else None,
        )
        give_back(work)
        return made

    def backward(
        self,
        where: str,
        p: Params,
        tape: Tape,
        dh: Array,
        act: Activation,
        gate: Activation | None = None,
        inputs: bool = True,
        dc: Array | None = None,
        clip: float | None = None,
    ) -> Params:
        """The gradients, by name, for a tape that has the entries of ``forward``'s. Raises
        ValueError for one of other sizes.

        The bits do not depend on the number of threads: weight gradients are summed within fixed
        blocks of rows, and then over the blocks in order.
        """
        cell, slopes = self.cell, needs_a(act) or gate is not None and needs_a(gate)
        if dc is None:
            dc = np.zeros_like(tape.c[0]) if cell.states > 1 else tape.h[0]
        lay, sizes, _, room, counts = self._plan(where, p, slopes, act, tape.x, tape.h, dh, dc)
        T, B, D, H, dtype, G = lay.T, lay.B, lay.D, lay.H, lay.dtype, self.gates
        rules = self._rules(lay, p, act, gate)
        a = tape.a if slopes else tape.v[:0]
        seen = Tape(
            *normals(
                [
                    tape.h if part is None else part
                    for part in (tape.x, tape.h, tape.c, a, tape.v, tape.k)
                ],
                dtype,
            )
        )
        weights = Weights(*normals([p[name] for name in WEIGHTS], dtype))
        admit_counts(where, (*weights, *seen, dh, dc), [*counts, len(dh) * B * H, B * H])
        parts = borrow((lay.blocks, G * H * (H + D + 1)), dtype)
        grads = Gradients(
            normal(dh, dtype),
            normal(dc, dtype),
            np.empty((T * inputs, B, D), dtype),
            np.empty((cell.states, B, H), dtype),
            parts,
            np.zeros((lay.blocks, lay.width), dtype),
            np.zeros((lay.blocks, len(rules.vectors)), dtype),
            np.zeros(lay.blocks, np.int64),
        )
        work = spaces(lay, room.end)
        run(
            self.kernels[1],
            lay.blocks,
            work,
            lay.starts,
            sizes,
            room,
            rules,
            weights,
            seen,
            grads,
            len(dh),
            clip is not None,
            clip or 0.0,
        )
        give_back(work)
        total = np.add.reduce(parts)
        give_back(parts)
        Wxh, bh = G * H * H, G * H * (H + D)
        found = {
            "Whh": total[:Wxh].reshape(G * H, H),
            "Wxh": total[Wxh:bh].reshape(G * H, D),
            "bh": total[bh:],
            "h0": grads.dh0[0] if cell.states == 1 else grads.dh0,
        }
        if act.start:
            found |= own_gradients(act, p, grads.dq, H)
        if len(rules.vectors):
            slopes = np.add.reduce(grads.dvectors.reshape(lay.blocks, len(cell.vectors), lay.width))
            found |= {
                name: slopes[n, :H].copy() for n, name in enumerate(cell.vectors) if name in p
            }
        if clip is not None:
            found["clipped"] = np.asarray(int(grads.clipped.sum()))
        if inputs:
            found["x"] = grads.dx
        return found
