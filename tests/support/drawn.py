"""Parameters and a batch that are drawn for a net."""

import numpy as np

from refnet.check.cases import random_batch, random_mask, random_params


def drawn(net, T=7, B=3, dtype=np.float32, seed=0, mask=False, peepholes=False):
    """Parameters and a batch, from one generator."""
    rng = np.random.default_rng(seed)
    params, batch = random_params(net, rng, dtype, peepholes), random_batch(net, rng, dtype, T, B)
    if isinstance(mask, list):  # the lengths of the sequences
        return params, batch._replace(mask=np.arange(T)[:, None] < np.array(mask))
    return params, batch._replace(mask=random_mask(rng, T, B)) if mask else batch
