"""Operations written as LLVM intrinsics: fused multiply-add, typed constants, copies, the register
tile of a matrix product.

Each intrinsic has a plain Python version below, which runs when the JIT is off and takes numbers
of any type, Fractions included. With NUMBA_BOUNDSCHECK=1 in the environment, each raises IndexError
before it reaches past an array, as Numba's own indexing then does.
Checked by: tests/compiled/test_vector.py.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import types
from numba.extending import intrinsic

from refnet.compiled._jit import JIT, cgutils, populate_array

__all__ = [
    "BYTES",
    "FLUSH",
    "REGISTERS",
    "ROWS",
    "TALL",
    "VECTORS",
    "clear",
    "copy_rows",
    "cut",
    "fetch",
    "float_control",
    "fma",
    "lanes",
    "number",
    "power",
    "split",
    "tile",
    "whole_registers",
]

try:
    _FEATURES = get_host_cpu_features()
except RuntimeError:  # LLVM cannot tell on some ARM systems
    _FEATURES = {}
# BYTES: the size of a vector register. Zen 4 executes 64 bytes as two halves, but in half as many
# instructions: a step takes .80 to .97 times as long as with 32, although more is padded. ROWS and
# VECTORS: the sizes of a tile. The largest one's accumulators, a row of loaded vectors and one
# broadcast value fit into the REGISTERS: 4 * 5 + 5 + 1 of 32 (AVX-512, NEON), or 4 * 3 + 3 + 1 of
# 16. With 32, three rows are done as two and one, and two vectors as one and one: all sizes up to
# the largest would compile a quarter longer. TALL: the rows of one more tile, for a single vector,
# because four sums would leave the processor idle: a multiply-add takes about four cycles, and two
# begin in each.
_WIDE = bool(_FEATURES.get("avx512f"))
BYTES = 64 if _WIDE else 32 if _FEATURES.get("avx2") else 16
REGISTERS = 32 if _WIDE or _FEATURES.get("neon") else 16
VECTORS, ROWS = ((1, 3, 4, 5), (4, 2, 1)) if REGISTERS == 32 else ((1, 2, 3), (4, 3, 2, 1))
TALL = 8
LINE = 64
"""Bytes of a cache line."""

FLUSH = 0x8040 if _FEATURES.get("sse2") else 0
"""The bits that a cell's kernels set with ``float_control``: subnormal numbers, as operands and as
results, are replaced by zero. Some processors handle each of them in slow microcode, and a gradient
that vanishes over thousands of steps can stay subnormal, because rounding to nearest keeps the
smallest one from becoming zero.
Checked by: tests/compiled/test_compiled.py::test_subnormal_numbers_count_as_zero."""


def lanes(dtype: Any) -> int:
    """The number of entries in a vector register; 4 for exact numbers, to test the padding."""
    return BYTES // dtype.itemsize if dtype.kind == "f" else 4


def fma_call(builder: Any, *values: Any) -> Any:
    """``a b + c``, rounded once, of three LLVM values of one type: numbers, or whole vectors."""
    type_ = values[0].type
    vector = isinstance(type_, ir.VectorType)
    element = type_.element if vector else type_
    name = "f32" if element == ir.FloatType() else "f64"
    if vector:
        name = f"v{type_.count}{name}"
    return builder.call(
        cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(type_, [type_] * 3), f"llvm.fma.{name}"
        ),
        values,
    )


def call_once(builder: Any, name: str, args: Any, write: Callable[..., None]) -> None:
    """Call the function of that name, which ``write(builder, *args)`` writes if the module has
    none. It is not inlined: to optimise a copy at every call would take most of a compilation.
    Its pointers must not overlap."""
    kind = ir.FunctionType(ir.VoidType(), [value.type for value in args])
    function = cgutils.get_or_insert_function(builder.module, kind, name)
    if function.is_declaration:
        function.linkage = "linkonce_odr"
        function.attributes.add("noinline")
        for value in function.args:
            if isinstance(value.type, ir.PointerType):
                value.add_attribute("noalias")
        body = ir.IRBuilder(function.append_basic_block())
        write(body, *function.args)
        body.ret_void()
    builder.call(function, args)


def start_of(
    ctx: Any, builder: Any, kind: Any, array: Any, at: Any, *spans: tuple[Any, Any]
) -> Any:
    """The address of number ``at`` of a flat array. Read or written from there on are numbers in
    ``spans``, each (count, apart): some rows that lie apart, say, and the numbers of a row."""
    whole = ctx.make_array(kind)(ctx, builder, array)
    if ctx.enable_boundscheck and spans:
        last, some = at, ir.Constant(ir.IntType(1), 1)
        for count, apart in spans:
            last = builder.add(last, builder.mul(builder.sub(count, at.type(1)), apart))
            some = builder.and_(some, builder.icmp_signed(">", count, at.type(0)))
        outside = builder.or_(
            builder.icmp_signed("<", at, at.type(0)), builder.icmp_signed(">=", last, whole.nitems)
        )
        with cgutils.if_unlikely(builder, builder.and_(some, outside)):
            ctx.call_conv.return_user_exc(builder, IndexError, ("past the end of an array",))
    return builder.gep(whole.data, [at])


if JIT:

    @intrinsic  # type: ignore[untyped-decorator]
    def fma(context: Any, a: Any, b: Any, c: Any) -> Any:
        """``a b + c``, rounded once."""
        return a(a, a, a), lambda ctx, builder, sig, args: fma_call(builder, *args)

    @intrinsic  # type: ignore[untyped-decorator]
    def number(context: Any, value: Any, like: Any) -> Any:
        """The constant ``value`` in the type of ``like``."""

        def generate(ctx: Any, builder: Any, sig: Any, args: Any) -> Any:
            return ctx.cast(builder, args[0], value, like)

        return like(value, like), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def power(context: Any, n: Any) -> Any:
        """2^k from a number whose lowest bits hold k + bias: a shift into the exponent's bits."""

        def generate(ctx: Any, builder: Any, sig: Any, args: Any) -> Any:
            bits, shift = (32, 23) if n.bitwidth == 32 else (64, 52)
            whole = builder.bitcast(args[0], ir.IntType(bits))
            return builder.bitcast(builder.shl(whole, ir.Constant(whole.type, shift)), args[0].type)

        return n(n), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def copy_rows(
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
        """Copy ``rows`` rows of ``count`` numbers between flat arrays that do not overlap:
        ``to[at + r step + j] = source[start + r stride + j]``. It copies whole vectors, which LLVM
        does not do by itself in a loop over such indices, and calls no memcpy for each row."""
        size = to.dtype.bitwidth // 8

        def write(
            builder: Any, place: Any, step: Any, found: Any, stride: Any, rows: Any, count: Any
        ) -> None:
            number = place.type.pointee
            vector = ir.VectorType(number, BYTES // size)
            lane = count.type(vector.count)

            def move(first: Any, other: Any, at: Any, kind: Any) -> None:
                other, first = (
                    builder.bitcast(builder.gep(row, [at]), kind.as_pointer())
                    for row in (other, first)
                )
                builder.store(builder.load(other, align=size), first, align=size)

            with cgutils.for_range(builder, rows) as r:
                row, other = (
                    builder.gep(start, [builder.mul(r.index, apart)])
                    for start, apart in ((place, step), (found, stride))
                )
                with builder.if_else(builder.icmp_signed("<", count, lane)) as (narrow, wide):
                    with narrow, cgutils.for_range(builder, count) as j:
                        move(row, other, j.index, number)
                    with wide:
                        last = builder.sub(count, lane)
                        with cgutils.for_range_slice(builder, lane.type(0), last, lane) as (j, _):
                            move(row, other, j, vector)
                        move(row, other, last, vector)  # some numbers a second time

        def generate(ctx: Any, builder: Any, sig: Any, args: Any) -> Any:
            rows, count = args[6:]
            place, found = (
                start_of(
                    ctx,
                    builder,
                    sig.args[n],
                    *args[n : n + 2],
                    (rows, args[n + 2]),
                    (count, count.type(1)),
                )
                for n in (0, 3)
            )
            call_once(
                builder, f"refnet.copy_rows.{size}", (place, args[2], found, *args[5:]), write
            )
            return ctx.get_dummy_value()

        ints = (types.intp,) * 2
        return types.void(to, *ints, source, *ints, *ints), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def cut(context: Any, array: Any, at: Any, count: Any) -> Any:
        """``array.reshape(-1)[at:at + count]`` of an array in C order. A slice would take ten
        times as long to compile."""

        def generate(ctx: Any, builder: Any, sig: Any, args: Any) -> Any:
            whole = ctx.make_array(array)(ctx, builder, args[0])
            part = ctx.make_array(sig.return_type)(ctx, builder)
            start = start_of(ctx, builder, array, *args[:2], (args[2], args[2].type(1)))
            populate_array(part, start, [args[2]], [whole.itemsize], whole.itemsize, meminfo=None)
            return part._getvalue()

        return types.Array(array.dtype, 1, "C")(array, types.intp, types.intp), generate

    @intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
    def split(context: Any, array: Any, apart: Any, size: Any, count: Any) -> Any:
        """A tuple of ``count`` parts of a flat array, each ``size`` numbers, which start ``apart``;
        ``count`` is a constant."""
        part = types.Array(array.dtype, 1, "C")
        number = types.unliteral(size)

        def generate(ctx: Any, builder: Any, sig: Any, args: Any) -> Any:
            whole = ctx.make_array(array)(ctx, builder, args[0])
            parts = []
            for n in range(count.literal_value):
                made = ctx.make_array(part)(ctx, builder)
                at = builder.mul(args[1], ir.Constant(args[1].type, n))
                start = start_of(ctx, builder, array, args[0], at, (args[2], at.type(1)))
                populate_array(
                    made, start, [args[2]], [whole.itemsize], whole.itemsize, meminfo=None
                )
                parts.append(made._getvalue())
            return ctx.make_tuple(builder, sig.return_type, parts)

        return types.UniTuple(part, count.literal_value)(array, number, number, count), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def fetch(context: Any, to: Any, at: Any, count: Any) -> Any:
        """Prefetch the cache lines of ``to[at:at + count]`` for writing. Indices past the end of
        the array are allowed."""

        def generate(ctx: Any, builder: Any, sig: Any, args: Any) -> Any:
            size, byte, flag = sig.args[0].dtype.bitwidth // 8, ir.IntType(8), ir.IntType(32)
            place = builder.bitcast(
                builder.gep(ctx.make_array(to)(ctx, builder, args[0]).data, [args[1]]),
                byte.as_pointer(),
            )
            bring = cgutils.get_or_insert_function(
                builder.module,
                ir.FunctionType(ir.VoidType(), [byte.as_pointer(), flag, flag, flag]),
                "llvm.prefetch.p0",
            )
            end = builder.mul(args[2], args[2].type(size))
            with cgutils.for_range_slice(builder, end.type(0), end, end.type(LINE)) as (n, _):
                # to be written (1), into the nearest cache (3), as data (1)
                builder.call(bring, [builder.gep(place, [n]), flag(1), flag(3), flag(1)])
            return ctx.get_dummy_value()

        return types.void(to, types.intp, types.intp), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def float_control(context: Any, keep: Any, add: Any) -> Any:
        """Set this thread's floating-point control register (x86: MXCSR) to
        ``(old & keep) | add`` and return the old value; elsewhere do nothing and return 0."""

        def generate(ctx: Any, builder: Any, sig: Any, args: Any) -> Any:
            if not FLUSH:
                return args[0].type(0)
            word = cgutils.alloca_once(builder, ir.IntType(32))
            place = builder.bitcast(word, ir.IntType(8).as_pointer())
            kind = ir.FunctionType(ir.VoidType(), [place.type])
            store, load = (
                cgutils.get_or_insert_function(builder.module, kind, f"llvm.x86.sse.{name}mxcsr")
                for name in ("st", "ld")
            )
            builder.call(store, [place])
            before = builder.load(word)
            wanted = (builder.trunc(value, before.type) for value in args)
            builder.store(builder.or_(builder.and_(before, next(wanted)), next(wanted)), word)
            builder.call(load, [place])
            return builder.zext(before, args[0].type)

        return types.intp(types.intp, types.intp), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def whole_registers(context: Any) -> Any:
        """Make LLVM use vectors of BYTES in the loops of the calling function. By default it uses
        half a register on processors where full ones once lowered the clock rate."""

        def generate(ctx: Any, builder: Any, sig: Any, args: Any) -> Any:
            wanted = f'"prefer-vector-width"="{8 * BYTES}"'
            # the attributes' own method ``add`` refuses names that llvmlite does not list
            set.add(builder.function.attributes, wanted)
            return ctx.get_dummy_value()

        return types.void(), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def clear(context: Any, to: Any, at: Any, count: Any) -> Any:
        """``to[at:at + count] = 0`` of a flat array."""

        def generate(ctx: Any, builder: Any, sig: Any, args: Any) -> Any:
            size = sig.args[0].dtype.bitwidth // 8
            place = start_of(ctx, builder, to, *args[:2], (args[2], args[2].type(1)))
            cgutils.memset(builder, place, builder.mul(args[2], ir.Constant(args[2].type, size)), 0)
            return ctx.get_dummy_value()

        return types.void(to, types.intp, types.intp), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def tile(
        context: Any,
        c: Any,
        ci: Any,
        cs: Any,
        a: Any,
        ai: Any,
        ar: Any,
        ak: Any,
        w: Any,
        wi: Any,
        ws: Any,
        depth: Any,
        rows: Any,
        vectors: Any,
        add: Any,
    ) -> Any:
        """One tile of a product, kept in registers over all of ``depth``::

            c[ci + r cs + j] (+)= sum_k a[ai + r ar + k ak] w[wi + k ws + j]

        for r < rows (one of ROWS) and j < vectors * lanes (vectors one of VECTORS), or r < TALL
        and one vector, on flat arrays. The sum starts at 0 and runs over k in order with fused
        multiply-adds, whatever the size of the tile; then it is stored, or added to c.
        """
        ints = (types.intp,) * 3
        sig = types.void(
            c,
            types.intp,
            types.intp,
            a,
            *ints,
            w,
            types.intp,
            types.intp,
            types.intp,
            types.intp,
            types.intp,
            types.boolean,
        )

        def generate(ctx: Any, builder: Any, sig: Any, args: Any) -> Any:
            return _tiles(ctx, builder, sig, args)

        return sig, generate
else:

    def fma(a: Any, b: Any, c: Any) -> Any:
        """``a b + c``."""
        return a * b + c

    def number(value: float, like: Any) -> Any:
        """The constant ``value`` in the type of ``like``."""
        return like.dtype.type(value) if hasattr(like, "dtype") else Fraction(value)

    def power(n: Any) -> Any:
        bits, shift = (np.int32, 23) if n.dtype.itemsize == 4 else (np.int64, 52)
        return (n.view(bits) << bits(shift)).view(n.dtype)

    def copy_rows(
        to: Any, at: int, step: int, source: Any, start: int, stride: int, rows: int, count: int
    ) -> None:
        """Row by row."""
        for r in range(rows):
            cut(to, at + r * step, count)[:] = cut(source, start + r * stride, count)

    def cut(array: Any, at: int, count: int) -> Any:
        """``array.reshape(-1)[at:at + count]``."""
        if not 0 <= at <= at + count <= array.size:
            raise IndexError(f"numbers {at} to {at + count} of {array.size}")
        return array.reshape(-1)[at : at + count]

    def split(array: Any, apart: int, size: int, count: int) -> Any:
        """The parts, cut one by one."""
        return tuple(cut(array, n * apart, size) for n in range(count))

    def fetch(to: Any, at: int, count: int) -> None:
        """Nothing."""

    def float_control(keep: int, add: int) -> int:
        """Nothing."""
        return 0

    def whole_registers() -> None:
        """Nothing."""

    def clear(to: Any, at: int, count: int) -> None:
        """``to[at:at + count] = 0``."""
        cut(to, at, count)[:] = 0

    def tile(
        c: Any,
        ci: int,
        cs: int,
        a: Any,
        ai: int,
        ar: int,
        ak: int,
        w: Any,
        wi: int,
        ws: int,
        depth: int,
        rows: int,
        vectors: int,
        add: bool,
    ) -> None:
        """The micro-kernel in plain Python."""
        for r in range(rows):
            for j in range(vectors * lanes(w.dtype)):
                total = c.dtype.type(0) if c.dtype.kind == "f" else 0
                for k in range(depth):
                    total = fma(a[ai + r * ar + k * ak], w[wi + k * ws + j], total)
                at = ci + r * cs + j
                c[at] = c[at] + total if add else total


def _back(builder: Any, loop: Any) -> None:
    """Branch back to the start of a loop and forbid LLVM to unroll it, which would take longer to
    compile without making it faster."""
    plainly = builder.module.add_metadata(["llvm.loop.unroll.disable"])
    own = builder.module.add_metadata([plainly])
    own.operands = (own, plainly)  # what LLVM knows the metadata of a loop by
    builder.branch(loop).set_metadata("llvm.loop", own)


def _tiles(ctx: Any, builder: Any, sig: Any, args: Any) -> Any:
    """A branch for every tile of ROWS x VECTORS registers, and for TALL x 1."""
    c, ci, cs, a, ai, ar, ak, w, wi, ws, depth, rows, vectors, add = args
    element = ctx.get_data_type(sig.args[0].dtype)
    count = BYTES // (sig.args[0].dtype.bitwidth // 8)
    whole, one = ci.type, ir.Constant(ci.type, 1)
    broad = (builder.mul(vectors, ci.type(count)), ci.type(1))
    for type_, array, at, *spans in (
        (sig.args[0], c, ci, (rows, cs), broad),
        (sig.args[3], a, ai, (rows, ar), (depth, ak)),
        (sig.args[7], w, wi, (depth, ws), broad),
    ):
        start_of(ctx, builder, type_, array, at, *spans)
    data = {
        id(array): ctx.make_array(type_)(ctx, builder, array).data
        for array, type_ in ((c, sig.args[0]), (a, sig.args[3]), (w, sig.args[7]))
    }
    vector = ir.VectorType(element, count)
    undefined = ir.Constant(vector, ir.Undefined)
    lane = ir.Constant(ir.IntType(32), 0)
    every = ir.Constant(ir.VectorType(ir.IntType(32), count), [0] * count)
    align = sig.args[0].dtype.bitwidth // 8

    def times(index: Any, n: int) -> Any:
        return builder.mul(index, ir.Constant(whole, n))

    def pointer(array: Any, index: Any) -> Any:
        return builder.bitcast(builder.gep(data[id(array)], [index]), vector.as_pointer())

    done = builder.append_basic_block("done")
    nothing = builder.append_basic_block("nothing")
    with builder.goto_block(nothing):
        builder.unreachable()
    shape = builder.add(times(rows, VECTORS[-1] + 1), vectors)
    switch = builder.switch(shape, nothing)
    for R in (TALL, *ROWS):
        for V in VECTORS if R != TALL else (1,):
            entry = builder.append_basic_block(f"tile{R}x{V}")
            loop, body, end, store, plus = (
                builder.append_basic_block(name)
                for name in ("loop", "body", "end", "store", "plus")
            )
            switch.add_case(ir.Constant(whole, R * (VECTORS[-1] + 1) + V), entry)
            builder.position_at_end(entry)
            starts = [builder.add(ai, times(ar, r)) for r in range(R)]
            places = [
                [
                    pointer(
                        c, builder.add(builder.add(ci, times(cs, r)), ir.Constant(whole, v * count))
                    )
                    for v in range(V)
                ]
                for r in range(R)
            ]
            builder.branch(loop)
            builder.position_at_end(loop)
            k, aoff, woff = (builder.phi(whole) for _ in range(3))
            for phi, start in (
                (k, ir.Constant(whole, 0)),
                (aoff, ir.Constant(whole, 0)),
                (woff, wi),
            ):
                phi.add_incoming(start, entry)
            sums = [[builder.phi(vector) for _ in range(V)] for _ in range(R)]
            for row in sums:
                for phi in row:
                    phi.add_incoming(ir.Constant(vector, [0.0] * count), entry)
            builder.cbranch(builder.icmp_signed("<", k, depth), body, end)
            builder.position_at_end(body)
            base = pointer(w, woff)
            loaded = [
                builder.load(builder.gep(base, [ir.Constant(whole, v)]), align=align)
                for v in range(V)
            ]
            for r in range(R):
                scalar = builder.load(builder.gep(data[id(a)], [builder.add(starts[r], aoff)]))
                spread = builder.shuffle_vector(
                    builder.insert_element(undefined, scalar, lane), undefined, every
                )
                for v in range(V):
                    sums[r][v].add_incoming(fma_call(builder, spread, loaded[v], sums[r][v]), body)
            k.add_incoming(builder.add(k, one), body)
            aoff.add_incoming(builder.add(aoff, ak), body)
            woff.add_incoming(builder.add(woff, ws), body)
            _back(builder, loop)
            builder.position_at_end(end)
            builder.cbranch(add, plus, store)
            for block, combine in ((plus, True), (store, False)):
                builder.position_at_end(block)
                for r in range(R):
                    for v in range(V):
                        total = sums[r][v]
                        if combine:
                            total = builder.fadd(builder.load(places[r][v], align=align), total)
                        builder.store(total, places[r][v], align=align)
                builder.branch(done)
    builder.position_at_end(done)
    return ctx.get_dummy_value()
