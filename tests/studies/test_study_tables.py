"""What studies show: tables, ladders, costs, the command line and the recorded page."""

import pytest

from refnet.runs.read import FileError
from refnet.studies import costs
from refnet.studies.catalogue import STUDIES, find
from refnet.studies.comparison import ONE_RUN, Finding, solved
from refnet.studies.controlled import CELLS, PTB
from refnet.studies.grid import Cell, accuracy, grid, solved_at
from refnet.studies.ladder import GRID, PRINTED, _climb, _rung
from refnet.studies.study import protocols, spread, under
from refnet.training.protocols import PROTOCOLS


def found_in(rows):
    return lambda job: rows.get(job.name)


def row(state="finished", iterations=100, **best):
    return {"state": state, "iterations": iterations, "best": best, "final": best}


def test_a_table_shows_ours_beside_the_printed_and_what_was_not_run():
    study = grid(
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
    lines = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in study.table(found_in(rows), 2, False).splitlines()
    ]
    assert lines[0] == ["run", "accuracy, %", "printed", "solved at", "runs"]
    assert lines[2:] == [
        ["a", "50.0 (25.0 to 75.0, 2 seeds)", "94.10", "not solved", "2 finished"],
        ["b", "100.0 (one seed)", "-", "40 (one seed)", "1 solved"],
        ["c", "not run", "7", "not run", "-"],
    ]


def test_accuracies_are_shown_at_their_best_and_at_the_end():
    made = {**row(accuracy=0.924), "final": {"accuracy": 0.918}}
    assert "| 92.40 (one seed) | 97.03   | 91.80 (one seed)       |" in find("table-iii").table(
        found_in({"FF+OPEN, seed 0": made}), 1, False
    )
    assert "| 91.80 (one seed)       | 91.40   | 92.40 (one seed) |" in find("table-iv").table(
        found_in({"alpha = 0.1, seed 0": made}), 1, False
    )


def test_a_note_is_shown_if_the_rows_that_have_ended_say_so():
    cell = Cell("a", {"task": "copy"}, quick={"length": 9})
    study = grid(
        "g",
        "G",
        [cell],
        [("solved at", solved_at, ".0f")],
        notes=[Finding("solved", "all solved.", (solved("a", 5000),))],
    )
    done, failed, begun = row("solved"), row(), row("begun") | {"of": 200}
    for second, said in ((done, ""), (begun, ONE_RUN), (failed, None)):
        text = study.table(found_in({"a, seed 0": done, "a, seed 1": second}), 2, False)
        assert text.endswith(f"\n{said}all solved.\n") or said is None and "solved." not in text
    assert "all solved" not in study.table(found_in({"a, seed 0": done}), 1, True)
    assert "all solved" not in study.table(found_in({}), 2, False)


def test_a_ladder_of_adding_shows_its_errors_by_each_criterion():
    ended = row(errors_text=9909, errors_code=0, errors_hs97=12)
    text = find("table-i").table(
        found_in(
            {
                _rung("adding", "plain", 10, 0, False).name: row("solved"),
                _rung("adding", "plain", 20, 0, False).name: ended,
                _rung("adding", "plain", 10, 1, False).name: row("begun") | {"of": 9},
            }
        ),
        2,
        False,
    )
    assert [cell.strip() for cell in text.splitlines()[-1].split("|")[1:-1]] == [
        "SRNN",
        "20 (one seed)",
        "9909 (one seed)",
        "0 (one seed)",
        "12 (one seed)",
    ]


def test_a_ladder_climbs_until_a_length_is_not_solved():
    solved = {_rung("adding", "plain", T, 0, False).name: row("solved") for T in (10, 20, 30)}
    reached, job = _climb(found_in(solved), "adding", "plain", 0, False)
    assert reached == 30 and job.config.length == 40
    ended = {**solved, job.name: row("finished")}
    assert _climb(found_in(ended), "adding", "plain", 0, False) == (30, None)
    study = find("table-i")
    assert len(study.jobs(found_in({}), 1, False)) == 12
    text = study.table(found_in(solved), 1, False)
    assert "at least 30, not finished" in text and "not run" in text
    assert "30 (one seed)" in study.table(found_in(ended), 1, False)
    assert str(PRINTED["random-permutation"]["oinit"]) in text


