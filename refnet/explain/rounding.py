"""What a float32 gradient is worth: its digits against certificates, by length and cell.

Checked by: tests/analysis/test_explain.py::test_rounding_costs_what_the_condition_says.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.random import default_rng

from refnet.batch import Array, Batch
from refnet.exact import certify
from refnet.explain.base import Explanation, Table, named_matrix
from refnet.nets.gradients import loss_and_gradients
from refnet.nets.recurrent import RecurrentNet
from refnet.runs.rows import Canvas
from refnet.runs.style import THEORY, legend_below, plot

CELLS = ("rnn", "lstm", "gru")
CHAOTIC = "orthogonal:gain=4"
LENGTHS = (2, 4, 8, 16, 32, 48)
INPUTS, CLASSES, ULP = 2, 3, 2.0**-23


class Worth(NamedTuple):
    """The digits of a gradient, entry by entry, relative to the largest of its array: in float32,
    in float64, and those that one ulp in the inputs leaves."""

    float32: Array
    float64: Array
    condition: Array


def _digits(errors: dict[str, Array], true: dict[str, Array]) -> Array:
    parts = [
        np.ravel(np.maximum(abs(errors[name]) / abs(true[name]).max(), 1e-17)) for name in true
    ]
    return np.asarray(-np.log10(np.concatenate(parts)))


def _worth(cell: str, W: Array, length: int, seed: int) -> Worth:
    rng = default_rng(seed)
    net = RecurrentNet(INPUTS, len(W), CLASSES, cell=cell, backend="reference")
    params = net.init(rng, np.float32, recurrent=lambda shape, _: W)
    x = rng.normal(size=(length, 1, INPUTS)).astype(np.float32)
    batch = Batch(x, rng.integers(0, CLASSES, 1))
    certified = certify(net, params, batch)
    values = {name: certified.gradients[name].value for name in params}
    true = {name: value for name, value in values.items() if value.any()}
    digits = []
    for dtype in (np.float32, np.float64):
        cast = {name: value.astype(dtype) for name, value in params.items()}
        gradients = loss_and_gradients(net, cast, batch._replace(x=x.astype(dtype))).gradients
        errors = {name: gradients[name].astype(float) - true[name] for name in true}
        digits.append(_digits(errors, true))
    changes = certified.condition(ULP)
    digits.append(_digits({name: changes[f"d{name}"] for name in true}, true))
    return Worth(*digits)


def explain(
    size: int = 16,
    seed: int = 0,
    matrix: str | None = None,
    cells: Sequence[str] = CELLS,
    lengths: Sequence[int] = LENGTHS,
) -> Explanation:
    """The digits of float32 and float64 gradients by length and cell, against certificates."""
    starts = [(cell, cell, matrix or "orthogonal") for cell in cells]
    if not matrix:
        starts.append(("rnn, chaotic", "rnn", CHAOTIC))
    worth = {}
    for label, cell, spec in starts:
        W = named_matrix(spec, size, default_rng(seed))
        worth[label] = {length: _worth(cell, W, length, seed) for length in lengths}
    rows: list[list[Any]] = [
        [
            cell,
            length,
            float(w.float32.min()),
            float(np.median(w.float32)),
            float(w.condition.min()),
            float(w.float64.min()),
        ]
        for cell, by_length in worth.items()
        for length, w in by_length.items()
    ]

    def draw(figure: Canvas) -> None:
        axes = figure.subplots(1, 2)
        _draw_lengths(axes[0], worth)
        _draw_entries(axes[1], worth)
        legend_below(figure)

    return Explanation(
        "What a float32 gradient is worth",
        "Higham (2002), chapters 1 and 3; the certificates are refnet's own",
        "Digits: -log10 of the distance from the certified gradient over the largest entry of its "
        "array. float32 begins with about seven, float64 with about sixteen; every step back in "
        "time rounds again, which costs little where the product of the Jacobians does not grow, "
        "and all digits where a net is chaotic. "
        "One ulp in the inputs alone moves the gradient so far that no program in float32 can "
        "be expected to keep more digits than the condition leaves.",
        [
            Table(
                f"{len(W)} units, start {matrix or 'orthogonal'} (chaotic: {CHAOTIC}), the loss of "
                "the last step",
                [
                    "cell",
                    "T",
                    "float32, worst entry",
                    "float32, median",
                    "left by one ulp in the inputs, worst",
                    "float64, worst entry",
                ],
                rows,
            )
        ],
        draw,
    )


def _draw_lengths(ax: Canvas, worth: dict[str, dict[int, Worth]]) -> None:
    for by_length in worth.values():
        predicted = [w.condition.min() for w in by_length.values()]
        ax.plot([*by_length], predicted, **THEORY, label="predicted: one ulp in the inputs")
    plot(
        ax,
        {
            cell: ([*by_length], [w.float32.min() for w in by_length.values()])
            for cell, by_length in worth.items()
        },
        title="digits of the worst entry, float32",
        xlabel="steps $T$",
        ylabel="decimal digits",
    )
    ax.set_xscale("log", base=2)


def _draw_entries(ax: Canvas, worth: dict[str, dict[int, Worth]]) -> None:
    for dtype in ("float32", "float64"):
        digits = {cell: getattr([*w.values()][-1], dtype) for cell, w in worth.items()}
        plot(
            ax,
            {cell: (np.sort(d), np.linspace(1, 0, len(d))) for cell, d in digits.items()},
            title="entries with so many digits, longest $T$",
            xlabel="decimal digits (left: float32, right: float64)",
            ylabel="share of the entries",
        )
