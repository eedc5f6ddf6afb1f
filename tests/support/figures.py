"""What is wrong with a figure, as far as a program can see it."""

import re
from itertools import combinations
from unittest.mock import patch

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.text import Text

from refnet.runs.style import fixed


def _drawn_texts(figure):
    """The texts that a figure shows, with their boxes in pixels."""
    shown, draw = [], Text.draw

    def record(text, renderer):
        if text.get_visible() and text.get_text().strip():
            shown.append((text.get_text(), text.get_window_extent(renderer)))
        draw(text, renderer)

    canvas = FigureCanvasAgg(figure)
    with patch.object(Text, "draw", record):
        canvas.draw()
    return shown


def numbers(figure):
    """What a figure's lines and images show, NaN where nothing is."""
    shown = [line.get_xydata() for line in figure.findobj(Line2D)]
    shown += [image.get_array() for image in figure.findobj(AxesImage)]
    return [np.ma.filled(np.ma.asarray(array, float), np.nan) for array in shown]


def _meet(a, b):
    width = min(a.x1, b.x1) - max(a.x0, b.x0)
    height = min(a.y1, b.y1) - max(a.y0, b.y0)
    return width > 2 and height > 2


def faults(figure):
    """Texts that leave the page or meet, empty panels, panels without a letter, ticks such as
    4 x 10^0, and names of the house with two styles."""
    texts = _drawn_texts(figure)
    page = figure.bbox
    errors = [
        f"{text!r} leaves the page"
        for text, box in texts
        if box.x0 < -1 or box.y0 < -1 or box.x1 > page.x1 + 1 or box.y1 > page.y1 + 1
    ]
    errors += [f"{a!r} meets {b!r}" for (a, x), (b, y) in combinations(texts, 2) if _meet(x, y)]
    errors += [f"tick {text}" for text, _ in texts if re.search(r"(times|cdot) *10\^\{0\}", text)]
    panels = [ax for ax in figure.axes if ax.get_label() != "<colorbar>"]
    errors += ["an empty panel" for ax in panels if not ax.has_data()]
    if len(panels) > 1:
        titles = [ax.get_title(loc="left") for ax in panels]
        errors += [f"no letter: {title!r}" for title in titles if "mathbf" not in title]
    styles = {}
    for ax in panels:
        for line, label in zip(*ax.get_legend_handles_labels()):
            if isinstance(line, Line2D) and fixed(label) is not None:
                styles.setdefault(label, set()).add(str((line.get_color(), line.get_linestyle())))
    errors += [f"{label!r} has {len(s)} styles" for label, s in styles.items() if len(s) > 1]
    return errors
