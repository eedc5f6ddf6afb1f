"""A task: has a sequence of bits more ones than zeros?

    refnet train mine.py:Majority --length 31
    refnet prove mine.py:Majority

The fields of the class are the task's options. ``Generated``
(refnet/tasks/synthetic.py) makes batches and evaluations of what ``draw``
draws, and scores classes; a task of another form derives from
``refnet.tasks.Task`` and defines all that its docstrings ask for.
"""

from dataclasses import dataclass

import numpy as np

from refnet.batch import Batch
from refnet.tasks.synthetic import Generated


@dataclass(frozen=True)
class Majority(Generated):
    """x (T, B, 1) of 0 and 1; y (B,) is 1 if more than half are ones."""

    length: int = 21
    samples: int = 2000

    name = "majority"
    inputs = 1
    outputs = 2

    def draw(self, rng: np.random.Generator, size: int) -> Batch:
        bits = rng.integers(0, 2, (self.length, size))
        y = (2 * bits.sum(axis=0) > self.length).astype(int)
        return Batch(bits[:, :, None].astype(self.dtype), y)
