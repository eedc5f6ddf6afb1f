"""The command line: ``refnet train``, ``runs``, ``check``, ``vectors`` and the others."""

import argparse
import os
import re
import signal
import sys
import traceback
from dataclasses import fields, replace
from difflib import get_close_matches
from functools import partial
from itertools import count
from pathlib import Path
from textwrap import wrap
from types import FrameType
from typing import Any, NoReturn

from refnet.book.cli import add_book
from refnet.check.cli import add_commands
from refnet.common.arguments import SEED, whole
from refnet.common.commands import Subparsers, add_command
from refnet.common.names import TRUST, label
from refnet.common.process import endings
from refnet.common.specs import format_spec, parse_spec
from refnet.common.terminal import Fitted, said
from refnet.common.version import __version__
from refnet.explain.cli import add_commands as add_explanations
from refnet.interop.cli import add_export
from refnet.prove.cli import add_commands as add_proofs
from refnet.runs.files import described, named, printable
from refnet.studies.cli import add_command as add_study

TRAIN_EXAMPLES = """examples:
  refnet train temporal-order --length 60 --method oinit
      a recurrent net, made orthogonal before training, solves temporal order at T = 60
  refnet train mnist --net feedforward --method open --weights gaussian:sd=0.001
      ten hidden tanh layers that learn only because a penalty makes them orthogonal
  refnet train sequential-mnist --iterations 5000
      MNIST, one pixel a step
  refnet train series.csv --id ID --time T --target LABEL --cell lstm
      your own sequences of any lengths; all other columns are features
  refnet train --config runs/NAME/config.toml --seed 1
      the same run with another seed
  refnet train --resume runs/NAME
      continue after Ctrl-C, a kill or the iteration limit, to the same bits

Write a value that has options as name:key=value,key=value, such as svd:margin=0.1 or
rmsprop:form=lasagne. A task, cell, transition, activation, initializer or optimizer of your own is
FILE.py:NAME or package.module:NAME (for examples: refnet new --help).

A protocol, which follows a paper's text or its released code, supplies all settings that you do
not give. Each task has a default protocol; --protocol selects another: manchev-spratling/text,
manchev-spratling/code, vorontsov/text, vorontsov/code, orhan-pitkow/code, refnet/best (for temporal
order, adding and random permutation) or, for any task, refnet/default.

exit status: 0 after success, 2 after an error, 3 if the loss is not finite, 129, 130 or 143 after
SIGHUP, Ctrl-C or SIGTERM
"""

COLUMNS = {
    "id": "of a CSV file: the column that says to which sequence a row belongs (default: id)",
    "time": "of a CSV file: the column that orders the rows of a sequence (default: time, or else "
    "the rows are in order)",
    "target": "of a CSV file: the column of the class or the real target (default: target)",
    "split": "of a CSV file: the column with train, validation or test (default: at random)",
}
"""Flags that are options of the task."""

ORTHOGONALIZE_EXAMPLES = """example:
  refnet orthogonalize
      make 10,000 random 100 x 100 matrices from each of two distributions orthogonal by
      gradient descent, and count the steps (Manchev & Spratling, II-A)
"""


