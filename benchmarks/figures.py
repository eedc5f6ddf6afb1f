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

from benchmarks.records import Row, record
from benchmarks.studies import FOLDER, recorded, seeds
from refnet.runs.rows import Canvas, finite
from refnet.runs.style import LINES, lines, page, save
from refnet.studies.catalogue import STUDIES
from refnet.studies.study import Study, View

RESULTS = FOLDER.parent
DPI = 150


def rows_of(study: Study, count: int) -> dict[str, Row]:
    """The recorded runs of that many seeds, by name."""
    row_of = recorded(study)
    rows = {job.name: row_of(job) for job in study.jobs(View(row_of, count))}
    return {name: row for name, row in rows.items() if row is not None}


def margins(runs: dict[str, Row]) -> Canvas:
    """The copy task by the margin of the singular values, with the first seed's runs."""
    title = (
        "Copy task, T = 200: 128 linear units, recurrent matrix U diag(s) V', singular values s "
        "within a margin around 1, one seed"
    )
    shown = {
        name.split(", ")[1].replace("margin none", "no margin"): run["curve"]
        for name, run in runs.items()
        if name.startswith("T = 200, ")
    }
    with page(3, title) as figure:
        axes = figure.subplots()
        for label, style in lines(shown, 1).items():
            axes.plot(
                finite(shown[label]["iteration"]),
                finite(shown[label]["accuracy"]),
                label=label,
                **style,
            )
        axes.set(xlabel="iteration (50 sequences each)", ylabel="accuracy on the last ten symbols")
        axes.legend()
    return figure


PEERS = {
    "torch": ("PyTorch", "#00224d"),
    "torch.compile": ("PyTorch, compiled", "#575c6d"),
    "jax": ("JAX", "#a69d75"),
    "numpy": ("NumPy", "#fde737"),
}
"""Their words, and colours that differ in grey."""


def speed(measured: Row) -> Canvas:
    """Times of a training step over refnet's, float32, at the papers' sizes."""
    sizes = [row for row in measured["sizes"] if row["dtype"] == "float32"][:7]
    at, width = np.arange(len(sizes)), 0.2
    title = (
        "Forward, backward and SGD step in float32, each on one core or two, whichever is "
        "faster: medians and quartiles"
    )
    with page(2.9, title) as figure:
        axes = figure.subplots()
        for n, (name, (label, color)) in enumerate(PEERS.items()):
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
                color=color,
                edgecolor="black",
                linewidth=0.4,
                capsize=2,
                yerr=abs(quartiles.T - median),
                error_kw={"linewidth": 0.8},
            )
        axes.axhline(1, color="black", linewidth=1)
        axes.text(-0.85, 1.05, "refnet", ha="left", va="bottom")
        axes.set(
            yscale="log",
            ylabel="time of a training step,\nas a multiple of refnet's",
            xticks=at,
            xticklabels=[
                f"{row['cell']}\n$T = {row['T']}$\n{row['H']} units\nbatch {row['B']}"
                for row in sizes
            ],
            xlim=(-0.9, len(sizes) - 0.4),
            ylim=(0.8, 60),
        )
        axes.legend(ncols=4, loc="upper right")
    return figure


def histogram(rates: Row) -> Canvas:
    """z of correct results and of planted bugs."""
    bins = np.logspace(-1.5, 6, 76)
    with page(2.8, "What the judge measures: correct results and planted bugs") as figure:
        axes = figure.subplots()
        for label, kind, props in (
            ("correct results", "correct", {"color": LINES[0][0]}),
            ("planted bugs", "bug", {"facecolor": LINES[5][0], "hatch": "////"}),
        ):
            values = [float(z) for z in rates["z"][kind].split()]
            axes.hist(
                np.clip(np.nan_to_num(values, posinf=np.inf), bins[0], bins[-1]),
                bins,
                alpha=0.8,
                label=f"{len(values):,} {label}",
                **props,
            )
        for limit, dash, text in ((6, "--", "suspicious"), (12, "-", "not rounding")):
            label = f"$z = {limit}$, above: {text}"
            axes.axvline(limit, color="black", linewidth=1, linestyle=dash, label=label)
        axes.set(
            xscale="log",
            yscale="log",
            ylabel="number of results",
            xlabel="$z$: largest difference from the certified value, in units of its rounding "
            "error\n(differences above a million are counted at the right edge)",
        )
        axes.legend(loc="upper center", bbox_to_anchor=(0.66, 1))
    return figure


def curves(study: Study, rows: dict[str, Row]) -> Canvas:
    """A study's own figure; None while it has nothing to draw."""
    return study.figure and study.figure(View(lambda job: rows.get(job.name), seeds(study)))


FIGURES: dict[str, tuple[Callable[[Any], Canvas], Any]] = {
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


def stamp(figure: Canvas, data: Any) -> str:
    """The digest of what a figure shows: the records that it is drawn from, and its labels."""
    labels = [
        (
            axes.get_title(loc="left"),
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
            save(figure, place, DPI, Source=mark)


if __name__ == "__main__":
    draw()
    sys.exit(0)
