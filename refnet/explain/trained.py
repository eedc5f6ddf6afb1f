"""What training made of a run: its weights and singular values beside those of the start, and its
score at other lengths than that of training.

Checked by: tests/training/test_loaded_runs.py.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from refnet.batch import Params
from refnet.explain.base import Table
from refnet.runs.plots import words
from refnet.runs.rows import Canvas
from refnet.runs.style import Curves, Draw, plot
from refnet.tasks import make_task
from refnet.training.experiment import task_options
from refnet.training.fit import Loaded
from refnet.training.steps import outputs

SMALL = 0.1
"""Weights below so many standard deviations of the start count as eliminated."""
FACTORS = (1, 2, 3, 4)
"""Lengths, as multiples of that of training."""
SEQUENCES = 200
LABELS = ("start", "best")


def panel(curves: Curves, *scale: Any, **settings: Any) -> Draw:
    """What draws these curves (``style.plot``)."""
    return lambda ax: plot(ax, curves, *scale, **settings)


def weights(run: Loaded) -> Iterator[Table | Draw]:
    """The hidden matrices before training and at the best evaluation: how many weights are near
    zero ("synaptic elimination"), and the singular values.

    Source: Manchev & Spratling; Vorontsov et al., Figures 3 and 6.
    """
    e, rows = run.experiment, []
    both = [e.matrices_of(params, e.hidden) for params in (e.start()[0], run.best_params)]
    for name, start in both[0].items():
        pair = [Ws[name].astype(float) for Ws in both]
        facts = [(W.std(), (abs(W) < SMALL * start.std()).mean()) for W in pair]
        rows.append([name, *map(float, np.ravel(facts))])
    yield Table(
        f"Hidden weights before training and at the best evaluation; small: below {SMALL:g} "
        "standard deviations of the start",
        ["matrix", "sd before", "small before", "sd after", "small after"],
        rows,
    )
    yield partial(_draw_weights, both)
    yield partial(_draw_spectra, both)


def _draw_weights(both: list[Params], ax: Canvas) -> None:
    entries = [np.concatenate([W.ravel() for W in Ws.values()]) for Ws in both]
    ends = np.histogram_bin_edges(entries, 60)
    middles = (ends[1:] + ends[:-1]) / 2
    curves = {
        label: (middles, np.histogram(values, ends)[0]) for label, values in zip(LABELS, entries)
    }
    plot(ax, curves, "log", title="hidden weights", xlabel="weight", ylabel="number")


def _draw_spectra(both: list[Params], ax: Canvas) -> None:
    for pair in zip(*(Ws.values() for Ws in both)):
        spectra = [np.linalg.svd(W.astype(float), compute_uv=False) for W in pair]
        curves = {label: (range(1, len(s) + 1), s) for label, s in zip(LABELS, spectra)}
        plot(ax, curves, title="singular values, hidden", xlabel="rank, largest first")


def lengths(run: Loaded) -> Iterator[Table | Draw]:
    """The score at lengths beyond that of training, of a task that has a length."""
    if not run.config.length:
        return
    name, options = task_options(run.config)
    metric, scores = run.task.metric, {}
    for length in (factor * run.config.length for factor in FACTORS):
        task = make_task(name, **{**options, "length": length})
        batch = task.batch(run.iteration, SEQUENCES, run.config.seed + 1)
        e = replace(run.experiment, task=task)
        scores[length] = float(outputs(e, run.best_params, iter([batch]))[metric])
    yield Table(
        f"{words(metric)} at longer T than that of training, {SEQUENCES} new sequences",
        [f"T = {length}" for length in scores],
        [[*scores.values()]],
    )
    curve = {"": ([*scores], [*scores.values()])}
    yield panel(curve, title=f"{words(metric)} by length", xlabel="$T$, from training's on")
