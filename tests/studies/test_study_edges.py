"""Studies where something else is in the way: other processes, folders, executors, protocols."""

import re
import shutil
import threading
import time
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

import pytest

from refnet import cli
from refnet.maths.threads import get_threads, usual_threads
from refnet.runs.folder import BusyError, hold
from refnet.studies import catalogue, costs, runner, work
from refnet.studies.jobs import Job
from refnet.studies.ladder import _rung
from refnet.studies.progress import status
from refnet.studies.runner import run
from refnet.studies.store import Store
from refnet.studies.study import Study, only
from support.studies import CALLS, Distant, slow_study, tiny_jobs, tiny_study

OINIT = Job(
    "uniform",
    function="refnet.studies.manchev:orthogonalise",
    arguments={"distribution": "uniform", "seed": 0, "runs": 2},
)


@pytest.mark.parametrize("asked", [1, 2, 1000])
def test_a_run_has_the_threads_that_were_asked_for(tmp_path, asked):
    """Or all that its machine has."""
    job = Job("count", function="support.studies:count_threads", arguments={"number": 0})
    study, store = Study("count", "", lambda *ask: [job], lambda *ask: ""), Store(tmp_path)
    with ThreadPoolExecutor(1) as pool:
        assert run(study, store, executor=pool, threads=asked) == {}
    assert store.rows()[job.key]["threads"] == min(asked, usual_threads())


