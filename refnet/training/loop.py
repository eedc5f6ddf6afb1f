"""A run in its folder: training from the start, and resuming to the same bits."""

import json
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from refnet.arguments import FLAG, FUNCTION, PATH, instance, takes
from refnet.names import short
from refnet.runs import checkpoint
from refnet.runs.checkpoint import Checkpoint, CheckpointError
from refnet.runs.files import write_text
from refnet.runs.folder import Held, create, hold, vacant
from refnet.runs.rows import Rows, environment, machine
from refnet.training.code import admit, record as record_code
from refnet.training.config import Config, to_toml
from refnet.training.experiment import Experiment, build
from refnet.training.steps import (
    STEPS,
    NotFiniteError,
    Run,
    batch_of,
    best_row,
    evaluate,
    rounding,
    step,
)
from refnet.training.summary import Summary, draw_curves, write_reports

__all__ = ["NotFiniteError", "Observer", "counted_rows", "identity", "resume", "train"]

CONFIG = instance(Config, "a refnet.Config")
Observer = Callable[[str, dict[str, Any]], None]
"""Called with ("oinit" | "step" | "row", facts) as a run goes on."""


@takes(config=CONFIG, folder=PATH, observe=FUNCTION, stop=FUNCTION, draw=FLAG)
def train(
    config: Config,
    folder: Path | str,
    observe: Observer = lambda kind, facts: None,
    stop: Callable[[], bool] = lambda: False,
    draw: bool = True,
) -> Summary:
    """Train from the start in a new run folder; ``stop`` is asked before every step.

    The folder receives config.toml, environment.json, checkpoint.npz, rows.jsonl (one JSON object
    per evaluation), and at the end summary.md and summary.json, with ``draw`` curves.png too. It
    appears with the first checkpoint, once a step has been tried; a failure before that leaves
    nothing behind.
    Raises NotFiniteError, ValueError for a configuration that does not fit together, and OSError.

    >>> from tempfile import TemporaryDirectory
    >>> config = Config("temporal-order:samples=50", length=20, hidden=8, iterations=20,
    ...                 evaluate_every=10, backend="reference")
    >>> with TemporaryDirectory() as folder:
    ...     summary = train(config, f"{folder}/run")
    >>> summary.state, summary.iteration
    ('finished', 20)

    Checked by: tests/training/test_train.py::test_a_run_folder_holds_everything.
    """
    experiment, folder = build(config), Path(folder)
    vacant(folder)

    def fill(part: Path) -> None:
        write_text(part / "config.toml", to_toml(config))
        write_text(part / "environment.json", json.dumps(environment(), indent=1) + "\n")
        write_text(part / "rows.jsonl", "")
        record_code(part, config)
        if pretraining:
            observe("oinit", {"matrices": pretraining})
            write_text(part / "oinit.json", json.dumps(pretraining, indent=1) + "\n")
        _save(part, config, run, Rows(part), record)

    params, pretraining = experiment.start()
    run, record = (
        Run(params, experiment.optimizer.init(params), params, {}),
        {"machines": [machine()]},
    )
    _try(experiment, run)
    with create(folder, fill) as held:
        rows = Rows(folder / "rows.jsonl")
        return Session(experiment, run, folder, held, rows, record).finish(observe, stop, draw)


@np.errstate(over="ignore", invalid="ignore")
def _try(experiment: Experiment, run: Run) -> None:
    """Make the first step and forget it: the compiler, the memory or a setting of the environment
    may refuse it."""
    with suppress(NotFiniteError):  # which the run reports
        step(experiment, run, batch_of(experiment, run))


