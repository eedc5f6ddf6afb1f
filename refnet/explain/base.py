"""What explaining a topic gives: words, tables and a figure, all computed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from refnet.batch import Array
from refnet.common.specs import read
from refnet.matrices.initializers import initialize
from refnet.runs.files import printable
from refnet.runs.read import DAMAGE, contents
from refnet.runs.rows import Canvas, table
from refnet.runs.style import page
from refnet.runs.unpack import npy_of
from refnet.training.specs import KINDS


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
    ``draw(figure)`` fills a Matplotlib figure of ``height`` inches, which ``figure()`` returns.
    """

    title: str
    source: str
    text: str
    tables: Sequence[Table]
    draw: Callable[[Canvas], None]
    height: float = 3.2

    def figure(self) -> Canvas:
        """Its figure, in the house style (``refnet.runs.style``)."""
        with page(self.height) as figure:
            self.draw(figure)
        return figure

    def __str__(self) -> str:
        parts = [printable(self.title), f"Source: {printable(self.source)}", self.text]
        parts += [f"{t.caption}\n\n{table(t.header, t.rows)}" for t in self.tables]
        return "\n\n".join(parts)


def draw_schur(ax: Canvas, T: Array) -> Canvas:
    """The sizes of a Schur form's entries, the eigenvalues on the diagonal; white is below 1e-3."""
    image = ax.imshow(
        np.log10(np.maximum(abs(T), 1e-4)), cmap="Greys", vmin=-3, vmax=0.5, interpolation="nearest"
    )
    ax.set(xlabel="from direction")
    return image


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
