"""Gradients through time and the spectra behind them."""

from typing import Any

import numpy as np

from refnet.analysis.flow import gradient_norms, jacobian_spectra, lyapunov_exponents, step_bounds
from refnet.analysis.spectra import (henrici, numerical_range, pseudospectrum, singular_values,
                                     spectral_radius)
from refnet.batch import Array
from refnet.cells import CELLS
from refnet.explain.base import Explanation, Table, named_matrix, style
from refnet.matrices.initializers import initialize
from refnet.nets.recurrent import RecurrentNet
from refnet.training.config import Config
from refnet.training.experiment import build
from refnet.training.loop import Run, step
from refnet.training.protocols import preset

__all__ = ["explain_gradient_flow", "explain_spectra"]

MARGINS = ("0", "0.1", "1", "none")


def _trained_norms(config: Config, updates: int, every: int) -> tuple[Array, Array]:
    """``||dL/dh_t||`` of the last step's loss, (T + 1, maps), and the singular values of Whh,
    (maps, H), every so many updates of training."""
    experiment = build(config)
    net = experiment.net
    assert isinstance(net, RecurrentNet)
    params, _ = experiment.start()
    run = Run(params, experiment.optimizer.init(params), params, {})
    norms, values = [], []
    for update in range(updates):
        batch = experiment.task.batch(update, config.batch, config.seed)
        if update % every == 0:
            norms.append(gradient_norms(net, run.params, batch))
            W = net.matrices(run.params)[0]["Whh"]
            values.append(np.linalg.svd(W.astype(float), compute_uv=False))
        run = step(experiment, run, batch)[0]
    return np.array(norms).T, np.array(values)


