"""Topics compute what they say, draw it, and refuse what they cannot take."""

import sys
from functools import cache
from subprocess import PIPE, STDOUT, Popen

import numpy as np
import pytest
from numpy.random import default_rng

from refnet.analysis.spectra import singular_values
from refnet.cli import main
from refnet.explain import TOPICS, bptt, noise, topic
from refnet.explain.base import named_matrix
from refnet.explain.vanishing import explain_starts, slope
from refnet.nets.recurrent import RecurrentNet
from support.arguments import refused
from support.figures import faults, numbers

SMALL = {
    "gradient-flow": {"size": 6, "length": 6, "updates": 3},
    "geometry": {"size": 4, "steps": 60},
    "orthogonalization": {"size": 20, "runs": 60},
    "variance": {"size": 20, "depth": 4, "runs": 30},
    "bptt": {"size": 6, "length": 8},
    "noise": {"size": 6, "updates": 4},
    "rounding": {"size": 8, "lengths": (2, 48), "cells": ("rnn",)},
}

NAMES = [
    pytest.param(name, marks=pytest.mark.needs("flint")) if name == "rounding" else name
    for name in TOPICS
]


@cache
def small(name, seed=0, **options):
    return topic(name)(seed=seed, **{"size": 10, **SMALL.get(name, {}), **options})


def rows(explanation, table=0):
    shown = explanation.tables[table]
    return {row[0]: dict(zip(shown.header, row)) for row in shown.rows}


@pytest.mark.needs("matplotlib")
@pytest.mark.parametrize("name", NAMES)
def test_figure_and_text(name):
    """A figure without faults, the same numbers for the same seed, all finite; a source."""
    shown, again = small(name), small.__wrapped__(name)
    assert shown.source in str(shown) and shown.text in str(shown) and str(shown) == str(again)
    for table in shown.tables:
        assert all(len(row) == len(table.header) for row in table.rows)
        for row in table.rows:
            assert all(np.isfinite(value) for value in row if isinstance(value, float)), row
    figure = shown.figure()
    drawn = zip(numbers(figure), numbers(again.figure()), strict=True)
    assert all(np.array_equal(*pair, equal_nan=True) for pair in drawn)
    assert not faults(figure)


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
    figure = shown.figure()
    assert not faults(figure)
    assert [ax.get_title(loc="left").split()[-1] for ax in figure.axes] == ["rnn", "lstm"]
    assert main(["explain", "spectra", "--cell", "rnn"]) == 2


def test_bptt_adds_up_to_the_gradient():
    """What the steps add sums to dL/dW; the product is below its bound, at gain 1.5 far below; each
    step's loss reaches its own state and no later one."""
    shown = rows(small("bptt"))
    for row in shown.values():
        assert row["sum over steps less dL/dW_hh"] < 1e-14
        assert row["largest s of dh_T/dh_0"] <= row["all: bound"] * (1 + 1e-12)
        assert row["one step: eta_t, mean"] >= row["its gain, mean"] * (1 - 1e-12)
    row = shown["orthogonal:gain=1.5"]
    assert row["all: bound"] > 5 * row["largest s of dh_T/dh_0"]
    losses = bptt._flow(np.eye(4), 5, 0).losses
    assert not np.triu(losses, 2).any() and (np.diagonal(losses, 1) > 0).all()


def test_noise_is_simulated():
    """The power of the noise is that of closed form, and the ratio orders the matrices as Orhan
    says: below the chain comes the orthogonal one, and below it the normal one."""
    chain, orthogonal = (
        noise._powers(named_matrix(spec, 10, default_rng(0)), default_rng(1))
        for spec in ("chain:gain=1.1", "orthogonal")
    )
    for signal, power, simulated in (chain, orthogonal):
        assert np.allclose(simulated, power, rtol=0.2)
        assert np.allclose(signal[:10], 1) or np.allclose(signal[:10], 1.1 ** (2 * np.arange(10)))
    ratio = {}
    for name, spec in noise.STARTS.items():
        signal, power, _ = noise._powers(noise._matrix(spec, 32, default_rng(0)), default_rng(1))
        ratio[name] = signal[-1] / power[-1]
    assert ratio["chain, gain 1.02"] > ratio["orthogonal"] > ratio["normal"]
    assert ratio["identity + chain"] > ratio["orthogonal"]


@pytest.mark.needs("flint")
def test_rounding_costs_what_the_condition_says():
    """float32 keeps some seven digits, about those that one ulp in the inputs leaves, and float64
    sixteen; a chaotic net loses them over time."""
    by_start = {(row[0], row[1]): row[2:] for row in small("rounding").tables[0].rows}
    for worst, median, left, double in by_start.values():
        assert worst <= median and worst > left - 1 and 7 < double - worst < 10
    assert by_start["rnn, chaotic", 48][0] < by_start["rnn, chaotic", 2][0] - 3
    assert by_start["rnn", 48][0] > 6


