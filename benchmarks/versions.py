"""The tests on the oldest and newest versions: ``python -m benchmarks.versions [--full]``.

The source distribution and the wheel are built; for every Python named and both ends of the
versions, the wheel is installed in a fresh environment, and a quick part of the tests (with --full:
all of them) runs from the unpacked source distribution without its own copy of the modules.
What happened goes to benchmarks/results/versions.json.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

RESULTS = Path(__file__).parent / "results" / "versions.json"
ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
OLDEST = {
    "3.11": ("numpy==2.0.0", "scipy==1.13.0", "numba==0.61.0"),
    "3.12": ("numpy==2.0.0", "scipy==1.13.0", "numba==0.61.0"),
    "3.13": ("numpy==2.1.0", "scipy==1.14.1", "numba==0.61.0"),
    "3.14": ("numpy==2.3.3", "scipy==1.16.1", "numba==0.63.1"),
}
"""setup.cfg's bounds, or the first versions that exist for a Python."""
QUICK = (
    "test_activations",
    "test_linalg",
    "test_losses",
    "test_gradients",
    "test_optimizers",
    "test_checkpoint",
    "test_vector",
    "test_compiled_orthogonality",
    "test_startup",
    "test_cache",
)


def python(version: str) -> str | None:
    """The interpreter of that version, if there is one."""
    pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    return str(pyenv[-1]) if pyenv else shutil.which(f"python{version}")


def build(folder: Path) -> tuple[Path, Path]:
    """The unpacked source distribution, without its copy of the modules, and the wheel."""
    with TemporaryDirectory() as copy:
        clean = Path(copy) / "refnet"
        archive = subprocess.run(
            ["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True
        ).stdout
        clean.mkdir()
        subprocess.run(["tar", "-x"], input=archive, cwd=clean, check=True)
        for kind in ("sdist", "wheel"):
            code = f"from setuptools import build_meta as b; b.build_{kind}({str(folder)!r})"
            subprocess.run([sys.executable, "-c", code], cwd=clean, check=True, capture_output=True)
    sdist, wheel = next(folder.glob("*.tar.gz")), next(folder.glob("*.whl"))
    with tarfile.open(sdist) as packed:
        packed.extractall(folder, filter="data")
    tree = folder / sdist.name.removesuffix(".tar.gz")
    for module in tree.glob("refnet/**/*.py"):  # the pages stay: tests read them
        module.unlink()
    return tree, wheel


def attempt(version: str, end: str, tree: Path, wheel: Path, full: bool) -> dict[str, Any]:
    """One row of the record."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    row: dict[str, Any] = {"python": version, "versions": end, "commit": commit}
    interpreter = python(version)
    if interpreter is None:
        return {**row, "outcome": "not tried: this Python is not installed here"}
    with TemporaryDirectory() as folder:
        private = Path(folder) / "bin" / "python"
        subprocess.run([interpreter, "-m", "venv", folder], check=True)
        pins = OLDEST[version] if end == "oldest" else ("numpy", "scipy", "numba")
        install = subprocess.run(
            [
                str(private),
                "-m",
                "pip",
                "install",
                "-q",
                "--only-binary",
                ":all:",
                str(wheel),
                "pytest",
                "hypothesis",
                *pins,
            ],
            capture_output=True,
            text=True,
        )
        if install.returncode:
            return {
                **row,
                "outcome": "not installable: " + install.stderr.strip().splitlines()[-1][:200],
            }
        listed = subprocess.run(
            [str(private), "-m", "pip", "list", "--format", "json"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        row |= {
            entry["name"]: entry["version"]
            for entry in json.loads(listed)
            if entry["name"] in ("numpy", "scipy", "numba")
        }
        start = time.perf_counter()
        chosen = (
            []
            if full
            else [str(path) for name in QUICK for path in tree.glob(f"tests/*/{name}.py")]
        )
        # -P: the package is the installed one
        ran = subprocess.run(
            [str(private), "-P", "-m", "pytest", "-q", *chosen],
            cwd=tree,
            capture_output=True,
            text=True,
            env={**os.environ, "NUMBA_CACHE_DIR": folder},
        )
    row["tests"] = "all" if full else "quick"
    last = re.sub(r" in [\d.]+s.*", "", ran.stdout.strip().splitlines()[-1].strip("= "))
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", ran.stdout, re.MULTILINE)
    return {**row, "outcome": last, "failed": failed, "seconds": round(time.perf_counter() - start)}


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Run the tests on the oldest and newest NumPy, SciPy and Numba.",
        epilog="Example: python -m benchmarks.versions --python 3.13",
    )
    parser.add_argument("--full", action="store_true", help="all tests, not a quick part")
    parser.add_argument("--python", nargs="*", choices=PYTHONS, default=PYTHONS)
    options = parser.parse_args()
    rows = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
    with TemporaryDirectory() as folder:
        tree, wheel = build(Path(folder))
        for version in options.python:
            for end in ("oldest", "newest"):
                row = attempt(version, end, tree, wheel, options.full)
                print(row, flush=True)
                rows = [old for old in rows if (old["python"], old["versions"]) != (version, end)]
                rows.append(row)
                RESULTS.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
