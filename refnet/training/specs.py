"""The settings of a run that have options, and the names and options that each takes.

Checked by: tests/training/test_config.py::test_options_have_types.
"""

from functools import partial
from typing import Any

from refnet import tasks
from refnet.cells import CELLS
from refnet.common.arguments import choice
from refnet.common.specs import Kind, Option, field_options, read, signature_options
from refnet.maths.activations import SPEC as ACTIVATION
from refnet.matrices.initializers import SPEC as INITIALIZER
from refnet.matrices.transitions import SPEC as TRANSITION
from refnet.runs.read import Record
from refnet.training.optimizers import OPTIMIZERS, RMSprop
from refnet.training.schedules import SCHEDULES


def _optimizer(entry: type) -> dict[str, Option]:
    options = field_options(entry, ("rate", "rates", "skip"))
    return {**options, "form": Option((str,), None)} if entry is RMSprop else options


def _cell(entry: Any) -> dict[str, Option]:
    return signature_options(entry.init, 1)


KINDS: dict[str, Kind] = {
    "task": Kind(tasks.TASKS, partial(field_options, without=("path", "dtype", "order"))),
    "cell": Kind(CELLS, _cell),
    "activation": ACTIVATION,
    "transition": TRANSITION,
    "weights": INITIALIZER,
    "input_weights": INITIALIZER,
    "recurrent": INITIALIZER,
    "gate_recurrent": INITIALIZER,
    "optimizer": Kind(OPTIMIZERS, _optimizer),
    "schedule": Kind(SCHEDULES, field_options),
}
"""Setting -> what its specs stand for."""


def options_of(setting: str, name: str) -> dict[str, Option]:
    """The options of a name. Raises ValueError if the setting knows no such name.

    >>> options_of("weights", "gaussian")
    {'sd': Option(types=(<class 'float'>,), default=0.1)}
    """
    choice(setting, name, KINDS[setting].names)
    return KINDS[setting].options(name)


def read_spec(setting: str, text: str) -> tuple[str, Record]:
    """A setting's spec as name and options, each of its own type; errors as of ``specs.read``.

    >>> read_spec("transition", "svd:margin=0.1")
    ('svd', {'margin': 0.1})
    """
    return read(setting, KINDS[setting], text)
