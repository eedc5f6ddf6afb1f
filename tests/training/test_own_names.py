"""Names of your own, FILE.py:NAME and package.module:NAME, and the code that run folders name."""

import os
import pickle
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import refnet
from refnet.cells import CELLS
from refnet.cli import main
from refnet.maths.activations import ACTIVATIONS
from refnet.runs.checkpoint import CheckpointError
from refnet.tasks import TASKS
from refnet.training.config import Config
from refnet.training.config_files import from_toml, of_run
from refnet.training.listing import describe
from support.arguments import refused
from support.subprocesses import run_python, run_refnet

SOURCE = """
from dataclasses import dataclass

import numpy as np

from refnet.batch import Batch
from refnet.cells import rnn
from refnet.matrices.transitions.manifold import Plain
from refnet.maths.activations import ACTIVATIONS, Activation
from refnet.tasks.synthetic import Generated
from refnet.training.optimizers import SGD


@dataclass(frozen=True)
class Majority(Generated):
    length: int = 11
    samples: int = 50
    name, inputs, outputs = "majority", 1, 2

    def draw(self, rng, size):
        bits = rng.integers(0, 2, (self.length | 1, size))
        return Batch(bits[..., None].astype(self.dtype), (2 * bits.sum(0) > len(bits)).astype(int))


class Simple:
    GATES, STATES, CANDIDATE, OPTIONAL = rnn.GATES, rnn.STATES, rnn.CANDIDATE, rnn.OPTIONAL
    init, forward, backward, KERNEL = rnn.init, rnn.forward, rnn.backward, rnn


class Halfway:
    GATES = ("h",)


@dataclass(frozen=True)
class Scaled(Plain):
    factor: float = 0.5

    def shapes(self, rows, columns):
        return {"P": (rows, columns)}

    def init(self, start):
        return {"P": start / self.factor}

    def matrix(self, parts):
        return parts["P"] * self.factor, None

    def pull_back(self, parts, tape, dW):
        return {"P": dW * self.factor}


tanh = ACTIVATIONS["tanh"]
soft = Activation("tanh", lambda a, p, alpha: a / 2, lambda a, h, dh, p, alpha: (dh / 2, {}))


def ones(shape, rng, size: float = 1.0):
    return np.full(shape, size)


class Descent(SGD):
    pass
"""


