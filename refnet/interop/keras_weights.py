"""Keras (extra ``keras``): the weights of its recurrent layers.

Checked by: tests/check/test_jax.py.
"""

from types import ModuleType

import numpy as np

from refnet.batch import Array, Params
from refnet.interop import reorder, two_biases
from refnet.nets.recurrent import RecurrentNet

__all__ = ["ORDER", "layer_weights"]

ORDER = {"rnn": (0,), "lstm": (0, 1, 2, 3), "gru": (1, 0, 2), "gru_before": (1, 0, 2)}
"""The gates as Keras stacks them: of a GRU z, r, h."""


def layer_weights(
    net: RecurrentNet, p: Params, bias: bool = True, numpy: ModuleType = np
) -> list[Array]:
    """kernel, recurrent_kernel and, with a ``bias``, that: of a GRU that resets after the product
    two. ``numpy``: the module of the arrays, NumPy or JAX's."""
    order = ORDER[net.cell]
    weights = [reorder(p[name], order).T for name in ("Wxh", "Whh")]
    if not bias:
        return weights
    biases = [reorder(each, order) for each in two_biases(net, p, numpy)]
    return [*weights, numpy.stack(biases) if net.cell == "gru" else biases[0] + biases[1]]
