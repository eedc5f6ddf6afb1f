"""Code that the recurrent and the feedforward net share: the tape, and the pullback to the parts of
their matrices."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from refnet.arguments import Shape, admit, array, choice, kind, short
from refnet.batch import Array, Params
from refnet.maths.activations import SPEC, Activation, activation
from refnet.maths.losses import LOSSES, REDUCTIONS, Loss
from refnet.maths.numeric import matmul
from refnet.matrices.initializers import initialize
from refnet.matrices.slots import Transition, pull_back
from refnet.matrices.transitions import transition
from refnet.specs import read

__all__ = [
    "Initializer",
    "Named",
    "NetTape",
    "a_loss",
    "a_transition",
    "added",
    "admit_gradients",
    "admit_tape",
    "an_activation",
    "copied",
    "float_type",
    "losses_of",
    "matmul_of",
    "matrix_of",
    "parameter_shapes",
    "pulled",
]

T = TypeVar("T")

Initializer = Callable[[tuple[int, int], np.random.Generator], Array]


class Matrices(Protocol):
    """A net, as far as its matrices go: those that its transition makes, if it has one."""

    @property
    def transition(self) -> Transition | None: ...
    @property
    def slots(self) -> tuple[str, ...]: ...


class NetTape(NamedTuple):
    """What a net's backward pass needs.

    ``net``: the net that made it. ``given``: the parameters that it was given, or copies of them.
    ``p``: the parameters with every transition's matrix made. ``made``: the transitions'
    tapes. ``cell``: the cell's tape, or its checkpoints, or the feedforward net's
    pre-activations. ``rows``: the states read out, as rows (of a net with checkpoints: at
    the last step only). ``steps``: for a read-out at the last step, the index of each
    sequence's last state in h[0] .. h[T], one number if it is T for all; None for a read-out
    at every step. Of a StackedNet, ``cell`` is a dict of the cells' tapes by their suffix, and
    ``steps`` holds each sequence's length.
    """

    net: Any
    given: Params
    p: Params
    made: dict[str, Any]
    cell: Any
    rows: Array
    steps: Array | int | None


class Named(Generic[T]):
    """A field of a net that holds what ``convert`` makes of the value given: an activation for its
    name, say. (A descriptor: ``dataclass`` assigns through it.)"""

    def __init__(self, convert: Callable[[T | str], T], default: T) -> None:
        self.convert, self.default = convert, default

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, net: object, owner: type | None = None) -> T:
        value: T = self.default if net is None else net.__dict__[self.name]
        return value

    def __set__(self, net: object, value: T | str) -> None:
        net.__dict__[self.name] = self.convert(value)


def a_loss(loss: str, reduction: str) -> None:
    """Raise ValueError unless the loss and the reduction are known and go together.

    >>> a_loss("none", "mean")
    Traceback (most recent call last):
    ValueError: reduction is 'mean'; need 'sum' with the loss 'none': the cotangent is taken as \
it is given
    """
    choice("loss", loss, tuple(LOSSES))
    choice("reduction", reduction, REDUCTIONS)
    if loss == "none" and reduction != "sum":
        raise ValueError(
            f"reduction is {reduction!r}; need 'sum' with the loss 'none': the "
            "cotangent is taken as it is given"
        )


def losses_of(backend: str) -> Mapping[str, Loss]:
    """The losses, example by example, on a backend.

    >>> sorted(losses_of("reference"))
    ['cross_entropy', 'none', 'squared_error']
    """
    if backend == "reference":
        return LOSSES
    from refnet.compiled import losses  # Numba is slow to import

    return losses.LOSSES


def matmul_of(backend: str) -> Callable[[Array, Array], Array]:
    """The product of two matrices, as a backend makes those of a read-out.

    >>> matmul_of("reference") is matmul
    True
    """
    if backend == "reference":
        return matmul
    from refnet.compiled import products  # Numba is slow to import

    return products.matmul


def an_activation(value: Activation | str, what: str = "activation") -> Activation:
    """``value``, or the activation of that name or spec.

    >>> an_activation("relu").name
    'relu'
    """
    if isinstance(value, str):
        name, options = read(what, SPEC, value)
        return activation(name, **options)
    kind(what, value, Activation, "a name such as 'relu', or what activation() gives")
    return value


def a_transition(value: Transition | str | None) -> Transition | None:
    """``value``, or the transition of that name or spec.

    >>> a_transition("dense") is None
    True
    """
    if isinstance(value, str):
        return transition(value)
    if value is not None and (isinstance(value, type) or not hasattr(value, "pull_back")):
        raise TypeError(
            f"transition is {short(value)}; need a name such as 'orthogonal', or what "
            "transition() gives, or None"
        )
    return value


def parameter_shapes(own: Activation, units: int, suffix: str = "") -> dict[str, tuple[Shape, ...]]:
    """The shapes of the activation's own parameters; one for all units may be one for each.

    >>> parameter_shapes(activation("prelu"), 4, "1")
    {'slope1': ((), (4,))}
    """
    return {
        f"{name}{suffix}": tuple(dict.fromkeys([shape(units), (units,)]))
        for name, shape, _ in own.start
    }


def copied(params: Params, x: Array) -> tuple[Params, Array]:
    """Copies for a tape to hold, which no change in place of the originals reaches.

    >>> copied({"W": np.ones(1)}, np.zeros(1))
    ({'W': array([1.])}, array([0.]))

    Checked by: tests/nets/test_tapes.py::test_changed_in_place.
    """
    return {name: value.copy("K") for name, value in params.items()}, x.copy("K")


def _same(a: Any, b: Any) -> bool:
    """Whether two arrays hold the same bits, or the same numbers in objects."""
    if a is b or type(a) is not type(b) or a.shape != b.shape or a.dtype != b.dtype:
        return a is b
    if a.dtype == object:  # in lists an object equals itself, even a ball with a radius
        return bool(a.ravel().tolist() == b.ravel().tolist())
    first, second = (np.ascontiguousarray(each).view(np.uint8) for each in (a, b))
    return np.array_equal(first, second)


def admit_tape(where: str, net: Any, tape: NetTape, params: Params) -> None:
    """Raise ValueError or TypeError, in one line, unless the tape was made by ``net``, or by one
    whose fields are all equal, of these parameters, unchanged since.

    >>> from refnet.nets.recurrent import RecurrentNet
    >>> net = RecurrentNet(inputs=1, hidden=2, outputs=1)
    >>> params = net.init(np.random.default_rng(0), np.float64)
    >>> _, tape = net.forward(params, np.ones((3, 1, 1)))
    >>> params["by"] += 1
    >>> admit_tape("net.backward", net, tape, params)
    Traceback (most recent call last):
    ValueError: net.backward: params are not what forward was given, in by; need the same, \
