"""``refnet new`` and ``refnet prove``."""

import argparse
from importlib.resources import files

from refnet.common.commands import Subparsers, add_command

KINDS = ("task", "cell", "transition", "activation", "initializer", "optimizer")


def add_commands(commands: Subparsers) -> None:
    """Enter both commands in the command line's parser."""
    new = add_command(
        commands,
        "new",
        _new,
        "print an example of a task, cell, transition, activation, ... of your own",
        "Print a file with an example that runs, for you to change.",
        "Example: refnet new task > mine.py; refnet train mine.py:Majority",
    )
    new.add_argument("kind", choices=KINDS, metavar="KIND", help=", ".join(KINDS))
    prove = add_command(
        commands,
        "prove",
        _prove,
        "run the proofs of the package's tests on a task, cell, ... of your own",
        "Check what FILE.py:NAME or package.module:NAME names, or an entry of refnet's "
        "own: exact transposition on rational numbers, certified gradients and, if there is a "
        "kernel, both backends; shapes and determinism of a task's batches.",
        "The exit status is 0 if all checks hold, 1 if one fails, 2 after an error. "
        "Example: refnet prove mine.py:MGU",
    )
    prove.add_argument("name", metavar="NAME", help="such as mine.py:MGU, lstm or svd:margin=0.1")


def example(kind: str) -> str:
    """The source of the example of a kind.

    >>> "class Majority" in example("task")
    True
    """
    return files("refnet.prove").joinpath("examples", f"{kind}.py").read_text("utf-8")


def _new(args: argparse.Namespace) -> int:
    print(example(args.kind), end="")
    return 0


def _prove(args: argparse.Namespace) -> int:
    from refnet.prove.checks import prove
    from refnet.runs.files import printable

    outcomes = prove(args.name)
    for check, outcome, detail in outcomes:
        print(f"{outcome:8}{check}: {printable(detail)}", flush=True)
    return int(any(outcome == "FAILS" for _, outcome, _ in outcomes))
