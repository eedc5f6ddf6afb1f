"""``refnet explain``, ``analyse``, ``compare`` and ``errata``."""

import argparse
from collections.abc import Callable
from typing import Any

from refnet.common.commands import Subparsers, add_command
from refnet.common.names import TRUST
from refnet.explain import TOPICS, topic
from refnet.runs.files import named, printable
from refnet.studies.cli import FIGURE

EXPLAIN = """examples:
  refnet explain powers
      norms of powers of random, orthogonal and chain matrices; Fibonacci numbers
  refnet explain memory --figure memory.png
      how long initialisers remember an input in noise, as a figure too
  refnet explain rounding --figure rounding.pdf
      how many digits of a float32 gradient are right, by length and cell
  refnet explain gradient-flow --weights glorot_uniform orthogonal chain --cell rnn lstm
      how much of the gradient is left after so many steps, by start and cell
  refnet explain spectra --matrix chain:gain=0.9 --size 30
      eigenvalues, numerical range and pseudospectra of one matrix: an initialiser with its
      options, or a square matrix in a .npy file
"""

ERRATA = """examples:
  refnet errata
      all of them in a list
  refnet errata 14
      one with its derivation and the results of its check
  refnet errata --check
      run every check
"""

ANALYSE = """example:
  refnet analyse runs/temporal-order-T60-oinit-seed0 --figure run.png
      a run of refnet train; one trained with --watch also shows its singular values over time
"""

COMPARE = """example:
  refnet compare runs/temporal-order-T60-oinit-seed0 runs/temporal-order-T60-open-seed0
      orthogonal pre-training beside the orthogonality penalty
"""

WITHOUT_MATRIX = ("gradient-flow", "orthogonalization", "geometry")
WITH_MATRIX = [topic for topic in TOPICS if topic not in WITHOUT_MATRIX]


def add_commands(commands: Subparsers) -> None:
    """Add the four commands."""
    explain = add_command(
        commands,
        "explain",
        _explain,
        "compute and draw the papers' mathematics",
        "Compute what one topic of the theory claims, print it with its source, and draw it.",
        EXPLAIN,
    )
    explain.add_argument("topic", choices=TOPICS, metavar="TOPIC", help=", ".join(TOPICS))
    explain.add_argument("--size", type=int, metavar="N", help="units (default: the topic's own)")
    explain.add_argument(
        "--matrix",
        metavar="SPEC",
        help=f"for {', '.join(WITH_MATRIX)}: an initializer, such as chain:gain=1.02, or (but for "
        "variance) a .npy file, instead of several",
    )
    for name, what in (("weights", "the recurrent matrix's initializers"), ("cell", "cells")):
        explain.add_argument(
            f"--{name}",
            nargs="+",
            metavar="SPEC",
            help=f"for gradient-flow: how the gradient fades before training, by {what}",
        )
    analyse = add_command(
        commands,
        "analyse",
        _analyse,
        "show a trained run: matrices, gradient flow, memory",
        "Load a run folder and show what training made of its matrices, how gradients "
        "flow through\nthe net, and what it remembers.",
        ANALYSE,
    )
    analyse.add_argument("folder", type=named, metavar="FOLDER", help="a run folder")
    compare = add_command(
        commands,
        "compare",
        _compare,
        "show several runs side by side",
        "Show where the settings of runs differ, their best results and, with --figure, their "
        "curves.",
        COMPARE,
    )
    compare.add_argument("folders", nargs="+", type=named, metavar="FOLDER", help="run folders")
    for command in (analyse, compare):
        command.add_argument("--trust", action="store_true", help=TRUST)
    errata = _add_errata(commands)
    for command in (explain, errata):
        command.add_argument("--seed", type=int, default=0, metavar="N", help="seed (default: 0)")
    for command in (explain, analyse, compare):
        for name, options in FIGURE.items():
            command.add_argument(f"--{name}", **options)


def _add_errata(commands: Subparsers) -> argparse.ArgumentParser:
    errata = add_command(
        commands,
        "errata",
        _errata,
        "list the papers' errata and check them",
        "Show what the papers print wrong and the right forms, and check both.",
        ERRATA,
    )
    errata.add_argument(
        "number",
        nargs="?",
        type=int,
        metavar="NUMBER",
        help="show this erratum in full, and run its check",
    )
    errata.add_argument(
        "--check",
        action="store_true",
        help="run every check; exit with status 1 if an erratum is not settled",
    )
    errata.add_argument("--markdown", action="store_true", help="print the page ERRATA.md")
    return errata


def _show(
    args: argparse.Namespace, explain: Callable[..., Any], *given: Any, **options: Any
) -> int:
    from refnet.runs.style import check_figure, save

    check_figure(args.figure, args.dpi)
    explanation = explain(*given, **options)
    print(explanation)
    if args.figure is not None:
        save(explanation.figure(), args.figure, args.dpi)
        print(f"figure: {printable(args.figure)}")
    return 0


def _analyse(args: argparse.Namespace) -> int:
    from refnet.explain.runs import analyse

    return _show(args, analyse, args.folder, args.trust)


def _compare(args: argparse.Namespace) -> int:
    from refnet.explain.runs import compare

    return _show(args, compare, args.folders, args.trust)


def _explain(args: argparse.Namespace) -> int:
    if args.matrix is not None and args.topic in WITHOUT_MATRIX:
        raise ValueError(f"--matrix is not for {args.topic}; it is for {', '.join(WITH_MATRIX)}")
    if args.size is not None and args.size < 2:
        raise ValueError(f"--size is {args.size}; need at least 2 units")
    chosen = {} if args.size is None else {"size": args.size}
    starts = {"weights": args.weights, "cells": args.cell}
    if starts := {name: value for name, value in starts.items() if value}:
        from refnet.explain.vanishing import explain_starts

        if args.topic != "gradient-flow":
            raise ValueError(f"--weights and --cell are for gradient-flow, not for {args.topic}")
        return _show(args, explain_starts, seed=args.seed, **starts, **chosen)
    return _show(args, topic(args.topic), seed=args.seed, matrix=args.matrix, **chosen)


def _errata(args: argparse.Namespace) -> int:
    from refnet.explain.errata import ERRATA as errata, page

    if args.number is not None:
        known = {e.number: e for e in errata}
        if args.number not in known:
            raise ValueError(
                f"there is no erratum {args.number}; they run from 1 to "
                f"{max(known)}; see them all with: refnet errata"
            )
        print(page.details(known[args.number], args.seed))
    elif args.check:
        unsettled = 0
        for e in errata:
            settled = e.settled(args.seed)
            unsettled += not settled
            print(
                f"{e.number:3}  {'settled' if settled else 'NOT SETTLED'}"
                f"{'' if e.check else ' (wording)'}  {e.source}, {e.where}"
            )
        print(f"{len(errata) - unsettled} of {len(errata)} settled")
        return int(unsettled > 0)
    else:
        print(page.page(args.seed) if args.markdown else page.listing(), end="")
    return 0
