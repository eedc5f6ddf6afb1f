"""The study of where our numbers differ from the printed ones: the controlled runs, their tables,
and what they show.

Checked by: tests/studies/test_pages.py.
"""

from dataclasses import replace

from refnet.analysis.flow import gradient_norms
from refnet.nets.recurrent import RecurrentNet
from refnet.runs.read import Record
from refnet.runs.rows import table
from refnet.studies.comparison import stated
from refnet.studies.controlled import CELLS, CODE, CURVE, SMALL
from refnet.studies.findings import FINDINGS
from refnet.studies.grid import Figure, accuracy, ended_of, grid, panel_before, solved_at
from refnet.studies.jobs import Job
from refnet.studies.quantities import best
from refnet.studies.study import RowOf, rows_of, spread
from refnet.training.experiment import build
from refnet.training.protocols import preset

__all__ = ["STUDY"]


def _last_or_best(row: Record) -> Record:
    """The figures at which the task was solved; those with the least error of a run that did not
    solve it."""
    columns: Record = row["final"] if row["state"] == "solved" else row["best"]
    return columns


FIGURES: list[Figure] = [
    ("iterations until solved", solved_at, ".0f"),
    ("best accuracy, %", accuracy, ".2f"),
    *(
        (
            f"errors in 10,000, {label}",
            lambda row, name=f"errors_{name}": _last_or_best(row).get(name),
            ".0f",
        )
        for label, name in (("text", "text"), ("code", "code"), ("HS97", "hs97"))
    ),
    ("bits per character", best("test_bpc"), ".3f"),
]

_GRID = grid(
    "causes",
    "Where ours and the printed numbers differ: controlled runs",
    CELLS,
    FIGURES,
    CURVE,
    panel_before(":"),
)

HEAD = """(text) and (code) are the protocols of that name; what the first has where a text says
nothing is told under Protocols. N(0, s) has the standard deviation s. An answer to adding is an
error by the text's criterion if it is off by .0001 or more, by the code's if the squared error of
half the sum is above .04, and by that of Hochreiter & Schmidhuber (1997), HS97, if it is off by
more than .04. The text's and HS97's are in the scale of the run's own target, half the sum but for
"on the sum", as is its mean squared error. On the Penn Treebank the last two steps of a line, whose
answer is always 0, are not counted; in Table 3 they are.
"""


def _part(question: str, row_of: RowOf, seeds: int, quick: bool) -> str:
    """The table of one question's runs, with the columns in which they have something."""
    cells = [
        replace(cell, label=cell.label.removeprefix(f"{question}: "))
        for cell in CELLS
        if cell.label.startswith(f"{question}:") and (cell.quick or not quick)
    ]
    jobs = [cell.job(seed, quick, CURVE) for cell in cells for seed in range(seeds)]
    rows = rows_of(row_of, jobs)
    columns = [
        FIGURES[0],
        *(figure for figure in FIGURES[1:] if any(figure[1](row) is not None for row in rows)),
    ]
    if not cells:
        return ""
    return f"\n### {question}\n\n" + grid("causes", question, cells, columns).table(
        row_of, seeds, quick
    )


STARTS: dict[str, Record] = {
    "as in the code": {},
    "W_hh alone made orthogonal": {"orthogonal": "hidden"},
    "W_xh from N(0, .01)": SMALL,
}
FADING = {"temporal-order": 120, "adding": 100}


def fading(task: str, length: int, start: str, seed: int) -> dict[str, float]:
    """The norm of the last step's gradient at the first step over that at the last, before
    training: 1 if nothing is lost on its way."""
    e = build(
        preset(task, length=length, method="oinit", protocol=CODE, seed=seed, **STARTS[start])
    )
    assert isinstance(e.net, RecurrentNet)
    norms = gradient_norms(e.net, e.start()[0], e.task.batch(0, e.config.batch, seed))
    return {"ratio": float(norms[0] / norms[-1])}


def _gradients(seeds: int) -> list[Job]:
    return [
        Job(
            f"gradient in {task}, {start}, seed {seed}",
            function="refnet.studies.causes:fading",
            arguments={"task": task, "length": length, "start": start, "seed": seed},
        )
        for seed in range(seeds)
        for task, length in FADING.items()
        for start in STARTS
    ]


def _jobs(row_of: RowOf, seeds: int, quick: bool) -> list[Job]:
    return _gradients(seeds) + _GRID.jobs(row_of, seeds, quick)


def _table(row_of: RowOf, seeds: int, quick: bool) -> str:
    ended = {
        cell.label: ended_of(rows_of(row_of, [cell.job(n, quick, CURVE) for n in range(seeds)]))
        for cell in CELLS
    }
    said = [] if quick else stated(FINDINGS["causes"], ended)
    ratios: dict[tuple[str, int, str], list[float]] = {}
    for job in _gradients(seeds):
        start = job.arguments["task"], job.arguments["length"], job.arguments["start"]
        ratios.setdefault(start, []).extend(row["ratio"] for row in rows_of(row_of, [job]))
    questions = dict.fromkeys(cell.label.partition(":")[0] for cell in CELLS)
    return (
        HEAD
        + "".join(_part(question, row_of, seeds, quick) for question in questions)
        + "\n### What these runs show\n\n" * bool(said)
        + "".join(f"- {text}\n" for text in said)
        + "\n### How much of the last step's gradient arrives at the first step, "
        "before training\n\n"
        + table(
            ["problem", "T", "start of SRNN+OINIT", "norm there over norm at the end"],
            [[*start, spread(values, ".2g")] for start, values in ratios.items()],
        )
    )


# the cells name their protocols themselves
STUDY = replace(_GRID, jobs=_jobs, table=_table, switched=None)
