"""Weights and constants that explain errors, by least squares: the one loop of Gauss and Newton.

The errors are in sigmas: what is left of them below one sigma each is rounding. ``weights`` and
``constants`` fit edits of programs so, ``loss_mistakes`` and ``edge_mistakes`` constants outside
the cells, and ``refnet.check.fitting`` the constants of ``refnet.check.mistakes``.

Checked by: tests/check/test_programs.py::test_constants_are_found_by_least_squares.
"""

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from refnet.batch import Array

__all__ = ["constants", "improved", "solved"]

STEP = 1e-6


def solved(J: Array, error: Array) -> tuple[float, Array]:
    """The norm of the error that is left, and the weights of the columns of J (N, K) that leave
    it."""
    if not np.isfinite(J).all():
        return np.inf, np.zeros(J.shape[1])
    scale = np.linalg.norm(J, axis=0)
    scale[scale <= 1e-7 * scale.max(initial=0)] = np.inf
    w = np.linalg.lstsq(J / scale, error, rcond=1e-10)[0] / scale
    return float(np.linalg.norm(error - J @ w)), w


def improved(
    at: Callable[[Array], Array],
    w: Array,
    columns: Callable[[Array, Array], Array] | None = None,
    slow: float = 0.99,
    steps: int = 12,
) -> tuple[Array, float]:
    """Weights at which the error ``at(w)`` is smaller, and its norm there.

    By the method of Gauss and Newton from ``w`` on, with steps that are halved until they help; it
    ends where the error is rounding, or no more than ``slow`` of it is left by a step. ``columns``:
    the slopes of minus the error from w and the error there, if not by differences.
    """
    error = at(w)
    left = float(np.linalg.norm(error))
    for _ in range(steps):
        if not len(error) ** 0.5 <= left < np.inf:
            break
        J = _differences(at, w, error) if columns is None else columns(w, error)
        step, last = solved(J, error)[1], left
        for half in range(5):
            nearer = w + step / 2**half
            there = at(nearer)
            now = float(np.linalg.norm(there))
            if now < left:
                w, error, left = nearer, there, now
                break
        if not left <= slow * last:
            break
    return w, left


def _differences(at: Callable[[Array], Array], w: Array, error: Array) -> Array:
    steps = STEP * np.maximum(1, abs(w))
    shifts = np.diag(steps)
    return np.stack([(error - at(w + shift)) / step for shift, step in zip(shifts, steps)], axis=1)


def constants(error: Callable[[Array], Array], guesses: Iterable[float]) -> Iterator[float]:
    """The constants at which an error is least, from each guess on."""
    for guess in guesses:
        ((k,), _) = improved(error, np.array([guess]))
        near = float(f"{k:.6g}")
        if np.isfinite(k):
            yield near if abs(near - k) <= 1e-9 * abs(k) else float(k)
