"""Runs of a study: each is made once, whatever fails, is killed, or comes between."""

import os
import shutil
import time
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

import pytest

from refnet import cli
from refnet.maths.threads import usual_threads
from refnet.runs import style
from refnet.runs.folder import BusyError, holder
from refnet.studies import runner, work
from refnet.studies.jobs import Job
from refnet.studies.progress import status
from refnet.studies.runner import run
from refnet.studies.store import Store
from refnet.studies.study import Study, View
from refnet.training import fit, loop
from support.arguments import refused
from support.studies import (
    CALLS,
    TINY,
    Distant,
    make,
    orthogonal_start,
    slow_study,
    study_of,
    tiny_jobs,
    tiny_study,
)

OINIT = orthogonal_start("uniform")


DEADLY = Job("deadly", function="os:_exit", arguments={"status": 1})


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
    pytest.importorskip("matplotlib")
    drawn = replace(tiny_study(), figure=lambda *ask: "a figure")
    shutil.copytree(undisturbed.folder, tmp_path / "tiny")
    held = []
    monkeypatch.setattr(style, "save", lambda figure, path, dpi: held.append(holder(path.parent)))
    monkeypatch.setattr("refnet.studies.catalogue.find", lambda name: drawn)
    assert cli.main(["study", "tiny", "--table", "--folder", str(tmp_path)]) == 0
    assert held and held[0].startswith(f"process {os.getpid()} ")


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


@pytest.mark.parametrize("asked", [1, 2, 1000])
def test_a_run_has_the_threads_that_were_asked_for(store, asked):
    """Or all that its machine has."""
    job = Job("count", function="support.studies:count_threads", arguments={"number": 0})
    study = study_of([job])
    assert make(study, store, threads=asked) == {}
    assert store.rows()[job.key]["threads"] == min(asked, usual_threads())


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
        refused(
            rf"^the executor \({kind.__name__}\) has ended before its runs did: "
            ".* Start it and this study again",
            OSError,
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
    with refused(error, OSError):
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

    with refused("study was moved, removed or replaced while its runs", OSError):
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
    with refused("study was moved, removed or replaced while its runs", OSError):
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


def test_an_error_of_a_worker_names_its_machine(store, monkeypatch):
    monkeypatch.setattr(work.platform, "node", lambda: "far-away")
    monkeypatch.setattr(work, "_note_code", lambda folder, function: (folder / "x").read_text())
    failed = make(slow_study(1), store)
    assert failed["slow 0"].endswith("; check the name (on far-away)")


def test_processes_of_the_caller_go_on(store):
    process = get_context("spawn").Process(target=time.sleep, args=(600,))
    process.start()
    try:
        assert run(study_of([OINIT]), store) == {}
        assert process.is_alive()
    finally:
        process.kill()
        process.join()


def test_a_study_without_workers_is_refused(store):
    with refused("executor is 0; need at least 1"):
        run(tiny_study(), store, executor=0)


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
