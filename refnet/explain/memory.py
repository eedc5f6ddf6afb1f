"""Memory in noise: what a recurrent matrix keeps of an input, by initialiser."""

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
from refnet.explain.base import Explanation, Table, label_of, named_matrix, style

__all__ = ["explain"]

STARTS = {
    "chain, gain 1.02": "chain",
    "feedback chain": "fbchain",
    ".9 orthogonal": "orthogonal:gain=0.9",
    ".9 identity": "identity:scale=0.9",
}


def explain(size: int = 50, seed: int = 0, matrix: str | None = None) -> Explanation:
    """Fisher memory curves, J_tot and the signal-to-noise ratio of initialisers."""
    rng = np.random.default_rng(seed)
    starts = (
        {matrix: matrix} if matrix else {**STARTS, "Gaussian": f"gaussian:sd={0.9 * size**-0.5}"}
    )
    rows, curves, ratios, matrices, labels, closed = [], {}, {}, {}, {}, {}
    for name, spec in starts.items():
        W = named_matrix(spec, size, rng)
        v = np.eye(len(W))[0]
        matrices[name] = W
        radius = spectral_radius(W)
        stable = below_one(W)
        horizon = None if stable else 2 * len(W)
        labels[name] = name + (f", noise of {horizon} steps" if horizon else "")
        curves[name] = fisher_memory(W, v, min(2 * len(W), 200), horizon=horizon)
        ratios[name] = signal_to_noise(W, v, len(curves[name]))
        rows.append(
            [
                name,
                radius,
                singular_values(W).largest,
                henrici(W),
                total_memory(W, v)
                if stable
                else f"{curves[name].sum():.4g} (last {horizon} steps)",
            ]
        )
    k = np.arange(size)
    if not matrix:  # W^k W^k' is gain^2k on the chain's H - k last units, and .81^k I
        noise = np.cumsum(1.02 ** (2 * k) * (size - k)), np.cumsum(0.81**k * size)
        closed = {
            "chain": (chain_memory(1.02, size), 1.02 ** (2 * k) / noise[0]),
            ".9 orthogonal": (normal_memory(np.array([0.9]), np.ones(1), size), 0.81**k / noise[1]),
        }
    checks = []
    chain = fisher_memory(named_matrix("chain", size, rng), np.eye(size)[0], size)
    checks.append(
        [
            "chain, gain 1.02",
            "g^k (g - 1) / (g^(k+1) - 1), g = 1.02^2",
            float(abs(chain - chain_memory(1.02, size)).max()),
        ]
    )
    Q = named_matrix("orthogonal", size, rng)
    values = rng.uniform(-0.95, 0.95, size)
    normal, v = Q * values @ Q.T, np.eye(size)[0]
    checks.append(
        [
            "normal",
            "sum v_i^2 l_i^2k (1 - l_i^2), l_i the eigenvalues",
            float(
                abs(fisher_memory(normal, v, 50) - normal_memory(values, (Q.T @ v) ** 2, 50)).max()
            ),
        ]
    )
    units = len(next(iter(matrices.values())))
    tables = [
        Table(
            f"{units} units, the input feeds unit 0; J_tot = sum over all delays of the Fisher "
            "information about an input (unit noise). At most 1 for a normal matrix, at most "
            f"{units} for any",
            ["W", "spectral radius", "largest singular value", "Henrici's departure", "J_tot"],
            rows,
        ),
        Table("Computed curves against closed forms", ["W", "J(k)", "largest difference"], checks),
    ]

    def draw(figure: Any) -> None:
        upper, lower = figure.subfigures(2, 1, height_ratios=(1.7, 1))
        left, right = upper.subplots(1, 2)
        for i, name in enumerate(curves):
            shown = np.where(curves[name] > 1e-12, curves[name], np.nan)
            left.plot(np.arange(len(shown)), shown, label=label_of(labels[name]), **style(i))
            ratio = np.where(ratios[name] > 1e-12, ratios[name], np.nan)
            right.plot(np.arange(len(shown)), ratio, label=label_of(name), **style(i))
        for panel, which in ((left, 0), (right, 1)):
            for i, (name, forms) in enumerate(closed.items()):
                k = np.arange(0, len(forms[which]), max(1, size // 12))
                panel.plot(
                    k,
                    forms[which][k],
                    "so"[i],
                    color="black",
                    mfc="none",
                    markersize=4,
                    label=f"{name}, closed form",
                )
        left.set_title("Fisher information J(k) about an input")
        right.set_title("power of the input over that of the noise")
        for ax in (left, right):
            ax.set_yscale("log")
            ax.set_ylim(1e-4, 2)
            ax.set_xlabel("steps since the input, k")
        upper.legend(
            *left.get_legend_handles_labels(),
            ncols=3,
            fontsize=6.5,
            frameon=False,
            loc="outside lower center",
        )
        for ax, (name, W) in zip(
            np.atleast_1d(lower.subplots(1, len(matrices), sharey=True)), matrices.items()
        ):
            values, strict, _ = schur_form(W)
            ax.imshow(
                np.log10(np.maximum(abs(np.diag(values) + strict), 1e-4)),
                cmap="Greys",
                vmin=-3,
                vmax=0.5,
                interpolation="nearest",
            )
            ax.set_title(label_of(name), fontsize=7)
            ax.set_xlabel("from direction", fontsize=7)
        lower.axes[0].set_ylabel("to direction", fontsize=7)
        lower.suptitle(
            "Schur form: sizes of the entries, white below 0.001, black from 3", fontsize=8
        )

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
