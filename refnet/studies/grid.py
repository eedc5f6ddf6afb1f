"""Studies that are a table of cells, each one configuration trained from some seeds."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter
from textwrap import fill

from refnet.runs import style
from refnet.runs.plots import banded, of_seeds, words
from refnet.runs.read import Record
from refnet.runs.rows import Canvas, finite, table
from refnet.studies.comparison import Finding, Quantity, stated
from refnet.studies.jobs import Job, training_run
from refnet.studies.published import place_of
from refnet.studies.quantities import solved_at
from refnet.studies.study import Published, Study, View, spread

__all__ = ["Cell", "Figure", "Grid", "drawn", "ended_of", "label_of"]

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


def _curves(
    rows: dict[str, list[Record]], curve: tuple[str, ...], mark: str, title: str = ""
) -> Canvas:
    """A panel for each column, or for each name of a panel; seeds are a line and a band."""

    panels = {
        (name, column): {
            label.removeprefix(name).strip(":, "): rows[label]
            for label in rows
            if _panel_of(label, mark) == name
        }
        for name, column in _places(rows, curve, mark)
    }
    if len({*map(tuple, panels.values())}) == 1:  # one legend for all
        with style.page(0.8 + 1.9 * -(-len(panels) // 3), title) as figure:
            for axes, (place, runs) in zip(style.grid(figure, len(panels)), panels.items()):
                _draw_panel(*place, runs, axes)
            style.legend_below(figure)
        return figure
    height = 1.9 + 0.16 * max(map(len, panels.values()))
    with style.page(height * -(-len(panels) // 2), title) as figure:
        draws = [partial(_draw_panel, *place, runs) for place, runs in panels.items()]
        style.panels(figure, draws, 2)
    return figure


def _draw_panel(name: str, column: str, rows: dict[str, list[Record]], axes: Canvas) -> None:
    ends = []
    longest = max(len(row["curve"]["iteration"]) for runs in rows.values() for row in runs)
    for label, props in style.lines(rows, longest).items():
        shown = [row for row in rows[label] if column in row["curve"]]
        if not shown:
            continue
        curves = [row["curve"] for row in shown]
        pairs = [(finite(curve["iteration"]), finite(curve[column])) for curve in curves]
        banded(axes, pairs, style.typeset(label_of(label, shown)), **props)
        ends.append(max(at[-1] for at, _ in pairs))
    axes.set(
        title=style.typeset(fill(name, 42)),
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
    draw: Callable[[dict[str, Record], str], Canvas] | None = None
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
        all_rows = self.rows(view)
        rows = {label: shown for label in all_rows if (shown := drawn(all_rows[label]))}
        if not any(len(row["curve"]["iteration"]) > 1 for runs in rows.values() for row in runs):
            return None
        counts = [1] if self.draw else [*map(len, rows.values())]
        # a formula stays on one line
        title = re.sub(r" ([=o]) ", "\u00a0\\1\u00a0", f"{self.title}; {of_seeds(counts)}")
        if self.draw:
            return self.draw({label: runs[0] for label, runs in rows.items()}, title)
        return _curves(rows, self.curve, self.panels, title)

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
