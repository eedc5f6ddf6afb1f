"""The tables and figures of Manchev & Spratling, under the protocol of their released code."""

from math import sqrt
from typing import Any

from refnet.analysis.orthogonalization import orthogonalization_experiment
from refnet.runs.read import Record
from refnet.runs.rows import finite, table
from refnet.studies.findings import FINDINGS
from refnet.studies.grid import (
    STYLES,
    Cell,
    Figure,
    accuracy,
    grid,
    label_of,
    last_accuracy,
    solved_at,
)
from refnet.studies.jobs import Job
from refnet.studies.ladder import NETS, TABLES
from refnet.studies.quantities import BATCH, final
from refnet.studies.study import RowOf, Study, rows_of, spread

__all__ = ["LE_ET_AL", "LSTM", "STUDIES"]

PROTOCOL, TEXT = "manchev-spratling/code", "manchev-spratling/text"

LE_ET_AL = {"task": "sequential-mnist:scaling=unit", "protocol": TEXT, "clip": "norm"}
LSTM: Record = {"cell": "lstm:forget=1", "rate": 0.01, "clip_at": 1.0, "weights": "glorot_uniform"}
"""Figure 3a's other nets, and the first of them."""
MEANS = {"gaussian": "22.77", "uniform": "24.00"}


def orthogonalise(distribution: str, seed: int, runs: int) -> Record:
    """The 10,000-run experiment of II-A, for one distribution."""
    steps = orthogonalization_experiment(distribution, runs=runs, seed=seed)
    return {
        "mean": round(steps.mean, 4),
        "sd": round(steps.sd, 4),
        "extremes": [int(value) for value in steps.extremes],
        "success": steps.success_rate,
    }


def _experiment(distribution: str, seed: int, quick: bool) -> Job:
    return Job(
        f"{distribution}, seed {seed}",
        function="refnet.studies.manchev:orthogonalise",
        arguments={"distribution": distribution, "seed": seed, "runs": 500 if quick else 10_000},
    )


def _experiments(row_of: RowOf, seeds: int, quick: bool) -> list[Job]:
    return [
        _experiment(distribution, seed, quick) for seed in range(seeds) for distribution in MEANS
    ]


def _experiment_table(row_of: RowOf, seeds: int, quick: bool) -> str:
    lines, errors = [], []
    for distribution, printed in MEANS.items():
        rows = rows_of(row_of, [_experiment(distribution, seed, quick) for seed in range(seeds)])
        extremes = [value for row in rows for value in row["extremes"]]
        lines.append(
            [
                distribution,
                spread([row["mean"] for row in rows]),
                printed,
                f"{min(extremes)} to {max(extremes)}" if extremes else "not run",
                spread([100 * row["success"] for row in rows]),
                "100",
            ]
        )
        errors += [row["sd"] / sqrt(10_000) for row in rows]
    text = table(
        ["start", "mean steps", "printed", "fewest to most", "success, %", "printed"], lines
    )
    if quick or not errors:
        return text
    return text + (
        f"\nA mean of 10,000 matrices has a standard error of {max(errors):.2f}, a "
        "printed one as well, and the difference of two one of "
        f"{sqrt(2) * max(errors):.2f}.\n"
    )


EARLY = 150
"""Thousands of examples in Figure 3b."""


def pixel_by_pixel(rows: dict[str, Record]) -> Any:
    """Figure 3a, the accuracy of all nets, and Figure 3b, how an orthogonal net starts to learn:
    W_hh's defect and spectral radius and the norm of the gradient (theirs: of W_hh alone) over
    the first examples. The text says that 3b is of OINIT; that it starts at a spectral radius of 0
    fits OPEN only, so both are drawn.

    Checked by: tests/studies/test_pages.py::test_figure_3_of_manchev_and_spratling.
    """
    from matplotlib.figure import Figure

    from refnet.runs.plots import tidy, words

    early = [label for label in ("SRNN+OINIT", "SRNN+OPEN") if label in rows]
    lines = 1 + bool(early)
    canvas = Figure(figsize=(9, 3.4 * lines), layout="constrained")
    first, names, *others = canvas.subplots(lines, 2, squeeze=False).ravel()
    for (label, row), line in zip(rows.items(), STYLES):
        first.plot(
            finite(row["curve"]["iteration"]),
            finite(row["curve"]["accuracy"]),
            label=label_of(label, [row]),
            linestyle=line,
            marker="." if len(row["curve"]["iteration"]) < 5 else None,
        )
    first.set(title="3a: all nets", xlabel="iteration", ylabel="accuracy on the test set")
    for label, place in zip(early, others):
        examples = BATCH / 1000 * finite(rows[label]["curve"]["iteration"])
        for column in ("defect", "spectral_radius", "gradient_norm"):
            place.plot(
                examples, finite(rows[label]["curve"][column]), label=words(column), marker="."
            )
        place.set(
            title=f"3b, {label}",
            xlabel="thousands of examples",
            xlim=(0, EARLY),
            ylabel="defect, radius, norm",
            yscale="log",
        )
    tidy(first, names)
    for place in others[: len(early)]:
        tidy(place)
    for place in others[len(early) :]:
        place.remove()
    return canvas


