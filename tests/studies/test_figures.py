"""The figures of studies, and the curves that they keep."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.image import imread

from refnet import cli
from refnet.analysis.flow import gradient_norms
from refnet.runs.style import save
from refnet.studies import causes, examples, flow, orhan, vorontsov, work
from refnet.studies.catalogue import STUDIES
from refnet.studies.grid import _curves
from refnet.studies.manchev import pixel_by_pixel
from refnet.studies.spectra import evolution
from refnet.studies.store import Store
from refnet.studies.study import View
from refnet.training.experiment import build
from refnet.training.protocols import preset
from support.figures import faults
from support.studies import (
    by_name,
    cells_of,
    curve_row,
    figure_of,
    flow_row,
    jobs_of,
    row,
    tiny_study,
)

pytestmark = pytest.mark.needs("matplotlib")


def test_a_figure_that_cannot_be_written_or_drawn_hides_nothing(tmp_path, monkeypatch, capsys):
    """As in a folder of somebody else, or with Matplotlib's settings for a LaTeX that is not
    there."""

    def refused(self):
        raise PermissionError(13, "Permission denied", str(self.folder / ".lock"))

    def undrawn(*ask):
        raise RuntimeError("latex could not be found")

    drawn = replace(tiny_study(), figure=lambda *ask: "a figure", table=lambda *ask: "the table")
    monkeypatch.setattr("refnet.studies.catalogue.find", lambda name: drawn)
    monkeypatch.setattr(Store, "held", refused)
    assert cli.main(["study", "tiny", "--table", "--folder", str(tmp_path)]) == 0
    output = capsys.readouterr()
    assert "the table" in output.out and "the figure could not be written: " in output.err
    drawn = replace(drawn, figure=undrawn)
    monkeypatch.setattr("refnet.studies.runner.run", lambda *ask: {"a run": "its error"})
    assert cli.main(["study", "tiny", "--folder", str(tmp_path)]) == 2
    output = capsys.readouterr()
    assert "the table" in output.out and output.err.splitlines() == [
        "Matplotlib could not draw the figure: latex could not be found",
        "failed: a run: its error",
    ]


def test_the_norms_in_training_are_those_of_the_nets_passed_through():
    def net(**options):
        return preset(
            "copy:samples=50", length=5, hidden=6, backend="reference", dtype="float64", **options
        )

    config = net(transition="svd:margin=0")
    norms, values = flow.norms_in_training(config, 5, 2)
    assert norms.shape == (3, 26) and values.shape == (3, 6)
    e = build(config)
    start = e.start()[0]
    assert np.array_equal(norms[0], gradient_norms(e.net, start, e.task.batch(0, 50, 0)))
    assert not np.array_equal(norms[0], norms[1])
    # margin 0 and no activation: the norm is kept through time, and the spectrum is 1
    assert np.allclose(norms / norms[:, -1:], 1, rtol=1e-9) and np.allclose(values, 1)
    free = net(transition="svd:margin=none", recurrent="glorot_normal")
    wider, spread = flow.norms_in_training(free, 3, 2)
    assert np.ptp(wider[0]) > 0.1 * wider[0].max() and np.ptp(spread[0]) > 0.1


def test_figure_3_of_manchev_and_spratling():
    """Its lines are the rows', on the examples that an iteration of the table's runs has."""

    def row(shift):
        return {
            "state": "begun",
            "curve": {
                "iteration": [1000, 2000],
                "accuracy": [shift, shift + 0.5],
                "defect": [shift + 1, shift + 1.5],
                "spectral_radius": [shift + 2, shift + 2.5],
                "gradient_norm": [shift + 3, shift + 3.5],
            },
        }

    rows = {"SRNN+OINIT": row(1), "SRNN+OPEN": row(2), "SRNN": row(3)}
    figure = pixel_by_pixel(rows)
    accuracy, oinit, opened = figure.axes
    assert len(figure.subfigs[0].legends[0].get_texts()) == 3
    assert [list(line.get_ydata()) for line in accuracy.lines] == [[n, n + 0.5] for n in (1, 2, 3)]
    (batch,) = {job.config.batch for job in jobs_of("table-ii")}
    for place, shift in (oinit, 1), (opened, 2):
        assert place.get_title(loc="left").endswith(("OINIT", "OPEN")[shift - 1])
        assert [list(line.get_ydata()) for line in place.lines] == [
            [shift + n, shift + n + 0.5] for n in (1, 2, 3)
        ]
        assert all(list(line.get_xdata()) == [batch, 2 * batch] for line in place.lines)
    assert len(pixel_by_pixel({"SRNN": row(0)}).axes) == 1


@pytest.mark.parametrize(
    "norms, low, high",
    [([[1.0, 1.0], [1.0, 1.0]], "1", "1"), ([[1.0, 2.0], [9.0, 3.0]], "0.5", "3")],
)
def test_figure_2_of_vorontsov_et_al(tmp_path, norms, low, high):
    rows = {flow.FLOWS.job("margin 0", 0, False).name: flow_row("0", norms)}
    text = STUDIES["figure-2-flow"].table(by_name(rows))
    assert [cell.split()[0] for cell in cells_of(text.splitlines()[2])[2:4]] == [low, high]
    save(figure_of("figure-2-flow", rows), tmp_path / "figure.png")
    assert imread(tmp_path / "figure.png").std() > 0.01


@pytest.mark.parametrize(
    "name, measured, small",
    [
        ("table-5", vorontsov.TIMINGS, {"hidden": 4, "steps": 1}),
        ("figure-2-flow", flow.FLOWS, {"length": 5, "updates": 30}),
    ],
)
def test_a_table_reads_what_its_function_measures(name, measured, small):
    runs = STUDIES[name].jobs(View(quick=True))
    rows = {job.name: measured.function(**{**job.arguments, **small}) for job in runs}
    assert len(rows) == len(measured.cases)
    assert "not run" not in STUDIES[name].table(by_name(rows, quick=True))


def test_a_study_draws_what_it_has_and_nothing_without_rows():
    """Any seed's rows, those of runs of another kind, or none."""

    def rows_of(name, text, row):
        known = {job.name: row for job in jobs_of(name, 3) if text in job.name}
        assert known
        return figure_of(name, known, 3)

    flow_of = flow_row("1", [[1.0, 1.0], [1.0, 1.0]])
    assert len(rows_of("figure-2-flow", "margin 1, seed 1", flow_of).axes[0].images) == 1
    curves = curve_row(mse=[3, 2, 1], spectral_radius=[None] * 3, gradient_norm=[1, 1, 1])
    assert rows_of("examples", "LSTM", curves).axes[0].lines
    assert rows_of("causes", "gradient in", {"ratio": 1}) is None
    for study in STUDIES.values():
        assert study.figure is None or study.figure(View(seeds=3)) is None


