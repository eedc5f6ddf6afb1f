"""What is known of a study's runs: their keys, their rows, and how far they are."""

import re
import shutil
import subprocess
from dataclasses import fields, replace

import pytest

from refnet import cli
from refnet.maths.threads import get_threads
from refnet.runs.rows import machine
from refnet.studies import catalogue, costs, work
from refnet.studies.grid import Cell, Grid
from refnet.studies.jobs import Job
from refnet.studies.ladder import Ladder
from refnet.studies.progress import status
from refnet.studies.quantities import accuracy, solved_at
from refnet.studies.store import Store
from refnet.studies.study import View, only
from refnet.training import loop
from refnet.training.config import Config, applicable
from support.studies import (
    CALLS,
    TINY,
    make,
    orthogonal_start,
    results,
    slow_study,
    tiny_jobs,
    tiny_study,
    without_times,
)

OINIT = orthogonal_start("uniform")
# one other value for each setting, with what else is needed for it to apply
OTHERS = {
    "task": "adding",
    "length": 11,
    "order": ("mixed", {"task": "ptb", "length": 0}),
    "net": None,
    "cell": "gru",
    "hidden": 7,
    "depth": None,
    "layers": 2,
    "bidirectional": True,
    "activation": "relu",
    "embedding": 3,
    "gain": 1.05,
    "learn_h0": True,
    "transition": "expm",
    "weights": "he",
    "input_weights": "he",
    "recurrent": "orthogonal",
    "gate_recurrent": ("ramp", {"cell": "gru"}),
    "reduction": "sum",
    "method": "oinit",
    "orthogonal": ("all", {"method": "oinit"}),
    "oinit_rate": (0.05, {"method": "oinit"}),
    "oinit_form": ("unsquared", {"method": "oinit"}),
    "oinit_gradient": (1e-3, {"method": "oinit"}),
    "oinit_cost": (1e-3, {"method": "oinit"}),
    "oinit_steps": (7, {"method": "oinit"}),
    "strength": (0.5, {"method": "open"}),
    "open_form": ("unsquared", {"method": "open"}),
    "open_as": ("update", {"method": "open"}),
    "optimizer": "sgd",
    "rate": 0.5,
    "manifold_rate": (0.5, {"transition": "svd"}),
    "weight_decay": 0.5,
    "clip": "norm",
    "clip_at": (2.0, {"clip": "norm"}),
    "batch": 5,
    "iterations": 41,
    "evaluate_every": 7,
    "seed": 5,
    "dtype": "float64",
    "backend": "compiled",
    "checkpoint": "sqrt",
    "watch": True,
    "schedule": "cosine",
    "warmup": 5,
    "class_weights": "1,2",
    "smoothing": 0.1,
    "ignore": "3",
    **dict.fromkeys(
        (
            *("dropout_inputs", "dropout_layers", "dropout_state", "zoneout"),
            *("noise_inputs", "noise_state", "l1", "norm_stabilizer", "vanishing"),
        ),
        0.1,
    ),
    "patience": 5,
    "carry": (True, {"task": "a.txt", "length": 0}),
    "accumulate": 3,
}


def test_a_key_is_of_all_settings_that_apply_and_of_nothing_else():
    """Every setting that applies changes the key; the protocol's name and the run's do not."""
    keys = set()
    for entry in fields(Config):
        if entry.name == "protocol" or OTHERS[entry.name] is None:
            continue
        value, needed = OTHERS[entry.name], {}
        if isinstance(value, tuple):
            value, needed = value
        base, changed = replace(TINY, **needed), replace(TINY, **needed, **{entry.name: value})
        assert entry.name in applicable(changed)
        assert Job("a", base).key != Job("a", changed).key, entry.name
        keys.add(Job("a", changed).key)
    assert len(keys) == sum(value is not None for value in OTHERS.values())
    assert Job("a", TINY).key == Job("b", replace(TINY, protocol="x")).key
    # pinned: a change of how keys are made would forget all recorded rows
    assert Job("a", TINY).key == "906f0dd4ec038b18"
    assert (
        Job("a", function="m:f", arguments={"x": 1, "y": 2}).key
        == Job("b", function="m:f", arguments={"y": 2, "x": 1}).key
        != Job("a", function="m:f", arguments={"x": 2, "y": 2}).key
    )


