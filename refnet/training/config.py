"""One training run's configuration: every setting declared once.

A declaration gives a setting's name, type and default, its range or choices, where it applies
and what it means (refnet.training.declaration). The command line's flags and help, TOML files and
all checks follow from it.
A setting with options is a *spec*, such as ``svd:margin=0.1`` (refnet.training.specs).
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from sys import float_info
from typing import Any

from refnet.common.arguments import SEED, SIZE, choice, short
from refnet.common.names import absolute
from refnet.matrices.orthogonality import FORMS, PENALTIES
from refnet.nets.backends import BACKENDS
from refnet.runs.read import Record
from refnet.training.declaration import (
    CLIPPED,
    FEEDFORWARD,
    FROM_FILES,
    GATED,
    GENERATED,
    ON_MANIFOLD,
    ORTHOGONALISED,
    PENALISED,
    PRETRAINED,
    RECURRENT,
    TEXTS,
    Declaration,
    Where,
    setting,
)

OWN = tuple(
    (
        "task protocol seed dtype backend checkpoint watch schedule warmup class_weights "
        "smoothing ignore dropout_inputs dropout_layers dropout_state zoneout noise_inputs "
        "noise_state patience carry accumulate l1 norm_stabilizer vanishing"
    ).split()
)
"""The settings that are the user's. All others follow a protocol, so that every value comes from a
paper's text or a released code."""


