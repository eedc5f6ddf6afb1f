"""What explaining a topic gives: words, tables and a figure, all computed.

Figures are drawn for a page of 6.5 inches. No two lines of a panel share a grey value, a dash and a
marker, so that a print without colour distinguishes them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from refnet.batch import Array
from refnet.common.specs import read
from refnet.matrices.initializers import initialize
from refnet.runs.files import printable, write_named
from refnet.runs.read import DAMAGE, Record, contents
from refnet.runs.rows import Canvas, table
from refnet.runs.unpack import npy_of
from refnet.training.specs import KINDS

__all__ = [
    "Explanation",
    "LEGEND",
    "LINES",
    "POINTS",
    "THEORY",
    "Table",
    "check_figure",
    "draw_schur",
    "label_of",
    "legend_below",
    "named_matrix",
    "positive",
    "save",
    "style",
]

LINES = [
    ("black", "-", "o"),
    ("tab:blue", "--", "s"),
    ("tab:red", "-.", "^"),
    ("tab:green", ":", "D"),
    ("tab:orange", (0, (5, 1)), "v"),
    ("tab:purple", "-", "x"),
    ("dimgrey", "--", "+"),
]
LEGEND: Record = {"fontsize": 6, "edgecolor": "none", "framealpha": 0.9, "handlelength": 1.6}
THEORY: Record = {"color": "lightgrey", "linewidth": 3, "zorder": 0}
"""A line that theory predicts, behind what is measured."""
POINTS: Record = {
    "color": "black",
    "linestyle": "none",
    "marker": "o",
    "markerfacecolor": "none",
    "markersize": 3.5,
}


@dataclass(frozen=True)
class Table:
    """A caption, a header and rows of numbers or words."""

    caption: str
    header: list[str]
    rows: list[list[Any]]


@dataclass(frozen=True)
class Explanation:
    """What one topic shows.

    ``source``: where it is claimed. ``text``: what the tables show, to be read before them.
    ``draw(figure)`` fills a Matplotlib figure of ``height`` inches.
    """

    title: str
    source: str
    text: str
    tables: Sequence[Table]
    draw: Callable[[Canvas], None]
    height: float = 3.2

    def __str__(self) -> str:
        parts = [printable(self.title), f"Source: {printable(self.source)}", self.text]
        parts += [f"{t.caption}\n\n{table(t.header, t.rows)}" for t in self.tables]
        return "\n\n".join(parts)


def check_figure(path: Path) -> str:
    """The format that the path's ending names: "png" or "svg".

    Raises ValueError for another ending, ImportError without Matplotlib (extra ``cli``).
    """
    form = path.suffix.lower().lstrip(".")
    if form not in ("png", "svg"):
        raise ValueError(f"--figure is {path}; need a path that ends in .png or .svg")
    if find_spec("matplotlib") is None:
        raise ImportError("the figure needs Matplotlib: pip install 'refnet[cli]'")
    return form


def save(explanation: Explanation, path: Path) -> None:
    """Draw the figure and write it, as PNG or SVG by the path's ending (see check_figure)."""
    form = check_figure(path)
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(
        {
            "font.size": 8,
            "axes.titlesize": 8.5,
            "svg.hashsalt": "refnet",
            "axes.spines.top": False,
            "axes.spines.right": False,
        }
    ):
        figure = Figure(figsize=(6.5, explanation.height), layout="constrained")
        explanation.draw(figure)
        write_named(
            path,
            lambda file: figure.savefig(
                file, format=form, dpi=160, metadata={} if form == "png" else {"Date": None}
            ),
        )


def label_of(name: str) -> str:
    """A name that Matplotlib shows as it is: it takes what is between dollars for mathematics, and
    shows no label that begins with an underscore.

    >>> label_of("_a$b$")
    ' _a\\\\$b\\\\$'
    """
    return " " * name.startswith("_") + printable(name).replace("$", r"\$")


def style(i: int, points: int = 0) -> Record:
    """Colour, dash and, for at most 30 points, marker of the i-th line of a figure."""
    color, dash, marker = LINES[i % len(LINES)]
    return {
        "color": color,
        "linestyle": dash,
        "linewidth": 1.2,
        **({"marker": marker, "markersize": 3.5} if 0 < points <= 30 else {}),
    }


def positive(values: Array, above: float = 0) -> Array:
    """The values for a logarithmic axis: NaN, which is not drawn, where they are not above."""
    return np.where(values > above, values, np.nan)


def legend_below(figure: Canvas, ax: Canvas) -> None:
    """The legend of one panel for all of a figure, below them."""
    figure.legend(
        *ax.get_legend_handles_labels(),
        ncols=3,
        fontsize=7,
        frameon=False,
        loc="outside lower center",
    )


def draw_schur(ax: Canvas, T: Array) -> None:
    """The sizes of a Schur form's entries, the eigenvalues on the diagonal; white is below 1e-3."""
    with np.errstate(divide="ignore"):
        image = ax.imshow(
            np.log10(abs(T)), cmap="Greys", vmin=-3, vmax=0.5, interpolation="nearest"
        )
    ax.figure.colorbar(image, ax=ax, shrink=0.85)
    ax.set(xlabel="from direction", ylabel="to direction")


def named_matrix(spec: str, size: int, rng: np.random.Generator) -> Array:
    """A square matrix: the one in a .npy file, or drawn by an initialiser, such as
    ``chain:gain=1.02`` or ``orthogonal``.

    Raises ValueError if the file has none, or for an initialiser that is unknown.
    """
    if spec.endswith(".npy"):
        try:
            W = npy_of(contents(Path(spec), 2**30))
        except (OSError, *DAMAGE) as error:
            raise ValueError(f"{spec}: not a readable .npy file: {error}") from None
        if W.ndim != 2 or W.shape[0] != W.shape[1] or not W.size or W.dtype.kind not in "fiu":
            raise ValueError(
                f"{spec}: holds {W.dtype} of shape {W.shape}; need a real square "
                "matrix, as numpy.save writes it"
            )
        if not np.isfinite(W).all():
            raise ValueError(f"{spec}: has entries that are not finite; need numbers")
        return np.asarray(W, np.float64)
    name, options = read("matrix", KINDS["recurrent"], spec)
    return initialize(name, (size, size), rng, **options)
