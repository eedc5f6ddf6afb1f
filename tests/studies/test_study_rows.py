"""Rows on the disk, what a run leaves in its folder, and runs that are made again."""

import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from refnet.runs.folder import BusyError, hold
from refnet.runs.read import FileError
from refnet.runs.rows import machine
from refnet.studies import catalogue, runner, work
from refnet.studies.progress import status
from refnet.studies.runner import run
from refnet.studies.store import Store, line_of
from refnet.studies.study import Study, only
from refnet.training import fit, loop
from support.studies import (
    CALLS,
    Distant,
    make,
    make_at_once,
    orthogonal_start,
    results,
    slow_study,
    study_of,
    tiny_jobs,
    tiny_study,
)


@pytest.fixture
def whole(tmp_path):
    """A store of three rows."""
    store = Store(tmp_path / "whole")
    for number in range(3):
        store.append({"key": str(number), "settings": {}, "final": {"accuracy": number / 3}})
    return store


@pytest.mark.parametrize(
    "torn", [b"{", b'{"key": "abc', b'{"key": "abc"', b'{"key": "ab\0\0', b"\0" * 9]
)
def test_a_torn_line_does_not_count_and_is_cut_off(store, torn):
    store.append({"key": "one", "settings": {}})
    with open(store.path, "ab") as file:
        file.write(torn)
    assert set(store.rows()) == {"one"}
    store.append({"key": "two", "settings": {}})
    assert set(store.rows()) == {"one", "two"}


@pytest.mark.parametrize(
    "change", [lambda data: data[:-1], lambda data: data.replace(b"\n", b"\r\n")]
)
def test_rows_that_an_editor_saved_without_the_last_end_or_with_those_of_windows_count(
    whole, change
):
    rows = whole.rows()
    whole.path.write_bytes(change(whole.path.read_bytes()))
    assert whole.rows() == rows
    if not whole.path.read_bytes().count(b"\r"):
        whole.append({"key": "more", "settings": {}})
        assert list(whole.rows()) == [*rows, "more"]


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.replace(b"\n", b"\r"),
        lambda data: b"\xef\xbb\xbf" + data,
        lambda data: data.decode().encode("utf-16"),
    ],
    ids=["Mac", "BOM", "UTF-16"],
)
def test_a_file_that_was_saved_otherwise_is_refused_and_left_alone(whole, change):
    whole.path.write_bytes(before := change(whole.path.read_bytes()))
    for call in (whole.rows, lambda: whole.append({"key": "more", "settings": {}})):
        with pytest.raises(
            FileError,
            match="saved in another encoding, or without line feeds "
            "between its lines; put back a whole copy of it",
        ):
            call()
    assert whole.path.read_bytes() == before


def test_a_row_of_other_settings_is_replaced(whole):
    whole.append({"key": "x", "settings": {"rate": 1}, "made": "before"})
    whole.append({"key": "x", "settings": {"rate": 2}, "made": "then"})
    assert whole.rows()["x"]["made"] == "then"
    whole.append({"key": "x", "settings": {"rate": 2}, "made": "again"})
    assert whole.rows()["x"]["made"] == "then"


@pytest.mark.parametrize(
    "data, message",
    [
        (b'{"key"\n', "line 2: .*Expecting"),
        (b"[" * 100_000 + b"\n", "line 2: .*nested more than"),
        (b"{}\n", "line 2: .*not a row; need"),
        (b'{"key": "x", "settings": {}, "mean": NaN}\n', "line 2: .*not JSON compliant"),
        (b'{"key": 3, "settings": {}}\n', "line 2: .*not a row; need"),
        (b'{"key": "x"}\n', "line 2: .*not a row; need"),
        (b"\xff\n", "line 2: .*codec"),
        (b'{"key": "x", "settings": {}, "sha256": "0"}', "line 2: does not match"),
        (b'{"key": "x"}', "line 2: .*not a row; need"),
        (b"\xff", "line 2: .*codec"),
        (b"key", "line 2: .*Expecting"),
        (b"{}\r{}", ""),
    ],
    ids=range(12),
)
def test_a_damaged_row_is_named_and_nothing_added(store, data, message):
    """Not even a last line without its end is cut off, if no kill leaves it."""
    store.append({"key": "one", "settings": {}})
    with open(store.path, "ab") as file:
        file.write(data)
    before = store.path.read_bytes()
    for call in (store.rows, lambda: store.append({"key": "two", "settings": {}})):
        with pytest.raises(FileError, match=f"rows.jsonl: {message}"):
            call()
    assert store.path.read_bytes() == before


