"""Random starts: variances through depth, and the way to an orthogonal matrix."""

from functools import partial
from typing import Any

import numpy as np
from numpy.random import Generator, default_rng

from refnet.analysis.orthogonalization import (
    DefectMoments,
    basin,
    defect_moments,
    gaussian_moments,
    singular_value_map,
    uniform_moments,
)
from refnet.analysis.variance import predicted_variances, simulated_variances
from refnet.batch import Array
from refnet.explain.base import Explanation, Table
from refnet.maths.activations import ACTIVATIONS
from refnet.matrices.initializers import initialize
from refnet.matrices.orthogonality import defect, orthogonalize
from refnet.runs.rows import Canvas
from refnet.runs.style import POINTS, THEORY, Draw, label_of, legend_below, line, lines, panels
from refnet.training.specs import read_spec

FIELDS = {"v": "the pre-activations v", "dv": "dE/dv", "dW": "dE/dW"}
"""What has a variance in every layer, and its words."""
SYMBOLS = {"v": "$v$", "dv": r"$\partial E/\partial v$", "dW": r"$\partial E/\partial W$"}
LAPACK = "by QR, signs as LAPACK leaves them"


def explain_variance(
    size: int = 100,
    seed: int = 0,
    matrix: str | None = None,
    activation: str = "tanh",
    depth: int = 10,
    runs: int = 40,
) -> Explanation:
    """Variances of activations and gradients by layer: predicted and simulated."""
    rng = default_rng(seed)
    widths, act = (size,) * (depth + 2), ACTIVATIONS[activation]
    nets = {}
    for name in [matrix] if matrix else ["glorot_uniform", "orthogonal", "gaussian:sd=0.07"]:
        kind, options = read_spec("weights", name)
        measured, errors, variances = simulated_variances(
            widths, partial(initialize, kind, **options), rng, runs, act
        )
        mean = predicted_variances(widths, variances, activation=act)
        nets[name] = measured, errors, mean, predicted_variances(widths, variances)
    tables = [
        Table(
            f"Mean square of {words}: measured over {runs} nets, predicted for {activation}, "
            "predicted for a linear net (Glorot & Bengio)",
            ["weights", "layer", "measured", "standard error", "predicted", "linear"],
            [
                [
                    name,
                    layer,
                    getattr(measured, field)[layer - 1],
                    errors[k][layer - 1],
                    getattr(mean, field)[layer - 1],
                    getattr(linear, field)[layer - 1],
                ]
                for name, (measured, errors, mean, linear) in nets.items()
                for layer in (1, depth // 2, depth + 1)
            ],
        )
        for k, (field, words) in enumerate(FIELDS.items())
    ]

    def draw(figure: Canvas) -> None:
        panels = figure.subplots(1, 3)
        for ax, field in zip(panels, FIELDS):
            _draw_variances(ax, field, nets, depth)
        legend_below(figure)

    return Explanation(
        f"Variances in a net of {depth} hidden layers of {size} {activation} units",
        "Manchev & Spratling, eqs. 7-14 (errata 4, 7, 8, 9); Glorot & Bengio (2010)",
        "Forward, each layer multiplies the mean square by the fan-in times Var W; backward, by "
        "the fan-out times Var W and the mean of f'^2. The saturation of f shrinks both."
        + (
            ""
            if matrix
            else " Glorot's weights make the linear factors 1; a standard deviation "
            f"of .07 makes them {0.0049 * size:.3g}."
        ),
        tables,
        draw,
    )


def explain_orthogonalization(
    size: int = 100, seed: int = 0, matrix: str | None = None, runs: int = 500
) -> Explanation:
    """The defect of a random matrix: printed, derived, simulated; the map of singular values."""
    rng = default_rng(seed)
    samples, moments = _defects(size, runs, rng)
    sd = min(0.1, size**-0.5)  # the largest singular value, about 2 sd sqrt(size), converges
    start = initialize("gaussian", (size, size), rng, sd=sd)
    descent = orthogonalize(start)
    s = np.linalg.svd(start, compute_uv=False)
    costs = []
    for cost in descent.costs[: descent.steps]:
        costs.append((cost, float(((s * s - 1) ** 2).sum())))
        s = singular_value_map(s, 0.1)
    tables = [
        moments,
        Table(
            "The map s -> s (1 + 4 a (1 - s^2)) of a step with rate a: 1 or -1 attracts all s "
            "below the limit but 0 and what lands on it, and the distance shrinks by the factor "
            "(erratum 17)",
            ["rate a", "limit of s", "factor"],
            [[a, *basin(a)] for a in (0.01, 0.05, 0.1, 0.125, 0.2)],
        ),
        Table(
            f"Descent with rate .1 from a Gaussian start of sd {sd:.3g}: cost, and cost "
            "by the map alone",
            ["step", "cost", "by the map"],
            [[i, *costs[i]] for i in range(0, descent.steps, max(1, descent.steps // 8))],
        ),
        _haar(rng),
    ]

    draws: list[Draw] = [
        *(partial(_draw_defects, name, *sample) for name, sample in samples.items()),
        _draw_values,
        partial(_draw_costs, costs),
    ]
    return Explanation(
        "Descending to an orthogonal matrix",
        "Manchev & Spratling, II-A, eqs. 19-28 (errata 13-17)",
        "The defect of a random matrix is nearly normally distributed, with a mean and a variance "
        "that follow from the moments of its entries, not with the printed ones. Descent keeps "
        "the singular vectors, so a Gaussian start ends at a uniformly distributed orthogonal "
        "matrix, and moves each singular value by a cubic map whose basin decides success.",
        tables,
        partial(panels, draws=draws, columns=2),
        5,
    )


Samples = dict[str, tuple[Array, DefectMoments, float]]
"""Drawn defects, their derived moments, and the printed mean, by the kind of entries."""


def _defects(m: int, runs: int, rng: Generator) -> tuple[Samples, Table]:
    samples, rows = {}, []
    for name, moments, printed_mean, printed_variance in (
        ("gaussian", gaussian_moments(0.1), m * m * 0.01 + m, 2 * m * m * 1e-4 + 2 * m * 0.01),
        (
            "uniform",
            uniform_moments(0.1),
            m * m * 0.01 / 3 + m,
            m * m * 22 / 45 * 1e-4 + m * 2 / 3 * 0.01,
        ),
    ):
        true = defect_moments(m, m, moments)
        sample = np.array([float(defect(initialize(name, (m, m), rng))) for _ in range(runs)])
        samples[name] = sample, true, printed_mean
        errors = sample.std() / runs**0.5, sample.var() * (2 / runs) ** 0.5
        rows += [
            [f"{name}, mean", printed_mean, true.mean, sample.mean(), errors[0]],
            [f"{name}, variance", printed_variance, true.variance, sample.var(ddof=1), errors[1]],
        ]
    return samples, Table(
        f"f(X) = ||X X' - I||^2 of {m} x {m} matrices with Gaussian entries of "
        f"sd .1 and uniform ones from -.1 to .1; {runs} draws (errata 13, 14, 15)",
        ["", "printed", "derived", "simulated", "standard error"],
        rows,
    )


def _haar(rng: Generator) -> Table:
    signs: dict[str, list[tuple[float, float]]] = {"by descent": [], LAPACK: []}
    for _ in range(200):
        G = initialize("gaussian", (8, 8), rng, sd=0.2)
        matrices = orthogonalize(G, max_steps=3000).W, np.linalg.qr(G)[0]
        for pairs, Q in zip(signs.values(), matrices):
            pairs.append((np.sign(Q[0, 0]), np.trace(Q) ** 2))
    rows: list[list[Any]] = []
    for name, pairs in signs.items():
        sign, square = np.mean(pairs, axis=0)
        errors = np.std(pairs, axis=0) * 200**-0.5
        rows.append([name, sign, errors[0], square, errors[1]])
    return Table(
        "Is the orthogonal matrix uniformly (Haar) distributed? 200 draws of 8 x 8; the mean "
        "sign of the first entry is then 0, the mean square of the trace 1 (erratum 33)",
        ["", "mean sign", "standard error", "mean trace^2", "standard error"],
        rows,
    )


def _draw_values(ax: Canvas) -> None:
    s, starts = np.linspace(0, 2.6, 261), np.linspace(0.1, 2.1, 11)
    for i, steps in enumerate((1, 3, 20)):
        ends = s
        with np.errstate(over="ignore", invalid="ignore"):
            for _ in range(steps):
                ends = singular_value_map(ends, 0.1)
        label = f"map, {steps} step{'s' * (steps > 1)}"
        ax.plot(s, np.where(abs(ends) < 4, ends, np.nan), label=label, **line(i))
        W = orthogonalize(np.diag(starts), 0.1, stop_cost=None, max_steps=steps).W
        ax.plot(starts, np.diag(W), label=None if i else "descent on diag($s$)", **POINTS)
    ax.axvline(basin(0.1).limit, **THEORY, label="limit of the basin")
    ax.set(
        title="descent of one singular value, rate 0.1",
        xlabel="$s$ at the start",
        ylabel="$s$ after it",
        ylim=(-2, 2),
    )


def _draw_variances(ax: Canvas, field: str, nets: dict[str, tuple[Any, ...]], depth: int) -> None:
    layers = range(1, depth + 2)
    styles, dotted = lines(nets), lines(nets, len(layers))
    for name, (measured, _, mean, linear) in nets.items():
        shown = label_of(name)
        points = {**dotted[name], "linestyle": "none", "label": f"{shown}, measured"}
        ax.semilogy(layers, getattr(measured, field), **points)
        ax.semilogy(layers, getattr(mean, field), label=f"{shown}, predicted", **styles[name])
        ax.semilogy(layers, getattr(linear, field), label="linear nets, predicted", **THEORY)
    ax.set(title=f"mean square of {SYMBOLS[field]}", xlabel="layer")


def _draw_costs(costs: list[tuple[float, float]], ax: Canvas) -> None:
    measured, mapped = zip(*costs)
    ax.semilogy(mapped, label="by the map of $s$", **line(1))
    ax.semilogy(measured, label="descent", **POINTS)
    ax.set(
        title="descent from a Gaussian start, rate 0.1",
        xlabel="step",
        ylabel=r"cost $\|WW^\top - I\|^2$",
    )


def _draw_defects(
    name: str, sample: Array, true: DefectMoments, printed: float, ax: Canvas
) -> None:
    ax.hist(sample, bins=40, density=True, color="lightgrey", label=f"{len(sample)} draws")
    x = np.linspace(sample.min(), sample.max(), 200)
    density = np.exp(-((x - true.mean) ** 2) / 2 / true.variance)
    density /= (2 * np.pi * true.variance) ** 0.5
    ax.plot(x, density, label="derived mean and variance", **line(0))
    ax.set(
        title=f"{name} entries (printed mean: {printed:.4g})",
        xlabel=r"defect $\|XX^\top - I\|^2$",
        ylabel="density",
    )
