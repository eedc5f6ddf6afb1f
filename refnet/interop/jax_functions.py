"""refnet's nets as functions of JAX (extra ``jax``), which compute on the CPU.

A net's forward pass is a primitive of JAX, and its pullback another, which a compiled program
calls back. Two public functions would not do. ``jax.custom_vjp``, in the gradient of a ``vmap``,
asks for the gradients of every lane, a backward pass each, and adds them up; here ``vmap`` makes
one larger batch, whose backward pass is one, too. ``jax.pure_callback`` makes arrays of JAX in
another thread, which rounds float64 to float32 if ``jax.enable_x64`` is this thread's alone.

Source: "How JAX primitives work", in JAX's documentation, for the rules that a primitive has.
Checked by: tests/interop/test_jax_functions.py.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any, NoReturn, TypeAlias, TypedDict, Unpack

import numpy as np

from refnet.batch import Array
from refnet.interop import package
from refnet.nets.base import NetTape
from refnet.nets.gradients import Net
from refnet.nets.recurrent import RecurrentNet

jax = package("jax", called="JAX")
jnp = jax.numpy
ad, batching, mlir = (package(f"jax.interpreters.{name}") for name in ("ad", "batching", "mlir"))
Primitive, Shaped = package("jax.extend.core").Primitive, jax.core.ShapedArray

Jax: TypeAlias = Any
"""What JAX, an optional package, works on: an array, a tree of them, or a value in a program."""
Names: TypeAlias = tuple[str, ...]
"""What a net's arrays are: its parameters by their names, then "x" and, if there is one, "mask"."""


class How(TypedDict, total=False):
    """What a primitive is called with, besides arrays."""

    net: Net
    names: Names
    states: Names
    differentiated: bool
    wanted: Names


WAITING = 8
"""The tapes that are held for a backward pass; for one that comes later, forward runs again."""
_tapes: OrderedDict[int, NetTape] = OrderedDict()
_numbers = count(1)


def function(net: Net, final: bool = False) -> Callable[..., Jax]:
    """The net as a function of JAX, ``f(params, x, mask=None) -> outputs``.

    ``params``: a dict of arrays by refnet's names; ``x`` and ``mask`` as for the net's ``forward``,
    or of one sequence, without the axis B: x (T, D), outputs (C,) or (T, C). float32, or float64
    where JAX has it enabled. ``final``: f gives ``outputs, states`` with the states after the last
    step by the names of initial ones, so that ``f({**params, **states}, x)`` goes on from there.
    ``jit``, ``vmap``, ``scan``, ``checkpoint`` and ``grad`` apply to f; ``vmap`` over x is a batch,
    and over parameters a loop. It is differentiated once, in reverse. Raises ValueError or
    TypeError on arrays that do not fit, when it is traced.

    >>> net = RecurrentNet(inputs=2, hidden=4, outputs=3)
    >>> params = net.init(np.random.default_rng(0))
    >>> f = jax.jit(function(net))
    >>> f(params, np.ones((5, 8, 2), np.float32)).shape
    (8, 3)
    >>> def loss(params, sequences):
    ...     return (jax.vmap(f, (None, 0))(params, sequences) ** 2).sum()
    >>> jax.grad(loss)(params, np.ones((8, 5, 2), np.float32))["Whh"].shape
    (4, 4)

    Checked by: tests/interop/test_jax_functions.py.
    """
    axis = _time_axes(net)
    states: Names = ()
    if final:
        if not isinstance(net, RecurrentNet):
            raise ValueError(f"refnet.jax: final is for a recurrent net; this is {net}")
        states = tuple(f"h0{suffix}" for suffix in net.every_cell)

    def call(params: dict[str, Jax], x: Jax, mask: Jax | None = None) -> Jax:
        given = {**params, "x": x} | ({} if mask is None else {"mask": mask})
        given = {name: jnp.asarray(value) for name, value in given.items()}
        single = given["x"].ndim == axis + (given["x"].dtype.kind == "f")
        for name in given if single else ():
            if name in ("x", "mask"):
                given[name] = jnp.expand_dims(given[name], axis)
            elif name.startswith("h0"):
                given[name] = jnp.expand_dims(given[name], -2)
        _admit(net, given, final)
        *results, _ = forward_p.bind(
            *given.values(), net=net, names=tuple(given), states=states, differentiated=False
        )
        if single:
            results = [each.squeeze(each.ndim - 2) for each in results]
        return (results[0], dict(zip(states, results[1:]))) if final else results[0]

    return call


