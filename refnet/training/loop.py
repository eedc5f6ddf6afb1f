"""Training: one step, readable in its order; the loop around it; resuming to the same bits.

A step reads: batch, loss and gradients (with the penalty), clip, optimiser, manifold step.
Batch number i is a function of the seed and i alone, so that a run's whole state is its
parameters, its optimiser's state, its best parameters and a position.
"""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from refnet.analysis.spectra import spectral_radius
from refnet.batch import Array, Batch, Params
from refnet.matrices.orthogonality import defect
from refnet.nets.gradients import Result, loss_and_gradients
from refnet.runs import checkpoint
from refnet.runs.checkpoint import Checkpoint
from refnet.runs.files import write_text
from refnet.runs.rows import append_row, environment, read_rows, write_rows
from refnet.training.config import Config, to_toml
from refnet.training.experiment import Experiment, build
from refnet.training.summary import Summary, write_reports

__all__ = ["NotFiniteError", "Observer", "resume", "train"]

Observer = Callable[[str, dict[str, Any]], None]
"""Called with ("oinit" | "step" | "row", facts) as a run goes on."""


class NotFiniteError(ArithmeticError):
    """A NaN or an infinity: the message names the step and the first array that has one."""


@dataclass
class Run:
    """A run's state between two steps: all that a checkpoint holds."""

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

    def to_checkpoint(self) -> Checkpoint:
        position = {name: getattr(self, name) for name in
                    ("best", "iteration", "seconds", "loss_sum", "clipped", "repaired",
                     "last_evaluation")}
        return Checkpoint({"params": self.params, "optimizer": self.optimizer,
                           "best": self.best_params}, position)

    @staticmethod
    def from_checkpoint(saved: Checkpoint) -> "Run":
        groups = saved.groups
        return Run(groups["params"], groups["optimizer"], groups["best"], **saved.position)


def step(experiment: Experiment, run: Run, batch: Batch) -> tuple[Run, Result, float]:
    """One training step: the new state, the loss with its gradients, and their global norm.

    Raises NotFiniteError before anything is changed.
    """
    e = experiment
    result = loss_and_gradients(e.net, run.params, batch, inputs=False, penalty=e.penalty)
    grads, norm, acted = e.clip(result.gradients)
    if not (np.isfinite(result.loss) and np.isfinite(norm)):
        _locate(run, batch, result)
    params, state = e.optimizer.step(e.open_step(run.params), grads, run.optimizer)
    params, repaired = e.manifold_step(params, grads)
    return replace(run, params=params, optimizer=state, iteration=run.iteration + 1,
                   loss_sum=run.loss_sum + float(result.loss), clipped=run.clipped + acted,
                   repaired=run.repaired + repaired), result, norm


def _locate(run: Run, batch: Batch, result: Result) -> None:
    """Raise NotFiniteError for the first array, in the order of the computation, that has a
    NaN or an infinity; return if none has (a norm that merely overflowed)."""
    arrays: list[tuple[str, Array]] = [("the batch's x", batch.x)]
    arrays += [(f"parameter {name}", value) for name, value in run.params.items()]
    arrays += [("the outputs", result.outputs), ("the loss", result.loss)]
    arrays += [(f"the gradient of {name}", value) for name, value in result.gradients.items()]
    for name, value in arrays:
        bad = np.flatnonzero(~np.isfinite(value))
        if bad.size:
            entry = tuple(int(i) for i in np.unravel_index(bad[0], value.shape))
            raise NotFiniteError(
                f"step {run.iteration + 1}: {name} is not finite at {bad.size} of {value.size} "
                f"entries, first {value[entry]} at {entry}. Lower the learning rate, clip the "
                "gradients (--clip norm --clip-at 1), or start more orthogonal (--method oinit)")


def _outputs(experiment: Experiment, params: Params, batches: Iterator[Batch]
             ) -> dict[str, Any]:
    scores = [experiment.task.score(experiment.net.forward(params, batch.x, batch.mask)[0], batch)
              for batch in batches]
    totals = {name: sum(score[name] for score in scores) for name in scores[0]}
    return dict(experiment.task.metrics(totals))


def evaluate(experiment: Experiment, run: Run, norm: float) -> dict[str, Any]:
    """A row: the metrics on the evaluation set, and the state of the hidden matrices."""
    e, task = experiment, experiment.task
    split = "validation" if "validation" in task.splits else "test"
    steps = run.iteration - run.last_evaluation
    metrics = _outputs(e, run.params, task.evaluation(run.iteration, e.config.seed, split))
    matrices = e.matrices_of(run.params, e.hidden)
    square = [W for W in matrices.values() if W.shape[0] == W.shape[1]]
    return {
        "iteration": run.iteration,
        "loss": run.loss_sum / steps if steps else None,
        **metrics,
        "spectral_radius": max((spectral_radius(W) for W in square), default=None),
        "defect": max((float(defect(W)) for W in matrices.values()), default=None),
        "gradient_norm": norm,
        "clipped": run.clipped,
        "repaired": run.repaired,
        **e.report(run.params),
        "seconds": round(run.seconds, 3),
    }