def test_two_processes_call_every_function_once(tmp_path, monkeypatch):
    """Two runners on one folder, whose locks hold between threads too."""
    monkeypatch.setattr(runner, "PAUSE", 0.01)
    CALLS.clear()
    failed = []

    def work_on():
        with ThreadPoolExecutor(1) as pool:
            failed.append(run(slow_study(), Store(tmp_path), executor=pool))

    threads = [threading.Thread(target=work_on) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == [{}] * 3 and sorted(CALLS) == [0, 1, 2, 3]
    rows = Store(tmp_path).rows().values()
    assert sorted(row["value"] for row in rows) == [0, 1 / 3, 2 / 3, 1]
    assert {row["far"] for row in rows} == {"Infinity"}
    assert not list(tmp_path.glob("unfinished/*"))


def test_a_function_that_another_process_calls_is_busy(tmp_path):
    job = slow_study().jobs(None, 1, False)[0]
    folder = Store(tmp_path).unfinished(job.key)
    folder.mkdir(parents=True)
    with hold(folder), pytest.raises(BusyError, match="is in use by process"):
        work.execute(job, tmp_path)


def test_a_run_that_ends_while_it_is_looked_at_is_shown_as_ended(tmp_path):
    job, store = tiny_jobs(number=1)[0], Store(tmp_path)
    row = work.execute(job, tmp_path)
    found = work.shown(store)
    assert found(job)["state"] == "begun"
    store.append(row)
    assert found(job)["state"] == row["state"] and not list(tmp_path.glob("unfinished/*"))


def test_a_run_that_ends_just_before_is_not_begun_anew(tmp_path, monkeypatch):
    """Another process adds its row, and removes its folder, after this one has looked for them."""
    job, store = tiny_jobs(number=1)[0], Store(tmp_path)
    row, note = work.execute(job, tmp_path), work._note_code

    def late(folder, function):
        store.append(row)
        return note(folder, function)

    monkeypatch.setattr(work, "_note_code", late)
    monkeypatch.setattr(work, "_train", None)  # would raise
    assert work.execute(job, tmp_path) == store.rows()[job.key]


class Gone(ThreadPoolExecutor):
    """Cancels what it was given, as the executor of a dask scheduler that has died does."""

    def submit(self, *call):
        future = Future()
        future.cancel()
        future.set_running_or_notify_cancel()
        return future


def test_an_executor_that_has_ended_is_named(tmp_path):
    with ThreadPoolExecutor(1) as closed:
        pass
    for executor in (Gone(1), closed):
        with pytest.raises(
            OSError,
            match=rf"^the executor \({type(executor).__name__}\) has ended "
            "before its runs did: .* Start it and this study again",
        ):
            run(tiny_study(), Store(tmp_path), executor=executor)
    with pytest.raises(CancelledError):
        Gone(1).submit().result()


def test_a_pool_that_has_lost_its_process_is_named(tmp_path):
    jobs = [Job("deadly", function="os:_exit", arguments={"status": 1})]
    study = Study("deadly", "", lambda found, seeds, quick: jobs, lambda *ask: "")
    with ProcessPoolExecutor(1) as pool, pytest.raises(OSError, match="ProcessPoolExecutor"):
        run(study, Store(tmp_path), executor=pool)


@pytest.mark.parametrize("attempt", range(5))
def test_rows_that_have_come_back_are_kept_when_the_executor_ends(tmp_path, attempt):
    store = Store(tmp_path / "here")
    with pytest.raises(OSError, match=r"executor \(Distant\) has ended"):
        run(slow_study(), store, executor=Distant(tmp_path / "there", 4))
    assert len(store.rows()) == 3


def test_rows_that_have_come_back_are_kept_when_nobody_can_be_told(tmp_path):
    def broken(text):
        raise BrokenPipeError(32, "Broken pipe")

    store = Store(tmp_path / "here")
    with pytest.raises(BrokenPipeError):
        run(slow_study(), store, executor=Distant(tmp_path / "there", 5), tell=broken)
    assert len(store.rows()) == 4


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

    with (
        ThreadPoolExecutor(1) as pool,
        pytest.raises(OSError, match="study was moved, removed or replaced while its runs"),
    ):
        run(slow_study(), store, executor=pool, tell=tell)
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


def test_a_folder_in_which_no_row_can_be_written_is_refused_before_a_run(tmp_path, monkeypatch):
    def refused(self):
        raise PermissionError(13, "Permission denied", str(self.folder / ".lock"))

    monkeypatch.setattr(Store, "held", refused)
    CALLS.clear()
    with ThreadPoolExecutor(1) as pool, pytest.raises(PermissionError):
        run(slow_study(), Store(tmp_path), executor=pool)
    assert CALLS == []


def test_a_run_that_another_process_has_ended_is_not_waited_for(tmp_path, monkeypatch):
    """Each time a busy run is asked for again, all rows are read."""
    asked, jobs = [], slow_study(2).jobs(None, 1, False)
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
    with ThreadPoolExecutor(1) as pool:
        assert run(study, store, executor=pool) == {}
    assert len(asked) <= 5


def test_rows_are_read_once_when_one_is_added_meanwhile(tmp_path, monkeypatch):
    store, jobs, reads, rows = Store(tmp_path), tiny_jobs(number=9), [], Store.rows
    row = work.execute(OINIT, tmp_path)
    monkeypatch.setattr(Store, "rows", lambda self: (reads.append(1), rows(self))[1])
    found = work.shown(store)
    store.append(row)
    del reads[:]
    assert [found(job) for job in jobs] == [None] * 9 and len(reads) == 1
    assert found(OINIT)["key"] == row["key"]


def test_an_error_of_a_worker_names_its_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(work.platform, "node", lambda: "far-away")
    monkeypatch.setattr(work, "_note_code", lambda folder, function: (folder / "x").read_text())
    with ThreadPoolExecutor(1) as pool:
        failed = run(slow_study(1), Store(tmp_path), executor=pool)
    assert failed["slow 0"].endswith("; check the name (on far-away)")


def test_only_takes_every_run_that_status_shows(climbed, tmp_path, monkeypatch, capsys):
    """The second rung of a ladder, which nothing has begun."""
    ran = []
    monkeypatch.setattr(
        "refnet.studies.runner.run",
        lambda study, store, *rest: (
            ran.extend(study.jobs(lambda job: store.done(job, store.rows()), 1, False)) or {}
        ),
    )
    path = climbed.path
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    words = ["study", "table-i", "--seeds", "1", "--folder", str(climbed.folder.parent), "--only"]
    name = next(iter(climbed.rows().values()))["name"].replace("T = 10", "T = 20")
    assert cli.main([*words, name]) == 0 and [job.name for job in ran] == [name]


def test_processes_of_the_caller_go_on(tmp_path):
    own = get_context("spawn").Process(target=time.sleep, args=(600,))
    own.start()
    try:
        assert run(Study("one", "", lambda *ask: [OINIT], lambda *ask: ""), Store(tmp_path)) == {}
        assert own.is_alive()
    finally:
        own.kill()
        own.join()


def test_a_row_has_the_commit_at_the_beginning_of_its_run(tmp_path, monkeypatch):
    """Hours later the source tree may have another."""
    monkeypatch.setattr(work, "commit", lambda: f"after {len(CALLS)} calls")
    CALLS.clear()
    job = slow_study().jobs(None, 1, False)[0]
    assert work.execute(job, tmp_path)["commit"] == "after 0 calls" and CALLS == [0]


@pytest.mark.parametrize("workers", [0, -1])
def test_a_study_without_workers_is_refused(tmp_path, workers):
    with pytest.raises(ValueError, match=f"executor is {workers}; need at least 1"):
        run(tiny_study(), Store(tmp_path), executor=workers)


@pytest.fixture
def climbed(tmp_path):
    """A store with two rungs of a ladder, one of them solved."""
    store = Store(tmp_path / "table-i")
    for length, state in ((10, "solved"), (20, "finished")):
        job = _rung("adding", "plain", length, 0, False)
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
    folder = str(climbed.folder.parent)
    for words in (["--table"], ["--status"]):
        assert (
            cli.main(
                [
                    "study",
                    "table-i",
                    "--seeds",
                    "1",
                    "--only",
                    "plain, T = 20",
                    *words,
                    "--folder",
                    folder,
                ]
            )
            == 0
        )
    # a row of a run that the study no longer has
    climbed.append({"key": "0" * 16, "name": "adding, T = 77", "settings": {}, "state": "solved"})
    assert cli.main(["study", "table-i", "--only", "T = 77", "--status", "--folder", folder]) == 2
    assert "no run has that in its name" in capsys.readouterr().err


def test_status_takes_what_was_measured(tmp_path, capsys):
    job = tiny_jobs()[0]
    store, measured = Store(tmp_path / "tiny"), {costs.kind(job): 1.5}
    text = status(replace(tiny_study(), paces=measured), store)
    assert "3.0 min at most in one process\n" in text and "1.0 min at most" in text
    text = status(tiny_study(), store, command="refnet study tiny --measure")
    assert "3 runs of which no time is known; measure it: refnet study tiny --measure\n" in text
    assert costs.measure([job]).paces[costs.kind(job)] > 0
    path = tmp_path / "costs.json"
    costs.remember(path, {"tiny": costs.Cost(1, 2, measured)})
    assert costs.remembered(path)["tiny"].paces == measured


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


def test_what_a_kill_leaves_of_a_run_that_is_done_is_removed(tmp_path):
    """Between its row and the removal of its folder; but not of a run that is made again."""
    store, study = Store(tmp_path), slow_study(2)
    assert run(study, store) == {}
    keys = [job.key for job in study.jobs(lambda job: None, 1, False)]
    for key in (*keys, "another"):
        (store.unfinished(key) / "run").mkdir(parents=True)
        (store.unfinished(key) / "made.json").write_text("{}")
    store.repeat(keys[:1])
    assert run(study, store) == {}
    assert {path.name for path in store.folder.glob("unfinished/*")} == {keys[0], "another"}
    assert len(store.rows()) == 2
