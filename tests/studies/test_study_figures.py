"""The studies' own figures: what they draw is what the rows say."""

import numpy as np
import pytest
from matplotlib.image import imread

from refnet.analysis.flow import gradient_norms
from refnet.runs.plots import save
from refnet.studies import causes, examples, flow, orhan, work
from refnet.studies.catalogue import STUDIES
from refnet.studies.grid import _curves
from refnet.studies.manchev import pixel_by_pixel
from refnet.studies.spectra import evolution
from refnet.training.experiment import build
from refnet.training.protocols import preset

pytestmark = pytest.mark.needs("matplotlib")


def test_the_norms_in_training_are_those_of_the_nets_passed_through():
    config = preset(
        "copy:samples=50",
        length=5,
        hidden=6,
        transition="svd:margin=0",
        backend="reference",
        dtype="float64",
    )
    norms, values = flow.norms_in_training(config, 5, 2)
    assert norms.shape == (3, 26) and values.shape == (3, 6)
    e = build(config)
    start = e.start()[0]
    assert np.array_equal(norms[0], gradient_norms(e.net, start, e.task.batch(0, 50, 0)))
    assert not np.array_equal(norms[0], norms[1])
    # margin 0 and no activation: the norm is kept through time, and the spectrum is 1
    assert np.allclose(norms / norms[:, -1:], 1, rtol=1e-9) and np.allclose(values, 1)
    wider, spread = flow.norms_in_training(
        preset(
            "copy:samples=50",
            length=5,
            hidden=6,
            transition="svd:margin=none",
            recurrent="glorot_normal",
            backend="reference",
            dtype="float64",
        ),
        3,
        2,
    )
    assert np.ptp(wider[0]) > 0.1 * wider[0].max() and np.ptp(spread[0]) > 0.1


def flow_row(margin, norms):
    return {
        "times": list(range(len(norms[0]))),
        "updates": [0, 25],
        "norms": norms,
        "s_min": 0.9,
        "s_max": 1.1,
        "settings": {"length": 200, "margin": margin},
    }


def test_figure_3_of_manchev_and_spratling():
    """Its lines are the rows', on the examples that an iteration of the table's runs has."""

    def row(shift):
        return {
            "state": "begun",
            "curve": {
                "iteration": [1000, 2000],
                **{
                    name: [shift + place, shift + place + 0.5]
                    for place, name in enumerate(
                        ("accuracy", "defect", "spectral_radius", "gradient_norm")
                    )
                },
            },
        }

    rows = {"SRNN+OINIT": row(1), "SRNN+OPEN": row(2), "SRNN": row(3)}
    accuracy, names, oinit, opened = pixel_by_pixel(rows).axes
    assert len(names.get_legend().get_texts()) == 3
    assert [list(line.get_ydata()) for line in accuracy.lines] == [[n, n + 0.5] for n in (1, 2, 3)]
    (batch,) = {job.config.batch for job in STUDIES["table-ii"].jobs(lambda job: None, 1, False)}
    for place, shift in (oinit, 1), (opened, 2):
        assert place.get_title().endswith(("OINIT", "OPEN")[shift - 1])
        assert [list(line.get_ydata()) for line in place.lines] == [
            [shift + n, shift + n + 0.5] for n in (1, 2, 3)
        ]
        assert all(list(line.get_xdata()) == [batch, 2 * batch] for line in place.lines)
    assert len(pixel_by_pixel({"SRNN": row(0)}).axes) == 2


@pytest.mark.parametrize(
    "norms, low, high",
    [([[1.0, 1.0], [1.0, 1.0]], "1", "1"), ([[1.0, 2.0], [9.0, 3.0]], "0.5", "3")],
)
def test_figure_2_of_vorontsov_et_al(tmp_path, norms, low, high):
    rows = {flow._job("0", 0, False).key: flow_row("0", norms)}

    def found(job):
        return rows.get(job.key)

    line = STUDIES["figure-2-flow"].table(found, 1, False).splitlines()[2].split("|")
    assert [cell.split()[0] for cell in line[3:5]] == [low, high]
    save(tmp_path / "figure.png", STUDIES["figure-2-flow"].figure(found, 1, False))
    assert imread(tmp_path / "figure.png").std() > 0.01


