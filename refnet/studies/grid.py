"""Studies that are a table of cells, each one configuration trained from some seeds."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from textwrap import fill
from typing import Any

from refnet.runs.rows import finite, table
from refnet.studies.comparison import Finding, stated
from refnet.studies.jobs import Job
from refnet.studies.study import Found, Study, spread
from refnet.training.protocols import configure

__all__ = [
    "STYLES",
    "Cell",
    "Figure",
    "accuracy",
    "drawn",
    "grid",
    "label_of",
    "last_accuracy",
    "solved_at",
]

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


def last_accuracy(row: dict[str, Any]) -> float | None:
    """The accuracy at the end in percent; None before there is an evaluation."""
    return 100 * row["final"]["accuracy"] if row["final"] else None


def solved_at(row: dict[str, Any]) -> float | None:
    """Iterations until the task was solved."""
    return row["iterations"] if row["state"] == "solved" else None


def _summary(
    rows: list[dict[str, Any]], figure: Callable[[dict[str, Any]], float | None], form: str
) -> str:
    """A figure's values in the runs that have ended or, while none has, those so far."""
    ended = [row for row in rows if row["state"] != "begun"]
    values = [value for row in ended or rows if (value := figure(row)) is not None]
    if not ended:
        return ", ".join(f"{value:{form}} so far" for value in values) or (
            "not yet" if rows else "not run"
        )
    if values:
        return spread(values, form, len(ended))
    return "not solved" if figure is solved_at else "-"


def _state(row: dict[str, Any]) -> str:
    if row.get("damaged"):
        return "damaged"
    if row["state"] == "begun":
        return f"at {row['iterations']:,} of {row['of']:,} iterations"
    return str(row["state"])


STYLES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 3, 1, 3, 1, 3)), (0, (1, 3)))
"""Of the lines of a panel, so that one is seen that lies under another."""
BENEATH: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.18)}
"""Where a legend covers no curve."""
LOGARITHMIC = ("gradient_norm", "defect", "mse", "loss", "spectral_radius")
RATIO = 6
"""The axis of iterations is logarithmic if the longest curve has more than this many times those of
the shortest."""


