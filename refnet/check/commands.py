"""What ``refnet check`` and ``refnet vectors`` do: the only part of the judge that prints.

Each function takes the parsed arguments (``refnet.check.cli``) and returns the exit status.
Checked by: tests/robustness/test_cli.py, tests/check/test_function_command.py,
tests/check/test_vectors.py.
"""

import argparse
import faulthandler
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields
from functools import partial
from importlib.util import find_spec
from itertools import chain
from textwrap import fill
from typing import TYPE_CHECKING

from refnet.check.tables import Row, cell, junit, said, save, show, without_sizes

if TYPE_CHECKING:
    from refnet.batch import Batch, Params
    from refnet.check.given import Names
    from refnet.check.survey import Dtypes, Sizes

__all__ = [
    "judge_framework",
    "judge_function",
    "judge_keras",
    "judge_onnx",
    "judge_vectors",
    "list_tolerances",
    "write_vectors",
]

DEFAULT = ((20, 16, 4), (7, 6, 1), (1, 2, 1), (3, 1, 2), (5, 19, 9))
"""The sizes (T, H, B) that a function is judged at, with H made even where its net needs it, and at
the first of them with large inputs, and with zeros if a derivative jumps there. The last one fills
vectors of 2, 4, 8 and 16 lanes and leaves a remainder, in the states and in the gates."""
SMALL = ((3, 4, 2),)
"""Those at which a function of a transition is judged at several norms of the transition's parts.
"""

LONGEST = 69
"""The letters of the longest name of a framework's layer in one of its forms."""


def _table(what: int = LONGEST, worst: int = len("dWhh_l0_reverse")) -> dict[str, int]:
    """The columns and their widths, for names that have so many letters."""
    return {
        "framework": 14,
        "version": 10,
        "what": what,
        "dtype": 16,
        "T": 4,
        "H": 3,
        "B": 2,
        "worst": worst,
        "z": 8,
        "verdict": 0,
    }


def _listed(text: str) -> tuple[str, ...]:
    """The names in a list with commas."""
    return tuple(name.strip() for name in text.split(","))


def _finish(rows: list[Row], args: argparse.Namespace) -> int:
    """Print how many are explained, write the files that are asked for; the exit status."""
    counts = Counter(row["verdict"] for row in rows)
    print(
        f"{counts['explained by rounding']} of {len(rows)} are explained by rounding"
        + (f", {counts['refused']} refused by the framework" if counts["refused"] else "")
    )
    save(args.json, rows)
    fine = {"explained by rounding", "refused"} | (
        {"suspicious"} if args.allow_suspicious else set()
    )
    junit(args.junit, rows, fine)
    wrong = [row for row in rows if row["verdict"] not in fine]
    names = {without_sizes(row.get("convention", "")) for row in wrong}
    if len(wrong) > 1 and len(names) == 1 and any(names):
        print(fill(f"one mistake explains all that are not: {names.pop()}", 80))
    verdicts = {row["verdict"] for row in rows}
    return 2 if verdicts <= {"refused"} else _status(verdicts - fine)


def _status(unexplained: set[str]) -> int:
    """The exit status, from the verdicts that are no success."""
    return 0 if not unexplained else 2 if unexplained == {"cannot be judged"} else 1


def _progress(bits: int, products: int, seconds: float) -> None:
    """The progress of a long computation, on a terminal."""
    if sys.stderr.isatty():
        print(
            f"\r{bits} bits, {products} matrix products, {seconds:.1f} s",
            end="\r",
            file=sys.stderr,
            flush=True,
        )


def _need(extra: str, *modules: str) -> None:
    """Raise ImportError, naming the extra, before any work or output that would be lost."""
    missing = [name for name in dict.fromkeys(("flint", *modules)) if find_spec(name) is None]
    if missing:
        names = ", ".join("python-flint" if name == "flint" else name for name in missing)
        raise ImportError(f"this needs {names}: pip install 'refnet[{extra}]'")


