"""Code that the recurrent and the feedforward net share: the tape, and the pullback to the parts of
their matrices."""

from collections.abc import Callable, Mapping
from dataclasses import Field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from refnet.batch import Array, Params
from refnet.cells.common import CellTape, last_state
from refnet.common.arguments import Shape, admit, array, choice, kind, number, short
from refnet.common.specs import read
from refnet.maths.activations import SPEC, Activation, activation
from refnet.maths.kinds import same_kind
from refnet.maths.losses import LOSSES, REDUCTIONS
from refnet.maths.numeric import Number
from refnet.matrices.initializers import initialize
from refnet.matrices.slots import Residuals, Transition, pull_back
from refnet.matrices.transitions import transition
from refnet.nets.padding import known_symbols

T = TypeVar("T")

Initializer = Callable[[tuple[int, int], np.random.Generator], Array]


class Net(Protocol):
    """What the functions here ask of a net."""

    @property
    def transition(self) -> Transition | None: ...
    @property
    def slots(self) -> tuple[str, ...]: ...
    @property
    def __dataclass_fields__(self) -> dict[str, Field[Any]]: ...
    def admit(self, where: str, params: Params, x: Array, mask: Array | None = None) -> None: ...
    @property
    def embedding(self) -> int: ...
    @property
    def inputs(self) -> int: ...
    def matrices(self, params: Params, embedded: bool = False) -> tuple[Params, Residuals]: ...


class NetTape(NamedTuple):
    """What a net's backward pass needs.

    ``net``: the net that ran forward. ``given``: the parameters that it was given, or copies.
    ``p``: the parameters with every transition's matrix made. ``residuals``: those of the
    transitions, by slot. ``cell``: the cell's tape, or its checkpoints; of a StackedNet, a dict
    of the cells' tapes by their suffix; of a feedforward net, the layers' inputs and
    pre-activations. ``rows``: the states read out, as rows (of a net with checkpoints: at the last
    step only). ``steps``: for a read-out at the last step, the index of each sequence's last state
    in h[0] .. h[T], one number if it is T for all; None for a read-out at every step. (A
    StackedNet has it for every read-out.) ``shape``: that of the outputs. ``symbols``: x if it was
    symbols (T, B), 0 in the padding; the cells' tapes have their rows of the embedding.
    ``lengths``: with the compiled backend and sequences of different lengths, these, (B,); then
    sequence ``order[b]`` of the batch is row b of the parts above and of h0 in ``p``, and sequence
    b is row ``place[b]``.
    """

    net: Net
    given: Params
    p: Params
    residuals: Residuals
    cell: Any = None
    rows: Array = np.empty((0, 0))
    steps: Array | int | None = None
    shape: tuple[int, ...] = ()
    symbols: Array | None = None
    lengths: Array | None = None
    order: Array | None = None
    place: Array | None = None

    @property
    def cells(self) -> dict[str, CellTape]:
        """The tape of every cell of a recurrent net, by its suffix."""
        return self.cell if isinstance(self.cell, dict) else {"": self.cell}

    @property
    def final(self) -> Params:
        """The states after the last step, before a backward pass, as initial ones by their names:
        h0 (B, H), or (2, B, H) for an LSTM; of a StackedNet h0_l0, ... All sequences of a recurrent
        net have to have T steps.

        Checked by: tests/nets/test_pieces.py.
        """
        tapes = {suffix: getattr(part, "last", [part])[0] for suffix, part in self.cells.items()}
        return {f"h0{suffix}": last_state(part) for suffix, part in tapes.items()}


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


def check_loss(loss: str, reduction: str, smoothing: Number = 0) -> None:
    """Raise ValueError unless the loss, the reduction and the smoothing are known and go together.

    >>> check_loss("none", "mean")
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
    number("smoothing", smoothing, "[0, 1)")
    if smoothing and loss != "cross_entropy":
        raise ValueError(f"smoothing is {smoothing}; need 0 with the loss {loss!r}")


def to_activation(value: Activation | str, what: str = "activation") -> Activation:
    """``value``, or the activation of that name or spec.

    >>> to_activation("relu").name
    'relu'
    """
    if isinstance(value, str):
        name, options = read(what, SPEC, value)
        return activation(name, **options)
    kind(what, value, Activation, "a name such as 'relu', or what activation() gives")
    return value


def to_transition(value: Transition | str | None) -> Transition | None:
    """``value``, or the transition of that name or spec.

    >>> to_transition("dense") is None
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


def parameter_shapes(act: Activation, units: int, suffix: str = "") -> dict[str, tuple[Shape, ...]]:
    """The shapes of the activation's own parameters; one for all units may be one for each.

    >>> parameter_shapes(activation("prelu"), 4, "1")
    {'slope1': ((), (4,))}
    """
    return {
        f"{name}{suffix}": tuple(dict.fromkeys([shape(units), (units,)]))
        for name, shape, _ in act.start
    }


def of_one_kind(params: Params) -> Params:
    """The parameters in their kind, beside inputs that have none.

    >>> of_one_kind({"W": np.array([1, 2])})["W"].dtype
    dtype('float64')
    """
    return same_kind(params, np.empty(0, next(iter(params.values())).dtype))[0]


