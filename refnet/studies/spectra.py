"""Figures 3 and 6 of Vorontsov et al.: loss curves, and how the singular values spread.

Checked by: tests/studies/test_figures.py.
"""

from refnet.runs.plots import words
from refnet.runs.read import Record
from refnet.runs.rows import Canvas, finite
from refnet.runs.style import grid, legend_below, page, plot
from refnet.studies.grid import label_of

__all__ = ["evolution"]


def evolution(rows: dict[str, Record], title: str = "") -> Canvas:
    """The loss of all runs in one panel, their names below it, and for each with a spectrum a
    panel with the mean of the singular values, their standard deviation about it, the smallest and
    the largest."""
    spectra = {
        label: row
        for label, row in rows.items()
        if all(value is not None for value in row["curve"]["s_mean"])
    }
    height = 1.8 * -(-len(spectra) // 3) + 0.3
    with page(2.8 + height * bool(spectra), title) as figure:
        parts = figure.subfigures(2, 1, height_ratios=(2.8, height)) if spectra else [figure]
        curves = {
            label_of(label, [row]): [finite(row["curve"][key]) for key in ("iteration", "loss")]
            for label, row in rows.items()
        }
        plot(parts[0].subplots(), curves, xlabel="iteration", ylabel=words("loss"))
        legend_below(parts[0])
        if spectra:
            _draw_spectra(parts[1], spectra)
    return figure


def _draw_spectra(figure: Canvas, spectra: dict[str, Record]) -> None:
    for panel, (label, row) in zip(grid(figure, len(spectra)), spectra.items()):
        curve = {name: finite(values) for name, values in row["curve"].items()}
        at, mean, sd = curve["iteration"], curve["s_mean"], curve["s_sd"]
        panel.fill_between(
            at, mean - sd, mean + sd, color="lightgrey", label=r"mean $s$ $\pm$ s.d."
        )
        spread = {words(name): (at, curve[name]) for name in ("s_mean", "s_max", "s_min")}
        plot(panel, spread, title=label_of(label, [row]), xlabel="iteration")
    figure.supylabel("singular values $s$ up to their sign")
    legend_below(figure)