def explain_gradient_flow(size: int = 32, seed: int = 0, matrix: str | None = None,
                          length: int = 40, updates: int = 100) -> Explanation:
    """Gradient norms over time and updates by margin; exponents of every cell; eq. 5's bound."""
    rng = np.random.default_rng(seed)
    maps = {margin: _trained_norms(
        preset("copy", length=length, hidden=size, seed=seed, backend="reference", dtype="float64",
               rate=1e-3, manifold_rate=1e-3, transition=f"svd:margin={margin}"),
        updates, max(1, updates // 25)) for margin in MARGINS}
    rows = []
    for margin, (norms, values) in maps.items():
        ratio = norms[0] / norms[-1]
        rows.append([margin, float(ratio[0]), float(ratio[-1]), float(values[-1].min()),
                     float(values[-1].max())])
    x = rng.normal(size=(50, 1, 2))
    exponents = []
    for cell in CELLS:
        net = RecurrentNet(2, size, 2, cell=cell)
        params = net.init(rng, np.float64, recurrent=lambda shape, r: initialize(
            "orthogonal", shape, r))
        values = lyapunov_exponents(net, params, x)[0]
        spectrum = jacobian_spectra(net, params, x)[0, 0]
        exponents.append([cell, float(values[0]), float(np.median(values)),
                          float(np.log(spectrum[0]) / len(x))])
    bounds = []
    for gain in (0.5, 1.0, 1.5):
        net = RecurrentNet(2, size, 2)
        params = net.init(rng, np.float64, recurrent=lambda shape, r: gain * initialize(
            "orthogonal", shape, r))
        eta, measured = step_bounds(net, params, x)
        bounds.append([gain, float(eta.mean()), float(measured.mean()),
                       float(np.exp(lyapunov_exponents(net, params, x)[0, 0]))])
    tables = [
        Table(f"Copy task, T = {length}, {size} units: ||dL/dh_0|| over ||dL/dh_T|| for the loss "
              f"of the last step, and the singular values after {updates} updates",
              ["margin", "first update", "last update", "smallest s", "largest s"], rows),
        Table(f"Finite-time exponents of dh_T/dh_0, T = {len(x)}, orthogonal start, in nats per "
              "step: 0 keeps a gradient's norm",
              ["cell", "largest", "median", "log(largest singular value) / T"], exponents),
        Table("One step's gain ||da_(t+1)/da_t|| of tanh nets with W = gain times orthogonal: the "
              "bound eta_t (eq. 5), measured, and the gain per step of the whole product",
              ["gain", "eta_t, mean", "measured, mean", "product, per step"], bounds)]

    def draw(figure: Any) -> None:
        axes = figure.subplots(1, len(maps), sharey=True)
        for ax, (margin, (norms, _)) in zip(axes, maps.items()):
            logs = np.log10(np.maximum(norms / norms[-1], 1e-30))
            image = ax.imshow(logs, aspect="auto", origin="lower", cmap="Greys", vmin=-1, vmax=1,
                              extent=(0, updates, 0, len(norms) - 1), interpolation="nearest")
            ax.set_title("no margin" if margin == "none" else f"margin {margin}")
            ax.set_xlabel("update")
        axes[0].set_ylabel("time step t")
        figure.colorbar(image, ax=axes, label="log10 of ||dL/dh_t|| / ||dL/dh_T||", shrink=.9)

    return Explanation(
        "Gradient flow through time", "Vorontsov et al., Figure 2 and eq. 5 (errata 21, 22); "
        "Manchev & Spratling, eq. 4 (errata 1, 2)",
        "The gradient of the last step's loss at earlier states, while a net with singular values "
        "within a margin of 1 learns the copy task: with margin 0 its norm stays the same at all "
        "times; with a wider margin it may drift. The bound of eq. 5 holds for each step, but the "
        "product of the bounds says little about the product of the steps.", tables, draw)


def explain_spectra(size: int = 50, seed: int = 0, matrix: str | None = None) -> Explanation:
    """Eigenvalues, numerical range and pseudospectra of matrices."""
    rng = np.random.default_rng(seed)
    specs = [matrix] if matrix else ["orthogonal", "glorot_normal", "chain:gain=0.9"]
    matrices = {spec: named_matrix(spec, size, rng) for spec in specs}
    rows, pictures = [], {}
    for name, W in matrices.items():
        summary = singular_values(W)
        boundary = numerical_range(W, 120)
        rows.append([name, spectral_radius(W), float(abs(boundary).max()), summary.largest,
                     summary.smallest, henrici(W)])
        reach = 1.15 * max(1.0, float(abs(boundary).max()))
        line = np.linspace(-reach, reach, 41)
        z = line[None] + 1j * line[:, None]
        pictures[name] = (np.linalg.eigvals(W), boundary, line, pseudospectrum(W, z))

    def draw(figure: Any) -> None:
        axes = np.atleast_1d(figure.subplots(1, len(pictures)))
        for ax, (name, (values, boundary, line, smallest)) in zip(axes, pictures.items()):
            levels = ax.contour(line, line, np.log10(np.maximum(smallest, 1e-17)),
                                levels=[-6, -3, -2, -1, -.5], colors="grey", linewidths=.7,
                                linestyles="solid")
            ax.clabel(levels, fontsize=6)
            closed = np.append(boundary, boundary[:1])
            ax.plot(closed.real, closed.imag, label="numerical range", **style(1))
            ax.plot(values.real, values.imag, "k.", markersize=3, label="eigenvalues")
            circle = np.exp(1j * np.linspace(0, 2 * np.pi, 200))
            ax.plot(circle.real, circle.imag, color="black", linewidth=.5, linestyle=":",
                    label="unit circle")
            ax.set_aspect("equal")
            ax.set_title(name)
            ax.set_xlabel("real part")
        axes[0].set_ylabel("imaginary part")
        axes[0].legend(fontsize=6, loc="lower left")

    return Explanation(
        "Spectra of a matrix", "Vorontsov et al., 2; Orhan; Trefethen & Embree (2005)",
        "Grey lines: where an eigenvalue can be put by a perturbation of norm 10^level. For a "
        "normal matrix that is a band around the eigenvalues, and the numerical range is their "
        "convex hull; for a chain all eigenvalues are 0 and yet a tiny perturbation moves them "
        "far out: its powers grow long before they vanish.",
        [Table(f"{size} units", ["W", "spectral radius", "numerical radius",
                                 "largest singular value", "smallest", "Henrici's departure"],
               rows)], draw, 2.7)
