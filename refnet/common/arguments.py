"""Checks of arguments. A public function refuses a bad one with an error of one line that says what
arrived, what was needed and the likely repair.

``admit`` checks named arrays against declared shapes, in time proportional to their number. A
dimension is a number or a letter; the first array that has a letter fixes its size.
Checked by: tests/robustness/test_arguments.py.
"""

import sys
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from functools import partial, wraps
from inspect import signature
from math import inf
from numbers import Real
from os import PathLike
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np

from refnet.batch import Params
from refnet.common.process import serial_blas

Shape = tuple[int | str, ...]
Shapes = Mapping[str, tuple[Shape, ...]]
"""Name -> the shapes that the array of that name may have."""

SIZE, SEED = 2**48, 2**128
"""What no size, and no seed, needs to exceed."""
MAX = sys.float_info.max
NUMBERS, REAL = "fiucO", "fiuO"
"""The kinds of dtype that hold numbers. (Complex ones occur where a complex step takes a tangent.)
"""


def whole(what: str, value: object, least: int = 1, most: int = SIZE) -> int:
    """``value`` as an int from ``least`` to ``most``; TypeError for any other type."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{what} is {short(value)}; need a whole number (int)")
    if value < least:
        raise ValueError(f"{what} is {short(value, str)}; need at least {least}")
    if value > most:
        raise ValueError(f"{what} is {short(value, str)}; need at most {most}")
    return int(value)


def number(what: str, value: Any, interval: str = "[0, inf)") -> Any:
    """``value``, a real number inside ``interval``, which is written as in mathematics."""
    real: bool = isinstance(value, Real) and not isinstance(value, (bool, np.bool_))
    if not real:
        raise TypeError(f"{what} is {short(value)}; need a number in {interval}")
    if not _inside(value, interval):
        raise ValueError(f"{what} is {short(value, str)}; need a number in {interval}")
    size = float(value) if isinstance(value, np.floating) else value  # NumPy would cast MAX to it
    if abs(size) > MAX and value != inf:
        raise ValueError(f"{what} is {short(value, str)}; need a number that a float64 can hold")
    return value


def _inside(value: Any, interval: str) -> Any:
    """Whether a number, or each entry of an array, is in the interval."""
    low, high = map(float, interval[1:-1].split(","))
    return (value >= low if interval[0] == "[" else value > low) & (
        value <= high if interval[-1] == "]" else value < high
    )


def choice(what: str, value: object, options: Collection[str]) -> None:
    """Raise ValueError unless ``value`` is one of ``options``."""
    if not isinstance(value, str) or value not in options:
        near = get_close_matches(short(value, str), options, 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        if str(value).endswith(".py"):
            raise ValueError(f"{what} {short(value)} is a file; name what is in it: {value}:NAME")
        raise ValueError(
            f"{what} {short(value)} is unknown; choose one of {', '.join(options)}{hint}"
        )


def kind(what: str, value: object, need: type | tuple[type, ...], repair: str) -> None:
    """Raise TypeError unless ``value`` is an instance of ``need``; ``repair`` says what to pass."""
    if not isinstance(value, need):
        raise TypeError(f"{what} is {short(value)}; need {repair}")


def generator(what: str, value: object) -> None:
    """Raise TypeError unless ``value`` is a random number generator."""
    kind(what, value, np.random.Generator, "a generator: np.random.default_rng(0)")


def array(what: str, value: Any, *shapes: Shape, kinds: str = NUMBERS) -> None:
    """Raise unless ``value`` is an array of numbers, of one of ``shapes`` if any are given; letters
    in these are any sizes. ``kinds``: the kinds of dtype allowed."""
    _numbers(what, value, kinds)
    if shapes and not _fits(value.shape, shapes, {}):
        raise ValueError(f"{what} has shape {value.shape}; need {_wanted(shapes, {})}")


def admit(
    where: str,
    arrays: Params,
    shapes: Shapes,
    sizes: dict[str, int],
    reason: str,
    required: frozenset[str] = frozenset(),
) -> None:
    """Raise ValueError or TypeError unless every array is declared in ``shapes`` and has one of
    its shapes, and all ``required`` ones are there.

    ``sizes``: the size of each letter; letters met here first are added. ``reason``: what
    decides the shapes, for the error.
    """
    if type(arrays) is not dict:
        kind(f"{where}: the dict of arrays", arrays, Mapping, "a dict of arrays by name")
    for name, value in arrays.items():
        need = shapes.get(name)
        if (
            need is None
            or type(value) is not np.ndarray
            or value.dtype.kind not in NUMBERS
            or value.shape != need[0]
            and not _fits(value.shape, need, sizes)
        ):
            _examine(where, name, value, shapes, sizes, reason)
    if not required <= arrays.keys():
        missing = [name for name in shapes if name in required and name not in arrays]
        raise ValueError(
            f"{where}: missing {', '.join(missing)}, {reason}; given are "
            f"{', '.join(map(str, arrays)) or 'none'}: start from what net.init gives"
        )


def admit_mask(where: str, mask: Any, shape: tuple[int, ...]) -> None:
    """Raise unless ``mask`` is an array of that shape of bool, or of the numbers 0 and 1 (only then
    is every entry looked at)."""
    if type(mask) is not np.ndarray or mask.dtype != bool:
        _numbers(f"{where}: mask", mask, "bfiu")
        odd = (mask != 0) & (mask != 1)
        if odd.any():
            raise ValueError(
                f"{where}: mask has the entry {mask[odd][0]}; need True where a step "
                "counts and False elsewhere: weights of steps are not supported"
            )
    if mask.shape != shape:
        raise ValueError(
            f"{where}: mask has shape {mask.shape}; need (T, B) = {shape}, as x has"
            f"{_transposed(mask.shape, shape, 'mask')}{turned(mask.shape[::-1] == shape)}"
        )


class Rule(NamedTuple):
    """What an argument has to be: ``check(what, value)`` raises for anything else; ``wrong`` holds
    examples for which it must."""

    check: Callable[[str, Any], object]
    wrong: tuple[object, ...]


def real(interval: str) -> Rule:
    """A number in an interval."""
    low, high = map(float, interval[1:-1].split(","))
    outside = [float("nan"), "1", None, True, 1j, [1], 10**400, -(10**400)]
    outside += [low if interval[0] == "(" else low - 1] if low > -inf else [low]
    outside += (
        [high if interval[-1] == ")" else high + 1] if high < inf or interval[-1] == ")" else []
    )
    return Rule(partial(number, interval=interval), tuple(outside))


def count(least: int = 1, most: int = SIZE) -> Rule:
    """A whole number from ``least`` to ``most``."""
    return Rule(
        partial(whole, least=least, most=most),
        (least - 1, most + 1, 10**5000, least + 0.5, float("nan"), str(least), None, True, [least]),
    )


def one_of(options: Collection[str]) -> Rule:
    """One of these names."""
    return Rule(partial(choice, options=options), ("no such name", "", None, 5, []))


def instance(need: type | tuple[type, ...], repair: str) -> Rule:
    """An instance of a type."""
    return Rule(partial(kind, need=need, repair=repair), (None, 1.5, object()))


def optional(rule: Rule) -> Rule:
    """None, or what the rule says."""
    return Rule(
        lambda what, value: value is None or rule.check(what, value),
        tuple(value for value in rule.wrong if value is not None),
    )


def matrix(what: str, value: Any, kinds: str = NUMBERS) -> None:
    """Raise unless ``value`` is a matrix with entries."""
    _numbers(what, value, kinds)
    if value.ndim != 2 or 0 in value.shape:
        raise ValueError(f"{what} has shape {value.shape}; need a matrix with entries")


def square(what: str, value: Any) -> None:
    """Raise unless ``value`` is a square real matrix."""
    _numbers(what, value, REAL)
    if value.ndim != 2 or value.shape[0] != value.shape[1]:
        raise ValueError(f"{what} has shape {value.shape}; need a square matrix")


def numbers(interval: str) -> Rule:
    """A vector of numbers in an interval."""

    def check(what: str, value: Any) -> None:
        array(what, value, ("N",), kinds="fiu")
        inside = np.asarray(_inside(value, interval))
        if not inside.all():
            raise ValueError(
                f"{what} has the entry {short(value[~inside][0], str)}; need numbers in {interval}"
            )

    return Rule(
        check,
        (
            *VECTOR.wrong,
            *(
                np.array([1.0, entry])
                for entry in real(interval).wrong
                if type(entry) in (int, float) and entry not in (10**400, -(10**400))
            ),
        ),
    )


def finite(rule: Rule) -> Rule:
    """What the rule says, with finite entries only."""

    def check(what: str, value: Any) -> None:
        rule.check(what, value)
        if value.dtype.kind in "fc" and not np.isfinite(value).all():
            raise ValueError(
                f"{what} has entries that are not finite; need finite numbers: see "
                f"np.argwhere(~np.isfinite({what.split(': ')[-1]}))"
            )

    return Rule(check, rule.wrong)


def matrices(what: str, value: Any) -> None:
    """Raise unless ``value`` is a dict of arrays of numbers."""
    kind(what, value, Mapping, "a dict of arrays by name")
    for name, entry in value.items():
        if type(entry) is not np.ndarray or entry.dtype.kind not in NUMBERS:
            _numbers(f"{what}: {short(name, str)}", entry)


_ODD = (
    [[1.0, 0.0], [0.0, 1.0]],
    "W",
    None,
    1.0,
    np.ones((2, 2), str),
    np.ma.MaskedArray(np.eye(2), np.eye(2) > 0),
)
_COMPLEX = np.ones((2, 2), complex)
_FLAT = (np.ones(3), np.ones(()), np.ones((2, 2, 2)))
MATRIX = Rule(matrix, (*_ODD, *_FLAT, np.ones((0, 2))))
REAL_MATRIX = Rule(partial(matrix, kinds=REAL), (*MATRIX.wrong, _COMPLEX))
SQUARE = Rule(square, (*_ODD, *_FLAT, _COMPLEX, np.ones((2, 3))))
VECTOR = Rule(partial(array, kinds=REAL), (*_ODD, _COMPLEX, np.ones((2, 2)), np.ones(())))
ARRAYS = Rule(matrices, (None, [np.eye(2)], "W", np.eye(2), *({"W": value} for value in _ODD)))
PATH = instance((str, PathLike), "a path: a string or a pathlib.Path")
FUNCTION = instance(Callable, "a function")  # type: ignore[arg-type]
FLAG = instance(bool, "True or False")
GENERATOR = Rule(generator, (None, 0, np.random))

P = ParamSpec("P")
R = TypeVar("R")


def takes(**rules: Rule) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator of public functions, which run with one thread of BLAS (``serial_blas``): it
    checks their arguments against rules, by their names; default values are not checked.

    >>> @takes(rate=real("(0, inf)"))
    ... def double(rate):
    ...     return 2 * rate
    >>> double(rate=0)
    Traceback (most recent call last):
    ValueError: double: rate is 0; need a number in (0, inf)
    """

    def wrap(function: Callable[P, R]) -> Callable[P, R]:
        places = [
            (place, rules[name].check, f"{function.__name__}: {name}")
            for place, name in enumerate(signature(function).parameters)
            if name in rules
        ]
        serial = serial_blas(function)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for place, check, what in places:
                if place < len(args):
                    check(what, args[place])
            for name, value in kwargs.items():
                if name in rules:
                    rules[name].check(f"{function.__name__}: {name}", value)
            return serial(*args, **kwargs)

        call.rules = rules  # type: ignore[attr-defined]
        return call

    return wrap


