"""Steps on the Stiefel manifold: order, descent, drift, and the margin."""

from functools import partial

import numpy as np
from numpy.random import Generator, default_rng

from refnet.analysis.geometry import defect_over_steps, descents, margin_steps, retraction_errors
from refnet.batch import Array
from refnet.explain.base import Explanation, Table
from refnet.matrices.stiefel import METRICS
from refnet.matrices.transitions.svd import SVD
from refnet.runs.rows import Canvas
from refnet.runs.style import THEORY, Draw, panels, plot

RATES = np.geomspace(0.003, 0.3, 7)
MARGINS = np.array([0.01, 0.1, 1.0, 10.0])
RAW = np.linspace(-6, 6, 61)
"""Raw singular parameters p."""


def explain(
    size: int = 8, seed: int = 0, matrix: str | None = None, steps: int = 100_000
) -> Explanation:
    """Cayley steps against geodesics, the two descent directions, drift, and the margin's map."""
    rng = default_rng(seed)
    square, orders = _orders(size, seed)
    descent = _descent(size, rng)
    drift, defects = _drift(size, steps, rng)
    printed, free = margin_steps(MARGINS, RAW), margin_steps(MARGINS, RAW, "margin_free")
    tables = [
        orders,
        descent,
        defects,
        Table(
            "ds of a step of gradient descent of rate 1, dL/ds = -1, at p = 0: with the rate of "
            "p divided by 2m as printed, and by (2m)^2 (erratum 28; RMSprop's ds is free of m "
            "with 2m while its gradients are well above sqrt(eps))",
            ["margin m", "divided by 2m", "by (2m)^2"],
            [[m, a, b] for m, a, b in zip(MARGINS, printed[:, 30], free[:, 30])],
        ),
    ]

    draws: list[Draw] = [
        partial(_draw_orders, square),
        partial(_draw_drift, drift),
        _draw_spectrum,
        partial(_draw_steps, printed, free),
    ]
    return Explanation(
        "Geometry of orthogonal matrices",
        "Vorontsov et al., eqs. 9-11 (errata 25-28, 31)",
        "A Cayley step is a retraction: of a square M, and of a tall one in the canonical metric, "
        "it agrees with the geodesic to second order, in the euclidean metric of a tall M to "
        "first, where the polar step has the second. Its direction descends with A = G W' - W G'; "
        "the released code's A may climb. Rounding moves M off the manifold like a random walk, "
        "unless a guard repairs it. The margin's map is open, and dividing the rate by 2m leaves "
        "2m in gradient descent's step of s, but not in RMSprop's of gradients well above the root "
        "of its eps.",
        tables,
        partial(panels, draws=draws, columns=2),
        5.6,
    )


def _order(errors: Array) -> float:
    """The observed order in the rate."""
    return float(np.mean(np.diff(np.log(errors)) / np.diff(np.log(RATES))))


def _orders(size: int, seed: int) -> tuple[dict[str, Array], Table]:
    """The errors of each retraction for square matrices, and the table of all shapes."""
    square, rows = {}, []
    for shape, metrics in (((size, size), METRICS[:1]), ((size, (size + 1) // 2), METRICS)):
        for metric in metrics:
            for name in ("cayley", "polar", "qr"):
                errors = retraction_errors(shape, RATES, default_rng([seed, 1]), name, metric)
                words = [name, "{} x {}".format(*shape), metric]
                if shape == (size, size):
                    square[name], words[-1] = errors, "both"
                rows.append([*words, *errors, f"{_order(errors):.3f}"])
    return square, Table(
        "Distance of one step of that rate from the geodesic; its observed order in the rate "
        "(erratum 26); of square matrices both metrics have the same steps",
        ["retraction", "shape", "metric", *(f"{rate:.3g}" for rate in RATES), "order"],
        rows,
    )


def _descent(size: int, rng: Generator) -> Table:
    derivatives = descents(size, 500, rng)
    return Table(
        "Derivative of a loss along the step, 500 random points and gradients (erratum 31)",
        ["A", "mean", "largest", "climbs in"],
        [
            [name, values.mean(), values.max(), f"{(values > 0).mean():.0%}"]
            for name, values in (
                ("G W' - W G' (correct)", derivatives.correct),
                ("G' W - W' G (released code)", derivatives.printed),
            )
        ],
    )


Drift = dict[tuple[str, bool], tuple[Array, Array]]
"""Steps and the defect after them, by dtype and guard."""


def _drift(size: int, steps: int, rng: Generator) -> tuple[Drift, Table]:
    drift = {
        (dtype, guarded): defect_over_steps(size, steps, 13, rng, dtype, guarded=guarded)
        for dtype, guarded in (("float32", False), ("float32", True), ("float64", False))
    }
    counts = drift["float64", False][0][::4]
    return drift, Table(
        f"||M'M - I|| along Cayley steps, {size} units",
        ["dtype", "guard", *(f"{n:,} steps" if n > 1 else "1 step" for n in counts)],
        [
            [dtype, "yes" if guarded else "no", *values[::4]]
            for (dtype, guarded), (_, values) in drift.items()
        ],
    )


def _draw_orders(square: dict[str, Array], ax: Canvas) -> None:
    growth = RATES / RATES[0]
    for name, power in (("cayley", 3), ("qr", 2)):
        predicted = square[name][0] * growth**power
        ax.plot(RATES, predicted, **THEORY, label="predicted: rate cubed, squared")
    plot(
        ax,
        {f"{name}: order {_order(errors):.2f}": (RATES, errors) for name, errors in square.items()},
        "log",
        title="one step, square $M$",
        xlabel="rate",
        ylabel="distance from the geodesic",
        xscale="log",
    )


def _draw_drift(drift: Drift, ax: Canvas) -> None:
    for (_, guarded), (at, values) in drift.items():
        if not guarded:
            root = values[-1] * np.sqrt(at / at[-1])
            ax.plot(at, root, **THEORY, label="root of the steps")
    plot(
        ax,
        {f"{dtype}{', guarded' * guarded}": pair for (dtype, guarded), pair in drift.items()},
        "log",
        title="a random walk",
        xlabel="steps",
        ylabel=r"defect $\|M^\top M - I\|$",
        xscale="log",
    )


def _draw_spectrum(ax: Canvas) -> None:
    identity, curves = np.eye(len(RAW)), {}
    for m in (0.1, 1.0, 2.0):
        s = SVD(margin=m).spectrum({"U": identity, "V": identity, "p": RAW})
        curves[f"margin {m:g}"] = RAW, s
        for limit in (1 - m, 1 + m):
            ax.axhline(limit, **THEORY, label=r"limits $1 \pm m$")
    plot(ax, curves, title="the margin's map $s(p)$", xlabel="$p$", ylabel="$s$")


def _draw_steps(printed: Array, free: Array, ax: Canvas) -> None:
    ax.plot(RAW, free[0], **THEORY, label="any, divided by $(2m)^2$")
    plot(
        ax,
        {f"margin {m:g}, printed": (RAW, values) for m, values in zip(MARGINS, printed)},
        "log",
        title=r"SGD's step, rate 1, $\partial L/\partial s = -1$",
        xlabel="$p$",
        ylabel=r"$\Delta s$",
    )