unchanged since: run forward again

    Checked by: tests/nets/test_tapes.py.
    """
    kind(f"{where}: tape", tape, NetTape, "what this net's forward gives beside the outputs")
    other = tape.net
    if other is not net and other != net:
        have, need = (f"class={type(each).__name__}" for each in (other, net))
        if type(other) is type(net):
            odd = [
                each.name
                for each in fields(net)
                if getattr(other, each.name) != getattr(net, each.name)
            ]
            have, need = (
                ", ".join(f"{name}={short(getattr(each, name))}" for name in odd)
                for each in (other, net)
            )
        raise ValueError(
            f"{where}: the tape is of a net with {have}; need {need}: run forward and "
            "backward of the same net"
        )
    if params is not tape.given:
        kind(f"{where}: params", params, Mapping, "the dict of arrays that forward was given")
        changed = [
            str(name)
            for name in {**tape.given, **params}
            if not _same(tape.given.get(name), params.get(name))
        ]
        if changed:
            raise ValueError(
                f"{where}: params are not what forward was given, in "
                f"{', '.join(changed)}; need the same, unchanged since: run forward "
                "again"
            )


def admit_gradients(
    where: str, doutputs: Array, shape: tuple[int, ...], extra: Params | None, known: Params
) -> None:
    """Raise ValueError or TypeError unless the cotangent has the outputs' shape, and each of the
    gradients to add has the shape of the array of its name in ``known``.

    >>> admit_gradients("net.backward", np.ones((2, 1)), (2, 3), None, {})
    Traceback (most recent call last):
    ValueError: net.backward: doutputs has shape (2, 1); need (2, 3), as the outputs have
    """
    admit(where, {"doutputs": doutputs}, {"doutputs": (shape,)}, {}, "as the outputs have")
    if extra:
        admit(
            f"{where}: extra",
            extra,
            {name: (value.shape,) for name, value in known.items()},
            {},
            "as the parameters have",
        )


def matrix_of(
    what: str, draw: Initializer | str, shape: tuple[int, int], rng: np.random.Generator
) -> Array:
    """A start matrix by an initialiser, or by the name of one.

    >>> matrix_of("weights", "identity", (2, 2), np.random.default_rng(0)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    if isinstance(draw, str):
        return initialize(draw, shape, rng)
    W = draw(shape, rng)
    array(f"init: what {what} draws", W, shape)
    return W


def float_type(dtype: DTypeLike) -> np.dtype[Any]:
    """The dtype that start values are rounded to; ValueError unless its numbers are floats.

    >>> float_type(np.float32)
    dtype('float32')
    """
    try:
        found = np.dtype(dtype)
    except TypeError:
        raise TypeError(
            f"init: dtype is {short(dtype)}; need a float type such as np.float32"
        ) from None
    if found.kind != "f":
        raise ValueError(
            f"init: dtype is {found}; need a float type such as np.float32. For exact "
            "numbers, lift what init gives (refnet.exact.lift)"
        )
    return found


def added(a: Params, b: Params) -> Params:
    """``a`` with ``b`` added entry by entry.

    >>> added({"W": 1, "b": 2}, {"b": 3, "c": 4})
    {'W': 1, 'b': 5, 'c': 4}
    """
    return {**a, **{name: a[name] + value if name in a else value for name, value in b.items()}}


def pulled(
    net: "Matrices", params: Params, made: dict[str, Any], grads: Params, extra: Params | None
) -> Params:
    """Add ``extra`` to the matrices' gradients, pull these back to their parts if the net's
    transition made them, and add the rest of ``extra``, which is for the parts themselves.

    >>> from refnet.nets.recurrent import RecurrentNet
    >>> net = RecurrentNet(inputs=1, hidden=2, outputs=1)
    >>> pulled(net, {}, {}, {"Whh": np.zeros((2, 2))}, {"Whh": np.eye(2)})["Whh"].tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    extra, rest = extra or {}, {}
    if extra:
        rest = {name: value for name, value in extra.items() if name not in grads}
        grads = added(grads, {name: value for name, value in extra.items() if name in grads})
    if net.transition is not None:
        matrices = {slot: grads.pop(slot) for slot in net.slots}
        grads |= pull_back(net.transition, params, made, matrices)
    return added(grads, rest) if rest else grads
