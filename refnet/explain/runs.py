"""Trained runs analysed and compared: ``refnet analyse`` and ``refnet compare``."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np

from refnet.analysis.flow import gradient_norms, lyapunov_exponents, step_bounds
from refnet.analysis.memory import fisher_memory, peak_order
from refnet.analysis.spectra import henrici, schur_form, singular_values, spectral_radius
from refnet.batch import Array, Batch, Params, last_steps
from refnet.cells import CELLS
from refnet.common.names import short
from refnet.explain.base import Explanation, Table, draw_schur
from refnet.explain.trained import lengths, panel, weights
from refnet.matrices.orthogonality import defect
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet
from refnet.runs.plots import words
from refnet.runs.read import Record
from refnet.runs.rows import Canvas, finite
from refnet.runs.style import THEORY, Draw, label_of, legend_below, line, panels, plot, signed
from refnet.tasks.base import one_hot
from refnet.training.fit import Loaded
from refnet.training.load import load_run

SEQUENCES, DELAYS, HORIZON = 16, 20, 40
WATCHED = (
    ("gradients", "", "gradient_norm", "gradient norm"),
    ("matrices", "spectral_radius", "spectral_radius", "spectral radius"),
    ("matrices", "defect", "defect", r"defect $\|WW^\top - I\|^2$"),
)
"""What a watched run has of each matrix: part, key, the column of unwatched runs, title."""

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


def analyse(folder: Path | str, trust: bool = False) -> Explanation:
    """The matrices, gradient flow, exponents, memory and peak order of a trained run, its weights
    before and after training, and its score at longer lengths; ``trust`` as for ``load``."""
    run = load_run(Path(folder), trust)
    parts: list[Table | Draw] = [_matrices(run), *_progress(run), *weights(run)]
    if isinstance(run.net, RecurrentNet):
        batch = run.task.batch(run.iteration, SEQUENCES, run.config.seed)
        parts += lengths(run)
        if not getattr(run.net, "bidirectional", False):
            parts += _flow(run, run.net, batch)
        parts += _memory(run, run.net, batch)
    draws = [part for part in parts if not isinstance(part, Table)]
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
        [part for part in parts if isinstance(part, Table)],
        partial(panels, draws=draws),
        2.3 * -(-len(draws) // 3),
    )


def _progress(run: Loaded) -> Iterator[Draw]:
    """The metric, singular values, and a number of each matrix over training if the run was
    watched, else the largest; and the eigenvalues at the best evaluation."""
    x = finite([row["iteration"] for row in run.rows])
    y = finite([row.get(run.task.metric) for row in run.rows])
    yield panel({"": (x, y)}, title=words(run.task.metric), xlabel="iteration")
    watched = [row.get("watch", {}) for row in run.rows]
    hidden = run.experiment.matrices_of(run.best_params, run.experiment.hidden)
    if any(watched):
        yield partial(_draw_singular, x, [row.get("matrices", {}) for row in watched], [*hidden])
    for part, key, column, title in WATCHED:
        curves = {}
        for name in run.experiment.matrices:
            values = [row.get(part, {}).get(name) for row in watched]
            if key:
                values = [(value or {}).get(key) for value in values]
            if any(value is not None for value in values):
                curves[name] = x, finite(values)
        shown = dict([*curves.items()][:MOST])
        if len(curves) < 2:
            shown = {"": [*curves.values(), (x, finite([row.get(column) for row in run.rows]))][0]}
        yield panel(shown, "auto", title=_of(title, len(curves)), xlabel="iteration")
    yield partial(_draw_values, {name: W for name, W in hidden.items() if len(W) == len(W.T)})


def _flow(run: Loaded, net: RecurrentNet, batch: Batch) -> Iterator[Table | Draw]:
    flow = gradient_norms(net, run.best_params, batch)
    T = len(flow) - 1
    end = T if batch.mask is None else int(last_steps(batch.mask)[0])  # of the first sequence
    x = batch.x[max(end - 100, 0) : max(end, 1), :1]
    if x.ndim == 2:  # symbols
        x = one_hot(x, net.inputs, run.config.dtype)
    exponents = lyapunov_exponents(net, run.best_params, x)[0]
    yield Table(
        f"Gradient flow on {SEQUENCES} training sequences, T = {T}: ||dL/dh_t|| of the last "
        "step's loss",
        ["t = 0", f"t = {T // 2}", f"t = {T}", "largest exponent, nats a step", "median exponent"],
        [[*map(float, flow[[0, T // 2, T]]), exponents[0], np.median(exponents)]],
    )
    curves = {"measured": (range(T + 1), flow)}
    if net.cell == "rnn" and not isinstance(net, StackedNet) and batch.mask is None:
        longer = np.concatenate([batch.x, batch.x[-1:]])  # the last factor is that of step T
        eta = step_bounds(net, run.best_params, longer).bound.max(axis=1)
        with np.errstate(over="ignore"):
            bound = flow[-1] * np.append(np.cumprod(eta[::-1])[::-1], 1)
        curves["bound by eq. 5"] = range(T + 1), np.where(bound < 1e30, bound, np.nan)
    title = r"$\|\partial L/\partial h_t\|$, last step's loss"
    yield panel(curves, "auto", title=title, xlabel="time step $t$")
    watched = [row for row in run.rows if "flow" in row.get("watch", {})]
    if len(watched) > 1:
        yield partial(_draw_flow, watched)


def _memory(run: Loaded, net: RecurrentNet, batch: Batch) -> Iterator[Table | Draw]:
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
    yield Table(
        f"Memory of {slot} as a linear net: Fisher information J(k) about the input's first "
        f"channel k steps ago, in the noise of {HORIZON} steps; and that of a normal matrix "
        "with the same eigenvalues",
        ["", "J(0)", "J(5)", "J(19)", "sum of J"],
        [
            [name, *(float(J[k]) for k in (0, 5, 19)), float(J.sum())]
            for name, J in ((slot, memory), ("normal", normal))
        ],
    )
    k = range(DELAYS)
    curves = {slot: (k, memory), "normal, same eigenvalues": (k, normal)}
    label = "steps since the input, $k$"
    yield panel(curves, "auto", 1e-12, title="Fisher information $J(k)$", xlabel=label)
    yield partial(_draw_schur, slot, np.diag(values) + strict)
    h = getattr(tape, "h", None)  # a checkpointed net keeps no states
    if H > 1 and h is not None:
        profile, _ = peak_order(h[1:].astype(float), W, 20)
        middle = len(profile) // 2
        yield Table(
            "The mean weight by the order in which the units' activity peaks",
            ["to the next unit", "to the one before"],
            [[float(profile[middle + 1]), float(profile[middle - 1])]],
        )
        curves = {"": (range(-middle, middle + 1), profile)}
        yield panel(curves, title="weight by peak order", xlabel="places from feeding unit")


def _draw_flow(rows: list[Record], ax: Canvas) -> None:
    """||dL/dh_t|| over time steps and iterations, as Vorontsov et al. draw it (Figure 2)."""
    norms = np.array([row["watch"]["flow"] for row in rows]).T
    logs = np.log10(np.maximum(norms, 1e-30) / np.maximum(norms[-1], 1e-30))
    image = ax.pcolormesh(
        [row["iteration"] for row in rows],
        rows[0]["watch"]["flow_at"],
        logs,
        **signed(logs),
        shading="nearest",
        rasterized=True,
    )
    title = r"$\log_{10}\,\|\partial L/\partial h_t\| / \|\partial L/\partial h_T\|$"
    ax.set(title=title, xlabel="iteration", ylabel="time step $t$")
    ax.figure.colorbar(image, ax=ax)


def _draw_schur(slot: str, T: Array, ax: Canvas) -> None:
    image = draw_schur(ax, T)
    ax.figure.colorbar(image, ax=ax, shrink=0.85, label=r"$\log_{10}$ |entry|")
    ax.set(title=f"Schur form of {slot}", ylabel="to direction")


def _draw_singular(x: Array, watched: list[Record], hidden: list[str], ax: Canvas) -> None:
    low, mean, high = (
        finite([pick([row[name][key] for name in hidden]) if row else None for row in watched])
        for key, pick in (("s_min", min), ("s_mean", np.mean), ("s_max", max))
    )
    ax.fill_between(x, low, high, color="lightgrey", label="smallest to largest")
    plot(ax, {"mean": (x, mean)}, title="singular values, watched", xlabel="iteration")


def _of(title: str, count: int) -> str:
    """The title of a panel in which MOST of the matrices are drawn."""
    return title if count <= MOST else f"{title} ({MOST} of {count})"


def _draw_values(square: Params, ax: Canvas) -> None:
    for i, (name, W) in enumerate([*square.items()][:MOST]):
        values = np.linalg.eigvals(W.astype(float))
        points = {**line(i, 1), "linestyle": "none", "markerfacecolor": "none"}
        label = name if len(square) > 1 else None
        ax.plot(values.real, values.imag, label=label, **points)
    circle = np.exp(1j * np.linspace(0, 2 * np.pi, 200))
    ax.plot(circle.real, circle.imag, **THEORY)
    ax.set_aspect("equal", adjustable="datalim")
    ax.set(title=_of("eigenvalues", len(square)), xlabel="real part", ylabel="imaginary part")


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
        columns = [metric, "loss", "gradient_norm", "spectral_radius"]
        for ax, column in zip(figure.subplots(2, 2).ravel(), columns):
            curves = {
                label_of(name): [
                    finite([row.get(key) for row in run.rows]) for key in ("iteration", column)
                ]
                for name, run in zip(names, runs)
            }
            scale = "log" if column in ("loss", "gradient_norm") else "linear"
            plot(ax, curves, scale, title=words(column), xlabel="iteration")
        legend_below(figure)

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
