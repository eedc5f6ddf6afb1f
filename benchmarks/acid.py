"""The field's acid test: the recurrent layers of every framework that is installed, judged:
``python -m benchmarks.acid``, or with names of frameworks.

Each framework has a process of its own and a file of its own, results/acid/NAME.jsonl, with a line
for every layer, type and size. A line whose versions and adapter are those of now stays, so that
the command goes on where it was stopped; it says which frameworks are not installed. ACID.md
(``python -m benchmarks.readme``) is made of the lines.
Checked by: tests/check/test_acid.py.
"""

import json
import os
import platform
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np
from llvmlite.binding import get_host_cpu_features, get_host_cpu_name

from benchmarks.judge.acid.frameworks import FRAMEWORKS, Layer, versions
from benchmarks.records import RESULTS, Row, options, rows_in
from refnet.batch import Batch, Params
from refnet.check import Verdict, judge
from refnet.check.adapters import Refused
from refnet.check.certificates import case_of, certificate, sigma_of
from refnet.check.given import by_name
from refnet.check.tables import said
from refnet.check.userfunction import Described
from refnet.check.verdict import compare_values
from refnet.nets.recurrent import RecurrentNet
from refnet.runs.rows import plain

FOLDER = RESULTS / "acid"
FORMS = (
    (1, 4, 1, "last", ""),
    (7, 6, 3, "every", ""),
    (20, 16, 4, "last", "large"),
    (50, 32, 4, "last", ""),
    (500, 32, 4, "every", ""),
)
"""T, H, B, the steps that are read, and what is special: of large inputs units saturate."""
LONG = 100
"""Steps beyond which a result is compared alone: a wrong one is located at the smaller sizes."""
LIMIT = 600
"""Seconds that a row may take."""
FEATURES = ("avx2", "avx512f", "avx512bf16", "avx512fp16", "amx-bf16", "neon", "sve")
"""Of processors, those by which frameworks choose their kernels."""
KEPT = (
    "verdict",
    "z",
    "worst",
    "index",
    "theirs",
    "certified",
    "sigma",
    "convention",
    "note",
    "where",
)
"""What a line has of a verdict."""


class Case(NamedTuple):
    """A row's layer, by name, and what it is judged at."""

    layer: str
    dtype: str
    T: int
    H: int
    B: int
    readout: str
    at: str


def cases(name: str) -> Iterator[Case]:
    """All of a framework."""
    for what, layer in FRAMEWORKS[name].layers.items():
        for form in FORMS:
            for dtype in layer.dtypes:
                if form[0] <= layer.longest:
                    yield Case(what, dtype, *form)


def facts(name: str, case: Case) -> Row:
    """What identifies a row: of another version or adapter it is another one."""
    framework = FRAMEWORKS[name]
    return {
        "framework": name,
        "versions": versions(framework),
        "adapter": framework.digest(framework.layers[case.layer]),
        **case._asdict(),
    }


def judged(name: str, case: Case) -> Row:
    """The verdict on a layer."""
    framework = FRAMEWORKS[name]
    layer: Layer = framework.layers[case.layer]
    described = Described(**layer.net, readout=case.readout)
    net = described.net(case.H)
    given = described.arrays(net, case.dtype, case.T, case.B, 0, case.at)
    started = perf_counter()
    decide = judge if case.T <= LONG else compared
    try:
        verdict = decide(
            net,
            framework.results(net, layer),
            *given,
            dtype=case.dtype,
            required=framework.required,
        )
    except Refused as error:
        return {"verdict": "refused", "note": str(error)}
    row = said(verdict)
    row = {key: row[key] for key in KEPT if row[key] not in ("", ())}
    return {**row, "seconds": round(perf_counter() - started, 2)}


def compared(
    net: RecurrentNet,
    results: Callable[[Params, Batch], Params],
    *given: Params | Batch,
    dtype: str,
    required: tuple[str, ...] | None,
) -> Verdict:
    """The verdict alone; the certificate and the sigmas are those of ``judge``."""
    case = case_of(net, given, None, None)
    theirs = by_name(results(*given), certificate(case).named())
    true = {name: value.value for name, value in certificate(case).named().items()}
    required = required or tuple(f"d{name}" for name in given[0])
    return compare_values(theirs, true, sigma_of(case, dtype), dtype, required)


def path_of(name: str, folder: Path) -> Path:
    """Where a framework's rows are."""
    return folder / f"{re.sub('[^a-z0-9]+', '-', name.lower()).strip('-')}.jsonl"


def open_cases(name: str, path: Path) -> list[Case]:
    """The cases without a row of now; rows of other versions, and second ones, are removed."""
    known = {json.dumps(facts(name, case)): case for case in cases(name)}

    def key(row: Row) -> str:
        return json.dumps({part: row[part] for part in facts(name, next(cases(name)))})

    done = {key(row): row for row in rows_in(path) if key(row) in known}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(done[text])}\n" for text in known if text in done))
    return [case for text, case in known.items() if text not in done]


def add(name: str, case: Case, outcome: Row, path: Path) -> None:
    """A line for a row."""
    has = get_host_cpu_features()
    where = {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "processor": get_host_cpu_name(),
        "features": " ".join(feature for feature in FEATURES if has.get(feature)),
        "system": platform.system(),
    }
    with path.open("a") as file:
        row = {**facts(name, case), **outcome, "environment": where}
        file.write(f"{json.dumps(plain(row), allow_nan=False, default=float)}\n")


def run_alone(name: str, folder: Path) -> None:
    """The open rows of a framework, in this process, which a row that takes too long ends."""
    path = path_of(name, folder)
    for case in open_cases(name, path):
        signal.alarm(LIMIT)
        outcome = judged(name, case)
        signal.alarm(0)
        add(name, case, outcome, path)
        print(f"  {', '.join(map(str, case))}: {outcome['verdict']}", flush=True)


def run(name: str, folder: Path) -> None:
    """The open rows of a framework, in processes of its own: one that ends by itself is a row, and
    the next process goes on after it."""
    path = path_of(name, folder)
    variables = {**os.environ, **FRAMEWORKS[name].variables}
    command = [sys.executable, "-m", "benchmarks.acid", "--alone", "--folder", str(folder), name]
    while still := open_cases(name, path):
        print(f"{name}: {len(still)} rows", flush=True)
        status = subprocess.run(command, env=variables).returncode
        rest = open_cases(name, path)
        if status > 0:
            sys.exit(f"{name}: an error, status {status}")
        if status < 0 and rest:
            why = (
                f"more than {LIMIT} s"
                if -status == signal.SIGALRM
                else signal.Signals(-status).name
            )
            add(name, rest[0], {"verdict": "crashed", "note": why}, path)


def main(arguments: list[str]) -> int:
    parser = options("Judge the recurrent layers of every framework that is installed.", "acid")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(FRAMEWORKS)}")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the rows are")
    parser.add_argument("--alone", action="store_true", help="in this process")
    args = parser.parse_args(arguments)
    for name in args.names or FRAMEWORKS:
        if args.alone:
            run_alone(name, args.folder)
            continue
        missing = [package for package, known in versions(FRAMEWORKS[name]).items() if not known]
        if missing:
            print(f"{name}: {', '.join(missing)} is not installed")
            continue
        run(name, args.folder)
        counts = Counter(row["verdict"] for row in rows_in(path_of(name, args.folder)))
        print(f"{name}: {dict(counts)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