@dataclass(frozen=True)
class Config:
    """All that a run depends on; the same configuration gives the same bits.

    A setting that takes a name takes ``FILE.py:NAME`` and ``package.module:NAME`` too. The path of
    a file becomes absolute.

    >>> Config("copy", length=200, transition="svd:margin=0.1").hidden
    100

    Checked by: tests/training/test_config.py.
    """

    task: str = setting("temporal-order", "the task, with its options as a spec")
    protocol: str = setting(
        "",
        "the protocol that supplies the settings not given, such as "
        "vorontsov/text; each task has a default protocol",
    )
    length: int = setting(
        0, "sequence length T; 0 means the task's default", least=0, where=GENERATED
    )
    order: str = setting(
        "shuffled",
        "order of the training examples (shuffled in every epoch, in "
        "ptb with lines of similar length together, or mixed; as in "
        "the file; every batch drawn anew)",
        choices=("shuffled", "file", "drawn", "mixed"),
        where=FROM_FILES,
    )
    net: str = setting("recurrent", "kind of net", choices=("recurrent", "feedforward"))
    cell: str = setting(
        "rnn",
        "recurrent cell: rnn, gru, gru_before, lstm or cifg, such as lstm:peepholes=true,forget=1",
        where=RECURRENT,
    )
    hidden: int = setting(100, "units in a hidden layer", least=1)
    layers: int = setting(1, "stacked recurrent layers", least=1, where=RECURRENT)
    bidirectional: bool = setting(
        False, "run every recurrent layer in both directions", where=RECURRENT
    )
    depth: int = setting(10, "hidden layers", least=1, where=FEEDFORWARD)
    activation: str = setting(
        "tanh",
        "activation, such as tanh, relu, leaky_relu:alpha=0.5, prelu:start=0.7 or modrelu_pairs",
    )
    embedding: int = setting(
        0,
        "rows of a matrix that the inputs pass through first; 0 for none, or of symbols for as "
        "many as there are, at most 64",
        least=0,
        where=RECURRENT,
    )
    gain: float = setting(1.0, "factor on the pre-activation", where=RECURRENT)
    learn_h0: bool = setting(False, "train the initial state", where=RECURRENT)
    transition: str = setting(
        "dense",
        "the transition that makes up the recurrent or hidden matrices: dense, "
        "or another one such as svd:margin=0.1, urnn or unitary",
    )
    weights: str = setting(
        "glorot_uniform", "initializer of every matrix, such as gaussian:sd=0.001"
    )
    input_weights: str = setting("", "initializer of the input matrix (empty: as weights)")
    recurrent: str = setting(
        "", "initializer of the recurrent matrix, or of the square hidden ones (empty: as weights)"
    )
    gate_recurrent: str = setting(
        "",
        "initializer of the gates' recurrent matrices, such as ramp (empty: as recurrent)",
        where=GATED,
    )
    reduction: str = setting(
        "mean",
        "how the losses of all predictions combine "
        "(batch_mean: their sum over a sequence, averaged over the "
        "sequences)",
        choices=("mean", "batch_mean", "sum"),
    )
    method: str = setting(
        "plain",
        "oinit is orthogonal pre-training, open an orthogonality penalty",
        choices=("plain", "oinit", "open", "oinit+open"),
    )
    orthogonal: str = setting(
        "hidden",
        "the matrices that oinit and open act on (hidden: "
        "recurrent or hidden layers'; all-at-start: oinit on "
        "all, open on the hidden ones)",
        choices=("hidden", "all", "all-at-start"),
        where=ORTHOGONALISED,
    )
    oinit_rate: float = setting(
        0.1, "step size of the orthogonal pre-training", above=0, where=PRETRAINED
    )
    oinit_form: str = setting(
        "squared",
        "form of the defect that the pre-training descends",
        choices=FORMS,
        where=PRETRAINED,
    )
    oinit_gradient: float = setting(
        0.0,
        "norm of the defect's gradient below which the pre-training stops (0: no such criterion)",
        least=0,
        where=PRETRAINED,
    )
    oinit_cost: float = setting(
        1e-6, "defect below which the pre-training stops", least=0, where=PRETRAINED
    )
    oinit_steps: int = setting(
        100, "steps after which the pre-training stops", least=1, where=PRETRAINED
    )
    strength: float = setting(0.01, "lambda of the orthogonality penalty", least=0, where=PENALISED)
    open_form: str = setting(
        "squared",
        "form of the penalty: of ||W W' - I||, or of both sides (double soft orthogonality), or an "
        "estimate of its spectral norm (spectral restricted isometry)",
        choices=PENALTIES,
        where=PENALISED,
    )
    open_as: str = setting(
        "penalty",
        "a term of the loss, or a separate step beside the optimizer's",
        choices=("penalty", "update"),
        where=PENALISED,
    )
    optimizer: str = setting(
        "sgd",
        "optimizer: sgd, momentum, nesterov, rmsprop, adam, adamw or adadelta, such as "
        "momentum:momentum=0.9 (adadelta's usual rate is 1)",
    )
    rate: float = setting(0.01, "learning rate", least=0)
    manifold_rate: float = setting(
        1e-6, "learning rate of the parts that move on a manifold", least=0, where=ON_MANIFOLD
    )
    weight_decay: float = setting(0.0, "coefficient of the sum of squares of every matrix", least=0)
    l1: float = setting(0.0, "coefficient of the sum of the magnitudes of every matrix", least=0)
    norm_stabilizer: float = setting(
        0.0,
        "coefficient of the mean square by which the state's norm changes in a step (one layer, "
        "in one direction)",
        least=0,
        where=RECURRENT,
    )
    vanishing: float = setting(
        0.0,
        "coefficient of Pascanu et al.'s penalty of gradients that shrink or grow from step to "
        "step (cell rnn, one layer, in one direction, without noise)",
        least=0,
        where=RECURRENT,
    )
    clip: str = setting(
        "none",
        "gradient clipping: by the common norm, by value, or by value at "
        "each step of the recursion",
        choices=("none", "norm", "value", "step"),
    )
    clip_at: float = setting(1.0, "the bound of the clipping", above=0, where=CLIPPED)
    batch: int = setting(20, "sequences or images in a batch", least=1)
    iterations: int = setting(100_000, "largest number of training batches", least=1)
    evaluate_every: int = setting(100, "batches between evaluations", least=1)
    seed: int = setting(0, "seed of all random numbers", least=0)
    dtype: str = setting("float32", "floating-point type", choices=("float32", "float64"))
    backend: str = setting(
        "auto",
        "Numba's kernels or plain NumPy; auto: the kernels where there are some for the net",
        choices=BACKENDS,
    )
    checkpoint: str = setting(
        "none",
        "gradient checkpointing; with sqrt, memory grows with the "
        "square root of the sequence length, and each step except "
        "those of the last segment runs forward twice",
        choices=("none", "sqrt"),
        where=RECURRENT,
    )
    watch: bool = setting(
        False,
        "record singular values, departure from normality and gradient "
        "norms of every matrix, and the gradient's flow through time, "
        "at every evaluation",
    )
    schedule: str = setting(
        "constant",
        "what the learning rates are multiplied by: constant, step:every=1000,by=0.1, "
        "cosine:steps=10000 (down to 0, or to least) or plateau:patience=5,by=0.5 (evaluations "
        "without a better one)",
    )
    warmup: int = setting(
        0, "steps in which the learning rates rise in proportion, before the schedule", least=0
    )
    class_weights: str = setting(
        "",
        "factors of the training loss by class, such as 1,2.5,1, or balanced, for your own data: "
        "the rarer a class, the larger (empty: all alike)",
    )
    smoothing: float = setting(
        0.0, "label smoothing of the training loss, for classes", least=0, below=1
    )
    ignore: str = setting(
        "", "a label, such as -100, whose predictions count nowhere (empty: none)"
    )
    dropout_inputs: float = setting(
        0.0,
        "share of the inputs that training sets to 0, the same ones at every step of a sequence",
        least=0,
        below=1,
    )
    dropout_layers: float = setting(
        0.0,
        "share of a layer's units that the layer above, or the read-out, does not see in training, "
        "the same ones at every step of a sequence (of feedforward nets on backend reference)",
        least=0,
        below=1,
    )
    dropout_state: float = setting(
        0.0,
        "share of the state's units that its products with the recurrent matrix do not see in "
        "training, the same ones at every step of a sequence",
        least=0,
        below=1,
        where=RECURRENT,
    )
    zoneout: float = setting(
        0.0,
        "share of the state's units that keep their old value in a step of training; in "
        "evaluations every new state has that share of the old one",
        least=0,
        below=1,
        where=RECURRENT,
    )
    noise_inputs: float = setting(
        0.0, "standard deviation of Gaussian noise on the inputs in training", least=0
    )
    noise_state: float = setting(
        0.0,
        "standard deviation of Gaussian noise on every new state in training",
        least=0,
        where=RECURRENT,
    )
    patience: int = setting(
        0, "evaluations without a better one after which a run ends; 0: it goes on", least=0
    )
    carry: bool = setting(
        False,
        "read a text as parallel streams, as many as a batch has rows, whose pieces start at the "
        "state in which the one before ended (truncated backpropagation through time)",
        where=TEXTS,
    )
    accumulate: int = setting(
        1, "batches in a step, whose gradients add up to that of all of them together", least=1
    )

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            object.__setattr__(self, name, absolute(value))


