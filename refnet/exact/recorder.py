"""Arrays that record what NumPy does with them, in any number kind, for exact gradients.

A ``Recorded`` array wraps floats, rationals, balls or perturbed floats (refnet.check.noisy) and
keeps, for every operation, how a gradient of its result is pulled back to its arguments:
reverse-mode differentiation, by ``refnet.exact.reverse``. Which NumPy functions that covers is the
table in ``refnet.exact.surface``; any other raises TypeError.

As in NumPy, slices, reshapes and transposes are views: an assignment to one shows in the other.
Each array is a root or a view, a root with a node, a view with ``rearrange``, the movement of
entries that makes it from its base. An assignment gives the root a new node. Results without
dimensions are numbers, as NumPy's (np.float64) are: ``t *= w`` makes a new one.

Source: Griewank & Walther, Evaluating Derivatives (2008), chapter 3.
Checked by: tests/exact/test_recorder.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from copy import deepcopy
from functools import lru_cache
from itertools import count
from math import prod
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from refnet.batch import Array
from refnet.exact.convert import Lift

Rearrangement = Callable[[Array], Array]
Operand = Any
"""A recorded array, or what NumPy takes beside one: an array, a number, a list of such."""
Operation = Callable[..., Operand]
"""A function of operands that takes options of NumPy's."""
Arguments = tuple[Operand, ...]
Options = dict[str, Operand]
Index = Any
"""What NumPy takes between brackets."""
METHODS: dict[str, Operation] = {}
CALLS: dict[str, Operation] = {}
"""What the methods, and a ``method``, NumPy's ``ufunc`` or other ``function``, lead to;
refnet.exact.surface, which is made of recorded arrays itself, fills both in."""

Watch = Callable[[str, tuple[Any, ...]], Operand]
"""What sees every call instead, by its key and the arguments of CALLS; it gives the result."""
WATCH: ContextVar[Watch | None] = ContextVar("watch", default=None)

_clock = count()


def dispatch(kind: str, *call: Any) -> Operand:
    """The result of a call of NumPy on recorded arrays, unless it is watched."""
    watch = WATCH.get()
    return watch(kind, call) if watch else CALLS[kind](*call)


ADVICE = (
    ": assign to what np.zeros, np.empty, np.ones or np.full made in float64, write a = a + b for "
    "a += b, call functions as scipy.special.softmax where another module of yours imports their "
    "names, and leave out float(), int() and .item()"
)
BECAME_PLAIN = f"a recorded array would become plain numbers here, without a gradient{ADVICE}"


class Unrecorded(TypeError):
    """Code that knows nothing of recorded arrays met one; refnet.exact.interception may help it."""

    def __init__(self, text: str = BECAME_PLAIN) -> None:
        super().__init__(text)


class Piece(NamedTuple):
    """A gradient of some entries of an array, to be added at these flat ``places``."""

    places: Array
    value: Array


Pullback = tuple["Node", Callable[[Array], "Array | Piece"]]
"""An argument, and its cotangent as a function of the result's; ``refnet.exact.reverse`` sums it
over the axes that the argument was broadcast along."""


class Node:
    """One value, an array ``raw`` of numbers, and how gradients are pulled back from it."""

    __slots__ = ("born", "live", "name", "pullbacks", "raw")
    live: bool

    def __init__(
        self, raw: Operand, name: str, pullbacks: tuple[Pullback, ...] = (), live: bool = False
    ) -> None:
        self.raw: Array = (
            raw
            if isinstance(raw, np.ndarray)
            else np.asarray(raw, None if isinstance(raw, np.generic) else object)
        )
        self.name = name
        self.pullbacks = tuple(pullback for pullback in pullbacks if pullback[0].live)
        self.live = live or bool(self.pullbacks)
        self.born = next(_clock)


@lru_cache(maxsize=128)
def _places(shape: tuple[int, ...]) -> Array:
    places = np.arange(prod(shape)).reshape(shape)
    places.flags.writeable = False
    return places


