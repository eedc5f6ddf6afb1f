"""Curves of runs; needs matplotlib (extra ``cli``)."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from refnet.batch import Array
from refnet.runs.read import Record
from refnet.runs.rows import Canvas, finite
from refnet.runs.style import grid, page, plot, save

WORDS = {
    "bpc": "bits per character",
    "mse": "mean squared error",
    "cross_entropy": "cross-entropy in nats",
    "loss": "training loss, with penalties",
    "defect": "orthogonality defect",
    "s_min": "smallest $s$",
    "s_max": "largest $s$",
    "s_mean": "mean $s$",
    "s_sd": "s.d. of $s$",
}


def words(column: str) -> str:
    """What a column of rows is called in a figure."""
    return WORDS.get(column, column.replace("_", " "))


def banded(axes: Canvas, runs: list[tuple[Array, Array]], label: str, **style: Any) -> None:
    """The median over the seeds of one setting, of two seeds both, and a band from the smallest to
    the largest value.

    ``runs``: x and y of each seed; one that ended before the longest keeps its last value.
    """
    x = np.unique(np.concatenate([run for run, _ in runs]))
    y = np.stack([np.interp(x, *run) for run in runs])
    (line,) = axes.plot(x, y[0] if len(runs) == 2 else np.median(y, axis=0), label=label, **style)
    if len(runs) == 2:
        axes.plot(x, y[1], **style)
    if len(runs) > 1:
        axes.fill_between(
            x,
            y.min(axis=0),
            y.max(axis=0),
            facecolor=(line.get_color(), 0.12),
            edgecolor=(line.get_color(), 0.5),
            linewidth=0.6,
        )


def of_seeds(counts: Collection[int]) -> str:
    """What ``banded`` draws of curves with so many seeds each, for a title.

    >>> of_seeds([1, 1]), of_seeds([3, 1])
    ('one seed', 'median and range of up to 3 seeds')
    """
    most = max(counts, default=0)
    return (
        "one seed"
        if most == 1
        else (f"median and range of {'up to ' * (min(counts) < most)}{most} seeds")
    )


def curves(rows: list[Record], metric: str, title: str) -> Canvas:
    """Loss, the task's metric, gradient norm, spectral radius and defect over iterations.

    Columns that a run does not have (a net without square hidden matrices has no spectral
    radius) are left out.
    """
    known = dict.fromkeys(("loss", metric, "gradient_norm", "spectral_radius", "defect"))
    columns = [name for name in known if any(row.get(name) is not None for row in rows)]
    x = finite([row["iteration"] for row in rows])
    with page(0.6 + 1.8 * -(-len(columns) // 3), title) as figure:
        for column, axes in zip(columns, grid(figure, len(columns))):
            y = finite([row.get(column) for row in rows])
            scale = "auto" if column in ("loss", "gradient_norm", "defect") else "linear"
            plot(axes, {"": (x, y)}, scale, title=words(column), xlabel="iteration")
    return figure


def plot_curves(path: Path, rows: list[Record], metric: str, title: str) -> None:
    """The curves as a PNG file."""
    save(curves(rows, metric, title), path, dpi=150)
