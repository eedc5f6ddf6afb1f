"""Every example in a help, a docstring, an error message or a page is run to its end."""

import ast
import configparser
import doctest
import os
import re
import shlex
import shutil
import subprocess
import sys
from argparse import ArgumentParser
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import numpy as np
import pytest

import refnet
from refnet import cli
from refnet.check import vectors
from refnet.check.cases import reference_results
from refnet.check.encodings import encode
from refnet.prove.cli import KINDS as KINDS_OF_EXAMPLES, example
from refnet.training.config import Config
from refnet.training.config_files import to_toml
from refnet.training.protocols import configure
from refnet.training.specs import KINDS
from support.cluster import scheduler_and_workers
from support.public import PUBLIC
from support.realdata import real_data

pytestmark = pytest.mark.needs("flint", "matplotlib", "rich")

ROOT = Path(refnet.__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "refnet").rglob("*.md")),
    *sorted((ROOT / "benchmarks").glob("*.md")),
]
TASKS_OF_FILES = {
    "mnist": "mnist",
    "sequential-mnist": "mnist",
    "permuted-mnist": "mnist",
    "ptb": "ptb",
}
MODULES = [name for _, name, _ in walk_packages(refnet.__path__, "refnet.")]


def texts():
    """Every string in the package's source, with {} for what an f-string puts in, and every
    page."""
    for path in sorted((ROOT / "refnet").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        inner = {
            part
            for node in ast.walk(tree)
            if isinstance(node, ast.JoinedStr)
            for part in node.values
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                yield "".join(
                    part.value if isinstance(part, ast.Constant) else "{}" for part in node.values
                )
            elif (
                isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in inner
            ):
                yield node.value
    for path in PAGES:
        yield path.read_text(encoding="utf-8")


TEXTS = [*texts()]


def subcommands():
    """The names of the commands, as the program knows them."""

    class Parser(BaseException):  # main makes a line of an Exception
        pass

    def stop(parser, words):
        raise Parser(parser)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ArgumentParser, "parse_known_args", stop)
        with pytest.raises(Parser) as stopped:
            cli.main([])
    return list(stopped.value.args[0]._subparsers._group_actions[0].choices)


def commands():
    """``refnet COMMAND ...`` in every text: at the start of a line, after a colon, in quotes or
    in parentheses."""
    pattern = re.compile(
        rf"(?:^ *|[:(] |[`(/])(refnet (?:{'|'.join(subcommands())})(?![\w:])"
        r"(?: [^\n`();]+)?)",
        re.M,
    )
    return sorted(
        {command.strip().rstrip(".,") for text in TEXTS for command in pattern.findall(text)}
    )


COMPLETE = ("errata", "info", "orthogonalize", "runs")
"""The commands that need no further word; the name of another one stands for its help."""
PLACEHOLDERS = {
    "{} --rate X": "runs/NAME/config.toml --rate 0.5",
    "--config {}": "--config runs/NAME/config.toml",
    "{}": "runs/NAME",
    "FOLDER": "runs/NAME",
    "NUMBER": "14",
    " N": " 9",
    "TOPIC": "powers",
    "TASK": "adding",
    "mine.py:NAME": "mine.py:MGU",
    "train FILE": "train data.npz",
    "study NAME": "study table-iii",
    "study {}": "study table-iii",
    "/shared/studies": "studies",
    "book --serve": "book site",  # which would not end
}


def completed(command):
    """A text's command with what its placeholders stand for, without what a shell reads of it."""
    command = re.split(" > | +#", command)[0]
    for placeholder, instead in sorted(PLACEHOLDERS.items(), key=lambda entry: -len(entry[0])):
        command = command.replace(placeholder, instead)
    return command


COMMANDS = sorted({*map(completed, commands())})
SMALLER = {
    "book": "--only 01",
    "train --resume": "--iterations 4",
    "train": "--iterations 2 --evaluate-every 1",
    "orthogonalize": "--runs 20 --size 5",
    "explain ": "--size 8",
    "study table-iii --quick": "--seeds 1",
    "study figure-1 --workers": "--quick --seeds 1",
    "study table-2 --cluster": "--quick --seeds 1",
    "study --list": "",
    "study": "--table",
}
"""Options that make an example short without changing what it does, by its beginning."""
MINUTES = re.compile(
    "refnet (errata --.*|vectors write.*|train .*(mnist|ptb).*|"
    "check (torch( --dtypes.*)?|jax)|"
    "study (.*--measure|.*--quick|.*--search.*|.*--workers.*|.*--cluster.*))"
)
NEEDS = {
    "book": ("mdit_py_plugins", "latex2mathml", "flint"),
    "check": ("flint", "torch", "jax", "onnx", "onnxruntime"),
    "vectors": ("flint",),
    "explain": ("flint", "matplotlib"),
    "analyse": ("matplotlib",),
    "errata": ("flint",),
    "export": ("onnx",),
}
MINE = """
def loss(p, x, y):
    import torch

    lstm = torch.nn.LSTM(p["Wxh"].shape[1], p["Whh"].shape[1]).to(x.dtype)
    names = {"weight_ih_l0": p["Wxh"], "weight_hh_l0": p["Whh"], "bias_ih_l0": p["bh"],
             "bias_hh_l0": torch.zeros_like(p["bh"])}
    h = torch.func.functional_call(lstm, names, (x,))[0][-1]
    return torch.nn.functional.cross_entropy(h @ p["Why"].T + p["by"], y)

def gradients(p, x, y, mask=None):
    import refnet
    from refnet.nets.stacked import StackedNet
    layers = 1 + ("Whh_l1" in p)
    hidden = next(value for name, value in p.items() if name.startswith("Whh")).shape[1]
    if layers == 1:
        cell = {1: "rnn", 4: "lstm"}[len(p["Whh"]) // hidden]
        net = refnet.RecurrentNet(x.shape[2], hidden, len(p["by"]), cell)
    else:
        net = StackedNet(x.shape[2], hidden, len(p["by"]), cell="lstm", layers=2,
                         bidirectional="Whh_l0_reverse" in p)
    results = refnet.loss_and_gradients(net, p, refnet.Batch(x, y, mask))
    return {"loss": results.loss, **{f"d{name}": g for name, g in results.gradients.items()}}
"""


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """A folder with the files that the examples name; of mine.py it has a link to the one file
    whose kernels are compiled once."""
    folder, mine = tmp_path_factory.mktemp("workplace"), tmp_path_factory.mktemp("mine") / "mine.py"
    for name, method in (
        ("NAME", "plain"),
        ("temporal-order-T60-oinit-seed0", "oinit"),
        ("temporal-order-T60-open-seed0", "open"),
    ):
        config = Config(
            "temporal-order", length=10, hidden=4, iterations=2, evaluate_every=1, method=method
        )
        refnet.train(config, folder / "runs" / name)
    (folder / "THIS_FILE").write_text(to_toml(config))
    (folder / "lstm.py").write_text(MINE)
    mine.write_text("\n".join([MINE, *map(example, KINDS_OF_EXAMPLES)]))
    (folder / "mine.py").symlink_to(mine)
    rng = np.random.default_rng(0)
    np.savez(folder / "data.npz", x=rng.standard_normal((60, 5, 2)), y=rng.integers(0, 2, 60))
    rows = [f"{n},{t},{rng.random()},{'ab'[n % 2]}" for n in range(60) for t in range(5)]
    (folder / "series.csv").write_text("\n".join(["ID,T,value,LABEL", *rows]))
    (folder / "benchmarks/results").mkdir(parents=True)
    return folder


def write_model(folder):
    import onnx

    from refnet.interop import onnx_nodes

    net = refnet.RecurrentNet(3, 4, 2, cell="gru")
    model = onnx_nodes.model(net, net.init(np.random.default_rng(0)), np.float32)
    onnx.save(model, folder / "model.onnx")


def write_vectors(folder):
    """Golden vectors, and what a program of one's own would answer."""
    few = [case for case in vectors.catalogue() if case[0] in ("rnn-last", "gru-every")]
    for golden, answers in (("golden", "results"), ("DIR", "THEIRS")):
        vectors.write(folder / golden, few)
        (folder / answers).mkdir()
        for name, case in vectors.load(folder / golden).items():
            results = reference_results(case.net, case.params, case.batch)
            (folder / answers / f"{name}.npz").write_bytes(
                encode(results, "npz", {"dtype": "float32"})
            )


def prepared(command, folder):
    """The words to run, the files made that they name; skips what needs something absent."""
    words = shlex.split(command)
    for name in NEEDS.get(words[1], ()):
        pytest.importorskip(name, reason=f"{name} is not installed")
    for data in ("mnist", "ptb"):
        if any(data in word for word in words) and words[1] == "train":
            os.environ["REFNET_DATA"] = str(real_data(data))
    words = words[1:]
    if len(words) == 1 and words[0] not in COMPLETE:
        return [*words, "--help"]
    if words[:2] == ["check", "onnx"]:
        write_model(folder)
    if words[:2] == ["vectors", "judge"]:
        write_vectors(folder)
    short = next(
        (added for start, added in SMALLER.items() if command.startswith(f"refnet {start}")), ""
    )
    return words + short.split() * ("--status" not in words)


def parameters():
    return [
        pytest.param(command, marks=[pytest.mark.slow] if MINUTES.fullmatch(command) else [])
        for command in COMMANDS
    ]


@pytest.fixture
def cluster(tmp_path):
    """The address of a dask scheduler with two workers."""
    pytest.importorskip("distributed", reason="dask.distributed is not installed")
    processes, address = scheduler_and_workers(tmp_path)
    yield address
    for process in processes:
        process.kill()
        process.wait()


def run_to_its_end(words, folder):
    """The program's words in a folder: its exit status, and what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "refnet", *words],
        text=True,
        cwd=folder,
        capture_output=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("command", parameters())
def test_every_command_in_a_text_runs_to_its_end(
    command, workplace, tmp_path, monkeypatch, capsys, request
):
    monkeypatch.setenv("REFNET_DATA", os.environ.get("REFNET_DATA", ""))
    shutil.copytree(workplace, tmp_path, symlinks=True, dirs_exist_ok=True)
    words = prepared(command, tmp_path)
    if "--cluster" in words:
        words[words.index("--cluster") + 1] = request.getfixturevalue("cluster")
    monkeypatch.chdir(tmp_path)
    if words[0] == "study" and "--table" not in words:  # which starts processes of its own
        status, out, err = run_to_its_end(words, tmp_path)
    else:
        try:
            status = cli.main(words)
        except SystemExit as ended:  # of --help
            status = ended.code
        out, err = capsys.readouterr()
    assert status == 0 and out, err
    for flag in ("--figure", "--out"):
        if flag in words:
            assert Path(words[words.index(flag) + 1]).exists()


SPEC = re.compile(r"(?<![\w.`:-])[a-z_][a-z_0-9-]*:[a-z_]+=[\w.-]+(?:,[a-z_]+=[\w.-]+)*")
GENERIC = {"name:key=value", "name:key=value,key=value"}
"""The form itself, not an example of it."""
SPECS = sorted({spec.rstrip(".") for text in TEXTS for spec in SPEC.findall(text)} - GENERIC)
RUNNABLE = {"hidden": 4, "batch": 2, "length": 10, "iterations": 2, "evaluate_every": 2}


@pytest.mark.parametrize("spec", SPECS)
def test_every_spec_in_a_text_is_run(spec, tmp_path):
    """Two iterations of a net trained with it, by each setting that knows its name and options.
    (An initialiser is tried on recurrent matrices, as some need square ones.)"""
    settings = [
        setting
        for setting in KINDS
        if setting not in ("weights", "input_weights") and reads(setting, spec)
    ]
    assert settings
    for setting in settings:
        given = {"task": "adding", **RUNNABLE, setting: spec}
        if setting == "transition":
            given["recurrent"] = "orthogonal"
        if setting in ("recurrent", "gate_recurrent"):
            given["cell"] = "lstm" if setting == "gate_recurrent" else "rnn"
        task = given["task"].partition(":")[0]
        if task in TASKS_OF_FILES:
            os.environ["REFNET_DATA"] = str(real_data(TASKS_OF_FILES[task]))
            given.pop("length")
        if "length=" in given["task"]:
            given.pop("length", None)
        refnet.train(configure(given), tmp_path / setting)


def reads(setting, spec):
    """Whether a spec's name and options are the setting's: several have one called identity."""
    name, options = spec.partition(":")[::2]
    known = KINDS[setting].options(name) if name in KINDS[setting].names else {}
    return bool(known) and {option.partition("=")[0] for option in options.split(",")} <= set(known)


def imported(name):
    """A module; None where an optional package that it needs is not installed."""
    with suppress(ImportError):
        return import_module(name)


DOCTESTS = [
    test
    for module in map(imported, MODULES)
    if module and "__main__" not in module.__name__
    for test in doctest.DocTestFinder().find(module)
    if test.examples and test.name not in PUBLIC
]
"""Those that tests/project/test_public_names.py does not run."""


@pytest.mark.parametrize("example", DOCTESTS, ids=lambda example: example.name)
def test_every_example_of_a_docstring_runs(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example).failed == 0


def test_the_examples_are_found():
    assert len(COMMANDS) > 60 and len(SPECS) > 20 and len(DOCTESTS) > 5
    assert {"refnet train --resume runs/NAME", "refnet info"} <= set(COMMANDS)
    assert "svd:margin=0.1" in SPECS


def test_every_extra_in_a_text_exists():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    named = {
        extra
        for text in TEXTS
        for group in re.findall(r"refnet\[([\w,]+)\]", text)
        for extra in group.split(",")
    }
    assert {"certify", "cluster", "sklearn"} <= named
    assert named <= set(setup["options.extras_require"])
