"""One run of a study: what it leaves behind and finds, workers of other versions, the log."""

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
from refnet.studies import catalogue, runner, work
from refnet.studies.jobs import Job
from refnet.studies.progress import status
from refnet.studies.runner import run
from refnet.studies.store import Store, line_of
from refnet.studies.study import Study

JOB = Job(
    "uniform",
    function="refnet.studies.manchev:orthogonalise",
    arguments={"distribution": "uniform", "seed": 0, "runs": 2},
)
STUDY = Study("one", "", lambda found, seeds, quick: [JOB], lambda *ask: "")


def made(folder):
    with ThreadPoolExecutor(1) as pool:
        return run(STUDY, Store(folder), executor=pool)


def test_a_row_of_other_settings_under_the_runs_key_is_replaced(tmp_path):
    """As after a change of a default, which no key has in it."""
    store = Store(tmp_path)
    store.append({"key": JOB.key, "settings": {**JOB.settings, "runs": 3}})
    assert made(tmp_path) == {}
    assert store.rows()[JOB.key]["settings"] == JOB.settings
    assert len(store.path.read_bytes().splitlines()) == 2


def test_a_worker_of_another_version_fails_and_is_not_asked_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(
        runner,
        "execute",
        lambda job, *rest: {
            "key": job.key,
            "name": job.name,
            "settings": {**job.settings, "runs": 3},
        },
    )
    failed = made(tmp_path)
    assert "other settings: the worker has another version of refnet" in failed[JOB.name]
    assert Store(tmp_path).rows() == {}


def test_who_finds_a_run_held_writes_nothing_in_its_folder(tmp_path):
    folder = Store(tmp_path).unfinished(JOB.key)
    folder.mkdir(parents=True)
    with hold(folder):
        with pytest.raises(BusyError):
            work.execute(JOB, tmp_path)
        assert [path.name for path in folder.iterdir()] == [".lock"]


def test_a_run_that_ended_while_its_folder_was_waited_for_is_not_made_again(tmp_path, monkeypatch):
    other = {"key": JOB.key, "name": JOB.name, "settings": JOB.settings, "mean": -1.0}

    @contextmanager
    def ended(folder):
        Store(tmp_path).append(other)
        with hold(folder):
            yield

    monkeypatch.setattr(work, "hold", ended)
    assert work.execute(JOB, tmp_path)["mean"] == -1


def test_what_a_run_has_made_is_kept_until_there_is_a_row(tmp_path, monkeypatch):
    row = work.execute(JOB, tmp_path)
    monkeypatch.setattr(work, "import_module", None)  # would raise
    again = work.execute(JOB, tmp_path)
    assert {**again, "environment": 0} == {**row, "environment": 0}
    Store(tmp_path).append(row)
    assert not Store(tmp_path).unfinished(JOB.key).exists()


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
def test_what_was_made_is_never_taken_from_a_damaged_file(tmp_path, text):
    folder = Store(tmp_path).unfinished(JOB.key)
    folder.mkdir(parents=True)
    (folder / "made.json").write_bytes(text)
    with pytest.raises(FileError, match="made.json: .*; remove .*, and it is made again"):
        work.execute(JOB, tmp_path)
    assert (folder / "made.json").read_bytes() == text and not Store(tmp_path).rows()


def test_a_foreign_list_of_codes_is_refused(tmp_path):
    folder = Store(tmp_path).unfinished(JOB.key)
    folder.mkdir(parents=True)
    (folder / "code").write_text("something else\n")
    with pytest.raises(FileError, match="code: is no list of digests .*; remove the file"):
        work.execute(JOB, tmp_path)


def test_runs_that_nobody_can_measure_are_said_to_be_short(tmp_path):
    assert "still to compute: 1 of minutes each\n" in status(STUDY, Store(tmp_path))


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
