"""Figures to be played with, whose frames are computed as the book is built."""

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np

from refnet.batch import Array


def frames(
    frame: Callable[..., tuple[Sequence[tuple[Array, Array]], str]],
    controls: dict[str, Sequence[float]],
    lines: Sequence[str],
    axes: tuple[str, str],
    box: tuple[float, float, float, float],
    log: bool = False,
) -> dict[str, Any]:
    """What site/book.js draws: for all values of the controls, by their labels, the lines.

    ``frame(*values)`` gives a curve (x, y) for each line, and a note. ``box``: the least and the
    largest x, the least and the largest y, whose axis is logarithmic if ``log``.

    >>> k = np.arange(3)
    >>> figure = frames(
    ...     lambda g: ([(k, g**k)], f"g = {g}"), {"g": [1, 2]}, ["g^k"], ("k", "g^k"), (0, 2, 0, 4)
    ... )
    >>> figure["frames"][1]
    {'lines': [[[0.0, 1.0, 2.0], [1.0, 2.0, 4.0]]], 'note': 'g = 2'}

    Checked by: tests/book/test_sliders.py.
    """
    every = []
    for values in product(*controls.values()):
        curves, note = frame(*values)
        every.append({"lines": [[_numbers(x), _numbers(y)] for x, y in curves], "note": note})
    return {
        "controls": [
            {"label": label, "values": np.asarray(v).tolist()} for label, v in controls.items()
        ],
        "frames": every,
        "lines": lines,
        "axes": axes,
        "box": box,
        "log": log,
    }


def _numbers(values: Array) -> list[float | None]:
    """Four digits of each; None for what is not finite."""
    return [float(f"{v:.4g}") if np.isfinite(v) else None for v in np.asarray(values, float)]