def test_a_study_draws_what_it_has_and_nothing_without_rows():
    """Any seed's rows, those of runs of another kind, or none."""

    def rows_of(name, text, row):
        known = {
            job.key: row
            for job in STUDIES[name].jobs(lambda job: None, 3, False)
            if text in job.name
        }
        assert known
        return STUDIES[name].figure(lambda job: known.get(job.key), 3, False)

    flow_of = flow_row("1", [[1.0, 1.0], [1.0, 1.0]])
    assert len(rows_of("figure-2-flow", "margin 1, seed 1", flow_of).axes[4].images) == 1
    curves = curve_row(mse=[3, 2, 1], spectral_radius=[None] * 3, gradient_norm=[1, 1, 1])
    assert rows_of("examples", "LSTM", curves).axes[0].lines
    assert rows_of("causes", "gradient in", {"ratio": 1}) is None
    for study in STUDIES.values():
        assert study.figure is None or study.figure(lambda job: None, 3, False) is None


def test_a_curve_keeps_the_beginning_of_a_long_run():
    job = STUDIES["table-ii"].jobs(lambda job: None, 1, False)[0]
    rows = [{"iteration": 1000 * (n + 1)} for n in range(1000)]
    kept = work._curve(job, rows)["iteration"]
    assert len(kept) <= 100 and kept[:5] == [1000, 2000, 3000, 4000, 5000]
    assert kept[-1] == 1_000_000 and max(np.diff(kept)) < 30_000
    assert work._curve(job, rows[:100])["iteration"] == [row["iteration"] for row in rows[:100]]


def test_losses_of_the_chain():
    """Of tasks.Copy's batches, the loss and the same without probabilities below 1e-7."""
    made = orhan.losses("chain", 0, 200, 12)
    assert made["first_radius"] > 0.9 and made["median"] <= made["largest"]
    assert made["clipped"] == pytest.approx(made["largest"]) and made["large"] == 0
    jobs = {
        job.key: {**made, "largest": 3e14}
        for job in STUDIES["orhan-pitkow"].jobs(lambda job: None, 1, False)
        if job.config is None
    }
    line = STUDIES["orhan-pitkow"].table(lambda job: jobs.get(job.key), 1, False).splitlines()[-2]
    assert line.split("|")[1].strip() == "chain" and "3e+14" in line


