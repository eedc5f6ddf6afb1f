"""Code that all cells share."""

from typing import Protocol

import numpy as np

from refnet.batch import Array
from refnet.maths.numeric import Number, clamp

__all__ = ["CellTape", "Cotangents", "clip_into", "dropped", "last_state", "widened"]

Cotangents = Array | tuple[Array, Array]
"""Where a cell's backward pass starts: dh (K, B, H), of the last K states; or, of a cell with two
states, ``(dh, dc)`` with dc (B, H), of the last c, which is 0 otherwise."""


class CellTape(Protocol):
    """The tape of a cell: x (T, B, D), the states h (T + 1, B, H), of a cell with two states c
    (T + 1, B, H) as well, and what else its backward pass needs."""

    @property
    def x(self) -> Array: ...
    @property
    def h(self) -> Array: ...
    @property
    def c(self) -> Array: ...


def clip_into(da: Array, clip: Number | None) -> int:
    """Bring da's entries into [-clip, clip], in place, unless clip is None; return how many were
    changed.

    >>> import numpy as np
    >>> da = np.array([-3.0, 0.5])
    >>> clip_into(da, 1), da.tolist()
    (1, [-1.0, 0.5])
    """
    if clip is None:
        return 0
    da[...], changed = clamp(da, clip)
    return changed


def dropped(h: Array, drop: Array | None) -> Array:
    """The state h (B, H), its gradient or all states (T, B, H), times the factors (B, H) of its
    products, if there are any.

    >>> dropped(np.array([[1.0, 2.0]]), np.array([[0.0, 2.0]])).tolist()
    [[0.0, 4.0]]
    """
    return h if drop is None else np.asanyarray(h * drop)


def widened(h: Array, width: int) -> Array:
    """``h`` (B, P) with zeros up to (B, width): what does not count of the state h.

    >>> widened(np.array([[1.0, 2.0]]), 3).tolist()
    [[1.0, 2.0, 0.0]]
    """
    if h.shape[1] == width:
        return h
    return np.concatenate([h, np.zeros_like(h, shape=(len(h), width - h.shape[1]))], axis=1)


def last_state(tape: CellTape) -> Array:
    """A copy of the state after a tape's last step, in the shape of an initial one: (B, H) or, for
    the LSTM, [h, c] (2, B, H).

    >>> from types import SimpleNamespace
    >>> last_state(SimpleNamespace(x=np.ones((1, 1, 2)), h=np.array([[[0.0]], [[3.0]]]))).tolist()
    [[3.0]]
    """
    c = getattr(tape, "c", None)
    return tape.h[-1].copy() if c is None else np.stack([widened(tape.h[-1], c.shape[2]), c[-1]])