@pytest.mark.parametrize(
    "change",
    [
        lambda row: row["final"].update(accuracy=0.5),
        lambda row: row.pop("sha256"),
        lambda row: row.update(sha256=None),
    ],
    ids=["number", "no digest", "null"],
)
def test_a_changed_row_is_noticed(whole, change):
    lines = whole.path.read_bytes().splitlines()
    row = json.loads(lines[1])
    change(row)
    lines[1] = json.dumps(row, sort_keys=True).encode()
    whole.path.write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(FileError, match="rows.jsonl: line 2: does not match its own sha256"):
        whole.rows()


def test_rows_are_bounded_in_size(store, monkeypatch):
    store.append({"key": "one", "settings": {}})
    monkeypatch.setattr("refnet.studies.store.LIMIT", 10)
    with pytest.raises(FileError, match="need at most 10; put back a whole copy of it"):
        store.rows()


def test_many_append_at_once(store):
    """Threads, each with a store of its own: every row is there, once."""

    def add(number):
        Store(store.folder).append({"key": str(number % 20), "settings": {}})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(40)))
    assert {*store.rows()} == {str(n) for n in range(20)}
    assert len(store.path.read_bytes().splitlines()) == 20


JOB = orthogonal_start("uniform")
STUDY = study_of([JOB])


def test_a_worker_of_another_version_fails_and_is_not_asked_for_ever(store, monkeypatch):
    monkeypatch.setattr(
        runner,
        "execute",
        lambda job, *rest: {
            "key": job.key,
            "name": job.name,
            "settings": {**job.settings, "runs": 3},
        },
    )
    failed = make(STUDY, store)
    assert "other settings: the worker has another version of refnet" in failed[JOB.name]
    assert store.rows() == {}


def test_who_finds_a_run_held_writes_nothing_in_its_folder(store, tmp_path):
    folder = store.unfinished(JOB.key)
    folder.mkdir(parents=True)
    with hold(folder):
        with pytest.raises(BusyError):
            work.execute(JOB, tmp_path)
        assert [path.name for path in folder.iterdir()] == [".lock"]


def test_a_run_that_ended_while_its_folder_was_waited_for_is_not_made_again(
    store, tmp_path, monkeypatch
):
    other = {"key": JOB.key, "name": JOB.name, "settings": JOB.settings, "mean": -1.0}

    @contextmanager
    def ended(folder):
        store.append(other)
        with hold(folder):
            yield

    monkeypatch.setattr(work, "hold", ended)
    assert work.execute(JOB, tmp_path)["mean"] == -1


def test_what_a_run_has_made_is_kept_until_there_is_a_row(store, tmp_path, monkeypatch):
    """And names the machine that it was made on, not that of a later process."""
    row = work.execute(JOB, tmp_path)
    assert row["machines"] == [machine()]
    monkeypatch.setattr(work, "machine", lambda: "another")
    monkeypatch.setattr(work, "import_module", None)  # would raise
    again = work.execute(JOB, tmp_path)
    assert {**again, "environment": 0} == {**row, "environment": 0}
    store.append(row)
    assert not store.unfinished(JOB.key).exists()


KEPT = {"key": JOB.key, "settings": JOB.settings, "made": {"mean": 1}}


@pytest.mark.parametrize(
    "text",
    [
        b"{}",
        b"[]",
        b"null",
        b'{"mean": 1}',
        line_of({**KEPT, "key": "zzz"}),
        line_of({**KEPT, "made": 3}),
        json.dumps(KEPT).encode(),
        line_of({"key": JOB.key, "settings": {}}),
        line_of(KEPT).replace(b'"mean": 1', b'"mean": 2'),
    ],
    ids=[
        "empty",
        "list",
        "null",
        "bare",
        "another run's",
        "number",
        "no digest",
        "nothing",
        "changed",
    ],
)
def test_what_was_made_is_never_taken_from_a_damaged_file(store, tmp_path, text):
    folder = store.unfinished(JOB.key)
    folder.mkdir(parents=True)
    (folder / "made.json").write_bytes(text)
    with pytest.raises(FileError, match="made.json: .*; remove .*, and it is made again"):
        work.execute(JOB, tmp_path)
    assert (folder / "made.json").read_bytes() == text and not store.rows()


def test_a_foreign_list_of_codes_is_refused(store, tmp_path):
    folder = store.unfinished(JOB.key)
    folder.mkdir(parents=True)
    (folder / "code").write_text("something else\n")
    with pytest.raises(FileError, match="code: is no list of digests .*; remove the file"):
        work.execute(JOB, tmp_path)


def test_runs_that_nobody_can_measure_are_said_to_be_short(store):
    assert "still to compute: 1 of minutes each\n" in status(STUDY, store)


