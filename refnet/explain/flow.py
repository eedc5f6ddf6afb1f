"""Gradients through time and the spectra behind them."""

from collections.abc import Callable
from typing import Any

import numpy as np

from refnet.analysis.flow import jacobian_spectra, lyapunov_exponents, step_bounds
from refnet.analysis.spectra import (
    henrici,
    numerical_range,
    pseudospectrum,
    singular_values,
    spectral_radius,
)
from refnet.batch import Array
from refnet.cells import CELLS
from refnet.explain.base import LEGEND, Explanation, Table, label_of, named_matrix, style
from refnet.matrices.initializers import initialize
from refnet.nets.recurrent import RecurrentNet
from refnet.studies.flow import norms_in_training
from refnet.training.protocols import preset

__all__ = ["explain_gradient_flow", "explain_spectra"]

MARGINS = ("0", "0.1", "1", "none")


def explain_gradient_flow(
    size: int = 32, seed: int = 0, matrix: str | None = None, length: int = 40, updates: int = 100
) -> Explanation:
    """Gradient norms over time and updates by margin; exponents of every cell; eq. 5's bound."""
    rng = np.random.default_rng(seed)
    every = max(1, updates // 25)
    seen = (updates - 1) // every * every  # the last number of updates after which it is looked
    maps = {
        margin: norms_in_training(
            preset(
                "copy",
                length=length,
                hidden=size,
                seed=seed,
                backend="reference",
                dtype="float64",
                rate=1e-3,
                manifold_rate=1e-3,
                transition=f"svd:margin={margin}",
            ),
            updates,
            every,
        )
        for margin in MARGINS
    }
    rows = []
    for margin, (norms, values) in maps.items():
        ratio = norms[:, 0] / norms[:, -1]
        rows.append(
            [
                margin,
                float(ratio[0]),
                float(ratio[-1]),
                float(values[-1].min()),
                float(values[-1].max()),
            ]
        )
    x = rng.normal(size=(50, 1, 2))
    exponents, spectra = [], {}
    for cell in CELLS:
        net = RecurrentNet(2, size, 2, cell=cell)
        params = net.init(rng, np.float64, recurrent="orthogonal")
        values = lyapunov_exponents(net, params, x)[0]
        with np.errstate(divide="ignore"):
            spectrum = np.log(jacobian_spectra(net, params, x)[0, 0]) / len(x)
        spectra[cell] = values, spectrum
        exponents.append([cell, float(values[0]), float(np.median(values)), float(spectrum[0])])
    bounds, gains = [], {}
    for gain in (0.5, 1.0, 1.5):
        net = RecurrentNet(2, size, 2)
        params = net.init(
            rng, np.float64, recurrent=lambda shape, r: gain * initialize("orthogonal", shape, r)
        )
        gains[gain] = eta, measured = step_bounds(net, params, x)
        bounds.append(
            [
                gain,
                float(eta.mean()),
                float(measured.mean()),
                float(np.exp(lyapunov_exponents(net, params, x)[0, 0])),
            ]
        )
    tables = [
        Table(
            f"Copy task, T = {length}, {size} units: ||dL/dh_0|| over ||dL/dh_T|| for the loss "
            f"of the last step, and the singular values after {seen} updates",
            ["margin", "before training", f"after {seen} updates", "smallest s", "largest s"],
            rows,
        ),
        Table(
            f"Finite-time exponents of dh_T/dh_0, T = {len(x)}, orthogonal start, in nats per "
            "step: 0 keeps a gradient's norm",
            ["cell", "largest", "median", "log(largest singular value) / T"],
            exponents,
        ),
        Table(
            "One step's gain ||da_(t+1)/da_t|| of tanh nets with W = gain times orthogonal: the "
            "bound eta_t (eq. 5), measured, and the gain per step of the whole product",
            ["gain", "eta_t, mean", "measured, mean", "product, per step"],
            bounds,
        ),
    ]

    def draw(figure: Any) -> None:
        upper, lower = figure.subfigures(2, 1, height_ratios=(1, 1.1))
        _draw_maps(upper, maps, updates)
        singular, steps, products = lower.subplots(1, 3)
        for i, (margin, (_, values)) in enumerate(maps.items()):
            at = np.linspace(0, updates, len(values), endpoint=False)
            singular.plot(
                at,
                values.max(axis=1),
                label="no margin" if margin == "none" else f"margin {margin}",
                **style(i),
            )
            singular.plot(at, values.min(axis=1), **style(i))
        for limit in (0.9, 1.1):
            singular.axhline(
                limit,
                color="lightgrey",
                zorder=0,
                label="bounds, margin 0.1" if limit < 1 else None,
            )
        singular.set_title("largest and smallest\nsingular value s of W")
        singular.set_xlabel("update")
        singular.set_ylabel("s")
        for i, (gain, (eta, measured)) in enumerate(gains.items()):
            t = np.arange(1, len(eta) + 1)
            steps.plot(
                t,
                eta[:, 0],
                color="lightgrey",
                linewidth=3,
                zorder=0,
                label=None if i else "bound by eq. 5",
            )
            steps.plot(t, measured[:, 0], label=f"gain {gain:g}", **style(i))
        steps.set_title("gain of one step\nof a tanh net")
        steps.set_xlabel("time step t")
        steps.set_ylabel("||da_(t+1)/da_t||")
        for i, (cell, (values, spectrum)) in enumerate(spectra.items()):
            place = np.linspace(0, 1, len(values))
            products.plot(place, values, label=cell, **style(i))
            seen = spectrum > spectrum[0] - 30 / len(x)  # smaller ones are rounding
            products.plot(
                place[seen][::4],
                spectrum[seen][::4],
                "o",
                mfc="none",
                markersize=3,
                color="grey",
                label=None if i else "log(s) / T, where rounding\nleaves it digits",
            )
        products.set_title(f"exponents of dh_T/dh_0\nafter {len(x)} steps")
        products.set_xlabel("share of directions")
        products.set_ylabel("nats per step")
        for ax in (singular, steps, products):
            ax.legend(**LEGEND, loc="upper center", bbox_to_anchor=(0.5, -0.25), ncols=2)

    return Explanation(
        "Gradient flow through time",
        "Vorontsov et al., Figure 2 and eq. 5 (errata 21, 22); "
        "Manchev & Spratling, eq. 4 (errata 1, 2)",
        "The gradient of the last step's loss at earlier states, while a net with singular values "
        "within a margin of 1 learns the copy task: with margin 0 its norm stays the same at all "
        "times; with a wider margin it may drift. The bound of eq. 5 holds for each step, but the "
        "product of the bounds says little about the product of the steps.",
        tables,
        draw,
        6,
    )


def _draw_maps(figure: Any, maps: dict[str, tuple[Array, Array]], updates: int) -> None:
    logs = {
        margin: np.log10(np.maximum(norms.T / norms[:, -1], 1e-30))
        for margin, (norms, _) in maps.items()
    }
    limit = max(0.1, *(float(abs(one).max()) for one in logs.values()))
    axes = figure.subplots(1, len(maps), sharey=True)
    for ax, (margin, one) in zip(axes, logs.items()):
        image = ax.imshow(
            one,
            aspect="auto",
            origin="lower",
            cmap="Greys",
            vmin=-limit,
            vmax=limit,
            extent=(0, updates, 0, len(one) - 1),
            interpolation="nearest",
        )
        ax.set_title("no margin" if margin == "none" else f"margin {margin}")
        ax.set_xlabel("update")
    axes[0].set_ylabel("time step t")
    figure.colorbar(image, ax=axes, label="log10 ||dL/dh_t|| / ||dL/dh_T||")


def _quarter_circle(n: int) -> Array:
    """The quantiles of the law of the singular values of a large (n, n) matrix with independent
    entries of variance 1 / n (Marchenko & Pastur 1967): density sqrt(4 - s^2) / pi on [0, 2]."""
    s = np.linspace(0, 2, 4001)
    share = (s * np.sqrt(4 - s * s) / 2 + 2 * np.arcsin(s / 2)) / np.pi
    return np.asarray(np.interp(1 - (np.arange(n) + 0.5) / n, share, s))


PREDICTED: dict[str, Callable[[int], Array]] = {
    "orthogonal": np.ones,
    "glorot_normal": _quarter_circle,
    "chain:gain=0.9": lambda n: 0.9 * (np.arange(n) < n - 1),
}
"""The singular values of the matrices that are shown if none is named."""


def explain_spectra(size: int = 50, seed: int = 0, matrix: str | None = None) -> Explanation:
    """Eigenvalues, numerical range and pseudospectra of matrices."""
    rng = np.random.default_rng(seed)
    specs = [matrix] if matrix else ["orthogonal", "glorot_normal", "chain:gain=0.9"]
    matrices = {spec: named_matrix(spec, size, rng) for spec in specs}
    rows, pictures = [], {}
    for name, W in matrices.items():
        summary = singular_values(W)
        boundary = numerical_range(W, 120)
        rows.append(
            [
                name,
                spectral_radius(W),
                float(abs(boundary).max()),
                summary.largest,
                summary.smallest,
                henrici(W),
            ]
        )
        reach = 1.15 * max(1.0, float(abs(boundary).max()))
        line = np.linspace(-reach, reach, 41)
        z = line[None] + 1j * line[:, None]
        pictures[name] = (np.linalg.eigvals(W), boundary, line, pseudospectrum(W, z))

    def draw(figure: Any) -> None:
        upper, lower = figure.subfigures(2, 1, height_ratios=(1.25, 1))
        axes = np.atleast_1d(upper.subplots(1, len(pictures)))
        for ax, (name, (values, boundary, line, smallest)) in zip(axes, pictures.items()):
            levels = ax.contour(
                line,
                line,
                np.log10(np.maximum(smallest, 1e-17)),
                levels=[-6, -3, -2, -1, -0.5],
                colors="grey",
                linewidths=0.7,
                linestyles="solid",
            )
            ax.clabel(levels, fontsize=6)
            closed = np.append(boundary, boundary[:1])
            ax.plot(closed.real, closed.imag, label="numerical range", **style(1))
            ax.plot(values.real, values.imag, "k.", markersize=3, label="eigenvalues")
            circle = np.exp(1j * np.linspace(0, 2 * np.pi, 200))
            ax.plot(
                circle.real,
                circle.imag,
                color="black",
                linewidth=0.5,
                linestyle=":",
                label="unit circle",
            )
            ax.set_aspect("equal")
            ax.set_title(label_of(name))
            ax.set_xlabel("real part")
        axes[0].set_ylabel("imaginary part")
        upper.legend(
            *axes[0].get_legend_handles_labels(),
            fontsize=7,
            ncols=3,
            frameon=False,
            loc="outside lower center",
        )
        for ax, (name, W) in zip(np.atleast_1d(lower.subplots(1, len(matrices))), matrices.items()):
            s = np.linalg.svd(W, compute_uv=False)
            order = np.arange(1, len(s) + 1)
            ax.plot(
                order,
                s,
                label="measured",
                linestyle="none",
                marker="o",
                markersize=2.5,
                color="black",
            )
            if name in PREDICTED:
                ax.plot(order, PREDICTED[name](len(s)), label="predicted", **style(1))
            ax.set_xlabel("rank, largest first")
            ax.set_ylim(bottom=-0.05)
            ax.legend(**LEGEND)
        lower.axes[0].set_ylabel("singular value")

    return Explanation(
        "Spectra of a matrix",
        "Vorontsov et al., 2; Orhan; Trefethen & Embree (2005)",
        "Grey lines: where an eigenvalue can be put by a perturbation of norm 10^level. For a "
        "normal matrix that is a band around the eigenvalues, and the numerical range is their "
        "convex hull; for a chain all eigenvalues are 0 and yet a tiny perturbation moves them "
        "far out: its powers keep the norm gain^k that no eigenvalue shows, until they vanish. "
        "Below, the singular values, with those that theory predicts: those of independent entries "
        "follow the quarter-circle law.",
        [
            Table(
                f"{len(matrices[specs[0]])} units",
                [
                    "W",
                    "spectral radius",
                    "numerical radius",
                    "largest singular value",
                    "smallest",
                    "Henrici's departure",
                ],
                rows,
            )
        ],
        draw,
        5,
    )