def _time_axes(net: Net) -> int:
    """The number of axes before that of the sequences in x and in a mask."""
    return int(isinstance(net, RecurrentNet))


def _admit(net: Net, given: dict[str, Jax], final: bool) -> None:
    """Raise an error unless the net takes arrays of these shapes and dtypes."""
    like = {
        name: np.broadcast_to(np.zeros((), value.dtype), value.shape)
        for name, value in given.items()
    }
    dtypes = {str(value.dtype) for value in like.values() if value.dtype.kind not in "bi"}
    if len(dtypes) != 1 or not dtypes <= {"float32", "float64"}:
        raise TypeError(
            f"refnet.jax: the arrays are {' and '.join(sorted(dtypes))}; need float32, or float64 "
            'for all of them, with jax.config.update("jax_enable_x64", True)'
        )
    x, mask = like.pop("x"), like.pop("mask", None)
    net.admit("refnet.jax", like, x, mask)
    if final and (mask is not None or not len(x)):
        raise ValueError(
            "refnet.jax: final is wanted of sequences of different lengths, or without steps; need "
            "x (T, B, D) with T >= 1 and no mask"
        )


def _forward(net: Net, names: Names, arrays: Sequence[Array]) -> tuple[Array, NetTape]:
    """The tape outlives JAX's buffers: it holds copies."""
    given = dict(zip(names, arrays))
    x, mask = given.pop("x"), given.pop("mask", None)
    return net.forward(given, x, mask)


def _run(
    *arrays: Array, net: Net, names: Names, states: Names, differentiated: bool
) -> list[Array]:
    """The outputs, the final states and the number of the tape that waits, 0 if none does."""
    outputs, tape = _forward(net, names, arrays)
    number = next(_numbers) % 2**31 if differentiated else 0
    if differentiated:
        _tapes[number] = tape
    while len(_tapes) > WAITING:
        _tapes.popitem(last=False)
    return [outputs, *(tape.final[name] for name in states), np.asarray(number, np.int32)]


def _pull(
    number: Array, *given: Array, net: Net, names: Names, states: Names, wanted: Names
) -> list[Array]:
    """The gradients in what is wanted: ``given`` are the arrays, and the cotangents."""
    arrays, doutputs, *dstates = given[: len(names)], *given[len(names) :]
    tape = _tapes.pop(int(number), None)
    if tape is None or tape.shape != doutputs.shape:  # that of a batch, of which this is a lane
        _, tape = _forward(net, names, arrays)
    final = {"final": dict(zip(states, dstates))} if states else {}
    gradients = net.backward(tape.given, tape, doutputs, "x" in wanted, **final)
    return [gradients[name] for name in wanted]


class _Results(tuple[Array, ...]):
    """JAX rounds results as the thread that it runs a callback in says, one by one: meanwhile
    float64 stays."""

    def __iter__(self) -> Iterator[Array]:
        with jax.enable_x64(True):
            yield from tuple.__iter__(self)


def _shapes(*arrays: Jax, net: Net, names: Names, states: Names, **_: object) -> list[Jax]:
    x, batch, dtype = arrays[names.index("x")], _time_axes(net), arrays[0].dtype
    width = net.outputs if isinstance(net, RecurrentNet) else net.widths[-1]
    first = batch if getattr(net, "readout", "last") == "last" else 0
    shapes = [(*x.shape[first : batch + 1], width)]
    for name in states:
        *lead, H = net.shapes[name][0]
        shapes.append((*lead, x.shape[1], H))
    return [*(Shaped(shape, dtype) for shape in shapes), Shaped((), np.dtype(np.int32))]


def _gradient_shapes(
    number: Jax, *given: Jax, names: Names, wanted: Names, **_: object
) -> list[Jax]:
    like = dict(zip(names, given))
    return [Shaped(like[name].shape, like[name].dtype) for name in wanted]


def _in_turn(primitive: Jax, arrays: list[Jax], dims: list[int | None], **how: Unpack[How]) -> Jax:
    """The rule of vmap: one lane after the other."""
    mapped = {
        n: jnp.moveaxis(array, dim, 0)
        for n, (array, dim) in enumerate(zip(arrays, dims))
        if dim is not None
    }

    def lane(some: dict[int, Jax]) -> Jax:
        return primitive.bind(*(some.get(n, array) for n, array in enumerate(arrays)), **how)

    results = jax.lax.map(lane, mapped)
    return results, [0] * len(results)