def test_a_row_of_other_settings_under_the_same_key_does_not_count(undisturbed):
    job, rows = tiny_jobs()[0], undisturbed.rows()
    assert undisturbed.done(job, rows) is not None
    for settings, counts in (({"rate": 0.5}, False), ({"no longer there": 1}, True)):
        row = {**rows[job.key], "settings": {**rows[job.key]["settings"], **settings}}
        assert (undisturbed.done(job, {job.key: row}) is not None) == counts


def test_a_row_names_the_code_of_its_function(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    digests = {work.code_digest()}
    for text in ("x = 1", "x = 2"):
        (tmp_path / "made_here.py").write_text(text)
        work.code_digest.cache_clear()
        digests.add(work.code_digest("made_here:f"))
    assert len(digests) == 3


def test_rows_carry_where_they_come_from(undisturbed):
    for row in undisturbed.rows().values():
        assert row["code"] == [work.code_digest()]
        assert row["environment"]["numpy"] and row["environment"]["processor"]
        assert row["machines"] == [machine()] and row["threads"] == 1
        assert row["settings"]["hidden"] == 6 and row["iterations"] == 40
        assert row["curve"]["iteration"] == [10, 20, 30, 40]
    assert not list(undisturbed.folder.glob("unfinished/*"))


def test_a_row_names_every_machine_that_its_run_has_been_on(store, tmp_path, monkeypatch):
    job, place = tiny_jobs()[0], store.unfinished(tiny_jobs()[0].key)
    place.mkdir(parents=True)
    loop.train(replace(job.config, iterations=20), place / "run", draw=False)
    monkeypatch.setattr(loop, "machine", lambda: "another")
    assert work.execute(job, tmp_path, threads=2)["machines"] == [machine(), "another"]


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_the_commit_is_that_of_the_package_alone(tmp_path, monkeypatch):
    """In a repository that has the package beside its files, as in a virtual environment, there
    is none."""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=b"]
    for words in (["init"], ["commit", "--allow-empty", "-m", "x"]):
        subprocess.run([*git, *words], check=True, capture_output=True)
    package = tmp_path / "refnet" / "__init__.py"
    package.parent.mkdir()
    package.touch()
    monkeypatch.setattr(work.refnet, "__file__", str(package))
    assert work.commit.__wrapped__() == ""
    subprocess.run([*git, "add", "refnet"], check=True)
    assert re.fullmatch(r"[0-9a-f]{12}\+", work.commit.__wrapped__())


def test_the_comparison_sees_a_run_that_started_anew_with_another_seed(store, undisturbed):
    rows = results(undisturbed)
    make(tiny_study(iterations=41), store)
    assert [row["best"] for row in results(store).values()] != [
        row["best"] for row in rows.values()
    ]


def test_a_run_that_has_begun_is_shown_as_begun_and_goes_on_elsewhere(tmp_path):
    """A folder with a run's small checkpoint, copied: tables and status say how far it is, and
    the study goes on from there."""
    job = tiny_jobs(number=1)[0]
    half = replace(job.config, iterations=20)
    loop.train(half, Store(tmp_path / "a").unfinished(job.key) / "run")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    store = Store(tmp_path / "b")
    assert store.done(job, store.rows()) is None
    begun = work.begun(job, store)
    assert (begun["state"], begun["iterations"], begun["of"]) == ("begun", 20, 40)
    assert (
        begun["curve"]["iteration"] == [10, 20]
        and begun["best"]["accuracy"] >= max(begun["curve"]["accuracy"]) - 1e-4
    )
    text = status(tiny_study(), store)
    assert "20 of 40" in text and text.count("at most") == 4 and "still to compute" in text
    early = Store(tmp_path / "d")  # not evaluated yet
    loop.train(job.config, early.unfinished(job.key) / "run", stop=lambda: True)
    row = work.begun(job, early)
    assert (row["iterations"], row["final"], row["curve"]["accuracy"]) == (0, {}, [])
    assert re.search("0 of 40.*3 runs of which no time is known", status(tiny_study(), early), re.S)
    study = Grid(
        "g",
        "G",
        [Cell("a", {"task": "copy"})],
        [("accuracy, %", accuracy, ".1f"), ("solved at", solved_at, ".0f")],
    )
    line = study.table(View(lambda job: begun)).splitlines()[2].split("|")
    assert line[1].strip() == "a" and line[2].strip().endswith("so far")
    assert [part.strip() for part in line[3:5]] == ["not yet", "1 at 20 of 40 iterations"]
    row = work.execute(job, store.folder)
    assert row["iterations"] == 40 and without_times(row) == without_times(
        work.execute(job, tmp_path / "c")
    )
    # of other settings: not begun
    assert work.begun(replace(job, config=replace(job.config, rate=0.5)), Store(tmp_path)) is None


def _edited(folder):
    lines = (folder / "rows.jsonl").read_text().splitlines(keepends=True)
    lines[0] = lines[0].replace('"iteration": 10', '"iteration": 9')
    (folder / "rows.jsonl").write_text("".join(lines))


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "checkpoint.npz").write_bytes(b"x"),
        lambda folder: (folder / "checkpoint.npz").unlink(),
        lambda folder: (folder / "rows.jsonl").write_bytes(b"#"),
        lambda folder: (folder / "rows.jsonl").write_bytes(b""),
        _edited,
    ],
)
def test_a_damaged_run_is_shown_as_damaged_and_hides_no_other(store, damage):
    jobs = tiny_jobs()
    for job in jobs[:2]:
        loop.train(replace(job.config, iterations=20), store.unfinished(job.key) / "run")
    folder = store.unfinished(jobs[0].key) / "run"
    damage(folder)
    row = work.begun(jobs[0], store)
    assert (row["state"], row["iterations"], row["best"]) == ("begun", 0, {})
    assert f"Or remove {folder.parent}:" in row["damaged"] and "\n" not in row["damaged"]
    text = status(tiny_study(), store)
    assert re.search(r"seed 0 +\| damaged", text) and f"seed 0: {row['damaged']}" in text
    assert re.search(r"seed 1 +\| begun", text)
    study = Grid("g", "G", [Cell("a", {"task": "copy"})], [("accuracy, %", accuracy, ".1f")])
    line = study.table(View(lambda job: row)).splitlines()[2]
    assert [cell.strip() for cell in line.split("|")[1:4]] == ["a", "not yet", "1 damaged"]
    # the study makes all others, and says what to remove
    failed = make(tiny_study(), store)
    assert list(failed) == ["seed 0"] and f"remove {folder.parent}:" in failed["seed 0"]
    assert len(store.rows()) == 2
    shutil.rmtree(folder.parent)
    assert make(tiny_study(), store) == {}


