"""The deep feedforward net, layer by layer, as ``refnet.nets.feedforward`` writes it.

Each thread takes some rows of the batch through all layers, forward and back, and then some rows
of the matrices for their gradients. It reads the matrices as they lie, because rearranging one
takes as long as its product with 10 rows. Back, it sums their rows. Forward, it multiplies each
number by many rows of the batch, which it first turns into columns, or, for a few rows, computes
dot products (``dots``).

The sizes alone fix the order of every sum. Subnormal numbers count as zero (``FLUSH``).
Checked by: tests/compiled/test_compiled_feedforward.py.
"""

from functools import lru_cache, partial
from math import prod
from typing import NamedTuple

import numpy as np

from refnet.batch import Array, Params
from refnet.compiled._jit import inlined, inner, jit, run
from refnet.compiled.activations import Rule, by_parameter, by_unit, needs_a, pull, push, settings
from refnet.compiled.annotations import Arg
from refnet.compiled.layout import (
    APART,
    admit_counts,
    aligned,
    borrow,
    boundary,
    common,
    give_back,
    normal,
    normals,
)
from refnet.compiled.plan import CHUNK
from refnet.compiled.rows import addresses_of, held, turn
from refnet.compiled.tiles import COLUMNS, VECTORS, Rows, Strided, dots, product
from refnet.compiled.vector import FLUSH, clear, copy_rows, cut, float_control, fma, lanes
from refnet.maths.activations import Activation
from refnet.maths.kinds import join
from refnet.maths.threads import get_threads

__all__ = ["Tape", "backward", "forward"]

ROWS = 8
"""Rows of the batch in a block: few enough to occupy two threads with a batch of 16."""

TASKS = 16
"""The least number of parts into which the weight gradients are cut."""

SHARE = 2**15
"""Numbers in such a part, about, where that makes more parts."""

ALONE, TRAFFIC = 2**22, 8
"""Multiplications in a pass for which a second thread is not worth its while, because it finds the
matrices in the other core's cache; to bring a number of a matrix from memory counts as TRAFFIC of
them. Two threads over one, on two Zen 4 cores with 784 inputs and ten layers: .88 times as fast at
20 rows and 100 units (2^21.7 multiplications), 1.15 at 32 rows; 1.28 at one row and 512 units."""

ACROSS = 8
"""Vectors of rows side by side in a product whose lanes are rows of the batch: two panels, and with
its inputs they stay in the core's own cache."""


class Layers(NamedTuple):
    """``widths`` (layers + 1,), the numbers from a row of each to the next, ``strides``, and the
    sums of those before it, ``at``; whether the lanes of a forward pass are rows of the batch,
    ``turns``; where the gradient of each W and b begins, ``W`` and ``b``; ``starts`` (blocks + 1,),
    the first row of each block of the batch, and B; ``tasks`` (tasks, 3), each a layer, the first
    of some rows of its matrix, and how many."""

    B: int
    lane: int
    widths: Arg
    strides: Arg
    at: Arg
    turns: bool
    W: Arg
    b: Arg
    starts: Arg
    tasks: Arg


class Sizes(NamedTuple):
    """All that follows from the sizes: what the kernels take; the numbers of a tape, ``numbers``;
    where on it the last hidden layer's rows lie, ``rows``; the numbers that a thread works in,
    ``room``; for how many threads there is work, ``worth``; of the parameters, the names, and for
    each its part of the gradients and its shape, ``parts``; the numbers of x and of each,
    ``counts``; ``zeros`` (at[-1],) for activations without parameters, which kernels only read."""

    dtype: Arg
    layers: Layers
    numbers: int
    rows: slice
    room: int
    worth: int
    names: tuple[str, ...]
    parts: tuple[tuple[str, slice, tuple[int, ...]], ...]
    counts: list[int]
    zeros: Array


