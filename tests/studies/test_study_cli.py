"""What ``refnet study`` says and takes: figures, caches, options, names."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from refnet import cli
from refnet.runs.files import argument
from refnet.studies import costs
from refnet.studies.store import Store
from refnet.training import loop
from refnet.training.config import Config, to_toml
from refnet.training.protocols import configure
from support.studies import TINY, tiny_study


def test_a_figure_that_cannot_be_written_fails_no_table(tmp_path, monkeypatch, capsys):
    pytest.importorskip("refnet.runs.plots")
    drawn = replace(tiny_study(), figure=lambda *ask: "a figure", table=lambda *ask: "the table")
    monkeypatch.setattr("refnet.studies.catalogue.find", lambda name: drawn)

    def refused(self):
        raise PermissionError(13, "Permission denied", str(self.folder / ".lock"))

    monkeypatch.setattr(Store, "held", refused)
    assert cli.main(["study", "tiny", "--table", "--folder", str(tmp_path)]) == 0
    told = capsys.readouterr()
    assert "the table" in told.out and "the figure could not be written: " in told.err


def test_a_figure_that_cannot_be_drawn_hides_no_failed_run(tmp_path, monkeypatch, capsys):
    """As with Matplotlib's settings for a LaTeX that is not there."""
    pytest.importorskip("refnet.runs.plots")

    def undrawn(*ask):
        raise RuntimeError("latex could not be found")

    drawn = replace(tiny_study(), figure=undrawn, table=lambda *ask: "the table")
    monkeypatch.setattr("refnet.studies.catalogue.find", lambda name: drawn)
    monkeypatch.setattr("refnet.studies.runner.run", lambda *ask: {"one": "its error"})
    assert cli.main(["study", "tiny", "--folder", str(tmp_path)]) == 2
    told = capsys.readouterr()
    assert "the table" in told.out and told.err.splitlines() == [
        "Matplotlib could not draw the figure: latex could not be found",
        "failed: one: its error",
    ]


@pytest.mark.parametrize("refusal", [PermissionError(13, "Permission denied"), None])
def test_a_cache_that_cannot_be_read_stops_no_study(tmp_path, monkeypatch, capsys, refusal):
    """Times are all that it holds. Only what would write it refuses, and before it measures."""
    monkeypatch.setattr("refnet.studies.cli.user_cache", lambda: tmp_path)
    (tmp_path / "studies.json").write_text("no record")
    if refusal:

        def contents(*ask):
            raise refusal

        monkeypatch.setattr(costs, "contents", contents)
    for mode, shown in (("--table", "FF+OPEN"), ("--status", "FF+OPEN"), ("--list", "table-iii")):
        assert cli.main(["study", "table-iii", mode, "--folder", str(tmp_path / "studies")]) == 0
        told = capsys.readouterr()
        assert shown in told.out
        assert "what was measured on this machine is not known: " in told.err
    monkeypatch.setattr(costs, "measure", lambda *ask: pytest.fail("measured"))
    assert cli.main(["study", "table-iii", "--measure"]) == 2
    assert (tmp_path / "studies.json").read_text() == "no record"


def test_a_name_that_no_run_has_is_answered_with_the_command_that_shows_them(tmp_path, capsys):
    words = ["study", "table-i", "--quick", "--search"]
    assert cli.main([*words, "--only", "no run", "--folder", str(tmp_path)]) == 2
    command = capsys.readouterr().err.strip().partition("see them with: refnet ")[2].split()
    assert sorted(command) == sorted([*words, "--status"])
    assert cli.main([*command, "--folder", str(tmp_path)]) == 0
    assert "temporal-order, plain, 0.1, T = 10" in capsys.readouterr().out


def test_numbers_of_seeds_and_workers_are_bounded(capsys):
    for option in ("--seeds", "--workers"):
        for number, need in (("0", "at least 1"), (str(2**64), "at most 1000")):
            assert cli.main(["study", "table-iii", option, number]) == 2
            assert f"{option} is {number}; need {need}" in capsys.readouterr().err


def test_a_whole_file_of_settings_takes_no_other_protocol(tmp_path):
    """Whatever else is given: settings of the first protocol would stay under the other's name."""
    saved = configure({"task": "copy", "length": 20})
    whole = {
        name: getattr(saved, name)
        for name in Config.__dataclass_fields__
        if f"{name} = " in to_toml(saved)
    }
    for more in ({}, {"method": "open"}, {"transition": "dense"}):
        with pytest.raises(ValueError, match="protocol orhan-pitkow/code would have no effect"):
            configure({"protocol": "orhan-pitkow/code", **more}, whole)
    part = {"task": "copy", "length": 20, "protocol": "vorontsov/text"}
    assert configure({"protocol": "orhan-pitkow/code"}, part).activation == "elu"


def test_a_run_is_resumed_where_it_is(tmp_path, capsys):
    loop.train(replace(TINY, iterations=2, evaluate_every=1), tmp_path / "run")
    before = (tmp_path / "run" / "rows.jsonl").read_bytes()
    assert (
        cli.main(
            [
                "train",
                "--resume",
                str(tmp_path / "run"),
                "--iterations",
                "4",
                "--out",
                str(tmp_path / "other"),
            ]
        )
        == 2
    )
    assert "only --iterations may be given with it, not --out" in capsys.readouterr().err
    assert (tmp_path / "run" / "rows.jsonl").read_bytes() == before


def test_a_folder_that_looks_like_an_option_is_named_so_that_it_works(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert argument(Path("-y")) == "./-y" and argument(Path("a b")) == "'a b'"
    loop.train(replace(TINY, iterations=2, evaluate_every=1), "-y", stop=lambda: True)
    assert cli.main(["runs", "."]) == 0
    command = re.search(r"refnet (train --resume \S+)", capsys.readouterr().out)[1]
    assert cli.main([*command.split(), "--quiet"]) == 0
    assert json.loads((tmp_path / "-y" / "summary.json").read_text())["state"] == "finished"


@pytest.mark.parametrize(
    "words, message",
    [
        ("--list --seeds 0", "--seeds"),
        ("--protocols --workers -3", "--workers"),
        ("figure-1 --table --repeat", "--repeat has no effect with --table; leave one of them out"),
        ("figure-1 --status --cluster tcp://nowhere", "--cluster has no effect with --status"),
        ("figure-1 --workers 7 --cluster tcp://nowhere", "--workers has no effect with --cluster"),
        ("figure-1 --status --table", "--table has no effect with --status"),
        ("figure-1 --table --threads 2", "--threads has no effect with --table"),
        ("figure-1 --threads 0", "--threads is 0"),
        ("--list --protocol vorontsov/code", "--protocol needs the name of a study"),
        ("figure-1 --protocols", "a study's name has no effect with --protocols"),
        ("--protocols --list", "--list has no effect with --protocols"),
        ("--list --search", "--search has no effect with --list"),
        ("figure-1 --measure --only x", "--only has no effect with --measure"),
    ],
)
def test_an_option_is_never_ignored_in_silence(words, message, capsys):
    assert cli.main(["study", *words.split()]) == 2
    assert message in capsys.readouterr().err
