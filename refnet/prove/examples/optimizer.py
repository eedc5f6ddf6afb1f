"""An optimizer: descent along the signs of the gradients.

    refnet train temporal-order --optimizer mine.py:Signs --rate 0.0001

The fields are options, after those of ``Optimizer``; ``accumulators`` names
the arrays that a parameter has, and ``move`` gives the direction and the
accumulators' new values.
"""

from dataclasses import dataclass

import numpy as np

from refnet.training.optimizers import Optimizer


@dataclass(frozen=True)
class Signs(Optimizer):
    """``W <- W - rate sign(g)``."""

    def move(self, g, accumulators, steps):
        return np.sign(g), accumulators
