"""Topics compute what they say, draw it, and refuse what they cannot take."""

import sys
from functools import cache
from subprocess import PIPE, STDOUT, Popen

import numpy as np
import pytest
from numpy.random import default_rng

from refnet.analysis.spectra import singular_values
from refnet.cli import main
from refnet.explain.base import named_matrix, save
from refnet.explain.cli import TOPICS as NAMES
from refnet.explain.topics import TOPICS
from refnet.explain.vanishing import explain_starts, slope
from refnet.nets.recurrent import RecurrentNet

SMALL = {
    "gradient-flow": {"size": 6, "length": 6, "updates": 3},
    "geometry": {"size": 4, "steps": 60},
    "orthogonalization": {"size": 20, "runs": 60},
    "variance": {"size": 20, "depth": 4, "runs": 30},
}


@cache
def small(name, seed=0, **options):
    return TOPICS[name](seed=seed, **{"size": 10, **SMALL.get(name, {}), **options})


def drawn(explanation):
    """Its figure."""
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    explanation.draw(figure)
    return figure


def rows(explanation, table=0):
    shown = explanation.tables[table]
    return {row[0]: dict(zip(shown.header, row)) for row in shown.rows}


def test_names_of_the_command_are_the_topics():
    assert tuple(TOPICS) == NAMES


@pytest.mark.needs("matplotlib")
@pytest.mark.parametrize("name", TOPICS)
def test_figure_and_text(name, tmp_path):
    """A figure in both formats, the same bytes for the same seed; finite numbers; a source."""
    shown, again = small(name), small.__wrapped__(name)
    assert shown.source in str(shown) and shown.text in str(shown)
    for table in shown.tables:
        assert all(len(row) == len(table.header) for row in table.rows)
        for row in table.rows:
            assert all(np.isfinite(value) for value in row if isinstance(value, float)), row
    for form, start in (("png", b"\x89PNG"), ("svg", b"<?xml")):
        save(shown, tmp_path / f"a.{form}")
        save(again, tmp_path / f"b.{form}")
        first, second = ((tmp_path / f"{n}.{form}").read_bytes() for n in "ab")
        assert first.startswith(start) and first == second


def test_flow_keeps_the_norm_with_margin_0():
    table = rows(small("gradient-flow"))
    name = next(name for name in table["0"] if name.startswith("after "))
    assert table["0"][name] == pytest.approx(1, abs=1e-12)
    assert table["0"]["smallest s"] == pytest.approx(1, abs=1e-12)
    assert table["none"]["largest s"] > 1


def test_starts_follow_the_theory():
    """An orthogonal start loses sqrt(chi) a step; tanh' unsquared, or chi itself, would be far off.
    H = 64 and 16 examples leave some hundredths of the mean slope."""
    shown = explain_starts(("orthogonal", "chain"), ("rnn", "gru"), size=64, length=40)
    rows = {(cell, start): row for cell, start, *row in shown.tables[0].rows}
    left, step, theory, _ = rows["rnn", "orthogonal"]
    assert step == pytest.approx(theory, rel=0.02)
    assert abs(theory**2 - step) > 0.05
    assert rows["gru", "orthogonal"][2] is None
    params = RecurrentNet(2, 8, 1).init(default_rng(0), np.float64, recurrent="orthogonal")
    small = slope(params["Whh"], 1e-6 * params["Wxh"])
    assert small == pytest.approx(1, abs=1e-3)  # tanh is linear at 0; 1000 steps towards it


@pytest.mark.needs("matplotlib")
def test_the_figure_of_starts(tmp_path):
    shown = explain_starts(("orthogonal", "chain"), ("rnn", "lstm"), size=6, length=9)
    assert [ax.get_title() for ax in drawn(shown).axes] == ["rnn", "lstm"]
    assert main(["explain", "spectra", "--cell", "rnn"]) == 2


