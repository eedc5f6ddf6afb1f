"""ruff on everything, mypy --strict on the package, and what an import may cost."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "command", [["ruff", "check"], ["ruff", "format", "--check", "--diff"], ["mypy", "refnet"]]
)
def test_checker_finds_nothing(command):
    if command[0] == "mypy":  # which reads the types of these
        for package in ("rich", "matplotlib"):
            pytest.importorskip(package, reason=f"{package} (extra cli) is not installed")
    result = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_mypy_is_strict():
    assert "strict = True" in (ROOT / "setup.cfg").read_text()


def test_hypothesis_profile_is_loaded():
    assert settings.default.deadline is None and settings.default.derandomize


def test_import_loads_no_array_library():
    """`import refnet` alone loads neither numpy, scipy nor numba, so it stays far below
    half a second."""
    code = "import sys, refnet; print(sorted({'numpy', 'scipy', 'numba'} & set(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_every_public_name_loads():
    import refnet

    assert all(getattr(refnet, name) is not None for name in refnet.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        refnet.nothing
