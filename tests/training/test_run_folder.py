"""A run's folder: whole or not at all, one holder at a time, and no row lost without a word."""

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.stopped import child, obey_modes
from refnet.cli import main
from refnet.runs import checkpoint
from refnet.runs.checkpoint import CheckpointError
from refnet.runs.files import temporary, write_text
from refnet.runs.folder import BusyError, _file_system, create, hold
from refnet.runs.read import FileError
from refnet.training.config import Config
from refnet.training.config_files import from_toml, to_toml
from refnet.training.listing import describe, runs
from refnet.training.loop import NotFiniteError
from support.arguments import refused
from support.runs import TINY, arrays, files, resume, resumes, rows, train, train_for


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "run"
    train(TINY, folder)
    return folder


@pytest.fixture
def run(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_a_folder_that_cannot_be_read_is_listed(run):
    inner = run.parent / "private" / "runs"
    inner.mkdir(parents=True)
    inner.chmod(0)

    def observe():
        obey_modes()
        listed = [(facts["state"], facts["next"]) for facts in runs(run.parent)]
        (run.parent / "listed").write_text(json.dumps(listed))

    os.waitpid(child(run.parent, observe), 0)
    inner.chmod(0o700)
    first, second = json.loads((run.parent / "listed").read_text())
    assert first[0] == "finished"
    assert second == ["damaged", f"[Errno 13] Permission denied: '{inner}'"]


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_who_may_only_read_a_folder_sees_its_holder(run):
    def observe():
        obey_modes()
        (run.parent / "seen").write_text(describe(run)["state"])

    for busy in (True, False):
        with hold(run) if busy else nullcontext():
            (run / ".lock").chmod(0o444)
            os.waitpid(child(run.parent, observe), 0)
            (run / ".lock").chmod(0o666)
        assert (
            (run.parent / "seen")
            .read_text()
            .startswith(f"running: process {os.getpid()} on " if busy else "finished")
        )


def test_threads_and_forked_children_do_not_share_a_folder(run):
    with hold(run):
        with pytest.raises(BusyError), hold(run):
            pass
    with hold(run):
        child = os.fork()
        if child == 0:  # lives on without the lock
            signal.pause()
            os._exit(0)
    try:
        with hold(run):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_the_kind_of_file_system_is_found_whatever_mounts_are_called(tmp_path, monkeypatch):
    """With a space in the name, which the system writes as an octal number, and beside a name that
    is not UTF-8."""
    table = (
        b"36 35 98:0 / / rw - ext4 /dev/root rw\n37 36 0:5 / /media/B\xfccher rw - vfat x rw\n"
        b"38 36 0:5 / " + os.fsencode(tmp_path) + b"/my\\040share rw - cifs //server/x rw\n"
    )
    monkeypatch.setattr(Path, "read_bytes", lambda path: table)
    assert _file_system(tmp_path / "my share" / "run") == "cifs"
    assert _file_system(tmp_path / "my") == "ext4"


def test_a_checkpoint_is_never_replaced_by_an_older_one(run):
    settings = vars(TINY)
    old = checkpoint.load(run / "checkpoint.npz", settings)
    resume(replace(TINY, iterations=50), run)
    before = (run / "checkpoint.npz").read_bytes()
    with refused("iteration 50, later than the iteration 30", CheckpointError):
        checkpoint.save(run / "checkpoint.npz", old, settings)
    assert (run / "checkpoint.npz").read_bytes() == before


def test_a_limit_below_the_iterations_done_is_refused(run, capsys):
    """The command says so in one line; the number that is reached is a limit like any other."""
    before = files(run)
    assert main(["train", "--resume", str(run), "--iterations", "29"]) == 2
    assert capsys.readouterr().err == (
        f"refnet train: iterations is 29; need at least the 30 that the run in {run} has done\n"
    )
    assert files(run) == before
    assert resume(TINY, run).iteration == 30


def test_a_limit_where_the_run_was_interrupted_between_evaluations_is_refused(tmp_path):
    """It would end without a row there, which a run that was not interrupted has."""
    train_for(15, TINY, tmp_path / "run")
    with refused("is 15, where the run in .* last evaluation at 10"):
        resume(replace(TINY, iterations=15), tmp_path / "run")
    assert resume(replace(TINY, iterations=16), tmp_path / "run").final["iteration"] == 16


def test_a_run_can_be_resumed_from_its_first_moment(tmp_path):
    def resumed(config, folder):
        present = {"config.toml", "rows.jsonl", "checkpoint.npz", "environment.json"}
        assert present <= set(files(folder))
        resume(config, folder)

    assert resumes(TINY, 0, tmp_path, resumed)


def test_a_file_is_no_run_folder(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["train", "adding", "--out", str(tmp_path / "file")]) == 2
    assert "file is a file; name another folder with --out" in capsys.readouterr().err


def test_a_run_that_has_lost_its_limit_is_not_resumed(run, capsys):
    path = run / "config.toml"
    path.write_text(
        "".join(
            line
            for line in path.read_text().splitlines(keepends=True)
            if not line.startswith("iterations")
        )
    )
    assert main(["train", "--resume", str(run)]) == 2
    assert "config.toml: has no iterations; put back a whole copy" in capsys.readouterr().err


def test_an_empty_folder_may_be_filled_and_another_not(tmp_path):
    (tmp_path / "empty").mkdir()
    with create(tmp_path / "empty", lambda part: write_text(part / "a", "b")):
        assert (tmp_path / "empty" / "a").read_text() == "b"
    with refused("is not empty; resume that run with --resume", FileExistsError):
        with create(tmp_path / "empty", lambda part: None):
            pass
    (tmp_path / "file").write_text("")
    with refused("file", OSError):
        with create(tmp_path / "file" / "run", lambda part: None):
            pass


def test_what_a_kill_leaves_is_removed_by_the_next_run(tmp_path):
    with temporary(tmp_path / "killed") as part:
        name = part.name
    (tmp_path / name).mkdir()
    (tmp_path / name / ".lock").touch()
    with hold(tmp_path / name):  # in use: left alone
        train(TINY, tmp_path / "first", stop=lambda: True)
        assert (tmp_path / name).exists()
    (tmp_path / "first" / ".checkpoint.npz.12345678.refnet.part").write_text("half")
    (tmp_path / "first" / ".thesis.tar.part").write_text("of another program")
    (tmp_path / ".empty.12345678.refnet.part").mkdir()  # killed before it had a lock
    (tmp_path / name / "config.toml").write_text("half")
    train(TINY, tmp_path / "second", stop=lambda: True)
    assert not (tmp_path / name).exists()
    resume(TINY, tmp_path / "first", stop=lambda: True)
    assert [path.name for path in tmp_path.rglob(".*.part")] == [".thesis.tar.part"]


def test_a_folder_that_is_no_run_is_left_as_it_was(tmp_path):
    left = tmp_path / ".x.12345678.refnet.part"
    left.touch()
    with refused("there is no checkpoint here", CheckpointError):
        resume(TINY, tmp_path)
    assert [*tmp_path.iterdir()] == [left]


def change(path, number, by):
    lines = path.read_bytes().splitlines(keepends=True)
    lines[number - 1] = by(lines[number - 1])
    path.write_bytes(b"".join(lines))


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda path: change(path, 2, lambda line: b"#" + line), r"rows.jsonl: line 2: Expecting"),
        (
            lambda path: change(path, 2, lambda line: line.replace(b'"loss": ', b'"loss": 1')),
            "changed",
        ),
        (lambda path: change(path, 3, lambda line: line[:-9]), "line 3: "),
        (lambda path: change(path, 1, lambda line: b""), "line 3: is missing"),
        (lambda path: change(path, 1, lambda line: b"{}\n"), "line 1: not a complete row"),
        (lambda path: change(path, 1, lambda line: b"[" * 100_000 + b"\n"), "line 1: brackets"),
        (lambda path: path.unlink(), "line 1: is missing; the checkpoint counts 3 rows"),
        (lambda path: path.write_bytes(b""), "line 1: is missing"),
        (lambda path: path.write_bytes(b"\xff" + path.read_bytes()), "line 1: 'utf-8' codec"),
    ],
)
def test_rows_that_the_checkpoint_counts_are_never_dropped(run, damage, message):
    damage(run / "rows.jsonl")
    before = files(run)
    with refused(
        message + ".*; put back a whole copy of it, or train again with: refnet train --config",
        FileError,
    ):
        resume(replace(TINY, iterations=50), run)
    assert files(run) == before


