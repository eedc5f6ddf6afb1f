"""The pages' tables and figures, made from recorded results: ``python -m benchmarks.readme``.

A table stands between ``<!-- NAME -->`` and ``<!-- /NAME -->``; no number in it is typed.
tests/project/test_readme.py and, for benchmarks/README.md, tests/studies/test_pages.py
check that the pages are what this makes of the records.
"""

import re
import sys
from functools import partial
from pathlib import Path
from statistics import median
from textwrap import fill

from benchmarks import judged, measured, studies
from benchmarks.figures import draw
from benchmarks.judge.acid import page as acid
from benchmarks.real import real_data
from benchmarks.records import Row, named_tables
from refnet.runs.rows import table
from refnet.studies import examples
from refnet.studies.comparison import stated
from refnet.studies.declared import FINDINGS
from refnet.studies.study import Study, View

ROOT = Path(__file__).parent.parent
PAGES = [
    *(ROOT / page for page in ("README.md", "benchmarks/JUDGE.md", "refnet/training/README.md")),
    ROOT / "benchmarks" / "SPEED.md",
    ROOT / "benchmarks" / "ACID.md",
    ROOT / "refnet" / "training" / "DATA.md",
]
"""Those with tables; studies.PAGE is made as a whole."""


def minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def command(settings: Row) -> str:
    """The command of a cell's settings."""
    flags = [
        f"--{name.replace('_', '-')} {value}" for name, value in settings.items() if name != "task"
    ]
    return " ".join(["refnet train", settings["task"], *flags])


def ended(study: Study, name: str) -> list[Row]:
    """The recorded runs of a study whose name is that up to the seed."""
    row_of = studies.recorded(study)
    return [
        row
        for job in study.jobs(View(row_of, studies.seeds(study)))
        if job.name.rpartition(", ")[0] == name and (row := row_of(job)) is not None
    ]


def solved(runs: list[Row]) -> list[str]:
    """How many of the runs solved their task, and in how many iterations."""
    taken = sorted(run["iterations"] for run in runs if run["state"] == "solved")
    return [
        f"{len(taken)} of {len(runs)}",
        "-"
        if not taken
        else f"{median(taken):.0f}" + (f" ({taken[0]} to {taken[-1]})" if len(taken) > 1 else ""),
    ]


SOLVED = ["seeds solved", "iterations until solved, median (range)"]


def temporal_order() -> str:
    """How the methods do on temporal order, over the recorded seeds."""
    rows = []
    for method, cell in examples.METHODS.items():
        runs = ended(examples.STUDY, cell.label)
        radii = sorted(run["final"]["spectral_radius"] for run in runs)
        rows.append(
            [
                method,
                *solved(runs),
                f"{min(run['best']['accuracy'] for run in runs):.2%}",
                f"{radii[0]:.3f} to {radii[-1]:.3f}",
                minutes(median(run["seconds"] for run in runs)),
            ]
        )
    commands = "\n".join(command(cell.settings) for cell in examples.METHODS.values())
    return (
        table(
            [
                "method",
                *SOLVED,
                "lowest best test accuracy",
                "spectral radius at the end",
                "median wall time",
            ],
            rows,
        )
        + f"\n```sh\n{commands}\n```\n"
    )


def methods() -> str:
    """What these runs show beyond their spread."""
    rows = {cell.label: ended(examples.STUDY, cell.label) for cell in examples.METHODS.values()}
    claimed = [finding for finding in FINDINGS["examples"] if finding.claims]
    return "".join(f"{fill(text, 100)}\n" for text in stated(claimed, rows))


def copy() -> str:
    """The runs of the study figure-1 that are recorded, over the seeds."""
    study, rows = studies.STUDIES["figure-1"], []
    for job in study.jobs(View()):
        name = job.name.rpartition(", ")[0]
        if runs := ended(study, name):
            finals = [run["final"] for run in runs]
            rows.append(
                [
                    *(part.split()[-1] for part in name.split(", ")),
                    *solved(runs),
                    f"{min(final['accuracy'] for final in finals):.2%}",
                    f"{min(final['s_min'] for final in finals):.3f} to "
                    f"{max(final['s_max'] for final in finals):.3f}",
                    minutes(median(run["seconds"] for run in runs)),
                ]
            )
    return table(
        [
            "T",
            "margin",
            *SOLVED,
            "lowest accuracy on the ten symbols",
            "singular values",
            "median wall time",
        ],
        rows,
    ) + (
        "\n```sh\nrefnet study figure-1\nrefnet train copy --length 200 --transition "
        "svd:margin=0.1\n```\n"
    )


def fared(runs: list[Row]) -> str:
    """In how many iterations the runs of a cell solve their task, or how near those come that do
    not."""
    if not runs:
        return "not run"
    count, taken = solved(runs)
    nearest = [
        f"{run['best']['accuracy']:.1%}"
        if "accuracy" in run["best"]
        else f"a square of {run['best']['mse']:.1g}"
        for run in runs
        if run["state"] != "solved"
    ]
    parts = [taken] * (taken != "-") + ["at best " + " and ".join(dict.fromkeys(nearest))] * bool(
        nearest
    )
    return f"{count}: " + "; ".join(parts)


def crossed(name: str) -> str:
    """A study whose cells are called "PROBLEM: CASE", a line a case."""
    study = studies.STUDIES[name]
    lines: dict[str, dict[str, str]] = {}
    for job in study.jobs(View()):
        cell = job.name.rpartition(", ")[0]
        problem, case = cell.split(": ")
        lines.setdefault(case, {})[problem] = fared(ended(study, cell))
    problems = dict.fromkeys(problem for line in lines.values() for problem in line)
    return table(
        ["", *problems],
        [[case, *(line.get(name, "-") for name in problems)] for case, line in lines.items()],
    )


def adding() -> str:
    runs = ended(examples.STUDY, examples.LSTM.label)
    return table(
        [*SOLVED, "mean squared error", "baseline", "wall time"],
        [
            [
                *solved(runs),
                median(run["best"]["mse"] for run in runs),
                1 / 6,
                minutes(median(run["seconds"] for run in runs)),
            ]
        ],
    ) + (f"\n```sh\n{command(examples.LSTM.settings)}\n```\n")


TABLES = {
    **named_tables(temporal_order, methods, copy, adding),
    **{name: partial(crossed, name) for name in ("best", "best-search")},
    "real-data": real_data,
    **judged.TABLES,
    **measured.TABLES,
    **acid.TABLES,
}


def generate(text: str) -> str:
    """A page with every table made again; raises KeyError for a marker without a table."""

    def filled(match: re.Match[str]) -> str:
        name = match.group(1)
        return f"<!-- {name} -->\n{TABLES[name]()}<!-- /{name} -->"

    return re.sub(r"<!-- ([a-z0-9-]+) -->\n.*?<!-- /\1 -->", filled, text, flags=re.DOTALL)


def main() -> int:
    draw()
    for page in PAGES:
        page.write_text(generate(page.read_text()))
    studies.PAGE.write_text(studies.page())
    if lost := studies.unlisted():
        sys.exit(f"add to benchmarks/studies.py, LOST: {', '.join(lost)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
