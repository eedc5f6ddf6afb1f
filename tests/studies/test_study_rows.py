"""Rows on the disk, what a run leaves in its folder, and runs that are made again."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from refnet.runs.folder import BusyError, hold
from refnet.runs.read import FileError
from refnet.runs.rows import machine
from refnet.studies import catalogue, runner, work
from refnet.studies.progress import status
from refnet.studies.store import Store, line_of
from refnet.studies.study import View
from support.arguments import refused
from support.studies import make, orthogonal_start, study_of


@pytest.fixture
def whole(tmp_path):
    """A store of three rows."""
    store = Store(tmp_path / "whole")
    for number in range(3):
        store.append({"key": str(number), "settings": {}, "final": {"accuracy": number / 3}})
    return store


def write_after_one(store, data):
    store.append({"key": "one", "settings": {}})
    with open(store.path, "ab") as file:
        file.write(data)


@pytest.mark.parametrize(
    "torn", [b"{", b'{"key": "abc', b'{"key": "abc"', b'{"key": "ab\0\0', b"\0" * 9]
)
def test_a_torn_line_does_not_count_and_is_cut_off(store, torn):
    write_after_one(store, torn)
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
        with refused(
            "saved in another encoding, or without line feeds "
            "between its lines; put back a whole copy of it",
            FileError,
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
    write_after_one(store, data)
    before = store.path.read_bytes()
    for call in (store.rows, lambda: store.append({"key": "two", "settings": {}})):
        with refused(f"rows.jsonl: {message}", FileError):
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
    with refused("rows.jsonl: line 2: does not match its own sha256", FileError):
        whole.rows()


def test_rows_are_bounded_in_size(store, monkeypatch):
    store.append({"key": "one", "settings": {}})
    monkeypatch.setattr("refnet.studies.store.LIMIT", 10)
    with refused("need at most 10; put back a whole copy of it", FileError):
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


def unfinished(store):
    folder = store.unfinished(JOB.key)
    folder.mkdir(parents=True)
    return folder


def test_a_held_run_folder_is_not_written_to(store, tmp_path):
    folder = unfinished(store)
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
    folder = unfinished(store)
    (folder / "made.json").write_bytes(text)
    with refused("made.json: .*; remove .*, and it is made again", FileError):
        work.execute(JOB, tmp_path)
    assert (folder / "made.json").read_bytes() == text and not store.rows()


def test_a_foreign_list_of_codes_is_refused(store, tmp_path):
    folder = unfinished(store)
    (folder / "code").write_text("something else\n")
    with refused("code: is no list of digests .*; remove the file", FileError):
        work.execute(JOB, tmp_path)


def test_runs_that_nobody_can_measure_are_said_to_be_short(store):
    assert "still to compute: 1 of minutes each\n" in status(STUDY, store)


@pytest.mark.parametrize("row", [{"state": "begun", "of": 9}, {"state": "diverged"}])
def test_a_run_without_an_evaluation_is_no_zero_in_figure_4(row):
    study = catalogue.find("figure-4")
    row = {**row, "iterations": 0, "best": {}, "final": {}, "seconds": 0, "curve": {}}
    job = study.jobs(View(quick=True))[0]
    text = study.table(View(lambda asked: row if asked.key == job.key else None, quick=True))
    assert " 0.0 " not in text


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs Linux")
@pytest.mark.parametrize(
    "words, status, count",
    [
        ("study orthogonalisation --quick --only uniform --seeds 1 --folder", 0, 1),
        (
            "train adding:samples=9 --length 10 --hidden 2 --iterations 4 --evaluate-every 1 "
            "--backend reference --out",
            0,
            4,
        ),
        ("study nonsense --folder", 2, 0),
    ],
)
def test_a_log_on_a_full_disk_stops_nothing(tmp_path, words, status, count):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "refnet", *words.split(), str(tmp_path / "a")],
            stderr=full,
            stdout=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == status and ("uniform" in done.stdout) == ("uniform" in words)
    rows = [
        json.loads(line)
        for path in tmp_path.rglob("rows.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert len(rows) == count


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
