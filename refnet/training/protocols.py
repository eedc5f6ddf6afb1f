"""The configuration of a run: its settings, and those of its protocol for what is not given.

Checked by: tests/training/test_protocols.py, tests/training/test_config.py.
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from refnet.common.arguments import choice
from refnet.common.specs import format_spec, merge_specs, parse_spec
from refnet.runs.read import Record
from refnet.tasks import TASKS, Task
from refnet.tasks.arrays import Arrays
from refnet.training.config import Config, applicable, check_given, check_value
from refnet.training.papers import DEFAULTS, PATIENCE, PROTOCOLS, UNSET, Rule
from refnet.training.specs import KINDS, options_of

__all__ = ["configure", "configure_task", "preset", "settings_of"]


def _facts(settings: Mapping[str, Any]) -> dict[str, str]:
    """What rules ask for: settings' names without their options, and the options of the task and
    of the transition."""
    facts = {
        key: str(value) if key not in KINDS else parse_spec(value)[0]
        for key, value in settings.items()
    }
    for kind in ("task", "transition"):
        name, options = parse_spec(settings[kind])
        known = {option: str(entry.default) for option, entry in options_of(kind, name).items()}
        facts |= {f"{kind}:{option}": value for option, value in {**known, **options}.items()}
    return facts


def _holds(rule: Rule, facts: Mapping[str, str]) -> bool:
    return all(
        facts[key] in ((names,) if isinstance(names, str) else names)
        for key, names in rule.when.items()
    )


def settings_of(protocol: str, given: Mapping[str, Any], saved: Mapping[str, Any]) -> Record:
    """All settings of a run under a protocol: those given, then those saved, then the protocol's,
    then Config's.

    One of the first two has the task. A spec that is given takes the options that it leaves out
    from the protocol's spec of the same name: ``svd:margin=1`` keeps the protocol's
    spectrum_rate. A saved spec is complete as it is.
    Raises ValueError for a protocol that is unknown, or not for this task.

    >>> settings_of("vorontsov/text", {"task": "copy"}, {})["hidden"]
    128
    """
    choice("protocol", protocol, PROTOCOLS)
    tasks, rules = PROTOCOLS[protocol]
    task = parse_spec({**saved, **given}["task"])[0]
    if tasks and task not in tasks:
        fitting = [name for name, (known, _) in PROTOCOLS.items() if not known or task in known]
        raise ValueError(
            f"protocol {protocol} has no task {task}: its tasks are "
            f"{', '.join(tasks)}; for {task} choose {' or '.join(fitting)}"
        )
    printed: Record = {}
    settings = UNSET | dict(saved) | dict(given)
    facts = _facts(settings)
    for rule in rules:
        if not _holds(rule, facts):
            continue
        for name, value in rule.settings.items():
            if name == "task":
                value = parse_spec(printed.get("task", task))[1] | value
                value = f"{task}:" + ",".join(f"{k}={v}" for k, v in value.items())
            printed[name] = value(settings) if callable(value) else value
        settings = UNSET | printed | dict(saved) | _merged(printed | dict(saved), given)
        facts = _facts(settings)
    return settings


def _merged(base: Mapping[str, Any], given: Mapping[str, Any]) -> Record:
    """The settings given, each spec with the options that it leaves out taken from the base's."""
    return {
        name: merge_specs(base[name], value)
        if name in KINDS and base.get(name) and value
        else value
        for name, value in given.items()
    }


def configure(given: Mapping[str, Any], saved: Mapping[str, Any] | None = None) -> Config:
    """The configuration of a run from the settings given, the task among them.

    ``saved``: settings from a file; one that applies to the run there and no longer to this one
    is left out. The rest comes from the protocol named, or from the task's own; what
    does not apply to the run keeps Config's default.
    Raises ValueError, in one line, for settings that are unknown, out of range or, if given,
    without effect.

    >>> configure({"task": "copy", "transition": "svd:margin=0.1"}).transition
    'svd:margin=0.1,spectrum_rate=printed'
    """
    saved = saved or {}
    chosen = {**saved, **given}
    for name, value in chosen.items():
        check_value(name, value)
    if not chosen.get("task"):
        raise ValueError("no task is given; name one, such as configure({'task': 'copy'})")
    task = parse_spec(chosen["task"])[0]
    options_of("task", task)
    protocol = chosen.get("protocol") or DEFAULTS.get(task, "refnet/default")
    settings = settings_of(protocol, given, saved) | {"protocol": protocol}
    if "length" in (task_options := parse_spec(chosen["task"])[1]):
        if chosen.get("length"):
            raise ValueError(
                f"length is {chosen['length']}, and the task's own is "
                f"{task_options['length']}; give one of them"
            )
        settings["length"] = 0  # not the protocol's
    apply = applicable(Config(**settings))
    if (
        saved
        and given.get("protocol", saved.get("protocol")) != saved.get("protocol")
        and applicable(Config(**saved)).keys() <= saved.keys()
    ):
        raise ValueError(
            f"protocol {protocol} would have no effect: the file has every setting; "
            "remove from it those that the protocol is to give"
        )
    # of what is saved for a run that other settings given have made another one, the rest is void
    void = applicable(Config(**saved)).keys() - given.keys() - apply.keys()
    config = Config(
        **{
            name: value
            for name, value in settings.items()
            if name in apply or name in chosen.keys() - void
        }
    )
    check_given(config, given)
    return config


def configure_task(task: Task, settings: Mapping[str, Any]) -> Config:
    """The configuration for a task object: one of ``refnet.tasks`` as its spec, which a run folder
    can keep; any other by its name alone, with the settings of ``refnet/default``.

    >>> from refnet.tasks import make_task
    >>> configure_task(make_task("temporal-order", length=50), {"hidden": 8}).task
    'temporal-order:length=50,samples=10000'
    """
    if TASKS.get(task.name) is type(task):
        values: Any = task
        # all of them, for a protocol has defaults of its own
        options = {entry.name: getattr(task, entry.name) for entry in fields(values)}
        dtype = options.pop("dtype", "float32")
        given = {"order": options.pop("order")} if "order" in options else {}
        spec = format_spec(task.name, options)
        return configure({"task": spec, "dtype": dtype, **given, **settings})
    for name in ("task", "protocol", "length", "order", "carry"):
        if name in settings:
            said = f"{name} {settings[name]!r}"
            raise ValueError(f"{said} would have no effect: the task is an object; leave it out")
    flat = task.readout == "none"
    usual: Record = {"task": "mnist", "net": "feedforward"} if flat else {"task": "adding"}
    usual |= {"patience": PATIENCE} if isinstance(task, Arrays) else {}
    usual |= {"protocol": "refnet/default", "dtype": getattr(task, "dtype", "float32")}
    return replace(configure({**usual, **settings}), task=task.name, length=0)


def preset(task: str, **given: Any) -> Config:
    """``configure`` with the task, which may be a spec, and further settings by name.

    >>> preset("temporal-order", length=60, method="oinit").optimizer
    'rmsprop:form=lasagne'
    """
    return configure({"task": task, **given})
