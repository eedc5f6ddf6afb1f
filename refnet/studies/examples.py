"""The runs that the page on training shows beside the papers' studies: temporal order with one
rate for all methods, and an LSTM on the adding task.

Checked by: tests/studies/test_pages.py.
"""

from dataclasses import replace
from typing import Any

from refnet.runs.read import Record
from refnet.runs.rows import finite
from refnet.studies.findings import FINDINGS
from refnet.studies.grid import Cell, accuracy, drawn, grid, label_of, solved_at
from refnet.studies.quantities import best
from refnet.studies.study import RowOf, rows_of

__all__ = ["CURVE", "LSTM", "METHODS", "STUDY"]

CURVE = ("accuracy", "spectral_radius", "gradient_norm", "mse")

_SETTINGS: dict[str, Record] = {
    "plain": {"iterations": 20_000},
    "oinit": {"method": "oinit", "orthogonal": "hidden"},
    "open": {"method": "open", "open_form": "squared"},
}
METHODS = {
    method: Cell(
        f"temporal order T = 60, {method}",
        {"task": "temporal-order", "length": 60, "rate": 1e-4, **settings},
        quick={"task": "temporal-order:samples=1000", "length": 20, "iterations": 1000},
    )
    for method, settings in _SETTINGS.items()
}
LSTM = Cell(
    "adding T = 200, LSTM",
    {
        "task": "adding:protocol=vorontsov,samples=1000",
        "length": 200,
        "cell": "lstm",
        "hidden": 64,
        "batch": 50,
        "optimizer": "adam",
        "rate": 2e-3,
        "clip": "norm",
        "backend": "reference",
        "iterations": 6000,
    },
    quick={"length": 20, "iterations": 300},
)

_TABLE = grid(
    "examples",
    "Runs that refnet/training/README.md shows: one rate for all methods, and an LSTM",
    [*METHODS.values(), LSTM],
    [
        ("iterations until solved", solved_at, ".0f"),
        ("best accuracy, %", accuracy, ".2f"),
        ("best mean squared error", best("mse"), ".4f"),
    ],
    CURVE,
    notes=FINDINGS["examples"],
)


def _figure(row_of: RowOf, seeds: int, quick: bool) -> Any:
    """Temporal order: accuracy, spectral radius and gradient norm of the methods."""
    from matplotlib.figure import Figure

    from refnet.runs.plots import banded, of_seeds

    runs = {}
    for method, label in (("plain", "plain"), ("oinit", "OINIT"), ("open", "OPEN")):
        jobs = [METHODS[method].job(seed, quick, CURVE) for seed in range(seeds)]
        if rows := drawn(rows_of(row_of, jobs)):
            runs[label_of(label, rows)] = [row["curve"] for row in rows]
    if not runs:
        return _TABLE.figure and _TABLE.figure(row_of, seeds, quick)
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    for axes, (column, label, scale) in zip(
        figure.subplots(1, 3),
        (
            ("accuracy", "test accuracy", "linear"),
            ("spectral_radius", "spectral radius", "linear"),
            ("gradient_norm", "norm of the gradient", "log"),
        ),
    ):
        for method, curves in runs.items():
            banded(
                axes,
                [(finite(curve["iteration"]), finite(curve[column])) for curve in curves],
                method,
                linewidth=1.6,
            )
        axes.set(xscale="log", yscale=scale, title=label, xlabel="iteration (20 sequences each)")
        axes.grid(alpha=0.3)
    figure.axes[1].legend(loc="upper left")
    figure.suptitle(
        f"Temporal order, T = {20 if quick else 60}: 100 tanh units, dense recurrent "
        f"matrix, RMSprop at 1e-4\n{of_seeds([*map(len, runs.values())])}"
        "; a run that has solved the task keeps its last value",
        fontsize="medium",
    )
    return figure


STUDY = replace(_TABLE, figure=_figure, switched=None)
