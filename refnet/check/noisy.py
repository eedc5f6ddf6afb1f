"""Numbers that are perturbed at random by every operation, as rounding would.

A ``Noisy`` array holds every number in R runs at once; every operation perturbs each run's
result by the rounding error of the judged type, of unit roundoff u. The reference runs on
these arrays as it does on floats, so the error model needs no second copy of any cell.

The model has to contain every order in which a reasonable program sums. A single rounding
has a variance of up to u^2 / 3 times the result's square: errors spread evenly over +-u. The
variance is

- of a sum or a matrix product: that of ``refnet.check.summation``;
- of s + p, where p is a sum of K terms with squares Q: an accumulator that starts at s has
  K longer partial sums, ``min(K u^2 (max((s + p)^2, s^2 + Q_s) - p^2), Q)``, Q_s the squares
  of the terms of s, if that is more than ``u^2 (s + p)^2 / 3``; likewise with s and p
  exchanged. What is no sum is one of K = 1 term; two such have only one order;
- of other operations: ``u^2 / 3`` times the result's square, of elementary functions
  ``(ELEMENTARY u)^2``, and ``(SHARED u)^2`` of an error that all values of one function share in a
  run: approximations are off by as much at the next step, where the argument is nearly the same.
  In types coarser than float32 they are computed in float32 and rounded: ``u^2``.

An arithmetic may have an accumulator of its own, whose u is that of sums; the result is then
rounded once more. Where it rounds the factors of matrix products (TF32), a number that is alike in
every run, such as a weight, is rounded alike wherever it is met, others each time.

Where subnormal numbers are flushed to zero, each term may lose the smallest normal number.

This is statistics, and has nothing to do with the certified radius.
Source: stochastic arithmetic (Vignes 1978; Parker's Monte Carlo arithmetic 1997).
Checked by: tests/check/test_noise.py, tests/check/test_compare.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from math import prod
from typing import Any, TypeAlias

import numpy as np
from scipy import special

from refnet.batch import Array
from refnet.check.arithmetic import arithmetic, rounded_to
from refnet.check.summation import equal_terms, power_of_two, variance

__all__ = ["Noisy", "Source", "Split", "noisy", "running", "runs_of"]

Operand: TypeAlias = Any
"""A Noisy, an array, a number, or an argument that NumPy passes on."""

SINGLE = 3**-0.5
"""The standard deviation of one rounding, in u of the result: errors spread evenly over +-u."""
ELEMENTARY = 2
"""That of an elementary function, which libraries compute within an ulp (2u) or two."""
SHARED = 2
"""That of the error that all values of an elementary function have in common: tanh is off by 4 ulp
(8u) where onnxruntime's saturates."""
STABLE = 4
"""By how many ``sqrt(N) u`` of the largest entry matrices are off that a routine of linear algebra
gets. With 1, of 594 right results (inverse, determinant, QR, singular and eigenvalues of N = 3, 6
and 12 by NumPy, SciPy's drivers and PyTorch, and their gradients) 8 were more than 6 sigma off, the
largest 13.4; LAPACK's ?syevr reached 15. With 4 none is."""
POOL = 2**20
SOME = 2**24
"""The most numbers of a factor that a product copies at a time, unless one run has more."""


class Split(Exception):
    """The runs disagree about a comparison; ``left`` (R,) says in which it holds."""

    def __init__(self, left: Array) -> None:
        super().__init__("the runs disagree about a sign")
        self.left = left


