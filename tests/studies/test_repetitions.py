"""Runs that are made again: each once, whatever interrupts the repetition."""

import re
import shutil
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pytest

from refnet.runs.read import FileError
from refnet.studies import runner, work
from refnet.studies.progress import status
from refnet.studies.runner import run
from refnet.studies.store import Store
from refnet.studies.study import Study, only
from refnet.training import fit, loop
from support.arguments import refused
from support.studies import (
    CALLS,
    Distant,
    make,
    make_at_once,
    results,
    slow_study,
    tiny_jobs,
    tiny_study,
)

SEEDS = Study("seeds", "", lambda view: tiny_jobs(number=view.seeds), lambda *ask: "")


class First(Executor):
    """Makes as many runs as it says, and never gets to the others."""

    def __init__(self, most=1):
        self.left = most

    def submit(self, function, *given):
        future, self.left = Future(), self.left - 1
        if self.left >= 0:
            future.set_result(function(*given))
        return future


def interrupted(text):
    raise KeyboardInterrupt


def lines(store):
    return len(store.path.read_bytes().splitlines())


@pytest.fixture
def steps(monkeypatch):
    """The steps of all runs so far, without those that are tried and forgotten."""
    monkeypatch.setattr(loop, "_try", lambda *given: None)
    calls, step = [], fit.step
    monkeypatch.setattr(fit, "step", lambda *given: (calls.append(1), step(*given))[1])
    return calls


@contextmanager
def stopped_after(steps, number):
    """In this block training is stopped when there have been so many steps."""
    train = partial(loop.train, stop=lambda: len(steps) >= number)
    with pytest.MonkeyPatch.context() as change:
        change.setattr(work.loop, "train", train)
        yield


@pytest.fixture
def done(tmp_path):
    """A study of three runs that is done."""
    store = Store(tmp_path / "done")
    assert make(SEEDS, store) == {}
    return store


def again(store):
    return make(SEEDS, store, repeat=True)


def interrupt(store):
    """A repetition, after its first run."""
    with pytest.raises(KeyboardInterrupt):
        run(SEEDS, store, executor=First(), repeat=True, tell=interrupted)


def test_a_repetition_goes_on_after_an_interruption(done):
    before, reports = results(done), []
    interrupt(done)
    assert lines(done) == 4 and "2 runs are still to be made again" in status(SEEDS, done)
    assert make(SEEDS, done, tell=reports.append) == {} and lines(done) == 4
    assert reports == ["2 runs are still to be made again; --repeat goes on with them"]
    assert again(done) == {}
    assert lines(done) == 6 and not done.again.exists()
    assert "made again" not in status(SEEDS, done)
    assert again(done) == {}
    assert lines(done) == 9 and results(done) == before


@pytest.mark.parametrize("seeds", [3, 1], ids=["done", "begun"])
def test_of_a_repetition_only_what_failed_is_left(store, monkeypatch, seeds):
    train, names = work._train, []
    assert make(SEEDS, store, seeds=seeds) == {}

    def failing(job, *rest):
        names.append(job.name)
        if job.name == "seed 1":
            raise OSError(28, "No space left on device")
        return train(job, *rest)

    with monkeypatch.context() as change:
        change.setattr(work, "_train", failing)
        for _ in range(2):
            assert list(again(store)) == ["seed 1"]
    assert names == ["seed 0", "seed 1", "seed 2", "seed 1"]
    assert ("1 runs are still to be made again" in status(SEEDS, store)) == (seeds == 3)
    assert make(SEEDS, store, repeat=seeds == 3) == {} and not store.again.exists()
    assert lines(store) == 3 + seeds


