"""How a setting is declared: its range or choices, where it applies, and what it means."""

from collections.abc import Callable
from dataclasses import field
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from refnet.common.specs import parse_spec

Settings: TypeAlias = Any
"""A ``Config``, whose fields are declared here."""


class Where(NamedTuple):
    """The runs that a setting applies to: in words; the ``setting`` that decides; and the values of
    it for which it applies, or a test of the configuration."""

    text: str
    setting: str
    rule: tuple[str, ...] | Callable[[Settings], bool]

    def holds(self, config: Settings) -> bool:
        """Whether it applies to the run."""
        if callable(self.rule):
            return self.rule(config)
        return getattr(config, self.setting) in self.rule


class Declaration(NamedTuple):
    """What is declared of a setting beside its name, type and default.

    ``least``: the smallest value allowed; ``above`` and ``below``: what the value must exceed,
    and stay under. Numbers are finite. ``choices``: the values allowed, if they are few.
    ``where``: None, it applies to all.
    """

    help: str
    least: float | None = None
    above: float | None = None
    choices: tuple[str, ...] = ()
    where: Where | None = None
    below: float | None = None

    @property
    def text(self) -> str:
        """Meaning, choices, range and place of application, as the command line's help."""
        text = self.help
        if self.choices:
            text += f": {', '.join(self.choices)}"
        if self.least is not None:
            text += f"; at least {self.least:g}"
        if self.above is not None:
            text += f"; above {self.above:g}"
        if self.below is not None:
            text += f"; below {self.below:g}"
        return text + (f" [{self.where.text}]" if self.where else "")


def _has(option: str, config: Settings) -> bool:
    """Whether the task has the option; one that is not known is refused elsewhere."""
    from refnet import tasks

    name = _name(config.task)
    return name not in tasks.TASKS or option in tasks.options(name)


def _gated(config: Settings) -> bool:
    from refnet.cells import CELLS

    name = _name(config.cell)
    return config.net == "recurrent" and (name not in CELLS or len(CELLS[name].GATES) > 1)


def _on_manifold(config: Settings) -> bool:
    from refnet.matrices.transitions import TRANSITIONS
    from refnet.matrices.transitions.manifold import Manifold

    name = _name(config.transition)
    return name in TRANSITIONS and issubclass(TRANSITIONS[name], Manifold)


def _name(spec: str) -> str:
    return parse_spec(spec)[0]


RECURRENT = Where("recurrent nets", "net", ("recurrent",))
FEEDFORWARD = Where("feedforward nets", "net", ("feedforward",))
GATED = Where("cells with gates", "cell", _gated)
PRETRAINED = Where("method oinit", "method", ("oinit", "oinit+open"))
PENALISED = Where("method open", "method", ("open", "oinit+open"))
ORTHOGONALISED = Where("methods oinit and open", "method", ("oinit", "open", "oinit+open"))
ON_MANIFOLD = Where(
    "transitions orthogonal, product, schur, svd and unitary", "transition", _on_manifold
)
CLIPPED = Where("clipping", "clip", ("norm", "value", "step"))
GENERATED = Where("generated tasks", "task", partial(_has, "length"))
FROM_FILES = Where("tasks from files", "task", partial(_has, "order"))
TEXTS = Where("texts", "task", partial(_has, "carry"))


def setting(default: Any, text: str, **rest: Any) -> Any:
    """A field of Config with its declaration: ``text`` and ``rest`` as of Declaration.

    >>> setting(0.1, "learning rate", above=0).metadata["help"]
    'learning rate; above 0'
    """
    declared = Declaration(text, **rest)
    return field(default=default, metadata={"declaration": declared, "help": declared.text})
