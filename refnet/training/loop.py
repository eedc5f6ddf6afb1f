"""A run in its folder: training from the start, and resuming to the same bits."""

import json
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, overload

import numpy as np

from refnet.common.arguments import FLAG, FUNCTION, PATH, instance, optional, short, takes
from refnet.common.names import short as without_folder
from refnet.runs import checkpoint
from refnet.runs.checkpoint import Checkpoint, CheckpointError
from refnet.runs.files import write_text
from refnet.runs.folder import Held, create, hold, vacant
from refnet.runs.read import Record, contents, json_of
from refnet.runs.rows import Rows, environment, machine
from refnet.tasks import TASKS, Task
from refnet.training.code import admit, record as record_code
from refnet.training.config import Config, check_given
from refnet.training.config_files import to_toml
from refnet.training.experiment import Experiment, build
from refnet.training.fit import Fit, Loaded, Observer, never, plateau, unobserved
from refnet.training.protocols import configure, configure_task
from refnet.training.steps import (
    STEPS,
    NotFiniteError as NotFiniteError,
    Run,
    batch_of,
    rounding,
    step,
)
from refnet.training.summary import Summary, draw_curves, write_reports

NEEDS = sorted(name for name in vars(Task) if name[0] != "_")
CONFIG = instance(Config, "a refnet.Config")
DATA = "task.json"


# Typed apart, because the folder decides what the result is.
@overload
def train(task: Config | Task | str, folder: None = None, **settings: Any) -> Loaded: ...
@overload
def train(
    task: Config | Task | str,
    folder: Path | str,
    observe: Observer = ...,
    stop: Callable[[], bool] = ...,
    draw: bool = ...,
    **settings: Any,
) -> Summary: ...
@takes(folder=optional(PATH), observe=FUNCTION, stop=FUNCTION, draw=FLAG)
def train(
    task: Config | Task | str,
    folder: Path | str | None = None,
    observe: Observer = unobserved,
    stop: Callable[[], bool] = never,
    draw: bool = True,
    **settings: Any,
) -> Summary | Loaded:
    """Train from the start; ``stop`` is asked before every step.

    ``task``: a task, as an object or by its name or spec, with ``settings`` by the names of
    Config's fields, the others from the task's protocol; or a Config, which has all of them. A
    task is what ``refnet.tasks`` has, or an object of yours with the attributes and methods of
    ``refnet.tasks.Task``.

    Without a folder the run stays in memory: the result has ``net``, ``params``, ``best_params``,
    ``best`` and ``rows``, as ``refnet.load`` has them of a folder. With one, in which a task object
    of yours cannot be kept, the result is the run's Summary.

    The folder receives config.toml, environment.json, checkpoint.npz, rows.jsonl (one JSON object
    per evaluation), and at the end summary.md and summary.json, with ``draw`` curves.png too. It
    appears with the first checkpoint, once a step has been tried; a failure before that leaves
    nothing behind.
    Raises NotFiniteError, ValueError for a configuration that does not fit together, and OSError.

    >>> run = train("temporal-order:samples=50", length=20, hidden=8, iterations=20,
    ...             backend="reference")
    >>> run.net.predict(run.params, next(run.task.evaluation(0, seed=1)).x).shape
    (50,)
    >>> from tempfile import TemporaryDirectory
    >>> config = Config("temporal-order:samples=50", length=20, hidden=8, iterations=20,
    ...                 evaluate_every=10, backend="reference")
    >>> with TemporaryDirectory() as folder:
    ...     summary = train(config, f"{folder}/run")
    >>> summary.state, summary.iteration
    ('finished', 20)

    Checked by: tests/training/test_train.py::test_a_run_folder_holds_everything.
    """
    config, given = _settled(task, settings)
    if folder is None:
        fit = Fit.start(build(config, given))
        fit.advance(observe, stop)
        return fit.loaded()
    if given is not None:
        raise ValueError(
            f"train: the task {given.name} is an object, which a folder cannot keep; need "
            "no folder, or a task by its name"
        )
    experiment, folder = build(config), Path(folder)
    vacant(folder)

    def fill(part: Path) -> None:
        write_text(part / "config.toml", to_toml(config))
        write_text(part / "environment.json", json.dumps(environment(), indent=1) + "\n")
        write_text(part / "rows.jsonl", "")
        if (facts := _data_of(experiment.task)) is not None:
            write_text(part / DATA, json.dumps(facts, indent=1) + "\n")
        record_code(part, config)
        if pretraining:
            observe("oinit", {"matrices": pretraining})
            write_text(part / "oinit.json", json.dumps(pretraining, indent=1) + "\n")
        _save(part, config, run, Rows(part), record)

    run, pretraining = Run.start(experiment)
    record = {"machines": [machine()]}
    _try(experiment, run)
    with create(folder, fill) as held:
        session = Session(
            experiment=experiment,
            run=run,
            folder=folder,
            held=held,
            file=Rows(folder / "rows.jsonl"),
            record=record,
        )
        return session.finish(observe, stop, draw)


def _data_of(task: Task) -> Record | None:
    """What a run keeps of a task from a user's data: the means, scales, classes and words that were
    fitted on the training part, and a digest; None of any other task."""
    record: Callable[[], Record] | None = getattr(task, "record", None)
    return record() if record else None