class Recorded(NDArrayOperatorsMixin):
    """An array whose gradient can be asked for; see the module.

    ``lift`` makes numbers of its kind from the constants that it meets; ``is_number``: it stands
    for a number of NumPy's, which no assignment changes.
    """

    __slots__ = ("_base", "_node", "_rearrange", "_seen", "is_number", "lift")
    __array_priority__ = 1000
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self,
        node: Node,
        lift: Lift,
        base: Recorded | None = None,
        rearrange: Rearrangement | None = None,
        is_number: bool = False,
    ) -> None:
        self._node, self.lift, self._base, self._rearrange = node, lift, base, rearrange
        self.is_number = is_number
        self._seen = None if base is None else base.node

    @property
    def node(self) -> Node:
        """The present value; a view looks at its base again after an assignment."""
        if self._base is not None and self._base.node is not self._seen:
            assert self._rearrange is not None
            self._node, self._seen = _view_of(self._base.node, self._rearrange), self._base.node
        return self._node

    @property
    def raw(self) -> Array:
        """The numbers."""
        return self.node.raw

    @property
    def root(self) -> Recorded:
        """The array whose entries these are."""
        return self if self._base is None else self._base.root

    @property
    def shape(self) -> tuple[int, ...]:
        """As NumPy's."""
        return self.raw.shape

    @property
    def ndim(self) -> int:
        """As NumPy's."""
        return self.raw.ndim

    @property
    def size(self) -> int:
        """As NumPy's."""
        return self.raw.size

    @property
    def dtype(self) -> np.dtype[np.float64]:
        """float64, whatever the numbers are: what is asked about it holds for real numbers."""
        return np.dtype(np.float64)

    @property
    def real(self) -> Recorded:
        """The array itself, as of all real numbers."""
        return self

    def conj(self) -> Recorded:
        """The array itself."""
        return self

    conjugate = conj

    @property
    def imag(self) -> Operand:
        """Zeros."""
        return self * 0

    @property
    def T(self) -> Recorded:
        """The transpose."""
        return self if self.is_number else rearranged(self, "T", np.ndarray.transpose)

    def __len__(self) -> int:
        return len(self.raw)

    def __iter__(self) -> Iterator[Recorded]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"Recorded({self.raw!r})"

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise Unrecorded

    __array__ = __float__ = __int__ = __index__ = __complex__ = item = tolist = _refuse

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError("the truth of an array of several entries is not defined; any or all")
        return bool((self != 0).all())

    def __array_ufunc__(
        self,
        ufunc: np.ufunc,
        method: str,
        *inputs: Operand,
        out: Arguments | None = None,
        **options: Operand,
    ) -> Operand:
        result = dispatch("ufunc", ufunc, method, inputs, options)
        if out is None:
            return result
        if out[0] is inputs[0] and isinstance(out[0], Recorded) and out[0].is_number:
            return result  # t *= w of a number
        return written(ufunc.__name__, result, out[0])

    def __array_function__(
        self, function: Operation, types: object, args: Arguments, kwargs: Options
    ) -> Operand:
        return dispatch("function", function, args, kwargs)

    def __copy__(self) -> Recorded:
        return self if self.is_number else self.copy("K")

    def __deepcopy__(self, _: object) -> Recorded:
        return self.__copy__()

    def __getattr__(self, name: str) -> Operation:
        if name not in METHODS:
            # NumPy probes for its own protocols, and takes AttributeError for a no
            error = TypeError if hasattr(np.ndarray, name) and name[0] != "_" else AttributeError
            raise error(
                f"{name} of a recorded array is not recorded; its methods are "
                f"{', '.join(sorted(METHODS))}"
            )
        return lambda *args, **kwargs: dispatch("method", name, (self, *args), kwargs)

    def __getitem__(self, index: Index) -> Operand:
        return dispatch("index", "an index", (self, index), {})

    def __setitem__(self, index: Index, value: Operand) -> None:
        _check(index)
        if self.is_number:
            raise TypeError("this is a number in NumPy (np.float64), which cannot be assigned to")
        places = self._where()[index]
        if np.unique(places).size < np.size(places):
            raise ValueError(
                "an assignment to the same entry twice: which one stays is not "
                "defined; index each entry once"
            )
        self.root._assign(np.asarray(places), record(self, value).node)

    def _where(self) -> Array:
        """The places of these entries in the root."""
        if self._base is None:
            return _places(self.shape)
        assert self._rearrange is not None
        return self._rearrange(self._base._where())

    def _assign(self, places: Array, value: Node) -> None:
        """A new value of a root: ``value`` at these flat places, the rest as before."""
        old, flat, zero = self.node, places.reshape(-1), self.lift(np.zeros(()), "")

        def assigned(before: Array, new: Array) -> Array:
            raw = before.copy(order="K")
            new = new.reshape(new.shape[max(new.ndim - places.ndim, 0) :])
            raw.flat[flat] = np.broadcast_to(new, places.shape).reshape(-1)
            return raw

        def elsewhere(g: Array) -> Array:
            g, shape = g.reshape(-1).copy(), g.shape
            g[flat] = np.broadcast_to(zero, flat.shape)
            return g.reshape(shape)

        self._node = Node(
            assigned(old.raw, value.raw.copy()),
            "an assignment",
            ((old, elsewhere), (value, lambda g: g.reshape(-1)[flat].reshape(places.shape))),
        )


def _parts(index: Index) -> tuple[Index, ...]:
    return index if isinstance(index, tuple) else (index,)


def _check(index: Index) -> None:
    if any(isinstance(part, Recorded) for part in _parts(index)):
        raise TypeError("an index is of integers or bools, not a recorded array")


