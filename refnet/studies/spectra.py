"""Figures 3 and 6 of Vorontsov et al.: loss curves, and how the singular values spread.

Checked by: tests/studies/test_figures.py.
"""

from refnet.runs.read import Record
from refnet.runs.rows import Canvas, finite
from refnet.studies.grid import STYLES, label_of

__all__ = ["evolution"]


def evolution(rows: dict[str, Record]) -> Canvas:
    """The loss of all runs in one panel, their names beside it, and for each with a spectrum a
    panel with the mean of the singular values, their standard deviation about it, the smallest and
    the largest."""
    from matplotlib.figure import Figure

    from refnet.runs.plots import tidy, words

    spectra = {
        label: row
        for label, row in rows.items()
        if all(value is not None for value in row["curve"]["s_mean"])
    }
    count = len(spectra) + 2
    figure = Figure(figsize=(9, 3.2 * -(-count // 2)), layout="constrained")
    losses, names, *places = figure.subplots(-(-count // 2), 2, squeeze=False).ravel()
    for number, (label, row) in enumerate(rows.items()):
        losses.plot(
            finite(row["curve"]["iteration"]),
            finite(row["curve"]["loss"]),
            label=label_of(label, [row]),
            marker=_marker(row),
            markersize=3,
            linestyle=STYLES[number % len(STYLES)],
        )
    losses.set(xlabel="iteration", ylabel=words("loss"))
    tidy(losses, names)
    for place, (label, row) in zip(places, spectra.items()):
        curve = {name: finite(values) for name, values in row["curve"].items()}
        at, mean, sd = curve["iteration"], curve["s_mean"], curve["s_sd"]
        place.fill_between(
            at,
            [m - d for m, d in zip(mean, sd)],
            [m + d for m, d in zip(mean, sd)],
            color="tab:green",
            alpha=0.3,
            label="mean s ± s.d.",
        )
        for name, color in (("s_max", "tab:blue"), ("s_mean", "tab:green"), ("s_min", "tab:red")):
            place.plot(
                at, curve[name], color=color, label=words(name), marker=_marker(row), markersize=3
            )
        place.set(
            title=label_of(label, [row]),
            xlabel="iteration",
            ylabel="s, singular values up to their sign",
        )
        place.title.set_fontsize(9)
        tidy(place, loc="upper left")
        low, high = place.get_ylim()
        place.set_ylim(low, high + 0.4 * (high - low))  # room for the legend
    for place in places[len(spectra) :]:
        place.remove()
    return figure


def _marker(row: Record) -> str | None:
    """A few points have a mark each, so that a single one is seen."""
    return "o" if len(row["curve"]["iteration"]) < 5 else None
