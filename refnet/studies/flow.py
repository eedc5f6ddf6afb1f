"""Figure 2 of Vorontsov et al.: how the gradient flows back through time while a net learns.

Checked by: tests/studies/test_figures.py.
"""

import numpy as np

from refnet.analysis.flow import gradient_norms
from refnet.batch import Array
from refnet.nets.recurrent import RecurrentNet
from refnet.runs.read import Record
from refnet.runs.rows import Canvas, table
from refnet.runs.style import grid, page
from refnet.studies.jobs import Job
from refnet.studies.study import Study, View, spread
from refnet.training.config import Config
from refnet.training.experiment import build
from refnet.training.protocols import preset
from refnet.training.steps import Run, step

__all__ = ["STUDY", "norms_in_training"]

MARGINS = ("0", "0.001", "0.01", "0.1", "1", "none")
UPDATES, EVERY, TIMES = 1000, 25, 56


def norms_in_training(config: Config, updates: int, every: int) -> tuple[Array, Array]:
    """``||dL/dh_t||`` of the last step's loss, (maps, T + 1), and the singular values of Whh,
    (maps, H), before training and after each ``every`` updates of it."""
    experiment = build(config)
    net = experiment.net
    assert isinstance(net, RecurrentNet)
    params, _ = experiment.start()
    run = Run(params, experiment.optimizer.init(params), params, {})
    norms, values = [], []
    for update in range(updates):
        batch = experiment.task.batch(update, config.batch, config.seed)
        if update % every == 0:
            norms.append(gradient_norms(net, run.params, batch))
            W = net.matrices(run.params)[0]["Whh"]
            values.append(np.linalg.svd(W.astype(float), compute_uv=False))
        run = step(experiment, run, batch)[0]
    return np.array(norms), np.array(values)


def flow(margin: str, seed: int, length: int, updates: int) -> Record:
    """The norms at some times, a list for every EVERY updates, and the last singular values."""
    config = preset(
        "copy",
        length=length,
        seed=seed,
        transition=f"svd:margin={margin}",
        protocol="vorontsov/text",
    )
    norms, values = norms_in_training(config, updates, EVERY)
    times = np.unique(np.linspace(0, norms.shape[1] - 1, TIMES).astype(int))
    return {
        "times": times.tolist(),
        "updates": list(range(0, updates, EVERY)),
        "norms": [[float(f"{norm:.4g}") for norm in line] for line in norms[:, times]],
        "s_min": float(values[-1].min()),
        "s_max": float(values[-1].max()),
    }


def _sizes(quick: bool) -> tuple[int, int]:
    """Sequence length, and updates."""
    return (30, 200) if quick else (200, UPDATES)


def _job(margin: str, seed: int, quick: bool) -> Job:
    length, updates = _sizes(quick)
    return Job(
        f"margin {margin}, seed {seed}",
        function="refnet.studies.flow:flow",
        arguments={"margin": margin, "seed": seed, "length": length, "updates": updates},
    )


def _jobs(view: View) -> list[Job]:
    return [_job(margin, seed, view.quick) for seed in range(view.seeds) for margin in MARGINS]


def _rows(view: View, margin: str) -> list[Record]:
    return view.rows(_job(margin, seed, view.quick) for seed in range(view.seeds))


def _table(view: View) -> str:
    lines, last = [], _sizes(view.quick)[1] - EVERY  # the last of the norms is taken after so many
    for margin in MARGINS:
        rows = _rows(view, margin)
        ratios = [norms[:, 0] / norms[:, -1] for norms in (np.array(row["norms"]) for row in rows)]
        lines.append(
            [
                margin,
                spread([float(ratio[0]) for ratio in ratios], ".3g"),
                spread([float(ratio.min()) for ratio in ratios], ".3g"),
                spread([float(ratio.max()) for ratio in ratios], ".3g"),
                spread([float(ratio[-1]) for ratio in ratios], ".3g"),
                spread([row["s_min"] for row in rows], ".4f"),
                spread([row["s_max"] for row in rows], ".4f"),
            ]
        )
    return table(
        [
            "margin",
            "norm at the first step over that at the last, before training",
            "the smallest in training",
            "the largest",
            f"after {last} updates",
            "smallest singular value then",
            "largest",
        ],
        lines,
    )


def _figure(view: View) -> Canvas:

    rows = {margin: row for margin in MARGINS for row in _rows(view, margin)[:1]}
    if not rows:
        return None
    length = next(iter(rows.values()))["settings"]["length"]
    title = (
        "Figure 2 of Vorontsov et al.: gradient of the last step's loss, copy task, "
        f"T = {length}; one seed"
    )
    with page(4, title) as figure:
        axes = grid(figure, len(rows))
        for place, (margin, row) in zip(axes, rows.items()):
            norms = np.array(row["norms"]).T
            # each update on its own: the paper's "normalized across the time dimension"
            image = place.imshow(
                norms / norms.max(axis=0),
                aspect="auto",
                origin="lower",
                cmap="viridis",
                vmin=0,
                vmax=1,
                interpolation="nearest",
                extent=(0, row["updates"][-1] + EVERY, 0, row["times"][-1]),
            )
            title = "no margin" if margin == "none" else f"margin {margin}"
            place.set(title=title, xlabel="update", ylabel="time step $t$")
            place.label_outer()
        label = r"$\|\partial L/\partial h_t\|$ over its largest value at that update"
        figure.colorbar(image, ax=axes, label=label)
    return figure


STUDY = Study(
    "figure-2-flow",
    "Figure 2 of Vorontsov et al.: gradient norms through time over "
    "1000 updates of the copy task, T = 200",
    _jobs,
    _table,
    _figure,
)
