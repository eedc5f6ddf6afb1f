"""Gradients through time and the spectra behind them."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.random import Generator, default_rng

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
from refnet.explain.base import (
    LEGEND,
    POINTS,
    THEORY,
    Explanation,
    Table,
    label_of,
    legend_below,
    named_matrix,
    style,
)
from refnet.matrices.initializers import initialize
from refnet.nets.recurrent import RecurrentNet
from refnet.runs.rows import Canvas
from refnet.studies.flow import norms_in_training
from refnet.training.protocols import preset

__all__ = ["explain_gradient_flow", "explain_spectra"]

MARGINS = ("0", "0.1", "1", "none")


def explain_gradient_flow(
    size: int = 32, seed: int = 0, matrix: str | None = None, length: int = 40, updates: int = 100
) -> Explanation:
    """Gradient norms over time and updates by margin; exponents of every cell; eq. 5's bound."""
    rng = default_rng(seed)
    x = rng.normal(size=(50, 1, 2))
    maps, margins = _margins(size, seed, length, updates)
    spectra, exponents = _exponents(size, x, rng)
    gains, bounds = _bounds(size, x, rng)

    def draw(figure: Canvas) -> None:
        upper, lower = figure.subfigures(2, 1, height_ratios=(1, 1.1))
        _draw_maps(upper, maps, updates)
        axes = lower.subplots(1, 3)
        _draw_singular(axes[0], maps, updates)
        _draw_gains(axes[1], gains)
        _draw_exponents(axes[2], spectra, len(x))
        for ax in axes:
            ax.legend(**LEGEND, loc="upper center", bbox_to_anchor=(0.5, -0.25), ncols=2)

    return Explanation(
        "Gradient flow through time",
        "Vorontsov et al., Figure 2 and eq. 5 (errata 21, 22); "
        "Manchev & Spratling, eq. 4 (errata 1, 2)",
        "The gradient of the last step's loss at earlier states, while a net with singular values "
        "within a margin of 1 learns the copy task: with margin 0 its norm stays the same at all "
        "times; with a wider margin it may drift. The bound of eq. 5 holds for each step, but the "
        "product of the bounds says little about the product of the steps.",
        [margins, exponents, bounds],
        draw,
        6,
    )


Pairs = Mapping[Any, tuple[Array, Array]]
"""Two arrays to draw for each setting."""