def test_memory_of_normal_and_other_matrices():
    table = rows(small("memory"))
    assert table[".9 orthogonal"]["J_tot"] == pytest.approx(1, abs=1e-9)
    assert table["chain, gain 1.02"]["J_tot"] > 2.9
    assert all(row[-1] < 1e-12 for row in small("memory").tables[1].rows)


def test_a_named_matrix_is_the_initialisers():
    row = topic("memory")(size=30, matrix="gaussian").tables[0].rows[0]
    W = named_matrix("gaussian", 30, default_rng(0))
    assert row[2] == singular_values(W).largest


def test_descent_from_a_large_matrix():
    """The rows end near the manifold; a Gaussian start of sd .1 would diverge."""
    assert topic("orthogonalization")(size=200, runs=2).tables[2].rows[-1][1] < 0.1


@pytest.mark.parametrize("size, seed", [(2, 0), (4, 1), (10, 6), (10, 36)])
def test_memory_of_an_orthogonal_matrix_whose_eigenvalues_round_below_1(size, seed):
    row = topic("memory")(size=size, seed=seed, matrix="orthogonal").tables[0].rows[0]
    assert str(row[-1]).endswith(f"(last {2 * size} steps)")
    assert float(str(row[-1]).split()[0]) == pytest.approx(1, abs=1e-9)


@pytest.mark.needs("matplotlib")
def test_closed_forms_and_schur_forms():
    """The table of memory knows what the figure draws: normal matrices have no strict part."""
    table = rows(small("memory"))
    assert table[".9 orthogonal"]["Henrici's departure"] < 1e-12
    assert table["chain, gain 1.02"]["Henrici's departure"] == pytest.approx(1.02 * 3)
    figure = small("memory").figure()
    lower = figure.subfigs[1].axes
    titles = [ax.get_title(loc="left").split("  ")[-1] for ax in lower if ax.images]
    assert titles == list(table)
    for ax in lower[:-1]:  # triangular: nothing below the diagonal
        image = np.asarray(ax.images[0].get_array())
        assert (np.tril(image, -1)[np.tril_indices(len(image), -1)] == -4).all()


@pytest.mark.needs("matplotlib")
@pytest.mark.parametrize("name", NAMES)
def test_figures_show_prediction_and_measurement(name):
    """In every topic at least one panel has a line called after what is predicted, in light grey or
    by a closed form, beside measured ones."""
    figure = small(name).figure()
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


def test_powers():
    assert rows(small("powers"))["orthogonal"]["n = 1000"] == pytest.approx(1, abs=1e-9)
    assert rows(small("powers"))["chain, gain 1.02"]["n = 64"] == 0
    errors = rows(small("powers"), 1)
    assert [errors[n]["squaring"] for n in (78, 79, 90)] == ["0", "-1", "-120"]


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
        figure = topic(name)(matrix=spec).figure()
        texts = [text.get_text() for text in figure.findobj(Text) if "of" in text.get_text()]
        assert any(r"of\$x\$.npy" in text for text in texts)
        assert not any("of$x$" in text for text in texts)


def test_one_matrix(tmp_path):
    W = np.array([[0.0, 1.0], [0.0, 0.0]])
    np.save(tmp_path / "W.npy", W)
    spec = str(tmp_path / "W.npy")
    assert (named_matrix(spec, 5, default_rng(0)) == W).all()
    assert rows(topic("spectra")(matrix=spec))[spec]["numerical radius"] == pytest.approx(0.5)
    for name in ("spectra", "memory", "powers"):
        assert "2 units" in topic(name)(matrix=spec).tables[0].caption
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
        with refused(message):
            named_matrix(str(tmp_path / bad), 5, default_rng(0))
    with refused("has no option"):
        named_matrix("chain:gian=1", 5, default_rng(0))


@pytest.mark.needs("matplotlib")
def test_commands(tmp_path, capsys):
    figure = tmp_path / "f.svg"
    words = "explain powers --size 6 --matrix chain:gain=2 --dpi 50 --figure".split()
    assert main([*words, str(figure)]) == 0
    said = capsys.readouterr().out
    assert "chain:gain=2" in said and f"figure: {figure}" in said
    assert figure.read_bytes().startswith(b"<?xml")
    assert main(["errata", "14"]) == 0
    assert capsys.readouterr().out.startswith("## Erratum 14")


@pytest.mark.parametrize(
    "words, message",
    [
        ("errata 99", "no erratum 99"),
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