def judge_framework(args: argparse.Namespace) -> int:
    """``check torch`` and ``check jax``."""
    _need(args.judge, args.judge)
    from refnet.check import survey
    from refnet.check.adapters import jax_nets, torch_nets

    adapter = torch_nets if args.judge == "torch" else jax_nets
    device = {"device": adapter.use_device(args.device)} if args.device is not None else {}
    if args.function is None:
        every = survey.torch_rows if args.judge == "torch" else survey.jax_rows
        given, dtypes = _of_layers(args), tuple(args.dtypes)
        rows = every(given or survey.SIZES, args.seed, _progress, dtypes)
        both = chain(rows, _layer_rows(args.judge, args.seed, given, dtypes))
        return _finish(show(({**row, **device} for row in both), _table()), args)
    from refnet.check.userfunction import loaded, loss_of

    loss = loaded(args.function, loss_of)
    return _judge_described(args, partial(adapter.gradients, loss), args.judge)


def _of_layers(args: argparse.Namespace) -> "Sizes":
    """The sizes at which a framework's own layers are judged, () if none are given. Raises
    ValueError for options that only a function has."""
    from refnet.check.userfunction import Described

    given = [
        entry.name for entry in fields(Described) if getattr(args, entry.name) != entry.default
    ] + [args.at] * bool(args.at)
    if given:
        raise ValueError(
            f"--{given[0]} is about a --function FILE.py:NAME, which is not given; "
            "without it all of the framework's own layers are judged"
        )
    coarse = set(args.dtypes) - {"float32", "float64", "tf32"}
    if coarse and args.judge == "jax":
        raise ValueError(
            f"JAX's own layers are judged in float32, float64 and tf32, not in "
            f"{', '.join(sorted(coarse))}; pass a --function that computes in it"
        )
    return tuple(args.sizes or ())


def _layer_rows(extra: str, seed: int, sizes: "Sizes" = (), dtypes: "Dtypes" = ()) -> Iterator[Row]:
    """The layers of every framework that the command judges; of those on JAX what is installed."""
    from refnet.check import layers, survey

    packages = {"torch": ("torch",), "jax": ("flax", "equinox"), "keras": ("keras",)}[extra]
    for table in layers.TABLES:
        if table.package in packages and find_spec(table.package):
            for case_sizes in sizes or layers.SIZES:
                yield from layers.rows(table, case_sizes, dtypes or survey.DTYPES, seed)
    for package in packages:
        if find_spec(package) is None:
            print(
                f"{package} is not installed and was left out: pip install 'refnet[{package}]'",
                file=sys.stderr,
            )


def judge_keras(args: argparse.Namespace) -> int:
    """``check keras``."""
    _need("keras", "keras", "jax")
    return _finish(show(_layer_rows("keras", args.seed), _table()), args)


def judge_function(args: argparse.Namespace) -> int:
    """``check function``."""
    from refnet.check.userfunction import arrays_by_name, example, loaded

    if args.example:
        print(example(args.example), end="")
        return 0
    if args.function is None:
        raise ValueError(
            "name a function, FILE.py:NAME, or start from one: refnet check function "
            "--example numpy > mine.py"
        )
    _need("certify")
    with suppress(ValueError, OSError):  # where standard error is no file
        faulthandler.enable()  # what crashes in C says in which line of Python
    function = loaded(args.function, arrays_by_name)
    required = _listed(args.required) if args.required else None
    return _judge_described(args, function, "own", required)


