"""The tables and figures of Manchev & Spratling, under the protocol of their released code."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import sqrt

from refnet.analysis.orthogonalization import orthogonalization_experiment
from refnet.runs.plots import words
from refnet.runs.read import Record
from refnet.runs.rows import Canvas, finite, table
from refnet.studies.declared import declared
from refnet.studies.grid import Cell, Grid, label_of
from refnet.studies.ladder import NETS, TABLES
from refnet.studies.published import place_of
from refnet.studies.quantities import BATCH, QUANTITIES
from refnet.studies.study import Measurement, Published, Study, View, spread

__all__ = ["STUDIES"]

TITLE = (
    "The orthogonalisation experiment of Manchev & Spratling, II-A: "
    "10,000 random 100 x 100 matrices"
)
MEANS = {"gaussian": "22.77", "uniform": "24.00"}


def orthogonalise(distribution: str, seed: int, runs: int) -> Record:
    """The 10,000-run experiment of II-A, for one distribution."""
    steps = orthogonalization_experiment(distribution, runs=runs, seed=seed)
    return {
        "mean": round(steps.mean, 4),
        "sd": round(steps.sd, 4),
        "extremes": [int(value) for value in steps.extremes],
        "success": steps.success_rate,
    }


EXPERIMENTS = Measurement(
    orthogonalise, {name: {"distribution": name, "runs": 10_000} for name in MEANS}, {"runs": 500}
)


def _experiment_table(view: View) -> str:
    lines, errors = [], []
    for distribution, rows in EXPERIMENTS.rows(view).items():
        extremes = [value for row in rows for value in row["extremes"]]
        lines.append(
            [
                distribution,
                spread([row["mean"] for row in rows]),
                MEANS[distribution],
                f"{min(extremes)} to {max(extremes)}" if extremes else "not run",
                spread([100 * row["success"] for row in rows]),
                "100",
            ]
        )
        errors += [row["sd"] / sqrt(10_000) for row in rows]
    text = table(
        ["start", "mean steps", "printed", "fewest to most", "success, %", "printed"], lines
    )
    if view.quick or not errors:
        return text
    return text + (
        f"\nA mean of 10,000 matrices has a standard error of {max(errors):.2f}, a "
        "printed one as well, and the difference of two one of "
        f"{sqrt(2) * max(errors):.2f}.\n"
    )


def _numbers(view: View) -> list[Published]:
    numbers = []
    for distribution, rows in EXPERIMENTS.rows(view).items():
        for what, value, column, factor, within, higher in (
            ("mean steps", float(MEANS[distribution]), "mean", 1, 0.1, False),
            ("success, %", 100.0, "success", 100, 1.0, True),
        ):
            values = tuple(factor * row[column] for row in rows)
            numbers.append(
                Published(
                    place_of(TITLE),
                    f"{distribution}, {what}",
                    value,
                    values,
                    "orthogonalisation",
                    within,
                    higher,
                )
            )
    return numbers


EARLY = 150
"""Thousands of examples in Figure 3b."""


def pixel_by_pixel(rows: dict[str, Record], title: str = "") -> Canvas:
    """Figure 3a, the accuracy of all nets, and Figure 3b, how an orthogonal net starts to learn:
    W_hh's defect and spectral radius and the norm of the gradient (theirs: of W_hh alone) over
    the first examples. The text says that 3b is of OINIT; that it starts at a spectral radius of 0
    fits OPEN only, so both are drawn.

    Checked by: tests/studies/test_figures.py::test_figure_3_of_manchev_and_spratling.
    """
    from refnet.runs.style import legend_below, page, plot

    early = [label for label in ("SRNN+OINIT", "SRNN+OPEN") if label in rows]
    with page(2.4 * (1 + bool(early)), title) as figure:
        upper, *lower = figure.subfigures(1 + bool(early), 1, squeeze=False).ravel()
        axes = upper.subplots()
        curves = {
            label_of(label, [row]): [finite(row["curve"][key]) for key in ("iteration", "accuracy")]
            for label, row in rows.items()
        }
        plot(axes, curves, title="3a: all nets", xlabel="iteration", ylabel="test accuracy")
        legend_below(upper)
        for part in lower:
            for label, panel in zip(early, part.subplots(1, len(early), squeeze=False)[0]):
                curve = rows[label]["curve"]
                examples = BATCH / 1000 * finite(curve["iteration"])
                plot(
                    panel,
                    {
                        words(column): (examples, finite(curve[column]))
                        for column in ("defect", "spectral_radius", "gradient_norm")
                    },
                    "log",
                    title=f"3b, {label}",
                    xlabel="thousands of examples",
                    xlim=(0, EARLY),
                    ylabel="defect, radius, norm",
                )
            legend_below(part)
    return figure


def _searched(
    study: Study,
    net: str,
    settings: Record,
    rates: Sequence[float],
    deviations: Sequence[float],
    strengths: Sequence[float],
) -> Study:
    """The study of a ``net`` with a search of the text's grid, in shorter runs: ``rates``, standard
    ``deviations`` of the start and, for OPEN, lambdas."""
    cells: list[Cell] = []
    for name, method in NETS.items():
        lambdas = [{"strength": value} for value in strengths] if method == "open" else [{}]
        for rate, deviation, other in product(rates, deviations, lambdas):
            label = f"{name.replace('SRNN', net)}, alpha = {rate:g}, sd = {deviation:g}"
            label += "".join(f", lambda = {value:g}" for value in other.values())
            start = {"method": method, "rate": rate, "weights": f"gaussian:sd={deviation:g}"}
            quick = {} if cells else {"iterations": 60, "evaluate_every": 60}
            cells.append(Cell(label, {**settings, **start, **other}, quick=quick))
    title = f"The grid of the text, in runs of {settings['iterations']:,} iterations"
    grid = Grid(study.name, title, cells, [("best accuracy, %", QUANTITIES["accuracy"], ".2f")])
    return replace(study, search=replace(grid.study(), switched=None))


SEARCHED = {"protocol": "manchev-spratling/code", "order": "shuffled"}
STUDIES = [
    Study("orthogonalisation", TITLE, EXPERIMENTS.jobs, _experiment_table, published=_numbers),
    declared("figure-2").study(),
    _searched(
        declared("table-iii").study(),
        "FF",
        {**SEARCHED, "task": "mnist", "iterations": 60_000, "evaluate_every": 3000},
        (0.1, 0.01, 0.001, 0.0001, 0.00001),
        (0.001,),
        (1.0, 0.1, 0.01, 0.001),
    ),
    declared("table-iii-rates").study(),
    declared("table-iv").study(),
    *TABLES,
    declared("gaussian-start").study(),
    _searched(
        declared("table-ii", pixel_by_pixel).study(),
        "SRNN",
        {**SEARCHED, "task": "sequential-mnist", "iterations": 20_000},
        (1e-3, 1e-4, 1e-5, 1e-6, 1e-7),
        (0.001, 0.01, 0.1),
        (1.0, 0.1, 0.01),
    ),
]
