"""The figures over several recorded runs: ``python -m benchmarks.figures``.

A figure is drawn from records alone and holds the digest of what it shows, so that a stale one is
noticed (tests/project/test_readme.py). ``python -m benchmarks.readme`` draws them too.
"""

import hashlib
import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.records import Row, record
from benchmarks.studies import FOLDER, recorded, seeds
from refnet.runs.plots import save
from refnet.runs.rows import finite
from refnet.studies.catalogue import STUDIES
from refnet.studies.study import Study, View

RESULTS = FOLDER.parent


def rows_of(study: Study, count: int) -> dict[str, Row]:
    """The recorded runs of that many seeds, by name."""
    row_of = recorded(study)
    rows = {job.name: row_of(job) for job in study.jobs(View(row_of, count))}
    return {name: row for name, row in rows.items() if row is not None}


def margins(runs: dict[str, Row]) -> Figure:
    """The copy task by the margin of the singular values, with the first seed's runs."""
    figure = Figure(figsize=(6.5, 3.6), layout="constrained")
    axes = figure.subplots()
    for name, run in runs.items():
        length, margin, _ = name.split(", ")
        if length == "T = 200":
            axes.plot(
                finite(run["curve"]["iteration"]),
                finite(run["curve"]["accuracy"]),
                label=margin.replace("margin none", "no margin"),
                linewidth=1.6,
                marker="o",
                markersize=3,
            )
    axes.set(
        xlabel="iteration (50 sequences each)",
        ylabel="accuracy on the last ten symbols",
        title="Copy task, T = 200: 128 linear units, recurrent matrix U diag(s) V',\n"
        "singular values s within a margin around 1, one seed",
    )
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


def speed(measured: Row) -> Figure:
    """Times of a training step over refnet's, float32, at the papers' sizes."""
    sizes = [row for row in measured["sizes"] if row["dtype"] == "float32"][:7]
    peers = {
        "torch": "PyTorch",
        "torch.compile": "PyTorch, compiled",
        "jax": "JAX",
        "numpy": "NumPy",
    }
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    axes = figure.subplots()
    at, width = np.arange(len(sizes)), 0.2
    for n, (name, label) in enumerate(peers.items()):
        none = {"median": np.nan, "quartiles": [np.nan, np.nan]}
        ratios = [row["ratios"].get(name, none) for row in sizes]
        median, quartiles = (
            np.array([ratio[key] for ratio in ratios]) for key in ("median", "quartiles")
        )
        axes.bar(
            at + (n - 1.5) * width,
            median,
            width,
            label=label,
            capsize=2,
            yerr=abs(quartiles.T - median),
            error_kw={"linewidth": 1},
        )
    axes.axhline(1, color="black", linewidth=1)
    axes.text(-0.85, 1.05, "refnet", ha="left", va="bottom")
    axes.set(
        yscale="log",
        ylabel="time of a training step,\nas a multiple of refnet's",
        yticks=[1, 2, 5, 10, 20],
        yticklabels=["1", "2", "5", "10", "20"],
        xticks=at,
        xticklabels=[
            f"{row['cell']}\nT = {row['T']}\n{row['H']} units\nbatch {row['B']}" for row in sizes
        ],
        title="Forward, backward and SGD step in float32, each on one core or two, "
        "whichever is faster:\nmedians and quartiles",
    )
    axes.minorticks_off()
    axes.grid(alpha=0.3, axis="y")
    axes.legend(ncols=4, loc="upper right")
    axes.set(xlim=(-0.9, len(sizes) - 0.4), ylim=(0.8, 60))
    return figure


def histogram(rates: Row) -> Figure:
    """z of correct results and of planted bugs."""
    kinds = {
        label: [float(z) for z in rates["z"][kind].split()]
        for label, kind in (("correct results", "correct"), ("planted bugs", "bug"))
    }
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    axes = figure.subplots()
    bins = np.logspace(-1.5, 6, 76)
    for label, values in kinds.items():
        axes.hist(
            np.clip(np.nan_to_num(values, posinf=np.inf), bins[0], bins[-1]),
            bins,
            alpha=0.7,
            label=f"{len(values):,} {label}",
        )
    for limit, text in ((6, "above: suspicious"), (12, "above: not rounding")):
        axes.axvline(
            limit,
            color="black",
            linewidth=1,
            linestyle="--" if limit == 6 else "-",
            label=f"z = {limit}, {text}",
        )
    axes.set(
        xscale="log",
        yscale="log",
        ylabel="number of results",
        xlabel="z: largest difference from the certified value, in units of its rounding "
        "error\n(differences above a million are counted at the right edge)",
        title="What the judge measures: correct results and planted bugs",
    )
    axes.legend(loc="upper center", bbox_to_anchor=(0.66, 1))
    return figure


def curves(study: Study, rows: dict[str, Row]) -> Figure | None:
    """A study's own figure; None while it has nothing to draw."""
    return study.figure and study.figure(View(lambda job: rows.get(job.name), seeds(study)))


FIGURES: dict[str, tuple[Callable[[Any], Figure], Any]] = {
    "copy-200-by-margin.png": (margins, rows_of(STUDIES["figure-1"], 1)),
    "speed.png": (speed, record("peers")),
    "judge.png": (histogram, record("check_rates")),
    **{
        f"studies/{study.name}/figure.png": (partial(curves, study), rows)
        for study in STUDIES.values()
        if curves(study, rows := rows_of(study, seeds(study))) is not None
    },
}
"""File -> how it is drawn, and the records it is drawn from."""


def stamp(figure: Figure, data: Any) -> str:
    """The digest of what a figure shows: the records that it is drawn from, and its labels."""
    labels = [
        (
            axes.get_title(),
            axes.get_xlabel(),
            axes.get_ylabel(),
            axes.get_legend_handles_labels()[1],
        )
        for axes in figure.axes
    ]
    text = json.dumps([figure.get_suptitle(), labels, data], sort_keys=True)
    return "shows " + hashlib.sha256(text.encode()).hexdigest()


def draw() -> None:
    """Draw those figures that would show something else, and remove those that nothing draws."""
    for old in {*RESULTS.rglob("*.png")} - {RESULTS / name for name in FIGURES}:
        old.unlink()
    for name, (make, data) in FIGURES.items():
        place, figure = RESULTS / name, make(data)
        mark = stamp(figure, data)
        if not place.exists() or mark.encode() not in place.read_bytes():
            save(place, figure, Source=mark)


if __name__ == "__main__":
    draw()
    sys.exit(0)
