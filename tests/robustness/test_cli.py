"""The command line: exit codes, and errors in one line."""

import configparser
import io
import json
import re
from argparse import Namespace
from pathlib import Path

import pytest

import refnet
from refnet import cli
from refnet.check import tables, userfunction
from refnet.runs import progress
from refnet.training.config import Config
from support.arguments import refused
from support.packages import hide
from support.subprocesses import run_refnet

ROOT = Path(__file__).resolve().parents[2]


def test_version(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"refnet {refnet.__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["trian"],
        "train temporal-order --hidden x".split(),
        "train temporal-order --hidden 0 --out nowhere".split(),
        ["train", "temporal-order", "--cell=--"],
        ["explain", "powers", "--figure=--"],
        ["check", "torch", "--json", "9" * 5000],
        "check torch --sizes 0,1,1".split(),
        "check jax --cell rnm".split(),
        "check torch --json no/such/folder/x.json".split(),
        "check torch --json .".split(),
        ["vectors", "judge", "nowhere", "nowhere"],
        "check torch --function nowhere.py:loss".split(),
        ["check", "onnx", "nowhere.onnx"],
    ],
)
def test_errors_and_bad_arguments_end_with_2(arguments, capsys):
    try:
        status = cli.main(arguments)
    except SystemExit as ended:  # argparse's own
        status = ended.code
    printed = capsys.readouterr()
    assert status == 2 and printed.out == ""
    assert "Traceback" not in printed.err and "error" in printed.err or printed.err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["orthogonalize", "--runs", "0"], "--runs is 0; need "),
        (["orthogonalize", "--rate", "-1"], "--rate is -1"),
        *[
            ([*words, "--seed", "-1"], "--seed is -1; need at least 0\n")
            for words in (
                ["orthogonalize"],
                ["explain", "powers"],
                ["errata", "3"],
                ["check", "torch"],
                ["check", "function"],
            )
        ],
        (["train"], "name a task"),
        ("train --resume nowhere --seed 1".split(), "--resume continues a run in its folder with"),
        (
            "train adding --method magic".split(),
            "method 'magic' is unknown; choose one of plain, oinit",
        ),
        ("train adding --threads 999".split(), "--threads is 999; need 1 to "),
        ("explain spectra --matrix nothing".split(), "matrix 'nothing' is unknown; choose one of "),
        *[
            (
                [*words, "nowhere"],
                "nowhere is not a run folder (it has no config.toml); list them with: "
                "refnet runs\n",
            )
            for words in (["train", "--resume"], ["analyse"], ["compare"])
        ],
    ],
)
def test_an_error_names_what_was_given(arguments, said, capsys):
    assert cli.main(arguments) == 2
    assert capsys.readouterr().err.startswith(f"refnet {arguments[0]}: {said}")


def test_there_is_a_name_for_every_further_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = "runs/copy-T5-plain-seed0"
    for taken in (name, *(f"{name}-{number}" for number in range(2, 1000))):
        Path(taken).mkdir(parents=True)
    assert cli._new_folder(Config("copy", length=5)) == Path(f"{name}-1000")


def test_debug_shows_the_traceback(capsys):
    assert cli.main(["train", "--resume", "nowhere"]) == 2
    assert "Traceback" not in capsys.readouterr().err
    for arguments in (
        "--debug train --resume nowhere".split(),
        "train --resume nowhere --debug".split(),
    ):
        assert cli.main(arguments) == 2
        assert "Traceback" in capsys.readouterr().err


def test_an_error_moves_no_cursor(capsys):
    assert cli.main(["train", "--resume", "no\x1b[2Jwhere\udc80"]) == 2
    said = capsys.readouterr().err
    assert r"no\x1b[2Jwhere\udc80" in said and said.rstrip("\n").isprintable()


def test_an_unforeseen_error_is_one_line_too(capsys, monkeypatch):
    def broken(args):
        raise KeyError("lost")

    monkeypatch.setattr(cli, "_info", broken)
    assert cli.main(["info"]) == 2
    assert capsys.readouterr().err == (
        "refnet info: KeyError: 'lost' (--debug shows where it comes from)\n"
    )


