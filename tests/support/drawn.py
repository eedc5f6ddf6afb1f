"""Nets with drawn parameters and batches, for the tests."""

import numpy as np

from refnet.batch import Batch
from refnet.check.cases import random_batch, random_mask, random_params, reference_results
from refnet.matrices.initializers import initialize
from refnet.nets.recurrent import RecurrentNet


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


def chaotic():
    """A net, its parameters and batch: float32 keeps no digit of dWhh over these 60 steps."""
    net, rng = RecurrentNet(2, 8, 3), np.random.default_rng(0)
    params = net.init(rng) | {"Whh": (1.8 * rng.standard_normal((8, 8))).astype(np.float32)}
    return net, params, Batch(rng.standard_normal((60, 1, 2)).astype(np.float32), np.array([1]))


def times(net, factor, *names):
    """A wrong program: the reference, with these results, or the loss and all gradients, times a
    factor of their type."""

    def program(params, batch):
        results = reference_results(net, params, batch)
        for name in names or results.keys() - {"outputs"}:
            results[name] = results[name] * results[name].dtype.type(factor)
        return results

    return program
