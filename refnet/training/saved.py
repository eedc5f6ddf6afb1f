"""A net and its parameters in one file: an npz archive with the net's description as JSON text."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from refnet.batch import Params
from refnet.common.arguments import PATH, admit, short, takes
from refnet.common.names import name_of
from refnet.common.specs import format_spec
from refnet.maths.activations import Activation, activation
from refnet.matrices.transitions import TRANSITIONS
from refnet.nets.backends import changed
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.gradients import NET, Net
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet
from refnet.runs import checkpoint
from refnet.runs.checkpoint import Checkpoint, CheckpointError
from refnet.runs.read import Record
from refnet.training.code import admit as admit_code, remember

CLASSES: dict[str, type[Any]] = {
    each.__name__: each for each in (RecurrentNet, StackedNet, FeedforwardNet)
}
REPAIR = "need a file that refnet.save wrote, or the folder of a run"


class SavedNet(NamedTuple):
    """What ``save`` wrote: ``net`` and ``params``."""

    net: Net
    params: Params

    def __repr__(self) -> str:
        shapes = (f"{name} {value.shape}" for name, value in self.params.items())
        return f"SavedNet(net={self.net}, params={', '.join(shapes)})"


def _described(value: Any) -> Any:
    """A field of a net as JSON: an activation or a transition as its spec."""
    if isinstance(value, Activation):
        usual = activation(value.name)
        options: Record = {"alpha": value.alpha} if value.alpha != usual.alpha else {}
        if value.start != usual.start:
            options["start"] = value.start[0][2]
        return format_spec(value.name, options)
    if hasattr(value, "pull_back"):
        names = (name for name, known in TRANSITIONS.items() if known is type(value))
        name = next(names, name_of(type(value)))
        return format_spec(name, changed(value))
    return value


def _net_of(record: Record) -> Net:
    settings = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in record["fields"].items()
    }
    net: Net = CLASSES[record["class"]](**settings)
    return net


@takes(path=PATH, net=NET)
def save(path: Path | str, net: Net, params: Params) -> None:
    """Write a net and its parameters, of any float dtype, to one file, conventionally ``NAME.npz``.

    NumPy reads the arrays in any program (``params/Whh``, ...); nothing is pickled, and the file
    has a digest of all that it holds. Raises ValueError for parameters that are not the net's and
    for a net with parts that have no name, such as an activation of your own that is in no file.

    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from refnet import RecurrentNet, load
    >>> net = RecurrentNet(inputs=2, hidden=4, outputs=3, cell="lstm")
    >>> params = net.init(np.random.default_rng(0))
    >>> with TemporaryDirectory() as folder:
    ...     save(f"{folder}/net.npz", net, params)
    ...     again = load(f"{folder}/net.npz")
    >>> again.net == net, bool((again.params["Whh"] == params["Whh"]).all())
    (True, True)

    Checked by: tests/training/test_saved_nets.py.
    """
    admit("save", params, net.shapes, {}, net.reason, net.required)
    try:
        record = {
            "class": type(net).__name__,
            "fields": {entry.name: _described(getattr(net, entry.name)) for entry in fields(net)},
        }
        same = _net_of(json.loads(json.dumps(record, allow_nan=False))) == net
    except (TypeError, ValueError):
        same = False
    if not same:
        raise ValueError(
            f"save: {short(net)} has a part without a name, or an option of its own type; need "
            "activations and transitions that refnet knows by name or as FILE.py:NAME"
        )
    saved = Checkpoint({"params": params}, {"iteration": 0}, {"net": record})
    checkpoint.save(Path(path), saved, {})
    remember(vars(net))


def load_net(path: Path, trust: bool = False) -> SavedNet:
    """What ``save`` wrote to a file; ``trust`` as for ``load``. Raises CheckpointError for a file
    that is damaged or foreign.

    >>> load_net(Path("nowhere.npz"))
    Traceback (most recent call last):
    refnet.runs.checkpoint.CheckpointError: nowhere.npz: there is no checkpoint here; need a file \
that refnet.save wrote, or the folder of a run

    Checked by: tests/training/test_saved_nets.py.
    """
    saved = checkpoint.load(path, {}, REPAIR)
    match saved.record:
        case {"net": {"fields": dict(settings)}}:
            admit_code(settings, path, trust)
    try:
        net, params = _net_of(saved.record["net"]), saved.groups["params"]
        admit("load", params, net.shapes, {}, net.reason, net.required)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{path}: describes no net ({type(error).__name__}: {error}); {REPAIR}"
        ) from None
    return SavedNet(net, params)