def check_fields(where: str, instance: object, rules: Mapping[str, Rule]) -> None:
    """Check the fields of a dataclass against rules."""
    for name, rule in rules.items():
        rule.check(f"{where}: {name}", getattr(instance, name))


def _numbers(what: str, value: Any, kinds: str = NUMBERS) -> None:
    name = what.split(": ")[-1]
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(
            f"{what} is a masked array, whose mask would be lost; need a plain array: "
            f"pass {name}.filled(0), and which steps of a batch count as its mask"
        )
    if not isinstance(value, (np.ndarray, np.generic)) or isinstance(value, np.matrix):
        raise TypeError(f"{what} is {short(value)}; need an array: pass np.asarray({name})")
    # an array class with an arithmetic of its own says itself what its numbers are
    arithmetic = (
        type(value).__array_ufunc__ is not np.ndarray.__array_ufunc__
        if isinstance(value, np.ndarray)
        else False
    )
    if value.dtype.kind not in kinds and not arithmetic:
        real = "real " if value.dtype.kind == "c" else ""
        raise TypeError(
            f"{what} is an array of {value.dtype}; need {real}numbers, such as "
            f"{name}{'.real' if real else ''}.astype(np.float32)"
        )


def _fits(shape: tuple[int, ...], shapes: tuple[Shape, ...], sizes: dict[str, int]) -> bool:
    """Whether ``shape`` is one of ``shapes``; the letters that it decides go into ``sizes``."""
    for dims in shapes:
        if len(dims) == len(shape):
            known = sizes.copy()
            for n, dim in zip(shape, dims):
                if n != (known.setdefault(dim, n) if type(dim) is str else dim):
                    break
            else:
                sizes |= known
                return True
    return False


