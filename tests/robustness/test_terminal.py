"""At a terminal of 80 columns no line is longer, no word is cut, and commands stay whole."""

import os
import pty
import re
import sys
import warnings
from importlib.util import find_spec

import pytest

from refnet import cli
from refnet.__main__ import main
from refnet.common import terminal
from refnet.common.terminal import wrapped
from support.oracles import planted

WIDTH = 80
SMALL = "--length 10 --hidden 4 --iterations 2 --evaluate-every 1 --backend reference"
NAMED = "a-folder-whose-name-is-so-long-that-it-does-not-fit-into-a-line-of-eighty-columns"
COMMANDS = [
    *("--help", "train --help", "runs --help", "info --help", "study --help", "explain --help"),
    *("check --help", "check function --help", "check torch --help", "vectors --help"),
    *("errata --help", "analyse --help", "compare --help", "orthogonalize --help"),
    *("info", "runs runs", "runs", "study --list", "study --protocols", "errata", "errata 3"),
    *("explain powers --size 8", "analyse runs/a", "compare runs/a runs/b"),
    *(f"train temporal-order {SMALL} --out runs/c", "train --resume runs/a --iterations 3"),
    *("orthogonalize --runs 2 --size 5", "study table-iii --status", "study table-iii --table"),
    *("check tolerances --sizes 3,2,1", "train nothing", "check function mine.py:nothing"),
    *("check function mine.py:gradients --sizes 3,2,1",),
]
"""Every command, its helps, its tables and its errors."""


def at_terminal(words, folder):
    """What the command prints on a terminal of that width."""
    child, terminal = pty.fork()
    if not child:  # pragma: no cover
        try:
            os.chdir(folder)
            os.environ |= {"COLUMNS": str(WIDTH), "TERM": "dumb"}
            warnings.simplefilter("ignore")
            sys.argv = ["refnet", *words.split()]
            sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))
            main()
        finally:
            os._exit(0)
    data = b""
    try:
        while part := os.read(terminal, 2**16):
            data += part
    except OSError:  # it has ended
        pass
    os.close(terminal)
    os.waitpid(child, 0)
    return re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", data.decode()).replace("\r\n", "\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from refnet.check.userfunction import example

    path = tmp_path_factory.mktemp("terminal")
    (path / "mine.py").write_text(example("numpy"))
    for name in ("a", "b", NAMED):
        words = f"train temporal-order {SMALL} --quiet --seed {len(name)} --out {path}/runs/{name}"
        assert cli.main(words.split()) == 0
    return path


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_fits(words, folder):
    if words.startswith("check") and find_spec("flint") is None:
        pytest.skip("python-flint (extra certify) is not installed")
    if words.startswith(("analyse", "compare", "train")) and find_spec("rich") is None:
        pytest.skip("rich (extra cli) is not installed")
    text = at_terminal(words, folder)
    assert text.strip()
    long = [line for line in re.split(r"[\n\r]", text) if len(line) > WIDTH]
    odd = [line for line in long if NAMED not in line and not re.match(" *refnet (?!\\w+: )", line)]
    assert not odd
    assert "\u2026" not in text  # rich's mark where it cuts a word


def test_a_command_to_paste_is_on_a_line_of_its_own(folder):
    lines = at_terminal("runs runs", folder).split("\n")
    assert f"refnet train --resume runs/{NAMED} --iterations N" in lines


def squeezed(text):
    return re.sub(r"[\s|]+", " ", text)


TABLE = "| name | what it is |\n|--|--|\n| a | " + "word " * 30 + "|\n| b-c | two |\n"
PROSE = "It goes on. " * 20 + "\n\n- an item that is long " + "and longer " * 9 + "\n- next\n"
CODE = "refnet train --resume " + "x" * 90 + "\n" + '{"json": ' + "1 " * 50 + "}\n"


@pytest.mark.parametrize("text", [TABLE, PROSE, CODE, "x" * 99, "", "| no table " + "y " * 50])
@pytest.mark.parametrize("width", [20, 80, 200])
def test_all_words_stay_in_their_order(text, width):
    out = wrapped(text, width)
    assert squeezed(out).split() and squeezed(out) == squeezed(text) or text in (TABLE, "")
    if text in (PROSE, TABLE):
        assert max(map(len, out.split("\n"))) <= width
    if text == CODE:
        assert out == text
    assert sorted(re.findall(r"\w+", out)) == sorted(re.findall(r"\w+", text))


def test_a_path_or_spec_that_is_too_long_stays_in_its_column():
    text = "| | value |\n|--|--|\n| task | a/b.csv:id=machine,time=when |\n| state | finished |\n"
    first, _, *rows = wrapped(text, 30).split("\n")[:-1]
    assert len({len(line) for line in (first, *rows)}) == 1 and len(first) <= 30
    assert "".join(row.split("|")[2].strip() for row in rows) == (
        "a/b.csv:id=machine,time=whenfinished"
    )


def test_a_table_too_wide_for_its_words_becomes_blocks():
    text = "| one | two |\n|-----|-----|\n| " + "x" * 12 + " | " + "y" * 12 + " |\n"
    assert wrapped(text, 20) == f"  one: {'x' * 12}\n  two: {'y' * 12}\n\n"


def test_a_planted_bug_is_rejected(monkeypatch):
    wrong = planted(terminal._words, "break_long_words=False", "break_long_words=True")
    monkeypatch.setattr(terminal, "_words", wrong)
    with pytest.raises(AssertionError):
        test_a_table_too_wide_for_its_words_becomes_blocks()
        text = "prose " * 20 + "x" * 99
        assert sorted(re.findall(r"\w+", wrapped(text, 30))) == sorted(re.findall(r"\w+", text))
