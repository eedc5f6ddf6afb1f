"""Matrix powers: growth, decay, rotation, and where float64 gives out."""

from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from refnet.analysis.powers import fibonacci, power_norms, power_radii
from refnet.analysis.spectra import spectral_radius
from refnet.batch import Array
from refnet.explain.base import Explanation, Table, named_matrix
from refnet.runs.rows import Canvas
from refnet.runs.style import POINTS, THEORY, label_of, legend_below, line, panels, plot

STARTS = {
    "uniform, -.1 to .1": "uniform",
    "Gaussian, sd .1": "gaussian",
    "identity": "identity",
    "orthogonal": "orthogonal",
    "chain, gain 1.02": "chain",
}


def explain(size: int = 100, seed: int = 0, matrix: str | None = None) -> Explanation:
    """||W^n|| of random, orthogonal and chain matrices; Fibonacci numbers by powers."""
    rng = np.random.default_rng(seed)
    starts = {matrix: matrix} if matrix else STARTS
    matrices = {name: named_matrix(spec, size, rng) for name, spec in starts.items()}
    norms = {name: power_norms(W, 1000) for name, W in matrices.items()}
    gaps = [
        [N, *power_radii(N, runs, 10, rng)]
        for N, runs in ((2, 400), (4, 400), (8, 200), (16, 100), (32, 60), (128, 20))
    ]
    tables = [
        Table(
            f"Norm of W^n, {len(next(iter(matrices.values())))} units",
            ["W", "n = 1", "n = 64", "n = 1000"],
            [[name, *values[[1, 64, 1000]]] for name, values in norms.items()],
        ),
        _fibonacci(),
        _rotation(),
        Table(
            "(log rho(W^10) - log rho(W_1 ... W_10)) / 10, W_i (N, N) with Gaussian entries of "
            "variance 1/N: powers of one draw against products of ten (erratum 35)",
            ["N", "mean", "standard error"],
            gaps,
        ),
    ]

    def draw(figure: Canvas) -> None:
        upper, lower = figure.subfigures(2, 1, height_ratios=(1.15, 1))
        axes = upper.subplots(1, 2)
        radii = {name: spectral_radius(W) for name, W in matrices.items()}
        _draw_norms(axes[0], norms, radii, 64, (1e-6, 1e3))
        _draw_norms(axes[1], norms, radii, 1000, (1e-20, 1e20))
        axes[0].set_ylabel(r"$\|W^n\|_2$")
        legend_below(upper)
        panels(lower, [_draw_errors, partial(_draw_products, gaps)])

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
        5.6,
    )


def _wrong(method: str) -> int:
    """The first n at which a float64 Fibonacci number, rounded, is not the true one."""
    return next(
        n for n in range(2000) if round(getattr(fibonacci(n), method)) != fibonacci(n).exact
    )


def _fibonacci() -> Table:
    rows = []
    for n in (10, 50, 70, 78, 79, 90):
        exact, *approximate = fibonacci(n)
        # as fractions: beyond 2^53 a float less an integer is 0 where the true difference is not
        errors = (f"{float(Fraction(value) - exact):.3g}" for value in approximate)
        rows.append([n, str(exact), *errors])
    return Table(
        "The n-th Fibonacci number from [[1, 1], [1, 0]]^n: error of float64 by repeated "
        f"squaring (first wrong at n = {_wrong('squared')}) and by the eigendecomposition "
        f"(first wrong, rounded, at n = {_wrong('eigen')})",
        ["n", "exact integer", "squaring", "eigendecomposition"],
        rows,
    )


def _rotation() -> Table:
    c, s = np.cos(np.pi / 7), np.sin(np.pi / 7)
    values = np.linalg.eigvals(np.array([[c, -s], [s, c]]))
    return Table(
        "A rotation by 180/7 degrees: complex eigenvalues of modulus 1",
        ["eigenvalue", "modulus", "angle, degrees"],
        [[f"{v:.4f}", abs(v), np.degrees(np.angle(v))] for v in values],
    )


def _draw_norms(
    ax: Canvas,
    norms: dict[str, Array],
    radii: dict[str, float],
    last: int,
    limits: tuple[float, float],
) -> None:
    n = np.arange(last + 1)
    for radius in radii.values():
        ax.plot(n, radius**n, **THEORY, label=r"spectral radius $\rho^n$")
    curves = {label_of(name): (n, values[n]) for name, values in norms.items()}
    title = f"up to $n = {last}$"
    plot(ax, curves, "log", title=title, ylim=limits, xlabel="power $n$")


def _draw_errors(ax: Canvas) -> None:
    n = np.arange(2, 200)
    numbers = [fibonacci(int(k)) for k in n]
    for i, (method, label) in enumerate(
        (("squared", "repeated squaring"), ("eigen", "eigendecomposition"))
    ):
        errors = [abs(round(getattr(f, method)) - f.exact) / f.exact for f in numbers]
        points = {**line(i, 1), "linestyle": "none", "markersize": 2, "label": label}
        ax.semilogy(n, np.array(errors, float), **points)
    ax.semilogy(n, n * 2.0**-53, **THEORY, label="$n$ roundings")
    ax.axvline(78.5, color="grey", linewidth=0.6, label="$F_n$ passes $2^{53}$")
    ax.set(
        title="Fibonacci numbers, rounded",
        xlabel="$n$ (no point: no error)",
        ylabel="|error| / $F_n$",
    )


def _draw_products(gaps: list[list[Any]], ax: Canvas) -> None:
    sizes, means, errors = np.array(gaps).T
    ax.axhline(0, **THEORY, label="limit of large $N$")
    bars = {**POINTS, "capsize": 2, "label": "measured, two standard errors"}
    ax.errorbar(sizes, means, 2 * errors, **bars)
    ax.set_xscale("log", base=2)
    ax.set(
        title=r"$(\log\,\rho(W^{10}) - \log\,\rho(W_1 \cdots W_{10}))/10$",
        xlabel="$N$, rows and columns",
        ylabel="nats per factor",
    )
