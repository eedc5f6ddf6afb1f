"""Signal and noise through recurrent matrices, and nets that train with noise.

Checked by: tests/analysis/test_explain.py::test_noise_is_simulated.
"""

from typing import Any

import numpy as np
from numpy.random import Generator, default_rng

from refnet.analysis.spectra import henrici, spectral_radius
from refnet.batch import Array
from refnet.explain.base import Explanation, Table, named_matrix
from refnet.runs.rows import Canvas
from refnet.runs.style import POINTS, THEORY, label_of, legend_below, plot
from refnet.training.experiment import build
from refnet.training.protocols import preset
from refnet.training.steps import Run, step

STARTS = {
    "orthogonal": "orthogonal",
    "normal": "symmetric, eigenvalues from -1 to 1",
    "chain, gain 1.02": "chain:gain=1.02",
    "identity + chain": "identity:scale=0.5 + chain:gain=0.55",
}
STEPS, SAMPLES, NOISE, DELAY, PARTS = 30, 400, 0.1, 5, 30


def _matrix(spec: str, size: int, rng: Generator) -> Array:
    """A sum of named matrices, or a normal matrix."""
    if spec == STARTS["normal"]:
        Q = named_matrix("orthogonal", size, rng)
        return Q * np.linspace(-1, 1, size) @ Q.T
    return np.asarray(sum(named_matrix(part, size, rng) for part in spec.split(" + ")))


def _powers(W: Array, rng: Generator) -> tuple[Array, Array, Array]:
    """After k = 0 .. STEPS - 1 steps the power of an input of unit 0, ||W^k e_0||^2; that of the
    unit noise of all steps since, sum_(j <= k) ||W^j||_F^2; and the latter as simulated."""
    power, h = np.eye(len(W)), np.zeros((len(W), SAMPLES))
    signal, noise, drawn = np.empty((3, STEPS))
    for k in range(STEPS):
        h = W @ h + rng.normal(size=h.shape)
        drawn[k] = (h * h).sum() / SAMPLES
        signal[k], noise[k] = (power[:, 0] ** 2).sum(), (power * power).sum()
        power = W @ power
    return signal, noise.cumsum(), drawn


def _losses(W: Array, noise: float, updates: int, seed: int) -> Array:
    """The loss of training on the copy task from W, with noise in every state: the means over
    PARTS parts of the updates."""
    e = build(
        preset(
            "copy:samples=50",
            length=DELAY,
            hidden=len(W),
            seed=seed,
            backend="reference",
            batch=16,
            transition="dense",
            activation="relu",
            noise_state=noise,
            clip="norm",
            rate=2e-3,
        )
    )
    params = {**e.start()[0], "Whh": W.astype(np.float32)}
    run, losses = Run(params, e.optimizer.init(params), params, {}), np.empty(updates)
    for number in range(updates):
        run, result, _ = step(e, run, e.task.batch(number, e.config.batch, seed))
        losses[number] = result.loss
    return np.array([part.mean() for part in np.array_split(losses, min(PARTS, updates))])


def explain(
    size: int = 32, seed: int = 0, matrix: str | None = None, updates: int = 900
) -> Explanation:
    """Signal and noise through matrices of four kinds, and nets trained from them in noise."""
    rng = default_rng(seed)
    starts = {matrix: matrix} if matrix else STARTS
    matrices = {name: _matrix(spec, size, rng) for name, spec in starts.items()}
    powers = {name: _powers(W, rng) for name, W in matrices.items()}
    trained = {
        noise: {name: _losses(W, noise, updates, seed) for name, W in matrices.items()}
        for noise in (0.0, NOISE)
    }
    rows: list[list[Any]] = []
    for name, W in matrices.items():
        signal, noise, _ = powers[name]
        last = [losses[name][-1] for losses in trained.values()]
        power = signal[-1], noise[-1], signal[-1] / noise[-1]
        rows.append([name, spectral_radius(W), henrici(W), *power, *last])

    def draw(figure: Canvas) -> None:
        upper, lower = figure.subfigures(2, 1, height_ratios=(1, 1.2))
        _draw_powers(upper, powers)
        _draw_trained(lower, trained, updates)

    return Explanation(
        "Signal and noise, and training in noise",
        "Orhan (erratum 36); Orhan & Pitkow (2020); Ganguli, Huh & Sompolinsky (2008)",
        "h[t] = W h[t-1] + v s[t] + noise. An orthogonal matrix keeps the signal's power and adds "
        "that of every step's noise; a normal one with smaller eigenvalues loses both. A chain and "
        "identity + chain send the signal along a path on which they amplify it, while noise "
        "enters everywhere and leaves at the path's end. Whether a net learns from such a start in "
        "noise is another question: below, the copy task with and without noise in every state.",
        [
            Table(
                f"{len(next(iter(matrices.values())))} units; power of an input of unit 0 and of "
                f"unit noise after {STEPS - 1} steps; loss of the copy task, T = {DELAY}, over the "
                f"last {-(-updates // PARTS)} of {updates} updates",
                [
                    "W",
                    "spectral radius",
                    "Henrici's departure",
                    "signal",
                    "noise",
                    "ratio",
                    "loss, no noise",
                    f"loss, noise of sd {NOISE:g}",
                ],
                rows,
            )
        ],
        draw,
        5,
    )


def _draw_powers(figure: Canvas, powers: dict[str, tuple[Array, Array, Array]]) -> None:
    axes, k = figure.subplots(1, 3), np.arange(STEPS)
    for _, _, drawn in powers.values():
        axes[1].plot(k, drawn, **{**POINTS, "markersize": 2}, label="simulated")
    for ax, title, values in zip(
        axes,
        ("power of the signal", "power of the noise", "their ratio"),
        (
            {label_of(name): (k, power[0]) for name, power in powers.items()},
            {label_of(name): (k, power[1]) for name, power in powers.items()},
            {label_of(name): (k, power[0] / power[1]) for name, power in powers.items()},
        ),
    ):
        plot(ax, values, "log", 1e-12, title=title, xlabel="steps since the input, $k$")
    legend_below(figure)


def _draw_trained(figure: Canvas, trained: dict[float, dict[str, Array]], updates: int) -> None:
    axes = figure.subplots(1, len(trained), sharey=True)
    for ax, (noise, losses) in zip(axes, trained.items()):
        ax.axhline(10 * np.log(8) / (DELAY + 20), **THEORY, label="predicted without memory")
        curves = {
            label_of(name): (np.linspace(0, updates, len(values)), values)
            for name, values in losses.items()
        }
        plot(ax, curves, title=f"training in noise of sd {noise:g}", xlabel="update")
    axes[0].set_ylabel("loss, copy task")
    legend_below(figure)
