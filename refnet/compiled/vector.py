"""Operations written as LLVM intrinsics: fused multiply-add, typed constants, copies, parts of
arrays.

Each intrinsic has a plain Python version below, which runs when the JIT is off and takes numbers
of any type, Fractions included. With NUMBA_BOUNDSCHECK=1 in the environment, each raises IndexError
before it reaches past an array, as Numba's own indexing then does.
Checked by: tests/compiled/test_vector.py.
"""

from collections.abc import Callable
from fractions import Fraction
from functools import update_wrapper
from inspect import Parameter, Signature

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from refnet.common.process import cpu_features
from refnet.compiled._jit import JIT, cgutils, populate_array
from refnet.compiled.annotations import IR, Arg

__all__ = [
    "BYTES",
    "FLUSH",
    "REGISTERS",
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
    "whole_registers",
]

_FEATURES = cpu_features()
# BYTES: the size of a vector register. Zen 4 executes 64 bytes as two halves, but in half as many
# instructions: a step takes .80 to .97 times as long as with 32, although more is padded.
_WIDE = bool(_FEATURES.get("avx512f"))
BYTES = 64 if _WIDE else 32 if _FEATURES.get("avx2") else 16
REGISTERS = 32 if _WIDE or _FEATURES.get("neon") else 16
LINE = 64
"""Bytes of a cache line."""

FLUSH = 0x8040 if _FEATURES.get("sse2") else 0
"""The bits that a cell's kernels set with ``float_control``: subnormal numbers, as operands and as
results, are replaced by zero. Some processors handle each of them in slow microcode, and a gradient
that vanishes over thousands of steps can stay subnormal, because rounding to nearest keeps the
smallest one from becoming zero.
Checked by: tests/compiled/test_compiled.py::test_subnormal_numbers_count_as_zero."""


def lanes(dtype: Arg) -> int:
    """The number of entries in a vector register; 4 for exact numbers, to test the padding."""
    return BYTES // dtype.itemsize if dtype.kind == "f" else 4


def fma_call(builder: IR, *values: IR) -> IR:
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


def call_once(builder: IR, name: str, args: IR, write: Callable[..., None]) -> None:
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


def start_of(ctx: IR, builder: IR, kind: IR, array: IR, at: IR, *spans: tuple[IR, IR]) -> IR:
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


def start_of_rows(ctx: IR, builder: IR, kind: IR, place: IR, rows: IR, count: IR) -> IR:
    """The address from which on an array has ``rows`` rows of ``count`` numbers; ``place``: the
    array, the first number, and how far the rows lie apart."""
    array, at, step = place
    return start_of(ctx, builder, kind, array, at, (rows, step), (count, count.type(1)))


def array_at(ctx: IR, builder: IR, kind: IR, start: IR, count: IR) -> IR:
    """The flat array of this type that has its ``count`` numbers at an address."""
    array = ctx.make_array(kind)(ctx, builder)
    size = count.type(kind.dtype.bitwidth // 8)
    populate_array(array, start, [count], [size], size, meminfo=None)
    return array._getvalue()


def prefetch(builder: IR, place: IR, write: bool) -> None:
    """Bring the cache line of an address into the nearest cache."""
    flag = ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [place.type, flag, flag, flag])
    bring = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    # 3: the nearest cache; 1: data
    builder.call(bring, [place, flag(int(write)), flag(3), flag(1)])


def emitted(parameters: str) -> Callable[[IR], IR]:
    """An intrinsic without a result, of the function that writes its code: ``emit(ctx, builder,
    kinds, *values)``. It takes arrays, tuples and integers, under these names."""

    def decorate(emit: IR) -> IR:
        def typed(context: IR, *given: IR) -> IR:
            whole = (types.Integer, types.Boolean)
            kinds = [types.intp if isinstance(kind, whole) else kind for kind in given]

            def generate(ctx: IR, builder: IR, sig: IR, args: IR) -> IR:
                emit(ctx, builder, sig.args, *args)
                return ctx.get_dummy_value()

            return types.void(*kinds), generate

        names = ["context", *parameters.split()]
        update_wrapper(typed, emit)
        typed.__signature__ = Signature(  # type: ignore[attr-defined]
            [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names]
        )
        return intrinsic(typed)

    return decorate


