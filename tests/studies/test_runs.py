"""Runs of a study: each is made once, whatever fails, is killed, or comes between."""

import os
import re
import shutil
import subprocess
import time
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import fields, replace
from multiprocessing import get_context

import pytest

from refnet import cli
from refnet.maths.threads import get_threads, usual_threads
from refnet.runs.folder import BusyError, holder
from refnet.runs.rows import machine
from refnet.studies import catalogue, costs, runner, work
from refnet.studies.grid import Cell, Grid
from refnet.studies.jobs import Job
from refnet.studies.ladder import Ladder
from refnet.studies.progress import status
from refnet.studies.quantities import accuracy, solved_at
from refnet.studies.runner import run
from refnet.studies.store import Store
from refnet.studies.study import Study, View, only
from refnet.training import fit, loop
from refnet.training.config import Config, applicable
from support.studies import (
    CALLS,
    TINY,
    Distant,
    make,
    orthogonal_start,
    results,
    slow_study,
    study_of,
    tiny_jobs,
    tiny_study,
    without_times,
)

OINIT = orthogonal_start("uniform")
DEADLY = Job("deadly", function="os:_exit", arguments={"status": 1})


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("undisturbed"))
    assert make(tiny_study(), store) == {}
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
    "schedule": "cosine",
    "warmup": 5,
    "class_weights": "1,2",
    "smoothing": 0.1,
    "ignore": "3",
    **dict.fromkeys(
        (
            *("dropout_inputs", "dropout_layers", "dropout_state", "zoneout"),
            *("noise_inputs", "noise_state"),
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


def test_nothing_is_done_twice(undisturbed, monkeypatch):
    before = undisturbed.path.read_bytes()
    monkeypatch.setattr(work, "_train", None)  # would raise
    assert make(tiny_study(), undisturbed) == {}
    # and a worker that gets a run that was done meanwhile does not do it again
    row = work.execute(tiny_jobs()[0], undisturbed.folder)
    undisturbed.append(row)
    assert undisturbed.path.read_bytes() == before


def test_what_fails_is_told_and_the_rest_is_done(store):
    jobs = [*tiny_jobs(number=1), orthogonal_start("bad", distribution="x")]
    study = study_of(jobs)
    failed = make(study, store)
    assert list(failed) == ["bad"] and "ValueError" in failed["bad"]
    assert list(store.rows()) == [jobs[0].key]
    assert "| bad " in status(study, store) and "not run" in status(study, store)


def test_a_run_that_kills_its_process_fails_alone(store, monkeypatch):
    """However often its process dies, the runs that wait, or work beside it, are made."""
    monkeypatch.setattr(runner, "DEATHS", 1)
    study = study_of([DEADLY, *(orthogonal_start(f"seed {seed}", seed) for seed in range(2))])
    reports = []
    failed = run(study, store, executor=2, tell=reports.append)
    assert list(failed) == ["deadly"] and failed["deadly"].startswith(
        "its process was killed 2 times (A process in the process pool was terminated abruptly"
    )
    assert {row["name"] for row in store.rows().values()} == {"seed 0", "seed 1"}
    assert [line[:9] for line in reports if line[0] == "["][0] in ("[2 to go]", "[1 to go]")


def test_a_run_that_another_process_ends_in_between_has_not_failed(store, tmp_path, monkeypatch):
    """One process has made a run; before it adds the row and removes the run's folder, a second
    one begins to go on with it."""
    job = tiny_jobs(number=1)[0]
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
def test_a_run_that_diverges_is_a_result(store, tmp_path, monkeypatch):
    job = Job("wild", replace(TINY, activation="relu", optimizer="sgd", rate=1e30))
    row = work.execute(job, tmp_path)
    assert row["state"] == "diverged" and "not finite" in row["reason"] and row["best"] == {}
    assert str(tmp_path) not in row["reason"]  # the run's folder goes when there is a row
    # what it had reached before counts

    def wild(e, run, batch):
        if run.iteration == TINY.evaluate_every:
            run = replace(run, params={**run.params, "by": run.params["by"] * float("nan")})
        return step(e, run, batch)

    step = fit.step
    monkeypatch.setattr(fit, "step", wild)
    late = work.execute(Job("late", TINY), tmp_path)
    assert late["state"] == "diverged" and late["iterations"] == TINY.evaluate_every
    assert 0 <= late["best"]["accuracy"] == late["final"]["accuracy"]
    store.append(row)
    assert store.done(job, store.rows()) is not None


@pytest.mark.parametrize("held", [True, False], ids=["held", "begun in between"])
def test_a_run_that_another_process_works_on_is_asked_for_again(store, monkeypatch, held):
    calls, train = [], work.loop.train

    def busy_first(job, *rest):
        calls.append(job.name)
        if held and len(calls) == 1:
            raise BusyError("held")
        return work.execute(job, *rest)

    def late(config, folder, draw):
        train(config, folder, draw=draw)
        return train(config, folder, draw=draw)

    monkeypatch.setattr(runner, "PAUSE", 0.01)
    monkeypatch.setattr(runner, "execute", busy_first)
    if not held:
        monkeypatch.setattr(work.loop, "train", late)
    assert make(tiny_study(number=1), store) == {}
    assert len(calls) == 2 and len(store.rows()) == 1


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


@pytest.mark.parametrize("asked", [1, 2, 1000])
def test_a_run_has_the_threads_that_were_asked_for(store, asked):
    """Or all that its machine has."""
    job = Job("count", function="support.studies:count_threads", arguments={"number": 0})
    study = study_of([job])
    assert make(study, store, threads=asked) == {}
    assert store.rows()[job.key]["threads"] == min(asked, usual_threads())


def test_a_run_that_ends_while_it_is_looked_at_is_shown_as_ended(store, tmp_path):
    job = tiny_jobs(number=1)[0]
    row = work.execute(job, tmp_path)
    row_of = work.shown(store)
    assert row_of(job)["state"] == "begun"
    store.append(row)
    assert row_of(job)["state"] == row["state"] and not list(tmp_path.glob("unfinished/*"))


class Gone(ThreadPoolExecutor):
    """Cancels what it was given, as the executor of a dask scheduler that has died does."""

    def submit(self, *call):
        future = Future()
        future.cancel()
        future.set_running_or_notify_cancel()
        return future


@pytest.mark.parametrize("kind", [Gone, ThreadPoolExecutor, ProcessPoolExecutor])
def test_an_executor_that_has_ended_is_named(store, kind):
    """One that cancels what it was given, one that was closed, and one that lost its process."""
    executor, study = kind(1), study_of([DEADLY])
    if kind is ThreadPoolExecutor:
        executor.shutdown()
    with (
        executor,
        pytest.raises(
            OSError,
            match=rf"^the executor \({kind.__name__}\) has ended before its runs did: "
            ".* Start it and this study again",
        ),
    ):
        run(study, store, executor=executor)
    with pytest.raises(CancelledError):
        Gone(1).submit().result()


def _broken(text):
    raise BrokenPipeError(32, "Broken pipe")


@pytest.mark.parametrize(
    "calls, tell, error",
    [(4, len, r"executor \(Distant\) has ended"), (5, _broken, "Broken pipe")],
    ids=["executor gone", "terminal gone"],
)
def test_rows_that_have_come_back_are_added_whatever_ends_the_study(tmp_path, calls, tell, error):
    store = Store(tmp_path / "here")
    with pytest.raises(OSError, match=error):
        run(slow_study(), store, executor=Distant(tmp_path / "there", calls), tell=tell)
    assert len(store.rows()) == calls - 1


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: folder.rename(folder.with_name("moved")),
        shutil.rmtree,
        lambda folder: (
            folder.rename(folder.with_name("moved")),
            shutil.copytree(folder.with_name("moved"), folder),
        ),
    ],
    ids=["moved", "removed", "replaced"],
)
def test_a_study_whose_folder_is_gone_stops(tmp_path, change):
    """What was done would be made once more in a new folder."""
    store = Store(tmp_path / "study")
    CALLS.clear()

    def tell(text):
        if text.startswith("[1 to go]"):
            while len(CALLS) < 4:  # the last run has begun
                time.sleep(0.001)
            change(store.folder)

    with pytest.raises(OSError, match="study was moved, removed or replaced while its runs"):
        make(slow_study(), store, tell=tell)
    assert sorted(CALLS) == [0, 1, 2, 3]