@pytest.mark.parametrize("said", ["Unable to allocate 29.1 TiB", ""])
def test_too_little_memory_says_what_to_make_smaller(capsys, monkeypatch, said):
    def large(args):
        raise MemoryError(*[said] * bool(said))

    monkeypatch.setattr(cli, "_info", large)
    assert cli.main(["info"]) == 2
    assert capsys.readouterr().err == (
        f"refnet info: not enough memory ({said or 'the system gives no more'}); need smaller "
        "sizes: units, length, batch or examples\n"
    )


def in_loss(body):
    return f"x = 1\ndef loss(p, x, y):\n    {body}\n"


@pytest.mark.parametrize(
    "content, message",
    [
        (in_loss("raise ValueError('of mine')"), "ValueError: of mine (at {}:3: raise"),
        (in_loss("return {}['lost']"), "KeyError: 'lost' (at {}:3: return"),
        (in_loss("return 1"), "returned int; need the loss as a tensor"),
        (in_loss("import numpy; return numpy.ones(2)"), "returned shape (2,)"),
        (
            in_loss("import numpy\n    return numpy.ones(2) @ numpy.ones(3)"),
            "(at {}:4: return numpy",
        ),
        ("def loss(:\n", "SyntaxError"),
        ("import nowhere_to_be_found\n", "{}:1: import nowhere"),
        ("1 / 0\n", "{}:1: 1 / 0"),
        ("import sys\nsys.exit(3)\n", "SystemExit: 3 (at {}"),
        ("loss = 1\n", "has no function loss"),
    ],
)
def test_a_users_file_fails_with_its_own_line(tmp_path, content, message):
    file = tmp_path / "mine.py"
    file.write_text(content)
    with refused(re.escape(message.format(file))):
        userfunction.loaded(f"{file}:loss", userfunction.loss_of)(1, 2, 3)