@pytest.fixture(autouse=True)
def _apart(tmp_path, monkeypatch):
    """A working directory, and a home for what is trusted."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    Path("mine.py").write_text(SOURCE)


CHOSEN = {
    "task": "mine.py:Majority:length=7",
    "cell": "mine.py:Simple",
    "transition": "mine.py:Scaled:factor=0.25",
    "activation": "mine.py:tanh",
    "weights": "mine.py:ones:size=0.1",
    "optimizer": "mine.py:Descent",
    "iterations": 20,
    "evaluate_every": 10,
    "hidden": 4,
}


def flags(settings):
    return [
        f"--{name.replace('_', '-')}={value}" for name, value in settings.items() if name != "task"
    ]


def train(folder="run", **other):
    given = {**CHOSEN, **other}
    assert main(["train", given["task"], *flags(given), "--quiet", "--out", folder]) == 0


def test_every_setting_takes_a_name_of_a_file(tmp_path, capsys):
    """Trained, resumed, listed, loaded, analysed and compared, also from another folder."""
    train()
    os.makedirs("elsewhere")
    os.chdir("elsewhere")
    folder = tmp_path / "run"
    run = refnet.load(folder)
    assert run.config.cell == f"{tmp_path}/mine.py:Simple" and run.net.transition.factor == 0.25
    assert run.task.batch(0, 3, 0).x.shape == (7, 3, 1)
    assert main(["train", "--resume", str(folder), "--iterations", "30", "--quiet"]) == 0
    assert describe(folder)["next"].startswith("refnet train --resume")
    for command in ("analyse", "compare"):
        assert main([command, str(folder)]) == 0
    assert main(["train", "--config", str(folder / "config.toml"), "--quiet"]) == 0
    assert (tmp_path / "elsewhere/runs/Majority-plain-seed0/code.json").exists()
    assert "# mine.py:Majority" in capsys.readouterr().out


def test_python_takes_the_same_names():
    net = refnet.RecurrentNet(1, 4, 2, cell="mine.py:Simple", transition="mine.py:Scaled:factor=2")
    params = net.init(np.random.default_rng(0), np.float32, weights="mine.py:ones")
    assert (params["Why"] == 1).all() and net.transition.factor == 2
    mine = replace(net, activation="mine.py:soft")
    refnet.save("net.npz", mine, params)
    assert refnet.load("net.npz").net == mine
    Path("cache/refnet/trusted").unlink()
    with refused("cell names the code .*mine.py, which you have not used"):
        refnet.load("net.npz")
    assert refnet.initialize("mine.py:ones", (2, 2), np.random.default_rng(0), size=3).sum() == 12
    assert refnet.make_task("mine.py:Majority", length=5).length == 5
    assert refnet.optimizer("mine.py:Descent", rate=0.5).rate == 0.5


def test_a_module_is_named_as_a_file_is(tmp_path, monkeypatch):
    package = tmp_path / "site" / "package_of_mine"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "parts.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    train(task="package_of_mine.parts:Majority", cell="package_of_mine.parts:Simple")
    assert refnet.load("run").config.cell == "package_of_mine.parts:Simple"
    (package / "parts.py").write_text(SOURCE + "\n")
    with refused("package_of_mine/parts.py, which has changed"):
        refnet.load("run")


def test_an_activation_of_a_known_name_is_not_taken_for_the_known_one():
    net = refnet.RecurrentNet(1, 4, 2, activation="mine.py:soft")
    assert net.backend_for(np.float32) == "reference"
    for make in (
        partial(refnet.RecurrentNet, 1, 4, 2),
        partial(refnet.StackedNet, 1, 4, 2),
        partial(refnet.FeedforwardNet, (1, 4, 2)),
    ):
        with refused("mine.py:soft has no compiled kernel; use backend 'reference'"):
            make(activation="mine.py:soft", backend="compiled")


def test_a_file_runs_once_and_its_classes_travel():
    """By whichever path it is named; another process unpickles an object of its classes."""
    Path("link.py").symlink_to("mine.py")
    first = TASKS["mine.py:Majority"]
    assert first is TASKS["link.py:Majority"] is TASKS[f"{os.getcwd()}/mine.py:Majority"]
    sent = pickle.dumps(first(length=5))
    result = run_python(f"import pickle; print(pickle.loads({sent}))")
    assert result.stdout.startswith("Majority(length=5"), result.stderr


def unchanged():
    return {path: path.read_bytes() for path in Path("run").iterdir()}


def test_changed_code_is_refused_unless_it_is_trusted(tmp_path, caplog):
    """In other processes, as a file runs once in a process."""
    train(backend="reference")
    before = unchanged()
    Path("mine.py").write_text(SOURCE + "\nprint('RAN')\n")

    resume = ["train", "--resume", "run", "--iterations", "30", "--quiet"]
    code = "from refnet.cli import main\n"
    for words in (resume, ["analyse", "run"], ["runs", "."]):
        code += f"main({words})\n"
    said = run_python(code)
    assert (said.stderr + said.stdout).count("mine.py, which has changed since") == 3
    assert "RAN" not in said.stdout and unchanged() == before
    said = run_refnet(*resume, "--trust")
    assert said.returncode == 0 and "RAN" in said.stdout and "has changed" in said.stderr
    assert run_refnet("analyse", "run").returncode == 0  # the run has the new digest
    with refused("changed since this process ran it; start Python"):
        refnet.load("run")


@pytest.mark.parametrize("also", [[], ["code.json"]])
def test_code_of_a_strangers_folder_does_not_run(also, tmp_path):
    """Neither with a digest that holds nor without one, nor for a TOML file."""
    Path("stranger").mkdir()
    train("stranger/run")
    Path("stranger/mine.py").write_text(SOURCE + "\nimport pathlib\npathlib.Path('RAN').touch()\n")
    folder = Path("stranger/run")
    text = (folder / "config.toml").read_text().replace(f"{tmp_path}/mine", "../mine")
    (folder / "config.toml").write_text(text)
    for name in also:
        digest = refnet.common.names.sha256(Path("stranger/mine.py").read_bytes()).hexdigest()
        ours = refnet.common.names.sha256(SOURCE.encode()).hexdigest()
        (folder / name).write_text((folder / name).read_text().replace(ours, digest))
    reason = "have not used" if also else "has changed since"
    with refused(f"stranger/mine.py, which.*{reason}"):
        refnet.load(folder)
    with refused(reason):
        refnet.resume(of_run(folder), folder)
    Path("settings.toml").write_text('task = "stranger/mine.py:Majority"\n')
    for arguments in (["--config", str(folder / "config.toml")], ["--config", "settings.toml"]):
        assert main(["train", *arguments]) == 2
    assert not Path("RAN").exists()
    assert refnet.load(folder, trust=True).iteration == 20 and Path("RAN").exists()


def test_a_moved_file_is_named_where_it_is_now(tmp_path):
    """The checkpoint does not hold the folder of a file; a TOML file's own is what paths count
    from."""
    train()
    Path("other").mkdir()
    Path("mine.py").rename("other/mine.py")
    with refused("there is no file .*/mine.py; name an existing one"):
        refnet.load("run")
    path = Path("run/config.toml")
    path.write_text(path.read_text().replace(f"{tmp_path}/mine.py", "../other/mine.py"))
    assert from_toml(path)["cell"] == f"{tmp_path}/other/mine.py:Simple"
    assert refnet.load("run", trust=True).iteration == 20
    path.write_text(path.read_text().replace("mine.py:Simple", "mine.py:Other"))
    with pytest.raises((CheckpointError, ValueError)):
        refnet.load("run", trust=True)


WRONG = {
    "missing.py:Thing": "there is no file .*missing.py; name an existing one",
    "mine.py:Majorty": r"mine.py has no Majorty \(did you mean Majority\?\); define it there",
    "mine.py:Halfway": "cell .*:Halfway lacks STATES, CANDIDATE, .*backward; .*refnet new cell",
    "mine.py:Majority": "lacks GATES",
    "broken.py:Cell": "broken.py, line 3: ZeroDivisionError: division by zero; repair the file",
    "syntax.py:Cell": "syntax.py, line 2: SyntaxError: ",
    "leaves.py:Cell": "leaves.py, line 1: SystemExit: 3",
    "no.such.module:Cell": "there is no module no.such.module with a source file",
    "sys.flags:Cell": "there is no module sys.flags",
    "json.decoder:JSONDecoder": "lacks GATES",
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_with_a_file_is_said_in_one_line(name, capsys):
    Path("broken.py").write_text("def f():\n    pass\n1 / 0\n")
    Path("syntax.py").write_text("x = 1\ndef f(:\n")
    Path("leaves.py").write_text("raise SystemExit(3)\n")
    with refused(WRONG[name]) as error:
        refnet.RecurrentNet(1, 2, 2, cell=name)
    assert main(["train", "temporal-order", "--cell", name]) == 2
    assert str(error.value)[-40:] in capsys.readouterr().err


def test_a_task_that_inherits_stubs_lacks_them():
    Path("stub.py").write_text(
        "from dataclasses import dataclass\nfrom refnet.tasks import Task\n"
        "@dataclass\nclass Empty(Task):\n    dtype: str = 'float32'\n    name = 'empty'\n"
    )
    with refused("Empty lacks inputs, outputs, loss, .*metrics; "):
        refnet.make_task("stub.py:Empty")


def test_settings_that_depend_on_the_entry():
    """A cell of one gate takes no initializer of gates; one on a manifold has a rate there."""
    task = Config(**{**CHOSEN, "gate_recurrent": "ramp"})
    with refused("gate_recurrent 'ramp' would have no effect"):
        refnet.train(task, "never")
    assert "mine.py:Simple" not in CELLS.keys() and len(ACTIVATIONS) == 11