def check_data(folder: Path, task: Task) -> None:
    """Raise ValueError if the data are not those that the run in the folder began with.

    >>> from refnet.tasks import make_task
    >>> check_data(Path("nowhere"), make_task("copy"))
    """
    path = folder / DATA
    if (facts := _data_of(task)) is None or not path.is_file():
        return
    if json_of(contents(path, 2**28)) != facts:
        raise ValueError(
            f"{path}: the run began with other data than {task.name} has now; put the old ones "
            "back, or start a new run"
        )


def _settled(task: Any, settings: Record) -> tuple[Config, Task | None]:
    """The configuration, and the task if it is an object that no name stands for."""
    if isinstance(task, Config):
        check_given(replace(task, **settings), settings)
        return replace(task, **settings), None
    if isinstance(task, str):
        return configure({"task": task, **settings}), None
    lacking = [name for name in NEEDS if not hasattr(task, name)]
    if isinstance(task, type) or lacking:
        raise TypeError(
            f"train: task is {short(task)}; need a Config, the name of a task, or an object such "
            f"as refnet.make_task gives, with {', '.join(lacking or NEEDS)}"
        )
    config = configure_task(task, settings)
    return config, None if TASKS.get(task.name) is type(task) else task


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
    observe: Observer = unobserved,
    stop: Callable[[], bool] = never,
    draw: bool = True,
    trust: bool = False,
) -> Summary:
    """Continue the run in ``folder`` from its checkpoint, to the same bits as if it had never
    stopped. ``config`` may differ from the run's own in ``iterations`` and ``patience`` alone.
    ``trust``: as for ``refnet.load``; the folder then keeps the code's new digests.

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
    check_data(folder, experiment.task)
    with hold(folder) as held:
        saved = checkpoint.load(path, identity(config))
        run = Run.from_checkpoint(saved, experiment.optimizer, path)
        _admit_settings(config, saved, run, folder)
        rows = Rows.resumed(folder / "rows.jsonl", counted_rows(saved, path))
        run.plateau = plateau(experiment, rows.rows)
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
        session = Session(
            experiment=experiment, run=run, folder=folder, held=held, file=rows, record=record
        )
        return session.finish(observe, stop, draw)


def _admit_settings(config: Config, saved: Checkpoint, run: Run, folder: Path) -> None:
    """Raise ValueError or CheckpointError unless the run can go on with these settings."""
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
            f"{folder}: its checkpoint was written before there were the settings "
            f"{', '.join(new)}, which can only have their defaults"
        )


def counted_rows(saved: Checkpoint, path: Path) -> Record:
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


def identity(config: Config) -> Record:
    """The settings that decide the bits of every step: all but those that say when to stop, and
    the name of the protocol that the others came from; of a file's path the last part alone. The
    backend "auto" is "compiled" here: it has the same bits where there are kernels, and "compiled"
    trains no net without.

    >>> "iterations" in identity(Config("copy"))
    False
    """
    settings = {
        name: without_folder(value) if isinstance(value, str) else value
        for name, value in asdict(config).items()
        if name not in ("iterations", "patience", "protocol")
    }
    if settings["backend"] == "auto":
        settings["backend"] = "compiled"
    return settings


def _save(folder: Path, config: Config, run: Run, rows: Rows, record: Record) -> None:
    saved = run.to_checkpoint({"rows": rows.record(), **record})
    checkpoint.save(folder / "checkpoint.npz", saved, identity(config))


@dataclass(kw_only=True)
class Session(Fit):
    """A run, and its folder while this process holds it.

    ``record``: ``machines`` that the run was on and, on another than the first, the ``rounding``
    until the iteration ``rounding_until``, which later rows state. ``saved``: the iteration of the
    last checkpoint.
    """

    folder: Path
    held: Held
    file: Rows
    record: Record
    saved: int = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.rows, self.saved = self.file.rows, self.run.iteration
        *earlier, machine = self.record["machines"]
        if earlier:
            stated = {name: self.record[name] for name in ("rounding", "rounding_until")}
            self.remarks = {"machine": machine, **stated}

    def finish(self, observe: Observer, stop: Callable[[], bool], draw: bool) -> Summary:
        """``advance``, and write how the run ended."""
        try:
            state = self.advance(observe, stop)
        except NotFiniteError as error:
            reason = f"{error}. {self.folder} keeps the run as it was at iteration {self.saved}"
            self.report("diverged", draw, reason)
            raise NotFiniteError(reason) from error
        if state == "interrupted":
            self.save()
        return self.report(state, draw)

    def write(self, row: Record) -> None:
        """Write a row and a checkpoint."""
        self.held.check(self.folder)
        self.file.append(row)  # before the checkpoint, which counts it
        self.save()

    def save(self) -> None:
        self.held.check(self.folder)
        self.run.seconds = self.seconds()
        _save(self.folder, self.experiment.config, self.run, self.file, self.record)
        self.saved = self.run.iteration

    def report(self, state: str, draw: bool, reason: str = "") -> Summary:
        config, task = self.experiment.config, self.experiment.task
        summary = self.summary(state, reason)
        self.held.check(self.folder)
        write_reports(self.folder, config, task, summary)
        if draw and self.rows:
            draw_curves(self.folder, config, task, self.rows)
        return summary
