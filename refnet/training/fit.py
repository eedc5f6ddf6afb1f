"""The training loop, in memory: ``refnet.training.loop`` keeps a run in its folder besides."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from refnet.batch import Params
from refnet.common.names import short
from refnet.maths.losses import softmax
from refnet.nets.gradients import Net
from refnet.runs.read import Record
from refnet.tasks.base import Task
from refnet.tasks.sequences import Data, Encoding
from refnet.training.config import Config
from refnet.training.experiment import Experiment
from refnet.training.steps import Run, batch_of, best_row, evaluate, step
from refnet.training.summary import Summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Observer = Callable[[str, Record], None]
"""Called with ("oinit" | "step" | "row", facts) as a run goes on."""


def unobserved(kind: str, facts: Record) -> None:
    """The observer that does nothing.

    >>> unobserved("step", {})
    """


def never() -> bool:
    """The answer of a ``stop`` that lets a run go on.

    >>> never()
    False
    """
    return False


def better(task: Task, row: Record, best: Record) -> bool:
    """Whether a row is better than the best so far by the task's metric; any is at first.

    >>> from refnet.tasks import make_task
    >>> better(make_task("temporal-order"), {"accuracy": 0.9}, {"accuracy": 0.8})
    True
    """
    sign = -1 if task.lower_is_better else 1
    return not best or sign * row[task.metric] > sign * best[task.metric]


def plateau(experiment: Experiment, rows: list[Record]) -> float:
    """The factor of the schedule after the evaluations in ``rows``.

    >>> from refnet.training.config import Config
    >>> from refnet.training.experiment import build
    >>> experiment = build(Config("temporal-order", schedule="plateau:patience=1,by=0.5"))
    >>> plateau(experiment, [{"accuracy": 0.5}, {"accuracy": 0.25}])
    0.5
    """
    task = experiment.task
    sign = -1 if task.lower_is_better else 1
    return experiment.schedule.after([sign * row[task.metric] for row in rows])


@dataclass(kw_only=True)
class Fit:
    """A run that goes on in memory: its state ``run`` between two steps and the ``rows`` of its
    evaluations. ``remarks``: what every later row says besides.

    ``advance`` trains until ``experiment.config.iterations``; a Fit of an experiment with more
    of them goes on from the ``run`` and ``rows`` of another to the same bits as without the stop.

    >>> from refnet.training.config import Config
    >>> from refnet.training.experiment import build
    >>> config = Config("temporal-order:samples=50", length=20, hidden=8, iterations=20,
    ...                 evaluate_every=10, backend="reference")
    >>> fit = Fit.start(build(config))
    >>> fit.advance()
    'finished'
    >>> [row["iteration"] for row in fit.rows], fit.run.best_params["Whh"].shape
    ([10, 20], (8, 8))

    Checked by: tests/training/test_fit.py.
    """

    experiment: Experiment
    run: Run
    rows: list[Record] = field(default_factory=list)
    remarks: Record = field(default_factory=dict)
    started: float = field(init=False)

    def __post_init__(self) -> None:
        self.started = time.perf_counter() - self.run.seconds

    @classmethod
    def start(cls, experiment: Experiment) -> "Fit":
        """A run before its first step."""
        return cls(experiment=experiment, run=Run.start(experiment)[0])

    @np.errstate(over="ignore", invalid="ignore")  # every step checks that its results are finite
    def advance(self, observe: Observer = unobserved, stop: Callable[[], bool] = never) -> str:
        """Train to the last iteration, a solution, or a stop, which is asked for before every
        step; how it ended: "finished", "solved", "stalled" (for want of a better row) or
        "interrupted".

        Raises NotFiniteError; ``run`` is then as it was before the step that failed.
        """
        config = self.experiment.config
        if ended := self.ended():
            return ended
        while self.run.iteration < config.iterations:
            if stop():
                return "interrupted"
            batch = batch_of(self.experiment, self.run)
            self.run, result, norm = step(self.experiment, self.run, batch)
            iteration = self.run.iteration
            observe("step", {"iteration": iteration, "loss": float(result.loss)})
            if iteration % config.evaluate_every and iteration < config.iterations:
                continue
            row = self.evaluate(norm)
            observe("row", row)
            if ended := self.ended():
                return ended
        return "finished"

    def ended(self) -> str:
        """Why the run ends before its last iteration: "solved", "stalled", or "" if it goes on."""
        config, run = self.experiment.config, self.run
        if self.rows and self.experiment.task.solved(self.rows[-1]):
            return "solved"
        waited = run.last_evaluation - run.best.get("iteration", run.last_evaluation)
        stalled = config.patience and waited >= config.patience * config.evaluate_every
        return "stalled" if stalled else ""

    def evaluate(self, norm: float) -> Record:
        """The row of an evaluation, which is written; ``norm``: that of the last gradient."""
        run = self.run
        run.seconds = self.seconds()
        row = {**evaluate(self.experiment, run, norm), **self.remarks}
        if better(self.experiment.task, row, run.best):
            run.best = {name: value for name, value in row.items() if name != "watch"}
            run.best_params = run.params
        run.loss_sum, run.clipped, run.repaired = 0.0, 0, 0
        run.last_evaluation = run.iteration
        self.write(row)
        run.plateau = plateau(self.experiment, self.rows)
        return row

    def write(self, row: Record) -> None:
        """Take a row among ``rows``."""
        self.rows.append(row)

    def summary(self, state: str, reason: str = "") -> Summary:
        """How the run ended; with a validation split, with the test metrics at its best row."""
        best, last = best_row(self.experiment, self.run), self.rows[-1] if self.rows else {}
        return Summary(state, self.run.iteration, best, last, self.seconds(), reason)

    def loaded(self) -> "Loaded":
        """The run as an object that holds nothing else."""
        e, run = self.experiment, self.run
        best = best_row(e, run)
        parts = (run.iteration, run.params, run.best_params, best, self.rows)
        return Loaded(None, e.config, e, *parts)

    def seconds(self) -> float:
        """The time that the run has taken, in all its sessions."""
        return time.perf_counter() - self.started


@dataclass(frozen=True, repr=False)
class Loaded:
    """A run: as its folder has it, or of ``train`` without a folder, which is then None.

    ``params``: those of the last checkpoint, or at the end; ``best_params``: those of the best
    evaluation so far, and ``best`` its row (empty before the first). ``rows``: all evaluations.
    ``experiment`` makes the task's batches and evaluates.
    """

    folder: Path | None
    config: Config
    experiment: Experiment
    iteration: int
    params: Params
    best_params: Params
    best: Record
    rows: list[Record]

    def __repr__(self) -> str:
        best = {name: value for name, value in self.best.items() if type(value) in (int, float)}
        return (
            f"<run of {short(self.config.task)}, {self.iteration} iterations, {len(self.rows)} "
            f"rows: net, params, best_params, rows; best {best.get(self.task.metric)} "
            f"{self.task.splits[0]} {self.task.metric} at {best.get('iteration')}>"
        )

    def predict(self, x: Data, lengths: Data = None, probabilities: bool = False) -> Any:
        """What the best parameters answer for new sequences, given as those of the data were: batch
        first, (N, T, D) with ``lengths`` (N,) or without, or a list of arrays (T, D); or symbols.

        Labels (N,) or real targets (N, C) in the data's units; of targets at every step a list of N
        arrays, (T,) or (T, C). ``probabilities``: those of the classes, whose labels are
        ``task.encoding.classes``, instead, (N, C). Raises ValueError for sequences that are not as
        in training, and for a run that is not of your own data.

        >>> from refnet import train
        >>> from refnet.tasks import Arrays
        >>> x = [np.full((length, 1), length % 2.0) for length in (3, 4, 5, 6) * 4]
        >>> task = Arrays(x, ["odd", "even"] * 8)
        >>> train(task, hidden=8, iterations=60, backend="reference").predict(x[:2]).tolist()
        ['odd', 'even']

        Checked by: tests/training/test_predict_from_folder.py.
        """
        encoding = getattr(self.task, "encoding", None)
        if not isinstance(encoding, Encoding):
            raise ValueError(
                f"predict: the run is of {self.task.name}, not of your own data; need "
                "run.net.predict(run.best_params, x), with x time-major, (T, B, D)"
            )
        net, params = self.experiment.assembled(self.best_params)
        if not probabilities:
            return encoding.predict(net, params, x, lengths)
        if not encoding.classes:
            raise ValueError("predict: probabilities are wanted of real targets; need classes")
        outputs = encoding.apply(net, params, x, lengths)
        return [*map(softmax, outputs)] if isinstance(outputs, list) else softmax(outputs)

    def plot(self) -> "Figure":
        """The curves of its rows, as a Matplotlib figure (extra ``cli``)."""
        from refnet.runs.plots import curves
        from refnet.runs.style import label_of

        name, config = short(self.config.task), self.config
        title = f"{name}, {config.method}, transition {config.transition}"
        figure: Figure = curves(self.rows, self.task.metric, label_of(title))
        return figure

    def _repr_png_(self) -> bytes | None:
        """What a notebook shows, where Matplotlib is installed."""
        if not self.rows or find_spec("matplotlib") is None:
            return None
        file = BytesIO()
        self.plot().savefig(file, format="png", dpi=100)
        return file.getvalue()

    @property
    def net(self) -> Net:
        """The net, on the backend that the run has."""
        return self.experiment.net

    @property
    def task(self) -> Task:
        """The task."""
        return self.experiment.task
