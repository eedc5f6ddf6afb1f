"""Steps on the Stiefel manifold: order, descent, drift, and the margin."""

from typing import Any

import numpy as np

from refnet.analysis.geometry import defect_over_steps, descents, margin_steps, retraction_errors
from refnet.explain.base import LEGEND, Explanation, Table, style
from refnet.matrices.stiefel import METRICS
from refnet.matrices.transitions.svd import SVD

__all__ = ["explain"]


def explain(
    size: int = 8, seed: int = 0, matrix: str | None = None, steps: int = 100_000
) -> Explanation:
    """Cayley steps against geodesics, the two descent directions, drift, and the margin's map."""
    rng = np.random.default_rng(seed)
    rates = np.geomspace(0.003, 0.3, 7)
    tall = size, (size + 1) // 2
    errors = {
        (name, shape, metric): retraction_errors(
            shape, rates, np.random.default_rng([seed, 1]), name, metric
        )
        for shape, metrics in (((size, size), METRICS[:1]), (tall, METRICS))
        for metric in metrics
        for name in ("cayley", "polar", "qr")
    }
    found = descents(size, 500, rng)
    drift = {
        ("float32", False): defect_over_steps(size, steps, 13, rng, "float32"),
        ("float32", True): defect_over_steps(size, steps, 13, rng, "float32", guarded=True),
        ("float64", False): defect_over_steps(size, steps, 13, rng, "float64"),
    }
    margins = np.array([0.01, 0.1, 1.0, 10.0])
    p = np.linspace(-6, 6, 61)
    printed, free = margin_steps(margins, p), margin_steps(margins, p, "margin_free")
    slopes = {key: np.diff(np.log(error)) / np.diff(np.log(rates)) for key, error in errors.items()}
    tables = [
        Table(
            "Distance of one step of that rate from the geodesic; its observed order in the rate "
            "(erratum 26); of square matrices both metrics have the same steps",
            ["retraction", "shape", "metric", *(f"{rate:.3g}" for rate in rates), "order"],
            [
                [
                    name,
                    "{} x {}".format(*shape),
                    metric if shape == tall else "both",
                    *error,
                    f"{slopes[name, shape, metric].mean():.3f}",
                ]
                for (name, shape, metric), error in errors.items()
            ],
        ),
        Table(
            "Derivative of a loss along the step, 500 random points and gradients (erratum 31)",
            ["A", "mean", "largest", "climbs in"],
            [
                [
                    "G W' - W G' (correct)",
                    float(found.correct.mean()),
                    float(found.correct.max()),
                    f"{(found.correct > 0).mean():.0%}",
                ],
                [
                    "G' W - W' G (released code)",
                    float(found.printed.mean()),
                    float(found.printed.max()),
                    f"{(found.printed > 0).mean():.0%}",
                ],
            ],
        ),
        Table(
            f"||M'M - I|| along Cayley steps, {size} units",
            [
                "dtype",
                "guard",
                *(f"{n:,} steps" if n > 1 else "1 step" for n in drift["float64", False][0][::4]),
            ],
            [
                [dtype, "yes" if guarded else "no", *values[::4]]
                for (dtype, guarded), (_, values) in drift.items()
            ],
        ),
        Table(
            "ds of a step of gradient descent of rate 1, dL/ds = -1, at p = 0: with the rate of "
            "p divided by 2m as printed, and by (2m)^2 (erratum 28; RMSprop's ds is free of m "
            "with 2m while its gradients are well above sqrt(eps))",
            ["margin m", "divided by 2m", "by (2m)^2"],
            [[m, a, b] for m, a, b in zip(margins, printed[:, 30], free[:, 30])],
        ),
    ]

    def draw(figure: Any) -> None:
        (order, walk), (mapped, moved) = figure.subplots(2, 2)
        square = {name: error for (name, shape, _), error in errors.items() if shape != tall}
        for i, (name, error) in enumerate(square.items()):
            slope = slopes[name, (size, size), METRICS[0]].mean()
            order.loglog(rates, error, label=f"{name}: order {slope:.2f}", **style(i, len(rates)))
        order.loglog(
            rates,
            square["cayley"][0] * (rates / rates[0]) ** 3,
            color="lightgrey",
            linewidth=4,
            zorder=0,
            label="predicted: rate cubed, squared",
        )
        order.loglog(
            rates,
            square["qr"][0] * (rates / rates[0]) ** 2,
            color="lightgrey",
            linewidth=4,
            zorder=0,
        )
        order.set_title("distance from the geodesic after one step, square M")
        order.set_xlabel("rate")
        order.set_ylabel("Frobenius norm")
        for i, ((dtype, guarded), (at, values)) in enumerate(drift.items()):
            walk.loglog(
                at, values, label=f"{dtype}{', guarded' if guarded else ''}", **style(i, len(at))
            )
        for dtype in ("float32", "float64"):
            at, values = drift[dtype, False]
            walk.loglog(
                at,
                values[-1] * np.sqrt(at / at[-1]),
                color="lightgrey",
                linewidth=4,
                zorder=0,
                label="root of the steps" if dtype == "float32" else None,
            )
        walk.set_title("defect ||M'M - I|| along a walk")
        walk.set_xlabel("steps")
        walk.set_ylabel("Frobenius norm")
        for i, m in enumerate((0.1, 1.0, 2.0)):
            one = {"U": np.eye(len(p)), "V": np.eye(len(p)), "p": p}
            mapped.plot(p, SVD(margin=m).spectrum(one), label=f"m = {m:g}", **style(i))
            for limit in (1 - m, 1 + m):
                mapped.axhline(
                    limit,
                    color="lightgrey",
                    linewidth=2.5,
                    zorder=0,
                    label=None if i or limit > 1 else "limits 1 - m, 1 + m",
                )
        mapped.set_title("the margin's map s(p)")
        mapped.set_xlabel("p")
        mapped.set_ylabel("s")
        for i, m in enumerate(margins):
            moved.semilogy(p, printed[i], label=f"m = {m:g}, printed", **style(i))
        moved.semilogy(
            p,
            free[0],
            color="grey",
            linewidth=4,
            alpha=0.4,
            zorder=0,
            label="any m, divided by (2m)^2",
        )
        moved.set_title("step in s of SGD with rate 1, for dL/ds = -1")
        moved.set_xlabel("p")
        moved.set_ylabel("ds")
        for ax in (order, walk, mapped, moved):
            ax.legend(**LEGEND, loc="lower right" if ax in (order, mapped) else "best")
        moved.set_ylim(bottom=1e-10)

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
        draw,
        5,
    )
