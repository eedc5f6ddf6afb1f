"""An initializer: a start value of a weight matrix, here k entries in a row.

    refnet train temporal-order --recurrent mine.py:sparse:k=3
    refnet prove mine.py:sparse:k=3

Arguments after the first two are options.
"""

import numpy as np


def sparse(shape, rng, k: int = 15):
    """Each row has k entries from N(0, 1), or as many as it is long.

    Source: Martens (2010).
    """
    W = np.zeros(shape)
    for row in W:
        at = rng.choice(len(row), min(int(k), len(row)), replace=False)
        row[at] = rng.standard_normal(len(at))
    return W
