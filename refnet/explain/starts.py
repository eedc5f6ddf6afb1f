"""Random starts: variances through depth, and the way to an orthogonal matrix."""

from functools import partial
from typing import Any

import numpy as np

from refnet.analysis.orthogonalization import (
    basin,
    defect_moments,
    gaussian_moments,
    singular_value_map,
    uniform_moments,
)
from refnet.analysis.variance import predicted_variances, simulated_variances
from refnet.batch import Array
from refnet.explain.base import LEGEND, Explanation, Table, style
from refnet.maths.activations import ACTIVATIONS
from refnet.matrices.initializers import initialize
from refnet.matrices.orthogonality import defect, orthogonalize
from refnet.training.specs import read_spec

__all__ = ["explain_orthogonalization", "explain_variance"]


def explain_variance(
    size: int = 100,
    seed: int = 0,
    matrix: str | None = None,
    activation: str = "tanh",
    depth: int = 10,
    runs: int = 40,
) -> Explanation:
    """Variances of activations and gradients by layer: predicted and simulated."""
    rng = np.random.default_rng(seed)
    starts = [matrix] if matrix else ["glorot_uniform", "orthogonal", "gaussian:sd=0.07"]
    widths = (size,) * (depth + 2)
    act = ACTIVATIONS[activation]
    found = {}
    for name in starts:
        kind, options = read_spec("weights", name)
        measured, errors, variances = simulated_variances(
            widths, partial(initialize, kind, **options), rng, runs, act
        )
        found[name] = (
            measured,
            errors,
            predicted_variances(widths, variances, activation=act),
            predicted_variances(widths, variances),
        )
    layers = range(1, depth + 2)
    shown = [1, depth // 2, depth + 1]
    tables = [
        Table(
            f"{what}: measured over {runs} nets, predicted for {activation}, predicted for "
            "a linear net (Glorot & Bengio)",
            ["weights", "layer", "measured", "standard error", "predicted", "linear"],
            [
                [
                    name,
                    layer,
                    float(getattr(measured, field)[layer - 1]),
                    float(errors[k][layer - 1]),
                    float(getattr(mean, field)[layer - 1]),
                    float(getattr(linear, field)[layer - 1]),
                ]
                for name, (measured, errors, mean, linear) in found.items()
                for layer in shown
            ],
        )
        for k, (field, what) in enumerate(
            (
                ("v", "Mean square of the pre-activations v"),
                ("dv", "Mean square of dE/dv"),
                ("dW", "Mean square of dE/dW"),
            )
        )
    ]

    def draw(figure: Any) -> None:
        panels = figure.subplots(1, 3)
        for ax, (field, title) in zip(panels, (("v", "v"), ("dv", "dE/dv"), ("dW", "dE/dW"))):
            for i, (name, (measured, _, mean, linear)) in enumerate(found.items()):
                look = style(i, len(layers))
                ax.semilogy(
                    layers,
                    getattr(measured, field),
                    label=f"{name}, measured",
                    **{**look, "linestyle": "none"},
                )
                ax.semilogy(
                    layers,
                    getattr(mean, field),
                    label=f"{name}, predicted",
                    **{**look, "marker": ""},
                )
                ax.semilogy(
                    layers,
                    getattr(linear, field),
                    color="lightgrey",
                    zorder=0,
                    linewidth=2.5,
                    label="linear nets, predicted" if i == len(found) - 1 else None,
                )
            ax.set_title(f"mean square of {title}")
            ax.set_xlabel("layer")
            ax.set_xticks(range(1, depth + 2, max(1, depth // 5)))
        figure.legend(
            *panels[0].get_legend_handles_labels(),
            ncols=3,
            fontsize=7,
            frameon=False,
            loc="outside lower center",
        )

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


LAPACK = "by QR, signs as LAPACK leaves them"


def _map_curve(rate: float, steps: int) -> tuple[Array, Array]:
    s = np.linspace(0, 2.6, 261)
    out = s
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(steps):
            out = singular_value_map(out, rate)
    return s, np.where(abs(out) < 4, out, np.nan)


def explain_orthogonalization(
    size: int = 100, seed: int = 0, matrix: str | None = None, runs: int = 500
) -> Explanation:
    """The defect of a random matrix: printed, derived, simulated; the map of singular values."""
    rng = np.random.default_rng(seed)
    m, rows, samples = size, [], {}
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
        samples[name] = (sample, true, printed_mean, printed_variance)
        rows += [
            [
                f"{name}, mean",
                printed_mean,
                true.mean,
                float(sample.mean()),
                float(sample.std() / runs**0.5),
            ],
            [
                f"{name}, variance",
                printed_variance,
                true.variance,
                float(sample.var(ddof=1)),
                float(sample.var() * (2 / runs) ** 0.5),
            ],
        ]
    sd = min(0.1, m**-0.5)  # the largest singular value, about 2 sd sqrt(m), converges
    start = initialize("gaussian", (m, m), rng, sd=sd)
    descent = orthogonalize(start)
    s = np.linalg.svd(start, compute_uv=False)
    predicted = []
    for _ in range(descent.steps):
        predicted.append(float(((s * s - 1) ** 2).sum()))
        s = singular_value_map(s, 0.1)
    phases: dict[str, list[tuple[float, float]]] = {"by descent": [], LAPACK: []}
    for _ in range(200):
        G = initialize("gaussian", (8, 8), rng, sd=0.2)
        for name, Q in (
            ("by descent", orthogonalize(G, max_steps=3000).W),
            (LAPACK, np.linalg.qr(G)[0]),
        ):
            phases[name].append((float(np.sign(Q[0, 0])), float(np.trace(Q)) ** 2))
    tables = [
        Table(
            f"f(X) = ||X X' - I||^2 of {size} x {size} matrices with Gaussian entries of "
            f"sd .1 and uniform ones from -.1 to .1; {runs} draws (errata 13, 14, 15)",
            ["", "printed", "derived", "simulated", "standard error"],
            rows,
        ),
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
            [
                [i, descent.costs[i], predicted[i]]
                for i in range(0, descent.steps, max(1, descent.steps // 8))
            ],
        ),
        Table(
            "Is the orthogonal matrix uniformly (Haar) distributed? 200 draws of 8 x 8; the mean "
            "sign of the first entry is then 0, the mean square of the trace 1 (erratum 33)",
            ["", "mean sign", "standard error", "mean trace^2", "standard error"],
            [
                [
                    name,
                    *(
                        value
                        for part in zip(*pairs)
                        for value in (float(np.mean(part)), float(np.std(part)) * 200**-0.5)
                    ),
                ]
                for name, pairs in phases.items()
            ],
        ),
    ]

    def draw(figure: Any) -> None:
        panels = figure.subplots(2, 2).ravel()
        for ax, (name, (sample, true, printed_mean, _)) in zip(panels, samples.items()):
            ax.hist(sample, bins=40, density=True, color="lightgrey", label=f"{runs} draws")
            x = np.linspace(sample.min(), sample.max(), 200)
            density = np.exp(-((x - true.mean) ** 2) / 2 / true.variance)
            ax.plot(
                x,
                density / (2 * np.pi * true.variance) ** 0.5,
                label="derived mean and variance",
                **style(0),
            )
            ax.set_title(f"defect, {name} entries\n(printed mean: {printed_mean:.4g})")
            ax.set_xlabel("f(X)")
            ax.set_ylabel("density")
            ax.set_ylim(top=1.35 * ax.get_ylim()[1])
            ax.legend(**LEGEND)
        begun = np.linspace(0.1, 2.1, 11)
        for i, (rate, steps) in enumerate(((0.1, 1), (0.1, 3), (0.1, 20))):
            panels[2].plot(
                *_map_curve(rate, steps), label=f"map, {steps} step{'s' * (steps > 1)}", **style(i)
            )
            ends = orthogonalize(np.diag(begun), 0.1, stop_cost=None, max_steps=steps).W
            panels[2].plot(
                begun,
                np.diag(ends),
                "o",
                mfc="none",
                markersize=3.5,
                color="black",
                label=None if i else "descent on diag(s)",
            )
        panels[2].axvline(basin(0.1).limit, color="grey", linewidth=0.8)
        panels[2].axhline(1, color="grey", linewidth=0.5)
        panels[2].set_ylim(-2, 2)
        panels[2].set_title("s after descent with rate .1\n(grey line: limit of the basin)")
        panels[2].set_xlabel("s at the start")
        panels[2].legend(**LEGEND)
        panels[3].semilogy(np.arange(descent.steps), predicted, label="by the map of s", **style(1))
        panels[3].semilogy(
            np.arange(descent.steps),
            descent.costs[: descent.steps],
            "o",
            color="black",
            mfc="none",
            markersize=3.5,
            label="descent",
        )
        panels[3].set_title("cost ||WW' - I||^2 by step, rate .1\n(Gaussian start)")
        panels[3].set_xlabel("step")
        panels[3].legend(**LEGEND)

    return Explanation(
        "Descending to an orthogonal matrix",
        "Manchev & Spratling, II-A, eqs. 19-28 (errata 13-17)",
        "The defect of a random matrix is nearly normally distributed, with a mean and a variance "
        "that follow from the moments of its entries, not with the printed ones. Descent keeps "
        "the singular vectors, so a Gaussian start ends at a uniformly distributed orthogonal "
        "matrix, and moves each singular value by a cubic map whose basin decides success.",
        tables,
        draw,
        5,
    )