def test_a_run_that_ends_while_it_is_looked_at_is_shown_as_ended(store, tmp_path):
    job = tiny_jobs(number=1)[0]
    row = work.execute(job, tmp_path)
    row_of = work.shown(store)
    assert row_of(job)["state"] == "begun"
    store.append(row)
    assert row_of(job)["state"] == row["state"] and not list(tmp_path.glob("unfinished/*"))


def test_rows_are_read_once_when_one_is_added_meanwhile(store, tmp_path, monkeypatch):
    jobs, reads, rows = tiny_jobs(number=9), [], Store.rows
    row = work.execute(OINIT, tmp_path)
    monkeypatch.setattr(Store, "rows", lambda self: (reads.append(1), rows(self))[1])
    row_of = work.shown(store)
    store.append(row)
    del reads[:]
    assert [row_of(job) for job in jobs] == [None] * 9 and len(reads) == 1
    assert row_of(OINIT)["key"] == row["key"]


def test_only_takes_every_run_that_status_shows(climbed, tmp_path, monkeypatch, capsys):
    """The second rung of a ladder, which nothing has begun."""
    ran = []
    monkeypatch.setattr(
        "refnet.studies.runner.run",
        lambda study, store, *rest: (
            ran.extend(study.jobs(View(lambda job: store.done(job, store.rows())))) or {}
        ),
    )
    path = climbed.path
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    words = ["study", "table-i", "--seeds", "1", "--folder", str(climbed.folder.parent), "--only"]
    name = next(iter(climbed.rows().values()))["name"].replace("T = 10", "T = 20")
    assert cli.main([*words, name]) == 0 and [job.name for job in ran] == [name]