_FIELDS = {entry.name: entry for entry in fields(Config)}


def declaration(name: str) -> Declaration:
    """The declaration of a setting. Raises ValueError if there is none.

    >>> declaration("rate").text
    'learning rate; at least 0'
    """
    if name not in _FIELDS:
        raise ValueError(f"setting {name!r} is unknown; the settings are {', '.join(_FIELDS)}")
    declared: Declaration = _FIELDS[name].metadata["declaration"]
    return declared


def applicable(config: Config) -> Record:
    """The settings that apply to this run, by name.

    >>> "cell" in applicable(Config("mnist", net="feedforward"))
    False
    """
    return {
        name: value
        for name, value in vars(config).items()
        if (where := declaration(name).where) is None or where.holds(config)
    }


def check(config: Config) -> None:
    """Raise ValueError, in one line that names the setting, for a value of the wrong type or out
    of range, or one that is not its default where the setting does not apply.

    >>> check(Config("copy", hidden=0))
    Traceback (most recent call last):
    ValueError: hidden is 0; need at least 1
    """
    values = vars(config)
    for name, value in values.items():
        check_value(name, value)
    _check_given(
        config, {name: value for name, value in values.items() if value != _FIELDS[name].default}
    )


def check_given(config: Config, given: Mapping[str, Any]) -> None:
    """``check``, and refuse a setting given that does not apply, even with its default value.

    >>> check_given(Config("copy"), {"cell": "rnn"})
    >>> check_given(Config("copy"), {"depth": 10})
    Traceback (most recent call last):
    ValueError: depth 10 would have no effect: it is for feedforward nets, and this run has net \
recurrent; leave it out
    """
    check(config)
    _check_given(config, given)


def _check_given(config: Config, given: Mapping[str, Any]) -> None:
    apply = applicable(config)
    for name, value in given.items():
        where = declaration(name).where
        if name not in apply and where is not None:
            raise ValueError(
                f"{name} {value!r} would have no effect: it is for {where.text}, and "
                f"this run has {_situation(config, where)}; leave it out"
            )


def _situation(config: Config, where: Where) -> str:
    name = "net" if where.setting == "cell" and config.net != "recurrent" else where.setting
    return f"{name} {getattr(config, name)}"


def check_value(name: str, value: Any) -> None:
    """Raise ValueError for a setting of that name that is unknown, or of another type or size.

    >>> check_value("rate", 0.1)
    """
    declared = declaration(name)
    kind = type(_FIELDS[name].default)
    if type(value) not in ((float, int) if kind is float else (kind,)):
        raise ValueError(f"{name} is {value!r}; need a {kind.__name__}")
    if declared.choices:
        choice(name, value, declared.choices)
    if kind is float and not abs(value) <= float_info.max:
        raise ValueError(f"{name} is {short(value, str)}; need a finite number")
    if kind is int and value > (most := SEED if name == "seed" else SIZE):
        raise ValueError(f"{name} is {short(value, str)}; need at most {most}")
    if declared.least is not None and value < declared.least:
        raise ValueError(f"{name} is {value}; need at least {declared.least:g}")
    if declared.above is not None and value <= declared.above:
        raise ValueError(f"{name} is {value}; need more than {declared.above:g}")
    if declared.below is not None and value >= declared.below:
        raise ValueError(f"{name} is {value}; need less than {declared.below:g}")
