"""The README's tables are what the records say, and its commands exist."""

import re
from pathlib import Path

import pytest

from benchmarks.readme import README, TABLES, generate
from refnet.cli import main


def test_tables_are_generated_from_the_records():
    assert generate(README.read_text()) == README.read_text()


def test_every_table_stands_in_the_readme():
    assert set(re.findall(r"<!-- ([a-z0-9-]+) -->", README.read_text())) == set(TABLES)


def test_an_edited_number_would_be_found():
    text = README.read_text()
    edited = re.sub(r"(<!-- temporal-order -->.*?)\d", r"\g<1>7.7", text, count=1,
                    flags=re.DOTALL)
    assert edited != text and generate(edited) == text


@pytest.mark.parametrize("command", ["train", "orthogonalize", "check", "vectors", "info"])
def test_help_teaches_with_an_example(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert f"refnet {command}" in capsys.readouterr().out.split("xample", 1)[1]


def test_info_names_the_cache(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert main(["info"]) == 0
    facts = capsys.readouterr().out
    assert str(tmp_path) in facts and "blas" in facts


def test_an_error_is_one_line(capsys):
    assert main(["train", "temporal-order", "--method", "magic", "--quiet"]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1 and "choose one of plain, oinit" in message
    assert not Path("runs/temporal-order-magic-seed0").exists()


def test_commands_refuse_what_they_cannot_do(capsys):
    assert main(["train"]) == 2
    assert "name a task" in capsys.readouterr().err
    assert main(["train", "--resume", "nowhere", "--seed", "1"]) == 2
    assert "only --iterations" in capsys.readouterr().err
    assert main(["train", "--resume", "nowhere"]) == 2
    assert "nowhere" in capsys.readouterr().err
