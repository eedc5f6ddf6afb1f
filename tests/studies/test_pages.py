"""What studies show: tables, figures, progress, the command line and the recorded page."""

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from refnet import cli
from refnet.runs.files import argument
from refnet.runs.read import FileError
from refnet.studies import costs, runner
from refnet.studies.catalogue import STUDIES, find
from refnet.studies.comparison import ONE_RUN, Finding, solved
from refnet.studies.grid import Cell, Grid
from refnet.studies.ladder import GRID, PRINTED, Ladder
from refnet.studies.progress import progress
from refnet.studies.quantities import accuracy, solved_at
from refnet.studies.store import Store
from refnet.studies.study import View, protocols, under, unknown
from refnet.studies.work import begun, shown
from refnet.training import loop
from refnet.training.config import Config
from refnet.training.config_files import to_toml
from refnet.training.papers import PROTOCOLS
from refnet.training.protocols import configure
from support.arguments import refused
from support.studies import (
    TINY,
    by_name,
    cells_of,
    jobs_of,
    make,
    row,
    slow_study,
    tiny_jobs,
    tiny_study,
)


def test_a_table_shows_ours_beside_the_printed_and_what_was_not_run():
    study = Grid(
        "g",
        "G",
        [
            Cell("a", {"task": "copy"}, ("94.10",)),
            Cell("b", {"task": "copy", "length": 9}, ()),
            Cell("c", {"task": "copy", "length": 8}, ("7",)),
        ],
        [("accuracy, %", accuracy, ".1f"), ("solved at", solved_at, ".0f")],
    )
    rows = {
        "a, seed 0": row(accuracy=0.5, test_accuracy=0.25),
        "a, seed 1": row(accuracy=0.75),
        "b, seed 0": row("solved", 40, accuracy=1.0),
    }
    lines = [cells_of(line) for line in study.table(by_name(rows, 2)).splitlines()]
    assert lines[0] == ["run", "accuracy, %", "printed", "solved at", "runs"]
    assert lines[2:] == [
        ["a", "50.0 (25.0 to 75.0, 2 seeds)", "94.10", "not solved", "2 finished"],
        ["b", "100.0 (one seed)", "-", "40 (one seed)", "1 solved"],
        ["c", "not run", "7", "not run", "-"],
    ]


def test_accuracies_are_shown_at_their_best_and_at_the_end():
    declined = {**row(accuracy=0.924), "final": {"accuracy": 0.918}}
    assert "| 92.40 (one seed) | 97.03   | 91.80 (one seed)       |" in find("table-iii").table(
        by_name({"FF+OPEN, seed 0": declined})
    )
    assert "| 91.80 (one seed)       | 91.40   | 92.40 (one seed) |" in find("table-iv").table(
        by_name({"alpha = 0.1, seed 0": declined})
    )


def test_a_note_is_shown_if_the_rows_that_have_ended_say_so():
    cell = Cell("a", {"task": "copy"}, quick={"length": 9})
    study = Grid(
        "g",
        "G",
        [cell],
        [("solved at", solved_at, ".0f")],
        notes=[Finding("solved", "all solved.", (solved("a", 5000),))],
    )
    done, failed, begun = row("solved"), row(), row("begun") | {"of": 200}
    for second, said in ((done, ""), (begun, ONE_RUN), (failed, None)):
        text = study.table(by_name({"a, seed 0": done, "a, seed 1": second}, 2))
        assert text.endswith(f"\n{said}all solved.\n") or said is None and "solved." not in text
    assert "all solved" not in study.table(by_name({"a, seed 0": done}, quick=True))
    assert "all solved" not in study.table(by_name({}, 2))


def test_a_ladder_of_adding_shows_its_errors_by_each_criterion():
    ended = row(errors_text=9909, errors_code=0, errors_hs97=12)
    text = find("table-i").table(
        by_name(
            {
                Ladder("adding", "plain").rung(10).name: row("solved"),
                Ladder("adding", "plain").rung(20).name: ended,
                Ladder("adding", "plain", 1).rung(10).name: row("begun") | {"of": 9},
            },
            2,
        )
    )
    assert cells_of(text.splitlines()[-1]) == [
        "SRNN",
        "20 (one seed)",
        "9909 (one seed)",
        "0 (one seed)",
        "12 (one seed)",
    ]


