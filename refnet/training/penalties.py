"""Penalties of the weights' sizes.

Checked by: tests/training/test_penalties.py, tests/training/test_optimizers.py.
"""

import numpy as np

from refnet.batch import Array, Params
from refnet.common.arguments import ARRAYS, real, takes
from refnet.maths.kinds import inexact
from refnet.maths.numeric import Number, constant, nonpositive, times


@takes(weights=ARRAYS, strength=real("[0, inf)"))
def weight_decay(weights: Params, strength: Number) -> tuple[Array, Params]:
    """``strength sum W^2`` over all the given matrices and its gradient ``2 strength W``.

    No factor 1/2, as in the released code of Vorontsov et al. Of a matrix made of parts, give the
    matrix itself.
    Returns the value () and the gradients under the same names.

    >>> value, gradients = weight_decay({"W": np.array([[1.0, 2.0]])}, 0.5)
    >>> float(value), gradients["W"].tolist()
    (2.5, [[1.0, 2.0]])
    """
    weights = {name: inexact(W) for name, W in weights.items()}
    value = sum(times(strength, np.asanyarray((W * W).sum(), W.dtype)) for W in weights.values())
    return np.asanyarray(value), {name: times(2 * strength, W) for name, W in weights.items()}


@takes(weights=ARRAYS, strength=real("[0, inf)"))
def l1_penalty(weights: Params, strength: Number) -> tuple[Array, Params]:
    """``strength sum |W|`` over all the given matrices and its gradient ``strength sign(W)``, 0 at
    an entry of 0. Returns as ``weight_decay``.

    >>> value, gradients = l1_penalty({"W": np.array([[-1.0, 0.0, 2.0]])}, 0.5)
    >>> float(value), gradients["W"].tolist()
    (1.5, [[-0.5, 0.0, 0.5]])

    Checked by: tests/training/test_penalties.py::test_l1.
    """
    weights = {name: inexact(W) for name, W in weights.items()}
    grads = {}
    for name, W in weights.items():
        up = constant(strength, W)
        below = np.where(nonpositive(np.asarray(-W)), W * 0, -up)
        grads[name] = np.where(nonpositive(W), below, up)
    value = sum(np.asanyarray((W * grads[name]).sum(), W.dtype) for name, W in weights.items())
    return np.asanyarray(value), grads
