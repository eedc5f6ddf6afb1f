"""What was not written here, such as a folder's name, reaches a terminal as text that it shows, and
nothing that it obeys."""

import ast
import logging
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from refnet import __main__, cli
from refnet.runs.files import argument, described, printable, quoted

NAMES = ["plain", "a\x1b[31mb", "c\nd", "e\udcff", "-'\\\t\u202e"]
PACKAGE = Path(cli.__file__).parent


@pytest.mark.skipif(not shutil.which("bash") or os.name != "posix", reason="needs Bash")
def test_a_shell_reads_the_word():
    words = [*map(quoted, NAMES), *(argument(Path(name)) for name in NAMES)]
    assert all(map(str.isprintable, words))
    read = subprocess.run(["bash", "-c", f"printf '%s\\0' {' '.join(words)}"], capture_output=True)
    assert read.stdout.split(b"\0")[:-1] == [
        *map(os.fsencode, NAMES),
        *map(os.fsencode, NAMES[:-1]),
        os.fsencode(f"./{NAMES[-1]}"),
    ]


@pytest.mark.filterwarnings("ignore:.*encountered in.*:RuntimeWarning")
@pytest.mark.skipif(os.name != "posix", reason="Windows allows no such names")
def test_every_command_prints_names_that_a_terminal_shows(tmp_path, monkeypatch, capsys):
    """As many lines as with a plain name, all of them printable."""
    monkeypatch.chdir(tmp_path)
    seen = []
    for name in ("plain", "a\x1b[31m\nb\udcff'\u202e"):
        folder = Path("runs of " + name) / name
        run = "train temporal-order:samples=20 --length 10 --hidden 4 --iterations 1".split()
        run += ["--backend", "reference"]
        lines = []
        for status, words in (
            (0, [*run, "--out", f"{folder}"]),
            (2, [*run, "--out", f"{folder}"]),
            (0, ["runs", f"{folder.parent}"]),
            (0, ["analyse", f"{folder}"]),
            (0, ["compare", f"{folder}", f"{folder}"]),
            (
                3,
                [
                    *run,
                    "--out",
                    f"{folder} 2",
                    *"--rate 1e38 --activation relu --iterations 9".split(),
                ],
            ),
            (2, ["runs", f"{folder}/config.toml"]),
            (2, ["analyse", f"{folder.parent}"]),
            (2, ["study", "figure-1", "--only", name, "--folder", f"{folder}"]),
        ):
            assert cli.main(words) == status, words
            said = "".join(capsys.readouterr())
            assert all(c.isprintable() or c == "\n" for c in said), said
            assert any(
                form in said
                for form in (printable(name), quoted(name)[2:-1], described(ValueError(name)))
            ), said
            lines.append(said.count("\n"))
        with pytest.raises(SystemExit):
            cli.main(["train", "adding", name + "x"])
        assert capsys.readouterr().err[:-1].isprintable()
        seen.append(lines)
    assert all(lines == seen[0] for lines in seen), seen


def test_warnings_and_logs_are_one_printable_line():
    record = logging.LogRecord(
        "refnet",
        logging.WARNING,
        "",
        1,
        "%s: no\nfile",
        ("\x1b[31m",),
        (ValueError, ValueError(), None),
    )
    assert __main__._Line().format(record) == r"\x1b[31m: no\nfile"
    said = __main__._one_line(UserWarning("no\x1b[31m\nTraceback"), UserWarning, "a\nb.py", 7)
    assert said == r"a\nb.py:7: UserWarning: no\x1b[31m" + "\n"


OUTSIDE = {"error", "figure", "file", "folder", "path", "theirs"}
SAFE = {"_one_line", "argument", "cell", "printable", "described"}


def raw(source):
    """What a source prints of OUTSIDE without a function of SAFE around it."""
    for call in ast.walk(ast.parse(source)):
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "print":
            inside = {
                id(part)
                for each in ast.walk(call)
                if isinstance(each, ast.Call) and getattr(each.func, "id", "") in SAFE
                for part in ast.walk(each)
            }
            for part in (part for shown in call.args for part in ast.walk(shown)):
                name = getattr(part, "attr", getattr(part, "id", ""))
                if (
                    name in OUTSIDE
                    and isinstance(part, (ast.Name, ast.Attribute))
                    and id(part) not in inside
                ):
                    yield f"{call.lineno}: {ast.unparse(part)}"


def test_no_name_is_printed_as_it_is():
    printed = [
        f"{path.name}:{each}" for path in PACKAGE.rglob("*.py") for each in raw(path.read_text())
    ]
    assert [re.sub(r"\d+: ", "", each) for each in printed] == ["cli.py:folder"], (
        printed
    )  # its summary
    assert [*raw("print(f'run folder: {folder}')")] == ["1: folder"]
    assert [*raw("print(f'{printable(args.folder)}', file=sys.stderr)")] == []
