"""A net's loss and its derivatives.

``loss_and_gradients`` is the hand-written backward pass. Tangents (``jvp``, ``hvp``) run the
same source on numbers that carry a derivative along: a complex step for floats (Squire &
Trapp 1998: with a step h far below eps the value is untouched and ``Im f(x + i h v) / h``
has no truncation error), ``Dual`` for exact numbers. They need no formula of their own, so
they check the backward pass independently.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from refnet.batch import Array, Batch, Params, examples
from refnet.common.arguments import (
    FLAG,
    FUNCTION,
    NUMBERS,
    admit,
    instance,
    optional,
    real,
    takes,
    turned,
)
from refnet.maths.dual import dual_array, parts
from refnet.maths.kinds import join, same_kind
from refnet.maths.losses import Loss, counted_predictions, score
from refnet.maths.numeric import Number
from refnet.nets.backends import losses_of
from refnet.nets.base import NetTape, of_one_kind
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.padding import finite_input
from refnet.nets.recurrent import RecurrentNet

Net = RecurrentNet | FeedforwardNet
Penalty = Callable[[Params], tuple[Any, Params]]
STEP = 300
"""The complex step is 2^-STEP times a direction whose largest entry is about 1: scaling by a power
of two is exact, and the square of the step is far below an eps."""
SPAN = 400
"""Entries smaller than the largest by 2^SPAN go in a step of their own, or they would underflow."""


NET = instance((RecurrentNet, FeedforwardNet), "a RecurrentNet, a StackedNet or a FeedforwardNet")
BATCH = instance(Batch, "refnet.Batch(x, y, mask)")
RULES = {
    "net": NET,
    "batch": BATCH,
    "penalty": optional(FUNCTION),
    "divisor": optional(real("(0, inf)")),
}


def scored(
    net: Net,
    outputs: Array,
    batch: Batch,
    divisor: Any = None,
    losses: Mapping[str, Loss] | None = None,
) -> tuple[Array, Array]:
    """The loss and its gradient in the outputs; ``losses``: in place of the backend's own.

    >>> net = RecurrentNet(inputs=1, hidden=2, outputs=1, loss="squared_error", reduction="sum")
    >>> loss, gradient = scored(net, np.ones((1, 1)), Batch(np.ones((3, 1, 1)), np.zeros((1, 1))))
    >>> float(loss), gradient.tolist()
    (1.0, [[2.0]])
    """
    _admit_targets(net, batch, outputs.shape)
    _admit_complex(batch.y, outputs)
    lead, weights = outputs.shape[:-1], batch.weights
    if weights is not None:
        weights = _admit_weights(weights, outputs)
    counted, natural = counted_predictions(batch.mask, lead, net.reduction, weights)
    if weights is not None:
        weights = np.broadcast_to(weights, lead)[counted]
    losses = losses or losses_of(net.backend_for(outputs.dtype), net.smoothing)
    return score(net.loss, outputs, batch.y, counted, divisor or natural, losses, weights)


def with_final(loss: Array, tape: NetTape, batch: Batch) -> tuple[Array, dict[str, Params]]:
    """The loss with what ``batch.final`` adds, and these cotangents as ``net.backward`` takes them.

    >>> net = RecurrentNet(inputs=1, hidden=2, outputs=1)
    >>> params = net.init(np.random.default_rng(0), np.float64)
    >>> batch = Batch(np.zeros((3, 1, 1)), np.array([0]), final={"h0": np.ones((1, 2))})
    >>> tape = net.forward({**params, "bh": np.ones(2), "Whh": np.zeros((2, 2))}, batch.x)[1]
    >>> loss, ended = with_final(np.array(0.5), tape, batch)
    >>> float(loss) == 0.5 + 2 * float(np.tanh(1.0)), ended["final"]["h0"].tolist()
    (True, [[1.0, 1.0]])

    Checked by: tests/nets/test_final_cotangents.py.
    """
    if not batch.final:
        return loss, {}
    if not isinstance(tape.net, RecurrentNet):
        raise TypeError("batch: final is for a recurrent net; a feedforward net has no steps")
    if batch.mask is not None and not batch.mask[-1].all():
        raise ValueError(
            "batch: final has cotangents for sequences of different lengths; need a mask that is "
            "True at the last step, or the last states as outputs (readout='last')"
        )
    states = tape.final
    shapes = {name: (value.shape,) for name, value in states.items()}
    admit("batch: final", batch.final, shapes, {}, "as the states after the last step have")
    final = {
        name: join(f"final[{name!r}]", value, "the loss", loss)
        for name, value in batch.final.items()
    }
    for name, value in final.items():
        loss = np.asanyarray(loss + (states[name] * value).sum())
    return loss, {"final": final}


def _admit_weights(weights: Array, outputs: Array) -> Array:
    """The weights in the kind of the outputs. Raises ValueError or TypeError for a shape or numbers
    that do not fit."""
    lead = outputs.shape[:-1]
    admit("batch", {"weights": weights}, {"weights": (lead, lead[-1:])}, {}, "one a prediction")
    weights = join("the weights", weights, "the outputs", outputs)
    if weights.dtype.kind == "f" and not (np.isfinite(weights) & (weights >= 0)).all():
        raise ValueError("batch: weights are not all finite and at least 0; need such numbers")
    return weights


def _admit_complex(y: Array, computed: Array) -> None:
    """Raise TypeError if the targets are complex and the outputs are real."""
    if y.dtype.kind == "c" and computed.dtype.kind != "c":
        raise TypeError(f"batch: y is an array of {y.dtype}; need real targets: pass y.real")


def _admit_targets(net: Net, batch: Batch, outputs: tuple[int, ...]) -> None:
    """Raise ValueError or TypeError for a y that does not fit outputs of that shape."""
    y: Any = batch.y
    need = outputs[:-1] if net.loss == "cross_entropy" else outputs
    if type(y) is not np.ndarray or y.shape != need or y.dtype.kind not in NUMBERS:
        admit(
            "batch",
            {"y": y},
            {"y": (need,)},
            {},
            f"because the net's loss is {net.loss} and its outputs are {outputs}"
            + turned(isinstance(net, RecurrentNet) and np.shape(y)[:1] == batch.x.shape[:1]),
        )


class Result(NamedTuple):
    """``loss`` (), ``gradients`` by parameter name and for "h0" and "x", ``outputs``; ``final``:
    the states after the last step by the names of the initial ones, if they were wanted."""

    loss: Array
    gradients: Params
    outputs: Array
    final: Params = {}


@takes(**RULES, final=FLAG)
def loss_and_gradients(
    net: Net,
    params: Params,
    batch: Batch,
    inputs: bool = True,
    penalty: Penalty | None = None,
    divisor: Number | None = None,
    final: bool = False,
) -> Result:
    """The loss and its exact gradient in every parameter, in h0 and in an x that is no symbols.

    ``inputs``: whether the gradient in x is wanted. ``penalty``: takes the parameters with
    every matrix made (and the transitions' parts under their own names) and gives a value to
    add to the loss with its gradients. ``divisor``: what the summed loss is divided by,
    instead of what the net's reduction says. ``final``: whether a recurrent net's states after the
    last step are wanted, as the parameters h0 of a piece that goes on there; all sequences then
    have T steps.

    Returns a Result; "h0" is (B, H) unless it is a parameter of shape (H,), shared by the
    batch. Any dtype, which all of the result has. Raises ValueError on shapes that do not fit
    and on numbers of different kinds (``refnet.maths.kinds``), and TypeError for numbers that an
    activation is not defined on.

    >>> net = RecurrentNet(inputs=2, hidden=4, outputs=3)
    >>> params = net.init(np.random.default_rng(0), np.float64)
    >>> batch = Batch(np.ones((5, 2, 2)), np.array([0, 2]))
    >>> result = loss_and_gradients(net, params, batch)
    >>> result.gradients["Whh"].shape, result.gradients["x"].shape
    ((4, 4), (5, 2, 2))

    Checked by: tests/cells/test_exact_transpose.py::test_push_equals_pull.
    """
    if final and batch.mask is not None and not batch.mask[-1].all():
        raise ValueError(
            "loss_and_gradients: final is wanted of sequences of different lengths; need a mask "
            "that is True at the last step"
        )
    outputs, tape = net.forward(params, batch.x, batch.mask, copy=False)
    states = tape.final if final else {}
    loss, doutputs = scored(net, outputs, batch, divisor)
    loss, ended = with_final(loss, tape, batch)
    extra: Params | None = None
    if penalty is not None:
        value, extra = penalty(tape.p)
        if np.shape(value) != ():
            raise ValueError(
                "loss_and_gradients: the penalty's value has shape "
                f"{np.shape(value)}; need one number"
            )
        loss = np.asarray(loss + value)
    gradients = net.backward(params, tape, doutputs, inputs, extra, **ended)
    dtype = outputs.dtype
    for name, value in gradients.items():
        if not (value.dtype == dtype and dtype.kind in "fc") and name != "clipped":
            gradients[name] = join(f"the gradient of {name}", value, "the outputs", outputs)
    return Result(join("the loss", loss, "the outputs", outputs), gradients, outputs, states)


def tangent(function: Callable[[Params], Params], at: Params, direction: Params) -> Params:
    """The derivative of ``function`` at ``at`` along ``direction`` (0 for absent names).

    float32 and float64 are computed in complex128, longdouble in clongdouble, and come back
    in their own dtype; complex and object arrays run on Dual. Directions of any magnitude: they
    are scaled by a power of two, and one whose entries span more than a factor of 2^SPAN is split
    into several, whose tangents add up. Raises ValueError for a direction with a name or a shape
    that ``at`` does not have.

    >>> tangent(lambda p: {"y": p["x"] ** 2}, {"x": np.array([3.0])}, {"x": np.array([1.0])})
    {'y': array([6.])}

    Checked by: tests/nets/test_gradients.py::test_directions_of_any_magnitude.
    """
    admit(
        "direction",
        direction,
        {name: (value.shape,) for name, value in at.items()},
        {},
        "the shape of what it is the direction of",
    )
    along = {
        name: np.asarray(direction[name]) if name in direction else np.zeros_like(value)
        for name, value in at.items()
    }
    kinds = {value.dtype.kind for value in at.values()}
    if kinds & {"c", "O"}:
        along = {
            name: join(f"direction[{name!r}]", along[name], name, value)
            for name, value in at.items()
        }
        out = function({name: dual_array(value, along[name]) for name, value in at.items()})
        return {name: parts(np.asarray(value, object))[1] for name, value in out.items()}
    dtype = np.result_type(*at.values())
    wide = np.result_type(dtype, np.complex128)
    real = np.finfo(wide).dtype
    along = {
        name: join(
            f"direction[{name!r}]",
            value,
            "the computation",
            np.empty(0, np.result_type(value, real) if value.dtype.kind == "f" else real),
        )
        for name, value in along.items()
    }
    exponents = {name: np.frexp(value)[1] for name, value in along.items()}
    left = {name: value != 0 for name, value in along.items()}
    total: Params = {}
    while True:
        top = max(
            (int(exponents[name][here].max()) for name, here in left.items() if here.any()),
            default=0,
        )
        lifted = {}
        for name, value in at.items():
            now = left[name] & (exponents[name] > top - SPAN)
            left[name] = left[name] & ~now
            lifted[name] = np.empty(value.shape, wide)
            lifted[name].real = value
            lifted[name].imag = np.ldexp(np.where(now, along[name], 0), -STEP - top)
        for name, value in function(lifted).items():
            part = np.ldexp(value.imag, STEP + top)
            total[name] = total[name] + part if name in total else part
        if not any(here.any() for here in left.values()):
            return {name: value.astype(dtype) for name, value in total.items()}


def _joined(net: Net, params: Params, batch: Batch) -> tuple[Net, Params, Batch]:
    """The net, what ``tangent`` moves, and the batch with its targets as ``tangent`` needs them."""
    net.admit("tangent", params, batch.x, batch.mask)
    net = replace(net, backend="reference")
    if batch.x.ndim == 2 and net.embedding:  # symbols have no tangent
        return net, of_one_kind(params), batch
    params, x = same_kind(params, finite_input(batch.x, batch.mask))
    if isinstance(batch.y, np.ndarray):
        _admit_complex(batch.y, x)
        if x.dtype.kind == "c" and batch.y.dtype.kind in "fc":  # which meets Dual
            batch = batch._replace(y=batch.y.astype(object))
    return net, {**params, "x": x}, batch


@takes(**RULES)
def jvp(
    net: Net,
    params: Params,
    batch: Batch,
    direction: Params,
    penalty: Penalty | None = None,
    divisor: Number | None = None,
) -> tuple[Array, Array]:
    """Tangents of the outputs and of the loss along ``direction``, shaped as these.

    ``direction``: arrays by the names of the parameters and "x", each shaped as what it moves;
    what is not named stays. A transition's constants (base, D), whose gradient is 0 because they
    are never trained, move as all else does. ``penalty`` and ``divisor`` as in
    ``loss_and_gradients``; the penalty has to compute on complex or dual numbers. Any dtype, which
    the tangents have. Raises ValueError for a name or shape that does not fit, and as
    ``loss_and_gradients`` does.
    Source: the complex step for floats (Squire & Trapp 1998), dual numbers for exact ones.

    >>> net = RecurrentNet(inputs=2, hidden=4, outputs=3)
    >>> params = net.init(np.random.default_rng(0), np.float64)
    >>> batch = Batch(np.ones((5, 2, 2)), np.array([0, 2]))
    >>> outputs_dot, loss_dot = jvp(net, params, batch, {"by": np.ones(3)})
    >>> outputs_dot.tolist()
    [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]

    Checked by: tests/cells/test_exact_transpose.py::test_push_equals_pull.
    """
    net, at, batch = _joined(net, params, batch)

    def run(p: Params) -> Params:
        x = p.pop("x", batch.x)
        outputs, tape = net.forward(p, x, batch.mask, copy=False)
        loss, _ = with_final(scored(net, outputs, batch, divisor)[0], tape, batch)
        loss = loss if penalty is None else np.asarray(loss + penalty(tape.p)[0])
        return {"outputs": outputs, "loss": loss}

    out = tangent(run, at, direction)
    return out["outputs"], out["loss"]


@takes(**RULES)
def hvp(
    net: Net,
    params: Params,
    batch: Batch,
    direction: Params,
    penalty: Penalty | None = None,
    divisor: Number | None = None,
) -> Params:
    """Hessian-vector product: the tangent of every gradient along ``direction``, by the names and
    in the shapes of ``loss_and_gradients``.

    Forward over reverse: the backward pass itself runs on numbers that carry a derivative.
    ``direction``, ``penalty``, ``divisor``, dtypes and errors as for ``jvp``.
    Source: Pearlmutter (1994).

    >>> net = RecurrentNet(inputs=2, hidden=4, outputs=3)
    >>> params = net.init(np.random.default_rng(0), np.float64)
    >>> batch = Batch(np.ones((5, 2, 2)), np.array([0, 2]))
    >>> hvp(net, params, batch, {"Whh": np.eye(4)})["Wxh"].shape
    (4, 2)

    Checked by: tests/nets/test_gradients.py::test_hvp_is_symmetric.
    """
    net, at, batch = _joined(net, params, batch)

    def run(p: Params) -> Params:
        shifted = batch._replace(x=p.pop("x", batch.x))
        return loss_and_gradients(net, p, shifted, penalty=penalty, divisor=divisor).gradients

    return tangent(run, at, direction)


@takes(net=NET, batch=BATCH)
def per_example_gradients(
    net: Net, params: Params, batch: Batch, inputs: bool = True
) -> list[Result]:
    """The share of every example in the loss and gradients, a Result each; they add up to the
    batch's: with ``reduction="mean"`` a share is the example's own loss over the number of
    predictions in the batch.

    "x" and "h0", shared or not, have a batch axis of length 1. Any dtype. Raises ValueError as
    ``loss_and_gradients`` does.

    >>> net = RecurrentNet(inputs=2, hidden=4, outputs=3)
    >>> params = net.init(np.random.default_rng(0), np.float64)
    >>> batch = Batch(np.ones((5, 2, 2)), np.array([0, 2]))
    >>> shares = per_example_gradients(net, params, batch)
    >>> whole = loss_and_gradients(net, params, batch).gradients["Whh"]
    >>> bool(np.allclose(sum(share.gradients["Whh"] for share in shares), whole))
    True

    Checked by: tests/nets/test_gradients.py::test_per_example_gradients_add_up.
    """
    net.admit("per_example_gradients", params, batch.x, batch.mask)
    axis = int(isinstance(net, RecurrentNet))
    size = batch.x.shape[axis]
    # the prediction axes: (T, B) with a read-out at every step, else (B,)
    every = isinstance(net, RecurrentNet) and net.readout != "last"
    shape = batch.x.shape[:2] if every else (size,)
    _admit_targets(
        net, batch, (*shape, net.outputs if isinstance(net, RecurrentNet) else net.widths[-1])
    )
    _, divisor = counted_predictions(batch.mask, shape, net.reduction, batch.weights)
    results = []
    for b in range(size):
        alone = slice(b, b + 1)
        example = examples(batch, alone, every, axis == 1)
        starts = {}
        if isinstance(net, RecurrentNet):
            starts = {
                name: net.initial_state(params, batch.x, name)[..., alone, :]
                for name in params
                if name.startswith("h0")
            }
        single = net if net.noise is None else replace(net, noise=net.noise.examples(alone))
        results.append(
            loss_and_gradients(single, {**params, **starts}, example, inputs, divisor=divisor)
        )
    return results
