"""The kernel that walks a cell back over time (``refnet.compiled.walk``), made of its
``step_back``; constants and inlined parts as in ``refnet.compiled.walk_forward``.
"""

from typing import NamedTuple

from refnet.compiled._jit import inlined, inner
from refnet.compiled.activations import Rule
from refnet.compiled.annotations import Arg
from refnet.compiled.layout import add_rows, boundary, pack
from refnet.compiled.noise import Noise, scale_rows
from refnet.compiled.step import Cell, StepBack
from refnet.compiled.tiles import Rows, Strided, product
from refnet.compiled.vector import FLUSH, clear, copy_rows, cut, float_control, split
from refnet.compiled.walk_arguments import Gradients, Rules, Tape, fetching, kernel

__all__ = ["backward_kernel"]


NEAR = 2**15
"""Bytes of a step on the tape up to which a backward pass brings it ahead: more would drive what
the step needs out of the nearest cache. (Of a cell alone it is one array, read already.)"""


class BackBlock(NamedTuple):
    """What a step back of a block of rows works in, with the gradients ``direct`` at h, or at h and
    c, that pass by the cell; the sums of the block."""

    rows: int
    panels: Arg
    states: Arg
    direct: Arg
    pre: Arg
    dq: Arg
    dvectors: Arg
    clipped: Arg


class Chunk(NamedTuple):
    """What the backward pass collects of a block of rows for some steps: rows [h | x | 1] and, of
    a second stage, [s | x | 1], the gradients at the products, and then what they are multiplied
    to. ``w`` and ``wx`` are the packed matrices."""

    seen: Arg
    second: Arg
    da: Arg
    dinputs: Arg
    totals: Arg
    w: Arg
    wx: Arg


class Given(NamedTuple):
    """What the steps of a backward pass have in common."""

    s: Arg
    rules: Rules
    tape: Tape
    grads: Gradients


@inlined
def _chunk(work: Arg, room: Arg) -> Arg:
    seen, second = cut(work, *room.seen), cut(work, *room.second)
    da, dinputs, totals = cut(work, *room.da), cut(work, *room.dx), cut(work, *room.totals)
    return Chunk(seen, second, da, dinputs, totals, cut(work, *room.w), cut(work, *room.wx))


@inlined
def _block(
    rows: int, panels: Arg, states: Arg, direct: Arg, pre: Arg, grads: Arg, b: int, vectors: int
) -> Arg:
    width = grads.dq.shape[1]
    dq, clipped = cut(grads.dq, b * width, width), cut(grads.clipped, b, 1)
    dvectors = cut(grads.dvectors, b * vectors, vectors)
    return BackBlock(rows, panels, states, direct, pre, dq, dvectors, clipped)


def _packing(cell: Cell) -> Arg:
    PRODUCTS, (GATE, STATE, INPUTS, _, _) = len(cell.products), cell.columns

    @inner
    def pack_back(w: Arg, wx: Arg, weights: Arg, s: Arg, wants_dx: bool) -> None:
        """Whh, and Wxh if the gradient at the inputs is wanted, of every product."""
        D, H, lane, width, padded = s.D, s.H, s.lane, s.width, s.padded
        if width > H:
            clear(w, 0, len(w))
        clear(wx, 0, len(wx))
        for p in range(PRODUCTS):
            if STATE[p]:
                Whh = cut(weights.Whh, GATE[p] * H * H, H * H)
                pack(cut(w, p * H * width, H * width), 0, H, Whh, H, H, lane, False)
            if INPUTS[p] and wants_dx:
                Wxh = cut(weights.Wxh, GATE[p] * H * D, H * D)
                pack(cut(wx, p * H * padded, H * padded), 0, H, Wxh, H, D, lane, False)

    return pack_back


def _loading(cell: Cell) -> Arg:
    GATES, FIRST, K, READS = cell.gates, cell.first, cell.residual, len(cell.reads)
    WHICH = cell.reads or (0,)

    @inlined
    def load(panels: Arg, states: Arg, pre: Arg, tape: Arg, at: int, s: Arg, rows: int) -> None:
        """Read what the tape has of a step."""
        H, width = s.H, s.width
        for n in range(GATES):
            place = (at * GATES + n) * H
            copy_rows(panels[FIRST + n], 0, width, tape.v, place, GATES * H, rows, H)
            if len(tape.a):
                copy_rows(pre, n * rows * width, width, tape.a, place, GATES * H, rows, H)
        if K >= 0:
            copy_rows(panels[K], 0, width, tape.k, at * H, H, rows, H)
        for n in range(READS):
            source = tape.c if WHICH[n] else tape.h
            copy_rows(states[n], 0, width, source, at * H, H, rows, H)

    return load