@pytest.mark.parametrize("tail", [b'{"iteration": 40}\n', b'{"itera', b"\xff\n\n[["])
def test_later_rows_are_computed_again_and_that_is_said(run, tail, caplog):
    before = rows(run)
    with open(run / "rows.jsonl", "ab") as file:
        file.write(tail)
    resume(TINY, run)
    assert rows(run) == before
    assert "line 4 and later" in caplog.text and "computed again" in caplog.text


def test_another_kind_of_machine_is_said_in_every_later_row(run, monkeypatch, caplog):
    monkeypatch.setattr("refnet.training.loop.machine", lambda: "abacus")
    resume(replace(TINY, iterations=50), run)
    assert [row.get("machine") for row in rows(run)] == [None] * 3 + ["abacus"] * 2
    assert "from here on abacus" in caplog.text
    monkeypatch.undo()
    resume(replace(TINY, iterations=60), run)
    assert rows(run)[-1]["machine"] not in (None, "abacus")


def test_a_copy_of_links_keeps_its_rows(tmp_path):
    """As backup programs make it: the file that both have is not written to."""
    first = tmp_path / "run"
    train(TINY, first)
    copied = shutil.copytree(first, tmp_path / "copy", copy_function=os.link)
    before = (first / "rows.jsonl").read_bytes()
    resume(replace(TINY, iterations=50), copied)
    assert (first / "rows.jsonl").read_bytes() == before
    resume(replace(TINY, iterations=60), first)
    assert (rows(copied)[:3], len(rows(copied)), len(rows(first))) == (rows(first)[:3], 5, 6)