def test_a_curve_keeps_the_beginning_of_a_long_run():
    job = jobs_of("table-ii")[0]
    rows = [{"iteration": 1000 * (n + 1)} for n in range(1000)]
    points = work._curve(job, rows)["iteration"]
    assert len(points) <= 100 and points[:5] == [1000, 2000, 3000, 4000, 5000]
    assert points[-1] == 1_000_000 and max(np.diff(points)) < 30_000
    assert work._curve(job, rows[:100])["iteration"] == [row["iteration"] for row in rows[:100]]


def test_losses_of_the_chain():
    """Of tasks.Copy's batches, the loss and the same without probabilities below 1e-7."""
    losses = orhan.losses("chain", 0, 200, 12)
    assert losses["first_radius"] > 0.9 and losses["median"] <= losses["largest"]
    assert losses["clipped"] == pytest.approx(losses["largest"]) and losses["large"] == 0
    rows = {
        job.name: {**losses, "largest": 3e14} for job in jobs_of("orhan-pitkow") if not job.config
    }
    line = STUDIES["orhan-pitkow"].table(by_name(rows)).splitlines()[-2]
    assert cells_of(line)[0] == "chain" and "3e+14" in line


def test_figures_3_and_6_of_vorontsov_et_al():
    """A panel of losses, and one for each run that has a spectrum: its mean, the band of a
    standard deviation, its extremes."""
    rows = {
        "0.1": curve_row(
            "begun",
            s_min=[1, 0.9, 0.8],
            s_mean=[1, 1.01, 1.02],
            s_max=[1, 1.1, 1.2],
            s_sd=[0, 0.1, 0.2],
        ),
        "LSTM": curve_row(**dict.fromkeys(("s_min", "s_mean", "s_max", "s_sd"), [None] * 3)),
    }
    figure = evolution(rows)
    losses, spectrum = figure.axes
    assert "None" not in {line.get_marker() for line in (*losses.lines, *spectrum.lines)}
    assert (
        [line.get_label() for line in losses.lines]
        == ["0.1, not finished", "LSTM"]
        == [text.get_text() for text in figure.subfigs[0].legends[0].get_texts()]
    )
    assert spectrum.get_title(loc="left").endswith("  0.1, not finished")
    lines = {line.get_label(): list(line.get_ydata()) for line in spectrum.lines}
    assert lines == {
        f"{name} $s$": values
        for name, values in (
            ("smallest", [1, 0.9, 0.8]),
            ("mean", [1, 1.01, 1.02]),
            ("largest", [1, 1.1, 1.2]),
        )
    }
    low, high = spectrum.collections[0].get_paths()[0].get_extents().intervaly
    assert low == pytest.approx(0.82) and high == pytest.approx(1.22)


