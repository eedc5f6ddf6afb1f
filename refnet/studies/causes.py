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
from refnet.studies.declared import declared
from refnet.studies.grid import ended_of
from refnet.studies.jobs import Job
from refnet.studies.study import Measurement, View, spread
from refnet.training.experiment import build
from refnet.training.protocols import preset

__all__ = ["STUDY"]


_GRID = declared("causes")
CODE = "manchev-spratling/code"

HEAD = """(text) and (code) are the protocols of that name; what the first has where a text says
nothing is told under Protocols. N(0, s) has the standard deviation s. An answer to adding is an
error by the text's criterion if it is off by .0001 or more, by the code's if the squared error of
half the sum is above .04, and by that of Hochreiter & Schmidhuber (1997), HS97, if it is off by
more than .04. The text's and HS97's are in the scale of the run's own target, half the sum but for
"on the sum", as is its mean squared error. On the Penn Treebank the last two steps of a line, whose
answer is always 0, are not counted; in Table 3 they are.
"""


def _part(question: str, view: View) -> str:
    """The table of one question's runs, with the columns in which they have something."""
    cells = [cell for cell in _GRID.chosen(view.quick) if cell.label.startswith(f"{question}:")]
    if not cells:
        return ""
    short = [replace(cell, label=cell.label.removeprefix(f"{question}: ")) for cell in cells]
    part = replace(_GRID, cells=short, notes=())
    rows = [row for runs in part.rows(view).values() for row in runs]
    first, *others = _GRID.figures
    known = [figure for figure in others if any(figure[1](row) is not None for row in rows)]
    text = replace(part, figures=[first, *known]).table(view)
    return f"\n#### {question}\n\n{text}"


STARTS: dict[str, Record] = {
    "as in the code": {},
    "W_hh alone made orthogonal": {"orthogonal": "hidden"},
    "W_xh from N(0, .01)": {"orthogonal": "hidden", "input_weights": "gaussian:sd=0.01"},
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


GRADIENTS = Measurement(
    fading,
    {
        f"gradient in {task}, {start}": {"task": task, "length": length, "start": start}
        for task, length in FADING.items()
        for start in STARTS
    },
)


def _jobs(view: View) -> list[Job]:
    return GRADIENTS.jobs(view) + _GRID.jobs(view)


def _table(view: View) -> str:
    rows = _GRID.rows(view)
    ended = {label: ended_of(runs) for label, runs in rows.items()}
    said = [] if view.quick else stated(_GRID.notes, ended)
    ratios = [
        [*case.values(), spread([row["ratio"] for row in rows], ".2g")]
        for case, rows in zip(GRADIENTS.cases.values(), GRADIENTS.rows(view).values())
    ]
    questions = dict.fromkeys(cell.label.partition(":")[0] for cell in _GRID.cells)
    return (
        HEAD
        + "".join(_part(question, view) for question in questions)
        + "\n#### What these runs show\n\n" * bool(said)
        + "".join(f"- {text}\n" for text in said)
        + "\n#### How much of the last step's gradient arrives at the first step, "
        "before training\n\n"
        + table(["problem", "T", "start of SRNN+OINIT", "norm there over norm at the end"], ratios)
    )


# the cells name their protocols themselves
STUDY = replace(_GRID.study(), jobs=_jobs, table=_table, switched=None)
