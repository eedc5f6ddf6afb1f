"""What an entry of a table gets without a test of its own, and ``refnet new`` and ``prove``."""

import subprocess
import sys
from pathlib import Path

import pytest

from refnet.cells import CELLS
from refnet.cli import main
from refnet.maths.activations import ACTIVATIONS
from refnet.matrices.initializers import INITIALIZERS
from refnet.matrices.transitions import TRANSITIONS
from refnet.prove.checks import prove
from refnet.prove.cli import KINDS
from refnet.tasks import TASKS
from refnet.tasks.files import folders
from refnet.training.optimizers import OPTIMIZERS

NAMES = [*CELLS, *TRANSITIONS, *ACTIVATIONS, *TASKS, *INITIALIZERS, *OPTIMIZERS]


@pytest.mark.needs("flint")
@pytest.mark.parametrize("name", sorted({*NAMES} - {"svd"} | {"svd:margin=0.5"}))
def test_every_entry_is_proved(name):
    home = TASKS[name].__module__.rpartition(".")[2] if name in TASKS else ""
    if home in ("mnist", "ptb") and not folders(home)[0].is_dir():
        pytest.skip(f"needs the data set {home}")
    outcomes = prove(name)
    assert outcomes and {outcome for _, outcome, _ in outcomes} == {"holds"}, outcomes


ENTRIES = {
    "task": ("Majority:length=11", "task"),
    "cell": ("MGU", "cell"),
    "transition": ("Circulant:scale=0.5", "transition"),
    "activation": ("bump", "activation"),
    "initializer": ("sparse:k=2", "recurrent"),
    "optimizer": ("Signs", "optimizer"),
}


@pytest.fixture(autouse=True)
def _apart(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def example(kind, capsys, *change):
    """The example that ``refnet new`` prints, in mine.py, with a text of it replaced."""
    assert main(["new", kind]) == 0
    source = capsys.readouterr().out
    assert max(map(len, source.splitlines())) <= 80
    if change:
        assert change[0] in source
        source = source.replace(*change, 1)
    Path("mine.py").write_text(source)
    return f"mine.py:{ENTRIES[kind][0]}"


@pytest.mark.needs("flint")
@pytest.mark.parametrize("kind", KINDS)
def test_an_example_is_proved_and_trains(kind, capsys):
    name = example(kind, capsys)
    assert main(["prove", name]) == 0
    assert "FAILS" not in capsys.readouterr().out
    given = {"task": "temporal-order:samples=50", "iterations": "4", "evaluate-every": "2"}
    task, *flags = {**given, "hidden": "6", ENTRIES[kind][1]: name}.items()
    flags = [f"--{setting}={value}" for setting, value in flags]
    assert main(["train", task[1], *flags, "--quiet", "--out", "run"]) == 0
    assert main(["train", "--resume", "run", "--iterations", "6", "--quiet"]) == 0


PLANTED = [
    ("cell", "e * (n - h[t])", "e * (n + h[t])", "exact transposition: dbh is not the derivative"),
    ("cell", "df[j] = e[j] * (n[j] - h[j])", "df[j] = e[j] * n[j]", "both backends: KERNEL's d"),
    ("transition", "dW[tape == k]", "dW.T[tape == k]", "exact transposition: pull_back is not"),
    ("activation", "(1 - a * a)", "(1 + a * a)", "exact transposition: backward is not"),
    ("activation", "dh * (1 - a * a)", "dh * (1.000001 - a * a)", "FAILS   certified gradients"),
    ("task", "rng.integers(0, 2,", "np.random.randint(0, 2,", "gives another x the second time"),
    ("task", "outputs = 2", "outputs = 1", "y is not integers in 0 to 0"),
    ("task", "[:, :, None]", "[:, :]", "x has the width 20; inputs is 1"),
    ("initializer", "rng.standard_normal(len(at))", "np.nan", "an entry is not finite"),
    ("optimizer", "np.sign(g)", "-np.sign(g)", "the first step does not descend"),
    ("optimizer", "np.sign(g)", "np.sign(g) * np.float64(1)", "float32 becomes float64"),
]


@pytest.mark.needs("flint")
@pytest.mark.parametrize("kind, text, wrong, said", PLANTED)
def test_a_planted_bug_fails(kind, text, wrong, said, capsys):
    """With status 1, and the check that found it."""
    name = example(kind, capsys, text, wrong)
    assert main(["prove", name]) == 1
    assert said in capsys.readouterr().out


def test_what_cannot_be_proved_is_an_error(capsys):
    example("cell", capsys)
    with open("mine.py", "a") as file:
        file.write("\n\ndel MGU.backward\n\n\ndef helper(a, h, dh):\n    return a\n")
    errors = {
        "mine.py:MGU": "lacks backward",
        "lsmt": "did you mean lstm",
        "mine.py": "is a file; name what is in it: mine.py:NAME",
        "mine.py:np": "need one of task, cell,",
        "mine.py:helper": "need one of task, cell,",
    }
    for name, said in errors.items():
        assert main(["prove", name]) == 2
        assert said in capsys.readouterr().err


def test_without_the_extra_a_check_is_skipped(monkeypatch):
    monkeypatch.setitem(sys.modules, "flint", None)
    outcomes = {check: outcome for check, outcome, _ in prove("relu")}
    assert outcomes["certified gradients"] == "skipped"


def test_a_kernel_is_compiled_anew_when_a_function_that_it_calls_changes(capsys):
    """The cache of kernels holds the digest of the user's file."""
    example("cell", capsys, "h[j] = (number", "h[j] = gain(h[j]) * (number")
    source = Path("mine.py").read_text()
    code = (
        "import numpy as np, refnet; net = refnet.RecurrentNet(1, 2, 2, cell='mine.py:MGU', "
        "backend='compiled'); p = net.init(np.random.default_rng(0)); "
        "print(net.forward(p, np.ones((3, 1, 1), np.float32))[0].tolist())"
    )
    said = []
    for gain in ("1.0", "3.0"):
        helper = f"@inlined\ndef gain(x):\n    return number({gain}, x)\n\n\n"
        Path("mine.py").write_text(source.replace("@inlined\n", helper + "@inlined\n", 1))
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        said.append(result.stdout)
        assert result.returncode == 0, result.stderr
    assert said[0] != said[1]
