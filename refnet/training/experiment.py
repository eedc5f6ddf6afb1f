"""From a configuration to the objects that train it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from refnet import tasks
from refnet.batch import Array, Batch, Params, examples
from refnet.maths.numeric import times
from refnet.matrices.initializers import glorot_uniform
from refnet.matrices.orthogonality import open_penalty, open_update, orthogonalize_params
from refnet.matrices.slots import parts, penalty as transition_penalty
from refnet.nets.base import add_gradients
from refnet.nets.gradients import Net, Penalty
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.regularizers import norm_stabilizer, vanishing_gradients
from refnet.nets.stacked import StackedNet
from refnet.runs.read import Record
from refnet.tasks.base import Task
from refnet.training.clipping import clip_by_norm, clip_by_value
from refnet.training.config import Config, check
from refnet.training.nets import INITIALIZED, check_regularizers, initializer, need_defaults, net_of
from refnet.training.optimizers import Optimizer, optimizer
from refnet.training.penalties import l1_penalty, weight_decay
from refnet.training.schedules import SCHEDULES, Schedule, factor
from refnet.training.specs import read_spec


@dataclass(frozen=True)
class Experiment:
    """A task, the net for it and the rules by which it is trained.

    ``hidden``: the recurrent or hidden layers' matrices, which rows report on. ``pretrained`` and
    ``penalised``: those that OINIT and OPEN act on, or the parts of them that a transition names
    for it. ``matrices``: all. ``class_weights``: factors of the loss by class, (C,).
    """

    config: Config
    task: Task
    net: Net
    optimizer: Optimizer
    schedule: Schedule
    hidden: tuple[str, ...]
    pretrained: tuple[str, ...]
    penalised: tuple[str, ...]
    matrices: tuple[str, ...]
    class_weights: Array | None = None

    def counted(self, batch: Batch) -> Batch:
        """The batch without the predictions of the label that is ignored."""
        if not self.config.ignore:
            return batch
        counts = batch.y != int(self.config.ignore)
        if counts.ndim == 1:
            return examples(batch, counts, False, self.config.net == "recurrent")
        return batch._replace(mask=counts if batch.mask is None else counts & batch.mask)

    def weighted(self, batch: Batch) -> Batch:
        """``counted``, with the weights of the classes."""
        batch = self.counted(batch)
        if self.class_weights is None:
            return batch
        y = batch.y
        if batch.mask is not None and y.ndim == 2:  # where it does not count, y may be anything
            y = np.where(batch.mask, y, 0)
        weights = self.class_weights[y]
        return batch._replace(weights=weights if batch.weights is None else weights * batch.weights)

    @property
    def carries(self) -> bool:
        """Whether the task's batches go on where others ended, with the state carried on."""
        return hasattr(self.task, "continues")

    def continues(self, index: int) -> bool:
        """Whether training batch number ``index`` goes on where the one before ended."""
        rule: Callable[[int, int], bool] | None = getattr(self.task, "continues", None)
        return rule is not None and rule(index, self.config.batch)

    def at(self, step: int, plateau: float = 1.0) -> "Experiment":
        """The experiment with the learning rates of a step, counted from 0: what the schedule
        makes of them, times ``plateau``, what it says of the evaluations before."""
        scale = plateau * factor(self.schedule, self.config.warmup, step)
        if scale == 1:
            return self
        config, rule = self.config, self.optimizer
        config = replace(
            config, rate=config.rate * scale, manifold_rate=config.manifold_rate * scale
        )
        return replace(self, config=config, optimizer=replace(rule, rate=config.rate))

    def matrices_of(self, params: Params, names: tuple[str, ...]) -> Params:
        """The named matrices, made from their parts."""
        matrices = self.net.matrices(params)[0]
        return {name: matrices[name] for name in names}

    def with_matrices(self, params: Params, changed: Params) -> Params:
        """The parameters with these matrices, or parts of matrices, replaced."""
        if self.net.transition is None:
            return self.net.with_matrices(params, changed)
        return {**params, **changed}

    def assembled(self, params: Params) -> tuple[Net, Params]:
        """A net and parameters with the matrices made, for many forward passes, without a tape
        unless gradient checkpointing spares more memory."""
        net = self.net
        if isinstance(net, RecurrentNet) and net.checkpoint == "none":
            net = replace(net, checkpoint="forward")
        if net.transition is None:
            return net, params
        matrices, net = net.matrices(params)[0], replace(net, transition=None)
        return net, {name: value for name, value in matrices.items() if name in net.shapes}

    def start(self) -> tuple[Params, list[Record]]:
        """Start parameters, after the orthogonal pre-training if the method has one, and its
        report, one entry a matrix."""
        config = self.config
        rng = np.random.default_rng([config.seed, 0])
        weights, recurrent, inputs, gates = (initializer(config, name) for name in INITIALIZED)
        options = (
            {"gates": gates, **read_spec("cell", config.cell)[1]}
            if config.net == "recurrent"
            else {}
        )
        with np.errstate(over="ignore"):
            params = self.net.init(
                rng, config.dtype, weights or glorot_uniform, recurrent, inputs, **options
            )
        for name, value in params.items():
            if not np.isfinite(value).all():
                raise ValueError(
                    f"the start of {name} is not finite in {config.dtype}: give an "
                    "initialiser of smaller numbers (--weights, --recurrent, "
                    "--input-weights)"
                )
        if "oinit" not in config.method:
            return params, []
        descended, report = orthogonalize_params(
            self.matrices_of(params, self.pretrained),
            rate=config.oinit_rate,
            form=config.oinit_form,
            stop_cost=config.oinit_cost,
            stop_gradient=config.oinit_gradient or None,
            max_steps=config.oinit_steps,
        )
        return self.with_matrices(params, descended), report

    @property
    def penalty(self) -> Penalty | None:
        """What is added to the loss: OPEN's term, weight decay and L1 on the matrices made, and the
        transition's own on its parts."""
        config = self.config
        opened = "open" in config.method.split("+") and config.open_as == "penalty"
        transition = self.net.transition
        sizes = ((config.weight_decay, weight_decay), (config.l1, l1_penalty))
        if not opened and not config.weight_decay and not config.l1 and transition is None:
            return None

        def penalty(p: Params) -> tuple[Any, Params]:
            value: Any = 0
            grads: Params = {}
            # of an input matrix times an embedding, the former alone
            names = [f"{name}.W" if f"{name}.E" in p else name for name in self.matrices]
            for strength, size in sizes:
                if strength:
                    more, pulled = size({name: p[name] for name in names}, strength)
                    value, grads = value + more, add_gradients(grads, pulled)
            if opened:
                more, pulled = open_penalty(
                    {name: p[name] for name in self.penalised}, config.strength, config.open_form
                )
                value, grads = np.asarray(value + more), add_gradients(grads, pulled)
            if transition is not None:
                more, pulled = transition_penalty(transition, p, self.net.slots)
                value, grads = value + more, grads | pulled
            return value, grads

        return penalty

    def penalty_on(self, net: Net, params: Params, batch: Batch) -> Penalty | None:
        """``penalty``, with the terms of what the net does on that batch."""
        config = self.config
        terms = [
            (strength, *term(net, params, batch))
            for strength, term in (
                (config.norm_stabilizer, norm_stabilizer),
                (config.vanishing, vanishing_gradients),
            )
            if strength and isinstance(net, RecurrentNet)
        ]
        usual = self.penalty
        if not terms:
            return usual

        def penalty(p: Params) -> tuple[Any, Params]:
            value, grads = (0, {}) if usual is None else usual(p)
            for strength, more, pulled in terms:
                value = np.asarray(value + times(strength, more))
                scaled = {name: times(strength, g) for name, g in pulled.items()}
                grads = add_gradients(grads, scaled)
            return value, grads

        return penalty

    def clip(self, gradients: Params, params: Params) -> tuple[Params, float, int]:
        """The parameters' gradients, clipped; their norm before; how many entries changed. A start
        state that is not a parameter has a gradient too, which does not count."""
        config = self.config
        inside = int(gradients.get("clipped", 0))
        grads = {name: gradients[name] for name in params}
        by_norm = clip_by_norm(grads, config.clip_at if config.clip == "norm" else np.inf)
        norm = by_norm.norm or 0.0
        if config.clip == "value":
            by_value = clip_by_value(grads, config.clip_at)
            return by_value.grads, norm, by_value.entries
        return by_norm.grads, norm, by_norm.entries + inside

    def open_step(self, params: Params) -> Params:
        """OPEN as an update of its own; without it, the parameters as they are. It comes before the
        optimiser's step, whose direction does not depend on it, so that both use the old matrices.
        Source: Manchev & Spratling, eq. 31."""
        config = self.config
        if "open" not in config.method.split("+") or config.open_as != "update":
            return params
        changed = {
            name: open_update(W, config.rate, config.strength, config.open_form)
            for name, W in self.matrices_of(params, self.penalised).items()
        }
        return self.with_matrices(params, changed)

    def manifold_step(self, params: Params, grads: Params) -> tuple[Params, int]:
        """Move the parts that the optimiser skips along their manifold; and how many of them had
        drifted so far that they were orthogonalised again. With a rate of 0 they stay as they
        are."""
        transition = self.net.transition
        if transition is None or not self.optimizer.skip or not self.config.manifold_rate:
            return params, 0
        changed = transition.retract(params, grads, self.optimizer.skip, self.config.manifold_rate)
        return {**params, **changed.params}, len(changed.repaired)

    def report(self, params: Params) -> dict[str, float]:
        """The parameters that are one number, such as PReLU's slope, and what the transition says
        of its parts, slot by slot."""
        transition, slots = self.net.transition, self.net.slots
        scalars = {name: float(value) for name, value in params.items() if value.shape == ()}
        if transition is None:
            return scalars
        return scalars | {
            name if len(slots) == 1 else f"{slot} {name}": value
            for slot in slots
            for name, value in transition.report(parts(params, slot)).items()
        }