def _in_one_batch(arrays: list[Jax], dims: list[int | None], **how: Unpack[How]) -> Jax:
    """The rule of vmap: sequence b of lane n is sequence n B + b of a batch."""
    shared = [_is_shared(how["net"], *each) for each in zip(how["names"], arrays, dims)]
    if any(dim is not None and same for dim, same in zip(dims, shared)):
        return _in_turn(forward_p, arrays, dims, **how)
    (size,) = {array.shape[dim] for array, dim in zip(arrays, dims) if dim is not None}
    merged = []
    for name, array, dim, same in zip(how["names"], arrays, dims, shared):
        if not same:
            if dim is None:
                array, dim = jnp.broadcast_to(array, (size, *array.shape)), 0
            axis = array.ndim - 3 if name.startswith("h0") else _time_axes(how["net"])
            array = jnp.moveaxis(array, dim, axis)
            array = array.reshape(*array.shape[:axis], -1, *array.shape[axis + 2 :])
        merged.append(array)
    *results, number = forward_p.bind(*merged, **how)
    axes = [each.ndim - 2 for each in results]
    results = [
        each.reshape(*each.shape[:axis], size, -1, each.shape[-1])
        for each, axis in zip(results, axes)
    ]
    return [*results, number], [*axes, None]


def _is_shared(net: Net, name: str, array: Jax, dim: int | None) -> bool:
    """Whether all sequences share an array: all parameters but the initial states of each."""
    if name in ("x", "mask"):
        return False
    return not (
        name.startswith("h0") and array.ndim - (dim is not None) == len(net.shapes[name][-1])
    )


def _linearized(primals: list[Jax], tangents: list[Jax], **how: Unpack[How]) -> Jax:
    *results, number = forward_p.bind(*primals, **how | {"differentiated": True})
    moving = {
        name: tangent
        for name, tangent in zip(how["names"], tangents)
        if type(tangent) is not ad.Zero
    }
    pushed = tangent_p.bind(number, *primals, *moving.values(), wanted=tuple(moving), **how)
    return [*results, number], [*pushed, ad.Zero(Shaped((), jax.dtypes.float0))]


def _transposed(cotangents: list[Jax], number: Jax, *arrays: Jax, **how: Unpack[How]) -> list[Jax]:
    del how["differentiated"]
    primals = arrays[: len(how["names"])]
    pulled = pull_p.bind(number, *primals, *map(ad.instantiate_zeros, cotangents), **how)
    return [None] * (1 + len(primals)) + list(pulled)


def _tangent_shapes(number: Jax, *arrays: Jax, **how: Unpack[How]) -> list[Jax]:
    return _shapes(*arrays, **how)[:-1]


def _refuse(*arrays: Jax, **how: object) -> NoReturn:
    raise NotImplementedError(
        "refnet.jax: a net is differentiated once, in reverse (jax.grad, jax.vjp, jax.jacrev); "
        "refnet.jvp and refnet.hvp have its other derivatives"
    )


def _primitive(
    name: str, shapes: Callable[..., list[Jax]], host: Callable[..., list[Array]]
) -> Jax:
    """A primitive that ``host`` computes, with arrays of NumPy."""
    primitive = Primitive(name)
    primitive.multiple_results = True
    primitive.def_abstract_eval(shapes)

    def compute(*arrays: Jax, **how: Unpack[How]) -> list[Jax]:
        return [jnp.array(each) for each in host(*map(np.asarray, arrays), **how)]

    def lower(context: Jax, *operands: Jax, **how: Unpack[How]) -> Jax:
        return mlir.emit_python_callback(
            context,
            lambda *arrays: _Results(host(*arrays, **how)),
            None,
            operands,
            context.avals_in,
            context.avals_out,
            has_side_effect=False,
            returns_token=False,
        )[0]

    primitive.def_impl(compute)
    mlir.register_lowering(primitive, lower, cacheable=False)
    batching.primitive_batchers[primitive] = partial(_in_turn, primitive)
    return primitive


forward_p = _primitive("refnet", _shapes, _run)
tangent_p = _primitive("refnet_tangent", _tangent_shapes, _refuse)
pull_p = _primitive("refnet_pullback", _gradient_shapes, _pull)
mlir.register_lowering(tangent_p, _refuse)
ad.primitive_jvps[forward_p] = _linearized
ad.primitive_jvps[pull_p] = ad.primitive_jvps[tangent_p] = _refuse
ad.primitive_transposes[tangent_p] = _transposed
batching.primitive_batchers[forward_p] = _in_one_batch
