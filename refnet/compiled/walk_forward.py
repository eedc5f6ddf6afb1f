"""The kernel that walks a cell forward over time (``refnet.compiled.walk``), made of its ``step``.
What is in capitals is a constant to the compiler, which leaves out what the cell has no use for.
The parts are written into the kernel (``inlined``) where they run at every step.
"""

from typing import NamedTuple

from refnet.compiled._jit import inlined, inner
from refnet.compiled.activations import Rule
from refnet.compiled.annotations import Arg
from refnet.compiled.layout import add_rows, boundary, pack
from refnet.compiled.noise import Noise, mix_rows, scale_rows
from refnet.compiled.step import Cell, Step
from refnet.compiled.tiles import Rows, Strided, product
from refnet.compiled.vector import FLUSH, clear, copy_rows, cut, float_control, split
from refnet.compiled.walk_arguments import Rules, fetching, kernel

__all__ = ["forward_kernel"]


class Block(NamedTuple):
    """What a step of a block of rows works in."""

    rows: int
    stride: int
    panels: Arg
    state: Arg


def _packing(cell: Cell) -> Arg:
    PRODUCTS, (GATE, STATE, INPUTS, _, _) = len(cell.products), cell.columns

    @inner
    def pack_forward(w: Arg, weights: Arg, s: Arg) -> None:
        """``[Whh' / Wxh' / bh]`` of every product."""
        D, H, lane, width, row = s.D, s.H, s.lane, s.width, s.row
        if width > H:
            clear(w, 0, len(w))
        for p in range(PRODUCTS):
            to, depth = cut(w, p * row * width, row * width), H * STATE[p] + (D + 1) * INPUTS[p]
            if STATE[p]:
                Whh = cut(weights.Whh, GATE[p] * H * H, H * H)
                pack(to, 0, depth, Whh, H, H, lane, True)
            if INPUTS[p]:
                Wxh, bh = cut(weights.Wxh, GATE[p] * H * D, H * D), cut(weights.bh, GATE[p] * H, H)
                pack(to, depth - D - 1, depth, Wxh, H, D, lane, True)
                pack(to, depth - 1, depth, bh, H, 1, lane, True)

    return pack_forward


def _multiplying(cell: Cell) -> Arg:
    S, (_, STATE, INPUTS, _, BIAS) = cell.panels - 2, cell.columns

    @inlined
    def join_inputs(
        seen: Arg, panels: Arg, x: Arg, drop: Arg, at: int, s: Arg, rows: int, stage: int
    ) -> None:
        """Write s, in a second stage, the inputs and 1 into the rows [h | x | 1]; drop of h."""
        if stage:
            copy_rows(seen, 0, s.step, panels[S], 0, s.width, rows, s.H)
        if len(drop):
            scale_rows(seen, 0, s.step, drop, at % s.B * s.H, rows, s.H)
        copy_rows(seen, s.H, s.step, x, at * s.D, s.D, rows, s.D)
        for r in range(rows):
            seen[r * s.step + s.H + s.D] = 1

    @inlined
    def multiply(
        panel: Arg, stride: int, seen: Arg, w: Arg, vectors: Arg, s: Arg, rows: int, p: int
    ) -> None:
        """Product p, of rows [h | x | 1] or [s | x | 1], and its bias."""
        D, H, width, row = s.D, s.H, s.width, s.row
        depth, skip = H * STATE[p] + (D + 1) * INPUTS[p], H - H * STATE[p]
        product(
            Rows(panel, stride),
            Strided(cut(seen, skip, rows * s.step - skip), s.step, 1),
            Rows(cut(w, p * row * width, row * width), 0),
            depth,
            rows,
            s.units,
            s.lane,
            False,
        )
        if BIAS[p] >= 0:
            for r in range(rows):
                to = cut(panel, r * width, width)
                bias = cut(vectors, BIAS[p] * width, width)
                for j in range(width):
                    to[j] += bias[j]

    return join_inputs, multiply


