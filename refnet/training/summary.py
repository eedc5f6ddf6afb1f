"""The files that a run writes at its end: summary.md, summary.json and curves.png."""

import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path

from refnet.common.names import short
from refnet.runs.files import printable, write_text
from refnet.runs.read import Record
from refnet.runs.rows import plain, table
from refnet.tasks.base import Task
from refnet.training.config import Config

LABELS = {
    "defect": "defect (0: orthogonal)",
    "gradient_norm": "gradient norm, before clipping",
    "repaired": "repaired (parts made orthogonal again)",
    "spectral_radius": "spectral radius",
}
"""What a row's names say in a summary."""


@dataclass
class Summary:
    """How a run ended. ``state``: "solved", "finished" (at the limit), "stalled" (by ``patience``),
    "interrupted" or "diverged", for the ``reason`` given."""

    state: str
    iteration: int
    best: Record
    final: Record
    seconds: float
    reason: str = ""


def write_reports(folder: Path, config: Config, task: Task, summary: Summary) -> None:
    """summary.md and summary.json.

    >>> from tempfile import TemporaryDirectory
    >>> from refnet.tasks import make_task
    >>> ended = Summary("finished", 10, best={}, final={}, seconds=1.5)
    >>> with TemporaryDirectory() as folder:
    ...     write_reports(Path(folder), Config("copy"), make_task("copy"), ended)
    ...     sorted(path.name for path in Path(folder).iterdir())
    ['summary.json', 'summary.md']
    """
    facts = {
        "task": short(config.task),
        "length": config.length or "-",
        "method": config.method,
        "state": summary.state,
        "iterations": summary.iteration,
        "evaluated on": f"{task.splits[0]} part",
        **{
            f"best {LABELS.get(name, name)}": value
            for name, value in summary.best.items()
            if name not in ("seconds", "clipped") and (name != "repaired" or value)
        },
        "wall time (s)": round(summary.seconds, 1),
    }
    text = f"# {printable(short(config.task))}, {config.method}: {summary.state}\n\n"
    text += f"Success criterion: {task.criterion}\n\n"
    if task.splits[0] == "train":
        text += "No part is held out: all figures are of the sequences that were trained on.\n\n"
    text += f"{printable(summary.reason)}\n\n" if summary.reason else ""
    text += table(["", "value"], [[name, value] for name, value in facts.items()])
    write_text(folder / "summary.md", text)
    record = {
        "config": asdict(config),
        "state": summary.state,
        "iterations": summary.iteration,
        "best": summary.best,
        "final": summary.final,
        "seconds": round(summary.seconds, 1),
        "reason": summary.reason,
    }
    text = json.dumps(plain(record), indent=1, allow_nan=False)
    write_text(folder / "summary.json", text + "\n")


def draw_curves(folder: Path, config: Config, task: Task, rows: list[Record]) -> None:
    """curves.png, where matplotlib is installed and works; where it does not work, a warning.

    >>> from tempfile import TemporaryDirectory
    >>> from refnet.tasks import make_task
    >>> rows = [{"iteration": 1, "loss": 2.0}, {"iteration": 2, "loss": 1.0}]
    >>> with TemporaryDirectory() as folder:
    ...     draw_curves(Path(folder), Config("copy"), make_task("copy"), rows)
    ...     [path.name for path in Path(folder).iterdir()]
    ['curves.png']
    """
    length = f", T = {config.length}" if config.length else ""
    try:
        from refnet.runs.plots import plot_curves

        plot_curves(
            folder / "curves.png",
            rows,
            task.metric,
            f"{short(config.task)}{length}, {config.method}, transition {short(config.transition)}",
        )
    except ImportError:
        return
    except OSError:
        raise
    except Exception as error:  # as of a LaTeX that Matplotlib's settings ask for in vain
        logging.getLogger("refnet").warning(
            "%s: Matplotlib could not draw it: %s", folder / "curves.png", error
        )
