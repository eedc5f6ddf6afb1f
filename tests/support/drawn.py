"""Parameters and a batch that are drawn for a net."""

import numpy as np

from refnet.check.cases import random_batch, random_mask, random_params
from refnet.matrices.initializers import initialize


def drawn(net, T=7, B=3, dtype=np.float32, seed=0, mask=False, peepholes=False):
    """Parameters and a batch, from one generator. ``mask``: True for sequences of random lengths,
    or the lengths."""
    rng = np.random.default_rng(seed)
    params, batch = random_params(net, rng, dtype, peepholes), random_batch(net, rng, dtype, T, B)
    if mask is True:
        mask = random_mask(rng, T, B)
    elif mask is not False:
        mask = np.arange(T)[:, None] < np.array(mask)
    return params, batch._replace(mask=None if mask is False else mask)


def padded(net, T=6, B=4, dtype=np.float64, seed=0):
    """Parameters and a batch of sequences that have T, 3, 1 and no steps."""
    return drawn(net, T, B, dtype, seed, [T, 3, 1, 0][:B])


def matrix(name, shape, seed=0, **options):
    """A start value by its initializer's name."""
    return initialize(name, shape, np.random.default_rng(seed), **options)