def _wanted(shapes: tuple[Shape, ...], sizes: dict[str, int]) -> str:
    letters = dict.fromkeys(dim for dims in shapes for dim in dims if dim in sizes)
    known = ", ".join(f"{letter} = {sizes[str(letter)]}" for letter in letters)
    return " or ".join(str(dims).replace("'", "") for dims in shapes) + (
        f" with {known}" if known else ""
    )


def turned(batch_first: bool) -> str:
    """What to say of arrays that seem to be batch-first.

    >>> turned(True)
    ' (arrays of sequences are time-major: turn a batch-first x by x.swapaxes(0, 1))'
    """
    hint = " (arrays of sequences are time-major: turn a batch-first x by x.swapaxes(0, 1))"
    return hint if batch_first else ""


def _transposed(shape: tuple[int, ...], need: Shape, name: str) -> str:
    """The likely repair of a shape, if there is one."""
    if len(shape) == 2 and len(need) == 2 and shape[::-1] == need:
        return f": pass {name}.T"
    if len(shape) > len(need) and tuple(n for n in shape if n != 1) == need:
        return f": pass {name}.reshape{need or '(())'}"
    return ""


def _examine(
    where: str, name: str, value: Any, shapes: Shapes, sizes: dict[str, int], reason: str
) -> None:
    """Raise the error for an array that failed the quick test, unless it passes the full one."""
    need = shapes.get(name)
    if need is None:
        near = get_close_matches(str(name), shapes, 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise ValueError(
            f"{where}: {name} is unknown{hint}; the names are {', '.join(shapes)}, {reason}"
        )
    _numbers(f"{where}: {name}", value)
    if not _fits(value.shape, need, sizes):
        hint = _transposed(value.shape, need[0], name)
        if name == "x" and value.ndim == 2 and len(need[0]) == 3:
            hint = " For one sequence, pass x[:, None, :]."
        elif need[0] == ("T", "B", "D"):
            hint = turned(value.ndim == 3)
        raise ValueError(
            f"{where}: {name} has shape {value.shape}; need {_wanted(need, sizes)}, "
            f"{reason}{'.' if hint[:1] == ' ' else ''}{hint}"
        )


def short(value: object, form: Callable[[object], str] = repr) -> str:
    """``value`` in one short line."""
    try:
        text = " ".join(form(value).split())
    except Exception:  # such as of a whole number with more than 4,300 digits
        text = f"what cannot be shown, of type {type(value).__name__}"
    text = text if len(text) <= 60 else text[:57] + "..."
    return (
        text
        if form is str or isinstance(value, (str, int, float, type(None)))
        else (f"{text} ({type(value).__name__})")
    )
