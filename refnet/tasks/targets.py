"""A user's targets: for each sequence or each step, classes or real numbers.

Checked by: tests/tasks/test_arrays.py.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from refnet.batch import Array
from refnet.common.arguments import short
from refnet.tasks.sequences import Data


class Targets(NamedTuple):
    """``values``: a target for each sequence (N, ...) or, if ``every``, for each of all S steps:
    the number of the class (N,), or real targets (N, C). ``present``: which of them there are.
    ``classes``: the labels by number; empty for real targets."""

    values: Array
    present: Array
    classes: list[Any]
    every: bool


def targets_of(
    y: Data, lengths: Array, padded: int, kind: str, readout: str, known: list[Any] | None = None
) -> Targets:
    """The targets of sequences of these ``lengths``, ``padded`` to that many steps.

    ``kind`` and ``readout``: as ``targets`` and ``readout`` of Arrays. ``known``: the classes, if
    they were fitted before.

    >>> targets_of(["a", "b", "a"], np.array([4, 5, 4]), 5, "auto", "auto").values.tolist()
    [0, 1, 0]
    """
    if hasattr(y, "__array__"):
        y = np.asarray(y)
    if not isinstance(y, (Sequence, np.ndarray)) or isinstance(y, str) or np.shape(y[:0]) == ():
        raise TypeError(f"y is {short(y)}; need an array or a list of targets")
    if len(y) != len(lengths):
        raise ValueError(
            f"y has {len(y)} targets, and x {len(lengths)} sequences; need one for each, or one "
            "for each step of each"
        )
    every, values = _spread(y, lengths, padded, readout)
    values, present = _present(values)
    if not every and not present.all():
        raise ValueError(
            f"y: sequence {int((~present).argmax())} has no target; leave the sequence out, or "
            "give it one"
        )
    if kind == "real" or kind == "auto" and values.dtype.kind == "f":
        return Targets(*_real(values, present), [], every)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise ValueError(
            f"y has classes of shape {values.shape[1:]} each; need one class for each sequence, or "
            "for each of its steps"
        )
    classes = np.array(known) if known else np.unique(values[present])
    order = np.argsort(classes)
    if (classes[order][1:] == classes[order][:-1]).any():
        raise ValueError(f"targets is {short(known)}; need every class once")
    places = np.searchsorted(classes, values[present], sorter=order)
    numbers = order[places.clip(max=len(classes) - 1)]
    if (new := classes[numbers] != values[present]).any():
        raise ValueError(f"y has the class {values[present][new][0].item()!r}; need one of {known}")
    if len(classes) < 2:
        raise ValueError(f"y has {len(classes)} class; need two classes or more")
    codes = np.zeros(len(values), np.int64)
    codes[present] = numbers
    return Targets(codes, present, classes.tolist(), every)


def _spread(y: Data, lengths: Array, padded: int, readout: str) -> tuple[bool, Array]:
    """Whether each step has a target, and all of them in a row."""
    whole = isinstance(y, np.ndarray) and y.dtype != object
    if whole:
        fits = y.ndim > 1 and y.shape[1] == padded
    else:
        sizes = [np.shape(each)[:1] for each in y]
        fits = sizes == [(int(n),) for n in lengths]
    every = fits if readout == "auto" else readout == "every"
    if every and not fits:
        raise ValueError(
            "y: readout is 'every'; need an array of as many targets as steps for each sequence, "
            "padded as x is"
        )
    if not every:
        try:
            return False, np.asarray(y)
        except ValueError:
            shape = next(n for n, size in enumerate(sizes) if size != (lengths[n],))
            raise ValueError(
                f"y: sequence {shape} of {lengths[shape]} steps has {short(y[shape])}; need one "
                "target for each sequence, or as many as steps for each"
            ) from None
    if whole:
        return True, y[np.arange(padded) < lengths[:, None]]
    return True, np.concatenate([np.asarray(each) for each in y])


def _present(values: Array) -> tuple[Array, Array]:
    """The values, of one kind, and which of them are not NaN, None or ''."""
    if values.dtype == object:
        flat = values.ravel()
        here = np.array([each is not None and each == each and each != "" for each in flat], bool)
        filled = np.array(flat[here].tolist())
        if filled.ndim != 1 or filled.dtype == object:
            raise TypeError(
                f"y has targets such as {short(flat[:2].tolist())}; need strings, or numbers"
            )
        out = np.zeros(len(flat), filled.dtype)
        out[here] = filled
        return out.reshape(values.shape), here.reshape(values.shape)
    if values.dtype.kind not in "biufU":
        raise TypeError(f"y has entries of {values.dtype}; need strings, or real numbers")
    if values.dtype.kind == "f":
        return values, ~np.isnan(values)
    here = values != "" if values.dtype.kind == "U" else np.ones(values.shape)
    return values, np.asarray(here, bool)


def _real(values: Array, present: Array) -> tuple[Array, Array]:
    if values.dtype.kind == "U":
        raise TypeError("y has strings, which are classes; need numbers for real targets")
    values = values.astype(np.float64).reshape(len(values), -1)
    here = np.asarray(present.reshape(values.shape).all(axis=1))
    if np.isinf(values[here]).any():
        raise ValueError("y has infinite targets; need finite numbers")
    return np.where(here[:, None], values, 0), here
