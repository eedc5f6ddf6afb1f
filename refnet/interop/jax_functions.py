"""refnet's nets as functions of JAX (extra ``jax``), which compute on the CPU.

A net's forward pass is a primitive of JAX, and its pullback another; compiled programs call both
by ``jax.pure_callback``. (``jax.custom_vjp`` would not do: in the gradient of a ``vmap`` it asks
for the gradients of every lane, a backward pass each, and adds them up. Here ``vmap`` makes one
larger batch, whose backward pass is one, too.)

Source: "How JAX primitives work", in JAX's documentation, for the rules that a primitive has.
Checked by: tests/interop/test_jax.py.
"""

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, NoReturn, TypeAlias

import numpy as np

from refnet.batch import Array
from refnet.interop import package
from refnet.nets.base import NetTape
from refnet.nets.gradients import Net
from refnet.nets.recurrent import RecurrentNet

__all__ = ["function"]

jax = package("jax", called="JAX")
jnp = jax.numpy
ad, batching, mlir = (package(f"jax.interpreters.{name}") for name in ("ad", "batching", "mlir"))
Primitive = package("jax.extend.core").Primitive

Jax: TypeAlias = Any
"""An array of JAX's, or a tree of them: an optional package."""
Names: TypeAlias = tuple[str, ...]
"""What a net's arrays are: its parameters by their names, then "x" and, if there is one, "mask"."""

WAITING = 8
"""The tapes that are held for a backward pass; for one that comes later, forward runs again."""
_tapes: OrderedDict[int, NetTape] = OrderedDict()
_numbers = count(1)


def function(net: Net) -> Callable[..., Jax]:
    """The net as a function of JAX, ``f(params, x, mask=None) -> outputs``.

    ``params``: a dict of arrays by refnet's names; ``x`` and ``mask`` as for the net's ``forward``,
    or of one sequence, without the axis B: x (T, D), outputs (C,) or (T, C). float32, or float64
    where JAX has it enabled. ``jit``, ``vmap``, ``scan``, ``checkpoint`` and ``grad`` apply to it;
    ``vmap`` over x is a batch, and over parameters a loop. It is differentiated once, in reverse.
    Raises ValueError or TypeError on arrays that do not fit, when it is traced.

    >>> net = RecurrentNet(inputs=2, hidden=4, outputs=3)
    >>> params = net.init(np.random.default_rng(0))
    >>> f = jax.jit(function(net))
    >>> f(params, np.ones((5, 8, 2), np.float32)).shape
    (8, 3)
    >>> def loss(params, sequences):
    ...     return (jax.vmap(f, (None, 0))(params, sequences) ** 2).sum()
    >>> jax.grad(loss)(params, np.ones((8, 5, 2), np.float32))["Whh"].shape
    (4, 4)

    Checked by: tests/interop/test_jax.py.
    """
    axis = _time_axes(net)

    def call(params: dict[str, Jax], x: Jax, mask: Jax | None = None) -> Jax:
        given = {**params, "x": x} | ({} if mask is None else {"mask": mask})
        given = {name: jnp.asarray(value) for name, value in given.items()}
        single = given["x"].ndim == axis + (given["x"].dtype.kind == "f")
        for name in ("x", "mask") if single else ():
            if name in given:
                given[name] = jnp.expand_dims(given[name], axis)
        _admit(net, given)
        how = {"net": net, "names": tuple(given), "differentiated": False}
        outputs, _ = forward_p.bind(*given.values(), **how)
        return outputs.squeeze(outputs.ndim - 2) if single else outputs

    return call


def _time_axes(net: Net) -> int:
    """The number of axes before that of the sequences in x and in a mask."""
    return int(isinstance(net, RecurrentNet))


def _admit(net: Net, given: dict[str, Jax]) -> None:
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


def _run(*arrays: Array, net: Net, names: Names, differentiated: bool) -> tuple[Array, Array]:
    """The outputs, and the number of the tape that waits, 0 if none does."""
    given = dict(zip(names, map(np.asarray, arrays)))
    x, mask = given.pop("x"), given.pop("mask", None)
    outputs, tape = net.forward(given, x, mask)  # the tape outlives JAX's buffers: it has copies
    number = next(_numbers) % 2**31 if differentiated else 0
    if differentiated:
        _tapes[number] = tape
    while len(_tapes) > WAITING:
        _tapes.popitem(last=False)
    return outputs, np.asarray(number, np.int32)


