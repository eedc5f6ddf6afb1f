"""Trained runs analysed and compared: ``refnet analyse`` and ``refnet compare``."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from refnet.analysis.flow import gradient_norms, lyapunov_exponents
from refnet.analysis.memory import fisher_memory, peak_order
from refnet.analysis.spectra import henrici, singular_values, spectral_radius
from refnet.batch import Array, Batch
from refnet.cells import CELLS
from refnet.explain.base import Explanation, Table, style
from refnet.matrices.orthogonality import defect
from refnet.nets.recurrent import RecurrentNet
from refnet.runs.rows import finite
from refnet.training.load import Loaded, load

__all__ = ["analyse", "compare"]

SEQUENCES = 16


def _matrices(run: Loaded) -> Table:
    rows = []
    for name, W in run.experiment.matrices_of(run.best_params, run.experiment.matrices).items():
        s, square = singular_values(W), W.shape[0] == W.shape[1]
        rows.append([name, f"{W.shape[0]} x {W.shape[1]}", s.smallest, s.mean, s.largest,
                     float(defect(W.astype(float))), spectral_radius(W) if square else None,
                     henrici(W) if square else None])
    return Table("The matrices at the best evaluation", ["matrix", "shape", "smallest s", "mean s",
                 "largest s", "defect", "spectral radius", "Henrici's departure"], rows)


def _first(run: Loaded) -> Batch:
    return run.task.batch(run.iteration, SEQUENCES, run.config.seed)  # type: ignore[no-any-return]


def analyse(folder: Path | str) -> Explanation:
    """The matrices, gradient flow, exponents, memory and peak order of a trained run."""
    run = load(folder)
    tables, net = [_matrices(run)], run.net
    flow: Array | None = None
    profile: Array | None = None
    if isinstance(net, RecurrentNet):
        batch = _first(run)
        flow = gradient_norms(net, run.best_params, batch)
        T = len(flow) - 1
        exponents = lyapunov_exponents(net, run.best_params, batch.x[-min(T, 100):, :1])[0]
        tables.append(Table(
            f"Gradient flow on {SEQUENCES} training sequences, T = {T}: ||dL/dh_t|| of the last "
            "step's loss", ["t = 0", f"t = {T // 2}", f"t = {T}",
                            "largest exponent, nats a step", "median exponent"],
            [[float(flow[0]), float(flow[T // 2]), float(flow[-1]), float(exponents[0]),
              float(np.median(exponents))]]))
        p = net.matrices(run.best_params)[0]
        gate = net.gates.index(CELLS[net.cell].CANDIDATE)
        slot, H = net.slots[gate], net.hidden
        W, v = p[slot], p["Wxh"][gate * H:(gate + 1) * H, 0].astype(float)
        v = v / (np.linalg.norm(v) or 1)
        memory = fisher_memory(W.astype(float), v, 20, horizon=40)
        states = net.forward(run.best_params, batch.x)[1].cell.h[1:]
        profile, _ = peak_order(states.astype(float), W, 20)
        middle = len(profile) // 2
        tables.append(Table(
            f"Memory of {slot} as a linear net (Fisher information about the input's first "
            "channel, noise of 40 steps), and the mean weight by the order of the units' peaks",
            ["J(0)", "J(5)", "J(19)", "sum of J", "weight to the next unit", "to the one before"],
            [[float(memory[0]), float(memory[5]), float(memory[19]), float(memory.sum()),
              float(profile[middle + 1]), float(profile[middle - 1])]]))

    def draw(figure: Any) -> None:
        axes = figure.subplots(2, 2)
        _draw_progress(axes[0, 0], run)
        _draw_matrices(axes[0, 1], run)
        hidden = run.experiment.matrices_of(run.best_params, run.experiment.hidden)
        for i, (name, W) in enumerate(list(hidden.items())[:6]):
            if W.shape[0] == W.shape[1]:
                values = np.linalg.eigvals(W.astype(float))
                axes[1, 0].plot(values.real, values.imag, linestyle="none", markersize=2,
                                marker="ox+s^v"[i], color="black", label=name)
        circle = np.exp(1j * np.linspace(0, 2 * np.pi, 200))
        axes[1, 0].plot(circle.real, circle.imag, color="grey", linewidth=.6)
        axes[1, 0].set_aspect("equal", adjustable="datalim")
        axes[1, 0].set_title("eigenvalues (grey: unit circle)")
        axes[1, 0].legend(fontsize=6)
        watched = [row for row in run.rows if "flow" in row.get("watch", {})]
        if len(watched) > 1:
            _draw_flow(figure, axes[1, 1], watched)
        elif flow is not None:
            axes[1, 1].semilogy(np.arange(len(flow)), np.maximum(flow, 1e-300), **style(0))
            axes[1, 1].set_title("||dL/dh_t||, loss of the last step")
            axes[1, 1].set_xlabel("time step t")
        else:
            axes[1, 1].set_axis_off()

    config = run.config
    return Explanation(
        f"{config.task}, {config.net}, {config.method}, transition {config.transition}",
        f"the run in {folder}, after {run.iteration} iterations",
        f"{run.task.criterion}. Best evaluation: "
        + (f"{run.task.metric} {run.best[run.task.metric]:.6g} at iteration "
           f"{run.best['iteration']}" if run.best else "none yet") + ".", tables, draw, 5)


def _draw_flow(figure: Any, ax: Any, rows: list[dict[str, Any]]) -> None:
    """||dL/dh_t|| over time steps and iterations, as Vorontsov et al. draw it (Figure 2)."""
    norms = np.array([row["watch"]["flow"] for row in rows]).T
    logs = np.log10(np.maximum(norms, 1e-30) / np.maximum(norms[-1], 1e-30))
    image = ax.pcolormesh([row["iteration"] for row in rows], rows[0]["watch"]["flow_at"], logs,
                          cmap="Greys", shading="nearest", rasterized=True)
    ax.set_title("log10 of ||dL/dh_t|| / ||dL/dh_T||, loss of the last step")
    ax.set_xlabel("iteration")
    ax.set_ylabel("time step t")
    figure.colorbar(image, ax=ax)


def _draw_progress(ax: Any, run: Loaded) -> None:
    x = finite([row["iteration"] for row in run.rows])
    ax.plot(x, finite([row.get(run.task.metric) for row in run.rows]), **style(0, len(x)))
    ax.set_title(run.task.metric.replace("_", " "))
    ax.set_xlabel("iteration")


def _draw_matrices(ax: Any, run: Loaded) -> None:
    """Spectral radius and defect over training; singular values too if the run was watched."""
    x = finite([row["iteration"] for row in run.rows])
    watched = [row.get("watch", {}).get("matrices", {}).get("Whh") for row in run.rows]
    if any(watched):
        low, mean, high = (finite([one and one[key] for one in watched])
                           for key in ("s_min", "s_mean", "s_max"))
        ax.fill_between(x, low, high, color="lightgrey", label="smallest to largest")
        ax.plot(x, mean, label="mean", **style(0, len(x)))
        ax.set_title("singular values of Whh")
    else:
        ax.plot(x, finite([row.get("spectral_radius") for row in run.rows]),
                label="largest spectral radius", **style(0, len(x)))
        ax.set_title("hidden matrices")
    ax.legend(fontsize=6)
    ax.set_xlabel("iteration")


def compare(folders: Sequence[Path | str]) -> Explanation:
    """Runs side by side: where their settings differ, their best results, their curves overlaid."""
    runs = [load(folder) for folder in folders]
    metrics = {run.task.metric for run in runs}
    if len(metrics) > 1:
        raise ValueError(f"compare: the runs are judged by {' and '.join(sorted(metrics))}; name "
                         "runs of one task")
    metric = metrics.pop()
    settings = [asdict(run.config) for run in runs]
    differ = [name for name in settings[0] if len({str(one[name]) for one in settings}) > 1]
    names = [run.folder.name for run in runs]
    rows = [[name, *(one[key] for key in differ), run.iteration,
             run.best.get("iteration"), run.best.get(metric)]
            for name, one, run in zip(names, settings, runs)]

    def draw(figure: Any) -> None:
        panels = [(metric, "linear"), ("loss", "log"), ("gradient_norm", "log"),
                  ("spectral_radius", "linear")]
        for ax, (column, scale) in zip(figure.subplots(2, 2).ravel(), panels):
            for i, run in enumerate(runs):
                x = finite([row["iteration"] for row in run.rows])
                ax.plot(x, finite([row.get(column) for row in run.rows]), label=names[i],
                        **style(i, len(x)))
            ax.set_yscale(scale)
            ax.set_title(column.replace("_", " "))
            ax.set_xlabel("iteration")
            if column == metric:
                ax.legend(fontsize=6)

    return Explanation(
        f"{len(runs)} runs of {runs[0].config.task}", ", ".join(map(str, folders)),
        "The settings in which they differ, and the best evaluation of each.",
        [Table("Runs", ["run", *differ, "iterations", "best at", f"best {metric}"], rows)], draw,
        4.6)