def _entries(name: str, args: tuple[Recorded, Index], _: Options) -> Recorded:
    """What ``x[index]`` gives."""
    x, index = args
    _check(index)
    index = deepcopy(index)  # f may change its own
    entries = rearranged(x, name, lambda v: v[index])
    whole = any(part is ... for part in _parts(index))
    return entries if entries.ndim or whole else Recorded(entries.node, x.lift, is_number=True)


CALLS["index"] = _entries


def same(value: Operand) -> Operand:
    """The value itself."""
    return value


def derived(like: Recorded, raw: Operand, name: str, *pullbacks: Pullback) -> Recorded:
    """A new array, of the kind of ``like``, with these pullbacks."""
    return Recorded(Node(raw, name, pullbacks), like.lift)


def outermost(a: Array) -> list[int]:
    """The axes in the order in which the entries lie in memory."""
    return sorted(range(a.ndim), key=np.abs(a.strides).__getitem__, reverse=True)


def laid_out(a: Array, axes: list[int]) -> Array:
    """A copy whose entries lie in memory in this order of the axes."""
    return a.transpose(axes).copy().transpose(np.argsort(axes))


def record(like: Recorded, value: Operand) -> Recorded:
    """``value`` as a recorded array: itself, or a constant of the kind of ``like``."""
    if isinstance(value, Recorded):
        return value
    if isinstance(value, (list, tuple)) and any(isinstance(entry, Recorded) for entry in value):
        return np.stack(value)  # type: ignore[return-value]
    array = np.array(value)  # f may change its own
    if array.dtype.kind not in "biufO":
        raise TypeError(
            f"a recorded array meets {type(value).__name__} {value!r:.40}; need real numbers"
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(
            f"a recorded array meets {array[~np.isfinite(array)].flat[0]}, and exact "
            "numbers are finite: for a mask, write np.where(mask, np.exp(s), 0), or a "
            "large number such as -1e9 in place of -np.inf"
        )
    return Recorded(
        Node(like.lift(array.astype(int) if array.dtype.kind == "b" else array, ""), "a constant"),
        like.lift,
    )


def written(name: str, result: Recorded, out: Operand) -> Recorded:
    """What NumPy's function returns when it was given ``out``."""
    if not isinstance(out, Recorded):
        raise Unrecorded(f"np.{name} would write a recorded array into a plain one{ADVICE}")
    out[...] = result
    return out


def stop(x: Operand) -> Operand:
    """``x`` as a constant: no gradient goes through it. Plain arrays stay as they are.

    What a softmax subtracts changes no value, so its own gradient need not be followed:

    >>> from refnet.exact import certify_function
    >>> def softmax(x):
    ...     e = np.exp(x - stop(x.max()))
    ...     return (e / e.sum())[0]
    >>> certify_function(softmax, np.zeros(2)).gradients["x"].value.tolist()
    [0.25, -0.25]

    Checked by: tests/exact/test_recorder.py::test_stop_leaves_plain_arrays, ::test_ties.
    """
    return (
        Recorded(Node(x.raw, "stop"), x.lift, is_number=x.is_number)
        if isinstance(x, Recorded)
        else x
    )


def _view_of(node: Node, rearrange: Rearrangement) -> Node:
    return Node(
        rearrange(node.raw),
        "a view",
        ((node, lambda g: Piece(rearrange(_places(node.raw.shape)), g)),),
    )


def rearranged(
    x: Recorded,
    name: str,
    move: Operation,
    *args: Operand,
    pullback: Callable[[Array], Array | Piece] | None = None,
    **options: Operand,
) -> Recorded:
    """Some entries of x, ``move(x, *args, **options)``: a view where NumPy's is one."""

    def rearrange(v: Array) -> Array:
        entries: Array = move(v, *args, **options)
        return entries

    node = (
        _view_of(x.node, rearrange)
        if pullback is None
        else Node(rearrange(x.raw), name, ((x.node, pullback),))
    )
    node.name = name
    shared = not x.is_number and np.may_share_memory(node.raw, x.raw)
    return Recorded(node, x.lift, x, rearrange) if shared else Recorded(node, x.lift)


def refuse_infinite(name: str, raw: Operand) -> None:
    """ArithmeticError if a ball is not finite: then no where() can leave it out any more."""
    raw = np.asanyarray(raw)
    if raw.dtype != object:
        return
    for place, value in enumerate(raw.ravel().tolist()):
        if hasattr(value, "is_finite") and not value.is_finite():
            raise ArithmeticError(
                f"{name} is not finite at entry "
                f"{[int(n) for n in np.unravel_index(place, raw.shape)]}; np.where does not help, "
                "as the derivative is not finite either: give it another argument there, as in "
                "np.log(np.where(x > 0, x, 1))"
            )
