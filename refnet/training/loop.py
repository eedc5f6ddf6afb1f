"""Training: one step, readable in its order; the loop around it; resuming to the same bits.

A step reads: batch, loss and gradients (with the penalty), clip, optimizer, manifold step.
Batch number i is a function of the seed and i alone, so a run's whole state is its parameters,
its optimizer's state, its best parameters and a position.
"""

import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from refnet.analysis.spectra import spectral_radius
from refnet.arguments import FLAG, FUNCTION, PATH, instance, takes
from refnet.batch import Array, Batch, Params
from refnet.maths.threads import in_threads
from refnet.matrices.orthogonality import defect
from refnet.nets.gradients import Result, loss_and_gradients
from refnet.process import serial_blas
from refnet.runs import checkpoint
from refnet.runs.checkpoint import Checkpoint, CheckpointError
from refnet.runs.files import write_text
from refnet.runs.folder import Held, create, hold, vacant
from refnet.runs.rows import Rows, environment, machine
from refnet.training.config import Config, to_toml
from refnet.training.experiment import Experiment, build
from refnet.training.optimizers import Optimizer
from refnet.training.summary import Summary, draw_curves, write_reports
from refnet.training.watch import observed

__all__ = ["NotFiniteError", "Observer", "counted_rows", "identity", "resume", "rounding", "train"]

CONFIG = instance(Config, "a refnet.Config")
STEPS, ROOM = 10, 20
"""On another kind of machine: steps over which the effect of rounding is measured, and the factor
that covers how much more than one rounding a number a step may make. Of 15 runs on a processor
without AVX, emulated as in tests/training/test_other_machines.py, the largest needed 3.7."""
Observer = Callable[[str, dict[str, Any]], None]
"""Called with ("oinit" | "step" | "row", facts) as a run goes on."""


class NotFiniteError(ArithmeticError):
    """A NaN or an infinity: the message names the step and the first array that has one, or the
    step on a manifold that could not be made."""


@dataclass
class Run:
    """A run's state between two steps: all that a checkpoint holds of its computation."""

    params: Params
    optimizer: Params
    best_params: Params
    best: dict[str, Any]
    iteration: int = 0
    seconds: float = 0.0
    loss_sum: float = 0.0
    clipped: int = 0
    repaired: int = 0
    last_evaluation: int = 0

    def to_checkpoint(self, record: dict[str, Any]) -> Checkpoint:
        position = {name: getattr(self, name) for name in POSITION}
        return Checkpoint(
            {"params": self.params, "optimizer": self.optimizer, "best": self.best_params},
            position,
            record,
        )

    @staticmethod
    def from_checkpoint(saved: Checkpoint, optimizer: Optimizer, path: Path) -> "Run":
        """Raises CheckpointError if the arrays do not belong together."""
        groups, position = saved.groups, saved.position
        if (
            groups.keys() != {"params", "optimizer", "best"}
            or position.keys() != POSITION.keys()
            or not all(isinstance(position[name], kind) for name, kind in POSITION.items())
            or _forms(groups["optimizer"]) != _forms(optimizer.init(groups["params"]))
            or _forms(groups["best"]) != _forms(groups["params"])
        ):
            raise CheckpointError(
                f"{path}: lacks something that belongs to a run, or has it in "
                "another form; start the run again, or resume from a folder "
                "whose checkpoint is whole"
            )
        return Run(groups["params"], groups["optimizer"], groups["best"], **position)


POSITION = {
    "best": dict,
    "iteration": int,
    "seconds": float,
    "loss_sum": float,
    "clipped": int,
    "repaired": int,
    "last_evaluation": int,
}
"""What a checkpoint's position holds of a Run."""


def _forms(arrays: Params) -> dict[str, Any]:
    return {name: (array.shape, array.dtype) for name, array in arrays.items()}