def test_curves_have_a_panel_each_and_an_axis_that_shows_the_short_ones():
    long = curve_row()
    long["curve"]["iteration"] = [100, 10_000, 60_000]
    figure = _curves({"a": [curve_row()], "b": [long, curve_row()]}, ("accuracy", "loss"), "")
    assert [(axes.get_ylabel(), axes.get_xscale(), len(axes.lines)) for axes in figure.axes] == [
        ("accuracy", "log", 3),
        ("training loss, with penalties", "log", 3),
    ]  # of two seeds both
    assert len(figure.axes[0].collections) == 1  # the band of the two seeds
    figure = _curves({"a, 1": [curve_row()], "b, 1": [long]}, ("accuracy", "loss"), ",")
    titles = [(axes.get_title(loc="left")[-1], axes.get_xscale()) for axes in figure.axes]
    assert titles == [("a", "linear"), ("b", "linear")]


def test_long_runs_have_ticks_that_do_not_touch_and_many_curves_a_legend_beneath():
    """Nothing is drawn on top of anything else, and the picture is as wide as a page."""
    row = curve_row(mse=[3, 2, 1])
    row["curve"]["iteration"] = [50_000, 100_000, 300_000]
    figure = _curves(
        {f"a run with a long name, {n}": [row] for n in range(7)}, ("accuracy", "loss", "mse"), ""
    )
    assert not faults(figure) and figure.get_figwidth() <= 6.5
    for axes in figure.axes:
        labels = [text.get_text() for text in axes.get_xticklabels()]
        assert len(labels) > 2 and labels[-1].endswith(",000")


def test_a_run_that_has_not_ended_is_no_part_of_a_band():
    """Its last value is not its end. With none that has ended, the farthest is drawn alone."""
    names = [f"FF+OPEN, seed {seed}" for seed in range(3)]
    rows = [
        {**curve_row(state, accuracy=[at] * 3), "iterations": iterations}
        for state, at, iterations in (
            ("finished", 0.9, 300),
            ("begun", 0.1, 200),
            ("diverged", 0.7, 300),
        )
    ]
    for known, *expected in (
        (rows, 0.9, 0.7),
        (rows[1:2], 0.1),
        ([rows[1], {**rows[1], "iterations": 100, "curve": rows[0]["curve"]}], 0.1),
    ):
        panel = figure_of("table-iii", dict(zip(names, known)), 3).axes[0]
        assert [line.get_ydata()[-1] for line in panel.lines] == pytest.approx(expected)
        assert ("not finished" in panel.lines[0].get_label()) == (expected == [0.1])
        assert len(panel.collections) == (expected == [0.9, 0.7])