def test_a_ladder_climbs_until_a_length_is_not_solved():
    solved = {Ladder("adding", "plain").rung(T).name: row("solved") for T in (10, 20, 30)}
    reached, job = Ladder("adding", "plain").climb(by_name(solved).row_of)
    assert reached == 30 and job.config.length == 40
    ended = {**solved, job.name: row("finished")}
    assert Ladder("adding", "plain").climb(by_name(ended).row_of) == (30, None)
    study = find("table-i")
    assert len(study.jobs(by_name({}))) == 12
    text = study.table(by_name(solved))
    assert "at least 30, not finished" in text and "not run" in text
    assert "30 (one seed)" in study.table(by_name(ended))
    assert str(PRINTED["random-permutation"]["oinit"]) in text


@pytest.mark.parametrize(
    "name, runs, printed",
    [
        (
            "table-ii",
            {"plain": 15, "oinit": 15, "open": 45},
            "SRNN+OINIT, alpha = 1e-05, sd = 0.01",
        ),
        ("table-iii", {"plain": 5, "oinit": 5, "open": 20}, "FF+OINIT, alpha = 0.01, sd = 0.001"),
    ],
)
def test_the_texts_grid_has_every_rate_start_and_lambda(name, runs, printed):
    study = find(name)
    jobs = study.search.jobs(by_name({}))
    assert Counter(job.config.method for job in jobs) == runs
    assert len({job.key for job in jobs}) == len(jobs) and study.search.name == name
    (searched,) = [job.config for job in jobs if job.name == f"{printed}, seed 0"]
    (whole,) = [job.config for job in study.jobs(by_name({})) if job.config.method == "oinit"]
    same = {"iterations": 1, "evaluate_every": 1}
    assert replace(searched, **same) == replace(whole, **same)


def test_the_search_climbs_with_every_candidate_and_names_the_best():
    search = find("table-i").search
    first = search.jobs(by_name({}))
    assert len(first) == 4 * (5 + 5 + 25) == len({job.key for job in first})
    # the printed parameters' runs are Table I's own
    assert {job.key for job in find("table-i").jobs(by_name({}))} < {job.key for job in first}
    rows = {
        Ladder("adding", "oinit", chosen=(rate,)).rung(10).name: row(
            "solved" if rate < 0.01 else "finished"
        )
        for rate in GRID[0]
    }
    rows[Ladder("adding", "oinit", chosen=(0.001,)).rung(20).name] = row("solved")
    text = search.table(by_name(rows))
    line = next(line for line in text.splitlines() if "adding, oinit" in line)
    assert cells_of(line)[1:] == ["100", "alpha 0.01", "20 (one seed)", "alpha 0.001", "2 of 5"]
    rows[Ladder("adding", "oinit", chosen=(0.0001,)).rung(20).name] = row("solved")
    assert "| alpha 0.001; alpha 0.0001 |" in search.table(by_name(rows))
    alone = "only the printed"
    assert alone in search.table(by_name({})) and alone not in text
    del rows[Ladder("adding", "oinit", chosen=(0.0001,)).rung(20).name]
    wanted = search.jobs(by_name(rows))
    assert len(wanted) == len(first) - 2 and [job.config.length for job in wanted[-3:]] == [
        20,
        20,
        30,
    ]


def test_costs_are_remembered_for_this_machine(tmp_path, monkeypatch):
    path = tmp_path / "new" / "studies.json"
    assert costs.remembered(path) == {}
    costs.remember(path, {"a": costs.Cost(1.5, 20, {"a kind": 0.5})})
    costs.remember(path, {"b": costs.Cost(0.25, 3)})
    assert costs.remembered(path) == {"a": (1.5, 20, {"a kind": 0.5}), "b": (0.25, 3, {})}
    monkeypatch.setattr(costs, "machine", lambda: "another one")
    assert costs.remembered(path) == {} != costs.remembered(path, everywhere=True)
    for damaged in (
        "{",
        "[]",
        "{}",
        '{"machine": "x", "studies": []}',
        '{"machine": "x", "studies": {"a": 3}}',
    ):
        path.write_text(damaged)
        with refused("studies.json: .*; remove it, and measure again", FileError):
            costs.remembered(path, everywhere=True)