if JIT:

    @intrinsic  # type: ignore[untyped-decorator]
    def fma(context: IR, a: IR, b: IR, c: IR) -> IR:
        """``a b + c``, rounded once."""
        return a(a, a, a), lambda ctx, builder, sig, args: fma_call(builder, *args)

    @intrinsic  # type: ignore[untyped-decorator]
    def number(context: IR, value: IR, like: IR) -> IR:
        """The constant ``value`` in the type of ``like``."""

        def generate(ctx: IR, builder: IR, sig: IR, args: IR) -> IR:
            return ctx.cast(builder, args[0], value, like)

        return like(value, like), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def power(context: IR, n: IR) -> IR:
        """2^k from a number whose lowest bits hold k + bias: a shift into the exponent's bits."""

        def generate(ctx: IR, builder: IR, sig: IR, args: IR) -> IR:
            bits, shift = (32, 23) if n.bitwidth == 32 else (64, 52)
            whole = builder.bitcast(args[0], ir.IntType(bits))
            return builder.bitcast(builder.shl(whole, ir.Constant(whole.type, shift)), args[0].type)

        return n(n), generate

    @emitted("to at step source start stride rows count")
    def copy_rows(ctx: IR, builder: IR, kinds: IR, *args: IR) -> None:
        """Copy ``rows`` rows of ``count`` numbers between flat arrays that do not overlap:
        ``to[at + r step + j] = source[start + r stride + j]``. It copies whole vectors, which LLVM
        does not do by itself in a loop over such indices, and calls no memcpy for each row."""
        size = kinds[0].dtype.bitwidth // 8

        def write(builder: IR, *values: IR) -> None:
            to, step, source, stride, rows, count = values
            number = to.type.pointee
            vector = ir.VectorType(number, BYTES // size)
            lane = count.type(vector.count)

            def move(at: IR, kind: IR) -> None:
                target, origin = (
                    builder.bitcast(builder.gep(row, [at]), kind.as_pointer()) for row in pair
                )
                builder.store(builder.load(origin, align=size), target, align=size)

            with cgutils.for_range(builder, rows) as r:
                pair = [
                    builder.gep(start, [builder.mul(r.index, apart)])
                    for start, apart in ((to, step), (source, stride))
                ]
                with builder.if_else(builder.icmp_signed("<", count, lane)) as (narrow, wide):
                    with narrow, cgutils.for_range(builder, count) as j:
                        move(j.index, number)
                    with wide:
                        last = builder.sub(count, lane)
                        with cgutils.for_range_slice(builder, lane.type(0), last, lane) as (j, _):
                            move(j, vector)
                        move(last, vector)  # some numbers a second time

        rows, count = args[6:]
        to, source = (
            start_of_rows(ctx, builder, kinds[n], args[n : n + 3], rows, count) for n in (0, 3)
        )
        call_once(builder, f"refnet.copy_rows.{size}", (to, args[2], source, *args[5:]), write)

    @intrinsic  # type: ignore[untyped-decorator]
    def cut(context: IR, array: IR, at: IR, count: IR) -> IR:
        """``array.reshape(-1)[at:at + count]`` of an array in C order. A slice would take ten
        times as long to compile."""

        def generate(ctx: IR, builder: IR, sig: IR, args: IR) -> IR:
            start = start_of(ctx, builder, array, *args[:2], (args[2], args[2].type(1)))
            return array_at(ctx, builder, sig.return_type, start, args[2])

        return types.Array(array.dtype, 1, "C")(array, types.intp, types.intp), generate

    @intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
    def split(context: IR, array: IR, apart: IR, size: IR, count: IR) -> IR:
        """A tuple of ``count`` parts of a flat array, each ``size`` numbers, which start ``apart``;
        ``count`` is a constant."""
        part = types.Array(array.dtype, 1, "C")
        number = types.unliteral(size)

        def generate(ctx: IR, builder: IR, sig: IR, args: IR) -> IR:
            parts = []
            for n in range(count.literal_value):
                at = builder.mul(args[1], args[1].type(n))
                start = start_of(ctx, builder, array, args[0], at, (args[2], at.type(1)))
                parts.append(array_at(ctx, builder, part, start, args[2]))
            return ctx.make_tuple(builder, sig.return_type, parts)

        return types.UniTuple(part, count.literal_value)(array, number, number, count), generate

    @emitted("to at count")
    def fetch(ctx: IR, builder: IR, kinds: IR, to: IR, at: IR, count: IR) -> None:
        """Prefetch the cache lines of ``to[at:at + count]`` for writing. Indices past the end of
        the array are allowed."""
        byte = ir.IntType(8).as_pointer()
        place = builder.gep(ctx.make_array(kinds[0])(ctx, builder, to).data, [at])
        place = builder.bitcast(place, byte)
        end = builder.mul(count, count.type(kinds[0].dtype.bitwidth // 8))
        with cgutils.for_range_slice(builder, end.type(0), end, end.type(LINE)) as (n, _):
            prefetch(builder, builder.gep(place, [n]), write=True)

    @intrinsic  # type: ignore[untyped-decorator]
    def float_control(context: IR, keep: IR, add: IR) -> IR:
        """Set this thread's floating-point control register (x86: MXCSR) to
        ``(old & keep) | add`` and return the old value; elsewhere do nothing and return 0."""

        def generate(ctx: IR, builder: IR, sig: IR, args: IR) -> IR:
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

    @emitted("")
    def whole_registers(ctx: IR, builder: IR, kinds: IR) -> None:
        """Make LLVM use vectors of BYTES in the loops of the calling function. By default it uses
        half a register on processors where full ones once lowered the clock rate."""
        # the attributes' own method ``add`` refuses names that llvmlite does not list
        set.add(builder.function.attributes, f'"prefer-vector-width"="{8 * BYTES}"')

    @emitted("to at count")
    def clear(ctx: IR, builder: IR, kinds: IR, to: IR, at: IR, count: IR) -> None:
        """``to[at:at + count] = 0`` of a flat array."""
        place = start_of(ctx, builder, kinds[0], to, at, (count, count.type(1)))
        size = count.type(kinds[0].dtype.bitwidth // 8)
        cgutils.memset(builder, place, builder.mul(count, size), 0)
else:

    def fma(a: Arg, b: Arg, c: Arg) -> Arg:
        """``a b + c``."""
        return a * b + c

    def number(value: float, like: Arg) -> Arg:
        """The constant ``value`` in the type of ``like``."""
        return like.dtype.type(value) if hasattr(like, "dtype") else Fraction(value)

    def power(n: Arg) -> Arg:
        bits, shift = (np.int32, 23) if n.dtype.itemsize == 4 else (np.int64, 52)
        return (n.view(bits) << bits(shift)).view(n.dtype)

    def copy_rows(
        to: Arg, at: int, step: int, source: Arg, start: int, stride: int, rows: int, count: int
    ) -> None:
        """Row by row."""
        for r in range(rows):
            cut(to, at + r * step, count)[:] = cut(source, start + r * stride, count)

    def cut(array: Arg, at: int, count: int) -> Arg:
        """``array.reshape(-1)[at:at + count]``."""
        if not 0 <= at <= at + count <= array.size:
            raise IndexError(f"numbers {at} to {at + count} of {array.size}")
        return array.reshape(-1)[at : at + count]

    def split(array: Arg, apart: int, size: int, count: int) -> Arg:
        """The parts, cut one by one."""
        return tuple(cut(array, n * apart, size) for n in range(count))

    def fetch(to: Arg, at: int, count: int) -> None:
        """Nothing."""

    def float_control(keep: int, add: int) -> int:
        """Nothing."""
        return 0

    def whole_registers() -> None:
        """Nothing."""

    def clear(to: Arg, at: int, count: int) -> None:
        """``to[at:at + count] = 0``."""
        cut(to, at, count)[:] = 0