@takes(config=CONFIG, folder=PATH, observe=FUNCTION, stop=FUNCTION, draw=FLAG, trust=FLAG)
def resume(
    config: Config,
    folder: Path | str,
    observe: Observer = lambda kind, facts: None,
    stop: Callable[[], bool] = lambda: False,
    draw: bool = True,
    trust: bool = False,
) -> Summary:
    """Continue the run in ``folder`` from its checkpoint, to the same bits as if it had never
    stopped. ``config`` may differ from the run's own in ``iterations`` alone. ``trust``: as for
    ``refnet.load``; the folder then keeps the code's new digests.

    A limit that is no multiple of ``evaluate_every`` has a row of its own, which a run without that
    limit does not have: parameters go on to the same bits, but the next row's mean loss begins
    there, and the best row may be that one.

    On another kind of machine the bits differ. Every later row then has a ``machine``, and
    ``rounding``: how far apart, relative to their norm, the parameters of this run come to stand
    in ten steps from those of a twin that is rounded differently before every step, as
    measured when the run was resumed. Up to the iteration ``rounding_until``, ten later,
    those of the machine that it came from are within 20 times that. After it nothing
    is promised of the difference: training magnifies it, and such rows are of another run with
    the same settings, as one from another seed is.

    Leaves the folder as it was and raises CheckpointError or FileError if the checkpoint, or a
    row that it counts, cannot be used, ValueError for fewer iterations than the run has done (or
    as many, if it was interrupted between two evaluations), BusyError if another process has the
    folder.

    >>> from dataclasses import replace
    >>> from tempfile import TemporaryDirectory
    >>> config = Config("temporal-order:samples=50", length=20, hidden=8, iterations=20,
    ...                 evaluate_every=10, backend="reference")
    >>> with TemporaryDirectory() as folder:
    ...     _ = train(config, f"{folder}/run")
    ...     summary = resume(replace(config, iterations=30), f"{folder}/run")
    >>> summary.iteration
    30

    Checked by: tests/training/test_train.py::test_resuming_gives_the_same_bits,
    tests/training/test_other_machines.py::test_another_machine_stays_within_what_the_row_states.
    """
    folder = Path(folder)
    path = folder / "checkpoint.npz"
    if not path.is_file():
        raise CheckpointError(f"{path}: there is no checkpoint here; start the run again")
    admit(vars(config), folder / "config.toml", trust)
    experiment = build(config)
    with hold(folder) as held:
        saved = checkpoint.load(path, identity(config))
        run = Run.from_checkpoint(saved, experiment.optimizer, path)
        if config.iterations < run.iteration:
            raise ValueError(
                f"iterations is {config.iterations}; need at least the "
                f"{run.iteration} that the run in {folder} has done"
            )
        if config.iterations == run.iteration != run.last_evaluation:
            raise ValueError(
                f"iterations is {config.iterations}, where the run in {folder} was "
                f"interrupted, with its last evaluation at {run.last_evaluation}; "
                "need more, to end with one"
            )
        defaults = identity(Config())
        new = [name for name in defaults if name not in saved.record["config"]]
        if any(getattr(config, name) != defaults[name] for name in new):
            raise CheckpointError(
                f"{path}: was written before there were the settings "
                f"{', '.join(new)}, which can only have their defaults"
            )
        rows = Rows.resumed(folder / "rows.jsonl", counted_rows(saved, path))
        record = {
            name: value
            for name, value in saved.record.items()
            if name in ("machines", "rounding", "rounding_until")
        }
        if machine() != record["machines"][-1]:
            logging.getLogger("refnet").warning(
                "%s: until iteration %d on %s, from here on %s: the same as there within a stated "
                "rounding for %d iterations, and then another run with the same settings",
                folder,
                run.iteration,
                record["machines"][-1],
                machine(),
                STEPS,
            )
            record = {
                "machines": [*record["machines"], machine()],
                "rounding": rounding(experiment, run),
                "rounding_until": run.iteration + STEPS,
            }
        write_text(folder / "config.toml", to_toml(config))
        record_code(folder, config)
        return Session(experiment, run, folder, held, rows, record).finish(observe, stop, draw)


def counted_rows(saved: Checkpoint, path: Path) -> dict[str, Any]:
    """What a run's checkpoint says of its rows, for ``Rows.counted``. Raises CheckpointError if it
    does not.

    >>> rows = {"lines": 0, "bytes": 0, "sha256": ""}
    >>> counted_rows(Checkpoint({}, {}, {"rows": rows, "machines": ["one"]}), Path("run")) == rows
    True

    Checked by: tests/training/test_loaded_runs.py::test_rows_unknown_to_the_checkpoint_are_refused.
    """
    match saved.record:
        case {"rows": {"lines": int(), "bytes": int(), "sha256": str()}, "machines": [*_, str()]}:
            return dict(saved.record["rows"])
    raise CheckpointError(f"{path}: does not say which rows the run has; start the run again")