class Source:
    """Where the runs in ``columns``, of ``runs`` in all, take their random numbers from; a run's
    own numbers do not depend on which others run beside it. ``tick`` is called at every product."""

    def __init__(
        self, dtype: Operand, seed: int, columns: Array, runs: int, tick: Callable[[], None]
    ) -> None:
        kind = arithmetic(dtype)
        self.coarse = kind.u > arithmetic(np.float32).u
        self.u, self.sums, self.operands, self.tiny = kind.u, kind.sums, kind.operands, kind.tiny
        self.columns = columns
        self.tick = tick
        self.rng = np.random.default_rng([seed, kind.bits])
        # in the order of the columns' own memory, of which draws are views
        self.pool = np.ascontiguousarray(self.rng.standard_normal((POOL // runs, runs))[:, columns])
        self.holds = kind.holds
        self.constants: dict[tuple[float, float], Array] = {}
        self.shared: dict[np.ufunc, Array] = {}
        self.counted: dict[tuple[int, ...], tuple[Array, Array]] = {}  # the last of each shape
        self.dtype = np.dtype(
            [("v", float, len(columns)), ("terms", float), ("norm", float), ("summed", float)]
        )

    def normal(self, size: int) -> Iterator[tuple[slice, Array]]:
        """Draws from N(0, 1), (size, R), piece by piece: rows of the pool from a random one on."""
        most = len(self.pool) // 2
        for done in range(0, max(size, 1), most):
            rows = min(size - done, most)
            first = int(self.rng.integers(len(self.pool) - rows))
            yield slice(done, done + rows), self.pool[first : first + rows]

    def constant(self, array: Array) -> Noisy:
        """Numbers that a program holds: where the type does not, rounded once in each run."""
        return self.once(array, self.u, self.holds)

    def alike(self, rows: Array) -> Array:
        """``equal_terms`` of the rows; counted once for a weight that is met at every step."""
        known, counts = self.counted.get(rows.shape, (None, None))
        if known is None or not np.array_equal(known, rows):
            counts = equal_terms(rows, self.sums)
            self.counted[rows.shape] = rows, counts
        return np.asarray(counts)

    def once(self, array: Array, u: float, holds: Callable[[Array], Array]) -> Noisy:
        """``array``, with each value of which ``holds`` is False rounded to ``u``, in the same way
        wherever a run meets it."""
        values, places = np.unique(np.asarray(array, float), return_inverse=True)
        out = np.repeat(values[:, None], len(self.columns), axis=1)
        for n in np.flatnonzero(~holds(values)):
            key = float(values[n]), u
            if key not in self.constants:
                ((_, draws),) = self.normal(1)
                self.constants[key] = values[n] * (1 + SINGLE * u * draws[0])
            out[n] = self.constants[key]
        return self.array(out[places.reshape(np.shape(array))])

    def is_operand(self, values: Array) -> Array:
        """Whether a factor of a matrix product may be each of these numbers, bool."""
        return np.asarray(rounded_to(values, self.operands) == values)

    def factor(self, value: Operand) -> Operand:
        """A factor of a matrix product, rounded as the arithmetic does it."""
        if not self.operands:
            return value
        if not _is_noisy(value):
            return self.once(value, self.operands, self.is_operand)
        result = self.array(runs_of(value))
        out = runs_of(result.reshape(-1))
        for rows, draws in self.normal(len(out)):
            out[rows] *= 1 + SINGLE * self.operands * draws
        return result

    def rounded(self, function: np.ufunc, values: tuple[Operand, ...], ulps: float) -> Noisy:
        """``function`` of ``values``, each run perturbed by ``ulps`` unit roundoffs of its own
        size."""
        runs = [runs_of(value) for value in values]
        result = self.room(np.broadcast_shapes(*(run.shape[:-1] for run in runs)), 1, 0)
        function(*runs, out=runs_of(result))
        return self.perturbed(result, ulps * self.u)

    def elementary(self, function: np.ufunc, value: Operand) -> Noisy:
        """An elementary function: ``rounded``, with the error that its values share in a run."""
        if self.coarse:
            return self.rounded(function, (value,), 1)
        if function not in self.shared:
            ((_, draws),) = self.normal(1)
            self.shared[function] = 1 + SHARED * self.u * draws[0]
        result = self.rounded(function, (value,), ELEMENTARY)
        np.asarray(result)["v"] *= self.shared[function]
        return result

    def off_by_size(self, matrix: Noisy) -> Noisy:
        """A copy whose entries are off by STABLE times the square root of its length times u of the
        largest."""
        values = runs_of(matrix)
        size = STABLE * abs(values[..., 0]).max(initial=0) * max(len(values), 1) ** 0.5
        copy = self.array(values)
        return self.perturbed(copy, np.full(copy.shape, self.u * size))

    def perturbed(self, result: Noisy, sigma: Array | float) -> Noisy:
        """``result`` itself with noise of standard deviation ``sigma``, (..., 1), or a number in
        units of each run's own size; at least that of an underflow: the smallest normal number
        for each of the terms summed."""
        flat = np.asarray(result).reshape(-1)
        out, terms = flat["v"], flat["terms"][:, None]
        given = None if type(sigma) is float else np.reshape(sigma, (-1, 1))  # np.float64: given
        lossy = out.size and abs(out[:, 0]).min() < terms.max() * self.tiny / self.u
        fixed = (out == 0) & (given is None or given == 0) if lossy else None
        finite = np.isfinite(out)
        every = bool(finite.all())
        for rows, draws in self.normal(len(out)):
            off = (sigma * out[rows] if given is None else given[rows]) * draws
            out[rows] += off if every else np.where(finite[rows], off, 0)  # inf stays inf
        if fixed is not None:
            for rows, draws in self.normal(len(out)):
                out[rows] += np.where(fixed[rows], 0, self.tiny * terms[rows] * draws)
        return result

    def array(self, value: Array, terms: Operand = 1, norm: Operand = 0) -> Noisy:
        """The array of numbers ``value`` (..., R); ``terms`` summed, ``norm`` the root of the
        sum of their squares."""
        result = self.room(value.shape[:-1], terms, norm)
        np.asarray(result)["v"] = value
        return result

    def room(self, shape: tuple[int, ...], terms: Operand, norm: Operand) -> Noisy:
        """An array whose numbers are still to be written."""
        out = np.empty(shape, self.dtype)
        out["terms"], out["norm"], out["summed"] = terms, norm, 1
        return out.view(Noisy)


_SOURCE: ContextVar[Source] = ContextVar("source")


@contextmanager
def running(source: Source) -> Iterator[None]:
    """Noisy arrays inside take their random numbers from ``source``."""
    token = _SOURCE.set(source)
    try:
        yield
    finally:
        _SOURCE.reset(token)


class Noisy(np.ndarray[Any, Any]):
    """Numbers in R runs: records of ``v`` (R,), and what sum each is: of how many ``terms``,
    and the root ``norm`` of the sum of their squares; ``summed``: the terms of what ``sum`` gave,
    times how many are alike, 1 of all else.

    Indexing, reshaping, joining and the like are NumPy's own; arithmetic is here.
    """

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Operand, out: Operand = None, **options: Any
    ) -> Operand:
        if ufunc is np.add and method == "reduce":
            return inputs[0].sum(options.get("axis", 0))
        if method != "__call__" or ufunc not in _OPERATIONS:
            raise TypeError(f"noisy numbers have no {ufunc.__name__}.{method}")
        result = _OPERATIONS[ufunc](*inputs)
        if out is None:
            return result
        out[0][...] = result
        return out[0]

    def __array_function__(
        self, func: Operand, types: Operand, args: Operand, kwargs: Operand
    ) -> Operand:
        if func is np.result_type:
            return self.dtype
        if func is np.where:
            args = (args[0], *(np.asarray(noisy(part)) for part in args[1:]))
        if func in (np.concatenate, np.stack):
            args = ([np.asarray(noisy(part)) for part in args[0]], *args[1:])
        result = super().__array_function__(func, types, args, kwargs)
        return result.view(Noisy) if getattr(result, "dtype", None) == self.dtype else result

    def __getitem__(self, key: Any) -> Any:
        entry = super().__getitem__(key)
        return np.array(entry).view(Noisy) if isinstance(entry, np.void) else entry

    def __setitem__(self, key: Operand, value: Operand) -> None:
        super().__setitem__(key, np.asarray(noisy(value)))

    def __eq__(self, other: object) -> Operand:  # NumPy compares records before it asks for a ufunc
        return _agreed(np.equal, self, other)

    def __ne__(self, other: object) -> Operand:
        return _agreed(np.not_equal, self, other)

    def sum(self, axis: Operand = None, **options: Any) -> Operand:  # type: ignore[override]
        """The sum over ``axis``, with the rounding of every order of summation."""
        axes = tuple(range(self.ndim)) if axis is None else tuple(np.atleast_1d(axis) % self.ndim)
        rest = [n for n in range(self.ndim) if n not in axes]
        turned = np.asarray(self).transpose(*axes, *rest)
        left = [self.shape[n] for n in rest]
        K = prod(self.shape[n] for n in axes)
        return _sum(turned.reshape(K, prod(left))).reshape(left)

    def sigmoid(self) -> Noisy:
        """The sigmoid, which libraries round as they do exp: near 1, too."""
        return _SOURCE.get().elementary(special.expit, self)

    def stable(self, function: Callable[..., Any], *arrays: Operand) -> tuple[Noisy, ...]:
        """The results of a routine of NumPy's on stacks of matrices, of which this is one, as a
        backward stable algorithm rounds: those of matrices that are off by ``STABLE sqrt(N) u`` of
        their largest entry, each rounded once more."""
        source = _SOURCE.get()
        source.tick()
        stacks = [_by_run(runs_of(source.off_by_size(noisy(array)))) for array in arrays]
        results = function(*stacks)
        return tuple(
            source.perturbed(source.array(np.moveaxis(result, 0, -1)), SINGLE * source.u)
            for result in (results if isinstance(results, tuple) else (results,))
        )

    def argmax(self, axis: Operand = None, **options: Any) -> Operand:  # type: ignore[override]
        """That of the first run, for a pivot that all runs share."""
        return runs_of(self)[..., 0].argmax(axis)

    def max(self, axis: int, **options: Any) -> Operand:  # type: ignore[override]
        """The largest in each run along ``axis``; as a sum, it is that of the first run."""
        at = np.expand_dims(runs_of(self)[..., 0].argmax(axis), axis)
        result = np.take_along_axis(np.asarray(self), at, axis).squeeze(axis)
        result["v"] = runs_of(self).max(axis)
        return result.view(Noisy)


def _is_noisy(value: Operand) -> bool:
    return isinstance(value, (np.ndarray, np.void)) and value.dtype.kind == "V"


def noisy(value: Operand) -> Noisy:
    """Numbers of any kind, alike in every run."""
    if _is_noisy(value):
        return np.asarray(value).view(Noisy)
    values, source = np.asarray(value, float), _SOURCE.get()
    return source.array(np.broadcast_to(values[..., None], (*values.shape, len(source.columns))))


def runs_of(value: Operand) -> Array:
    """(..., R); (..., 1) of numbers that are alike in every run."""
    return np.asarray(value)["v"] if _is_noisy(value) else np.asarray(value, float)[..., None]


def _history(value: Operand) -> tuple[Array, Array, Array]:
    """Size in the first run, number of terms and norm of every number."""
    size = abs(runs_of(value)[..., 0])
    if not _is_noisy(value):
        return size, np.ones(()), size
    terms = np.asarray(value)["terms"]
    return size, terms, np.where(terms > 1, np.asarray(value)["norm"], size)


def _add(a: Operand, b: Operand) -> Noisy:
    source = _SOURCE.get()
    (size_a, terms_a, norm_a), (size_b, terms_b, norm_b) = _history(a), _history(b)
    runs_a, runs_b = runs_of(a), runs_of(b)
    size = abs(runs_a[..., 0] + runs_b[..., 0])
    sigma = SINGLE * size
    for first, start, total, terms, norm in (
        (size_a, np.where(terms_a > 1, norm_a, 0), size_b, terms_b, norm_b),
        (size_b, np.where(terms_b > 1, norm_b, 0), size_a, terms_a, norm_a),
    ):
        # what the partial sums of ``terms`` are longer by than those of a sum that starts at 0
        longer = np.maximum(size, np.hypot(first, start))
        longer = np.sqrt(terms * np.maximum((longer - total) * (longer + total), 0))
        sigma = np.maximum(
            sigma,
            np.where(
                terms_a + terms_b > 2,
                np.minimum(longer * (source.sums / source.u), norm / source.u),
                0,
            ),
        )
    result = source.room(size.shape, terms_a + terms_b, np.hypot(norm_a, norm_b))
    np.add(runs_a, runs_b, out=runs_of(result))
    return source.perturbed(result, source.u * sigma)


def _agreed(compare: np.ufunc, a: Operand, b: Operand) -> Array:
    runs = compare(runs_of(a), runs_of(b))
    mixed = runs.any(axis=-1) & ~runs.all(axis=-1)
    if mixed.any():
        raise Split(runs[mixed][0])
    return np.asarray(runs[..., 0])


def _rounded(function: np.ufunc, *inputs: Operand) -> Noisy:
    return _SOURCE.get().rounded(function, inputs, SINGLE)


def _of_two(function: np.ufunc, a: Operand, b: Operand) -> Noisy:
    return _SOURCE.get().rounded(function, (a, b), ELEMENTARY)


def _elementary(function: np.ufunc, a: Operand) -> Noisy:
    return _SOURCE.get().elementary(function, a)


def _exact(function: np.ufunc, a: Operand) -> Noisy:
    records = np.asarray(a)
    return _SOURCE.get().array(function(runs_of(a)), records["terms"], records["norm"])


def _by_run(runs: Array) -> Array:
    """(R, M, N) of (M, N, R), copied in the order in which it lies in memory."""
    if runs.strides[0] < runs.strides[1]:
        return _by_run(runs.transpose(1, 0, 2)).transpose(0, 2, 1)
    return np.ascontiguousarray(np.moveaxis(runs, -1, 0))


def _product(a: Operand, b: Operand) -> Noisy:
    source = _SOURCE.get()
    source.tick()
    left, right = (runs_of(source.factor(x)) for x in (a, b))
    K = left.shape[1]
    result = source.room((len(left), right.shape[1]), K, 0)
    total = runs_of(result)
    if right.shape[2] == 1 and len(left) < K:  # the runs beside each other, as they lie
        total[...] = right[:, :, 0].T @ left
    else:
        some = max(SOME // max(left[..., 0].size, right[..., 0].size, 1), 1)
        for first in range(0, total.shape[2], some):
            runs = slice(first, first + some)
            total[..., runs] = np.moveaxis(
                np.matmul(
                    *(
                        _by_run(factor if factor.shape[2] == 1 else factor[..., runs])
                        for factor in (left, right)
                    )
                ),
                0,
                -1,
            )
    left, right = left[..., 0], right[..., 0]
    # rows and columns are brought to about 1: squares of vanishing gradients would underflow
    rows = power_of_two(abs(left).max(axis=1, initial=0))
    columns = power_of_two(abs(right).max(axis=0, initial=0))
    V, Q = variance(left / rows[:, None], right / columns, source.sums, source.alike)
    scale = rows[:, None] * columns
    sigma = SINGLE * _once_more(np.sqrt(V) * scale, total[..., 0])
    np.asarray(result)["norm"] = np.sqrt(Q) * scale
    return source.perturbed(result, sigma)


def _once_more(sums: Array, total: Array) -> Array:
    """The rounding of sums, in units of an accumulator's, and of their result, if that is
    narrower."""
    source = _SOURCE.get()
    if source.sums == source.u:
        return np.asarray(source.u * sums)
    return np.hypot(source.sums * sums, source.u * total)


def _sum(a: Array) -> Noisy:
    """The sum over the first of two axes."""
    source, runs, records = _SOURCE.get(), runs_of(a), np.asarray(a).T
    terms, sums = runs[..., 0].T, (records["summed"] > 1) & (len(runs) > 1)
    scale = power_of_two(abs(terms).max(axis=1, initial=0))
    rows = terms / scale[:, None]
    inner = np.where(sums, records["summed"], 1).sum(axis=1) / max(len(runs), 1)
    norms = np.where(sums, records["norm"], terms) / scale[:, None]
    V, Q = variance(rows, None, source.sums, source.alike, norms, inner)
    sigma = SINGLE * _once_more(np.sqrt(V) * scale, terms.sum(axis=1))
    result = source.array(
        runs.sum(axis=0), np.where(sums, records["terms"], 1).sum(axis=1), np.sqrt(Q) * scale
    )
    np.asarray(result)["summed"] = len(runs) * inner * np.maximum(source.alike(rows), 1)
    return source.perturbed(result, sigma)


_OPERATIONS: dict[np.ufunc, Callable[..., Operand]] = {
    np.add: _add,
    np.matmul: _product,
    **{
        called: partial(operation, called)
        for operation, names in (
            (_exact, "negative absolute"),
            (_rounded, "subtract multiply divide sqrt"),
            (_elementary, "exp expm1 log log1p tanh cos sin cosh sinh arctan erf gammaln digamma"),
            (_of_two, "arctan2"),
            (_agreed, "less less_equal greater greater_equal equal not_equal"),
        )
        for name in names.split()
        for called in [getattr(np, name, None) or getattr(special, name)]
    },
}
