"""Progress on the terminal: a bar, if there is a terminal and rich (extra ``cli``) is installed;
else a line for each evaluation or each tenth of the way."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from refnet.runs.read import Record


def _rich() -> Any:
    """The rich package and a console for it, or None where lines have to do."""
    try:
        import rich.console
        import rich.live
        import rich.progress
        import rich.text
    except ImportError:
        return None
    console = rich.console.Console(stderr=True)
    return (rich, console) if console.is_terminal else None


def _line(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _facts(row: Record) -> str:
    names = {
        "loss": "loss",
        "accuracy": "accuracy",
        "bpc": "bpc",
        "mse": "mse",
        "spectral_radius": "radius",
        "defect": "defect",
        "gradient_norm": "|gradient|",
    }
    return "  ".join(
        f"{label} {row[name]:.4g}" for name, label in names.items() if row.get(name) is not None
    )


def _pretraining(facts: Record) -> str:
    return "\n".join(
        f"orthogonalised {m['matrix']} in {m['steps']} steps: defect "
        f"{m['costs'][0]:.4g} -> {m['costs'][-1]:.2g}"
        for m in facts["matrices"]
    )


@contextmanager
def bar(iterations: int, quiet: bool) -> Iterator[Callable[[str, Record], None]]:
    """An observer for ``train``: iteration, time left, and the last evaluation's figures."""
    drawn = None if quiet else _rich()
    if drawn is None:

        def line(kind: str, facts: Record) -> None:
            if quiet:
                return
            if kind == "row":
                _line(f"{facts['iteration']:>8}  {_facts(facts)}")
            elif kind == "oinit":
                _line(_pretraining(facts))

        yield line
        return
    rich, console = drawn
    columns, figures = rich.progress, rich.text.Text()
    progress = columns.Progress(
        columns.BarColumn(bar_width=20),
        columns.MofNCompleteColumn(),
        # a solved run ends before
        columns.TextColumn("iterations, at most" if console.width > 60 else "at most"),
        columns.TimeRemainingColumn(),
        console=console,
    )
    with rich.live.Live(rich.console.Group(progress, figures), console=console) as live:
        task = progress.add_task("", total=iterations)

        def observe(kind: str, facts: Record) -> None:
            if kind == "oinit":
                live.console.print(_pretraining(facts))
                return
            progress.update(task, completed=facts["iteration"])
            if kind == "row":
                figures.plain = _facts(facts)

        yield observe


@contextmanager
def counter(label: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """A function to call with how many are done, and how many there are."""
    drawn = _rich()
    if drawn is None:
        tenth = 0

        def line(done: int, of: int) -> None:
            nonlocal tenth
            if of and 10 * done // of > tenth:
                tenth = 10 * done // of
                _line(f"{label}: {done} of {of}")

        yield line
        return
    rich, console = drawn
    with rich.progress.Progress(console=console) as progress:
        task = progress.add_task(label, total=total)
        yield lambda done, of: progress.update(task, completed=done)