def drawn(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs of a setting that a figure shows: those that have ended, which keep their last
    value; while none has, the one that is farthest. A run that diverged before its first
    evaluation has nothing to show."""
    rows = [row for row in rows if row["curve"]["iteration"]]
    ended = [row for row in rows if row["state"] != "begun"]
    return ended or sorted(rows, key=lambda row: -row["iterations"])[:1]


def label_of(label: str, rows: list[dict[str, Any]]) -> str:
    """A curve's name, which says so if a run of it has not ended."""
    return label + ", not finished" * any(row["state"] == "begun" for row in rows)


def _curves(
    rows: dict[str, list[dict[str, Any]]], curve: tuple[str, ...], panels: Callable[[str], str]
) -> Any:
    """A panel for each column, or for each value of ``panels``; seeds are a line and a band."""
    from matplotlib.figure import Figure as Canvas
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    from refnet.runs.plots import banded, tidy, words

    names = list(dict.fromkeys(map(panels, rows)))
    known = {
        name: [
            column
            for column in curve
            if any(
                value is not None
                for label, made in rows.items()
                if panels(label) == name
                for row in made
                for value in row["curve"].get(column, ())
            )
        ]
        for name in names
    }
    places = [
        (name, column)
        for name in names
        for column in (known[name] if len(names) == 1 else known[name][:1])
    ]
    columns = min(2, len(places))
    lines = -(-len(places) // columns)
    most = max(Counter(map(panels, rows)).values())
    beneath = BENEATH if most > 4 else {}
    canvas = Canvas(
        figsize=(4.5 * columns, 0.5 + (3.2 + 0.18 * most * bool(beneath)) * lines),
        layout=ConstrainedLayoutEngine(h_pad=0.1),
    )  # legends have a frame
    axes = canvas.subplots(lines, columns, squeeze=False).ravel()
    for (name, column), here in zip(places, axes):
        ends = []
        for label, each in rows.items():
            made = [row for row in each if column in row["curve"]]
            if made and panels(label) == name:
                at = [row["curve"]["iteration"] for row in made]
                ends.append(max(points[-1] for points in at))
                banded(
                    here,
                    [
                        (finite(points), finite(row["curve"][column]))
                        for points, row in zip(at, made)
                    ],
                    label_of(label.removeprefix(name).strip(":, "), made),
                    markersize=3,
                    marker="o" if max(map(len, at)) < 5 else None,
                    linestyle=STYLES[(len(ends) - 1) % len(STYLES)],
                )
        here.set_title(name, fontsize=9)
        here.set(
            xlabel="iteration",
            ylabel=words(column),
            xscale="log" if max(ends) > RATIO * min(ends) else "linear",
            yscale="log" if column in LOGARITHMIC else "linear",
        )
        tidy(here, **beneath)
    for here in axes[len(places) :]:
        here.remove()
    return canvas


def grid(
    name: str,
    title: str,
    cells: list[Cell],
    figures: list[Figure],
    curve: tuple[str, ...] = (),
    panels: Callable[[str], str] = lambda label: "",
    draw: Callable[[dict[str, dict[str, Any]]], Any] | None = None,
    notes: Sequence[Finding] = (),
) -> Study:
    """The study of these cells. ``curve``: the columns that rows keep, for a figure with a panel
    each; but if ``panels`` gives the labels different values, with a panel for each of these
    values, in which the first column is drawn; ``draw`` makes another figure, of the first seed's
    rows by label. There is none before a run has been evaluated twice. ``notes``: what is said
    beneath the table; under another protocol than the cells' only what is of settings."""

    def chosen(quick: bool) -> list[Cell]:
        return [cell for cell in cells if cell.quick or not quick]

    def jobs(found: Found, seeds: int, quick: bool) -> list[Job]:
        return [cell.job(seed, quick, curve) for seed in range(seeds) for cell in chosen(quick)]

    def rows_of(cell: Cell, found: Found, seeds: int, quick: bool) -> list[dict[str, Any]]:
        made = [found(cell.job(seed, quick, curve)) for seed in range(seeds)]
        return [row for row in made if row is not None]

    def made(found: Found, seeds: int, quick: bool) -> str:
        lines, ended = [], {}
        printed = max(len(cell.printed) for cell in cells)
        for cell in chosen(quick):
            rows = rows_of(cell, found, seeds, quick)
            ended[cell.label] = [row for row in rows if row["state"] != "begun"]
            line = [cell.label]
            for place, (_, figure, form) in enumerate(figures):
                line.append(_summary(rows, figure, form))
                if place < printed:
                    line.append(cell.printed[place] if place < len(cell.printed) else "-")
            states = [_state(row) for row in rows]
            lines.append(
                [
                    *line,
                    ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
                    or "-",
                ]
            )
        header = ["run"]
        for place, (column, _, _) in enumerate(figures):
            header += [column] + ["printed"] * (place < printed)
        said = [] if quick else stated(notes, ended)
        return table([*header, "runs"], lines) + "".join(f"\n{text}\n" for text in said)

    def figure(found: Found, seeds: int, quick: bool) -> Any:
        from refnet.runs.plots import of_seeds

        rows = {
            cell.label: made
            for cell in chosen(quick)
            if (made := drawn(rows_of(cell, found, seeds, quick)))
        }
        if not any(len(row["curve"]["iteration"]) > 1 for made in rows.values() for row in made):
            return None
        if draw:
            canvas, counts = draw({label: made[0] for label, made in rows.items()}), [1]
        else:
            canvas, counts = _curves(rows, curve, panels), [*map(len, rows.values())]
        # a formula stays on one line
        text = re.sub(r" ([=o]) ", "\u00a0\\1\u00a0", f"{title}; {of_seeds(counts)}")
        width = int(13 * canvas.get_figwidth())
        lines = -(-len(text) // width)  # of about one length
        canvas.suptitle(
            fill(text, min(width, len(text) // lines + 8), break_on_hyphens=False), fontsize=10
        )
        return canvas

    def switched(protocol: str) -> Study:
        own = cells[0].settings.get("protocol")
        moved = [
            replace(cell, settings={**cell.settings, "protocol": protocol})
            if cell.settings.get("protocol") == own
            else cell
            for cell in cells
        ]
        return grid(
            f"{name}-{protocol.partition('/')[2]}",
            title,
            moved,
            figures,
            curve,
            panels,
            draw,
            [note for note in notes if not note.claims],
        )

    return Study(name, title, jobs, made, figure if curve else None, switched=switched)