@pytest.mark.parametrize("most", [1, 2])
def test_a_repetition_of_a_study_that_is_not_done_ends(store, steps, most):
    """Interrupted again and again, it makes every run that was done once more, and the others."""
    assert make(SEEDS, store, seeds=1) == {}
    begun = tiny_jobs()[2]
    with stopped_after(steps, 65):
        work.execute(begun, store.folder)
    assert "made again" not in status(SEEDS, store)
    for _ in range(2 // most):
        reports = []

        def after(text):
            reports.append(text)
            if len(reports) == most:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run(SEEDS, store, executor=First(most), repeat=True, tell=after)
    assert again(store) == {} and not store.again.exists()
    assert lines(store) == 4 and len(steps) == 4 * 40  # what was begun went on
    assert again(store) == {} and lines(store) == 7


def test_a_smaller_repetition_leaves_what_is_left_of_a_larger_one(done):
    interrupt(done)
    assert len(done.repetition()) == 2
    for count in (5, 6):  # seed 0 is made again as often as that is asked for
        assert make(SEEDS, done, seeds=1, repeat=True) == {}
        assert lines(done) == count and len(done.repetition()) == 2
    assert make(only(SEEDS, "seed 2"), done, repeat=True) == {}
    assert lines(done) == 7 and [*done.repetition()] == [tiny_jobs()[1].key]
    assert again(done) == {} and lines(done) == 8 and not done.again.exists()


def test_a_run_is_repeated_whatever_its_row_is_called(done):
    """A label may have been changed since, and another study has another name for the run."""
    renamed = replace(
        SEEDS, jobs=lambda *ask: [replace(job, name=f"new {job.name}") for job in tiny_jobs()]
    )
    assert make(only(renamed, "new seed 1"), done, repeat=True) == {}
    assert lines(done) == 4 and done.rows()[tiny_jobs()[1].key]["name"] == "new seed 1"


def ladder(view):
    """Each of three runs is wanted if the one before it is solved."""
    for job in tiny_jobs():
        if (row := view.row_of(job)) is None:
            return [job]
        if row["state"] != "solved":
            return []
    return []


LADDER = Study("ladder", "", ladder, lambda *ask: "", open_ended=True)


@pytest.fixture
def state(monkeypatch):
    """A list of the state with which all runs end."""
    train, state = work._train, ["solved"]
    monkeypatch.setattr(work, "_train", lambda *given: {**train(*given), "state": state[0]})
    return state


def killed(monkeypatch, store, before=False):
    """A repetition of the ladder is killed before or after the next row is added."""
    append = Store.append

    def interrupted(self, row):
        if not before:
            append(self, row)
        raise KeyboardInterrupt

    with monkeypatch.context() as change, pytest.raises(KeyboardInterrupt):
        change.setattr(Store, "append", interrupted)
        make(LADDER, store, repeat=True)


def test_a_ladder_that_ends_earlier_leaves_nothing_after_an_interruption(store, monkeypatch, state):
    assert make(LADDER, store) == {}
    state[0] = "finished"
    for before in (True, False):
        killed(monkeypatch, store, before)
        assert {*store.repetition()} == {key for key in [tiny_jobs()[0].key] if before}
    assert lines(store) == 4 and not store.again.exists()


def test_a_ladder_that_climbs_higher_goes_on_after_an_interruption(store, monkeypatch, state):
    """At any place: after a row was added, too, before the next run has begun."""
    state[0] = "finished"
    assert make(LADDER, store) == {} and lines(store) == 1
    state[0] = "solved"
    for count in (2, 3, 4):
        killed(monkeypatch, store)
        assert lines(store) == count
    assert not store.again.exists()


def test_a_late_row_disturbs_no_repetition(done, tmp_path):
    """A process that was asleep comes back with a row that another one has made meanwhile."""
    job = tiny_jobs()[0]
    late = work.execute(job, tmp_path / "elsewhere")
    done.repeat([job.key])
    going = done.unfinished(job.key) / "run"
    going.mkdir(parents=True)
    done.append(late)
    assert going.exists() and lines(done) == 3 and [*done.repetition()] == [job.key]


def test_a_row_that_is_lost_in_a_repetition_is_made_once(done, steps):
    done.repeat(done.rows())
    _, *rest = done.path.read_bytes().splitlines(keepends=True)
    done.path.write_bytes(b"".join(rest))
    assert again(done) == {} and len(steps) == 3 * 40
    assert lines(done) == 5 and not done.again.exists()


@pytest.mark.parametrize("distant", [False, True])
def test_what_a_repetition_has_ended_is_not_made_once_more(
    done, tmp_path, steps, monkeypatch, distant
):
    """The disk is full, or the process killed, between the end of the runs and their rows. Other
    leftovers, as on a worker's own disk, do not count."""

    def repeated():
        executor = Distant(tmp_path / "there", 4) if distant else ThreadPoolExecutor(1)
        with executor:
            return run(SEEDS, done, executor=executor, repeat=True)

    def full(self, row):
        raise OSError(28, "No space left on device")

    for _ in range(2):
        del steps[:]
        with monkeypatch.context() as change, refused("No space left", OSError):
            change.setattr(Store, "append", full)
            repeated()
        assert len(steps) == 3 * 40 and len(done.repetition()) == 3
        assert repeated() == {} and len(steps) == 3 * 40 and not done.again.exists()
    assert lines(done) == 9


def test_a_repetition_that_was_interrupted_within_a_run_goes_on_there(done, steps):
    job = tiny_jobs()[0]
    done.repeat([job.key])
    (mark,) = done.repetition().values()
    with stopped_after(steps, 25):
        work.execute(job, done.folder, mark)
    assert len(steps) == 25
    text = status(SEEDS, done)
    assert re.search(r"seed 0 +\| begun +\| 25 of 40 ", text)
    assert re.search(r"seed 1 +\| finished +\| 40 ", text)
    assert again(done) == {} and len(steps) == 3 * 40
    assert not done.again.exists()


def test_status_says_how_far_a_repetition_is(done):
    done.repeat(job.key for job in tiny_jobs()[:2])
    text = status(SEEDS, done)
    assert len(re.findall(r"seed [01] +\| to be made again +\| - +\| - +\| .* at most", text)) == 2
    assert re.search(r"seed 2 +\| finished +\| 40 ", text)
    assert "2 runs are still to be made again (--repeat)\n" in text


def test_runners_at_once_make_every_run_once(store, tmp_path, monkeypatch):
    """On one folder, whose locks hold between threads too; and so do repetitions."""
    monkeypatch.setattr(runner, "PAUSE", 0.01)
    CALLS.clear()
    assert make_at_once(slow_study(), store) == [{}] * 3 and sorted(CALLS) == [0, 1, 2, 3]
    rows = store.rows().values()
    assert sorted(row["value"] for row in rows) == [0, 1 / 3, 2 / 3, 1]
    assert {row["far"] for row in rows} == {"Infinity"}
    assert not list(tmp_path.glob("unfinished/*"))
    store.repeat(store.rows())
    CALLS.clear()
    assert make_at_once(slow_study(), store, repeat=True) == [{}] * 3
    assert lines(store) == 4 + len(CALLS)
    # a process that begins when all is done has it all made once more
    assert sorted(CALLS) in [sorted(list(range(4)) * times) for times in (1, 2, 3)]


def test_a_worker_that_knows_of_no_repetition_is_not_asked_for_ever(done, monkeypatch):
    row = done.rows()[tiny_jobs()[0].key]
    monkeypatch.setattr(runner, "execute", lambda *given: row)
    failed = make(only(SEEDS, "seed 0"), done, repeat=True)
    assert "another version of refnet" in failed["seed 0"] and lines(done) == 3


def test_a_damaged_list_of_repetitions_is_named(done):
    for text in ("[1]", '{"a": true}', "{"):
        done.again.write_text(text)
        with refused("repeat.json: .*; remove it, and no run is made again", FileError):
            make(tiny_study(), done, repeat=True)
    shutil.rmtree(done.folder)