def test_every_study_has_runs_of_different_keys_and_a_table():
    for study in STUDIES.values():
        for quick in (False, True):
            jobs = study.jobs(View(seeds=2, quick=quick))
            assert len({job.key for job in jobs}) == len(jobs) == len({job.name for job in jobs})
            assert len(jobs) == 2 * len(study.jobs(View(quick=quick))) > 0
            assert "not run" in study.table(View(quick=quick)), study.name


@pytest.mark.parametrize("study", STUDIES.values(), ids=list(STUDIES))
def test_a_study_follows_either_protocol_of_its_authors(study):
    """Under the other one its runs are others, with the same names, in a folder that no other study
    has; runs that are nobody's protocol stay as they are."""
    followed = (protocols(study) or [""])[0]
    others = [
        name
        for name in PROTOCOLS
        if followed and name != followed and name.startswith(followed.partition("/")[0] + "/")
    ]
    if not others or study.switched is None:
        for name in ("manchev-spratling/text", "vorontsov/code"):
            if name != followed:
                with refused("can follow"):
                    under(study, name)
        return
    other = under(study, others[0])
    assert under(study, followed) is study and other.name != study.name
    assert STUDIES.get(other.name, other) is other
    before, after = ({job.name: job for job in each.jobs(View())} for each in (study, other))
    assert list(before) == [name for name in after if name in before]
    for name, job in before.items():
        if job.config and job.config.protocol == followed:
            assert after[name].config.protocol == others[0], name
        else:
            assert after[name].key == job.key, name
    assert {job.key for job in before.values()} != {job.key for job in after.values()}


def test_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def output(*words):
        assert cli.main(["study", *words]) == 0
        return capsys.readouterr().out

    assert "table-iii" in output("--list")
    line = output("orhan-pitkow", "--measure", "--quick").splitlines()[2].split("|")
    assert 0 < float(line[3]) < 1 and 0 < float(line[4]) < 100
    assert "spectrum_factor" in output("--protocols")
    assert output("table-iii", "--status").count("not run") == 9
    for words in ([], ["--only", "seed 2"]):
        assert "Protocol: manchev-spratling/code" in output("table-iii", "--table", *words)
    text = output("table-iii", "--protocol", "manchev-spratling/text", "--table")
    assert "Protocol: manchev-spratling/text" in text and "97.03" in text
    assert "open, 0.1, 0.01, T = 10, seed 0" in output("table-i", "--search", "--status")
    text = output("table-i", "--search", "--only", "adding, oinit", "--status")
    assert text.count("| adding, oinit") == 15
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


def test_the_page_is_what_the_recorded_rows_make(tmp_path, monkeypatch):
    from benchmarks import studies

    assert studies.PAGE.read_text(encoding="utf-8") == studies.page()
    assert all(name in studies.commits() for name in studies.LOST)
    # and it follows the rows: one fewer, another page
    folder = studies.FOLDER
    monkeypatch.setattr(studies, "FOLDER", tmp_path)
    (tmp_path / "orthogonalisation").mkdir()
    lines = (folder / "orthogonalisation" / "rows.jsonl").read_text().splitlines()
    (tmp_path / "orthogonalisation" / "rows.jsonl").write_text("\n".join(lines[:-2]) + "\n")
    page = studies.page()
    assert studies.PAGE.read_text(encoding="utf-8") != page
    # but no unfinished run, which other machines do not have
    study = find("figure-1")
    job, store = study.jobs(View())[0], studies.store_of(study)
    loop.train(job.config, store.unfinished(job.key) / "run", stop=lambda: True, draw=False)
    assert shown(store)(job)["state"] == "begun" and studies.page() == page


def test_under_another_protocol_only_what_is_said_of_settings_is_said():
    for name, protocol, count in (
        ("figure-1", "vorontsov/code", 0),
        ("figure-4", "vorontsov/code", 1),
        ("table-iii", "manchev-spratling/text", 2),
    ):
        study = find(name)
        other = under(study, protocol)
        for rows in ("solved", "finished"):
            text = other.table(View(lambda job: row(rows), 3))
            notes = text.splitlines()[len(text.partition("\n\n")[0].splitlines()) + 1 :]
            assert len([line for line in notes if line]) == count, name
        assert "Here" not in text


