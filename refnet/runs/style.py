"""The house style of every figure, for a page of 6.5 inches (extra ``cli``: Matplotlib).

A name of a matrix, a net, a method or a margin has the same colour, dash and marker in every
figure. No two lines of a panel share a dash and a grey value, so that a print without colour tells
them apart. Panels have letters, logarithmic axes plain numbers or powers of ten.

Checked by: tests/analysis/test_house_style.py.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from math import floor, lcm, log10
from pathlib import Path
from string import ascii_letters
from textwrap import fill
from typing import Any, TypeAlias

import numpy as np

from refnet.batch import Array
from refnet.common.arguments import whole
from refnet.runs.files import printable, write_named
from refnet.runs.read import Record
from refnet.runs.rows import Canvas

Curves: TypeAlias = Mapping[str, Sequence[Any]]
"""Label -> x and y of a line."""
Draw: TypeAlias = Callable[[Canvas], None]
"""What fills a panel."""
WIDTH, DPI = 6.5, 300
COLUMNS = 98
"""Letters in a line of a title."""
FORMATS = {"pdf": {"CreationDate": None}, "png": {}, "svg": {"Date": None}}
"""Format -> what of its metadata is left out, so that the same figure has the same bytes."""
RC: Record = {
    "font.family": ["STIXGeneral", "DejaVu Sans"],
    "font.size": 9,
    "mathtext.fontset": "stix",
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.formatter.useoffset": False,
    "axes.formatter.use_mathtext": True,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.handlelength": 3.2,
    "legend.labelspacing": 0.3,
    "legend.frameon": False,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "figure.titlesize": 9.5,
    "figure.labelsize": 9,
    "svg.hashsalt": "refnet",
    "pdf.fonttype": 42,
}
LINES = [
    ("#0072b2", "-", "o"),
    ("#d55e00", (0, (4, 1.5)), "s"),
    ("#117733", (0, (5, 1.2, 1, 1.2)), "^"),
    ("#000000", (0, (1, 1.1)), "D"),
    ("#882255", (0, (4, 1, 1, 1, 1, 1)), "v"),
    ("#e69f00", "-", "x"),
    ("#7ec4ee", (0, (4, 1.5)), "+"),
    ("#cc79a7", (0, (5, 1.2, 1, 1.2)), "<"),
    ("#999999", (0, (1, 1.1)), ">"),
    ("#b0a93c", (0, (4, 1, 1, 1, 1, 1)), "*"),
]
"""Colour, dash and marker."""
FAMILIES = (
    "orthogonal gaussian chain identity glorot_uniform glorot_normal fbchain uniform he rotations",
    "rnn lstm gru cifg gru_before",
    "plain oinit open oinit+open",
)
MARGINS = ("0", "0.001", "0.01", "0.1", "1", "10", "100", "none")
HOUSE = {
    name.replace("_", " "): place
    for family in (*map(str.split, FAMILIES), [f"margin {margin}" for margin in MARGINS])
    for place, name in enumerate(family)
} | {"srnn": 0, "ff": 0}
"""The names with a place in LINES of their own."""
THEORY: Record = {"color": "lightgrey", "linestyle": "-", "linewidth": 3, "zorder": 0}
"""A line that theory predicts, behind what is measured."""
POINTS: Record = {"color": "black", "linestyle": "none", "marker": "o", "markerfacecolor": "none"}
COLD_TO_WARM = ("#08265c", "#3d70ad", "#9b9b9b", "#f2a93b", "#fdeac0")
"""From negative to positive, grey at 0; ever lighter, so that a print in grey keeps the order."""


def check_figure(path: Path | None, dpi: int = DPI) -> str:
    """The format that the path's ending names: "pdf", "png" or "svg"; "" without a path.

    Raises ValueError for another ending and for dots per inch out of range, ImportError without
    Matplotlib (extra ``cli``).
    """
    whole("--dpi", dpi, least=10, most=2400)
    if path is None:
        return ""
    form = path.suffix.lower().lstrip(".")
    if form not in FORMATS:
        raise ValueError(f"--figure is {path}; need a path that ends in .pdf, .png or .svg")
    if find_spec("matplotlib") is None:
        raise ImportError("the figure needs Matplotlib: pip install 'refnet[cli]'")
    return form


@contextmanager
def page(height: float = 3.2, title: str = "") -> Iterator[Canvas]:
    """A figure to be drawn within the block, whatever Matplotlib's settings; at its end panels get
    their letters, axes their ticks, and the figure its title, in lines of about one length.

    >>> with page() as figure:
    ...     for ax in figure.subplots(1, 2):
    ...         _ = ax.set_title("loss")
    >>> [ax.get_title(loc="left")[-4:] for ax in figure.axes]
    ['loss', 'loss']
    """
    import matplotlib.style
    from matplotlib.figure import Figure

    with matplotlib.style.context(["default", RC]):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        yield figure
        panels = [ax for ax in figure.axes if ax.get_label() != "<colorbar>"]
        for letter, ax in zip(ascii_letters, panels):
            ax.set_title(
                rf"$\mathbf{{{letter}}}$  " * (len(panels) > 1) + ax.get_title(), loc="left"
            )
            ax.set_title("")
        for ax in figure.axes:
            counts = [np.array(line.get_xdata(), float) for line in ax.lines]
            _set_ticks(ax.xaxis, all((x == np.floor(x)).all() for x in counts))
            _set_ticks(ax.yaxis)
        if title:
            rows = -(-len(title) // COLUMNS)
            width = min(COLUMNS, len(title) // rows + 8)
            figure.suptitle(typeset(fill(title, width, break_on_hyphens=False)))


def _set_ticks(axis: Canvas, integer: bool = False) -> None:
    from matplotlib.ticker import AutoLocator, FuncFormatter, MaxNLocator, ScalarFormatter

    if axis.get_scale() == "log":
        formatter = FuncFormatter(partial(_tick, axis.get_transform().base, axis))
        axis.set_major_formatter(formatter)
        axis.set_minor_formatter(formatter)
    elif isinstance(axis.get_major_locator(), AutoLocator):
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10], integer=integer))
        if max(axis.get_view_interval()) >= 1e4 and isinstance(
            axis.get_major_formatter(), ScalarFormatter
        ):
            axis.set_major_formatter("{x:,.0f}")


def _tick(base: float, axis: Canvas, x: float, place: int | None = None) -> str:
    """A number of a logarithmic axis: powers of its base, and others where it has few of them."""
    low, high = sorted(axis.get_view_interval())
    power = log10(x) / log10(base)
    lead = round(x / base ** floor(power + 1e-9), 6)
    if lead != 1 and high > 3 * low and (high > 30 * low or lead not in (2, 5)):
        return ""
    if base != 10 or (low > 5e-4 and high < 2e4):
        return f"{x:,.5g}"
    mantissa = "" if lead == 1 else rf"{lead:g}\cdot"
    return rf"${mantissa}10^{{{floor(power + 1e-9)}}}$"


def save(figure: Canvas, path: Path, dpi: int = DPI, **metadata: str) -> None:
    """Write a figure, atomically, in the format of the path's ending (see check_figure)."""
    form = check_figure(path, dpi)
    import matplotlib.style

    with matplotlib.style.context(["default", RC]):
        write_named(
            path,
            partial(figure.savefig, format=form, dpi=dpi, metadata={**FORMATS[form], **metadata}),
        )