@pytest.mark.parametrize(
    "name, first", [("table-iii", "FF+OPEN"), ("examples", "temporal order T = 60, open")]
)
def test_a_run_that_diverged_before_its_first_evaluation_is_in_no_curve(name, first):
    whole = row(accuracy=0.9) | curve_row(
        mse=[None] * 3, spectral_radius=[1] * 3, gradient_norm=[1] * 3
    )
    study, nothing = (
        STUDIES[name],
        row("diverged", 0) | {"curve": dict.fromkeys(whole["curve"], [])},
    )

    def row_of(job):
        return whole if job.name == f"{first}, seed 1" else nothing

    assert len(study.figure(View(row_of, 2)).axes[0].lines) == 1
    assert study.table(View(row_of, 2)).count("2 diverged") == len(study.jobs(View())) - 1
    assert study.figure(View(lambda job: nothing, 2)) is None


@pytest.mark.parametrize("length, drawn", [(1, False), (2, True)])
def test_one_evaluation_is_no_curve(length, drawn):
    row = curve_row("begun")
    row["curve"] = {
        name: row["curve"].get(name, [1, 2, 3])[:length]
        for name in ("iteration", "accuracy", "loss")
    }
    figure = figure_of("table-iii", {job.name: row for job in jobs_of("table-iii")})
    assert (figure is not None) == drawn


def test_the_figure_of_the_examples_has_a_band_of_seeds_for_each_method():
    rows = {
        examples.METHODS[method].job(seed, False, ()).name: curve_row(
            accuracy=[0.1 * (seed + 1)] * 3, spectral_radius=[1] * 3, gradient_norm=[1] * 3
        )
        for method, seeds in (("oinit", 1), ("open", 3))
        for seed in range(seeds)
    }
    figure = figure_of("examples", rows, 5)
    assert "median and range of up to 3 seeds" in figure.get_suptitle().replace("\n", " ")
    accuracy = figure.axes[0]
    lines = {line.get_label(): line.get_ydata()[-1] for line in accuracy.lines}
    assert lines == pytest.approx({"OINIT": 0.1, "OPEN": 0.2})
    low, high = accuracy.collections[0].get_paths()[0].get_extents().intervaly
    assert (low, high) == pytest.approx((0.1, 0.3))


def test_a_small_input_matrix_lets_the_gradient_through():
    rows = {
        start: causes.fading("temporal-order", 60, start, 0)["ratio"] for start in causes.STARTS
    }
    assert 0.5 < rows["W_xh from N(0, .01)"] < 1.5
    assert max(rows["as in the code"], rows["W_hh alone made orthogonal"]) < 0.1
    rows = {
        job.name: {"ratio": 0.25 if job.arguments["start"] == "as in the code" else 4}
        for job in causes.STUDY.jobs(View(quick=True))
        if not job.config
    }
    lines = causes.STUDY.table(by_name(rows)).splitlines()
    assert [line.split("|")[-2].split()[0] for line in lines[-6:]] == ["0.25", "4", "4"] * 2


def test_a_study_draws_into_the_file_that_is_named(tmp_path, monkeypatch, capsys):
    """Here of a run without a spectrum, which leaves no panel empty."""
    lstm = curve_row(**dict.fromkeys(("s_min", "s_mean", "s_max", "s_sd"), [None] * 3))
    assert len(evolution({"LSTM": lstm}).axes) == 1 and not faults(evolution({"LSTM": lstm}))
    study = replace(
        tiny_study(), figure=lambda view: evolution({"LSTM": lstm}), table=lambda view: ""
    )
    monkeypatch.setattr("refnet.studies.catalogue.find", lambda name: study)
    path = tmp_path / "x.pdf"
    words = ["study", "tiny", "--table", "--folder", str(tmp_path / "studies")]
    assert cli.main([*words, "--figure", str(path), "--dpi", "40"]) == 0
    assert path.read_bytes().startswith(b"%PDF") and f"figure: {path}" in capsys.readouterr().out
    assert not [*tmp_path.rglob("figure.png")]