def test_what_a_study_says_of_another_is_what_the_rows_say():
    """A note sees its own study's rows. Where one on the page quotes another study, the rows
    recorded there have to say so."""
    from benchmarks import studies

    def rows_of(study, label):
        store = studies.store_of(find(study))
        rows = store.rows()
        jobs = {job.name: job for job in find(study).jobs(View(seeds=3))}
        return [
            row for seed in range(3) if (row := store.done(jobs[f"{label}, seed {seed}"], rows))
        ]

    def farthest(question, first):
        """Which of a question's runs is farthest from its first one."""
        labels = [job.name.rpartition(",")[0] for job in jobs_of("causes") if job.config]
        cells = [label for label in labels if label.startswith(f"{question}:")]
        start, *others = (accuracy(rows_of("causes", label)[0]) for label in cells)
        assert cells[0].endswith(first)
        return max(zip(others, cells[1:]), key=lambda pair: abs(pair[0] - start))[1]

    page = " ".join(studies.PAGE.read_text(encoding="utf-8").split())
    for said, holds in [
        (
            "in Table II, with standardised ones, it ends some twelve below",
            11.5 < 86.81 - accuracy(rows_of("table-ii", "SRNN+OINIT")[0]) < 12.5,
        ),
        (
            "where ours ends some six percentage points below the printed number",
            5.5 < 77.18 - accuracy(rows_of("table-1", "margin 0, orthogonal")[0]) < 6.5,
        ),
        (
            "without it (study table-3) fewer",
            100 * rows_of("table-3", "margin 0, orthogonal")[0]["best"]["test_accuracy_with_ends"]
            < 55.31,
        ),
        (
            "(study causes) the code's embedding moves the number most",
            farthest(
                "Penn Treebank to 75 characters, margin 0, 20 epochs", "as recorded in Table 3"
            ).endswith("embedding of 512 (code)"),
        ),
    ]:
        assert said in page and holds, said


@pytest.mark.parametrize("refusal", [PermissionError(13, "Permission denied"), None])
def test_a_cache_that_cannot_be_read_stops_no_study(tmp_path, monkeypatch, capsys, refusal):
    """Times are all that it holds. Only what would write it refuses, and before it measures."""
    monkeypatch.setattr("refnet.studies.cli.user_cache", lambda: tmp_path)
    (tmp_path / "studies.json").write_text("no record")
    if refusal:

        def contents(*ask):
            raise refusal

        monkeypatch.setattr(costs, "contents", contents)
    for mode, text in (("--table", "FF+OPEN"), ("--status", "FF+OPEN"), ("--list", "table-iii")):
        assert cli.main(["study", "table-iii", mode, "--folder", str(tmp_path / "studies")]) == 0
        output = capsys.readouterr()
        assert text in output.out
        assert "what was measured on this machine is not known: " in output.err
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


def test_a_whole_file_of_settings_takes_no_other_protocol(tmp_path):
    """Whatever else is given: settings of the first protocol would stay under the other's name."""
    saved = configure({"task": "copy", "length": 20})
    whole = {
        name: getattr(saved, name)
        for name in Config.__dataclass_fields__
        if f"{name} = " in to_toml(saved)
    }
    for more in ({}, {"method": "open"}, {"transition": "dense"}):
        with refused("protocol orhan-pitkow/code would have no effect"):
            configure({"protocol": "orhan-pitkow/code", **more}, whole)
    part = {"task": "copy", "length": 20, "protocol": "vorontsov/text"}
    assert configure({"protocol": "orhan-pitkow/code"}, part).activation == "elu"