class Weights(NamedTuple):
    """Matrices and biases, where they lie, and the sizes that they have: in one piece, for an
    address must not outlive its array, nor meet other sizes."""

    arrays: list[Array]
    places: Arg
    sizes: Sizes


class Tape(NamedTuple):
    """The rows of all layers, the inputs' first and the outputs' last, one array after the other,
    padded; likewise the pre-activations, or None if no slope needs them; the parameters."""

    h: Array
    a: Array | None
    weights: Weights


@lru_cache(maxsize=64)
def sizes(dtype: Arg, B: int, widths: tuple[int, ...]) -> Sizes:
    """What follows from the sizes alone."""
    lane, K = lanes(dtype), np.array(widths)
    pad = max(lane, COLUMNS)
    # more than K: a column of rows that lay a power of two apart would compete for a few places of
    # the cache
    strides = (K + pad) // pad * pad
    W = np.concatenate([[0], np.cumsum(K[1:] * K[:-1])])
    b = W[-1] + np.concatenate([[0], np.cumsum(K[1:])])
    share = min(max(W[-1] // TASKS, 1), SHARE)
    tasks: list[tuple[int, int, int]] = []
    parts: list[tuple[str, slice, tuple[int, ...]]] = []
    for layer in range(1, len(K)):
        below, width = widths[layer - 1 : layer + 1]
        pieces = max(min(round(below * width / share), -(-width // 4)), 1)
        edges = [width * n // pieces for n in range(pieces + 1)]
        tasks += [(layer, first, last - first) for first, last in zip(edges, edges[1:])]
        parts += [
            (f"W{layer}", slice(*map(int, W[layer - 1 : layer + 1])), (width, below)),
            (f"b{layer}", slice(*map(int, b[layer - 1 : layer + 1])), (width,)),
        ]
    blocks = max(-(-B // ROWS), 1)
    starts = np.array([B * n // blocks for n in range(blocks + 1)])
    at = np.concatenate([[0], np.cumsum(strides)])
    worth = 1 + int(W[-1]) * max(B, TRAFFIC) // ALONE
    # dot products add up the lanes of vectors at their ends; but rows of the batch leave lanes idle
    turns = B >= 2 * lane or worth == 1 and 3 * lane <= 4 * B <= 4 * lane
    room = turns * int((K[1:] + K[:-1]).max()) * min(ACROSS, -(-B // lane)) * lane
    return Sizes(
        dtype,
        Layers(B, lane, K, strides, at, turns, W, b, starts, np.array(tasks)),
        B * int(at[-1]),
        slice(B * int(at[-3]), B * int(at[-2])),
        room,
        worth,
        tuple(name for name, *_ in parts),
        tuple(parts),
        [B * widths[0], *(prod(shape) for *_, shape in parts)],
        np.zeros(at[-1], dtype),
    )


@inner
def _combine(to: Arg, by: Arg, W: Arg, H: int, K: int) -> None:
    """``to[k] = sum_j by[j] W[j, k]``, over j in order, four rows at a time."""
    clear(to, 0, K)
    fours = H // 4 * 4
    for j in range(0, fours, 4):
        first, second, third, fourth = by[j], by[j + 1], by[j + 2], by[j + 3]
        row1, row2 = cut(W, j * K, K), cut(W, (j + 1) * K, K)
        row3, row4 = cut(W, (j + 2) * K, K), cut(W, (j + 3) * K, K)
        for k in range(K):
            to[k] = fma(
                fourth,
                row4[k],
                fma(third, row3[k], fma(second, row2[k], fma(first, row1[k], to[k]))),
            )
    for j in range(fours, H):
        only, row = by[j], cut(W, j * K, K)
        for k in range(K):
            to[k] = fma(only, row[k], to[k])


@inlined
def _affine(to: Arg, by: Arg, W: Arg, b: Arg, K: int, s: Arg, work: Arg, rows: int) -> None:
    """``to = by W' + b`` for ``Rows`` of a layer and of the one below it; W is H by K."""
    lane, H = s.lane, len(b)
    for r in range(0, rows, ACROSS * lane if s.turns else CHUNK):
        left = rows - r
        there, here = (
            cut(to.data, r * to.step, left * to.step),
            cut(by.data, r * by.step, left * by.step),
        )
        if s.turns:
            left = min(left, ACROSS * lane)
            vectors = (left + lane - 1) // lane
            across = vectors * lane
            columns, sums = cut(work, 0, K * across), cut(work, K * across, H * across)
            turn(columns, 0, across, here, 0, by.step, left, K)
            product(
                Rows(sums, across),
                Strided(W, K, 1),
                Rows(columns, across),
                K,
                H,
                vectors,
                lane,
                False,
            )
            turn(there, 0, to.step, sums, 0, across, H, left)
        else:
            dots(
                Rows(there, to.step), Rows(here, by.step), Rows(W, K), K, min(CHUNK, left), H, lane
            )
    for r in range(rows):
        row = cut(to.data, r * to.step, H)
        for j in range(H):
            row[j] += b[j]


@jit
def _forward(begin: int, end: int, work: Arg, s: Arg, given: Arg) -> None:
    mode = float_control(-1, FLUSH)
    act, places, x, h, a, outputs = given
    w, last = cut(work, boundary(work), work.size - boundary(work)), len(s.widths) - 1
    first, rows, D = s.starts[begin], s.starts[end] - s.starts[begin], s.widths[0]
    copy_rows(h, first * s.strides[0], s.strides[0], x, first * D, D, rows, D)
    for layer in range(1, last + 1):
        K, H = s.widths[layer - 1], s.widths[layer]
        below, stride = s.strides[layer - 1], s.strides[layer]
        start = s.B * s.at[layer] + first * stride
        seen = cut(h, s.B * s.at[layer - 1] + first * below, rows * below)
        now = cut(h, start, rows * stride)
        W, b = held(places, 2 * layer - 2, H * K, x), held(places, 2 * layer - 1, H, x)
        _affine(Rows(now, stride), Rows(seen, below), W, b, K, s, w, rows)
        if layer < last:
            if len(a):
                copy_rows(a, start, 0, now, 0, 0, 1, rows * stride)
            rule = Rule(act.code, act.alpha, cut(act.q, s.at[layer], stride))
            push(rule, now, rows, (H + s.lane - 1) // s.lane * s.lane, stride)
        else:
            copy_rows(outputs, first * H, H, now, 0, stride, rows, H)
    float_control(0, mode)


@inlined
def _through(to: Arg, by: Arg, W: Arg, H: int, K: int, rows: int, B: int, lane: int) -> None:
    """``to = by W`` for ``Rows`` of a layer, K wide, and of the one above it, H wide."""
    if B == 1:
        _combine(to.data, by.data, W, H, K)
    else:
        units = (K + lane - 1) // lane
        inside = max(H + 1 - (units * lane + K - 1) // K, 0)
        product(to, Strided(by.data, by.step, 1), Rows(W, K), inside, rows, units, lane, False)
        for j in range(inside, H):  # whole vectors would reach past the end of the matrix
            for r in range(rows):
                only, row = by.data[r * by.step + j], cut(W, j * K, K)
                target = cut(to.data, r * to.step, K)
                for k in range(K):
                    target[k] = fma(only, row[k], target[k])


@jit
def _deltas(begin: int, end: int, work: Arg, s: Arg, given: Arg) -> None:
    mode = float_control(-1, FLUSH)
    act, places, doutputs, h, a, deltas, dq, dx = given
    last = len(s.widths) - 1
    first, rows, C = s.starts[begin], s.starts[end] - s.starts[begin], s.widths[last]
    stride = s.strides[last]
    copy_rows(deltas, s.B * s.at[last] + first * stride, stride, doutputs, first * C, C, rows, C)
    for layer in range(last, 0, -1):
        if layer == 1 and not len(dx):
            break
        K, H = s.widths[layer - 1], s.widths[layer]
        below, stride = s.strides[layer - 1], s.strides[layer]
        above = cut(deltas, s.B * s.at[layer] + first * stride, rows * stride)
        e = cut(deltas, s.B * s.at[layer - 1] + first * below, rows * below)
        W = held(places, 2 * layer - 2, H * K, doutputs)
        _through(Rows(e, below), Rows(above, stride), W, H, K, rows, s.B, s.lane)
        if layer == 1:
            copy_rows(dx, first * K, K, e, 0, below, rows, K)
            break
        rule = Rule(act.code, act.alpha, cut(act.q, s.at[layer - 1], below))
        for block in range(begin, end):
            skip = (s.starts[block] - first) * below
            start = s.B * s.at[layer - 1] + first * below + skip
            count = s.starts[block + 1] - s.starts[block]
            size = count * below
            before = cut(a, start, size) if len(a) else cut(a, 0, 0)
            slopes = cut(dq, block * s.at[last] + s.at[layer - 1], below)
            pull(rule, before, cut(h, start, size), cut(e, skip, size), slopes, count, below)
    float_control(0, mode)


@jit
def _weights(begin: int, end: int, work: Arg, s: Arg, h: Arg, deltas: Arg, grads: Arg) -> None:
    mode = float_control(-1, FLUSH)
    lane = s.lane
    for task in range(begin, end):
        layer, first, rows = s.tasks[task, 0], s.tasks[task, 1], s.tasks[task, 2]
        K, below, stride = s.widths[layer - 1], s.strides[layer - 1], s.strides[layer]
        seen = cut(h, s.B * s.at[layer - 1], s.B * below)
        delta = cut(deltas, s.B * s.at[layer], s.B * stride)
        dW = cut(grads, s.W[layer - 1] + first * K, rows * K)
        db = cut(grads, s.b[layer - 1] + first, rows)
        clear(db, 0, rows)
        for r in range(s.B):
            row = cut(delta, r * stride + first, rows)
            for j in range(rows):
                db[j] += row[j]
        if s.B == 1 or K < lane:
            for r in range(s.B):
                other = cut(seen, r * below, K)
                for j in range(rows):
                    row, d = cut(dW, j * K, K), delta[r * stride + first + j]
                    if r:
                        for k in range(K):
                            row[k] = fma(d, other[k], row[k])
                    else:
                        for k in range(K):
                            row[k] = d * other[k]
            continue
        whole = K // lane
        at, last = 0, 0 if K % lane == 0 else min(whole, VECTORS[-1])
        for vectors in (whole + (last > 0) - last, last):
            if vectors:
                for start in range(0, s.B, CHUNK):
                    depth = min(CHUNK, s.B - start)
                    total = Rows(cut(dW, at, rows * K - at), K)
                    skip = start * stride + first
                    by = Strided(cut(delta, skip, depth * stride - first), 1, stride)
                    inputs = Rows(cut(seen, start * below + at, depth * below - at), below)
                    product(total, by, inputs, depth, rows, vectors, lane, start > 0)
            at = K - last * lane  # some columns a second time, as nothing fits beside a row
    float_control(0, mode)


def _run(kernel: Arg, plan: Sizes, blocks: int, *arguments: Arg, **options: Arg) -> None:
    threads = 1
    if plan.worth > 1:
        threads = max(min(get_threads(), blocks, plan.worth), 1)
    work = borrow((threads, plan.room + APART // plan.dtype.itemsize), plan.dtype)
    run(kernel, blocks, work, plan.layers, *arguments, **options)
    give_back(work)


def _rule(plan: Sizes, p: Params, act: Activation) -> Rule:
    if not act.start:
        return Rule(*settings(act, plan.dtype), plan.zeros)
    widths, at = plan.layers.widths, plan.layers.at
    q = plan.zeros.copy()
    for name, *_ in act.start:
        for layer in range(1, len(widths) - 1):
            q[at[layer] : at[layer] + widths[layer]] = by_unit(p[f"{name}{layer}"], widths[layer])
    return Rule(*settings(act, plan.dtype), q)


def forward(
    where: str, p: Params, x: Array, widths: tuple[int, ...], act: Activation
) -> tuple[Array, Array, Tape]:
    """The outputs (B, C), the last hidden layer's rows, and the tape, for x (B, D).

    Raises TypeError for dtypes other than float32 and float64.
    """
    dtype = common(where, x, *p.values())
    plan = sizes(dtype, len(x), widths)
    arrays = normals([p[name] for name in plan.names], dtype)
    admit_counts(where, (x, *arrays), plan.counts)
    weights = Weights(arrays, addresses_of(arrays), plan)
    h = aligned((plan.numbers,), dtype, clear=False)
    outputs = np.empty((len(x), widths[-1]), dtype)
    a = np.empty_like(h) if needs_a(act) else None
    tape = Tape(h, a, weights)
    _run(
        _forward,
        plan,
        len(plan.layers.starts) - 1,
        (
            _rule(plan, p, act),
            weights.places,
            normal(x, dtype),
            h,
            h[:0] if a is None else a,
            outputs,
        ),
        then=partial(backward, where, p, tape, outputs, widths, act),
    )
    rows = h[plan.rows].reshape(len(x), plan.layers.strides[-2])
    return outputs, rows[:, : widths[-2]], tape


def backward(
    where: str,
    p: Params,
    tape: Tape,
    doutputs: Array,
    widths: tuple[int, ...],
    act: Activation,
    inputs: bool = True,
) -> Params:
    """The gradients, by name, for the tape of ``forward``. Raises ValueError for one of other
    sizes, and for a cotangent that numbers of its dtype do not hold.

    The bits do not depend on the number of threads: which numbers are summed, and in which order,
    depends on the sizes alone.
    """
    dtype = common(where, tape.h)
    doutputs = join(f"{where}: doutputs", doutputs, "the tape", tape.h)
    B, last = len(doutputs), len(widths) - 1
    plan = sizes(dtype, B, widths)
    layers = plan.layers
    blocks = len(layers.starts) - 1
    weights, of = tape.weights, tape.weights.sizes
    if of is not plan and (of.dtype, of.counts) != (dtype, plan.counts):
        raise ValueError(
            f"{where}: the tape holds {of.dtype} arrays of {of.counts} numbers; need "
            f"{dtype} ones of {plan.counts}: pass what forward gave"
        )
    slopes = needs_a(act)
    a = tape.a if slopes and tape.a is not None else tape.h[:0]
    admit_counts(
        where, (doutputs, tape.h, a), [B * widths[-1], plan.numbers, plan.numbers * slopes]
    )
    deltas = borrow((plan.numbers,), dtype)
    dq = np.zeros((blocks, layers.at[last]), dtype)
    dx = np.empty((B * inputs, widths[0]), dtype)
    grads = (np.empty if B else np.zeros)(layers.b[-1], dtype)
    rule = _rule(plan, p, act)
    given = normal(doutputs, dtype)
    _run(_deltas, plan, blocks, (rule, weights.places, given, tape.h, a, deltas, dq, dx))
    _run(_weights, plan, len(layers.tasks), tape.h, deltas, grads)
    give_back(deltas)
    gradients = {
        name: grads[part].reshape(shape) if len(shape) > 1 else grads[part]
        for name, part, shape in plan.parts
    }
    if act.start:
        for layer in range(1, last):
            total = np.add.reduce(dq[:, layers.at[layer] : layers.at[layer] + widths[layer]])
            gradients |= {
                f"{name}{layer}": np.asarray(by_parameter(total, p[f"{name}{layer}"]))
                for name, *_ in act.start
            }
    if inputs:
        gradients["x"] = dx
    return gradients
