"""Trained runs analysed and compared: ``refnet analyse`` and ``refnet compare``."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np

from refnet.analysis.flow import gradient_norms, lyapunov_exponents, step_bounds
from refnet.analysis.memory import fisher_memory, peak_order
from refnet.analysis.spectra import henrici, schur_form, singular_values, spectral_radius
from refnet.batch import Array, Batch, last_steps
from refnet.cells import CELLS
from refnet.common.names import short
from refnet.explain.base import LINES, Explanation, Table, draw_schur, label_of, positive, style
from refnet.matrices.orthogonality import defect
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet
from refnet.runs.read import Record
from refnet.runs.rows import Canvas, finite
from refnet.tasks.base import one_hot
from refnet.training.fit import Loaded
from refnet.training.load import load_run

__all__ = ["analyse", "compare"]

SEQUENCES, DELAYS, HORIZON, COLUMNS = 16, 20, 40, 3
WATCHED = (
    ("gradients", "", "gradient_norm", "gradient norm"),
    ("matrices", "spectral_radius", "spectral_radius", "spectral radius"),
    ("matrices", "defect", "defect", "defect ||WW' - I||^2 (tall: W'W)"),
)
"""What a watched run has of each matrix: part, key, the column of unwatched runs, title."""

Panel = Callable[[Canvas], None]

MOST = 6
"""Matrices in one panel."""


def _matrices(run: Loaded) -> Table:
    rows = []
    for name, W in run.experiment.matrices_of(run.best_params, run.experiment.matrices).items():
        s, square = singular_values(W), W.shape[0] == W.shape[1]
        rows.append(
            [
                name,
                f"{W.shape[0]} x {W.shape[1]}",
                s.smallest,
                s.mean,
                s.largest,
                float(defect(W.astype(float))),
                spectral_radius(W) if square else None,
                henrici(W) if square else None,
            ]
        )
    return Table(
        "The matrices at the best evaluation",
        [
            "matrix",
            "shape",
            "smallest s",
            "mean s",
            "largest s",
            "defect",
            "spectral radius",
            "Henrici's departure",
        ],
        rows,
    )


def _first(run: Loaded) -> Batch:
    return run.task.batch(run.iteration, SEQUENCES, run.config.seed)


def analyse(folder: Path | str, trust: bool = False) -> Explanation:
    """The matrices, gradient flow, exponents, memory and peak order of a trained run; ``trust`` as
    for ``load``."""
    run = load_run(Path(folder), trust)
    tables, net = [_matrices(run)], run.net
    watched = any("watch" in row for row in run.rows)
    panels: list[Panel] = [
        partial(_draw_progress, run),
        *([partial(_draw_singular, run)] if watched else []),
        *(partial(_draw_watched, run, *number) for number in WATCHED),
        partial(_draw_values, run),
    ]
    if isinstance(net, RecurrentNet):
        batch = _first(run)
        if not getattr(net, "bidirectional", False):
            _add_flow(run, net, batch, tables, panels)
        _add_memory(run, net, batch, tables, panels)

    def draw(figure: Canvas) -> None:
        axes = figure.subplots(-(-len(panels) // COLUMNS), COLUMNS).ravel()
        for ax, panel in zip(axes, panels):
            panel(ax)
        for ax in axes[len(panels) :]:
            ax.set_axis_off()

    config = run.config
    return Explanation(
        f"{short(config.task)}, {config.net}, {config.method}, transition "
        f"{short(config.transition)}",
        f"the run in {folder}, after {run.iteration} iterations",
        f"Success criterion: {run.task.criterion}. Best evaluation: "
        + (
            f"{run.task.metric} {run.best[run.task.metric]:.6g} at iteration "
            f"{run.best['iteration']}"
            if run.best
            else "none yet"
        )
        + ".",
        tables,
        draw,
        2.1 * -(-len(panels) // COLUMNS),
    )


def _add_flow(
    run: Loaded, net: RecurrentNet, batch: Batch, tables: list[Table], panels: list[Panel]
) -> None:
    flow = gradient_norms(net, run.best_params, batch)
    T = len(flow) - 1
    end = T if batch.mask is None else int(last_steps(batch.mask)[0])  # of the first sequence
    x = batch.x[max(end - 100, 0) : max(end, 1), :1]
    if x.ndim == 2:  # symbols
        x = one_hot(x, net.inputs, run.config.dtype)
    exponents = lyapunov_exponents(net, run.best_params, x)[0]
    tables.append(
        Table(
            f"Gradient flow on {SEQUENCES} training sequences, T = {T}: ||dL/dh_t|| of the last "
            "step's loss",
            [
                "t = 0",
                f"t = {T // 2}",
                f"t = {T}",
                "largest exponent, nats a step",
                "median exponent",
            ],
            [[*map(float, flow[[0, T // 2, T]]), exponents[0], np.median(exponents)]],
        )
    )
    bound = None
    if net.cell == "rnn" and not isinstance(net, StackedNet) and batch.mask is None:
        longer = np.concatenate([batch.x, batch.x[-1:]])  # the last factor is that of step T
        eta = step_bounds(net, run.best_params, longer).bound.max(axis=1)
        with np.errstate(over="ignore"):
            bound = flow[-1] * np.append(np.cumprod(eta[::-1])[::-1], 1)
    panels.append(partial(_draw_norms, flow, bound))
    watched = [row for row in run.rows if "flow" in row.get("watch", {})]
    if len(watched) > 1:
        panels.append(partial(_draw_flow, watched))


def _add_memory(
    run: Loaded, net: RecurrentNet, batch: Batch, tables: list[Table], panels: list[Panel]
) -> None:
    """Of the recurrent matrix that makes the candidate state, in the lowest layer, with the
    gain."""
    p, tape = net.matrices(run.best_params)[0], net.forward(run.best_params, batch.x)[1].cell
    layer = net
    if isinstance(net, StackedNet):
        p, tape, layer = net.of(p, "_l0"), tape["_l0"], net.cells[0]["_l0"]
    p = layer.layer.scaled(p)
    gate, H = net.gates.index(CELLS[net.cell].CANDIDATE), net.hidden
    slot = "Whh" if len(net.gates) == 1 else f"Whh_{net.gates[gate]}"
    W, v = p[slot].astype(float), p["Wxh"][gate * H : (gate + 1) * H, 0].astype(float)
    v = v / (np.linalg.norm(v) or 1)
    values, strict, vectors = schur_form(W)
    memory = fisher_memory(W, v, DELAYS, horizon=HORIZON)
    normal = fisher_memory(np.diag(abs(values)), abs(vectors.conj().T @ v), DELAYS, horizon=HORIZON)
    tables.append(
        Table(
            f"Memory of {slot} as a linear net: Fisher information J(k) about the input's first "
            f"channel k steps ago, in the noise of {HORIZON} steps; and that of a normal matrix "
            "with the same eigenvalues",
            ["", "J(0)", "J(5)", "J(19)", "sum of J"],
            [
                [name, *(float(J[k]) for k in (0, 5, 19)), float(J.sum())]
                for name, J in ((slot, memory), ("normal", normal))
            ],
        )
    )
    panels += [
        partial(_draw_memory, slot, memory, normal),
        partial(_draw_schur, slot, np.diag(values) + strict),
    ]
    h = getattr(tape, "h", None)  # a checkpointed net keeps no states
    if H > 1 and h is not None:
        profile, _ = peak_order(h[1:].astype(float), W, 20)
        middle = len(profile) // 2
        tables.append(
            Table(
                "The mean weight by the order in which the units' activity peaks",
                ["to the next unit", "to the one before"],
                [[float(profile[middle + 1]), float(profile[middle - 1])]],
            )
        )
        panels.append(partial(_draw_profile, profile))


def _draw_norms(flow: Array, bound: Array | None, ax: Canvas) -> None:
    t = np.arange(len(flow))
    ax.plot(t, positive(flow), label="measured", **style(0))
    if bound is not None:
        shown = np.isfinite(bound) & (bound > 0) & (bound < 1e30)
        ax.plot(t[shown], bound[shown], label="bound by eq. 5", **style(1))
        _legend(ax, 2)
    _scaled(ax, flow if bound is None else np.concatenate([flow, bound[bound < 1e30]]))
    ax.set(title="||dL/dh_t||, last step's loss", xlabel="time step t")


def _draw_flow(rows: list[Record], ax: Canvas) -> None:
    """||dL/dh_t|| over time steps and iterations, as Vorontsov et al. draw it (Figure 2)."""
    norms = np.array([row["watch"]["flow"] for row in rows]).T
    logs = np.log10(np.maximum(norms, 1e-30) / np.maximum(norms[-1], 1e-30))
    image = ax.pcolormesh(
        [row["iteration"] for row in rows],
        rows[0]["watch"]["flow_at"],
        logs,
        cmap="Greys",
        shading="nearest",
        rasterized=True,
    )
    ax.set(title="log10 ||dL/dh_t|| / ||dL/dh_T||", xlabel="iteration", ylabel="time step t")
    ax.figure.colorbar(image, ax=ax)


def _draw_memory(slot: str, memory: Array, normal: Array, ax: Canvas) -> None:
    for i, (name, J) in enumerate(((slot, memory), ("normal, same eigenvalues", normal))):
        ax.plot(np.arange(len(J)), positive(J, 1e-12), label=name, **style(i, len(J)))
    _scaled(ax, np.append(memory, normal))
    ax.set(title="Fisher information J(k)", xlabel="steps since the input, k")
    _legend(ax, 2)


def _draw_schur(slot: str, T: Array, ax: Canvas) -> None:
    draw_schur(ax, T)
    ax.set_title(f"log10 |Schur form|, {slot}")


def _draw_profile(profile: Array, ax: Canvas) -> None:
    widest = len(profile) // 2
    ax.axvline(0, color="lightgrey", linewidth=0.8)
    ax.plot(np.arange(-widest, widest + 1), profile, **style(0, len(profile)))
    ax.set(title="weight by peak order", xlabel="places from feeding unit")


def _draw_progress(run: Loaded, ax: Canvas) -> None:
    x = finite([row["iteration"] for row in run.rows])
    ax.plot(x, finite([row.get(run.task.metric) for row in run.rows]), **style(0, len(x)))
    ax.set(title=run.task.metric.replace("_", " "), xlabel="iteration")


def _draw_singular(run: Loaded, ax: Canvas) -> None:
    """Singular values of the hidden matrices of a watched run."""
    x = finite([row["iteration"] for row in run.rows])
    watched = [row.get("watch", {}).get("matrices", {}) for row in run.rows]
    hidden = list(run.experiment.matrices_of(run.best_params, run.experiment.hidden))
    low, mean, high = (
        finite([pick([row[name][key] for name in hidden]) if row else None for row in watched])
        for key, pick in (("s_min", min), ("s_mean", np.mean), ("s_max", max))
    )
    ax.fill_between(x, low, high, color="lightgrey", label="smallest to largest")
    ax.plot(x, mean, label="mean", **style(0, len(x)))
    ax.set(title="singular values, hidden", xlabel="iteration")
    _legend(ax, 2)


def _draw_watched(run: Loaded, part: str, key: str, column: str, title: str, ax: Canvas) -> None:
    """A number of each matrix over training if the run was watched; else the largest."""
    x = finite([row["iteration"] for row in run.rows])
    watched = [row.get("watch", {}).get(part, {}) for row in run.rows]
    lines = {}
    for name in run.experiment.matrices:
        values = [row.get(name) for row in watched]
        if key:
            values = [(value or {}).get(key) for value in values]
        if any(value is not None for value in values):
            lines[name] = finite(values)
    if not lines:
        lines = {"": finite([row.get(column) for row in run.rows])}
    for i, (name, line) in enumerate(list(lines.items())[:MOST]):
        ax.plot(x, positive(line), label=name, **style(i, len(x)))
    _scaled(ax, np.concatenate(list(lines.values())))
    ax.set(title=_of(title, len(lines)), xlabel="iteration")
    _legend(ax, len(lines))


def _of(title: str, count: int) -> str:
    """The title of a panel in which MOST of the matrices are drawn."""
    return title if count <= MOST else f"{title} ({MOST} of {count})"


def _legend(ax: Canvas, count: int) -> None:
    """Below the panel, whose curves it would cover."""
    if count > 1:
        ax.legend(
            fontsize=5.5, frameon=False, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.28)
        )


def _scaled(ax: Canvas, values: Array) -> None:
    """A logarithmic axis for positive values that span more than a factor of 30."""
    shown = values[np.isfinite(values) & (values > 0)]
    if shown.size and shown.max() > 30 * shown.min():
        ax.set_yscale("log")
    else:
        ax.ticklabel_format(axis="y", useOffset=False, scilimits=(-3, 4))


def _draw_values(run: Loaded, ax: Canvas) -> None:
    matrices = run.experiment.matrices_of(run.best_params, run.experiment.hidden)
    hidden = {name: W for name, W in matrices.items() if W.shape[0] == W.shape[1]}
    for i, (name, W) in enumerate(list(hidden.items())[:MOST]):
        values = np.linalg.eigvals(W.astype(float))
        ax.plot(
            values.real,
            values.imag,
            linestyle="none",
            markersize=3,
            mfc="none",
            marker="ox+s^D"[i],
            markeredgewidth=0.7,
            color=LINES[i][0],
            label=name,
        )
    circle = np.exp(1j * np.linspace(0, 2 * np.pi, 200))
    ax.plot(circle.real, circle.imag, color="grey", linewidth=0.6)
    ax.set_aspect("equal", adjustable="datalim")
    ax.set(title=_of("eigenvalues", len(hidden)), xlabel="real part", ylabel="imaginary part")
    _legend(ax, len(hidden))


def compare(folders: Sequence[Path | str], trust: bool = False) -> Explanation:
    """Runs side by side: where their settings differ, their best results, their curves overlaid;
    ``trust`` as for ``load``."""
    paths = [Path(folder) for folder in folders]
    runs = [load_run(path, trust) for path in paths]
    tasks = {run.task.name for run in runs}
    if len(tasks) > 1:
        raise ValueError(f"the runs are of {' and '.join(sorted(tasks))}; name runs of one task")
    metric = runs[0].task.metric
    settings = [asdict(run.config) for run in runs]
    differ = [name for name in settings[0] if len({str(run[name]) for run in settings}) > 1]
    names = [path.name or path.resolve().name for path in paths]
    if len({*names}) < len(names):
        names = [str(path) for path in paths]
    rows = [
        [name, *(getattr(run.config, key) for key in differ), run.iteration]
        + [run.best.get("iteration"), run.best.get(metric)]
        for name, run in zip(names, runs)
    ]

    def draw(figure: Canvas) -> None:
        if len(runs) > len(LINES):
            raise ValueError(
                f"{len(runs)} runs are more than a figure tells apart; name at most {len(LINES)}"
            )
        panels = [
            (metric, "linear"),
            ("loss", "log"),
            ("gradient_norm", "log"),
            ("spectral_radius", "linear"),
        ]
        for ax, (column, scale) in zip(figure.subplots(2, 2).ravel(), panels):
            for i, run in enumerate(runs):
                x = finite([row["iteration"] for row in run.rows])
                ax.plot(
                    x,
                    finite([row.get(column) for row in run.rows]),
                    label=label_of(names[i]),
                    **style(i, len(x)),
                )
            ax.set(yscale=scale, title=column.replace("_", " "), xlabel="iteration")
            if column == metric:
                ax.legend(fontsize=6)

    return Explanation(
        f"{len(runs)} run{'s' * (len(runs) > 1)} of {runs[0].task.name}",
        ", ".join(map(str, folders)),
        "The settings in which they differ, and the best evaluation of each.",
        [
            Table(
                "Runs",
                ["run", *differ, "iterations done", "best at iteration", f"best {metric}"],
                rows,
            )
        ],
        draw,
        4.6,
    )
