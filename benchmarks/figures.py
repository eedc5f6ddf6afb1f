"""The figures over several recorded runs: ``python -m benchmarks.figures``.

A figure is drawn from records alone and holds their digest, so that a stale one is noticed
(tests/test_readme.py). ``python -m benchmarks.readme`` draws them too.
"""

import hashlib
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.records import record
from benchmarks.runs import FOLDER, MARGINS
from refnet.runs.files import write_atomically
from refnet.runs.plots import curves
from refnet.runs.rows import finite, read_rows

RESULTS = FOLDER.parent
METHODS = {"plain": "plain", "oinit": "OINIT", "open": "OPEN"}
RATES = RESULTS / "check_rates.json"


def rows_of(name: str) -> Path:
    return FOLDER / name / "rows.jsonl"


def curve(axes: Any, name: str, column: str, label: str) -> None:
    rows = read_rows(rows_of(name))
    axes.plot(finite([row["iteration"] for row in rows]),
              finite([row.get(column) for row in rows]), label=label, linewidth=1.6,
              marker="o" if len(rows) < 30 else None, markersize=3)


def training() -> Figure:
    """Temporal order: accuracy, spectral radius and gradient norm of the three methods."""
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    panels = (("accuracy", "test accuracy", "linear"),
              ("spectral_radius", "spectral radius", "linear"),
              ("gradient_norm", "norm of the gradient", "log"))
    for axes, (column, label, scale) in zip(figure.subplots(1, 3), panels):
        for method, text in METHODS.items():
            curve(axes, f"temporal-order-{method}", column, text)
        axes.set(xscale="log", yscale=scale, title=label, xlabel="iteration (20 sequences each)")
        axes.grid(alpha=0.3)
    figure.axes[0].legend()
    figure.suptitle("Temporal order, T = 60: 100 tanh units, dense recurrent matrix, RMSprop at "
                    "1e-4, one seed")
    return figure


def margins() -> Figure:
    """The copy task by the margin of the singular values."""
    figure = Figure(figsize=(6.5, 3.6), layout="constrained")
    axes = figure.subplots()
    for margin in MARGINS:
        curve(axes, f"copy-200-margin-{margin}", "accuracy",
              "no margin" if margin == "none" else f"margin {margin}")
    axes.set(xlabel="iteration (50 sequences each)", ylabel="accuracy on the last ten symbols",
             title="Copy task, T = 200: 128 linear units, recurrent matrix U diag(s) V',\n"
                   "singular values s within a margin of 1, one seed")
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


def speed() -> Figure:
    """Times of a training step over refnet's, float32."""
    sizes = [row for row in record("peers")["sizes"] if row["dtype"] == "float32"]
    peers = {"torch": "PyTorch", "torch.compile": "PyTorch, compiled", "jax": "JAX",
             "numpy": "NumPy"}
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    axes = figure.subplots()
    at, width = np.arange(len(sizes)), 0.2
    for n, (name, label) in enumerate(peers.items()):
        axes.bar(at + (n - 1.5) * width,
                 [row["ratios"].get(name, {"median": np.nan})["median"] for row in sizes], width,
                 label=label)
    axes.axhline(1, color="black", linewidth=1)
    axes.text(-0.85, 1.05, "refnet", ha="left", va="bottom")
    axes.set(yscale="log", ylabel="time of a training step,\nas a multiple of refnet's",
             yticks=[1, 2, 5, 10, 20], yticklabels=["1", "2", "5", "10", "20"],
             xticks=at, xticklabels=[f"{row['cell']}\nT = {row['T']}\n{row['H']} units\n"
                                     f"batch {row['B']}" for row in sizes],
             title="Forward, backward and SGD step in float32 on two cores")
    axes.minorticks_off()
    axes.grid(alpha=0.3, axis="y")
    axes.legend(ncols=4, loc="upper right")
    axes.set(xlim=(-0.9, len(sizes) - 0.4), ylim=(0.8, 60))
    return figure


def histogram() -> Figure:
    """z of correct results and of planted bugs."""
    found = record("check_rates")["z"]
    kinds = {label: [float(z) for z in found[kind].split()]
             for label, kind in (("correct results", "correct"), ("planted bugs", "bug"))}
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    axes = figure.subplots()
    bins = np.logspace(-1.5, 6, 76)
    for label, values in kinds.items():
        axes.hist(np.clip(np.nan_to_num(values, posinf=np.inf), bins[0], bins[-1]), bins,
                  alpha=0.7, label=f"{len(values):,} {label}")
    for limit, text in ((6, "above: suspicious"), (12, "above: not rounding")):
        axes.axvline(limit, color="black", linewidth=1, linestyle="--" if limit == 6 else "-",
                     label=f"z = {limit}, {text}")
    axes.set(xscale="log", yscale="log", ylabel="number of results",
             xlabel="z: largest difference from the certified value, in units of its rounding "
                    "error\n(differences above a million are counted at the right edge)",
             title="What the judge measures: correct results and planted bugs")
    axes.legend(loc="upper center", bbox_to_anchor=(0.62, 1))
    return figure


def characters() -> Figure:
    """The Penn Treebank by characters."""
    return curves(read_rows(rows_of("ptb-margin-1")), "bpc",
                  "Penn Treebank by characters: 256 tanh units, svd transition with margin 1, "
                  "one seed")


FIGURES: dict[str, tuple[Callable[[], Figure], tuple[Path, ...]]] = {
    "training.png": (training, tuple(rows_of(f"temporal-order-{method}") for method in METHODS)),
    "copy-200-by-margin.png": (margins, tuple(rows_of(f"copy-200-margin-{margin}")
                                              for margin in MARGINS)),
    "speed.png": (speed, (RESULTS / "peers.json",)),
    "judge.png": (histogram, (RATES,)),
    "runs/ptb-margin-1/curves.png": (characters, (rows_of("ptb-margin-1"),)),
}
"""File -> how it is drawn, and the records it is drawn from."""


def digest(paths: Iterable[Path]) -> str:
    """What a figure holds of its records."""
    return "records " + hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


def draw() -> None:
    """Draw those figures whose records have changed."""
    for name, (make, records) in FIGURES.items():
        place, mark = RESULTS / name, digest(records)
        if not place.exists() or mark.encode() not in place.read_bytes():
            figure = make()
            write_atomically(place, lambda file: figure.savefig(
                file, format="png", dpi=100, metadata={"Source": mark}))


if __name__ == "__main__":
    draw()
    sys.exit(0)
