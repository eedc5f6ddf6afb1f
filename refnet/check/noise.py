"""How far rounding alone may carry a gradient: the reference on randomly perturbed numbers.

A ``Noisy`` number holds its value in R runs at once; every operation multiplies each run's
result by ``1 + u g``, with u the unit roundoff of the judged type and g its own draw from
N(0, 1). The reference runs on these numbers as it does on Fraction or balls, so the error
model needs no second copy of any cell. Sums are perturbed as partial sums in sequence, so
that plain loops, which round most, are within the model.

This is statistics, and has nothing to do with the certified radius.
Source: stochastic arithmetic (Vignes 1978; Parker's Monte Carlo arithmetic 1997).
Checked by: tests/test_compare.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from refnet.batch import Array, Params
from refnet.exact.enclose import Certified, run_on
from refnet.maths.numeric import MATMUL

__all__ = ["Noisy", "RUNS", "spread", "unit"]

RUNS = 30
BLOCK = 4096
CHUNKS = 16


def unit(dtype: Any) -> float:
    """The unit roundoff u: half the distance from 1 to the next float."""
    return float(np.finfo(dtype).eps) / 2


class Split(Exception):
    """The runs disagree about a comparison; ``left`` (R,) says in which it holds."""

    def __init__(self, left: Array) -> None:
        super().__init__("the runs disagree about a sign")
        self.left = left


class Source:
    """Random factors ``1 + u g`` for the runs in ``columns``; a run's own factors do not depend
    on which others run beside it."""

    def __init__(self, dtype: Any, seed: int, columns: Array, runs: int) -> None:
        self.u = unit(dtype)
        self.tiny = float(np.finfo(dtype).tiny)
        self.columns = columns
        self.runs = runs
        self.rng = np.random.default_rng([seed, np.finfo(dtype).bits])
        self.block: list[Array] = []

    def normal(self, *shape: int) -> Array:
        """Draws from N(0, 1), (R, *shape)."""
        return self.rng.standard_normal((self.runs, *shape))[self.columns]

    def noisy(self, value: Array) -> Noisy:
        """``value`` (R,), perturbed."""
        if not self.block:
            self.block = list(1 + self.u * self.normal(BLOCK).T)
        value = value * self.block.pop()
        if abs(value[0]) < self.tiny / self.u:  # it may underflow, or be flushed to zero
            value = value + np.where(value == 0, 0, self.tiny * self.normal())
        return Noisy(value, self)


class Noisy:
    """A number in R runs, ``v`` (R,), with the source of its perturbations."""

    __slots__ = ("source", "v")

    def __init__(self, v: Array, source: Source) -> None:
        self.v = v
        self.source = source

    def __float__(self) -> float:
        return float(self.v.mean())

    def __neg__(self) -> Noisy:
        return Noisy(-self.v, self.source)

    def __add__(self, other: Any) -> Noisy:
        if isinstance(other, int) and other == 0:  # the start of a sum, a masked entry
            return self
        return self.source.noisy(self.v + _value(other))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Noisy:
        return self.source.noisy(self.v - _value(other))

    def __rsub__(self, other: Any) -> Noisy:
        return self.source.noisy(_value(other) - self.v)

    def __mul__(self, other: Any) -> Noisy:
        return self.source.noisy(self.v * _value(other))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Noisy:
        return self.source.noisy(self.v / _value(other))

    def __rtruediv__(self, other: Any) -> Noisy:
        return self.source.noisy(_value(other) / self.v)

    def _agreed(self, left: Array) -> bool:
        if left.all() or not left.any():
            return bool(left[0])
        raise Split(left)

    def __le__(self, other: Any) -> bool:
        return self._agreed(self.v <= _value(other))

    def __lt__(self, other: Any) -> bool:
        return self._agreed(self.v < _value(other))

    def __ge__(self, other: Any) -> bool:
        return self._agreed(self.v >= _value(other))

    def __gt__(self, other: Any) -> bool:
        return self._agreed(self.v > _value(other))

    def __eq__(self, other: object) -> bool:
        return self._agreed(self.v == _value(other))

    __hash__ = None  # type: ignore[assignment]

    def exp(self) -> Noisy:
        """Of every run, perturbed; as are the other elementary functions."""
        return self.source.noisy(np.exp(self.v))

    def expm1(self) -> Noisy:
        """See ``exp``."""
        return self.source.noisy(np.expm1(self.v))

    def log(self) -> Noisy:
        """See ``exp``."""
        return self.source.noisy(np.log(self.v))

    def sqrt(self) -> Noisy:
        """See ``exp``."""
        return self.source.noisy(np.sqrt(self.v))

    def cos(self) -> Noisy:
        """See ``exp``."""
        return self.source.noisy(np.cos(self.v))

    def sin(self) -> Noisy:
        """See ``exp``."""
        return self.source.noisy(np.sin(self.v))

    def tanh(self) -> Noisy:
        """See ``exp``."""
        return self.source.noisy(np.tanh(self.v))


def _value(other: Any) -> Any:
    return other.v if isinstance(other, Noisy) else float(other)


def _packed(array: Array, runs: int) -> Array:
    """(R, *shape) of an object array of Noisy and plain numbers."""
    if not array.size:
        return np.zeros((runs, *array.shape))
    entries = [value.v if isinstance(value, Noisy) else np.full(runs, float(value))
               for value in array.flat]
    return np.concatenate(entries).reshape(-1, runs).T.reshape(runs, *array.shape)


def _unpacked(values: Array, source: Source) -> Array:
    out = np.empty(values.shape[1:], object)
    rows = np.ascontiguousarray(values.reshape(len(values), -1).T)
    out.reshape(-1)[:] = [Noisy(row, source) for row in rows]
    return out


def _power(size: Array) -> Array:
    """A power of two near each magnitude, 1 for zero: scaling by it is exact."""
    return np.exp2(np.floor(np.log2(np.where(size == 0, 1, size))))


def _product(a: Array, b: Array) -> Array:
    """``a @ b`` with the error of summing K terms in sequence.

    The products round by ``u sqrt(sum a^2 b^2)``, the partial sums S_k by ``u sqrt(sum
    S_k^2)``; S is taken at no more than CHUNKS places and weighted by the terms between.
    """
    source = next(value for value in (*a.flat, *b.flat) if isinstance(value, Noisy)).source
    left, right = _packed(a, len(source.columns)), _packed(b, len(source.columns))
    # rows and columns are brought to about 1: squares of vanishing gradients would underflow
    rows, columns = _power(abs(left).max(axis=(0, 2))), _power(abs(right).max(axis=(0, 1)))
    left, right = left / rows[:, None], right / columns
    K = a.shape[1]
    width = -(-K // CHUNKS)
    total = np.zeros((len(left), a.shape[0], b.shape[1]))
    variance = (left * left) @ (right * right)
    for k in range(0, K, width):
        total = total + left[:, :, k:k + width] @ right[:, k:k + width]
        variance += width * total * total
    draws = source.normal(*total.shape[1:])
    scaled = (total + source.u * np.sqrt(variance) * draws) * rows[:, None] * columns
    return _unpacked(scaled + np.where(variance == 0, 0, source.tiny) * draws, source)


MATMUL[Noisy] = _product


def _passes(certified: Certified, dtype: Any, seed: int, columns: Array, runs: int) -> Params:
    """Every quantity in the given runs, (R, *shape); runs that part at a kink go on alone."""
    source = Source(dtype, seed, columns, runs)

    def lifted(array: Array, name: str) -> Array:
        values = np.asarray(array, np.float64)
        return _unpacked(np.broadcast_to(values, (len(columns), *values.shape)), source)

    try:
        with np.errstate(all="ignore"):
            found = run_on(certified.net, certified.params, certified.batch, lifted)
    except Split as split:
        sides = [_passes(certified, dtype, seed, columns[side], runs)
                 for side in (split.left, ~split.left)]
        order = np.argsort(np.concatenate([columns[split.left], columns[~split.left]]))
        return {name: np.concatenate([side[name] for side in sides])[order] for name in sides[0]}
    return {name: _packed(value, len(columns)) for name, value in found.items()}


def spread(certified: Certified, dtype: Any, runs: int = RUNS, seed: int = 0) -> Params:
    """The standard deviation that rounding in ``dtype`` explains, entry by entry.

    Keys and shapes are those of ``certified.named()``; float64. Deviations are taken from
    the certified value. An entry that is exactly zero in every run, and certified to be,
    has sigma 0: no rounding can change it. Any other has at least the smallest normal
    number of ``dtype``, which is what flushing it to zero may cost.
    """
    passes = _passes(certified, dtype, seed, np.arange(runs), runs)
    out = {}
    for name, enclosure in certified.named().items():
        deviation = passes[name] - enclosure.value
        largest = _power(abs(deviation).max(axis=0))
        sigma = largest * np.sqrt(((deviation / largest) ** 2).mean(axis=0))
        untouched = (sigma == 0) & (enclosure.value == 0) & (enclosure.radius == 0)
        out[name] = np.where(untouched, 0, np.maximum(sigma, float(np.finfo(dtype).tiny)))
    return out