def _recursion(cell: Cell) -> Arg:
    PRODUCTS, GATES, DIRECT, ALONE = len(cell.products), cell.gates, cell.direct, cell.alone
    (_, STATE, _, SECOND, _), fetch_part = cell.columns, fetching(cell)

    @inlined
    def back(to: Arg, das: Arg, w: Arg, given: Arg, at: int, rows: int, stage: int) -> None:
        """The gradient at h, or at s of the second stage, through the products of a stage; it is
        added to the one at h that passes by them, but with dropout."""
        s, drop, tape = given.s, given.rules.noise.drop, given.tape
        H, width, more = s.H, s.width, DIRECT and stage == 0 and not len(drop)
        near = not ALONE and rows * H * (GATES + 3) * to.itemsize <= NEAR
        for p in range(PRODUCTS):
            if SECOND[p] == stage and near:
                fetch_part(tape, at - s.B, 0, s, rows, p)
            if STATE[p] and SECOND[p] == stage:
                packed = Rows(cut(w, p * H * width, H * width), 0)
                by = Strided(das[p], width, 1)
                product(Rows(to, width), by, packed, H, rows, s.units, s.lane, more)
                more = True
        if len(drop):
            scale_rows(to, 0, width, drop, at % s.B * H, rows, H)

    return back


