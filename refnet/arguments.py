"""Arguments at the door: what a public function refuses, in one line that says what arrived, what
was needed and the likely repair.

``admit`` holds named arrays against declared shapes, in time proportional to their number. A
dimension is a number, or a letter whose size the first array that has it decides.
Checked by: tests/test_arguments.py.
"""

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from numbers import Real
from typing import Any

import numpy as np

from refnet.batch import Params

__all__ = ["Shape", "Shapes", "admit", "admit_mask", "array", "choice", "generator", "kind",
           "number", "whole"]

Shape = tuple[int | str, ...]
Shapes = Mapping[str, tuple[Shape, ...]]
"""By name, the shapes of which an array has to have one."""

NUMBERS = "fiucO"
"""The kinds of dtype that hold numbers."""


def whole(what: str, value: Any, least: int = 1) -> int:
    """``value`` as an int of at least ``least``; TypeError for any other type."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{what} is {_short(value)}; need a whole number (int)")
    if value < least:
        raise ValueError(f"{what} is {value}; need at least {least}")
    return int(value)


def number(what: str, value: Any, interval: str = "[0, inf)") -> Any:
    """``value``, a real number inside ``interval``, which is written as in mathematics."""
    real: bool = isinstance(value, Real) and not isinstance(value, (bool, np.bool_))
    if not real:
        raise TypeError(f"{what} is {_short(value)}; need a number in {interval}")
    low, high = map(float, interval[1:-1].split(","))
    above = value >= low if interval[0] == "[" else value > low
    if not (above and (value <= high if interval[-1] == "]" else value < high)):
        raise ValueError(f"{what} is {value}; need a number in {interval}")
    return value


def choice(what: str, value: Any, options: Collection[str]) -> None:
    """Raise ValueError unless ``value`` is one of ``options``."""
    if not isinstance(value, str) or value not in options:
        near = get_close_matches(str(value), options, 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise ValueError(f"{what} {_short(value)} is unknown; choose one of "
                         f"{', '.join(options)}{hint}")


def kind(what: str, value: Any, need: type | tuple[type, ...], repair: str) -> None:
    """Raise TypeError unless ``value`` is an instance of ``need``; ``repair`` says what to pass."""
    if not isinstance(value, need):
        raise TypeError(f"{what} is {_short(value)}; need {repair}")


def generator(what: str, value: Any) -> None:
    """Raise TypeError unless ``value`` is a random number generator."""
    kind(what, value, np.random.Generator, "a generator: np.random.default_rng(0)")


def array(what: str, value: Any, *shapes: Shape, kinds: str = NUMBERS,
          sizes: dict[str, int] | None = None) -> None:
    """Raise unless ``value`` is an array of numbers, of one of ``shapes`` if any are given.

    ``kinds``: the kinds of dtype allowed. ``sizes``: those of the letters in ``shapes``, to which
    the ones met first are added.
    """
    _numbers(what, value, kinds)
    if shapes and not _fits(value.shape, shapes, {} if sizes is None else sizes):
        raise ValueError(f"{what} has shape {value.shape}; need {_wanted(shapes, sizes or {})}")


def admit(where: str, arrays: Params, shapes: Shapes, sizes: dict[str, int], because: str,
          required: frozenset[str] = frozenset()) -> None:
    """Raise ValueError or TypeError unless every array is declared in ``shapes`` and has one of
    its shapes, and all ``required`` ones are there.

    ``sizes``: those of the letters; letters met here first are added. ``because``: what decides
    the shapes.
    """
    if type(arrays) is not dict:
        kind(f"{where}: the arrays", arrays, Mapping, "a dict of arrays by name")
    for name, value in arrays.items():
        need = shapes.get(name)
        if (need is None or type(value) is not np.ndarray or value.dtype.kind not in NUMBERS
                or value.shape != need[0] and not _fits(value.shape, need, sizes)):
            _examine(where, name, value, shapes, sizes, because)
    if not required <= arrays.keys():
        missing = [name for name in shapes if name in required and name not in arrays]
        raise ValueError(f"{where}: missing {', '.join(missing)}, {because}; given are "
                         f"{', '.join(map(str, arrays)) or 'none'}: start from what net.init gives")


def admit_mask(where: str, mask: Any, shape: tuple[int, ...]) -> None:
    """Raise unless ``mask`` is an array of that shape of bool, or of numbers 0 and 1 (which alone
    costs a look at every entry)."""
    if type(mask) is not np.ndarray or mask.dtype != bool:
        _numbers(f"{where}: mask", mask, "bfiu")
        odd = (mask != 0) & (mask != 1)
        if odd.any():
            raise ValueError(f"{where}: mask has the entry {mask[odd][0]}; need True where a step "
                             "counts and False elsewhere: weights of steps are not supported")
    if mask.shape != shape:
        raise ValueError(f"{where}: mask has shape {mask.shape}; need (T, B) = {shape}, as x has"
                         f"{_transposed(mask.shape, shape, 'mask')}")


def _numbers(what: str, value: Any, kinds: str = NUMBERS) -> None:
    name = what.split(": ")[-1]
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{what} is a masked array, whose mask would be lost; need a plain array: "
                        f"pass {name}.filled(0), and which steps count as the batch's mask")
    if not isinstance(value, (np.ndarray, np.generic)) or isinstance(value, np.matrix):
        raise TypeError(f"{what} is {_short(value)}; need an array: pass np.asarray({name})")
    # an array class with an arithmetic of its own says itself what its numbers are
    own = type(value).__array_ufunc__ is not np.ndarray.__array_ufunc__ if isinstance(
        value, np.ndarray) else False
    if value.dtype.kind not in kinds and not own:
        real = "real " if value.dtype.kind == "c" else ""
        raise TypeError(f"{what} is an array of {value.dtype}; need {real}numbers, such as "
                        f"{name}{'.real' if real else ''}.astype(np.float32)")


def _fits(shape: tuple[int, ...], shapes: tuple[Shape, ...], sizes: dict[str, int]) -> bool:
    """Whether one of ``shapes`` is that of an array; the letters that it decides are kept."""
    for dims in shapes:
        if len(dims) == len(shape):
            found = sizes.copy()
            for n, dim in zip(shape, dims):
                if n != (found.setdefault(dim, n) if type(dim) is str else dim):
                    break
            else:
                sizes |= found
                return True
    return False


def _wanted(shapes: tuple[Shape, ...], sizes: dict[str, int]) -> str:
    letters = dict.fromkeys(dim for dims in shapes for dim in dims if dim in sizes)
    known = ", ".join(f"{letter} = {sizes[str(letter)]}" for letter in letters)
    return (" or ".join(str(dims).replace("'", "") for dims in shapes)
            + (f" with {known}" if known else ""))


def _transposed(shape: tuple[int, ...], need: Shape, name: str) -> str:
    """The likely repair of a shape, if there is one."""
    if len(shape) == 2 and len(need) == 2 and shape[::-1] == need:
        return f": pass {name}.T"
    if len(shape) > len(need) and tuple(n for n in shape if n != 1) == need:
        return f": pass {name}.reshape{need}"
    return ""


def _examine(where: str, name: str, value: Any, shapes: Shapes, sizes: dict[str, int],
             because: str) -> None:
    """Raise the error for an array that did not pass at first sight, if it is one."""
    need = shapes.get(name)
    if need is None:
        near = get_close_matches(str(name), shapes, 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise ValueError(f"{where}: {name} is unknown{hint}; the names are {', '.join(shapes)}, "
                         f"{because}")
    _numbers(f"{where}: {name}", value)
    if not _fits(value.shape, need, sizes):
        hint = _transposed(value.shape, need[0], name)
        if name == "x" and value.ndim == 2 and len(need[0]) == 3:
            hint = " For one sequence, pass x[:, None, :]."
        raise ValueError(f"{where}: {name} has shape {value.shape}; need {_wanted(need, sizes)}, "
                         f"{because}{'.' if hint[:1] == ' ' else ''}{hint}")


def _short(value: Any) -> str:
    """``value`` in one short line."""
    text = " ".join(repr(value).split())
    text = text if len(text) <= 60 else text[:57] + "..."
    return text if isinstance(value, (str, int, float, type(None))) else (
        f"{text} ({type(value).__name__})")
