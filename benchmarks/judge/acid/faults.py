"""The faults that the acid test found, each with the smallest program that shows it:
``python -m benchmarks.judge.acid.faults`` runs what is installed, and records what it prints.

A program is a file in faults/, with its explanation at its top: the title, the package, whether it
is known in the public tracker, and the reason.
"""

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from benchmarks.judge.acid.frameworks import version_of
from benchmarks.records import record, save

FOLDER = Path(__file__).with_name("faults")


class Fault(NamedTuple):
    """A program: ``text`` explains, ``code`` shows."""

    name: str
    title: str
    package: str
    known: str
    text: str
    code: str


def fault(path: Path) -> Fault:
    """What a file says. Raises ValueError for one that does not say all."""
    content = path.read_text(encoding="utf-8")
    if path.suffix == ".js":
        lines = content.splitlines()
        head = [line[3:] for line in lines if line.startswith("//")]
        code = "\n".join(line for line in lines if not line.startswith("//"))
    else:
        _, comment, code = content.split('"""', 2)
        head = comment.splitlines()
    parts = re.fullmatch(
        r"(.*?)\n\npackage: (.*?)\nknown: (.*?)\n\n(.*)", "\n".join(head).strip(), re.DOTALL
    )
    if parts is None:
        raise ValueError(f"{path.name}: need a title, package:, known: and an explanation")
    title, package, known, text = parts.groups()
    return Fault(path.name, title, package, known, text, code.strip())


def faults() -> list[Fault]:
    """All, by their names."""
    return [fault(path) for path in sorted(FOLDER.iterdir()) if path.suffix in (".py", ".js")]


def main() -> int:
    rows = record("acid_faults")
    for entry in faults():
        installed = version_of(entry.package)
        if not installed:
            print(f"{entry.name}: {entry.package} is not installed")
            continue
        program = "node" if entry.name.endswith(".js") else sys.executable
        run = subprocess.run(
            [program, str(FOLDER / entry.name)], capture_output=True, text=True, timeout=300
        )
        print(entry.name, run.stdout, run.stderr if run.returncode else "", sep="\n")
        if run.returncode:
            sys.exit(f"{entry.name}: status {run.returncode}")
        rows[entry.name] = {"version": installed, "output": run.stdout}
        save("acid_faults", dict(sorted(rows.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
