"""Another program's results: arrays of any kind, as float64, and the types to judge them by.

Checked by: tests/check/test_compare.py.
"""

from collections.abc import Container, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from refnet.batch import Array, Params
from refnet.check.arithmetic import NAMED, Kind, arithmetic
from refnet.check.noise import unit

__all__ = [
    "Foreign",
    "Names",
    "NoneFits",
    "Results",
    "float_type",
    "by_name",
    "constant",
    "finite_numbers",
    "judged_types",
    "numbers",
    "unreadable",
]

Foreign: TypeAlias = Any
"""What another program gives for an array: of any kind, or something else by mistake."""
Results = Mapping[str, Foreign]
Names: TypeAlias = tuple[str, ...] | None
"""The results that must be there; by default the gradient of every parameter."""


class NoneFits(ValueError):
    """Names of which none is that of a result."""


def by_name(theirs: Results, known: Results) -> dict[str, Foreign]:
    """``theirs`` by the names of ``known`` results: a gradient may have refnet's own name, "Whh"
    for "dWhh", and its count of clipped entries is no result; those of a nested argument may be
    nested, too. Raises NoneFits if no name fits, TypeError for a name that is no text and for what
    NumPy cannot read."""

    def full_name(name: Any) -> Any:
        full = f"d{name}"
        return full if name not in known and full in known and full not in theirs else name

    flat = dict(_flat(theirs, known))
    _admit(flat)
    arrays = {full_name(name): value for name, value in flat.items()}
    for name in known.keys() & arrays.keys():
        arrays[name] = _parts(arrays[name], known[name])
    if arrays and not known.keys() & arrays.keys():
        raise NoneFits(
            f"no name fits: theirs has {', '.join(map(str, theirs))}; need names of "
            f"results, which are {', '.join(known)}"
        )
    if "clipped" not in known:
        arrays.pop("clipped", None)
    return arrays


def _flat(theirs: Results, known: Results) -> Iterator[tuple[Any, Foreign]]:
    """Results with those of nested arguments by the names of their arrays: ``dp.W``."""
    for name, value in theirs.items():
        inside = any(str(key).startswith((f"{name}.", f"d{name}.")) for key in known)
        if not inside or name in known or not isinstance(value, (Mapping, list, tuple)):
            yield name, value
            continue
        keys = value if isinstance(value, Mapping) else getattr(value, "_fields", range(len(value)))
        entries = value.values() if isinstance(value, Mapping) else value
        yield from _flat({f"{name}.{key}": part for key, part in zip(keys, entries)}, known)


def _parts(theirs: Foreign, known: Foreign) -> Foreign:
    """Complex numbers as two along a last axis, where the ``known`` ones are so."""
    shape = np.shape(np.asarray(getattr(known, "value", known)))
    if not isinstance(theirs, (np.ndarray, np.generic)) or theirs.dtype.kind != "c":
        return theirs
    if shape[-1:] == (2,) and theirs.ndim == len(shape) - 1:
        return np.stack([np.real(theirs), np.imag(theirs)], axis=-1)
    return theirs


def constant(name: str) -> bool:
    """Whether a result is the gradient in a part of a transition that is never trained."""
    return name.rpartition(".")[2] in ("base", "D") and "." in name


def numbers(theirs: Foreign) -> Array | None:
    """``theirs`` as float64, or None if it is not an array of real numbers, none of them masked."""
    try:
        array = np.asarray(theirs)
    except ValueError:
        return None
    if np.ma.is_masked(theirs):
        return None
    known = (
        array.dtype.kind in "iu"
        or issubclass(array.dtype.type, np.floating)
        or array.dtype.name in NAMED
    )
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):  # wider; signalling NaN
        return array.astype(np.float64) if known else None


def finite_numbers(theirs: Results, names: Container[str]) -> Params:
    """The arrays of ``theirs`` by one of the ``names`` that can be compared with anything."""
    known = {name: numbers(theirs[name]) for name in theirs if name in names}
    return {
        name: value
        for name, value in known.items()
        if value is not None and np.isfinite(value).all()
    }


def unreadable(theirs: Foreign) -> str:
    """What ``theirs``, which ``numbers`` does not read, is instead, and the repair."""
    if np.ma.is_masked(theirs):
        return "some of its entries are masked; give all of them"
    try:
        kind = np.asarray(theirs).dtype
    except ValueError:
        return "its rows have different lengths; give an array"
    if theirs is None:
        return "None; need an array of floats"
    what = f"dtype {kind}" if isinstance(theirs, np.ndarray) else type(theirs).__name__
    repair = {
        "c": "pass its .real",
        "O": "pass np.asarray(value, dtype=float)",
        "b": "need numbers, not truth values",
    }
    return f"{what}; {repair.get(kind.kind, 'need an array of floats')}"


def judged_types(theirs: Results, dtype: Kind | None) -> tuple[dict[str, Any], str]:
    """The type in which each quantity is taken to be computed, under "" that of those that do
    not say; and a sentence about it.

    A single float64, or a list that NumPy makes float64 of, does not say: it may hold numbers of
    Python's. Nor do integers. What is wider than float64 is judged as float64.
    """
    if dtype is not None:
        kind = float_type(dtype)
        return (
            {"": kind, **dict.fromkeys(theirs, kind)},
            f"every array is judged as {kind}, as asked",
        )
    types: dict[str, Any] = {}
    for name, value in theirs.items():
        if numbers(value) is not None:
            array = np.asarray(value)
            typed = array.ndim > 0 and not isinstance(value, (list, tuple))
            if array.dtype.name in NAMED:
                types[name] = NAMED[array.dtype.name]
            elif array.dtype.kind == "f" and (typed or array.dtype != np.float64):
                wider = np.finfo(array.dtype).eps < np.finfo(np.float64).eps
                types[name] = np.dtype(float) if wider else array.dtype.newbyteorder("=")
    kinds = list(types.values())
    usual = max(
        kinds, key=lambda kind: (kinds.count(kind), unit(kind)), default=np.dtype(np.float64)
    )
    untyped = [name for name in theirs if name not in types]
    text = [
        f"{kind}: {', '.join(name for name in types if types[name] == kind)}"
        for kind in dict.fromkeys(kinds)
    ]
    if untyped:
        text.append(f"{usual}, as most arrays: {', '.join(untyped)} (of no type of their own)")
    return {"": usual, **dict.fromkeys(untyped, usual), **types}, (
        "each array is judged by its own type, " + "; ".join(text)
    )


def float_type(dtype: Kind) -> Any:
    """A float type of NumPy's, or an arithmetic of ``NAMED``."""
    kind = arithmetic(dtype)
    return kind if kind.name in NAMED else np.dtype(kind.name)


def _admit(theirs: Results) -> None:
    for name, value in theirs.items():
        if not isinstance(name, str):
            raise TypeError(
                f"theirs has the name {name!r}, which is {type(name).__name__}; need "
                "names of results, such as 'dWhh'"
            )
        try:
            np.asarray(value)
        except ValueError:  # rows of different lengths, which the verdict says
            pass
        except Exception as error:
            raise TypeError(
                f"theirs[{name!r}] is {type(value).__name__}, which NumPy cannot read ({error}); "
                "need an array of NumPy's: of a PyTorch tensor pass t.detach().cpu().numpy(), in "
                "bfloat16 t.detach().cpu().float().numpy() and dtype='bfloat16'"
            ) from error
