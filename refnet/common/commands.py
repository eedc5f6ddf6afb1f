"""How a command joins the command line. Checked by: tests/robustness/test_cli.py."""

from argparse import (
    ArgumentParser,
    HelpFormatter,
    Namespace,
    RawDescriptionHelpFormatter,
    _SubParsersAction,
)
from collections.abc import Callable
from typing import Any, TypeAlias

Subparsers: TypeAlias = "_SubParsersAction[Any]"
"""What a command is added to."""


def add_command(
    commands: Subparsers,
    name: str,
    run: Callable[[Namespace], int],
    summary: str,
    description: str,
    examples: str,
) -> ArgumentParser:
    """The parser of a command, which ``run`` does: a function of the parsed arguments that returns
    the exit status. Lines of examples stay as they are written."""
    raw = "\n" in examples
    parser: ArgumentParser = commands.add_parser(
        name,
        help=summary,
        epilog=examples,
        description=description,
        formatter_class=RawDescriptionHelpFormatter if raw else HelpFormatter,
    )
    parser.set_defaults(run=run)
    return parser