def test_a_run_is_resumed_where_it_is(tmp_path, capsys):
    loop.train(replace(TINY, iterations=2, evaluate_every=1), tmp_path / "run")
    before = (tmp_path / "run" / "rows.jsonl").read_bytes()
    words = ["train", "--resume", str(tmp_path / "run"), "--iterations", "4", "--out", "other"]
    assert cli.main(words) == 2
    assert (
        "only --iterations and --patience may be given with it, not --out"
        in capsys.readouterr().err
    )
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
        ("figure-1 --threads 0", "--threads is 0; need at least 1"),
        (f"figure-1 --seeds {2**64}", f"--seeds is {2**64}; need at most 1000"),
        ("figure-1 --workers 0", "--workers is 0; need at least 1"),
        ("--list --protocol vorontsov/code", "--protocol needs the name of a study"),
        ("figure-1 --protocols", "a study's name has no effect with --protocols"),
        ("--protocols --list", "--list has no effect with --protocols"),
        ("table-iii --protocol vorontsov/code", "can follow"),
        ("orthogonalisation --protocol x", "can follow"),
        ("causes --protocol manchev-spratling/code", "can follow"),  # its runs follow several
        ("table-x", "choose one of"),
        ("table-iii --only RNN", "no run has that in its name"),
        ("table-iv --search", "table-i, table-ii and table-iii"),
        ("--list --search", "--search has no effect with --list"),
        ("figure-1 --measure --only x", "--only has no effect with --measure"),
    ],
)
def test_an_option_that_cannot_be_followed_is_refused(words, message, capsys):
    assert cli.main(["study", *words.split()]) == 2
    assert message in capsys.readouterr().err


def test_the_whole_and_each_run_have_their_time_left(store):
    jobs = tiny_jobs()
    loop.train(replace(jobs[0].config, iterations=20), store.unfinished(jobs[0].key) / "run")
    keys = {job.key: job for job in jobs}

    def text(going, left=tuple(keys), measured=MappingProxyType({})):
        return progress(
            keys, left, going, store, lambda job: store.done(job, store.rows()), {}, measured
        ).splitlines()

    seconds = begun(jobs[0], store)["seconds"]
    each = f"{seconds / 60:.1f} min at most left"
    whole, first = text([jobs[0].key])
    assert whole == f"0 of 3 runs done; {5 * seconds / 60:.1f} min at most left"
    assert first == f"  seed 0: 20 of 40 iterations, {each}"
    # two at a time: the longest of 40, 40 and 20 iterations, or half of their sum
    assert text([job.key for job in jobs[:2]])[::2] == [
        f"0 of 3 runs done; {max(2, 2.5) * seconds / 60:.1f} min at most left",
        f"  seed 1: begun, {2 * seconds / 60:.1f} min at most left",
    ]
    # with more processes than runs, the longest alone
    assert text([job.key for job in jobs])[0] == (
        f"0 of 3 runs done; {2 * seconds / 60:.1f} min at most left"
    )
    assert text([], [jobs[0].key])[0] == f"0 of 3 runs done; {each}"  # the others have failed
    # its own pace counts, not what was measured before
    assert text([], [jobs[0].key], {costs.kind(jobs[0]): 1e6})[0].endswith(each)


def test_what_was_measured_is_the_time_of_runs_that_were_never_made(store):
    jobs = tiny_jobs(number=2)
    keys = {job.key: job for job in jobs}
    for measured, said in (
        ({}, "0 of 2 runs done; no time known of 2"),
        ({costs.kind(jobs[0]): 90.0}, "0 of 2 runs done; 2.0 h at most left"),
    ):
        assert progress(keys, keys, [], store, unknown, {}, measured) == said


def test_a_study_tells_its_progress_again_and_again(tmp_path, monkeypatch):
    """At once, and in between: also of runs that have no evaluations."""
    monkeypatch.setattr(runner, "EVERY", 0.01)
    reports = []
    assert make(slow_study(2), Store(tmp_path / "slow"), tell=reports.append) == {}
    assert reports[0].startswith("0 of 2 runs done; no time known of 2\n  slow 0: begun")
    ends = [n for n, text in enumerate(reports) if text.startswith("[")]
    assert len(ends) == 2 and ends[0] > 2 and "1 of 2 runs done; " in reports[ends[0] + 1]
    reports.clear()
    make(tiny_study(), Store(tmp_path / "tiny"), tell=reports.append)
    assert reports[0].startswith("0 of 3 runs done")
    reports.clear()
    make(tiny_study(), Store(tmp_path / "tiny"), tell=reports.append)
    assert reports == []
