"""Studies that are a table of cells, each one configuration trained from some seeds."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from textwrap import fill
from typing import Any

from refnet.runs.read import Record
from refnet.runs.rows import Canvas, finite, table
from refnet.studies.comparison import Finding, Quantity, stated
from refnet.studies.jobs import Job, training_run
from refnet.studies.published import place_of
from refnet.studies.quantities import solved_at
from refnet.studies.study import Published, Study, View, spread

__all__ = ["STYLES", "Cell", "Figure", "Grid", "drawn", "ended_of", "label_of"]

Figure = tuple[str, Quantity, str]
"""A column: its name, the figure of a row (None if the run has none), and its format."""


@dataclass(frozen=True)
class Cell:
    """One cell: what it is called, its settings, and what is printed for each column. ``cause``:
    where the distance from that is explained; ``stands_for``: the cell of the paper, if it is
    called otherwise here."""

    label: str
    settings: Record
    printed: tuple[str, ...] = ()
    quick: Record = field(default_factory=dict)
    cause: str = ""
    stands_for: str = ""

    def job(self, seed: int, quick: bool, curve: tuple[str, ...]) -> Job:
        """The run of one seed."""
        settings = {**self.settings, **(self.quick if quick else {}), "seed": seed}
        return training_run(f"{self.label}, seed {seed}", settings, curve)


def ended_of(rows: list[Record]) -> list[Record]:
    """The rows of runs that have ended."""
    return [row for row in rows if row["state"] != "begun"]


def _summary(rows: list[Record], figure: Quantity, form: str) -> str:
    """A figure's values in the runs that have ended or, while none has, those so far."""
    ended = ended_of(rows)
    values = [value for row in ended or rows if (value := figure(row)) is not None]
    if not ended:
        return ", ".join(f"{value:{form}} so far" for value in values) or (
            "not yet" if rows else "not run"
        )
    if values:
        return spread(values, form, len(ended))
    return "not solved" if figure is solved_at else "-"


def _state(row: Record) -> str:
    if row.get("damaged"):
        return "damaged"
    if row["state"] == "begun":
        return f"at {row['iterations']:,} of {row['of']:,} iterations"
    return str(row["state"])


STYLES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 3, 1, 3, 1, 3)), (0, (1, 3)))
"""Of the lines of a panel, so that one is seen that lies under another."""
BENEATH: Record = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.18)}
"""Where a legend covers no curve."""
WITHIN = {"%": 1.0, "bits": 0.05}
"""How near a number is reproduced (``published.RULE``)."""
LOGARITHMIC = ("gradient_norm", "defect", "mse", "loss", "spectral_radius")
RATIO = 6
"""The axis of iterations is logarithmic if the longest curve has more than this many times those of
the shortest."""


def drawn(rows: list[Record]) -> list[Record]:
    """The runs of a setting that a figure shows: those that have ended, which keep their last
    value; while none has, the one that is farthest. A run that diverged before its first
    evaluation has nothing to show."""
    rows = [row for row in rows if row["curve"]["iteration"]]
    return ended_of(rows) or sorted(rows, key=itemgetter("iterations"), reverse=True)[:1]


def label_of(label: str, rows: list[Record]) -> str:
    """A curve's name, which says so if a run of it has not ended."""
    return label + ", not finished" * (ended_of(rows) != rows)


def _panel_of(label: str, mark: str) -> str:
    """The name of a cell's panel, what stands before ``mark`` in its label; without a mark all
    cells are in a panel without a name."""
    return label.partition(mark)[0] if mark else ""


def _places(
    rows: dict[str, list[Record]], curve: tuple[str, ...], mark: str
) -> list[tuple[str, str]]:
    """The panels, each with its column: of several panels the first in which it has values, of a
    single one all."""
    names = list(dict.fromkeys(_panel_of(label, mark) for label in rows))
    places = []
    for name in names:
        curves = [
            row["curve"] for label in rows if _panel_of(label, mark) == name for row in rows[label]
        ]
        columns = [
            column
            for column in curve
            if any(value is not None for known in curves for value in known.get(column, ()))
        ]
        places += [(name, column) for column in columns[: 1 if len(names) > 1 else None]]
    return places


