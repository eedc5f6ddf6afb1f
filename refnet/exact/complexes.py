"""Complex recorded arrays: pairs of real ones, so that each rule is that of real numbers.

Linear functions act on both parts, products on all pairs of parts, and the few others are written
out. Gradients are those of a real result in both parts, ``dz = dRe + i dIm``, as in PyTorch.

Checked by: tests/exact/test_complex.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import product
from math import prod
from operator import attrgetter
from typing import NoReturn

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from refnet.exact.elementwise import UFUNCS
from refnet.exact.matrix import expm
from refnet.exact.recorder import (
    METHODS,
    Arguments,
    Index,
    Node,
    Operand,
    Operation,
    Options,
    Recorded,
    Unrecorded,
    dispatch,
    record,
)

LINEAR = set(
    "sum mean cumsum reshape transpose ravel swapaxes squeeze repeat take diagonal trace copy "
    "concatenate stack split vstack hstack broadcast_to tril triu moveaxis expand_dims flatten "
    "atleast_1d atleast_2d flip roll tile rot90 diff diag take_along_axis zeros_like pad "
    "column_stack append".split()
)
"""Functions that act on both parts alike."""
PRODUCTS = {"dot", "inner", "outer", "tensordot", "einsum", "matmul", "multiply"}


class Complex(NDArrayOperatorsMixin):
    """A complex recorded array of two real ones, ``real`` and ``imag``, of one shape."""

    __slots__ = ("imag", "real")
    __array_priority__ = 2000
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, real: Operand, imag: Operand) -> None:
        self.real, self.imag = real, imag

    @property
    def shape(self) -> tuple[int, ...]:
        """As NumPy's."""
        return tuple(self.real.shape)

    @property
    def ndim(self) -> int:
        """As NumPy's."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """As NumPy's."""
        return prod(self.shape)

    @property
    def dtype(self) -> np.dtype[np.complex128]:
        """complex128, whatever the numbers are."""
        return np.dtype(np.complex128)

    @property
    def T(self) -> Complex:
        """The transpose, not conjugated."""
        return Complex(self.real.T, self.imag.T)

    def __len__(self) -> int:
        return len(self.real)

    def __iter__(self) -> Iterator[Complex]:
        return map(Complex, self.real, self.imag)

    def __getitem__(self, index: Index) -> Complex:
        return Complex(self.real[index], self.imag[index])

    def __setitem__(self, index: Index, value: Operand) -> None:
        self.real[index], self.imag[index] = _parts(value)

    def __array__(self, *_: object, **__: object) -> NoReturn:
        raise Unrecorded

    __float__ = __complex__ = __int__ = item = tolist = __array__

    def __array_ufunc__(
        self,
        called: np.ufunc,
        method: str,
        *inputs: Operand,
        out: Arguments | None = None,
        **options: Operand,
    ) -> Operand:
        if method == "reduce" and called is np.add:
            return function(np.sum, inputs, {"axis": 0, **options})
        if method != "__call__" or options:
            raise TypeError(f"np.{called.__name__}.{method} of complex numbers is not recorded")
        result = dispatch("ufunc", called, method, inputs, options)
        if out is None or out[0] is inputs[0] and getattr(self.real, "is_number", False):
            return result
        if not isinstance(out[0], Complex):
            raise Unrecorded
        out[0][...] = result
        return out[0]

    def __array_function__(
        self, called: Operation, types: object, args: Arguments, kwargs: Options
    ) -> Operand:
        return dispatch("function", called, args, kwargs)

    def __getattr__(self, name: str) -> Operation:
        if name in ("conj", "conjugate"):
            return partial(np.conjugate, self)
        if name not in METHODS or name not in LINEAR | PRODUCTS:
            raise AttributeError(f"{name} of a complex recorded array is not recorded")
        if name in PRODUCTS:
            return partial(getattr(np, name), self)
        return partial(self._by_parts, name)

    def _by_parts(self, name: str, *args: Operand, **kwargs: Operand) -> Complex:
        return Complex(*(getattr(part, name)(*args, **kwargs) for part in (self.real, self.imag)))


