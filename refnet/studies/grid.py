"""Studies that are a table of cells, one configuration a cell, some seeds each."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from refnet.runs.files import write_atomically
from refnet.runs.rows import finite, table
from refnet.studies.jobs import Job
from refnet.studies.study import Found, Study, spread
from refnet.training.protocols import configure

__all__ = ["Cell", "Figure", "accuracy", "grid", "solved_at"]

Figure = tuple[str, Callable[[dict[str, Any]], float | None], str]
"""A column: its name, the figure of a row (None if the run has none), and its format."""


@dataclass(frozen=True)
class Cell:
    """One cell: what it is called, its settings, and what is printed for each column."""

    label: str
    settings: dict[str, Any]
    printed: tuple[str, ...] = ()
    quick: dict[str, Any] = field(default_factory=dict)

    def job(self, seed: int, quick: bool, curve: tuple[str, ...]) -> Job:
        """The run of one seed."""
        settings = {**self.settings, **(self.quick if quick else {}), "seed": seed}
        return Job(f"{self.label}, seed {seed}", configure(settings), curve=curve)


def accuracy(row: dict[str, Any]) -> float | None:
    """The best accuracy in percent: the test set's at the weights that the protocol selects."""
    best = row["best"]
    found = best.get("test_accuracy", best.get("accuracy"))
    return None if found is None else 100 * found


def solved_at(row: dict[str, Any]) -> float | None:
    """Iterations until the task was solved."""
    return row["iterations"] if row["state"] == "solved" else None


def grid(name: str, title: str, cells: list[Cell], figures: list[Figure],
         curve: tuple[str, ...] = (), panels: Callable[[str], str] = lambda label: "",
         note: str = "") -> Study:
    """The study of these cells. ``curve``: the columns that rows keep. They are drawn, or,
    with a panel for each value that ``panels`` has of the labels, the first one."""
    def chosen(quick: bool) -> list[Cell]:
        return [cell for cell in cells if cell.quick or not quick]

    def jobs(found: Found, seeds: int, quick: bool) -> list[Job]:
        return [cell.job(seed, quick, curve) for seed in range(1 if quick else seeds)
                for cell in chosen(quick)]

    def rows_of(cell: Cell, found: Found, seeds: int, quick: bool) -> list[dict[str, Any]]:
        made = [found(cell.job(seed, quick, curve)) for seed in range(seeds)]
        return [row for row in made if row is not None]

    def made(found: Found, seeds: int, quick: bool) -> str:
        lines = []
        printed = max(len(cell.printed) for cell in cells)
        for cell in chosen(quick):
            rows = rows_of(cell, found, seeds, quick)
            line = [cell.label]
            for place, (_, figure, form) in enumerate(figures):
                values = [value for row in rows if (value := figure(row)) is not None]
                line.append(spread(values, form) if values or not rows else "none")
                if place < printed:
                    line.append(cell.printed[place] if place < len(cell.printed) else "-")
            states = [row["state"] for row in rows]
            lines.append([*line, ", ".join(f"{states.count(state)} {state}"
                                           for state in dict.fromkeys(states)) or "-"])
        header = ["run"]
        for place, (column, _, _) in enumerate(figures):
            header += [column] + ["printed"] * (place < printed)
        return table([*header, "runs ended"], lines) + (f"\n{note}\n" if note else "")

    def figure(found: Found, seeds: int, quick: bool, path: Path) -> None:
        from matplotlib.figure import Figure as Canvas
        names = list(dict.fromkeys(panels(cell.label) for cell in chosen(quick)))
        drawn = curve if len(names) == 1 else curve[:1]
        places = [(name, column) for name in names for column in drawn]
        canvas = Canvas(figsize=(4.5 * len(places), 3.4), layout="constrained")
        axes = dict(zip(places, canvas.subplots(1, len(places), squeeze=False)[0]))
        for (name, column), here in axes.items():
            for cell in chosen(quick):
                rows = rows_of(cell, found, seeds, quick)[:1]
                for row in rows if panels(cell.label) == name else ():
                    here.plot(finite(row["curve"]["iteration"]), finite(row["curve"][column]),
                              label=cell.label)
            here.set(title=name, xlabel="iteration", ylabel=column.replace("_", " "))
            here.grid(alpha=.3)
            if here.lines:
                here.legend(fontsize=7)
        canvas.suptitle(title.partition(":")[0], fontsize=10)
        write_atomically(path, lambda file: canvas.savefig(file, format="png", dpi=100))

    return Study(name, title, jobs, made, figure if curve else None)
