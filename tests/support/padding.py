"""Batches with garbage in every place that does not count."""

import numpy as np

from refnet.batch import Batch, last_steps

GARBAGE = (np.nan, np.inf, -np.inf, np.finfo(np.float32).max, -1e30)


def littered(batch, net, garbage, rng):
    """The batch with garbage, and with zeros, wherever nothing counts."""
    x, y, mask = batch[:3]
    after = np.arange(len(x))[:, None, None] >= last_steps(mask)[:, None]
    mess = rng.choice(garbage, x.shape).astype(x.dtype)
    dirty_y = clean_y = y
    if net.readout != "last":
        counts = mask if y.ndim == 2 else mask[:, :, None]
        bad = (
            rng.choice([-1, 99, 2**40], y.shape)
            if y.dtype.kind == "i"
            else rng.choice(garbage, y.shape).astype(y.dtype)
        )
        dirty_y, clean_y = np.where(counts, y, bad), np.where(counts, y, 0)
    return (
        Batch(np.where(after, mess, x), dirty_y, mask),
        Batch(np.where(after, 0, x), clean_y, mask),
    )