def test_the_search_climbs_with_every_candidate_and_names_the_best():
    search = find("table-i").search
    first = search.jobs(found_in({}), 1, False)
    assert len(first) == 4 * (5 + 5 + 25) == len({job.key for job in first})
    # the printed parameters' runs are Table I's own
    assert {job.key for job in find("table-i").jobs(found_in({}), 1, False)} < {
        job.key for job in first
    }
    rows = {
        _rung("adding", "oinit", 10, 0, False, chosen=(rate,)).name: row(
            "solved" if rate < 0.01 else "finished"
        )
        for rate in GRID[0]
    }
    rows[_rung("adding", "oinit", 20, 0, False, chosen=(0.001,)).name] = row("solved")
    text = search.table(found_in(rows), 1, False)
    line = next(line for line in text.splitlines() if "adding, oinit" in line).split("|")
    assert [part.strip() for part in line[2:7]] == [
        "100",
        "alpha 0.01",
        "20 (one seed)",
        "alpha 0.001",
        "2 of 5",
    ]
    rows[_rung("adding", "oinit", 20, 0, False, chosen=(0.0001,)).name] = row("solved")
    assert "| alpha 0.001; alpha 0.0001 |" in search.table(found_in(rows), 1, False)
    alone = "only the printed"
    assert alone in search.table(found_in({}), 1, False) and alone not in text
    del rows[_rung("adding", "oinit", 20, 0, False, chosen=(0.0001,)).name]
    wanted = search.jobs(found_in(rows), 1, False)
    assert len(wanted) == len(first) - 2 and [job.config.length for job in wanted[-3:]] == [
        20,
        20,
        30,
    ]


def test_costs_are_remembered_for_this_machine(tmp_path, monkeypatch):
    path = tmp_path / "new" / "studies.json"
    assert costs.remembered(path) == {}
    costs.remember(path, {"a": costs.Cost(1.5, 20)})
    costs.remember(path, {"b": costs.Cost(0.25, 3)})
    assert costs.remembered(path) == {"a": (1.5, 20, {}), "b": (0.25, 3, {})}
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
        with pytest.raises(FileError, match="studies.json: .*; remove it, and measure again"):
            costs.remembered(path, everywhere=True)


def test_every_study_has_runs_of_different_keys_and_a_table():
    for study in STUDIES.values():
        for quick in (False, True):
            jobs = study.jobs(lambda job: None, 2, quick)
            assert len({job.key for job in jobs}) == len(jobs) == len({job.name for job in jobs})
            assert len(jobs) == 2 * len(study.jobs(lambda job: None, 1, quick)) > 0
            assert "not run" in study.table(lambda job: None, 1, quick), study.name


@pytest.mark.parametrize("study", STUDIES.values(), ids=list(STUDIES))
def test_a_study_follows_either_protocol_of_its_authors(study):
    """Under the other one its runs are others, with the same names, in a folder that no other study
    has; runs that are nobody's protocol stay as they are."""
    own = (protocols(study) or [""])[0]
    others = [
        name
        for name in PROTOCOLS
        if own and name != own and name.startswith(own.partition("/")[0] + "/")
    ]
    if not others or study.switched is None:
        for name in ("manchev-spratling/text", "vorontsov/code"):
            if name != own:
                with pytest.raises(ValueError, match="can follow"):
                    under(study, name)
        return
    moved = under(study, others[0])
    assert under(study, own) is study and moved.name != study.name
    assert STUDIES.get(moved.name, moved) is moved
    before, after = (
        {job.name: job for job in each.jobs(lambda job: None, 1, False)} for each in (study, moved)
    )
    assert list(before) == [name for name in after if name in before]
    for name, job in before.items():
        if job.config and job.config.protocol == own:
            assert after[name].config.protocol == others[0], name
        else:
            assert after[name].key == job.key, name
    assert {job.key for job in before.values()} != {job.key for job in after.values()}


def test_spread():
    assert (spread([]), spread([1.0]), spread([1, 2])) == (
        "not run",
        "1.00 (one seed)",
        "1.50 (1.00 to 2.00, 2 seeds)",
    )


