"""One training step, readable in its order: batch, noise, loss and gradients (with the penalty),
clip, optimiser, manifold step. And what a run is between two steps, and the row that evaluates it.

Batch number i is a function of the seed and i alone, so that a run's whole state is its
parameters, its optimiser's state, its best parameters and a position.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from refnet.analysis.spectra import spectral_radius
from refnet.batch import Array, Batch, Params
from refnet.common.process import serial_blas
from refnet.maths.losses import counted_predictions
from refnet.maths.threads import in_threads
from refnet.matrices.orthogonality import defect
from refnet.nets.gradients import Result, loss_and_gradients
from refnet.runs.checkpoint import Checkpoint, CheckpointError
from refnet.runs.read import Record
from refnet.training.experiment import Experiment
from refnet.training.noise import perturbed
from refnet.training.optimizers import Optimizer
from refnet.training.watch import observed

STEPS, ROOM = 10, 20
"""On another kind of machine: steps over which the effect of rounding is measured, and the factor
that covers how much more than one rounding a number a step may make. Of 15 runs on a processor
without AVX, emulated as in tests/training/test_other_machines.py, the largest needed 3.7."""


class NotFiniteError(ArithmeticError):
    """A NaN or an infinity: the message names the step and the first array that has one, or the
    step on a manifold that could not be made."""


@dataclass
class Run:
    """A run's state between two steps: all that a checkpoint holds of its computation. ``plateau``:
    the schedule's factor after the evaluations so far, which the rows hold. ``carried``: the states
    at which the next batch starts, as parameters; empty: zero, or what the parameters say."""

    params: Params
    optimizer: Params
    best_params: Params
    best: Record
    iteration: int = 0
    seconds: float = 0.0
    loss_sum: float = 0.0
    clipped: int = 0
    repaired: int = 0
    last_evaluation: int = 0
    plateau: float = 1.0
    carried: Params = field(default_factory=dict)

    @staticmethod
    def start(experiment: Experiment) -> tuple["Run", list[Record]]:
        """A run before its first step, and the report of its orthogonal pre-training."""
        params, report = experiment.start()
        return Run(params, experiment.optimizer.init(params), params, {}), report

    def to_checkpoint(self, record: Record) -> Checkpoint:
        position = {name: getattr(self, name) for name in POSITION}
        groups = {"params": self.params, "optimizer": self.optimizer, "best": self.best_params}
        if self.carried:
            groups["carried"] = self.carried
        return Checkpoint(groups, position, record)

    @staticmethod
    def from_checkpoint(saved: Checkpoint, optimizer: Optimizer, path: Path) -> "Run":
        """Raises CheckpointError if the arrays do not belong together."""
        groups, position = saved.groups, saved.position
        if (
            groups.keys() - {"carried"} != {"params", "optimizer", "best"}
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
        carried = groups.get("carried", {})
        return Run(
            groups["params"], groups["optimizer"], groups["best"], **position, carried=carried
        )


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


def _forms(arrays: Params) -> Record:
    return {name: (array.shape, array.dtype) for name, array in arrays.items()}


def batch_of(experiment: Experiment, run: Run, number: int = 0) -> Batch:
    """The next training batch of a run, or another batch of its next step.

    >>> from refnet.training.config import Config
    >>> from refnet.training.experiment import build
    >>> experiment = build(Config("copy:samples=50", length=20, hidden=4, backend="reference"))
    >>> run, _ = Run.start(experiment)
    >>> batch_of(experiment, run).x.shape
    (40, 20, 10)
    """
    config = experiment.config
    index = run.iteration * config.accumulate + number
    batch = experiment.task.batch(index, config.batch, config.seed)
    return experiment.weighted(batch)


@serial_blas
def step(experiment: Experiment, run: Run, batch: Batch) -> tuple[Run, Result, float]:
    """One training step: the new state, the loss with its gradients, and their global norm.
    ``batch``: the first batch of the step.

    Raises NotFiniteError before anything is changed.

    >>> from refnet.training.config import Config
    >>> from refnet.training.experiment import build
    >>> experiment = build(Config("copy:samples=50", length=20, hidden=4, backend="reference"))
    >>> run, _ = Run.start(experiment)
    >>> step(experiment, run, batch_of(experiment, run))[0].iteration
    1
    """
    e = experiment.at(run.iteration, run.plateau)
    others = (batch_of(e, run, number) for number in range(1, e.config.accumulate))
    result = _accumulated(e, run, [batch, *others])
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
            carried=result.final,
        ),
        result,
        norm,
    )


def _accumulated(e: Experiment, run: Run, batches: list[Batch]) -> Result:
    """The loss and gradients of the batches together; the outputs and states of the last one.

    Checked by: tests/training/test_accumulation.py.
    """
    loss: Any = 0
    grads: Params = {}
    carried, first = run.carried, run.iteration * len(batches)
    divisor = _divisor(e, batches) if len(batches) > 1 else None
    for index, batch in enumerate(batches, first):
        net, batch = perturbed(e.net, batch, e.config, index)
        started, on = _started(run.params, carried, batch), e.continues(index + 1)
        penalty = e.penalty_on(net, started, batch) if index == first else None
        result = loss_and_gradients(net, started, batch, False, penalty, divisor, on)
        if len(batches) == 1:
            return result
        for name in result.gradients.keys() & {*run.params, "clipped"}:
            grads[name] = np.asarray(grads.get(name, 0) + result.gradients[name])
        loss, carried = loss + result.loss, result.final
    return Result(loss, grads, result.outputs, carried)


def _divisor(e: Experiment, batches: list[Batch]) -> Any:
    """What the loss of all batches is divided by."""
    total: Any = 0
    for _, y, mask, weights, _ in batches:
        shape = y.shape if e.net.loss == "cross_entropy" else y.shape[:-1]
        counted, divisor = counted_predictions(mask, shape, e.net.reduction, weights)
        none = e.net.reduction == "mean" and counted is not None and not counted.any()
        total = total + (0 if none else divisor)
    return 1 if e.net.reduction == "sum" else total or 1


def _started(params: Params, carried: Params, batch: Batch) -> Params:
    """The parameters with the states at which the batch's rows, perhaps fewer, start."""
    B = batch.x.shape[1]
    return {**params, **{name: value[..., :B, :] for name, value in carried.items()}}


