"""The net that a configuration describes, and the initialisers of its start."""

from collections.abc import Iterable
from dataclasses import fields
from functools import partial

from refnet.maths.activations import activation
from refnet.matrices.initializers import initialize
from refnet.matrices.slots import Transition
from refnet.matrices.transitions import transition
from refnet.nets.base import Initializer
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.gradients import Net
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet
from refnet.tasks.base import Task
from refnet.training.config import Config
from refnet.training.specs import read_spec

INITIALIZED = ("weights", "recurrent", "input_weights", "gate_recurrent")
"""The settings that name an initialiser."""


def initializer(config: Config, setting: str) -> Initializer | None:
    """The initialiser that a setting names, if it names one.

    >>> initializer(Config("copy"), "recurrent") is None
    True
    """
    if not getattr(config, setting):
        return None
    name, options = read_spec(setting, getattr(config, setting))
    return partial(initialize, name, **options)


def _check_methods(config: Config, parametrization: Transition | None, embedding: int) -> None:
    """Raise ValueError for a method that the transition leaves nothing to do for."""
    if embedding and config.method != "plain" and config.orthogonal != "hidden":
        raise ValueError(
            f"orthogonal {config.orthogonal} acts on the input matrix itself, which "
            f"embedding {embedding} makes a product; use orthogonal hidden"
        )
    if (
        parametrization is None
        or config.method == "plain"
        or parametrization.orthogonalised is not None
    ):
        return
    if config.method != "open" or config.open_as != "penalty":
        raise ValueError(
            f"method {config.method} changes a matrix itself; transition "
            f"{config.transition} makes it from parts. Of the methods, plain and open "
            "as a penalty go with it"
        )


def check_regularizers(config: Config) -> None:
    """Raise ValueError for a penalty of what the net does on a batch that does not fit the rest.

    >>> check_regularizers(Config("copy", vanishing=0.1, cell="gru"))
    Traceback (most recent call last):
    ValueError: cell is 'gru'; need 'rnn' with vanishing
    """
    noise = ("zoneout", "noise_state", "dropout_layers", "dropout_state")
    layers = ("layers", "bidirectional", "accumulate")
    for name, others in (("norm_stabilizer", layers), ("vanishing", (*layers, "cell", *noise))):
        if getattr(config, name):
            need_defaults(config, others, name)


def need_defaults(config: Config, names: Iterable[str], reason: str) -> None:
    """Raise ValueError for a setting that is not its default, which ``reason`` asks for.

    >>> need_defaults(Config("copy", net="feedforward"), ["net"], "carry")
    Traceback (most recent call last):
    ValueError: net is 'feedforward'; need 'recurrent' with carry
    """
    for name in names:
        value, need = getattr(config, name), getattr(Config(), name)
        if value != need:
            raise ValueError(f"{name} is {value!r}; need {need!r} with {reason}")


def _embedding(config: Config, task: Task) -> int:
    """The rows of the embedding: of symbols, which need one, the setting's 0 means at most 64."""
    symbols = getattr(task, "symbols", 0)
    for name in ("dropout_inputs", "noise_inputs"):
        if symbols and getattr(config, name):
            raise ValueError(
                f"{name} is {getattr(config, name)}, and the inputs of task {task.name} are "
                "symbols; need features, or leave it out"
            )
    return config.embedding or min(symbols, 64)


def net_of(config: Config, task: Task) -> Net:
    """The net that the settings and the task describe. Raises ValueError where they contradict.

    >>> from refnet.tasks import make_task
    >>> net_of(Config("copy", hidden=8), make_task("copy", length=50)).hidden
    8
    """
    name, options = read_spec("activation", config.activation)
    act = activation(name, **options)
    kind, arguments = read_spec("transition", config.transition)
    parametrization = transition(kind, **arguments)
    _check_methods(config, parametrization, _embedding(config, task))
    sequences = task.readout in ("last", "every")
    if sequences != (config.net == "recurrent"):
        raise ValueError(
            f"task {task.name} yields {'sequences' if sequences else 'images'}, which "
            f"net {config.net} does not take; use --net "
            f"{'recurrent' if sequences else 'feedforward'}"
        )
    if not sequences:
        if config.clip == "step":
            raise ValueError(
                "clip step bounds gradients inside the recursion, and this run has "
                "net feedforward; use clip value or norm"
            )
        return FeedforwardNet(
            (task.inputs, *[config.hidden] * config.depth, task.outputs),
            activation=act,
            transition=parametrization,
            loss=task.loss,
            reduction=config.reduction,
            smoothing=config.smoothing,
            backend=config.backend,
        )
    net = RecurrentNet(
        task.inputs,
        config.hidden,
        task.outputs,
        activation=act,
        cell=read_spec("cell", config.cell)[0],
        transition=parametrization,
        readout=task.readout,
        loss=task.loss,
        reduction=config.reduction,
        smoothing=config.smoothing,
        zoneout=config.zoneout,
        gain=config.gain,
        learn_h0=config.learn_h0,
        clip_step=config.clip_at if config.clip == "step" else None,
        backend=config.backend,
        checkpoint=config.checkpoint,
        embedding=_embedding(config, task),
    )
    if config.layers == 1 and not config.bidirectional:
        return net
    return StackedNet(
        **{each.name: getattr(net, each.name) for each in fields(net)},
        layers=config.layers,
        bidirectional=config.bidirectional,
    )