class _Parser(argparse.ArgumentParser):
    """Says it if a help cannot be written, as argparse does not; of wrong arguments one line, with
    the word that may be meant."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.set_defaults(parser=self)  # of the innermost command

    def _get_formatter(self) -> argparse.HelpFormatter:
        """Names such as random-permutation are not broken at their hyphens."""
        formatter = super()._get_formatter()
        formatter._split_lines = partial(  # type: ignore[method-assign]
            wrap, break_on_hyphens=False, break_long_words=False
        )
        return formatter

    def _print_message(self, message: str, file: Any = None) -> None:
        stream = file or sys.stderr
        print(said(message, stream), end="", file=stream, flush=True)

    def error(self, message: str) -> NoReturn:
        """Leave with status 2."""
        chosen = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        flag = re.search(r"unrecognized arguments: (--[\w-]+)", message)
        near = (
            get_close_matches(chosen[1], re.findall(r"[\w./-]+", chosen[2]), 1)
            if chosen
            else get_close_matches(flag[1], self._option_string_actions, 1)
            if flag
            else []
        )
        hint = f" (did you mean {near[0]}?)" if near else ""
        self.exit(2, f"{self.prog}: error: {printable(message)}{hint}; see {self.prog} --help\n")


def main(arguments: list[str]) -> int:
    """Run one command. The exit status: 0 if it did what was asked, 1 if a judged result is not
    explained by rounding, 2 on an error, said in one line, or wrong arguments, 3 if training
    diverged (a loss that is not finite), 129, 130 or 143 after SIGHUP, Ctrl-C or SIGTERM, 141 if
    nobody reads its output any more.

    Checked by: tests/robustness/test_cli.py.
    """
    parser = _Parser(
        prog="refnet",
        description="Exact gradients of orthogonal recurrent and deep feedforward "
        "nets: train the nets, certify the gradients, and judge other frameworks by them.",
        epilog="Every command has its own help, such as: refnet train --help",
    )
    parser.add_argument("--version", action="version", version=f"refnet {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_train(commands)
    add_proofs(commands)
    _add_orthogonalize(commands)
    add_export(commands)
    add_commands(commands)
    add_study(commands)
    add_explanations(commands)
    add_book(commands)
    _add_runs(commands)
    _add_info(commands)
    output = sys.stdout
    if output.isatty():
        sys.stdout = Fitted(output)
    debug = "--debug" in arguments  # before the command or after it
    called = "refnet"
    try:
        args, more = parser.parse_known_args([each for each in arguments if each != "--debug"])
        if more:
            args.parser.error(f"unrecognized arguments: {' '.join(more)}")
        for name, value in vars(args).items():
            if value == []:  # argparse's reading of --option=--
                args.parser.error(f"--{name.replace('_', '-')} has no value")
        called = f"refnet {args.command}"
        if isinstance(getattr(args, "seed", None), int):
            whole("--seed", args.seed, 0, SEED)
        status = int(args.run(args))
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the program that reads the output, such as head, has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        print(f"{called}: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        if debug:
            traceback.print_exc()
        print(said(f"{called}: {_one_line(error)}", sys.stderr), file=sys.stderr)
        return 2
    finally:
        sys.stdout = output


def _one_line(error: Exception) -> str:
    said = described(error)
    if (
        isinstance(
            error, (ArithmeticError, ImportError, MemoryError, OSError, TypeError, ValueError)
        )
        and said
    ):
        return said
    return f"{type(error).__name__}: {said} (--debug shows where it comes from)"


def _add_train(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "train",
        _train,
        "train a net on a task, and report",
        "Train a net on a task, and write a run folder: config.toml, "
        "environment.json, rows.jsonl,\ncheckpoint.npz, with OINIT oinit.json, and at the end "
        "curves.png, summary.md, summary.json.",
        TRAIN_EXAMPLES,
    )
    parser.add_argument(
        "task",
        nargs="?",
        metavar="TASK",
        help="temporal-order, "
        "temporal-order-3bit, adding, random-permutation, copy, mnist, "
        "sequential-mnist, permuted-mnist or ptb; one of your own: FILE.py:NAME; or your own "
        "data: FILE.npz (x, y and perhaps lengths), FILE.csv (a row a step) or FILE.txt "
        "(characters), with options after a colon: series.csv:missing=mean",
    )
    for flag, text in COLUMNS.items():
        parser.add_argument(f"--{flag}", metavar="COLUMN", help=text)
    parser.add_argument(
        "--config",
        type=named,
        metavar="FILE",
        help="take settings from a TOML file; flags override them",
    )
    parser.add_argument(
        "--resume",
        type=named,
        metavar="FOLDER",
        help="continue the run in this folder; a larger --iterations is allowed",
    )
    parser.add_argument(
        "--out", type=named, metavar="FOLDER", help="the run folder (default: a new one in runs/)"
    )
    parser.add_argument(
        "--threads",
        type=int,
        metavar="N",
        help="threads of the compiled core (default: all cores); the bits do not depend on it",
    )
    parser.add_argument("--quiet", action="store_true", help="print the summary only")
    parser.add_argument("--trust", action="store_true", help=TRUST)
    _add_settings(parser)


def _add_settings(parser: argparse.ArgumentParser) -> None:
    """A flag for every setting of a run."""
    from refnet.training.config import OWN, Config

    for entry in fields(Config):
        if entry.name == "task":
            continue
        kind: Any = type(entry.default)
        default = repr(entry.default) if entry.name in OWN else "the protocol's"
        text = entry.metadata["help"].replace("%", "%%")
        if entry.name != "protocol":
            text += f" (default: {default})"
        options: dict[str, Any] = (
            {"action": argparse.BooleanOptionalAction}
            if kind is bool
            else {"type": kind, "metavar": {int: "N", float: "X", str: "NAME"}[kind]}
        )
        flag = "--" + entry.name.replace("_", "-")
        parser.add_argument(flag, default=None, help=text, **options)


def _settings(args: argparse.Namespace) -> Any:
    from refnet.training.code import admit
    from refnet.training.config import Config
    from refnet.training.config_files import from_toml, of_run
    from refnet.training.protocols import configure

    given = {
        entry.name: getattr(args, entry.name)
        for entry in fields(Config)
        if getattr(args, entry.name) is not None
    }
    columns = {flag: getattr(args, flag) for flag in COLUMNS if getattr(args, flag) is not None}
    if columns:
        if "task" not in given:
            raise ValueError(f"--{next(iter(columns))} is for a CSV file; name one")
        name, options = parse_spec(given["task"])
        given["task"] = format_spec(name, options | columns)
    if args.resume is not None:
        extra = [
            *sorted(set(given) - {"iterations", "patience"}),
            *["--config"] * bool(args.config),
            *["--out"] * bool(args.out),
        ]
        if extra:
            raise ValueError(
                "--resume continues a run in its folder with its own settings; only "
                f"--iterations and --patience may be given with it, not {', '.join(extra)}"
            )
        return replace(of_run(args.resume), **given)
    settings = from_toml(args.config) if args.config else {}
    others = {name: value for name, value in settings.items() if name not in given}
    admit(others, args.config or Path(), args.trust)
    task = given.get("task", settings.get("task"))
    if not task:
        raise ValueError(
            "name a task, such as: refnet train temporal-order --length 60 --method "
            "oinit (or pass --config FILE or --resume FOLDER)"
        )
    return configure(given, settings)


def _new_folder(config: Any) -> Path:
    name = label(config.task) + (f"-T{config.length}" if config.length else "")
    base = f"{name}-{config.method.replace('+', '-')}-seed{config.seed}"
    folders = (Path("runs") / (base + (f"-{i}" if i > 1 else "")) for i in count(1))
    return next(folder for folder in folders if not folder.exists())


def _train(args: argparse.Namespace) -> int:
    config = _settings(args)
    folder = args.resume or args.out or _new_folder(config)
    if args.threads is not None:
        from refnet.maths.threads import set_threads, usual_threads

        most = usual_threads()
        if not 1 <= args.threads <= most:
            raise ValueError(
                f"--threads is {args.threads}; need 1 to {most}, the number of cores "
                "or what the variable NUMBA_NUM_THREADS says"
            )
        set_threads(args.threads)
    from refnet.runs import progress
    from refnet.runs.files import argument
    from refnet.training import loop as train

    signals: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        """The first signal ends the run after its present step; a second one, or one before
        there is a checkpoint, ends it at once."""
        handler = previous[number]
        if not signals and (folder / "checkpoint.npz").exists():
            signals.append(number)
        elif callable(handler):
            handler(number, frame)
        else:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    previous: dict[int, Any] = {number: signal.signal(number, note) for number in endings()}
    try:
        with progress.bar(config.iterations, quiet=args.quiet) as observe:
            start: Any = partial(train.resume, trust=args.trust) if args.resume else train.train
            while True:
                try:
                    summary = start(config, folder, observe, lambda: bool(signals))
                    break
                except FileExistsError:
                    if args.resume or args.out:
                        raise
                    folder = _new_folder(config)  # another process has just taken the name
    except train.NotFiniteError as error:
        print(f"refnet train: {described(error)}", file=sys.stderr)
        return 3
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    print((folder / "summary.md").read_text(encoding="utf-8"))
    print(f"run folder: {printable(folder)}")
    if summary.state == "interrupted":
        print(
            f"interrupted at iteration {summary.iteration}; go on with:\n"
            f"refnet train --resume {argument(folder)}"
        )
    return 128 + signals[0] if signals else 0


def _add_orthogonalize(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "orthogonalize",
        _orthogonalize,
        "repeat the orthogonalization experiment with 10,000 matrices",
        "Run gradient descent on the cost ||W W' - I||_F^2 from random matrices, and "
        "count the\nsteps until it is below 1e-6.",
        ORTHOGONALIZE_EXAMPLES,
    )
    parser.add_argument(
        "--runs",
        type=int,
        default=10_000,
        metavar="N",
        help="matrices from each distribution (default: 10000)",
    )
    parser.add_argument(
        "--size",
        type=int,
        default=100,
        metavar="N",
        help="rows and columns of a matrix (default: 100)",
    )
    parser.add_argument(
        "--rate", type=float, default=0.1, metavar="X", help="step size (default: 0.1)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed (default: 0)")


def _orthogonalize(args: argparse.Namespace) -> int:
    from refnet.analysis.orthogonalization import orthogonalization_experiment
    from refnet.runs import progress
    from refnet.runs.rows import table

    rows = []
    for distribution, text in (("gaussian", 22.77), ("uniform", 24.00)):
        with progress.counter(distribution, args.runs) as advance:
            try:
                result = orthogonalization_experiment(
                    distribution,
                    runs=args.runs,
                    size=args.size,
                    rate=args.rate,
                    seed=args.seed,
                    progress=advance,
                )
            except ValueError as error:  # the options have the names of its arguments
                said = str(error).removeprefix("orthogonalization_experiment: ")
                raise ValueError(f"--{said}") from None
        values = (f"{result.mean:.2f}", f"{result.sd:.2f}", *result.extremes)
        rows.append(
            [
                distribution,
                args.runs,
                f"{result.success_rate:.2%}",
                *(values if result.success_rate else [None] * len(values)),
                f"{text:.2f}" if (args.size, args.rate) == (100, 0.1) else None,
            ]
        )
    print(
        table(
            [
                "start",
                "runs",
                "converged",
                "mean steps",
                "sd",
                "fewest",
                "most",
                "the paper's mean",
            ],
            rows,
        )
    )
    return 0


def _add_runs(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "runs",
        _runs,
        "list the training runs below a folder: state, progress and how to continue",
        "List the run folders in and below a folder, each with its state (running, "
        "solved, finished, interrupted, diverged, stopped as by a kill, or damaged), its progress "
        "and the command that continues it.",
        "Example: refnet runs",
    )
    parser.add_argument(
        "folder",
        nargs="?",
        type=named,
        default=Path("runs"),
        metavar="FOLDER",
        help="where to look (default: runs)",
    )


def _runs(args: argparse.Namespace) -> int:
    from refnet.runs.rows import table
    from refnet.training.listing import runs

    if not args.folder.is_dir():
        raise FileNotFoundError(f"{args.folder} is not a folder; name the one that holds the runs")
    every = list(runs(args.folder))
    rows = [
        [
            facts["run"],
            facts["state"],
            "-" if facts["iteration"] is None else f"{facts['iteration']}/{facts['iterations']}",
        ]
        for facts in every
    ]
    if not rows:
        print(f"no runs in {printable(args.folder)}")
        return 0
    print(table(["run", "state", "progress"], rows))
    if following := [facts["next"] for facts in every if facts["next"]]:
        print("\n".join(["To go on:", "", *following]))
    return 0


def _add_info(commands: Subparsers) -> None:
    add_command(
        commands,
        "info",
        _info,
        "show the machine, threads, BLAS and cache of compiled kernels",
        "Show the machine, threads, BLAS and cache that the compiled core uses.",
        "Example: refnet info",
    )


def _info(args: argparse.Namespace) -> int:
    from refnet.compiled import info
    from refnet.runs.rows import table

    print(table(["", "value"], [list(fact) for fact in info().items()]))
    return 0