@serial_blas
def step(experiment: Experiment, run: Run, batch: Batch) -> tuple[Run, Result, float]:
    """One training step: the new state, the loss with its gradients, and their global norm.

    Raises NotFiniteError before anything is changed.
    """
    e = experiment
    result = loss_and_gradients(e.net, run.params, batch, inputs=False, penalty=e.penalty)
    grads, norm, acted = e.clip(result.gradients, run.params)
    if not (np.isfinite(result.loss) and np.isfinite(norm)):
        _locate(run, batch, result)
    params = e.open_step(run.params)
    params, state = e.optimizer.step(params, grads, run.optimizer)
    try:
        params, repaired = e.manifold_step(params, grads)
    except ValueError as error:  # the parts were orthogonal, and the gradients are finite
        raise NotFiniteError(
            f"step {run.iteration + 1}: too large for the manifold: {error}. "
            "Lower its rate (--manifold-rate), or clip the gradients (--clip "
            "norm --clip-at 1)"
        ) from None
    return (
        replace(
            run,
            params=params,
            optimizer=state,
            iteration=run.iteration + 1,
            loss_sum=run.loss_sum + float(result.loss),
            clipped=run.clipped + acted,
            repaired=run.repaired + repaired,
        ),
        result,
        norm,
    )


def rounding(experiment: Experiment, run: Run) -> float | None:
    """How far apart two runs stand after STEPS steps from here, of which one has every parameter
    moved by a rounding before every step: the largest ``||p - q|| / ||p||`` of a parameter. None
    if training diverges before.

    >>> experiment = build(Config("copy", length=20, hidden=4, rate=1e-3, backend="reference"))
    >>> params, _ = experiment.start()
    >>> run = Run(params, experiment.optimizer.init(params), params, {})
    >>> 0 < rounding(experiment, run) < 1e-3
    True
    """
    rng, twin = np.random.default_rng(run.iteration), run
    for _ in range(STEPS):
        batch = experiment.task.batch(
            run.iteration, experiment.config.batch, experiment.config.seed
        )
        moved = {
            name: value
            + value
            * np.finfo(value.dtype).eps
            * rng.choice(np.array([-1, 1], value.dtype), value.shape)
            for name, value in twin.params.items()
        }
        try:
            run, twin = (
                step(experiment, one, batch)[0] for one in (run, replace(twin, params=moved))
            )
        except NotFiniteError:
            return None
    return max(
        float(np.linalg.norm(value - twin.params[name]) / (np.linalg.norm(value) or 1))
        for name, value in run.params.items()
    )


def _locate(run: Run, batch: Batch, result: Result) -> None:
    """Raise NotFiniteError for the first array, in the order of the computation, that has a
    NaN or an infinity; return if none has (a norm that merely overflowed)."""
    arrays: list[tuple[str, Array]] = [("the batch's x", batch.x)]
    arrays += [(f"parameter {name}", value) for name, value in run.params.items()]
    arrays += [("the array of outputs", result.outputs), ("the loss", result.loss)]
    arrays += [(f"the gradient of {name}", value) for name, value in result.gradients.items()]
    _refuse_infinite(f"step {run.iteration + 1}", arrays)


def _refuse_infinite(where: str, arrays: list[tuple[str, Array]]) -> None:
    for name, value in arrays:
        bad = np.flatnonzero(~np.isfinite(value))
        if bad.size:
            entry = tuple(int(i) for i in np.unravel_index(bad[0], value.shape))
            raise NotFiniteError(
                f"{where}: {name} is not finite at {bad.size} of {value.size} "
                f"entries, first {value[entry]} at {entry}. Lower the learning rate, "
                "clip the gradients (--clip norm --clip-at 1), or start more orthogonal "
                "(--method oinit)"
            )


def _outputs(experiment: Experiment, params: Params, batches: Iterator[Batch]) -> dict[str, Any]:
    net, params = experiment.assembled(params)
    scores = [
        experiment.task.score(net.forward(params, batch.x, batch.mask, copy=False)[0], batch)
        for batch in batches
    ]
    totals = {name: sum(score[name] for score in scores) for name in scores[0]}
    return dict(experiment.task.metrics(totals))