def grid(figure: Canvas, count: int, columns: int = 3, add: str = "subplot") -> list[Canvas]:
    """So many panels in rows of about one length, of at most ``columns``, which fill the page: none
    stays empty. ``add``: "subplot", or "subfigure" for parts of the figure.

    >>> with page() as figure:
    ...     panels = grid(figure, 5)
    >>> [panel.get_gridspec().ncols for panel in panels]
    [6, 6, 6, 6, 6]
    """
    sizes = [*map(len, np.array_split(range(count), -(-count // columns)))]
    whole = lcm(*sizes)
    cells = figure.add_gridspec(len(sizes), whole)
    return [
        getattr(figure, f"add_{add}")(cells[i, k * whole // n : (k + 1) * whole // n])
        for i, n in enumerate(sizes)
        for k in range(n)
    ]


def line(place: int, points: int = 0) -> Record:
    """Colour, dash and, for at most 12 points, marker of the line at a place in LINES."""
    color, dash, marker = LINES[place % len(LINES)]
    return {"color": color, "linestyle": dash, **({"marker": marker} if 0 < points <= 12 else {})}


def fixed(name: str) -> int | None:
    """The place in LINES of the first name of HOUSE in a label; None without one.

    >>> fixed("chain, gain 1.02"), fixed("margin 0.1, orthogonal"), fixed("strength 1")
    (2, 3, None)
    """
    text = re.sub(r"\bno margin\b", "margin none", name.lower().replace("_", " "))
    places = [
        (match.start(), -len(known), place)
        for known, place in HOUSE.items()
        if (match := re.search(rf"(?<![\w.]){re.escape(known)}(?![\w+]|\.\d)", text))
    ]
    return min(places)[2] if places else None


def _places(names: Iterable[str]) -> dict[str, int]:
    """The place in LINES of each line of a panel: that of the name, or else one that is free.

    >>> _places(["lambda 1", "orthogonal", "lambda 2"])
    {'lambda 1': 1, 'orthogonal': 0, 'lambda 2': 2}

    Raises ValueError for more lines than there are styles.
    """
    names = [*dict.fromkeys(names)]
    known: dict[str, int] = {}
    if len(names) > len(LINES):
        raise ValueError(
            f"{len(names)} lines are more than a figure tells apart; need at most {len(LINES)}"
        )
    for name in names:
        place = fixed(name)
        if place is not None and place not in known.values():
            known[name] = place
    free = iter([place for place in range(len(LINES)) if place not in known.values()])
    return {name: known[name] if name in known else next(free) for name in names}


def lines(names: Iterable[str], points: int = 0) -> dict[str, Record]:
    """``line`` of each line of a panel by its name (see _places)."""
    return {name: line(place, points) for name, place in _places(names).items()}


def typeset(text: str) -> str:
    """A study's words with their mathematics typeset.

    >>> typeset("copy, T = 200, lambda 1, W_hh")
    'copy, $T = 200$, $\\\\lambda$ 1, $W_{hh}$'
    """
    for pattern, mathematics in (
        (r"\b(lambda|alpha)\b", r"$\\\1$"),
        (r"\b([TN])\s=\s([\d,]*\d)", r"$\1 = \2$"),
        (r"\b([WUV])_(\w+)", r"$\1_{\2}$"),
    ):
        text = re.sub(pattern, mathematics, text)
    return text


def label_of(name: str) -> str:
    """A name that Matplotlib shows as it is: it takes what is between dollars for mathematics, and
    shows no label that begins with an underscore.

    >>> label_of("_a$b$")
    ' _a\\\\$b\\\\$'
    """
    return " " * name.startswith("_") + printable(name).replace("$", r"\$")


def plot(
    ax: Canvas, curves: Curves, yscale: str = "linear", above: float = 0, **settings: Any
) -> None:
    """The lines of a panel by their labels, each (x, y), in the house style; ``settings``: of the
    axes. ``yscale`` "auto": logarithmic if positive values span more than a factor of 30. On a
    logarithmic axis what is not ``above`` is left out.

    Raises ValueError for more lines than there are styles.
    """
    values = np.concatenate([np.ravel(y) for _, y in curves.values()])
    shown = values[np.isfinite(values) & (values > above)]
    if yscale == "auto":
        yscale = "log" if shown.size and shown.max() > 30 * shown.min() else "linear"
    for label, place in _places(curves).items():
        x, y = curves[label]
        y = np.where(np.asarray(y) > above, y, np.nan) if yscale == "log" else y
        ax.plot(x, y, label=label, **line(place, len(x)))
    ax.set(yscale=yscale, **settings)


def signed(*values: Array) -> Record:
    """Colours of signed quantities in one or several images: grey at 0, equal limits."""
    from matplotlib.colors import LinearSegmentedColormap

    limit = max(0.1, *(float(np.nanmax(abs(value))) for value in values))
    colors = LinearSegmentedColormap.from_list("refnet", COLD_TO_WARM)
    return {"cmap": colors, "vmin": -limit, "vmax": limit}


def legend_below(figure: Canvas) -> None:
    """One legend for all panels of a figure or a part of one, below them."""
    known = {
        label: handle
        for ax in figure.axes
        for handle, label in zip(*ax.get_legend_handles_labels())
    }
    if not known:
        return
    width = figure.bbox.width / figure.dpi
    texts = [fill(label, int((width - 0.6) / 0.055)) for label in known]
    widest = max(len(row) for text in texts for row in text.split("\n"))
    figure.legend(
        known.values(),
        texts,
        ncols=max(1, min(len(known), int(width / (0.055 * widest + 0.6)))),
        loc="outside lower center",
    )


def panels(figure: Canvas, draws: Sequence[Draw], columns: int = 3) -> None:
    """A panel for each of the functions of axes, each with its legend below."""
    for part, draw in zip(grid(figure, len(draws), columns, "subfigure"), draws):
        draw(part.subplots())
        legend_below(part)