def _storing(cell: Cell) -> Arg:
    GATES, FIRST, K, STATES, ALONE = cell.gates, cell.first, cell.residual, cell.states, cell.alone
    LAST = STATES - 1

    @inlined
    def store(
        block: Arg, noise: Arg, tape: Arg, at: int, tape_at: int, state_at: int, s: Arg
    ) -> None:
        """Write the gates' values and the next state, which the noise changes, to the tape."""
        (rows, stride, panels, state), B, H, width = block, s.B, s.H, s.width
        h, apart = panels[0] if ALONE else state[0], stride if ALONE else width
        for n in range(GATES):
            place = (tape_at * GATES + n) * H
            copy_rows(tape.v, place, GATES * H, panels[FIRST + n], 0, stride, rows, H)
        if K >= 0:
            copy_rows(tape.k, tape_at * H, H, panels[K], 0, width, rows, H)
        if len(noise.shares):
            place, before = at // B * noise.apart + at % B * H, min(at, state_at + B) * H
            mix_rows(h, apart, tape.h, before, noise.shares, place, rows, H)
            if STATES > 1:
                place, before = place + B * H, min(at, tape_at + B) * H
                mix_rows(state[LAST], width, tape.c, before, noise.shares, place, rows, H)
        if len(noise.added):
            add_rows(h, apart, noise.added, at * H, H, rows, H)
        if not ALONE or len(noise.shares) + len(noise.added):
            copy_rows(tape.h, (state_at + B) * H, H, h, 0, apart, rows, H)
        if STATES > 1:
            copy_rows(tape.c, (tape_at + B) * H, H, state[LAST], 0, width, rows, H)

    return store


def _advancing(cell: Cell, step: Arg) -> Arg:
    GATES = cell.gates

    @inlined
    def advance(block: Arg, rules: Arg, tape: Arg, tape_at: int, s: Arg, stage: int) -> None:
        """The cell's step, of a stage."""
        rows, stride, panels, state = block
        here = Step(
            rows,
            s.width,
            stride,
            s.H,
            panels,
            state,
            rules.act,
            rules.gate,
            rules.vectors,
            tape.a,
            tape_at * GATES * s.H,
            GATES * s.H,
        )
        step(here, stage)

    return advance


def forward_kernel(cell: Cell, step: Arg) -> Arg:
    """The kernel ``(begin, end, work, plan, acts, weights, tape, keeps)`` for the blocks of rows
    from ``begin`` to ``end``. The rows of a block, of which later ones are never longer, leave it
    one by one at their ends, past which nothing is written."""
    STATES, STAGES, PANELS, ALONE = cell.states, cell.stages, cell.panels, cell.alone
    LAST, PRODUCTS, SECOND = STATES - 1, len(cell.products), cell.columns[3]
    pack_forward, (join_inputs, multiply) = _packing(cell), _multiplying(cell)
    fetch_part, store, advance = fetching(cell), _storing(cell), _advancing(cell, step)

    def forward(
        begin: int, end: int, work: Arg, plan: Arg, acts: Arg, weights: Arg, tape: Arg, keeps: int
    ) -> None:
        mode = float_control(-1, FLUSH)
        (starts, ends, s, room), (act, gate, vectors, noise) = plan, acts
        rules = Rules(Rule(*act), Rule(*gate), vectors, Noise(*noise))
        B, H, width, stride = s.B, s.H, s.width, s.step if ALONE else s.width
        work = cut(work, boundary(work), room.end)
        w = cut(work, *room.w)
        pack_forward(w, weights, s)
        for b in range(begin, end):
            start, most = starts[b], starts[b + 1] - starts[b]
            size, rows, since = most * width, most, 0
            now, after, flat = cut(work, *room.now), cut(work, *room.after), cut(work, *room.panels)
            state = split(cut(work, *room.state), size, size, STATES)
            copy_rows(now, 0, s.step, tape.h, start * H, H, rows, H)
            if not ALONE:
                clear(work, room.state[0], room.state[1])
                copy_rows(state[0], 0, width, tape.h, start * H, H, rows, H)
            if STATES > 1:
                copy_rows(state[LAST], 0, width, tape.c, start * H, H, rows, H)
            while since < s.T:
                while rows and ends[start + rows - 1] <= since:
                    rows -= 1
                if not rows:
                    break
                until, each = min(s.T, ends[start + rows - 1]), rows * stride
                state = split(cut(work, *room.state), size, rows * width, STATES)
                for t in range(since, until):
                    at = t * B + start
                    tape_at, state_at = at if keeps == 2 else start, at if keeps else start
                    panels = split(after if ALONE else flat, each, each, PANELS)
                    block = Block(rows, stride, panels, state)
                    for stage in range(STAGES):
                        seen = after if stage else now
                        join_inputs(seen, panels, tape.x, rules.noise.drop, at, s, rows, stage)
                        for p in range(PRODUCTS):
                            if SECOND[p] == stage:
                                if keeps == 2:
                                    fetch_part(tape, at + B, B, s, rows, p)
                                multiply(panels[p], stride, seen, w, rules.vectors, s, rows, p)
                        advance(block, rules, tape, tape_at, s, stage)
                    store(block, rules.noise, tape, at, tape_at, state_at, s)
                    if ALONE:
                        now, after = after, now
                    else:
                        copy_rows(now, 0, s.step, state[0], 0, width, rows, H)
                since = until
        float_control(0, mode)

    return kernel(forward, step)