def made_anew(folder):
    """Another folder of that name: if that can be, with the number that the old one had."""
    number = folder.stat().st_ino
    shutil.rmtree(folder)
    for n in range(100):
        new = folder.with_name(f"new {n}")
        new.mkdir()
        if new.stat().st_ino == number:
            break
    new.rename(folder)


def test_a_new_folder_with_the_number_of_the_old_one_is_not_taken_for_it(tmp_path):
    store = Store(tmp_path / "study")
    with pytest.raises(OSError, match="study was moved, removed or replaced while its runs"):
        run(
            slow_study(),
            store,
            executor=Distant(tmp_path / "there", 5),
            tell=lambda text: made_anew(store.folder) if text.startswith("[1 to go]") else None,
        )
    assert not store.path.exists()


def test_a_folder_in_which_no_row_can_be_written_is_refused_before_a_run(store, monkeypatch):
    def refused(self):
        raise PermissionError(13, "Permission denied", str(self.folder / ".lock"))

    monkeypatch.setattr(Store, "held", refused)
    CALLS.clear()
    with pytest.raises(PermissionError):
        make(slow_study(), store)
    assert CALLS == []


def test_a_run_that_another_process_has_ended_is_not_waited_for(tmp_path, monkeypatch):
    """Each time a busy run is asked for again, all rows are read."""
    asked, jobs = [], slow_study(2).jobs(View())
    row = work.execute(jobs[0], tmp_path / "there")
    store = Store(tmp_path / "here")

    def first_busy(job, *rest):
        if job == jobs[0]:
            store.append(row)
            raise BusyError("held")
        time.sleep(0.5)
        return work.execute(job, *rest)

    monkeypatch.setattr(runner, "PAUSE", 0.01)
    monkeypatch.setattr(runner, "execute", first_busy)
    study = Study("two", "", lambda *ask: (asked.append(1), jobs)[1], lambda *ask: "")
    assert make(study, store) == {}
    assert len(asked) <= 5