def _margins(size: int, seed: int, length: int, updates: int) -> tuple[Pairs, Table]:
    """The norms of the gradient and the singular values over updates, by margin."""
    every = max(1, updates // 25)
    last = (updates - 1) // every * every  # the last number of updates that is measured
    maps, rows = {}, []
    for margin in MARGINS:
        config = preset(
            "copy",
            length=length,
            hidden=size,
            seed=seed,
            backend="reference",
            dtype="float64",
            rate=1e-3,
            manifold_rate=1e-3,
            transition=f"svd:margin={margin}",
        )
        maps[margin] = norms, values = norms_in_training(config, updates, every)
        ratio = norms[:, 0] / norms[:, -1]
        rows.append([margin, ratio[0], ratio[-1], values[-1].min(), values[-1].max()])
    return maps, Table(
        f"Copy task, T = {length}, {size} units: ||dL/dh_0|| over ||dL/dh_T|| for the loss "
        f"of the last step, and the singular values after {last} updates",
        ["margin", "before training", f"after {last} updates", "smallest s", "largest s"],
        rows,
    )


def _exponents(size: int, x: Array, rng: Generator) -> tuple[Pairs, Table]:
    """The Lyapunov exponents and log(s) / T of each cell."""
    spectra, rows = {}, []
    for cell in CELLS:
        net = RecurrentNet(2, size, 2, cell=cell, backend="reference")
        params = net.init(rng, np.float64, recurrent="orthogonal")
        values = lyapunov_exponents(net, params, x)[0]
        with np.errstate(divide="ignore"):
            spectrum = np.log(jacobian_spectra(net, params, x)[0, 0]) / len(x)
        spectra[cell] = values, spectrum
        rows.append([cell, values[0], np.median(values), spectrum[0]])
    return spectra, Table(
        f"Finite-time exponents of dh_T/dh_0, T = {len(x)}, orthogonal start, in nats per "
        "step: 0 keeps a gradient's norm",
        ["cell", "largest", "median", "log(largest singular value) / T"],
        rows,
    )


def _bounds(size: int, x: Array, rng: Generator) -> tuple[Pairs, Table]:
    """The bound of eq. 5 and the gain of each step, by the gain of the recurrent matrix."""
    gains, rows = {}, []
    for gain in (0.5, 1.0, 1.5):
        net = RecurrentNet(2, size, 2, backend="reference")
        params = net.init(
            rng, np.float64, recurrent=lambda shape, r: gain * initialize("orthogonal", shape, r)
        )
        gains[gain] = eta, measured = step_bounds(net, params, x)
        largest = lyapunov_exponents(net, params, x)[0, 0]
        rows.append([gain, eta.mean(), measured.mean(), np.exp(largest)])
    return gains, Table(
        "One step's gain ||da_(t+1)/da_t|| of tanh nets with W = gain times orthogonal: the "
        "bound eta_t (eq. 5), measured, and the gain per step of the whole product",
        ["gain", "eta_t, mean", "measured, mean", "product, per step"],
        rows,
    )


def _label(margin: str) -> str:
    return "no margin" if margin == "none" else f"margin {margin}"


def _draw_maps(figure: Canvas, maps: Pairs, updates: int) -> None:
    logs = [np.log10(np.maximum(norms.T / norms[:, -1], 1e-30)) for norms, _ in maps.values()]
    limit = max(0.1, *(float(abs(log).max()) for log in logs))
    axes = figure.subplots(1, len(maps), sharey=True)
    for ax, margin, log in zip(axes, maps, logs):
        image = ax.imshow(
            log,
            aspect="auto",
            origin="lower",
            cmap="Greys",
            vmin=-limit,
            vmax=limit,
            extent=(0, updates, 0, len(log) - 1),
            interpolation="nearest",
        )
        ax.set(title=_label(margin), xlabel="update")
    axes[0].set_ylabel("time step t")
    figure.colorbar(image, ax=axes, label="log10 ||dL/dh_t|| / ||dL/dh_T||")


def _draw_singular(ax: Canvas, maps: Pairs, updates: int) -> None:
    for i, (margin, (_, values)) in enumerate(maps.items()):
        at = np.linspace(0, updates, len(values), endpoint=False)
        ax.plot(at, values.max(axis=1), label=_label(margin), **style(i))
        ax.plot(at, values.min(axis=1), **style(i))
    ax.axhline(0.9, **THEORY, label="bounds, margin 0.1")
    ax.axhline(1.1, **THEORY)
    ax.set(title="largest and smallest\nsingular value s of W", xlabel="update", ylabel="s")


def _draw_gains(ax: Canvas, gains: Pairs) -> None:
    for i, (gain, (eta, measured)) in enumerate(gains.items()):
        t = np.arange(1, len(eta) + 1)
        ax.plot(t, eta[:, 0], **THEORY, label=None if i else "bound by eq. 5")
        ax.plot(t, measured[:, 0], label=f"gain {gain:g}", **style(i))
    ax.set(
        title="gain of one step\nof a tanh net", xlabel="time step t", ylabel="||da_(t+1)/da_t||"
    )


def _draw_exponents(ax: Canvas, spectra: Pairs, T: int) -> None:
    for i, (cell, (values, spectrum)) in enumerate(spectra.items()):
        place = np.linspace(0, 1, len(values))
        ax.plot(place, values, label=cell, **style(i))
        significant = spectrum > spectrum[0] - 30 / T  # smaller ones are rounding
        ax.plot(
            place[significant][::4],
            spectrum[significant][::4],
            **{**POINTS, "color": "grey"},
            label=None if i else "log(s) / T, where rounding\nleaves it digits",
        )
    ax.set(
        title=f"exponents of dh_T/dh_0\nafter {T} steps",
        xlabel="share of directions",
        ylabel="nats per step",
    )


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
    rng = default_rng(seed)
    matrices = {spec: named_matrix(spec, size, rng) for spec in ([matrix] if matrix else PREDICTED)}
    boundaries = {name: numerical_range(W, 120) for name, W in matrices.items()}
    rows = []
    for name, W in matrices.items():
        s, radius = singular_values(W), abs(boundaries[name]).max()
        rows.append([name, spectral_radius(W), radius, s.largest, s.smallest, henrici(W)])

    def draw(figure: Canvas) -> None:
        upper, lower = figure.subfigures(2, 1, height_ratios=(1.25, 1))
        axes, below = (np.atleast_1d(part.subplots(1, len(matrices))) for part in (upper, lower))
        for name, ax, ranks in zip(matrices, axes, below):
            _draw_plane(ax, matrices[name], boundaries[name])
            ax.set_title(label_of(name))
            _draw_ranks(ranks, name, matrices[name])
        axes[0].set_ylabel("imaginary part")
        legend_below(upper, axes[0])
        below[0].set_ylabel("singular value")

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
                f"{len(next(iter(matrices.values())))} units",
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


def _draw_plane(ax: Canvas, W: Array, boundary: Array) -> None:
    reach = 1.15 * max(1.0, float(abs(boundary).max()))
    line = np.linspace(-reach, reach, 41)
    levels = ax.contour(
        line,
        line,
        np.log10(np.maximum(pseudospectrum(W, line[None] + 1j * line[:, None]), 1e-17)),
        levels=[-6, -3, -2, -1, -0.5],
        colors="grey",
        linewidths=0.7,
        linestyles="solid",
    )
    ax.clabel(levels, fontsize=6)
    values, closed = np.linalg.eigvals(W), np.append(boundary, boundary[:1])
    ax.plot(closed.real, closed.imag, label="numerical range", **style(1))
    ax.plot(values.real, values.imag, "k.", markersize=3, label="eigenvalues")
    circle = np.exp(1j * np.linspace(0, 2 * np.pi, 200))
    ax.plot(circle.real, circle.imag, "k:", linewidth=0.5, label="unit circle")
    ax.set(aspect="equal", xlabel="real part")


def _draw_ranks(ax: Canvas, name: str, W: Array) -> None:
    s = np.linalg.svd(W, compute_uv=False)
    order = np.arange(1, len(s) + 1)
    ax.plot(order, s, "ko", markersize=2.5, label="measured")
    if name in PREDICTED:
        ax.plot(order, PREDICTED[name](len(s)), label="predicted", **style(1))
    ax.set_xlabel("rank, largest first")
    ax.set_ylim(bottom=-0.05)
    ax.legend(**LEGEND)