def evaluate(experiment: Experiment, run: Run, norm: float) -> dict[str, Any]:
    """A row: the metrics on the evaluation set, and the state of the hidden matrices.

    Raises NotFiniteError if a parameter or a metric is not finite.
    """
    e, task = experiment, experiment.task
    where = f"after step {run.iteration}"
    _refuse_infinite(where, [(f"parameter {name}", value) for name, value in run.params.items()])
    split = "validation" if "validation" in task.splits else "test"
    steps = run.iteration - run.last_evaluation
    metrics = _outputs(e, run.params, task.evaluation(run.iteration, e.config.seed, split))
    _refuse_infinite(
        where,
        [
            (f"the {split} set's {name}", np.asarray(value))
            for name, value in metrics.items()
            if isinstance(value, float)
        ],
    )
    matrices = e.matrices_of(run.params, e.hidden)
    square = [W for W in matrices.values() if W.shape[0] == W.shape[1]]
    radii = [0.0] * len(square)
    in_threads(lambda n: radii.__setitem__(n, spectral_radius(square[n])), len(square))
    return {
        "iteration": run.iteration,
        "loss": run.loss_sum / steps if steps else None,
        **metrics,
        "spectral_radius": max(radii, default=None),
        "defect": max((float(defect(W)) for W in matrices.values()), default=None),
        "gradient_norm": norm,
        "clipped": run.clipped,
        "repaired": run.repaired,
        **e.report(run.params),
        **_watched(e, run, split),
        "seconds": round(run.seconds, 3),
    }


def _watched(experiment: Experiment, run: Run, split: str) -> dict[str, Any]:
    if not experiment.config.watch:
        return {}
    batches = experiment.task.evaluation(run.iteration, experiment.config.seed, split)
    return {"watch": observed(experiment, run.params, next(iter(batches)))}


def _better(task: Any, row: dict[str, Any], best: dict[str, Any]) -> bool:
    sign = -1 if task.lower_is_better else 1
    return not best or sign * row[task.metric] > sign * best[task.metric]


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
        if pretraining:
            observe("oinit", {"matrices": pretraining})
            write_text(part / "oinit.json", json.dumps(pretraining, indent=1) + "\n")
        checkpoint.save(
            part / "checkpoint.npz",
            run.to_checkpoint({"rows": Rows(part).record(), "machines": [machine()]}),
            identity(config),
        )

    params, pretraining = experiment.start()
    run = Run(params, experiment.optimizer.init(params), params, {})
    _try(experiment, run)
    with create(folder, fill) as held:
        return _loop(
            experiment,
            run,
            folder,
            held,
            Rows(folder / "rows.jsonl"),
            [machine()],
            observe,
            stop,
            draw,
            {},
        )


@np.errstate(over="ignore", invalid="ignore")
def _try(experiment: Experiment, run: Run) -> None:
    """Make the first step and forget it: the compiler, the memory or a setting of the environment
    may refuse it."""
    batch = experiment.task.batch(run.iteration, experiment.config.batch, experiment.config.seed)
    with suppress(NotFiniteError):  # the run's own to report
        step(experiment, run, batch)


