"""README.md, the papers' tables and figures beside ours: ``python -m benchmarks.studies``.

``python -m benchmarks.readme`` writes it too, and draws the figures.
Everything on the page is made from the declarations of refnet.studies and the rows recorded in
results/studies; tests/studies/test_pages.py checks that it is what this makes of them.
"""

import argparse
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from benchmarks.records import Row
from refnet.runs.files import write_text
from refnet.runs.rows import table
from refnet.studies import examples
from refnet.studies.catalogue import STUDIES, find
from refnet.studies.costs import measure, remember, remembered
from refnet.studies.ladder import TABLES
from refnet.studies.published import RULE, compared, published
from refnet.studies.store import Store
from refnet.studies.study import Published, RowOf, Study, View, protocols
from refnet.training.differences import APART, differences

FOLDER = Path(__file__).parent / "results" / "studies"
COSTS = FOLDER / "costs.json"
PAGE = Path(__file__).parent / "README.md"

TITLE = """# The papers' tables and figures

Each published number beside ours. (The speed of a training step has
[a page of its own](SPEED.md).)

"""

HEAD = """## How to read this page

This page sets our numbers beside the printed ones. `python -m benchmarks.readme` makes every table
from the rows recorded in `results/studies`. Each row carries its settings, seed and versions; newer
rows also carry the commit and the machines that produced them (counted below).

- *not run*: no such run has ended. Runs that have not begun are named beneath their table.
  `refnet study NAME` makes all runs of a study, continues after any interruption, and prints the
  same table. A run continues in the folder where it began; elsewhere it starts again. (`refnet
  study NAME --status` shows how far unfinished runs are.)
- A number is the mean over the seeds, with the smallest and the largest in brackets. A curve is the
  median of the seeds, with a band from the smallest to the largest value; of two seeds it shows
  both. A shorter run keeps its last value. A cell is complete with three seeds, in the study
  examples with five.
- The runs come from several processors (one with AVX-512 adds in another order than one without)
  and several versions of refnet. Both change roundings, and training amplifies them: a run that is
  repeated elsewhere can end as a run with another seed would.
- A sentence beneath a table compares runs of several seeds only if as many new runs would reverse
  it with a probability of at most 1 in 40 (`refnet.studies.comparison.compare`). Where no sentence
  compares two numbers, read nothing into their difference. A sentence that begins with *One run*
  rests on a single seed: it says what that run did, and another run may differ.
- A curve has some of a run's evaluations, more of the early ones than of the late ones (except in
  the oldest rows, such as those of Figure 2's SRNN). It has seven digits, in older rows five: there
  the singular values at a margin of .001 look like steps. A figure appears once a run has been
  evaluated twice.
- A curve's accuracy is on the validation set if the protocol has one, as on MNIST and the Penn
  Treebank in Vorontsov et al. A table's accuracy is on the test set, at the weights that are best
  on the validation set.

The table below lists the studies with the hours that their recorded runs took. It also estimates,
for one seed of all of a study's runs, the hours of one process on an otherwise idle machine
(`results/studies/costs.json` names it) and the memory of the arrays of the largest run. The
estimates extrapolate from a few measured steps of each kind of run, and assume that no run solves
its task and so ends earlier. For Table I they cover the runs of the first length alone. Recorded
runs shared their machines with others and ran on several processors, so their hours can differ from
the estimates.

"""

LOST = ("a0305521", "66e63926", "2074c315", "0367332f", "5eea07f7", "f03f6596")
"""Commits that rows name and the history does not have."""

CLUSTER = """## On a cluster

Run `pip install 'refnet[cluster]'` on every machine. Then start a scheduler, workers with one
thread each, and the study from any machine that reaches the scheduler. To continue unfinished runs,
all machines must see the same folder:

```
dask scheduler --scheduler-file dask.json
dask worker --scheduler-file dask.json --nworkers auto --nthreads 1
refnet study table-2 --cluster tcp://HOST:8786 --folder /shared/studies
```

Under Slurm, a job array of workers:

```
sbatch --array=1-64 --cpus-per-task=1 --mem=2G --time=12:00:00 \\
    --wrap 'dask worker --scheduler-file /shared/dask.json --nthreads 1'
```

A killed worker loses nothing: its runs go to other workers and continue from their last
evaluation. From Python, `refnet.studies.runner.run(study, store, executor=...)` takes any
`concurrent.futures.Executor`.

"""

