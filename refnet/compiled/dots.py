"""The product of rows with the rows of a matrix as they lie, by dot products along both: the
matrix is read once, in order, and needs no packing.

As in ``refnet.compiled.vector``, the intrinsic has a plain Python version below.
Checked by: tests/compiled/test_vector.py.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from refnet.compiled._jit import JIT, cgutils, inner
from refnet.compiled.vector import BYTES, LINE, REGISTERS, fma, fma_call, number, start_of

__all__ = ["COLUMNS", "dots"]

COLUMNS = 4
"""Columns of a tile, which are rows of the matrix; while it is computed, the lines of as many
that follow are prefetched."""

ROWS = (4, 2, 1) if REGISTERS == 32 else (3, 2, 1)
"""Rows of a tile, such that its sums, a vector of each row and one of a column fit into the
registers: 4 * 4 + 4 + 1 of 32, or 3 * 4 + 3 + 1 of 16."""

if JIT:

    @intrinsic  # type: ignore[untyped-decorator]
    def _tile(
        context: Any,
        c: Any,
        ci: Any,
        cs: Any,
        a: Any,
        ai: Any,
        ar: Any,
        w: Any,
        wi: Any,
        ws: Any,
        depth: Any,
        rows: Any,
        columns: Any,
    ) -> Any:
        """One tile, kept in registers over all of ``depth``, which is at least a vector::

            c[ci + r cs + j] = sum_k a[ai + r ar + k] w[wi + min(j, columns - 1) ws + k]

        for r < rows (one of ROWS) and j < COLUMNS. The sum in each lane of a vector runs over k in
        order; then the lanes are added, neighbours first."""
        ints = (types.intp,) * 2

        def generate(ctx: Any, builder: Any, sig: Any, args: Any) -> Any:
            c, ci, cs, a, ai, ar, w, wi, ws, depth, rows, columns = args
            size = sig.args[0].dtype.bitwidth // 8
            lane = BYTES // size
            vector = ir.VectorType(ctx.get_data_type(sig.args[0].dtype), lane)
            zeros = ir.Constant(vector, [0.0] * lane)
            one = depth.type(1)
            to, left, right = (
                start_of(ctx, builder, sig.args[n], *args[n : n + 2], *spans)
                for n, *spans in (
                    (0, (rows, cs), (depth.type(COLUMNS), one)),
                    (3, (rows, ar), (depth, one)),
                    (6, (columns, ws), (depth, one)),
                )
            )
            last = builder.sub(columns, columns.type(1))

            def at(base: Any, row: Any, apart: Any, kind: Any) -> Any:
                return builder.bitcast(
                    builder.gep(base, [builder.mul(row, apart)]), kind.as_pointer()
                )

            def added(sums: Any, sides: Any, k: Any, mask: Any) -> Any:
                ones, others = (
                    [
                        builder.load(
                            builder.bitcast(builder.gep(start, [k]), vector.as_pointer()),
                            align=size,
                        )
                        for start in side
                    ]
                    for side in sides
                )
                if mask is not None:
                    ones, others = (
                        [builder.select(mask, value, zeros) for value in side]
                        for side in (ones, others)
                    )
                return [
                    fma_call(builder, one, other, sums[n * COLUMNS + j])
                    for n, one in enumerate(ones)
                    for j, other in enumerate(others)
                ]

            done = builder.append_basic_block("done")
            nothing = builder.append_basic_block("nothing")
            with builder.goto_block(nothing):
                builder.unreachable()
            rest = builder.srem(depth, depth.type(lane))
            whole = builder.sub(depth, rest)
            numbers = ir.VectorType(depth.type, lane)
            undefined = ir.Constant(numbers, ir.Undefined)
            spread = _chosen(
                builder,
                builder.insert_element(undefined, rest, ir.IntType(32)(0)),
                undefined,
                [0] * lane,
            )
            # what follows the whole vectors of a row is the end of a vector
            mask = builder.icmp_signed(
                ">=",
                ir.Constant(numbers, list(range(lane))),
                builder.sub(ir.Constant(numbers, [lane] * lane), spread),
            )
            byte, flag = ir.IntType(8), ir.IntType(32)
            bring = cgutils.get_or_insert_function(
                builder.module,
                ir.FunctionType(ir.VoidType(), [byte.as_pointer(), *[flag] * 3]),
                "llvm.prefetch.p0",
            )
            following = builder.gep(right, [builder.mul(ws, ws.type(COLUMNS))])
            switch = builder.switch(rows, nothing)
            for R in ROWS:
                entry = builder.append_basic_block(f"dots{R}")
                loop, body, end, tail, store = (
                    builder.append_basic_block(name)
                    for name in ("loop", "body", "end", "tail", "store")
                )
                switch.add_case(rows.type(R), entry)
                builder.position_at_end(entry)
                sides = (
                    [at(left, ar.type(r), ar, vector.element) for r in range(R)],
                    [
                        at(
                            right,
                            builder.select(
                                builder.icmp_signed("<", last, ws.type(j)), last, ws.type(j)
                            ),
                            ws,
                            vector.element,
                        )
                        for j in range(COLUMNS)
                    ],
                )
                builder.branch(loop)
                builder.position_at_end(loop)
                k = builder.phi(depth.type)
                sums = [builder.phi(vector) for _ in range(R * COLUMNS)]
                k.add_incoming(depth.type(0), entry)
                for phi in sums:
                    phi.add_incoming(zeros, entry)
                builder.cbranch(builder.icmp_signed("<", k, whole), body, end)
                builder.position_at_end(body)
                for phi, value in zip(sums, added(sums, sides, k, None)):
                    phi.add_incoming(value, body)
                k.add_incoming(builder.add(k, k.type(lane)), body)
                for line in range(0, COLUMNS * lane, LINE // size):
                    place = builder.gep(
                        following, [builder.add(builder.mul(k, k.type(COLUMNS)), k.type(line))]
                    )
                    # to be read (0), into the nearest cache (3), as data (1)
                    builder.call(
                        bring, [builder.bitcast(place, byte.as_pointer()), *map(flag, (0, 3, 1))]
                    )
                builder.branch(loop)
                builder.position_at_end(end)
                builder.cbranch(builder.icmp_signed("==", rest, rest.type(0)), store, tail)
                builder.position_at_end(tail)
                more = added(sums, sides, builder.sub(depth, depth.type(lane)), mask)
                builder.branch(store)
                builder.position_at_end(store)
                totals = [builder.phi(vector) for _ in sums]
                for phi, before, after in zip(totals, sums, more):
                    phi.add_incoming(before, end)
                    phi.add_incoming(after, tail)
                for r in range(R):
                    four = totals[r * COLUMNS : (r + 1) * COLUMNS]
                    while len(four) > 1:
                        four = [_join(builder, *four[n : n + 2]) for n in range(0, len(four), 2)]
                    total = four[0]
                    while total.type.count > COLUMNS:
                        total = builder.fadd(*(_every_other(builder, total, n) for n in (0, 1)))
                    builder.store(total, at(to, cs.type(r), cs, total.type), align=size)
                builder.branch(done)
            builder.position_at_end(done)
            return ctx.get_dummy_value()

        return types.void(c, *ints, a, *ints, w, *ints, *ints, types.intp), generate

    def _chosen(builder: Any, one: Any, other: Any, order: Any) -> Any:
        return builder.shuffle_vector(
            one, other, ir.Constant(ir.VectorType(ir.IntType(32), len(order)), list(order))
        )

    def _join(builder: Any, one: Any, other: Any) -> Any:
        return _chosen(builder, one, other, range(2 * one.type.count))

    def _every_other(builder: Any, value: Any, first: int) -> Any:
        return _chosen(builder, value, value, range(first, value.type.count, 2))
else:

    def _tile(
        c: Any,
        ci: int,
        cs: int,
        a: Any,
        ai: int,
        ar: int,
        w: Any,
        wi: int,
        ws: int,
        depth: int,
        rows: int,
        columns: int,
    ) -> None:
        """The same number by number."""
        for r in range(rows):
            for j in range(COLUMNS):
                at = wi + min(j, columns - 1) * ws
                c[ci + r * cs + j] = sum(
                    [a[ai + r * ar + k] * w[at + k] for k in range(depth)], number(0.0, c[ci])
                )


@inner
def dots(
    c: Any, cs: int, a: Any, ar: int, w: Any, depth: int, rows: int, columns: int, lane: int
) -> None:
    """``c[r cs + j] = sum_k a[r ar + k] w[j depth + k]``, r < rows, j < columns, k < depth. The
    rows of c have room for columns padded to COLUMNS; what is written there means nothing."""
    for j in range(0, columns, COLUMNS):
        r = 0
        for size in ROWS:
            while r + size <= rows and depth >= lane:
                _tile(
                    c,
                    r * cs + j,
                    cs,
                    a,
                    r * ar,
                    ar,
                    w,
                    j * depth,
                    depth,
                    depth,
                    size,
                    min(COLUMNS, columns - j),
                )
                r += size
    if depth < lane:
        for r in range(rows):
            for j in range(columns):
                total = number(0.0, c[0])
                for k in range(depth):
                    total = fma(a[r * ar + k], w[j * depth + k], total)
                c[r * cs + j] = total
