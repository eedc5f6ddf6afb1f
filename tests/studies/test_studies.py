"""Studies: keys of runs, nothing twice, what fails and what is damaged."""

import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace

import pytest

from refnet import cli
from refnet.runs.folder import BusyError, holder
from refnet.runs.rows import machine
from refnet.studies import work
from refnet.studies.grid import Cell, accuracy, grid, solved_at
from refnet.studies.jobs import Job
from refnet.studies.progress import status
from refnet.studies.runner import run
from refnet.studies.store import Store
from refnet.studies.study import Study
from refnet.training import loop
from refnet.training.config import Config, applicable
from support.studies import TINY, results, tiny_jobs, tiny_study, without_times


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("undisturbed"))
    with ThreadPoolExecutor(1) as pool:
        assert run(tiny_study(), store, executor=pool) == {}
    return store


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


def test_a_row_names_every_machine_that_its_run_has_been_on(tmp_path, monkeypatch):
    job, place = tiny_jobs()[0], Store(tmp_path).unfinished(tiny_jobs()[0].key)
    place.mkdir(parents=True)
    loop.train(replace(job.config, iterations=20), place / "run", draw=False)
    monkeypatch.setattr(loop, "machine", lambda: "another")
    assert work.execute(job, tmp_path, threads=2)["machines"] == [machine(), "another"]


def test_what_a_function_makes_names_its_machine(tmp_path, monkeypatch):
    """Not that of a later process, which finds it made."""
    job = Job(
        "f",
        function="refnet.studies.manchev:orthogonalise",
        arguments={"distribution": "uniform", "seed": 0, "runs": 2},
    )
    work.execute(job, tmp_path)
    monkeypatch.setattr(work, "machine", lambda: "another")
    assert work.execute(job, tmp_path)["machines"] == [machine()]


def test_nothing_is_done_twice(undisturbed, monkeypatch):
    before = undisturbed.path.read_bytes()
    monkeypatch.setattr(work, "_train", None)  # would raise
    with ThreadPoolExecutor(1) as pool:
        assert run(tiny_study(), undisturbed, executor=pool) == {}
        # and a worker that gets a run that was done meanwhile does not do it again
        row = work.execute(tiny_jobs()[0], undisturbed.folder)
    undisturbed.append(row)
    assert undisturbed.path.read_bytes() == before


def test_what_fails_is_told_and_the_rest_is_done(tmp_path):
    jobs = [
        *tiny_jobs(number=1),
        Job(
            "bad",
            function="refnet.studies.manchev:orthogonalise",
            arguments={"distribution": "x", "seed": 0, "runs": 1},
        ),
    ]
    study = Study("bad", "", lambda found, seeds, quick: jobs, lambda *ask: "")
    with ThreadPoolExecutor(1) as pool:
        failed = run(study, Store(tmp_path), executor=pool)
    assert list(failed) == ["bad"] and "ValueError" in failed["bad"]
    assert list(Store(tmp_path).rows()) == [jobs[0].key]
    assert "| bad " in status(study, Store(tmp_path)) and "not run" in status(
        study, Store(tmp_path)
    )


def test_a_run_that_kills_its_process_fails_alone(tmp_path, monkeypatch):
    """However often its process dies, the runs that wait, or work beside it, are made."""
    from refnet.studies import runner

    monkeypatch.setattr(runner, "DEATHS", 1)
    jobs = [
        Job("deadly", function="os:_exit", arguments={"status": 1}),
        *(
            Job(
                f"seed {seed}",
                function="refnet.studies.manchev:orthogonalise",
                arguments={"distribution": "uniform", "seed": seed, "runs": 1},
            )
            for seed in range(2)
        ),
    ]
    study = Study("deadly", "", lambda found, seeds, quick: jobs, lambda *ask: "")
    told = []
    failed = run(study, Store(tmp_path), executor=2, tell=told.append)
    assert list(failed) == ["deadly"] and failed["deadly"].startswith(
        "its process was killed 2 times (A process in the process pool was terminated abruptly"
    )
    assert {row["name"] for row in Store(tmp_path).rows().values()} == {"seed 0", "seed 1"}
    assert [line[:9] for line in told if line[0] == "["][0] in ("[2 to go]", "[1 to go]")


def test_a_run_that_another_process_ends_in_between_has_not_failed(tmp_path, monkeypatch):
    """One process has made a run; before it adds the row and removes the run's folder, a second
    one begins to go on with it."""
    job, store = tiny_jobs(number=1)[0], Store(tmp_path)
    row = work.execute(job, tmp_path)
    resume = loop.resume

    def late(config, folder, draw):
        store.append(row)
        return resume(config, folder, draw=draw)

    monkeypatch.setattr(work.loop, "resume", late)
    assert work.execute(job, tmp_path) == store.rows()[job.key]
    store.path.unlink()
    with pytest.raises(FileNotFoundError):
        monkeypatch.setattr(work, "_note_code", lambda folder, function: (folder / "x").read_text())
        work.execute(job, tmp_path)