def test_the_command_line(tmp_path, monkeypatch, capsys):
    from refnet.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert main(["study", "--list"]) == 0 and "table-iii" in capsys.readouterr().out
    assert main(["study", "orhan-pitkow", "--measure", "--quick"]) == 0
    line = capsys.readouterr().out.splitlines()[2].split("|")
    assert 0 < float(line[3]) < 1 and 0 < float(line[4]) < 100
    assert main(["study", "--protocols"]) == 0 and "spectrum_factor" in capsys.readouterr().out
    assert main(["study", "table-iii", "--status"]) == 0
    assert capsys.readouterr().out.count("not run") == 9
    for words in ([], ["--only", "seed 2"]):
        assert main(["study", "table-iii", "--table", *words]) == 0
        assert "Protocol: manchev-spratling/code" in capsys.readouterr().out
    assert main(["study", "table-iii", "--protocol", "manchev-spratling/text", "--table"]) == 0
    told = capsys.readouterr().out
    assert "Protocol: manchev-spratling/text" in told and "97.03" in told
    for name, protocol in (
        ("table-iii", "vorontsov/code"),
        ("orthogonalisation", "x"),
        ("causes", "manchev-spratling/code"),
    ):  # its runs follow several
        assert main(["study", name, "--protocol", protocol]) == 2
        assert "can follow" in capsys.readouterr().err
    assert main(["study", "table-x"]) == 2
    assert "choose one of" in capsys.readouterr().err
    assert main(["study", "table-iii", "--workers", "0"]) == 2
    assert main(["study", "table-i", "--search", "--status"]) == 0
    assert "open, 0.1, 0.01, T = 10, seed 0" in capsys.readouterr().out
    assert main(["study", "table-i", "--search", "--only", "adding, oinit", "--status"]) == 0
    assert capsys.readouterr().out.count("| adding, oinit") == 15
    assert main(["study", "table-iii", "--only", "RNN"]) == 2
    assert "no run has that in its name" in capsys.readouterr().err
    assert main(["study", "table-iii", "--search"]) == 2
    assert "such as table-i" in capsys.readouterr().err
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
    assert studies.PAGE.read_text(encoding="utf-8") != studies.page()


def test_under_another_protocol_only_what_is_said_of_settings_is_said():
    for name, protocol, kept in (
        ("figure-1", "vorontsov/code", 0),
        ("figure-4", "vorontsov/code", 1),
        ("table-iii", "manchev-spratling/text", 2),
    ):
        study = find(name)
        moved = under(study, protocol)
        for rows in ("solved", "finished"):
            text = moved.table(lambda job: row(rows), 3, False)
            notes = text.splitlines()[len(text.partition("\n\n")[0].splitlines()) + 1 :]
            assert len([line for line in notes if line]) == kept, name
        assert "Here" not in text


def test_what_a_study_says_of_another_is_what_the_rows_say():
    """A note sees its own study's rows. Where one on the page quotes another study, the rows
    recorded there have to say so."""
    from benchmarks import studies

    def made(study, label):
        store = studies.store_of(find(study))
        rows = store.rows()
        jobs = {job.name: job for job in find(study).jobs(lambda job: None, 3, False)}
        return [
            found for seed in range(3) if (found := store.done(jobs[f"{label}, seed {seed}"], rows))
        ]

    def moved(question, first):
        """Which of a question's runs is farthest from its first one."""
        cells = [cell.label for cell in CELLS if cell.label.startswith(f"{question}:")]
        start, *others = (accuracy(made("causes", label)[0]) for label in cells)
        assert cells[0].endswith(first)
        return max(zip(others, cells[1:]), key=lambda pair: abs(pair[0] - start))[1]

    page = " ".join(studies.PAGE.read_text(encoding="utf-8").split())
    for said, holds in [
        (
            "in Table II, with standardised ones, it ends some twelve below",
            11.5 < 86.81 - accuracy(made("table-ii", "SRNN+OINIT")[0]) < 12.5,
        ),
        (
            "where ours ends some six percentage points below the printed number",
            5.5 < 77.18 - accuracy(made("table-1", "margin 0, orthogonal")[0]) < 6.5,
        ),
        (
            "without it (study table-3) fewer",
            100 * made("table-3", "margin 0, orthogonal")[0]["best"]["test_accuracy_with_ends"]
            < 55.31,
        ),
        (
            "(study causes) the code's embedding moves the number most",
            moved(PTB, "as recorded in Table 3").endswith("embedding of 512 (code)"),
        ),
    ]:
        assert said in page and holds, said
