"""ruff on everything, mypy --strict on the package, what measures the judge, and a client; imports'
cost. One file, so that mypy reads the package once."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.subprocesses import run_python

ROOT = Path(__file__).resolve().parents[2]


def checked(*command):
    return subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True
    )


@pytest.mark.parametrize(
    "command",
    [
        ["ruff", "check"],
        ["ruff", "format", "--check", "--diff"],
        # which reads the types of these packages
        pytest.param(
            ["mypy", "refnet", "benchmarks/judge"], marks=pytest.mark.needs("rich", "matplotlib")
        ),
    ],
)
def test_checker_finds_nothing(command):
    result = checked(*command)
    assert result.returncode == 0, result.stdout + result.stderr


CLIENT = """
import numpy as np
import refnet

net = refnet.RecurrentNet(inputs=2, hidden=3, outputs=2)
params = net.init(np.random.default_rng(0))
batch = refnet.Batch(np.ones((4, 1, 2), np.float32), np.zeros(1, int))
reveal_type(net)
reveal_type(refnet.loss_and_gradients(net, params, batch).gradients)
reveal_type(refnet.exact.certify(net, params, batch))
reveal_type(refnet.check.compare)
reveal_type(refnet.transitions.transition("svd"))
reveal_type(refnet.analysis.spectral_radius(params["Whh"]))
reveal_type(refnet.train)
refnet.nothing
"""
SEEN = (
    "refnet.nets.recurrent.RecurrentNet",
    "dict[",
    "refnet.exact.enclose.Certified",
    "def (theirs: ",
    "refnet.matrices.slots.Transition",
    "float",
    "def (task: refnet.training.config.Config | refnet.tasks.base.Task | str",
)


@pytest.mark.needs("rich")
def test_a_client_sees_types(tmp_path):
    """Also that a name which is not there is an error."""
    client = tmp_path / "client.py"
    client.write_text(CLIENT)
    output = checked("mypy", "--strict", "--config-file", "setup.cfg", client).stdout
    revealed = [
        line.split("Revealed type is ", 1)[1]
        for line in output.splitlines()
        if "Revealed type" in line
    ]
    assert len(revealed) == len(SEEN), output
    for have, need in zip(revealed, SEEN):
        assert need in have
    errors = [line for line in output.splitlines() if "error:" in line]
    assert len(errors) == 1 and 'no attribute "nothing"' in errors[0], output


def test_import_loads_no_array_library():
    """`import refnet` alone loads neither numpy, scipy nor numba, so it stays far below
    half a second."""
    code = "import sys, refnet; print(sorted({'numpy', 'scipy', 'numba'} & set(sys.modules)))"
    result = run_python(code)
    assert result.stdout.strip() == "[]"