def _class_weights(config: Config, task: Task) -> Array | None:
    """The factors of the classes, or None if there are none. "balanced": in inverse proportion to
    how often a class is in the training part, with the mean 1 over it."""
    if not config.class_weights:
        return None
    counts = getattr(task, "counts", None)
    if config.class_weights == "balanced" and counts is not None:
        if config.ignore and 0 <= int(config.ignore) < len(counts):
            counts[int(config.ignore)] = 0
        weights = counts.sum() / (np.count_nonzero(counts) * np.maximum(counts, 1))
    else:
        try:
            weights = np.array([float(word) for word in config.class_weights.split(",")])
        except ValueError:
            weights = np.zeros(0)
    right = np.isfinite(weights) & (weights >= 0)
    if len(weights) != task.outputs or not right.all() or not weights.any():
        raise ValueError(
            f"class_weights is {config.class_weights!r}; need {task.outputs} numbers with "
            f"commas between them, one for each class of task {task.name}, none below 0 and not "
            "all 0, or 'balanced' for a task from your own data"
        )
    return np.asarray(weights.astype(config.dtype))


def _check_labels(config: Config, task: Task) -> None:
    """Raise ValueError for settings of labels that do not fit the task's."""
    for name in ("class_weights", "smoothing", "ignore"):
        if getattr(config, name) and task.loss != "cross_entropy":
            raise ValueError(
                f"{name} {getattr(config, name)} would have no effect: it is for classes, and task "
                f"{task.name} has the loss {task.loss}; leave it out"
            )
    if config.ignore and not config.ignore.lstrip("-").isdecimal():
        raise ValueError(f"ignore is {config.ignore!r}; need a whole number, such as -100")


