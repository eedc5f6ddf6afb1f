"""Figures of runs; needs matplotlib (extra ``cli``)."""

from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from refnet.runs.files import write_atomically
from refnet.runs.rows import finite

__all__ = ["plot_curves"]

matplotlib.rcParams["svg.hashsalt"] = "refnet"


def plot_curves(path: Path, rows: list[dict[str, Any]], metric: str, title: str) -> None:
    """Loss, the task's metric, gradient norm, spectral radius and defect over iterations.

    Columns that a run does not have (a net without square hidden matrices has no spectral
    radius) are left out. Written atomically, as PNG.
    """
    panels = [("loss", "training loss, with penalties", "log"), (metric, metric, "linear"),
              ("gradient_norm", "gradient norm", "log"),
              ("spectral_radius", "spectral radius", "linear"),
              ("defect", "orthogonality defect", "log")]
    panels = [panel for panel in panels if any(row.get(panel[0]) is not None for row in rows)]
    figure = Figure(figsize=(4 * len(panels), 3.2), layout="constrained")
    x = finite([row["iteration"] for row in rows])
    for axes, (column, label, scale) in zip(figure.subplots(1, len(panels), squeeze=False)[0],
                                            panels):
        y = finite([row.get(column) for row in rows])
        if scale == "log" and (y > 0).any():
            axes.set_yscale("log")
            y[y <= 0] = float("nan")
        axes.plot(x, y, marker="o" if len(rows) < 40 else None, markersize=3)
        axes.set_title(label)
        axes.set_xlabel("iteration")
        axes.grid(alpha=0.3)
    figure.suptitle(title)
    write_atomically(path, lambda file: figure.savefig(file, format="png", dpi=110))
