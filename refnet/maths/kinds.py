"""One number kind for each computation, and what may join it.

All numbers of a computation are floats of one dtype, or exact numbers of one type: Fraction,
fmpq, balls, or Dual numbers over one of these. The parameters decide which (``same_kind``);
whatever meets them is lifted to their kind where that changes no value, and refused elsewhere:

- integers: lifted, if the kind holds every entry;
- floats among floats of another dtype: lifted, if the dtype holds every entry;
- floats among exact numbers, or the reverse: refused, because the float 0.1 is not 1/10;
- exact numbers of two types: refused;
- constants (a gain, a rate, a bound): Python numbers at their exact value (``numeric.times``).

The dtype of an object array says nothing about its entries, and one entry says nothing about
the others: NumPy fills such arrays with Python ints (``np.zeros``, ``np.tril``, ``np.where``).
So ``kind`` reads all entries. The ints count as members of every kind.
Checked by: tests/maths/test_kinds.py.
"""

from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any
from weakref import finalize

import numpy as np

from refnet.batch import Array, Params

PARTS: dict[type, Callable[[Any], tuple[Any, ...]]] = {}
"""Number types made of other numbers: type -> the numbers that an entry is made of."""

_INEXACT = (float, complex, np.inexact)
_REMEDY = "lift all of them to one type (refnet.exact.lift)"


_fixed: dict[int, set[type]] = {}


def _types(array: Array) -> set[type]:
    """The types of the entries; a view of a fixed array has those of its base."""
    known = _fixed.get(id(array if array.base is None else array.base))
    return set(map(type, array.ravel().tolist())) if known is None else known


def fix(array: Array) -> Array:
    """The array, which can't be written to from now on; the types of its entries are found once,
    and not at every step of a certificate.

    >>> fix(np.array([Fraction(1, 2)], object)).flags.writeable
    False
    """
    array.flags.writeable = False
    _fixed[id(array)] = set(map(type, array.ravel().tolist()))
    finalize(array, _fixed.pop, id(array))
    return array


def kind(*arrays: Array) -> type:
    """The type of all entries of these arrays, Python's ints aside; int if there are only ints.

    float stands for all inexact types; Dual for dual numbers, among which numbers of the type
    that they are made of count as constants. Raises ValueError if two types meet.

    >>> kind(np.array([0, Fraction(1, 2)], object)).__name__
    'Fraction'
    """
    types = set().union(*map(_types, arrays)) - {int, bool}
    for outer in types & PARTS.keys():
        kind(
            *(
                np.array(
                    [
                        part
                        for value in array.ravel().tolist()
                        for part in (PARTS[outer](value) if type(value) is outer else (value,))
                    ],
                    object,
                )
                for array in arrays
            )
        )
        return outer
    types = {float if issubclass(entry, _INEXACT) else entry for entry in types}
    if len(types) > 1:
        names = " and ".join(sorted(entry.__name__ for entry in types))
        raise ValueError(f"numbers of different types, {names}, in one computation; {_REMEDY}")
    return types.pop() if types else int


def _cast(name: str, array: Array, dtype: np.dtype[Any]) -> Array:
    """``array`` as floats of that dtype, which must hold every entry."""
    if array.dtype.kind not in "biufc":
        raise ValueError(f"{name} is {array.dtype}; need numbers, such as {dtype}")
    if array.dtype.kind == "c" and dtype.kind != "c":
        raise ValueError(
            f"{name} is {array.dtype} while the computation is in {dtype}; give real numbers"
        )
    with np.errstate(all="ignore"):
        cast = array.astype(dtype)
        back = (
            cast.real.astype(array.dtype)
            if array.dtype.kind in "iu"
            else cast.astype(np.result_type(cast, array))
        )
        bits = {"i": 63, "u": 64}.get(array.dtype.kind)
        same = (back == array) & (bits is None or abs(cast) < 2.0**bits)
    wrong = np.argwhere(~(same | (array != array)))
    if len(wrong):
        entry = tuple(int(i) for i in wrong[0])
        raise ValueError(
            f"{name} is {array.dtype} while the computation is in {dtype}, which "
            f"does not hold its entry {entry}, {array[entry]}; round it yourself, "
            f"{name}.astype(np.{dtype}), or compute in a wider dtype"
        )
    return cast


def inexact(array: Array) -> Array:
    """Integers as float64, where a quotient or a root can be stored; other arrays as they are.

    >>> inexact(np.array([1, 2])).dtype
    dtype('float64')
    """
    return array.astype(np.float64) if array.dtype.kind in "biu" else array


