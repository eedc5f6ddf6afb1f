"""A layer's needs besides its products: rows turned into columns, and arrays by their addresses.
As in ``refnet.compiled.vector``, each intrinsic has a plain Python version below.

Checked by: tests/compiled/test_vector.py.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from refnet.compiled._jit import JIT, cgutils
from refnet.compiled.annotations import IR, Arg
from refnet.compiled.vector import BYTES, array_at, call_once, cut, emitted, start_of, start_of_rows

__all__ = ["addresses_of", "held", "turn"]

if JIT:

    @emitted("to at step source start stride rows count")
    def turn(ctx: IR, builder: IR, kinds: IR, *args: IR) -> None:
        """Copy the transpose of ``rows`` rows of ``count`` numbers between flat arrays that do not
        overlap: ``to[at + j step + r] = source[start + r stride + j]``. Squares of whole vectors
        are transposed in registers: in each of log2(lanes) rounds, vectors n and n + lanes / 2
        are dealt like two halves of a pack of cards into vectors 2 n and 2 n + 1."""
        size = kinds[0].dtype.bitwidth // 8

        def write(builder: IR, *values: IR) -> None:
            to, step, source, stride, rows, count = values
            lane = BYTES // size
            vector, half = ir.VectorType(to.type.pointee, lane), lane // 2
            numbers = ir.VectorType(ir.IntType(32), lane)
            deals = [
                ir.Constant(numbers, [first + n // 2 + lane * (n % 2) for n in range(lane)])
                for first in (0, half)
            ]

            def spot(base: IR, row: IR, apart: IR, column: IR, kind: IR) -> IR:
                index = builder.add(builder.mul(row, apart), column)
                return builder.bitcast(builder.gep(base, [index]), kind.as_pointer())

            def square(r: IR, j: IR) -> None:
                held = [
                    builder.load(
                        spot(source, builder.add(r, r.type(n)), stride, j, vector), align=size
                    )
                    for n in range(lane)
                ]
                for _ in range(lane.bit_length() - 1):
                    held = [
                        builder.shuffle_vector(held[n // 2], held[n // 2 + half], deals[n % 2])
                        for n in range(lane)
                    ]
                for n in range(lane):
                    builder.store(
                        held[n], spot(to, builder.add(j, j.type(n)), step, r, vector), align=size
                    )

            def strip(r: IR, j: IR, last: IR) -> None:
                with cgutils.for_range_slice(builder, j, last, j.type(1)) as (c, _):
                    value = builder.load(spot(source, r, stride, c, vector.element))
                    builder.store(value, spot(to, c, step, r, vector.element))

            zero, by = rows.type(0), rows.type(lane)
            whole, wide = (builder.sub(n, builder.srem(n, by)) for n in (rows, count))
            with cgutils.for_range_slice(builder, zero, wide, by) as (j, _):
                with cgutils.for_range_slice(builder, zero, whole, by) as (r, _):
                    square(r, j)
            with cgutils.for_range(builder, rows) as r:
                inside = builder.icmp_signed("<", r.index, whole)
                strip(r.index, builder.select(inside, wide, zero), count)

        rows, count = args[6:]
        to = start_of_rows(ctx, builder, kinds[0], args[:3], count, rows)
        source = start_of_rows(ctx, builder, kinds[3], args[3:6], rows, count)
        call_once(builder, f"refnet.turn.{size}", (to, args[2], source, *args[5:]), write)

    @intrinsic  # type: ignore[untyped-decorator]
    def held(context: IR, addresses: IR, n: IR, count: IR, like: IR) -> IR:
        """The ``count`` numbers, of the type of those of ``like``, at ``addresses[n]``, which
        ``addresses_of`` gives: arrays that a kernel takes without being compiled for their
        number."""

        def generate(ctx: IR, builder: IR, sig: IR, args: IR) -> IR:
            place = start_of(ctx, builder, addresses, *args[:2], (args[1].type(1), args[1].type(1)))
            kind = ctx.get_data_type(like.dtype).as_pointer().as_pointer()
            start = builder.load(builder.inttoptr(builder.load(place), kind))
            return array_at(ctx, builder, sig.return_type, start, args[2])

        return types.Array(like.dtype, 1, "C")(addresses, types.intp, types.intp, like), generate

    def addresses_of(arrays: IR) -> IR:
        """What ``held`` takes for these arrays, which ``layout.normal`` gave and which have to live
        as long: where in each NumPy array, behind what all Python objects begin with, the address
        of its numbers stands. To ask for that address takes thirty times as long."""
        return np.fromiter(map(id, arrays), np.int64, len(arrays)) + object.__basicsize__
else:

    def turn(
        to: Arg, at: int, step: int, source: Arg, start: int, stride: int, rows: int, count: int
    ) -> None:
        """Row by row."""
        for r in range(rows):
            for j in range(count):
                to[at + j * step + r] = source[start + r * stride + j]

    def held(addresses: Arg, n: int, count: int, like: Arg) -> Arg:
        """The array itself."""
        return cut(addresses[n], 0, count)

    def addresses_of(arrays: Arg) -> Arg:
        """The arrays themselves."""
        return list(arrays)