def test_rows_are_read_once_when_one_is_added_meanwhile(store, tmp_path, monkeypatch):
    jobs, reads, rows = tiny_jobs(number=9), [], Store.rows
    row = work.execute(OINIT, tmp_path)
    monkeypatch.setattr(Store, "rows", lambda self: (reads.append(1), rows(self))[1])
    row_of = work.shown(store)
    store.append(row)
    del reads[:]
    assert [row_of(job) for job in jobs] == [None] * 9 and len(reads) == 1
    assert row_of(OINIT)["key"] == row["key"]


def test_an_error_of_a_worker_names_its_machine(store, monkeypatch):
    monkeypatch.setattr(work.platform, "node", lambda: "far-away")
    monkeypatch.setattr(work, "_note_code", lambda folder, function: (folder / "x").read_text())
    failed = make(slow_study(1), store)
    assert failed["slow 0"].endswith("; check the name (on far-away)")


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


def test_processes_of_the_caller_go_on(store):
    process = get_context("spawn").Process(target=time.sleep, args=(600,))
    process.start()
    try:
        assert run(study_of([OINIT]), store) == {}
        assert process.is_alive()
    finally:
        process.kill()
        process.join()


def test_a_row_has_the_commit_at_the_beginning_of_its_run(tmp_path, monkeypatch):
    """Hours later the source tree may have another."""
    monkeypatch.setattr(work, "commit", lambda: f"after {len(CALLS)} calls")
    CALLS.clear()
    job = slow_study().jobs(View())[0]
    assert work.execute(job, tmp_path)["commit"] == "after 0 calls" and CALLS == [0]


def test_a_study_without_workers_is_refused(store):
    with pytest.raises(ValueError, match="executor is 0; need at least 1"):
        run(tiny_study(), store, executor=0)


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


def test_what_a_kill_leaves_of_a_run_that_is_done_is_removed(store):
    """Between its row and the removal of its folder; but not of a run that is made again."""
    study = slow_study(2)
    assert run(study, store) == {}
    keys = [job.key for job in study.jobs(View())]
    for key in (*keys, "another"):
        (store.unfinished(key) / "run").mkdir(parents=True)
        (store.unfinished(key) / "made.json").write_text("{}")
    store.repeat(keys[:1])
    assert run(study, store) == {}
    assert {path.name for path in store.folder.glob("unfinished/*")} == {keys[0], "another"}
    assert len(store.rows()) == 2
