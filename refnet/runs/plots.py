"""Figures of runs; needs matplotlib (extra ``cli``)."""

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from refnet.runs.files import write_atomically
from refnet.runs.rows import finite

__all__ = ["curves", "plot_curves"]

matplotlib.rcParams["svg.hashsalt"] = "refnet"

WORDS = {"bpc": "bits per character", "mse": "mean squared error",
         "cross_entropy": "cross-entropy in nats"}
COLUMNS = 3


def curves(rows: list[dict[str, Any]], metric: str, title: str) -> Figure:
    """Loss, the task's metric, gradient norm, spectral radius and defect over iterations, in a
    grid of three columns.

    Columns that a run does not have (a net without square hidden matrices has no spectral
    radius) are left out.
    """
    panels = [("loss", "training loss, with penalties", "log"),
              (metric, WORDS.get(metric, metric), "linear"),
              ("gradient_norm", "gradient norm", "log"),
              ("spectral_radius", "spectral radius", "linear"),
              ("defect", "orthogonality defect", "log")]
    panels = [panel for panel in panels if any(row.get(panel[0]) is not None for row in rows)]
    lines = -(-len(panels) // COLUMNS)
    figure = Figure(figsize=(9, 0.6 + 2.5 * lines), layout="constrained")
    x = finite([row["iteration"] for row in rows])
    for n, (column, label, scale) in enumerate(panels):
        axes = figure.add_subplot(lines, COLUMNS, n + 1)
        y = finite([row.get(column) for row in rows])
        if scale == "log" and (y > 0).any() and np.nanmax(y) > 10 * np.nanmin(y[y > 0]):
            axes.set_yscale("log")
            y[y <= 0] = float("nan")
        axes.plot(x, y, marker="o" if len(rows) < 40 else None, markersize=3)
        axes.set_title(label, fontsize="medium")
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.set_xlabel("iteration")
        axes.grid(alpha=0.3)
    figure.suptitle(title)
    return figure


def plot_curves(path: Path, rows: list[dict[str, Any]], metric: str, title: str) -> None:
    """The curves as a PNG file, written atomically."""
    figure = curves(rows, metric, title)
    write_atomically(path, lambda file: figure.savefig(file, format="png", dpi=100))
