"""Studies whose process is killed, and studies on a cluster that loses a part."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from refnet import cli
from refnet.studies.store import Store
from support.cluster import scheduler_and_workers
from support.studies import make, results, tiny_study

SCRIPT = """
import sys
from pathlib import Path
sys.path[:0] = [{tests!r}, {root!r}]
from support.studies import tiny_study
from refnet.studies.runner import run
from refnet.studies.store import Store
if __name__ == "__main__":
    executor = 2
    if len(sys.argv) > 2:
        from distributed import Client
        executor = Client(sys.argv[2]).get_executor(retries=3, pure=False)
    failed = run(tiny_study(**{options}), Store(Path(sys.argv[1])), executor=executor)
    assert not failed, failed
"""


def start(script, options, *arguments):
    script.write_text(
        SCRIPT.format(
            tests=str(Path(__file__).parents[1]),
            options=options,
            root=str(Path(__file__).parents[2]),
        )
    )
    return subprocess.Popen(
        [sys.executable, str(script), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def await_rows(process, store, lines):
    """Until some unfinished run has that number of rows."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()[0].decode()
        for path in store.folder.glob("unfinished/*/run/rows.jsonl"):
            try:
                if path.read_bytes().count(b"\n") >= lines:
                    return path
            except FileNotFoundError:
                pass
        time.sleep(0.01)
    raise AssertionError("no run got going")


def test_a_study_that_was_killed_goes_on_to_the_same_rows(tmp_path):
    """SIGKILL in the middle of a run, then the study again: the rows of an undisturbed one, and
    the run that was cut went on from its checkpoint."""
    options = {"iterations": 1500, "number": 2}
    assert make(tiny_study(**options), Store(tmp_path / "whole")) == {}
    store = Store(tmp_path / "killed")
    process = start(tmp_path / "study.py", options, store.folder)
    await_rows(process, store, 5)
    process.kill()
    process.communicate()
    cut = [path.parent for path in store.folder.glob("unfinished/*")]
    assert cut and len(store.rows()) < 2
    again = start(tmp_path / "study.py", options, store.folder)
    output, _ = again.communicate(timeout=200)
    assert again.returncode == 0, output.decode()
    assert results(store) == results(Store(tmp_path / "whole"))
    assert len(store.path.read_text().splitlines()) == 2
    assert not list(store.folder.glob("unfinished/*"))


def test_a_cluster_without_a_scheduler(tmp_path, capsys):
    pytest.importorskip("distributed")
    words = f"study table-i --quick --folder {tmp_path} --cluster nowhere"
    assert cli.main(words.split()) == 2
    assert re.fullmatch(
        "refnet study: --cluster nowhere: no scheduler answers there .*: dask scheduler\n",
        capsys.readouterr().err,
    )
    assert not any(tmp_path.iterdir())


def test_no_logger_of_a_cluster_prints():
    """Not even those that have a level and a handler of their own, or come later."""
    pytest.importorskip("distributed")
    program = """
import logging, distributed.batched, distributed.comm.tcp
from refnet.studies.cli import CLUSTER_LOGGERS, silence
loggers = [*CLUSTER_LOGGERS, *logging.root.manager.loggerDict, "distributed.comes_later"]
logging.getLogger("distributed.client").critical("before")
silence(CLUSTER_LOGGERS)
for name in loggers:
    if name.startswith(CLUSTER_LOGGERS):
        logging.getLogger(name).critical("of %s", name)
"""
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert process.returncode == 0 and re.fullmatch(".* - before\n", process.stderr), process


def test_a_cluster_that_loses_its_scheduler(tmp_path):
    """One line, after what was said before, and no traceback of dask's."""
    pytest.importorskip("distributed")
    processes, address = scheduler_and_workers(tmp_path, workers=1)
    words = f"-m refnet study figure-1 --quick --folder {tmp_path} --cluster {address}"
    study = subprocess.Popen(
        [sys.executable, *words.split()],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.getcwd()},
    )
    try:
        assert "0 of 3 runs done" in study.stderr.readline()
        processes[0].kill()
        *begun, last = study.stderr.read().splitlines()
        assert study.wait() == 2 and all(": begun" in line for line in begun), begun
        assert last.startswith("refnet study: the executor (ClientExecutor) has ended before")
    finally:
        study.stderr.close()
        for process in (study, *processes):
            process.kill()
            process.wait()


def test_a_cluster_that_loses_a_worker_loses_no_run(tmp_path):
    """A real scheduler, two real workers, one killed while it works: each run is finished once
    and the rows are those of an undisturbed study."""
    pytest.importorskip("distributed")
    options = {"iterations": 800, "number": 4}
    assert make(tiny_study(**options), Store(tmp_path / "whole")) == {}
    store = Store(tmp_path / "cluster")
    processes, address = scheduler_and_workers(tmp_path)
    try:
        client = start(tmp_path / "study.py", options, store.folder, address)
        held = await_rows(client, store, 5).parent / ".lock"
        holder = next(process for process in processes[1:] if str(process.pid) in held.read_text())
        holder.send_signal(signal.SIGKILL)
        output, _ = client.communicate(timeout=200)
        assert client.returncode == 0, output.decode()
        assert holder.wait() == -signal.SIGKILL
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert results(store) == results(Store(tmp_path / "whole"))
    assert len(store.path.read_text().splitlines()) == 4
