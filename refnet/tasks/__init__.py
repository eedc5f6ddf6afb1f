"""Data as batches: generated tasks, MNIST and the Penn Treebank by name; your own arrays as
``Arrays(x, y)``, and your own files (.npz, .csv, .tsv, .txt) by their path.

``make_task("temporal-order", length=60)`` gives a Task; ``task.batch(index, size, seed)`` its
training batches, ``task.evaluation(index, seed)`` what it is judged on. As an iterator of
Batch: ``for batch in task.batches(size=20, seed=0)``.
"""

from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from refnet.common.arguments import choice, short
from refnet.common.names import Table, lacking
from refnet.tasks.arrays import Arrays
from refnet.tasks.base import Task
from refnet.tasks.mnist import Images, PermutedPixels, Pixels
from refnet.tasks.ptb import Characters
from refnet.tasks.synthetic import Adding, Copy, RandomPermutation, TemporalOrder, TemporalOrder3Bit
from refnet.tasks.tables import READERS, DataFile, arrays_of

__all__ = ["Arrays", "TASKS", "Task", "make_task", "options"]


class _Tasks(Table[type[Any]]):
    """The tasks by name; ``table[path]`` is the reader of a data file, by the end of its name."""

    def __missing__(self, name: str) -> type[Any]:
        return READERS.get(Path(name).suffix.lower()) or super().__missing__(name)

    def __contains__(self, name: object) -> bool:
        return Path(str(name)).suffix.lower() in READERS or super().__contains__(name)


_ENTRIES: tuple[type[Any], ...] = (
    TemporalOrder,
    TemporalOrder3Bit,
    Adding,
    RandomPermutation,
    Copy,
    Images,
    Pixels,
    PermutedPixels,
    Characters,
)
NEEDS = (
    *("name", "inputs", "outputs", "loss", "readout", "splits", "metric", "lower_is_better"),
    *("criterion", "batch", "evaluation", "score", "metrics", "dtype", "__dataclass_fields__"),
)
TASKS = _Tasks(
    "task", {task.name: task for task in _ENTRIES}, partial(lacking, needs=NEEDS, base=Task)
)


def __dir__() -> list[str]:
    return __all__


def options(name: str) -> dict[str, Any]:
    """The options of the named task, or of a file's reader, with their defaults. Raises ValueError
    if there is none.

    >>> "length" in options("temporal-order")
    True

    Checked by: tests/tasks/test_tasks.py.
    """
    choice("task", name, TASKS)
    known = {option.name: option.default for option in fields(TASKS[name])}
    known.pop("path", None)
    return known


def make_task(name: str, **chosen: Any) -> Task:
    """The named task, or that of a data file, with the chosen options; the rest as
    ``options(name)`` has them.

    Raises ValueError for a name, an option or a value that is not known, of the wrong type or
    out of range.

    >>> task = make_task("temporal-order", length=60)
    >>> batch = task.batch(index=0, size=20, seed=0)
    >>> batch.x.shape, batch.y.shape
    ((60, 20, 6), (20,))

    Checked by: tests/tasks/test_tasks.py::test_a_task_that_cannot_be_is_refused.
    """
    defaults = options(name)
    for option, value in chosen.items():
        if option not in defaults:
            raise ValueError(
                f"task {name} has no option {option!r}; its options are {', '.join(defaults)}"
            )
        if type(value) is not type(defaults[option]):
            raise ValueError(
                f"task {name}: {option} is {short(value)}; need "
                f"{type(defaults[option]).__name__}, such as {defaults[option]!r}"
            )
    if issubclass(TASKS[name], DataFile):
        return arrays_of(TASKS[name](path=name, **chosen))
    task: Task = TASKS[name](**chosen)
    return task
