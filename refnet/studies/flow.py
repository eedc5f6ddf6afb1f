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
from refnet.studies.study import Measurement, Study, View, spread
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
    run = Run.start(experiment)[0]
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


FLOWS = Measurement(
    flow,
    {
        f"margin {margin}": {"margin": margin, "length": 200, "updates": UPDATES}
        for margin in MARGINS
    },
    {"length": 30, "updates": 200},
)


def _table(view: View) -> str:
    lines = []
    for margin, rows in zip(MARGINS, FLOWS.rows(view).values()):
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
    # the last of the norms is taken after so many
    last = FLOWS.jobs(view)[0].arguments["updates"] - EVERY
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
    rows = {case: rows[0] for case, rows in FLOWS.rows(view).items() if rows}
    if not rows:
        return None
    length = next(iter(rows.values()))["settings"]["length"]
    title = (
        "Figure 2 of Vorontsov et al.: gradient of the last step's loss, copy task, "
        f"T = {length}; one seed"
    )
    with page(4, title) as figure:
        axes = grid(figure, len(rows))
        for place, (case, row) in zip(axes, rows.items()):
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
            title = "no margin" if case == "margin none" else case
            place.set(title=title, xlabel="update", ylabel="time step $t$")
            place.label_outer()
        label = r"$\|\partial L/\partial h_t\|$ over its largest value at that update"
        figure.colorbar(image, ax=axes, label=label)
    return figure


STUDY = Study(
    "figure-2-flow",
    "Figure 2 of Vorontsov et al.: gradient norms through time over "
    "1000 updates of the copy task, T = 200",
    FLOWS.jobs,
    _table,
    _figure,
)