def test_a_figure_is_saved_by_the_holder_of_the_folder(undisturbed, tmp_path, monkeypatch):
    """Who holds the folder sweeps it, and would remove the half of a figure that lies there."""
    plots = pytest.importorskip("refnet.runs.plots")
    drawn = replace(tiny_study(), figure=lambda *ask: "a figure")
    shutil.copytree(undisturbed.folder, tmp_path / "tiny")
    held = []
    monkeypatch.setattr(plots, "save", lambda path, figure: held.append(holder(path.parent)))
    monkeypatch.setattr("refnet.studies.catalogue.find", lambda name: drawn)
    assert cli.main(["study", "tiny", "--table", "--folder", str(tmp_path)]) == 0
    assert held and held[0].startswith(f"process {os.getpid()} ")


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


@pytest.mark.filterwarnings("ignore:.*encountered in.*:RuntimeWarning")
def test_a_run_that_diverges_is_a_result(tmp_path, monkeypatch):
    job = Job("wild", replace(TINY, activation="relu", optimizer="sgd", rate=1e30))
    row = work.execute(job, tmp_path)
    assert row["state"] == "diverged" and "not finite" in row["reason"] and row["best"] == {}
    assert str(tmp_path) not in row["reason"]  # the run's folder goes when there is a row
    # what it had reached before counts
    steps = iter(range(TINY.evaluate_every + 1))

    def wild(e, run, batch):
        if next(steps) == TINY.evaluate_every:
            run = replace(run, params={**run.params, "by": run.params["by"] * float("nan")})
        return step(e, run, batch)

    step = loop.step
    monkeypatch.setattr(loop, "step", wild)
    late = work.execute(Job("late", TINY), tmp_path)
    assert late["state"] == "diverged" and late["iterations"] == TINY.evaluate_every
    assert 0 <= late["best"]["accuracy"] == late["final"]["accuracy"]
    Store(tmp_path).append(row)
    assert Store(tmp_path).done(job, Store(tmp_path).rows()) is not None


def test_a_run_that_another_process_holds_is_asked_for_again(tmp_path, monkeypatch):
    from refnet.studies import runner

    calls = []

    def busy_first(job, *rest):
        calls.append(job.name)
        if len(calls) == 1:
            raise BusyError("held")
        return work.execute(job, *rest)

    monkeypatch.setattr(runner, "PAUSE", 0.01)
    monkeypatch.setattr(runner, "execute", busy_first)
    with ThreadPoolExecutor(1) as pool:
        assert run(tiny_study(number=1), Store(tmp_path), executor=pool) == {}
    assert len(calls) == 2 and len(Store(tmp_path).rows()) == 1


def test_a_run_that_another_process_begins_in_between_is_asked_for_again(tmp_path, monkeypatch):
    from refnet.studies import runner

    train = work.loop.train

    def late(config, folder, draw):
        train(config, folder, draw=draw)
        return train(config, folder, draw=draw)

    monkeypatch.setattr(runner, "PAUSE", 0.01)
    monkeypatch.setattr(work.loop, "train", late)
    with ThreadPoolExecutor(1) as pool:
        assert run(tiny_study(number=1), Store(tmp_path), executor=pool) == {}
    assert len(Store(tmp_path).rows()) == 1


def test_the_comparison_sees_a_run_that_started_anew_with_another_seed(tmp_path, undisturbed):
    rows = results(undisturbed)
    with ThreadPoolExecutor(1) as pool:
        run(tiny_study(iterations=41), Store(tmp_path), executor=pool)
    assert [row["best"] for row in results(Store(tmp_path)).values()] != [
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
    study = grid(
        "g",
        "G",
        [Cell("a", {"task": "copy"})],
        [("accuracy, %", accuracy, ".1f"), ("solved at", solved_at, ".0f")],
    )
    line = study.table(lambda job: begun, 1, False).splitlines()[2].split("|")
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
def test_a_damaged_run_is_shown_as_damaged_and_hides_no_other(tmp_path, damage):
    jobs, store = tiny_jobs(), Store(tmp_path)
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
    study = grid("g", "G", [Cell("a", {"task": "copy"})], [("accuracy, %", accuracy, ".1f")])
    assert [
        part.strip()
        for part in study.table(lambda job: row, 1, False).splitlines()[2].split("|")[1:4]
    ] == ["a", "not yet", "1 damaged"]
    # the study makes all others, and says what to remove
    with ThreadPoolExecutor(1) as pool:
        failed = run(tiny_study(), store, executor=pool)
    assert list(failed) == ["seed 0"] and f"remove {folder.parent}:" in failed["seed 0"]
    assert len(store.rows()) == 2
    shutil.rmtree(folder.parent)
    with ThreadPoolExecutor(1) as pool:
        assert run(tiny_study(), store, executor=pool) == {}