def has_complex(values: Iterable[Operand]) -> bool:
    """Whether one of the values, or an entry of a list, is complex, recorded or not."""
    return any(
        has_complex(value)
        if isinstance(value, (list, tuple))
        else isinstance(value, Complex)
        or not isinstance(value, Recorded)
        and isinstance(value, (complex, np.ndarray, np.generic))
        and np.asarray(value).dtype.kind == "c"
        for value in values
    )


def _parts(value: Operand) -> tuple[Operand, Operand]:
    """The real and the imaginary part of any number or array; lists by their entries."""
    if isinstance(value, (list, tuple)):
        pairs = [_parts(entry) for entry in value]
        return [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    if isinstance(value, Complex):
        return value.real, value.imag
    if isinstance(value, Recorded):
        return value, np.zeros_like(value)
    array = np.asarray(value)
    return array.real.copy(), array.imag.copy()


def _product(operation: Operation, *operands: Operand) -> Complex:
    """A product of several factors, each complex or real."""
    several = [_parts(z) if has_complex([z]) else (z,) for z in operands]
    sums: list[Operand] = [None, None]
    for choice in product(*(range(len(parts)) for parts in several)):
        term = operation(*(parts[n] for parts, n in zip(several, choice)))
        turns = sum(choice)
        term = -term if turns % 4 > 1 else term
        part = sums[turns % 2]
        sums[turns % 2] = term if part is None else part + term
    return Complex(*sums)


def _divide(a: Operand, b: Operand) -> Complex:
    if has_complex([b]):
        c, d = _parts(b)
        return _divide(_product(np.multiply, a, Complex(c, -d)), c * c + d * d)
    return Complex(*(part / b for part in _parts(a)))


def _power(a: Operand, exponent: Operand) -> Operand:
    if not isinstance(exponent, (int, float)) or exponent % 1 or abs(exponent) > 64:
        raise TypeError("np.power of complex numbers is recorded for whole exponents up to 64")
    size = abs(int(exponent))
    out = a * 0 + 1
    for _ in range(size):
        out = out * a
    return 1 / out if exponent < 0 else out


def _exp(a: Operand) -> Complex:
    x, y = _parts(a)
    size = np.exp(x)
    return Complex(size * np.cos(y), size * np.sin(y))


def _tanh(a: Operand) -> Complex:
    x, y = (2 * part for part in _parts(a))
    below = np.cosh(x) + np.cos(y)
    return Complex(np.sinh(x) / below, np.sin(y) / below)


def _square(a: Complex) -> Complex:
    return _product(np.multiply, a, a)


def _conjugate(a: Complex) -> Complex:
    return Complex(+a.real, -a.imag)


def _absolute(a: Complex) -> Operand:
    return UFUNCS["hypot"](a.real, a.imag)


def _equal(a: Operand, b: Operand) -> Operand:
    return np.logical_and(*(p == q for p, q in zip(_parts(a), _parts(b))))


def _not_equal(a: Operand, b: Operand) -> Operand:
    return ~_equal(a, b)


def _by_parts(name: str) -> Operation:
    """A linear ufunc, on the real and on the imaginary parts."""

    def operation(*operands: Operand) -> Complex:
        return Complex(*map(getattr(np, name), *map(_parts, operands)))

    return operation


_OPERATIONS: dict[str, Operation] = {
    **{name: _by_parts(name) for name in ("add", "subtract", "negative", "positive")},
    "divide": _divide,
    "power": _power,
    "square": _square,
    "reciprocal": partial(_divide, 1),
    "conjugate": _conjugate,
    "absolute": _absolute,
    "exp": _exp,
    "tanh": _tanh,
    "equal": _equal,
    "not_equal": _not_equal,
}


def ufunc(name: str, inputs: Arguments) -> Operand:
    """What a ufunc gives on complex numbers, one of them recorded."""
    if name in PRODUCTS:
        return _product(getattr(np, name), *inputs)
    if name not in _OPERATIONS:
        known = ", ".join(sorted({*_OPERATIONS, "matmul", "multiply"}))
        raise TypeError(f"np.{name} of complex numbers is not recorded; known: {known}")
    return _OPERATIONS[name](*inputs)


def _blocks(z: Operand) -> Operand:
    """The real matrix of twice the size that multiplies as z does."""
    x, y = _parts(z)
    return np.concatenate([np.concatenate([x, -y], -1), np.concatenate([y, x], -1)], -2)


def _from_blocks(m: Operand) -> Complex:
    rows, columns = (size // 2 for size in m.shape[-2:])
    return Complex(m[..., :rows, :columns], m[..., rows:, :columns])


def _solve(a: Operand, b: Operand) -> Complex:
    if np.ndim(b) == 1:
        return _solve(a, b[:, None])[..., 0]
    x, y = _parts(b)
    both = np.linalg.solve(_blocks(a), np.concatenate([x, y], -2))
    rows = both.shape[-2] // 2
    return Complex(both[..., :rows, :], both[..., rows:, :])


def _where(condition: Operand, a: Operand, b: Operand) -> Complex:
    return Complex(*(np.where(condition, p, q) for p, q in zip(_parts(a), _parts(b))))


def _fourier(sign: int) -> Operation:
    def transform(a: Operand, n: None = None, axis: int = -1, norm: str | None = None) -> Operand:
        size = np.shape(a)[axis]
        matrix = _roots(a if isinstance(a, Recorded) else a.real, size, sign)
        scaled = {None: sign > 0, "backward": sign > 0, "forward": sign < 0}
        product: Operand = _product(np.matmul, np.moveaxis(a, axis, -1), matrix)
        y: Operand = np.moveaxis(product, -1, axis)
        if norm == "ortho":
            return y / np.sqrt(record(y.real, size))
        return y / size if scaled[norm] else y

    return transform


def _roots(like: Recorded, n: int, sign: int) -> Complex:
    """``exp(sign 2 pi i j k / n)`` at j, k, enclosed in balls."""
    turns = np.outer(np.arange(n), np.arange(n)) % n
    if like.raw.dtype != object:
        angle = sign * 2 * np.pi * turns / n
        raws = [like.lift(part, "") for part in (np.cos(angle), np.sin(angle))]
    else:
        from refnet.exact.balls import arb

        if not isinstance(like.raw.ravel()[:1].tolist()[0], arb):
            raise TypeError("np.fft of rationals is no rational; use kind='ball'")
        halves = [arb(2 * sign * k) / n for k in range(n)]
        tables = [[half.cos_pi() for half in halves], [half.sin_pi() for half in halves]]
        raws = [np.array(table, object)[turns] for table in tables]
    return Complex(*(Recorded(Node(raw, "a constant"), like.lift) for raw in raws))


_FUNCTIONS: dict[str, Operation] = {
    "where": _where,
    **{name: attrgetter(name) for name in ("real", "imag", "shape", "ndim", "size")},
    "angle": lambda z: np.arctan2(z.imag, z.real),
    "iscomplexobj": lambda z: True,
    "vdot": lambda a, b: np.sum(np.conjugate(np.ravel(a)) * np.ravel(b)),
    "linalg.norm": lambda z, *args, **options: np.linalg.norm(abs(z), *args, **options),
    "linalg.solve": _solve,
    "linalg.inv": lambda z: _from_blocks(np.linalg.inv(_blocks(z))),
    "fft.fft": _fourier(-1),
    "fft.ifft": _fourier(1),
}


def function(called: Operation, args: Arguments, options: Options) -> Operand:
    """What another function of NumPy's gives on complex numbers, one of them recorded."""
    name = f"{called.__module__}.{called.__name__}".removeprefix("numpy.")
    if name in PRODUCTS:
        rule = args[:1] if name == "einsum" else ()
        factors = args[len(rule) :]
        return _product(partial(called, *rule, **options), *factors)
    if name in _FUNCTIONS:
        return _FUNCTIONS[name](*args, **options)
    if name not in LINEAR:
        known = ", ".join(sorted({*_FUNCTIONS, *LINEAR, *PRODUCTS}))
        raise TypeError(f"np.{name} of complex numbers is not recorded; known: {known}")
    sides = zip(*((_parts(a) if has_complex([a]) else (a, a)) for a in args))
    results = [called(*side, **options) for side in sides]
    if isinstance(results[0], list):
        return list(map(Complex, *results))
    return Complex(*results)


def library(name: str, args: Arguments, options: Options) -> Operand:
    """What a function outside NumPy gives on complex numbers, one of them recorded."""
    if name != "expm" or options:
        raise TypeError(f"{name} of complex numbers is not recorded; known: scipy.linalg.expm")
    return _from_blocks(expm(_blocks(*args)))
