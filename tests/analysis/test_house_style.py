"""The house style: what a print without colour, a legend and a reader can tell apart."""

import re
from itertools import combinations

import numpy as np
import pytest

from refnet.cells import CELLS
from refnet.cli import main
from refnet.runs import style
from support.arguments import refused
from support.figures import faults

pytestmark = pytest.mark.needs("matplotlib")


def lightness(color):
    """CIE L* of "#rrggbb"."""
    parts = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    y = float(linear @ [0.2126, 0.7152, 0.0722])
    return 116 * y ** (1 / 3) - 16 if y > 0.008856 else 903.3 * y


def alike(lines):
    """Pairs that a print without colour does not tell apart."""
    return [
        (a, b)
        for a, b in combinations(lines, 2)
        if a[1] == b[1] and abs(lightness(a[0]) - lightness(b[0])) < 15
    ]


def test_lines_differ_in_dash_or_grey():
    assert not alike(style.LINES)
    assert len({marker for *_, marker in style.LINES}) == len(style.LINES)
    assert alike([("#0072b2", "-", "o"), ("#d55e00", "-", "s")])  # a change of colour alone


def test_a_legend_shows_more_than_one_period_of_each_dash():
    length = style.RC["legend.handlelength"] * style.RC["legend.fontsize"]
    dashes = [dash[1] for _, dash, _ in style.LINES if dash != "-"]
    assert dashes and all(1.5 * sum(dash) * style.RC["lines.linewidth"] < length for dash in dashes)


def test_signed_colours_grow_lighter_and_are_grey_at_zero():
    light = [lightness(color) for color in style.COLD_TO_WARM]
    assert min(np.diff(light)) > 5
    (zero,) = {style.COLD_TO_WARM[2][i : i + 2] for i in (1, 3, 5)}
    assert zero
    limits = style.signed(np.array([-3.0, 1.0, np.nan]))
    assert (limits["vmin"], limits["vmax"]) == (-3, 3)


def test_a_name_has_one_style_everywhere():
    assert {*CELLS} <= {name.replace(" ", "_") for name in style.HOUSE}
    alone = {name: style.lines([name])[name] for name in style.HOUSE}
    for name in style.HOUSE:
        assert style.lines(["a strange run", "another", name])[name] == alone[name]
    assert style.lines(["feeding"])["feeding"] == style.line(0)  # holds no name
    for label, known in (
        ("chain, gain 1.02", "chain"),
        (".9 orthogonal", "orthogonal"),
        ("SRNN+OPEN", "open"),
        ("no margin", "margin none"),
        ("margin 0.1, orthogonal", "margin 0.1"),
        ("Glorot normal", "glorot normal"),
        ("gru_before", "gru before"),
    ):
        assert style.fixed(label) == style.HOUSE[known], label
    names = [f"run {n}" for n in range(len(style.LINES) + 1)]
    with refused("11 lines are more than a figure tells apart"):
        style.lines(names)


@pytest.mark.parametrize(
    "limits, wanted",
    [
        ((0.5, 8), {"1", "2", "5"}),
        ((3, 7), {"3", "4", "5", "6", "7"}),
        ((0.1, 1000), {"0.1", "1", "10", "100", "1,000"}),
        ((1e-9, 1), {r"$10^{-8}$", r"$10^{-6}$"}),
    ],
)
def test_ticks_of_a_logarithmic_axis(limits, wanted):
    with style.page(2) as figure:
        ax = figure.subplots()
        style.plot(ax, {"": ([0, 1], limits)}, "log")
    assert not faults(figure)
    shown = {text.get_text() for text in ax.get_yticklabels() + ax.get_yticklabels(minor=True)}
    assert wanted <= shown and not any(re.search("times|cdot", text) for text in shown)


def test_faults_are_found():
    """The program that looks at figures sees what it is made for."""
    with style.page(2) as figure:
        left, right = figure.subplots(1, 2)
        left.plot([1, 2], label="lstm", color="red")
        left.plot([2, 1], label="lstm", color="blue")
        left.text(0.5, 0.5, "under", transform=left.transAxes)
        left.text(0.5, 0.5, "over", transform=left.transAxes)
        figure.text(0.99, 0.5, "a long text that leaves the page")
    right.set_title("", loc="left")
    text = "; ".join(faults(figure))
    for word in ("leaves the page", "'under' meets 'over'", "empty", "no letter", "2 styles"):
        assert word in text


def test_panels_fill_the_page():
    for count, rows in ((1, [1]), (4, [2, 2]), (5, [3, 2]), (8, [3, 3, 2]), (11, [3, 3, 3, 2])):
        with style.page(2) as figure:
            panels = style.grid(figure, count)
            for ax in panels:
                ax.plot([1, 2])
        figure.draw_without_rendering()
        by_row = {}
        for ax in panels:
            by_row.setdefault(ax.get_subplotspec().rowspan.start, []).append(ax)
        assert [*map(len, by_row.values())] == rows
        for row in by_row.values():
            assert max(ax.get_position().x1 for ax in row) > 0.95


MAGIC = {"pdf": b"%PDF", "svg": b"<?xml", "png": b"\x89PNG"}


def test_settings_of_the_users_matplotlib_do_not_matter(tmp_path):
    """To the bytes of each format."""
    import matplotlib

    def drawn():
        with style.page(2) as figure:
            style.plot(figure.subplots(), {"lstm": ([1, 2, 3], [3, 1, 2])}, title="$T = 3$")
        for form in MAGIC:
            style.save(figure, tmp_path / f"x.{form}", 60)
        return [(tmp_path / f"x.{form}").read_bytes() for form in MAGIC]

    usual = drawn()
    assert all(data.startswith(start) for data, start in zip(usual, MAGIC.values()))
    with matplotlib.rc_context({"font.size": 30, "axes.grid": True, "savefig.dpi": 20}):
        assert drawn() == usual


@pytest.mark.parametrize(
    "words", ["explain powers", "analyse nowhere", "compare nowhere", "study table-iii --quick"]
)
@pytest.mark.parametrize(
    "options, message",
    [
        ("--figure a.gif", ".pdf, .png or .svg"),
        ("--figure a.png --dpi 9", "--dpi is 9; need at least 10"),
    ],
)
def test_an_unusable_figure_is_one_error_before_any_work(
    words, options, message, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert main([*words.split(), *options.split()]) == 2
    captured = capsys.readouterr()
    assert message in captured.err and captured.err.count("\n") == 1 and not captured.out
    assert not [*tmp_path.iterdir()]
