"""ruff on everything, mypy --strict on the package and what measures the judge; imports' cost."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.subprocesses import run_python

ROOT = Path(__file__).resolve().parents[2]


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
    result = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_import_loads_no_array_library():
    """`import refnet` alone loads neither numpy, scipy nor numba, so it stays far below
    half a second."""
    code = "import sys, refnet; print(sorted({'numpy', 'scipy', 'numba'} & set(sys.modules)))"
    result = run_python(code)
    assert result.stdout.strip() == "[]"
