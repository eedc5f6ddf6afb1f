"""Gradients through time and the spectra behind them."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.random import Generator, default_rng

from refnet.analysis.flow import jacobian_spectra, lyapunov_exponents
from refnet.analysis.spectra import (
    henrici,
    numerical_range,
    pseudospectrum,
    singular_values,
    spectral_radius,
)
from refnet.batch import Array
from refnet.cells import CELLS
from refnet.explain.base import Explanation, Table, named_matrix
from refnet.nets.recurrent import RecurrentNet
from refnet.runs.rows import Canvas
from refnet.runs.style import POINTS, THEORY, label_of, legend_below, line, lines, panels, signed
from refnet.studies.flow import norms_in_training
from refnet.training.protocols import preset

MARGINS = ("0", "0.1", "1", "none")


def explain_gradient_flow(
    size: int = 32, seed: int = 0, matrix: str | None = None, length: int = 40, updates: int = 100
) -> Explanation:
    """Gradient norms over time and updates by margin; exponents of every cell."""
    rng = default_rng(seed)
    x = rng.normal(size=(50, 1, 2))
    maps, margins = _margins(size, seed, length, updates)
    spectra, exponents = _exponents(size, x, rng)

    def draw(figure: Canvas) -> None:
        upper, lower = figure.subfigures(2, 1, height_ratios=(1, 1.1))
        _draw_maps(upper, maps, updates)
        draws = [partial(_draw_singular, maps, updates), partial(_draw_exponents, spectra, len(x))]
        panels(lower, draws)

    return Explanation(
        "Gradient flow through time",
        "Vorontsov et al., Figure 2 (erratum 22); Manchev & Spratling, eq. 4 (errata 1, 2)",
        "The gradient of the last step's loss at earlier states, while a net with singular values "
        "within a margin of 1 learns the copy task: with margin 0 its norm stays the same at all "
        "times; with a wider margin it may drift.",
        [margins, exponents],
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


def _label(margin: str) -> str:
    return "no margin" if margin == "none" else f"margin {margin}"


def _draw_maps(figure: Canvas, maps: Pairs, updates: int) -> None:
    logs = [np.log10(np.maximum(norms.T / norms[:, -1], 1e-30)) for norms, _ in maps.values()]
    axes = figure.subplots(1, len(maps), sharey=True)
    for ax, margin, log in zip(axes, maps, logs):
        image = ax.imshow(
            log,
            aspect="auto",
            origin="lower",
            **signed(*logs),
            extent=(0, updates, 0, len(log) - 1),
            interpolation="nearest",
        )
        ax.set(title=_label(margin), xlabel="update")
    axes[0].set_ylabel("time step $t$")
    label = r"$\log_{10}\,\|\partial L/\partial h_t\| / \|\partial L/\partial h_T\|$"
    figure.colorbar(image, ax=axes, label=label)


def _draw_singular(maps: Pairs, updates: int, ax: Canvas) -> None:
    styles = lines(map(_label, maps))
    for margin, (_, values) in maps.items():
        at = np.linspace(0, updates, len(values), endpoint=False)
        ax.plot(at, values.max(axis=1), label=_label(margin), **styles[_label(margin)])
        ax.plot(at, values.min(axis=1), **styles[_label(margin)])
    ax.axhline(0.9, **THEORY, label="bounds, margin 0.1")
    ax.axhline(1.1, **THEORY)
    ax.set(title="largest, smallest $s$ of $W$", xlabel="update", ylabel="singular value $s$")


def _draw_exponents(spectra: Pairs, T: int, ax: Canvas) -> None:
    styles = lines(spectra)
    for i, (cell, (values, spectrum)) in enumerate(spectra.items()):
        place = np.linspace(0, 1, len(values))
        ax.plot(place, values, label=cell, **styles[cell])
        significant = spectrum > spectrum[0] - 30 / T  # smaller ones are rounding
        ax.plot(
            place[significant][::4],
            spectrum[significant][::4],
            **{**POINTS, "color": "grey"},
            label=None if i else "$\\log(s)/T$ that has digits",
        )
    ax.set(
        title=r"exponents of $\partial h_T/\partial h_0$",
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
            levels = _draw_plane(ax, matrices[name], boundaries[name])
            ax.set_title(label_of(name))
            _draw_ranks(ranks, name, matrices[name])
        upper.colorbar(levels, ax=axes, label=r"$\log_{10}\varepsilon$ of the perturbation")
        axes[0].set_ylabel("imaginary part")
        legend_below(upper)
        below[0].set_ylabel("singular value")
        legend_below(lower)

    return Explanation(
        "Spectra of a matrix",
        "Vorontsov et al., 2; Orhan; Trefethen & Embree (2005)",
        "Thin lines: where an eigenvalue can be put by a perturbation of that norm. For a "
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


LEVELS = {-6: "#00224e", -3: "#35456c", -2: "#666970", -1: "#948e77", -0.5: "#c8b866"}
"""The contours' logarithms and colours, which differ in grey."""


def _draw_plane(ax: Canvas, W: Array, boundary: Array) -> Canvas:
    reach = 1.15 * max(1.0, float(abs(boundary).max()))
    axis = np.linspace(-reach, reach, 41)
    levels = ax.contour(
        axis,
        axis,
        np.log10(np.maximum(pseudospectrum(W, axis[None] + 1j * axis[:, None]), 1e-17)),
        levels=[*LEVELS],
        colors=[*LEVELS.values()],
        linewidths=0.9,
        linestyles="solid",
    )
    values, closed = np.linalg.eigvals(W), np.append(boundary, boundary[:1])
    ax.plot(closed.real, closed.imag, label="numerical range", **line(1))
    ax.plot(values.real, values.imag, "k.", markersize=3, label="eigenvalues")
    circle = np.exp(1j * np.linspace(0, 2 * np.pi, 200))
    ax.plot(circle.real, circle.imag, "k:", linewidth=0.5, label="unit circle")
    ax.set(aspect="equal", xlabel="real part")
    return levels


def _draw_ranks(ax: Canvas, name: str, W: Array) -> None:
    s = np.linalg.svd(W, compute_uv=False)
    order = np.arange(1, len(s) + 1)
    ax.plot(order, s, "ko", markersize=2.5, label="measured")
    if name in PREDICTED:
        ax.plot(order, PREDICTED[name](len(s)), label="predicted", **line(1))
    ax.set(title=label_of(name), xlabel="rank, largest first")
    ax.set_ylim(bottom=-0.05)