def _accumulating(cell: Cell) -> Arg:
    PRODUCTS, (_, STATE, INPUTS, SECOND, _) = len(cell.products), cell.columns

    @inner
    def accumulate(
        chunk: Arg, dx: Arg, s: Arg, ends: Arg, start: int, t: int, held: int, rows: int
    ) -> None:
        """Multiply the gradients at the products, of ``held`` rows, to those of the weights and of
        the inputs, for steps from ``t``, which has ``rows``, on."""
        H, lane, width, wide, padded, more = s.H, s.lane, s.width, s.wide, s.padded, False
        for p in range(PRODUCTS):
            skip = 0 if STATE[p] else H // lane * lane
            da = cut(chunk.da, p * s.chunk * width, held * width)
            by = chunk.second if SECOND[p] else chunk.seen
            product(
                Rows(cut(chunk.totals, p * H * wide + skip, H * wide - skip), wide),
                Strided(da, 1, width),
                Rows(cut(by, skip, held * wide - skip), wide),
                held,
                H,
                (wide - skip) // lane,
                lane,
                True,
            )
            if INPUTS[p] and len(dx):
                to = Rows(chunk.dinputs, padded)
                packed = Rows(cut(chunk.wx, p * H * padded, H * padded), 0)
                product(to, Strided(da, width, 1), packed, H, held, padded // lane, lane, more)
                more = True
        place = held if len(dx) else 0
        while place:
            while ends[start + rows - 1] <= t:
                rows -= 1
            place -= rows
            first = (t * s.B + start) * s.D
            copy_rows(dx, first, s.D, chunk.dinputs, place * padded, padded, rows, s.D)
            t += 1

    return accumulate


def _delivering(cell: Cell) -> Arg:
    PRODUCTS, GATES, STATES, ALONE = len(cell.products), cell.gates, cell.states, cell.alone
    GATE, STATE, INPUTS, _, BIAS = cell.columns

    @inner
    def deliver(grads: Arg, totals: Arg, b: int, vectors: int, s: Arg) -> None:
        """Write the block's sums where they are added up."""
        D, H, width, wide = s.D, s.H, s.width, s.wide
        size = GATES * H * (H + D + 1)
        share = cut(grads.parts, b * size, size)
        dvectors = cut(grads.dvectors, b * vectors, vectors)
        for p in range(PRODUCTS):
            row = p * H * wide
            if STATE[p]:
                copy_rows(share, GATE[p] * H * H, H, totals, row, wide, H, H)
            if INPUTS[p]:
                copy_rows(share, (GATES * H + GATE[p] * D) * H, D, totals, row + H, wide, H, D)
                bias = (GATES * (H + D) + GATE[p]) * H
                copy_rows(share, bias, 1, totals, row + H + D, wide, H, 1)
            if BIAS[p] >= 0:
                copy_rows(dvectors, BIAS[p] * width, 1, totals, row + H + D, wide, H, 1)

    @inlined
    def join_rows(e: Arg, grads: Arg, start: int, before: int, rows: int, s: Arg) -> None:
        """Begin the gradient e at h of the rows of a block from ``before`` on, at their ends."""
        fresh = cut(e, before * s.width, (rows - before) * s.width)
        if ALONE:
            clear(fresh, 0, len(fresh))
        if grads.last == 1:
            place = (start + before) * s.H
            add_rows(fresh, s.width, grads.dh, place, s.H, rows - before, s.H)

    @inner
    def deliver_first(dh0: Arg, e: Arg, start: int, most: int, rows: int, s: Arg) -> None:
        """Write the gradient at the block's first states; rows from ``rows`` on have no step."""
        H, width = s.H, s.width
        if ALONE:
            clear(e[0], rows * width, (most - rows) * width)
        for n in range(STATES):
            copy_rows(dh0, (n * s.B + start) * H, H, e[n], 0, width, most, H)

    return join_rows, deliver, deliver_first


def _collecting(cell: Cell) -> Arg:
    STAGES, STATES, SECOND = cell.stages, cell.states, cell.panels - 2

    @inner
    def prepare(chunk: Arg, s: Arg) -> None:
        """Clear what a block collects, and write the ones."""
        clear(chunk.totals, 0, len(chunk.totals))
        clear(chunk.seen, 0, len(chunk.seen))
        clear(chunk.second, 0, len(chunk.second))
        for r in range(s.chunk):
            chunk.seen[r * s.wide + s.H + s.D] = 1
            if STAGES > 1:
                chunk.second[r * s.wide + s.H + s.D] = 1

    @inlined
    def collect(chunk: Arg, panels: Arg, given: Arg, at: int, held: int, rows: int) -> None:
        """Add the rows of a step, after ``held`` of later steps."""
        s, drop, tape = given.s, given.rules.noise.drop, given.tape
        D, H, place = s.D, s.H, held * s.wide
        if STAGES > 1:
            copy_rows(chunk.second, place, s.wide, panels[SECOND], 0, s.width, rows, H)
            copy_rows(chunk.second, place + H, s.wide, tape.x, at * D, D, rows, D)
            if len(drop):
                scale_rows(chunk.second, place, s.wide, drop, at % s.B * H, rows, H)
        copy_rows(chunk.seen, place, s.wide, tape.h, at * H, H, rows, H)
        copy_rows(chunk.seen, place + H, s.wide, tape.x, at * D, D, rows, D)
        if len(drop):
            scale_rows(chunk.seen, place, s.wide, drop, at % s.B * H, rows, H)

    @inner
    def share(direct: Arg, e: Arg, noise: Arg, at: int, s: Arg, rows: int) -> None:
        """``direct = k e``, which passes by the cell, of the gradient e at each of the next states;
        the rest goes through it."""
        place = at // s.B * noise.apart + at % s.B * s.H
        for n in range(STATES):
            past, through = direct[n], e[n]
            clear(past, 0, len(past))
            if len(noise.shares):
                copy_rows(past, 0, s.width, through, 0, s.width, rows, s.H)
                scale_rows(past, 0, s.width, noise.shares, place, rows, s.H)
                for j in range(len(past)):
                    through[j] -= past[j]
            place += s.B * s.H

    return prepare, collect, share


def _stepping_back(cell: Cell, step_back: Arg) -> Arg:
    STAGES, DS, PRODUCTS, DIRECT = (cell.stages, cell.panels - 1, len(cell.products), cell.direct)
    load, back, (_, collect, share) = _loading(cell), _recursion(cell), _collecting(cell)

    @inlined
    def step_through(block: Arg, chunk: Arg, e: Arg, given: Arg, at: int, held: int) -> Arg:
        """The cell's step back, both stages, from the gradients at the next states, to which those
        that come in are added; its rows are added to the chunk. The products' gradients."""
        rows, panels, states, direct, pre, dq, dvectors, clipped = block
        (s, rules, tape, grads), noise = given, given.rules.noise
        load(panels, states, pre, tape, at, s, rows)
        coming = at - (s.T - grads.last) * s.B
        if grads.last > 1 and coming >= 0:
            add_rows(e[0], s.width, grads.dh, coming * s.H, s.H, rows, s.H)
        if len(noise.drop) + len(noise.shares):
            share(direct, e, noise, at, s, rows)
        rest = cut(chunk.da, held * s.width, len(chunk.da) - held * s.width)
        das = split(rest, s.chunk * s.width, rows * s.width, PRODUCTS)
        here = StepBack(
            rows,
            s.width,
            s.H,
            panels,
            states,
            e,
            das,
            rules.act,
            rules.gate,
            rules.vectors,
            dvectors,
            pre,
            dq,
            grads.clips,
            grads.clip,
            clipped,
        )
        step_back(here, 0)
        if STAGES > 1:
            back(panels[DS], das, chunk.w, given, at, rows, 1)
            step_back(here, 1)
        collect(chunk, panels, given, at, held, rows)
        if DIRECT and len(noise.drop):
            add_rows(direct[0], 0, e[0], 0, 0, 1, len(e[0]))
        return das

    return step_through, back


def backward_kernel(cell: Cell, step_back: Arg) -> Arg:
    """The kernel ``(begin, end, work, plan, acts, weights, tape, grads)`` for the blocks of rows
    from ``begin`` to ``end``. The rows of a block come in one by one at their ends."""
    STATES, PANELS, ALONE, SEEN = cell.states, cell.panels, cell.alone, len(cell.reads) or 1
    pack_back, (prepare, *_) = _packing(cell), _collecting(cell)
    accumulate, (join_rows, deliver, deliver_first) = _accumulating(cell), _delivering(cell)
    step_through, back = _stepping_back(cell, step_back)

    def backward(
        begin: int, end: int, work: Arg, plan: Arg, acts: Arg, weights: Arg, tape: Arg, grads: Arg
    ) -> None:
        mode = float_control(-1, FLUSH)
        (starts, ends, s, room), (act, gate, vectors, noise) = plan, acts
        rules = Rules(Rule(*act), Rule(*gate), vectors, Noise(*noise))
        H, width, work = s.H, s.width, cut(work, boundary(work), room.end)
        chunk, pre = _chunk(work, room), cut(work, *room.pre)
        da, given = chunk.da, Given(s, rules, tape, grads)
        pack_back(chunk.w, chunk.wx, weights, s, len(grads.dx) > 0)
        for b in range(begin, end):
            start, most = starts[b], starts[b + 1] - starts[b]
            size, held, rows, until = most * width, 0, 0, min(s.T, ends[start])
            prepare(chunk, s)
            clear(work, room.panels[0], room.da[0] - room.panels[0])
            first = split(da if ALONE else cut(work, *room.e), size, size, STATES)
            if STATES > 1:
                copy_rows(first[-1], 0, width, grads.dc, start * H, H, most, H)
            while until > 0:
                before = rows
                while rows < most and ends[start + rows] >= until:
                    rows += 1
                since, now = max(ends[start + rows], 0) if rows < most else 0, rows * width
                panels = split(cut(work, *room.panels), now, now, PANELS)
                states = split(cut(work, *room.states), now, now, SEEN)
                direct = split(cut(work, *room.direct), size, now, STATES)
                block = _block(rows, panels, states, direct, pre, grads, b, len(rules.vectors))
                here = cut(da, held * width, size) if ALONE else cut(work, *room.e)
                e = split(here, size, now, STATES)
                join_rows(e[0], grads, start, before, rows, s)
                for t in range(until - 1, since - 1, -1):
                    at = t * s.B + start
                    das = step_through(block, chunk, e, given, at, held)
                    held += rows
                    if ALONE:
                        e = split(cut(da, held * width, now), now, now, STATES)
                    back(e[0], das, chunk.w, given, at, rows, 0)
                    if len(rules.noise.drop) + len(rules.noise.shares):
                        for n in range(STATES):
                            add_rows(e[n], 0, direct[n], 0, 0, 1, now)
                    if held + most > s.chunk or t == 0:
                        accumulate(chunk, grads.dx, s, ends, start, t, held, rows)
                        held = 0
                        if ALONE:
                            copy_rows(da, 0, 0, e[0], 0, 0, 1, now)
                            e = split(da, now, now, STATES)
                until = since
            deliver(grads, chunk.totals, b, len(rules.vectors), s)
            deliver_first(grads.dh0, first, start, most, rows, s)
        float_control(0, mode)

    return kernel(backward, step_back)
