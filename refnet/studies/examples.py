"""The runs that the page on training shows beside the papers' studies: temporal order with one
rate for all methods, and an LSTM on the adding task.

Checked by: tests/studies/test_pages.py.
"""

from dataclasses import replace

from refnet.runs.plots import banded, of_seeds
from refnet.runs.rows import Canvas, finite
from refnet.studies.declared import declared
from refnet.studies.grid import drawn, label_of
from refnet.studies.study import View

__all__ = ["LSTM", "METHODS", "STUDY"]

_TABLE = declared("examples")
*_METHODS, LSTM = _TABLE.cells
METHODS = dict(zip(("plain", "oinit", "open"), _METHODS))


def _figure(view: View) -> Canvas:
    """Temporal order: accuracy, spectral radius and gradient norm of the methods."""
    from refnet.runs.style import legend_below, lines, page

    runs = {}
    for method, label in (("plain", "plain"), ("oinit", "OINIT"), ("open", "OPEN")):
        jobs = [METHODS[method].job(seed, view.quick, _TABLE.curve) for seed in range(view.seeds)]
        if rows := drawn(view.rows(jobs)):
            runs[label_of(label, rows)] = [row["curve"] for row in rows]
    if not runs:
        return _TABLE.figure(view)
    title = (
        f"Temporal order, T = {20 if view.quick else 60}: 100 tanh units, dense recurrent "
        f"matrix, RMSprop at 1e-4, 20 sequences each; {of_seeds([*map(len, runs.values())])}"
        "; a run that has solved the task keeps its last value"
    )
    with page(2.8, title) as figure:
        for axes, (column, label, scale) in zip(
            figure.subplots(1, 3),
            (
                ("accuracy", "test accuracy", "linear"),
                ("spectral_radius", "spectral radius", "linear"),
                ("gradient_norm", "norm of the gradient", "log"),
            ),
        ):
            for method, style in lines(runs).items():
                pairs = [
                    (finite(curve["iteration"]), finite(curve[column])) for curve in runs[method]
                ]
                banded(axes, pairs, method, **style)
            axes.set(xscale="log", yscale=scale, title=label, xlabel="iteration")
        legend_below(figure)
    return figure


STUDY = replace(_TABLE.study(), figure=_figure, switched=None)