PROTOCOLS = """## Protocols: text and released code

Every run follows a named protocol (`--protocol`). One kind does what the paper's text says and,
where the text says nothing, makes the plainest choice. The other does what the released code does.
(The text of Vorontsov et al. says nothing about three settings, which both protocols take from the
code: W_xh starts between -.01 and .01, RMSprop's constants are Lasagne's, and batches of the Penn
Treebank mix lines of all lengths.) Studies also take `--protocol`, except those that specify the
protocols of their runs. Text and code differ in:

"""


def store_of(study: Study) -> Store:
    return Store(FOLDER / study.name)


def recorded(study: Study) -> RowOf:
    """The recorded row of a job; unfinished runs, which only some machines have, do not count."""
    store = store_of(study)
    return partial(store.done, rows=store.rows())


def seeds(study: Study) -> int:
    """The number of seeds that the page shows."""
    return 5 if study is examples.STUDY else 6 if study is STUDIES["best"] else 3


def every_row() -> list[Row]:
    """The recorded rows of all studies."""
    return [row for study in STUDIES.values() for row in store_of(study).rows().values()]


def overview() -> str:
    """How many runs of each study there are, what they took, and what a seed needs."""
    lines = []
    costs = remembered(COSTS, everywhere=True)
    for study in STUDIES.values():
        row_of = recorded(study)
        jobs = study.jobs(View(row_of, seeds(study)))
        # a ladder wants the next rungs alone, and their number is not known
        ladder = study in TABLES
        done = (
            list(store_of(study).rows().values())
            if ladder
            else [row for job in jobs if (row := row_of(job)) is not None]
        )
        hours = sum(row.get("seconds", 0) for row in done) / 3600
        cost = costs.get(study.name)
        lines.append(
            [
                f"`refnet study {study.name}`",
                study.title,
                f"{len(done)}" + f" of {len(jobs)}" * (not ladder),
                "-" if not done else f"{hours:.2f}" if hours > 0.01 else "minutes",
                *(("-", "-") if cost is None else cost.texts),
            ]
        )
    return table(
        [
            "command",
            "what",
            "runs recorded",
            "hours they took",
            "hours for one seed, estimated",
            "memory of the largest run, MB",
        ],
        lines,
    )


def commits() -> str:
    """Which commits that rows name cannot be checked out."""
    named = Counter(row["commit"][:8] for row in every_row())
    changed = Counter(
        study.name
        for study in STUDIES.values()
        for row in store_of(study).rows().values()
        if row["commit"].endswith("+")
    )
    lost = [name for name in LOST if name in named]
    return (
        f"{sum(named[name] for name in lost)} rows name the commits {', '.join(lost)}, which "
        "are not in the history; instead, take the commit that added the row to its file. "
        f"{named['']} rows, the oldest, name no commit.\n"
        + "".join(
            f"{count} rows were made from a tree with uncommitted changes, those of the "
            f"study {title}.\n"
            for title, count in changed.items()
        )
    )


def origins() -> str:
    """What rows know of their machines, and how often a run recorded twice ended otherwise."""
    rows = every_row()
    results: dict[str, list[tuple[object, ...]]] = {}
    for row in rows:
        if "state" in row:
            results.setdefault(row["key"], []).append(
                (row["state"], row["iterations"], row["best"].get("accuracy"))
            )
    twice = [known for known in results.values() if len(known) > 1]
    return (
        f"Of {len(rows)} rows {sum('processor' in row['environment'] for row in rows)} name "
        f"their processor, and {sum('machines' in row for row in rows)} its vector "
        "instructions, what BLAS computes for, and the threads, too. "
        f"{len(twice)} runs are recorded in two studies: "
        f"{sum(len(set(known)) > 1 for known in twice)} of them ended otherwise in the one "
        "than in the other.\n"
    )


