"""The figures over several recorded runs: ``python -m benchmarks.figures``.

A figure is drawn from records alone and holds their digest, so that a stale one is noticed
(tests/project/test_readme.py). ``python -m benchmarks.readme`` draws them too.
"""

import hashlib
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from benchmarks.records import record
from benchmarks.studies import FOLDER, seeds, store_of
from refnet import studies
from refnet.runs import plots
from refnet.runs.rows import finite
from refnet.studies.catalogue import STUDIES
from refnet.studies.work import shown

RESULTS = FOLDER.parent
RATES = RESULTS / "check_rates.json"
CODE = [
    Path(__file__),
    Path(plots.__file__),
    *(
        path
        for path in sorted(Path(studies.__file__).parent.glob("*.py"))
        if any(
            word in path.read_text(encoding="utf-8") for word in ("matplotlib", "grid(", "Cell(")
        )
    ),
]
"""What draws, titles and labels included: a change of it makes figures stale as a change of a
record does."""


def copy_runs() -> dict[str, dict]:
    """The recorded runs of the study figure-1, first seed, by name."""
    found = shown(store_of(STUDIES["figure-1"]))
    rows = {job.name: found(job) for job in STUDIES["figure-1"].jobs(found, 1, False)}
    return {name: row for name, row in rows.items() if row and row["state"] != "begun"}


def margins() -> Figure:
    """The copy task by the margin of the singular values."""
    figure = Figure(figsize=(6.5, 3.6), layout="constrained")
    axes = figure.subplots()
    for name, run in copy_runs().items():
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


def speed() -> Figure:
    """Times of a training step over refnet's, float32, at the papers' sizes."""
    sizes = [row for row in record("peers")["sizes"] if row["dtype"] == "float32"][:7]
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


def histogram() -> Figure:
    """z of correct results and of planted bugs."""
    found = record("check_rates")["z"]
    kinds = {
        label: [float(z) for z in found[kind].split()]
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


FIGURES: dict[str, tuple[Callable[[], Figure], tuple[Path, ...]]] = {
    "copy-200-by-margin.png": (margins, (FOLDER / "figure-1" / "rows.jsonl",)),
    "speed.png": (speed, (RESULTS / "peers.json",)),
    "judge.png": (histogram, (RATES,)),
}
"""File -> how it is drawn, and the records it is drawn from."""
for study in STUDIES.values():
    found = shown(store_of(study))
    rows = sorted((FOLDER / study.name).rglob("rows.jsonl"))
    drawn = study.figure and partial(study.figure, found, seeds(study), False)
    if drawn and drawn() is not None:
        FIGURES[f"studies/{study.name}/figure.png"] = drawn, tuple(rows)


def digest(paths: Iterable[Path]) -> str:
    """The digest of its records, and of the code that drew it, that a figure holds."""
    parts = [path.read_bytes() for path in (*paths, *CODE)]
    return "records " + hashlib.sha256(b"".join(parts)).hexdigest()


def draw() -> None:
    """Draw those figures whose records have changed, and remove those that nothing draws."""
    for old in {*RESULTS.rglob("*.png")} - {RESULTS / name for name in FIGURES}:
        old.unlink()
    for name, (make, records) in FIGURES.items():
        place, mark = RESULTS / name, digest(records)
        if not place.exists() or mark.encode() not in place.read_bytes():
            plots.save(place, make(), Source=mark)


if __name__ == "__main__":
    draw()
    sys.exit(0)