def _curves(rows: dict[str, list[Record]], curve: tuple[str, ...], mark: str) -> Canvas:
    """A panel for each column, or for each name of a panel; seeds are a line and a band."""
    from matplotlib.figure import Figure as Canvas
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    from refnet.runs.plots import tidy

    places = _places(rows, curve, mark)
    columns = min(2, len(places))
    lines = -(-len(places) // columns)
    most = max(Counter(_panel_of(label, mark) for label in rows).values())
    beneath = BENEATH if most > 4 else {}
    canvas = Canvas(
        figsize=(4.5 * columns, 0.5 + (3.2 + 0.18 * most * bool(beneath)) * lines),
        layout=ConstrainedLayoutEngine(h_pad=0.1),
    )  # legends have a frame
    axes = canvas.subplots(lines, columns, squeeze=False).ravel()
    for (name, column), panel in zip(places, axes):
        shown = {label: rows[label] for label in rows if _panel_of(label, mark) == name}
        _draw_panel(panel, name, column, shown)
        tidy(panel, **beneath)
    for panel in axes[len(places) :]:
        panel.remove()
    return canvas


def _draw_panel(panel: Canvas, name: str, column: str, rows: dict[str, list[Record]]) -> None:
    from refnet.runs.plots import banded, words

    ends: list[int] = []
    for label, all_rows in rows.items():
        runs = [row for row in all_rows if column in row["curve"]]
        if not runs:
            continue
        at = [row["curve"]["iteration"] for row in runs]
        banded(
            panel,
            [(finite(points), finite(row["curve"][column])) for points, row in zip(at, runs)],
            label_of(label.removeprefix(name).strip(":, "), runs),
            markersize=3,
            marker="o" if max(map(len, at)) < 5 else None,
            linestyle=STYLES[len(ends) % len(STYLES)],
        )
        ends.append(max(points[-1] for points in at))
    panel.set_title(name, fontsize=9)
    panel.set(
        xlabel="iteration",
        ylabel=words(column),
        xscale="log" if max(ends) > RATIO * min(ends) else "linear",
        yscale="log" if column in LOGARITHMIC else "linear",
    )


@dataclass(frozen=True)
class Grid:
    """The cells of a study, and what its table and its figure show of them.

    ``curve``: the columns that rows keep, for a figure with a panel each; with ``panels``, a text
    that labels contain, with a panel for each text before it instead, in which the first column is
    drawn; ``draw`` makes another figure, of the first seed's rows by label. There is none before a
    run has been evaluated twice. ``notes``: what is said beneath the table; under another protocol
    than the cells' only what is of settings.
    """

    name: str
    title: str
    cells: list[Cell]
    figures: list[Figure]
    curve: tuple[str, ...] = ()
    panels: str = ""
    draw: Callable[[dict[str, Record]], Canvas] | None = None
    notes: Sequence[Finding] = ()

    def chosen(self, quick: bool) -> list[Cell]:
        return [cell for cell in self.cells if cell.quick or not quick]

    def jobs(self, view: View) -> list[Job]:
        chosen, seeds = self.chosen(view.quick), range(view.seeds)
        return [cell.job(seed, view.quick, self.curve) for seed in seeds for cell in chosen]

    def rows(self, view: View) -> dict[str, list[Record]]:
        """By the label of their cell."""
        return {
            cell.label: view.rows(cell.job(n, view.quick, self.curve) for n in range(view.seeds))
            for cell in self.chosen(view.quick)
        }

    def table(self, view: View) -> str:
        rows = self.rows(view)
        printed = max(len(cell.printed) for cell in self.cells)
        header, lines = ["run"], []
        for place, (column, _, _) in enumerate(self.figures):
            header += [column] + ["printed"] * (place < printed)
        for cell in self.chosen(view.quick):
            line = [cell.label]
            for place, (_, figure, form) in enumerate(self.figures):
                line.append(_summary(rows[cell.label], figure, form))
                if place < printed:
                    line.append(cell.printed[place] if place < len(cell.printed) else "-")
            states = Counter(map(_state, rows[cell.label]))
            line.append(", ".join(f"{count} {state}" for state, count in states.items()) or "-")
            lines.append(line)
        ended = {label: ended_of(rows[label]) for label in rows}
        said = [] if view.quick else stated(self.notes, ended)
        return table([*header, "runs"], lines) + "".join(f"\n{text}\n" for text in said)

    def figure(self, view: View) -> Canvas:
        from refnet.runs.plots import of_seeds

        all_rows = self.rows(view)
        rows = {label: shown for label in all_rows if (shown := drawn(all_rows[label]))}
        if not any(len(row["curve"]["iteration"]) > 1 for runs in rows.values() for row in runs):
            return None
        if self.draw:
            canvas, counts = self.draw({label: runs[0] for label, runs in rows.items()}), [1]
        else:
            canvas = _curves(rows, self.curve, self.panels)
            counts = [*map(len, rows.values())]
        # a formula stays on one line
        text = re.sub(r" ([=o]) ", "\u00a0\\1\u00a0", f"{self.title}; {of_seeds(counts)}")
        width = int(13 * canvas.get_figwidth())
        lines = -(-len(text) // width)  # of about one length
        canvas.suptitle(
            fill(text, min(width, len(text) // lines + 8), break_on_hyphens=False), fontsize=10
        )
        return canvas

    def study(self) -> Study:
        figure = self.figure if self.curve else None
        return Study(
            self.name,
            self.title,
            self.jobs,
            self.table,
            figure,
            published=self.published,
            switched=self.switched,
        )

    def published(self, view: View) -> list[Published]:
        """The printed numbers of its cells; a text such as "below it" is none."""
        rows, numbers = self.rows(view), []
        for cell in self.chosen(view.quick):
            ended = ended_of(rows[cell.label])
            for (column, quantity, form), printed in zip(self.figures, cell.printed):
                if not printed.replace(".", "").isdecimal():
                    continue
                values = [value for row in ended if (value := quantity(row)) is not None]
                bits = column.startswith("bits")
                numbers.append(
                    Published(
                        place_of(self.title),
                        f"{cell.stands_for or cell.label}, {column}",
                        float(printed),
                        tuple(values),
                        self.name,
                        WITHIN["bits" if bits else "%"],
                        not bits,
                        form,
                        cell.cause,
                    )
                )
        return numbers

    def switched(self, protocol: str) -> Study:
        """The cells that follow the first one's protocol under another one, and the others."""
        first = self.cells[0].settings.get("protocol")
        cells = [
            replace(cell, settings={**cell.settings, "protocol": protocol})
            if cell.settings.get("protocol") == first
            else cell
            for cell in self.cells
        ]
        name = f"{self.name}-{protocol.partition('/')[2]}"
        notes = [note for note in self.notes if not note.claims]
        return replace(self, name=name, cells=cells, notes=notes).study()