def _run_alone(text: str, name: str) -> str:
    """The tables of a study without the runs that have not begun, which are named at the end."""
    blocks: list[str] = []
    left: list[str] = []
    for block in text.rstrip("\n").split("\n\n"):
        if not block.startswith("|") or block.split("\n")[0].split("|")[-2].strip() != "runs":
            blocks.append(block)
            continue
        header, _, *rows = (
            [cell.strip() for cell in line.split("|")[1:-1]] for line in block.splitlines()
        )
        part = ""
        if blocks and blocks[-1].startswith("####"):
            part = blocks[-1].removeprefix("#### ") + ": "
        known = [row for row in rows if row[-1] != "-"]
        if waiting := [row[0] for row in rows if row[-1] == "-"]:
            left.append(part + "; ".join(waiting))
        if known:
            blocks.append(table(header, known).rstrip("\n"))
        elif part:
            blocks.pop()
    if left and not blocks:
        return f"Not run; this makes its runs: `refnet study {name}`.\n"
    if left:
        command = f"Not run yet, by `refnet study {name}`:"
        blocks.append(
            f"{command} {left[0]}" if len(left) == 1 else command + "\n\n- " + "\n- ".join(left)
        )
    return "\n\n".join(blocks) + "\n"


def section(study: Study) -> str:
    """A study's table, its figure if there is one, and the search of its grid."""
    text = f"### {study.title}\n\n"
    if not store_of(study).path.exists():
        return text + f"Not run; this makes its runs: `refnet study {study.name}`.\n\n"
    followed = ", ".join(f"`{name}`" for name in protocols(study))
    text += f"Protocol: {followed}\n\n" * bool(followed)
    text += _run_alone(study.table(View(recorded(study), seeds(study))), study.name)
    if (store_of(study).folder / "figure.png").exists():
        text += f"\n![{study.title}](results/studies/{study.name}/figure.png)\n"
    if study.search is not None:
        name = f"{study.name} --search"
        text += f"\n#### {study.search.title}\n\n`refnet study {name}`\n\n"
        text += _run_alone(study.search.table(View(recorded(study), seeds(study))), name)
    return text + "\n"


def numbers(studies: Iterable[Study]) -> list[Published]:
    """What is printed for these studies, with the recorded runs."""
    views = ((study, View(recorded(study), seeds(study))) for study in studies)
    return [number for study, view in views for number in study.published(view)]


def opening() -> str:
    """Each published number in a row, and Table I by protocol."""

    def label(name: str) -> str:
        return ": ".join([f"`{name}`", *protocols(STUDIES[name])[:1]])

    return (
        f"{TITLE}{published(numbers(STUDIES.values()), label)}\n{RULE}\n\n"
        "Table I of Manchev & Spratling by protocol: the released code (`table-i`), the text\n"
        "(`table-i-text`), and the released code with the text's SGD (`table-i-sgd`).\n\n"
        f"{compared(numbers(TABLES))}\n"
    )


PAPERS = ("Manchev & Spratling", "Vorontsov et al.", "Orhan & Pitkow")


def folded() -> str:
    """The sections of the studies, folded by paper; last those of several papers."""
    groups: dict[str, list[Study]] = {name: [] for name in (*PAPERS, "Beyond the papers")}
    for study in STUDIES.values():
        paper = next((name for name in PAPERS if name in study.title), "Beyond the papers")
        groups[paper].append(study)
    return "".join(
        f"## {name}\n\n<details><summary>Studies: {len(studies)}</summary>\n\n"
        + "".join(map(section, studies))
        + "</details>\n\n"
        for name, studies in groups.items()
    )


def page() -> str:
    """The whole page."""
    return (
        opening()
        + HEAD
        + overview()
        + "\n"
        + commits()
        + origins()
        + "\n"
        + folded()
        + PROTOCOLS
        + differences()
        + APART
        + "\n"
        + CLUSTER
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Write README.md.")
    parser.add_argument(
        "--measure",
        nargs="*",
        metavar="NAME",
        help="measure what these studies need (default: all)",
    )
    names = parser.parse_args().measure
    for study in [] if names is None else map(find, names or STUDIES):
        remember(COSTS, {study.name: measure(study.jobs(View()))})
    write_text(PAGE, page())
    return 0


def unlisted() -> list[str]:
    """The commits that rows name, the history does not have, and LOST does not list."""
    history = subprocess.run(
        ["git", "rev-list", "HEAD"], cwd=FOLDER, capture_output=True, text=True, check=True
    ).stdout.split()
    known = {name[:8] for name in history} | {"", *LOST}
    return sorted({row["commit"][:8] for row in every_row()} - known)


if __name__ == "__main__":
    sys.exit(main())