def identity(config: Config) -> dict[str, Any]:
    """The settings that decide the bits of every step: all but the number of steps, and the name
    of the protocol that the others came from; of a file's path the last part alone. The backend
    "auto" is "compiled" here: it has the same bits where there are kernels.

    >>> "iterations" in identity(Config("copy"))
    False
    """
    settings = {
        name: short(value) if isinstance(value, str) else value
        for name, value in asdict(config).items()
        if name not in ("iterations", "protocol")
    }
    if settings["backend"] == "auto":
        settings["backend"] = "compiled"
    return settings


def _save(folder: Path, config: Config, run: Run, rows: Rows, record: dict[str, Any]) -> None:
    saved = run.to_checkpoint({"rows": rows.record(), **record})
    checkpoint.save(folder / "checkpoint.npz", saved, identity(config))


def _better(task: Any, row: dict[str, Any], best: dict[str, Any]) -> bool:
    sign = -1 if task.lower_is_better else 1
    return not best or sign * row[task.metric] > sign * best[task.metric]


@dataclass
class Session:
    """A run, and its folder while this process holds it.

    ``record``: ``machines`` that the run was on and, on another than the first, the ``rounding``
    until the iteration ``rounding_until``; ``saved``: the iteration of the last checkpoint.
    """

    experiment: Experiment
    run: Run
    folder: Path
    held: Held
    rows: Rows
    record: dict[str, Any]
    started: float = field(init=False)
    saved: int = field(init=False)

    def __post_init__(self) -> None:
        self.started = time.perf_counter() - self.run.seconds
        self.saved = self.run.iteration

    @np.errstate(over="ignore", invalid="ignore")  # every step checks that its results are finite
    def finish(self, observe: Observer, stop: Callable[[], bool], draw: bool) -> Summary:
        """Train to the last iteration, a solution, or a stop."""
        config, task, rows = self.experiment.config, self.experiment.task, self.rows.rows
        state, norm = "solved" if rows and task.solved(rows[-1]) else "finished", 0.0
        try:
            while state == "finished" and self.run.iteration < config.iterations:
                if stop():
                    state = "interrupted"
                    break
                batch = batch_of(self.experiment, self.run)
                self.run, result, norm = step(self.experiment, self.run, batch)
                iteration = self.run.iteration
                observe("step", {"iteration": iteration, "loss": float(result.loss)})
                if iteration % config.evaluate_every and iteration < config.iterations:
                    continue
                row = self.evaluate(norm)
                observe("row", row)
                if task.solved(row):
                    state = "solved"
        except NotFiniteError as error:
            reason = f"{error}. {self.folder} keeps the run as it was at iteration {self.saved}"
            self.report("diverged", draw, reason)
            raise NotFiniteError(reason) from error
        if state == "interrupted":
            self.save()
        return self.report(state, draw)

    def evaluate(self, norm: float) -> dict[str, Any]:
        """Write a row and a checkpoint."""
        run, (*earlier, machine) = self.run, self.record["machines"]
        run.seconds = self.seconds()
        row = evaluate(self.experiment, run, norm)
        if earlier:
            stated = {name: self.record[name] for name in ("rounding", "rounding_until")}
            row |= {"machine": machine, **stated}
        if _better(self.experiment.task, row, run.best):
            run.best = {name: value for name, value in row.items() if name != "watch"}
            run.best_params = run.params
        run.loss_sum, run.clipped, run.repaired = 0.0, 0, 0
        run.last_evaluation = run.iteration
        self.held.check(self.folder)
        self.rows.append(row)  # before the checkpoint, which counts it
        self.save()
        return row

    def save(self) -> None:
        self.held.check(self.folder)
        self.run.seconds = self.seconds()
        _save(self.folder, self.experiment.config, self.run, self.rows, self.record)
        self.saved = self.run.iteration

    def report(self, state: str, draw: bool, reason: str = "") -> Summary:
        config, task, rows = self.experiment.config, self.experiment.task, self.rows.rows
        best, last = best_row(self.experiment, self.run), rows[-1] if rows else {}
        summary = Summary(state, self.run.iteration, best, last, self.seconds(), reason)
        self.held.check(self.folder)
        write_reports(self.folder, config, task, summary)
        if draw and rows:
            draw_curves(self.folder, config, task, rows)
        return summary

    def seconds(self) -> float:
        """The time that the run has taken, in all its sessions."""
        return time.perf_counter() - self.started
