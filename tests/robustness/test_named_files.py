"""Files and names that a user gives: links, pipes, permissions, and what the system refuses."""

import errno
import os
import re
import stat
import sys
from pathlib import Path

import pytest

from refnet.cli import main
from refnet.runs.files import naming, write_named, write_text
from refnet.training.loop import train
from support.arguments import refused
from support.runs import TINY


def test_system_errors_name_the_file(tmp_path):
    with pytest.raises(OSError) as caught, naming(tmp_path / "x"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert caught.value.errno == errno.ENOSPC and str(tmp_path / "x") in str(caught.value)
    with refused("sub", IsADirectoryError):
        (tmp_path / "sub").mkdir()
        write_text(tmp_path / "sub", "x")
    with refused("nowhere/file", FileNotFoundError):
        write_text(tmp_path / "nowhere" / "file", "x")


def test_a_folder_that_cannot_be_synced_is_used_all_the_same(tmp_path, monkeypatch):
    """As CIFS says it of every folder; what the disk says is an error."""
    sync, code = os.fsync, errno.EINVAL

    def refuse(handle):
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(code, os.strerror(code))
        sync(handle)

    monkeypatch.setattr(os, "fsync", refuse)
    train(TINY, tmp_path / "run", stop=lambda: True)
    code = errno.EIO
    with refused("text", OSError):
        write_text(tmp_path / "text", "x")


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_a_run_folder_that_cannot_be_made_is_named_as_it_was_given(capsys):
    assert main("train adding --length 10 --out /proc/x".split()) == 2
    assert "No such file or directory: '/proc/x'; check the name" in capsys.readouterr().err


def test_a_file_where_folders_are_to_be_made_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("runs", "studies"):
        Path(name).touch()
    train_one = "train adding --length 10 --hidden 2 --iterations 1".split()
    for words in (
        train_one,
        [*train_one, "--out", "runs/a"],
        [*train_one, "--out", "runs/a/b"],
        ["study", "figure-1", "--status"],
        ["study", "figure-1", "--table"],
        ["study", "figure-1", "--quick"],
    ):
        assert main(words) == 2
        said = capsys.readouterr().err.splitlines()[-1]
        assert re.search(
            "Not a directory: .*(runs|studies).*; need a folder there, and a file", said
        )
        assert said.endswith("has that name: name another place, or move the file away"), said
    assert {path.name: path.stat().st_size for path in Path().iterdir()} == {
        "runs": 0,
        "studies": 0,
    }


@pytest.mark.skipif(os.name != "posix", reason="pipes and permissions are those of POSIX")
def test_what_a_user_names_is_not_replaced_by_a_file(tmp_path):
    """A link leads on, a pipe is written to, and a file keeps its permissions."""
    (tmp_path / "real").mkdir()
    link, pipe, private = (tmp_path / name for name in ("link", "pipe", "private"))
    link.symlink_to(tmp_path / "real" / "file")
    os.mkfifo(pipe)
    private.touch(0o600)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    for path in (link, pipe, private, Path(os.devnull)):
        write_named(path, lambda file: file.write(b"text"))
    assert os.read(reader, 9) == b"text" and pipe.is_fifo() and not Path(os.devnull).is_file()
    os.close(reader)
    assert link.is_symlink() and (tmp_path / "real" / "file").read_bytes() == b"text"
    assert private.read_bytes() == b"text" and private.stat().st_mode & 0o777 == 0o600


def test_an_empty_name_is_no_path(capsys):
    for command in (
        ["runs", ""],
        ["train", "copy", "--out", ""],
        ["vectors", "write", ""],
        ["analyse", ""],
        ["train", "copy", "--resume", ""],
    ):
        with pytest.raises(SystemExit):
            main(command)
        assert "the name is empty" in capsys.readouterr().err