def test_a_row_has_the_commit_at_the_beginning_of_its_run(tmp_path, monkeypatch):
    """Hours later the source tree may have another."""
    monkeypatch.setattr(work, "commit", lambda: f"after {len(CALLS)} calls")
    CALLS.clear()
    job = slow_study().jobs(View())[0]
    assert work.execute(job, tmp_path)["commit"] == "after 0 calls" and CALLS == [0]


@pytest.fixture
def climbed(tmp_path):
    """A store with two rungs of a ladder, one of them solved."""
    store = Store(tmp_path / "table-i")
    for length, state in ((10, "solved"), (20, "finished")):
        job = Ladder("adding", "plain").rung(length)
        store.append(
            {
                "key": job.key,
                "name": job.name,
                "settings": job.settings,
                "state": state,
                "iterations": 500,
                "seconds": 1.0,
                "final": {},
                "best": {},
            }
        )
    return store


def test_a_ladders_status_has_the_rungs_that_are_climbed(climbed, capsys):
    ladder = catalogue.find("table-i")
    text = status(ladder, climbed, 1)
    assert "adding, plain, T = 10, seed 0 " in text and "adding, plain, T = 20, seed 0 " in text
    assert "adding, open, T = 10, seed 0 " in text and "T = 30" not in text
    assert "and further runs after each that is solved" in text
    assert "further runs" not in status(tiny_study(), climbed)
    text = status(only(ladder, "plain, T = 20"), climbed, 1)
    assert text.count("T = ") == 1 and "adding, plain, T = 20, seed 0 " in text
    folder = ["--folder", str(climbed.folder.parent)]
    command = ["study", "table-i", "--only"]
    for mode in ("--table", "--status"):
        assert cli.main([*command, "plain, T = 20", "--seeds", "1", mode, *folder]) == 0
    # a row of a run that the study no longer has
    climbed.append({"key": "0" * 16, "name": "adding, T = 77", "settings": {}, "state": "solved"})
    assert cli.main([*command, "T = 77", "--status", *folder]) == 2
    assert "no run has that in its name" in capsys.readouterr().err


def test_status_takes_what_was_measured(tmp_path, capsys):
    job = tiny_jobs()[0]
    store, measured = Store(tmp_path / "tiny"), {costs.kind(job): 1.5}
    text = status(replace(tiny_study(), paces=measured), store)
    assert "3.0 min at most in one process\n" in text and "1.0 min at most" in text
    text = status(tiny_study(), store, command="refnet study tiny --measure")
    assert "3 runs of which no time is known; measure it: refnet study tiny --measure\n" in text
    assert costs.measure([job]).paces[costs.kind(job)] > 0


def test_steps_are_measured_as_runs_make_them(monkeypatch):
    """On one thread: the hours are of one process."""
    before, used = get_threads(), set()
    step = costs.step
    monkeypatch.setattr(costs, "step", lambda *given: (used.add(get_threads()), step(*given))[1])
    costs.measure(tiny_jobs()[:1])
    assert used == {1} and get_threads() == before


def test_the_command_that_measures_is_one_that_does(tmp_path, capsys, monkeypatch):
    """A study under another protocol, in its quick form: the advice of --status is followed, and
    then the time is known."""
    monkeypatch.setattr("refnet.studies.cli.user_cache", lambda: tmp_path / "cache")
    words = ["study", "figure-2", "--protocol", "manchev-spratling/text", "--quick"]
    asked = [*words, "--status", "--folder", str(tmp_path)]
    assert cli.main(asked) == 0
    command = re.search(r"measure it: refnet (.*)", capsys.readouterr().out)[1]
    assert command.split() == [*words, "--measure"]
    assert cli.main(command.split()) == 0
    assert "figure-2-text" in capsys.readouterr().out
    assert cli.main(asked) == 0
    assert "no time is known" not in capsys.readouterr().out
