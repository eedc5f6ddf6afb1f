"""Memory in noise: what a recurrent matrix keeps of an input, by initialiser."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from refnet.analysis.memory import (
    below_one,
    chain_memory,
    fisher_memory,
    normal_memory,
    total_memory,
)
from refnet.analysis.spectra import henrici, schur_form, singular_values, spectral_radius
from refnet.batch import Array
from refnet.explain.base import Explanation, Table, draw_schur, named_matrix
from refnet.runs.rows import Canvas
from refnet.runs.style import POINTS, label_of, legend_below, plot

STARTS = {
    "chain, gain 1.02": "chain",
    "fbchain": "fbchain",
    ".9 orthogonal": "orthogonal:gain=0.9",
    ".9 identity": "identity:scale=0.9",
}


@dataclass(frozen=True)
class Curve:
    """What one matrix remembers, J(k); ``horizon``: the noise of so many steps alone counts."""

    W: Array
    fisher: Array
    horizon: int | None

    def row(self) -> list[Any]:
        """The spectral radius, the largest singular value, Henrici's departure, and J_tot."""
        total = (
            f"{self.fisher.sum():.4g} (last {self.horizon} steps)"
            if self.horizon
            else total_memory(self.W, np.eye(len(self.W))[0])
        )
        return [spectral_radius(self.W), singular_values(self.W).largest, henrici(self.W), total]


def explain(size: int = 50, seed: int = 0, matrix: str | None = None) -> Explanation:
    """Fisher memory curves and J_tot of initialisers."""
    rng = np.random.default_rng(seed)
    starts = (
        {matrix: matrix} if matrix else {**STARTS, "Gaussian": f"gaussian:sd={0.9 * size**-0.5}"}
    )
    curves = {name: _curve(named_matrix(spec, size, rng)) for name, spec in starts.items()}
    units = len(next(iter(curves.values())).W)
    tables = [
        Table(
            f"{units} units, the input feeds unit 0; J_tot = sum over all delays of the Fisher "
            "information about an input (unit noise). At most 1 for a normal matrix, at most "
            f"{units} for any",
            ["W", "spectral radius", "largest singular value", "Henrici's departure", "J_tot"],
            [[name, *curve.row()] for name, curve in curves.items()],
        ),
        _checks(size, rng),
    ]

    def draw(figure: Canvas) -> None:
        upper, lower = figure.subfigures(2, 1, height_ratios=(1.7, 1))
        ax = upper.subplots()
        _draw_curves(ax, curves)
        if not matrix:
            _draw_closed(ax, size)
        legend_below(upper)
        _draw_schur(lower, curves)

    return Explanation(
        "Memory in noise",
        "Orhan (erratum 36); Ganguli, Huh & Sompolinsky (2008); Orhan & Pitkow (2020)",
        "h[t] = W h[t-1] + v s[t] + noise. An orthogonal matrix keeps the signal, and the noise of "
        "every step with it; a non-normal one can amplify the direction of the signal more than "
        "that of the noise, and so remember several inputs at once. Where the spectral radius is "
        "1 or more, the noise of all past has no limit, and the curve counts the noise of a finite "
        "number of steps.",
        tables,
        draw,
        5.2,
    )


def _curve(W: Array) -> Curve:
    v, horizon = np.eye(len(W))[0], None if below_one(W) else 2 * len(W)
    fisher = fisher_memory(W, v, min(2 * len(W), 200), horizon=horizon)
    return Curve(W, fisher, horizon)


def _checks(size: int, rng: np.random.Generator) -> Table:
    v = np.eye(size)[0]
    chain = fisher_memory(named_matrix("chain", size, rng), v, size)
    Q = named_matrix("orthogonal", size, rng)
    values = rng.uniform(-0.95, 0.95, size)
    normal = fisher_memory(Q * values @ Q.T, v, 50)
    return Table(
        "Computed curves against closed forms",
        ["W", "J(k)", "largest difference"],
        [
            [
                "chain, gain 1.02",
                "g^k (g - 1) / (g^(k+1) - 1), g = 1.02^2",
                abs(chain - chain_memory(1.02, size)).max(),
            ],
            [
                "normal",
                "sum v_i^2 l_i^2k (1 - l_i^2), l_i the eigenvalues",
                abs(normal - normal_memory(values, (Q.T @ v) ** 2, 50)).max(),
            ],
        ],
    )


def _draw_curves(ax: Canvas, curves: dict[str, Curve]) -> None:
    shown = {}
    for name, curve in curves.items():
        noise = f", noise of {curve.horizon} steps" if curve.horizon else ""
        shown[label_of(name + noise)] = range(len(curve.fisher)), curve.fisher
    title = "Fisher information $J(k)$ about an input"
    plot(ax, shown, "log", 1e-12, title=title, ylim=(1e-4, 2), xlabel="steps since it, $k$")


def _draw_closed(ax: Canvas, size: int) -> None:
    forms = {
        "chain": chain_memory(1.02, size),
        ".9 orthogonal": normal_memory(np.array([0.9]), np.ones(1), size),
    }
    shown = np.arange(0, size, max(1, size // 12))
    for marker, (name, J) in zip("so", forms.items()):
        points = {**POINTS, "marker": marker, "label": f"{name}, closed form"}
        ax.plot(shown, J[shown], **points)


def _draw_schur(figure: Canvas, curves: dict[str, Curve]) -> None:
    axes = np.atleast_1d(figure.subplots(1, len(curves), sharey=True))
    for ax, (name, curve) in zip(axes, curves.items()):
        values, strict, _ = schur_form(curve.W)
        image = draw_schur(ax, np.diag(values) + strict)
        ax.set_title(label_of(name))
    axes[0].set_ylabel("to direction")
    figure.colorbar(image, ax=axes, label=r"$\log_{10}$ |Schur form|")