def curve_row(state="finished", **columns):
    return {
        "state": state,
        "iterations": 300,
        "curve": {
            "iteration": [100, 200, 300],
            "loss": [2.0, 1.0, 0.5],
            "accuracy": [0.1, 0.5, 0.9],
            **columns,
        },
    }


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
    losses, names, spectrum = figure.axes
    assert {line.get_marker() for line in (*losses.lines, *spectrum.lines)} == {"o"}
    assert (
        [line.get_label() for line in losses.lines]
        == ["0.1, not finished", "LSTM"]
        == [text.get_text() for text in names.get_legend().get_texts()]
    )
    assert spectrum.get_title() == "0.1, not finished"
    lines = {line.get_label(): list(line.get_ydata()) for line in spectrum.lines}
    assert lines == {
        f"{name} s": values
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
    figure = _curves(
        {"a": [curve_row()], "b": [long, curve_row()]}, ("accuracy", "loss"), lambda label: ""
    )
    assert [(axes.get_ylabel(), axes.get_xscale(), len(axes.lines)) for axes in figure.axes] == [
        ("accuracy", "log", 3),
        ("training loss, with penalties", "log", 3),
    ]  # of two seeds both
    assert len(figure.axes[0].collections) == 1  # the band of the two seeds
    figure = _curves(
        {"a, 1": [curve_row()], "b, 1": [long]}, ("accuracy", "loss"), lambda label: label[0]
    )
    assert [(axes.get_title(), axes.get_xscale()) for axes in figure.axes] == [
        ("a", "linear"),
        ("b", "linear"),
    ]


def test_long_runs_have_ticks_that_do_not_touch_and_many_curves_a_legend_beneath():
    """Nothing is drawn on top of anything else, and the picture is as wide as a page."""
    row = curve_row(mse=[3, 2, 1])
    row["curve"]["iteration"] = [50_000, 100_000, 300_000]
    figure = _curves(
        {f"a run with a long name, {n}": [row] for n in range(7)},
        ("accuracy", "loss", "mse"),
        lambda label: "",
    )
    figure.draw_without_rendering()
    assert figure.get_figwidth() <= 9
    for axes in figure.axes:
        boxes = [
            text.get_window_extent()
            for text in axes.get_xticklabels()
            if axes.get_xlim()[0] <= text.get_position()[0] <= axes.get_xlim()[1]
        ]
        assert all(one.x1 < other.x0 for one, other in zip(boxes, boxes[1:])) and len(boxes) > 2
        assert axes.get_xticklabels()[1].get_text().endswith(",000")
        assert not axes.get_legend().get_window_extent().overlaps(axes.get_window_extent())


def test_a_run_that_has_not_ended_is_no_part_of_a_band():
    """Its last value is not its end. With none that has ended, the farthest is drawn alone."""
    jobs = [
        job
        for job in STUDIES["table-iii"].jobs(lambda job: None, 3, False)
        if job.name.startswith("FF+OPEN")
    ]
    rows = [
        {**curve_row(state, accuracy=[at] * 3), "iterations": iterations}
        for state, at, iterations in (
            ("finished", 0.9, 300),
            ("begun", 0.1, 200),
            ("diverged", 0.7, 300),
        )
    ]
    for kept, *expected in (
        (rows, 0.9, 0.7),
        (rows[1:2], 0.1),
        ([rows[1], {**rows[1], "iterations": 100, "curve": rows[0]["curve"]}], 0.1),
    ):
        found = {job.key: row for job, row in zip(jobs, kept)}
        panel = STUDIES["table-iii"].figure(lambda job: found.get(job.key), 3, False).axes[0]
        assert [line.get_ydata()[-1] for line in panel.lines] == pytest.approx(expected)
        assert ("not finished" in panel.lines[0].get_label()) == (expected == [0.1])
        assert len(panel.collections) == (expected == [0.9, 0.7])


@pytest.mark.parametrize(
    "name, first", [("table-iii", "FF+OPEN"), ("examples", "temporal order T = 60, open")]
)
def test_a_run_that_diverged_before_its_first_evaluation_is_in_no_curve(name, first):
    study, nothing = (
        STUDIES[name],
        {
            "state": "diverged",
            "iterations": 0,
            "best": {},
            "final": {},
            "reason": "",
            "curve": dict.fromkeys(
                ("iteration", "accuracy", "loss", "mse", "spectral_radius", "gradient_norm"), []
            ),
        },
    )
    whole = {
        **curve_row(mse=[None] * 3, spectral_radius=[1] * 3, gradient_norm=[1] * 3),
        "best": {"accuracy": 0.9},
        "final": {"accuracy": 0.9},
    }

    def found(job):
        return whole if job.name == f"{first}, seed 1" else nothing

    assert len(study.figure(found, 2, False).axes[0].lines) == 1
    assert (
        study.table(found, 2, False).count("2 diverged")
        == len(study.jobs(lambda job: None, 1, False)) - 1
    )
    assert study.figure(lambda job: nothing, 2, False) is None


@pytest.mark.parametrize("length, drawn", [(1, False), (2, True)])
def test_one_evaluation_is_no_curve(length, drawn):
    row = curve_row("begun")
    row["curve"] = {
        name: row["curve"].get(name, [1, 2, 3])[:length]
        for name in ("iteration", "accuracy", "loss")
    }
    found = {job.key: row for job in STUDIES["table-iii"].jobs(lambda job: None, 1, False)}
    figure = STUDIES["table-iii"].figure(lambda job: found.get(job.key), 1, False)
    assert (figure is not None) == drawn


def test_the_figure_of_the_examples_has_a_band_of_seeds_for_each_method():
    keys = {
        examples.METHODS[method].job(seed, False, ()).key: 0.1 * (seed + 1)
        for method in ("oinit", "open")
        for seed in range(3 if method == "open" else 1)
    }
    rows = {
        key: curve_row(accuracy=[top] * 3, spectral_radius=[1, 1, 1], gradient_norm=[1, 1, 1])
        for key, top in keys.items()
    }
    figure = examples.STUDY.figure(lambda job: rows.get(job.key), 5, False)
    assert "median and range of up to 3 seeds" in figure.get_suptitle()
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
    jobs = {
        job.key: {"ratio": 0.25 if job.arguments["start"] == "as in the code" else 4}
        for job in causes.STUDY.jobs(lambda job: None, 1, True)
        if job.config is None
    }
    lines = causes.STUDY.table(lambda job: jobs.get(job.key), 1, False).splitlines()
    assert [line.split("|")[-2].split()[0] for line in lines[-6:]] == ["0.25", "4", "4"] * 2
