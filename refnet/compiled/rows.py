"""What a layer needs beside the tile of a product: rows turned into columns, the dot product of two
rows, and arrays by their addresses. As in ``refnet.compiled.vector``, each intrinsic has a plain
Python version below.

Checked by: tests/test_vector.py.
"""

from ctypes import addressof, c_char
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from refnet.compiled._jit import JIT
from refnet.compiled.vector import BYTES, call_once, cut, fma_call, start_of

__all__ = ["addresses_of", "dot", "held", "turn"]

if JIT:
    @intrinsic  # type: ignore[untyped-decorator]
    def turn(context: Any, to: Any, at: Any, step: Any, source: Any, start: Any, stride: Any,
             rows: Any, count: Any) -> Any:
        """Copy the transpose of ``rows`` rows of ``count`` numbers between flat arrays that do not
        overlap: ``to[at + j step + r] = source[start + r stride + j]``. Squares of whole vectors
        are transposed in registers: in each of log2(lanes) rounds, vectors n and n + lanes / 2
        are dealt like two halves of a pack of cards into vectors 2 n and 2 n + 1."""
        size = to.dtype.bitwidth // 8

        def write(builder: Any, place: Any, step: Any, found: Any, stride: Any, rows: Any,
                  count: Any) -> None:
            lane = BYTES // size
            vector, half = ir.VectorType(place.type.pointee, lane), lane // 2
            deals = [ir.Constant(ir.VectorType(ir.IntType(32), lane), [
                first + n // 2 + lane * (n % 2) for n in range(lane)]) for first in (0, half)]

            def spot(base: Any, row: Any, apart: Any, column: Any, kind: Any) -> Any:
                index = builder.add(builder.mul(row, apart), column)
                return builder.bitcast(builder.gep(base, [index]), kind.as_pointer())

            def square(r: Any, j: Any) -> None:
                held = [builder.load(spot(found, builder.add(r, r.type(n)), stride, j, vector),
                                     align=size) for n in range(lane)]
                for _ in range(lane.bit_length() - 1):
                    held = [builder.shuffle_vector(held[n // 2], held[n // 2 + half],
                                                   deals[n % 2]) for n in range(lane)]
                for n in range(lane):
                    builder.store(held[n], spot(place, builder.add(j, j.type(n)), step, r, vector),
                                  align=size)

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
            place, found = (start_of(ctx, builder, sig.args[n], args[n], args[n + 1])
                            for n in (0, 3))
            call_once(builder, f"refnet.turn.{size}", (place, args[2], found, *args[5:]), write)
            return ctx.get_dummy_value()

        ints = (types.intp,) * 2
        return types.void(to, *ints, source, *ints, *ints), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def dot(context: Any, a: Any, ai: Any, b: Any, bi: Any, count: Any) -> Any:
        """``sum_k a[ai + k] b[bi + k]``, k < count: the sums of four vectors and of what is left
        over, added up in an order that ``count`` alone decides."""
        def generate(ctx: Any, builder: Any, sig: Any, args: Any) -> Any:
            size = a.dtype.bitwidth // 8
            lane = BYTES // size
            left, right = (builder.gep(ctx.make_array(sig.args[n])(ctx, builder, args[n]).data,
                                       [args[n + 1]]) for n in (0, 2))
            vector = ir.VectorType(ctx.get_data_type(a.dtype), lane)
            sums = [cgutils.alloca_once_value(builder, ir.Constant(kind, value)) for kind, value in
                    [(vector, [0.0] * lane)] * 4 + [(vector.element, 0.0)]]

            def add(place: Any, k: Any) -> None:
                kind = place.type.pointee
                one, other = (builder.load(builder.bitcast(builder.gep(side, [k]),
                                                           kind.as_pointer()), align=size)
                              for side in (left, right))
                builder.store(fma_call(builder, one, other, builder.load(place)), place)

            count = args[4]
            ends = [builder.sub(count, builder.srem(count, count.type(by))) for by in
                    (4 * lane, lane)]
            with cgutils.for_range_slice(builder, count.type(0), ends[0], count.type(4 * lane)
                                         ) as (k, _):
                for n in range(4):
                    add(sums[n], builder.add(k, k.type(n * lane)))
            with cgutils.for_range_slice(builder, ends[0], ends[1], count.type(lane)) as (k, _):
                add(sums[0], k)
            with cgutils.for_range_slice(builder, ends[1], count, count.type(1)) as (k, _):
                add(sums[4], k)
            one, two, three, four, rest = (builder.load(place) for place in sums)
            total = builder.fadd(builder.fadd(one, two), builder.fadd(three, four))
            while lane > 1:
                lane //= 2
                halves = (ir.Constant(ir.VectorType(ir.IntType(32), lane),
                                      list(range(n, n + lane))) for n in (0, lane))
                total = builder.fadd(*(builder.shuffle_vector(total, total, half)
                                       for half in halves))
            return builder.fadd(builder.extract_element(total, ir.IntType(32)(0)), rest)

        return a.dtype(a, types.intp, b, types.intp, types.intp), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def held(context: Any, addresses: Any, n: Any, count: Any, like: Any) -> Any:
        """The ``count`` numbers, of the type of those of ``like``, at ``addresses[n]``, which
        ``addresses_of`` gives: arrays that a kernel takes without being compiled for their
        number."""
        def generate(ctx: Any, builder: Any, sig: Any, args: Any) -> Any:
            places = ctx.make_array(addresses)(ctx, builder, args[0]).data
            part = ctx.make_array(sig.return_type)(ctx, builder)
            number = ctx.get_data_type(like.dtype)
            size = args[2].type(ctx.get_abi_sizeof(number))
            populate_array(part, builder.inttoptr(builder.load(builder.gep(places, [args[1]])),
                                                  number.as_pointer()), [args[2]], [size], size,
                           meminfo=None)
            return part._getvalue()

        return types.Array(like.dtype, 1, "C")(addresses, types.intp, types.intp, like), generate

    def addresses_of(arrays: Any) -> Any:
        """What ``held`` takes for these arrays, which ``layout.normal`` gave and which have to live
        as long."""
        # six times as fast as the attributes that say the same
        found = [addressof(c_char.from_buffer(array)) for array in arrays]
        return np.array(found, np.int64)
else:
    def turn(to: Any, at: int, step: int, source: Any, start: int, stride: int, rows: int,
             count: int) -> None:
        """Row by row."""
        for r in range(rows):
            for j in range(count):
                to[at + j * step + r] = source[start + r * stride + j]

    def dot(a: Any, ai: int, b: Any, bi: int, count: int) -> Any:
        """Number by number."""
        return sum([a[ai + k] * b[bi + k] for k in range(count)], a.dtype.type(0))

    def held(addresses: Any, n: int, count: int, like: Any) -> Any:
        """The array itself."""
        return cut(addresses[n], 0, count)

    def addresses_of(arrays: Any) -> Any:
        """The arrays themselves."""
        return list(arrays)