def test_a_users_function_on_the_command_line(tmp_path, capsys):
    """A right one ends with 0, a wrong one with 1, a broken one with 2 and no header."""
    pytest.importorskip("torch", reason="PyTorch (extra torch) is not installed")
    pytest.importorskip("flint", reason="python-flint (extra certify) is not installed")
    file = tmp_path / "mine.py"
    file.write_text("""import torch

def loss(p, x, y, slope=1):
    h = torch.zeros(x.shape[1], p["bh"].shape[0], dtype=x.dtype)
    for step in x:
        h = torch.tanh(step @ p["Wxh"].T + h @ p["Whh"].T + p["bh"])
    return slope * torch.nn.functional.cross_entropy(h @ p["Why"].T + p["by"], y)

def wrong(p, x, y):
    return loss(p, x, y, 1.001)

def broken(p, x, y):
    return loss(p, x, y[:1])
""")
    flags = ["--sizes", "3,4,2"]
    for name, status in (("loss", 0), ("wrong", 1), ("broken", 2)):
        assert cli.main(["check", "torch", "--function", f"{file}:{name}", *flags]) == status
    out, err = capsys.readouterr()
    assert out.count("verdict") == 2 and f"{file}:7: return slope" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "command",
    "train, export, orthogonalize, info, check, check torch, check jax, check onnx, vectors, "
    "vectors write, vectors judge".split(", "),
)
def test_help_teaches_with_an_example(command, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main([*command.split(), "--help"])
    assert ended.value.code == 0
    assert f"refnet {command}" in capsys.readouterr().out.split("xample", 1)[1]


def test_info_names_the_cache(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert cli.main(["info"]) == 0
    facts = capsys.readouterr().out
    assert str(tmp_path) in facts and "blas" in facts


def test_a_frameworks_own_layers_at_given_sizes_and_types(capsys, monkeypatch):
    pytest.importorskip("torch")
    pytest.importorskip("flint")
    from refnet.check import layers

    monkeypatch.setattr(layers, "TABLES", ())
    flags = "--device cpu --sizes 2,3,1 3,2,2 --dtypes tf32".split()
    assert cli.main(["check", "torch", *flags]) == 0
    *lines, last = capsys.readouterr().out.splitlines()[1:]
    assert last == "36 of 36 are explained by rounding"
    assert len(lines) == 2 * 13 + 10 and all(" tf32 " in line for line in lines)
    for judge, *more, said in (
        ("torch", "--cell", "lstm", "--cell is about a --function"),
        ("torch", "--mask", "--mask is about a --function"),
        ("torch", "--device", "cuda:99", "torch cannot use the device cuda:99"),
    ):
        assert cli.main(["check", judge, *more]) == 2
        out, err = capsys.readouterr()
        assert not out and said in err and err.count("\n") == 1


def test_where_a_framework_refuses_everything_nothing_is_judged(capsys):
    from refnet.check.commands import _finish

    options = Namespace(json=None, junit=None, allow_suspicious=False)
    refused, explained = {"verdict": "refused"}, {"verdict": "explained by rounding"}
    assert _finish([refused, refused], options) == 2
    assert _finish([refused, explained], options) == 0
    assert "0 of 2 are explained by rounding, 2 refused" in capsys.readouterr().out


@pytest.fixture
def without(monkeypatch):
    """A function that makes packages impossible to import, and has the judge find all others."""

    def without(*names):
        hide(monkeypatch, *names)
        monkeypatch.setattr(
            "refnet.check.commands.find_spec", lambda name: None if name in names else name
        )

    return without


@pytest.mark.parametrize(
    "arguments, package, extra",
    [
        (["check", "torch"], "python-flint", "torch"),
        (["check", "jax"], "python-flint", "jax"),
        (["check", "onnx"], "python-flint", "onnx"),
        (["vectors", "write", "golden"], "python-flint", "certify"),
    ],
)
def test_what_is_missing_is_said_before_anything_else(without, capsys, arguments, package, extra):
    without("flint")
    assert cli.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and f"{package}: pip install 'refnet[{extra}]'" in err


def test_training_and_orthogonalising_need_no_extra(without, capsys, tmp_path):
    without("rich", "matplotlib")
    words = "train temporal-order --length 10 --hidden 4 --iterations 2 --evaluate-every 1 --out"
    assert cli.main([*words.split(), str(tmp_path / "run")]) == 0
    out, err = capsys.readouterr()
    assert "run folder" in out and re.search(r"^ +2  .*accuracy", err, re.M)
    assert cli.main("orthogonalize --runs 100 --size 4".split()) == 0
    assert "gaussian: 100 of 100" in capsys.readouterr().err


def test_an_extra_brings_what_its_command_needs():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    extras = setup["options.extras_require"]
    for name in ("torch", "jax", "onnx", "certify"):
        assert "python-flint" in extras[name] and (name == "certify" or name in extras[name])


def test_rows_are_saved(tmp_path):
    tables.save(tables.target(str(tmp_path / "x.json")), [{"z": float("inf"), "T": (1, 2)}])
    assert json.loads((tmp_path / "x.json").read_text())["rows"] == [{"z": "Infinity", "T": [1, 2]}]


def test_lines_come_at_each_tenth(without, capsys):
    without("rich")
    with progress.counter("things", 40) as advance:
        for done in range(1, 41):
            advance(done, 40)
    assert capsys.readouterr().err.count("\n") == 10


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_bar_always_shows_the_iteration_and_the_time_left(width, monkeypatch):
    """The facts stand below, in as many lines as they need."""
    rich = pytest.importorskip("rich.console", reason="rich (extra cli) is not installed")
    console = rich.Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)
    monkeypatch.setattr(rich, "Console", lambda stderr: console)
    row = {
        "loss": 1.605,
        "accuracy": 0.2473,
        "spectral_radius": 4.01,
        "defect": 1308.0,
        "gradient_norm": 5.506,
    }
    with progress.bar(30_000, quiet=False) as observe:
        observe("row", {"iteration": 12_345, **row})
    shown = console.file.getvalue()
    assert re.search(r"12345/30000 (iterations, )?at most -:--:--", shown), shown
    facts = " ".join(shown.rpartition("-:--:--")[2].split())
    assert "loss 1.605 accuracy 0.2473 radius 4.01 defect 1308 |gradient| 5.506" in facts


def test_a_command_by_module():
    done = run_refnet("train")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
