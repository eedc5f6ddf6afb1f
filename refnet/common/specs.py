"""Specs: a name with options, ``name`` or ``name:key=value,key=value``. A name is that of a table's
entry, or a reference to one of your own (``refnet.common.names``).

The options of a name, their types and their defaults come from the function or class that it
stands for, so specs need no second declaration to be checked.
Checked by: tests/training/test_config.py.
"""

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from sys import float_info
from typing import Any, NamedTuple

from refnet.common.arguments import choice
from refnet.common.names import reference


class Option(NamedTuple):
    """An option of a name: its types (a value is read as the first that it fits), its default."""

    types: tuple[type, ...]
    default: Any


def _types(annotation: Any) -> tuple[type, ...]:
    """The simple types of an annotation, bool, int, float and str, in the order of reading."""
    named = typing.get_args(annotation) or (annotation,)
    # Number, a union of number types, is written as a float
    number = () if {bool, int, str} & set(named) else (float,)
    return tuple(kind for kind in (bool, int, float, str) if kind in (*named, *number))


_hints = cache(typing.get_type_hints)  # read thousands of times for a table of runs


def signature_options(function: Callable[..., Any], given: int) -> dict[str, Option]:
    """The options of a function after its first ``given`` arguments."""
    hints = _hints(function)
    return {
        name: Option(_types(hints[name]), parameter.default)
        for name, parameter in list(inspect.signature(function).parameters.items())[given:]
    }


def field_options(owner: type, without: tuple[str, ...] = ()) -> dict[str, Option]:
    """The options of a dataclass."""
    assert is_dataclass(owner)
    hints = _hints(owner)
    return {
        entry.name: Option(_types(hints[entry.name]), entry.default)
        for entry in fields(owner)
        if entry.name not in without
    }


class Kind(NamedTuple):
    """What a setting's specs stand for: the entries by name, and what gives the options of one."""

    names: Mapping[str, Any]
    options_of: Callable[[Any], dict[str, Option]]

    def options(self, name: str) -> dict[str, Option]:
        return self.options_of(self.names[name])


def parse_spec(text: str) -> tuple[str, dict[str, str]]:
    """``"svd:margin=0.1"`` as ``("svd", {"margin": "0.1"})``, nothing checked but the form.

    Raises ValueError for what is not key=value, or a key given twice.

    >>> parse_spec("svd:margin=0.1")
    ('svd', {'margin': '0.1'})
    """
    home = reference(text)
    name = ":".join(home) if home else text.partition(":")[0]
    rest = text[len(name) + 1 :]
    options: dict[str, str] = {}
    for item in filter(None, rest.split(",")):
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not key.isidentifier():
            raise ValueError(
                f"{text!r}: {item!r} is not key=value; write it like svd:margin=0.1,step=cayley"
            )
        if key in options:
            raise ValueError(f"{text!r}: {key} is given twice")
        options[key] = value
    return name.strip(), options


def format_spec(name: str, options: Mapping[str, Any]) -> str:
    """The text that ``parse_spec`` takes apart.

    >>> format_spec("svd", {"margin": 0.1})
    'svd:margin=0.1'
    """
    return name + (":" if options else "") + ",".join(f"{k}={v}" for k, v in options.items())


def merge_specs(base: str, over: str) -> str:
    """``over`` with the options of ``base`` that it does not give, if the names are the same.

    >>> merge_specs("svd:margin=1,prior=0.1", "svd:margin=2")
    'svd:margin=2,prior=0.1'
    """
    name, options = parse_spec(base)
    chosen, given = parse_spec(over)
    return format_spec(chosen, {**options, **given} if chosen == name else given)


def read(setting: str, kind: Kind, text: Any) -> tuple[str, dict[str, Any]]:
    """A setting's spec as name and options, each of its own type.

    Raises ValueError, naming the setting, for an unknown name or option, or a value that does
    not read as the option's type. Ranges are checked by what the name stands for.
    """
    if not isinstance(text, str):
        choice(setting, text, kind.names)
    try:
        name, given = parse_spec(text)
    except ValueError as error:
        raise ValueError(f"{setting} {error}") from None
    choice(setting, name, kind.names)
    known = kind.options(name)
    for option in given:
        if option not in known:
            raise ValueError(
                f"{setting} {name} has no option {option!r}; "
                + (f"its options are {', '.join(known)}" if known else "it takes none")
            )
    return name, {
        option: _read(f"{setting} {name}: {option}", known[option].types, value)
        for option, value in given.items()
    }


_WORDS = {bool: "true or false", int: "a whole number", float: "a finite number", str: "a word"}
_BOOLEANS = {"true": True, "yes": True, "false": False, "no": False}


def _read(where: str, types: tuple[type, ...], text: str) -> Any:
    for kind in types:
        try:
            if kind is bool:
                return _BOOLEANS[text.lower()]
            value = kind(text)
        except (KeyError, ValueError):
            continue
        if text and (kind is str or abs(value) <= float_info.max):
            return value
    raise ValueError(f"{where} is {text!r}; need {' or '.join(_WORDS[kind] for kind in types)}")