def _pull(
    number: Array, doutputs: Array, *arrays: Array, net: Net, names: Names, wanted: Names
) -> list[Array]:
    """The gradients in what is wanted."""
    tape = _tapes.pop(int(number), None)
    if tape is None or tape.shape != doutputs.shape:  # that of a batch, of which this is a lane
        _, again = _run(*arrays, net=net, names=names, differentiated=True)
        tape = _tapes.pop(int(again))
    gradients = net.backward(tape.given, tape, np.asarray(doutputs), "x" in wanted)
    return [gradients[name] for name in wanted]


def _shapes(*arrays: Jax, net: Net, names: Names, **_: object) -> list[Jax]:
    x, batch = arrays[names.index("x")], _time_axes(net)
    width = net.outputs if isinstance(net, RecurrentNet) else net.widths[-1]
    first = batch if getattr(net, "readout", "last") == "last" else 0
    outputs = jax.core.ShapedArray((*x.shape[first : batch + 1], width), arrays[0].dtype)
    return [outputs, jax.core.ShapedArray((), np.dtype(np.int32))]


def _gradient_shapes(
    number: Jax, doutputs: Jax, *arrays: Jax, names: Names, wanted: Names, **_: object
) -> list[Jax]:
    like = dict(zip(names, arrays))
    return [jax.core.ShapedArray(like[name].shape, like[name].dtype) for name in wanted]


def _in_turn(primitive: Jax, arrays: list[Jax], dims: list[int | None], **how: Any) -> Jax:
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


def _in_one_batch(arrays: list[Jax], dims: list[int | None], **how: Any) -> Jax:
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
    outputs, number = forward_p.bind(*merged, **how)
    axis = outputs.ndim - 2
    shape = *outputs.shape[:axis], size, -1, outputs.shape[-1]
    return (outputs.reshape(shape), number), (axis, None)


def _is_shared(net: Net, name: str, array: Jax, dim: int | None) -> bool:
    """Whether all sequences share an array: all parameters but the initial states of each."""
    if name in ("x", "mask"):
        return False
    return not (
        name.startswith("h0") and array.ndim - (dim is not None) == len(net.shapes[name][-1])
    )


def _linearized(primals: list[Jax], tangents: list[Jax], **how: Any) -> Jax:
    how["differentiated"] = True
    results = forward_p.bind(*primals, **how)
    moving = {
        name: tangent
        for name, tangent in zip(how["names"], tangents)
        if type(tangent) is not ad.Zero
    }
    doutputs = tangent_p.bind(results[1], *primals, *moving.values(), wanted=tuple(moving), **how)[
        0
    ]
    return results, [doutputs, ad.Zero(jax.core.ShapedArray((), jax.dtypes.float0))]


def _transposed(cotangents: list[Jax], number: Jax, *arrays: Jax, **how: Any) -> list[Jax]:
    del how["differentiated"]
    primals = arrays[: len(how["names"])]
    doutputs = ad.instantiate_zeros(cotangents[0])
    return [None] * (1 + len(primals)) + pull_p.bind(number, doutputs, *primals, **how)


def _refuse(*arrays: Jax, **how: Any) -> NoReturn:
    raise NotImplementedError(
        "refnet.jax: a net is differentiated once, in reverse (jax.grad, jax.vjp, jax.jacrev); "
        "refnet.jvp and refnet.hvp have its other derivatives"
    )


def _primitive(name: str, shapes: Callable[..., list[Jax]], host: Callable[..., Any]) -> Jax:
    """A primitive that ``host`` computes, with arrays of NumPy."""
    primitive = Primitive(name)
    primitive.multiple_results = True
    primitive.def_abstract_eval(shapes)

    def compute(*arrays: Jax, **how: Any) -> list[Jax]:
        return [jnp.array(each) for each in host(*map(np.asarray, arrays), **how)]

    def call(*arrays: Jax, **how: Any) -> Jax:
        like = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in shapes(*arrays, **how)]
        return jax.pure_callback(partial(host, **how), like, *arrays)

    primitive.def_impl(compute)
    mlir.register_lowering(primitive, mlir.lower_fun(call, multiple_results=True))
    return primitive


forward_p = _primitive("refnet", _shapes, _run)
tangent_p = _primitive(
    "refnet_tangent", lambda number, *arrays, **how: _shapes(*arrays, **how)[:1], _refuse
)
pull_p = _primitive("refnet_pullback", _gradient_shapes, _pull)
ad.primitive_jvps[forward_p] = _linearized
ad.primitive_jvps[pull_p] = ad.primitive_jvps[tangent_p] = _refuse
ad.primitive_transposes[tangent_p] = _transposed
batching.primitive_batchers[forward_p] = _in_one_batch
batching.primitive_batchers[tangent_p] = partial(_in_turn, tangent_p)
batching.primitive_batchers[pull_p] = partial(_in_turn, pull_p)
