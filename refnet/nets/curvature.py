"""Curvature of the loss: Gauss-Newton and Fisher products, and the matrices of small nets.

With outputs v(w), J = dv/dw and the loss L(v), the Hessian is ``J' H J + sum_c dL/dv_c d2v_c/dw2``,
H the second derivative of L in v. Gauss-Newton leaves the second term out; it is ``hvp`` where v is
linear in w. The Fisher matrix is ``J' F J``, F the expected outer product of the scores under the
net's own distribution, and equals Gauss-Newton for both losses (Martens 2020, section 9.2).
Checked by: tests/nets/test_curvature.py.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from refnet.batch import Array, Batch, Params
from refnet.common.arguments import choice, instance, one_of, optional, takes
from refnet.maths.losses import largest
from refnet.maths.numeric import Number, divided, exp
from refnet.nets.base import add_gradients
from refnet.nets.gradients import RULES, Net, Penalty, hvp, jvp, loss_and_gradients, scored, tangent


def _through_outputs(
    net: Net,
    params: Params,
    batch: Batch,
    direction: Params,
    penalty: Penalty | None,
    curve: Callable[[Array, Array], Array],
) -> Params:
    """``J' curve(outputs, J direction)``, and the penalty's Hessian times the direction."""
    net = replace(net, backend="reference")
    outputs = net.forward(params, batch.x, batch.mask)[0]
    tangents = jvp(net, params, batch, direction)[0].astype(outputs.dtype)
    cotangent = curve(outputs, tangents).astype(outputs.dtype)
    linear = replace(net, loss="none", reduction="sum", smoothing=0)
    batch = batch._replace(y=cotangent, weights=None, final=None)
    products = loss_and_gradients(linear, params, batch).gradients
    if penalty is not None:
        second = hvp(linear, params, batch._replace(y=cotangent * 0), direction, penalty)
        products = add_gradients(products, second)
    return products


@takes(**RULES)
def gnvp(
    net: Net,
    params: Params,
    batch: Batch,
    direction: Params,
    penalty: Penalty | None = None,
    divisor: Number | None = None,
) -> Params:
    """Gauss-Newton-vector product ``J' H J v``, in the names and shapes of ``hvp``.

    ``direction`` v, ``divisor``, dtypes and errors as for ``hvp``. Of the ``penalty``, which has no
    outputs, the whole Hessian is added. Three passes: the tangent ``J v``, the loss's own tangent
    ``H J v``, and the backward pass.
    Source: Schraudolph (2002).

    >>> from refnet import Batch, RecurrentNet
    >>> net = RecurrentNet(inputs=2, hidden=4, outputs=3)
    >>> params = net.init(np.random.default_rng(0), np.float64)
    >>> batch = Batch(np.ones((5, 2, 2)), np.array([0, 2]))
    >>> v = {"by": np.ones(3), "Why": params["Why"]}  # in the read-out alone the outputs are linear
    >>> bool(np.allclose(gnvp(net, params, batch, v)["Why"], hvp(net, params, batch, v)["Why"]))
    True

    Checked by: tests/nets/test_curvature.py::test_against_its_definition.
    """

    def curve(outputs: Array, tangents: Array) -> Array:
        def slope(at: Params) -> Params:
            return {"d": scored(net, at["outputs"], batch, divisor)[1]}

        return tangent(slope, {"outputs": outputs}, {"outputs": tangents})["d"]

    return _through_outputs(net, params, batch, direction, penalty, curve)


@takes(**RULES)
def fvp(
    net: Net,
    params: Params,
    batch: Batch,
    direction: Params,
    penalty: Penalty | None = None,
    divisor: Number | None = None,
) -> Params:
    """Fisher-vector product ``J' F J v``: F sums the outer products of the scores, expected under
    the net's own distribution at x, with the weights, the mask and the divisor of the loss.

    cross_entropy: labels drawn from the softmax p, so ``F u = p (u - p'u)``. squared_error: targets
    drawn around the outputs with the variance C / 2 that makes the loss minus the log-likelihood,
    so ``F u = 2 u / C``. (The *empirical* Fisher takes the labels at hand: the outer products of
    ``per_example_gradients``.) All arguments as for ``gnvp``. ValueError for the loss "none", which
    has no distribution.
    Source: Amari (1998); Martens (2020).

    >>> from refnet import Batch, FeedforwardNet
    >>> net = FeedforwardNet((2, 2))
    >>> params = {"W1": np.zeros((2, 2)), "b1": np.zeros(2)}
    >>> batch = Batch(np.ones((1, 2)), np.zeros(1, int))
    >>> fvp(net, params, batch, {"b1": np.array([1.0, 0.0])})["b1"]
    array([ 0.25, -0.25])

    Checked by: tests/nets/test_curvature.py::test_fisher_is_the_expected_outer_product.
    """
    choice("fvp: the net's loss", net.loss, ("cross_entropy", "squared_error"))
    squares = replace(net, loss="squared_error", smoothing=0)

    def curve(outputs: Array, tangents: Array) -> Array:
        C = outputs.shape[-1]
        if net.loss == "cross_entropy":
            flat = outputs.reshape(-1, C)
            e = exp(flat - largest(flat)[:, None])
            p = (e / e.sum(axis=1)[:, None]).reshape(outputs.shape)
            tangents = divided(p * (tangents - (p * tangents).sum(axis=-1, keepdims=True)) * C, 2)
        # the gradient of squares at 0 is 2 / C times minus the targets
        return scored(squares, outputs * 0, batch._replace(y=-tangents), divisor)[1]

    return _through_outputs(net, params, batch, direction, penalty, curve)


PRODUCTS = {"hessian": hvp, "gauss_newton": gnvp, "fisher": fvp}


class Curvature(NamedTuple):
    """``matrix`` (n, n); ``places``: the rows and columns of every parameter by its name, whose
    entries are in C order."""

    matrix: Array
    places: dict[str, slice]


@takes(**RULES, form=one_of(PRODUCTS), names=optional(instance((list, tuple), "a list of names")))
def curvature_matrix(
    net: Net,
    params: Params,
    batch: Batch,
    form: str = "hessian",
    names: Sequence[str] | None = None,
    penalty: Penalty | None = None,
    divisor: Number | None = None,
) -> Curvature:
    """The Hessian, the Gauss-Newton or the Fisher matrix of a small net: a product for every entry.

    ``form``: "hessian" (``hvp``), "gauss_newton" (``gnvp``) or "fisher" (``fvp``). ``names``: the
    parameters, and "x", in the order of rows and columns, each once; by default those of ``params``
    in its order, without a transition's constants. All else as for the products. Symmetric: on
    exact numbers exactly, on floats up to rounding. ValueError for a name that no parameter has.

    >>> from refnet import Batch, FeedforwardNet
    >>> net = FeedforwardNet((1, 1, 1), activation="softsign", loss="squared_error")
    >>> one = np.ones((1, 1))
    >>> params = {"W1": one, "b1": one[0], "W2": one, "b2": one[0]}
    >>> H, places = curvature_matrix(net, params, Batch(one, one), names=["W2", "b2"])
    >>> H.round(4).tolist(), places["b2"]
    ([[0.8889, 1.3333], [1.3333, 2.0]], slice(1, 2, None))

    Checked by: tests/nets/test_curvature.py::test_against_its_definition.
    """
    net.admit("curvature_matrix", params, batch.x, batch.mask)
    constants = getattr(net.transition, "constant", ())
    known = {**params, "x": batch.x}
    trained = [name for name in params if name.partition(".")[2] not in constants]
    places, n = {}, 0
    for name in dict.fromkeys(names or trained):
        choice("curvature_matrix: names has", name, known)
        places[name] = slice(n, n := n + known[name].size)
    columns = []
    for name in places:
        for index in np.ndindex(known[name].shape):
            unit = np.zeros(known[name].shape, int)
            unit[index] = 1
            product = PRODUCTS[form](net, params, batch, {name: unit}, penalty, divisor)
            columns.append(np.concatenate([product[each].ravel() for each in places]))
    return Curvature(np.stack(columns, axis=1), places)
