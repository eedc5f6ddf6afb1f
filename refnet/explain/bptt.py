"""Backpropagation through time, step by step: its products, their bound, and what each step adds.

Checked by: tests/analysis/test_explain.py::test_bptt_adds_up_to_the_gradient.
"""

from dataclasses import dataclass

import numpy as np
from numpy.random import default_rng

from refnet.analysis.flow import StepBounds, jacobian_spectra, step_bounds
from refnet.batch import Array, Batch
from refnet.explain.base import Explanation, Table, named_matrix
from refnet.nets.gradients import loss_and_gradients
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.states import state_gradients
from refnet.runs.rows import Canvas
from refnet.runs.style import THEORY, label_of, legend_below, plot, signed

STARTS = ("orthogonal", "orthogonal:gain=1.5", "gaussian:sd=0.1", "chain:gain=1.02")
INPUTS, CLASSES = 2, 3


@dataclass(frozen=True)
class Flow:
    """What BPTT computes in one sequence of T steps.

    ``spectra`` (T + 1, H): the singular values of dh_T/dh_t; ``bound`` (T + 1,): on the largest;
    ``losses`` (T, T + 1): ||dL_k/dh_t|| of each step's loss; ``weights`` (T,): the norm of what
    step t adds to dL/dW_hh; ``error``: how far these sum from dL/dW_hh, relative to its norm;
    ``steps``: the gain of each step and its bound.
    """

    spectra: Array
    bound: Array
    losses: Array
    weights: Array
    error: float
    steps: StepBounds


def _flow(W: Array, length: int, seed: int) -> Flow:
    rng = default_rng(seed)
    net = RecurrentNet(INPUTS, len(W), CLASSES, readout="every", backend="reference")
    params = {**net.init(rng, np.float64), "Whh": W}
    x, y = rng.normal(size=(length, 1, INPUTS)), rng.integers(0, CLASSES, (length, 1))
    spectra = jacobian_spectra(net, params, x)[:, 0]
    bounds = step_bounds(net, params, np.concatenate([x, x[-1:]]))  # the last of step T
    steps = np.arange(length)[:, None]
    parts = [state_gradients(net, params, Batch(x, y, steps == k))[:, 0] for k in range(length)]
    h = net.forward(params, x)[1].cell.h[:, 0]
    cotangents = state_gradients(net, params, Batch(x, y))[1:, 0] * (1 - h[1:] ** 2)
    added = cotangents[:, :, None] * h[:-1, None, :]
    whole = loss_and_gradients(net, params, Batch(x, y)).gradients["Whh"]
    return Flow(
        spectra,
        np.append(np.cumprod(bounds.bound[::-1, 0])[::-1], 1),
        np.linalg.norm(parts, axis=2),
        np.linalg.norm(added, axis=(1, 2)),
        float(np.linalg.norm(added.sum(axis=0) - whole) / np.linalg.norm(whole)),
        bounds,
    )


def explain(
    size: int = 32, seed: int = 0, matrix: str | None = None, length: int = 40
) -> Explanation:
    """The Jacobian products, their bound, and the gradient by step of simple nets."""
    rng = default_rng(seed)
    flows = {
        start: _flow(named_matrix(start, size, rng), length, seed)
        for start in ([matrix] if matrix else STARTS)
    }

    def draw(figure: Canvas) -> None:
        upper, lower = figure.subfigures(2, 1, height_ratios=(1.2, 1))
        _draw_norms(upper, flows)
        _draw_losses(lower, flows)

    return Explanation(
        "Backpropagation through time",
        "Manchev & Spratling, eqs. 1-4 (errata 1, 2); Vorontsov et al., eq. 5 (erratum 21); "
        "Pascanu et al. (2013)",
        "The loss of step k reaches the state of an earlier step t through the product of the "
        "Jacobians between them, dh_k/dh_t = diag(f'(a_k)) W ... diag(f'(a_(t+1))) W, whose norm "
        "is at most the product of eta = ||f'|| ||W||. That bound is close for one step, and says "
        "little about many. The gradient of W adds up over all steps: the "
        "cotangent of a_t times h_(t-1)'.",
        [
            Table(
                f"Simple nets, {length} steps with a loss each",
                [
                    "start",
                    "one step: eta_t, mean",
                    "its gain, mean",
                    "all: bound",
                    "largest s of dh_T/dh_0",
                    "median s",
                    "dL_T/dh_0 over dL_T/dh_T",
                    "sum over steps less dL/dW_hh",
                ],
                [
                    [
                        start,
                        flow.steps.bound.mean(),
                        flow.steps.measured.mean(),
                        flow.bound[0],
                        flow.spectra[0, 0],
                        np.median(flow.spectra[0]),
                        flow.losses[-1, 0] / flow.losses[-1, -1],
                        flow.error,
                    ]
                    for start, flow in flows.items()
                ],
            )
        ],
        draw,
        5,
    )


def _draw_norms(figure: Canvas, flows: dict[str, Flow]) -> None:
    products, weights = figure.subplots(1, 2)
    T = len(next(iter(flows.values())).weights)
    back, t = np.arange(T, -1, -1), np.arange(1, T + 1)
    for flow in flows.values():
        products.plot(back, flow.bound, **THEORY, label="bound, eq. 5")
    plot(
        products,
        {label_of(start): (back, flow.spectra[:, 0]) for start, flow in flows.items()},
        "log",
        1e-30,
        title=r"largest singular value of $\partial h_T/\partial h_t$",
        xlabel="steps back, $T - t$",
    )
    plot(
        weights,
        {label_of(start): (t, flow.weights) for start, flow in flows.items()},
        "log",
        title=r"what step $t$ adds to $\partial L/\partial W_{hh}$",
        xlabel="time step $t$",
        ylabel=r"$\|\delta_t h_{t-1}^\top\|$",
    )
    legend_below(figure)


def _draw_losses(figure: Canvas, flows: dict[str, Flow]) -> None:
    maps = []
    for flow in flows.values():
        with np.errstate(divide="ignore", invalid="ignore"):
            immediate = np.diagonal(flow.losses, 1)[:, None]
            logs = np.log10(np.maximum(flow.losses / immediate, 1e-9))
        later = np.arange(logs.shape[1]) > np.arange(1, len(logs) + 1)[:, None]
        maps.append(np.where(later, np.nan, logs))
    axes = figure.subplots(1, len(flows), sharey=True, squeeze=False)[0]
    for ax, start, logs in zip(axes, flows, maps):
        shape = (0, len(logs), 1, len(logs))
        image = ax.imshow(
            logs, **signed(*maps), origin="lower", extent=shape, interpolation="nearest"
        )
        ax.set(title=label_of(start), xlabel="state of step $t$")
    axes[0].set_ylabel("loss of step $k$")
    label = r"$\log_{10}\,\|\partial L_k/\partial h_t\| / \|\partial L_k/\partial h_k\|$"
    figure.colorbar(image, ax=axes, label=label)
