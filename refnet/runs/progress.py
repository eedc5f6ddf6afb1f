"""Progress on the terminal: a bar where there is a terminal, a line an evaluation where not.

Needs rich (extra ``cli``).
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["bar", "counter"]


def _rich() -> Any:
    try:
        import rich.console
        import rich.progress
    except ImportError:
        raise ImportError("the progress bar needs rich; install it with: pip install "
                          "'refnet[cli]' (or pass --quiet)") from None
    return rich


def _facts(row: dict[str, Any]) -> str:
    names = {"loss": "loss", "accuracy": "accuracy", "bpc": "bpc", "mse": "mse",
             "spectral_radius": "radius", "defect": "defect", "gradient_norm": "|gradient|"}
    return "  ".join(f"{label} {row[name]:.4g}" for name, label in names.items()
                     if row.get(name) is not None)


def _pretraining(facts: dict[str, Any]) -> str:
    return "\n".join(f"orthogonalised {m['matrix']} in {m['steps']} steps: defect "
                     f"{m['costs'][0]:.4g} -> {m['costs'][-1]:.2g}" for m in facts["matrices"])


@contextmanager
def bar(iterations: int, quiet: bool) -> Iterator[Callable[[str, dict[str, Any]], None]]:
    """An observer for ``train``: iteration, time left, and the last evaluation's figures."""
    if quiet:
        yield lambda kind, facts: None
        return
    rich = _rich()
    console = rich.console.Console(stderr=True)
    if not console.is_terminal:
        def line(kind: str, facts: dict[str, Any]) -> None:
            if kind == "row":
                print(f"{facts['iteration']:>8}  {_facts(facts)}", file=sys.stderr, flush=True)
            elif kind == "oinit":
                print(_pretraining(facts), file=sys.stderr, flush=True)
        yield line
        return
    columns = rich.progress
    with columns.Progress(
            columns.BarColumn(bar_width=20), columns.MofNCompleteColumn(),
            columns.TimeRemainingColumn(), columns.TextColumn("{task.description}"),
            console=console, refresh_per_second=4) as progress:
        task = progress.add_task("", total=iterations)

        def observe(kind: str, facts: dict[str, Any]) -> None:
            if kind == "oinit":
                progress.console.print(_pretraining(facts))
            else:
                text = _facts(facts) if kind == "row" else None
                progress.update(task, completed=facts["iteration"], description=text)
        yield observe


@contextmanager
def counter(label: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """A function to call with how many are done, and how many there are."""
    rich = _rich()
    console = rich.console.Console(stderr=True)
    with rich.progress.Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(label, total=total)
        yield lambda done, of: progress.update(task, completed=done)