def rounding(experiment: Experiment, run: Run) -> float | None:
    """The distance of a run after STEPS steps from a twin whose parameters are all rounded before
    every step: the largest ``||p - q|| / ||p||`` of a parameter. None if training diverges before.

    >>> from refnet.training.config import Config
    >>> from refnet.training.experiment import build
    >>> experiment = build(Config("copy", length=20, hidden=4, rate=1e-3, backend="reference"))
    >>> run, _ = Run.start(experiment)
    >>> 0 < rounding(experiment, run) < 1e-3
    True
    """
    rng, twin = np.random.default_rng(run.iteration), run
    for _ in range(STEPS):
        batch = batch_of(experiment, run)
        rounded = {
            name: value
            + value
            * np.finfo(value.dtype).eps
            * rng.choice(np.array([-1, 1], value.dtype), value.shape)
            for name, value in twin.params.items()
        }
        try:
            run = step(experiment, run, batch)[0]
            twin = step(experiment, replace(twin, params=rounded), batch)[0]
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


def outputs(experiment: Experiment, params: Params, batches: Iterator[Batch]) -> Record:
    """The task's metrics of the net's outputs on these batches.

    >>> from refnet.training.config import Config
    >>> from refnet.training.experiment import build
    >>> experiment = build(Config("copy:samples=50", length=20, hidden=4, backend="reference"))
    >>> run, _ = Run.start(experiment)
    >>> sorted(outputs(experiment, run.params, iter([batch_of(experiment, run)])))
    ['accuracy', 'cross_entropy', 'errors']
    """
    net, params = experiment.assembled(params)
    carried: Params = {}
    scores = []
    for batch in map(experiment.counted, batches):
        started = _started(params, carried, batch)
        result, tape = net.forward(started, batch.x, batch.mask, copy=False)
        carried = tape.final if experiment.carries else {}
        del tape  # before the next one is made
        scores.append(experiment.task.score(result, batch))
    totals = {name: sum(score[name] for score in scores) for name in scores[0]}
    return dict(experiment.task.metrics(totals))


def evaluate(experiment: Experiment, run: Run, norm: float) -> Record:
    """A row: the metrics on the evaluation set, and the state of the hidden matrices.

    Raises NotFiniteError if a parameter or a metric is not finite.

    >>> from refnet.training.config import Config
    >>> from refnet.training.experiment import build
    >>> experiment = build(Config("copy:samples=50", length=20, hidden=4, backend="reference"))
    >>> run, _ = Run.start(experiment)
    >>> row = evaluate(experiment, run, norm=1.0)
    >>> row["iteration"], row["gradient_norm"]
    (0, 1.0)
    """
    e, task, seed = experiment, experiment.task, experiment.config.seed
    where = f"after step {run.iteration}"
    _refuse_infinite(where, [(f"parameter {name}", value) for name, value in run.params.items()])
    split = task.splits[0]  # validation, if there is one
    steps = run.iteration - run.last_evaluation
    metrics = outputs(e, run.params, task.evaluation(run.iteration, seed, split))
    numbers = [(f"the {split} set's {name}", np.asarray(x)) for name, x in metrics.items()]
    _refuse_infinite(where, [(name, x) for name, x in numbers if x.dtype.kind == "f"])
    matrices = e.matrices_of(run.params, e.hidden)
    square = [W for W in matrices.values() if W.shape[0] == W.shape[1]]
    radii: list[float] = []

    def measure(W: Array) -> None:
        radii.append(spectral_radius(W))

    in_threads(measure, square)
    row = {
        "iteration": run.iteration,
        "loss": run.loss_sum / steps if steps else None,
        **metrics,
        "spectral_radius": max(radii, default=None),
        "defect": max((float(defect(W)) for W in matrices.values()), default=None),
        "gradient_norm": norm,
        "clipped": run.clipped,
        "repaired": run.repaired,
        **e.report(run.params),
    }
    if e.config.schedule != "constant" or e.config.warmup:
        row["rate"] = e.at(run.iteration - 1, run.plateau).config.rate
    if e.config.watch:
        batches = task.evaluation(run.iteration, seed, split)
        row["watch"] = observed(e, run.params, e.counted(next(iter(batches))))
    return {**row, "seconds": round(run.seconds, 3)}


def best_row(experiment: Experiment, run: Run) -> Record:
    """The best row; with a validation split, with the test metrics at its parameters.

    >>> from refnet.training.config import Config
    >>> from refnet.training.experiment import build
    >>> experiment = build(Config("copy:samples=50", length=20, hidden=4, backend="reference"))
    >>> run, _ = Run.start(experiment)
    >>> best_row(experiment, run)  # before the first evaluation
    {}
    """
    if not {"validation", "test"} <= {*experiment.task.splits} or not run.best:
        return run.best
    batches = experiment.task.evaluation(0, experiment.config.seed, "test")
    tested = outputs(experiment, run.best_params, batches)
    return {**run.best, **{f"test_{name}": value for name, value in tested.items()}}