def _better(task: Any, row: dict[str, Any], best: dict[str, Any]) -> bool:
    sign = -1 if task.lower_is_better else 1
    return not best or sign * row[task.metric] > sign * best[task.metric]


def train(config: Config, folder: Path, observe: Observer = lambda kind, facts: None,
          stop: Callable[[], bool] = lambda: False) -> Summary:
    """Train from the start in a new run folder; ``stop`` is asked before every step.

    The folder receives config.toml, rows.jsonl (one JSON object per evaluation),
    checkpoint.npz, curves.png, summary.md and environment.json.
    Raises NotFiniteError, and ValueError for a configuration that does not fit together.
    """
    experiment = build(config)
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty; resume that run with --resume {folder}, or "
                              "name another folder with --out")
    write_text(folder / "config.toml", to_toml(config))
    write_text(folder / "environment.json", json.dumps(environment(), indent=1) + "\n")
    params, pretraining = experiment.start()
    if pretraining:
        observe("oinit", {"matrices": pretraining})
        write_text(folder / "oinit.json", json.dumps(pretraining, indent=1) + "\n")
    run = Run(params, experiment.optimizer.init(params), params, {})
    return _loop(experiment, run, folder, [], observe, stop)


def resume(config: Config, folder: Path, observe: Observer = lambda kind, facts: None,
           stop: Callable[[], bool] = lambda: False) -> Summary:
    """Continue the run in ``folder`` from its checkpoint, to the same bits as if it had never
    stopped. ``config`` may differ from the run's own in ``iterations`` alone.

    Raises CheckpointError and leaves the folder as it was if the checkpoint cannot be used.
    """
    experiment = build(config)
    run = Run.from_checkpoint(checkpoint.load(folder / "checkpoint.npz", _identity(config)))
    rows = [row for row in read_rows(folder / "rows.jsonl")
            if row["iteration"] <= run.last_evaluation]
    write_text(folder / "config.toml", to_toml(config))
    write_rows(folder / "rows.jsonl", rows)
    return _loop(experiment, run, folder, rows, observe, stop)


def _identity(config: Config) -> dict[str, Any]:
    """The settings that decide the bits of every step: all but how many there are, and the name
    of the protocol that the others came from."""
    settings = asdict(config)
    del settings["iterations"], settings["protocol"]
    return settings


def _loop(experiment: Experiment, run: Run, folder: Path, rows: list[dict[str, Any]],
          observe: Observer, stop: Callable[[], bool]) -> Summary:
    config, task = experiment.config, experiment.task
    state, norm = "finished", 0.0
    before = run.seconds
    started = time.perf_counter()

    def save() -> None:
        run.seconds = before + time.perf_counter() - started
        checkpoint.save(folder / "checkpoint.npz", run.to_checkpoint(), _identity(config))

    if rows and task.solved(rows[-1]):
        state = "solved"
    while state == "finished" and run.iteration < config.iterations:
        if stop():
            state = "interrupted"
            break
        batch = task.batch(run.iteration, config.batch, config.seed)
        run, result, norm = step(experiment, run, batch)
        observe("step", {"iteration": run.iteration, "loss": float(result.loss)})
        if run.iteration % config.evaluate_every and run.iteration < config.iterations:
            continue
        run.seconds = before + time.perf_counter() - started
        row = evaluate(experiment, run, norm)
        if _better(task, row, run.best):
            run.best, run.best_params = row, run.params
        run.loss_sum, run.clipped, run.repaired = 0.0, 0, 0
        run.last_evaluation = run.iteration
        rows.append(row)
        append_row(folder / "rows.jsonl", row)  # before: resuming drops a row too many
        save()
        observe("row", row)
        if task.solved(row):
            state = "solved"
    if state == "interrupted":
        save()
    summary = Summary(state, run.iteration, _final(experiment, run), rows[-1] if rows else {},
                      before + time.perf_counter() - started)
    write_reports(folder, config, task, rows, summary)
    return summary


def _final(experiment: Experiment, run: Run) -> dict[str, Any]:
    """The best row; with a validation split, with the test metrics at its parameters."""
    if "validation" not in experiment.task.splits or not run.best:
        return run.best
    batches = experiment.task.evaluation(0, experiment.config.seed, "test")
    tested = _outputs(experiment, run.best_params, batches)
    return {**run.best, **{f"test_{name}": value for name, value in tested.items()}}