def _own(*arrays: Array) -> bool:
    """Whether one is of an array class with an arithmetic of its own, which takes any numbers."""
    return any(array.dtype.kind == "V" for array in arrays)


def _refuse_mix(name: str, array: Array, lead: str, dtype: Any) -> None:
    raise ValueError(
        f"{name} is {array.dtype} while {lead} is {dtype}; exact numbers and floats "
        "do not mix: lift both (refnet.exact.lift)"
    )


def join(name: str, array: Array, lead: str, leader: Array) -> Array:
    """``array`` in the kind of ``leader``, which it meets next; ``name`` and ``lead`` are what
    an error calls the two. Raises ValueError where that would change or mix values.

    >>> join("y", np.array([1, 2]), "x", np.ones(2, np.float32)).dtype
    dtype('float32')
    """
    if array.dtype == leader.dtype and array.dtype.kind in "fc" or _own(array, leader):
        return array
    if object not in (array.dtype, leader.dtype):
        return _cast(name, array, leader.dtype)
    if array.dtype.kind in "fc" or leader.dtype != object:
        _refuse_mix(name, array, lead, leader.dtype)
    try:
        number = kind(array, leader)
    except ValueError as error:
        raise ValueError(f"{name} and {lead}: {error}") from None
    return _pure(array, number)


def _pure(array: Array, number: type) -> Array:
    """The object array with its integers as numbers of the type; int stands for Fraction."""
    entries = array.ravel().tolist()
    if not any(issubclass(entry, (int, np.integer)) for entry in _types(array)):
        return array
    lift = Fraction if number is int else number
    out = np.empty(len(entries), object)
    out[:] = [
        lift(int(value)) if isinstance(value, (int, np.integer)) else value for value in entries
    ]
    return out.reshape(array.shape)


def _exact(arrays: Iterable[tuple[str, Array]]) -> list[Array]:
    named = list(arrays)
    lead = next(name for name, array in named if array.dtype == object)
    for name, array in named:
        if array.dtype.kind not in "biuO":
            _refuse_mix(name, array, lead, object)
    holders: dict[type, str] = {}
    for name, array in named:
        try:
            holders.setdefault(kind(array), name)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    integers = {entry for entry in holders if issubclass(entry, (int, np.integer))}
    types = list(holders.keys() - integers)
    strange = [
        name for entry, name in holders.items() if issubclass(entry, (float, str, type(None)))
    ]
    if strange:
        name = strange[0]
        raise ValueError(
            f"{name} is an object array of floats, or of things other than numbers; "
            f"pass {name}.astype(np.float64), or lift it (refnet.exact.lift)"
        )
    if len(types) > 1:
        a, b = sorted(types, key=list(holders).index)[:2]
        raise ValueError(
            f"{holders[a]} holds {a.__name__} and {holders[b]} {b.__name__}; {_REMEDY}"
        )
    return [_pure(array, types[0] if types else int) for _, array in named]


def same_kind(params: Params, x: Array) -> tuple[Params, Array]:
    """Parameters and inputs in one kind, the parameters'; unchanged if they are already.

    Integer parameters become float64 (or x's float dtype), Python's ints Fractions. Raises
    ValueError, naming the arrays, if the parameters are of two kinds or x does not fit.

    >>> params, x = same_kind({"W": np.ones((1, 1), np.float32)}, np.array([[1, 2]]))
    >>> x.dtype
    dtype('float32')
    """
    dtype = x.dtype
    if dtype.kind in "fc" and all([value.dtype == dtype for value in params.values()]):
        return params, x
    if _own(x, *params.values()):
        return params, x
    if dtype == object or any(value.dtype == object for value in params.values()):
        *values, x = _exact([*params.items(), ("x", x)])
        return dict(zip(params, values)), x
    dtypes = {
        value.dtype.newbyteorder("="): name
        for name, value in params.items()
        if value.dtype.kind in "fc"
    }
    if len(dtypes) > 1:
        (a, first), (b, second) = list(dtypes.items())[:2]
        raise ValueError(
            f"{first} is {a} while {second} is {b}; the parameters need one dtype, "
            f"such as {second}.astype(np.{a})"
        )
    dtype = next(iter(dtypes), dtype if dtype.kind in "fc" else np.dtype(np.float64))
    return (
        {
            name: value if value.dtype == dtype else _cast(name, value, dtype)
            for name, value in params.items()
        },
        x if x.dtype == dtype else _cast("x", x, dtype),
    )