def task_options(config: Config) -> tuple[str, Record]:
    """The name of a configuration's task, or the path of its file, and the options given.

    >>> task_options(Config("copy:encoding=scalar", length=50, dtype="float64"))
    ('copy', {'encoding': 'scalar', 'length': 50, 'dtype': 'float64'})
    """
    name, options = read_spec("task", config.task)
    if config.length:
        options["length"] = config.length
    if "order" in tasks.options(name):
        options["order"] = config.order
    if config.carry:
        options["carry"] = True
    return name, {**options, "dtype": config.dtype}


def build(config: Config, task: Task | None = None) -> Experiment:
    """The experiment of a configuration; ``task``: an object that takes the place of the one that
    ``config.task`` names.

    Raises ValueError, naming the setting, for values that are unknown or do not fit together.

    >>> experiment = build(Config("copy", length=50, hidden=8, backend="reference"))
    >>> params, _ = experiment.start()
    >>> params["Whh"].shape
    (8, 8)
    """
    check(config)
    for setting in INITIALIZED:
        draw = initializer(config, setting)
        if draw is not None:
            draw((2, 2), np.random.default_rng(0))  # checks the options' ranges
    if task is None:
        name, options = task_options(config)
        task = tasks.make_task(name, **options)
    _check_labels(config, task)
    check_regularizers(config)
    if hasattr(task, "continues"):
        reason = (
            f"carry, because every piece of task {task.name} starts at the state in which the one "
            "before ended"
        )
        need_defaults(config, ("net", "bidirectional", "learn_h0", "order", "ignore"), reason)
    net = net_of(config, task)
    if isinstance(net, RecurrentNet):
        hidden: tuple[str, ...] = net.slots
        suffixes = tuple(net.every_cell) if isinstance(net, StackedNet) else ("",)
        ends: tuple[str, ...] = (*(f"Wxh{suffix}" for suffix in suffixes), "Why")
    else:
        hidden = tuple(f"W{layer}" for layer in range(1, net.depth + 1))
        ends = (f"W{net.depth + 1}",)
    chosen, arguments = read_spec("optimizer", config.optimizer)
    rule = optimizer(chosen, config.rate, **arguments)
    scheduled, timing = read_spec("schedule", config.schedule)
    if net.transition is not None:
        rule = replace(
            rule,
            skip=tuple(f"{slot}.{part}" for slot in net.slots for part in net.transition.manifold),
            rates={
                f"{slot}.{part}": factor
                for slot in net.slots
                for part, factor in net.transition.rates.items()
            },
        )
    part = None if net.transition is None else net.transition.orthogonalised
    inner = (
        hidden
        if part is None
        else tuple(f"{name}.{part}" if name in net.slots else name for name in hidden)
    )
    return Experiment(
        config,
        task,
        net,
        rule,
        SCHEDULES[scheduled](**timing),
        hidden,
        inner if config.orthogonal == "hidden" else inner + ends,
        inner + ends if config.orthogonal == "all" else inner,
        hidden + ends,
        _class_weights(config, task),
    )