@pytest.mark.filterwarnings("ignore:.*encountered in.*:RuntimeWarning")
@pytest.mark.parametrize("every", [1, 10, 100])
def test_divergence_keeps_the_last_good_state(tmp_path, every):
    config = replace(TINY, activation="relu", optimizer="sgd", rate=1e30, evaluate_every=every)
    message = r"step \d+: (parameter|the).* not finite at \d+ of.* keeps the run as it was at iter"
    with refused(message, NotFiniteError):
        train(config, tmp_path / "run")

    def strict(name):
        raise AssertionError(f"{name} is no JSON")

    summary = json.loads((tmp_path / "run" / "summary.json").read_text(), parse_constant=strict)
    assert summary["state"] == "diverged" and "not finite" in summary["reason"]
    for line in (tmp_path / "run" / "rows.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=strict)
    reached = arrays(tmp_path / "run")[1]["iteration"]
    with pytest.raises(NotFiniteError):
        resume(config, tmp_path / "run")
    assert arrays(tmp_path / "run")[1]["iteration"] == reached


def test_runs_are_listed_with_state_progress_and_how_to_go_on(run, capsys):
    below = run.parent
    train(TINY, below / "a", stop=lambda: True)
    train(TINY, below / "deep down" / "b", stop=lambda: True)
    (below / "deep down" / "b" / "summary.json").unlink()
    shutil.copytree(run, below / "c")
    (below / "c" / "checkpoint.npz").write_bytes(b"x")
    (below / "d").mkdir()
    with hold(below / "a"):
        assert main(["runs", str(below)]) == 0
    shown, onward = capsys.readouterr().out.strip().split("\n\nTo go on:")
    lines = shown.split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert [cell[0] for cell in cells] == [str(below / n) for n in ("a", "c", "deep down/b", "run")]
    assert cells[0][1].startswith(f"running: process {os.getpid()} on ") and cells[0][2] == "0/30"
    assert [cell[1:3] for cell in cells[1:]] == [
        ["damaged", "-"],
        ["stopped", "0/30"],
        ["finished", "30/30"],
    ]
    damaged, *commands = onward.split("\n\n", 1)[1].splitlines()
    assert "checkpoint.npz" in damaged
    assert commands == [
        f"refnet train --resume '{below / 'deep down' / 'b'}'",
        f"refnet train --resume {run} --iterations N",
    ]
    assert main(["runs", str(below / "nowhere")]) == 2
    links = below / "links"
    links.mkdir()
    (links / "e").symlink_to(run)
    (links / "circle").symlink_to(links)
    assert [each["run"] for each in runs(links)] == [str(links / "e")]


def test_a_run_that_was_killed_after_its_limit_was_raised_is_not_finished(run):
    assert describe(run)["state"] == "finished"
    write_text(run / "config.toml", to_toml(replace(TINY, iterations=50)))
    assert describe(run)["state"] == "stopped"
    assert describe(run)["next"] == f"refnet train --resume {run}"


SAMPLE = Path(__file__).parents[1] / "support/data/run"


def test_a_run_of_the_first_version_goes_on(tmp_path):
    """Stopped after 12 of 20 steps, in float64: its last row agrees to 1e-9 with the recorded one,
    which is 1e5 roundings a step in every number: room for any machine, for no mistake. (Its
    gradient norm is that of the parameters; the first version's had the start states in it.)"""
    run = shutil.copytree(SAMPLE, tmp_path / "run")
    before = (SAMPLE / "rows.jsonl").read_text()
    summary = resume(Config(**from_toml(run / "config.toml")), run)
    assert summary.state == "finished" and summary.iteration == 20
    assert (run / "rows.jsonl").read_text().startswith(before) and len(rows(run)) == 4
    for name, value in json.loads((SAMPLE / "expected.json").read_text()).items():
        assert summary.final[name] == pytest.approx(value, rel=1e-9), name


def test_a_later_version_may_have_more_settings(tmp_path, monkeypatch):
    """A setting that the checkpoint does not know has its default, and no other value."""
    run = shutil.copytree(SAMPLE, tmp_path / "run")
    load = checkpoint.load

    def older(path, config):
        saved = load(path, config)
        del saved.record["config"]["gain"]
        return saved

    monkeypatch.setattr(checkpoint, "load", older)
    config = Config(**from_toml(run / "config.toml"))
    resume(config, run, stop=lambda: True)
    monkeypatch.setattr(
        checkpoint, "load", lambda path, settings: older(path, {**settings, "gain": 1.0})
    )
    with refused("before there were the settings gain", CheckpointError):
        resume(replace(config, gain=2.0), run)


@pytest.mark.skipif(os.name != "posix", reason="Windows moves no folder that is in use")
@pytest.mark.parametrize("renamed", [True, False])
def test_a_run_whose_folder_was_replaced_writes_nothing_into_the_new_one(tmp_path, renamed):
    """The folder is moved, or removed, while a run goes on, and another run is made in its place:
    the first one ends with a word, and the second one can be resumed."""
    folder, other = tmp_path / "run", tmp_path / "moved"
    second = replace(TINY, seed=1, iterations=20)

    def replaced(kind, facts):
        if kind == "step" and facts["iteration"] == 15:
            os.rename(folder, other)
            if not renamed:
                shutil.rmtree(other)
            train(second, folder)

    with refused("was moved, removed or replaced while this run", BusyError):
        train(TINY, folder, replaced)
    assert [
        json.loads(line)["iteration"] for line in (folder / "rows.jsonl").read_text().splitlines()
    ] == [10, 20]
    assert resume(replace(second, iterations=30), folder).iteration == 30
    if renamed:
        assert resume(TINY, other).iteration == 30


def test_runs_that_start_at_once_take_names_of_their_own(tmp_path):
    """A sweep in a shell's background, without --out."""
    words = "train temporal-order:samples=20 --quiet --length 10 --hidden 4 --iterations 2".split()
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "refnet", *words, "--rate", rate],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for rate in ("1e-3", "1e-4")
    ]
    errors = [process.communicate()[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * 2 and errors == [b""] * 2
    assert len(list((tmp_path / "runs").iterdir())) == 2


def test_a_new_run_does_not_replace_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in (Path("."), tmp_path):
        with refused("is the working directory", FileExistsError):
            with create(folder, lambda part: None):
                pass
    assert not any(tmp_path.iterdir())
    with create(Path("new"), lambda part: (part / "file").touch()):
        assert (tmp_path / "new" / "file").exists()