def test_memory_of_normal_and_other_matrices():
    table = rows(small("memory"))
    assert table[".9 orthogonal"]["J_tot"] == pytest.approx(1, abs=1e-9)
    assert table["chain, gain 1.02"]["J_tot"] > 2.9
    assert all(row[-1] < 1e-12 for row in small("memory").tables[1].rows)


def test_a_named_matrix_is_the_initialisers():
    row = TOPICS["memory"](size=30, matrix="gaussian").tables[0].rows[0]
    W = named_matrix("gaussian", 30, default_rng(0))
    assert row[2] == singular_values(W).largest


def test_descent_from_a_large_matrix():
    """The rows end near the manifold; a Gaussian start of sd .1 would diverge."""
    assert TOPICS["orthogonalization"](size=200, runs=2).tables[2].rows[-1][1] < 0.1


@pytest.mark.parametrize("size, seed", [(2, 0), (4, 1), (10, 6), (10, 36)])
def test_memory_of_an_orthogonal_matrix_whose_eigenvalues_round_below_1(size, seed):
    row = TOPICS["memory"](size=size, seed=seed, matrix="orthogonal").tables[0].rows[0]
    assert str(row[-1]).endswith(f"(last {2 * size} steps)")
    assert float(str(row[-1]).split()[0]) == pytest.approx(1, abs=1e-9)


@pytest.mark.needs("matplotlib")
def test_closed_forms_and_schur_forms():
    """The table of memory knows what the figure draws: normal matrices have no strict part."""
    table = rows(small("memory"))
    assert table[".9 orthogonal"]["Henrici's departure"] < 1e-12
    assert table["chain, gain 1.02"]["Henrici's departure"] == pytest.approx(1.02 * 3)
    figure = drawn(small("memory"))
    lower = figure.subfigs[1].axes
    assert [ax.get_title() for ax in lower] == list(table)
    for ax in lower:  # triangular: nothing below the diagonal
        image = np.asarray(ax.images[0].get_array())
        assert (np.tril(image, -1)[np.tril_indices(len(image), -1)] == -4).all()


@pytest.mark.needs("matplotlib")
@pytest.mark.parametrize("name", TOPICS)
def test_figures_show_prediction_and_measurement(name):
    """In every topic at least one panel has a line called after what is predicted, in light grey or
    by a closed form, beside measured ones."""
    figure = drawn(small(name))
    labels = {
        label
        for ax in figure.findobj(lambda artist: hasattr(artist, "get_legend_handles_labels"))
        for label in ax.get_legend_handles_labels()[1]
        if hasattr(ax, "plot")
    }
    words = ("predicted", "closed form", "bound", "limit", "derived", "map", "radius", "root")
    assert any(word in label for label in labels for word in words), labels
    axes = figure.findobj(lambda artist: hasattr(artist, "get_xlabel"))
    for ax in axes:
        if ax.get_visible() and ax.has_data() and ax.get_label() != "<colorbar>":
            assert ax.get_xlabel(), (name, ax.get_title())


def test_powers_and_geometry():
    assert rows(small("powers"))["orthogonal"]["n = 1000"] == pytest.approx(1, abs=1e-9)
    assert rows(small("powers"))["chain, gain 1.02"]["n = 64"] == 0
    errors = rows(small("powers"), 1)
    assert [errors[n]["squaring"] for n in (78, 79, 90)] == ["0", "-1", "-120"]
    table = small("geometry").tables[0]
    orders = {
        metric: {row[0]: float(row[-1]) for row in table.rows if row[2] == metric}
        for metric in ("both", "canonical", "euclidean")
    }
    assert orders["both"] == pytest.approx({"cayley": 3, "polar": 3, "qr": 2}, abs=0.02)
    assert orders["canonical"] == pytest.approx({"cayley": 3, "polar": 2, "qr": 2}, abs=0.1)
    assert orders["euclidean"] == pytest.approx({"cayley": 2, "polar": 3, "qr": 2}, abs=0.1)


