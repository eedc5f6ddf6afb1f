"""Figures over several recorded runs: ``python -m benchmarks.figures``."""

import sys

from matplotlib.figure import Figure

from benchmarks.runs import FOLDER, MARGINS
from refnet.runs.files import write_atomically
from refnet.runs.rows import finite, read_rows

FIGURE = FOLDER.parent / "copy-200-by-margin.png"


def copy_by_margin() -> None:
    """Accuracy on the last ten symbols of the copy task at T = 200, a curve a margin."""
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    for margin in MARGINS:
        rows = read_rows(FOLDER / f"copy-200-margin-{margin}" / "rows.jsonl")
        if rows:
            label = "no margin" if margin == "none" else f"margin {margin}"
            axes.plot(finite([row["iteration"] for row in rows]),
                      finite([row["accuracy"] for row in rows]), marker=".", label=label)
    axes.set_xlabel("iteration (50 sequences each)")
    axes.set_ylabel("accuracy on the last ten symbols")
    axes.set_title("Copy task, T = 200, 128 linear units")
    axes.grid(alpha=0.3)
    axes.legend()
    write_atomically(FIGURE, lambda file: figure.savefig(file, format="png", dpi=110))


if __name__ == "__main__":
    copy_by_margin()
    sys.exit(0)
