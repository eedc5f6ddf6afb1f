"""Sums, means and extremes of recorded arrays.

Checked by: tests/exact/test_recorder.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import DTypeLike

from refnet.batch import Array
from refnet.exact.elementwise import UFUNCS, largest
from refnet.exact.recorder import Operand, Recorded, derived, rearranged, record

Axes = int | tuple[int, ...] | None
"""What a reduction is over; None: all axes."""


def axis_of(x: Recorded, axis: int) -> int:
    """This axis of x, counted from 0."""
    if not -x.ndim <= axis < x.ndim:
        raise np.exceptions.AxisError(axis, x.ndim)
    return axis % len(x.shape)


def axes_of(x: Recorded, axis: Axes) -> tuple[int, ...]:
    """The axes that a reduction is over."""
    if axis is None or not x.ndim and axis in (0, -1):
        return tuple(range(x.ndim))
    return tuple(axis_of(x, n) for n in (axis if isinstance(axis, tuple) else (axis,)))


def _number_of(x: Recorded, axis: Axes) -> int:
    """How many entries are averaged."""
    number: int = prod(x.shape[n] for n in axes_of(x, axis))
    if not number:
        raise ValueError(f"the mean of no entries is not defined: an array of shape {x.shape}")
    return number


def _with_dims(x: Recorded, axes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of x with 1 for each of these axes."""
    return tuple(1 if n in axes else size for n, size in enumerate(x.shape))


def regrouped(v: Array, axes: Sequence[int], shape: Sequence[int]) -> Array:
    """The axes in another order, then joined to ``shape``."""
    return v.transpose(axes).reshape(shape)


def _last(x: Recorded, axis: Axes) -> tuple[Operand, tuple[int, ...]]:
    """x with these axes joined at the end; and the shape of x with 1 for each of them."""
    axes = axes_of(x, axis)
    rest = tuple(n for n in range(x.ndim) if n not in axes)
    shape = tuple(x.shape[n] for n in rest) + (prod(x.shape[n] for n in axes),)
    return rearranged(x, "an axis", regrouped, rest + axes, shape), _with_dims(x, axes)


def _reshaped(x: Recorded, shape: tuple[int, ...]) -> Operand:
    return rearranged(x, "a reduction", np.ndarray.reshape, shape)


def sum_of(
    x: Recorded,
    axis: Axes = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
) -> Operand:
    """``np.sum``, recorded."""
    node, axes = x.node, axes_of(x, axis)
    keepdims_shape = _with_dims(x, axes)
    short = tuple(size for n, size in enumerate(x.shape) if n not in axes)
    empty = not all(x.shape[n] for n in axes)
    raw = (
        np.broadcast_to(x.lift(np.zeros(()), ""), short)
        if empty
        else node.raw.sum(axis=axes)
        if axes
        else node.raw
    )
    y = derived(
        x,
        raw,
        "np.sum",
        (node, lambda g: np.broadcast_to(np.reshape(g, keepdims_shape), node.raw.shape)),
    )
    return _reshaped(y, keepdims_shape) if keepdims else y


def mean(
    x: Recorded,
    axis: Axes = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
) -> Operand:
    """``np.mean``, recorded."""
    return sum_of(x, axis, keepdims=keepdims) / _number_of(x, axis)


def var(
    x: Recorded,
    axis: Axes = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    ddof: float = 0,
    keepdims: bool = False,
) -> Operand:
    """``np.var``, recorded."""
    d = x - mean(x, axis, keepdims=True)
    return sum_of(d * d, axis, keepdims=keepdims) / (_number_of(x, axis) - ddof)


def std(
    x: Recorded,
    axis: Axes = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    ddof: float = 0,
    keepdims: bool = False,
) -> Operand:
    """``np.std``, recorded."""
    return np.sqrt(var(x, axis, ddof=ddof, keepdims=keepdims))


def product_of(
    x: Recorded,
    axis: Axes = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
) -> Operand:
    """``np.prod``, recorded."""
    flat, keepdims_shape = _last(x, axis)
    y = record(x, np.ones(flat.shape[:-1]))
    for k in range(flat.shape[-1]):
        y = y * flat[..., k]
    return _reshaped(y, keepdims_shape) if keepdims else y


def cumsum(
    x: Operand, axis: int | None = None, dtype: DTypeLike | None = None, out: None = None
) -> Operand:
    """``np.cumsum``, recorded."""
    x, axis = (np.ravel(x), 0) if axis is None else (x, axis_of(x, axis))
    if not x.shape[axis]:
        return x.copy()
    sums: list[Recorded] = []
    for row in np.moveaxis(x, axis, 0):
        sums.append(sums[-1] + row if sums else row)
    return np.stack(sums, axis)


def clip(
    x: Recorded,
    a_min: Operand = None,
    a_max: Operand = None,
    out: None = None,
    *,
    min: Operand = None,
    max: Operand = None,
) -> Operand:
    """``np.clip``, recorded."""
    low, high = a_min if min is None else min, a_max if max is None else max
    x = +x if low is None is high else x if low is None else UFUNCS["maximum"](x, low)
    return x if high is None else UFUNCS["minimum"](x, high)


def largest_of(x: Recorded, axis: Axes = None, out: None = None, keepdims: bool = False) -> Operand:
    """``np.max``, recorded."""
    flat, keepdims_shape = _last(x, axis)
    if not flat.shape[-1]:
        raise ValueError(f"no entry is the largest of none: an array of shape {x.shape}")
    node = flat.node
    top, share = largest(node.raw)
    y = derived(x, top, "max", (node, lambda g: np.expand_dims(g, -1) * share))
    return _reshaped(y, keepdims_shape) if keepdims else y


def smallest_of(
    x: Recorded, axis: Axes = None, out: None = None, keepdims: bool = False
) -> Operand:
    """``np.min``, recorded."""
    return -largest_of(-x, axis, keepdims=keepdims)


def place_of_largest(
    x: Recorded, axis: int | None = None, out: None = None, *, keepdims: bool = False
) -> Array:
    """``np.argmax``, recorded."""
    flat, keepdims_shape = _last(x, axis)
    share = largest(flat.raw)[1]
    if share.dtype == object and any(not value.is_exact() for value in share.ravel().tolist()):
        raise ArithmeticError("argmax: two entries tie, or their balls overlap")
    places = np.asarray(share.astype(float).argmax(axis=-1))
    return places.reshape(keepdims_shape) if keepdims else places[()]


def place_of_smallest(
    x: Recorded, axis: int | None = None, out: None = None, *, keepdims: bool = False
) -> Array:
    """``np.argmin``, recorded."""
    return place_of_largest(-x, axis, keepdims=keepdims)