def test_derived_moments_are_simulated():
    for row in small("orthogonalization", runs=400).tables[0].rows:
        _, printed, derived, simulated, error = row
        assert abs(simulated - derived) <= 5 * error < abs(printed - derived)


@pytest.mark.needs("matplotlib")
def test_a_files_name_is_drawn_as_it_is(tmp_path):
    from matplotlib.text import Text

    spec = str(tmp_path / "of$x$.npy")
    np.save(spec, np.array([[0.0, 1.0], [0.0, 0.0]]))
    for name in ("spectra", "memory", "powers"):
        figure = drawn(TOPICS[name](matrix=spec))
        texts = [text.get_text() for text in figure.findobj(Text) if "of" in text.get_text()]
        assert any(r"of\$x\$.npy" in text for text in texts)
        assert not any("of$x$" in text for text in texts)


def test_one_matrix(tmp_path):
    W = np.array([[0.0, 1.0], [0.0, 0.0]])
    np.save(tmp_path / "W.npy", W)
    spec = str(tmp_path / "W.npy")
    assert (named_matrix(spec, 5, default_rng(0)) == W).all()
    assert rows(TOPICS["spectra"](matrix=spec))[spec]["numerical radius"] == pytest.approx(0.5)
    for name in ("spectra", "memory", "powers"):
        assert "2 units" in TOPICS[name](matrix=spec).tables[0].caption
    np.save(tmp_path / "tall.npy", np.ones((3, 2)))
    np.save(tmp_path / "empty.npy", np.ones((0, 0)))
    np.save(tmp_path / "endless.npy", np.full((2, 2), np.inf))
    (tmp_path / "bad.npy").write_bytes(b"no array")
    for bad, message in (
        ("tall.npy", "real square"),
        ("bad.npy", "not a readable"),
        ("empty.npy", "real square"),
        ("endless.npy", "not finite"),
        ("none.npy", "not a readable"),
    ):
        with pytest.raises(ValueError, match=message):
            named_matrix(str(tmp_path / bad), 5, default_rng(0))
    with pytest.raises(ValueError, match="has no option"):
        named_matrix("chain:gian=1", 5, default_rng(0))


@pytest.mark.needs("matplotlib")
def test_commands(tmp_path, capsys):
    figure = tmp_path / "f.png"
    words = "explain powers --size 6 --matrix chain:gain=2 --figure".split()
    assert main([*words, str(figure)]) == 0
    assert "chain:gain=2" in capsys.readouterr().out and figure.exists()
    assert main(["errata", "14"]) == 0
    assert capsys.readouterr().out.startswith("## Erratum 14")


@pytest.mark.parametrize(
    "words, message",
    [
        ("errata 99", "no erratum 99"),
        ("explain powers --figure a.gif", "png or .svg"),
        ("explain geometry --matrix chain", "not for geometry"),
        ("explain powers --size 1", "at least 2 units"),
    ],
)
def test_what_a_command_cannot_do_is_refused(words, message, capsys):
    assert main(words.split()) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


@pytest.mark.parametrize("words", [["explain", "powers"], ["analyse", "x"], ["compare", "x"]])
def test_a_figure_that_cannot_be_written_is_refused_first(words, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("refnet.explain.cli._show", lambda *_: pytest.fail("computed"))
    for name in (str(tmp_path / "no" / "x.png"), "/proc/x.png"):
        with pytest.raises(SystemExit) as left:
            main([*words, "--figure", name])
        assert left.value.code == 2 and f"{name} cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize("words, errors", [("errata", PIPE), ("study no-study", STDOUT)])
def test_output_that_nobody_reads_to_its_end(words, errors):
    """`refnet errata | head -1` ends without a traceback, like other programs (128 + SIGPIPE); and
    so does an error in the same pipe, as of `refnet study NAME 2>&1 | head -1`."""
    with Popen([sys.executable, "-m", "refnet", *words.split()], stdout=PIPE, stderr=errors) as run:
        run.stdout.close()
        assert errors == STDOUT or run.stderr.read() == b""
    assert run.returncode == 141