BEST: Figure = ("best accuracy, %", accuracy, ".2f")
LAST: Figure = ("accuracy at the end, %", last_accuracy, ".2f")
"""Tables II and III print the best."""

SHUFFLED = {"order": "shuffled"}
EPOCHS = {"evaluate_every": 3000, **SHUFFLED}

RATES = {0.1: "91.40", 0.01: "91.65", 0.001: "90.66", 0.0001: "88.80", 0.00001: "72.81"}


STUDIES = [
    Study(
        "orthogonalisation",
        "The orthogonalisation experiment of Manchev & Spratling, II-A: "
        "10,000 random 100 x 100 matrices",
        _experiments,
        _experiment_table,
    ),
    grid(
        "figure-2",
        "Figure 2 of Manchev & Spratling: spectral radius and gradient norm on "
        "temporal order, T = 60",
        [
            Cell(
                net,
                {"task": "temporal-order", "length": 60, "method": method, "protocol": PROTOCOL},
                quick={"task": "temporal-order:samples=1000", "iterations": 1500},
            )
            for net, method in NETS.items()
        ],
        [
            ("iterations until solved", solved_at, ".0f"),
            ("spectral radius at the end", final("spectral_radius"), ".3f"),
        ],
        ("spectral_radius", "gradient_norm", "accuracy"),
    ),
    grid(
        "table-iii",
        "Table III of Manchev & Spratling: MNIST, ten hidden layers (in the "
        "code eleven), best accuracy in %",
        [
            Cell(
                net,
                {"task": "mnist", "method": method, **EPOCHS, "protocol": PROTOCOL},
                (printed,),
                quick={"iterations": 15_000},
            )
            for net, method, printed in (
                ("FF", "plain", "11.35"),
                ("FF+OPEN", "open", "97.03"),
                ("FF+OINIT", "oinit", "96.77"),
            )
        ],
        [BEST, LAST],
        ("accuracy", "loss"),
        notes=FINDINGS["table-iii"],
    ),
    grid(
        "table-iv",
        "Table IV of Manchev & Spratling: MNIST, ten hidden layers (in the code "
        "eleven), OPEN with lambda = 1.0",
        [
            Cell(
                f"alpha = {rate:g}",
                {
                    "task": "mnist",
                    "method": "open",
                    "strength": 1.0,
                    "rate": rate,
                    **EPOCHS,
                    "protocol": PROTOCOL,
                },
                (printed,),
                quick={"iterations": 4000},
            )
            for rate, printed in RATES.items()
        ],
        [LAST, BEST],
        ("accuracy", "loss"),
        notes=FINDINGS["table-iv"],
    ),
    *TABLES,
    grid(
        "table-ii",
        "Table II and Figures 3a, 3b of Manchev & Spratling: MNIST pixel by pixel, a "
        "million iterations",
        [
            *(
                Cell(
                    net,
                    {
                        "task": "sequential-mnist",
                        "method": method,
                        "protocol": PROTOCOL,
                        **SHUFFLED,
                    },
                    (printed,),
                    quick={"iterations": 300, "evaluate_every": 300},
                )
                for net, method, printed in (
                    ("SRNN+OINIT", "oinit", "86.81"),
                    ("SRNN+OPEN", "open", "91.81"),
                    ("SRNN", "plain", "11.35"),
                )
            ),
            # Figure 3a's other curves
            *(
                Cell(
                    f"{net} of Le et al.",
                    {**LE_ET_AL, **settings},
                    quick={"iterations": 60, "evaluate_every": 60},
                )
                for net, settings in (
                    ("LSTM", LSTM),
                    ("SRNN, clipped", {"rate": 1e-8, "clip_at": 10.0}),
                    (
                        "IRNN",
                        {
                            "activation": "relu",
                            "recurrent": "identity:scale=1",
                            "rate": 1e-8,
                            "clip_at": 1.0,
                        },
                    ),
                )
            ),
        ],
        [BEST, LAST],
        ("accuracy", "spectral_radius", "defect", "gradient_norm"),
        draw=pixel_by_pixel,
        notes=FINDINGS["table-ii"],
    ),
]
