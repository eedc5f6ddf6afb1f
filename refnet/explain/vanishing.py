"""How a net's gradient fades or grows through time before training, by start and cell."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.random import default_rng

from refnet.analysis.flow import gradient_norms
from refnet.batch import Array, Batch, Params
from refnet.explain.base import Explanation, Table
from refnet.matrices.initializers import initialize
from refnet.nets.recurrent import RecurrentNet
from refnet.runs.rows import Canvas
from refnet.runs.style import THEORY, grid, label_of, legend_below, plot

STARTS = ("glorot_uniform", "orthogonal", "identity", "chain", "gaussian:sd=0.1")
EXAMPLES, INPUTS, TINY = 16, 2, 1e-30
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(61)


def slope(W: Array, Wxh: Array) -> float:
    """``chi = sigma_w^2 E[tanh'(z)^2]``, the mean factor on ``||dL/dh_t||^2`` of one step back.

    For independent entries of variance sigma_w^2 / H and inputs of variance 1 a pre-activation z is
    normal with the variance ``q = sigma_w^2 E[tanh(z)^2] + sigma_x^2``, once it has settled;
    sigma_w^2 = ||W||_F^2 / H and sigma_x^2 = ||Wxh||_F^2 / H are those of W (H, H) and Wxh (H, D).

    Source: Schoenholz et al. (2017), eqs. 3 and 9, with the same matrix at every step.

    >>> small = slope(np.eye(4) / 2, np.zeros((4, 1)))  # tanh is linear at 0
    >>> round(small, 12)
    0.25

    Checked by: tests/analysis/test_explain.py::test_starts_follow_the_theory.
    """
    H = len(W)
    weight, inputs = float((W * W).sum()) / H, float((Wxh * Wxh).sum()) / H
    share = WEIGHTS / WEIGHTS.sum()
    q = inputs
    for _ in range(1000):
        q = weight * float(share @ np.tanh(np.sqrt(q) * NODES) ** 2) + inputs
    return weight * float(share @ (1 - np.tanh(np.sqrt(q) * NODES) ** 2) ** 2)


def _start(net: RecurrentNet, weights: str, seed: int) -> Params:
    return net.init(default_rng(seed), np.float64, recurrent=partial(initialize, weights))


def explain_starts(
    weights: Sequence[str] = STARTS,
    cells: Sequence[str] = ("rnn", "lstm", "gru"),
    size: int = 64,
    length: int = 60,
    seed: int = 0,
) -> Explanation:
    """``||dL/dh_t||`` of the last step's loss over time, by start and cell."""
    rng = default_rng(seed)
    x = rng.normal(size=(length, EXAMPLES, INPUTS))
    norms: dict[str, dict[str, Array]] = {}
    theory: dict[str, Array] = {}
    rows: list[list[Any]] = []
    back = np.arange(length, -1, -1)
    for cell in cells:
        net = RecurrentNet(INPUTS, size, 1, cell=cell, loss="none", reduction="sum")
        y = rng.normal(size=(EXAMPLES, 1))
        for start in weights:
            params = _start(net, start, seed)
            measured = gradient_norms(net, params, Batch(x, y))
            share = norms.setdefault(cell, {})[start] = measured / measured[-1]
            expected = None
            if cell == "rnn":
                expected = np.sqrt(slope(params["Whh"], params["Wxh"]))
                theory[start] = expected**back
            faded = np.flatnonzero(share < 1e-3)
            rows.append(
                [
                    cell,
                    start,
                    share[0],
                    share[0] ** (1 / length),
                    expected,
                    length - faded[-1] if len(faded) else f"over {length}",
                ]
            )

    return Explanation(
        "Gradient flow through time, before training",
        "Manchev & Spratling, eq. 4; Pascanu et al. (2013); Schoenholz et al. (2017), eq. 9; "
        "Orhan & Pitkow (2020)",
        f"The gradient of the last step's loss, {size} units, {length} steps of normal inputs, "
        "over its norm at the last step. In a simple net each step back multiplies it by W' and by "
        "tanh', in the mean by sqrt(chi) if W is large and random. An orthogonal W follows that "
        "line; with independent entries, which are the same at every step, a product of many steps "
        "may end off it. The identity leaves every unit to itself: those that stay near 0 carry "
        "the gradient. A chain drops what reaches its end. In gated cells the gates multiply what "
        "they carry, and no start of W decides alone.",
        [
            Table(
                "What is left of the gradient after all steps",
                ["cell", "start", "share left", "a step", "sqrt(chi)", "steps to 1/1000"],
                rows,
            )
        ],
        partial(_draw, norms, theory),
        4,
    )


def _draw(
    norms: Mapping[str, Mapping[str, Array]], theory: Mapping[str, Array], figure: Canvas
) -> None:
    axes = grid(figure, len(norms))
    for ax, (cell, curves) in zip(axes, norms.items()):
        for values in theory.values() if cell == "rnn" else ():
            back = np.arange(len(values))[::-1]
            label = r"theory, $\sqrt{\chi}$ a step"
            ax.plot(back, np.where(values > TINY, values, np.nan), **THEORY, label=label)
        pairs = {
            label_of(start): (np.arange(len(share))[::-1], share) for start, share in curves.items()
        }
        plot(ax, pairs, "log", TINY, title=cell, xlabel="steps back in time")
        ax.sharey(axes[0])
    legend_below(figure)
    axes[0].set_ylabel(r"$\|\partial L/\partial h_t\| / \|\partial L/\partial h_T\|$")