def begin(
    net: Net, params: Params, x: Array, mask: Array | None, copy: bool
) -> tuple[NetTape, Array]:
    """Check the arguments of a forward pass; the tape that it completes, and x, of the
    parameters' kind, or symbols. ``copy``: the tape holds copies, which no change in place reaches.

    >>> from refnet.nets.recurrent import RecurrentNet
    >>> net = RecurrentNet(inputs=1, hidden=2, outputs=1)
    >>> params = net.init(np.random.default_rng(0), np.float64)
    >>> tape, x = begin(net, params, np.ones((3, 1, 1)), None, copy=True)
    >>> tape.given["by"] is params["by"], tape.given["by"].tolist()
    (False, [0.0])

    Checked by: tests/nets/test_tapes.py::test_changed_in_place.
    """
    net.admit(f"{type(net).__name__}.forward", params, x, mask)
    if copy:
        params, x = {name: value.copy("K") for name, value in params.items()}, x.copy("K")
    if net.embedding and x.ndim == 2:
        x = known_symbols(x, mask, net.inputs)
        return NetTape(net, params, *net.matrices(of_one_kind(params), True), symbols=x), x
    lifted, x = same_kind(params, x)
    return NetTape(net, params, *net.matrices(lifted)), x


def _same(a: Array | None, b: Array | None) -> bool:
    """Whether two arrays hold the same bits, or the same numbers in objects."""
    if (
        a is None
        or b is None
        or a is b
        or type(a) is not type(b)
        or a.shape != b.shape
        or a.dtype != b.dtype
    ):
        return a is b
    if a.dtype == object:  # in lists an object equals itself, even a ball with a radius
        return bool(a.ravel().tolist() == b.ravel().tolist())
    first, second = (np.ascontiguousarray(each).view(np.uint8) for each in (a, b))
    return np.array_equal(first, second)


def admit_tape(where: str, net: Net, tape: NetTape, params: Params) -> None:
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
            names = net.__dataclass_fields__
            odd = [name for name in names if getattr(other, name) != getattr(net, name)]
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


def admit_backward(
    net: Net, params: Params, tape: NetTape, doutputs: Array, extra: Params | None
) -> None:
    """As ``admit_tape``; and raise ValueError or TypeError for a net that only runs forward,
    unless the cotangent has the outputs' shape, and unless each of the gradients to add has the
    shape of the parameter, or of the matrix made, of its name.

    >>> from refnet.nets.recurrent import RecurrentNet
    >>> net = RecurrentNet(inputs=1, hidden=2, outputs=3)
    >>> params = net.init(np.random.default_rng(0), np.float64)
    >>> outputs, tape = net.forward(params, np.ones((3, 2, 1)))
    >>> admit_backward(net, params, tape, np.ones((2, 1)), None)
    Traceback (most recent call last):
    ValueError: RecurrentNet.backward: doutputs has shape (2, 1); need (2, 3), as the outputs have
    """
    where = f"{type(net).__name__}.backward"
    if getattr(net, "checkpoint", "") == "forward":
        raise ValueError(
            f"{where}: a net with checkpoint='forward' keeps no tape; run forward "
            "and backward of dataclasses.replace(net, checkpoint='none')"
        )
    admit_tape(where, net, tape, params)
    admit(where, {"doutputs": doutputs}, {"doutputs": (tape.shape,)}, {}, "as the outputs have")
    if extra:
        known = {name: (value.shape,) for name, value in {**params, **tape.p}.items()}
        admit(f"{where}: extra", extra, known, {}, "as the parameters have")


def draw_matrix(
    what: str, draw: Initializer | str, shape: tuple[int, int], rng: np.random.Generator
) -> Array:
    """A start matrix by an initialiser, or by the name of one.

    >>> draw_matrix("weights", "identity", (2, 2), np.random.default_rng(0)).tolist()
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
        number = np.dtype(dtype)
    except TypeError:
        raise TypeError(
            f"init: dtype is {short(dtype)}; need a float type such as np.float32"
        ) from None
    if number.kind != "f":
        raise ValueError(
            f"init: dtype is {number}; need a float type such as np.float32. For exact "
            "numbers, lift what init gives (refnet.exact.lift)"
        )
    return number


def named(name: str, suffix: str) -> str:
    """A parameter's name, or that of a part of a matrix, with its cell's suffix.

    >>> named("Wxh.W", "_l0_reverse")
    'Wxh_l0_reverse.W'
    """
    matrix, dot, part = name.partition(".")
    return f"{matrix}{suffix}{dot}{part}"


def add_gradients(a: Params, b: Params) -> Params:
    """``a`` with ``b`` added entry by entry.

    >>> add_gradients({"W": 1, "b": 2}, {"b": 3, "c": 4})
    {'W': 1, 'b': 5, 'c': 4}
    """
    return {**a, **{name: a[name] + value if name in a else value for name, value in b.items()}}


def pull_to_parts(
    net: Net, params: Params, residuals: Residuals, grads: Params, extra: Params | None
) -> Params:
    """Add ``extra`` to the matrices' gradients, pull these back to their parts if the net's
    transition made them, and add the rest of ``extra``, which is for the parts themselves.

    >>> from refnet.nets.recurrent import RecurrentNet
    >>> net = RecurrentNet(inputs=1, hidden=2, outputs=1)
    >>> pull_to_parts(net, {}, {}, {"Whh": np.zeros((2, 2))}, {"Whh": np.eye(2)})["Whh"].tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    extra, rest = extra or {}, {}
    if extra:
        rest = {name: value for name, value in extra.items() if name not in grads}
        grads = add_gradients(
            grads, {name: value for name, value in extra.items() if name in grads}
        )
    if net.transition is not None:
        matrices = {slot: grads.pop(slot) for slot in net.slots}
        grads |= pull_back(net.transition, params, residuals, matrices)
    return add_gradients(grads, rest) if rest else grads
