"""The tests on the oldest and newest versions: ``python -m benchmarks.versions [--full]``.

The source distribution and the wheel are built; for every Python named and both ends of the
versions, the wheel is installed in a fresh environment, and a quick part of the tests (with --full:
all of them) runs from the unpacked source distribution without its own copy of the modules.
What happened goes to benchmarks/results/versions.json.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.records import Row, options, record, save

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


def output(*command: Any, check: bool = True, **options: Any) -> "CompletedProcess[str]":
    """What a command says."""
    return subprocess.run(
        [*map(str, command)], capture_output=True, text=True, check=check, **options
    )


def attempt(version: str, end: str, tree: Path, wheel: Path, full: bool) -> Row:
    """One row of the record."""
    commit = output("git", "rev-parse", "--short", "HEAD", cwd=ROOT).stdout.strip()
    row: Row = {"python": version, "versions": end, "commit": commit}
    interpreter = python(version)
    if interpreter is None:
        return {**row, "outcome": "not tried: this Python is not installed here"}
    with TemporaryDirectory() as folder:
        private = Path(folder) / "bin" / "python"
        subprocess.run([interpreter, "-m", "venv", folder], check=True)
        pip, numbers = (private, "-m", "pip"), ("numpy", "scipy", "numba")
        pins = OLDEST[version] if end == "oldest" else numbers
        words = ("install", "-q", "--only-binary", ":all:", wheel, "pytest", "hypothesis", *pins)
        install = output(*pip, *words, check=False)
        if install.returncode:
            reason = install.stderr.strip().splitlines()[-1][:200]
            return {**row, "outcome": f"not installable: {reason}"}
        listed = json.loads(output(*pip, "list", "--format", "json").stdout)
        row |= {entry["name"]: entry["version"] for entry in listed if entry["name"] in numbers}
        start = time.perf_counter()
        chosen = () if full else (path for n in QUICK for path in tree.glob(f"tests/*/{n}.py"))
        ran = output(
            *(private, "-P", "-m", "pytest", "-q", *chosen),  # -P: the package is the installed one
            check=False,
            cwd=tree,
            env={**os.environ, "NUMBA_CACHE_DIR": folder},
        )
    row["tests"] = "all" if full else "quick"
    last = re.sub(r" in [\d.]+s.*", "", ran.stdout.strip().splitlines()[-1].strip("= "))
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", ran.stdout, re.MULTILINE)
    return {**row, "outcome": last, "failed": failed, "seconds": round(time.perf_counter() - start)}


def main() -> int:
    parser = options(
        "Run the tests on the oldest and newest NumPy, SciPy and Numba.", "versions --python 3.13"
    )
    parser.add_argument("--full", action="store_true", help="all tests, not a quick part")
    parser.add_argument("--python", nargs="*", choices=PYTHONS, default=PYTHONS)
    args = parser.parse_args()
    rows = record("versions").get("rows", [])
    with TemporaryDirectory() as folder:
        tree, wheel = build(Path(folder))
        for version in args.python:
            for end in ("oldest", "newest"):
                row = attempt(version, end, tree, wheel, args.full)
                print(row, flush=True)
                rows = [old for old in rows if (old["python"], old["versions"]) != (version, end)]
                rows.append(row)
                save("versions", {"rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