@pytest.mark.parametrize("row", [{"state": "begun", "of": 9}, {"state": "diverged"}])
def test_a_run_without_an_evaluation_is_no_zero_in_figure_4(row):
    study = catalogue.find("figure-4")
    row = {**row, "iterations": 0, "best": {}, "final": {}, "seconds": 0, "curve": {}}
    job = study.jobs(lambda job: None, 1, True)[0]
    text = study.table(lambda asked: row if asked.key == job.key else None, 1, True)
    assert " 0.0 " not in text


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs Linux")
@pytest.mark.parametrize(
    "words",
    [
        "study orthogonalisation --quick --only uniform --seeds 1 --folder",
        "train adding:samples=9 --length 10 --hidden 2 --iterations 4 --evaluate-every 1 --backend "
        "reference --out",
    ],
)
def test_a_log_on_a_full_disk_stops_nothing(tmp_path, words):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "refnet", *words.split(), str(tmp_path / "a")],
            stderr=full,
            stdout=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 0 and "uniform" in done.stdout + "uniform" * ("train" in words)
    rows = [
        json.loads(line)
        for path in tmp_path.rglob("rows.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert len(rows) == (4 if "train" in words else 1)
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "refnet", "study", "nonsense"], stderr=full)
    assert done.returncode == 2


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux")
@pytest.mark.parametrize("closed", ["<&-", "<&- 2>&-", "<&- >&- 2>&-"])
def test_no_file_takes_the_place_of_a_closed_stream(closed):
    code = (
        "import os, sys; from refnet import __main__, cli; sys.argv = ['refnet', 'info']; "
        "cli.main = lambda words: sum(os.readlink(f'/proc/self/fd/{n}') != '/dev/null' "
        "for n in (0, 1, 2)); sys.exit(__main__.main())"
    )
    done = subprocess.run(
        f'"{sys.executable}" -c "{code}" {closed}',
        shell=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert done.returncode == 3 - closed.count("-")


SEEDS = Study("seeds", "", lambda row_of, seeds, quick: tiny_jobs(number=seeds), lambda *ask: "")


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
    calls, step = [], loop.step
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


def test_a_repetition_goes_on_after_an_interruption(done):
    before, reports = results(done), []
    with pytest.raises(KeyboardInterrupt):
        run(SEEDS, done, executor=First(), repeat=True, tell=interrupted)
    assert lines(done) == 4 and "2 runs are still to be made again" in status(SEEDS, done)
    assert make(SEEDS, done, tell=reports.append) == {} and lines(done) == 4
    assert reports == ["2 runs are still to be made again; --repeat goes on with them"]
    assert make(SEEDS, done, repeat=True) == {}
    assert lines(done) == 6 and not done.again.exists()
    assert "made again" not in status(SEEDS, done)
    assert make(SEEDS, done, repeat=True) == {}
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
            assert list(make(SEEDS, store, repeat=True)) == ["seed 1"]
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
    assert make(SEEDS, store, repeat=True) == {} and not store.again.exists()
    assert lines(store) == 4 and len(steps) == 4 * 40  # what was begun went on
    assert make(SEEDS, store, repeat=True) == {} and lines(store) == 7


def test_a_smaller_repetition_leaves_what_is_left_of_a_larger_one(done):
    with pytest.raises(KeyboardInterrupt):
        run(SEEDS, done, executor=First(), repeat=True, tell=interrupted)
    assert len(done.repetition()) == 2
    for count in (5, 6):  # seed 0 is made again as often as that is asked for
        assert make(SEEDS, done, seeds=1, repeat=True) == {}
        assert lines(done) == count and len(done.repetition()) == 2
    assert make(only(SEEDS, "seed 2"), done, repeat=True) == {}
    assert lines(done) == 7 and [*done.repetition()] == [tiny_jobs()[1].key]
    assert make(SEEDS, done, repeat=True) == {} and lines(done) == 8 and not done.again.exists()


def test_a_run_is_repeated_whatever_its_row_is_called(done):
    """A label may have been changed since, and another study has another name for the run."""
    renamed = replace(
        SEEDS, jobs=lambda *ask: [replace(job, name=f"new {job.name}") for job in tiny_jobs()]
    )
    assert make(only(renamed, "new seed 1"), done, repeat=True) == {}
    assert lines(done) == 4 and done.rows()[tiny_jobs()[1].key]["name"] == "new seed 1"


def ladder(row_of, seeds, quick):
    """Each of three runs is wanted if the one before it is solved."""
    for job in tiny_jobs():
        if (row := row_of(job)) is None:
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
    assert make(SEEDS, done, repeat=True) == {} and len(steps) == 3 * 40
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
        with monkeypatch.context() as change, pytest.raises(OSError, match="No space left"):
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
    assert make(SEEDS, done, repeat=True) == {} and len(steps) == 3 * 40
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
        with pytest.raises(FileError, match="repeat.json: .*; remove it, and no run is made again"):
            make(tiny_study(), done, repeat=True)
    shutil.rmtree(done.folder)