@takes(config=CONFIG, folder=PATH, observe=FUNCTION, stop=FUNCTION, draw=FLAG)
def resume(
    config: Config,
    folder: Path | str,
    observe: Observer = lambda kind, facts: None,
    stop: Callable[[], bool] = lambda: False,
    draw: bool = True,
) -> Summary:
    """Continue the run in ``folder`` from its checkpoint, to the same bits as if it had never
    stopped. ``config`` may differ from the run's own in ``iterations`` alone.

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
    experiment, folder = build(config), Path(folder)
    path = folder / "checkpoint.npz"
    if not path.is_file():
        raise CheckpointError(f"{path}: there is no checkpoint here; start the run again")
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
        new = {
            name: value
            for name, value in identity(Config()).items()
            if name not in saved.record["config"]
        }
        if any(getattr(config, name) != value for name, value in new.items()):
            raise CheckpointError(
                f"{path}: was written before there were the settings "
                f"{', '.join(new)}, which can only have their defaults"
            )
        rows = Rows.resumed(folder / "rows.jsonl", counted_rows(saved, path))
        machines = saved.record["machines"]
        if machine() != machines[-1]:
            logging.getLogger("refnet").warning(
                "%s: until iteration %d on %s, from here on %s: the same as there within a stated "
                "rounding for %d iterations, and then another run with the same settings",
                folder,
                run.iteration,
                machines[-1],
                machine(),
                STEPS,
            )
            machines.append(machine())
            saved.record.update(
                {"rounding": rounding(experiment, run), "rounding_until": run.iteration + STEPS}
            )
        write_text(folder / "config.toml", to_toml(config))
        return _loop(
            experiment,
            run,
            folder,
            held,
            rows,
            machines,
            observe,
            stop,
            draw,
            {name: value for name, value in saved.record.items() if "rounding" in name},
        )


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
    of the protocol that the others came from.

    >>> "iterations" in identity(Config("copy"))
    False
    """
    settings = asdict(config)
    del settings["iterations"], settings["protocol"]
    return settings


@np.errstate(over="ignore", invalid="ignore")  # what is not finite is looked for in every step
def _loop(
    experiment: Experiment,
    run: Run,
    folder: Path,
    held: Held,
    rows: Rows,
    machines: list[str],
    observe: Observer,
    stop: Callable[[], bool],
    draw: bool,
    stated: dict[str, Any],
) -> Summary:
    config, task = experiment.config, experiment.task
    state, norm = "finished", 0.0
    before = run.seconds
    started = time.perf_counter()
    saved = run.iteration

    def seconds() -> float:
        return before + time.perf_counter() - started

    def save() -> None:
        nonlocal saved
        held.check(folder)
        run.seconds = seconds()
        checkpoint.save(
            folder / "checkpoint.npz",
            run.to_checkpoint({"rows": rows.record(), "machines": machines, **stated}),
            identity(config),
        )
        saved = run.iteration

    def report(state: str, reason: str = "") -> Summary:
        summary = Summary(
            state,
            run.iteration,
            _final(experiment, run),
            rows.rows[-1] if rows.rows else {},
            seconds(),
            reason,
        )
        held.check(folder)
        write_reports(folder, config, task, summary)
        if draw and rows.rows:
            draw_curves(folder, config, task, rows.rows)
        return summary

    if rows.rows and task.solved(rows.rows[-1]):
        state = "solved"
    try:
        while state == "finished" and run.iteration < config.iterations:
            if stop():
                state = "interrupted"
                break
            batch = task.batch(run.iteration, config.batch, config.seed)
            run, result, norm = step(experiment, run, batch)
            observe("step", {"iteration": run.iteration, "loss": float(result.loss)})
            if run.iteration % config.evaluate_every and run.iteration < config.iterations:
                continue
            run.seconds = seconds()
            row = evaluate(experiment, run, norm)
            if len(machines) > 1:
                row |= {"machine": machines[-1], **stated}
            if _better(task, row, run.best):
                run.best = {name: value for name, value in row.items() if name != "watch"}
                run.best_params = run.params
            run.loss_sum, run.clipped, run.repaired = 0.0, 0, 0
            run.last_evaluation = run.iteration
            held.check(folder)
            rows.append(row)  # before the checkpoint, which counts it
            save()
            observe("row", row)
            if task.solved(row):
                state = "solved"
    except NotFiniteError as error:
        reason = f"{error}. {folder} keeps the run as it was at iteration {saved}"
        report("diverged", reason)
        raise NotFiniteError(reason) from error
    if state == "interrupted":
        save()
    return report(state)


def _final(experiment: Experiment, run: Run) -> dict[str, Any]:
    """The best row; with a validation split, with the test metrics at its parameters."""
    if "validation" not in experiment.task.splits or not run.best:
        return run.best
    batches = experiment.task.evaluation(0, experiment.config.seed, "test")
    tested = _outputs(experiment, run.best_params, batches)
    return {**run.best, **{f"test_{name}": value for name, value in tested.items()}}
