"""Memory in noise: what a recurrent matrix keeps of an input, by initialiser."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from refnet.analysis.memory import (
    below_one,
    chain_memory,
    fisher_memory,
    normal_memory,
    signal_to_noise,
    total_memory,
)
from refnet.analysis.spectra import henrici, schur_form, singular_values, spectral_radius
from refnet.batch import Array
from refnet.explain.base import (
    POINTS,
    Explanation,
    Table,
    label_of,
    legend_below,
    named_matrix,
    positive,
    style,
)
from refnet.runs.rows import Canvas

__all__ = ["explain"]

STARTS = {
    "chain, gain 1.02": "chain",
    "feedback chain": "fbchain",
    ".9 orthogonal": "orthogonal:gain=0.9",
    ".9 identity": "identity:scale=0.9",
}


@dataclass(frozen=True)
class Curve:
    """What one matrix remembers: J(k) and the signal-to-noise ratio; ``horizon`` if only the noise
    of so many steps is counted."""

    W: Array
    fisher: Array
    ratio: Array
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
    """Fisher memory curves, J_tot and the signal-to-noise ratio of initialisers."""
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
        panels = upper.subplots(1, 2)
        _draw_curves(panels, curves)
        if not matrix:
            _draw_closed(panels, size)
        legend_below(upper, panels[0])
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
    return Curve(W, fisher, signal_to_noise(W, v, len(fisher)), horizon)


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


def _draw_curves(panels: Canvas, curves: dict[str, Curve]) -> None:
    left, right = panels
    for i, (name, curve) in enumerate(curves.items()):
        noise = f", noise of {curve.horizon} steps" if curve.horizon else ""
        left.plot(positive(curve.fisher, 1e-12), label=label_of(name + noise), **style(i))
        right.plot(positive(curve.ratio, 1e-12), label=label_of(name), **style(i))
    left.set_title("Fisher information J(k) about an input")
    right.set_title("power of the input over that of the noise")
    for ax in panels:
        ax.set(yscale="log", ylim=(1e-4, 2), xlabel="steps since the input, k")


def _draw_closed(panels: Canvas, size: int) -> None:
    """W^k W^k' is gain^2k on the chain's H - k last units, and .81^k I."""
    k = np.arange(size)
    chain, orthogonal = 1.02 ** (2 * k), 0.81**k
    forms = {
        "chain": (chain_memory(1.02, size), chain / np.cumsum(chain * (size - k))),
        ".9 orthogonal": (
            normal_memory(np.array([0.9]), np.ones(1), size),
            orthogonal / np.cumsum(orthogonal * size),
        ),
    }
    shown = slice(None, None, max(1, size // 12))
    for marker, (name, pair) in zip("so", forms.items()):
        for ax, values in zip(panels, pair):
            points = {**POINTS, "marker": marker, "label": f"{name}, closed form"}
            ax.plot(k[shown], values[shown], **points)


def _draw_schur(figure: Canvas, curves: dict[str, Curve]) -> None:
    axes = np.atleast_1d(figure.subplots(1, len(curves), sharey=True))
    for ax, (name, curve) in zip(axes, curves.items()):
        values, strict, _ = schur_form(curve.W)
        ax.imshow(
            np.log10(np.maximum(abs(np.diag(values) + strict), 1e-4)),
            cmap="Greys",
            vmin=-3,
            vmax=0.5,
            interpolation="nearest",
        )
        ax.set_title(label_of(name), fontsize=7)
        ax.set_xlabel("from direction", fontsize=7)
    axes[0].set_ylabel("to direction", fontsize=7)
    figure.suptitle("Schur form: sizes of the entries, white below 0.001, black from 3", fontsize=8)