def _judge_described(
    args: argparse.Namespace,
    function: "Callable[[Params, Batch], Params]",
    framework: str,
    required: "Names" = None,
) -> int:
    from refnet.check.cases import NORMS, bounded
    from refnet.check.userfunction import SAID, Described, function_rows

    described = Described.of(args)
    each = (
        [(args.sizes or DEFAULT[:1], args.at)]
        if args.sizes or args.at
        else [
            (tuple((T, H + H % described.smallest, B) for T, H, B in DEFAULT), ""),
            (DEFAULT[:1], "large"),
            *[(DEFAULT[:1], "zeros")] * described.kinked,
            *((SMALL, norm) for norm in NORMS if bounded(described.net(SMALL[0][1]))),
        ]
    )
    rows = function_rows(
        function,
        described,
        [(size, at) for sizes, at in each for size in sizes],
        args.dtypes,
        args.seed,
        (framework, args.function),
        required=required,
        progress=_progress,
    )
    names = ["outputs", *(f"d{name}" for name in described.net(described.smallest).shapes)]
    columns = _table(worst=max(map(len, names))) | {"dtype": max(map(len, args.dtypes)), "T": 3}
    inputs = max(len(SAID[at]) - 2 for _, at in each)
    del columns["what"]  # which is the same in every row
    if framework == "own":
        del columns["framework"], columns["version"]  # which say nothing
    return _finish(show(rows, {"inputs": inputs} | columns if inputs > 0 else columns), args)


def list_tolerances(args: argparse.Namespace) -> int:
    """``check tolerances``."""
    _need("certify")
    from refnet.check.userfunction import Described, tolerance_rows

    described = Described.of(args)
    rows = tolerance_rows(described, args.sizes or DEFAULT[:1], args.dtypes, args.seed, _progress)
    save(
        args.json,
        show(rows, {"dtype": 8, "T": 4, "H": 3, "B": 2, "quantity": 16, "rtol": 9, "atol": 9}),
    )
    return 0


def judge_onnx(args: argparse.Namespace) -> int:
    """``check onnx``."""
    _need("onnx", "onnx", "onnxruntime")
    from refnet.check import layers, survey

    if args.model is None:
        both = chain(
            survey.onnx_rows(seed=args.seed, progress=_progress), layers.onnx_rows(seed=args.seed)
        )
        return _finish(show(both, _table()), args)
    from refnet.check import models

    rows = models.rows(args.model, args.steps, args.batch, args.seed, _progress, args.intended)
    columns = _table(worst=6) | {"dtype": 7}
    del columns["what"], columns["version"]  # which are the same in every row, and in the files
    return _finish(show(rows, columns), args)


def write_vectors(args: argparse.Namespace) -> int:
    """``vectors write``."""
    _need("certify")
    from refnet.check import vectors

    count = 0

    def count_one(name: str) -> None:
        nonlocal count
        count += 1
        if sys.stderr.isatty():
            print(f"\r{count:4} {name:40}", end="", file=sys.stderr, flush=True)

    vectors.write(args.folder, progress=count_one)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    print(f"{count} cases in three encodings, and manifest.json, written to {cell(args.folder)}")
    return 0


def judge_vectors(args: argparse.Namespace) -> int:
    """``vectors judge``."""
    from refnet.check import vectors
    from refnet.check.verdict import EXPLAINED, UNJUDGED

    every = vectors.judge(args.folder, args.theirs)
    verdicts = {
        name: verdict
        for name, verdict in every.items()
        if not args.skip_missing or vectors.results(args.theirs, name)
    }
    rows = [
        {"framework": "vectors", "what": name, "dtype": verdict.dtype, **said(verdict)}
        for name, verdict in verdicts.items()
    ]
    columns = {"what": 32, "dtype": 8, "worst": 8, "z": 9, "verdict": 0}
    show((row for row in rows if row["verdict"] != EXPLAINED), columns)
    save(args.json, rows)
    junit(args.junit, rows, {EXPLAINED})
    passed = sum(verdict.passed for verdict in verdicts.values())
    skipped = len(every) - len(verdicts)
    print(
        f"{passed} of {len(verdicts)} cases are explained by rounding"
        + f"; {skipped} without a result were skipped" * bool(skipped)
    )
    for file, advice in vectors.foreign(args.theirs, every).items():
        print(cell(f"{file} is no result of a case and was not judged; {advice}"), file=sys.stderr)
    unnamed = any(
        verdict.verdict == UNJUDGED and not verdict.dtype for verdict in verdicts.values()
    )
    return (
        2
        if unnamed
        else _status({verdict.verdict for verdict in verdicts.values() if not verdict.passed})
    )
