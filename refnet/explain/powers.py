"""Matrix powers: growth, decay, rotation, and where float64 gives out."""

from fractions import Fraction
from typing import Any

import numpy as np

from refnet.analysis.powers import fibonacci, power_norms, power_radii
from refnet.analysis.spectra import spectral_radius
from refnet.explain.base import LEGEND, LINES, Explanation, Table, label_of, named_matrix, style

__all__ = ["explain"]

STARTS = {
    "uniform, -.1 to .1": "uniform",
    "Gaussian, sd .1": "gaussian",
    "identity": "identity",
    "orthogonal": "orthogonal",
    "chain, gain 1.02": "chain",
}


def _breaks(way: str) -> int:
    """The first n at which a float64 Fibonacci number, rounded, is not the true one."""
    return next(n for n in range(2000) if round(getattr(fibonacci(n), way)) != fibonacci(n).exact)


def explain(size: int = 100, seed: int = 0, matrix: str | None = None) -> Explanation:
    """||W^n|| of random, orthogonal and chain matrices; Fibonacci numbers by powers."""
    rng = np.random.default_rng(seed)
    starts = {matrix: matrix} if matrix else STARTS
    matrices = {name: named_matrix(spec, size, rng) for name, spec in starts.items()}
    norms = {name: power_norms(W, 1000) for name, W in matrices.items()}
    radii = {name: spectral_radius(W) for name, W in matrices.items()}
    # as fractions: beyond 2^53 a float less an integer is 0 where the true difference is not
    numbers = [
        [n, str(exact), *(f"{float(Fraction(found) - exact):.3g}" for found in (squared, eigen))]
        for n in (10, 50, 70, 78, 79, 90)
        for exact, squared, eigen in [fibonacci(n)]
    ]
    angle = np.pi / 7
    c, s = np.cos(angle), np.sin(angle)
    values = np.linalg.eigvals(np.array([[c, -s], [s, c]]))
    gaps = [
        [N, *power_radii(N, runs, 10, rng)]
        for N, runs in ((2, 400), (4, 400), (8, 200), (16, 100), (32, 60), (128, 20))
    ]
    tables = [
        Table(
            f"Norm of W^n, {len(next(iter(matrices.values())))} units",
            ["W", "n = 1", "n = 64", "n = 1000"],
            [[name, *(float(value[n]) for n in (1, 64, 1000))] for name, value in norms.items()],
        ),
        Table(
            "The n-th Fibonacci number from [[1, 1], [1, 0]]^n: error of float64 by repeated "
            f"squaring (first wrong at n = {_breaks('squared')}) and by the eigendecomposition "
            f"(first wrong, rounded, at n = {_breaks('eigen')})",
            ["n", "exact integer", "squaring", "eigendecomposition"],
            numbers,
        ),
        Table(
            "A rotation by 180/7 degrees: complex eigenvalues of modulus 1",
            ["eigenvalue", "modulus", "angle, degrees"],
            [[f"{v:.4f}", abs(v), np.degrees(np.angle(v))] for v in values],
        ),
        Table(
            "(log rho(W^10) - log rho(W_1 ... W_10)) / 10, W_i (N, N) with Gaussian entries of "
            "variance 1/N: powers of one draw against products of ten (erratum 35)",
            ["N", "mean", "standard error"],
            gaps,
        ),
    ]

    def draw(figure: Any) -> None:
        axes, (errors, products) = figure.subplots(2, 2)
        for ax, last, limits in zip(axes, (64, 1000), ((1e-6, 1e3), (1e-20, 1e20))):
            for i, (name, value) in enumerate(norms.items()):
                shown = np.where(value[: last + 1] > 0, value[: last + 1], np.nan)
                ax.plot(np.arange(last + 1), shown, label=label_of(name), **style(i))
                ax.plot(
                    np.arange(last + 1),
                    radii[name] ** np.arange(last + 1),
                    color="lightgrey",
                    linewidth=3,
                    zorder=0,
                    label=None if i else "spectral radius ^ n",
                )
            ax.set_yscale("log")
            ax.set_ylim(*limits)
            ax.set_xlabel("power n")
            ax.set_title(f"up to n = {last}")
        axes[0].set_ylabel("norm of W^n (2-norm)")
        axes[1].legend(**LEGEND, loc="lower right")
        n = np.arange(2, 200)
        found = [fibonacci(int(one)) for one in n]
        for i, way in enumerate(("squared", "eigen")):
            relative = np.array(
                [abs(int(round(getattr(one, way))) - one.exact) / one.exact for one in found], float
            )
            errors.semilogy(
                n,
                np.where(relative > 0, relative, np.nan),
                linestyle="none",
                marker="os"[i],
                markersize=2.5,
                color=LINES[i][0],
                label=("repeated squaring", "eigendecomposition")[i],
            )
        errors.semilogy(
            n, n * 2.0**-53, color="lightgrey", linewidth=3, zorder=0, label="n roundings"
        )
        errors.axvline(78.5, color="grey", linewidth=0.6)
        errors.set_title(
            "relative error of F_n in float64, rounded to integers\n(vertical "
            "line: F_n passes 2^53; no point: no error)"
        )
        errors.set_xlabel("n")
        errors.set_ylim(top=1e-11)
        errors.set_ylabel("|error| / F_n")
        errors.legend(**LEGEND, loc="upper left")
        products.axhline(0, color="lightgrey", linewidth=3, zorder=0, label="limit of large N")
        products.errorbar(
            [row[0] for row in gaps],
            [row[1] for row in gaps],
            [2 * row[2] for row in gaps],
            color="black",
            marker="o",
            markersize=3.5,
            capsize=2,
            linewidth=1,
            label="measured, two standard errors",
        )
        products.set_xscale("log", base=2)
        products.set_title(
            "one draw's power against products of ten:\n"
            "(log rho(W^10) - log rho(W_1 ... W_10)) / 10"
        )
        products.set_xlabel("N, rows and columns")
        products.set_ylabel("nats per factor")
        products.legend(**LEGEND)

    return Explanation(
        "Powers of a matrix",
        "Merity; Orhan (errata 32, 35)",
        "W^n multiplies each eigenvector by the n-th power of its eigenvalue: the norm grows "
        "without bound if the spectral radius is above 1, and vanishes in the end if it is below "
        "1. An orthogonal matrix keeps the norm of every vector for any n. The powers of a matrix "
        "that is not normal may grow first: a chain with a gain above 1 amplifies until the signal "
        "has passed its last unit, and then gives exactly 0.",
        tables,
        draw,
        5.2,
    )
