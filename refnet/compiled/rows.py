"""A layer's needs besides its products: rows turned into columns, and arrays by their addresses.
As in ``refnet.compiled.vector``, each intrinsic has a plain Python version below.

Checked by: tests/compiled/test_vector.py.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from refnet.compiled._jit import JIT, cgutils, populate_array
from refnet.compiled.vector import BYTES, call_once, cut, start_of

__all__ = ["addresses_of", "held", "turn"]

if JIT:

    @intrinsic  # type: ignore[untyped-decorator]
    def turn(
        context: Any,
        to: Any,
        at: Any,
        step: Any,
        source: Any,
        start: Any,
        stride: Any,
        rows: Any,
        count: Any,
    ) -> Any:
        """Copy the transpose of ``rows`` rows of ``count`` numbers between flat arrays that do not
        overlap: ``to[at + j step + r] = source[start + r stride + j]``. Squares of whole vectors
        are transposed in registers: in each of log2(lanes) rounds, vectors n and n + lanes / 2
        are dealt like two halves of a pack of cards into vectors 2 n and 2 n + 1."""
        size = to.dtype.bitwidth // 8

        def write(
            builder: Any, place: Any, step: Any, found: Any, stride: Any, rows: Any, count: Any
        ) -> None:
            lane = BYTES // size
            vector, half = ir.VectorType(place.type.pointee, lane), lane // 2
            deals = [
                ir.Constant(
                    ir.VectorType(ir.IntType(32), lane),
                    [first + n // 2 + lane * (n % 2) for n in range(lane)],
                )
                for first in (0, half)
            ]

            def spot(base: Any, row: Any, apart: Any, column: Any, kind: Any) -> Any:
                index = builder.add(builder.mul(row, apart), column)
                return builder.bitcast(builder.gep(base, [index]), kind.as_pointer())

            def square(r: Any, j: Any) -> None:
                held = [
                    builder.load(
                        spot(found, builder.add(r, r.type(n)), stride, j, vector), align=size
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
                        held[n], spot(place, builder.add(j, j.type(n)), step, r, vector), align=size
                    )

            def strip(r: Any, j: Any, last: Any) -> None:
                with cgutils.for_range_slice(builder, j, last, j.type(1)) as (c, _):
                    value = builder.load(spot(found, r, stride, c, vector.element))
                    builder.store(value, spot(place, c, step, r, vector.element))

            zero, by = rows.type(0), rows.type(lane)
            whole, wide = (builder.sub(n, builder.srem(n, by)) for n in (rows, count))
            with cgutils.for_range_slice(builder, zero, wide, by) as (j, _):
                with cgutils.for_range_slice(builder, zero, whole, by) as (r, _):
                    square(r, j)
            with cgutils.for_range(builder, rows) as r:
                inside = builder.icmp_signed("<", r.index, whole)
                strip(r.index, builder.select(inside, wide, zero), count)

        def generate(ctx: Any, builder: Any, sig: Any, args: Any) -> Any:
            place, found = (
                start_of(
                    ctx,
                    builder,
                    sig.args[n],
                    *args[n : n + 2],
                    (outer, args[n + 2]),
                    (inner, inner.type(1)),
                )
                for n, outer, inner in ((0, args[7], args[6]), (3, args[6], args[7]))
            )
            call_once(builder, f"refnet.turn.{size}", (place, args[2], found, *args[5:]), write)
            return ctx.get_dummy_value()

        ints = (types.intp,) * 2
        return types.void(to, *ints, source, *ints, *ints), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def held(context: Any, addresses: Any, n: Any, count: Any, like: Any) -> Any:
        """The ``count`` numbers, of the type of those of ``like``, at ``addresses[n]``, which
        ``addresses_of`` gives: arrays that a kernel takes without being compiled for their
        number."""

        def generate(ctx: Any, builder: Any, sig: Any, args: Any) -> Any:
            place = start_of(ctx, builder, addresses, *args[:2], (args[1].type(1), args[1].type(1)))
            part = ctx.make_array(sig.return_type)(ctx, builder)
            number = ctx.get_data_type(like.dtype)
            size = args[2].type(ctx.get_abi_sizeof(number))
            found = builder.inttoptr(builder.load(place), number.as_pointer().as_pointer())
            populate_array(part, builder.load(found), [args[2]], [size], size, meminfo=None)
            return part._getvalue()

        return types.Array(like.dtype, 1, "C")(addresses, types.intp, types.intp, like), generate

    def addresses_of(arrays: Any) -> Any:
        """What ``held`` takes for these arrays, which ``layout.normal`` gave and which have to live
        as long: where in each NumPy array, behind what all Python objects begin with, the address
        of its numbers stands. To ask for that address takes thirty times as long."""
        return np.fromiter(map(id, arrays), np.int64, len(arrays)) + object.__basicsize__
else:

    def turn(
        to: Any, at: int, step: int, source: Any, start: int, stride: int, rows: int, count: int
    ) -> None:
        """Row by row."""
        for r in range(rows):
            for j in range(count):
                to[at + j * step + r] = source[start + r * stride + j]

    def held(addresses: Any, n: int, count: int, like: Any) -> Any:
        """The array itself."""
        return cut(addresses[n], 0, count)

    def addresses_of(arrays: Any) -> Any:
        """The arrays themselves."""
        return list(arrays)
