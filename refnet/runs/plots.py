"""Figures of runs; needs matplotlib (extra ``cli``)."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter, StrMethodFormatter

from refnet.batch import Array
from refnet.runs.files import write_atomically
from refnet.runs.read import Record
from refnet.runs.rows import Canvas, finite

__all__ = ["banded", "curves", "of_seeds", "plot_curves", "save", "tidy", "words"]

matplotlib.rcParams["svg.hashsalt"] = "refnet"

WORDS = {
    "bpc": "bits per character",
    "mse": "mean squared error",
    "cross_entropy": "cross-entropy in nats",
    "loss": "training loss, with penalties",
    "s_min": "smallest s",
    "s_max": "largest s",
    "s_mean": "mean s",
    "s_sd": "s.d. of s",
}
COLUMNS = 3


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
        axes.plot(x, y[1], **{**style, "color": line.get_color()})
    if len(runs) > 1:
        axes.fill_between(
            x,
            y.min(axis=0),
            y.max(axis=0),
            facecolor=(line.get_color(), 0.12),
            edgecolor=(line.get_color(), 0.5),
            linewidth=0.6,
        )


def tidy(axes: Canvas, beside: Canvas = None, **legend: Any) -> None:
    """A grid, a legend of small print, and ticks no closer than their numbers are wide.
    ``beside``: other axes, which the legend has to itself."""
    if axes.get_xscale() == "linear":
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.grid(alpha=0.3)
    if beside is None:
        axes.legend(fontsize=8, **legend)
    else:
        beside.set_axis_off()
        beside.legend(*axes.get_legend_handles_labels(), fontsize=8, loc="center left")


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


def curves(rows: list[Record], metric: str, title: str) -> Figure:
    """Loss, the task's metric, gradient norm, spectral radius and defect over iterations, in a
    grid of three columns.

    Columns that a run does not have (a net without square hidden matrices has no spectral
    radius) are left out.
    """
    panels = [
        ("loss", words("loss"), "log"),
        (metric, words(metric), "linear"),
        ("gradient_norm", words("gradient_norm"), "log"),
        ("spectral_radius", words("spectral_radius"), "linear"),
        ("defect", "orthogonality defect", "log"),
    ]
    panels = [panel for panel in panels if any(row.get(panel[0]) is not None for row in rows)]
    lines = -(-len(panels) // COLUMNS)
    figure = Figure(figsize=(9, 0.6 + 2.5 * lines), layout="constrained")
    x = finite([row["iteration"] for row in rows])
    for n, (column, label, scale) in enumerate(panels):
        axes = figure.add_subplot(lines, COLUMNS, n + 1)
        y = finite([row.get(column) for row in rows])
        if scale == "log" and (y > 0).any() and np.nanmax(y) > 10 * np.nanmin(y[y > 0]):
            axes.set_yscale("log")
            axes.yaxis.set_minor_formatter(NullFormatter())
            y[y <= 0] = float("nan")
        axes.plot(x, y, marker="o" if len(rows) < 40 else None, markersize=3)
        axes.set_title(label, fontsize="medium")
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.set_xlabel("iteration")
        axes.grid(alpha=0.3)
    figure.suptitle(title)
    return figure


def plot_curves(path: Path, rows: list[Record], metric: str, title: str) -> None:
    """The curves as a PNG file."""
    save(path, curves(rows, metric, title))


def save(path: Path, figure: Figure, **metadata: str) -> None:
    """Write a figure as a PNG file, atomically."""
    write_atomically(
        path, lambda file: figure.savefig(file, format="png", dpi=100, metadata=metadata)
    )
