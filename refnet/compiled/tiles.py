"""Products of matrices, tile by tile: the sums of a tile stay in registers over the whole depth.

``product`` multiplies by a matrix whose rows are loaded in vectors. ``dots`` multiplies by the
rows of a matrix as they lie, by dot products along both: it reads the matrix once, in order, and
needs no packing. As in ``refnet.compiled.vector``, each intrinsic has a plain Python version.
Checked by: tests/compiled/test_vector.py.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from llvmlite import ir

from refnet.compiled._jit import JIT, cgutils, inner
from refnet.compiled.annotations import IR, Arg
from refnet.compiled.vector import (
    BYTES,
    LINE,
    REGISTERS,
    emitted,
    fma,
    fma_call,
    lanes,
    number,
    prefetch,
    start_of,
)

__all__ = [
    "COLUMNS",
    "ROWS",
    "TALL",
    "VECTORS",
    "Rows",
    "Strided",
    "dots",
    "panel_count",
    "product",
]

VECTORS, ROWS = ((1, 3, 4, 5), (4, 2, 1)) if REGISTERS == 32 else ((1, 2, 3), (4, 3, 2, 1))
"""The sizes of a tile of ``product``. The largest one's accumulators, a row of loaded vectors and
one broadcast value fit into the registers: 4 * 5 + 5 + 1 of 32 (AVX-512, NEON), or 4 * 3 + 3 + 1 of
16. With 32, three rows are done as two and one, and two vectors as one and one: all sizes up to the
largest would compile a quarter longer."""

TALL = 8
"""The rows of one more tile, for a single vector, because four sums would leave the processor idle:
a multiply-add takes about four cycles, and two begin in each."""

FIVE = 5
"""The rows of one more tile, of four vectors or more, where the rows are no multiple of four: a
row left over would take as long as two."""

COLUMNS = 4
"""Columns of a tile of ``dots``, which are rows of the matrix; while it is computed, the lines of
as many that follow are prefetched."""

DOT_ROWS = (4, 2, 1) if REGISTERS == 32 else (3, 2, 1)
"""Rows of such a tile. Its sums, a vector of each row and one of a column fit into the registers:
4 * 4 + 4 + 1 of 32, or 3 * 4 + 3 + 1 of 16."""


class Rows(NamedTuple):
    """A matrix in a flat array: number j of row r is ``data[r step + j]``."""

    data: Arg
    step: Arg


class Strided(NamedTuple):
    """A matrix in a flat array: number k of row r is ``data[r row + k column]``."""

    data: Arg
    row: Arg
    column: Arg


def _parts(builder: IR, kinds: IR, values: IR) -> list[IR]:
    """What is in each of these tuples."""
    return [cgutils.unpack_tuple(builder, value, len(kind)) for kind, value in zip(kinds, values)]


def _shuffle(builder: IR, first: IR, second: IR, order: Iterable[int]) -> IR:
    lanes = list(order)
    mask = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes)
    return builder.shuffle_vector(first, second, mask)


def _spread(builder: IR, value: IR, lane: int) -> IR:
    """A vector that holds the number in every lane."""
    undefined = ir.Constant(ir.VectorType(value.type, lane), ir.Undefined)
    first = builder.insert_element(undefined, value, ir.IntType(32)(0))
    return _shuffle(builder, first, undefined, [0] * lane)


def _place(builder: IR, base: IR, index: IR, kind: IR) -> IR:
    return builder.bitcast(builder.gep(base, [index]), kind.as_pointer())


def _choose(
    builder: IR, key: IR, cases: dict[int, Sequence[int]], emit: Callable[..., None]
) -> None:
    """Branch to what ``emit(*sizes)`` writes for the case that ``key`` names; it is one of them."""
    done, nothing = (builder.append_basic_block(name) for name in ("done", "nothing"))
    with builder.goto_block(nothing):
        builder.unreachable()
    switch = builder.switch(key, nothing)
    for case, sizes in cases.items():
        block = builder.append_basic_block("tile")
        switch.add_case(key.type(case), block)
        builder.position_at_end(block)
        emit(*sizes)
        builder.branch(done)
    builder.position_at_end(done)


def _sums(builder: IR, depth: IR, steps: Sequence[IR], zeros: Sequence[IR], add: IR) -> IR:
    """The sums that a loop accumulates: ``add(sums, *indices)`` gives the next ones. The indices
    start at 0 and go on by ``steps``, until the first one reaches ``depth``."""
    entry = builder.block
    loop, body, end = (builder.append_basic_block(name) for name in ("loop", "body", "end"))
    builder.branch(loop)
    builder.position_at_end(loop)
    indices = [builder.phi(step.type) for step in steps]
    sums = [builder.phi(zero.type) for zero in zeros]
    for phi, start in zip(indices + sums, [*(step.type(0) for step in steps), *zeros]):
        phi.add_incoming(start, entry)
    builder.cbranch(builder.icmp_signed("<", indices[0], depth), body, end)
    builder.position_at_end(body)
    after = add(sums, *indices)
    after = [*(builder.add(index, step) for index, step in zip(indices, steps)), *after]
    for phi, value in zip(indices + sums, after):
        phi.add_incoming(value, body)
    # to unroll the loop would take longer to compile without making it faster
    plainly = builder.module.add_metadata(["llvm.loop.unroll.disable"])
    name = builder.module.add_metadata([plainly])
    name.operands = (name, plainly)  # what LLVM knows the metadata of a loop by
    builder.branch(loop).set_metadata("llvm.loop", name)
    builder.position_at_end(end)
    return sums


if JIT:

    @emitted("c a w origin shape add")
    def tile(ctx: IR, builder: IR, kinds: IR, *args: IR) -> None:
        """One tile of a product, with c and w ``Rows``, and a ``Strided``; origin (r, j, at) and
        shape (depth, rows, vectors)::

            c[r + i, j + l] (+)= sum_k a[r + i, k] w.data[at + k w.step + l]

        for i < rows (one of ROWS) and l < vectors * lanes (vectors one of VECTORS), or i < TALL
        and one vector. The sum starts at 0 and runs over k in order with fused multiply-adds,
        whatever the size of the tile; then it is stored, or added to c.
        """
        (c, cs), (a, ar, ak), (w, ws), (r, j, at), (depth, rows, vectors) = _parts(
            builder, kinds, args[:5]
        )
        dtype = kinds[0][0].dtype
        size = dtype.bitwidth // 8
        lane = BYTES // size
        vector = ir.VectorType(ctx.get_data_type(dtype), lane)
        number, unit = depth.type, depth.type(1)
        broad = (builder.mul(vectors, number(lane)), unit)
        c, a, w = (
            start_of(ctx, builder, kinds[n][0], array, start, *spans)
            for n, array, start, *spans in (
                (0, c, builder.add(builder.mul(r, cs), j), (rows, cs), broad),
                (1, a, builder.mul(r, ar), (rows, ar), (depth, ak)),
                (2, w, at, (depth, ws), broad),
            )
        )

        def emit(rows: int, vectors: int) -> None:
            starts = [builder.mul(ar, number(r)) for r in range(rows)]

            def multiplied(sums: IR, k: IR, column: IR, row: IR) -> list[IR]:
                loaded = [
                    builder.load(
                        builder.gep(_place(builder, w, row, vector), [number(v)]), align=size
                    )
                    for v in range(vectors)
                ]
                after: list[IR] = []
                for start in starts:  # each load beside its products: LLVM keeps the order
                    scalar = builder.load(builder.gep(a, [builder.add(start, column)]))
                    factor = _spread(builder, scalar, lane)
                    totals = sums[len(after) : len(after) + vectors]
                    after += [fma_call(builder, factor, v, t) for v, t in zip(loaded, totals)]
                return after

            zeros = [ir.Constant(vector, [0.0] * lane)] * (rows * vectors)
            sums = _sums(builder, depth, (unit, ak, ws), zeros, multiplied)
            places = [
                _place(
                    builder, c, builder.add(builder.mul(cs, number(r)), number(v * lane)), vector
                )
                for r in range(rows)
                for v in range(vectors)
            ]
            with builder.if_else(builder.icmp_signed("!=", args[5], number(0))) as (plus, plain):
                with plus:
                    for place, total in zip(places, sums):
                        value = builder.load(place, align=size)
                        builder.store(builder.fadd(value, total), place, align=size)
                with plain:
                    for place, total in zip(places, sums):
                        builder.store(total, place, align=size)

        wide = VECTORS[-1] + 1
        shapes = [(TALL, 1), *((r, v) for r in ROWS for v in VECTORS)]
        shapes += [(FIVE, v) for v in VECTORS if v > 3]
        key = builder.add(builder.mul(rows, number(wide)), vectors)
        _choose(builder, key, {r * wide + v: (r, v) for r, v in shapes}, emit)

    @emitted("c a w origin shape")
    def dot_tile(ctx: IR, builder: IR, kinds: IR, *args: IR) -> None:
        """One tile, of three ``Rows``; origin (r, j) and shape (depth, at least a vector; rows;
        columns)::

            c[r + i, j + l] = sum_k a[r + i, k] w[j + min(l, columns - 1), k]

        for i < rows (one of DOT_ROWS) and l < COLUMNS. The sum in each lane of a vector runs over
        k in order; then the lanes are added, neighbours first."""
        (c, cs), (a, ar), (w, ws), (r, j), (depth, rows, columns) = _parts(builder, kinds, args)
        dtype = kinds[0][0].dtype
        size = dtype.bitwidth // 8
        lane = BYTES // size
        vector = ir.VectorType(ctx.get_data_type(dtype), lane)
        zero, unit, whole = ir.Constant(vector, [0.0] * lane), depth.type(1), depth.type
        c, a, w = (
            start_of(ctx, builder, kinds[n][0], array, start, *spans)
            for n, array, start, *spans in (
                (0, c, builder.add(builder.mul(r, cs), j), (rows, cs), (whole(COLUMNS), unit)),
                (1, a, builder.mul(r, ar), (rows, ar), (depth, unit)),
                (2, w, builder.mul(j, ws), (columns, ws), (depth, unit)),
            )
        )
        rest = builder.srem(depth, whole(lane))
        mask = _last_lanes(builder, rest, lane)
        last = builder.sub(columns, unit)
        following = builder.gep(w, [builder.mul(ws, whole(COLUMNS))])

        def emit(count: int) -> None:
            rows = [builder.gep(a, [builder.mul(ar, whole(r))]) for r in range(count)]
            nearest = [_smaller(builder, last, whole(j)) for j in range(COLUMNS)]
            columns = [builder.gep(w, [builder.mul(j, ws)]) for j in nearest]

            def multiplied(sums: IR, k: IR, masked: bool = False) -> list[IR]:
                left, right = (
                    [builder.load(_place(builder, s, k, vector), align=size) for s in starts]
                    for starts in (rows, columns)
                )
                if masked:
                    left, right = (
                        [builder.select(mask, value, zero) for value in side]
                        for side in (left, right)
                    )
                pairs = [(x, y) for x in left for y in right]
                return [fma_call(builder, *pair, total) for pair, total in zip(pairs, sums)]

            def step(sums: IR, k: IR) -> list[IR]:
                after = multiplied(sums, k)
                for line in range(0, COLUMNS * lane, LINE // size):
                    at = builder.add(builder.mul(k, whole(COLUMNS)), whole(line))
                    prefetch(builder, _place(builder, following, at, ir.IntType(8)), write=False)
                return after

            stop = builder.sub(depth, rest)
            sums = _sums(builder, stop, (whole(lane),), [zero] * (count * COLUMNS), step)
            end = builder.block
            with builder.if_then(builder.icmp_signed("!=", rest, whole(0))):
                more, tail = multiplied(sums, builder.sub(depth, whole(lane)), True), builder.block
            totals = [builder.phi(vector) for _ in sums]
            for phi, before, after in zip(totals, sums, more):
                phi.add_incoming(before, end)
                phi.add_incoming(after, tail)
            for r in range(count):
                total = _lane_sums(builder, totals[r * COLUMNS : (r + 1) * COLUMNS])
                to = _place(builder, c, builder.mul(cs, whole(r)), total.type)
                builder.store(total, to, align=size)

        _choose(builder, rows, {count: (count,) for count in DOT_ROWS}, emit)

    def _smaller(builder: IR, first: IR, second: IR) -> IR:
        return builder.select(builder.icmp_signed("<", first, second), first, second)

    def _last_lanes(builder: IR, rest: IR, lane: int) -> IR:
        """Whether a lane is one of the last ``rest``, which is where those numbers of a row stand
        that follow its whole vectors."""
        counted = ir.Constant(ir.VectorType(rest.type, lane), list(range(-lane, 0)))
        return builder.icmp_signed(">=", counted, builder.neg(_spread(builder, rest, lane)))

    def _lane_sums(builder: IR, vectors: list[IR]) -> IR:
        """The sum over the lanes of each vector, neighbours first: a vector of these sums."""
        count = len(vectors)
        while len(vectors) > 1:
            vectors = [
                _shuffle(builder, first, second, range(2 * first.type.count))
                for first, second in zip(vectors[::2], vectors[1::2])
            ]
        (total,) = vectors
        while total.type.count > count:
            total = builder.fadd(
                *(_shuffle(builder, total, total, range(n, total.type.count, 2)) for n in (0, 1))
            )
        return total
else:

    def tile(c: Arg, a: Arg, w: Arg, origin: Arg, shape: Arg, add: bool) -> None:
        """The micro-kernel in plain Python."""
        (first, j, start), (depth, rows, vectors) = origin, shape
        for r in range(first, first + rows):
            for n in range(vectors * lanes(w.data.dtype)):
                total = c.data.dtype.type(0) if c.data.dtype.kind == "f" else 0
                for k in range(depth):
                    value = a.data[r * a.row + k * a.column]
                    total = fma(value, w.data[start + k * w.step + n], total)
                at = r * c.step + j + n
                c.data[at] = c.data[at] + total if add else total

    def dot_tile(c: Arg, a: Arg, w: Arg, origin: Arg, shape: Arg) -> None:
        """The same number by number."""
        (first, left), (depth, rows, columns) = origin, shape
        for r in range(first, first + rows):
            for j in range(COLUMNS):
                at = (left + min(j, columns - 1)) * w.step
                c.data[r * c.step + left + j] = sum(
                    [a.data[r * a.step + k] * w.data[at + k] for k in range(depth)],
                    number(0.0, c.data[0]),
                )


@inner
def panel_count(vectors: int) -> int:
    """The number of panels into which this many vectors of columns are split, such that the size
    of each panel is one of VECTORS."""
    if vectors < VECTORS[1]:
        return vectors
    return (vectors + VECTORS[-1] - 1) // VECTORS[-1]


@inner
def product(
    c: Arg, a: Arg, w: Arg, depth: int, rows: int, vectors: int, lane: int, add: bool
) -> None:
    """``c[r, j] (+)= sum_k a[r, k] w[k, j]``, r < rows, j < vectors * lane, of ``Rows`` c and w
    and ``Strided`` a. A w of step 0 is packed (``refnet.compiled.layout.pack``).

    Every entry is summed over k in order, so that its bits do not depend on how the rows are split
    into tiles.
    """
    panels = panel_count(vectors)
    for n in range(panels):
        first = vectors * n // panels
        count = vectors * (n + 1) // panels - first
        j = first * lane
        start, step = (j, w.step) if w.step else (j * depth, count * lane)
        panel = Rows(w.data, step)
        r = 0
        for size in (TALL, FIVE, *ROWS):
            if r == rows:
                break
            if size < FIVE or count == 1 and size == TALL or count > 3 and size == FIVE:
                while r + size <= rows and (size != FIVE or (rows - r) % 4):
                    tile(c, a, panel, (r, j, start), (depth, size, count), add)
                    r += size


@inner
def dots(c: Arg, a: Arg, w: Arg, depth: int, rows: int, columns: int, lane: int) -> None:
    """``c[r, j] = sum_k a[r, k] w[j, k]``, r < rows, j < columns, k < depth, of ``Rows``. The rows
    of c have room for columns padded to COLUMNS; what is written there means nothing."""
    for j in range(0, columns, COLUMNS):
        r = 0
        for size in DOT_ROWS:
            while r + size <= rows and depth >= lane:
                dot_tile(c, a, w, (r, j), (depth, size, min(COLUMNS, columns - j)))
                r += size
    if depth < lane:
        for r in range(rows):
            for j in range(columns):
                total = number(0.0, c.data[0])
                for k in range(depth):
                    total = fma(a.data[r * a.step + k], w.data[j * w.step + k], total)
                c.data[r * c.step + j] = total
